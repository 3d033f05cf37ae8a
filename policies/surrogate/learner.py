"""The measurements of a search and of other runs, and the proposals of the surrogate."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Status, Trial
from tuner.space.search_view import PriorRun, Search

from . import gaussian
from .features import Floats, Integers, beliefs
from .gaussian import Posterior, next_fit
from .joint import CostTransform, Joint, respond, slowdown, start_rows
from .outlook import Outlook, Proposal

# --- The probability that a configuration fails, from the outcomes of those near it.

REFIT_FAILURES = (
    1.2  # which tunables failures depend on is fitted again when there are so many times more outcomes
)
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
            self._fit_at = next_fit(REFIT_FAILURES, count)
        new = np.arange(self._learnt[-1] + 1, count)
        if self._explains and len(new):
            self._posterior.add(self._x[new], np.zeros(len(new)))
            self._learnt = np.append(self._learnt, new)

    def _start(self) -> None:
        """Start a posterior of what was learnt, over the pool."""
        self._posterior = Posterior(self._model, self._pool)
        self._posterior.add(self._x[self._learnt], np.zeros(len(self._learnt)))


# --- Measurements of other runs, as further tasks of the surrogate.
#
# Tasks are told apart by a feature each, whose length scale is fitted as those of tunables are: a task that
# says other things than the rest gets a short one, and is hardly listened to.

SOURCES = 4  # tasks learnt from at most: the cost of a fit grows with the cube of the points
POINTS = 48  # of each: half of them its best, half drawn, so that it is known what is good and what is bad
LEAST = 4  # points below which a run says nothing
MEAN = 10.0  # variance of the target's mean, which its few points do not tell; others are standardised


@dataclass(frozen=True)
class Knowledge:
    """Points of other tasks.

    Attributes:
        x: features with those of `of_task` behind them, shape (n, features + tasks + 1).
        y: responses, standardised per task, shape (n,).
        scale: standard deviation of log cost that was divided by, the tasks' mean.
        tasks: with the target's, task 0.
    """

    x: Floats
    y: Floats
    scale: float
    tasks: int


def nearest(search: Search) -> list[PriorRun]:
    """The runs to learn from: same GPU first, then the nearest in size."""
    if len(search.workloads) != 1:
        return []  # a joint space is no task of a single workload's kind
    return [source for source in _by_distance(search, 0) if len(_finite(source)) >= LEAST][:SOURCES]


def best_known(search: Search, workload: int) -> Configuration | None:
    """Of the runs that know a workload, the best configuration of the nearest that it has, too."""
    legal = {candidate.configuration for candidate in search.candidates[workload]}
    for source in _by_distance(search, workload):
        points = [point for point in _finite(source) if point[0] in legal]
        if points:
            return min(points, key=lambda point: point[1])[0]
    return None


def learnt(sources: Sequence[PriorRun], joint: Joint, draw: np.random.Generator) -> Knowledge | None:
    """Points to learn from; None where there are none."""
    parts = []
    for task, source in enumerate(sources, start=1):
        points = _picked(_finite(source), draw)
        every = respond(np.array([cost for _, cost in _finite(source)]))
        y = every.of(np.array([cost for _, cost in points]))
        features = joint.of_one([configuration for configuration, _ in points])
        parts.append((np.hstack([features, of_task(task, len(points), 1 + len(sources))]), y, every))
    if not parts:
        return None
    return Knowledge(
        x=np.vstack([x for x, _, _ in parts]),
        y=np.concatenate([y for _, y, _ in parts]),
        scale=float(np.mean([every.scale for _, _, every in parts])),
        tasks=1 + len(parts),
    )


def of_task(task: int, count: int, tasks: int) -> Floats:
    """Features of a task: one apart from any other, as texts are; and 1 for the target, whose mean is open.

    Returns:
        Shape (count, tasks + 1).
    """
    row = np.append(np.eye(tasks)[task] / np.sqrt(2.0), float(task == 0))
    return np.tile(row, (count, 1))


def _finite(source: PriorRun) -> list[tuple[Configuration, float]]:
    return [(configuration, cost) for configuration, cost in source.points if np.isfinite(cost)]


def _picked(
    points: list[tuple[Configuration, float]], draw: np.random.Generator
) -> list[tuple[Configuration, float]]:
    if len(points) <= POINTS:
        return points
    ranked = sorted(points, key=lambda point: point[1])
    rest = ranked[POINTS // 2 :]
    some = sorted(draw.choice(len(rest), POINTS - POINTS // 2, replace=False).tolist())
    return ranked[: POINTS // 2] + [rest[i] for i in some]


def _by_distance(search: Search, workload: int) -> list[PriorRun]:
    """Runs that know a workload: those on the same GPU first, then the nearest in size."""
    sizes = search.sizes[workload] if search.sizes else {}
    sources = [source for source in search.prior_runs if source.workload == workload]
    return sorted(sources, key=lambda source: (source.device != search.device, _apart(source.sizes, sizes)))


def _apart(sizes: Mapping[str, int | str], other: Mapping[str, int | str]) -> float:
    """Return the distance of two problems: halvings between their sizes; texts that differ count as one."""
    total = 0.0
    for name in {*sizes, *other}:
        a, b = sizes.get(name), other.get(name)
        if isinstance(a, int) and isinstance(b, int) and a > 0 and b > 0:
            total += abs(float(np.log2(a / b)))
        else:
            total += float(a != b)
    return total


# --- The learner: fits, proposes, and fits anew.

REFIT = 1.1  # hyper-parameters are fitted again when there are so many times more measurements
REFIT_TASKS = 1.5  # the same with knowledge of other tasks, where a fit takes longer and changes less
MOST_POINTS = 300  # in the Gaussian process: half of them the best, half the latest
CENTRES = 3  # trials whose neighbourhoods are searched: the best, and the best of other kinds
CONTENDERS = 40  # the best so many may be centres
ALIKE = 0.5  # of one kind are trials whose costs correlate by more than that, by the fitted kernel
SPREAD_KNOWN = 2.0  # measurements that the usual spread of a space counts for, where traits are believed
# Variance of the mean beside such beliefs: measured are rather those that are believed to be good.
OFFSET = 1.0
TRUST = 8.0  # measurements that the spread of other tasks counts for


class Surrogate:
    """Measurements over a joint space, the trials that may be proposed, and which of them may fail.

    The *pool* is all of a small space, or a sample of a large one, drawn anew at every fit.

    Attributes:
        rows: what was measured, in its order, shape (n, axes).
        measured: rows that are never proposed (again), as tuples, those outside of the pool among them.
    """

    def __init__(self, joint: Joint, draw: np.random.Generator) -> None:
        self._joint, self._draw = joint, draw
        self.rows = np.zeros((0, len(joint.shape)), dtype=np.int64)
        self.measured: set[tuple[int, ...]] = set()
        self._learnt = np.zeros(0, dtype=np.int64)  # measurements in the posterior, in its order
        self._pending: list[Integers] = []  # trials taken for measured
        self._failures = FailureModel(joint.groups)
        self._draw_pool()

    def _draw_pool(self) -> None:
        """Take another sample of a large space; what was fitted is of the one before."""
        self._pool = self._joint.pool(self._draw)
        self._places = {row: place for place, row in enumerate(map(tuple, self._pool.tolist()))}
        self._free = np.array([row not in self.measured for row in self._places], dtype=bool)
        self._pool_features = self._features(self._pool)
        self._failures.set_pool(self._pool_features[:, : len(self._joint.groups)])
        self._fit_at = 0

    def _features(self, rows: Integers) -> Floats:
        return self._joint.features(rows)

    @property
    def is_sampled(self) -> bool:
        """True where the pool is a sample of the space."""
        return self._joint.is_sample or len(self._pool) < self._joint.size

    def _take_in(self, row: Integers, *, works: bool) -> None:
        """Take note of a measurement's row and outcome."""
        self.rule_out(row)
        self.rows = np.vstack([self.rows, row[None, :]])
        self._failures.add(self._joint.features(row[None, :]), np.array([float(not works)]))

    def rule_out(self, row: Integers) -> None:
        """Never propose a trial; nothing is learnt from it."""
        self.measured.add(tuple(row.tolist()))
        self._let(row, free=False)

    def _let(self, row: Integers, *, free: bool) -> None:
        place = self._places.get(tuple(row.tolist()))
        if place is not None:
            self._free[place] = free

    def suppose(self, row: Integers) -> None:
        """Take a trial for measured at what is predicted of it, until ``forget``.

        So several trials are chosen one after another, to be measured together: where one is chosen,
        predictions become sure, and no higher or lower. See Ginsbourger, Le Riche and Carraro, "Kriging Is
        Well-Suited to Parallelize Optimization" (2010), section 4.2: the Kriging believer.
        """
        self._pending.append(row)
        self.rule_out(row)

    def forget(self) -> None:
        """Take back all that was supposed."""
        for row in self._pending:
            self.measured.discard(tuple(row.tolist()))
            self._let(row, free=True)
        self._pending = []

    def unmeasured(self) -> Integers:
        """Trials of the pool that are not measured; of a new sample of a large space where none is left."""
        if not self._free.any() and self.is_sampled:
            self._draw_pool()
        return np.asarray(self._pool[self._free])

    def promising(self) -> Integers:
        """Trials of the pool that are not measured and rather work than fail; all where none does."""
        rows = self.unmeasured()
        works = self._failures.log_chance_to_work()[self._free] > np.log(0.5)
        return np.asarray(rows[works]) if works.any() else rows


