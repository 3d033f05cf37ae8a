"""How long a measuring window must be: the shortest in which a sensor can be as precise as is wanted."""

import math

from tuner.interfaces import SensorInfo

DEFAULT_PRECISION = 0.01
"""Wanted half-width of the 95 % interval of a trial's joules, of their value.

Configurations that tie in time differ by some percent in joules (by 6 % on an H200), so 1 % tells them apart;
half of it would take twice the time of every trial, and the contenders for the answer get more bursts anyway.
"""

MOST_S = 10.0
"""The longest window that is chosen, however precise joules are to be."""

_TIME_S = 0.3  # a window without a sensor: time alone is sure sooner
_LEAST_S = 0.5  # a warm-up is a sixth of its window, and shorter ones would not let power settle
_COVERAGE = 1.96  # uncertainties in half a 95 % interval
_TICK_SIGMA = 0.025  # of a counter's period: how well a tick is dated by polling, an H200's to 0.019
_SAMPLE_SIGMA = 0.01  # of power: noise of one sample, more than any board known here shows
_SAMPLES = 8  # of fewer a scatter is hardly known


def suggested_window_s(info: SensorInfo | None, precision: float = DEFAULT_PRECISION) -> float:
    """The shortest window whose joules this sensor should give to ``precision``; 0.3 s without a sensor.

    For an uncertainty u of precision / 1.96, a sample noise r and a time dt between samples:

    - counter: two ticks dated to s make ``u = sqrt(2) s / T``, and one period is lost at the ends;
    - lag: ``u^2 = r^2 (dt / T + 2 (C / T)^2)``;
    - means: ``u = r sqrt(dt / T)``. Of running means only those inside count, and no window is shorter than
      two of theirs.

    Args:
        info: the reading in use; None where only time is measured.
        precision: half-width of the 95 % interval, relative to the joules.
    """
    if info is None:
        return _TIME_S
    wanted = precision / _COVERAGE
    period_s, response = info.period_s, info.response
    if info.kind == "counter":
        needed_s = period_s * (1.0 + math.sqrt(2.0) * _TICK_SIGMA / wanted)
    else:
        ratio = (_SAMPLE_SIGMA / wanted) ** 2
        half = ratio * period_s / 2.0
        needed_s = half + math.sqrt(half**2 + 2.0 * ratio * response.capacitance_s**2)
        needed_s = max(needed_s, _SAMPLES * period_s) + response.window_s
        needed_s = max(needed_s, 2.0 * response.window_s)
    return min(max(needed_s, _LEAST_S), MOST_S)
