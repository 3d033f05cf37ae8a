"""Power over time in one measurement window, as the sensor shows it, in few bytes."""

import base64
import binascii
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

MOST_POINTS = 512
"""Of a series; of more samples, neighbours are joined into their means."""

_TICK_S = 1e-4
_DIGITS = 4  # of the highest power: joules are never made from a series
_SEVEN, _MORE = 0x7F, 0x80  # bits of a number in a byte, and that another byte follows
_LARGEST = 2**53
_LEAST_EXPONENT, _MOST_EXPONENT = -6, 30
_MOST_BYTES = 10 * (2 * MOST_POINTS + 2)


@dataclass(frozen=True)
class PowerSeries:
    """Power over time.

    Attributes:
        times_s: of the points, from the begin of the window; negative ones lie before it.
        watts: power at each point, of an energy counter the mean up to the next one. As the sensor shows it:
            lag and averaging are in it.
    """

    times_s: tuple[float, ...]
    watts: tuple[float, ...]

    def packed(self) -> str:
        """The series as text: times to 0.1 ms, power to four digits of the highest, differences as varints.

        The first number is the exponent of the step of power, the second counts the points.
        """
        if not self.times_s:
            return ""
        exponent = _step_exponent(max(map(abs, self.watts)))
        ticks = [round(time_s / _TICK_S) for time_s in self.times_s]
        steps = [round(watts / 10.0**exponent) for watts in self.watts]
        numbers = [exponent, len(ticks), *_differences(ticks), *_differences(steps)]
        return base64.b64encode(b"".join(map(_varint, numbers))).decode()


def series_of(points: Sequence[tuple[float, float]]) -> PowerSeries:
    """The series of (time in s, power in W), the oldest first; see ``MOST_POINTS``."""
    group = max(1, math.ceil(len(points) / MOST_POINTS))
    parts = [points[i : i + group] for i in range(0, len(points), group)]
    return PowerSeries(
        tuple(part[0][0] for part in parts), tuple(sum(w for _, w in part) / len(part) for part in parts)
    )


def mean_powers(ticks: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Mean power in W from each tick of an energy counter to the next, with the time of the tick.

    A counter that restarts, or a tick that is not later than the one before, leaves a gap.

    Args:
        ticks: (time in s, joules), the oldest first.
    """
    return [
        (time_s, (after_j - before_j) / (next_s - time_s))
        for (time_s, before_j), (next_s, after_j) in pairwise(ticks)
        if next_s > time_s and after_j >= before_j
    ]


def unpacked(text: str) -> PowerSeries:
    """The series of a packed text.

    Raises:
        ValueError: ``PowerSeries.packed`` did not write it.
    """
    try:
        numbers = list(_numbers(base64.b64decode(text, validate=True)))
    except binascii.Error as error:
        raise ValueError("a power series is not base64") from error
    if not numbers:
        return PowerSeries((), ())
    exponent, count, *values = numbers if len(numbers) > 1 else (0, 0)
    if not 0 < count <= MOST_POINTS or len(values) != 2 * count or abs(exponent) > _MOST_EXPONENT:
        raise ValueError("a power series has another form")
    times = tuple(round(tick * _TICK_S, 4) for tick in _sums(values[:count]))
    watts = tuple(round(step * 10.0**exponent, max(0, -exponent)) for step in _sums(values[count:]))
    return PowerSeries(times, watts)


def _step_exponent(highest_w: float) -> int:
    if highest_w <= 0:
        return _LEAST_EXPONENT
    return max(math.floor(math.log10(highest_w)) + 1 - _DIGITS, _LEAST_EXPONENT)


def _differences(values: Sequence[int]) -> list[int]:
    return [value - before for value, before in zip(values, [0, *values[:-1]], strict=True)]


def _sums(differences: Sequence[int]) -> Iterator[int]:
    total = 0
    for one in differences:
        total += one
        yield total


def _varint(number: int) -> bytes:
    """A whole number in seven bits a byte, its sign in the lowest bit."""
    rest, found = (2 * number if number >= 0 else -2 * number - 1), bytearray()
    while rest > _SEVEN:
        found.append(rest & _SEVEN | _MORE)
        rest >>= 7
    return bytes([*found, rest])


def _numbers(data: bytes) -> Iterator[int]:
    if len(data) > _MOST_BYTES:
        raise ValueError("a power series is too long")
    number, shift = 0, 0
    for byte in data:
        number |= (byte & _SEVEN) << shift
        shift += 7
        if number > _LARGEST:
            raise ValueError("a power series has a number that is too large")
        if not byte & _MORE:
            yield number >> 1 if number % 2 == 0 else -(number + 1 >> 1)
            number, shift = 0, 0
    if shift:
        raise ValueError("a power series has no end")
