"""Scans of rows and of their segments by an associative operator."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

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
    value_dtype,
)

OPERATORS = ("sum", "min", "max", "product", "and", "or", "xor")
_FUNCTIONS = ("add", "minimum", "maximum", "multiply", "logical_and", "logical_or", "logical_xor")


@dataclass(frozen=True)
class PrefixOperator:
    """An associative operator; logical ones join truth values, and what is not zero is true.

    Attributes:
        name: one of ``OPERATORS``.
    """

    name: str

    @property
    def logical(self) -> bool:
        """True if the operator joins truth values; they are 0 and 1 in outputs."""
        return self.name in ("and", "or", "xor")

    def exact(self, dtype: "np.dtype[Any]") -> bool:
        """Return True if scans are bit-exact: all but sums and products of real and complex numbers."""
        return dtype.kind not in "fc" or self.name not in ("sum", "product")

    def neutral(self, dtype: "np.dtype[Any]") -> complex:
        """Return the neutral element; infinities for minima and maxima of floats."""
        if self.name in ("min", "max"):
            if dtype.kind not in "fc":
                return (np.iinfo(dtype).min, np.iinfo(dtype).max)[self.name == "min"]
            bound = math.inf if self.name == "min" else -math.inf
            return complex(bound, bound) if dtype.kind == "c" else bound
        return 1 if self.name in ("product", "and") else 0

    def values(self, xp: Namespace, array: Array) -> Array:
        """Return the operands: truth values, double precision where results round, else the elements."""
        if self.logical:
            return array != 0
        if self.exact(array.dtype):
            return array
        return array.astype(xp.complex128 if array.dtype.kind == "c" else xp.float64)

    def join(self, xp: Namespace, before: Array, after: Array) -> Array:
        """Element by element."""
        return self._function(xp)(before, after)

    def accumulate(self, rows: Array) -> Array:
        """The inclusive scan of rows of NumPy, in their type."""
        with np.errstate(over="ignore"):
            return self._function(np).accumulate(rows, axis=1, dtype=rows.dtype)

    def draw(self, dtype: "np.dtype[Any]", length: int) -> Draw:
        """Random inputs of which every element tells.

        Real sums: [-1, 1), so that partial sums stay near the root of the length and errors relative to them
        are not flattered by a large total. Products: of magnitudes so near to 1 that they neither vanish nor
        overflow. Whole numbers: of 32 bits, or as many as the type has. Logical operators: 0 and 1.
        """
        if self.logical:
            return Draw("whole", 0, 2)
        if dtype.kind in "fc":
            if self.name != "product":
                return Draw()
            near = min(0.5, 4 / math.sqrt(length))
            middle = math.sqrt(0.5) if dtype.kind == "c" else 1.0  # of both parts
            return Draw(low=middle - near, width=2 * near)
        limits = np.iinfo(dtype)
        low, most = max(-(2**31), int(limits.min)), min(2**32 - 1, int(limits.max))
        return Draw("whole", low, min(2**32, most - low + 1))

    def _function(self, xp: Namespace) -> Any:  # noqa: ANN401 - a universal function
        return getattr(xp, _FUNCTIONS[OPERATORS.index(self.name)])


_SUMMED = 2**14  # elements that one sum in float64 goes on over; what lies before has more digits

_SUM = PrefixOperator("sum")


@dataclass(frozen=True)
class Scan(Problem):
    """Rows of x of shape (batch, N) to y with ``y[i] = x[0] op ... op x[i]``.

    Where the size ``form`` is ``exclusive``, ``y[i] = x[0] op ... op x[i-1]``, and ``y[0]`` is neutral. Where
    ``direction`` is ``reverse``, rows are scanned from their end. The operator is the size ``operator``;
    inputs are those of ``PrefixOperator.draw``.

    Attributes:
        operator: of this workload, see ``at``.
    """

    words: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "form": ("inclusive", "exclusive"),
        "operator": OPERATORS,
        "direction": ("forward", "reverse"),
    }
    operator: PrefixOperator = _SUM

    def at(self, sizes: Sizes) -> "Scan":
        """See ``Problem.at``."""
        return replace(self, operator=PrefixOperator(self.word("operator", sizes)))

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``."""
        kinds = {
            value_dtype(buffer.dtype).kind for buffer in buffers if buffer.role in ("in", "out", "inout")
        }
        (kind,) = kinds if kinds in ({"i"}, {"u"}, {"c"}) else ("f",)
        needs = (
            "one input and one output of shape [batch, N], both real, or both signed whole numbers, or both"
            " unsigned ones, or both complex"
        )
        expect_buffers(self.spec, buffers, 1, kind, needs)

    def draws(self, buffers: Sequence[Buffer]) -> dict[str, Draw]:
        """See ``Problem.draws``."""
        return {
            buffer.name: self.operator.draw(value_dtype(buffer.dtype), buffer.shape[-1])
            for buffer in buffers
            if buffer.role in ("in", "inout")
        }

    def norm(self, output: Array) -> Norm:
        """See ``Problem.norm``."""
        return Norm.COUNT if self.operator.exact(output.dtype) else Norm.MAXIMUM

    def compare(self, inputs_rows: Arrays, outputs_rows: Arrays, sizes: Sizes) -> Deviation:
        """Largest error of a row by the row's largest sum, against sums in float64.

        Of what must be exact, how many differ from scans in the type of the output.
        """
        scan, exclusive = self.at(sizes), self.word("form", sizes) == "exclusive"

        def errors(*arrays: Array) -> Array:
            x, y, begins = self.scanned(np, arrays, sizes)
            if begins is None:
                return largest(np, _differences(scan.operator, x, y, exclusive=exclusive))
            return largest(np, _segmented_differences(scan.operator, x, y, begins, exclusive=exclusive))

        (y,) = outputs_rows.values()
        arrays = (*inputs_rows.values(), y)
        return sweep(np, arrays, errors, allowed=scan.allowed(y), what=scan.metric(y, "error"))

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Sizes) -> Deviation:
        """Half of the largest ``|y[i] - y[i-1] op x[i]|``, by the largest sum; also ``|y[N-1] - sum of x|``.

        Sums that are right within e differ from their neighbours by the element between them within 2 e; the
        total catches errors that creep in below that. Of what must be exact, how many violate this. Of
        segments the law holds within each.
        """
        scan, exclusive = self.at(sizes), self.word("form", sizes) == "exclusive"

        def errors(*arrays: Array) -> Array:
            x, y, begins = self.scanned(xp, arrays, sizes)
            return largest(xp, jumps(xp, scan.operator, x, y, begins, exclusive=exclusive))

        (y,) = outputs.values()
        arrays = (*inputs.values(), y)
        return sweep(xp, arrays, errors, allowed=scan.allowed(y), what=scan.metric(y, "residual"))

    def rounding(self, output: Array) -> float:
        """Twice what serial summation may lose: N roundings of random sign, each of half the largest sum.

        Nobody sums more than 2^14 numbers one after another: longer rows are summed in parts. Of products
        every factor's rounding stays. Numbers of 16 bits are summed as float32, and rounded in the end.
        """
        if self.operator.exact(output.dtype):
            return 0.0
        length = output.shape[1] if self.operator.name == "product" else min(output.shape[1], 2**14)
        narrow = output.dtype.itemsize < np.dtype(np.float32).itemsize
        roundoff = unit_roundoff(np.empty(0, np.float32) if narrow else output)
        return roundoff * (4 + 2 * math.sqrt(length)) + (2 * unit_roundoff(output) if narrow else 0)

    def scanned(
        self, xp: Namespace, arrays: Sequence[Array], sizes: Sizes
    ) -> tuple[Array, Array, Array | None]:
        """Inputs, outputs and the beginnings of segments, in the direction that rows are scanned in.

        Whole numbers have the type of the output. There are no beginnings where rows have no segments.
        """
        del xp
        x, y = arrays[0], arrays[-1]
        rows = x if y.dtype.kind in "fc" else x.astype(y.dtype, copy=False)
        if self.word("direction", sizes) == "reverse":
            return rows[:, ::-1], y[:, ::-1], None
        return rows, y, None

    def metric(self, y: Array, what: str) -> str:
        """Return the metric of errors, in words."""
        if self.operator.exact(y.dtype):
            return f"wrong sums ({what})"
        return f"{what} of the sums by the row's largest sum"


