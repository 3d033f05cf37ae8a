"""What a measurement is expected to improve."""

import numpy as np
from scipy.special import erfcx, log_ndtr

from .encoding import Floats

_FAR = -1.0  # below so many standard deviations the plain formula cancels


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
    near = np.maximum(z, _FAR)
    plain = np.log(near * np.exp(log_ndtr(near)) + np.exp(-0.5 * near**2) / np.sqrt(2 * np.pi))
    away = np.minimum(z, _FAR)
    # φ(z) (1 - |z| Φ(z)/φ(z)), where Φ(z)/φ(z) = sqrt(π/2) erfcx(|z|/√2)
    ratio = 1.0 + away * np.sqrt(np.pi / 2) * erfcx(-away / np.sqrt(2))
    tiny = 1.0 / (2.0 + away**2)  # what the ratio tends to; rounding may leave less than that
    log_tail = np.log(np.maximum(ratio, 0.5 * tiny)) - 0.5 * away**2 - 0.5 * np.log(2 * np.pi)
    return np.asarray(np.where(z > _FAR, plain, log_tail) + np.log(deviation))
