"""Bayesian optimisation with a Gaussian process over configurations.

The machine-learning methodology of "Performance Tuning for GPU-Embedded Systems" (section IV-B), which takes
the linear model of coregionalisation and expected improvement from GPTune; both are this package's own here.
"""

import math
from collections.abc import Generator

import numpy as np

from tuner.interfaces import Search
from tuner.model import Configuration, Measurement, Trial

from .analytical import choose
from .surrogate.design import latin
from .surrogate.encoding import Integers
from .surrogate.joint import Joint
from .surrogate.knowledge import best_known, learnt, nearest
from .surrogate.learner import Learner, Proposal

PATIENCE = 5  # evaluations without progress that end a search; the paper looks at a window, too
START = 8  # trials of the start design; 15 do worse on public spaces, because they are spent blindly
PROGRESS = 0.001  # of the lowest cost: gains below it, or within the measurement's uncertainty, are none
HOPE = 0.01  # of the lowest cost: an evaluation that is expected to gain more is worth waiting for
ALL_FAIL = 100  # evaluations after which a search without a valid trial ends

Attempt = Generator[list[Trial], list[Measurement], Trial | None]
"""A part of a search: yields trials, is sent their measurements, returns what it found, if anything."""


def bayesian(search: Search, *, patience: int | None = PATIENCE) -> Attempt:
    """Measure where a surrogate of the costs promises most, until that brings no progress.

    1. Start: the analytical answer, the defaults, and a Latin hypercube over the legal candidates. What is
       known of other sizes or GPUs stands in for the hypercube.
    2. Fit: a Gaussian process to the logarithms of the costs; failures are modelled apart.
    3. Acquire: the trial of highest expected improvement, of all and of the neighbours of the best in turn.
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
    run = _Run(search, joint, Learner(joint, draw, learnt(sources, joint, draw)))

    yield from run.measure(_start(run, seeds, START if not sources else 0, draw))
    stop = _Stop(run, patience)
    while not stop.now():
        proposal = _acquire(run, draw)
        if proposal is None:
            search.tell(f"bayesian: all {joint.size} trials are measured")
            break
        stop.hope(proposal.gain)
        yield from run.measure([proposal.row])
    return None if run.learner.best is None else joint.trial(run.learner.best)


class _Run:
    """The search, what was learnt, and what measuring takes.

    Attributes:
        evaluations: asked for so far.
    """

    def __init__(self, search: Search, joint: Joint, learner: Learner) -> None:
        self.search, self.joint, self.learner = search, joint, learner
        self.evaluations = 0
        self.spent = 0.0
        self.noise = 0.0  # relative, of the best
        for trial, measurement in search.prior.items():
            row = joint.row(trial)
            if row is not None:
                self._learn(row, measurement)

    def measure(self, rows: list[Integers]) -> Generator[list[Trial], list[Measurement], None]:
        """Ask for trials and learn what they gave."""
        if not rows:
            return
        measurements = yield [self.joint.trial(row) for row in rows]
        for row, measurement in zip(rows, measurements, strict=True):
            self._learn(row, measurement)
        self.evaluations += len(rows)

    def _learn(self, row: Integers, measurement: Measurement) -> None:
        cost, noise = self.search.cost(measurement), self.search.noise(measurement)
        if cost < self.learner.lowest:
            self.noise = noise
        self.learner.learn(row, cost, noise)
        if self.search.payback is not None:
            self.spent = self.search.payback.spent(measurement)


class _Stop:
    """Whether to go on.

    An evaluation is progress if it lowers the lowest cost by more than the measurement's uncertainty. One
    that was expected to, by more than `HOPE`, is no sign that the search has arrived, whatever it brought:
    it is not counted.

    Args:
        run: the search, after its start design.
        patience: evaluations in a row without progress that end it; None for any number.
    """

    def __init__(self, run: _Run, patience: int | None) -> None:
        self._run, self._patience = run, patience
        self._lowest = run.learner.lowest
        self._quiet = 0
        self._gain = math.inf
        self._seen = run.evaluations

    def hope(self, gain: float) -> None:
        """Say what the next evaluation is expected to gain, as a fraction of the lowest cost."""
        self._gain = gain

    def now(self) -> bool:
        """Whether the search ends here; the user is told why."""
        run, tell = self._run, self._run.search.tell
        lowest = run.learner.lowest
        if lowest == math.inf:
            if run.evaluations >= ALL_FAIL:
                tell(f"bayesian: stopped after {run.evaluations} evaluations, all of which failed")
            return run.evaluations >= ALL_FAIL
        if lowest < self._lowest * (1 - max(PROGRESS, run.noise)) or self._lowest == math.inf:
            self._lowest, self._quiet = lowest, 0
        elif run.evaluations > self._seen and self._gain < HOPE:
            self._quiet += 1
        self._seen = run.evaluations
        if self._patience is not None and self._quiet >= self._patience:
            tell(
                f"bayesian: stopped after {run.evaluations} evaluations,"
                f" the last {self._quiet} of which brought no progress"
            )
            return True
        return self._does_not_pay()

    def _does_not_pay(self) -> bool:
        payback = self._run.search.payback
        if payback is None or self._gain == math.inf:
            return False
        saving = self._gain * self._run.learner.lowest * payback.runs
        if saving >= self._run.spent:
            return False
        self._run.search.tell(
            f"bayesian: stopped after {self._run.evaluations} evaluations: another one is expected to save"
            f" {saving:.3g} over {payback.runs:g} runs and takes {self._run.spent:.3g}"
        )
        return True


def _acquire(run: _Run, draw: np.random.Generator) -> Proposal | None:
    """The next trial: in turn of all and of the neighbours of the best; any while all have failed."""
    if run.learner.best is None:
        rows = run.learner.unmeasured()
        return Proposal(rows[int(draw.integers(len(rows)))], math.inf) if len(rows) else None
    if run.evaluations % 2:
        near = run.learner.propose_near()
        if near is not None:
            return near
    return run.learner.propose()


def _seeds(search: Search) -> list[Trial]:
    """What is worth trying first: the analytical answer, the defaults, and what was best in other runs."""
    workloads = range(len(search.workloads))
    analytical: list[Configuration] = []
    for place in workloads:
        roles = search.roles[place] if search.roles else {}
        choice = choose(search.candidates[place], search.limits, roles)
        analytical.append(search.defaults[place] if choice is None else choice.configuration)
    known = [best_known(search, place) or search.defaults[place] for place in workloads]
    seeds = [tuple(analytical), tuple(search.defaults)]
    if len(search.workloads) > 1:  # of a single workload the surrogate itself knows what is known
        seeds.append(tuple(known))
    return [Trial(configurations, search.clocks[0]) for configurations in dict.fromkeys(seeds)]


def _start(run: _Run, seeds: list[Trial], count: int, draw: np.random.Generator) -> list[Integers]:
    """The first trials: the seeds, and a Latin hypercube of ``count`` trials around what is known already."""
    rows = [row for row in map(run.joint.row, seeds) if row is not None]
    rows = [row for row in rows if tuple(row.tolist()) not in run.learner.measured]
    pool = run.learner.unmeasured()
    taken = np.vstack([run.learner.rows, *(row[None, :] for row in rows)])
    return rows + [pool[i] for i in latin(run.joint.codes(pool), run.joint.codes(taken), count, draw)]
