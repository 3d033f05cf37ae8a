"""Least-squares fits of the response models to a reading of a known load.

A reading of a load that is on or off shows ``P0 + dP * g(t)``, where g is what the model makes of the load as
a curve between 0 and 1. P0, dP and slow terms (drift, warming) are linear and are projected out; what remains
are at most two numbers, size (C or W) and delay, which are searched on a grid first and then refined, as the
sum of squares has many local minima where samples pass edges.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ..base import Response
from ..energy.samples import SampleSeries
from .models import Array, PowerCurve, shown_joules, shown_watts

Kind = Literal["identity", "lag", "mean"]

_SIZES_S = np.geomspace(0.003, 6.0, 23)  # time constants and windows that are tried: 5 ms to 5 s, and beyond
_STEP = 0.25  # of the delays that are tried, in periods or sizes, whichever is longer
_FINE_STEP = 0.05  # of them where nothing but the delay is fitted, in periods
_FINEST = 201  # delays within a fine step to either side
_SPAN_OF_FLAT, _SPAN_OF_PARABOLA = 12.0**0.5, 2.0  # standard deviations in what fits alike
_EARLIEST = -0.5  # delay in periods: time stamps may be as wrong as this
_LATEST, _LATEST_S = 1.5, 0.1  # delay: periods, and what a driver takes
_WARMING_S = 5.0, 20.0  # of a package that heats up: far from any reading's own memory
_RATIO = 0.3  # between the sizes that are tried, about, as a logarithm
_TOLERANCE = 1e-3  # of the refinement, relative to size and period
_ITERATIONS = 200  # of it at most; some fifty are usual
_BLOCKS = 40  # stretches of time whose residuals count as independent of each other
_SIZE_STEP = 0.02  # of derivatives, relative
_DELAY_STEP = 0.05  # of derivatives, in periods


@dataclass(frozen=True)
class Evidence:
    """Samples of a reading under a known load.

    Attributes:
        times_s: of the samples, shape (n,).
        watts: shown by them; of a counter the mean power since its tick before, shape (n,).
        since_s: of a counter the times of the ticks before, shape (n,); None of watts.
        load: 1 while the load was on, 0 else.
        period_s: median time between samples.
    """

    times_s: Array
    watts: Array
    since_s: Array | None
    load: PowerCurve
    period_s: float

    @staticmethod
    def of(trace: SampleSeries, *, counter: bool, busy: Sequence[tuple[float, float]]) -> "Evidence":
        """Evidence of samples (of joules if ``counter``) and the times in which the load was on."""
        gaps = np.diff(trace.times_s)
        period_s = float(np.median(gaps)) if len(gaps) else 0.0
        load = PowerCurve.of_load(busy)
        if not counter:
            return Evidence(trace.times_s, trace.values, None, load, period_s)
        return Evidence(trace.times_s[1:], np.diff(trace.values) / gaps, trace.times_s[:-1], load, period_s)

    def __len__(self) -> int:
        return len(self.times_s)

    def shape(self, response: Response, delays_s: Array | float = 0.0) -> Array:
        """Return the model's reading of the load, shape (n,), or (m, n) for m delays beyond its own."""
        later = np.asarray(delays_s)[..., None] if np.ndim(delays_s) else delays_s
        if self.since_s is None or response.window_s > 0:  # a counter may count what part of the time shows
            return shown_watts(self.load, self.times_s - later, response)
        now, then = (shown_joules(self.load, t - later, response) for t in (self.times_s, self.since_s))
        return np.asarray((now - then) / (self.times_s - self.since_s))

    def background(self, slow: Response | None = None) -> Array:
        """Orthonormal columns beside the load's step: idle power and, if ``slow``, what warms.

        A GPU that warms draws more, idle or not, and more of that under load: columns are the time and what
        the load has heated, alone and times the load as ``slow``, about the response, shows it.
        """
        columns = [np.ones(len(self))]
        if slow is not None:
            shape = self.shape(slow)
            heat = [self.times_s - self.times_s[0], *(self.load.lagged(self.times_s, t) for t in _WARMING_S)]
            columns += [*heat, *(shape * column for column in heat)]
        return np.asarray(np.linalg.qr(np.stack(columns, axis=1))[0])


