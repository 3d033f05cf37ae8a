"""A load that no model of a sensor supposes: it warms, and its power takes a while to rise and to fall."""

import bisect
import math
from collections.abc import Sequence

WARM_UP_S = 10.0  # time constant of the warming
IDLE_W, BUSY_W = 48.0, 173.0  # of a simulated K20c
_STEP_S = 0.05  # pieces of power while it warms,
_STEPS = 6.0  # and in the time constant of a rise
_REACHED = 1e-3  # of a step: what is left of it counts as nothing


class TroubledLoad:
    """Implements ``tuner.power.base.LoadSource`` and ``PowerSource`` on a virtual clock.

    Args:
        warming: share by which the load draws more once it is warm.
        rise_s: time constant with which its power rises and falls.
    """

    def __init__(self, warming: float = 0.0, rise_s: float = 0.0) -> None:
        self._warming, self._rise_s = warming, rise_s
        self._heat = self._level = 0.0
        self._ends_s = [0.0]
        self._watts = [IDLE_W]

    def now_s(self) -> float:
        """Present time."""
        return self._ends_s[-1]

    def sleep(self, seconds: float) -> None:
        """Stay idle."""
        self._draw(seconds, 0.0)

    def pulse(self, pulses: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Play (busy, idle) seconds; returns the busy times."""
        played = []
        for busy_s, idle_s in pulses:
            begin_s = self.now_s()
            self._draw(busy_s, 1.0)
            played.append((begin_s, self.now_s()))
            self._draw(idle_s, 0.0)
        return played

    def power_segments(self, since_s: float) -> list[tuple[float, float, float]]:
        """(start, end, watts) pieces from ``since_s`` to now; idle before 0."""
        first = bisect.bisect_right(self._ends_s, since_s)
        if first >= len(self._ends_s):
            return []
        starts = [since_s, *self._ends_s[first:-1]]
        return list(zip(starts, self._ends_s[first:], self._watts[first:], strict=True))

    def _draw(self, seconds: float, target: float) -> None:
        """Append pieces of the mean power of a level that moves to its target."""
        left_s = seconds
        while left_s > 0:
            moves = self._rise_s > 0 and abs(self._level - target) > _REACHED
            step_s = min(left_s, self._rise_s / _STEPS if moves else _STEP_S)
            level = self._level = self._level if moves else target
            if moves:
                kept = math.exp(-step_s / self._rise_s)
                self._level = target + (level - target) * kept
                level = target + (level - target) * (1.0 - kept) * self._rise_s / step_s
            watts = IDLE_W + (BUSY_W - IDLE_W) * level * (1.0 + self._warming * self._heat)
            self._heat += (level - self._heat) * -math.expm1(-step_s / WARM_UP_S)
            self._ends_s.append(self._ends_s[-1] + step_s)
            self._watts.append(watts)
            left_s = left_s - step_s if left_s - step_s > 1e-12 else 0.0
