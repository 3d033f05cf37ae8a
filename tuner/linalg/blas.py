"""Products and triangular systems of matrices beyond the batched kernels, by cuBLAS.

Matrices are arrays of two axes as the formulas have them, with any strides; row-major and column-major ones
are read as they are, others are copied. Work is put into CuPy's current stream.
"""

from functools import cache
from types import ModuleType

from tuner.devices.cuda.cublas import WORKSPACE_BYTES
from tuner.devices.cuda.libraries import GpuLibraries, workspace_name
from tuner.linalg.arrays import Array, Call
from tuner.model.chains import Fill, LibraryCall, Operand


@cache
def _libraries(cp: ModuleType, device: int) -> GpuLibraries:
    del device  # which is current
    return GpuLibraries(cp)


class Blas:
    """cuBLAS on the current GPU.

    Args:
        call: for which call.
    """

    def __init__(self, call: Call) -> None:
        self._cp = cp = call.cp
        self._libraries = _libraries(cp, int(cp.cuda.runtime.getDevice()))
        self._workspace = cp.empty(WORKSPACE_BYTES, "uint8")  # of the stream's pool, so that no other has it

    def multiply(self, a: Array, b: Array, c: Array, *, alpha: float = 1.0, beta: float = 0.0) -> None:
        """``c = alpha a b + beta c`` in place of c, which is row-major or column-major; 0 reads no c."""
        if _leading(c) is None:
            a, b, c = b.T, a.T, c.T
        (m, k), n = a.shape, b.shape[1]
        given = [self._operand(letter, one) for letter, one in (("a", a), ("b", b), ("c", c))]
        operands = tuple((letter, operand) for letter, operand, _ in given)
        call = LibraryCall("gemm", c.dtype.name, operands, m, n, k, alpha=alpha, beta=beta)
        self._put(call, {letter: array for letter, _, array in given})

    def solve(self, a: Array, b: Array, *, lower: bool, unit: bool = False) -> None:
        """Put x of ``a x = b`` in place of b, which is column-major; one triangle of a is read."""
        given = [self._operand(letter, one) for letter, one in (("a", a), ("b", b))]
        operands = tuple((letter, operand) for letter, operand, _ in given)
        stored_lower = lower != operands[0][1].transposed
        fill: Fill = "lower" if stored_lower else "upper"
        call = LibraryCall("trsm", b.dtype.name, operands, m=b.shape[0], n=b.shape[1], fill=fill, unit=unit)
        self._put(call, {letter: array for letter, _, array in given})

    def _put(self, call: LibraryCall, arrays: dict[str, Array]) -> None:
        self._libraries.bound(call, {**arrays, workspace_name(0): self._workspace}, 0).enqueue(None)

    def _operand(self, letter: str, matrix: Array) -> tuple[str, Operand, Array]:
        """A matrix as cuBLAS takes it: column-major, or the transpose of one that is."""
        for turned, array in ((False, matrix), (True, matrix.T)):
            leading = _leading(array)
            if leading is not None:
                return letter, Operand(letter, 0, leading, transposed=turned), array
        copy = self._cp.empty(matrix.shape, matrix.dtype)
        copy[...] = matrix
        return letter, Operand(letter, 0, matrix.shape[1], transposed=True), copy


def _leading(matrix: Array) -> int | None:
    """Elements from one column to the next of a matrix that is column-major; None of others."""
    rows, columns = matrix.shape
    down, across = matrix.strides
    if rows > 1 and down != matrix.itemsize:
        return None
    if columns == 1:
        return max(1, int(rows))
    leading, rest = divmod(int(across), matrix.itemsize)
    return None if rest or leading < max(1, rows) else leading
