"""Objectives and the choice of the answer."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.model.errors import UnknownNameError
from tuner.model.objective import NAMES, TIE, Objective, choose, tied
from tuner.model.plan import Configuration
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult

OK = (WorkloadResult(Status.OK, 1e-3),)


def measured(makespan_s: float, joules: float, uncertainty_j: float = 0.0) -> Measurement:
    energy = Energy(joules, uncertainty_j, joules / makespan_s, "sensor", "gpu")
    return Measurement(OK, makespan_s, energy=energy, rounds=100)


def trial(number: int) -> Trial:
    return Trial((Configuration({"P": number}),))


def as_given(_: Trial) -> tuple[object, ...]:
    return ()


@pytest.mark.parametrize(("name", "expected"), [("time", 2.0), ("energy", 3.0), ("edp", 6.0), ("ed2p", 12.0)])
def test_cost_is_the_named_product(name: str, expected: float) -> None:
    """The objectives are t, E, E·t and E·t²."""
    assert expected == Objective(name).cost(measured(2.0, 3.0))


def test_unknown_objective_lists_the_choices() -> None:
    """A wrong name is answered with the right ones."""
    with pytest.raises(UnknownNameError, match="time, energy, edp, ed2p"):
        Objective("joules")


@pytest.mark.parametrize("name", NAMES)
def test_failed_trial_costs_infinity(name: str) -> None:
    """Whatever is not ok costs infinity, under every objective."""
    failed = Measurement((WorkloadResult(Status.WRONG_ANSWER),), 1.0)

    assert math.isinf(Objective(name).cost(failed))


def test_trial_over_the_limit_costs_infinity() -> None:
    """Under --max-slowdown a trial slower than the limit is no answer."""
    objective = Objective("energy", limit_s=1.05)

    assert math.isinf(objective.cost(measured(1.06, 1.0)))
    assert objective.cost(measured(1.05, 2.0)) == 2.0


def test_trial_without_joules_has_no_energy_cost() -> None:
    """Where no sensor answered, a trial can win on time but not on energy."""
    silent = Measurement(OK, 1.0)

    assert Objective("time").cost(silent) == 1.0
    assert math.isinf(Objective("energy").cost(silent))


def test_overlapping_intervals_are_a_tie_broken_by_time() -> None:
    """The answer is the fastest trial whose interval overlaps the minimum's."""
    trials = [
        (trial(0), measured(3.0, 10.0, 0.2)),  # lowest energy, slowest
        (trial(1), measured(1.0, 10.5, 0.2)),  # 10.5 - 0.39 <= 10 + 0.39: a tie, and faster
        (trial(2), measured(0.5, 12.0, 0.2)),  # clearly more energy
    ]

    assert choose(Objective("energy"), trials, rank=as_given) == 1


def test_the_answer_is_the_fastest_of_those_that_tie() -> None:
    """Costs whose intervals reach that of the lowest tie; nothing ties where nothing is valid."""
    trials = [
        (trial(i), measured(t, j, 0.01)) for i, (t, j) in enumerate([(2.0, 1.0), (1.0, 1.03), (0.5, 2.0)])
    ]

    assert tied(Objective("energy"), trials) == [0, 1]
    assert choose(Objective("energy"), trials, rank=as_given) == 1
    assert tied(Objective("energy"), []) == []


def test_a_trial_gains_nothing_by_being_known_less_surely() -> None:
    """A fast trial of a brief window is no tie with the lowest because its own interval is wide."""
    trials = [
        (trial(0), measured(3.0, 10.0, 0.2)),
        (trial(1), measured(1.0, 12.0, 2.0)),  # 12.0 - 3.92 <= 10 + 0.39, which says nothing for it
        (trial(2), measured(2.0, 10.5, 2.0)),  # a tie even if it was known as surely
    ]

    assert choose(Objective("energy"), trials, rank=as_given) == 2


@pytest.mark.parametrize(
    ("name", "relative"), [("time", 0.01), ("energy", 0.02), ("edp", 0.0224), ("ed2p", 0.0283)]
)
def test_uncertainty_joins_those_of_time_and_joules(name: str, relative: float) -> None:
    """Of E·t^k it is that of E and k times that of t, relative and squared; scatter is no part of it."""
    measurement = replace(measured(2.0, 3.0, 0.06), makespan_uncertainty_s=0.02, makespan_spread_s=0.5)
    objective = Objective(name)

    found = objective.uncertainty(measurement) / objective.cost(measurement)
    assert found == pytest.approx(relative, rel=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_unknown_uncertainty_is_nothing(name: str) -> None:
    """Where neither device nor sensor knows an uncertainty, the cost has none; a failed trial has none."""
    assert Objective(name).uncertainty(measured(2.0, 3.0)) == 0.0
    assert Objective(name).uncertainty(Measurement((WorkloadResult(Status.TIMEOUT),))) == 0.0


def test_nothing_to_choose_when_all_failed() -> None:
    """With no valid trial there is no answer."""
    assert (
        choose(Objective("time"), [(trial(0), Measurement((WorkloadResult(Status.CRASHED),)))], rank=as_given)
        is None
    )


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0, 1)), min_size=1, max_size=8))
def test_answer_is_never_beaten_on_both_counts(values: list[tuple[float, float, float]]) -> None:
    """No trial with a certainly lower energy exists, and none in the tie is surely faster."""
    trials = [(trial(i), measured(t, e, u)) for i, (t, e, u) in enumerate(values)]
    chosen = choose(Objective("energy"), trials, rank=as_given)

    assert chosen is not None
    time_s, joules, uncertainty_j = values[chosen]
    lowest = min(values, key=lambda v: v[1])
    assert joules - 1.96 * uncertainty_j <= lowest[1] + 1.96 * lowest[2] + 1e-9
    assert time_s <= lowest[0] * (1 + TIE)


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0, 1)), min_size=1, max_size=8),
    st.sampled_from(["time", "energy", "edp"]),
    st.randoms(use_true_random=False),
)
def test_the_rule_does_not_ask_in_which_order_trials_were_measured(
    values: list[tuple[float, float, float]], name: str, chance: random.Random
) -> None:
    """Of trials that tie the first in order is the answer, at most the margin slower than the fastest."""
    trials = [(trial(i), measured(*value)) for i, value in enumerate(values)]
    objective = Objective(name)

    def rank(one: Trial) -> tuple[int]:
        return (-int(one.configurations[0]["P"]),)

    def chosen(of: list[tuple[Trial, Measurement]], kept: Trial | None = None) -> Trial:
        index = choose(objective, of, precision=TIE, rank=rank, kept=kept)
        assert index is not None
        return of[index][0]

    answer = chosen(trials)
    shuffled = list(trials)
    chance.shuffle(shuffled)
    assert answer == chosen(shuffled)
    ties = [trials[i][0] for i in tied(objective, trials, precision=TIE)]
    assert answer in ties
    assert all(chosen(trials, kept) == kept for kept in ties)
    if name == "time":
        assert values[-rank(answer)[0]][0] <= min(value[0] for value in values) * (1 + TIE)
