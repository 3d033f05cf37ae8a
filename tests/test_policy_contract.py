"""What every policy must do, whatever the space: each name of the registry passes all of this."""

import math
import tracemalloc
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice, product

import pytest
from examples import FEW
from hypothesis import example, given
from hypothesis import strategies as st
from policy_driver import Measure, Played, blocks, candidate, makespan, play, result, search_over
from small_spaces import forms, large_search, large_space

from tuner.model import registry
from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.space.search_view import Candidate, Criterion, Policy, PriorRun, Search


@pytest.fixture(scope="module", params=[*registry.names("policy"), "pareto"])
def policy(request: pytest.FixtureRequest) -> Policy:
    """Every policy of the registry, and the one that searches for a front."""
    if request.param == "pareto":
        return for_a_front
    loaded: Policy = registry.load("policy", request.param)
    return loaded


def for_a_front(search: Search) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """The search for the front of a makespan and of a cost that falls and rises with it."""
    both = tuple(Criterion(cost, lambda _: 0.001, search.prior_runs) for cost in (makespan, opposed))
    found: Policy = registry.load("front", "bayesian")
    return found(replace(search, criteria=both))


def opposed(measurement: Measurement) -> float:
    """High where the makespan is low or high."""
    cost = makespan(measurement)
    return cost + 1.0 / max(cost, 1e-9) if math.isfinite(cost) else math.inf


