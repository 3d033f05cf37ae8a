"""Scans of rows by an associative operator: prefix sums and their like."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tuner.model.plan import Buffer
from tuner.problems.arrays import Array, Arrays, Draw, Namespace, chunks, value_dtype
from tuner.problems.base import Deviation, Norm, Problem, expect_buffers, relative, sweep, unit_roundoff
from tuner.problems.prefix_operators import OPERATORS, PrefixOperator

_SUMMED = 2**14  # elements that one sum in float64 goes on over; what lies before has more digits

_SUM = PrefixOperator("sum")


@dataclass(frozen=True)
class Scan(Problem):
    """Rows of x of shape (batch, N) to y with ``y[i] = x[0] op ... op x[i]``.

    Where the size ``form`` is ``exclusive``, ``y[i] = x[0] op ... op x[i-1]``, and ``y[0]`` is neutral. Where
    ``direction`` is ``reverse``, rows are scanned from their end. The operator is the size ``operator``;
    inputs are those of ``PrefixOperator.draw``.

    Attributes:
        operator: of this workload, see ``at``.
    """

    words: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "form": ("inclusive", "exclusive"),
        "operator": OPERATORS,
        "direction": ("forward", "reverse"),
    }
    operator: PrefixOperator = _SUM

    def at(self, sizes: Mapping[str, Any]) -> "Scan":
        """See ``Problem.at``."""
        return replace(self, operator=PrefixOperator(self.word("operator", sizes)))

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``."""
        kinds = {
            value_dtype(buffer.dtype).kind for buffer in buffers if buffer.role in ("in", "out", "inout")
        }
        (kind,) = kinds if kinds in ({"i"}, {"u"}, {"c"}) else ("f",)
        needs = (
            "one input and one output of shape [batch, N], both real, or both signed whole numbers, or both"
            " unsigned ones, or both complex"
        )
        expect_buffers(self.spec, buffers, 1, kind, needs)

    def draws(self, buffers: Sequence[Buffer]) -> dict[str, Draw]:
        """See ``Problem.draws``."""
        return {
            buffer.name: self.operator.draw(value_dtype(buffer.dtype), buffer.shape[-1])
            for buffer in buffers
            if buffer.role in ("in", "inout")
        }

    def norm(self, output: Array) -> Norm:
        """See ``Problem.norm``."""
        return Norm.COUNT if self.operator.exact(output.dtype) else Norm.MAXIMUM

    def compare(self, inputs_rows: Arrays, outputs_rows: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """Largest error of a row by the row's largest sum, against sums in float64.

        Of what must be exact, how many differ from scans in the type of the output.
        """
        scan, exclusive = self.at(sizes), self.word("form", sizes) == "exclusive"

        def errors(x: Array, y: Array) -> Array:
            given, made = self.scanned(x, y, sizes)
            return largest(np, _differences(scan.operator, given, made, exclusive=exclusive))

        (x,), (y,) = inputs_rows.values(), outputs_rows.values()
        return sweep(np, (x, y), errors, allowed=scan.allowed(y), what=scan.metric(y, "error"))

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """Half of the largest ``|y[i] - y[i-1] op x[i]|``, by the largest sum; also ``|y[N-1] - sum of x|``.

        Sums that are right within e differ from their neighbours by the element between them within 2 e; the
        total catches errors that creep in below that. Of what must be exact, how many violate this.
        """
        scan, exclusive = self.at(sizes), self.word("form", sizes) == "exclusive"

        def errors(x: Array, y: Array) -> Array:
            given, made = self.scanned(x, y, sizes)
            return largest(xp, jumps(xp, scan.operator, given, made, exclusive=exclusive))

        (x,), (y,) = inputs.values(), outputs.values()
        return sweep(xp, (x, y), errors, allowed=scan.allowed(y), what=scan.metric(y, "residual"))

    def allowed(self, output: Array) -> float:
        """Twice what serial summation may lose: N roundings of random sign, each of half the largest sum.

        Nobody sums more than 2^14 numbers one after another: longer rows are summed in parts. Of products
        every factor's rounding stays. Numbers of 16 bits are summed as float32, and rounded in the end.
        """
        if self.spec.tolerance is not None:
            return self.spec.tolerance
        if self.operator.exact(output.dtype):
            return 0.0
        length = output.shape[1] if self.operator.name == "product" else min(output.shape[1], 2**14)
        narrow = output.dtype.itemsize < np.dtype(np.float32).itemsize
        roundoff = unit_roundoff(np.empty(0, np.float32) if narrow else output)
        return roundoff * (4 + 2 * math.sqrt(length)) + (2 * unit_roundoff(output) if narrow else 0)

    def scanned(self, x: Array, y: Array, sizes: Mapping[str, Any]) -> tuple[Array, Array]:
        """Rows in the direction they are scanned in; whole numbers in the type of the output."""
        given = x if y.dtype.kind in "fc" else x.astype(y.dtype, copy=False)
        back = self.word("direction", sizes) == "reverse"
        return (given[:, ::-1], y[:, ::-1]) if back else (given, y)

    def metric(self, y: Array, what: str) -> str:
        """What errors are, in words."""
        if self.operator.exact(y.dtype):
            return f"wrong sums ({what})"
        return f"{what} of the sums by the row's largest sum"


def _differences(
    operator: PrefixOperator, x: Array, y: Array, *, exclusive: bool
) -> Iterator[tuple[Array, Array]]:
    """Errors and right answers of NumPy's rows, piece by piece; of exact ones, what differs."""
    exact = operator.exact(y.dtype)
    before = operator.values(np, np.full((len(x), 1), operator.neutral(x.dtype), x.dtype))
    before = before if exact else before.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)
    for part in chunks(x.shape[1], 1, _SUMMED):
        inner = operator.accumulate(operator.values(np, x[:, part]))
        right = np.concatenate([before, operator.join(np, before, inner)], axis=1)
        before = right[:, -1:]
        right = right[:, :-1] if exclusive else right[:, 1:]
        given = y[:, part]
        yield (given != right.astype(given.dtype) if exact else abs(given - right)), right


