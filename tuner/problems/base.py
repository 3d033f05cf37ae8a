"""Common parts of problems: arrays, stated inputs, deviations of answers, chunked sweeps."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.kernel_files.input_reader import array_of
from tuner.model.elements import BFLOAT16, bfloat16_bits, bfloat16_values
from tuner.model.errors import KernelFileError
from tuner.model.plan import Buffer, InputSpec, ProblemSpec

# --- Arrays of problems: random values, rows on the host, chunks.

Array: TypeAlias = Any
"""``numpy.ndarray`` or ``cupy.ndarray``: they share operators and methods, but no type."""

Namespace: TypeAlias = Any
"""The module ``numpy`` or ``cupy``."""

Generator: TypeAlias = Any
"""``xp.random.default_rng()``; only ``random``, ``standard_normal`` and ``integers`` are used."""

Arrays: TypeAlias = Mapping[str, Array]
"""Arrays by buffer name, in the order of the kernel file."""

Sizes: TypeAlias = Mapping[str, int | str]
"""Sizes of a workload by name."""

CHUNK_ELEMENTS = 2**20
"""Elements handled at a time, so that float64 temporaries stay at some 8 MiB each."""


@dataclass(frozen=True)
class Draw:
    """Distribution of the random values of an input; complex numbers by their real and imaginary parts.

    Attributes:
        kind: ``uniform`` in [low, low + width), ``normal`` for the normal distribution of mean ``low`` and
            standard deviation ``width``, ``whole`` for uniform whole numbers ``low`` ... ``low + width - 1``.
    """

    kind: Literal["uniform", "normal", "whole"] = "uniform"
    low: float = -1.0
    width: float = 2.0


def value_dtype(name: str) -> "np.dtype[Any]":
    """NumPy's type of the numbers in a buffer: ``float32`` for those of ``bfloat16``, which NumPy lacks."""
    return np.dtype(np.float32 if name == BFLOAT16 else name)


def values_of(arrays: Arrays, buffers: Sequence[Buffer]) -> dict[str, Array]:
    """Arrays as problems judge them: the bits of a ``bfloat16`` as numbers, all others as they are."""
    bits = {buffer.name for buffer in buffers if buffer.dtype == BFLOAT16}
    return {name: bfloat16_values(array) if name in bits else array for name, array in arrays.items()}


_SAMPLED = 16  # problems of a batch that are looked at


def sample_rows(batch: int, seed: int) -> NDArray[np.int64]:
    """Sorted indices of the first, the last and some random problems of a batch, each once."""
    drawn = np.random.default_rng(seed).integers(0, batch, size=_SAMPLED - 2)
    return np.array(sorted({0, batch - 1, *drawn.tolist()}), np.int64)


def take_rows(arrays: Arrays, rows: NDArray[np.int64], axes: int) -> dict[str, NDArray[Any]]:
    """Copy rows to the host; arrays with fewer axes than ``axes`` hold no problems and come whole."""
    return {
        name: np.stack([to_host(array[int(row)]) for row in rows]) if array.ndim == axes else to_host(array)
        for name, array in arrays.items()
    }


def to_host(array: Array) -> NDArray[Any]:
    """The array as NumPy array, copied from the device if it lies there."""
    return np.asarray(array.get() if hasattr(array, "get") else array)


def poison(array: Array) -> None:
    """Fill an array with one-bits: NaN for real and complex numbers, -1 for signed integers."""
    array.view(np.uint8).fill(0xFF)


