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
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from tuner.model.objective import GAIN
from tuner.model.trial import Energy, FlagKind, Measurement, Status, Trial
from tuner.space.search_view import Search

from .descent import too_slow

# --- A curve through few points: physical forms, and a Gaussian process for what they leave out.
#
# Each form is linear in coefficients that are not negative, once its other constants are chosen. These lie on
# a grid, and every form of the grid is fitted. What a form cannot describe is a smooth relative discrepancy
# with a correlation length in the logarithm of the argument (universal kriging). Forms and sizes of the
# discrepancy are averaged by their likelihoods, so that what the points do not decide becomes uncertainty.

Floats = npt.NDArray[np.float64]

LENGTH = 0.35  # correlation length of the discrepancy, in the natural logarithm of the argument
_NEGLIGIBLE = 1e-2  # of the likelihood of the best fit: forms below it are left out
_RIDGE = 1e-9  # of the diagonal of the information, where two columns are the same


@dataclass(frozen=True)
class CurveForm:
    """A curve ``y`` with ``y ** exponent == columns(x) @ coefficients``, coefficients at least 0.

    Attributes:
        columns: of arguments, shape (n,): shape (n, coefficients).
        exponent: of the value.
    """

    columns: Callable[[Floats], Floats]
    exponent: float = 1.0


@dataclass(frozen=True)
class _Fit:
    """One form with one size of the discrepancy."""

    form: CurveForm
    deviation: float
    coefficients: Floats
    white: Floats
    inverse: Floats
    residuals: Floats
    gradients: Floats
    log_likelihood: float

    @cached_property
    def covariance(self) -> Floats:
        """Of the coefficients; those that are zero are taken to be known."""
        active = self.coefficients > 0.0
        information = self.white[:, active].T @ self.white[:, active]
        information += _RIDGE * np.diag(np.diag(information))
        full = np.zeros((len(active), len(active)))
        full[np.ix_(active, active)] = np.linalg.inv(information)
        return full


class Curve:
    """Forms fitted to points.

    Args:
        forms: to choose from.
        x: arguments, shape (n,), above 0, two different ones at least.
        values: shape (n,), above 0.
        relative: their relative standard uncertainties, shape (n,).
        deviations: relative standard deviations that the discrepancy may have.
    """

    def __init__(
        self,
        forms: Sequence[CurveForm],
        x: Floats,
        values: Floats,
        relative: Floats,
        *,
        deviations: Sequence[float],
    ) -> None:
        self._x, self._scale = x, float(np.max(values))
        y = values / self._scale
        form_columns = [(form, form.columns(x)) for form in forms]
        fits = [
            fit
            for deviation in deviations
            for fit in self._fits(form_columns, y, _kernel(x, x, deviation) + np.diag(relative**2), deviation)
        ]
        highest = max(fit.log_likelihood for fit in fits)
        self._fits_kept = [fit for fit in fits if fit.log_likelihood - highest > math.log(_NEGLIGIBLE)]
        weights = np.array([math.exp(fit.log_likelihood - highest) for fit in self._fits_kept])
        self._weights = weights / weights.sum()

    def at(self, x: Floats) -> tuple[Floats, Floats]:
        """Values and their relative standard uncertainties at arguments, shape (m,) each."""
        means, variances = zip(*(self._predicted(fit, x) for fit in self._fits_kept), strict=True)
        stacked = np.array(means)
        mean = self._weights @ stacked
        variance = self._weights @ (np.array(variances) + (stacked - mean) ** 2)
        return self._scale * mean, np.sqrt(variance) / mean

    def _fits(
        self, forms: Sequence[tuple[CurveForm, Floats]], y: Floats, covariance: Floats, deviation: float
    ) -> list[_Fit]:
        """Every form, with its columns at the points, for one size of the discrepancy."""
        from scipy.optimize import nnls  # noqa: PLC0415 - imported only where it is used

        root = np.linalg.cholesky(covariance)
        whitening = np.linalg.inv(root)
        inverse = np.asarray(whitening.T @ whitening, dtype=np.float64)
        constant = float(np.log(np.diag(root)).sum())
        fits = []
        for form, columns in forms:
            if columns.shape[1] > len(y):
                continue
            scaled = columns / (form.exponent * y**form.exponent)[:, None]
            white = whitening @ scaled
            coefficients, residual = nnls(white, whitening.sum(axis=1) / form.exponent)
            modelled = columns @ coefficients
            if not np.all(modelled > 0.0):
                continue
            fits.append(
                _Fit(
                    form,
                    deviation,
                    coefficients,
                    white,
                    inverse,
                    residuals=y / modelled ** (1.0 / form.exponent) - 1.0,
                    gradients=columns / (form.exponent * modelled)[:, None],
                    log_likelihood=-0.5 * residual**2
                    - constant
                    - 0.5 * int(np.count_nonzero(coefficients)) * math.log(len(y)),
                )
            )
        return fits

    def _predicted(self, fit: _Fit, x: Floats) -> tuple[Floats, Floats]:
        """Mean and variance by one fit, in the scale of the points, shape (m,) each."""
        columns = fit.form.columns(x)
        power = np.maximum(columns @ fit.coefficients, np.finfo(float).tiny)
        near = _kernel(x, self._x, fit.deviation)
        weights = near @ fit.inverse
        mean = power ** (1.0 / fit.form.exponent) * (1.0 + weights @ fit.residuals)
        unexplained = fit.deviation**2 - (weights * near).sum(axis=1)
        gradient = columns / (fit.form.exponent * power)[:, None] - weights @ fit.gradients
        relative = np.maximum(unexplained, 0.0) + ((gradient @ fit.covariance) * gradient).sum(axis=1)
        return mean, relative * mean**2


