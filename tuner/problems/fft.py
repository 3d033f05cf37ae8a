"""Complex Fourier transforms of rows, forward and inverse."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tuner.model.plan import Buffer
from tuner.problems.arrays import Array, Arrays, Draw, Namespace
from tuner.problems.base import Deviation, Norm, Problem, expect_buffers, relative, sweep, unit_roundoff

LEAST_LEVELS = 3.0
"""Radix-2 levels that rounding is granted for, of shorter rows too."""

FUNCTIONAL_SPREAD = 8
"""Standard deviations of the random functional granted to right answers: exceeded with probability e^-32."""


class Fft(Problem):
    """Rows of x of shape (batch, N) to y with ``y[k] = sum of x[n] exp(-2 pi i n k / N)``, not normalised.

    Where the size ``direction`` is ``inverse`` (it may also be ``forward``, or no size of the kernel), y is
    what gives x when transformed forward: the sign is the other one, and the sum is divided by N.

    Inputs are complex with standard normal real and imaginary parts: every output then has the same size, so
    that the relative L2 error of a row speaks for each of its elements.
    """

    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"direction": ("forward", "inverse")}

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``."""
        expect_buffers(self.spec, buffers, 1, "c", "one complex input and one output of shape [batch, N]")

    def draws(self, buffers: Sequence[Buffer]) -> dict[str, Draw]:
        """See ``Problem.draws``."""
        return {buffer.name: Draw("normal", 0.0, 1.0) for buffer in buffers if buffer.role in ("in", "inout")}

    def norm(self, output: Array) -> Norm:
        """See ``Problem.norm``."""
        del output
        return Norm.EUCLIDEAN

    def compare(self, inputs_rows: Arrays, outputs_rows: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """Relative L2 error of a row against the transform in complex128."""
        transform = np.fft.ifft if self._is_inverse(sizes) else np.fft.fft

        def errors(x: Array, y: Array) -> Array:
            reference = transform(x.astype(np.complex128), axis=1)
            return relative(np, norm(np, y - reference), norm(np, reference))

        (x,), (y,) = inputs_rows.values(), outputs_rows.values()
        what = "relative L2 error of the transform"
        return sweep(np, (x, y), errors, allowed=self.allowed(y), what=what)

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """Parseval's law and one random linear functional of every row, in complex128.

        With F the transform and v random phases, ``v . y = (F v) . x`` because F is symmetric: O(N) per row
        for an equation in which every element of y has weight one. For a right answer both deviations stay
        below its relative L2 error (the functional's by ``FUNCTIONAL_SPREAD`` times that).
        """
        (x,), (y,) = inputs.values(), outputs.values()
        phases, transformed, growth = self.functional(x.shape[1], sizes)
        v, w = xp.asarray(phases), xp.asarray(transformed)

        def errors(x: Array, y: Array) -> Array:
            x, y = x.astype(xp.complex128), y.astype(xp.complex128)
            right = norm(xp, x) * growth
            parseval = abs(norm(xp, y) - right)
            # products and sums rather than @: CuPy's wheels bring no cuBLAS
            functional = abs((y * v).sum(axis=1) - (x * w).sum(axis=1))
            return relative(xp, xp.maximum(parseval, functional / FUNCTIONAL_SPREAD), right)

        what = "deviation of the transform from Parseval's law and a random functional"
        return sweep(xp, (x, y), errors, allowed=self.allowed(y), what=what)

    def functional(self, length: int, sizes: Mapping[str, Any], *others: int) -> tuple[Array, Array, float]:
        """Random phases and their transform (complex128), and by what a transform lengthens a row.

        ``others`` tell functionals of the same length apart.
        """
        phases = np.exp(2j * np.pi * np.random.default_rng((length, *others)).random(length))
        if self._is_inverse(sizes):
            return phases, np.fft.ifft(phases), math.sqrt(1 / length)
        return phases, np.fft.fft(phases), math.sqrt(length)

    def _is_inverse(self, sizes: Mapping[str, Any]) -> bool:
        return self.word("direction", sizes) == "inverse"

    def allowed(self, output: Array) -> float:
        """Two units of roundoff per radix-2 level (1.2e-7 log2 N in single precision), of three at least.

        Of double precision the test's own sums are rounded alike: 4.2 units among 5e5 rows of two points.
        """
        if self.spec.tolerance is not None:
            return self.spec.tolerance
        return 2 * unit_roundoff(output) * max(LEAST_LEVELS, math.log2(output.shape[1]))


def norm(xp: Namespace, rows: Array) -> Array:
    """Euclidean norm of each row."""
    return xp.sqrt((rows.real**2 + rows.imag**2).sum(axis=1))
