"""Two Gaussian processes that share their trials, one for each of two costs, and what they promise."""

from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from . import gaussian
from .failures import FailureModel
from .features import Floats, Integers
from .gaussian import Posterior
from .joint import Joint, Pool
from .learner import MOST_POINTS, REFIT
from .outlook import front_of, hypervolume, log_expected_hypervolume_improvement

MARGIN = 0.1  # of the front's extent in a log cost, by which the reference point lies beyond it
LEAST_MARGIN = 0.05  # of a log cost: a front of one point has no extent
_LEAST_SCALE = 1e-9  # of the logarithms: equal costs have none
_LEAST_COST = 1e-300  # a cost of zero has no logarithm


@dataclass(frozen=True)
class FrontOutlook:
    """Predictions of both costs over trials that are not measured.

    Attributes:
        rows: of the joint space, shape (n, axes); at least one.
        mean: predicted log costs, shape (n, 2).
        deviation: their standard deviations, shape (n, 2).
        works: logarithms of the chances not to fail, shape (n,).
        front: measured log costs that no other ones dominate, shape (k, 2).
        reference: point that the hypervolume ends at, shape (2,).
    """

    rows: Integers
    mean: Floats
    deviation: Floats
    works: Floats
    front: Floats
    reference: Floats

    @cached_property
    def log_gain(self) -> Floats:
        """Logarithms of the expected hypervolume improvement times the chance to work, shape (n,)."""
        gain = log_expected_hypervolume_improvement(self.mean, self.deviation, self.front, self.reference)
        return gain + self.works

    @property
    def best(self) -> Integers:
        """The row of highest expected hypervolume improvement."""
        return np.asarray(self.rows[int(np.argmax(self.log_gain))])

    @property
    def expected_gain(self) -> float:
        """Highest expected hypervolume improvement, by the present hypervolume."""
        volume = hypervolume(self.front, self.reference)
        return float(np.exp(np.max(self.log_gain)) / volume) if volume > 0 else np.inf

    def first(self, count: int) -> list[Integers]:
        """The ``count`` rows of highest expected hypervolume improvement, the highest first."""
        return list(self.rows[np.argsort(-self.log_gain, kind="stable")[:count]])


