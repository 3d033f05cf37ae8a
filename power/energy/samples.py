"""Samples of one reading as arrays: the one series that all of this package computes with.

Samples that cannot be are left out before anything is computed, and a note tells the reader.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..base import LEAST_W, MOST_W, Sample, SensorInfo
from ..response.models import Array

_RESOLVED_S = 1e-9  # what a host's clock tells apart

_MOST_S = 1e12  # no clock of a host shows more
_GAP_PERIODS = 3.0  # a pause this long is told; single updates come late on every sensor
_DATES = 4.0  # standard uncertainties that a date may be off by


def median(values: Array) -> float:
    """Middle of numbers, at least one: NumPy's own imports masked arrays, which takes long."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] + ordered[-half - 1]) / 2.0


@dataclass(frozen=True)
class SampleSeries:
    """Samples as arrays of shape (n,), oldest first.

    Attributes:
        times_s: times of the sensor's updates.
        values: watts, or joules of a counter.
        time_sigmas_s: standard uncertainties of the times, independent of each other.
        scale_sigma: relative standard uncertainty common to all time between samples.
    """

    times_s: Array
    values: Array
    time_sigmas_s: Array
    scale_sigma: float = 0.0

    @staticmethod
    def of(samples: Sequence[Sample]) -> "SampleSeries":
        """Collect samples; one that is not later than all before it, by a nanosecond, is left out."""
        rows = np.array([(s.time_s, s.value, s.time_sigma_s) for s in samples], dtype=np.float64)
        rows = rows.reshape(-1, 3)
        if len(rows):
            latest = np.maximum.accumulate(rows[:, 0])
            rows = rows[np.concatenate(([True], rows[1:, 0] > latest[:-1] + _RESOLVED_S))]
        return SampleSeries(rows[:, 0], rows[:, 1], rows[:, 2])

    def __len__(self) -> int:
        return len(self.times_s)

    def at(self, which: npt.NDArray[np.bool_] | list[int] | slice) -> "SampleSeries":
        """The samples of a mask, of a list of indices, or of a slice."""
        return replace(
            self,
            times_s=self.times_s[which],
            values=self.values[which],
            time_sigmas_s=self.time_sigmas_s[which],
        )

    def between(self, start_s: float, end_s: float) -> "SampleSeries":
        """The samples from ``start_s`` to ``end_s``."""
        return self.at((self.times_s >= start_s) & (self.times_s <= end_s))

    def before(self, start_s: float, end_s: float) -> "SampleSeries":
        """The samples from ``start_s`` on that come before ``end_s``."""
        return self.at((self.times_s >= start_s) & (self.times_s < end_s))

    def part(self, first: int, last: int) -> "SampleSeries":
        """The samples from index ``first`` to ``last``, both included."""
        return self.at(slice(first, last + 1))

    def earlier(self, seconds: float) -> "SampleSeries":
        """The samples at times ``seconds`` before theirs."""
        return replace(self, times_s=self.times_s - seconds) if seconds else self

    @property
    def duration_s(self) -> float:
        """Time from the first sample to the last."""
        return float(self.times_s[-1] - self.times_s[0]) if len(self) else 0.0


def screened(samples: Sequence[Sample], info: SensorInfo) -> tuple[SampleSeries, tuple[str, ...]]:
    """The plausible samples of a reading, and notes on the others.

    Of a counter that went back, or jumped, as when a driver was loaded anew, the longest part without that is
    kept; of one that stands still nothing.
    """
    series, notes = plausible(samples, info)
    if info.kind == "counter" and len(series) > 1 and np.ptp(series.values) == 0.0:
        return series.at(slice(0, 0)), (*notes, "sensor-values: the counter stands still")
    if info.kind == "counter" and len(series) > 1:
        unbroken = _unbroken(series, info)
        if len(unbroken) < len(series):
            note = "sensor-reset: the counter went back or jumped; only one side of that is used"
            return unbroken, (*notes, note)
    return series, notes


def plausible(samples: Sequence[Sample], info: SensorInfo) -> tuple[SampleSeries, tuple[str, ...]]:
    """The samples that can be, and notes on the others.

    Left out are what is no reading (``SensorInfo.is_reading``), and samples that are not later than all
    before them.
    """
    notes = []
    whole = [
        s
        for s in samples
        if info.is_reading(s.value) and abs(s.time_s) <= _MOST_S and 0.0 <= s.time_sigma_s <= _MOST_S
    ]
    if len(whole) < len(samples):
        notes.append(f"sensor-values: {len(samples) - len(whole)} of {len(samples)} samples cannot be")
    series = SampleSeries.of(whole)
    if len(series) < len(whole):
        late = len(whole) - len(series)
        notes.append(f"sensor-time: {late} of {len(whole)} samples are not later than the one before")
    return series, tuple(notes)


def gaps(
    series: SampleSeries, start_s: float, end_s: float, info: SensorInfo, least_s: float = 0.0
) -> Iterator[tuple[float, float]]:
    """(start, end) of each pause of more than three periods in a window, its ends included.

    Args:
        series: samples, dated by the power they show.
        start_s: begin of the window.
        end_s: its end.
        info: the reading.
        least_s: shorter pauses are none.
    """
    period_s = max(info.period_s, median(np.diff(series.times_s)) if len(series) > 1 else 0.0)
    inside = series.between(start_s, end_s).times_s
    edges = np.concatenate(([start_s], inside, [end_s]))
    for begin, end in itertools.pairwise(edges):
        if end - begin > max(least_s, _GAP_PERIODS * period_s):
            yield float(begin), float(end)


def _unbroken(ticks: SampleSeries, info: SensorInfo) -> SampleSeries:
    """The longest part of a counter's ticks between which power was possible.

    A tick that was seen late leaves little time to the next, so a period and what the dates may be off by
    are allowed on top.
    """
    passed_s = np.diff(ticks.times_s)
    grown_j = np.diff(ticks.values)
    room_s = passed_s + info.period_s + _DATES * (ticks.time_sigmas_s[1:] + ticks.time_sigmas_s[:-1])
    impossible = (grown_j < LEAST_W * passed_s - info.resolution) | (grown_j > MOST_W * room_s)
    edges = [0, *(np.flatnonzero(impossible) + 1).tolist(), len(ticks)]
    begin, end = max(itertools.pairwise(edges), key=lambda part: part[1] - part[0])
    return ticks.at(list(range(begin, end)))
