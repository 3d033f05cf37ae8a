"""A Gaussian process over the configurations of one task: its fit, and its posterior.

Its kernel is Matern-5/2 with a length scale per kind of difference; its Cholesky factors never fail.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from .features import Floats, Integers, Singles

_JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)  # of the mean diagonal, until the matrix is definite
_ROOT5 = float(np.sqrt(5.0))
# Priors of the logarithms, as mean and standard deviation: wide, because narrow ones did worse. A feature
# spans one, so a length scale of one says that it matters moderately.
LENGTH = (0.0, 1.0)
VARIANCE = (0.0, 1.0)
NUGGET = (-3.5, 1.5)
BOUNDS = ((-3.0, 5.0), (-4.0, 4.0), (float(np.log(1e-6)), 0.0))  # length, variance, nugget
ITERATIONS = 30  # of the optimiser; more hardly change the prediction
TOLERANCE = 1e-4  # of the logarithm of the density, as a share of it: a step that gains less is the last


PoolCovariance = Callable[[Floats, slice], Singles]
"""Covariance of rows of features and a part of a pool, shape (rows, of the part)."""


def cholesky(matrix: Floats) -> Floats:
    """Lower Cholesky factor; the diagonal is raised as much as it takes.

    A matrix beyond help gives a diagonal factor: nothing is learnt from it, and nothing breaks.
    """
    scale = float(np.mean(np.abs(np.diag(matrix)))) if len(matrix) else 1.0
    if not np.isfinite(scale) or scale <= 0.0:
        return np.eye(len(matrix))
    for jitter in _JITTERS:
        raised = matrix + jitter * scale * np.eye(len(matrix)) if jitter else matrix
        factor, info = scipy.linalg.lapack.dpotrf(raised, lower=1, clean=1)
        if info == 0 and np.all(np.isfinite(factor)):
            return np.asarray(factor)
    return np.asarray(np.sqrt(scale) * np.eye(len(matrix)))


def squared(a: Floats, b: Floats) -> Floats:
    """Squared distances between the rows of two arrays, shape (rows of a, rows of b)."""
    products: Floats = _left(a) @ _right(b)  # one pass over what may be a large result
    return np.maximum(products, 0.0, out=products)


def _left(a: Floats) -> Floats:
    """The left factor of squared distances, shape (rows of a, features + 2)."""
    return np.column_stack([-2.0 * a, (a * a).sum(axis=1), np.ones(len(a))])


def _right(b: Floats) -> Floats:
    """The right factor of squared distances, shape (features + 2, rows of b)."""
    return np.vstack([b.T, np.ones(len(b)), (b * b).sum(axis=1)])


def matern(r2: NDArray[Any]) -> NDArray[Any]:
    """Correlation at a squared distance in length scales: (1 + √5 r + 5/3 r²) exp(-√5 r)."""
    root = np.sqrt(r2)
    root *= -_ROOT5
    result: NDArray[Any] = np.exp(root)
    np.subtract(1.0, root, out=root)
    root += (5.0 / 3.0) * r2
    result *= root
    return result


@lru_cache(maxsize=2)
def pairs(n: int) -> Integers:
    """Return the flat indices of the pairs of n points in a matrix, row after row: below the diagonal."""
    return np.asarray(np.ravel_multi_index(np.tril_indices(n, -1), (n, n)))


def by_pair(x: Floats, groups: Integers, count: int) -> Floats:
    """Squared distances of pairs of rows, group of features by group.

    Args:
        x: features, shape (n, features).
        groups: length scale of every feature.
        count: length scales.

    Returns:
        Shape (count, n (n - 1) / 2), in the order of `pairs`.
    """
    rows, columns = np.tril_indices(len(x), -1)
    result = np.zeros((count, len(rows)))
    for feature, group in enumerate(groups):
        result[group] += (x[rows, feature] - x[columns, feature]) ** 2
    return result


@dataclass(frozen=True)
class Gaussian:
    """A fitted covariance.

    Attributes:
        groups: length scale of every feature.
        lengths: logarithms of the length scales.
        variance: logarithm of the variance of the signal.
        nugget: logarithm of the variance of what neither tunables nor the known noise explain.
        doubts: variances of linear coefficients, of the features behind those of ``groups``.
    """

    groups: Integers
    lengths: Floats
    variance: float = VARIANCE[0]
    nugget: float = NUGGET[0]
    doubts: Floats = field(default_factory=lambda: np.zeros(0))

    def covariance(self, a: Floats, b: Floats) -> Floats:
        """Covariance of the signal between rows of features, shape (rows of a, rows of b)."""
        result = self._local(a, b)
        if len(self.doubts):
            result += self.linear(a, b)
        return result

    def covariance_with(self, pool: Floats) -> PoolCovariance:
        """The same with parts of a pool, in single precision.

        Args:
            pool: features, shape (m, features).
        """
        scales, width = np.exp(-self.lengths)[self.groups], len(self.groups)
        middle = pool[:, :width].mean(axis=0) if len(pool) else 0.0  # small squares cancel less
        right = _right((pool[:, :width] - middle) * scales).astype(np.float32)
        believed = (pool[:, width:] * self.doubts).T.astype(np.float32)

        def across(x: Floats, part: slice) -> Singles:
            products = _left((x[:, :width] - middle) * scales).astype(np.float32) @ right[:, part]
            result: Singles = matern(np.maximum(products, 0.0, out=products))
            result *= np.float32(np.exp(self.variance))
            if len(self.doubts):
                result += x[:, width:].astype(np.float32) @ believed[:, part]
            return result

        return across

    def linear(self, a: Floats, b: Floats) -> Floats:
        """Covariance that doubtful coefficients make, shape (rows of a, rows of b)."""
        width = len(self.groups)
        return np.asarray((a[:, width:] * self.doubts) @ b[:, width:].T)

    def _local(self, a: Floats, b: Floats) -> Floats:
        scales, width = np.exp(-self.lengths)[self.groups], len(self.groups)
        result: Floats = matern(squared(a[:, :width] * scales, b[:, :width] * scales))
        result *= np.exp(self.variance)
        return result

    def alike(self, x: Floats) -> Floats:
        """Correlation of the signal between rows of features, without what is linear, shape (rows, rows)."""
        return np.asarray(self._local(x, x) / np.exp(self.variance))

    def spread(self, x: Floats) -> Floats:
        """Variance of the signal at rows of features, shape (rows,)."""
        return np.asarray(np.exp(self.variance) + (x[:, len(self.groups) :] ** 2) @ self.doubts)


def prior(groups: Integers, doubts: Floats | None = None) -> Gaussian:
    """The prior's middle; with features that are linear, whose coefficients have such variances."""
    lengths = np.full(int(groups.max(initial=-1)) + 1, LENGTH[0])
    return Gaussian(groups, lengths, doubts=np.zeros(0) if doubts is None else doubts)


