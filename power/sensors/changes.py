"""Fresh samples of a number that must be polled: each update once, with its time.

``ChangeSource`` reports changes, dated between two reads. ``Freshness`` also counts an update that repeats
the number. A look that finds the old value has two reasons: the sensor was not updated, and then it is no
sample, or it was and power did not move by as much as one step, and then leaving it out would bias the mean.
The sensor's period tells them apart: after so long an update is due, whatever its value. Where the period is
not known it is taken from the changes, of which at least every eighth follows its predecessor at the next
update.
"""

import statistics
from collections import deque
from collections.abc import Callable, Iterable

from tuner.model.errors import PowerError, SensorUnavailableError

from ..base import Sample, SensorInfo

_UNDATED_S = 0.25  # a change first seen after a longer pause has no time
_PAUSE_S = 1.0  # longer between two samples nobody polled
_GAPS = 32  # gaps that are kept
_FEW = 4  # of fewer gaps no rhythm is taken
_LOOKED_S = 1.0  # of the time between two looks as much counts as watched
_READS = 32  # durations of reads that are kept
_AWAKE = 0.15  # before the end of the shortest gap an update is looked out for,
_AWAKE_READS = 4.0  # or as many reads before it
_SQRT_12 = 12.0**0.5
_SLACK = 0.25  # of a period: a look before the next update, by its uncertain time, proves nothing
_TORN = 0.5  # of a period: two numbers of one update may be seen one by one, no two updates come so near
_JITTER = 0.02  # of a period: an update that was not seen to happen may be off by so much
_CHANGES = 64  # gaps between changes that a period is learnt from
_ENOUGH = 8  # of fewer nothing is learnt, and the shortest of so many is the period


def check_answers(info: SensorInfo, values: Iterable[float]) -> None:
    """Refuse a sensor by what it shows when it is opened: watts, or joules of a counter, which has counted.

    Raises:
        SensorUnavailableError: none of the values is a reading.
    """
    readings = list(values)
    if not any(info.is_reading(value) and (value or info.kind != "counter") for value in readings):
        raise SensorUnavailableError(f"{info.name}: reads {readings[0]:g}")


def sound(info: SensorInfo, samples: Iterable[Sample]) -> list[Sample]:
    """The samples that are readings: a sensor that shows nothing for a while shows no power of 0 W."""
    return [sample for sample in samples if info.is_reading(sample.value)]


class SampleGaps:
    """Times between the latest samples, pauses left out."""

    def __init__(self) -> None:
        self._gaps_s: deque[float] = deque(maxlen=_GAPS)
        self._last_s: float | None = None

    def add(self, time_s: float) -> None:
        """Note the time of a sample."""
        if self._last_s is not None and 0 < time_s - self._last_s < _PAUSE_S:
            self._gaps_s.append(time_s - self._last_s)
        self._last_s = time_s

    @property
    def median_s(self) -> float | None:
        """Median gap; None while there are too few."""
        gaps_s = list(self._gaps_s)  # at once: the meter's thread adds to them
        return statistics.median(gaps_s) if len(gaps_s) >= _FEW else None

    @property
    def shortest_s(self) -> float:
        """Shortest gap; 0 while there are too few."""
        return min(self._gaps_s) if len(self._gaps_s) >= _FEW else 0.0


class StallDetector:
    """Tells a sensor that has stopped from one that nobody looked at.

    Args:
        what: the reading and its GPU, for the message.
        limit_s: how long it may stand still while it is watched.
        now: a clock, in seconds.
    """

    def __init__(self, what: str, limit_s: float, now: Callable[[], float]) -> None:
        self._what = what
        self._limit_s = limit_s
        self._now = now
        self._looked_s = now()
        self._silent_s = 0.0

    def note(self, *, moved: bool) -> None:
        """Note a look.

        Raises:
            PowerError: nothing has moved for too long.
        """
        since_s, self._looked_s = self._now() - self._looked_s, self._now()
        self._silent_s = 0.0 if moved else self._silent_s + min(since_s, _LOOKED_S)
        if self._silent_s > self._limit_s:
            raise PowerError(f"{self._what} stopped updating: no change in {self._silent_s:.0f} s")


class DatedReads:
    """Reads of a number, and between which times each was taken.

    Where within a read the number is taken is unknown but always the same, so that it cancels between two
    reads: it is dated to the middle. A read that took longer than usual waited, before or after that moment,
    and counts with both.

    Args:
        read: reads the number; its errors pass through.
        now: clock of the reads, in seconds.
    """

    def __init__(self, read: Callable[[], float], now: Callable[[], float]) -> None:
        self._read = read
        self._now = now
        self._durations_s: deque[float] = deque(maxlen=_READS)

    def look(self) -> tuple[float, float, float]:
        """The number, and the earliest and latest time it may be of."""
        began_s = self._now()
        value = self._read()
        ended_s = self._now()
        self._durations_s.append(ended_s - began_s)
        middle_s, half_s = (began_s + ended_s) / 2.0, self.usual_s / 2.0
        return value, min(middle_s, began_s + half_s), max(middle_s, ended_s - half_s)

    @property
    def usual_s(self) -> float:
        """Median duration of a read; there must have been one."""
        return statistics.median(self._durations_s)


