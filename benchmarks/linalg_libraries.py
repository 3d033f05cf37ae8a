"""Forms in which cuBLAS and cuSOLVER solve batches of small problems, by their C functions.

Matrices are column-major, as the kernels have them. Arguments stand in the order of ``cublas_api.h`` and
``cusolverDn.h``.
"""

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from linalg_operations import Case
from linalg_sets import HostArrays, Sets
from vendor_library import VendorLibrary, address

LOWER, _UPPER = 0, 1  # cublasFillMode_t
PLAIN, _TRANSPOSED = 0, 1  # cublasOperation_t
_LEFT = 0  # cublasSideMode_t
_NON_UNIT = 0  # cublasDiagType_t
_DEFAULT_MATH, _PEDANTIC_MATH = 0, 2  # cublasMath_t; neither uses TF32
_WORKSPACE_BYTES = 32 * 2**20  # what NVIDIA recommends for Hopper GPUs
LETTERS = {"float32": "S", "float64": "D"}
REALS = {"float32": ctypes.c_float, "float64": ctypes.c_double}

Call = Callable[[int, int], None]
"""Puts the work on a set, given by its number, into a stream, given by its handle."""


def _as_made(given: HostArrays, made: HostArrays) -> HostArrays:
    del given
    return made


@dataclass(frozen=True)
class Form:
    """One way to call a library.

    Attributes:
        name: the routine.
        settings: what sets this form apart from the others of the routine.
        call: of a set.
        converted: makes of inputs and outputs the outputs as the kernel has them.
        keep: arrays that calls have addresses of.
    """

    name: str
    settings: str
    call: Call
    converted: Callable[[HostArrays, HostArrays], HostArrays] = _as_made
    keep: Any = field(default=None, repr=False)

    @property
    def key(self) -> str:
        """Routine and settings."""
        return f"{self.name}, {self.settings}" if self.settings else self.name


