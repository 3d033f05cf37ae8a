"""Bayesian optimisation with a Gaussian process over configurations.

The machine-learning methodology of "Performance Tuning for GPU-Embedded Systems" (section IV-B), which takes
the linear model of coregionalisation and expected improvement from GPTune; both are this package's own here.
"""

import math
from collections.abc import Generator

import numpy as np

from tuner.interfaces import Search
from tuner.model import Configuration, Measurement, Trial

from .analytical import choice_of
from .descent import Attempt
from .surrogate.encoding import Integers, latin
from .surrogate.joint import Joint
from .surrogate.knowledge import best_known, learnt, nearest
from .surrogate.learner import Learner, Proposal

PATIENCE = 5  # evaluations without progress that end a search; the paper looks at a window, too
LEAST_START = 4  # trials of the start design; where more tunables vary, as many as these
PROGRESS = 0.003  # of the lowest cost: gains below it, or within the measurement's uncertainty, are none
HOPE = 0.1  # of the lowest cost, by the number of tunables: an evaluation expected to gain more is not quiet
FEW = 8  # tunables; a space of fewer is taken to have as many there
STALL = 3  # evaluations that do not lower the cost, after which another centre's neighbours get their turn
ALL_FAIL = 100  # evaluations after which a search without a valid trial ends


def bayesian(search: Search, *, patience: int | None = PATIENCE) -> Attempt:
    """Measure the trial of highest acquisition until there is no progress.

    1. Start: the analytical answer, the defaults, and a Latin hypercube over the legal candidates. What is
       known of other sizes or GPUs stands in for the hypercube. Trials that fail are made up for, once.
    2. Fit: a Gaussian process to the logarithms of the costs; failures are modelled apart.
    3. Acquire: the trial of highest expected improvement, of all and of the neighbours of a good one in turn.
    4. Stop: after ``patience`` evaluations without progress, or when another does not pay.

    Args:
        search: what the policy is told.
        patience: evaluations in a row without progress that end the search; None to go on until the budget
            or the space is used up.

    Returns:
        The cheapest trial measured, or None when all failed.
    """
    if search.size == 0:
        return None
    draw = np.random.default_rng(search.seed)
    seeds = _seeds(search)
    sources = nearest(search)
    joint = Joint(search, draw, seeds, sources)
    run = _SearchRun(search, joint, Learner(joint, draw, learnt(sources, joint, draw)))

    yield from run.measure(_start(run, seeds, 0 if sources else max(LEAST_START, joint.tunables), draw))
    yield from run.measure(_start(run, [], run.learner.failures, draw))
    stop = _Stop(run, patience)
    while not stop.now():
        proposal = _acquire(run, draw)
        if proposal is None:
            search.tell(f"bayesian: all {len(run.learner.measured)} trials are measured")
            break
        if stop.does_not_pay(proposal):
            break
        yield from run.measure([proposal.row])
    return None if run.learner.best is None else joint.trial(run.learner.best)


class _SearchRun:
    """A search so far.

    Attributes:
        evaluations: trials asked for.
        idle: of them, those since the lowest cost fell.
        noise: relative uncertainty of the lowest cost.
        spent: what they took, in the unit of the cost.
    """

    def __init__(self, search: Search, joint: Joint, learner: Learner) -> None:
        self.search, self.joint, self.learner = search, joint, learner
        self.evaluations = self.idle = 0
        self.noise = self.spent = 0.0
        for trial, measurement in search.prior.items():
            row = joint.row(trial)
            if row is not None:
                self._learn(row, measurement)

    def measure(self, rows: list[Integers]) -> Generator[list[Trial], list[Measurement], None]:
        """Ask for trials and learn what they gave."""
        if not rows:
            return
        measurements = yield [self.joint.trial(row) for row in rows]
        self.evaluations += len(rows)
        for row, measurement in zip(rows, measurements, strict=True):
            self._learn(row, measurement)

    def _learn(self, row: Integers, measurement: Measurement) -> None:
        cost, noise = self.search.cost(measurement), self.search.noise(measurement)
        self.idle += 1
        if cost < self.learner.lowest:
            self.idle, self.noise = 0, noise
        self.learner.learn(row, cost, noise)
        if self.search.payback is not None:
            self.spent += self.search.payback.spent(measurement)


