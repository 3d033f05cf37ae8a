"""Host stages: a matrix is copied to the host, factored there by SciPy's LAPACK, and copied back.

The thread that puts such a stage into a stream waits for the matrix and computes. What it has put into other
streams before runs on the GPU meanwhile. No graph can capture this.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.devices.cuda.cpu_threads import CpuThreads
from tuner.devices.cuda.types import CudaEvent, Stream
from tuner.model.chains import LibraryCall
from tuner.model.trial import Flag, FlagKind

_LETTER = {"float32": "s", "float64": "d"}
_WORD_BYTES, _LINE_BYTES = 8, 64  # a pivot, tau or info has a word


class HostLapack:
    """Factors matrices of the device in this thread.

    Stages of one run follow each other in its order, so that ``info`` of the first panel that fails is kept.

    Args:
        cp: CuPy, with the device current.
        threads: sets those of the CPU; those of the system if not given.
    """

    def __init__(self, cp: ModuleType, threads: CpuThreads | None = None) -> None:
        self._cp = cp
        self._threads = threads or CpuThreads()
        self._staging = _Staging(cp)
        self._info = 0  # of the factorisation that is under way

    def action(self, call: LibraryCall, addresses: Mapping[str, int]) -> Callable[[Stream | None], None]:
        """What runs a call in a stream, None for CuPy's current one, and returns when it has computed.

        Args:
            call: a host stage.
            addresses: of the operands, by name.

        Raises:
            LaunchRefusedError: so many threads are not to be had.
        """
        self._threads.use(call.threads)
        self._staging.make_room(call)

        def run(stream: Stream | None) -> None:
            self._run(call, addresses, self._cp.cuda.get_current_stream() if stream is None else stream)

        return run

    def flag(self, call: LibraryCall) -> Flag | None:
        """What should be told of the threads of a call: there is only one, or their number is not known."""
        found = self._threads.use(call.threads)
        if found is None:
            told = f"nobody tells how many threads SciPy's BLAS computes with: {self._threads.unknown}"
        elif found == 1 and call.threads != 1:
            told = f"{self._threads.name} computes with 1 thread"
        else:
            return None
        return Flag(FlagKind.CPU_THREADS, told)

    def _run(self, call: LibraryCall, addresses: Mapping[str, int], stream: Stream) -> None:
        staging = self._staging
        staging.fetch(call, addresses["a"], stream)
        stream.synchronize()
        self._threads.use(call.threads)
        results, info = factored(call, staging.matrix(call))
        staging.send_back(call, addresses["a"], stream)
        for name, values in results.items():
            staging.send(0, values, addresses[name], stream)
        if "info" in addresses and (call.first == 0 or (info and not self._info)):
            self._info = info and call.first + info
            staging.send(min(call.m, call.n), np.array([self._info], "int32"), addresses["info"], stream)
        staging.all_sent(stream)


def factored(call: LibraryCall, matrix: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], int]:
    """Factor a matrix in place; what LAPACK says of it by the names of the operands, and its info."""
    from scipy.linalg import lapack  # noqa: PLC0415 - takes long to import, and most runs have no host stage

    routine = call.routine.removeprefix("lapack-")
    function = getattr(lapack, _LETTER[call.dtype] + routine)
    if routine == "potrf":
        _, info = function(matrix, lower=1, clean=0, overwrite_a=1)
        wrong = np.isnan(matrix.diagonal())  # which OpenBLAS lets pass, and LAPACK's own routine does not
        return {}, int(info) or int(wrong.any() and 1 + wrong.argmax())
    if routine == "getrf":
        _, pivots, info = function(matrix, overwrite_a=1)
        return {"pivots": (pivots + (1 + call.first)).astype("int32")}, int(info)
    wanted, _ = getattr(lapack, f"{_LETTER[call.dtype]}geqrf_lwork")(*matrix.shape)
    _, tau, _, info = function(matrix, lwork=int(wanted), overwrite_a=1)
    return {"tau": tau}, int(info)


class _Staging:
    """Pinned memory for one stage at a time: words, and behind them a matrix without gaps.

    Whoever takes it waits, on the device, until all that was sent from it before has arrived.
    """

    def __init__(self, cp: ModuleType) -> None:
        self._cp = cp
        self._bytes: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._arrived: CudaEvent = cp.cuda.Event(disable_timing=True)

    def make_room(self, call: LibraryCall) -> None:
        """Take more memory where a call needs it."""
        wanted = _words_bytes(call) + call.m * call.n * _item_bytes(call)
        if wanted > self._bytes.size:
            self._arrived.synchronize()
            self._bytes = np.frombuffer(self._cp.cuda.alloc_pinned_memory(wanted), np.uint8, wanted)

    def matrix(self, call: LibraryCall) -> NDArray[Any]:
        """The matrix of a call, (m, n), column-major."""
        first, size = _words_bytes(call), call.m * call.n * _item_bytes(call)
        return self._bytes[first : first + size].view(call.dtype).reshape(call.n, call.m).T

    def fetch(self, call: LibraryCall, address: int, stream: Stream) -> None:
        """Copy the matrix from the device, when what was sent before has arrived there."""
        stream.wait_event(self._arrived)
        self._copy(call, address, stream, to_host=True)

    def send_back(self, call: LibraryCall, address: int, stream: Stream) -> None:
        """Copy the matrix to the device."""
        self._copy(call, address, stream, to_host=False)

    def send(self, word: int, values: NDArray[Any], address: int, stream: Stream) -> None:
        """Copy values to the device, by way of the words from one on."""
        runtime, held = self._cp.cuda.runtime, self._bytes[word * _WORD_BYTES :][: values.nbytes]
        held[...] = values.view(np.uint8)
        kind = runtime.memcpyHostToDevice
        runtime.memcpyAsync(address, held.ctypes.data, values.nbytes, kind, stream.ptr)

    def all_sent(self, stream: Stream) -> None:
        """Note that nothing more is sent."""
        self._arrived.record(stream)

    def _copy(self, call: LibraryCall, address: int, stream: Stream, *, to_host: bool) -> None:
        runtime, item = self._cp.cuda.runtime, _item_bytes(call)
        host = (self._bytes.ctypes.data + _words_bytes(call), call.m * item)
        device = (address, call.operand("a").leading * item)
        kind = runtime.memcpyDeviceToHost if to_host else runtime.memcpyHostToDevice
        ends = (*host, *device) if to_host else (*device, *host)
        runtime.memcpy2DAsync(*ends, call.m * item, call.n, kind, stream.ptr)


def _item_bytes(call: LibraryCall) -> int:
    return int(np.dtype(call.dtype).itemsize)


def _words_bytes(call: LibraryCall) -> int:
    """Room for pivots or tau, and info, in whole lines of the cache."""
    return -(-(min(call.m, call.n) + 1) * _WORD_BYTES // _LINE_BYTES) * _LINE_BYTES