def fit(start: Gaussian, x: Floats, y: Floats, noise: Floats) -> Gaussian:
    """The covariance of highest posterior density, found from ``start``.

    Args:
        start: where the search begins.
        x: features, shape (n, features).
        y: shape (n,), about zero mean and unit variance.
        noise: known variance of each y, shape (n,).
    """
    count = len(start.lengths)
    optimum = scipy.optimize.minimize(
        log_posterior,
        np.append(start.lengths, [start.variance, start.nugget]),
        args=(by_pair(x, start.groups, count), y, np.diag(noise) + start.linear(x, x)),
        jac=True,
        method="L-BFGS-B",
        bounds=[BOUNDS[0]] * count + list(BOUNDS[1:]),
        options={"maxiter": ITERATIONS, "ftol": TOLERANCE},
    )
    if not np.all(np.isfinite(optimum.x)):
        return start
    return replace(start, lengths=optimum.x[:-2], variance=float(optimum.x[-2]), nugget=float(optimum.x[-1]))


def next_fit(growth: float, count: int) -> int:
    """Return the count of measurements at which hyper-parameters are fitted again."""
    return max(count + 1, int(np.ceil(growth * count)))


def log_posterior(vector: Floats, distances: Floats, y: Floats, fixed: Floats) -> tuple[float, Floats]:
    """Minus the log of marginal likelihood times prior, up to a constant, and its gradient.

    Args:
        vector: log length scales, log variance, log nugget.
        distances: squared, per length scale, of pairs of points as in `pairs`.
        y: what was seen, shape (n,).
        fixed: covariance that is not to be found: noise, and what is linear, shape (n, n).
    """
    n = len(y)
    flat = pairs(n)
    weights = np.exp(-2.0 * vector[:-2])
    variance, nugget = np.exp(vector[-2]), np.exp(vector[-1])
    root = _ROOT5 * np.sqrt(weights @ distances)
    decay = variance * np.exp(-root)
    signal = (1.0 + root + root * root / 3.0) * decay
    matrix = fixed.ravel().copy()
    matrix[flat] += signal  # the lower triangle is all that `cholesky` reads
    matrix[:: n + 1] += variance + nugget
    factor = cholesky(matrix.reshape(n, n))
    alpha = scipy.linalg.lapack.dpotrs(factor, y, lower=1)[0]
    inner = np.outer(alpha, alpha) - scipy.linalg.lapack.dpotri(factor, lower=1)[0]  # below the diagonal
    apart, trace = inner.ravel()[flat], float(np.trace(inner))
    gradient = np.empty_like(vector)
    gradient[:-2] = 2.0 * weights * (distances @ (apart * ((5.0 / 3.0) * (1.0 + root) * decay)))
    gradient[-2] = 2.0 * (apart @ signal) + variance * trace
    gradient[-1] = nugget * trace
    value = 0.5 * y @ alpha + np.sum(np.log(np.diag(factor)))
    priors = np.array([LENGTH] * len(weights) + [VARIANCE, NUGGET])
    off = (vector - priors[:, 0]) / priors[:, 1]
    return float(value + 0.5 * off @ off), off / priors[:, 1] - 0.5 * gradient


