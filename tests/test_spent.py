"""What tuning costs: joules from begin to end, pauses included, and when a search pays no more."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_driver import candidate, play, result, search_over
from power_source import IDLE_W, Source
from tuner.policies.stopping import GAPS, Prospects, paying
from tuner.power.base import Sample, SensorInfo, SpentEnergy
from tuner.power.energy.meter import SamplingMeter, SpentTotal
from tuner.power.sensors.simulated import SimulatedSampler
from tuning_runs import REQUEST, tune

from tuner.database.runs import Store
from tuner.devices.simulated.device import SimulatedDevice
from tuner.model import registry
from tuner.model.objective import COVERAGE, Objective
from tuner.model.trial import Measurement, Trial
from tuner.recordings.files import open_recording
from tuner.recordings.values import search_of
from tuner.report.answer import cost_line
from tuner.search.document import _tuning_energy, break_even
from tuner.space.search_view import Payback
from tuner.studies import comparison as evaluation

STREAM = SensorInfo("s", "stream", "gpu", period_s=0.1)
COUNTER = SensorInfo("c", "counter", "gpu", period_s=0.1)


def samples(watts: Callable[[float], float], looked: Sequence[tuple[float, float]]) -> list[Sample]:
    """Samples every 0.1 s in the times that somebody looked."""
    return [
        Sample(begin_s + 0.1 * i, watts(begin_s + 0.1 * i))
        for begin_s, end_s in looked
        for i in range(round((end_s - begin_s) / 0.1) + 1)
    ]


def covers(spent: SpentEnergy | None, truth_j: float) -> bool:
    assert spent is not None
    return abs(spent.joules - truth_j) <= COVERAGE * spent.sigma_j + 1e-9 * truth_j


@given(
    st.lists(st.tuples(st.floats(0.3, 5.0), st.sampled_from([50.0, 400.0, 600.0])), min_size=1, max_size=8)
)
def test_a_counter_has_counted_in_pauses_too(pieces: list[tuple[float, float]]) -> None:
    """However long nobody looks, and whatever the GPU does meanwhile, what a counter counted is known."""
    source = Source()
    source.draw(0.05, IDLE_W)
    meter = SamplingMeter(SimulatedSampler(source, "counter"), None, source.now_s)
    for seconds, watts in pieces:
        with meter.recording():
            source.draw(0.3, 300.0)
        source.draw(seconds, watts)
    with meter.recording():
        source.draw(1.0, IDLE_W)
    spent = meter.spent()

    assert spent is not None
    assert spent.unseen_s <= 0.2
    truth_j = source.joules(0.05, source.now_s())
    assert spent.joules == pytest.approx(truth_j, abs=0.15 * 600.0)


def test_pauses_of_a_reading_of_power_are_idle_and_said() -> None:
    """Two loads of 2 s at 500 W and 8 s of idle that nobody saw: near the truth, and its doubt is stated."""
    looked = [(0.0, 2.0), (10.0, 12.5)]
    total = SpentTotal(0.0)
    total.add(samples(lambda s: 500.0 if s <= 2.0 or 10.0 <= s <= 12.0 else 60.0, looked), STREAM)
    spent = total.spent(14.5, STREAM)

    assert spent is not None
    assert spent.unseen_s == pytest.approx(10.0)
    assert spent.unseen_j == pytest.approx(60.0 * 10.0 + 440.0 * 0.5)
    assert covers(spent, 500.0 * 4.0 + 60.0 * 10.5)
    assert 0.0 < spent.unseen_sigma_j < spent.sigma_j


def test_without_idle_a_pause_takes_the_power_before_it() -> None:
    """A reading that never saw the GPU idle knows no better."""
    total = SpentTotal(0.0)
    total.add(samples(lambda _: 500.0, [(0.0, 2.0), (4.0, 5.0)]), STREAM)
    spent = total.spent(5.0, STREAM)

    assert spent is not None
    assert spent.joules == pytest.approx(2500.0)
    assert spent.sigma_j == pytest.approx(0.05 * 1000.0)


def test_a_counter_that_is_reset_loses_one_step() -> None:
    """The driver is loaded anew between two samples: that step is unseen, and nothing is negative."""
    total = SpentTotal(0.0)
    total.add([Sample(0.1 * i, 1000.0 + 10.0 * i) for i in range(11)], COUNTER)
    total.add([Sample(1.0 + 0.1 * i, 10.0 * i) for i in range(1, 11)], COUNTER)
    spent = total.spent(2.0, COUNTER)

    assert spent is not None
    assert spent.joules == pytest.approx(200.0, rel=0.05)
    assert spent.unseen_s == pytest.approx(0.1)


def test_what_cannot_be_is_no_energy() -> None:
    """Numbers that are none, absurd power, and samples of before the start or out of order are left out."""
    good = [Sample(0.1 * i, 100.0) for i in range(11)]
    bad = [Sample(-1.0, 900.0), Sample(1.05, math.nan), Sample(1.06, 1e9), Sample(0.2, 700.0)]
    total, counted = SpentTotal(0.0), SpentTotal(0.0)
    total.add([*bad[:1], *good, *bad[1:]], STREAM)
    counted.add([*(Sample(one.time_s, 100.0 * one.time_s) for one in good), bad[1]], COUNTER)

    for found in (total.spent(1.0, STREAM), counted.spent(1.0, COUNTER)):
        assert found is not None
        assert found.joules == pytest.approx(100.0)
    assert SpentTotal(0.0).spent(1.0, STREAM) is None


@pytest.mark.parametrize("spec", ["sim:h200", "sim:k40c", "sim:jetson-tx1"])
def test_tuning_costs_all_joules_between_begin_and_end(
    spec: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run is said to cost is what the modelled GPU drew, gaps and short windows included."""
    devices: list[SimulatedDevice] = []
    drawn: dict[str, float] = {"joules": 0.0}
    begin = SimulatedDevice.__init__

    def remember(self: SimulatedDevice, *arguments: object, **options: object) -> None:
        begin(self, *arguments, **options)  # type: ignore[arg-type]
        devices.append(self)
        pass_time = self._timeline.pass_time

        def counted(seconds: float, watts: float) -> None:
            drawn["joules"] += max(0.0, seconds) * watts
            pass_time(seconds, watts)

        self._timeline.pass_time = counted  # type: ignore[method-assign]

    monkeypatch.setattr(SimulatedDevice, "__init__", remember)
    outcome = tune(replace(REQUEST, policy="random", budget=12), store, spec=spec)
    record = _tuning_energy(outcome)

    assert len(devices) == 1
    assert record["tuning_energy_j"] == pytest.approx(drawn["joules"], rel=0.004)


# --- Break-even: when a search stops, and what the report says of it.

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
