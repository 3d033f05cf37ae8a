"""The rows of ``long_scan_peers.py``: what is scanned, their lengths, and their right answers in float64."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import answers

PIECE = 2**16  # elements whose errors are joined by one block


@dataclass(frozen=True)
class Case:
    """One row: its type, what is done with it, and its length.

    Attributes:
        dtype: of the elements.
        operator: ``sum``, ``min`` or ``recurrence``.
        form: ``inclusive`` or ``exclusive``.
        n: elements.
        kernel: of the catalogue.
        segment: elements of a segment, on average; 0 where there are none.
    """

    dtype: str
    operator: str
    form: str
    n: int
    kernel: str = "scan-long"
    segment: int = 0

    @property
    def name(self) -> str:
        """For tables."""
        length = f"N = 2^{self.n.bit_length() - 1}"
        segments = (
            f", segments of {self.segment} by {self.kernel.removeprefix('scan-')}" if self.segment else ""
        )
        return f"{self.form} {self.operator}, {self.dtype}, {length}{segments}"

    @property
    def sizes(self) -> dict[str, int | str]:
        """Of the workload."""
        if self.kernel == "linear-recurrence":
            return {"N": self.n, "dtype": self.dtype}
        ends: dict[str, int | str] = {"ends": self.ends} if self.kernel == "scan-offsets" else {}
        return {"N": self.n, **ends, "dtype": self.dtype, "operator": self.operator, "form": self.form}

    @property
    def ends(self) -> int:
        """Offsets: one more than segments."""
        return self.n // self.segment + 1 if self.segment else 0


def _segmented(kernel: str, n: int, segment: int, dtype: str = "float32") -> Case:
    return Case(dtype, "sum", "inclusive", n, kernel, segment)


def _recurrence(dtype: str, n: int) -> Case:
    return Case(dtype, "recurrence", "inclusive", n, "linear-recurrence")


CASES = (
    *(Case("float32", "sum", "inclusive", 2**k) for k in (24, 28, 20, 22, 26, 30, 21, 23, 25, 27, 29)),
    *(_recurrence("float32", 2**k) for k in (26, 22, 28)),
    *(_segmented("scan-flags", 2**26, segment) for segment in (4096, 16, 2**22, 2**16, 1024)),
    *(_segmented("scan-offsets", 2**26, segment) for segment in (4096, 16, 2**22, 2**16, 1024)),
    *(_segmented(f"scan-{kind}", 2**26, 4096, "float64") for kind in ("flags", "offsets")),
    *(Case("complex64", "sum", "inclusive", 2**k) for k in (26, 22)),
    _recurrence("float64", 2**26),
    _segmented("scan-flags", 2**22, 4096),
    _segmented("scan-offsets", 2**22, 4096),
    *(Case(dtype, "sum", "inclusive", 2**k) for dtype in ("int32", "float64", "int64") for k in (22, 26)),
    Case("float32", "sum", "exclusive", 2**26),
    Case("float32", "min", "inclusive", 2**26),
)


class LongRow(answers.Data):
    """One row whose error is joined by many blocks."""

    def error(self, cp: Any, answer: Any = None) -> float:
        """See ``answers.Data.error``; of whole numbers and least values, how many differ."""
        given = (self.output if answer is None else answer).reshape(-1, PIECE)
        right = self.reference.reshape(-1, PIECE)
        if self.scale is None:
            return float(_differing(cp)(given, right, axis=1).sum())
        if given.dtype.kind == "c":
            given, right = (one.view(one.real.dtype).reshape(-1, PIECE) for one in (given, right))
        errors = _largest(cp)(given, right, axis=1).max() / self.scale
        return float(errors) if bool(cp.isfinite(errors)) else math.inf


@functools.cache
def _largest(cp: Any) -> Any:
    code = "(abs(double(y) - right) <= 1e300 ? abs(double(y) - right) : 1e308)"
    return cp.ReductionKernel("T y, float64 right", "float64 z", code, "max(a, b)", "z = a", "0", "largest")


@functools.cache
def _differing(cp: Any) -> Any:
    return cp.ReductionKernel(
        "T y, T right", "float64 z", "double(y != right)", "a + b", "z = a", "0", "differing"
    )


def make(cp: Any, case: Case) -> LongRow:
    """A random row and its answer, in float64 or exact."""
    made: dict[str, Callable[[Any, Case, Any], LongRow]] = {
        "scan-flags": _segments,
        "scan-offsets": _segments,
        "linear-recurrence": _maps,
    }
    rng = cp.random.Generator(cp.random.Philox4x3210(1))
    return made.get(case.kernel, _plain)(cp, case, rng)


def _plain(cp: Any, case: Case, rng: Any) -> LongRow:
    if case.dtype == "complex64":
        x = _uniform(cp, rng, "float32", 2 * case.n).view(cp.complex64)
    elif case.dtype.startswith("float"):
        x = _uniform(cp, rng, case.dtype, case.n)
    else:
        x = rng.integers(-(2**31), 2**31, (1, case.n)).astype(case.dtype)
    exact = case.operator == "min" or x.dtype.kind == "i"
    if case.operator == "min":
        right = _least(cp, x)
    else:
        right = cp.cumsum(x[0], dtype=x.dtype if exact else cp.result_type(x.dtype, cp.float64))[None]
        if case.form == "exclusive":
            right -= x
    scale = None if exact else abs(right).max()
    return LongRow("scan", case.n, (x,), cp.empty_like(x), right, scale)


def _segments(cp: Any, case: Case, rng: Any) -> LongRow:
    """Segments of random lengths; what lies before one is taken off the sums of the row."""
    x = _uniform(cp, rng, case.dtype, case.n)
    inner = cp.sort(rng.integers(0, case.n + 1, case.ends - 2))
    offsets = cp.concatenate([cp.zeros(1, cp.int64), inner, cp.full(1, case.n)]).astype(cp.int32)
    heads = cp.zeros((1, case.n), cp.uint8)
    heads[0, offsets[offsets < case.n]] = 1
    sums = cp.cumsum(x[0], dtype=cp.float64)
    starts = cp.flatnonzero(heads[0])
    right = sums - (sums - x[0])[starts[cp.cumsum(heads[0], dtype=cp.int64) - 1]]
    second = heads if case.kernel == "scan-flags" else offsets[None]
    return LongRow("scan", case.n, (x, second), cp.empty_like(x), right[None], abs(right).max())


def _maps(cp: Any, case: Case, rng: Any) -> LongRow:
    """Recurrences whose factors are below 0.9, composed by doubling until nothing is left of them."""
    a = _uniform(cp, rng, case.dtype, case.n)
    a *= 0.9
    b = _uniform(cp, rng, case.dtype, case.n)
    factors, sums, step = a.astype(cp.float64), b.astype(cp.float64), 1
    while step < min(case.n, 2**11):
        sums[:, step:] += factors[:, step:] * sums[:, :-step].copy()
        factors[:, step:] *= factors[:, :-step].copy()
        factors[:, :step] = 0
        step *= 2
    return LongRow("scan", case.n, (a, b), cp.empty_like(a), sums, abs(sums).max())


def _uniform(cp: Any, rng: Any, dtype: str, count: int) -> Any:
    """One row of numbers in [-1, 1)."""
    return 2 * rng.random((1, count), dtype=getattr(cp, dtype)) - 1


def _least(cp: Any, x: Any) -> Any:
    """Least values so far, by doubling."""
    y = x.copy()
    step = 1
    while step < y.shape[1]:
        y[:, step:] = cp.minimum(y[:, step:], y[:, :-step].copy())
        step *= 2
    return y
