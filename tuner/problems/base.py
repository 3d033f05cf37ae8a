"""Common parts of problems: what they offer, deviations of answers, chunked sweeps over arrays."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import numpy as np

from tuner.model.elements import BFLOAT16, bfloat16_bits
from tuner.model.errors import KernelFileError
from tuner.model.plan import Buffer, ProblemSpec
from tuner.problems.arrays import Array, Arrays, Draw, Generator, Namespace, chunks, fill, value_dtype
from tuner.problems.input_values import stated_values


class Norm(Enum):
    """How the differences of an answer from the right one become one error.

    The first two are relative to the same norm of a row of the right answer.
    """

    MAXIMUM = "largest element of a row"
    EUCLIDEAN = "length of a row"
    ELEMENT = "elements, by themselves or the mean around them"
    COUNT = "number of differences in a row"


@dataclass(frozen=True)
class Deviation:
    """How far an answer is from the right one.

    Attributes:
        error: worst error over the problems looked at; infinity where an answer is not finite.
        allowed: largest error that rounding explains, or the tolerance of the kernel file.
        what: the metric in words.
        row: the problem with the worst error, as index into the arrays given.
    """

    error: float
    allowed: float
    what: str
    row: int

    @property
    def ok(self) -> bool:
        """True when the error is within what is allowed (never for NaN)."""
        return self.error <= self.allowed

    def __str__(self) -> str:
        return f"{self.what} {self.error:.1e}, allowed {self.allowed:.1e} (problem {self.row})"


@dataclass(frozen=True)
class Problem(ABC):
    """Makes inputs for a workload and judges its outputs.

    How a device checks configurations: make ``inputs`` once, ``poison`` the outputs before every run, then

    - the first right answer: ``compare`` on the rows of ``sample_rows`` (taken to the host by ``take_rows``)
      and ``residual`` on the complete arrays; both must be ok;
    - later ones are compared with it by ``norm``, element by element, and may differ by what is ``allowed``;
    - ``needs_baseline`` True: the default configuration's outputs are what all others are compared with;
      ``residual`` only tells whether they are complete.

    Where a buffer is ``inout``, ``inputs`` of the checks are the values before the run.

    Attributes:
        spec: what the kernel file says of the problem.
        needs_baseline: True when only another run can tell what is right.
        judged_whole: True when ``compare`` and ``residual`` are the same, on complete arrays: rows are no
            problems by themselves.
        judged: False when nothing is compared.
        words: sizes that decide what is computed -> values known; the first where the kernel has no such
            size.
    """

    spec: ProblemSpec
    needs_baseline: ClassVar[bool] = False
    judged_whole: ClassVar[bool] = False
    judged: ClassVar[bool] = True
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def word(self, name: str, sizes: Mapping[str, Any]) -> str:
        """The value of one of ``words`` in a workload.

        Raises:
            KernelFileError: it is none that the problem knows.
        """
        known = self.words[name]
        value = sizes.get(name, known[0])
        if value not in known:
            raise KernelFileError(
                f"[problem.sizes] {name}: {value!r} is neither {' nor '.join(map(repr, known))}, "
                f"which [problem] name = {self.spec.name!r} knows"
            )
        return str(value)

    def at(self, sizes: Mapping[str, Any]) -> "Problem":
        """The problem of a workload, where its sizes decide how inputs are drawn and answers compared.

        Raises:
            KernelFileError: as of ``word``.
        """
        del sizes
        return self

    @abstractmethod
    def validate(self, buffers: Sequence[Buffer]) -> None:
        """Check that the kernel file's buffers are those of this problem.

        Raises:
            KernelFileError: they are not; the message says what the problem needs.
        """

    @abstractmethod
    def draws(self, buffers: Sequence[Buffer]) -> dict[str, Draw]:
        """How every ``in`` and ``inout`` buffer is filled, in the order of the kernel file."""

    @abstractmethod
    def norm(self, output: Array) -> Norm:
        """How an output is compared with the right one."""

    @abstractmethod
    def allowed(self, output: Array) -> float:
        """Largest error of an output that rounding explains, or the tolerance of the kernel file."""

    def inputs(
        self, xp: Namespace, rng: Generator, buffers: Sequence[Buffer], sizes: Mapping[str, Any]
    ) -> dict[str, Array]:
        """Values for every ``in`` and ``inout`` buffer, as arrays of namespace ``xp``: stated, or random.

        Those of ``bfloat16`` are bits; what judges takes numbers, see ``values_of``.

        Raises:
            KernelFileError: the buffers are not those of this problem.
            InputError: a file of values cannot be read.
        """
        self.validate(buffers)
        given = {buffer.name: buffer for buffer in buffers}
        arrays, problem = {}, self.at(sizes)
        for name, draw in problem.draws(buffers).items():
            if given[name].input is None:
                arrays[name] = fill(xp.empty(given[name].shape, value_dtype(given[name].dtype)), rng, draw)
            else:
                seed = int(rng.integers(2**63))
                values = stated_values(given[name], np.random.default_rng(seed))
                arrays[name] = xp.array(values)
        problem.settle(xp, arrays)
        for name, array in arrays.items():
            if given[name].dtype == BFLOAT16 and array.dtype == np.float32:
                arrays[name] = bfloat16_bits(array)
        return arrays

    def settle(self, xp: Namespace, inputs: Arrays) -> None:
        """Give inputs drawn one by one what the problem asks of them together; nothing here."""
        del xp, inputs

    @abstractmethod
    def compare(self, inputs_rows: Arrays, outputs_rows: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """Compare host rows with a reference computed in float64."""

    @abstractmethod
    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """Test complete arrays of namespace ``xp`` by a law that right answers obey, chunk by chunk."""


def unit_roundoff(array: Array) -> float:
    """Unit of roundoff of a real or complex array: 2^-24 for float32."""
    return float(np.finfo(array.dtype).eps) / 2


def sweep(
    xp: Namespace,
    arrays: Sequence[Array],
    row_errors: Callable[..., Array],
    *,
    allowed: float,
    what: str,
) -> Deviation:
    """Worst row over chunks of equally shaped arrays.

    Args:
        xp: namespace of the arrays.
        arrays: each of shape (rows, ...).
        row_errors: gets the same rows of every array, returns one error per row; NaN means wrong.
        allowed: see ``Deviation``.
        what: see ``Deviation``.
    """
    worst = Deviation(-1.0, allowed, what, 0)
    with np.errstate(all="ignore"):  # a poisoned output overflows on purpose
        for part in chunks(len(arrays[0]), arrays[0][0].size):
            errors = row_errors(*(array[part] for array in arrays))
            errors = xp.where(errors < np.inf, errors, np.inf)  # NaN compares false
            row = int(errors.argmax())
            error = float(errors[row])
            if error > worst.error:
                worst = Deviation(error, allowed, what, part.start + row)
    return worst


def relative(xp: Namespace, error: Array, scale: Array) -> Array:
    """Error by scale; where the scale is zero (or NaN), the error itself."""
    return error / xp.where(scale > 0, scale, 1.0)


def worst_of(deviations: Sequence[Deviation]) -> Deviation:
    """The deviation that exceeds what it is allowed by the largest factor."""
    return max(deviations, key=_excess)


def _excess(deviation: Deviation) -> float:
    if deviation.allowed:
        return deviation.error / deviation.allowed
    return math.inf if deviation.error else 0.0


def allowed_difference(answer: Array, tolerance: float | None) -> float:
    """The tolerance, or where it is None 100 units of roundoff of the answer's dtype, 0 for whole numbers."""
    if tolerance is not None:
        return tolerance
    return 100 * unit_roundoff(answer) if np.issubdtype(answer.dtype, np.inexact) else 0.0


