"""What configurations of a workload cost when it runs alone, as a feature of trials of several workloads."""

import math
from collections.abc import Sequence

import numpy as np

from tuner.model.plan import Configuration, without_priority
from tuner.space.search_view import PriorRun, Search

from .features import Floats


def costs_alone(search: Search, place: int) -> PriorRun | None:
    """The run of a workload alone, at its sizes and on this GPU; None where none is known.

    Args:
        search: of several workloads.
        place: of the workload.
    """
    if len(search.workloads) == 1 or not search.sizes:
        return None
    for run in search.prior_runs:
        here = run.workload == place and run.device == search.device
        if here and dict(run.sizes) == dict(search.sizes[place]):
            return run
    return None


def slower_alone(run: PriorRun | None, choices: Sequence[Configuration]) -> Floats:
    """How much more configurations cost alone than the cheapest: a feature, shape (choices, 1 or 0).

    It is the logarithm of the cost, from 0 for the cheapest to 1. What failed is as dear as the dearest; what
    was not measured is as dear as the middle one. Without a run, or where all cost the same, there is no
    feature.

    Args:
        run: of the workload alone.
        choices: its configurations; alone, a stream priority makes no difference.
    """
    if run is None:
        return np.zeros((len(choices), 0))
    known = {c: math.log(cost) for c, cost in run.points if 0.0 < cost < math.inf}
    failed = {c for c, cost in run.points if cost == math.inf}
    bare = [without_priority(choice) for choice in choices]
    logs = [known[choice] for choice in bare if choice in known]
    if not logs or min(logs) == max(logs):
        return np.zeros((len(choices), 0))
    lowest, highest, middle = min(logs), max(logs), float(np.median(logs))
    found = [highest if choice in failed else known.get(choice, middle) for choice in bare]
    return ((np.array(found) - lowest) / (highest - lowest))[:, None]
