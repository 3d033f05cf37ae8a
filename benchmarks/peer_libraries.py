"""What others offer for the catalogue's operations: CUB, cuSPARSE, cuFFT, torch and CuPy, ready to time."""

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from answers import Data

CUB_SOURCE = Path(__file__).with_name("cub_peers.cu")


@dataclass(frozen=True)
class Peer:
    """One contender.

    Attributes:
        name: for tables.
        run: solves the whole batch once, on the current stream.
        answer: where the solution is afterwards, in the layout of ``Data.output``.
        prepare: restores what a run destroys; not timed.
        slow: takes thousands of launches; timed a few times only.
    """

    name: str
    run: Callable[[], None]
    answer: Callable[[], Any]
    prepare: Callable[[], None] | None = None
    slow: bool = False


class Libraries:
    """The libraries found on this machine; ``missing`` says which were not, and why."""

    def __init__(self, cp: Any) -> None:
        self.cp = cp
        self.missing: dict[str, str] = {}
        self.torch: Any = None
        try:
            import torch  # noqa: PLC0415 - a peer, not a dependency

            self.torch = torch
        except ImportError as error:
            self.missing["torch"] = str(error)
        self.cub: ctypes.CDLL | None = None
        try:
            self.cub = _build_cub()
        except (OSError, subprocess.CalledProcessError) as error:
            self.missing["CUB"] = f"{error}: nvcc is needed"

    def peers(self, data: Data) -> list[Peer]:
        """Everything that solves the problem."""
        make = {"scan": self._scan, "tridiagonal": self._tridiagonal, "fft": self._fft}[data.family]
        return make(data)

    # --- scan ----------------------------------------------------------------------------------------

    def _scan(self, data: Data) -> list[Peer]:
        cp, (x,), y = self.cp, data.inputs, data.output
        peers = [Peer("cupy.cumsum", lambda: _ignore(cp.cumsum(x, axis=1, out=y)), lambda: y)]
        if self.torch is not None:
            torch, tx, ty = self.torch, self.torch.from_dlpack(x), self.torch.from_dlpack(y)
            peers.append(Peer("torch.cumsum", lambda: _ignore(torch.cumsum(tx, 1, out=ty)), lambda: y))
        if self.cub is not None:
            peers += self._cub(self.cub, data)
        return peers

    def _cub(self, cub: ctypes.CDLL, data: Data) -> list[Peer]:
        cp, n, batch = self.cp, data.n, ctypes.c_long(data.batch)
        arrays = [ctypes.c_void_p(array.data.ptr) for array in (*data.inputs, data.output)]
        stream = ctypes.c_void_p(cp.cuda.get_current_stream().ptr)
        peers = []
        for items in (2, 4, 8, 16):
            with suppress(RuntimeError):
                run = _checked(cub.block_scan, *arrays, n, batch, items, stream)
                run()
                peers.append(Peer(f"cub.BlockScan, {items} per thread", run, lambda: data.output))
        for name, function, slow in (
            ("cub.DeviceScan by key", cub.segmented_scan, False),
            ("cub.DeviceScan, one per row", cub.device_scans, True),
        ):
            size = ctypes.c_size_t(0)
            _checked(function, None, ctypes.byref(size), *arrays, n, batch, stream)()
            room = cp.empty(max(size.value, 1), cp.uint8)
            pointer = ctypes.c_void_p(room.data.ptr)
            call = _checked(function, pointer, ctypes.byref(size), *arrays, n, batch, stream, keep=room)
            peers.append(Peer(name, call, lambda: data.output, slow=slow))
        return peers

    # --- tridiagonal ---------------------------------------------------------------------------------

    def _tridiagonal(self, data: Data) -> list[Peer]:
        return [self._strided(data), *(p for algorithm in (0, 1) for p in self._interleaved(data, algorithm))]

    def _strided(self, data: Data) -> Peer:
        """The right-hand sides are overwritten by the solution."""
        from cupy_backends.cuda.libs import cusparse  # noqa: PLC0415 - CuPy's binding

        cp, n, batch, x = self.cp, data.n, data.batch, data.output
        handle = cp.cuda.device.get_cusparse_handle()
        a, b, c, d = data.inputs
        pointers = [array.data.ptr for array in (a, b, c, x)]
        size = cusparse.sgtsv2StridedBatch_bufferSizeExt(handle, n, *pointers, batch, n)
        room = cp.empty(size, cp.uint8)
        return Peer(
            "cuSPARSE gtsv2StridedBatch",
            lambda: cusparse.sgtsv2StridedBatch(handle, n, *pointers, batch, n, room.data.ptr),
            lambda: x,
            prepare=lambda: cp.copyto(x, d),
        )

    def _interleaved(self, data: Data, algorithm: int) -> list[Peer]:
        """Solves systems whose rows lie batch elements apart; destroys its arrays."""
        from cupy_backends.cuda.libs import cusparse  # noqa: PLC0415 - CuPy's binding

        cp, n, batch = self.cp, data.n, data.batch
        handle = cp.cuda.device.get_cusparse_handle()
        work = [cp.empty((n, batch), cp.float32) for _ in range(4)]
        pointers = [array.data.ptr for array in work]
        size = cusparse.sgtsvInterleavedBatch_bufferSizeExt(handle, algorithm, n, *pointers, batch)
        room = cp.empty(size, cp.uint8)

        def solve() -> None:
            cusparse.sgtsvInterleavedBatch(handle, algorithm, n, *pointers, batch, room.data.ptr)

        def interleave() -> None:
            for source, target in zip(data.inputs, work, strict=True):
                cp.copyto(target, source.T)

        def all_in() -> None:
            interleave()
            solve()
            cp.copyto(data.output, work[3].T)

        name = ("Thomas", "LU")[algorithm]
        return [
            Peer(
                f"cuSPARSE gtsvInterleavedBatch {name}, conversion not counted",
                solve,
                lambda: work[3].T,
                prepare=interleave,
            ),
            Peer(f"cuSPARSE gtsvInterleavedBatch {name}, conversion counted", all_in, lambda: data.output),
        ]

    # --- fft -----------------------------------------------------------------------------------------

    def _fft(self, data: Data) -> list[Peer]:
        from cupy.cuda import cufft  # noqa: PLC0415 - CuPy's binding

        (x,), y = data.inputs, data.output
        plan = cufft.Plan1d(data.n, cufft.CUFFT_C2C, data.batch)
        peers = [Peer("cuFFT", lambda: plan.fft(x, y, cufft.CUFFT_FORWARD), lambda: y)]
        if self.torch is not None:
            torch, tx, ty = self.torch, self.torch.from_dlpack(x), self.torch.from_dlpack(y)
            peers.append(Peer("torch.fft", lambda: _ignore(torch.fft.fft(tx, out=ty)), lambda: y))
        return peers


def _ignore(_: object) -> None:
    """The result lies in the output already."""


def _checked(function: Any, *arguments: Any, keep: Any = None) -> Callable[[], None]:
    def run(_keep: Any = keep) -> None:
        status = function(*arguments)
        if status:
            raise RuntimeError(f"{function.__name__} answers {status}")

    return run


def _build_cub() -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp(prefix="cub-peers-"))
    library = folder / "libcub_peers.so"
    subprocess.run(
        [
            *("nvcc", "-O3", "-std=c++17", "-arch=native", "-shared", "-Xcompiler", "-fPIC"),
            *("-o", str(library), str(CUB_SOURCE)),
        ],
        check=True,
    )
    return ctypes.CDLL(str(library))