def many(count: int) -> list[Candidate]:
    """A space of one kernel with several tunables."""
    return [
        candidate(1.0, 32 << i % 6, 1 << i // 6 % 4, L=32 << i % 6, P=1 << i // 6 % 4, S=i // 24)
        for i in range(count)
    ]


@cache
def large(count: int) -> list[Candidate]:
    """A space of one kernel with six tunables of ten values."""
    points = islice(product(range(10), repeat=6), count)
    return [candidate(1.0, 32, 1, **dict(zip("abcdef", point, strict=True))) for point in points]


def number(trial: Trial) -> int:
    """A number that depends on the trial alone, the same in every process."""
    text = f"{trial.configurations} {trial.clock_mhz}"
    return sum(ord(letter) * (i + 1) for i, letter in enumerate(text))


def varied(trial: Trial) -> Measurement:
    """Every trial its own cost."""
    return result(1 + number(trial) % 97 / 97, [1.0] * len(trial.configurations))


def constant(trial: Trial) -> Measurement:
    """Every trial the same cost."""
    return result(1.0, [1.0] * len(trial.configurations))


def failing(trial: Trial) -> Measurement:
    """Every trial fails in all of its workloads."""
    return result(math.inf, [1.0] * len(trial.configurations), range(len(trial.configurations)))


def half_failing(trial: Trial) -> Measurement:
    """Every second trial fails."""
    return failing(trial) if number(trial) % 2 else varied(trial)


def not_a_number(trial: Trial) -> Measurement:
    """Every second trial costs NaN although it ran."""
    return result(math.nan, [1.0] * len(trial.configurations)) if number(trial) % 2 else varied(trial)


SPACES: dict[str, Search] = {
    "no candidate": search_over([]),
    "no candidate of one of two": search_over(blocks(256, 128), []),
    "one candidate": search_over(blocks(256)),
    "nothing to tune": search_over([candidate()], [candidate()]),
    "two candidates": search_over(blocks(256, 128)),
    "one clock": search_over(many(30), clocks=(875,)),
    "three clocks": search_over(many(10), clocks=(875, 810, 745), seed=7),
    "two workloads": search_over(many(8), blocks(1024, 512), clocks=(875, 810)),
    "four workloads": search_over(blocks(512, 256, 128), *[blocks(512, 256)] * 3),
    "three at once": replace(search_over(many(20)), parallel=3),
    "two workloads, three at once": replace(
        search_over(many(8), blocks(1024, 512), clocks=(875, 810)), parallel=3
    ),
    "texts": search_over([candidate(how=how) for how in ("tree", "chain", "warp")]),
    "texts and numbers": search_over(
        [candidate(L=32 * n, how=how) for n in (1, 2, 4, 8) for how in ("tree", "chain", "warp", "scan")]
    ),
    "tunables with conditions": search_over(
        [candidate(1.0, int(values["L"]), int(values.get("radix", 0)), **values) for values in forms()],
        clocks=(875, 810),
    ),
    "more is told": replace(
        search_over(many(20)),
        tunables=({"L": (512, 1024, 32, 64, 128, 256), "P": (1, 2, 4, 8), "S": (0, 1), "gone": ("a", "b")},),
        roles=({"elements_per_thread": "P", "elements_per_cluster": "S", "colour": "no such tunable"},),
        sizes=({"N": 1024, "dtype": "float32"},),
        prior_runs=(
            PriorRun(
                0, {"N": 512}, "", ((many(3)[1].configuration, 2.0), (Configuration({"X": 1}), math.inf))
            ),
        ),
        device="NVIDIA Nothing",
    ),
}
OTHERS: Sequence[Measure] = (constant, failing, half_failing, not_a_number)

Case = tuple[str, Search, Measure]
"""The name of a space and of what is measured in it, and both."""


def cases() -> Iterator[Case]:
    """In every space trials of different costs, and one of the others in turn."""
    for place, (name, search) in enumerate(SPACES.items()):
        for measure in (varied, OTHERS[place % len(OTHERS)]):
            yield f"{name}, {measure.__name__}", search, measure


_played: dict[tuple[Policy, str], Played] = {}


def played_whole(policy: Policy, case: Case) -> Played:
    """A search played to its end; once for all tests."""
    name, search, measure = case
    if (policy, name) not in _played:
        _played[policy, name] = play(policy, search, measure)
    return _played[policy, name]


def test_it_ends_with_the_best_of_what_it_measured(policy: Policy) -> None:
    """The answer is a measured valid trial, none measured is cheaper; None only where all failed."""
    for case in cases():
        name, _, measure = case
        played = played_whole(policy, case)

        costs = {trial: makespan(measure(trial)) for trial in played.trials}
        valid = {trial: cost for trial, cost in costs.items() if math.isfinite(cost)}
        assert played.ended, name
        assert (played.best is None) == (not valid), name
        assert played.best is None or valid[played.best] == min(valid.values()), name


def test_it_asks_for_trials_of_the_space_once(policy: Policy) -> None:
    """No empty list, no trial outside of the space, none twice."""
    for case in cases():
        name, search, _ = case
        allowed = [{c.configuration for c in candidates} for candidates in search.candidates]
        played = played_whole(policy, case)

        assert all(played.batches), name
        assert len(set(played.trials)) == len(played.trials), name
        for trial in played.trials:
            assert trial.clock_mhz in search.clocks, name
            known = (c in space for c, space in zip(trial.configurations, allowed, strict=True))
            assert all(known), name


def test_stored_measurements_lead_to_where_it_was(policy: Policy) -> None:
    """Resume: a fresh generator fed what was stored goes the same way and measures nothing twice."""
    for case in cases():
        name, search, measure = case
        whole = played_whole(policy, case)
        half = len(whole.trials) // 2
        measuring = Measuring(measure, whole.trials[:half])
        resumed = play(policy, search, measuring)

        assert resumed.batches == whole.batches, name
        assert resumed.best == whole.best, name
        assert measuring.again == whole.trials[half:], name


class Measuring:
    """Measures trials, except those that were stored; ``again`` are those it measured."""

    def __init__(self, measure: Measure, stored: Sequence[Trial]) -> None:
        self._measure = measure
        self._stored = {trial: measure(trial) for trial in stored}
        self.again: list[Trial] = []

    def __call__(self, trial: Trial) -> Measurement:
        if trial not in self._stored:
            self.again.append(trial)
            self._stored[trial] = self._measure(trial)
        return self._stored[trial]


@pytest.mark.parametrize("budget", [1, 3])
def test_a_budget_below_its_start_is_no_harm(policy: Policy, budget: int) -> None:
    """Stopped before its first trials are measured, a policy has asked for trials and ends in silence."""
    for name, search in SPACES.items():
        played = play(policy, search, varied, budget)

        assert played.ended or len(played.trials) >= budget, name


def test_every_second_run_crashes(policy: Policy) -> None:
    """Whatever is asked for, every second evaluation crashes: the answer is the best of the others."""
    valid: dict[Trial, float] = {}
    count = iter(range(10**6))

    def measure(trial: Trial) -> Measurement:
        if next(count) % 2 == 0:
            return result(math.inf, [1.0], [0])
        valid[trial] = makespan(varied(trial))
        return varied(trial)

    played = play(policy, search_over(many(48)), measure)

    assert played.ended
    assert (played.best is None) == (not valid)
    assert played.best is None or valid[played.best] == min(valid.values())


def test_a_recording_lacks_a_configuration(policy: Policy) -> None:
    """What was not recorded is a failed trial like any other: the search goes around it and ends well."""
    recorded = {candidate.configuration for candidate in many(40)[::3]}

    def look(trial: Trial) -> Measurement:
        if trial.configurations[0] in recorded:
            return varied(trial)
        return Measurement((WorkloadResult(Status.LAUNCH_ERROR, detail="not recorded"),))

    played = play(policy, search_over(many(40)), look)

    found = [trial for trial in played.trials if trial.configurations[0] in recorded]
    assert played.ended
    assert (played.best in found) if found else (played.best is None)


def test_memory_follows_the_space_within_bounds(policy: Policy) -> None:
    """Of a large space a policy keeps at most a kilobyte per candidate, beside the space itself."""
    search = search_over(large(5_000))
    play(policy, search_over(many(40)), varied, 5)  # what is imported and kept once
    tracemalloc.start()
    try:
        played = play(policy, search, varied, 5)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert played.trials
    assert peak_bytes <= 1024 * len(search.candidates[0])


@pytest.mark.exhaustive
def test_a_million_candidates(policy: Policy) -> None:
    """A million configurations of one workload: a few trials are still answered for."""
    played = play(policy, search_over(large(1_000_000)), varied, 12)

    assert played.trials


def test_a_huge_joint_space_costs_nothing_to_enter(policy: Policy) -> None:
    """10^15 trials: the first forty come at once, all different, because nothing is ever listed."""
    search = search_over(*[many(1000)] * 5)

    played = play(policy, search, varied, 40)

    assert search.size == 10**15
    assert len(set(played.trials)) == len(played.trials)


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_large_space_is_searched_beyond_its_sample(
    policy: Policy, request: pytest.FixtureRequest, parallel: int
) -> None:
    """Trials are of the space, each once, the same again; a search that moves leaves what is listed."""
    space = large_space()
    search = large_search(space, parallel=parallel)

    first, again = (play(policy, search, half_failing, budget) for budget in (20, 8))

    asked = [trial.configurations[0] for trial in first.trials]
    assert first.trials[: len(again.trials)] == again.trials
    assert len(set(asked)) == len(asked)
    assert all(space.allows(configuration) for configuration in asked)
    if request.node.callspec.params["policy"] in ("local", "greedy", "bayesian", "pareto"):
        assert any(configuration not in space for configuration in asked)


def test_one_workload_that_always_fails_ends_a_huge_search_soon_or_at_the_budget(policy: Policy) -> None:
    """A failure stops nothing: the policy goes on until its own end or the driver's."""

    def one_fails(trial: Trial) -> Measurement:
        return result(math.inf, [1.0] * len(trial.configurations), [1])

    played = play(policy, search_over(*[many(60)] * 3), one_fails, 500)

    assert played.best is None
    assert played.ended or len(played.trials) >= 500


@FEW
@example(costs=[*[math.inf] * 3, 0.0, math.inf, *[0.0] * 5])  # nothing is cheaper than what costs nothing
@given(costs=st.lists(st.floats(0, 1e9) | st.just(math.inf) | st.just(math.nan), min_size=1, max_size=24))
def test_any_costs_end_well(policy: Policy, costs: list[float]) -> None:
    """Costs of any kind: it ends, and its answer is finite wherever it met a finite cost."""
    space = many(len(costs))
    cost_of = dict(zip((c.configuration for c in space), costs, strict=True))
    met: list[float] = []

    def measure(trial: Trial) -> Measurement:
        met.append(cost_of[trial.configurations[0]])
        return result(met[-1], [1.0])

    played = play(policy, search_over(space), measure)

    finite = [cost for cost in met if math.isfinite(cost)]
    assert (played.best is None) == (not finite)
    assert played.best is None or cost_of[played.best.configurations[0]] == min(finite)