def chunks(rows: int, elements_per_row: int, elements: int = CHUNK_ELEMENTS) -> Iterator[slice]:
    """Slices of whole rows that together cover all, each of about so many elements."""
    step = max(1, elements // max(1, elements_per_row))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def fill(array: Array, rng: Generator, draw: Draw) -> Array:
    """Fill a new contiguous array piece by piece, and return it."""
    real = array.real.dtype
    flat = array.view(real).reshape(-1)
    drawn = np.dtype(np.float32 if real.kind == "f" and real != np.float64 else np.float64)
    for piece in chunks(flat.size, 1):
        count = piece.stop - piece.start
        if draw.kind == "normal":
            flat[piece] = draw.low + draw.width * rng.standard_normal(count, dtype=drawn)
            continue
        values = rng.random(count, dtype=drawn)
        values *= draw.width
        if draw.kind == "whole":
            values = np.floor(values)
        flat[piece] = values + draw.low
    return array


# --- Values of inputs that a kernel file states: by a generator, or from a file of NumPy.
#
# Generators work along the last axis, each row by itself. Values are made on the host with NumPy; those that
# a device can make by itself have a ``Draw``.

_EXACT = 2**53  # whole numbers up to here are exact in float64, as a device draws them
_SPD_ROWS = 256  # changed at a time


def stated_draw(buffer: Buffer) -> Draw | None:
    """Return the distribution of a buffer's stated values on a device; None if the host must make them."""
    spec = buffer.input
    if spec is None:
        return None
    is_complex = buffer.dtype.startswith("complex")
    if spec.kind == "uniform":
        low, high = spec.numbers
        return Draw("uniform", float(low), float(high) - float(low))
    if spec.kind == "normal":
        return Draw("normal", float(spec.numbers[0]), float(spec.numbers[1]))
    if spec.kind == "constant" and not is_complex and abs(spec.numbers[0]) <= _EXACT:
        return Draw("uniform", float(spec.numbers[0]), 0.0)
    if spec.kind == "integers" and not is_complex and max(map(abs, spec.numbers)) <= _EXACT:
        low, high = spec.numbers
        return Draw("whole", float(low), float(high - low))
    return None


def stated_values(buffer: Buffer, rng: np.random.Generator) -> NDArray[Any]:
    """The values that are stated for a buffer, in its type and shape; of ``bfloat16`` their bits.

    Raises:
        InputError: a file cannot be read, or has changed since it was looked at.
        ValueError: nothing is stated.
    """
    if buffer.input is None:
        raise ValueError(f"no input is stated for {buffer.name}")
    values = _generated(buffer.input, value_dtype(buffer.dtype), buffer.shape, rng)
    if buffer.dtype == BFLOAT16:
        return values if values.dtype == np.uint16 else bfloat16_bits(values)
    return values.astype(buffer.dtype, copy=False)


def _generated(
    spec: InputSpec, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[Any]:
    if spec.file is not None:
        return array_of(spec.file)
    if spec.inner is not None:
        return np.sort(_generated(spec.inner, dtype, shape, rng), axis=-1)
    if spec.kind in _OF_REALS:
        return _OF_REALS[spec.kind](spec, dtype, shape, rng)
    if spec.kind == "constant":
        return np.full(shape, spec.numbers[0], dtype)
    if spec.kind == "integers":
        low, high = map(int, spec.numbers)
        return rng.integers(low, high, size=shape, dtype=np.int64 if high <= 2**63 else np.uint64)
    rows, length = math.prod(shape[:-1]), shape[-1]
    values = np.empty((rows, length), np.int64)
    for row in values:
        row[...] = _row(spec, length, rng)
    return values.reshape(shape)


def _row(spec: InputSpec, length: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """One row of whole numbers."""
    if spec.kind == "permutation":
        return rng.permutation(length)
    if spec.kind == "unique":
        low, high = map(int, spec.numbers)
        gaps = rng.integers(0, high - low - length + 1, size=length)
        return low + np.sort(gaps) + np.arange(length)
    if spec.kind == "csr_offsets":
        total = int(spec.numbers[0])
        if length == 1:
            return np.array([total])
        inner = np.sort(rng.integers(0, total + 1, size=length - 2))
        return np.concatenate([[0], inner, [total]])
    return np.arange(length)


def _dominant(
    spec: InputSpec, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[Any]:
    """Square matrices whose diagonal is larger than the rest of its row and of its column."""
    values = _reals(spec, dtype, shape, rng)
    largest = max(map(abs, spec.numbers)) * (math.sqrt(2) if values.dtype.kind == "c" else 1.0)
    diagonal = np.einsum("...ii->...i", values)  # a view
    diagonal += (values.shape[-1] + 1) * largest
    return values


def _definite(
    spec: InputSpec, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[Any]:
    """Square matrices whose symmetric part is positive definite, and whose diagonal hides nothing else.

    The symmetric part of n × n independent values of mean 0 and size at most s has no eigenvalue below about
    -0.82 s √n, and none below -n s; a mean below 0 takes n of it more.
    """
    values = _reals(spec, dtype, shape, rng)
    n = values.shape[-1]
    largest = max(map(abs, spec.numbers)) * (math.sqrt(2) if values.dtype.kind == "c" else 1.0)
    diagonal = np.einsum("...ii->...i", values)  # a view
    diagonal += 2 * largest * math.sqrt(n) + n * max(0.0, -float(sum(spec.numbers)) / 2)
    return values


def _spd(
    spec: InputSpec, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[Any]:
    """Symmetric positive definite matrices of eigenvalues 1 to 1 / condition, evenly spread on a log scale.

    Each is the diagonal matrix of its eigenvalues between two random reflections.
    """
    n = shape[-1]
    eigenvalues = float(spec.numbers[0]) ** -np.linspace(0, 1, n)
    values = np.empty(shape, dtype)
    flat = values.reshape(-1, n, n)
    step = max(1, CHUNK_ELEMENTS // (n * n))
    for start in range(0, len(flat), step):
        piece = flat[start : start + step]
        matrices = np.zeros(piece.shape)
        np.einsum("bii->bi", matrices)[...] = eigenvalues
        for _ in range(2):
            normal = rng.standard_normal((len(piece), n))
            normal /= np.linalg.norm(normal, axis=1, keepdims=True)
            image = np.einsum("bij,bj->bi", matrices, normal)
            image -= np.einsum("bi,bi->b", image, normal)[:, None] * normal
            for first in range(0, n, _SPD_ROWS):  # of large matrices, so that temporaries stay small
                rows = slice(first, first + _SPD_ROWS)
                change = 2 * image[:, rows, None] * normal[:, None, :]
                change += 2 * image[:, None, :] * normal[:, rows, None]
                matrices[:, rows] -= change
        piece[...] = matrices
    return values


def _reals(
    spec: InputSpec, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[Any]:
    """Uniform or normal values, piece by piece; of complex numbers both parts."""
    values = np.empty(shape, dtype)
    flat = values.view(values.real.dtype).reshape(-1)
    low, second = map(float, spec.numbers)
    for start in range(0, flat.size, CHUNK_ELEMENTS):
        piece = flat[start : start + CHUNK_ELEMENTS]
        if spec.kind == "normal":
            piece[...] = low + second * rng.standard_normal(piece.size)
        else:
            piece[...] = low + (second - low) * rng.random(piece.size)
    return values


_OF_REALS = {"uniform": _reals, "normal": _reals, "dominant": _dominant, "definite": _definite, "spd": _spd}


class Norm(Enum):
    """Norm that combines the differences of an answer from the right answer into one error.

    The first two are relative to the same norm of a row of the right answer.
    """

    MAXIMUM = "largest element of a row"
    EUCLIDEAN = "length of a row"
    ELEMENT = "elements, by themselves or the mean around them"
    COUNT = "number of differences in a row"


@dataclass(frozen=True)
class Deviation:
    """Deviation of an answer from the right answer.

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

    def word(self, name: str, sizes: Sizes) -> str:
        """The value of one of ``words`` in a workload.

        Raises:
            KernelFileError: it is none that the problem knows.
        """
        choices = self.words[name]
        value = sizes.get(name, choices[0])
        if value not in choices:
            raise KernelFileError(
                f"[problem.sizes] {name}: {value!r} is neither {' nor '.join(map(repr, choices))}, "
                f"which [problem] name = {self.spec.name!r} knows"
            )
        return str(value)

    def at(self, sizes: Sizes) -> "Problem":
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
        """Return the distribution of every ``in`` and ``inout`` buffer, in the order of the kernel file."""

    @abstractmethod
    def norm(self, output: Array) -> Norm:
        """Return the norm that compares an output with the right output."""

    def allowed(self, output: Array) -> float:
        """Largest error of an output: the tolerance of the kernel file, or what rounding explains."""
        return self.rounding(output) if self.spec.tolerance is None else self.spec.tolerance

    @abstractmethod
    def rounding(self, output: Array) -> float:
        """Largest error of an output that rounding explains."""

    def inputs(
        self, xp: Namespace, rng: Generator, buffers: Sequence[Buffer], sizes: Sizes
    ) -> dict[str, Array]:
        """Values for every ``in`` and ``inout`` buffer, as arrays of namespace ``xp``: stated, or random.

        Those of ``bfloat16`` are bits; what judges takes numbers, see ``values_of``.

        Raises:
            KernelFileError: the buffers are not those of this problem.
            InputError: a file of values cannot be read.
        """
        self.validate(buffers)
        by_name = {buffer.name: buffer for buffer in buffers}
        arrays, problem = {}, self.at(sizes)
        for name, draw in problem.draws(buffers).items():
            if by_name[name].input is None:
                arrays[name] = fill(
                    xp.empty(by_name[name].shape, value_dtype(by_name[name].dtype)), rng, draw
                )
            else:
                seed = int(rng.integers(2**63))
                values = stated_values(by_name[name], np.random.default_rng(seed))
                arrays[name] = xp.array(values)
        problem.settle(xp, arrays)
        for name, array in arrays.items():
            if by_name[name].dtype == BFLOAT16 and array.dtype == np.float32:
                arrays[name] = bfloat16_bits(array)
        return arrays

    def settle(self, xp: Namespace, inputs: Arrays) -> None:
        """Give inputs drawn one by one what the problem asks of them together; nothing here."""
        del xp, inputs

    @abstractmethod
    def compare(self, inputs_rows: Arrays, outputs_rows: Arrays, sizes: Sizes) -> Deviation:
        """Compare host rows with a reference computed in float64."""

    @abstractmethod
    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Sizes) -> Deviation:
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

    def excess(deviation: Deviation) -> float:
        if deviation.allowed:
            return deviation.error / deviation.allowed
        return math.inf if deviation.error else 0.0

    return max(deviations, key=excess)


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
            expected, actual = reference[part].astype(wide), answer[part].astype(wide)
            scale = abs(expected)
            mean = float(scale.mean())
            scale[scale < mean] = mean
            scale[scale == 0] = 1.0
            errors = (abs(actual - expected) / scale).reshape(part.stop - part.start, -1)
            errors[~(errors < np.inf)] = np.inf  # NaN compares false
            index = int(errors.argmax())
            error = float(errors.max())
            if error > worst.error:
                worst = Deviation(error, allowed, worst.what, part.start + index // errors.shape[1])
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
    sources = tuple(buffer for buffer in buffers if buffer.role in ("in", "inout"))
    results = tuple(buffer for buffer in buffers if buffer.role in ("out", "inout"))
    fits = (
        len(sources) == inputs
        and len(results) == 1
        and all(value_dtype(buffer.dtype).kind in kinds for buffer in (*sources, *results))
        and len({value_dtype(buffer.dtype).kind for buffer in (*sources, *results)}) == 1
        and len({buffer.shape for buffer in (*sources, *results)}) == 1
        and len(results[0].shape) == axes
    )
    if not fits:
        listed = ", ".join(f"{b.name} ({b.role} {b.dtype} {list(b.shape)})" for b in (*sources, *results))
        raise KernelFileError(f"[problem] name = {spec.name!r} needs {needs}; [[argument]] gives {listed}")
    return sources, results[0]
