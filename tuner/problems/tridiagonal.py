"""Tridiagonal systems that are diagonally dominant by a margin."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    chunks,
    expect_buffers,
    relative,
    sweep,
    unit_roundoff,
)

MARGIN = 0.5
"""Least of |b| - |a| - |c| in the inputs: the inverse has maximum norm 1 / MARGIN at most."""

NORM = 2 * 2 + MARGIN + 1
"""Bound of |a| + |b| + |c| in real inputs: the maximum norm of the matrix."""

COMPLEX_GROWTH = math.sqrt(2) * math.sqrt(5)
"""Complex off-diagonals are larger by up to sqrt 2, and products of complex numbers err by up to sqrt 5 u.

Brent, Percival and Zimmermann, "Error bounds on complex floating-point multiplication", Math. Comp. 76, 2007.
"""


@dataclass(frozen=True)
class Tridiagonal(Problem):
    """Coefficients a, b, c, d of shape (batch, N) to x with ``a[i] x[i-1] + b[i] x[i] + c[i] x[i+1] = d[i]``.

    The buffers are taken in this order, whatever their names; ``a[0]`` and ``c[N-1]`` are zero. Where a size
    ``boundary`` is ``periodic``, ``a[0]`` is the coefficient of ``x[N-1]``, and ``c[N-1]`` that of ``x[0]``.
    Off-diagonals and right-hand sides are uniform in [-1, 1), and ``|b| = |a| + |c| + 0.5 + u`` with u
    uniform in [0, 1) and random sign: elimination without pivoting is backward stable there, and the
    condition number is at most NORM / MARGIN = 11, which is what turns rounding into the allowed error.
    Of complex systems both parts are uniform, and b has a random phase in place of a sign.
    Where d and x have the shape (batch, K N), K right sides of a system lie one after the other.

    Attributes:
        periodic: whether the ends of a system meet.
    """

    periodic: bool = False
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"boundary": ("open", "periodic")}

    def at(self, sizes: Sizes) -> "Tridiagonal":
        """See ``Problem.at``."""
        return replace(self, periodic=self.word("boundary", sizes) == "periodic")

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``."""
        needs = (
            "four real inputs (below, on, above the diagonal, right side) and an output of shape [batch, N], "
            "or all of them complex, or right sides and output of [batch, K * N]"
        )
        sources, _ = expect_buffers(self.spec, _with_one_side(buffers), 4, "fc", needs)
        stated = next((buffer.name for buffer in sources if buffer.input is not None), None)
        if stated is not None:
            raise KernelFileError(
                f"[[argument]] buffer = {stated!r}: input: the problem 'tridiagonal' makes systems that "
                "can be solved; leave input out, or state another check in [problem], such as a law"
            )

    def draws(self, buffers: Sequence[Buffer]) -> dict[str, Draw]:
        """See ``Problem.draws``."""
        return {buffer.name: Draw() for buffer in buffers if buffer.role in ("in", "inout")}

    def norm(self, output: Array) -> Norm:
        """See ``Problem.norm``."""
        del output
        return Norm.MAXIMUM

    def settle(self, xp: Namespace, inputs: Arrays) -> None:
        """Make the systems diagonally dominant."""
        a, b, c, _ = inputs.values()
        if not self.periodic:
            a[:, 0] = 0
            c[:, -1] = 0
        for part in chunks(*b.shape):
            drawn = b[part]
            size = abs(2 * drawn.real) % 1 + MARGIN + abs(a[part]) + abs(c[part])
            if _is_complex(b):
                b[part] = size * xp.exp(1j * math.pi * drawn.imag)
            else:
                b[part] = xp.where(drawn < 0, -size, size)

    def compare(self, inputs_rows: Arrays, outputs_rows: Arrays, sizes: Sizes) -> Deviation:
        """Largest error of a row by the row's largest unknown, against LAPACK in float64."""
        answer = solve_periodic if self.at(sizes).periodic else solve

        def errors(a: Array, b: Array, c: Array, d: Array, x: Array) -> Array:
            a, b, c, d, x, sides = _one_by_one(a, b, c, d, x)
            reference = answer(a, b, c, d)
            error = relative(np, abs(x - reference).max(axis=1), abs(reference).max(axis=1))
            return error.reshape(-1, sides).max(axis=1)

        (x,) = outputs_rows.values()
        what = "error of the solution by the row's largest unknown"
        return sweep(np, (*inputs_rows.values(), x), errors, allowed=self.allowed(x), what=what)

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Sizes) -> Deviation:
        """Normwise backward error ``max |A x - d| / (max |A| max |x|)`` of a row, in float64.

        It never exceeds the error that ``compare`` measures, and multiplied by the condition number bounds
        it: both have the same allowance.
        """
        periodic = self.at(sizes).periodic

        def errors(a: Array, b: Array, c: Array, d: Array, x: Array) -> Array:
            a, b, c, d, x, sides = _one_by_one(a, b, c, d, x)
            a, b, c, x = (array.astype(_widest(xp, array)) for array in (a, b, c, x))
            defect, size = defects(a, b, c, d, x, periodic=periodic)
            return relative(xp, defect, size).reshape(-1, sides).max(axis=1)

        (x,) = outputs.values()
        what = "backward error of the solution"
        return sweep(xp, (*inputs.values(), x), errors, allowed=self.allowed(x), what=what)

    def rounding(self, output: Array) -> float:
        """Condition number times four units of roundoff, the backward error of an elimination step."""
        growth = COMPLEX_GROWTH if _is_complex(output) else 1.0
        return 4 * unit_roundoff(output) * growth * NORM / MARGIN


