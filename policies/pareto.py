"""Bayesian optimisation of two costs at once: the search for a Pareto front."""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from tuner.model.objective import GAIN
from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Search

from .analytical import answers
from .bayesian import AHEAD, LEAST_START
from .descent import Attempt
from .stopping import ALL_FAIL, LEAST_EVALUATIONS, REST
from .surrogate.cost_pair import CostPair, FrontOutlook, reference_of
from .surrogate.features import Floats, Integers
from .surrogate.joint import Joint
from .surrogate.learner import JointRun, best_known
from .surrogate.outlook import Proposal, hypervolume

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
