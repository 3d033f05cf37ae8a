"""What recordings tell of a sensor that later ones profit from: the period of its ticks, and its noise."""

import math
from collections import deque

from .noise import Spread
from .ticks import Period

_WINDOWS = 32  # whose noise is kept
_CALM = 4  # a quarter of them: so many at least have a steady load, or noise is taken for larger than it is
_BRIDGED = 0.07  # of a period: where a pause leaves the next tick less certain, ticks are not counted over it
_MISSED = 0.2  # of a period: a tick farther from where it was due is of another rhythm


class Learned:
    """What is known of one sensor.

    A tick is dated to some milliseconds whatever the recording's length, so the period is the surer the
    farther apart the ticks are that it is taken from: ticks are counted over pauses, from the first recording
    on, as long as the period is known well enough to count them.
    """

    def __init__(self) -> None:
        self._noise: deque[Spread] = deque(maxlen=_WINDOWS)
        self._anchor_s = 0.0
        self._last_s = 0.0
        self._count = 0
        self.period: Period | None = None

    @property
    def noise(self) -> Spread | None:
        """Variance of a sample in units of its power squared (of a tick: seconds squared); None at first.

        A window that scatters more than one of the calmest quarter by more than chance had an unsteady load.
        """
        if not self._noise:
            return None
        calm = sorted(self._noise, key=lambda spread: spread.variance)[len(self._noise) // _CALM]
        usual = [spread for spread in self._noise if not spread.exceeds(calm)]
        degrees = math.fsum(spread.degrees for spread in usual)
        squares = math.fsum(spread.variance * spread.degrees for spread in usual)
        return Spread(squares / degrees, degrees)

    def tell_noise(self, spread: Spread) -> None:
        """Add the relative noise of a window."""
        if spread.degrees > 0 and math.isfinite(spread.variance):
            self._noise.append(spread)

    def tell_ticks(self, first_s: float, last_s: float, sigma_s: float, own: Period) -> None:
        """Add the first and last tick of a recording.

        Args:
            first_s: time of the first tick.
            last_s: time of the last.
            sigma_s: standard uncertainty that ticks are dated with.
            own: the period this recording found by itself.
        """
        if self.period is not None and self._anchor_s <= first_s and last_s <= self._last_s:
            return  # another window of a recording that was told of
        between = self._between(first_s)
        if between is None:
            self._anchor_s, self._count = first_s, 0
        else:
            self._count += between
        self._last_s = last_s
        period = own if self.period is None or between is None else self.period
        self._count += round((last_s - first_s) / period.seconds)
        found = own
        if self._count > 0:
            seconds = (last_s - self._anchor_s) / self._count
            found = Period(seconds, math.sqrt(2.0) * sigma_s / self._count)
        self.period = min((found, own), key=lambda period: period.sigma_s)

    def _between(self, first_s: float) -> int | None:
        """Ticks since the last recording's last; None where they cannot be counted."""
        if self.period is None or first_s <= self._last_s:
            return None
        ticks = (first_s - self._last_s) / self.period.seconds
        count = round(ticks)
        if count * self.period.sigma_s > _BRIDGED * self.period.seconds or abs(ticks - count) > _MISSED:
            return None
        return count
