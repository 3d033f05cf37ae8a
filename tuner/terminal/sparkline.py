"""Power over time in one line of a terminal, with its scale."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

BIN_S = 5
"""Seconds of a character."""

_BARS = "▁▂▃▄▅▆▇█"
_NICE = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def bins(samples: Iterable[Mapping[str, Any]], count: int) -> list[float | None]:
    """Mean power of each of the newest intervals of `BIN_S`; None where nothing was measured.

    Intervals begin at whole multiples of their length, so that a drawn one moves and does not change.

    Args:
        samples: of a device, with ``at`` and ``watts``, oldest first.
        count: intervals.
    """
    watts: dict[int, list[float]] = {}
    newest = 0
    for sample in samples:
        try:
            newest = int(datetime.fromisoformat(str(sample.get("at"))).timestamp()) // BIN_S
        except ValueError:
            continue
        value = sample.get("watts")
        if isinstance(value, int | float) and math.isfinite(value):
            watts.setdefault(newest, []).append(value)
    numbers = range(newest - count + 1, newest + 1)
    return [sum(watts[number]) / len(watts[number]) if number in watts else None for number in numbers]


def top(values: Iterable[float | None]) -> float | None:
    """The end of a scale from zero on which all values fit: a round number; None where there is no value."""
    highest = max((value for value in values if value is not None), default=None)
    if highest is None or highest <= 0.0:
        return highest
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in _NICE if step * power >= highest * (1 - 1e-9))


def sparkline(values: Sequence[float | None], highest: float) -> str:
    """A bar per value on a scale from 0 to the highest; a space where there is none."""
    steps, highest = len(_BARS), highest or 1.0
    places = (None if value is None else math.ceil(steps * value / highest) - 1 for value in values)
    return "".join(" " if place is None else _BARS[min(max(place, 0), steps - 1)] for place in places)
