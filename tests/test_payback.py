"""Break-even: when a search stops, and what the report says of it."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_driver import candidate, play, result, search_over
from tuner.policies.stopping import GAPS, Prospects, paying

from tuner.model import registry
from tuner.model.objective import Objective
from tuner.model.trial import Measurement, Trial
from tuner.recordings.files import open_recording
from tuner.recordings.values import search_of
from tuner.report.answer import cost_line
from tuner.search.document import break_even
from tuner.space.search_view import Payback
from tuner.studies import comparison as evaluation

RANDOM = registry.load("policy", "random")
AUTO = registry.load("policy", "auto")
SPACE = [candidate(a=value) for value in range(24)]


def prospects(costs: Sequence[float], runs: float = 1.0, spent: float = 1.0) -> Prospects:
    """What is expected after some costs."""
    found = Prospects(Payback(runs, lambda _: spent))
    for cost in costs:
        found.add(cost, result(cost, [1.0]))
    return found


def falling(trial: Trial) -> Measurement:
    """The more is measured the better it gets: 24, 23 ... 1 seconds a run."""
    return result(24.0 - int(trial.configurations[0]["a"]), [1.0])


def test_chance_by_hand() -> None:
    """Of ten draws the lowest six are 1.0, 1.1 ... 1.5: gaps of 0.1 by ten draws are 0.01 a run."""
    costs = [3.0, 1.4, 1.2, 1.0, 1.1, 2.0, 1.3, 1.5, 4.0, 2.0]

    assert prospects(costs).expected_gain == pytest.approx(0.1 / 10)


def test_trend_by_hand() -> None:
    """Five evaluations that each gain 0.2 promise 0.2, though chance promises a sixth of it."""
    assert prospects([2.0, 1.8, 1.6, 1.4, 1.2, 1.0]).expected_gain == pytest.approx(0.2)


def test_failures_take_and_give_nothing() -> None:
    """A failed trial adds to what an evaluation takes, and to the draws without a gain."""
    costs = [3.0, 1.4, 1.2, 1.0, 1.1, 2.0, 1.3, 1.5]

    assert prospects([*costs, math.inf, math.nan]).expected_gain == pytest.approx(0.01)


@given(costs=st.lists(st.floats(0.1, 10), min_size=GAPS + 1, max_size=30), runs=st.floats(0, 1e6))
def test_more_runs_never_stop_a_search_sooner(costs: list[float], runs: float) -> None:
    """What pays for some runs pays for more."""
    assert prospects(costs, runs=2 * runs).pays or not prospects(costs, runs=runs).pays


@pytest.mark.parametrize(("runs", "least", "most"), [(1e-6, 5, 8), (1e6, 24, 24)])
def test_a_search_ends_when_it_does_not_pay(runs: float, least: int, most: int) -> None:
    """Gains of a second a run, at ten seconds an evaluation: few runs end it early, many never."""
    said: list[str] = []
    payback = Payback(runs, lambda _: 10.0)
    search = replace(search_over(SPACE), payback=payback, tell=said.append, label="modelled")

    played = play(AUTO, search, falling)

    assert least <= len(played.trials) <= most
    told = [sentence for sentence in said if sentence.startswith("done: another trial is expected to save ")]
    assert bool(told) == (most < 24)
    assert played.best is not None
    assert falling(played.best).makespan_s == min(falling(trial).makespan_s or 0.0 for trial in played.trials)


@pytest.mark.parametrize("name", ["fft:N=2048", "fft-large:N=65536", "fft-large:N=262144"])
def test_stopping_comes_near_the_best_moment(name: str) -> None:
    """Tuning and a million runs take at most 10 % more than had the best moment to stop been known."""
    space, cost = open_recording("h200").space((name,)), Objective("time").cost
    spent_s, runs = 0.4, 1e6
    excess = []
    for seed in range(9):
        search = search_of(space, cost, seed=seed, payback=Payback(runs, lambda _: spent_s))
        costs = [cost(measurement) for _, measurement in evaluation.play(RANDOM, search, space.look)]
        totals = [spent_s * n + runs * least for n, least in enumerate(accumulate(costs, min), start=1)]
        stopped = evaluation.play(lambda s: paying(RANDOM(s), s), search, space.look)
        excess.append(totals[len(stopped) - 1] / min(totals) - 1)

    assert statistics.fmean(excess) <= 0.10


def document(**values: Any) -> Any:
    """A run's document as far as break-even reads it."""
    return {
        "modelled": False,
        "objective": "energy",
        "against_default": {
            "slowdown": -0.2,
            "slowdown_interval": 0.01,
            "energy_saving": 0.1,
            "energy_saving_interval": 0.02,
        },
        "default": {"energy_j": 2.0, "time_s": 0.5},
        "tuning_energy_j": 400.0,
        "tuning_energy_j_uncertainty": 2.0,
        "wall_s": 30.0,
        "wall": {"prepare_s": 3.0, "windows_s": 10.0, "checks_s": 1.0},
    } | values


