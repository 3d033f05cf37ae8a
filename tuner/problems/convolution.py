"""Cyclic convolutions of complex rows with one filter, given by its spectrum."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tuner.model.errors import KernelFileError
from tuner.model.plan import Buffer
from tuner.problems.arrays import Array, Arrays, Draw, Namespace, to_host
from tuner.problems.base import Deviation, Norm, Problem, relative, sweep, unit_roundoff
from tuner.problems.fft import FUNCTIONAL_SPREAD, norm


class FftConvolution(Problem):
    """Rows of x of shape (batch, N) to the inverse transform of ``s[k]`` times the transform of x.

    s of shape (N,) is the spectrum of the filter, the same for all rows. Transforms are NumPy's, so that y is
    the cyclic convolution of a row with ``ifft(s)``.

    Inputs are complex with standard normal real and imaginary parts.
    """

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``."""
        sides = [b for b in buffers if b.role in ("in", "out", "inout")]
        roles = [b.role for b in sides] == ["in", "in", "out"]
        if roles and all(np.dtype(b.dtype).kind == "c" for b in sides):
            x, spectrum, y = sides
            if len(x.shape) == 2 and x.shape == y.shape and spectrum.shape == x.shape[1:]:  # noqa: PLR2004
                return
        found = ", ".join(f"{b.name} ({b.role} {b.dtype} {list(b.shape)})" for b in sides)
        raise KernelFileError(
            f"[problem] name = {self.spec.name!r} needs a complex input of shape [batch, N], a spectrum [N]"
            f" and an output [batch, N]; [[argument]] gives {found}"
        )

    def draws(self, buffers: Sequence[Buffer]) -> dict[str, Draw]:
        """See ``Problem.draws``."""
        return {buffer.name: Draw("normal", 0.0, 1.0) for buffer in buffers if buffer.role == "in"}

    def norm(self, output: Array) -> Norm:
        """See ``Problem.norm``."""
        del output
        return Norm.EUCLIDEAN

    def compare(self, inputs_rows: Arrays, outputs_rows: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """Relative L2 error of a row against the convolution in complex128."""
        del sizes
        (x, spectrum), (y,) = inputs_rows.values(), outputs_rows.values()
        exact = spectrum.astype(np.complex128)

        def errors(x: Array, y: Array) -> Array:
            reference = np.fft.ifft(np.fft.fft(x.astype(np.complex128), axis=1) * exact, axis=1)
            return relative(np, norm(np, y - reference), norm(np, reference))

        what = "relative L2 error of the convolution"
        return sweep(np, (x, y), errors, allowed=self.allowed(y), what=what)

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """One random linear functional of every row, in complex128.

        With F the transform, S the diagonal of the spectrum and v random phases,
        ``v . y = (F S F^-1 v) . x``, because F is symmetric: O(N) per row for an
        equation in which every element of y has weight one.
        """
        del sizes
        (x, spectrum), (y,) = inputs.values(), outputs.values()
        given = to_host(spectrum).astype(np.complex128)
        phases = np.exp(2j * np.pi * np.random.default_rng(x.shape[1]).random(x.shape[1]))
        v, w = xp.asarray(phases), xp.asarray(np.fft.fft(given * np.fft.ifft(phases)))

        def errors(x: Array, y: Array) -> Array:
            x, y = x.astype(xp.complex128), y.astype(xp.complex128)
            # products and sums rather than @: CuPy's wheels bring no cuBLAS
            differs = abs((y * v).sum(axis=1) - (x * w).sum(axis=1))
            return relative(xp, differs / FUNCTIONAL_SPREAD, norm(xp, y))

        what = "deviation of the convolution from a random functional"
        return sweep(xp, (x, y), errors, allowed=self.allowed(y), what=what)

    def allowed(self, output: Array) -> float:
        """Two units of roundoff per radix-2 level of both transforms."""
        if self.spec.tolerance is not None:
            return self.spec.tolerance
        return 4 * unit_roundoff(output) * max(1.0, math.log2(output.shape[1]))