Present = tuple[Posterior, Floats, CostTransform]
"""A posterior, the responses in its order, and what these stand for."""


class Learner(Surrogate):
    """Measurements of a joint space and a surrogate of their costs."""

    def __init__(self, joint: Joint, draw: np.random.Generator, knowledge: Knowledge | None) -> None:
        self._knowledge = knowledge
        self._beliefs = beliefs() if knowledge is None and joint.has_traits else None
        self._costs = np.zeros(0)
        self._noises = np.zeros(0)
        self._slower = 0.0  # of unlikely blocks, in responses
        self._outlook: Outlook | None = None  # while nothing new is known
        self._present: Present | None = None
        super().__init__(joint, draw)
        self._model = self._unfitted()

    def _unfitted(self) -> gaussian.Gaussian:
        groups = self._joint.groups
        if self._knowledge is not None:
            own = int(groups.max(initial=-1)) + 1 + np.arange(self._knowledge.tasks)
            return gaussian.prior(np.append(groups, own), np.array([MEAN]))
        if self._beliefs is not None:
            return gaussian.prior(groups, np.append(OFFSET, self._beliefs.variance))
        return gaussian.prior(groups)

    @property
    def lowest(self) -> float:
        """Lowest cost; infinity while there is none."""
        return float(np.min(self._costs, initial=np.inf))

    @property
    def scatter(self) -> float:
        """Standard deviation of all costs, as a share of their mean; infinity while there is none."""
        costs = self._costs[np.isfinite(self._costs)]
        mean = float(np.mean(costs)) if len(costs) else 0.0
        return float(np.std(costs)) / mean if mean > 0.0 else np.inf

    @property
    def failures(self) -> int:
        """Trials that failed."""
        return int(np.isinf(self._costs).sum())

    @property
    def best(self) -> Integers | None:
        """The row of the lowest cost, the earliest of equals; None while all failed."""
        return self.rows[int(np.argmin(self._costs))] if np.isfinite(self.lowest) else None

    def learn(self, row: Integers, cost: float, noise: float) -> None:
        """Take in a measurement.

        Args:
            row: of the joint space.
            cost: one that is not finite is a failure.
            noise: its relative standard uncertainty.
        """
        self._present = None
        self._take_in(row, works=bool(np.isfinite(cost)))
        self._costs = np.append(self._costs, cost if np.isfinite(cost) else np.inf)
        self._noises = np.append(self._noises, noise if np.isfinite(noise) else 0.0)

    def rule_out(self, row: Integers) -> None:
        """See ``Surrogate.rule_out``."""
        self._outlook = None
        super().rule_out(row)

    def suppose(self, row: Integers) -> None:
        """See ``Surrogate.suppose``."""
        if self.best is not None:
            posterior, y, response = self._trained()
            self._present = *posterior.supposing(self._features(row[None, :]), y), response
        super().suppose(row)

    def forget(self) -> None:
        """See ``Surrogate.forget``."""
        if self._pending:
            self._present = self._outlook = None
            super().forget()

    def outlook(self) -> Outlook | None:
        """Return the prediction for all that is not measured; None if nothing is left, or all have failed."""
        if not len(self.unmeasured()) or self.best is None:
            return None
        if self._outlook is None:
            posterior, y, _ = self._trained()  # which may draw another pool
            mean, deviation = posterior.predict(y)
            mean = (mean + self._believed(self._pool))[self._free]
            works = self._failures.log_chance_to_work()[self._free]
            self._outlook = self._seen(self.unmeasured(), mean, deviation[self._free], works)
        return self._outlook

    def _seen(self, rows: Integers, mean: Floats, deviation: Floats, works: Floats) -> Outlook:
        posterior, _, response = self._trained()
        target = float(response.of(np.array([self.lowest]))[0])
        return Outlook(
            *(rows, mean, deviation, works, target, response.scale),
            lambda places: posterior.covariance_at(self._features(rows[places])),
        )

    def propose_near(self, turn: int) -> Proposal | None:
        """The best among the neighbours of a centre, which are counted round and round.

        None where the centre has no neighbour left, where all may well fail and none promises enough for
        that, or where all have failed.
        """
        outlook = self.outlook_near(turn)
        return None if outlook is None or outlook.in_vain else replace(outlook.best, near=True)

    def climbed(self, start: Proposal) -> Proposal:
        """The best neighbour of a proposal where it promises more, else the proposal."""
        outlook = self._outlook_around(start.row)
        if outlook is None or outlook.in_vain or outlook.best.gain <= start.gain:
            return start
        return replace(outlook.best, near=True)

    def outlook_near(self, turn: int) -> Outlook | None:
        """Return the prediction for the neighbours of a centre; None if none are left, or all have failed."""
        if self.best is None:
            return None
        self._trained()
        centres = self._centres()
        return self._outlook_around(centres[turn % len(centres)])

    def _outlook_around(self, centre: Integers) -> Outlook | None:
        posterior, y, _ = self._trained()
        rows = self._joint.neighbours(centre, self.measured)
        if not len(rows):
            return None
        x = self._features(rows)
        mean, deviation = posterior.predict_at(x, y)
        works = self._failures.log_chance_to_work(x[:, : len(self._joint.groups)])
        return self._seen(rows, mean + self._believed(rows), deviation, works)

    def expected(self) -> tuple[Integers, Floats]:
        """Numbers of the measurements in the posterior, and their costs without the noise of each."""
        posterior, y, response = self._trained()
        smooth = posterior.without_noise(y, self._variances(self._learnt, response))
        return self._learnt, response.costs(self._believed(self.rows[self._learnt]) + smooth)

    def _centres(self) -> list[Integers]:
        """The best trial, and the best of those that are not like a better centre."""
        ranked = np.argsort(self._costs, kind="stable")[:CONTENDERS]
        ranked = ranked[np.isfinite(self._costs[ranked])]
        alike = self._model.alike(self._features(self.rows[ranked])) > ALIKE
        chosen: list[int] = []
        for position in range(len(ranked)):
            if len(chosen) < CENTRES and not alike[position, chosen].any():
                chosen.append(position)
        return [self.rows[ranked[position]] for position in chosen]

    def _trained(self) -> Present:
        """The posterior, the responses in its order, and what these stand for; with what is supposed."""
        if self._present is None or not self._fit_at:  # or another pool was drawn
            self._present = self._train()
        return self._present

    def _train(self) -> Present:
        """Bring the posterior up to date."""
        valid = np.flatnonzero(np.isfinite(self._costs))
        response = self._response(self._costs[valid])
        if len(valid) >= self._fit_at:
            self._fit(self._some(valid), response)
        new = valid[valid > self._learnt.max(initial=-1)]
        if len(new):
            self._posterior.add(self._features(self.rows[new]), self._variances(new, response))
            self._learnt = np.append(self._learnt, new)
        y = response.of(self._costs[self._learnt])
        if self._knowledge is not None:
            return self._posterior, np.append(self._knowledge.y, y), response
        y = y - self._by_traits(self.rows[self._learnt])
        others = self._joint.unlikely(self.rows[self._learnt])
        if self._joint.doubtful:
            self._slower = slowdown(self._posterior, others, y, response.scale)
        return self._posterior, y - self._slower * others, response

    def _response(self, costs: Floats) -> CostTransform:
        if self._knowledge is not None:
            return respond(costs, scale=self._knowledge.scale, weight=TRUST)
        if self._beliefs is not None:
            return respond(costs, scale=self._beliefs.scale, weight=SPREAD_KNOWN)
        return respond(costs)

    def _fit(self, chosen: Integers, response: CostTransform) -> None:
        """Fit the hyper-parameters again, and start a posterior with them."""
        x, noise = self._features(self.rows[chosen]), self._variances(chosen, response)
        y = response.of(self._costs[chosen]) - self._believed(self.rows[chosen])
        knowledge = self._knowledge
        if knowledge is not None:
            x, y = np.vstack([knowledge.x, x]), np.append(knowledge.y, y)
            noise = np.append(np.zeros(len(knowledge.y)), noise)
        self._model = gaussian.fit(self._model, x, y, noise)
        if self.is_sampled:
            self._draw_pool()
        growth = REFIT if knowledge is None else REFIT_TASKS
        self._fit_at = next_fit(growth, int(np.isfinite(self._costs).sum()))
        self._posterior = Posterior(self._model, self._pool_features)
        self._posterior.add(x, noise)
        self._learnt = chosen

    def _some(self, valid: Integers) -> Integers:
        if len(valid) <= MOST_POINTS:
            return valid
        latest = valid[-(MOST_POINTS // 2) :]
        rest = valid[: -(MOST_POINTS // 2)]
        ranked = rest[np.argsort(self._costs[rest], kind="stable")]
        return np.append(np.sort(ranked[: MOST_POINTS // 2]), latest)

    def _variances(self, chosen: Integers, response: CostTransform) -> Floats:
        """Variances of responses: a relative uncertainty is one of the logarithm."""
        return np.asarray((self._noises[chosen] / response.scale) ** 2)

    def _features(self, rows: Integers) -> Floats:
        """Features; with 1 and traits behind them where those are believed, or those of the task."""
        features = self._joint.features(rows)
        if self._beliefs is not None:
            return np.hstack([features, np.ones((len(rows), 1)), self._joint.traits(rows)])
        if self._knowledge is not None:
            return np.hstack([features, of_task(0, len(rows), self._knowledge.tasks)])
        return features

    def _believed(self, rows: Integers) -> Floats:
        """Responses that are believed before anything is measured, shape (trials,)."""
        return self._by_traits(rows) + self._slower * self._joint.unlikely(rows)

    def _by_traits(self, rows: Integers) -> Floats:
        if self._beliefs is None:
            return np.zeros(len(rows))
        return np.asarray(self._joint.traits(rows) @ self._beliefs.mean)


# --- A search of a joint space: trials are asked for, and what they gave is learnt.


class JointRun(ABC):
    """A search so far, of one cost or of two.

    Attributes:
        learner: what is known.
        evaluations: trials asked for and not ruled out.
        ended_s: when each of them had ended.
    """

    learner: Surrogate

    def __init__(self, search: Search, joint: Joint) -> None:
        self.search, self.joint = search, joint
        self.evaluations = 0
        self.ended_s: list[float] = []

    @abstractmethod
    def learn(self, row: Integers, measurement: Measurement) -> None:
        """Take in a measurement."""

    def learn_prior(self) -> None:
        """Take in what is measured already, as far as it lies in the space."""
        for trial, measurement in self.search.prior.items():
            row = self.joint.row(trial)
            if row is not None:
                self.learn(row, measurement)

    def measure(
        self, rows: Sequence[Integers], likely: Sequence[Integers] = ()
    ) -> Generator[list[Trial], list[Measurement], None]:
        """Ask for trials and learn what they gave; ``likely`` are those that may be asked for next."""
        if not rows:
            return
        trials = [self.joint.trial(row) for row in rows]
        after = [trial for trial in map(self.joint.trial, likely) if trial not in trials]
        if after:
            self.search.expect(after)
        measurements = yield trials
        for row, measurement in zip(rows, measurements, strict=True):
            if measurement.status is Status.PRUNED:
                self.learner.rule_out(row)
                continue
            self.evaluations += 1
            self.ended_s.append(measurement.ended_s)
            self.learn(row, measurement)

    def start(self, seeds: Sequence[Trial], count: int, draw: np.random.Generator) -> list[Integers]:
        """The first trials: the seeds, and ``count`` more that tell much of the space.

        Without seeds they stand in for others that failed, and rather work than fail.
        """
        rows = [row for row in map(self.joint.row, seeds) if row is not None]
        rows = [row for row in rows if tuple(row.tolist()) not in self.learner.measured]
        pool = self.learner.unmeasured() if seeds else self.learner.promising()
        measured = np.vstack([self.learner.rows, *(row[None, :] for row in rows)])
        return rows + start_rows(self.joint, pool, measured, count, draw)

    def acquire(self, following: Callable[[int], Proposal | None]) -> list[Proposal]:
        """The next trials: as many as are measured at once, each chosen as if those before were measured.

        ``following`` takes how many trials are taken for measured, and chooses another.
        """
        chosen: list[Proposal] = []
        while len(chosen) < self.search.parallel:
            proposal = following(len(chosen))
            if proposal is None:
                break
            chosen.append(proposal)
            if len(chosen) < self.search.parallel:
                self.learner.suppose(proposal.row)
        self.learner.forget()
        return chosen


class SearchRun(JointRun):
    """A search of one cost so far.

    Attributes:
        idle: evaluations since the lowest cost fell.
        noise: relative uncertainty of the lowest cost.
        spent: what the evaluations took, in the unit of the cost.
        lowest: lowest cost after every measurement, those known before among them.
    """

    learner: Learner

    def __init__(self, search: Search, joint: Joint, learner: Learner) -> None:
        super().__init__(search, joint)
        self.learner = learner
        self.idle = 0
        self.noise = self.spent = 0.0
        self.lowest: list[float] = []
        self.learn_prior()

    def learn(self, row: Integers, measurement: Measurement) -> None:
        """See ``JointRun.learn``."""
        cost, noise = self.search.cost(measurement), self.search.noise(measurement)
        self.idle += 1
        if cost < self.learner.lowest:
            self.idle, self.noise = 0, noise
        self.learner.learn(row, cost, noise)
        self.lowest.append(self.learner.lowest)
        if self.search.payback is not None:
            self.spent += self.search.payback.spent(measurement)


def expected_costs(search: Search, measured: Mapping[Trial, Measurement]) -> dict[Trial, float]:
    """Costs of valid trials as the surrogate expects them without the noise of their measurements.

    The lowest of many noisy readings is low by chance; the surrogate knows what trials like it read.

    Args:
        search: its cost and noise are meant.
        measured: the trials.
    """
    costs = {trial: search.cost(measurement) for trial, measurement in measured.items()}
    valid = {trial: cost for trial, cost in costs.items() if np.isfinite(cost)}
    draw = np.random.default_rng(search.seed)
    joint = Joint(search, draw, [*valid])
    rows = {trial: row for trial in valid if (row := joint.row(trial)) is not None}
    learner = Learner(joint, draw, None)
    for trial, row in rows.items():
        learner.learn(row, valid[trial], search.noise(measured[trial]))
    if not rows:
        return valid
    places, expected = learner.expected()
    trials = [*rows]
    return valid | {trials[place]: float(cost) for place, cost in zip(places, expected, strict=True)}
