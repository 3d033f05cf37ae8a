"""The Matern-5/2 kernel with a length scale per kind of difference, and Cholesky factors that never fail."""

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from .encoding import Floats, Integers

_JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)  # of the mean diagonal, until the matrix is definite
_ROOT5 = np.sqrt(5.0)


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
