"""Measures first what a model predicts to be good: how inputs are looked at while a model is trained."""

import random
from collections.abc import Callable, Generator, Sequence

from tuner.interfaces import Candidate, Search
from tuner.model import Measurement, Trial

from .sampling import CHUNK, sweep

Predictor = Callable[[Sequence[Candidate]], Sequence[float]]
"""Takes candidates of one workload; returns a number for each, the lower the better."""

DRAWN = 0.25  # share of the evaluations that are drawn at random: what the model takes for bad is seen, too


def predicted(
    search: Search, predictor: Predictor | None = None, evaluations: int = CHUNK
) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Measure the candidates of one workload that a model ranks first, and some at random.

    A quarter of the evaluations is drawn from the rest of the space, so that the model learns where it was
    wrong; without a model all are. Clocks and power limits are as found.

    Args:
        search: of one workload.
        predictor: ranks candidates; None where nothing was learned yet.
        evaluations: trials in all.

    Returns:
        The cheapest trial; None when all failed.
    """
    (candidates,) = search.candidates
    draw = random.Random(search.seed)  # noqa: S311 - a seeded experiment, not a secret
    count = min(evaluations, len(candidates))
    if predictor is None:
        chosen = draw.sample(range(len(candidates)), count)
    else:
        scores = predictor(candidates)
        order = sorted(range(len(candidates)), key=lambda place: scores[place])
        first = count - int(DRAWN * count)
        rest = order[first:]
        chosen = [*order[:first], *draw.sample(rest, min(count - first, len(rest)))]
    trials = [Trial((candidates[place].configuration,)) for place in chosen]
    return (yield from sweep(search, trials))
