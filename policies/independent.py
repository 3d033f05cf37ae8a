"""Policies whose trials do not depend on each other: exhaustive, random, and by a prediction."""

import math
import random
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice, product

from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Candidate, Search

CHUNK = 64  # trials yielded together: enough to compile ahead, few enough to hold in memory


def sweep(search: Search, trials: Iterable[Trial]) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Yield ``trials`` in chunks and return the cheapest, the earliest of equals; None when all failed.

    Args:
        search: gives the cost.
        trials: may be a generator of any length; no more than two chunks of it are held.
    """
    best, lowest = None, math.inf
    stream = iter(trials)
    chunk = list(islice(stream, CHUNK))
    while chunk:
        following = list(islice(stream, CHUNK))
        search.expect(following)
        for trial, measurement in zip(chunk, (yield chunk), strict=True):
            cost = search.cost(measurement)
            if math.isfinite(cost) and cost < lowest:
                best, lowest = trial, cost
        chunk = following
    return best


def random_sampling(search: Search) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Draw trials of the pruned joint space uniformly and without repetition, until it is used up.

    Of a space that is too large to be listed, trials of its sample are drawn. The draw depends on
    ``Search.seed`` alone. How many are drawn is the session's business (a budget or a
    time limit). Memory grows with the trials drawn, not with the space.
    """
    return (
        yield from sweep(
            search, (trial_at(search, number) for number in shuffled(search.listed, search.seed))
        )
    )


def shuffled(count: int, seed: int) -> Iterator[int]:
    """The numbers below ``count`` in random order: a Fisher-Yates shuffle that stores only what it moved."""
    draw = random.Random(seed)  # noqa: S311 - a seeded experiment, not a secret
    moved: dict[int, int] = {}
    for i in range(count):
        j = draw.randrange(i, count)
        yield moved.get(j, j)
        moved[j] = moved.pop(i, i)


def trial_at(search: Search, number: int) -> Trial:
    """The trial with a number from 0 to ``search.listed - 1``: mixed radix, the first workload lowest."""
    configurations = []
    for candidates in search.candidates:
        number, digit = divmod(number, len(candidates))
        configurations.append(candidates[digit].configuration)
    setting = search.settings[number]
    return Trial(tuple(configurations), setting.clock_mhz, setting.power_limit_w)


def exhaustive(search: Search) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Measure the whole pruned joint space and return its minimum.

    Power limit and clock change slowest, because setting them takes longest; then the first workload. The
    space is walked, never built, so that its size costs no memory.
    """
    return (yield from sweep(search, _joint_space(search)))


def _joint_space(search: Search) -> Iterator[Trial]:
    for setting in search.settings:
        for chosen in product(*search.candidates):
            configurations = tuple(candidate.configuration for candidate in chosen)
            yield Trial(configurations, setting.clock_mhz, setting.power_limit_w)


# --- Measures first what a model predicts to be good: how inputs are looked at while a model is trained.

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
    """
    (candidates,) = search.candidates
    scores = None if predictor is None else predictor(candidates)
    numbers = places(len(candidates), scores, evaluations, search.seed if seed is None else seed)
    return (yield from sweep(search, [Trial((candidates[number].configuration,)) for number in numbers]))


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
    order = sorted(range(size), key=lambda number: scores[number])
    first = count - int(DRAWN * count)
    return [*order[:first], *draw.sample(order[first:], count - first)]


# --- How long a sweep of the rest would take.

FIRST = 6  # evaluations before there is an estimate; the first of all pays for what is made once, and is none
LATEST = 16  # evaluations that the estimate is of
STRETCH = 1.5  # a sweep that was begun goes on while it is estimated to take no longer than this many times


class SweepTime:
    """Test for a whole sweep that is short, by the durations of this run's evaluations.

    The time of an evaluation is from the end of one to the end of the next: compiling, checking, measuring
    and the search itself. Only measured seconds count: those of a model or of a recording say nothing of how
    long a user waits. With a break-even a sweep is never short, as it need not pay.

    Args:
        search: its size, and whether its seconds are real.
        sweep_s: longest sweep, in s; 0 for none.
    """

    def __init__(self, search: Search, sweep_s: float) -> None:
        self._search = search
        self._sweep_s = 0.0 if search.label or search.payback is not None else sweep_s
        self._begun = False

    def fits(self, ended_s: Sequence[float]) -> bool:
        """Return True if the space is swept from here, and tell the user when that begins.

        Args:
            ended_s: when each evaluation had ended, in their order.
        """
        if self._sweep_s <= 0.0 or len(ended_s) < FIRST:
            return False
        latest = list(ended_s[1:])[-LATEST - 1 :]
        each_s = (latest[-1] - latest[0]) / (len(latest) - 1)
        whole_s = each_s * self._search.size
        begins = 0.0 < whole_s <= self._sweep_s
        if begins and not self._begun:
            self._search.tell(
                f"bayesian: all {self._search.size:,} trials are measured, the most promising first:"
                f" {whole_s:.1f} s at {1e3 * each_s:.0f} ms each"
            )
        self._begun = begins or (self._begun and 0.0 < whole_s <= STRETCH * self._sweep_s)
        return self._begun