class LinalgLibraries:
    """cuBLAS and cuSOLVER, those that CuPy loads if it finds them; ``missing`` says which were not found.

    Args:
        cp: CuPy.
        cublas: the library; the one of this machine if not given.
        cusolver: same.
    """

    def __init__(self, cp: Any, cublas: Any = None, cusolver: Any = None) -> None:
        self._cp = cp
        self.missing: dict[str, str] = {}
        self._cublas = cublas or self._opened("cuBLAS", "libcublas", (13, 12), "get_cublas_handle")
        self._cusolver = cusolver or self._opened("cuSOLVER", "libcusolver", (12, 11), "get_cusolver_handle")
        self._blas, self._solver = ctypes.c_void_p(), ctypes.c_void_p()
        if self._cublas is not None:
            self._cublas.call("cublasCreate_v2", ctypes.byref(self._blas))
        if self._cusolver is not None:
            self._cusolver.call("cusolverDnCreate", ctypes.byref(self._solver))
        self._workspace = cp.empty(_WORKSPACE_BYTES, "uint8")

    def versions(self) -> dict[str, str]:
        """Of the libraries, as they give them."""
        found, number = {}, ctypes.c_int()
        if self._cublas is not None:
            self._cublas.call("cublasGetVersion_v2", self._blas, ctypes.byref(number))
            found["cuBLAS"] = str(number.value)
        if self._cusolver is not None:
            self._cusolver.call("cusolverGetVersion", ctypes.byref(number))
            found["cuSOLVER"] = str(number.value)
        return found

    def forms(self, case: Case, sets: Sets) -> list[Form]:
        """Every form of every routine that solves the problem."""
        made = {
            "potrf-batched": self._potrf,
            "getrf-batched": self._getrf,
            "geqrf-batched": self._geqrf,
            "trsm-batched": self._trsm,
            "gemm-batched": self._gemm,
            "gemv-batched": self._gemv,
        }[case.operation]
        library = self._cusolver if case.operation == "potrf-batched" else self._cublas
        return [] if library is None else list(made(case, sets))

    def _opened(self, name: str, stem: str, versions: tuple[int, ...], handle: str) -> VendorLibrary | None:
        try:
            getattr(self._cp.cuda.device, handle)()  # CuPy loads the library that goes with its CUDA
        except Exception as error:  # noqa: BLE001 - whatever CuPy says; the library may be there all the same
            self.missing[name] = f"CuPy finds none: {error}"
        try:
            library = VendorLibrary(stem, versions)
        except OSError as error:
            self.missing[name] = str(error)
            return None
        self.missing.pop(name, None)
        return library

    def _blas_call(self, name: str, stream: int, *arguments: Any, math: int = _DEFAULT_MATH) -> None:
        """A call of cuBLAS in a stream, with the workspace of this object."""
        self._cublas.call("cublasSetStream_v2", self._blas, ctypes.c_void_p(stream))
        size = ctypes.c_size_t(_WORKSPACE_BYTES)
        self._cublas.call("cublasSetWorkspace_v2", self._blas, address(self._workspace), size)
        self._cublas.call("cublasSetMathMode", self._blas, math)
        self._cublas.call(name, self._blas, *arguments)

    def _pointers(self, sets: Sets, name: str) -> list[Any]:
        """Of each set, the addresses of the problems of an array, on the device."""
        found = []
        for arrays in sets.arrays:
            array = arrays[name]
            step = array.nbytes // sets.batch
            host = np.uint64(array.data.ptr) + np.uint64(step) * np.arange(sets.batch, dtype=np.uint64)
            found.append(self._cp.asarray(host))
        return found

    def _potrf(self, case: Case, sets: Sets) -> Iterator[Form]:
        """Of either triangle; the matrices are symmetric, and whole."""
        A = self._pointers(sets, "A")
        name = f"cusolverDn{LETTERS[case.dtype]}potrfBatched"
        for word, triangle in (("lower", LOWER), ("upper", _UPPER)):

            def call(place: int, stream: int, triangle: int = triangle) -> None:
                self._cusolver.call("cusolverDnSetStream", self._solver, ctypes.c_void_p(stream))
                info = address(sets.arrays[place]["info"])
                self._cusolver.call(
                    name, self._solver, triangle, case.n, address(A[place]), case.n, info, sets.batch
                )

            def converted(given: HostArrays, made: HostArrays, triangle: int = triangle) -> HostArrays:
                factor = made["A"] if triangle == LOWER else np.swapaxes(made["A"], 1, 2)
                return {**made, "A": np.triu(factor) + np.tril(given["A"], -1)}

            yield Form("cuSOLVER potrfBatched", word, call, converted, keep=A)

    def _getrf(self, case: Case, sets: Sets) -> Iterator[Form]:
        A, n = self._pointers(sets, "A"), case.n
        name = f"cublas{LETTERS[case.dtype]}getrfBatched"

        def call(place: int, stream: int) -> None:
            arrays = sets.arrays[place]
            results = address(arrays["ipiv"]), address(arrays["info"])
            self._blas_call(name, stream, n, address(A[place]), n, *results, sets.batch)

        yield Form("cuBLAS getrfBatched", "", call, keep=A)

    def _geqrf(self, case: Case, sets: Sets) -> Iterator[Form]:
        A, tau, n = self._pointers(sets, "A"), self._pointers(sets, "tau"), case.n
        name, info = f"cublas{LETTERS[case.dtype]}geqrfBatched", ctypes.c_int()  # on the host

        def call(place: int, stream: int) -> None:
            arrays = address(A[place]), n, address(tau[place])
            self._blas_call(name, stream, n, n, *arrays, ctypes.byref(info), sets.batch)

        yield Form("cuBLAS geqrfBatched", "", call, keep=(A, tau, info))

    def _trsm(self, case: Case, sets: Sets) -> Iterator[Form]:
        """The lower triangle, and the same as an upper one that is transposed."""
        L, B, n = self._pointers(sets, "L"), self._pointers(sets, "B"), case.n
        name, one = f"cublas{LETTERS[case.dtype]}trsmBatched", REALS[case.dtype](1)
        turned = Turned(self._cp, sets, "L")
        forms = (
            ("lower", LOWER, PLAIN, L, None),
            ("upper, transposed", _UPPER, _TRANSPOSED, turned.pointers, turned),
        )
        for word, triangle, operation, factors, keep in forms:

            def call(
                place: int,
                stream: int,
                triangle: int = triangle,
                operation: int = operation,
                of: Any = factors,
            ) -> None:
                way = (_LEFT, triangle, operation, _NON_UNIT, n, n, ctypes.byref(one))
                self._blas_call(name, stream, *way, address(of[place]), n, address(B[place]), n, sets.batch)

            yield Form("cuBLAS trsmBatched", word, call, keep=(factors, B, one, keep))

    def _gemm(self, case: Case, sets: Sets) -> Iterator[Form]:
        """By strides and by pointers; in float32 also in pedantic mode."""
        n, letter, stride = case.n, LETTERS[case.dtype], ctypes.c_longlong(case.n * case.n)
        one, zero = REALS[case.dtype](1), REALS[case.dtype](0)
        pointers = {name: self._pointers(sets, name) for name in "ABC"}
        way = (PLAIN, PLAIN, n, n, n)

        def strided(place: int, stream: int, math: int = _DEFAULT_MATH) -> None:
            A, B, C = (address(sets.arrays[place][name]) for name in "ABC")
            given = (ctypes.byref(one), A, n, stride, B, n, stride)
            made = (ctypes.byref(zero), C, n, stride, sets.batch)
            self._blas_call(f"cublas{letter}gemmStridedBatched", stream, *way, *given, *made, math=math)

        def pointed(place: int, stream: int) -> None:
            A, B, C = (address(pointers[name][place]) for name in "ABC")
            given = (ctypes.byref(one), A, n, B, n)
            made = (ctypes.byref(zero), C, n, sets.batch)
            self._blas_call(f"cublas{letter}gemmBatched", stream, *way, *given, *made)

        def pedantic(place: int, stream: int) -> None:
            strided(place, stream, _PEDANTIC_MATH)

        keep = (one, zero, pointers)
        yield Form("cuBLAS gemmStridedBatched", "", strided, keep=keep)
        yield Form("cuBLAS gemmStridedBatched", "pedantic", pedantic, keep=keep)
        yield Form("cuBLAS gemmBatched", "", pointed, keep=keep)

    def _gemv(self, case: Case, sets: Sets) -> Iterator[Form]:
        """By strides and by pointers, and as products of matrices with one column."""
        n, letter = case.n, LETTERS[case.dtype]
        square, line = ctypes.c_longlong(n * n), ctypes.c_longlong(n)
        one, zero = REALS[case.dtype](1), REALS[case.dtype](0)
        pointers = {name: self._pointers(sets, name) for name in "Axy"}

        def strided(place: int, stream: int) -> None:
            A, x, y = (address(sets.arrays[place][name]) for name in "Axy")
            given = (ctypes.byref(one), A, n, square, x, 1, line)
            made = (ctypes.byref(zero), y, 1, line, sets.batch)
            self._blas_call(f"cublas{letter}gemvStridedBatched", stream, PLAIN, n, n, *given, *made)

        def pointed(place: int, stream: int) -> None:
            A, x, y = (address(pointers[name][place]) for name in "Axy")
            given = (ctypes.byref(one), A, n, x, 1)
            made = (ctypes.byref(zero), y, 1, sets.batch)
            self._blas_call(f"cublas{letter}gemvBatched", stream, PLAIN, n, n, *given, *made)

        def product(place: int, stream: int) -> None:
            A, x, y = (address(sets.arrays[place][name]) for name in "Axy")
            given = (ctypes.byref(one), A, n, square, x, n, line)
            made = (ctypes.byref(zero), y, n, line, sets.batch)
            way = (PLAIN, PLAIN, n, 1, n)
            self._blas_call(f"cublas{letter}gemmStridedBatched", stream, *way, *given, *made)

        keep = (one, zero, pointers)
        yield Form("cuBLAS gemvStridedBatched", "", strided, keep=keep)
        yield Form("cuBLAS gemvBatched", "", pointed, keep=keep)
        yield Form("cuBLAS gemmStridedBatched", "one column", product, keep=keep)


class Turned:
    """Transposed copies of an array of matrices, one for each set, and the addresses of the matrices."""

    def __init__(self, cp: Any, sets: Sets, name: str) -> None:
        self.arrays = []
        self.pointers = []
        for arrays in sets.arrays:
            turned = cp.empty(arrays[name].shape, arrays[name].dtype)
            cp.copyto(turned, arrays[name].transpose(0, 2, 1))
            step = turned.nbytes // sets.batch
            host = np.uint64(turned.data.ptr) + np.uint64(step) * np.arange(sets.batch, dtype=np.uint64)
            self.arrays.append(turned)
            self.pointers.append(cp.asarray(host))
