"""The restarted neighbourhood search."""

import math
from itertools import product

import pytest
from policy_driver import candidate, play, result, search_over

from tuner.model import registry
from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Policy

GRID = [candidate(a=a, b=b) for a, b in product(range(8), range(8))]


@pytest.fixture(scope="module")
def local() -> Policy:
    loaded: Policy = registry.load("policy", "local")
    return loaded


def hill(trial: Trial) -> Measurement:
    """One minimum, at a = 5, b = 2, which single steps lead to from everywhere."""
    chosen = trial.configurations[0]
    return result(1.0 + abs(int(chosen["a"]) - 5) + abs(int(chosen["b"]) - 2), [1.0])


def trap(trial: Trial) -> Measurement:
    """A minimum at a = b = 0 from which no change of one tunable leads to the lower one at a = b = 7."""
    chosen = trial.configurations[0]
    a, b = int(chosen["a"]), int(chosen["b"])
    return result({(0, 0): 1.0, (7, 7): 0.5}.get((a, b), 2.0 + a + b), [1.0])


def test_the_default_comes_first_then_its_neighbours(local: Policy) -> None:
    """The first climb begins at the default; the next trials differ from it in one value."""
    search = search_over(GRID)

    trials = play(local, search, lambda _: result(1.0, [1.0]), 15).trials

    first = trials[0].configurations[0]
    assert first == search.defaults[0]
    for trial in trials[1:15]:
        changed = [name for name, value in trial.configurations[0].items() if value != first[name]]
        assert len(changed) == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_single_minimum_is_found_within_the_first_climb(local: Policy, seed: int) -> None:
    """From the default to the minimum in less than half of the space, whatever the seed."""
    played = play(local, search_over(GRID, seed=seed), hill, 30)

    costs = [hill(trial).makespan_s for trial in played.trials]
    assert min(cost for cost in costs if cost is not None) == 1.0


def test_a_cheaper_neighbour_is_moved_to_at_once(local: Policy) -> None:
    """After a trial that is cheaper than all before it, the next one differs from it in a single tunable."""
    trials = [dict(t.configurations[0]) for t in play(local, search_over(GRID), hill, 30).trials]
    costs = [abs(int(t["a"]) - 5) + abs(int(t["b"]) - 2) for t in trials]

    first_climb = costs.index(0) + 1
    moved = [i for i in range(1, first_climb - 1) if costs[i] < min(costs[:i])]
    assert len(moved) > 1
    assert all(sum(trials[i][name] != trials[i + 1][name] for name in "ab") == 1 for i in moved)


def test_restarts_leave_a_local_minimum(local: Policy) -> None:
    """Random starts reach what no step leads to; the search ends by itself."""
    played = play(local, search_over(GRID), trap)

    assert played.ended
    assert played.best is not None
    assert dict(played.best.configurations[0]) == {"a": 7, "b": 7}


def test_nothing_better_ends_it_before_the_space_does(local: Policy) -> None:
    """Ten climbs in a row without a gain end the search: at most 29 trials each here, of 4,096."""
    played = play(local, search_over(GRID, GRID), lambda _: result(1.0, [1.0, 1.0]))

    assert played.ended
    assert len(played.trials) <= 11 * 29


def test_failures_are_no_place_to_begin(local: Policy) -> None:
    """Where nothing runs, it gives up after a hundred starts instead of walking from failure to failure."""
    space = [candidate(a=value) for value in range(1000)]

    played = play(local, search_over(space, space), lambda _: result(math.inf, [1.0, 1.0], [0]))

    assert played.ended
    assert played.best is None
    assert len(played.trials) == 100