class ChangeSource:
    """Fresh samples of a number that is polled: one for each change, dated between two reads.

    An update is dated between the last read that saw the old number and the first that saw the new one (see
    ``DatedReads``). The sample carries the middle of the interval, and its width over sqrt(12) as
    uncertainty. Once the rhythm of the updates is known, polls right after one read nothing: each read is
    work for the driver of a GPU that is being measured.

    Args:
        read: reads the number; its errors pass through.
        scale: of the number to watts or joules.
        now: clock of the samples, in seconds.
    """

    def __init__(self, read: Callable[[], float], scale: float, now: Callable[[], float]) -> None:
        self._reads = DatedReads(read, now)
        self._scale = scale
        self._now = now
        self._last, self._seen_s, _ = self._reads.look()
        self.due_s = self._seen_s
        self.gaps = SampleGaps()

    def poll(self) -> list[Sample]:
        """The latest update, if there was one since the last call and its time is known."""
        if self._now() < self.due_s:
            return []
        value, earliest_s, latest_s = self._reads.look()
        since_s, self._seen_s = self._seen_s, earliest_s
        changed, self._last = value != self._last, value
        width_s = latest_s - since_s
        if not changed or width_s > _UNDATED_S:
            return []
        sample = Sample(since_s + width_s / 2.0, value * self._scale, width_s / _SQRT_12)
        self.gaps.add(sample.time_s)
        gap_s = self.gaps.shortest_s
        # The next update must not come before a read that still sees the old number, even a slow one.
        self.due_s = since_s + gap_s - max(_AWAKE * gap_s, _AWAKE_READS * self._reads.usual_s)
        return [sample]


class Freshness:
    """Tells updates of a value from repeats, and dates them.

    A change happened between the look that saw it and the one before. An update that changed nothing is dated
    a period after the last. The sample carries the standard uncertainty of that.

    Args:
        period_s: time between updates in seconds; where ``learn``, what is assumed of it.
        learn: take the period from the changes once there are enough.
    """

    def __init__(self, period_s: float, *, learn: bool = False) -> None:
        self.period_s = period_s
        self._learn = learn
        self._gaps_s: deque[float] = deque(maxlen=_CHANGES)
        self._value: float | None = None
        self._seen_s = 0.0  # the last look
        self._updated_s = 0.0  # the last update
        self._sigma_s = 0.0  # of its time
        self._changed_s: float | None = None  # the last change

    def look(self, time_s: float, value: float) -> Sample | None:
        """Take in one look; the sample it is, or None for a repeat.

        The first look is none: nobody knows how old its value is. Time that goes backwards begins anew.
        """
        since_s, self._seen_s = self._seen_s, time_s
        before, self._value = self._value, value
        if before is None or time_s < since_s:
            self._updated_s = time_s
            self._sigma_s = self.period_s / _SQRT_12
            self._changed_s = None
            return None
        if value != before:
            return self._change(since_s, time_s, value)
        if time_s - self._updated_s < (1.0 + _SLACK) * self.period_s:
            return None
        return self._repeat(time_s, value)

    def _change(self, since_s: float, time_s: float, value: float) -> Sample | None:
        earliest_s = max(since_s, time_s - self.period_s)
        middle_s = (earliest_s + time_s) / 2.0
        gap_s = middle_s - self._changed_s if self._changed_s is not None else 0.0
        if not self._learn and self._changed_s is not None and gap_s < _TORN * self.period_s:
            return None
        if gap_s > 0:
            self._gaps_s.append(gap_s)
        self._changed_s = middle_s
        if self._learn and len(self._gaps_s) >= _ENOUGH:
            self.period_s = sorted(self._gaps_s)[len(self._gaps_s) // _ENOUGH]
        return self._sample(middle_s, value, (time_s - earliest_s) / _SQRT_12)

    def _repeat(self, time_s: float, value: float) -> Sample:
        due_s = self._updated_s + self.period_s
        unknown_s = self.period_s / _SQRT_12
        if time_s - due_s > self.period_s:  # at least one more was not looked at
            return self._sample(time_s - self.period_s / 2.0, value, unknown_s)
        jitter_s = _JITTER * self.period_s
        return self._sample(due_s, value, min((self._sigma_s**2 + jitter_s**2) ** 0.5, unknown_s))

    def _sample(self, time_s: float, value: float, sigma_s: float) -> Sample:
        self._updated_s, self._sigma_s = time_s, sigma_s
        return Sample(time_s, value, sigma_s)