@dataclass(frozen=True)
class ModelFit:
    """The best of one kind of model.

    Attributes:
        kind: of the model; ``mean`` is boxcar or ramp, which differ by the period only.
        response: with standard uncertainties.
        step_w: dP, power of the load above idle as the reading shows it.
        idle_w: P0.
        residuals_w: what the model leaves, shape (n,).
        parameters: fitted numbers in all.
        slow: by what response drift and warming are seen that are among them; None where they are not.
    """

    kind: Kind
    response: Response
    step_w: float
    idle_w: float
    residuals_w: Array
    parameters: int
    slow: Response | None = None

    @property
    def size_s(self) -> float:
        """C or W; 0 of an identity."""
        return self.response.capacitance_s + self.response.window_s

    @property
    def squares(self) -> float:
        """Sum of squared residuals."""
        return float(self.residuals_w @ self.residuals_w)

    def bic(self, effective: float) -> float:
        """Bayesian information criterion for ``effective`` independent samples of the residuals' variance."""
        mean = max(self.squares, np.finfo(np.float64).tiny) / len(self.residuals_w)
        return float(effective * np.log(mean) + self.parameters * np.log(effective))


def model(kind: Kind, size_s: float, delay_s: float) -> Response:
    """A response with this size (time constant or window)."""
    if kind == "lag":
        return Response("lag", capacitance_s=size_s, delay_s=delay_s)
    if kind == "mean":
        return Response("ramp", window_s=size_s, delay_s=delay_s)
    return Response(delay_s=delay_s)


def fit(evidence: Evidence, kind: Kind, *, slow: Response | None = None) -> ModelFit:
    """The best model of a kind, with the standard uncertainties of its size and delay."""
    projected = Projection(evidence, slow=slow)
    size_s, delay_s = _on_grid(projected, kind)
    if kind == "identity":
        return _described(projected, kind, _scanned(projected, delay_s))
    return _described(projected, kind, _refined(projected, kind, size_s, delay_s))


class Projection:
    """Sum of squares after the best linear terms."""

    def __init__(self, evidence: Evidence, *, slow: Response | None = None) -> None:
        self.evidence = evidence
        self.slow = slow
        self.background = evidence.background(slow)
        self.target = evidence.watts - self.background @ (self.background.T @ evidence.watts)
        self._total = float(self.target @ self.target)

    def without(self, shapes: Array) -> Array:
        """Shapes, (..., n), less what the background explains of them."""
        return np.asarray(shapes - (shapes @ self.background) @ self.background.T)

    def squares(self, shapes: Array) -> Array:
        """Sum of squares for each of the shapes (..., n); a step must be one upwards."""
        shapes = self.without(shapes)
        along = shapes @ self.target
        norms = np.maximum(np.einsum("...i,...i->...", shapes, shapes), np.finfo(np.float64).tiny)
        return np.asarray(self._total - np.maximum(along, 0.0) ** 2 / norms)


def _on_grid(projected: Projection, kind: Kind) -> tuple[float, float]:
    """Size and delay of the best grid point."""
    evidence = projected.evidence
    period_s = evidence.period_s
    ends = _EARLIEST * period_s, _LATEST * period_s + _LATEST_S
    best = (np.inf, 0.0, 0.0)
    for size_s in (0.0,) if kind == "identity" else _SIZES_S.tolist():
        step_s = _FINE_STEP * period_s if kind == "identity" else _STEP * max(period_s, size_s)
        delays = np.arange(ends[0], ends[1] + step_s, step_s)
        squares = projected.squares(evidence.shape(model(kind, size_s, 0.0), delays))
        least = int(np.argmin(squares))
        best = min(best, (float(squares[least]), size_s, float(delays[least])))
    return best[1:]


def _scanned(projected: Projection, delay_s: float) -> Response:
    """The identity's delay: the middle of those that fit alike, as only samples near edges tell them apart.

    Alike is what adds no more to the sum of squares than one standard deviation of a delay would. That sum
    rises to both sides of a counter's delay as a parabola does; that of watts is flat until a sample jumps.
    """
    evidence = projected.evidence
    reach_s = _FINE_STEP * evidence.period_s
    delays = delay_s + np.linspace(-reach_s, reach_s, _FINEST)
    squares = projected.squares(evidence.shape(Response(), delays))
    alike = delays[squares <= squares.min() * (1.0 + 1.0 / len(evidence))]
    span_s = float(alike[-1] - alike[0]) + 2.0 * reach_s / (_FINEST - 1)
    sigmas = _SPAN_OF_FLAT if evidence.since_s is None else _SPAN_OF_PARABOLA
    return Response(delay_s=float(alike[0] + alike[-1]) / 2.0, delay_sigma_s=span_s / sigmas)


