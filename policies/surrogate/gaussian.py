"""A Gaussian process over the configurations of one task, fitted by maximum a posteriori.

Its kernel is Matern-5/2 with a length scale per kind of difference; its Cholesky factors never fail.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import cho_solve
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize

from .encoding import Floats, Integers, Singles

_JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)  # of the mean diagonal, until the matrix is definite
_ROOT5 = float(np.sqrt(5.0))
# Priors of the logarithms, as mean and standard deviation: wide, because narrow ones did worse. A feature
# spans one, so a length scale of one says that it matters moderately.
LENGTH = (0.0, 1.0)
VARIANCE = (0.0, 1.0)
NUGGET = (-3.5, 1.5)
BOUNDS = ((-3.0, 5.0), (-4.0, 4.0), (float(np.log(1e-6)), 0.0))  # length, variance, nugget
ITERATIONS = 30  # of the optimiser; more hardly change the prediction


def cholesky(matrix: Floats) -> Floats:
    """Lower Cholesky factor; the diagonal is raised as much as it takes.

    A matrix beyond help gives a diagonal factor: nothing is learnt from it, and nothing breaks.
    """
    scale = float(np.mean(np.abs(np.diag(matrix)))) if len(matrix) else 1.0
    if not np.isfinite(scale) or scale <= 0.0:
        return np.eye(len(matrix))
    for jitter in _JITTERS:
        raised = matrix + jitter * scale * np.eye(len(matrix)) if jitter else matrix
        factor, info = dpotrf(raised, lower=1, clean=1)
        if info == 0 and np.all(np.isfinite(factor)):
            return np.asarray(factor)
    return np.asarray(np.sqrt(scale) * np.eye(len(matrix)))


def inverse(factor: Floats) -> Floats:
    """Inverse of the matrix whose lower Cholesky factor is given."""
    lower, _ = dpotri(factor, lower=1)
    return np.asarray(np.tril(lower) + np.tril(lower, -1).T)


def squared(a: Floats, b: Floats) -> Floats:
    """Squared distances between the rows of two arrays, shape (rows of a, rows of b)."""
    left = np.column_stack([-2.0 * a, (a * a).sum(axis=1), np.ones(len(a))])
    right = np.column_stack([b, np.ones(len(b)), (b * b).sum(axis=1)])
    products: Floats = left @ right.T  # one pass over what may be a large result
    return np.maximum(products, 0.0, out=products)


def matern(r2: NDArray[Any]) -> NDArray[Any]:
    """Correlation at a squared distance in length scales: (1 + √5 r + 5/3 r²) exp(-√5 r)."""
    root = np.sqrt(r2)
    root *= -_ROOT5
    result: NDArray[Any] = np.exp(root)
    np.subtract(1.0, root, out=root)
    root += (5.0 / 3.0) * r2
    result *= root
    return result


def slope(r2: Floats) -> Floats:
    """Minus twice the derivative of `matern` by the squared distance: 5/3 (1 + √5 r) exp(-√5 r)."""
    root = _ROOT5 * np.sqrt(r2)
    return np.asarray((5.0 / 3.0) * (1.0 + root) * np.exp(-root))


def by_group(x: Floats, groups: Integers, count: int) -> Floats:
    """Squared distances of every pair of rows, group of features by group.

    Args:
        x: features, shape (n, features).
        groups: length scale of every feature.
        count: length scales.

    Returns:
        Shape (count, n * n).
    """
    result = np.zeros((count, len(x), len(x)))
    for feature, group in enumerate(groups):
        result[group] += (x[:, None, feature] - x[None, :, feature]) ** 2
    return result.reshape(count, len(x) ** 2)


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
        return self._covariance(a, b, np.float64)

    def rough_covariance(self, a: Floats, b: Floats) -> Singles:
        """The same in single precision."""
        return np.asarray(self._covariance(a, b, np.float32))

    def _covariance(self, a: Floats, b: Floats, kind: DTypeLike) -> NDArray[Any]:
        result = self._local(a, b, kind)
        if len(self.doubts):
            result += self.linear(a, b).astype(kind)
        return result

    def linear(self, a: Floats, b: Floats) -> Floats:
        """Covariance that doubtful coefficients make, shape (rows of a, rows of b)."""
        known = len(self.groups)
        return np.asarray((a[:, known:] * self.doubts) @ b[:, known:].T)

    def _local(self, a: Floats, b: Floats, kind: DTypeLike = np.float64) -> NDArray[Any]:
        scales, known = np.exp(-self.lengths)[self.groups], len(self.groups)
        distances = squared(a[:, :known] * scales, b[:, :known] * scales)
        result = matern(distances.astype(kind, copy=False))
        result *= np.exp(self.variance)
        return result

    def alike(self, x: Floats) -> Floats:
        """Correlation of the signal between rows of features, without what is linear, shape (rows, rows)."""
        return np.asarray(self._local(x, x) / np.exp(self.variance))

    def spread(self, x: Floats) -> Floats:
        """Variance of the signal at rows of features, shape (rows,)."""
        return np.asarray(np.exp(self.variance) + (x[:, len(self.groups) :] ** 2) @ self.doubts)

    def nuggets(self, x: Floats) -> Floats:
        """Variance of the unexplained at rows of features, shape (rows,)."""
        return np.full(len(x), np.exp(self.nugget))


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
    found = minimize(
        log_posterior,
        np.append(start.lengths, [start.variance, start.nugget]),
        args=(by_group(x, start.groups, count), y, np.diag(noise) + start.linear(x, x)),
        jac=True,
        method="L-BFGS-B",
        bounds=[BOUNDS[0]] * count + list(BOUNDS[1:]),
        options={"maxiter": ITERATIONS},
    )
    if not np.all(np.isfinite(found.x)):
        return start
    return replace(start, lengths=found.x[:-2], variance=float(found.x[-2]), nugget=float(found.x[-1]))


def log_posterior(vector: Floats, distances: Floats, y: Floats, known: Floats) -> tuple[float, Floats]:
    """Minus the log of marginal likelihood times prior, up to a constant, and its gradient.

    Args:
        vector: log length scales, log variance, log nugget.
        distances: squared, per length scale, shape (length scales, n * n).
        y: what was seen, shape (n,).
        known: covariance that is not to be found: noise, and what is linear, shape (n, n).
    """
    n = len(y)
    weights = np.exp(-2.0 * vector[:-2])
    variance, nugget = np.exp(vector[-2]), np.exp(vector[-1])
    root = _ROOT5 * np.sqrt((weights @ distances).reshape(n, n))
    decay = np.exp(-root)  # of both `matern` and `slope`
    signal = variance * (1.0 + root + root * root / 3.0) * decay
    factor = cholesky(signal + known + nugget * np.eye(n))
    alpha = cho_solve((factor, True), y)
    inner = np.outer(alpha, alpha) - inverse(factor)
    gradient = np.empty_like(vector)
    gradient[:-2] = weights * (distances @ (inner * ((5.0 / 3.0) * variance * (1.0 + root) * decay)).ravel())
    gradient[-2] = np.sum(inner * signal)
    gradient[-1] = nugget * np.trace(inner)
    value = 0.5 * y @ alpha + np.sum(np.log(np.diag(factor)))
    pairs = np.array([LENGTH] * len(weights) + [VARIANCE, NUGGET])
    off = (vector - pairs[:, 0]) / pairs[:, 1]
    return float(value + 0.5 * off @ off), off / pairs[:, 1] - 0.5 * gradient
