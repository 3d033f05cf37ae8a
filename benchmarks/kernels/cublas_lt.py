"""Strided batches of products by cuBLASLt: the algorithms that its heuristics propose, each as a call.

Numbers of enumerations are those of ``cublasLt.h``.
"""

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

from linalg_forms import REALS, Call, Factor, Product
from vendor_library import address

CANDIDATES = 8  # that the heuristics are asked for, in the order of the time they expect
_TYPES = {"float32": 0, "float64": 1}  # cudaDataType: CUDA_R_32F, CUDA_R_64F
_COMPUTE = {"float32": 68, "float64": 70}  # cublasComputeType_t: CUBLAS_COMPUTE_32F, without TF32, and 64F
_TRANSA, _TRANSB = 3, 4  # cublasLtMatmulDescAttributes_t
_BATCH_COUNT, _BATCH_STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
_WORKSPACE_LIMIT = 1  # cublasLtMatmulPreferenceAttributes_t


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class CublasLt:
    """cuBLASLt with a workspace.

    Args:
        library: its functions.
        workspace: on the device.
    """

    def __init__(self, library: Any, workspace: Any) -> None:
        self._library, self._workspace = library, workspace
        self._handle = ctypes.c_void_p()
        library.call("cublasLtCreate", ctypes.byref(self._handle))

    def calls(self, product: Product) -> Iterator[Call]:
        """A call for each algorithm that the heuristics propose; none where they know none."""
        try:
            operation, layouts = self._described(product)
            found = self._proposed(operation, layouts)
        except RuntimeError:  # this version has no such product
            return
        for heuristic in found:
            yield self._call(product, operation, layouts, heuristic)

    def _call(self, product: Product, operation: Any, layouts: Sequence[Any], heuristic: Heuristic) -> Call:
        one, zero = REALS[product.dtype](1), REALS[product.dtype](0)
        left, right, made = layouts

        def call(place: int, stream: int) -> None:
            A, B, C = (address(f.arrays[place]) for f in (product.left, product.right, product.made))
            self._library.call(
                "cublasLtMatmul",
                *(self._handle, operation, ctypes.byref(one), A, left, B, right),
                *(ctypes.byref(zero), C, made, C, made, ctypes.byref(heuristic)),
                *(address(self._workspace), ctypes.c_size_t(self._workspace.nbytes)),
                ctypes.c_void_p(stream),
            )

        return call

    def _described(self, product: Product) -> tuple[Any, list[Any]]:
        """The operation, and the layouts of its matrices."""
        operation = ctypes.c_void_p()
        kinds = _COMPUTE[product.dtype], _TYPES[product.dtype]
        self._library.call("cublasLtMatmulDescCreate", ctypes.byref(operation), *kinds)
        for name, factor in ((_TRANSA, product.left), (_TRANSB, product.right)):
            self._set("cublasLtMatmulDescSetAttribute", operation, name, ctypes.c_int(factor.operation))
        m, n, k = product.shape
        shapes = (
            (product.left, (k, m) if product.left.operation else (m, k)),
            (product.right, (n, k) if product.right.operation else (k, n)),
            (product.made, (m, n)),
        )
        return operation, [self._layout(product, factor, shape) for factor, shape in shapes]

    def _layout(self, product: Product, factor: Factor, shape: tuple[int, int]) -> Any:
        layout = ctypes.c_void_p()
        rows, columns = map(ctypes.c_uint64, shape)
        self._library.call(
            "cublasLtMatrixLayoutCreate",
            *(ctypes.byref(layout), _TYPES[product.dtype], rows, columns, ctypes.c_int64(factor.leading)),
        )
        for name, value in (
            (_BATCH_COUNT, ctypes.c_int32(product.batch)),
            (_BATCH_STRIDE, ctypes.c_int64(factor.stride)),
        ):
            self._set("cublasLtMatrixLayoutSetAttribute", layout, name, value)
        return layout

    def _proposed(self, operation: Any, layouts: Sequence[Any]) -> list[Heuristic]:
        preference, count = ctypes.c_void_p(), ctypes.c_int()
        self._library.call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        limit = ctypes.c_uint64(self._workspace.nbytes)
        self._set("cublasLtMatmulPreferenceSetAttribute", preference, _WORKSPACE_LIMIT, limit)
        found = (Heuristic * CANDIDATES)()
        left, right, made = layouts
        self._library.call(
            "cublasLtMatmulAlgoGetHeuristic",
            *(self._handle, operation, left, right, made, made, preference, CANDIDATES),
            *(found, ctypes.byref(count)),
        )
        return [one for one in found[: count.value] if one.state == 0]

    def _set(self, function: str, of: Any, name: int, value: Any) -> None:
        self._library.call(function, of, name, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))
