"""Scans of the segments of rows, which flags or offsets tell."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.model.errors import KernelFileError
from tuner.model.plan import Buffer
from tuner.problems.arrays import Array, Arrays, Draw, Namespace, value_dtype
from tuner.problems.base import Deviation, sweep
from tuner.problems.prefix_operators import PrefixOperator
from tuner.problems.scans import Scan, jumps, largest

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
            found = ", ".join(f"{b.name} ({b.dtype} {list(b.shape)})" for b in others)
            raise KernelFileError(
                f"[problem] name = {self.spec.name!r} needs a second input: flags, bool or uint8 [batch, N],"
                f" or offsets, int32 or int64 [batch, K]; [[argument]] gives {found or 'none'}"
            )

    def draws(self, buffers: Sequence[Buffer]) -> dict[str, Draw]:
        """See ``Problem.draws``; one flag of some thousands is set, and offsets have an ``input``."""
        elements, segments = (buffer for buffer in buffers if buffer.role == "in")
        rare = min(_LENGTH, max(2, elements.shape[-1] // 8))
        return {
            elements.name: self.operator.draw(value_dtype(elements.dtype), elements.shape[-1]),
            segments.name: Draw(low=0.0, width=1 + 1 / rare),  # whole numbers are rounded down
        }

    def compare(self, inputs_rows: Arrays, outputs_rows: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """See ``Scan.compare``."""
        scan, exclusive = self.at(sizes), self.word("form", sizes) == "exclusive"

        def errors(x: Array, segments: Array, y: Array) -> Array:
            given, made = self.scanned(x, y, sizes)
            begins = self.beginnings(np, x, segments, sizes)
            return largest(np, _differences(scan.operator, given, made, begins, exclusive=exclusive))

        (x, segments), (y,) = inputs_rows.values(), outputs_rows.values()
        return sweep(np, (x, segments, y), errors, allowed=scan.allowed(y), what=scan.metric(y, "error"))

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """Half of the largest ``|y[i] - y[i-1] op x[i]|`` within segments, by the row's largest sum."""
        scan, exclusive = self.at(sizes), self.word("form", sizes) == "exclusive"

        def errors(x: Array, segments: Array, y: Array) -> Array:
            given, made = self.scanned(x, y, sizes)
            begins = self.beginnings(xp, x, segments, sizes)
            return largest(xp, jumps(xp, scan.operator, given, made, begins, exclusive=exclusive))

        (x, segments), (y,) = inputs.values(), outputs.values()
        return sweep(xp, (x, segments, y), errors, allowed=scan.allowed(y), what=scan.metric(y, "residual"))

    def beginnings(self, xp: Namespace, x: Array, segments: Array, sizes: Mapping[str, Any]) -> Array:
        """Where segments begin in rows in the direction they are scanned in, bool of the shape of ``x``."""
        rows, length = x.shape
        begins = xp.zeros((rows, length + 1), bool)
        if segments.dtype.itemsize == 1:
            begins[:, :length] = segments != 0
        else:
            begins[xp.arange(rows)[:, None], segments] = True
        begins[:, [0, length]] = True
        return begins[:, :0:-1] if self.word("direction", sizes) == "reverse" else begins[:, :-1]


def _are_segments(elements: Buffer, segments: Buffer) -> bool:
    """Whether a buffer holds flags or offsets for rows of elements."""
    if segments.dtype in ("bool", "uint8"):
        return segments.shape == elements.shape
    return segments.dtype in ("int32", "int64") and segments.shape[:-1] == elements.shape[:1]


def _differences(
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