# --- The posterior over a pool of configurations, and its expected improvement.

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
    logs = np.empty_like(z)
    near = z > _FAR
    near_z = z[near]
    logs[near] = np.log(near_z * scipy.special.ndtr(near_z) + np.exp(-0.5 * near_z**2) / np.sqrt(2 * np.pi))
    away = z[~near]
    # φ(z) (1 - |z| Φ(z)/φ(z)), where Φ(z)/φ(z) = sqrt(π/2) erfcx(|z|/√2)
    ratio = 1.0 + away * np.sqrt(np.pi / 2) * scipy.special.erfcx(-away / np.sqrt(2))
    tiny = 1.0 / (2.0 + away**2)  # what the ratio tends to; rounding may leave less than that
    logs[~near] = np.log(np.maximum(ratio, 0.5 * tiny)) - 0.5 * away**2 - 0.5 * np.log(2 * np.pi)
    return np.asarray(logs + np.log(deviation))


class Posterior:
    """The posterior at a pool; a new measurement costs one row of it, not a new factor.

    The rows over the pool are of single precision: they are most of what a search computes. They are made
    when the pool is predicted. Of a copy and its original, only one may go on learning: they share the room
    for rows to come.

    Args:
        model: the covariance, which stays.
        pool: features of what may be asked about, shape (m, features).
    """

    def __init__(self, model: Gaussian, pool: Floats) -> None:
        self._model = model
        self._across = model.covariance_with(pool)
        self._x = np.zeros((0, pool.shape[1]))
        self._factor = np.zeros((0, 0))
        # rows over the pool, the factor's inverse times the covariance with it, with room for those to come
        self._room = np.zeros((0, len(pool)), dtype=np.float32)
        self._made = 0  # of the rows
        self._spread = model.spread(pool)
        self._unexplained = float(np.exp(model.nugget))

    def add(self, x: Floats, noise: Floats) -> None:
        """Learn where measurements were made.

        Args:
            x: features, shape (k, features).
            noise: known variance of each measurement, shape (k,).
        """
        before, new = len(self._x), len(x)
        across = self.whitened(self._model.covariance(self._x, x))
        inner = self._model.covariance(x, x) + np.diag(self._unexplained + noise)
        corner = cholesky(inner - across.T @ across)
        factor = np.zeros((before + new, before + new), order="F")  # as LAPACK takes it
        factor[:before, :before] = self._factor
        factor[before:, :before] = across.T
        factor[before:, before:] = corner
        self._x = np.vstack([self._x, x])
        self._factor = factor

    def _weighted_rows(self, weights: Singles) -> Singles:
        """The sum of the rows over the pool, times their weights, shape (m,); lacking rows are made.

        It goes part by part, so that each stays near the processor, and looks at every row once.
        """
        before, count, size = self._made, len(self._x), self._room.shape[1]
        if before == count:
            return np.asarray(weights @ self._room[:count])
        if count > len(self._room):
            room = np.empty((max(int(GROWTH * before), count), size), dtype=np.float32)
            room[:before] = self._room[:before]
            self._room = room
        x = self._x[before:]
        factors = np.vstack([self._factor[before:, :before].astype(np.float32), weights[None, :before]])
        # a product with the inverse of the corner is faster than solving
        inverse = scipy.linalg.lapack.dtrtri(self._factor[before:, before:], lower=1)[0].astype(np.float32)
        spread, total = np.empty(size), np.empty(size, dtype=np.float32)
        width = max(1, _NEAR // len(x))
        for begin in range(0, size, width):
            part = slice(begin, begin + width)
            products = factors @ self._room[:before, part]
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
        spread = np.maximum(spread, _LEAST_SPREAD) + self._unexplained
        return self.whitened(y) @ rows, np.sqrt(spread)

    def supposing(self, x: Floats, y: Floats) -> tuple["Posterior", Floats]:
        """A copy that takes what it predicts at ``x``, (k, features), for measured; and ``y`` with that."""
        mean, _ = self.predict_at(x, y)
        other = copy(self)
        other.add(x, np.zeros(len(x)))
        return other, np.append(y, mean)

    def without_noise(self, y: Floats, noise: Floats) -> Floats:
        """Mean of what was seen without the noise of its measurement, y - noise K⁻¹ y, shape (n,).

        What the nugget stands for is repeated, and stays. See Rasmussen and Williams, "Gaussian Processes for
        Machine Learning" (2006), equation 2.25. Both are in the order of measurements, shape (n,).
        """
        return np.asarray(y - noise * scipy.linalg.lapack.dpotrs(self._factor, y, lower=1)[0])

    def log_likelihood(self, y: Floats) -> float:
        """Logarithm of the marginal likelihood of what was seen, up to a constant for each of it."""
        white = self.whitened(y)
        return float(-0.5 * white @ white - np.log(np.diag(self._factor)).sum())

    def covariance_at(self, x: Floats) -> Floats:
        """Covariance of the signal between other configurations, shape (k, k)."""
        rows = self.whitened(self._model.covariance(self._x, x))
        return np.asarray(self._model.covariance(x, x) - rows.T @ rows)

    def whitened(self, right: Floats) -> Floats:
        """The factor's inverse times what belongs to the measurements, in their order, shape (n, ...)."""
        if not len(self._factor):
            return right
        return np.asarray(scipy.linalg.lapack.dtrtrs(self._factor, right, lower=1)[0])
