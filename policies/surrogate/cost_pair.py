"""Two Gaussian processes that share their trials, one for each of two costs, and what they promise."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from . import gaussian
from .features import Floats, Integers
from .gaussian import Posterior, next_fit
from .joint import LEAST_COST, LEAST_SCALE, Joint
from .learner import MOST_POINTS, REFIT, Surrogate
from .outlook import Proposal, front_of, hypervolume, log_expected_hypervolume_improvement

MARGIN = 0.1  # of the front's extent in a log cost, by which the reference point lies beyond it
LEAST_MARGIN = 0.05  # of a log cost: a front of one point has no extent


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
    def best(self) -> Proposal:
        """The trial of highest expected hypervolume improvement, by the present hypervolume."""
        best, volume = int(np.argmax(self.log_gain)), hypervolume(self.front, self.reference)
        return Proposal(
            self.rows[best], float(np.exp(self.log_gain[best]) / volume) if volume > 0 else np.inf
        )

    def first(self, count: int) -> list[Integers]:
        """The ``count`` rows of highest expected hypervolume improvement, the highest first."""
        return list(self.rows[np.argsort(-self.log_gain, kind="stable")[:count]])


class CostPair(Surrogate):
    """Measurements of two costs over a joint space, and a Gaussian process of the logarithm of each."""

    def __init__(self, joint: Joint, draw: np.random.Generator) -> None:
        super().__init__(joint, draw)
        self._logs = np.zeros((0, 2))  # NaN where a trial failed
        self._noises = np.zeros((0, 2))
        self._models = [gaussian.prior(joint.groups)] * 2
        self._supposed = np.zeros((0, 2))  # means of what is pending
        self._present: list[tuple[Posterior, Floats]] | None = None  # and standardised logs

    @property
    def valid(self) -> Integers:
        """Numbers of the measurements that did not fail."""
        return np.flatnonzero(np.isfinite(self._logs).all(axis=1))

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
        logs = np.log(np.maximum(costs, LEAST_COST)) if works else np.full(2, np.nan)
        self._present = None
        self._take_in(row, works=works)
        self._logs = np.vstack([self._logs, logs])
        self._noises = np.vstack([self._noises, np.nan_to_num(noises, posinf=0.0)])

    def suppose(self, row: Integers) -> None:
        """See ``Surrogate.suppose``."""
        if len(self.valid):
            x = self._features(row[None, :])
            mean, _ = self._predict_at(row[None, :])
            self._supposed = np.vstack([self._supposed, mean])
            self._present = [posterior.supposing(x, y) for posterior, y in self._trained()]
        super().suppose(row)

    def forget(self) -> None:
        """See ``Surrogate.forget``."""
        self._present, self._supposed = None, self._supposed[:0]
        super().forget()

    def outlook(self) -> FrontOutlook | None:
        """Return the prediction for the pool; None if nothing of it is left, or all have failed."""
        if not len(self.unmeasured()) or not len(self.valid):
            return None
        mean, deviation = self._scaled([posterior.predict(y) for posterior, y in self._trained()])
        free = self._free
        works = self._failures.log_chance_to_work()[free]
        return self._seen(self.unmeasured(), mean[free], deviation[free], works)

    def outlook_near(self, row: Integers) -> FrontOutlook | None:
        """The same of the neighbours of a row; None where none is left."""
        rows = self._joint.neighbours(row, self.measured)
        if not len(rows) or not len(self.valid):
            return None
        works = self._failures.log_chance_to_work(self._joint.features(rows))
        return self._seen(rows, *self._predict_at(rows), works)

    def _seen(self, rows: Integers, mean: Floats, deviation: Floats, works: Floats) -> FrontOutlook:
        front = front_of(np.vstack([self.front, self._supposed]))
        return FrontOutlook(rows, mean, deviation, works, front, reference_of(front))

    def _predict_at(self, rows: Integers) -> tuple[Floats, Floats]:
        """Mean and standard deviation of log costs at other rows, each of shape (rows, 2)."""
        x = self._features(rows)
        return self._scaled([posterior.predict_at(x, y) for posterior, y in self._trained()])

    def _scaled(self, predicted: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
        """Predictions of standardised logarithms as those of logarithms, each of shape (n, 2)."""
        means, deviations = (np.stack(columns, axis=1) for columns in zip(*predicted, strict=True))
        return self._middle + self._scale * means, self._scale * deviations

    def _trained(self) -> list[tuple[Posterior, Floats]]:
        """The posterior of each cost and the standardised logarithms it is of; with what is supposed."""
        if self._present is None or not self._fit_at:  # or another pool was drawn
            valid = self.valid
            if len(valid) >= self._fit_at:
                self._fit(valid[-MOST_POINTS:])
            new = valid[valid > self._learnt.max(initial=-1)]
            for posterior, noise in zip(self._posteriors, self._variances(new), strict=True):
                if len(new):
                    posterior.add(self._features(self.rows[new]), noise)
            self._learnt = np.append(self._learnt, new)
            self._present = list(zip(self._posteriors, self._standard(self._learnt), strict=True))
        return self._present

    def _fit(self, chosen: Integers) -> None:
        """Fit all hyper-parameters again, and start posteriors with them."""
        logs, x = self._logs[chosen], self._features(self.rows[chosen])
        self._middle, self._scale = logs.mean(axis=0), np.maximum(logs.std(axis=0), LEAST_SCALE)
        if self.is_sampled:
            self._draw_pool()
        told = list(zip(self._standard(chosen), self._variances(chosen), strict=True))
        self._models = [
            gaussian.fit(model, x, y, noise) for model, (y, noise) in zip(self._models, told, strict=True)
        ]
        self._posteriors = [Posterior(model, self._pool_features) for model in self._models]
        for posterior, (_, noise) in zip(self._posteriors, told, strict=True):
            posterior.add(x, noise)
        self._learnt = chosen
        self._fit_at = next_fit(REFIT, len(self.valid))

    def _standard(self, chosen: Integers) -> Floats:
        """Logarithms of both costs, about zero mean and unit variance, shape (2, chosen)."""
        return np.asarray(((self._logs[chosen] - self._middle) / self._scale).T)

    def _variances(self, chosen: Integers) -> Floats:
        """Variances of the same."""
        return np.asarray(((self._noises[chosen] / self._scale) ** 2).T)


def reference_of(front: Floats) -> Floats:
    """The point that the hypervolume of a front of log costs ends at, shape (2,).

    It lies beyond the worst of the front in each cost by `MARGIN` of the front's extent, so that the ends of
    the front count, too.

    Args:
        front: shape (k, 2), k at least one.
    """
    extent = front.max(axis=0) - front.min(axis=0)
    return np.asarray(front.max(axis=0) + np.maximum(MARGIN * extent, LEAST_MARGIN))