def jumps(
    xp: Namespace,
    operator: PrefixOperator,
    x: Array,
    y: Array,
    begins: Array | None = None,
    *,
    exclusive: bool,
) -> Iterator[tuple[Array, Array]]:
    """Errors of the law and sums, piece by piece; where they must be exact, what violates it.

    Args:
        xp: namespace of the arrays.
        operator: of the scan.
        x: rows of inputs, in the direction they are scanned in.
        y: rows of outputs, likewise.
        begins: where segments begin; None where rows have none.
        exclusive: the form.
    """
    exact = operator.exact(y.dtype)
    neutral = xp.full((len(x), 1), operator.neutral(x.dtype), x.dtype)
    total = xp.zeros(len(x), xp.complex128 if y.dtype.kind == "c" else xp.float64)
    for part in chunks(x.shape[1], len(x)):
        element = operator.values(xp, _preceding(xp, x, part, neutral) if exclusive else x[:, part])
        right = operator.join(xp, operator.values(xp, _preceding(xp, y, part, neutral)), element)
        if begins is not None:
            alone = operator.values(xp, neutral) if exclusive else element
            right = xp.where(begins[:, part], alone, right)
        if exact:
            yield y[:, part] != right.astype(y.dtype), y[:, part]
            continue
        sums = operator.values(xp, y[:, part])
        yield abs(sums - right) / 2, operator.join(xp, sums, x[:, part]) if exclusive else sums
        total += element.sum(axis=1)
    if operator.name == "sum" and not exact and begins is None:
        yield abs(y[:, -1:] - total[:, None]) / 2, y[:, -1:]


def largest(xp: Namespace, pieces: Iterator[tuple[Array, Array]]) -> Array:
    """Of each row the largest error by the largest sum; of what must be exact, how many errors."""
    worst = scale = xp.zeros(1)
    for errors, sums in pieces:
        if errors.dtype.kind == "b":
            worst = worst + errors.sum(axis=1)
        else:
            worst = xp.maximum(worst, errors.max(axis=1).astype(xp.float64))
            scale = xp.maximum(scale, abs(sums).max(axis=1).astype(xp.float64))
    return relative(xp, worst, scale)


def _preceding(xp: Namespace, rows: Array, part: slice, first: Array) -> Array:
    """The elements before those of a part; before the first one stands ``first``."""
    if part.start:
        return rows[:, part.start - 1 : part.stop - 1]
    return xp.concatenate([first.astype(rows.dtype), rows[:, : part.stop - 1]], axis=1)
