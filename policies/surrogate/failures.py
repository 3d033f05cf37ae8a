"""The probability that a configuration fails, from the outcomes of those near it."""

import numpy as np
import scipy

from . import gaussian
from .features import Floats, Integers
from .gaussian import Posterior, next_fit

REFIT = 1.2  # which tunables failures depend on is fitted again when there are so many times more outcomes
MOST_OUTCOMES = 300  # outcomes learnt from, the latest
STRONG = 3.0  # of log evidence, 20 to 1: see Kass and Raftery, "Bayes Factors" (1995), section 3.2


class FailureModel:
    """Chances to fail over a pool: a Gaussian process of outcomes, 1 for a failure and 0 otherwise.

    Failures are never fed to the process of the costs: whatever number stood for one would bend the
    predictions around it. The chance to work is that of an outcome below a half,
    Φ((1/2 - mean) / deviation): see Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006),
    section 6.5, least-squares classification.

    Where the outcomes are hardly likelier by this than by their rate alone, failing is taken to be random,
    and everything to work: avoiding what failed by chance costs more than it spares.

    Args:
        groups: length scale of every feature.
    """

    def __init__(self, groups: Integers) -> None:
        self._model = gaussian.prior(groups)
        self._x = np.zeros((0, len(groups)))
        self._failed = np.zeros(0)
        self._learnt = np.zeros(0, dtype=np.int64)
        self._fit_at = 0
        self._explains = False

    def set_pool(self, pool: Floats) -> None:
        """Ask about another pool, shape (m, features); outcomes stay."""
        self._pool = pool
        if self._explains:
            self._start()

    def add(self, x: Floats, failed: Floats) -> None:
        """Learn outcomes: features, shape (k, features), and 1 for what failed, shape (k,)."""
        self._x = np.vstack([self._x, x])
        self._failed = np.append(self._failed, failed)

    def log_chance_to_work(self, x: Floats | None = None) -> Floats:
        """Logarithm of the chance that each of the pool works, or of others with features ``x``."""
        chances = np.zeros(len(self._pool if x is None else x))
        if not len(self._failed) or not 0.0 < float(np.mean(self._failed)) < 1.0:
            return chances
        middle, scale = float(np.mean(self._failed)), float(np.std(self._failed))
        self._train(middle, scale)
        if not self._explains:
            return chances
        y = (self._failed[self._learnt] - middle) / scale
        mean, deviation = self._posterior.predict(y) if x is None else self._posterior.predict_at(x, y)
        return np.asarray(scipy.special.log_ndtr((0.5 - middle - scale * mean) / (scale * deviation)))

    def _train(self, middle: float, scale: float) -> None:
        """Bring the posterior of outcomes up to date, which are standardised by their mean and deviation."""
        count = len(self._failed)
        if count >= self._fit_at:
            self._learnt = np.arange(max(0, count - MOST_OUTCOMES), count)
            x, y = self._x[self._learnt], (self._failed[self._learnt] - middle) / scale
            self._model = gaussian.fit(self._model, x, y, np.zeros(len(y)))
            self._start()
            by_rate = -0.5 * float(y @ y)
            self._explains = self._posterior.log_likelihood(y) > by_rate + STRONG
            self._fit_at = next_fit(REFIT, count)
        new = np.arange(self._learnt[-1] + 1, count)
        if self._explains and len(new):
            self._posterior.add(self._x[new], np.zeros(len(new)))
            self._learnt = np.append(self._learnt, new)

    def _start(self) -> None:
        """Start a posterior of what was learnt, over the pool."""
        self._posterior = Posterior(self._model, self._pool)
        self._posterior.add(self._x[self._learnt], np.zeros(len(self._learnt)))
