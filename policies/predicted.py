"""Measures first what a model predicts to be good: how inputs are looked at while a model is trained."""

import random
from collections.abc import Callable, Generator, Sequence

from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Candidate, Search

from .sampling import CHUNK, sweep

Predictor = Callable[[Sequence[Candidate]], Sequence[float]]
"""Takes candidates of one workload; returns a number for each, the lower the better."""

DRAWN = 0.5  # share of the evaluations that are drawn at random: what the model takes for bad is seen, too


def predicted(
    search: Search, predictor: Predictor | None = None, evaluations: int = CHUNK, seed: int | None = None
) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Measure the candidates of one workload that a model ranks first, and some at random.

    Half of the evaluations are drawn from the rest of the space, so that the model learns where it was
    wrong; without a model all are. Clocks and power limits are as found.

    Args:
        search: of one workload.
        predictor: ranks candidates; None where nothing was learned yet.
        evaluations: trials in all.
        seed: of those that are drawn; None for that of the search. With one for all inputs, the same part of
            the space would be drawn at each.

    Returns:
        The cheapest trial; None when all failed.
    """
    (candidates,) = search.candidates
    scores = None if predictor is None else predictor(candidates)
    chosen = places(len(candidates), scores, evaluations, search.seed if seed is None else seed)
    return (yield from sweep(search, [Trial((candidates[place].configuration,)) for place in chosen]))


def places(size: int, scores: Sequence[float] | None, evaluations: int, seed: int) -> list[int]:
    """The candidates of a space that are measured, in their order.

    Args:
        size: of the space.
        scores: of all candidates, the lower the better; None where nothing was learned yet.
        evaluations: how many are wanted.
        seed: of those that are drawn.
    """
    draw = random.Random(seed)  # noqa: S311 - a seeded experiment, not a secret
    count = min(evaluations, size)
    if scores is None:
        return draw.sample(range(size), count)
    order = sorted(range(size), key=lambda place: scores[place])
    first = count - int(DRAWN * count)
    return [*order[:first], *draw.sample(order[first:], count - first)]