def _differences(
    operator: PrefixOperator, x: Array, y: Array, *, exclusive: bool
) -> Iterator[tuple[Array, Array]]:
    """Errors and right answers of NumPy's rows, piece by piece; of exact ones, what differs."""
    exact = operator.exact(y.dtype)
    before = operator.values(np, np.full((len(x), 1), operator.neutral(x.dtype), x.dtype))
    before = before if exact else before.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)
    for part in chunks(x.shape[1], 1, _SUMMED):
        inner = operator.accumulate(operator.values(np, x[:, part]))
        right = np.concatenate([before, operator.join(np, before, inner)], axis=1)
        before = right[:, -1:]
        right = right[:, :-1] if exclusive else right[:, 1:]
        actual = y[:, part]
        yield (actual != right.astype(actual.dtype) if exact else abs(actual - right)), right


def jumps(
    xp: Namespace,
    operator: PrefixOperator,
    x: Array,
    y: Array,
    begins: Array | None = None,
    *,
    exclusive: bool,
) -> Iterator[tuple[Array, Array]]:
    """Errors of the law and sums, piece by piece; where they must be exact, what violates it.

    Args:
        xp: namespace of the arrays.
        operator: of the scan.
        x: rows of inputs, in the direction they are scanned in.
        y: rows of outputs, likewise.
        begins: where segments begin; None where rows have none.
        exclusive: the form.
    """
    exact = operator.exact(y.dtype)
    neutral = xp.full((len(x), 1), operator.neutral(x.dtype), x.dtype)
    total = xp.zeros(len(x), xp.complex128 if y.dtype.kind == "c" else xp.float64)
    for part in chunks(x.shape[1], len(x)):
        element = operator.values(xp, _preceding(xp, x, part, neutral) if exclusive else x[:, part])
        right = operator.join(xp, operator.values(xp, _preceding(xp, y, part, neutral)), element)
        if begins is not None:
            alone = operator.values(xp, neutral) if exclusive else element
            right = xp.where(begins[:, part], alone, right)
        if exact:
            yield y[:, part] != right.astype(y.dtype), y[:, part]
            continue
        sums = operator.values(xp, y[:, part])
        yield abs(sums - right) / 2, operator.join(xp, sums, x[:, part]) if exclusive else sums
        total += element.sum(axis=1)
    if operator.name == "sum" and not exact and begins is None:
        yield abs(y[:, -1:] - total[:, None]) / 2, y[:, -1:]


