"""The calls of cuBLAS that stages make, past CuPy: CuPy refuses them while a stream is captured.

The library is the one that CuPy has loaded. Names and numbers are those of ``cublas_api.h``.
"""

import ctypes
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tuner.devices.cuda.launches import LaunchRefusedError
from tuner.devices.cuda.types import Array, Stream
from tuner.model.chains import LibraryCall
from tuner.model.trial import Status

WORKSPACE_BYTES = 32 * 2**20
"""Of a stream; what NVIDIA recommends for Hopper GPUs."""

_NO_TRANSPOSE, _TRANSPOSE = 0, 1
_FILL = {"lower": 0, "upper": 1}
_SIDE = {"left": 0, "right": 1}
_DEFAULT_MATH = 0
_LETTER = {"float32": "S", "float64": "D"}
_MAPS = Path("/proc/self/maps")


class Cublas:
    """A handle of this process's own, in the default math mode: float32 is computed without TF32.

    Every stream has a workspace of its own, so that calls in several streams share none. Threads take turns.

    Args:
        cp: CuPy, with the device current.
        open_library: gives the library; the one that CuPy has loaded if not given.

    Raises:
        ImportError: CuPy finds no cuBLAS.
    """

    def __init__(self, cp: ModuleType, open_library: Callable[[], Any] | None = None) -> None:
        self._cp = cp
        handle = cp.cuda.cublas.create()  # loads the library
        cp.cuda.cublas.setMathMode(handle, _DEFAULT_MATH)
        self._handle = ctypes.c_void_p(handle)
        self._library = (open_library or loaded_library)()
        self._workspaces: dict[int, Array] = {}
        self._lock = threading.Lock()  # the handle has one stream at a time

    def action(
        self, call: LibraryCall, addresses: Mapping[str, int], workspace: int | None = None
    ) -> Callable[[Stream | None], None]:
        """What puts a call into a stream, None for CuPy's current one.

        Args:
            call: of gemm, syrk or trsm.
            addresses: of the operands, by letter.
            workspace: address of ``WORKSPACE_BYTES`` that no other call uses meanwhile; None for that of the
                stream, which graphs must not outlive.
        """
        function = getattr(self._library, f"cublas{_LETTER[call.dtype]}{call.routine}_v2")
        factors = np.array([call.alpha, call.beta], call.dtype)  # cuBLAS reads them when it is called
        alpha = factors.ctypes.data
        arguments = _arguments(call, addresses, alpha, alpha + factors.itemsize)

        def put(stream: Stream | None) -> None:
            with self._lock:
                self._use(self._cp.cuda.get_current_stream() if stream is None else stream, workspace)
                _checked(call.routine, function(self._handle, *arguments), factors)

        return put

    def _use(self, stream: Stream, workspace: int | None) -> None:
        """Have the next call run in a stream, with a workspace."""
        if workspace is None:
            known = self._workspaces.get(stream.ptr)
            if known is None:
                known = self._workspaces[stream.ptr] = self._cp.empty(WORKSPACE_BYTES, dtype="uint8")
            workspace = int(known.data.ptr)
        _checked("set stream", self._library.cublasSetStream_v2(self._handle, ctypes.c_void_p(stream.ptr)))
        size, address = ctypes.c_size_t(WORKSPACE_BYTES), ctypes.c_void_p(workspace)
        _checked("set workspace", self._library.cublasSetWorkspace_v2(self._handle, address, size))


def loaded_library() -> ctypes.CDLL:
    """The cuBLAS that this process has loaded.

    Raises:
        ImportError: it has loaded none.
    """
    for line in _MAPS.read_text().splitlines():
        path = line.rpartition(" ")[2]
        if path.rpartition("/")[2].startswith("libcublas.so"):
            return ctypes.CDLL(path)
    raise ImportError("libcublas.so is not among the libraries of this process")


def _checked(what: str, status: int, *kept: object) -> None:
    """Refuse what did not succeed; ``kept`` lives until the call has returned."""
    del kept
    if status:
        raise LaunchRefusedError(
            Status.LAUNCH_ERROR, f"cuBLAS: {what} ends with status {status} (cublasStatus_t)"
        )


def _arguments(call: LibraryCall, addresses: Mapping[str, int], alpha: int, beta: int) -> tuple[Any, ...]:
    """The arguments of a routine behind its handle."""
    one, other = ctypes.c_void_p(alpha), ctypes.c_void_p(beta)
    at = {letter: ctypes.c_void_p(address) for letter, address in addresses.items()}
    leading = {letter: operand.leading for letter, operand in call.operands}
    turned = {
        letter: _TRANSPOSE if operand.transposed else _NO_TRANSPOSE for letter, operand in call.operands
    }
    if call.routine == "gemm":
        matrices = (one, at["a"], leading["a"], at["b"], leading["b"], other, at["c"], leading["c"])
        return (turned["a"], turned["b"], call.m, call.n, call.k, *matrices)
    if call.routine == "syrk":
        form = (_FILL[call.fill], turned["a"], call.n, call.k)
        return (*form, one, at["a"], leading["a"], other, at["c"], leading["c"])
    form = (_SIDE[call.side], _FILL[call.fill], turned["a"], int(call.unit))
    return (*form, call.m, call.n, one, at["a"], leading["a"], at["b"], leading["b"])
