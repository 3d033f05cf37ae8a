"""Joules of a reading since it was opened, pauses in which nobody looked at it included."""

import math
from collections.abc import Iterable

from tuner.interfaces.power import LEAST_W, MOST_W, Sample, SensorInfo

from ..base import SpentEnergy
from .totals import RunningEnergy

_PAUSE_PERIODS = 3.0  # without a sample; single updates come late on every sensor
_CALM_S = 1.0  # into a pause: by then what nobody recorded has ended
_IDLE_SIGMA = 0.05  # of idle power, which follows clock and temperature


class SpentTotal:
    """Adds up the samples of a reading, whoever asked for them.

    A counter has counted in a pause too, so its growth is all there is to know. Of a reading of power the
    pauses are taken from what is around them: idle power, which is the lowest that was seen, and in the first
    second anything from there to the power before. The same holds for what is before the first sample and
    behind the last one.

    Args:
        start_s: from when on joules count; older samples are left out.
    """

    def __init__(self, start_s: float) -> None:
        self._start_s = start_s
        self._part = RunningEnergy()
        self._joules = self._variance_j2 = 0.0
        self._last: Sample | None = None
        self._pauses: list[tuple[float, float]] = []
        self._watts = 0.0
        self._lowest_w = math.inf

    def add(self, samples: Iterable[Sample], info: SensorInfo) -> None:
        """Take in samples, oldest first; those that cannot be are left out."""
        for sample in samples:
            last = self._last
            if sample.time_s < self._start_s or (last is not None and sample.time_s <= last.time_s):
                continue
            if info.is_reading(sample.value):
                add = self._count if info.kind == "counter" else self._see
                add(sample, info)

    def spent(self, now_s: float, info: SensorInfo) -> SpentEnergy | None:
        """Joules up to now; None before two samples."""
        found = self._part.joules(info)
        if self._last is None or (found is None and self._joules == 0.0):
            return None
        joules, sigma_j = found or (0.0, 0.0)
        unseen = [*self._pauses, (max(0.0, now_s - self._last.time_s), self._watts)]
        parts = [self._pause(seconds, before_w) for seconds, before_w in unseen]
        unseen_j = math.fsum(part[0] for part in parts)
        unseen_sigma_j = math.fsum(part[1] for part in parts)  # they err together
        return SpentEnergy(
            joules=self._joules + joules + unseen_j,
            sigma_j=math.hypot(math.sqrt(self._variance_j2), sigma_j, unseen_sigma_j),
            unseen_j=unseen_j,
            unseen_sigma_j=unseen_sigma_j,
            unseen_s=math.fsum(seconds for seconds, _ in unseen),
        )

    def _count(self, sample: Sample, info: SensorInfo) -> None:
        last = self._last
        if last is None:
            self._pauses.append((sample.time_s - self._start_s, 0.0))
        else:
            passed_s = sample.time_s - last.time_s
            watts = (sample.value - last.value) / passed_s
            if (
                not LEAST_W * passed_s - info.resolution
                <= sample.value - last.value
                <= MOST_W * (passed_s + info.period_s)
            ):
                self._close(info)  # it was reset
                self._pauses.append((passed_s, self._watts))
            else:
                self._watts, self._lowest_w = watts, min(self._lowest_w, watts)
        self._part.add([sample])
        self._last = sample

    def _see(self, sample: Sample, info: SensorInfo) -> None:
        last = self._last
        if last is None:
            self._pauses.append((sample.time_s - self._start_s, 0.0))
        elif sample.time_s - last.time_s > _PAUSE_PERIODS * info.period_s:
            self._close(info)
            self._pauses.append((sample.time_s - last.time_s, last.value))
        self._part.add([sample])
        self._watts, self._lowest_w = sample.value, min(self._lowest_w, sample.value)
        self._last = sample

    def _close(self, info: SensorInfo) -> None:
        """End a part without pauses."""
        joules, sigma_j = self._part.joules(info) or (0.0, 0.0)
        self._joules += joules
        self._variance_j2 += sigma_j**2
        self._part = RunningEnergy()

    def _pause(self, seconds: float, before_w: float) -> tuple[float, float]:
        """Joules of a pause and their standard uncertainty."""
        idle_w = max(0.0, self._lowest_w) if math.isfinite(self._lowest_w) else before_w
        above_w, busy_s = max(0.0, before_w - idle_w), min(seconds, _CALM_S)
        joules = idle_w * seconds + above_w * busy_s / 2.0
        return joules, _IDLE_SIGMA * idle_w * seconds + above_w * busy_s / math.sqrt(12.0)
