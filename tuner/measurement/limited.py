"""Longer windows at the power limit: until the joules of a round do not depend on the window any more.

A GPU may be above its limit for some 100 ms, until its controller has lowered the clock, and then swings
about the limit with a period of a second. A window of 0.8 s of an H200 showed 733 W under a limit of 700 W,
and 94.7 mJ of a round; one of 4 s 89.6 mJ. Throttle reasons need not have been seen in the short one.
"""

from collections.abc import Callable
from dataclasses import replace

from tuner.measurement.settle import FLAT
from tuner.model.trial import Flag, FlagKind, Measurement

MOST_TIMES = 8.0
"""Times the usual window: no longer one is tried."""

LONGEST_S = 8.0
"""No longer window is tried."""


_LEAST_STEP = 1.5  # times the window before: two about as long tell nothing


class LimitedWindows:
    """Chooses the windows of trials at the power limit. A run learns which length was enough.

    Args:
        length_s: of a usual window.
        precision: wanted of joules.
    """

    def __init__(self, length_s: float, precision: float) -> None:
        self._most_s = max(length_s, min(MOST_TIMES * length_s, LONGEST_S))
        self._flat = max(FLAT, precision / 2.0)
        self._enough_s = length_s

    def lengthened(
        self,
        first: Measurement,
        measure: Callable[[float], Measurement],
        worse: Callable[[Measurement], bool],
    ) -> list[Measurement]:
        """Windows behind the first one of a trial at its power limit, each twice as long; the last counts.

        Two that agree within 0.5 %, or half of the wanted precision, end it. A window's own interval does
        not: it is wide because power changes in it. The second one may be half of what was enough before.

        Args:
            first: a window at the limit.
            measure: measures the trial in a window of so many seconds.
            worse: True for a trial whose joules are clearly too many, however much its windows differ.
        """
        windows = [first]
        length_s = max(first.window_s, self._enough_s / 4.0)
        change: float | None = None
        while _LEAST_STEP * length_s < self._most_s and not worse(windows[-1]):
            length_s = min(2.0 * length_s, self._most_s)
            windows.append(measure(length_s))
            change = self._change(*windows[-2:])
            if not change:
                break
        self._enough_s = length_s
        if change and _LEAST_STEP * length_s >= self._most_s:
            detail = f"energy still changed by {change:+.1%} in windows of {length_s:.2g} s"
            flags = (*windows[-1].flags, Flag(FlagKind.UNSETTLED, detail))
            windows[-1] = replace(windows[-1], flags=flags)
        return windows[1:]

    def _change(self, shorter: Measurement, longer: Measurement) -> float | None:
        """Relative change of joules; 0 where that is flat, None where there are none, or off the limit."""
        if shorter.energy is None or longer.energy is None or not is_limited(longer):
            return None
        change = longer.energy.joules / shorter.energy.joules - 1.0
        return 0.0 if abs(change) <= self._flat else change


def is_limited(measurement: Measurement) -> bool:
    """True for joules of a window in which mean power was at the limit, or above it."""
    return measurement.energy is not None and FlagKind.POWER_LIMIT in measurement.flag_kinds
