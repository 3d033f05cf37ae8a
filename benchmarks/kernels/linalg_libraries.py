"""cuBLAS and cuSOLVER of this machine, and the forms in which they solve batches of small problems.

Arguments stand in the order of ``cublas_api.h`` and ``cusolverDn.h``.
"""

import ctypes
from typing import Any

from cublas_lt import CublasLt
from linalg_factorings import geqrf_forms, getrf_forms, potrf_forms, trsm_forms
from linalg_forms import DEFAULT_MATH, Form
from linalg_operations import Case
from linalg_products import gemm_forms, gemv_forms
from linalg_sets import Sets
from vendor_library import VendorLibrary, address

_WORKSPACE_BYTES = 32 * 2**20  # what NVIDIA recommends for Hopper GPUs
_FACTORINGS = {
    "potrf-batched": potrf_forms,
    "getrf-batched": getrf_forms,
    "geqrf-batched": geqrf_forms,
    "trsm-batched": trsm_forms,
}
_PRODUCTS = {"gemm-batched": gemm_forms, "gemv-batched": gemv_forms}


class LinalgLibraries:
    """cuBLAS and cuSOLVER, those that CuPy loads if it finds them; ``missing`` says which were not found.

    Args:
        cp: CuPy.
        cublas: the library; the one of this machine if not given.
        cusolver: same.
        lt: cuBLASLt; that of this machine if cuBLAS is not given.

    Attributes:
        cp: CuPy.
    """

    def __init__(self, cp: Any, cublas: Any = None, cusolver: Any = None, lt: Any = None) -> None:
        self.cp = cp
        self.missing: dict[str, str] = {}
        self._cublas, self._cusolver = cublas, cusolver
        if cublas is None:
            self._cublas = self._opened("cuBLAS", "libcublas", (13, 12), "get_cublas_handle")
            lt = self._opened("cuBLASLt", "libcublasLt", (13, 12), "get_cublas_handle")
        if cusolver is None:
            self._cusolver = self._opened("cuSOLVER", "libcusolver", (12, 11), "get_cusolver_handle")
        self._blas, self._solver = ctypes.c_void_p(), ctypes.c_void_p()
        if self._cublas is not None:
            self._cublas.call("cublasCreate_v2", ctypes.byref(self._blas))
        if self._cusolver is not None:
            self._cusolver.call("cusolverDnCreate", ctypes.byref(self._solver))
        self._workspace = cp.empty(_WORKSPACE_BYTES, "uint8")
        self._lt = None if lt is None else CublasLt(lt, self._workspace)

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
        if self._cublas is None or (case.operation == "potrf-batched" and self._cusolver is None):
            return []
        if case.operation in _PRODUCTS:
            return list(_PRODUCTS[case.operation](self, self._lt, case, sets))
        return list(_FACTORINGS[case.operation](self, case, sets))

    def _opened(self, name: str, stem: str, versions: tuple[int, ...], handle: str) -> VendorLibrary | None:
        try:
            getattr(self.cp.cuda.device, handle)()  # CuPy loads the library that goes with its CUDA
        except Exception as error:  # noqa: BLE001 - whatever CuPy says; the library may be there all the same
            self.missing[name] = f"CuPy finds none: {error}"
        try:
            library = VendorLibrary(stem, versions)
        except OSError as error:
            self.missing[name] = str(error)
            return None
        self.missing.pop(name, None)
        return library

    def blas(self, name: str, stream: int, *arguments: Any, math: int = DEFAULT_MATH) -> None:
        """A call of cuBLAS in a stream, with the workspace of this object."""
        self._cublas.call("cublasSetStream_v2", self._blas, ctypes.c_void_p(stream))
        size = ctypes.c_size_t(_WORKSPACE_BYTES)
        self._cublas.call("cublasSetWorkspace_v2", self._blas, address(self._workspace), size)
        self._cublas.call("cublasSetMathMode", self._blas, math)
        self._cublas.call(name, self._blas, *arguments)

    def solver(self, name: str, stream: int, *arguments: Any) -> None:
        """A call of cuSOLVER in a stream."""
        self._cusolver.call("cusolverDnSetStream", self._solver, ctypes.c_void_p(stream))
        self._cusolver.call(name, self._solver, *arguments)
