"""Forms in which cuSOLVER factors one large matrix, and cuBLAS's product of two, by their C functions.

Matrices are column-major, as the kernels have them. Arguments stand in the order of ``cusolverDn.h`` and
``cublas_api.h``. Workspaces are allocated when a form is made, outside of what is timed.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from linalg_forms import LETTERS, LOWER, PLAIN, REALS, Form
from linalg_large_sets import DeviceArrays, LargeSets
from linalg_libraries import LinalgLibraries
from linalg_operations import Case
from vendor_library import address

_TYPES = {"float32": 0, "float64": 1}  # cudaDataType: CUDA_R_32F, CUDA_R_64F


class LargeLibraries(LinalgLibraries):
    """cuBLAS and cuSOLVER for one matrix; the arguments are those of ``LinalgLibraries``."""

    def factorizations(self, case: Case, sets: LargeSets) -> list[Form]:
        """The forms of cuSOLVER that this version has: the classic one and the 64-bit one.

        ``missing`` says which are not there.
        """
        if self._cusolver is None:
            return []
        makers: tuple[Callable[[Case, LargeSets], Form], ...] = (self._classic, self._generic)
        return [form for form in (self._tried(make, case, sets) for make in makers) if form is not None]

    def _tried(self, make: Callable[[Case, LargeSets], Form], case: Case, sets: LargeSets) -> Form | None:
        try:
            return make(case, sets)
        except RuntimeError as error:
            self.missing[f"cuSOLVER, {case}"] = str(error)
            return None

    def gemm(self, case: Case, sets: LargeSets) -> Form | None:
        """The product of the matrix with itself, n x n x n, in the default math mode: without TF32."""
        if self._cublas is None:
            return None
        name, n = f"cublas{LETTERS[case.dtype]}gemm_v2", case.n
        one, zero = REALS[case.dtype](1), REALS[case.dtype](0)
        given, made = sets.given()["A"], self.cp.empty((n, n), case.dtype)

        def call(place: int, stream: int) -> None:
            del place
            factors = (ctypes.byref(one), address(given), n, address(given), n)
            self.blas(name, stream, PLAIN, PLAIN, n, n, n, *factors, ctypes.byref(zero), address(made), n)

        return Form("cuBLAS gemm", "", call, keep=(one, zero, given, made))

    def _classic(self, case: Case, sets: LargeSets) -> Form:
        """By ``cusolverDn<t>potrf`` and its like, whose sizes are int."""
        name, n = f"cusolverDn{LETTERS[case.dtype]}{case.operation}", case.n
        arrays = sets.arrays[0]
        shape = (LOWER, n) if case.operation == "potrf" else (n, n)
        length = ctypes.c_int()
        matrix = (*shape, address(arrays["A"]), n)
        self._cusolver.call(f"{name}_bufferSize", self._solver, *matrix, ctypes.byref(length))
        work = self.cp.empty(max(1, length.value), case.dtype)
        info = arrays["info"] if "info" in arrays else self.cp.empty(1, "int32")
        rest: tuple[Any, ...] = (address(work), length.value, address(info))
        if case.operation == "getrf":
            rest = (address(work), address(arrays["ipiv"]), address(info))
        elif case.operation == "geqrf":
            rest = (address(arrays["tau"]), *rest)

        def call(place: int, stream: int) -> None:
            del place
            self.solver(name, stream, *matrix, *rest)

        return Form(f"cuSOLVER {case.operation}", "", call, _judged(self.cp, case), keep=(work, info))

    def _generic(self, case: Case, sets: LargeSets) -> Form:
        """By ``cusolverDnXpotrf`` and its like, whose sizes are int64_t, and pivots of getrf too."""
        name, arrays = f"cusolverDnX{case.operation}", sets.arrays[0]
        n, kind = ctypes.c_int64(case.n), _TYPES[case.dtype]
        parameters = ctypes.c_void_p()
        self._cusolver.call("cusolverDnCreateParams", ctypes.byref(parameters))
        pivots = self.cp.empty(case.n, "int64")
        matrix = (kind, address(arrays["A"]), n)
        before: tuple[Any, ...] = (parameters, LOWER, n) if case.operation == "potrf" else (parameters, n, n)
        tau = (kind, address(arrays["tau"])) if case.operation == "geqrf" else ()
        device_bytes, host_bytes = ctypes.c_size_t(), ctypes.c_size_t()
        sizes = (ctypes.byref(device_bytes), ctypes.byref(host_bytes))
        self._cusolver.call(f"{name}_bufferSize", self._solver, *before, *matrix, *tau, kind, *sizes)
        work = self.cp.empty(max(1, device_bytes.value), "uint8")
        host = ctypes.create_string_buffer(max(1, host_bytes.value))
        info = arrays["info"] if "info" in arrays else self.cp.empty(1, "int32")
        made = (address(pivots),) if case.operation == "getrf" else tau
        works = (address(work), device_bytes, host, host_bytes, address(info))

        def call(place: int, stream: int) -> None:
            del place
            self.solver(name, stream, *before, *matrix, *made, kind, *works)

        keep = (parameters, work, host, info, pivots)
        convert = _judged(self.cp, case, pivots)
        return Form(f"cuSOLVER {case.operation}", "64-bit", call, convert, keep=keep)


def _judged(cp: Any, case: Case, pivots: Any = None) -> Callable[[DeviceArrays, DeviceArrays], DeviceArrays]:
    """Makes of a library's outputs those of the kernel.

    Of potrf, what stands above the diagonal is no part of the answer, and the library may use it.
    """

    def converted(given: DeviceArrays, made: DeviceArrays) -> DeviceArrays:
        if case.operation == "potrf":
            return {**made, "A": cp.triu(made["A"]) + cp.tril(given["A"], -1)}
        if pivots is not None and case.operation == "getrf":
            return {**made, "ipiv": pivots.astype("int32")}
        return made

    return converted
