"""Fourier transforms of real rows, and back."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tuner.model.errors import KernelFileError
from tuner.model.plan import Buffer
from tuner.problems.arrays import Array, Arrays, Draw, Namespace
from tuner.problems.base import Deviation, Norm, Problem, relative, sweep, unit_roundoff
from tuner.problems.fft import FUNCTIONAL_SPREAD, LEAST_LEVELS, norm


class RealFft(Problem):
    """Real rows of shape (batch, N) to their first ``N // 2 + 1`` frequencies, not normalised.

    Where the size ``direction`` is ``inverse``, such frequencies become real rows, and the sum is divided by
    N; imaginary parts that no real row has count for nothing, as in ``numpy.fft.irfft``. N is a size.

    Inputs are standard normal, real and imaginary parts alike.
    """

    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"direction": ("forward", "inverse")}

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``."""
        sides = [b for b in buffers if b.role in ("in", "out", "inout")]
        kinds = sorted(np.dtype(b.dtype).kind for b in sides)
        two = [b.role for b in sides] == ["in", "out"] and kinds == ["c", "f"]
        if two and all(len(b.shape) == 2 for b in sides):  # noqa: PLR2004 - (batch, N)
            real, spectrum = sorted(sides, key=lambda b: np.dtype(b.dtype).kind, reverse=True)
            if spectrum.shape == (real.shape[0], real.shape[1] // 2 + 1):
                return
        found = ", ".join(f"{b.name} ({b.role} {b.dtype} {list(b.shape)})" for b in sides)
        raise KernelFileError(
            f"[problem] name = {self.spec.name!r} needs an input and an output, one of them real of shape"
            f" [batch, N], the other complex of shape [batch, N // 2 + 1]; [[argument]] gives {found}"
        )

    def draws(self, buffers: Sequence[Buffer]) -> dict[str, Draw]:
        """See ``Problem.draws``."""
        return {buffer.name: Draw("normal", 0.0, 1.0) for buffer in buffers if buffer.role == "in"}

    def norm(self, output: Array) -> Norm:
        """See ``Problem.norm``."""
        del output
        return Norm.EUCLIDEAN

    def compare(self, inputs_rows: Arrays, outputs_rows: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """Relative L2 error of a row against the transform in float64."""
        inverse = self._is_inverse(sizes)

        def errors(x: Array, y: Array) -> Array:
            reference: Array = (
                np.fft.irfft(x.astype(np.complex128), y.shape[1], axis=1)
                if inverse
                else np.fft.rfft(x.astype(np.float64), axis=1)
            )
            return relative(np, norm(np, y - reference), norm(np, reference))

        (x,), (y,) = inputs_rows.values(), outputs_rows.values()
        what = "relative L2 error of the transform"
        return sweep(np, (x, y), errors, allowed=self.allowed(y), what=what)

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """Parseval's law and one random linear functional of every row, in float64.

        With F the transform of a row, S its first frequencies, each weighted by how often it stands in F, and
        v random signs: ``sum of v x = sum of S conj(F v) / N``. O(N) per row for an equation in which every
        element of the real row has weight one.
        """
        (x,), (y,) = inputs.values(), outputs.values()
        inverse = self._is_inverse(sizes)
        length = (y if inverse else x).shape[1]
        weights = np.full(length // 2 + 1, 2.0)
        weights[0] = 1
        if length % 2 == 0:
            weights[-1] = 1
        signs = np.random.default_rng(length).choice([-1.0, 1.0], length)
        v, w = xp.asarray(signs), xp.asarray(weights)
        spectrum = xp.asarray(np.conj(np.fft.rfft(signs)) * weights / length)

        def errors(x: Array, y: Array) -> Array:
            rows, frequencies = (y, x) if inverse else (x, y)
            rows, frequencies = rows.astype(xp.float64), frequencies.astype(xp.complex128)
            if inverse:  # what no real row has counts for nothing
                frequencies.imag[:, :: length // 2 if length % 2 == 0 else length] = 0
            squares = (w * (frequencies.real**2 + frequencies.imag**2)).sum(axis=1) / length
            right, given = (squares, (rows**2).sum(axis=1))[:: 1 if inverse else -1]
            size = xp.sqrt(right)
            functional = abs((rows * v).sum(axis=1) - (frequencies * spectrum).sum(axis=1).real)
            return relative(xp, xp.maximum(abs(xp.sqrt(given) - size), functional / FUNCTIONAL_SPREAD), size)

        what = "deviation of the transform from Parseval's law and a random functional"
        return sweep(xp, (x, y), errors, allowed=self.allowed(y), what=what)

    def _is_inverse(self, sizes: Mapping[str, Any]) -> bool:
        return self.word("direction", sizes) == "inverse"

    def allowed(self, output: Array) -> float:
        """Two units of roundoff per radix-2 level, of three at least, in the precision of the output."""
        if self.spec.tolerance is not None:
            return self.spec.tolerance
        return 2 * unit_roundoff(output) * max(LEAST_LEVELS, math.log2(2 * output.shape[1]))
