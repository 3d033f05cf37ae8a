"""Response models: what a reading shows of power, and the inverse, power and joules from a reading.

Every energy here is a weighted sum of the samples, ``E = sum(w_i * Pm_i)``, from the first sample to the last
and ``delay_s`` earlier. The weights are seconds, and independent noise of standard deviation s in each sample
makes ``s * sqrt(sum(w_i^2))`` of E. With the trapezoid rule over samples dt apart and a span T:

- identity: ``sqrt(T dt)``.
- lag: equation (6) telescopes to ``E = integral(Pm) + C * (Pm(last) - Pm(first))``, for any spacing, so that
  only the ends carry C: ``sqrt(T dt + 2 C^2)``. One corrected sample has ``sqrt(1 + 2 (C / dt)^2)`` of noise.
- boxcar: what lies between two windows was never seen and no formula brings it back. The samples stand for
  power half a window before them: ``E = integral(Pm) + W/2 * (Pm(last) - Pm(first))``, which for windows that
  tile (W = dt) is the exact sum of ``Pm * W``.
- ramp: from ``Pm(t) * W = E(t) - E(t - W)`` follows E(t) a window at a time: exact for any power where W is a
  multiple of dt and power was steady for W before the first sample, interpolated between samples where it is
  no multiple. ``sqrt(T W)`` of noise: that of one reading in each window, as if the others were not there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..base import Response

Array = npt.NDArray[np.float64]

_PAIR = 2  # a slope, or an area, needs two samples
_SLACK = 1e-9  # of a window: one that begins on a sample must not miss it by a rounding error


def corrected(times_s: Array, watts: Array, response: Response) -> Array:
    """Power at samples that a reading showed; it is ``age_s(response)`` old.

    A lag is undone by equation (6), a ramp by differences of the energy that its means imply, which gives the
    mean power since the sample before. Identity and boxcar are returned as they are. Nothing is clamped: a
    corrected sample may be negative or above the board's limit, and their sum is right only if it stays so.

    Args:
        times_s: strictly increasing times of fresh samples in seconds, shape (n,).
        watts: measured power, shape (n,).
        response: how the reading follows power.
    """
    if len(times_s) < _PAIR:
        return watts.copy()
    if response.kind == "lag":
        return _without_lag(times_s, watts, response.capacitance_s)
    if response.kind == "ramp":
        joules = cumulative_energy_j(times_s, watts, response)
        return np.concatenate((watts[:1], np.diff(joules) / np.diff(times_s)))
    return watts.copy()


def age_s(response: Response) -> float:
    """Age of the power that ``corrected`` shows; what it shows of a boxcar is half a window older."""
    return response.delay_s + (response.window_s / 2.0 if response.kind == "boxcar" else 0.0)


def energy_j(times_s: Array, watts: Array, response: Response) -> float:
    """Joules from the first sample to the last, ``response.delay_s`` before each; 0.0 of fewer than two.

    Args:
        times_s: strictly increasing times in seconds, shape (n,).
        watts: measured power, shape (n,).
        response: how the reading follows power.
    """
    return float(energy_weights_s(times_s, response) @ watts)


def cumulative_energy_j(times_s: Array, watts: Array, response: Response) -> Array:
    """Joules from the first of at least two samples to each, shape (n,); see ``energy_j``."""
    if response.kind == "ramp":
        return _energy_of_means(times_s, watts, response.window_s)
    areas_j = np.diff(times_s) * (watts[1:] + watts[:-1]) / 2.0
    return np.asarray(np.concatenate(([0.0], np.cumsum(areas_j))) + response.mean_age_s * (watts - watts[0]))


def energy_weights_s(times_s: Array, response: Response) -> Array:
    """Weights w of ``E = sum(w * Pm)`` in seconds, shape (n,); see the top of this file."""
    if len(times_s) < _PAIR:
        return np.zeros(len(times_s))
    if response.kind == "ramp":
        return _weights_of_means(times_s, response.window_s)
    halves_s = np.diff(times_s) / 2.0
    weights = np.zeros(len(times_s))
    weights[:-1] = halves_s
    weights[1:] += halves_s
    weights[0] -= response.mean_age_s
    weights[-1] += response.mean_age_s
    return weights


def _without_lag(times_s: Array, watts: Array, capacitance_s: float) -> Array:
    """``P(t_i) = Pm(t_i) + C * (Pm(t_i+1) - Pm(t_i-1)) / (t_i+1 - t_i-1)``, one-sided at the ends.

    Equation (6) of "Multi-Kernel Auto-Tuning on GPUs: Performance and Energy-Aware Optimization".
    """
    before = np.concatenate(([0], np.arange(len(times_s) - 1)))
    after = np.concatenate((np.arange(1, len(times_s)), [len(times_s) - 1]))
    slope = (watts[after] - watts[before]) / (times_s[after] - times_s[before])
    return np.asarray(watts + capacitance_s * slope)


def _reaches(times_s: Array, window_s: float) -> tuple[npt.NDArray[np.intp], Array]:
    """For each sample the one at or before the begin of its window (-1: none), and the way from there on."""
    begins = times_s - window_s
    earlier = np.searchsorted(times_s, begins + _SLACK * window_s, side="right") - 1
    return earlier, np.maximum(begins - times_s[np.maximum(earlier, 0)], 0.0)


def _energy_of_means(times_s: Array, watts: Array, window_s: float) -> Array:
    """Joules since the first sample, of running means: ``E(t) = E(t - W) + Pm(t) * W``.

    Before the first sample power is its reading. What a gap longer than the window leaves unseen is taken to
    have been at the mean after it.
    """
    joules = np.zeros(len(times_s))
    reaches, rests = _reaches(times_s, window_s)
    for i in range(1, len(times_s)):
        j = int(reaches[i])
        if j < 0:
            before = watts[0] * (times_s[i] - window_s - times_s[0])
        elif j == i - 1:
            before = joules[j] + watts[i] * rests[i]
        else:
            before = joules[j] + (joules[j + 1] - joules[j]) * rests[i] / (times_s[j + 1] - times_s[j])
        joules[i] = before + watts[i] * window_s
    return joules


def _weights_of_means(times_s: Array, window_s: float) -> Array:
    """The weights of the last of ``_energy_of_means``: the same steps backwards."""
    weights = np.zeros(len(times_s))
    share = np.zeros(len(times_s))  # of each sample's energy in the result
    share[-1] = 1.0
    reaches, rests = _reaches(times_s, window_s)
    for i in range(len(times_s) - 1, 0, -1):
        j = int(reaches[i])
        weights[i] += share[i] * window_s
        if j < 0:
            weights[0] += share[i] * (times_s[i] - window_s - times_s[0])
        elif j == i - 1:
            share[j] += share[i]
            weights[i] += share[i] * rests[i]
        else:
            part = rests[i] / (times_s[j + 1] - times_s[j])
            share[j] += share[i] * (1.0 - part)
            share[j + 1] += share[i] * part
    return weights


# --- what a reading shows of a known power ---------------------------------------------------------


@dataclass(frozen=True)
class PowerCurve:
    """True power that is constant between changes.

    Attributes:
        changes_s: times of the changes, increasing, shape (k,), k at least 1.
        watts: power before the first change, between changes and after the last, shape (k + 1,).
    """

    changes_s: Array
    watts: Array

    @staticmethod
    def of_load(
        busy: Sequence[tuple[float, float]], idle_w: float = 0.0, busy_w: float = 1.0
    ) -> "PowerCurve":
        """A load that is on in the given (start, end) intervals, in order, and off otherwise."""
        changes = np.asarray(busy, dtype=np.float64).ravel()
        watts = np.full(len(changes) + 1, idle_w, dtype=np.float64)
        watts[1::2] = busy_w
        return PowerCurve(changes, watts)

    @cached_property
    def _joules(self) -> Array:
        """Energy from the first change to each."""
        return np.concatenate(([0.0], np.cumsum(np.diff(self.changes_s) * self.watts[1:-1])))

    def at(self, times_s: Array) -> Array:
        """True power at times; on a change, that after it."""
        return self.watts[np.searchsorted(self.changes_s, times_s, side="right")]

    def joules(self, times_s: Array) -> Array:
        """Energy from the first change to times, negative before it."""
        piece = np.searchsorted(self.changes_s, times_s, side="right")
        since = np.maximum(piece - 1, 0)
        return self._joules[since] + self.watts[piece] * (times_s - self.changes_s[since])

    def lagged(self, times_s: Array, capacitance_s: float, rising_s: float | None = None) -> Array:
        """Power seen through a first-order lag that had settled before the first change.

        Args:
            times_s: where it is looked at, of any shape.
            capacitance_s: time constant.
            rising_s: time constant while power is above 0, where it is another.
        """
        constants = np.where(self.watts > 0, rising_s or capacitance_s, capacitance_s)
        forgotten = np.exp(np.diff(self.changes_s) / -constants[1:-1]).tolist()
        levels = [float(self.watts[0])]
        for watts, decay in zip(self.watts[1:-1].tolist(), forgotten, strict=True):
            levels.append(watts + (levels[-1] - watts) * decay)
        piece = np.searchsorted(self.changes_s, times_s, side="right")
        since = np.maximum(piece - 1, 0)
        away_s = np.maximum(times_s - self.changes_s[since], 0.0)
        kept_share = np.exp(away_s / -constants[piece])
        return self.watts[piece] + (np.array(levels)[since] - self.watts[piece]) * kept_share


def shown_watts(curve: PowerCurve, times_s: Array, response: Response) -> Array:
    """Return the watts of a power curve at ``times_s`` as read with a given response."""
    seen_s = times_s - response.delay_s
    if response.capacitance_s > 0:
        return curve.lagged(seen_s, response.capacitance_s)
    if response.window_s > 0:
        drawn_j = curve.joules(seen_s) - curve.joules(seen_s - response.window_s)
        return np.asarray(drawn_j / response.window_s)
    return curve.at(seen_s)


def shown_joules(curve: PowerCurve, times_s: Array, response: Response) -> Array:
    """Return the joules at ``times_s`` of a counter that integrates power, or power seen through a lag.

    The integral of a lag L of the power P is ``integral(P) - C * L``, up to a constant.
    """
    seen_s = times_s - response.delay_s
    counted_j = curve.joules(seen_s)
    if response.capacitance_s > 0:
        counted_j -= response.capacitance_s * curve.lagged(seen_s, response.capacitance_s)
    return counted_j
