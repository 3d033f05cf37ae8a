"""Complex Fourier transforms of arrays of planes: of the columns of each plane, or of whole planes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tuner.model.plan import Buffer
from tuner.problems.arrays import Array, Arrays, Namespace
from tuner.problems.base import Deviation, expect_buffers, relative, sweep, unit_roundoff
from tuner.problems.fft import FUNCTIONAL_SPREAD, LEAST_LEVELS, Fft, norm

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

    def compare(self, inputs_rows: Arrays, outputs_rows: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """Relative L2 error of a plane against the transform in complex128."""
        transform = np.fft.ifftn if self._is_inverse(sizes) else np.fft.fftn

        def errors(x: Array, y: Array) -> Array:
            reference = transform(x.astype(np.complex128), axes=self.axes)
            return relative(np, norm(np, flat(y - reference)), norm(np, flat(reference)))

        (x,), (y,) = inputs_rows.values(), outputs_rows.values()
        what = "relative L2 error of the transform"
        return sweep(np, (x, y), errors, allowed=self.allowed(y), what=what)

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Mapping[str, Any]) -> Deviation:
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

    def allowed(self, output: Array) -> float:
        """Two units of roundoff per radix-2 level of all axes, of three at least: see ``Fft.allowed``."""
        if self.spec.tolerance is not None:
            return self.spec.tolerance
        points = math.prod(output.shape[axis] for axis in self.axes)
        return 2 * unit_roundoff(output) * max(LEAST_LEVELS, math.log2(points))


class ColumnFft(PlaneFft):
    """Planes whose columns are transformed: along the rows' axis, the middle one."""

    axes: ClassVar[tuple[int, ...]] = (1,)


def flat(planes: Array) -> Array:
    """Each plane as one row."""
    return planes.reshape(len(planes), -1)
