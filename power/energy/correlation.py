"""Noise whose neighbours hang together: what it makes of a weighted sum of samples.

White noise of variance s^2 makes s^2 sum(w_i^2) of a sum with weights w. Correlated noise makes s^2 w'Rw, R
the correlations of the samples: for the mean of many that is the integrated autocorrelation time,
1 + 2 sum(r_k), times as much (Priestley, "Spectral Analysis and Time Series", section 5.3). It is taken here
for noise with one correlation time T, r(t) = exp(-|t| / T): an AR(1) process where samples come regularly.

T is not known. Each of a few times is as likely as the restricted likelihood of the samples says, which is
that of the residuals alone, whatever the mean, the drift and the decay of a lag are (Patterson and Thompson,
Biometrika 58, 1971; Harville, Biometrika 61, 1974). For one T the sum's error follows Student's distribution;
its distribution is their mixture, and the interval holds 95 % of that. Few samples tell little of T: what
earlier windows of the sensor told is added.
"""

import numpy as np

from tuner.interfaces.power import Response
from tuner.model.uncertainty import Part, contracted

from ..response.models import Array
from .samples import SampleSeries

TIMES = np.concatenate(([0.0], np.geomspace(1.0, 25.0, 8)))  # correlation times that are tried, in periods
_PRIOR = np.log(np.concatenate(([0.5], np.full(len(TIMES) - 1, 0.5 / (len(TIMES) - 1)))))
_OUTSIDE = 0.05  # of the distribution lies outside the interval
_HALVINGS = 40
_NORMAL = 1.96  # half of that interval of a normal distribution, in its standard deviations
_LEAST = 3  # degrees of freedom, of fewer nothing is told


def told_of_times(
    samples: SampleSeries, weights: Array, response: Response, period_s: float
) -> tuple[Array, Array, int] | None:
    """What a window tells of each of ``TIMES``; None of too few samples.

    Args:
        samples: of one load; mean, drift and the decay of a lag are taken off.
        weights: of the sum, shape (n,).
        response: how the reading follows power.
        period_s: unit of ``TIMES``.

    Returns:
        Restricted log-likelihoods less that of white noise; variances of ``weights @ values``; both of shape
        (len(TIMES),). Degrees of freedom.
    """
    basis = _smooth(samples, response)
    degrees = len(samples) - basis.shape[1]
    if degrees < _LEAST:
        return None
    kept = np.exp(-np.diff(samples.times_s) / period_s / np.maximum(TIMES, 1e-9)[:, None])
    fresh = np.sqrt(1.0 - kept**2)
    columns = np.column_stack((basis, samples.values))
    white = np.repeat(columns[None], len(TIMES), axis=0)
    white[:, 1:] = (columns[1:] - kept[:, :, None] * columns[:-1]) / fresh[:, :, None]
    triangles = np.abs(np.diagonal(np.asarray(np.linalg.qr(white, mode="r")), axis1=1, axis2=2))
    squares = np.maximum(triangles[:, -1] ** 2, np.finfo(np.float64).tiny)
    likelihoods = -np.log(fresh).sum(axis=1) - np.log(triangles[:, :-1]).sum(axis=1)
    likelihoods -= degrees / 2.0 * np.log(squares)
    return likelihoods - likelihoods[0], squares / degrees * _quadratic(weights, kept), degrees


def correlated(likelihoods: Array, variances: Array, degrees: int, known: Array | None = None) -> Part:
    """The part of a sum's variance that noise makes, as wide as its 95 % interval.

    Args:
        likelihoods: of this window, see ``told_of_times``.
        variances: of the sum for each of ``TIMES``.
        degrees: of freedom of each.
        known: what earlier windows told of the likelihoods, their sum.
    """
    from scipy.special import stdtr  # noqa: PLC0415 - takes 0.2 s, which the first trial need not wait for

    logs = likelihoods + _PRIOR + (0.0 if known is None else known)
    shares = np.exp(logs - logs.max())
    shares /= shares.sum()
    sigmas = np.sqrt(variances)
    low, high = 0.0, 1e3 * float(sigmas.max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if float(shares @ (2.0 * stdtr(degrees, -middle / sigmas))) > _OUTSIDE:
            low = middle
        else:
            high = middle
    return contracted(high / _NORMAL, degrees)


def _smooth(samples: SampleSeries, response: Response) -> Array:
    """Columns that are no noise: a mean, a drift, and the decay of a lag after a step of power."""
    since_s = samples.times_s - samples.times_s[0]
    columns = [np.ones(len(samples)), since_s / max(samples.duration_s, np.finfo(np.float64).tiny)]
    if response.kind == "lag":
        columns.append(np.exp(-since_s / response.capacitance_s))
    return np.column_stack(columns)


def _quadratic(weights: Array, kept: Array) -> Array:
    """The sum w'Rw for each correlation time, by the recursion that exponentials allow."""
    sums = np.empty((len(weights), len(kept)))  # of all weights so far, by their correlation with the last
    sums[0] = weights[0]
    for place, share in enumerate(np.ascontiguousarray(kept.T), 1):
        np.multiply(share, sums[place - 1], out=sums[place])
        sums[place] += weights[place]
    total = weights @ (2.0 * sums - weights[:, None])
    return np.asarray(np.maximum(total, 0.0))
