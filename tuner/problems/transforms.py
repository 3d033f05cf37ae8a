"""Fourier transforms of rows and planes, complex and real, and cyclic convolutions."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from tuner.model.errors import KernelFileError
from tuner.model.plan import Buffer
from tuner.problems.base import (
    Array,
    Arrays,
    Deviation,
    Draw,
    Namespace,
    Norm,
    Problem,
    Sizes,
    expect_buffers,
    relative,
    sweep,
    to_host,
    unit_roundoff,
)

# --- Complex Fourier transforms of rows, forward and inverse.

LEAST_LEVELS = 3.0
"""Radix-2 levels that rounding is granted for, of shorter rows too."""

FUNCTIONAL_SPREAD = 8
"""Standard deviations of the random functional granted to right answers: exceeded with probability e^-32."""


class _Transform(Problem):
    """Inputs are standard normal, and rows are compared by their L2 norm.

    Attributes:
        result: what an output is called in messages.
    """

    result: ClassVar[str] = "transform"

    def draws(self, buffers: Sequence[Buffer]) -> dict[str, Draw]:
        """See ``Problem.draws``."""
        return {buffer.name: Draw("normal", 0.0, 1.0) for buffer in buffers if buffer.role in ("in", "inout")}

    def norm(self, output: Array) -> Norm:
        """See ``Problem.norm``."""
        del output
        return Norm.EUCLIDEAN

    @abstractmethod
    def right(self, x: Array, y: Array, sizes: Sizes, *others: Array) -> Array:
        """Right answers on the host in double precision.

        Args:
            x: rows, or planes, of the first input.
            y: those of the output, whose shape counts.
            sizes: of the workload.
            others: the other inputs.
        """

    def compare(self, inputs_rows: Arrays, outputs_rows: Arrays, sizes: Sizes) -> Deviation:
        """Relative L2 error of a row, or plane, against the right answer in double precision."""

        def errors(x: Array, y: Array) -> Array:
            reference = self.right(x, y, sizes, *others)
            return relative(np, norm(np, flat(y - reference)), norm(np, flat(reference)))

        (x, *others), (y,) = inputs_rows.values(), outputs_rows.values()
        what = f"relative L2 error of the {self.result}"
        return sweep(np, (x, y), errors, allowed=self.allowed(y), what=what)

    def _is_inverse(self, sizes: Sizes) -> bool:
        return self.word("direction", sizes) == "inverse"


class Fft(_Transform):
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

    def right(self, x: Array, y: Array, sizes: Sizes, *others: Array) -> Array:
        """See ``_Transform.right``."""
        del y, others
        transform = np.fft.ifft if self._is_inverse(sizes) else np.fft.fft
        return transform(x.astype(np.complex128), axis=1)

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Sizes) -> Deviation:
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

    def functional(self, length: int, sizes: Sizes, *others: int) -> tuple[Array, Array, float]:
        """Random phases and their transform (complex128), and by what a transform lengthens a row.

        ``others`` tell functionals of the same length apart.
        """
        phases = np.exp(2j * np.pi * np.random.default_rng((length, *others)).random(length))
        if self._is_inverse(sizes):
            return phases, np.fft.ifft(phases), math.sqrt(1 / length)
        return phases, np.fft.fft(phases), math.sqrt(length)

    def rounding(self, output: Array) -> float:
        """Two units of roundoff per radix-2 level (1.2e-7 log2 N in single precision), of three at least.

        Of double precision the test's own sums are rounded alike: 4.2 units among 5e5 rows of two points.
        """
        return 2 * unit_roundoff(output) * max(LEAST_LEVELS, math.log2(output.shape[1]))


def norm(xp: Namespace, rows: Array) -> Array:
    """Euclidean norm of each row."""
    return xp.sqrt((rows.real**2 + rows.imag**2).sum(axis=1))


def flat(planes: Array) -> Array:
    """Each plane as one row."""
    return planes.reshape(len(planes), -1)


class FftConvolution(_Transform):
    """Rows of x of shape (batch, N) to the inverse transform of ``s[k]`` times the transform of x.

    s of shape (N,) is the spectrum of the filter, the same for all rows. Transforms are NumPy's, so that y is
    the cyclic convolution of a row with ``ifft(s)``.

    Inputs are complex with standard normal real and imaginary parts.
    """

    result: ClassVar[str] = "convolution"

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``."""
        sides = [b for b in buffers if b.role in ("in", "out", "inout")]
        roles = [b.role for b in sides] == ["in", "in", "out"]
        if roles and all(np.dtype(b.dtype).kind == "c" for b in sides):
            x, spectrum, y = sides
            if len(x.shape) == 2 and x.shape == y.shape and spectrum.shape == x.shape[1:]:  # noqa: PLR2004
                return
        listed = ", ".join(f"{b.name} ({b.role} {b.dtype} {list(b.shape)})" for b in sides)
        raise KernelFileError(
            f"[problem] name = {self.spec.name!r} needs a complex input of shape [batch, N], a spectrum [N]"
            f" and an output [batch, N]; [[argument]] gives {listed}"
        )

    def right(self, x: Array, y: Array, sizes: Sizes, *others: Array) -> Array:
        """See ``_Transform.right``."""
        del y, sizes
        (spectrum,) = others
        return np.fft.ifft(
            np.fft.fft(x.astype(np.complex128), axis=1) * spectrum.astype(np.complex128), axis=1
        )

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Sizes) -> Deviation:
        """One random linear functional of every row, in complex128.

        With F the transform, S the diagonal of the spectrum and v random phases,
        ``v . y = (F S F^-1 v) . x``, because F is symmetric: O(N) per row for an
        equation in which every element of y has weight one.
        """
        del sizes
        (x, spectrum), (y,) = inputs.values(), outputs.values()
        factors = to_host(spectrum).astype(np.complex128)
        phases = np.exp(2j * np.pi * np.random.default_rng(x.shape[1]).random(x.shape[1]))
        v, w = xp.asarray(phases), xp.asarray(np.fft.fft(factors * np.fft.ifft(phases)))

        def errors(x: Array, y: Array) -> Array:
            x, y = x.astype(xp.complex128), y.astype(xp.complex128)
            # products and sums rather than @: CuPy's wheels bring no cuBLAS
            differs = abs((y * v).sum(axis=1) - (x * w).sum(axis=1))
            return relative(xp, differs / FUNCTIONAL_SPREAD, norm(xp, y))

        what = "deviation of the convolution from a random functional"
        return sweep(xp, (x, y), errors, allowed=self.allowed(y), what=what)

    def rounding(self, output: Array) -> float:
        """Two units of roundoff per radix-2 level of both transforms."""
        return 4 * unit_roundoff(output) * max(1.0, math.log2(output.shape[1]))