class CostPair:
    """Measurements of two costs over a joint space, and a Gaussian process of the logarithm of each."""

    def __init__(self, joint: Joint, draw: np.random.Generator) -> None:
        self._joint = joint
        self._pool = Pool(joint, draw)
        self.measured = self._pool.measured
        self.rows = np.zeros((0, len(joint.shape)), dtype=np.int64)
        self._logs = np.zeros((0, 2))  # NaN where a trial failed
        self._noises = np.zeros((0, 2))
        self._models = [gaussian.prior(joint.groups)] * 2
        self._learnt = np.zeros(0, dtype=np.int64)  # measurements in the posteriors, in their order
        self._fit_at = 0
        self._supposed: list[tuple[Integers, Floats]] = []  # rows taken for measured, and their means
        self._pool_features = joint.features(self._pool.rows)
        self._failures = FailureModel(joint.groups, self._pool_features)

    @property
    def valid(self) -> Integers:
        """Numbers of the measurements that did not fail."""
        return np.flatnonzero(np.isfinite(self._logs).all(axis=1))

    @property
    def is_sampled(self) -> bool:
        """True where the pool is a sample of the space."""
        return self._joint.is_sample or len(self._pool.rows) < self._joint.size

    @property
    def front(self) -> Floats:
        """Measured log costs that no others dominate, shape (k, 2)."""
        return front_of(self._logs[self.valid])

    def front_rows(self) -> list[Integers]:
        """The rows of the front."""
        front = {tuple(point) for point in self.front.tolist()}
        return [self.rows[i] for i in self.valid if tuple(self._logs[i].tolist()) in front]

    @property
    def noise(self) -> Floats:
        """The median standard uncertainty of valid log costs, shape (2,)."""
        valid = self.valid
        return np.median(self._noises[valid], axis=0) if len(valid) else np.zeros(2)

    def learn(self, row: Integers, costs: tuple[float, float], noises: tuple[float, float]) -> None:
        """Take in a measurement.

        Args:
            row: of the joint space.
            costs: the measurement is a failure where one is not finite.
            noises: their relative standard uncertainties.
        """
        works = bool(np.isfinite(costs).all())
        logs = np.log(np.maximum(costs, _LEAST_COST)) if works else np.full(2, np.nan)
        self.rows = np.vstack([self.rows, row[None, :]])
        self._logs = np.vstack([self._logs, logs])
        self._noises = np.vstack([self._noises, np.nan_to_num(noises, posinf=0.0)])
        self._failures.add(self._joint.features(row[None, :]), np.array([0.0 if works else 1.0]))
        self.rule_out(row)

    def rule_out(self, row: Integers) -> None:
        """Never propose a trial again."""
        self._pool.rule_out(row)

    def suppose(self, row: Integers) -> None:
        """Take a trial for measured at what is predicted of it, until ``forget``: the Kriging believer."""
        mean = np.zeros(2)
        if len(self.valid):
            mean, _ = self._predict_at(row[None, :])
        self._supposed.append((row, mean.reshape(2)))
        self.rule_out(row)

    def forget(self) -> None:
        """Take back all that was supposed."""
        for row, _ in self._supposed:
            self._pool.take_back(row)
        self._supposed = []

    def unmeasured(self) -> Integers:
        """Trials of the pool that are not measured; of a new sample of a large space where none is left."""
        if not self._pool.free.any() and self.is_sampled:
            self._redraw()
        return self._pool.unmeasured()

    def outlook(self) -> FrontOutlook | None:
        """Return the prediction for the pool; None if nothing of it is left, or all have failed."""
        if not len(self.unmeasured()) or not len(self.valid):
            return None
        self._train()
        means, deviations = zip(*map(self._pool_prediction, range(2)), strict=True)
        free = self._pool.free
        works = self._failures.log_chance_to_work()[free]
        mean, deviation = np.stack(means, axis=1)[free], np.stack(deviations, axis=1)[free]
        return self._outlook(self._pool.unmeasured(), mean, deviation, works)

    def outlook_near(self, row: Integers) -> FrontOutlook | None:
        """The same of the neighbours of a row; None where none is left."""
        rows = self._joint.neighbours(row, self.measured)
        if not len(rows) or not len(self.valid):
            return None
        mean, deviation = self._predict_at(rows)
        works = self._failures.log_chance_to_work(self._joint.features(rows))
        return self._outlook(rows, mean, deviation, works)

    def _outlook(self, rows: Integers, mean: Floats, deviation: Floats, works: Floats) -> FrontOutlook:
        front = front_of(np.vstack([self.front, *(point[None, :] for _, point in self._supposed)]))
        return FrontOutlook(rows, mean, deviation, works, front, reference_of(front))

    def _pool_prediction(self, cost: int) -> tuple[Floats, Floats]:
        posterior, y = self._believed(cost)
        mean, deviation = posterior.predict(y)
        return self._middle[cost] + self._scale[cost] * mean, self._scale[cost] * deviation

    def _predict_at(self, rows: Integers) -> tuple[Floats, Floats]:
        """Mean and standard deviation of log costs at other rows, each of shape (rows, 2)."""
        self._train()
        x, means, deviations = self._joint.features(rows), [], []
        for cost in range(2):
            posterior, y = self._believed(cost)
            mean, deviation = posterior.predict_at(x, y)
            means.append(self._middle[cost] + self._scale[cost] * mean)
            deviations.append(self._scale[cost] * deviation)
        return np.stack(means, axis=1), np.stack(deviations, axis=1)

    def _believed(self, cost: int) -> tuple[Posterior, Floats]:
        """The posterior of a cost and the standardised logarithms it is of; with what is supposed."""
        posterior = self._posteriors[cost]
        y = self._standard(self._logs[self._learnt, cost], cost)
        if self._supposed:
            posterior = copy(posterior)  # the original learns nothing before this one is forgotten
            rows = np.array([row for row, _ in self._supposed], dtype=np.int64)
            posterior.add(self._joint.features(rows), np.zeros(len(rows)))
            means = np.array([mean[cost] for _, mean in self._supposed])
            y = np.append(y, self._standard(means, cost))
        return posterior, y

    def _train(self) -> None:
        """Bring both posteriors up to date."""
        valid = self.valid
        if len(valid) >= self._fit_at:
            self._fit(valid[-MOST_POINTS:])
        new = valid[valid > self._learnt.max(initial=-1)]
        if len(new):
            for cost, posterior in enumerate(self._posteriors):
                posterior.add(self._joint.features(self.rows[new]), self._variances(new, cost))
            self._learnt = np.append(self._learnt, new)

    def _fit(self, chosen: Integers) -> None:
        """Fit all hyper-parameters again, and start posteriors with them."""
        logs, x = self._logs[chosen], self._joint.features(self.rows[chosen])
        self._middle, self._scale = logs.mean(axis=0), np.maximum(logs.std(axis=0), _LEAST_SCALE)
        if self.is_sampled:
            self._redraw()
        self._posteriors = []
        for cost in range(2):
            noise = self._variances(chosen, cost)
            self._models[cost] = gaussian.fit(
                self._models[cost], x, self._standard(logs[:, cost], cost), noise
            )
            self._posteriors.append(Posterior(self._models[cost], self._pool_features))
            self._posteriors[cost].add(x, noise)
        self._learnt = chosen
        count = len(self.valid)
        self._fit_at = max(count + 1, int(np.ceil(REFIT * count)))

    def _standard(self, logs: Floats, cost: int) -> Floats:
        """Logarithms of a cost, about zero mean and unit variance."""
        return np.asarray((logs - self._middle[cost]) / self._scale[cost])

    def _variances(self, chosen: Integers, cost: int) -> Floats:
        return np.asarray((self._noises[chosen, cost] / self._scale[cost]) ** 2)

    def _redraw(self) -> None:
        """Go on with another sample of a large space."""
        self._pool.draw()
        self._pool_features = self._joint.features(self._pool.rows)
        self._failures.set_pool(self._pool_features)
        self._fit_at = 0


def reference_of(front: Floats) -> Floats:
    """The point that the hypervolume of a front of log costs ends at, shape (2,).

    It lies beyond the worst of the front in each cost by `MARGIN` of the front's extent, so that the ends of
    the front count, too.

    Args:
        front: shape (k, 2), k at least one.
    """
    extent = front.max(axis=0) - front.min(axis=0)
    return np.asarray(front.max(axis=0) + np.maximum(MARGIN * extent, LEAST_MARGIN))
