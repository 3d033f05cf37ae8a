"""Bayesian optimisation of two costs at once: the search for a Pareto front."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from tuner.model.objective import GAIN
from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Search

from .analytical import answers
from .bayesian import AHEAD, LEAST_START
from .descent import Attempt
from .stopping import ALL_FAIL, LEAST_EVALUATIONS, REST
from .surrogate import gaussian
from .surrogate.features import Floats, Integers
from .surrogate.gaussian import Posterior, next_fit
from .surrogate.joint import LEAST_COST, LEAST_SCALE, Joint
from .surrogate.learner import MOST_POINTS, REFIT, JointRun, Surrogate, best_known
from .surrogate.outlook import Proposal, front_of, hypervolume, log_expected_hypervolume_improvement

# --- Two Gaussian processes that share their trials, one for each of two costs, and what they promise.

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


# --- The search.

BELIEVED = 0.1  # of `GAIN`: predictions of less are believed; they are of one evaluation, not of all
SHARE = 1 / 2  # of the evaluations, which must have added less than `GAIN`
ROOTS = 1.5  # evaluations before a search ends, by the root of the space's size,
ENOUGH = 100  # and at most so many


def pareto(search: Search, *, patience: float | None = None) -> Attempt:
    """Measure the trial of highest expected hypervolume improvement until going on is expected to add little.

    As `bayesian`, with a Gaussian process for each cost. The start has what was best of each cost in other
    runs, and the search ends by the hypervolume (`_FrontRun._is_enough`). Its answer is the trial of least
    ``search.cost``.

    Args:
        search: what the policy is told; it has two criteria.
        patience: evaluations in a row that add nothing to the front and end the search instead; infinity to
            go on until the budget or the space is used up.
    """
    if search.size == 0:
        return None
    draw = np.random.default_rng(search.seed)
    seeds = _seeds(search)
    joint = Joint(search, draw, seeds)
    run = _FrontRun(search, joint, CostPair(joint, draw))
    yield from run.measure(run.start(seeds, max(LEAST_START, joint.tunables), draw))
    while not run.ends(patience):
        proposals = run.acquire(partial(_next, run, draw))
        if not proposals:
            break
        likely = [] if run.seen is None else run.seen.first(AHEAD * search.parallel)
        yield from run.measure([proposal.row for proposal in proposals], likely)
    return run.best


class _FrontRun(JointRun):
    """A search so far.

    Attributes:
        fronts: the front after every measurement, those known before among them.
        best: the trial of least ``search.cost``.
        seen: the latest outlook over all.
    """

    learner: CostPair

    def __init__(self, search: Search, joint: Joint, learner: CostPair) -> None:
        super().__init__(search, joint)
        self.learner = learner
        self.fronts: list[Floats] = []
        self.best: Trial | None = None
        self.seen: FrontOutlook | None = None
        self._lowest = math.inf
        self.learn_prior()

    def learn(self, row: Integers, measurement: Measurement) -> None:
        """See ``JointRun.learn``."""
        first, second = self.search.criteria
        costs = first.cost(measurement), second.cost(measurement)
        self.learner.learn(row, costs, (first.noise(measurement), second.noise(measurement)))
        self.fronts.append(self.learner.front)
        cost = self.search.cost(measurement)
        if cost < self._lowest:
            self.best, self._lowest = self.joint.trial(row), cost

    def ends(self, patience: float | None) -> bool:
        """Return True if the search ends here, and tell the user the reason."""
        if not len(self.learner.valid):
            if self.evaluations >= ALL_FAIL:
                self.search.tell(f"done: all {self.evaluations} trials failed")
            return self.evaluations >= ALL_FAIL
        self.seen = self.learner.outlook()
        return self._is_enough() if patience is None else self._is_quiet(patience)

    def _is_enough(self) -> bool:
        """Return True if going on is expected to add too little, by prediction and by experience.

        As `StopRule`, but the prediction is of one evaluation. What lies within the uncertainty of
        measurements is no gain.
        """
        count = len(self.fronts)
        latest = max(LEAST_EVALUATIONS, math.ceil(min(SHARE * count, REST * (self.joint.size - count))))
        around = min(ROOTS * math.sqrt(self.joint.size), ENOUGH)
        if count <= latest or self.evaluations < max(LEAST_EVALUATIONS, around) or self.seen is None:
            return False
        added, least = self._added(latest), max(GAIN, self._told_apart())
        expected = self.seen.best.gain
        if added >= least or expected >= BELIEVED * least:
            return False
        self.search.tell("done: the rest is expected to add too little to the front")
        self.search.tell(
            f"bayesian: another trial is expected to add {100 * expected:.2g} % to the hypervolume of the"
            f" front, and the last {latest} added {100 * added:.1f} %{self.search.suffix}"
        )
        return True

    def _is_quiet(self, patience: float) -> bool:
        """Return True if the latest evaluations, as many as ``patience`` says, have added nothing."""
        if len(self.fronts) <= patience or self._added(int(patience)) > self._told_apart():
            return False
        self.search.tell(f"done: the last {patience:g} trials added nothing to the front")
        return True

    def _added(self, latest: int) -> float:
        """Return the share of the present hypervolume that the latest evaluations added."""
        front = self.fronts[-1]
        reference = reference_of(front)
        before = self.fronts[-1 - latest]
        return 1.0 - hypervolume(before, reference) / hypervolume(front, reference)

    def _told_apart(self) -> float:
        """Return the share of hypervolume that a shift of the front by its uncertainty adds."""
        front = self.fronts[-1]
        reference = reference_of(front)
        return hypervolume(front - self.learner.noise, reference) / hypervolume(front, reference) - 1.0


def _next(run: _FrontRun, draw: np.random.Generator, supposed: int) -> Proposal | None:
    """The next trial: of all, or of a sample and of the neighbours of a point of the front in turn."""
    learner, turn = run.learner, run.evaluations + supposed
    if not len(learner.valid):
        rows = learner.unmeasured()
        return Proposal(rows[int(draw.integers(len(rows)))], math.inf) if len(rows) else None
    if turn % 2 and learner.is_sampled:
        centres = learner.front_rows()
        near = learner.outlook_near(centres[turn // 2 % len(centres)])
        if near is not None:
            return near.best
    outlook = learner.outlook()
    return None if outlook is None else outlook.best


def _seeds(search: Search) -> list[Trial]:
    """Return the trials to try first: the analytical answer, the defaults, and the best of each cost."""
    seeds = [answers(search), search.defaults]
    for criterion in search.criteria:
        informed = replace(search, prior_runs=criterion.prior_runs)
        seeds.append(tuple(best_known(informed, i) or default for i, default in enumerate(search.defaults)))
    first = search.settings[0]
    return [
        Trial(configurations, first.clock_mhz, first.power_limit_w) for configurations in dict.fromkeys(seeds)
    ]
