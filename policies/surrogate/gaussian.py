"""A Gaussian process over the configurations of one task, fitted by maximum a posteriori.

Its kernel is Matern-5/2 with a length scale per kind of difference; its Cholesky factors never fail.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize

from .encoding import Floats, Integers

_JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)  # of the mean diagonal, until the matrix is definite
_ROOT5 = np.sqrt(5.0)
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
    products: Floats = -2.0 * (a @ b.T)
    products += (a * a).sum(axis=1)[:, None]
    products += (b * b).sum(axis=1)[None, :]
    return np.maximum(products, 0.0, out=products)


def matern(r2: Floats) -> Floats:
    """Correlation at a squared distance in length scales: (1 + √5 r + 5/3 r²) exp(-√5 r)."""
    root = _ROOT5 * np.sqrt(r2)
    result: Floats = np.exp(-root)
    root += 1.0
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
    """

    groups: Integers
    lengths: Floats
    variance: float = VARIANCE[0]
    nugget: float = NUGGET[0]

    def covariance(self, a: Floats, b: Floats) -> Floats:
        """Covariance of the signal between rows of features, shape (rows of a, rows of b)."""
        scales = np.exp(-self.lengths)[self.groups]
        result = matern(squared(a * scales, b * scales))
        result *= np.exp(self.variance)
        return result

    def alike(self, x: Floats) -> Floats:
        """Correlation of the signal between rows of features, shape (rows, rows)."""
        return np.asarray(self.covariance(x, x) / np.exp(self.variance))

    def spread(self, x: Floats) -> Floats:
        """Variance of the signal at rows of features, shape (rows,)."""
        return np.full(len(x), np.exp(self.variance))

    def nuggets(self, x: Floats) -> Floats:
        """Variance of the unexplained at rows of features, shape (rows,)."""
        return np.full(len(x), np.exp(self.nugget))


def prior(groups: Integers) -> Gaussian:
    """The prior's middle."""
    return Gaussian(groups, np.full(int(groups.max(initial=-1)) + 1, LENGTH[0]))


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
        args=(by_group(x, start.groups, count), y, noise),
        jac=True,
        method="L-BFGS-B",
        bounds=[BOUNDS[0]] * count + list(BOUNDS[1:]),
        options={"maxiter": ITERATIONS},
    )
    if not np.all(np.isfinite(found.x)):
        return start
    return Gaussian(start.groups, found.x[:-2], float(found.x[-2]), float(found.x[-1]))


def log_posterior(vector: Floats, distances: Floats, y: Floats, noise: Floats) -> tuple[float, Floats]:
    """Minus the log of marginal likelihood times prior, up to a constant, and its gradient.

    Args:
        vector: log length scales, log variance, log nugget.
        distances: squared, per length scale, shape (length scales, n * n).
        y: what was seen, shape (n,).
        noise: known variance of each y, shape (n,).
    """
    n = len(y)
    weights = np.exp(-2.0 * vector[:-2])
    variance, nugget = np.exp(vector[-2]), np.exp(vector[-1])
    r2 = (weights @ distances).reshape(n, n)
    signal = variance * matern(r2)
    factor = cholesky(signal + np.diag(nugget + noise))
    alpha = cho_solve((factor, True), y)
    inner = np.outer(alpha, alpha) - inverse(factor)
    gradient = np.empty_like(vector)
    gradient[:-2] = weights * (distances @ (inner * (variance * slope(r2))).ravel())
    gradient[-2] = np.sum(inner * signal)
    gradient[-1] = nugget * np.trace(inner)
    value = 0.5 * y @ alpha + np.sum(np.log(np.diag(factor)))
    pairs = np.array([LENGTH] * len(weights) + [VARIANCE, NUGGET])
    off = (vector - pairs[:, 0]) / pairs[:, 1]
    return float(value + 0.5 * off @ off), off / pairs[:, 1] - 0.5 * gradient
