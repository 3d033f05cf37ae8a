"""Bayesian optimisation with a Gaussian process over configurations.

The machine-learning methodology of "Performance Tuning for GPU-Embedded Systems" (section IV-B), which takes
tasks that are learnt together and expected improvement from GPTune; both are this package's own here.
"""

import math
from collections.abc import Generator, Sequence
from functools import partial

import numpy as np

from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Search

from .analytical import answers
from .descent import Attempt
from .independent import SweepTime
from .stopping import StopRule
from .surrogate.features import Integers
from .surrogate.joint import Joint
from .surrogate.learner import Learner, SearchRun, best_known, learnt, nearest
from .surrogate.outlook import Proposal

LEAST_START = 4  # trials of the start design; of a single workload with more tunables, as many as these
FIRST = 2  # trials of the start where traits tell what to begin with,
FEW = 12  # and at most so many tunables vary
STALL = 3  # evaluations that do not lower the cost, after which another centre's neighbours get their turn
AHEAD = 8  # trials announced: the most promising, one of which is mostly the next
CHUNK = 16  # trials of a sweep between two looks at what it takes


def bayesian(
    search: Search,
    *,
    patience: float | None = None,
    sweep_s: float = 0.0,
    answered: tuple[Configuration, ...] | None = None,
) -> Attempt:
    """Measure the trial of highest acquisition until going on is expected to gain too little.

    1. Start: the analytical answer, the defaults, and some more trials (`start_rows`), for which what is
       known of other sizes or GPUs stands in. Trials that fail are made up for, once.
    2. Fit: a Gaussian process to the logarithms of the costs; failures are modelled apart.
    3. Acquire: the trial of highest expected improvement, of all and of the neighbours of a good one in turn.
    4. Stop: see `StopRule`; or when another evaluation does not pay.

    Args:
        search: what the policy is told.
        patience: evaluations in a row without progress that end the search instead; infinity to go on until
            the budget or the space is used up.
        sweep_s: the space is swept where that takes no longer, by what evaluations took so far.
        answered: the analytical answer where it is known; None to ask for it.
    """
    if search.size == 0:
        return None
    draw = np.random.default_rng(search.seed)
    seeds = _seeds(search, answered or answers(search))
    sources = nearest(search)
    joint = Joint(search, draw, seeds, sources)
    run = SearchRun(search, joint, Learner(joint, draw, learnt(sources, joint, draw)))

    yield from run.measure(run.start(seeds, 0 if sources else _wanted(joint), draw))
    yield from run.measure(run.start([], run.learner.failures, draw))
    stop = StopRule(run, patience)
    sweep = SweepTime(search, sweep_s)
    while True:
        if run.learner.best is not None and sweep.fits(run.ended_s):
            outlook = run.learner.outlook()
            if outlook is not None:
                yield from _swept(run, outlook.first(len(outlook.rows)), sweep)
                continue
        if stop.now():
            break
        proposals = run.acquire(partial(_next, run, draw))
        if not proposals:
            break
        proposals = stop.paying(proposals)
        if not proposals:
            break
        rows = [proposal.row for proposal in proposals]
        yield from run.measure(rows, _likely(run, len(rows)))
    return None if run.learner.best is None else joint.trial(run.learner.best)


def _swept(
    run: SearchRun, rows: Sequence[Integers], sweep: SweepTime
) -> Generator[list[Trial], list[Measurement], None]:
    """Measure trials in an order that is not predicted anew, which takes longer than many a trial."""
    for begin in range(0, len(rows), CHUNK):
        if begin and not sweep.fits(run.ended_s):
            return
        following = begin + CHUNK
        yield from run.measure(rows[begin:following], rows[following : following + AHEAD * CHUNK])


def _next(run: SearchRun, draw: np.random.Generator, supposed: int) -> Proposal | None:
    """The next trial: in turn of all and of the neighbours of a good one; any while all have failed.

    Neighbours are those of the best trial, as long as that helps; then of the best of another kind, which a
    surrogate that knows little of it would not return to. Of a space that is too large to be listed, "all" is
    a sample: there the turn goes to the better of both, or to a neighbour of it that promises more.
    """
    learner = run.learner
    if learner.best is None:
        rows = learner.unmeasured()
        return Proposal(rows[int(draw.integers(len(rows)))], math.inf) if len(rows) else None
    odd = (run.evaluations + supposed) % 2
    near = learner.propose_near((run.idle + supposed) // STALL) if odd or run.joint.is_sample else None
    if near is not None and odd:
        return near
    outlook = learner.outlook()
    best = None if outlook is None else outlook.best
    if not run.joint.is_sample:
        return best
    start = max((one for one in (near, best) if one is not None), key=lambda one: one.gain, default=None)
    return None if start is None else learner.climbed(start)


def _likely(run: SearchRun, next_trials: int) -> list[Integers]:
    """Return the likely proposals after the next trials, to compile while these are measured."""
    if not run.search.compiles_ahead:
        return []
    outlook = None
    if (run.evaluations + next_trials) % 2:
        outlook = run.learner.outlook_near((run.idle + next_trials) // STALL)
    if outlook is None or outlook.in_vain:
        outlook = run.learner.outlook()
    return [] if outlook is None else outlook.first(AHEAD * run.search.parallel)


def _wanted(joint: Joint) -> int:
    """Trials of the start beyond the seeds, where nothing is known of other sizes or GPUs."""
    if joint.has_traits and joint.tunables <= FEW:
        return FIRST
    return LEAST_START if joint.several else max(LEAST_START, joint.tunables)


def _seeds(search: Search, answered: tuple[Configuration, ...]) -> list[Trial]:
    """Return the trials to try first: the analytical answer, the defaults, and the best of other runs."""
    seeds = [answered, search.defaults]
    if len(search.workloads) > 1:  # of a single workload the surrogate itself learns what is known
        seeds.append(tuple(best_known(search, i) or default for i, default in enumerate(search.defaults)))
    return [Trial(configurations, search.clocks[0]) for configurations in dict.fromkeys(seeds)]
