"""Prefix sums of rows, inclusive or exclusive."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tuner.model import Buffer
from tuner.problems.arrays import Array, Arrays, Draw, Namespace, value_dtype
from tuner.problems.base import (
    Deviation,
    Norm,
    Problem,
    expect_buffers,
    relative,
    sweep,
    unit_roundoff,
)


class Scan(Problem):
    """Rows of x of shape (batch, N) to y with ``y[i] = x[0] + ... + x[i]``.

    Where the size ``form`` is ``exclusive``, ``y[i] = x[0] + ... + x[i-1]`` and ``y[0] = 0``.

    Real inputs are uniform in [-1, 1): partial sums then stay near sqrt(N), so that errors relative to them
    are not flattered by a large total, and a single lost element stands far above rounding. Whole ones take
    the range of int32 (or of their type), so that sums wrap, as they must.
    """

    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"form": ("inclusive", "exclusive")}

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``."""
        kinds = {
            value_dtype(buffer.dtype).kind for buffer in buffers if buffer.role in ("in", "out", "inout")
        }
        needs = "one input and one output of shape [batch, N], both real or both signed whole numbers"
        expect_buffers(self.spec, buffers, 1, "i" if kinds == {"i"} else "f", needs)

    def draws(self, buffers: Sequence[Buffer]) -> dict[str, Draw]:
        """See ``Problem.draws``."""
        return {
            buffer.name: _draw(value_dtype(buffer.dtype))
            for buffer in buffers
            if buffer.role in ("in", "inout")
        }

    def norm(self, output: Array) -> Norm:
        """See ``Problem.norm``."""
        return Norm.MAXIMUM if output.dtype.kind == "f" else Norm.COUNT

    def compare(self, inputs_rows: Arrays, outputs_rows: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """Largest error of a row by the row's largest sum, against sums in float64.

        Of whole numbers, how many differ from sums in the type of the output.
        """

        def errors(x: Array, y: Array) -> Array:
            given = self._inclusive(np, x, y, sizes)
            reference = np.cumsum(x, axis=1, dtype=given.dtype)
            if given.dtype.kind == "i":
                return (given != reference).sum(axis=1)
            return relative(np, abs(given - reference).max(axis=1), abs(reference).max(axis=1))

        (x,), (y,) = inputs_rows.values(), outputs_rows.values()
        return sweep(np, (x, y), errors, allowed=self.allowed(y), what=_metric(y, "error"))

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """Half of the largest ``|y[i] - y[i-1] - x[i]|`` or ``|y[N-1] - sum of x|``, by the largest sum.

        Sums that are right within e differ from their neighbours by the element between them within 2 e; the
        total catches errors that creep in below that. Of whole numbers, how many violate this. Exclusive sums
        are judged after their elements are added to them.
        """

        def errors(x: Array, y: Array) -> Array:
            sums = self._inclusive(xp, x, y, sizes)
            jumps = x.astype(sums.dtype)
            total = sums[:, -1] - jumps.sum(axis=1, dtype=sums.dtype)
            jumps -= sums
            jumps[:, 1:] += sums[:, :-1]
            if sums.dtype.kind == "i":
                return (jumps != 0).sum(axis=1) + (total != 0)
            return relative(xp, xp.maximum(abs(jumps).max(axis=1), abs(total)) / 2, abs(sums).max(axis=1))

        (x,), (y,) = inputs.values(), outputs.values()
        return sweep(xp, (x, y), errors, allowed=self.allowed(y), what=_metric(y, "residual"))

    def _inclusive(self, xp: Namespace, x: Array, y: Array, sizes: Mapping[str, Any]) -> Array:
        """The sums with their own elements: in float64, or in the type of whole numbers, where they wrap."""
        sums = y.astype(xp.float64 if y.dtype.kind == "f" else y.dtype)
        if self.word("form", sizes) == "exclusive":
            sums += x
        return sums

    def allowed(self, output: Array) -> float:
        """Twice what serial summation may lose: N roundings of random sign, each of half the largest sum."""
        if self.spec.tolerance is not None:
            return self.spec.tolerance
        if output.dtype.kind != "f":
            return 0.0
        return unit_roundoff(output) * (4 + 2 * math.sqrt(output.shape[1]))


def _draw(dtype: np.dtype[Any]) -> Draw:
    """Reals in [-1, 1), whole numbers of 32 bits or as many as the type has."""
    if dtype.kind == "f":
        return Draw()
    bound = min(2**31, 1 + int(np.iinfo(dtype).max))
    return Draw("whole", -bound, 2 * bound)


def _metric(y: Array, what: str) -> str:
    return f"{what} of the sums by the row's largest sum" if y.dtype.kind == "f" else f"wrong sums ({what})"
