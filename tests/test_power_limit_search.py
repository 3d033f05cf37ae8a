"""Power limits beside any policy: which are measured, and what is found, on stated curves."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
from clock_lines import BOTH, CORES, FLAT, StatedLine
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_driver import Measure, Played, blocks, play, search_over
from tuner.policies.greedy import greedy
from tuner.policies.independent import exhaustive, random_sampling
from tuner.policies.steering import limited, steered

from tuner.model import registry
from tuner.model.objective import Objective
from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.space.search_view import Policy, Search

SLOWER = {512: 1.04, 256: 1.0, 128: 1.07}
"""Factors of three configurations: 512 is the default, 256 is the best at every limit."""

LIMITS_W = tuple(range(700, 190, -10))
ENERGY = Objective("energy")
FEW = settings(max_examples=max(settings().max_examples // 8, 1))  # of whole searches

search_exhaustively = partial(limited, inner=exhaustive)


def held(line: StatedLine, limit_w: float, set_mhz: int | None = None) -> int:
    """The highest clock at which a load draws no more than a limit."""
    clocks = [mhz for mhz in line.clocks_mhz if set_mhz is None or mhz <= set_mhz]
    return next((mhz for mhz in clocks if line.watts(mhz) <= limit_w), clocks[-1])


def searched(
    limits_w: Sequence[int] = LIMITS_W, objective: Objective = ENERGY, clocks: Sequence[int] = ()
) -> Search:
    search = search_over(blocks(*SLOWER), clocks=clocks, cost=objective.cost)
    return replace(search, power_limits_w=tuple(limits_w))


def follows(line: StatedLine) -> Measure:
    """Trials of a GPU that lowers its clock where a limit asks for it."""

    def measure(trial: Trial) -> Measurement:
        block = int(str(trial.configurations[0]["L"]))
        limit_w = math.inf if trial.power_limit_w is None else trial.power_limit_w
        mhz = held(line, limit_w, trial.clock_mhz)
        return line.measurement(mhz, SLOWER[block], 0.001 * math.sin(mhz + block))

    return measure


def lowest(line: StatedLine, objective: Objective = ENERGY) -> float:
    return min(objective.cost(follows(line)(trial_at(limit_w))) for limit_w in LIMITS_W)


def trial_at(limit_w: int | None, block: int = 256) -> Trial:
    return Trial((Configuration({"L": block}),), None, limit_w)


def limits_of(played: Played) -> list[int]:
    return sorted({trial.power_limit_w or 0 for trial in played.trials}, reverse=True)


@pytest.mark.parametrize("line", [FLAT, CORES, BOTH])
def test_the_best_limit_is_found_with_few_of_them(line: StatedLine) -> None:
    """The answer costs no more than 1 % above the best of all limits, which are not all measured."""
    played = play(search_exhaustively, searched(), follows(line))

    assert played.best is not None
    assert played.best.configurations[0]["L"] == 256
    assert ENERGY.cost(follows(line)(played.best)) <= 1.01 * lowest(line)
    assert len(limits_of(played)) <= len(LIMITS_W) // 2


def test_the_policy_searches_at_the_highest_limit() -> None:
    """All configurations are measured there, and only the promising ones at lower limits."""
    played = play(search_exhaustively, searched(), follows(FLAT))
    first = played.trials[: len(SLOWER)]

    assert {trial.power_limit_w for trial in first} == {LIMITS_W[0]}
    assert len({trial.configurations for trial in first}) == len(SLOWER)


def test_limits_above_what_is_drawn_are_left_out() -> None:
    """They change nothing: below the highest, none is measured that the load does not reach."""
    told: list[str] = []
    drawn_w = FLAT.watts(FLAT.clocks_mhz[0])
    played = play(search_exhaustively, replace(searched(), tell=told.append), follows(FLAT))

    assert all(limit_w < drawn_w / 0.98 for limit_w in limits_of(played)[1:])
    assert told[-1].startswith(f"power limits: {len(limits_of(played))} of {len(LIMITS_W)} measured (700, ")


@pytest.mark.parametrize(
    ("limits_w", "budget", "says"),
    [
        (LIMITS_W, len(SLOWER) + 1, "beware: no power limit below 700 W was tried before the search ended"),
        (LIMITS_W, len(SLOWER) + 2, f"power limits: 2 of {len(LIMITS_W)} measured (700, "),
        (
            (1000, 900),
            40,
            "power limits: only 1000 W measured, as the cheapest trials draw less than the others",
        ),
    ],
)
def test_a_search_says_what_is_known_of_lower_limits(
    limits_w: Sequence[int], budget: float, says: str
) -> None:
    """Also where its budget ends it: an answer at the highest limit is none of all limits then."""
    told: list[str] = []
    play(search_exhaustively, replace(searched(limits_w), tell=told.append), follows(FLAT), budget)

    assert told[-1].startswith(says)


def test_a_trial_that_fails_is_no_unfinished_search() -> None:
    """It draws what nobody knows; the search of the others has ended all the same."""
    told: list[str] = []

    def failing(trial: Trial) -> Measurement:
        if trial.configurations[0]["L"] == 128:
            return Measurement((WorkloadResult(Status.CRASHED),), None)
        return follows(FLAT)(trial)

    play(search_exhaustively, replace(searched((1000, 900)), tell=told.append), failing)

    assert told[-1].startswith("power limits: only 1000 W measured")


def test_a_single_limit_is_held() -> None:
    """Every trial is at it, and the policy's answer is the answer."""
    played = play(search_exhaustively, searched([500]), follows(CORES))

    assert limits_of(played) == [500]
    assert played.best == trial_at(500)


