"""How likely a configuration fails: from the outcomes near it."""

import numpy as np

from .encoding import Floats
from .kernel import squared

REACH = 0.35  # in features that span one: an outcome so far away counts e^-1/2 as much
PRIOR = 1.0  # outcomes that the overall rate counts for
SURE = 0.95  # never surer than this that something fails: it may be measured when all else has been


class Failures:
    """Chances to fail over a pool, from outcomes weighted by a Gaussian kernel.

    Failures are never fed to the Gaussian process as costs: whatever number stood for one would bend the
    predictions around it.

    Args:
        pool: features of what may be asked about, shape (m, features).
    """

    def __init__(self, pool: Floats) -> None:
        self._pool = pool
        self._x = np.zeros((0, pool.shape[1]))
        self._failed = np.zeros(0)
        self._weight = np.zeros(len(pool))
        self._failing = np.zeros(len(pool))

    def add(self, x: Floats, failed: Floats) -> None:
        """Learn outcomes: features of shape (k, features), and 1 for what failed, shape (k,)."""
        near = _nearness(self._pool, x)
        self._weight += near.sum(axis=1)
        self._failing += near @ failed
        self._x = np.vstack([self._x, x])
        self._failed = np.append(self._failed, failed)

    def log_chance_to_work(self) -> Floats:
        """Logarithm of the chance that each of the pool works, shape (m,)."""
        return self._log_chance(self._weight, self._failing)

    def log_chance_to_work_at(self, x: Floats) -> Floats:
        """Logarithm of the chance that other configurations work, shape (k,)."""
        near = _nearness(x, self._x)
        return self._log_chance(near.sum(axis=1), near @ self._failed)

    def _log_chance(self, weight: Floats, failing: Floats) -> Floats:
        rate = float(np.mean(self._failed)) if len(self._failed) else 0.0
        chance = (failing + PRIOR * rate) / (weight + PRIOR)
        return np.asarray(np.log1p(-np.minimum(chance, SURE)))


def _nearness(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * squared(a, b) / REACH**2))
