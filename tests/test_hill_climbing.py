"""G-ADAPT's hill climbing: paths worked out by hand."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_driver import candidate, play, result, search_over

from tuner.model import registry
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.space.search_view import Candidate, Policy


@pytest.fixture(scope="module")
def climb() -> Policy:
    loaded: Policy = registry.load("policy", "hill-climbing")
    return loaded


def values(trial: Trial) -> tuple[Any, ...]:
    """The values of a trial's tunables, workload after workload."""
    return tuple(value for configuration in trial.configurations for value in configuration.values())


def grid(*sizes: int) -> list[Candidate]:
    """All combinations of values 1, 2 ..., largest first so that the order of the space tells nothing."""
    ranges = [range(size, 0, -1) for size in sizes]
    return [candidate(**dict(zip("abc", point, strict=False))) for point in product(*ranges)]


def test_the_path_worked_out_by_hand(climb: Policy) -> None:
    """All minima, then the best of the single steps each time, to the maxima; the best vector seen is kept.

    Costs of (a, b):   b=1  b=2  b=3
                 a=1    9    5    8
                 a=2    7    6    2
                 a=3    1    4    3
    From (1,1): steps (2,1) and (1,2), the best is (1,2). From there (2,2) and (1,3): (2,2) costs more than
    the base and is taken. (3,2) and (2,3): (2,3). a alone can be raised: (3,3). The minimum, (3,1), is never
    seen.
    """
    costs = {
        (1, 1): 9,
        (1, 2): 5,
        (1, 3): 8,
        (2, 1): 7,
        (2, 2): 6,
        (2, 3): 2,
        (3, 1): 1,
        (3, 2): 4,
        (3, 3): 3,
    }

    def measure(trial: Trial) -> Measurement:
        return result(costs[values(trial)], [1.0])

    played = play(climb, search_over(grid(3, 3)), measure)

    asked = [[values(trial) for trial in batch] for batch in played.batches]
    assert asked == [[(1, 1)], [(2, 1), (1, 2)], [(2, 2), (1, 3)], [(3, 2), (2, 3)], [(3, 3)]]
    assert played.best is not None
    assert values(played.best) == (2, 3)


@given(
    sizes=st.lists(st.integers(2, 4), min_size=1, max_size=3),
    weights=st.permutations(range(64)),
    gone=st.sets(st.integers(0, 63), max_size=6),
)
def test_what_compiling_rules_out_is_climbed_around(
    sizes: list[int], weights: list[int], gone: set[int], climb: Policy
) -> None:
    """The climb measures what it would without it, wherever every value remains in some candidate."""
    space = grid(*sizes)
    left = [one for number, one in enumerate(space) if number not in gone]
    every, remaining = (
        [set(column) for column in zip(*map(tuple_of, some), strict=True)] for some in (space, left)
    )
    if every != remaining:
        return
    ruled_out = {one.configuration for one in space} - {one.configuration for one in left}
    costs = {one.configuration: 1.0 + weights[number] for number, one in enumerate(space)}

    def measure(trial: Trial) -> Measurement:
        if trial.configurations[0] in ruled_out:
            return Measurement((WorkloadResult(Status.PRUNED),))
        return result(costs[trial.configurations[0]], [1.0])

    around, without = (play(climb, search_over(some), measure) for some in (space, left))
    measured = [trial for trial in around.trials if trial.configurations[0] not in ruled_out]

    assert set(measured) == set(without.trials)
    assert around.best == without.best
    assert len(set(around.trials)) == len(around.trials)


def tuple_of(one: Candidate) -> tuple[Any, ...]:
    return tuple(one.configuration.values())


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3), weights=st.permutations(range(64)))
def test_without_rules_every_step_raises_one_parameter_by_one(sizes: list[int], weights: list[int]) -> None:
    """It ends at all maxima after as many steps as the parameters have values above their minimum."""
    space = grid(*sizes)
    cost = dict(zip((c.configuration for c in space), weights, strict=False))

    played = play(
        registry.load("policy", "hill-climbing"),
        search_over(space),
        lambda trial: result(1.0 + cost[trial.configurations[0]], [1.0]),
    )

    sums = [{sum(map(int, values(trial))) for trial in batch} for batch in played.batches]
    assert [total for (total,) in sums] == list(range(len(sizes), sum(sizes) + 1))
    assert values(played.trials[0]) == tuple(1 for _ in sizes)
    assert values(played.trials[-1]) == tuple(sizes)


def test_workloads_and_clock_are_parameters_too(climb: Policy) -> None:
    """The first steps raise one tunable of one workload each, or the clock; all begin at their lowest."""
    search = search_over(grid(2), grid(2), clocks=(900, 600))

    played = play(climb, search, lambda _: result(1.0, [1.0, 1.0]))

    assert [(values(t), t.clock_mhz) for t in played.batches[0]] == [((1, 1), 600)]
    steps = [(values(t), t.clock_mhz) for t in played.batches[1]]
    assert steps == [((2, 1), 600), ((1, 2), 600), ((1, 1), 900)]


def test_a_rule_that_ties_parameters_bends_the_step(climb: Policy) -> None:
    """With a * b = 8, a step of one lowers the other; no base comes back, and all are seen."""
    space = [candidate(a=a, b=8 // a) for a in (1, 2, 4, 8)]

    played = play(climb, search_over(space), lambda trial: result(float(values(trial)[0]), [1.0]))

    assert {values(trial) for trial in played.trials} == {(1, 8), (2, 4), (4, 2), (8, 1)}
    assert played.ended


def test_a_step_leaves_the_others_rather_than_stay_small(climb: Policy) -> None:
    """From (0, 1) a rises to (2, 1), which lowers nothing, not to the nearer (1, 0), which lowers b."""
    space = [candidate(a=a, b=b) for a, b in ((0, 1), (1, 0), (2, 1))]

    played = play(climb, search_over(space), lambda _: result(1.0, [1.0]))

    assert [values(trial) for trial in played.trials] == [(0, 1), (2, 1)]


def test_a_missing_corner_begins_beside_it(climb: Policy) -> None:
    """Where rules forbid all minima, the climb begins at the candidate with the least sum of ranks."""
    space = [c for c in grid(3, 3) if sum(map(int, c.configuration.values())) > 2]

    played = play(climb, search_over(space), lambda _: result(1.0, [1.0]))

    assert sorted(values(played.trials[0])) == [1, 2]


def test_texts_rise_in_the_order_of_their_list(climb: Policy) -> None:
    """A text has no size: its list says what a step is."""
    search = search_over([candidate(how=how) for how in ("tree", "chain", "warp")])

    played = play(climb, search, lambda _: result(1.0, [1.0]))

    assert [values(trial) for trial in played.trials] == [("tree",), ("chain",), ("warp",)]
