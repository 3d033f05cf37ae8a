"""What stages of chains take beside whole arrays: views with an offset, and calls of libraries."""

from dataclasses import dataclass
from typing import Literal

Routine = Literal["gemm", "syrk", "trsm", "fft", "lapack-potrf", "lapack-getrf", "lapack-geqrf"]
Fill = Literal["lower", "upper"]
Side = Literal["left", "right"]


@dataclass(frozen=True)
class BufferView:
    """A buffer from one of its elements on: a pointer moved forward.

    Attributes:
        buffer: name of the plan's buffer.
        offset_elements: elements before the first one of the view, 0 or more.
    """

    buffer: str
    offset_elements: int


@dataclass(frozen=True)
class Operand:
    """A matrix in a buffer, column-major as in BLAS: element (i, j) is at ``offset + i + j * leading``.

    Attributes:
        buffer: name of the plan's buffer.
        offset_elements: of element (0, 0).
        leading: elements from one column to the next.
        transposed: whether the routine takes its transpose.
    """

    buffer: str
    offset_elements: int = 0
    leading: int = 1
    transposed: bool = False


@dataclass(frozen=True)
class LibraryCall:
    """A stage that cuBLAS or cuFFT runs, or LAPACK on the host.

    - ``gemm``: c (m x n) = alpha op(a) op(b) + beta c, with k columns of op(a).
    - ``syrk``: c (n x n), of which only one triangle is read and written, = alpha op(a) op(a)' + beta c, with
      k columns of op(a).
    - ``trsm``: b (m x n) = alpha times the solution x of op(a) x = b (side ``left``) or x op(a) = b
      (``right``); a is triangular.
    - ``fft``: c = transform of a, m transforms of length n one after another, not normalised.
    - ``lapack-potrf``: the lower triangle of a (n x n) becomes its Cholesky factor; ``info`` as LAPACK's.
    - ``lapack-getrf``: a (m x n) becomes its LU factors; ``pivots`` and ``info`` as LAPACK's.
    - ``lapack-geqrf``: a (m x n) becomes its QR factors; ``tau`` as LAPACK's.

    The last three are *host stages*: a is copied to the host, factored there, and copied back.

    Attributes:
        routine: what is computed.
        dtype: NumPy dtype name of all operands.
        operands: what it takes, by name: ``a``, ``b`` and ``c``, of which it writes to the last; or a matrix
            and what LAPACK says of it, all of which it writes to.
        m: rows, or transforms.
        n: columns, or the length of a transform.
        k: of gemm and syrk; 0 otherwise.
        alpha: factor.
        beta: factor of what c holds before.
        fill: the triangle of c (syrk) or of a (trsm) that is used.
        side: where op(a) stands (trsm).
        unit: whether the diagonal of a is taken to be 1 (trsm).
        inverse: whether the transform is the inverse one (fft).
        threads: of the CPU (host stages); 0 for as many as the process may use.
        first: rows and columns before the matrix (host stages): pivots and info count from there.
    """

    routine: Routine
    dtype: str
    operands: tuple[tuple[str, Operand], ...]
    m: int
    n: int
    k: int = 0
    alpha: float = 1.0
    beta: float = 0.0
    fill: Fill = "lower"
    side: Side = "left"
    unit: bool = False
    inverse: bool = False
    threads: int = 0
    first: int = 0

    @property
    def on_host(self) -> bool:
        """True for a host stage."""
        return self.routine.startswith("lapack-")

    def operand(self, letter: str) -> Operand:
        """The operand of a name.

        Raises:
            KeyError: the routine takes none of this name.
        """
        return dict(self.operands)[letter]