def nearest_minimum(squares: Callable[[Array], float], first: Array, spread: Array) -> Array:
    """The nearest minimum of a sum of squares; by Nelder and Mead, as it has kinks.

    Args:
        squares: of a point of shape (k,).
        first: where to start.
        spread: size of the first simplex along each axis.
    """
    from scipy.optimize import minimize  # noqa: PLC0415 - only a calibration waits for it

    options = {
        "initial_simplex": np.vstack((first, first + np.diag(spread))),
        "xatol": _TOLERANCE,
        "fatol": np.inf,
        "maxiter": _ITERATIONS,
    }
    return np.asarray(minimize(squares, first, method="Nelder-Mead", options=options).x)


def within(log_size: float) -> float:
    """A size from its logarithm, no longer or shorter than what is tried."""
    return float(np.clip(np.exp(log_size), _SIZES_S[0], _SIZES_S[-1]))


def _refined(projected: Projection, kind: Kind, size_s: float, delay_s: float) -> Response:
    """Size and delay of the minimum near a grid point; the first simplex spans a step of the grid."""
    evidence, period_s = projected.evidence, projected.evidence.period_s

    def response(point: Array) -> Response:
        return model(kind, within(point[1]), float(point[0]) * period_s)

    first = np.array([delay_s / period_s, np.log(size_s)])
    spread = np.array([_STEP * max(1.0, size_s / period_s), _RATIO])
    return response(
        nearest_minimum(
            lambda point: float(projected.squares(evidence.shape(response(point)))), first, spread
        )
    )


def _described(projected: Projection, kind: Kind, response: Response) -> ModelFit:
    """The fit at its minimum: linear terms, residuals and uncertainties."""
    evidence = projected.evidence
    shape = projected.without(evidence.shape(response))
    step_w = float(shape @ projected.target / (shape @ shape)) if shape.any() else 0.0
    residuals = projected.target - step_w * shape
    columns = np.column_stack((np.ones(len(evidence)), evidence.shape(response)))
    idle_w = float(np.linalg.lstsq(columns, evidence.watts - residuals, rcond=None)[0][0])
    if kind != "identity":
        size_sigma, delay_sigma = _sigmas(projected, kind, response, step_w, residuals)
        response = replace(
            response,
            capacitance_sigma_s=size_sigma if kind == "lag" else 0.0,
            window_sigma_s=size_sigma if kind == "mean" else 0.0,
            delay_sigma_s=delay_sigma,
        )
    parameters = projected.background.shape[1] + (2 if kind == "identity" else 3)
    return ModelFit(kind, response, step_w, idle_w, residuals, parameters, projected.slow)


def _sigmas(
    projected: Projection, kind: Kind, response: Response, step_w: float, residuals: Array
) -> tuple[float, float]:
    """Standard uncertainties of size and delay in seconds."""
    evidence = projected.evidence
    size_s = response.capacitance_s + response.window_s
    size_step_s, delay_step_s = _SIZE_STEP * size_s, _DELAY_STEP * evidence.period_s

    def slope(size_by_s: float, delay_by_s: float) -> Array:
        ahead = evidence.shape(model(kind, size_s + size_by_s, response.delay_s + delay_by_s))
        behind = evidence.shape(model(kind, size_s - size_by_s, response.delay_s - delay_by_s))
        return step_w * (ahead - behind) / (2.0 * (size_by_s + delay_by_s))

    size_sigma_s, delay_sigma_s, _ = sigmas(
        projected, [slope(size_step_s, 0.0), slope(0.0, delay_step_s), evidence.shape(response)], residuals
    )
    return size_sigma_s, delay_sigma_s


def sigmas(projected: Projection, slopes: Sequence[Array], residuals: Array) -> list[float]:
    """Standard uncertainties of parameters that change what is shown by ``slopes``, of shape (n,) each.

    From the curvature of the sum of squares, and from the scatter of the gradient between blocks of time,
    which also sees residuals that hang together (a load that is no perfect square); the larger counts.
    """
    jacobian = projected.without(np.stack(slopes)).T
    curvature = np.linalg.pinv(jacobian.T @ jacobian)
    freedom = max(1, len(residuals) - jacobian.shape[1] - projected.background.shape[1])
    plain = curvature * float(residuals @ residuals) / freedom
    pushes = np.stack([part.sum(axis=0) for part in np.array_split(jacobian * residuals[:, None], _BLOCKS)])
    blocked = curvature @ (pushes.T @ pushes) @ curvature * _BLOCKS / (_BLOCKS - 1)
    # rounding may leave less than nothing of a flat direction, as that of a sensor that stands still
    variances = np.maximum(np.maximum(np.diag(plain), np.diag(blocked)), 0.0)
    return [float(sigma) for sigma in np.sqrt(variances)]