def largest(xp: Namespace, pieces: Iterator[tuple[Array, Array]]) -> Array:
    """Of each row the largest error by the largest sum; of what must be exact, how many errors."""
    worst = scale = xp.zeros(1)
    for errors, sums in pieces:
        if errors.dtype.kind == "b":
            worst = worst + errors.sum(axis=1)
        else:
            worst = xp.maximum(worst, errors.max(axis=1).astype(xp.float64))
            scale = xp.maximum(scale, abs(sums).max(axis=1).astype(xp.float64))
    return relative(xp, worst, scale)


def _preceding(xp: Namespace, rows: Array, part: slice, first: Array) -> Array:
    """The elements before those of a part; before the first one stands ``first``."""
    if part.start:
        return rows[:, part.start - 1 : part.stop - 1]
    return xp.concatenate([first.astype(rows.dtype), rows[:, : part.stop - 1]], axis=1)


# --- Scans of the segments of rows, which flags or offsets tell.

_LENGTH = 2**12  # of segments, on average: some lie in a tile, some are longer than one
_FEW = 256  # segments that are summed one after another, not side by side


@dataclass(frozen=True)
class SegmentedScan(Scan):
    """Rows of x to y as ``Scan``, but sums begin anew where a segment begins.

    The second input says where: flags of shape (batch, N) that are not zero, or offsets of shape (batch, K)
    from 0 to N, as of a CSR matrix. A row always begins one. Where ``direction`` is ``reverse``, segments are
    scanned from their ends.
    """

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``."""
        elements, *others = (buffer for buffer in buffers if buffer.role == "in")
        super().validate([buffer for buffer in buffers if buffer not in others])
        if len(others) != 1 or not _are_segments(elements, others[0]):
            listed = ", ".join(f"{b.name} ({b.dtype} {list(b.shape)})" for b in others)
            raise KernelFileError(
                f"[problem] name = {self.spec.name!r} needs a second input: flags, bool or uint8 [batch, N],"
                f" or offsets, int32 or int64 [batch, K]; [[argument]] gives {listed or 'none'}"
            )

    def draws(self, buffers: Sequence[Buffer]) -> dict[str, Draw]:
        """See ``Problem.draws``; one flag of some thousands is set, and offsets have an ``input``."""
        elements, segments = (buffer for buffer in buffers if buffer.role == "in")
        rare = min(_LENGTH, max(2, elements.shape[-1] // 8))
        return {
            elements.name: self.operator.draw(value_dtype(elements.dtype), elements.shape[-1]),
            segments.name: Draw(low=0.0, width=1 + 1 / rare),  # whole numbers are rounded down
        }

    def scanned(
        self, xp: Namespace, arrays: Sequence[Array], sizes: Sizes
    ) -> tuple[Array, Array, Array | None]:
        """See ``Scan.scanned``."""
        x, y, _ = super().scanned(xp, arrays, sizes)
        segments = arrays[1]
        rows, length = x.shape
        begins = xp.zeros((rows, length + 1), bool)
        if segments.dtype.itemsize == 1:
            begins[:, :length] = segments != 0
        else:
            begins[xp.arange(rows)[:, None], segments] = True
        begins[:, [0, length]] = True
        return x, y, begins[:, :0:-1] if self.word("direction", sizes) == "reverse" else begins[:, :-1]


def _are_segments(elements: Buffer, segments: Buffer) -> bool:
    """Return True if a buffer has flags or offsets for rows of elements."""
    if segments.dtype in ("bool", "uint8"):
        return segments.shape == elements.shape
    return segments.dtype in ("int32", "int64") and segments.shape[:-1] == elements.shape[:1]


def _segmented_differences(
    operator: PrefixOperator, x: Array, y: Array, begins: Array, *, exclusive: bool
) -> Iterator[tuple[Array, Array]]:
    """Errors and right answers of NumPy's rows; of exact ones, what differs."""
    exact = operator.exact(y.dtype)
    right = scanned_segments(operator, operator.values(np, x).reshape(-1), begins.reshape(-1)).reshape(
        x.shape
    )
    if exclusive:
        neutral = operator.values(np, np.full((len(x), 1), operator.neutral(x.dtype), x.dtype))
        right = np.where(begins, neutral, np.concatenate([neutral, right[:, :-1]], axis=1))
    yield (y != right.astype(y.dtype) if exact else abs(y - right)), right


def scanned_segments(operator: PrefixOperator, x: Array, begins: Array) -> Array:
    """The inclusive scan of the segments of one array of NumPy, in its type.

    The elements of all segments at one place in them are joined at a time, as long as there are many.

    Args:
        operator: joins.
        x: values, one axis.
        begins: where segments begin, also at the first one.
    """
    y = x.copy()
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(x))
    order = np.argsort(starts - ends, kind="stable")  # the longest first
    starts, ends = starts[order], ends[order]
    step, count = 0, len(starts)
    with np.errstate(over="ignore"):
        while count > _FEW:
            step += 1
            count = int(np.searchsorted(starts[:count] - ends[:count], -step))
            here = starts[:count] + step
            y[here] = operator.join(np, y[here - 1], y[here])
    for start, end in zip(starts[:count] + step, ends[:count], strict=True):
        y[start:end] = operator.accumulate(y[None, start:end])[0]
    return y
