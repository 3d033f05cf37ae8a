"""Samples of a regularly ticking counter, with few reads.

A read of the energy counter of an H200 takes 2.4 to 4.5 ms, and all of it is work of a CPU. Its ticks, once
dated by polling, lie on a straight line within 1 ms, so that afterwards one read between two ticks tells what
the counter was at the earlier one.

The rhythm here plans the reads. A sample states the interval in which its tick came; ``energy.counters``
dates the ticks of a recording from these intervals.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..base import Sample
from .changes import DatedReads, SampleGaps

_UNDATED_S = 0.25  # a change first seen after a longer pause has no time
_PAUSE_S = 1.0  # over a longer one no ticks are counted while the rhythm is not known
_TICKS = 32  # dated ticks that are kept
_LEARNT = 8  # of fewer dated ticks no rhythm is taken
_REGULAR = 0.04  # of the period: ticks that scatter more have no rhythm; dating alone makes 1.8 % on an H200
_CERTAIN = 0.03  # of the period: where the next tick is less certain, it is to be dated
_USABLE = 0.04  # of the period: a read already made for a tick that is less certain tells nothing
_LOST = 0.25  # of the period: a tick less certain might be its neighbour
_USEFUL = 0.05  # of the period: a tick dated worse says nothing of a rhythm
_CLEAR = 0.1  # of the period: so far from a tick a read is surely after it
_SIGMAS = 4.0  # and so many standard uncertainties
_TAILS = 6.0  # over the degrees of freedom: how much wider the tails of Student's distribution are
_LEAST_S = 1e-6  # no tick is dated better
_DRIFT = 5e-5  # of the time since a tick was dated: two clocks of two crystals, one of them disciplined
_AWAKE = 0.15  # before the end of the shortest gap a tick is looked out for,
_AWAKE_READS = 4.0  # or as many reads before it
_SQRT_12 = math.sqrt(12.0)


@dataclass(frozen=True)
class Rhythm:
    """Ticks at ``origin_s + number * period_s``: a straight line through dated ones.

    Attributes:
        origin_s: time of tick 0, in the middle of the dated ones.
        period_s: time between ticks.
        origin_sigma_s: standard uncertainty of the origin.
        period_sigma_s: standard uncertainty of the period.
        newest_s: time of the last tick that was dated.
    """

    origin_s: float
    period_s: float
    origin_sigma_s: float
    period_sigma_s: float
    newest_s: float

    def number(self, time_s: float) -> int:
        """Number of the last tick before a time."""
        return int((time_s - self.origin_s) // self.period_s)

    def tick_s(self, number: int) -> float:
        """Time of a tick."""
        return self.origin_s + number * self.period_s

    def uncertainty_s(self, time_s: float) -> float:
        """Standard uncertainty of a tick near a time: that of the line, and the drift since its end."""
        number = (time_s - self.origin_s) / self.period_s
        line_s = math.hypot(self.origin_sigma_s, self.period_sigma_s * number)
        return line_s + _DRIFT * max(0.0, time_s - self.newest_s)


def fitted(ticks: Sequence[tuple[float, float]], period_s: float) -> Rhythm | None:
    """The rhythm of ticks, or None where there are too few or they have none.

    Args:
        ticks: (time, standard uncertainty) of ticks in seconds, oldest first; some between may be missing.
        period_s: about the time between two neighbours, to number them by.
    """
    steps = [round((b - a) / period_s) for (a, _), (b, _) in itertools.pairwise(ticks)]
    if len(ticks) < _LEARNT or min(steps) < 1:
        return None
    times_s, sigmas_s = (np.array(column) for column in zip(*ticks, strict=True))
    numbers = np.concatenate(([0], np.cumsum(steps)))
    weights = np.maximum(sigmas_s, _LEAST_S) ** -2.0
    mean, mean_s = np.average(numbers, weights=weights), np.average(times_s, weights=weights)
    lever = np.sum(weights * (numbers - mean) ** 2)
    slope_s = np.sum(weights * (numbers - mean) * (times_s - mean_s)) / lever
    off_s = times_s - mean_s - slope_s * (numbers - mean)
    freedom = len(ticks) - 2
    # few ticks may lie on a line by chance, so that they are no better than each was dated
    excess = max(1.0, math.sqrt(np.sum(weights * off_s**2) / freedom))
    if excess * np.median(sigmas_s) > _REGULAR * slope_s:
        return None
    excess *= 1.0 + _TAILS / freedom
    return Rhythm(
        origin_s=float(mean_s + slope_s * (np.round(mean) - mean)),
        period_s=float(slope_s),
        origin_sigma_s=excess / math.sqrt(np.sum(weights)),
        period_sigma_s=excess / math.sqrt(lever),
        newest_s=float(times_s[-1]),
    )


class RhythmSource:
    """Fresh samples of a regularly ticking counter, one read each.

    Until the rhythm is known, and where there is none, a tick is dated between two polls that saw different
    numbers, as by ``changes.ChangeSource``. With a rhythm each wanted tick is read once, shortly after it,
    and one tick is dated by polling again whenever its time has become uncertain by 3 % of the period, which
    drift lets happen once a minute. A tick that did not come at its time ends the rhythm.

    Args:
        read: reads the counter; its errors pass through.
        scale: of the number to joules.
        now: clock of the samples, in seconds.
        interval_s: time between wanted samples; 0 for every tick.

    Attributes:
        rhythm: the rhythm found; None while there is none.
    """

    def __init__(
        self, read: Callable[[], float], scale: float, now: Callable[[], float], *, interval_s: float = 0.0
    ) -> None:
        self._reads = DatedReads(read, now)
        self._scale = scale
        self._now = now
        self._interval_s = interval_s
        self._ticks: deque[tuple[float, float]] = deque(maxlen=_TICKS)
        self.rhythm: Rhythm | None = None
        self._dating = False
        self._reported: tuple[float, float] | None = None
        self._last, self._seen_s, _ = self._reads.look()
        self.due_s = self._seen_s
        self.gaps = SampleGaps()

    def poll(self) -> list[Sample]:
        """The latest tick, if there was a wanted one since the last call and its time is known."""
        if self._now() < self.due_s:
            return []
        value, earliest_s, latest_s = self._reads.look()
        since_s, self._seen_s = self._seen_s, earliest_s
        changed, self._last = value != self._last, value
        rhythm = self.rhythm
        if rhythm is not None and rhythm.uncertainty_s(latest_s) > _LOST * rhythm.period_s:
            self._forget()
            rhythm = None
        usable = rhythm is not None and rhythm.uncertainty_s(latest_s) <= _USABLE * rhythm.period_s
        if rhythm is not None and usable and not self._dating:
            tick = self._placed(rhythm, value, earliest_s, latest_s)
        else:
            tick = self._dated(since_s, latest_s, changed=changed)
        if tick is None or (self._reported is not None and tick[0] <= self._reported[0]):
            return []
        self._reported = tick[0], value
        return [Sample(tick[0], value * self._scale, tick[1])]

    def _forget(self) -> None:
        self.rhythm = None
        self._ticks.clear()

    def _placed(
        self, rhythm: Rhythm, value: float, earliest_s: float, latest_s: float
    ) -> tuple[float, float] | None:
        """Time and uncertainty of the tick a read came after; None where that is not clear."""
        number = rhythm.number(earliest_s)
        tick_s = rhythm.tick_s(number)
        clear_s = _clear_s(rhythm, latest_s)
        if earliest_s < tick_s + clear_s or latest_s > tick_s + rhythm.period_s - clear_s:
            self.due_s = rhythm.tick_s(rhythm.number(latest_s - clear_s) + 1) + clear_s
            return None
        before = self._reported
        if before is not None and value == before[1] and tick_s > before[0] + rhythm.period_s / 2.0:
            self._forget()
            return None
        self._plan(rhythm, tick_s)
        return tick_s, rhythm.uncertainty_s(tick_s)

    def _dated(self, since_s: float, latest_s: float, *, changed: bool) -> tuple[float, float] | None:
        """Time and uncertainty of a change seen between two reads; None where there was none."""
        width_s = latest_s - since_s
        tick = (since_s + width_s / 2.0, width_s / _SQRT_12)
        if not changed or width_s > _UNDATED_S:
            self._await(latest_s)
            return None
        period_s = self.rhythm.period_s if self.rhythm else self.gaps.median_s
        if self.rhythm is None and self._ticks and tick[0] - self._ticks[-1][0] > _PAUSE_S:
            self._ticks.clear()
        if period_s is None or tick[1] < _USEFUL * period_s:
            if self.rhythm is None:  # with one, ticks are dated now and then, and their gaps say nothing
                self.gaps.add(tick[0])
            self._ticks.append(tick)
            period_s = period_s or self.gaps.median_s
            self.rhythm = fitted(tuple(self._ticks), period_s) if period_s else None
        elif self.rhythm is not None:
            self._await(latest_s)
            return None
        if self.rhythm is None:
            gap_s = self.gaps.shortest_s
            wait_s = max(gap_s, self._interval_s if len(self._ticks) >= _TICKS else 0.0)
            self.due_s = since_s + wait_s - max(_AWAKE * gap_s, _AWAKE_READS * self._reads.usual_s)
        else:
            self._plan(self.rhythm, tick[0])
        return tick

    def _plan(self, rhythm: Rhythm, tick_s: float) -> None:
        """Look again at the next wanted tick after one."""
        step = max(1, round(self._interval_s / rhythm.period_s))
        next_s = rhythm.tick_s(rhythm.number(tick_s + rhythm.period_s / 2.0) + step)
        self.due_s = next_s + _clear_s(rhythm, next_s)
        self._dating = rhythm.uncertainty_s(self.due_s) > _CERTAIN * rhythm.period_s
        if self._dating:
            self._await(next_s - rhythm.period_s / 2.0)

    def _await(self, time_s: float) -> None:
        """Start to date a rhythm anew: schedule reads from before the first tick after a time."""
        rhythm = self.rhythm
        if rhythm is None:
            return
        self._dating = True
        next_s = rhythm.tick_s(rhythm.number(time_s) + 1)
        before_s = max(_SIGMAS * rhythm.uncertainty_s(next_s), _AWAKE_READS * self._reads.usual_s)
        late_s = rhythm.tick_s(rhythm.number(time_s)) + before_s  # the last tick may still be to come
        self.due_s = time_s if time_s < late_s else next_s - before_s


def _clear_s(rhythm: Rhythm, time_s: float) -> float:
    """Return the distance from a tick, in s, at which a read is surely after it and before the next."""
    return max(_CLEAR * rhythm.period_s, _SIGMAS * rhythm.uncertainty_s(time_s))