# --- Complex Fourier transforms of arrays of planes: of the columns of each plane, or of whole planes.

PLANE = (1, 2)
"""Axes of a plane in an array of shape (batch, rows, columns)."""


class PlaneFft(Fft):
    """Planes of x of shape (batch, rows, columns) to those of y, transformed along the axes of the class.

    Directions, scaling and inputs are those of ``Fft``; the inverse is divided by the number of points.

    Attributes:
        axes: of the array, along which it is transformed.
    """

    axes: ClassVar[tuple[int, ...]] = PLANE

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``."""
        needs = "one complex input and one output of shape [batch, rows, columns]"
        expect_buffers(self.spec, buffers, 1, "c", needs, axes=1 + len(PLANE))

    def right(self, x: Array, y: Array, sizes: Sizes, *others: Array) -> Array:
        """See ``_Transform.right``."""
        del y, others
        transform = np.fft.ifftn if self._is_inverse(sizes) else np.fft.fftn
        return transform(x.astype(np.complex128), axes=self.axes)

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Sizes) -> Deviation:
        """Parseval's law and one random linear functional of every plane, in complex128.

        The functional is a product of phases along both axes, see ``Fft.residual``; along an axis that is not
        transformed it is the same for x and y.
        """
        (x,), (y,) = inputs.values(), outputs.values()
        growth, of_x, of_y = 1.0, [], []
        for axis in PLANE:
            phases, transformed, longer = self.functional(x.shape[axis], sizes, axis)
            of_y.append(xp.asarray(phases))
            of_x.append(xp.asarray(transformed if axis in self.axes else phases))
            growth *= longer if axis in self.axes else 1.0

        def functional(planes: Array, factors: list[Array]) -> Array:
            # products and sums rather than @: CuPy's wheels bring no cuBLAS
            return ((planes * factors[1]).sum(axis=2) * factors[0]).sum(axis=1)

        def errors(x: Array, y: Array) -> Array:
            x, y = x.astype(xp.complex128), y.astype(xp.complex128)
            right = norm(xp, flat(x)) * growth
            parseval = abs(norm(xp, flat(y)) - right)
            differs = abs(functional(y, of_y) - functional(x, of_x))
            return relative(xp, xp.maximum(parseval, differs / FUNCTIONAL_SPREAD), right)

        what = "deviation of the transform from Parseval's law and a random functional"
        return sweep(xp, (x, y), errors, allowed=self.allowed(y), what=what)

    def rounding(self, output: Array) -> float:
        """Two units of roundoff per radix-2 level of all axes, of three at least: see ``Fft.allowed``."""
        points = math.prod(output.shape[axis] for axis in self.axes)
        return 2 * unit_roundoff(output) * max(LEAST_LEVELS, math.log2(points))


class ColumnFft(PlaneFft):
    """Planes whose columns are transformed: along the rows' axis, the middle one."""

    axes: ClassVar[tuple[int, ...]] = (1,)


class RealFft(_Transform):
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
        listed = ", ".join(f"{b.name} ({b.role} {b.dtype} {list(b.shape)})" for b in sides)
        raise KernelFileError(
            f"[problem] name = {self.spec.name!r} needs an input and an output, one of them real of shape"
            f" [batch, N], the other complex of shape [batch, N // 2 + 1]; [[argument]] gives {listed}"
        )

    def right(self, x: Array, y: Array, sizes: Sizes, *others: Array) -> Array:
        """See ``_Transform.right``."""
        del others
        if self._is_inverse(sizes):
            return np.fft.irfft(x.astype(np.complex128), y.shape[1], axis=1)
        return np.fft.rfft(x.astype(np.float64), axis=1)

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Sizes) -> Deviation:
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
            right, actual = (squares, (rows**2).sum(axis=1))[:: 1 if inverse else -1]
            size = xp.sqrt(right)
            functional = abs((rows * v).sum(axis=1) - (frequencies * spectrum).sum(axis=1).real)
            return relative(xp, xp.maximum(abs(xp.sqrt(actual) - size), functional / FUNCTIONAL_SPREAD), size)

        what = "deviation of the transform from Parseval's law and a random functional"
        return sweep(xp, (x, y), errors, allowed=self.allowed(y), what=what)

    def rounding(self, output: Array) -> float:
        """Two units of roundoff per radix-2 level, of three at least, in the precision of the output."""
        return 2 * unit_roundoff(output) * max(LEAST_LEVELS, math.log2(2 * output.shape[1]))