def test_limits_that_are_too_slow_end_the_descent() -> None:
    """Under ``--max-slowdown`` no limit is measured below one that is too slow already."""
    limit_s = 1.1 * CORES.time_s(CORES.clocks_mhz[0])
    objective = Objective("energy", limit_s=limit_s)
    played = play(search_exhaustively, searched(objective=objective), follows(CORES))

    assert played.best is not None
    assert (follows(CORES)(played.best).makespan_s or 0.0) <= limit_s
    too_slow = [
        trial.power_limit_w
        for trial in dict.fromkeys(played.trials)
        if trial.configurations[0]["L"] == 256 and (follows(CORES)(trial).makespan_s or 0.0) > limit_s
    ]
    assert len(too_slow) <= 5  # once for every stride


@pytest.mark.parametrize("name", registry.names("policy"))
def test_every_policy_searches_configurations(name: str) -> None:
    """Whatever the policy, the answer is the cheapest trial that was measured."""
    policy = partial(limited, inner=registry.load("policy", name))
    played = play(policy, searched(LIMITS_W[::5]), follows(BOTH), budget=80)

    measured = {trial: ENERGY.cost(follows(BOTH)(trial)) for trial in played.trials}
    assert played.ended
    assert played.best == min(measured, key=measured.__getitem__)
    assert played.best is not None
    assert (played.best.power_limit_w or 0) < LIMITS_W[0]


@pytest.mark.parametrize("inner", [greedy, partial(steered, inner=exhaustive)])
def test_clocks_are_searched_first(inner: Policy) -> None:
    """At the best clock the load draws so little that hardly a limit is worth a trial."""
    policy = partial(limited, inner=inner)
    played = play(policy, searched(LIMITS_W, clocks=BOTH.clocks_mhz), follows(BOTH))

    assert played.best is not None
    best = ENERGY.cost(follows(BOTH)(played.best))
    assert best <= 1.01 * min(BOTH.joules(mhz) for mhz in BOTH.clocks_mhz)


@pytest.mark.parametrize("policy", [exhaustive, random_sampling])
def test_policies_that_do_not_choose_take_every_limit_with_every_clock(
    policy: Policy,
) -> None:
    """The joint space has clocks times limits; each trial once."""
    search = searched([700, 400], clocks=FLAT.clocks_mhz[:3])
    played = play(policy, search, follows(FLAT))

    assert len(played.trials) == len(set(played.trials)) == search.size == 2 * 3 * len(SLOWER)
    assert {trial.setting for trial in played.trials} == set(search.settings)


def test_what_is_known_beforehand_is_told_to_the_policy() -> None:
    """Trials at the limit that is searched reach the policy without it; others do not."""
    known = {trial_at(700): follows(FLAT)(trial_at(700)), trial_at(300): follows(FLAT)(trial_at(300))}
    heard: list[Search] = []

    def inner(search: Search):  # type: ignore[no-untyped-def]  # noqa: ANN202 - a policy
        heard.append(search)
        return (yield from exhaustive(search))

    play(partial(limited, inner=inner), replace(searched([700, 300]), prior=known), follows(FLAT))

    assert heard[0].prior == {trial_at(None): known[trial_at(700)]}
    assert heard[0].power_limits_w == ()


@pytest.mark.parametrize("lost_w", [0, 500, 1000])
def test_trials_that_fail_do_not_end_it(lost_w: int) -> None:
    """Where all fail there is no answer, else the cheapest of the others."""

    def measure(trial: Trial) -> Measurement:
        if (trial.power_limit_w or 0) < lost_w:
            return Measurement((WorkloadResult(Status.CRASHED),))
        return follows(CORES)(trial)

    played = play(search_exhaustively, searched(), measure)

    assert played.ended
    assert (played.best is None) == (lost_w > LIMITS_W[0])
    if played.best is not None:
        assert (played.best.power_limit_w or 0) >= lost_w


@FEW
@given(st.sampled_from([FLAT, CORES, BOTH]), st.sets(st.sampled_from(LIMITS_W), min_size=1))
def test_the_answer_is_measured_and_allowed(line: StatedLine, limits_w: set[int]) -> None:
    """Whatever the choice of limits: only these are asked for, and the answer is the cheapest trial."""
    chosen = sorted(limits_w, reverse=True)
    played = play(search_exhaustively, searched(chosen), follows(line))
    costs = {trial: ENERGY.cost(follows(line)(trial)) for trial in played.trials}

    assert set(limits_of(played)) <= limits_w
    assert played.best == min(costs, key=costs.__getitem__)
