"""The posterior over a pool of configurations, and its expected improvement."""

from typing import Protocol

import numpy as np
from scipy.linalg.lapack import dtrtri, dtrtrs
from scipy.special import erfcx, ndtr

from .features import Floats, Singles
from .gaussian import PoolCovariance, cholesky

_FAR = -1.0  # below so many standard deviations the plain formula cancels
GROWTH = 1.5  # of the room for rows over the pool
_NEAR = 2**17  # numbers of a pool that are worked on at once
_LEAST_SPREAD = 1e-12  # rounding may leave less than no variance


def log_expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Logarithm of the expected improvement below ``best``.

    EI = s (z Φ(z) + φ(z)) with z = (best - mean) / s. Its logarithm stays finite where EI underflows, so
    that candidates can be compared however little they promise.

    Args:
        mean: predicted, shape (n,).
        deviation: standard deviation of the prediction, positive, shape (n,).
        best: lowest value so far.
    """
    z = (best - mean) / deviation
    found = np.empty_like(z)
    near = z > _FAR
    some = z[near]
    found[near] = np.log(some * ndtr(some) + np.exp(-0.5 * some**2) / np.sqrt(2 * np.pi))
    away = z[~near]
    # φ(z) (1 - |z| Φ(z)/φ(z)), where Φ(z)/φ(z) = sqrt(π/2) erfcx(|z|/√2)
    ratio = 1.0 + away * np.sqrt(np.pi / 2) * erfcx(-away / np.sqrt(2))
    tiny = 1.0 / (2.0 + away**2)  # what the ratio tends to; rounding may leave less than that
    found[~near] = np.log(np.maximum(ratio, 0.5 * tiny)) - 0.5 * away**2 - 0.5 * np.log(2 * np.pi)
    return np.asarray(found + np.log(deviation))


class Covariance(Protocol):
    """A fitted covariance of costs over rows of features."""

    def covariance(self, a: Floats, b: Floats) -> Floats:
        """Between rows, shape (rows of a, rows of b)."""

    def covariance_with(self, pool: Floats) -> PoolCovariance:
        """The same with parts of a pool, in single precision."""

    def alike(self, x: Floats) -> Floats:
        """Correlation of the signal between rows of the target, shape (rows, rows)."""

    def spread(self, x: Floats) -> Floats:
        """Variance of the signal, shape (rows,)."""

    def nuggets(self, x: Floats) -> Floats:
        """Variance of the unexplained, shape (rows,)."""


class Posterior:
    """The posterior at a pool; a new measurement costs one row of it, not a new factor.

    The rows over the pool are of single precision: they are most of what a search computes. They are made
    when the pool is predicted: where only its neighbours are asked about, a measurement costs none.

    Of a copy and its original, only one may go on learning: they share the room for rows to come.

    Args:
        model: the covariance, which stays.
        pool: features of what may be asked about, shape (m, features).
    """

    def __init__(self, model: Covariance, pool: Floats) -> None:
        self._model = model
        self._across = model.covariance_with(pool)
        self._x = np.zeros((0, pool.shape[1]))
        self._factor = np.zeros((0, 0))
        # rows over the pool, the factor's inverse times the covariance with it, with room for those to come
        self._room = np.zeros((0, len(pool)), dtype=np.float32)
        self._made = 0  # of the rows
        self._spread = model.spread(pool)
        self._unexplained = model.nuggets(pool)

    def add(self, x: Floats, noise: Floats) -> None:
        """Learn where measurements were made.

        Args:
            x: features, shape (k, features).
            noise: known variance of each measurement, shape (k,).
        """
        before, new = len(self._x), len(x)
        across = self.whitened(self._model.covariance(self._x, x))
        inner = self._model.covariance(x, x) + np.diag(self._model.nuggets(x) + noise)
        corner = cholesky(inner - across.T @ across)
        factor = np.zeros((before + new, before + new), order="F")  # as LAPACK takes it
        factor[:before, :before] = self._factor
        factor[before:, :before] = across.T
        factor[before:, before:] = corner
        self._x = np.vstack([self._x, x])
        self._factor = factor

    def _weighted_rows(self, weights: Singles) -> Singles:
        """The sum of the rows over the pool, times their weights; those that are lacking are made.

        It goes part by part, so that each stays near the processor, and looks at every row once.

        Args:
            weights: shape (n,).

        Returns:
            Shape (m,).
        """
        before, count, size = self._made, len(self._x), self._room.shape[1]
        if before == count:
            return np.asarray(weights @ self._room[:count])
        if count > len(self._room):
            room = np.empty((max(int(GROWTH * before), count), size), dtype=np.float32)
            room[:before] = self._room[:before]
            self._room = room
        x = self._x[before:]
        left = np.vstack([self._factor[before:, :before].astype(np.float32), weights[None, :before]])
        # a product with the inverse of the corner is faster than solving
        inverse = dtrtri(self._factor[before:, before:], lower=1)[0].astype(np.float32)
        spread, total = np.empty(size), np.empty(size, dtype=np.float32)
        width = max(1, _NEAR // len(x))
        for begin in range(0, size, width):
            part = slice(begin, begin + width)
            products = left @ self._room[:before, part]
            rows = inverse @ (self._across(x, part) - products[:-1])
            self._room[before:count, part] = rows
            spread[part] = self._spread[part] - np.einsum("ij,ij->j", rows, rows)
            total[part] = products[-1] + weights[before:] @ rows
        self._spread, self._made = spread, count
        return total

    def predict(self, y: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation over the pool, of what would be measured without noise.

        The noise of measurements is known and apart, so the nugget is an effect that a configuration repeats:
        it can be gained, and is part of the deviation.

        Args:
            y: what was seen, in the order it was added, shape (n,).
        """
        mean = np.asarray(self._weighted_rows(self.whitened(y).astype(np.float32)), dtype=float)
        return mean, np.sqrt(np.maximum(self._spread, _LEAST_SPREAD) + self._unexplained)

    def predict_at(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation at other configurations, shape (k, features)."""
        rows = self.whitened(self._model.covariance(self._x, x))
        spread = self._model.spread(x) - np.einsum("ij,ij->j", rows, rows)
        spread = np.maximum(spread, _LEAST_SPREAD) + self._model.nuggets(x)
        return self.whitened(y) @ rows, np.sqrt(spread)

    def whitened(self, right: Floats) -> Floats:
        """The factor's inverse times what belongs to the measurements, in their order, shape (n, ...)."""
        if not len(self._factor):
            return right
        return np.asarray(dtrtrs(self._factor, right, lower=1)[0])
