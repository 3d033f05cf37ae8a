"""Time and power of a round over the GPU clock, fitted to few measured clocks.

*Time* has a part that the memory decides, independent of the clock f, and one of the cores, proportional to
1/f. They are joined by a p-norm::

    t(f) = (m^p + (c / f)^p)^(1/p)

p = 1 is their sum, as of a kernel whose loads and arithmetic wait for each other; a large p is a smooth
maximum, as of one that overlaps them.

*Power* is a static part, a part f V(f)^2 of what switches with the clock, and where more than three points
tell of it a part by the rounds per second, which is what the memory draws::

    P(f) = s + k f V(f)^2 + r / t(f)

The voltage V is constant up to a knee and a straight line above it.

The model states no answer: it says which clocks are worth a measurement, and how sure it is.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tuner.model.trial import Measurement

from .regression import Curve, CurveForm, Floats

EXPONENTS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Of the norm that joins the parts of the time."""

KNEES = (0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85)
"""Clocks of the voltage knee, by the highest clock."""

LOW_VOLTAGES = (0.55, 0.65, 0.75, 0.85, 0.95)
"""Voltages below the knee, by that at the highest clock."""

TIME_LEFT_OUT, POWER_LEFT_OUT = (0.005, 0.02, 0.08), (0.015, 0.04, 0.1)
"""Relative standard deviations of what the forms leave out; likelihood chooses among them."""

TIME_REPEATABILITY = 0.002
"""Relative standard deviation of a time from one window to another, as races of trials assume."""

POWER_REPEATABILITY = 0.005
"""Relative standard deviation of joules over minutes, as paired repeats assume."""

LEAST_POINTS = 3
"""Clocks that a fit needs."""

_OF_RATE = 4  # points from which the part of the power by the rate is fitted


@dataclass(frozen=True)
class Prediction:
    """Time and joules of a round at some clocks; shape (m,) each.

    Attributes:
        time_s: of a round.
        time_relative: relative standard uncertainty of the time.
        joules: of a round; NaN without points that have joules.
        joules_relative: relative standard uncertainty of the joules.
    """

    time_s: Floats
    time_relative: Floats
    joules: Floats
    joules_relative: Floats


class ClockModel:
    """Time and power of one trial's configurations over the clock.

    Args:
        points: clocks in MHz and what was measured there; `LEAST_POINTS` clocks at least, all valid.
    """

    def __init__(self, points: Sequence[tuple[float, Measurement]]) -> None:
        self._highest = max(mhz for mhz, _ in points)
        self._rates: dict[bytes, Floats] = {}
        x, values, relative = _columns(
            (mhz / self._highest, one.makespan_s or 0.0, one.makespan_uncertainty_s) for mhz, one in points
        )
        self._time = Curve(
            [CurveForm(partial(_parts, exponent), exponent) for exponent in EXPONENTS],
            x,
            values,
            np.hypot(relative, TIME_REPEATABILITY),
            deviations=TIME_LEFT_OUT,
        )
        self._power = self._fitted_power(points)

    def at(self, clocks_mhz: Sequence[float]) -> Prediction:
        """What rounds at some clocks probably take."""
        x = np.array(clocks_mhz, dtype=float) / self._highest
        time_s, time_relative = self._time.at(x)
        if self._power is None:
            nothing = np.full(len(x), np.nan)
            return Prediction(time_s, time_relative, nothing, nothing)
        watts, power_relative = self._power.at(x)
        return Prediction(time_s, time_relative, watts * time_s, np.hypot(time_relative, power_relative))

    def _fitted_power(self, points: Sequence[tuple[float, Measurement]]) -> Curve | None:
        rows = [
            (mhz / self._highest, energy.joules / one.makespan_s, energy.uncertainty_j / one.makespan_s)
            for mhz, one in points
            if (energy := one.energy) is not None and one.makespan_s and 0.0 < energy.joules < math.inf
        ]
        if len(rows) < LEAST_POINTS:
            return None
        x, watts, relative = _columns(rows)
        forms = [
            CurveForm(partial(self._switched, knee, low, rated))
            for rated in (False, True)[: 1 + (len(rows) >= _OF_RATE)]
            for low in LOW_VOLTAGES
            for knee in KNEES
        ]
        unsure = np.hypot(relative, POWER_REPEATABILITY)
        return Curve(forms, x, watts, unsure, deviations=POWER_LEFT_OUT)

    def _switched(self, knee: float, low: float, rated: bool, x: Floats) -> Floats:
        """What power is linear in: 1, f V(f)^2 and, where asked for, rounds per second."""
        volts = low + (1.0 - low) * np.clip((x - knee) / (1.0 - knee), 0.0, None)
        found = [np.ones_like(x), x * volts**2]
        if rated:
            found.append(self._rate(x))
        return np.stack(found, axis=1)

    def _rate(self, x: Floats) -> Floats:
        """Rounds per second by those at the highest clock; every form asks for the same."""
        key = x.tobytes()
        if key not in self._rates:
            self._rates[key] = self._time.at(np.ones(1))[0] / self._time.at(x)[0]
        return self._rates[key]


def _parts(exponent: float, x: Floats) -> Floats:
    """What the power ``exponent`` of a time is linear in."""
    return np.stack([np.ones_like(x), x**-exponent], axis=1)


def _columns(rows: Iterable[tuple[float, float, float]]) -> tuple[Floats, Floats, Floats]:
    """Arguments, values and relative uncertainties of (argument, value, uncertainty)."""
    x, values, uncertainties = np.array(list(rows), dtype=float).T
    return x, values, uncertainties / values
