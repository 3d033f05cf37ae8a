"""The probability that a configuration fails: by outcomes near it, and by limits of products of tunables."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import scipy

from . import gaussian
from .features import Floats, Integers
from .gaussian import Posterior

FACTORS = 3  # tunables of a product at most
MOST_TUNABLES = 12  # tunables that are looked at
LITTLE = 0.01  # weight of a product that changes nothing
KEPT = 6  # products of highest evidence, whose limits are followed
ERROR = 0.05  # chance of an outcome that a limit does not explain: limits are of more than products
_DECIMALS = 9  # of logarithms: equal products of different factors are one value
_LEAST = 1e-30  # chance, so that logarithms stay finite


class ProductLimits:
    """Hypotheses that all fails in which a product of some tunables reaches a limit.

    Their Bayesian average: limits are equally likely at every value that a product has in the first pool, and
    products of one, two and three factors are equally likely. Against them stands that only the rate of
    failures is known.

    Args:
        sizes: logarithms of tunables over the pool, shape (m, tunables).
    """

    def __init__(self, sizes: Floats) -> None:
        varied = np.flatnonzero(np.ptp(sizes, axis=0) > 0.0)[:MOST_TUNABLES].tolist() if len(sizes) else []
        counts = range(1, min(FACTORS, len(varied)) + 1)
        self._sizes = sizes
        self._factors = [list(combinations(varied, count)) for count in counts]
        self._products: list[_Product] = []  # made where something has failed
        self._kept: list[_Product] = []
        self._weights = np.zeros(0)  # of the products kept
        self._chances: list[Floats] = []  # to fail, at the values of each of them

    def set_pool(self, sizes: Floats) -> None:
        """Ask about another pool: its sizes, shape (m, tunables)."""
        self._sizes = sizes
        for product in self._products:
            product.set_pool(sizes)

    def look_again(self, sizes: Floats, failed: Floats) -> None:
        """Choose the products that explain outcomes best.

        Args:
            sizes: logarithms of tunables of what was tried, shape (n, tunables).
            failed: 1 for what failed, shape (n,).
        """
        if not self._products:
            self._products = [
                _Product(self._sizes, chosen, -float(np.log(len(self._factors) * len(every))))
                for every in self._factors
                for chosen in every
            ]
        ranked = sorted(self._products, key=lambda product: -product.judged(sizes, failed)[0])
        self._kept = ranked[:KEPT]

    def learn(self, sizes: Floats, failed: Floats) -> None:
        """Take in all outcomes, given as to ``look_again``."""
        fails = float(failed.sum())
        rate = float(scipy.special.betaln(fails + 1.0, len(failed) - fails + 1.0))
        judged = [product.judged(sizes, failed) for product in self._kept]
        logs = np.array([rate, *(evidence for evidence, _ in judged)])
        self._weights = np.exp(logs - _log_sum(logs))[1:]
        self._chances = [chances for _, chances in judged]

    def log_chance_to_work(self, otherwise: Floats) -> Floats:
        """Logarithm of the chance that each of the pool works, shape (m,).

        Args:
            otherwise: that chance where no limit holds.
        """
        return self._averaged([product.places for product in self._likely], otherwise)

    def log_chance_to_work_at(self, sizes: Floats, otherwise: Floats) -> Floats:
        """The same of others, by their sizes, shape (k,)."""
        return self._averaged([product.places_of(sizes) for product in self._likely], otherwise)

    @property
    def _likely(self) -> list["_Product"]:
        """The products kept that are worth looking up."""
        return [product for product, weight in zip(self._kept, self._weights, strict=True) if weight > LITTLE]

    def _averaged(self, places: Sequence[Integers], otherwise: Floats) -> Floats:
        chosen = np.flatnonzero(self._weights > LITTLE)
        works = np.full(len(otherwise), _LEAST)
        for number, where in zip(chosen, places, strict=True):
            works += (self._weights[number] * (1.0 - self._chances[number]))[where]
        free = np.log(max(1.0 - float(self._weights[chosen].sum()), _LEAST))
        return np.asarray(np.logaddexp(otherwise + free, np.log(works)))


class _Product:
    """The limits of one product.

    Args:
        sizes: over the pool, shape (m, tunables).
        factors: the tunables.
        prior: logarithm of the chance of this product before any outcome.
    """

    def __init__(self, sizes: Floats, factors: Sequence[int], prior: float) -> None:
        self._sizes, self._factors, self._prior = sizes, list(factors), prior
        self._values = np.unique(self._of(sizes))
        self._pool_places: Integers | None = None
        self._tried = np.zeros(0, dtype=np.int64)  # places of what was tried

    def set_pool(self, sizes: Floats) -> None:
        """Ask about another pool: its sizes, shape (m, tunables); the values stay."""
        self._sizes, self._pool_places = sizes, None

    @property
    def places(self) -> Integers:
        """Of the pool's rows among the values of the product."""
        if self._pool_places is None:
            self._pool_places = self.places_of(self._sizes)
        return self._pool_places

    def places_of(self, sizes: Floats) -> Integers:
        """The same of other rows: the next value above, or the largest."""
        return np.minimum(np.searchsorted(self._values, self._of(sizes)), len(self._values) - 1)

    def judged(self, sizes: Floats, failed: Floats) -> tuple[float, Floats]:
        """Logarithm of evidence times prior; and the chance to fail at every value of the product.

        Args:
            sizes: of what was tried, behind what an earlier call was given, shape (n, tunables).
            failed: 1 for what failed, shape (n,).
        """
        if len(sizes) > len(self._tried):
            self._tried = np.append(self._tried, self.places_of(sizes[len(self._tried) :]))
        count = len(self._values)
        surplus = np.bincount(self._tried, 2.0 * failed - 1.0, minlength=count)  # failures less what works
        # of a limit at each value, and beyond all: what fails below it, and what works from there on
        wrong = np.append(0.0, np.cumsum(surplus)) + len(failed) - failed.sum()
        right = len(failed) - wrong
        logs = wrong * np.log(ERROR) + right * np.log(1.0 - ERROR) - np.log(count + 1.0)
        total = _log_sum(logs)
        chances = np.minimum(np.cumsum(np.exp(logs - total))[:count], 1.0)  # rounding may add up to more
        return total + self._prior, chances

    def _of(self, sizes: Floats) -> Floats:
        return np.asarray(np.round(sizes[:, self._factors].sum(axis=1), _DECIMALS))


def _log_sum(logs: Floats) -> float:
    """Logarithm of the sum of exponentials; SciPy's takes ten times as long for as few."""
    highest = float(logs.max())
    return highest + float(np.log(np.exp(logs - highest).sum()))


REFIT = 1.2  # which tunables failures depend on is fitted again when there are so many times more outcomes
MOST_OUTCOMES = 300  # outcomes learnt from, the latest


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
            self._learnt = list(range(max(0, count - MOST_OUTCOMES), count))
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
    return np.asarray(scipy.special.log_ndtr((0.5 - mean) / deviation))
