"""Batched factorisations and triangular systems of cuBLAS and cuSOLVER: one routine, or blocks by several."""

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
from linalg_forms import (
    LEFT,
    LETTERS,
    LOWER,
    NON_UNIT,
    PLAIN,
    REALS,
    RIGHT,
    TRANSPOSED,
    UPPER,
    Form,
    Library,
    Turned,
    addresses,
    of_sets,
)
from linalg_operations import Case
from linalg_sets import HostArrays, Sets
from vendor_library import address

BLOCKS = (16, 32, 64)  # orders of diagonal blocks, where several routines do a problem together


def potrf_forms(library: Library, case: Case, sets: Sets) -> Iterator[Form]:
    """Of either triangle, as the matrices are symmetric and whole; and the lower one by blocks."""
    A, n = addresses(library.cp, of_sets(sets, "A")), case.n
    name = f"cusolverDn{LETTERS[case.dtype]}potrfBatched"
    for word, triangle in (("lower", LOWER), ("upper", UPPER)):

        def call(place: int, stream: int, triangle: int = triangle) -> None:
            info = address(sets.arrays[place]["info"])
            library.solver(name, stream, triangle, n, address(A[place]), n, info, sets.batch)

        def converted(given: HostArrays, made: HostArrays, triangle: int = triangle) -> HostArrays:
            factor = made["A"] if triangle == LOWER else np.swapaxes(made["A"], 1, 2)
            return {**made, "A": np.triu(factor) + np.tril(given["A"], -1)}

        yield Form("cuSOLVER potrfBatched", word, call, converted)
    for width in _blocks(n):
        yield _blocked_potrf(library, case, sets, width)


def _blocked_potrf(library: Library, case: Case, sets: Sets, width: int) -> Form:
    """Diagonal blocks by potrfBatched, what is below them by trsmBatched, the rest by gemmStridedBatched."""
    n, parts = case.n, _Parts(library, case, sets, "A")
    name = f"cusolverDn{LETTERS[case.dtype]}potrfBatched"

    def call(place: int, stream: int) -> None:
        info = address(sets.arrays[place]["info"])
        for k in range(0, n, width):
            order, below = min(width, n - k), n - k - width
            library.solver(name, stream, LOWER, order, parts.pointers(place, k, k), n, info, sets.batch)
            if below > 0:
                way = (RIGHT, LOWER, TRANSPOSED, NON_UNIT, below, order)
                left = parts.pointers(place, k + width, k)
                parts.solve(stream, way, parts.pointers(place, k, k), left)
                panel = parts.at(place, k + width, k)
                rest = parts.at(place, k + width, k + width)
                shape = (below, below, order)
                parts.subtract(stream, (PLAIN, TRANSPOSED), shape, (panel, panel, rest))

    def converted(given: HostArrays, made: HostArrays) -> HostArrays:
        return {**made, "A": np.triu(made["A"]) + np.tril(given["A"], -1)}

    return Form("cuSOLVER potrfBatched", f"blocks of {width}, with trsm and gemm", call, converted)


def getrf_forms(library: Library, case: Case, sets: Sets) -> Iterator[Form]:
    """The one routine with pivots."""
    A, n = addresses(library.cp, of_sets(sets, "A")), case.n
    name = f"cublas{LETTERS[case.dtype]}getrfBatched"

    def call(place: int, stream: int) -> None:
        arrays = sets.arrays[place]
        results = address(arrays["ipiv"]), address(arrays["info"])
        library.blas(name, stream, n, address(A[place]), n, *results, sets.batch)

    yield Form("cuBLAS getrfBatched", "", call)


def geqrf_forms(library: Library, case: Case, sets: Sets) -> Iterator[Form]:
    """The one routine."""
    A, tau = (addresses(library.cp, of_sets(sets, one)) for one in ("A", "tau"))
    name, n, info = f"cublas{LETTERS[case.dtype]}geqrfBatched", case.n, ctypes.c_int()  # on the host

    def call(place: int, stream: int) -> None:
        arrays = address(A[place]), n, address(tau[place])
        library.blas(name, stream, n, n, *arrays, ctypes.byref(info), sets.batch)

    yield Form("cuBLAS geqrfBatched", "", call)


