"""cuSOLVER's factorisations of one matrix, cuBLAS's gemm, and stages of libraries, on a fake GPU."""

import ctypes
from collections.abc import Mapping
from typing import Any

import host_library
import numpy as np
import pytest
from fake_cupy import FakeCupy
from fake_linalg_libraries import REALS, FakeLibrary, matrix_at, plain_at
from scipy import linalg

from tuner.devices.cuda.launches import LibraryLaunch
from tuner.linalg import factorisations
from tuner.linalg.operations import ROUTES
from tuner.model.plan import LibraryCall

HOST_S = 5e-3  # of a host stage
WORK_ELEMENTS, DEVICE_BYTES, HOST_BYTES = 7, 11, 13
_KINDS = {0: ctypes.c_float, 1: ctypes.c_double}


class LargeFakeLibrary(FakeLibrary):
    """Both forms of cuSOLVER; the 64-bit one takes ``slower`` times as long, and is not there if ``lacking``.

    Args:
        cp: the fake GPU.
        seconds: of a call.
    """

    def __init__(self, cp: FakeCupy, seconds: float) -> None:
        super().__init__(cp, seconds)
        self.slower = 1.5
        self.lacking = False

    def call(self, name: str, *arguments: Any) -> None:
        """As ``VendorLibrary.call``."""
        routine = name.removeprefix("cusolverDn")
        if self.lacking and name == "cusolverDnCreateParams":
            raise RuntimeError(f"{name} is not in this version")
        if name == "cusolverDnCreateParams":
            arguments[0]._obj.value = 99
        elif "gemm_v2" in name:
            self._later(name, 1.0, self._product, REALS[name[6]], *arguments[1:])
        elif routine.endswith("_bufferSize"):
            self._sized(routine, arguments[1:])
        elif routine[1:] in {"potrf", "getrf", "geqrf"}:
            slower = self.slower if routine[0] == "X" else 1.0
            run = self._generic if routine[0] == "X" else self._classic
            self._later(name, slower, run, routine, arguments[1:])
        else:
            super().call(name, *arguments)

    def _later(self, name: str, slower: float, run: Any, *arguments: Any) -> None:
        self.called.append(name)
        cp, lane = self._cp, self._cp.streams[self._stream]

        def work() -> None:
            if not cp.timing:
                run(*arguments)
            lane.ready_s = max(lane.ready_s, cp.now_s) + slower * self._seconds

        cp.do(work)

    def _sized(self, routine: str, arguments: tuple[Any, ...]) -> None:
        if routine[0] != "X":
            (*_, n, _, lda, length) = arguments
            assert n == lda
            length._obj.value = WORK_ELEMENTS
            return
        *_, device, host = arguments
        device._obj.value, host._obj.value = DEVICE_BYTES, HOST_BYTES

    def _product(self, real: Any, *arguments: Any) -> None:
        transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc = arguments
        assert (transa, transb, alpha._obj.value, beta._obj.value) == (0, 0, 1, 0)
        left, right = matrix_at(real, A.value, lda, k), matrix_at(real, B.value, ldb, n)
        matrix_at(real, C.value, ldc, n)[:m] = left[:m] @ right[:k]

    def _classic(self, routine: str, arguments: tuple[Any, ...]) -> None:
        """Sizes are int."""
        real = REALS[routine[0]]
        first, n, A, lda, *rest = arguments
        assert first == (0 if routine.endswith("potrf") else n)
        assert n == lda
        matrix = matrix_at(real, A.value, lda, n)
        if routine.endswith("potrf"):
            work, length, info = rest
            self._factor("potrf", matrix)
        elif routine.endswith("getrf"):
            work, pivots, info = rest
            length = WORK_ELEMENTS
            plain_at(ctypes.c_int, pivots, n)[...] = self._factor("getrf", matrix)
        else:
            tau, work, length, info = rest
            plain_at(real, tau, n)[...] = self._factor("geqrf", matrix)
        assert length == WORK_ELEMENTS
        plain_at(real, work, length)[...] = 0
        plain_at(ctypes.c_int, info, 1)[...] = 0

    def _generic(self, routine: str, arguments: tuple[Any, ...]) -> None:
        """Sizes are int64_t, and so are pivots."""
        parameters, first, n, kind, A, lda, *made, compute, work, device, host, host_bytes, info = arguments
        assert (parameters.value, compute) == (99, kind)
        assert {type(one) for one in (n, lda)} == {ctypes.c_int64}
        assert (device.value, host_bytes.value) == (DEVICE_BYTES, HOST_BYTES)
        assert {type(one) for one in (device, host_bytes)} == {ctypes.c_size_t}
        assert len(host) >= HOST_BYTES
        real, order = _KINDS[kind], n.value
        assert (first if routine == "Xpotrf" else first.value) == (0 if routine == "Xpotrf" else order)
        matrix = matrix_at(real, A.value, lda.value, order)
        found = self._factor(routine[1:], matrix)
        if routine == "Xgetrf":
            plain_at(ctypes.c_int64, made[0], order)[...] = found
        if routine == "Xgeqrf":
            assert made[0] == kind
            plain_at(real, made[1], order)[...] = found
        plain_at(ctypes.c_char, work, DEVICE_BYTES)
        plain_at(ctypes.c_int, info, 1)[...] = 0

    def _factor(self, routine: str, matrix: Any) -> Any:
        """In place; the upper triangle of potrf is used for other things."""
        if routine == "potrf":
            matrix[...] = self.computed(linalg.cholesky(matrix, lower=True)) + np.triu(matrix + 1, 1)
            return None
        if routine == "getrf":
            factors, found = linalg.lu_factor(matrix)
            matrix[...] = self.computed(factors)
            return found + 1
        (made, found), _ = linalg.qr(matrix, mode="raw")
        matrix[...] = self.computed(made)
        return found


class HostLibraries:
    """Stages of libraries by NumPy; takes the place of ``GpuLibraries``.

    Args:
        cp: the fake GPU.
    """

    def __init__(self, cp: Any) -> None:
        self._cp = cp

    def bound(self, call: LibraryCall, arrays: Mapping[str, Any], side: int) -> LibraryLaunch:
        """As ``GpuLibraries.bound``."""
        cp = self._cp

        def work() -> None:
            if not getattr(cp, "timing", False):
                host_library.run(call, {name: _memory(array) for name, array in arrays.items()})
            cp.now_s += HOST_S if call.on_host else 0.0

        def run(stream: Any) -> None:
            (stream or cp).do(work)

        return LibraryLaunch(call, run, (), side)


def leave_batched_kernels(patch: pytest.MonkeyPatch) -> None:
    """Let small matrices go the way of large ones."""
    for operation, routes in ROUTES.items():
        patch.setitem(ROUTES, operation, routes[1:])
    patch.setattr("tuner.devices.cuda.code.GpuLibraries", HostLibraries)
    patch.setattr("tuner.linalg.products.GpuLibraries", HostLibraries)
    patch.setattr(factorisations, "BLOCK", 2)


def _memory(array: Any) -> Any:
    """From the first element of an array to the last one, whatever its strides."""
    seen = array.data.array
    span = sum((extent - 1) * step for extent, step in zip(seen.shape, seen.strides, strict=True))
    size = 1 + span // seen.itemsize
    return np.lib.stride_tricks.as_strided(seen, (size,), (seen.itemsize,))
