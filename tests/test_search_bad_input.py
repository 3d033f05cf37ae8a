"""The Bayesian search where what it is told or measures is bad: it loses little, and it ends."""

import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from policy_driver import Measure, candidate, play, result, search_over
from tuner.policies.bayesian import bayesian
from tuner.policies.surrogate.features import TraitScale, beliefs

from tuner.model.plan import Configuration
from tuner.model.trial import Trial
from tuner.space.search_view import Candidate, PriorRun, Search

BUDGET = 50
SEEDS = range(3)


def space(x: str = "P", y: str = "L", work: str = "S") -> list[Candidate]:
    """6 × 5 × 4 × 2 configurations under names that say nothing, or under those of blocks."""
    return [
        candidate(**dict[str, Any]({x: 16 << i, y: 1 << j, work: 1 << k, "how": how}))
        for i, j, k, how in product(range(6), range(5), range(4), ("tree", "chain"))
    ]


def bowl(configuration: Configuration) -> float:
    """A valley whose lowest cost is 1."""
    x, y, work, how = configuration.values()
    steps = (
        math.log2(float(x)) - 7,
        math.log2(float(y)) - 1,
        math.log2(float(work)) - 2,
        2 * (how == "tree"),
    )
    return 1.0 + 0.1 * sum(step * step for step in steps)


def measured(cost: Callable[[Configuration], float]) -> Measure:
    return lambda trial: result(cost(trial.configurations[0]), [1.0])


def evaluations_to_the_best(search: Search, cost: Callable[[Configuration], float]) -> float:
    """The median over seeds of the evaluations until a trial is within 2 % of the lowest cost."""
    lowest = min(cost(one.configuration) for one in search.candidates[0])
    found = []
    for seed in SEEDS:
        told = replace(search, seed=seed)
        trials = play(lambda one: bayesian(one, patience=math.inf), told, measured(cost), BUDGET).trials
        costs = [cost(trial.configurations[0]) for trial in trials]
        found.append(next((i for i, one in enumerate(costs, start=1) if one <= 1.02 * lowest), BUDGET))
    return statistics.median(found)


def test_other_runs_that_say_the_opposite_cost_few_evaluations() -> None:
    """A run at another size whose fast configurations are the slow ones here: at most ten more."""
    search = search_over(space())
    points = tuple((one.configuration, 10.0 / bowl(one.configuration)) for one in search.candidates[0][::3])
    misled = replace(search, sizes=({"N": 64},), prior_runs=(PriorRun(0, {"N": 128}, "", points),))

    assert evaluations_to_the_best(misled, bowl) <= evaluations_to_the_best(search, bowl) + 10


def test_beliefs_that_are_all_wrong_cost_few_evaluations() -> None:
    """Every trait is worth the opposite of what is believed: at most ten more than without beliefs."""
    told = space("block_size_x", "block_size_y", "tile_size_x")
    configurations = [one.configuration for one in told]
    opposite = -TraitScale(told, configurations, None).table @ beliefs().mean
    costs = {tuple(c.values()): math.exp(0.3 * log) for c, log in zip(configurations, opposite, strict=True)}

    def cost(configuration: Configuration) -> float:
        return costs[tuple(configuration.values())]

    without = evaluations_to_the_best(search_over(space()), cost)
    assert evaluations_to_the_best(search_over(told), cost) <= without + 10


def test_noise_of_a_fifth_leads_to_a_good_answer() -> None:
    """Costs that are off by 20 %: the answer is within two such deviations of the best, and it ends."""
    answers = []
    for seed in SEEDS:
        draw = np.random.default_rng(seed)

        def noisy(trial: Trial, draw: np.random.Generator = draw) -> float:
            return bowl(trial.configurations[0]) * math.exp(0.2 * draw.standard_normal())

        search = replace(search_over(space(), seed=seed), noise=lambda _: 0.2)
        played = play(bayesian, search, lambda trial: result(noisy(trial), [1.0]), 150)
        assert played.ended
        assert played.best is not None
        answers.append(bowl(played.best.configurations[0]))

    assert statistics.median(answers) <= 1.4


def test_ties_everywhere_end_it() -> None:
    """Two costs over the whole space: it finds the lower one and ends before the space is used up."""
    played = play(bayesian, search_over(space()), measured(lambda one: 2.0 - (one["how"] == "chain")))

    assert played.ended
    assert played.best is not None
    assert played.best.configurations[0]["how"] == "chain"
    assert len(played.trials) < 90


def test_costs_over_ten_decades_are_searched() -> None:
    """From a microsecond to hours in one space: the best is found, and nothing overflows."""
    assert (
        evaluations_to_the_best(search_over(space()), lambda one: 1e-6 * 10 ** (4 * (bowl(one) - 1.0)))
        < BUDGET
    )


def test_the_one_valid_candidate_among_many_is_the_answer() -> None:
    """Of 100,000 candidates all but the default fail: it is the answer, and the search gives up."""
    points = product(range(10), repeat=5)
    candidates = [candidate(1.0, 32, 1, **dict(zip("abcde", point, strict=True))) for point in points]
    valid = candidates[54_321].configuration
    search = replace(search_over(candidates), defaults=(valid,))

    played = play(bayesian, search, measured(lambda one: 1.0 if one == valid else math.inf), 150)

    assert played.ended
    assert played.best == Trial((valid,))