def trsm_forms(library: Library, case: Case, sets: Sets) -> Iterator[Form]:
    """From the left and, of transposed right-hand sides, from the right; with either triangle; by blocks."""
    cp, n = library.cp, case.n
    name, one = f"cublas{LETTERS[case.dtype]}trsmBatched", REALS[case.dtype](1)
    turned = {which: Turned(cp, sets, which) for which in "LB"}
    factors = {LOWER: of_sets(sets, "L"), UPPER: turned["L"].arrays}
    sides = {LEFT: of_sets(sets, "B"), RIGHT: turned["B"].arrays}
    pointers = {
        **{("L", triangle): addresses(cp, arrays) for triangle, arrays in factors.items()},
        **{("B", side): addresses(cp, arrays) for side, arrays in sides.items()},
    }

    def of_turned(given: HostArrays, made: HostArrays) -> HostArrays:
        del given
        return {**made, "B": np.swapaxes(sets.sample(turned["B"].arrays[0]), 1, 2)}

    for words, side, triangle in (
        ("lower", LEFT, LOWER),
        ("upper, transposed", LEFT, UPPER),
        ("lower, transposed, from the right", RIGHT, LOWER),
        ("upper, from the right", RIGHT, UPPER),
    ):
        operation = PLAIN if (side == LEFT) == (triangle == LOWER) else TRANSPOSED
        way = (side, triangle, operation, NON_UNIT, n, n, ctypes.byref(one))

        def call(place: int, stream: int, way: Any = way, side: int = side, triangle: int = triangle) -> None:
            L, B = pointers["L", triangle][place], pointers["B", side][place]
            library.blas(name, stream, *way, address(L), n, address(B), n, sets.batch)

        if side == LEFT:
            yield Form("cuBLAS trsmBatched", words, call, turned=triangle == UPPER)
        else:
            yield Form("cuBLAS trsmBatched", words, call, of_turned, turned["B"].restore, turned=True)
    for width in _blocks(n):
        yield _blocked_trsm(library, case, sets, width)


def _blocked_trsm(library: Library, case: Case, sets: Sets, width: int) -> Form:
    """Diagonal blocks by trsmBatched, what they contribute to the rows below by gemmStridedBatched."""
    n = case.n
    lower, sides = _Parts(library, case, sets, "L"), _Parts(library, case, sets, "B")

    def call(place: int, stream: int) -> None:
        for k in range(0, n, width):
            order, below = min(width, n - k), n - k - width
            way = (LEFT, LOWER, PLAIN, NON_UNIT, order, n)
            sides.solve(stream, way, lower.pointers(place, k, k), sides.pointers(place, k, 0))
            if below > 0:
                panel, known = lower.at(place, k + width, k), sides.at(place, k, 0)
                rest = sides.at(place, k + width, 0)
                sides.subtract(stream, (PLAIN, PLAIN), (below, n, order), (panel, known, rest))

    return Form("cuBLAS trsmBatched", f"blocks of {width}, with gemm", call)


def _blocks(n: int) -> list[int]:
    return [width for width in BLOCKS if width < n]


class _Parts:
    """Blocks of an array of n x n matrices, and what is done with them."""

    def __init__(self, library: Library, case: Case, sets: Sets, name: str) -> None:
        self._library, self._arrays = library, of_sets(sets, name)
        self._n, self._batch, self._letter = case.n, sets.batch, LETTERS[case.dtype]
        real = REALS[case.dtype]
        self._one, self._minus = real(1), real(-1)
        self._pointers: dict[int, list[Any]] = {}

    def at(self, place: int, row: int, column: int) -> ctypes.c_void_p:
        """The address of an element in the first problem of a set."""
        array = self._arrays[place]
        return address(array, (column * self._n + row) * array.itemsize)

    def pointers(self, place: int, row: int, column: int) -> ctypes.c_void_p:
        """The addresses of an element in all problems of a set."""
        offset = column * self._n + row
        if offset not in self._pointers:
            self._pointers[offset] = addresses(self._library.cp, self._arrays, offset)
        return address(self._pointers[offset][place])

    def solve(self, stream: int, way: tuple[int, ...], L: ctypes.c_void_p, B: ctypes.c_void_p) -> None:
        """By trsmBatched, in place of B."""
        one = ctypes.byref(self._one)
        name = f"cublas{self._letter}trsmBatched"
        self._library.blas(name, stream, *way, one, L, self._n, B, self._n, self._batch)

    def subtract(
        self,
        stream: int,
        operations: tuple[int, int],
        shape: tuple[int, int, int],
        matrices: tuple[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
    ) -> None:
        """C - op(A) op(B) in place of C, by gemmStridedBatched."""
        n, stride = self._n, ctypes.c_longlong(self._n * self._n)
        A, B, C = matrices
        given = (ctypes.byref(self._minus), A, n, stride, B, n, stride)
        made = (ctypes.byref(self._one), C, n, stride, self._batch)
        self._library.blas(
            f"cublas{self._letter}gemmStridedBatched", stream, *operations, *shape, *given, *made
        )