def defects(a: Array, b: Array, c: Array, d: Array, x: Array, *, periodic: bool) -> tuple[Array, Array]:
    """Residuals ``max |A x - d|`` of systems (..., N), and the ``max |A| max |x|`` that they are held to."""
    defect = b * x - d
    defect[..., 1:] += a[..., 1:] * x[..., :-1]
    defect[..., :-1] += c[..., :-1] * x[..., 1:]
    norm = abs(b)
    norm[..., 1:] += abs(a[..., 1:])
    norm[..., :-1] += abs(c[..., :-1])
    if periodic:
        norm[..., 0] += abs(a[..., 0])
        norm[..., -1] += abs(c[..., -1])
        defect[..., 0] += a[..., 0] * x[..., -1]
        defect[..., -1] += c[..., -1] * x[..., 0]
    return abs(defect).max(axis=-1), norm.max(axis=-1) * abs(x).max(axis=-1)


def solve(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Solve rows of tridiagonal systems in double precision, as one long system of uncoupled pieces."""
    from scipy.linalg import solve_banded  # noqa: PLC0415 - takes long, and most processes solve nothing

    a, b, c = (np.array(array, dtype=_widest(np, array)) for array in (a, b, c))
    a[:, 0] = 0
    c[:, -1] = 0
    bands = np.stack([np.roll(c.ravel(), 1), b.ravel(), np.roll(a.ravel(), -1)])
    solution = solve_banded((1, 1), bands, np.asarray(d, dtype=_widest(np, d)).ravel())
    return solution.reshape(b.shape)


def solve_periodic(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Solve rows of periodic systems in double precision, by the formula of Sherman and Morrison.

    The system is an open one and the product of two vectors that are zero but for their ends (Press et al.,
    "Numerical Recipes", section 2.7.2).
    """
    a, b, c, d = (np.array(array, dtype=_widest(np, array)) for array in (a, b, c, d))
    corner = a[:, 0] / -b[:, 0]
    column = np.zeros_like(d)
    column[:, 0], column[:, -1] = -b[:, 0], c[:, -1]
    open_b = b.copy()
    open_b[:, 0] *= 2
    open_b[:, -1] -= corner * c[:, -1]
    y, q = solve(a, open_b, c, d), solve(a, open_b, c, column)
    share = (y[:, 0] + corner * y[:, -1]) / (1 + q[:, 0] + corner * q[:, -1])
    return y - share[:, None] * q


def _with_one_side(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The buffers as if each system had one right side, where whole rows fill right sides and output."""
    shape = buffers[0].shape if buffers else ()
    if len(shape) != 2 or not all(shape):  # noqa: PLR2004 - (batch, N)
        return list(buffers)
    whole = [
        len(buffer.shape) == 2 and buffer.shape[0] == shape[0] and buffer.shape[1] % shape[1] == 0  # noqa: PLR2004
        for buffer in buffers[3:5]
    ]
    if not all(whole) or len({buffer.shape for buffer in buffers[3:5]}) > 1:
        return list(buffers)
    return [*buffers[:3], *(replace(buffer, shape=shape) for buffer in buffers[3:5]), *buffers[5:]]


def _one_by_one(
    a: Array, b: Array, c: Array, d: Array, x: Array
) -> tuple[Array, Array, Array, Array, Array, int]:
    """Systems with one right side each, from systems with several, and how many they had."""
    sides = d.shape[1] // b.shape[1]
    matrix = [array.repeat(sides, axis=0) if sides > 1 else array for array in (a, b, c)]
    return matrix[0], matrix[1], matrix[2], d.reshape(-1, b.shape[1]), x.reshape(-1, b.shape[1]), sides


def _is_complex(array: Array) -> bool:
    return bool(array.dtype.kind == "c")


def _widest(xp: Namespace, array: Array) -> type:
    """The type that answers are judged in."""
    widest: type = xp.complex128 if _is_complex(array) else xp.float64
    return widest
