"""The probability that a configuration fails, from the outcomes near it."""

import numpy as np
from scipy.special import log_ndtr

from . import gaussian
from .features import Floats, Integers
from .limits import ProductLimits
from .posterior import Posterior

REFIT = 1.2  # which tunables failures depend on is fitted again when there are so many times more outcomes
MOST = 300  # outcomes learnt from, the latest


class FailureModel:
    """Chances to fail over a pool, from outcomes weighted by a kernel.

    Failures are never fed to the process of the costs: whatever number stood for one would bend the
    predictions around it. They have a process of their own, of outcomes: 1 for a failure, 0 otherwise. Its
    mean is a weighted mean of outcomes, drawn to their overall rate; its length scales, which are fitted,
    say which tunables failures depend on: mostly one or two.

    The chance to work is that of an outcome below a half, Φ((1/2 - mean) / deviation): see Rasmussen and
    Williams, "Gaussian Processes for Machine Learning" (2006), section 6.5, least-squares classification. A
    mean alone is no chance: it stays at some hundredths among failures only, and once the optimum is found
    the improvement that is expected where nothing has worked outweighs that.

    Where a limit of a product of tunables explains the outcomes, the chance is at most what that leaves: the
    process alone finds such an edge anew for every combination of factors.

    Args:
        groups: length scale of every feature.
        pool: features of what may be asked about, shape (m, features).
        sizes: logarithms of its tunables, shape (m, tunables).
    """

    def __init__(self, groups: Integers, pool: Floats, sizes: Floats) -> None:
        self._pool = pool
        self._limits = ProductLimits(sizes)
        self._sizes = np.zeros((0, sizes.shape[1]))
        self._model = gaussian.prior(groups)
        self._posterior = Posterior(self._model, pool[:0])
        self._x = np.zeros((0, pool.shape[1]))
        self._failed = np.zeros(0)
        self._learnt: list[int] = []
        self._fit_at = self._asked = 0

    def set_pool(self, pool: Floats, sizes: Floats) -> None:
        """Ask about another pool from here on; outcomes stay, and the process is fitted anew.

        Args:
            pool: its features, shape (m, features).
            sizes: logarithms of its tunables, shape (m, tunables).
        """
        self._pool = pool
        self._limits.set_pool(sizes)
        self._model = gaussian.prior(self._model.groups)
        self._fit_at = 0

    def add(self, x: Floats, sizes: Floats, failed: Floats) -> None:
        """Learn outcomes: features, shape (k, features); sizes; and 1 for what failed, shape (k,)."""
        self._x = np.vstack([self._x, x])
        self._sizes = np.vstack([self._sizes, sizes])
        self._failed = np.append(self._failed, failed)

    def log_chance_to_work(self) -> Floats:
        """Logarithm of the chance that each of the pool works, shape (m,)."""
        if not self._varied():
            return np.zeros(len(self._pool))
        outcomes, middle, scale = self._train()
        mean, deviation = self._posterior.predict(outcomes)
        chance = _log_chance(middle + scale * mean, scale * deviation)
        return np.minimum(chance, self._limits.log_chance_to_work(chance))

    def log_chance_to_work_at(self, x: Floats, sizes: Floats) -> Floats:
        """Logarithm of the chance that other configurations work, shape (k,)."""
        if not self._varied():
            return np.zeros(len(x))
        outcomes, middle, scale = self._train()
        mean, deviation = self._posterior.predict_at(x, outcomes)
        chance = _log_chance(middle + scale * mean, scale * deviation)
        return np.minimum(chance, self._limits.log_chance_to_work_at(sizes, chance))

    def _varied(self) -> bool:
        return bool(len(self._failed)) and 0.0 < float(np.mean(self._failed)) < 1.0

    def _train(self) -> tuple[Floats, float, float]:
        """Bring the posterior up to date; returns standardised outcomes, their mean and their deviation."""
        count = len(self._failed)
        middle, scale = float(np.mean(self._failed)), float(np.std(self._failed))
        if count >= self._fit_at:
            self._learnt = list(range(max(0, count - MOST), count))
            x, y = self._x[self._learnt], (self._failed[self._learnt] - middle) / scale
            self._model = gaussian.fit(self._model, x, y, np.zeros(len(y)))
            self._posterior = Posterior(self._model, self._pool)
            self._posterior.add(x, np.zeros(len(y)))
            self._fit_at = max(count + 1, int(np.ceil(REFIT * count)))
            self._limits.look_again(self._sizes, self._failed)
        if count > self._asked:
            self._limits.learn(self._sizes, self._failed)
            self._asked = count
        new = list(range(self._learnt[-1] + 1, count))
        if new:
            self._posterior.add(self._x[new], np.zeros(len(new)))
            self._learnt += new
        return (self._failed[self._learnt] - middle) / scale, middle, scale


def _log_chance(mean: Floats, deviation: Floats) -> Floats:
    return np.asarray(log_ndtr((0.5 - mean) / deviation))
