"""What linalg_large.py compares: factorisations of one large matrix, with their targets."""

from collections.abc import Sequence

from linalg_operations import DTYPES, Case, Target

SIZES = (256, 512, 1024, 2048, 4096, 8192, 16384)
OPERATIONS = ("potrf", "getrf", "geqrf")

__all__ = ["DTYPES", "OPERATIONS", "SIZES", "LargeCase", "large_cases"]

_SMALL, _MEDIUM, _LARGE = 1024, 4096, 16384  # orders


class LargeCase(Case):
    """One row: a factorisation at one order and in one type."""

    @property
    def target(self) -> Target:
        """What the row should reach."""
        if self.operation == "potrf":
            aim = 1.2 if self.n <= _SMALL else None
            if self.dtype == "float32":
                return Target(None, aim)
            return Target(0.9 if _SMALL < self.n <= _MEDIUM else 1.0, aim)
        if self.n < _SMALL:
            return Target(None)
        if self.operation == "getrf":
            return Target(1.05 if self.n >= _LARGE else 1.2, 1.5 if self.n <= _MEDIUM else None)
        return Target(1.35 if self.n >= _LARGE else 1.05, 1.5)

    @property
    def flops(self) -> int:
        """LAPACK's count without its lower terms: of n^3 a third, two thirds, four thirds."""
        return {"potrf": 1, "getrf": 2, "geqrf": 4}[self.operation] * self.n**3 // 3


def large_cases(operations: Sequence[str], sizes: Sequence[int], dtypes: Sequence[str]) -> list[LargeCase]:
    """The rows; small orders come first, so that a run that is cut short has some of each factorisation."""
    return [
        LargeCase(operation, n, dtype) for n in sorted(sizes) for operation in operations for dtype in dtypes
    ]
