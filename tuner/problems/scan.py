"""Inclusive prefix sums of rows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tuner.model import Buffer
from tuner.problems.base import (
    Array,
    Arrays,
    Deviation,
    Generator,
    Namespace,
    Problem,
    expect_buffers,
    fill,
    relative,
    sweep,
    uniform,
    unit_roundoff,
)


class Scan(Problem):
    """Rows of x of shape (batch, N) to y with ``y[i] = x[0] + ... + x[i]``.

    Inputs are uniform in [-1, 1): partial sums then stay near sqrt(N), so that errors relative to them are
    not flattered by a large total, and a single lost element stands far above rounding.
    """

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``."""
        expect_buffers(self.spec, buffers, 1, "f", "one real input and one output of shape [batch, N]")

    def inputs(
        self, xp: Namespace, rng: Generator, buffers: Sequence[Buffer], sizes: Mapping[str, Any]
    ) -> dict[str, Array]:
        """See ``Problem.inputs``."""
        del sizes
        self.validate(buffers)
        (x,) = (buffer for buffer in buffers if buffer.role in ("in", "inout"))
        return {x.name: fill(xp.empty(x.shape, x.dtype), uniform(rng))}

    def compare(self, inputs_rows: Arrays, outputs_rows: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """Largest error of a row by the row's largest sum, against sums in float64."""
        del sizes

        def errors(x: Array, y: Array) -> Array:
            reference = np.cumsum(x, axis=1, dtype=np.float64)
            return relative(np, abs(y - reference).max(axis=1), abs(reference).max(axis=1))

        (x,), (y,) = inputs_rows.values(), outputs_rows.values()
        what = "error of the sums by the row's largest sum"
        return sweep(np, (x, y), errors, allowed=self._allowed(y), what=what)

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """Half of the largest ``|y[i] - y[i-1] - x[i]|`` or ``|y[N-1] - sum of x|``, by the largest sum.

        Sums that are right within e differ from their neighbours by the element between them within 2 e; the
        total catches errors that creep in below that.
        """
        del sizes

        def errors(x: Array, y: Array) -> Array:
            x, y = x.astype(xp.float64), y.astype(xp.float64)
            scale = abs(y).max(axis=1)
            total = abs(y[:, -1] - x.sum(axis=1))
            x[:, 0] -= y[:, 0]
            x[:, 1:] -= y[:, 1:]
            x[:, 1:] += y[:, :-1]
            return relative(xp, xp.maximum(abs(x).max(axis=1), total) / 2, scale)

        (x,), (y,) = inputs.values(), outputs.values()
        what = "residual of the sums by the row's largest sum"
        return sweep(xp, (x, y), errors, allowed=self._allowed(y), what=what)

    def _allowed(self, y: Array) -> float:
        """Twice what serial summation may lose: N roundings of random sign, each of half the largest sum."""
        if self.spec.tolerance is not None:
            return self.spec.tolerance
        return unit_roundoff(y) * (4 + 2 * math.sqrt(y.shape[1]))