def test_break_even_in_joules_by_hand() -> None:
    """400 J to save 10 % of 2 J: 2,000 runs; 396.08 J by 0.24 J to 403.92 J by 0.16 J at the ends."""
    even = break_even(document(), "energy", 500.0)

    assert even is not None
    assert (even["unit"], even["cost"]) == ("J", 400.0)
    assert even["saving_per_run"] == pytest.approx(0.2)
    assert even["runs"] == pytest.approx(2000)
    assert even["runs_least"] == pytest.approx(396.08 / 0.24)
    assert even["runs_most"] == pytest.approx(403.92 / 0.16)
    assert even["days"] == pytest.approx(4.0)
    line = cost_line(document(break_even=even), verbose=True)
    assert "after 2,000 runs (1,650 to 2,520, 95 %), which is 4.0 days at 500 runs a day" in line
    assert "tuning took 400.0 ± 3.9 J, a run saves 200 ± 40 mJ" in line


@pytest.mark.parametrize(("modelled", "cost"), [(False, 30.0), (True, 14.0)])
def test_break_even_in_seconds(modelled: bool, cost: float) -> None:
    """Time is paid in wall time; on a simulated device in the seconds it would have taken, and says so."""
    even = break_even(document(modelled=modelled), "time", None)

    assert even is not None
    assert (even["unit"], even["cost"], even["days"]) == ("s", cost, None)
    assert even["runs"] == pytest.approx(cost / 0.1)
    assert (", modelled" in cost_line(document(modelled=modelled, break_even=even), verbose=True)) == modelled


@pytest.mark.parametrize(
    ("saving", "half", "worth"),
    [
        (-0.05, 0.02, False),
        (0.0, 0.02, False),
        (0.01, 0.02, False),
        (0.005, 0.0049, False),
        (0.01, 0.006, False),
        (0.01, 0.004, True),
    ],
)
def test_a_gain_is_worth_having_from_half_a_percent(saving: float, half: float, worth: bool) -> None:
    """What is less, or not certain to be that much, has no number of runs in the report."""
    against = {
        "slowdown": 0.0,
        "slowdown_interval": 0.0,
        "energy_saving": saving,
        "energy_saving_interval": half,
    }
    even = break_even(document(against_default=against), "energy", None)

    assert even is not None
    line = cost_line(document(break_even=even, against_default=against))
    assert line.startswith(
        "pays for itself after 20,000 runs: " if worth else "no gain worth having, as 0.5 %"
    )
    assert line.endswith("tuning took 400.0 ± 3.9 J" if worth else "keep the default")


def test_a_program_whose_work_is_counted_pays_by_its_unit() -> None:
    """Joules of a token are saved by each token, not by each run."""
    program = {"settings": {"program": {"per": "tokens/s"}}}
    even = break_even(document(), "energy", None)
    plain = cost_line(document(break_even=even))

    assert " runs: " in plain
    assert cost_line(document(break_even=even, **program)) == plain.replace(
        " runs: ", " units of work, by tokens/s: "
    )


def test_the_default_as_the_answer_saves_nothing() -> None:
    """Where nothing was found that stands above, and only what tuning took is told on demand."""
    nothing = {"slowdown": 0.0, "slowdown_interval": 0.0, "energy_saving": 0.0, "energy_saving_interval": 0.0}
    even = break_even(document(against_default=nothing), "energy", None)

    assert cost_line(document(break_even=even)) == ""
    assert cost_line(document(break_even=even), verbose=True).startswith("tuning took 30 s")


@pytest.mark.parametrize(
    ("runs_per_day", "span"),
    [
        ("0.0123", "163,000 days"),
        ("1,000", "2.0 days"),
        ("24,000", "2.0 hours"),
        ("1,000,000", "2.9 minutes"),
    ],
)
def test_days_are_told_in_a_unit_that_reads_well(runs_per_day: str, span: str) -> None:
    """2,000 runs take days, hours or minutes."""
    even = break_even(document(), "energy", float(runs_per_day.replace(",", "")))

    line = cost_line(document(break_even=even), verbose=True)
    assert f"which is {span} at {runs_per_day} runs a day" in line


def test_without_a_default_there_is_no_break_even() -> None:
    """Nothing to compare the answer with, or no joules: no sentence."""
    assert break_even(document(against_default=None), "energy", None) is None
    assert break_even(document(against_default={"slowdown": 0.1}), "energy", None) is None
    assert cost_line(document(break_even=None), verbose=True) == "tuning took 30 s, 400.0 ± 3.9 J"
