"""Cholesky factors that never fail."""

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from .encoding import Floats

_JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)  # of the mean diagonal, until the matrix is definite


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
