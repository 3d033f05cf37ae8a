"""What linalg_peers.py compares: batched operations, and how fast they should be."""

from collections.abc import Mapping
from dataclasses import dataclass

SIZES = (4, 8, 16, 32, 48, 64, 96, 128)
DTYPES = ("float32", "float64")
BATCH = 10_000

_TINY, _SMALL = 16, 64  # orders up to here
_FACTORS = {  # least ratio, and that aimed at: to order 64 and above, in float32 and in float64
    "potrf-batched": (((3.5, 5.0), (1.5, 2.5)), ((3.0, None), (1.0, 1.5))),
    "getrf-batched": (((1.8, 3.0), (1.5, 2.5)), ((1.4, None), (1.0, 1.5))),
    "geqrf-batched": (((2.5, 5.0), (5.0, None)), ((2.2, None), (4.0, None))),
    "trsm-batched": (((2.8, 4.0), (1.5, 2.5)), ((2.3, None), (1.0, 1.5))),
}
OPERATIONS = (*_FACTORS, "gemm-batched", "gemv-batched")


@dataclass(frozen=True)
class Target:
    """Ratios to the peer.

    Attributes:
        least: that a row must reach; None where it is only reported.
        aim: that it should reach; None where nothing is said.
    """

    least: float | None
    aim: float | None = None

    def __str__(self) -> str:
        return "reported" if self.least is None else f">= {self.least:.2f} x the peer"

    def met(self, ratio: float) -> bool | None:
        """Whether a ratio reaches the least; None where there is none."""
        return None if self.least is None else ratio >= self.least


@dataclass(frozen=True)
class Case:
    """One row: an operation at one order and in one type."""

    operation: str
    n: int
    dtype: str

    def __str__(self) -> str:
        return f"{self.operation} n={self.n} {self.dtype}"

    @property
    def sizes(self) -> Mapping[str, int | str]:
        """Of the kernel's workload."""
        return {"n": self.n, "dtype": self.dtype}

    @property
    def target(self) -> Target:
        """What the row should reach."""
        double = self.dtype == "float64"
        if self.operation in _FACTORS:
            return Target(*_FACTORS[self.operation][double][self.n > _SMALL])
        if self.operation == "gemv-batched":
            return Target(1.5 if self.n <= _TINY else 1.0)
        if double:
            return Target(2.0 if self.n <= _TINY else None, 1.0)
        return Target(2.9 if self.n <= _TINY else 1.15 if self.n <= 96 else 0.95, 1.0)


def cases(operations: list[str], sizes: list[int], dtypes: list[str]) -> list[Case]:
    """The rows, in the order of the table."""
    return [Case(operation, n, dtype) for operation in operations for dtype in dtypes for n in sizes]
