"""cuBLAS and cuSOLVER of a fake GPU: arguments as their headers state them, answers by SciPy."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from fake_cupy import FakeCupy
from numpy.typing import NDArray
from scipy import linalg

Matrix = NDArray[Any]
VERSION = 130000
REALS: dict[str, Any] = {"S": ctypes.c_float, "D": ctypes.c_double}


class FakeLibrary:
    """Answers calls by name; a batch takes some virtual time, and is not computed while times are taken.

    Args:
        cp: the fake GPU.
        seconds: of a batch.
        captured: whether calls can be captured.
    """

    def __init__(self, cp: FakeCupy, seconds: float, *, captured: bool = True) -> None:
        self._cp, self._seconds, self._captured = cp, seconds, captured
        self._stream = 0
        self.called: list[str] = []
        self.computed: Callable[[Matrix], Matrix] = lambda answer: answer

    def call(self, name: str, *arguments: Any) -> None:
        """As ``VendorLibrary.call``."""
        self.called.append(name)
        if name.endswith("Version_v2") or name == "cusolverGetVersion":
            arguments[-1]._obj.value = VERSION
        elif "SetStream" in name:
            self._stream = arguments[1].value or 0
        elif "Batched" in name:
            self._enqueue(name, arguments[1:])

    def _enqueue(self, name: str, arguments: tuple[Any, ...]) -> None:
        cp, lane = self._cp, self._cp.streams[self._stream]
        if cp.captured is not None and not self._captured:
            raise RuntimeError(f"{name} answers 14")
        letter, _, routine = name.removeprefix("cublas").removeprefix("cusolverDn").partition("g")
        if routine == "":  # trsm, potrf
            letter, routine = letter[0], letter[1:]
        else:
            routine = "g" + routine

        def run() -> None:
            if not cp.timing:
                getattr(self, f"_{routine.removesuffix('Batched')}")(REALS[letter[0]], *arguments)
            lane.ready_s = max(lane.ready_s, cp.now_s) + self._seconds

        cp.do(run)

    def _potrf(self, real: Any, uplo: int, n: int, A: Any, lda: int, info: Any, batch: int) -> None:  # noqa: PLR0917
        for matrix in _pointed(real, A, lda, n, batch):
            factor = linalg.cholesky(matrix[:n], lower=uplo == 0)
            keep = np.triu(matrix[:n], 1) if uplo == 0 else np.tril(matrix[:n], -1)
            matrix[:n] = self.computed(factor) + keep
        plain_at(ctypes.c_int, info, batch)[...] = 0

    def _getrf(self, real: Any, n: int, A: Any, lda: int, pivots: Any, info: Any, batch: int) -> None:  # noqa: PLR0917
        made = plain_at(ctypes.c_int, pivots, n * batch).reshape(batch, n)
        for matrix, row in zip(_pointed(real, A, lda, n, batch), made, strict=True):
            factors, found = linalg.lu_factor(matrix[:n])
            matrix[:n], row[...] = self.computed(factors), found + 1
        plain_at(ctypes.c_int, info, batch)[...] = 0

    def _geqrf(  # noqa: PLR0917 - cuBLAS's
        self, real: Any, m: int, n: int, A: Any, lda: int, tau: Any, info: Any, batch: int
    ) -> None:
        factors = _pointed(real, tau, min(m, n), 1, batch)
        for matrix, scalars in zip(_pointed(real, A, lda, n, batch), factors, strict=True):
            (made, found), _ = linalg.qr(matrix[:m], mode="raw")
            matrix[:m], scalars[:, 0] = self.computed(made), found
        info._obj.value = 0

    def _trsm(  # noqa: PLR0917 - cuBLAS's
        self,
        real: Any,
        side: int,
        uplo: int,
        trans: int,
        diag: int,
        m: int,
        n: int,
        alpha: Any,
        A: Any,
        lda: int,
        B: Any,
        ldb: int,
        batch: int,
    ) -> None:
        assert (diag, alpha._obj.value) == (0, 1)
        order = n if side else m
        for factor, right in zip(
            _pointed(real, A, lda, order, batch), _pointed(real, B, ldb, n, batch), strict=True
        ):
            given = right[:m].T if side else right[:m]
            found = linalg.solve_triangular(factor[:order], given, trans=trans != side, lower=uplo == 0)
            right[:m] = self.computed(found.T if side else found)

    def _gemm(  # noqa: PLR0917 - cuBLAS's
        self,
        real: Any,
        transa: int,
        transb: int,
        m: int,
        n: int,
        k: int,
        alpha: Any,
        A: Any,
        lda: int,
        B: Any,
        ldb: int,
        beta: Any,
        C: Any,
        ldc: int,
        batch: int,
    ) -> None:
        left = _pointed(real, A, lda, m if transa else k, batch)
        right, made = _pointed(real, B, ldb, k if transb else n, batch), _pointed(real, C, ldc, n, batch)
        self._multiply((transa, transb, (m, n, k)), (alpha, beta), left, right, made)

    def _gemmGrouped(  # noqa: N802, PLR0917 - cuBLAS's
        self,
        real: Any,
        transa: Any,
        transb: Any,
        m: Any,
        n: Any,
        k: Any,
        alpha: Any,
        A: Any,
        lda: Any,
        B: Any,
        ldb: Any,
        beta: Any,
        C: Any,
        ldc: Any,
        groups: int,
        sizes: Any,
    ) -> None:
        assert groups == 1
        way = (transa[0], transb[0], m[0], n[0], k[0])
        self._gemm(real, *way, alpha, A, lda[0], B, ldb[0], beta, C, ldc[0], sizes[0])

    def _gemmStrided(  # noqa: N802, PLR0917 - cuBLAS's
        self,
        real: Any,
        transa: int,
        transb: int,
        m: int,
        n: int,
        k: int,
        alpha: Any,
        A: Any,
        lda: int,
        stride_a: Any,
        B: Any,
        ldb: int,
        stride_b: Any,
        beta: Any,
        C: Any,
        ldc: int,
        stride_c: Any,
        batch: int,
    ) -> None:
        left = _strided(real, A, lda, m if transa else k, stride_a, batch)
        right = _strided(real, B, ldb, k if transb else n, stride_b, batch)
        made = _strided(real, C, ldc, n, stride_c, batch)
        self._multiply((transa, transb, (m, n, k)), (alpha, beta), left, right, made)

    def _gemv(  # noqa: PLR0917 - cuBLAS's
        self,
        real: Any,
        trans: int,
        m: int,
        n: int,
        alpha: Any,
        A: Any,
        lda: int,
        x: Any,
        incx: int,
        beta: Any,
        y: Any,
        incy: int,
        batch: int,
    ) -> None:
        assert incx == incy == 1
        left = _pointed(real, A, lda, n, batch)
        right, made = _pointed(real, x, n, 1, batch), _pointed(real, y, m, 1, batch)
        self._multiply((trans, 0, (m, 1, n)), (alpha, beta), left, right, made)

    def _gemvStrided(  # noqa: N802, PLR0917 - cuBLAS's
        self,
        real: Any,
        trans: int,
        m: int,
        n: int,
        alpha: Any,
        A: Any,
        lda: int,
        stride_a: Any,
        x: Any,
        incx: int,
        stride_x: Any,
        beta: Any,
        y: Any,
        incy: int,
        stride_y: Any,
        batch: int,
    ) -> None:
        assert incx == incy == 1
        left = _strided(real, A, lda, n, stride_a, batch)
        right, made = _strided(real, x, n, 1, stride_x, batch), _strided(real, y, m, 1, stride_y, batch)
        self._multiply((trans, 0, (m, 1, n)), (alpha, beta), left, right, made)

    def _multiply(
        self,
        way: tuple[int, int, tuple[int, int, int]],
        scalars: tuple[Any, Any],
        left: list[Matrix],
        right: list[Matrix],
        made: list[Matrix],
    ) -> None:
        transa, transb, (m, n, k) = way
        alpha, beta = (_number(one) for one in scalars)
        for a, b, c in zip(left, right, made, strict=True):
            first = a[:k, :m].T if transa else a[:m, :k]
            second = b[:n, :k].T if transb else b[:k, :n]
            before = beta * c[:m, :n] if beta else 0
            c[:m, :n] = self.computed(alpha * (first @ second)) + before


def _number(scalar: Any) -> float:
    """Of a scalar that is given by reference, or as an array of one."""
    return float(scalar[0] if isinstance(scalar, ctypes.Array) else scalar._obj.value)


def plain_at(real: Any, at: Any, count: int) -> Matrix:
    return np.ctypeslib.as_array((real * count).from_address(at.value))


def matrix_at(real: Any, address: int, leading: int, columns: int) -> Matrix:
    """A column-major matrix."""
    flat = np.ctypeslib.as_array((real * (leading * columns)).from_address(address))
    return flat.reshape(columns, leading).T


def _pointed(real: Any, at: Any, leading: int, columns: int, batch: int) -> list[Matrix]:
    return [matrix_at(real, int(one), leading, columns) for one in plain_at(ctypes.c_uint64, at, batch)]


def _strided(  # noqa: PLR0917 - what states a batch
    real: Any, at: Any, leading: int, columns: int, stride: Any, batch: int
) -> list[Matrix]:
    step = stride.value * ctypes.sizeof(real)
    return [matrix_at(real, at.value + place * step, leading, columns) for place in range(batch)]
