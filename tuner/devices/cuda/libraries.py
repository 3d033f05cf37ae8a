"""Stages that cuBLAS and cuFFT run, through CuPy.

The handle of cuBLAS is this process's own, in its default math mode: float32 is computed in float32, without
TF32. In a capture cuBLAS takes its workspace by nodes of the graph, so that graphs share none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from tuner.devices.cuda.launches import LaunchRefusedError, LibraryLaunch
from tuner.devices.cuda.types import Array, Stream
from tuner.model import LibraryCall, Status

# cublas_api.h and cufft.h
_NO_TRANSPOSE, _TRANSPOSE = 0, 1
_FILL = {"lower": 0, "upper": 1}
_SIDE = {"left": 0, "right": 1}
_DEFAULT_MATH = 0
_LETTER = {"float32": "s", "float64": "d"}
_TRANSFORM = {"complex64": 0x29, "complex128": 0x69}
_FORWARD, _INVERSE = -1, 1


@dataclass(frozen=True)
class _Matrix:
    """What cuFFT takes of an array: its pointer."""

    data: Any


class GpuLibraries:
    """Makes calls ready; implements ``tuner.devices.cuda.launches.Libraries``.

    Args:
        cp: CuPy, with the device current whenever a method is called.
    """

    def __init__(self, cp: ModuleType) -> None:
        self._cp = cp
        self._handle: int | None = None
        self._transforms: dict[tuple[object, ...], Any] = {}

    def bound(self, call: LibraryCall, arrays: Mapping[str, Array], side: int) -> LibraryLaunch:
        """A call on some arrays.

        Args:
            call: what is computed.
            arrays: by name.
            side: the stream of the workload it runs in; transforms of two streams share no workspace.

        Raises:
            LaunchRefusedError: the library is not installed.
        """
        pointers = {
            letter: arrays[one.buffer].data + one.offset_elements * np.dtype(call.dtype).itemsize
            for letter, one in call.operands
        }
        try:
            make = self._transform if call.routine == "fft" else self._blas
            action = make(call, pointers, side)
        except ImportError as error:
            name = "cuFFT" if call.routine == "fft" else "cuBLAS"
            raise LaunchRefusedError(
                Status.LAUNCH_ERROR,
                f"{call.routine}: CuPy finds no {name} ({error}); install it, as with pip install"
                f" nvidia-{name.lower()}-cu12",
            ) from error

        def run(stream: Stream | None) -> None:
            if stream is None:
                action()
            else:
                with stream:
                    action()

        return LibraryLaunch(call, run, tuple(pointer.ptr for pointer in pointers.values()), side)

    def _blas(self, call: LibraryCall, pointers: Mapping[str, Any], side: int) -> Callable[[], None]:
        del side
        blas = self._cp.cuda.cublas
        if self._handle is None:
            self._handle = blas.create()
            blas.setMathMode(self._handle, _DEFAULT_MATH)
        function = getattr(blas, _LETTER[call.dtype] + call.routine)
        factors = np.array([call.alpha, call.beta], call.dtype)  # cuBLAS reads them when it is called
        handle = self._handle

        def action() -> None:
            alpha = factors.ctypes.data
            function(handle, *_blas_arguments(call, pointers, alpha, alpha + factors.itemsize))

        return action

    def _transform(self, call: LibraryCall, pointers: Mapping[str, Any], side: int) -> Callable[[], None]:
        key = (call.dtype, call.n, call.m, side)
        plan = self._transforms.get(key)
        if plan is None:
            plan = self._cp.cuda.cufft.Plan1d(call.n, _TRANSFORM[call.dtype], call.m)
            self._transforms[key] = plan
        given, made = _Matrix(pointers["a"]), _Matrix(pointers["c"])
        direction = _INVERSE if call.inverse else _FORWARD
        return lambda: plan.fft(given, made, direction)


def _blas_arguments(call: LibraryCall, pointers: Mapping[str, Any], alpha: int, beta: int) -> tuple[int, ...]:
    """The arguments of a routine behind its handle."""
    at = {letter: int(pointer.ptr) for letter, pointer in pointers.items()}
    leading = {letter: operand.leading for letter, operand in call.operands}
    turned = {
        letter: _TRANSPOSE if operand.transposed else _NO_TRANSPOSE for letter, operand in call.operands
    }
    if call.routine == "gemm":
        matrices = (alpha, at["a"], leading["a"], at["b"], leading["b"], beta, at["c"], leading["c"])
        return (turned["a"], turned["b"], call.m, call.n, call.k, *matrices)
    if call.routine == "syrk":
        form = (_FILL[call.fill], turned["a"], call.n, call.k)
        return (*form, alpha, at["a"], leading["a"], beta, at["c"], leading["c"])
    form = (_SIDE[call.side], _FILL[call.fill], turned["a"], int(call.unit))
    return (*form, call.m, call.n, alpha, at["a"], leading["a"], at["b"], leading["b"])