def _kernel(x: Floats, other: Floats, deviation: float) -> Floats:
    """Covariance of the relative discrepancy, shape (len(x), len(other))."""
    distance = (np.log(x)[:, None] - np.log(other)[None, :]) / LENGTH
    return np.asarray(deviation**2 * np.exp(-0.5 * distance**2))


# --- Time and power of a trial as such curves.

EXPONENTS = (1.0, 2.0, 4.0, 8.0, 16.0)  # of the norm that joins the parts of the time
# Clocks of the voltage knee, by the highest clock.
KNEES = (0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85)
LOW_VOLTAGES = (0.55, 0.65, 0.75, 0.85, 0.95)  # voltages below the knee, by that at the highest clock

TIME_LEFT_OUT, POWER_LEFT_OUT = (0.005, 0.02, 0.08), (0.015, 0.04, 0.1)
"""Relative standard deviations of what the forms leave out; likelihood chooses among them."""

# Relative standard deviation of a time from one window to another, as races of trials assume.
TIME_REPEATABILITY = 0.002
POWER_REPEATABILITY = 0.005  # relative standard deviation of joules over minutes, as paired repeats assume
LEAST_POINTS = 3  # clocks that a fit needs
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
            (mhz / self._highest, measurement.makespan_s or 0.0, measurement.makespan_uncertainty_s)
            for mhz, measurement in points
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
        """Predict the time and joules of rounds at some clocks."""
        x = np.array(clocks_mhz, dtype=float) / self._highest
        time_s, time_relative = self._time.at(x)
        if self._power is None:
            nothing = np.full(len(x), np.nan)
            return Prediction(time_s, time_relative, nothing, nothing)
        watts, power_relative = self._power.at(x)
        return Prediction(time_s, time_relative, watts * time_s, np.hypot(time_relative, power_relative))

    def _fitted_power(self, points: Sequence[tuple[float, Measurement]]) -> Curve | None:
        rows = [
            (
                mhz / self._highest,
                energy.joules / measurement.makespan_s,
                energy.uncertainty_j / measurement.makespan_s,
            )
            for mhz, measurement in points
            if (energy := measurement.energy) is not None
            and measurement.makespan_s
            and 0.0 < energy.joules < math.inf
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
        """Return the terms that power is linear in: 1, f V(f)^2 and, if ``rated``, rounds per second."""
        volts = low + (1.0 - low) * np.clip((x - knee) / (1.0 - knee), 0.0, None)
        terms = [np.ones_like(x), x * volts**2]
        if rated:
            terms.append(self._rate(x))
        return np.stack(terms, axis=1)

    def _rate(self, x: Floats) -> Floats:
        """Rounds per second by those at the highest clock; every form asks for the same."""
        key = x.tobytes()
        if key not in self._rates:
            self._rates[key] = self._time.at(np.ones(1))[0] / self._time.at(x)[0]
        return self._rates[key]


def _parts(exponent: float, x: Floats) -> Floats:
    """Return the terms that the power ``exponent`` of a time is linear in, shape (n, 2)."""
    return np.stack([np.ones_like(x), x**-exponent], axis=1)


def _columns(rows: Iterable[tuple[float, float, float]]) -> tuple[Floats, Floats, Floats]:
    """Arguments, values and relative uncertainties of (argument, value, uncertainty)."""
    x, values, uncertainties = np.array(list(rows), dtype=float).T
    return x, values, uncertainties / values


# --- One trial's configurations at every clock: what was measured, and which clocks are worth a measurement.

# Of the highest clock: those that a line is measured at before anything is known of it.
SHARES = (1.0, 0.75, 0.55, 0.4)
BELOW = 0.77  # of a clock that is known to be good: the one below it that tells how the curve goes on
APART = 0.12  # of natural logarithms: clocks nearer to each other tell no more of the curve than one of them
FEW = 5  # clocks that are all measured: a model would need as many
MOST = 12  # clocks of one line that are measured at most
TELLING = 0.01  # by so much a neighbour is to cost more, as modelled, so that paired repeats can tell
_OFF = frozenset({FlagKind.THROTTLED, FlagKind.OFF_CLOCK})
_CLEARLY = 3.0  # times `TELLING`: a neighbour that costs no more than this brackets the best one, too


class ClockLine:
    """The clocks of one trial's configurations.

    Args:
        search: its clocks, cost, and what is known beforehand.
        trial: whose configurations; at any clock.
        measured: what was measured so far; grows while the line is measured.
    """

    def __init__(self, search: Search, trial: Trial, measured: Mapping[Trial, Measurement]) -> None:
        self._search, self._trial, self._known = search, trial, measured

    def settle(self, start_mhz: int | None = None) -> Generator[list[Trial], list[Measurement], None]:
        """Measure a few clocks, then those that may be the cheapest, until the best one has neighbours.

        Args:
            start_mhz: a clock that is known to be good for something similar; None for no such knowledge.
        """
        for mhz in self._first(start_mhz):
            yield [self.at(mhz)]
        while len(self.measured) < MOST and (promising := self.promising()) is not None:
            yield [self.at(promising)]

    def at(self, mhz: int) -> Trial:
        """The trial at a clock."""
        return replace(self._trial, clock_mhz=mhz)

    @property
    def measured(self) -> dict[int, Measurement]:
        """Measurements of it, by clock, highest first."""
        trials = ((mhz, self.at(mhz)) for mhz in self._search.clocks_mhz)
        by_clock = {mhz: self._known.get(trial, self._search.prior.get(trial)) for mhz, trial in trials}
        return {mhz: measurement for mhz, measurement in by_clock.items() if measurement is not None}

    @property
    def is_modelled(self) -> bool:
        """True where enough clocks have a time, and joules where any has them, for a model of the others."""
        points = fit_points(self.measured)
        joules = [mhz for mhz, measurement in points if measurement.energy is not None]
        return len(set(joules or [mhz for mhz, _ in points])) >= LEAST_POINTS

    def promising(self) -> int | None:
        """The unmeasured clock that is most likely the cheapest, or that brackets the best; None for none."""
        measured = self.measured
        costs = {mhz: self._search.cost(measurement) for mhz, measurement in measured.items()}
        best = min(costs, key=costs.__getitem__, default=None)
        points = fit_points(measured)
        if best is None or costs[best] == math.inf:
            return None
        if len({mhz for mhz, _ in points}) < LEAST_POINTS:
            return self._middle(points)
        modelled = partial(_modelled_costs, self._search, ClockModel(points), measured[best])
        highest = _ceiling(measured)
        open_mhz = [mhz for mhz in self._search.clocks_mhz if mhz not in measured and mhz <= highest]
        if not open_mhz:
            return None
        (smoothed, _), *_ = modelled([best])
        lowest = smoothed if math.isfinite(smoothed) else costs[best]
        candidates = [
            (mean, least, mhz)
            for mhz, (mean, least) in zip(open_mhz, modelled(open_mhz), strict=True)
            if least < (1.0 - GAIN) * lowest and self._pays(lowest - least)
        ]
        if candidates:
            return min(candidates)[2]
        return self._neighbour(best, lowest, open_mhz, modelled)

    def _first(self, start_mhz: int | None) -> Iterator[int]:
        """The clocks a line begins with, from the highest down while that is not too slow."""
        clocks = self._search.clocks_mhz
        if start_mhz is not None:
            start_mhz = round(min(start_mhz, _ceiling(self.measured)))
        shares = SHARES if start_mhz is None else (1.0, start_mhz / clocks[0], BELOW * start_mhz / clocks[0])
        starts_mhz = {min(clocks, key=lambda mhz: abs(mhz - share * clocks[0])) for share in shares}
        for mhz in clocks if len(clocks) <= FEW else sorted(starts_mhz, reverse=True):
            measured = self.measured
            near = any(abs(math.log(mhz / other)) < APART for other in measured)
            if mhz not in measured and (not near or mhz == clocks[0] or len(clocks) <= FEW):
                yield mhz
            measurement = self.measured.get(mhz)
            if measurement is not None and too_slow(measurement, self._search.cost):
                return

    def _middle(self, points: Sequence[tuple[float, Measurement]]) -> int | None:
        """The clock that is farthest from those measured, where they are too few for a model.

        It lies between them, or a bit below the only one.
        """
        had = {mhz for mhz, _ in points}
        if not had:
            return None
        least = min(had) * (BELOW if len(had) == 1 else 1.0)
        measured = self.measured
        highest = min(_ceiling(measured), max(had))
        open_mhz = [mhz for mhz in self._search.clocks_mhz if least <= mhz <= highest and mhz not in measured]
        return max(open_mhz, key=lambda mhz: min(abs(math.log(mhz / other)) for other in had), default=None)

    def _pays(self, gain: float) -> bool:
        """Return True if a measurement that may gain so much pays for itself, or without a break-even."""
        payback = self._search.payback
        if payback is None:
            return True
        spent = [payback.spent(measurement) for measurement in self.measured.values()]
        return gain * payback.runs > math.fsum(spent) / len(spent)

    def _neighbour(
        self,
        best: int,
        lowest: float,
        open_mhz: Sequence[int],
        modelled: Callable[[Sequence[int]], list[tuple[float, float]]],
    ) -> int | None:
        """A clock beside the best one that can be told from it; None where both are known."""
        for side in (sorted(mhz for mhz in open_mhz if mhz > best), [mhz for mhz in open_mhz if mhz < best]):
            if not side:
                continue
            upward = side[0] > best
            beside = [mhz for mhz in self.measured if (mhz > best) is upward and mhz != best]
            nearest = min(beside, key=lambda mhz: abs(mhz - best), default=None)
            if nearest is not None and modelled([nearest])[0][0] <= (1.0 + _CLEARLY * TELLING) * lowest:
                continue
            means = [mean for mean, _ in modelled(side)]
            telling = next(
                (mhz for mhz, mean in zip(side, means, strict=True) if mean >= (1.0 + TELLING) * lowest),
                side[-1],
            )
            if nearest is None or abs(telling - best) < abs(nearest - best):
                return telling
        return None


def fit_points(measured: Mapping[int, Measurement]) -> list[tuple[float, Measurement]]:
    """Return the points to fit a model to: valid trials, those of a throttled GPU at the clock it had.

    Args:
        measured: by the clock that was set, in MHz.
    """
    return [
        (clock, measurement)
        for mhz, measurement in measured.items()
        if measurement.status is Status.OK
        and measurement.makespan_s
        and (clock := _had(mhz, measurement)) is not None
    ]


def _ceiling(measured: Mapping[int, Measurement]) -> float:
    """The clock above which the GPU runs into its power limit, whatever is set; infinity for none."""
    limited = [
        (mhz, _had(mhz, measurement)) for mhz, measurement in measured.items() if measurement.at_power_limit
    ]
    return min((mhz - 1 if had is None else had for mhz, had in limited), default=math.inf)


def _had(mhz: int, measurement: Measurement) -> float | None:
    """The clock of a trial: as set, or as seen where another was; None where that is not known."""
    if not measurement.spoilt & _OFF:
        return float(mhz)
    seen = measurement.clock_mhz
    return seen if seen is not None and 0.0 < seen <= mhz else None


def _modelled_costs(
    search: Search, model: ClockModel, template: Measurement, clocks_mhz: Sequence[int]
) -> list[tuple[float, float]]:
    """Expected costs, and what they may be below: both time and joules a standard uncertainty lower."""

    def cost(time_s: float, joules: float) -> float:
        energy = None
        if math.isfinite(joules) and time_s > 0.0:
            energy = Energy(float(joules), 0.0, float(joules / time_s), "", "")
        return search.cost(replace(template, makespan_s=float(time_s), energy=energy, estimated_j=None))

    found = model.at(clocks_mhz)
    least_s = found.time_s * np.maximum(0.0, 1.0 - found.time_relative)
    least_joules = found.joules * np.maximum(0.0, 1.0 - found.joules_relative)
    expected = map(cost, found.time_s, found.joules)
    return list(zip(expected, map(cost, least_s, least_joules), strict=True))