class _Stop:
    """Whether to go on.

    An evaluation is progress if it lowers the lowest cost by more than the measurement can tell, and quiet
    otherwise. One that was expected to gain much and did not has taught something: it is neither. The more
    tunables vary, the more directions are left unseen, and the less counts as much.

    Args:
        run: the search, after its start design.
        patience: quiet evaluations in a row that end it; None for any number.
    """

    def __init__(self, run: _SearchRun, patience: int | None) -> None:
        self._run, self._patience = run, patience
        self._lowest = run.learner.lowest
        self._hope = HOPE / max(FEW, run.joint.tunables)
        self._quiet = 0
        self._expected: float | None = None

    def now(self) -> bool:
        """Whether the search ends here; the user is told why."""
        run, lowest = self._run, self._run.learner.lowest
        if lowest == math.inf:
            return self._hopeless()
        if lowest < self._lowest * (1 - max(PROGRESS, run.noise)):
            self._lowest, self._quiet = lowest, 0
        elif self._expected is not None and self._expected < self._hope:
            self._quiet += 1
        if self._patience is None or self._quiet < self._patience:
            return False
        run.search.tell(
            f"bayesian: stopped after {run.evaluations} evaluations,"
            f" the last {self._quiet} of which brought no progress"
        )
        return True

    def _hopeless(self) -> bool:
        if self._run.evaluations < ALL_FAIL:
            return False
        self._run.search.tell(f"bayesian: stopped because all {self._run.evaluations} evaluations failed")
        return True

    def does_not_pay(self, proposal: Proposal) -> bool:
        """Whether the search ends before what it would measure next."""
        self._expected = proposal.gain
        payback, run = self._run.search.payback, self._run
        if payback is None or proposal.near or run.learner.lowest == math.inf:
            return False
        saving = proposal.gain * run.learner.lowest * payback.runs
        price = run.spent / len(run.learner.measured)
        if saving >= price:
            return False
        run.search.tell(
            f"bayesian: stopped after {run.evaluations} evaluations: another one would save about"
            f" {saving:.3g} in {payback.runs:g} runs, and takes {price:.3g}"
        )
        return True


def _acquire(run: _SearchRun, draw: np.random.Generator) -> Proposal | None:
    """The next trial: in turn of all and of the neighbours of a good one; any while all have failed.

    Neighbours are those of the best trial, as long as that helps; then of the best of another kind, which a
    surrogate that knows little of it would not return to.
    """
    learner = run.learner
    if learner.best is None:
        rows = learner.unmeasured()
        return Proposal(rows[int(draw.integers(len(rows)))], math.inf) if len(rows) else None
    near = learner.propose_near(run.idle // STALL) if run.evaluations % 2 else None
    return learner.propose() if near is None else near


def _seeds(search: Search) -> list[Trial]:
    """What is worth trying first: the analytical answer, the defaults, and what was best in other runs."""
    places = range(len(search.workloads))
    analytical: list[Configuration] = []
    for place in places:
        choice = choice_of(search, place)
        analytical.append(search.defaults[place] if choice is None else choice.configuration)
    seeds = [tuple(analytical), tuple(search.defaults)]
    if len(search.workloads) > 1:  # of a single workload the surrogate itself learns what is known
        seeds.append(tuple(best_known(search, place) or search.defaults[place] for place in places))
    return [Trial(configurations, search.clocks[0]) for configurations in dict.fromkeys(seeds)]


def _start(run: _SearchRun, seeds: list[Trial], count: int, draw: np.random.Generator) -> list[Integers]:
    """The first trials: the seeds, and a Latin hypercube of ``count`` trials around what is known already."""
    rows = [row for row in map(run.joint.row, seeds) if row is not None]
    rows = [row for row in rows if tuple(row.tolist()) not in run.learner.measured]
    pool = run.learner.unmeasured()
    taken = np.vstack([run.learner.rows, *(row[None, :] for row in rows)])
    return rows + [pool[i] for i in latin(run.joint.codes(pool), run.joint.codes(taken), count, draw)]