def agreement(reference: Array, answer: Array, tolerance: float | None, name: str) -> Deviation:
    """Compare two equally shaped arrays of the same device element by element.

    An element's error is relative to the larger of its reference and the mean magnitude of the chunk it lies
    in, because sums that cancel carry the rounding of their terms.

    Args:
        reference: right values.
        answer: values to judge.
        tolerance: see ``allowed_difference``.
        name: of the buffer, for the metric's words.
    """
    allowed = allowed_difference(answer, tolerance)
    wide = np.result_type(answer.dtype, reference.dtype, np.float64)
    worst = Deviation(-1.0, allowed, f"relative error of {name}", 0)
    with np.errstate(all="ignore"):
        for part in chunks(len(answer), answer[0].size):
            right, given = reference[part].astype(wide), answer[part].astype(wide)
            scale = abs(right)
            mean = float(scale.mean())
            scale[scale < mean] = mean
            scale[scale == 0] = 1.0
            errors = (abs(given - right) / scale).reshape(part.stop - part.start, -1)
            errors[~(errors < np.inf)] = np.inf  # NaN compares false
            place = int(errors.argmax())
            error = float(errors.max())
            if error > worst.error:
                worst = Deviation(error, allowed, worst.what, part.start + place // errors.shape[1])
    return worst


def expect_buffers(  # noqa: PLR0917 - what a problem says of its buffers
    spec: ProblemSpec, buffers: Sequence[Buffer], inputs: int, kinds: str, needs: str, axes: int = 2
) -> tuple[tuple[Buffer, ...], Buffer]:
    """Inputs and the one output of a built-in problem, which the kernel file may name as it likes.

    Args:
        spec: for the message.
        buffers: all buffers of the kernel file, in its order.
        inputs: how many buffers of role ``in`` or ``inout`` the problem has.
        kinds: NumPy kind letters they may have, ``f``, ``c`` or ``fi``; all have the same.
        needs: what the problem needs, in words.
        axes: of each buffer; 2 are (batch, N).

    Raises:
        KernelFileError: number, dtype or shape of the buffers is not what the problem needs.
    """
    given = tuple(buffer for buffer in buffers if buffer.role in ("in", "inout"))
    made = tuple(buffer for buffer in buffers if buffer.role in ("out", "inout"))
    fits = (
        len(given) == inputs
        and len(made) == 1
        and all(value_dtype(buffer.dtype).kind in kinds for buffer in (*given, *made))
        and len({value_dtype(buffer.dtype).kind for buffer in (*given, *made)}) == 1
        and len({buffer.shape for buffer in (*given, *made)}) == 1
        and len(made[0].shape) == axes
    )
    if not fits:
        found = ", ".join(f"{b.name} ({b.role} {b.dtype} {list(b.shape)})" for b in (*given, *made))
        raise KernelFileError(f"[problem] name = {spec.name!r} needs {needs}; [[argument]] gives {found}")
    return given, made[0]
