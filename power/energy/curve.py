"""Energy up to any time from a power reading, whatever power does.

The energy up to each sample is a weighted sum of the samples (``response.models``), and so is that up to
a time between two samples, which is found in one of three ways. *Inside*: power stays the same from one
sample to the next. *At a program's start*: up to it power is what it was before, and the rest of the energy
between the two samples came after it. *At its end*: from there on power is what it is afterwards. The
uncertainty of a sum is the noise of its samples, what the ways differ by, and the age of the reading.
"""

import math
from dataclasses import dataclass

import numpy as np

from tuner.interfaces.power import SensorInfo

from ..response.models import Array, energy_weights_s
from .noise import sample_variances_w2
from .samples import SampleSeries

_TRIPLE = 3
_NEAR = (
    3  # gaps between samples that tell the power next to a time: one alone is mostly noise, and overshoots;
)
_NEAR_S = 0.06  # but what is further off than this says nothing
_SQRT_3 = 3.0**0.5


@dataclass(frozen=True)
class EnergyPoint:
    """The energy up to a time.

    Attributes:
        weights_s: weights of the samples it is the sum of, shape (n,).
        doubt_j: standard uncertainty of what lies between two samples.
        shown_w: what the reading shows there.
    """

    weights_s: Array
    doubt_j: float
    shown_w: float


class EnergyCurve:
    """Energy over time from a power reading.

    Args:
        samples: uncorrected.
        info: the reading.
    """

    def __init__(self, samples: SampleSeries, info: SensorInfo) -> None:
        self._samples = samples.earlier(info.response.delay_s)
        self._info = info
        self._variances_w2 = sample_variances_w2(samples, info)
        self._places: dict[int, Array] = {}
        self._near = max(1, round(min(_NEAR, _NEAR_S / info.period_s))) if info.period_s else 1

    def covers(self, start_s: float, end_s: float) -> bool:
        """True where there are samples before and after."""
        times = self._samples.times_s
        return len(times) >= _TRIPLE and bool(times[0] <= start_s < end_s <= times[-1])

    def joules(self, start: EnergyPoint, end: EnergyPoint) -> tuple[float, float]:
        """Energy from one place to another, and its variance."""
        weights = end.weights_s - start.weights_s
        aged_j = self._info.response.age_sigma_s * (end.shown_w - start.shown_w)
        variance_j2 = float(weights**2 @ self._variances_w2)
        variance_j2 += start.doubt_j**2 + end.doubt_j**2 + aged_j**2
        return float(weights @ self._samples.values), variance_j2

    def inside(self, time_s: float) -> EnergyPoint:
        """The place of a time between the first sample and the last."""
        i, share, step_s = self._gap(time_s)
        weights = (1.0 - share) * self._up_to(i) + share * self._up_to(i + 1)
        change_w = (
            self._slope(i + 1, i + 1 + self._near) - self._slope(i - self._near, i)
        ) @ self._samples.values
        return self._place(weights, share * (1.0 - share) * step_s * float(change_w) / _SQRT_3, time_s)

    def at_start(self, time_s: float) -> EnergyPoint:
        """The place of the start of something that draws nothing before it."""
        i, share, step_s = self._gap(time_s)
        before = self._up_to(i) + share * step_s * self._slope(i - self._near, i)
        return self._of_two(before, time_s)

    def at_end(self, time_s: float) -> EnergyPoint:
        """The place of the end of something that draws nothing after it."""
        i, share, step_s = self._gap(time_s)
        after = self._up_to(i + 1) - (1.0 - share) * step_s * self._slope(i + 1, i + 1 + self._near)
        return self._of_two(after, time_s)

    def before(self, time_s: float, start_s: float) -> tuple[float, float]:
        """Energy from a time to the start of something that draws nothing before it, and its variance."""
        i = self._gap(start_s)[0]
        if time_s < self._samples.times_s[i]:
            return self.joules(self.inside(time_s), self.at_start(start_s))
        return self._steady(self._slope(i - self._near, i), self._slope(i, i + 1), start_s - time_s)

    def after(self, end_s: float, time_s: float) -> tuple[float, float]:
        """Energy from the end of something that draws nothing after it to a time, and its variance."""
        i = self._gap(end_s)[0]
        if time_s > self._samples.times_s[i + 1]:
            return self.joules(self.at_end(end_s), self.inside(time_s))
        return self._steady(self._slope(i + 1, i + 1 + self._near), self._slope(i, i + 1), time_s - end_s)

    def watts(self, time_s: float) -> float:
        """Mean power around a time."""
        i = self._gap(time_s)[0]
        return float(self._slope(i - self._near, i + 1 + self._near) @ self._samples.values)

    def _steady(self, power: Array, other: Array, duration_s: float) -> tuple[float, float]:
        """Energy of some time within a gap at one power, which may have been another, and its variance."""
        weights, doubt_j = duration_s * power, duration_s * float((power - other) @ self._samples.values)
        variance_j2 = float(weights**2 @ self._variances_w2) + doubt_j**2 / 3.0
        return float(weights @ self._samples.values), variance_j2

    def _of_two(self, weights: Array, time_s: float) -> EnergyPoint:
        other = self.inside(time_s)
        apart_j = float((weights - other.weights_s) @ self._samples.values) / _SQRT_3
        return self._place(weights, math.hypot(apart_j, other.doubt_j), time_s)

    def _place(self, weights: Array, doubt_j: float, time_s: float) -> EnergyPoint:
        shown_w = float(np.interp(time_s, self._samples.times_s, self._samples.values))
        return EnergyPoint(weights, abs(doubt_j), shown_w)

    def _gap(self, time_s: float) -> tuple[int, float, float]:
        """The sample before a time, the share of the gap to the next one that is past, and that gap."""
        times = self._samples.times_s
        i = int(np.clip(np.searchsorted(times, time_s, side="right") - 1, 0, len(times) - 2))
        step_s = float(times[i + 1] - times[i])
        return i, float(np.clip((time_s - times[i]) / step_s, 0.0, 1.0)), step_s

    def _up_to(self, index: int) -> Array:
        """Weights of the energy from the first sample to another, shape (n,)."""
        if index not in self._places:
            weights = np.zeros(len(self._samples))
            weights[: index + 1] = energy_weights_s(self._samples.times_s[: index + 1], self._info.response)
            self._places[index] = weights
        return self._places[index]

    def _slope(self, first: int, last: int) -> Array:
        """Weights of the mean power from one sample to another; at an end of the trace, of its sample."""
        first, last = max(first, 0), min(last, len(self._samples) - 1)
        if first >= last:
            weights = np.zeros(len(self._samples))
            weights[min(first, last)] = 1.0
            return weights
        step_s = self._samples.times_s[last] - self._samples.times_s[first]
        return np.asarray((self._up_to(last) - self._up_to(first)) / step_s)
