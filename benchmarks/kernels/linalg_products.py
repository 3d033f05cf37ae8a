"""Batched products of cuBLAS and cuBLASLt: by strides, by pointers, as a group, in several layouts."""

import ctypes
from collections.abc import Iterator

from cublas_lt import CublasLt
from linalg_forms import (
    DEFAULT_MATH,
    LETTERS,
    PEDANTIC_MATH,
    PLAIN,
    REALS,
    TRANSPOSED,
    Call,
    Factor,
    Form,
    Library,
    Product,
    Turned,
    addresses,
    of_sets,
)
from linalg_operations import Case
from linalg_sets import Sets
from vendor_library import address


def by_strides(library: Library, product: Product, math: int = DEFAULT_MATH) -> Call:
    """A product by gemmStridedBatched."""
    name = f"cublas{LETTERS[product.dtype]}gemmStridedBatched"
    one, zero = REALS[product.dtype](1), REALS[product.dtype](0)
    way = (product.left.operation, product.right.operation, *product.shape)

    def call(place: int, stream: int) -> None:
        A, B, C = (
            (address(factor.arrays[place]), factor.leading, ctypes.c_longlong(factor.stride))
            for factor in (product.left, product.right, product.made)
        )
        given, made = (ctypes.byref(one), *A, *B), (ctypes.byref(zero), *C)
        library.blas(name, stream, *way, *given, *made, product.batch, math=math)

    return call


def gemm_forms(library: Library, lt: CublasLt | None, case: Case, sets: Sets) -> Iterator[Form]:
    """Of products of n x n matrices; TF32 is off."""
    products = _square_products(library, case, sets)
    for words, product in products.items():
        yield from _strided_forms(library, lt, words, product)
    pedantic = by_strides(library, products[""], PEDANTIC_MATH)
    yield Form("cuBLAS gemmStridedBatched", "pedantic", pedantic)
    yield from _pointed_forms(library, case, sets)


def _square_products(library: Library, case: Case, sets: Sets) -> dict[str, Product]:
    """C = A B, with either factor as it is or transposed in memory."""
    n = case.n
    plain = {name: Factor(of_sets(sets, name), n, n * n) for name in "ABC"}
    turned = {name: Factor(Turned(library.cp, sets, name).arrays, n, n * n, TRANSPOSED) for name in "AB"}
    factors = {
        "": (plain["A"], plain["B"]),
        "A transposed": (turned["A"], plain["B"]),
        "B transposed": (plain["A"], turned["B"]),
        "both transposed": (turned["A"], turned["B"]),
    }
    return {
        words: Product(case.dtype, (n, n, n), left, right, plain["C"], sets.batch)
        for words, (left, right) in factors.items()
    }


def _strided_forms(library: Library, lt: CublasLt | None, words: str, product: Product) -> Iterator[Form]:
    """By strides, and the candidates of the heuristics of cuBLASLt."""
    turned = "transposed" in words
    yield Form("cuBLAS gemmStridedBatched", words, by_strides(library, product), turned=turned)
    if lt is None:
        return
    for place, call in enumerate(lt.calls(product), start=1):
        settings = ", ".join(filter(None, (words, f"candidate {place}")))
        yield Form("cuBLASLt matmul", settings, call, turned=turned)


def _pointed_forms(library: Library, case: Case, sets: Sets) -> Iterator[Form]:
    """By gemmBatched, and by gemmGroupedBatched with one group."""
    n, letter, real = case.n, LETTERS[case.dtype], REALS[case.dtype]
    pointers = {name: addresses(library.cp, of_sets(sets, name)) for name in "ABC"}
    ones, zeros = (real * 1)(1), (real * 1)(0)
    plain, order, size = ((ctypes.c_int * 1)(value) for value in (PLAIN, n, sets.batch))

    def pointed(place: int, stream: int) -> None:
        A, B, C = (address(pointers[name][place]) for name in "ABC")
        way, given, made = (PLAIN, PLAIN, n, n, n), (ones, A, n, B, n), (zeros, C, n)
        library.blas(f"cublas{letter}gemmBatched", stream, *way, *given, *made, sets.batch)

    def grouped(place: int, stream: int) -> None:
        A, B, C = (address(pointers[name][place]) for name in "ABC")
        way, given, made = (plain, plain, order, order, order), (ones, A, order, B, order), (zeros, C, order)
        library.blas(f"cublas{letter}gemmGroupedBatched", stream, *way, *given, *made, 1, size)

    yield Form("cuBLAS gemmBatched", "", pointed)
    yield Form("cuBLAS gemmGroupedBatched", "", grouped)


def gemv_forms(library: Library, lt: CublasLt | None, case: Case, sets: Sets) -> Iterator[Form]:
    """By strides and by pointers, and as products of matrices with one column or one row."""
    n, letter, real = case.n, LETTERS[case.dtype], REALS[case.dtype]
    square, line = ctypes.c_longlong(n * n), ctypes.c_longlong(n)
    ones, zeros = (real * 1)(1), (real * 1)(0)
    pointers = {name: addresses(library.cp, of_sets(sets, name)) for name in "Axy"}
    turned = Turned(library.cp, sets, "A")

    def strided(place: int, stream: int, operation: int = PLAIN) -> None:
        A = turned.arrays[place] if operation == TRANSPOSED else sets.arrays[place]["A"]
        x, y = (address(sets.arrays[place][name]) for name in "xy")
        given, made = (ones, address(A), n, square, x, 1, line), (zeros, y, 1, line)
        library.blas(f"cublas{letter}gemvStridedBatched", stream, operation, n, n, *given, *made, sets.batch)

    def transposed(place: int, stream: int) -> None:
        strided(place, stream, TRANSPOSED)

    def pointed(place: int, stream: int) -> None:
        A, x, y = (address(pointers[name][place]) for name in "Axy")
        given, made = (ones, A, n, x, 1), (zeros, y, 1)
        library.blas(f"cublas{letter}gemvBatched", stream, PLAIN, n, n, *given, *made, sets.batch)

    yield Form("cuBLAS gemvStridedBatched", "", strided)
    yield Form("cuBLAS gemvStridedBatched", "A transposed", transposed, turned=True)
    yield Form("cuBLAS gemvBatched", "", pointed)
    for words, product in _thin_products(case, sets, turned).items():
        yield from _strided_forms(library, lt, words, product)


def _thin_products(case: Case, sets: Sets, turned: Turned) -> dict[str, Product]:
    """By one column, y = A x, and by one row, y' = x' A', with A as it is or transposed in memory."""
    n, A, x, y = case.n, *(of_sets(sets, name) for name in "Axy")
    square = n * n
    factors = {
        "one column": (Factor(A, n, square), Factor(x, n, n)),
        "one column, A transposed": (Factor(turned.arrays, n, square, TRANSPOSED), Factor(x, n, n)),
        "one row": (Factor(x, 1, n), Factor(A, n, square, TRANSPOSED)),
        "one row, A transposed": (Factor(x, 1, n), Factor(turned.arrays, n, square)),
    }
    shapes = {True: ((n, 1, n), Factor(y, n, n)), False: ((1, n, n), Factor(y, 1, n))}
    return {
        words: Product(case.dtype, shape, left, right, made, sets.batch)
        for words, (left, right) in factors.items()
        for shape, made in [shapes["column" in words]]
    }
