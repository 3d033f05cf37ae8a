"""The Matern-5/2 kernel with a length scale per kind of difference."""

import numpy as np

from .encoding import Floats, Integers

_ROOT5 = np.sqrt(5.0)


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
