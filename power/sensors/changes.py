"""Fresh samples of a number that must be polled, each dated between two reads."""

import statistics
from collections import deque
from collections.abc import Callable

from tuner.interfaces import Sample

_UNDATED_S = 0.25  # a change first seen after a longer pause has no time
_PAUSE_S = 1.0  # longer between two samples nobody polled
_GAPS = 32  # gaps that are kept
_FEW = 4  # of fewer gaps no rhythm is taken
_READS = 32  # durations of reads that are kept
_AWAKE = 0.15  # before the end of the shortest gap an update is looked out for,
_AWAKE_READS = 4.0  # or as many reads before it
_SQRT_12 = 12.0**0.5


class Gaps:
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
        self.gaps = Gaps()

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
