"""Joules of a whole recording: while it goes on, in constant memory, or once it has ended."""

import math
from collections.abc import Iterable

from tuner.interfaces.power import Sample, SensorInfo

from ..response.models import energy_j
from .noise import ROUNDING
from .samples import SampleSeries

_PAIR = 2
_RAMP_GUESS = 1.0 / math.sqrt(3.0)  # power within a running mean's window may be anywhere in it


class RunningEnergy:
    """Implements ``tuner.power.base.EnergyTotal``: adds up the samples of one reading.

    Power is integrated by the trapezoid rule. Equation (6) of the multi-kernel paper telescopes to C times
    the difference of last and first sample, and a mean over a window W stands for power W/2 earlier.
    Standard uncertainties: of a counter the times and the step of its ends; of power the samples' noise, from
    their second differences, which also hold what the power does between samples.
    """

    def __init__(self) -> None:
        self.first: Sample | None = None
        self.last: Sample | None = None
        self.count = 0
        self._integral_j = 0.0
        self._steps_s2 = 0.0
        self._bends_w2 = 0.0
        self._bends = 0
        self._before: Sample | None = None

    def add(self, samples: Iterable[Sample]) -> None:
        """Take in samples, oldest first; one that is not later than the last is left out."""
        for sample in samples:
            last, before = self.last, self._before
            if last is not None and sample.time_s <= last.time_s:
                continue
            self.count += 1
            self.first = self.first or sample
            if last is not None:
                step_s = sample.time_s - last.time_s
                self._integral_j += step_s * (sample.value + last.value) / 2.0
                self._steps_s2 += step_s**2
                if before is not None:
                    self._bends_w2 += (sample.value - 2.0 * last.value + before.value) ** 2
                    self._bends += 1
            self._before, self.last = last, sample

    @property
    def duration_s(self) -> float:
        """Time from the first sample to the last."""
        return self.last.time_s - self.first.time_s if self.first and self.last else 0.0

    def joules(self, info: SensorInfo) -> tuple[float, float] | None:
        """Energy from the first sample to the last and its standard uncertainty; None of fewer than two."""
        if self.first is None or self.last is None or self.duration_s <= 0:
            return None
        difference = self.last.value - self.first.value
        if info.kind == "counter":
            times_s = math.hypot(self.first.time_sigma_s, self.last.time_sigma_s)
            timing_j = difference / self.duration_s * times_s
            return difference, math.hypot(timing_j, info.resolution / math.sqrt(6.0))
        response = info.response
        noise_w2 = self._bends_w2 / (6.0 * self._bends) if self._bends else difference**2 / ROUNDING
        noise_w2 += info.resolution**2 / ROUNDING
        guess_s = response.window_s / 2.0 * _RAMP_GUESS if response.kind == "ramp" else 0.0
        sigma_j = math.sqrt(
            noise_w2 * (self._steps_s2 + 2.0 * response.mean_age_s**2)
            + (difference * math.hypot(response.capacitance_sigma_s, guess_s)) ** 2
        )
        return self._integral_j + response.mean_age_s * difference, sigma_j


def total_joules(series: SampleSeries, duration_s: float, info: SensorInfo) -> float:
    """Energy of a recording of ``duration_s``: that between its samples, scaled to the whole; 0.0 without."""
    if len(series) < _PAIR:
        return float(series.values[0]) * duration_s if len(series) and info.kind != "counter" else 0.0
    if info.kind == "counter":
        joules = float(series.values[-1] - series.values[0])
    else:
        joules = energy_j(series.times_s, series.values, info.response)
    return joules * duration_s / series.duration_s
