"""Scatter between windows, and several joined: learnt or assumed, part of every interval of joules."""

import math
from dataclasses import replace

import numpy as np
import pytest
from fake_pool import FakeWorker, FakeWorkers, facts, taking, trial
from hypothesis import given
from hypothesis import strategies as st
from tuning_runs import REQUEST, tune

from tuner.database.runs import Store
from tuner.measurement.base import ComparisonTarget, PlannedTrial, ReferenceTrial
from tuner.measurement.paired import LEAST_SCATTER, join, window_scatter
from tuner.model.objective import COVERAGE, Objective
from tuner.model.plan import Configuration
from tuner.model.trial import (
    ASSUMED,
    ASSUMED_DRIFT,
    SAME_GPU,
    AnchorRatio,
    Energy,
    Flag,
    GpuSetting,
    Measurement,
    Status,
    Trial,
    WindowScatter,
    WorkloadResult,
    of_window,
    stated,
)
from tuner.pool.pool import Pool
from tuner.pool.scaling import NetEnergies
from tuner.pool.worker import SetupOrder
from tuner.search.document import trial_document
from tuner.search.request import SearchRequest

TRIALS = [Trial((Configuration({"i": number}),)) for number in range(4)]


def measured(
    joules: float, u_j: float = 0.0, ended_s: float = 0.0, degrees: float | None = None
) -> Measurement:
    energy = Energy(joules, u_j, joules / 1e-3, "s", "gpu", degrees)
    return Measurement((WorkloadResult(Status.OK, 1e-3),), 1e-3, energy=energy, ended_s=ended_s)


def run_of(
    joules: np.ndarray, apart_s: float = 100.0
) -> tuple[dict[Trial, Measurement], list[dict[Trial, Measurement]]]:
    """A search and paired repeats from joules of shape (columns, trials), columns so far apart."""
    columns = [
        {trial: measured(float(j), ended_s=apart_s * i) for trial, j in zip(TRIALS, row, strict=False)}
        for i, row in enumerate(joules)
    ]
    return columns[0], columns[1:]


@given(
    st.floats(1e-6, 1e3),
    st.just(0.0) | st.floats(1e-6, 0.1),
    st.none() | st.floats(1.0, 50.0),
    st.just(0.0) | st.floats(1e-6, 0.02),
)
def test_stating_widens_and_can_be_undone(
    joules: float, relative: float, degrees: float | None, deviation: float
) -> None:
    """A stated interval holds scatter and window; stating again replaces it; the window's own stays."""
    one = measured(joules, relative * joules, degrees=degrees)
    told = stated(one, WindowScatter(deviation))

    assert told.energy is not None
    least = max(relative, deviation) * joules
    assert told.energy.uncertainty_j >= least * (1 - 1e-9)
    assert told.energy.window_uncertainty_j == relative * joules
    assert of_window(told) == of_window(one) == one
    assert stated(told) == stated(one)


def test_what_has_no_joules_is_stated_as_it_is() -> None:
    """A trial without energy has no scatter."""
    failed = Measurement((WorkloadResult(Status.TIMEOUT),))

    assert stated(failed) == of_window(failed) == failed


def test_scatter_is_that_of_trials_and_turns_together() -> None:
    """Two trials that both rise by 2 % in each of five columns: mean squares by hand, and their degrees."""
    rise = np.exp(np.outer([-0.02, -0.01, 0.0, 0.01, 0.02], [1.0, 1.0]))
    found = window_scatter(*run_of(rise * [1.0, 2.0]))

    assert found.deviation == pytest.approx(math.sqrt(0.001 / 4))
    assert found.degrees == pytest.approx(4.0)


def test_short_windows_of_the_search_tell_nothing() -> None:
    """At a power limit a search's short window has other joules than the long ones that follow."""
    columns = np.exp(np.outer([0.05, -0.001, 0.001, -0.001, 0.001], [1.0, 1.0, 1.0]))
    searched, repeats = run_of(columns)
    long = [{trial: replace(one, window_s=6.4) for trial, one in repeat.items()} for repeat in repeats]
    short = {trial: replace(one, window_s=0.8) for trial, one in searched.items()}

    assert window_scatter(short, long).deviation < 0.0045
    assert window_scatter(searched, repeats).deviation > 0.01


@pytest.mark.parametrize(
    ("joules", "apart_s", "learnt"),
    [
        (np.ones((1, 4)), 100.0, False),  # nothing was measured twice
        (np.array([[1.0], [1.01], [0.99]]), 100.0, False),  # two degrees
        (np.ones((4, 4)), 1.0, False),  # calm, but for seconds
        (np.ones((4, 4)), 100.0, True),
        (np.array([[1.0, 1.0], [1.02, 0.98], [0.98, 1.02], [1.0, 1.0], [1.03, 0.99]]), 1.0, True),
    ],
)
def test_a_run_with_too_few_repeats_assumes(joules: np.ndarray, apart_s: float, learnt: bool) -> None:
    """Few repeats, or calm ones within seconds, are not believed; more scatter than is assumed always is."""
    found = window_scatter(*run_of(joules, apart_s))

    assert found.learnt == learnt
    assert found == ASSUMED or found.deviation >= LEAST_SCATTER


@pytest.mark.parametrize(
    ("ended_s", "joules", "drift"),
    [
        ((0, 10, 20), (1.0, 1.0, 1.0), ASSUMED_DRIFT),  # seconds tell nothing
        ((0, 10, 20), (0.9, 1.0, 1.0), ASSUMED_DRIFT),  # the search's window was of a cold GPU
        ((0, 10, 20), (1.0, 1.0, 1.02), math.log(1.02) / COVERAGE),  # but a large change is believed
        ((0, 10, 80), (1.0, 1.0, 1.0), 0.0),
        ((0, 20, 80), (0.9, 1.0, 1.01), math.log(1.01) / COVERAGE),  # that of the last minute
        ((0, 100, 110), (0.98, 1.0, 1.0), -math.log(0.98) * 60 / 110 / COVERAGE),  # the slope, for a minute
    ],
)
def test_the_drift_that_is_left_is_assumed_or_the_slope_of_the_run(
    ended_s: tuple[float, ...], joules: tuple[float, ...], drift: float
) -> None:
    """Of a trial in the search, in a repeat and at the end: what a minute at the slope so far still makes."""
    windows = [{TRIALS[0]: measured(j, ended_s=at)} for at, j in zip(ended_s, joules, strict=True)]

    assert window_scatter(windows[0], windows[1:2], windows[2]).drift == pytest.approx(drift)
    assert window_scatter(windows[0], ()).drift == ASSUMED_DRIFT


def test_a_window_without_joules_tells_no_drift() -> None:
    """Where the sensor failed in the last repeat a run of minutes does not know what is left."""
    one, other = (measured(1.0, ended_s=at) for at in (0.0, 100.0))
    lost = replace(other, energy=None)

    assert window_scatter({TRIALS[0]: one}, [{TRIALS[0]: other}]).drift == 0.0
    assert window_scatter({TRIALS[0]: one}, [{TRIALS[0]: lost}]).drift == ASSUMED_DRIFT


def test_intervals_cover_the_mean_over_minutes() -> None:
    """Power wanders within minutes by 0.35 %, and from window to window by 0.23 %, as an H200's did.

    Of 400 runs of four contenders in a search and three repeats the answers' stated intervals hold the long
    run in 93 to 99 %; those of the windows alone, by their repeats, in far fewer.
    """
    generator = np.random.default_rng(1)
    held, held_before = 0, 0
    for _ in range(400):
        slow = generator.normal(0.0, 0.0035, (2, 1))[[0, 1, 1, 1]]  # the repeats share it
        own = 0.0035 * generator.normal(0.0, 0.4, (1, 4))
        joules = np.exp(slow + own + generator.normal(0.0, 0.0023, (4, 4)))
        searched, repeats = run_of(joules, 40.0)
        joined = join([repeat[TRIALS[0]] for repeat in repeats])
        told = stated(joined, window_scatter(searched, repeats))
        for one, count in ((told, 1), (joined, 0)):
            assert one.energy is not None
            covers = abs(one.energy.joules - 1.0) <= COVERAGE * one.energy.uncertainty_j
            held, held_before = held + covers * count, held_before + covers * (1 - count)

    assert 0.93 * 400 <= held <= 0.99 * 400
    assert held_before < 0.85 * 400


def test_all_who_tell_joules_tell_the_same_interval(store: Store) -> None:
    """JSON, stored rows and best known have one uncertainty; the windows' own stands beside it."""
    outcome = tune(replace(REQUEST, policy="exhaustive"), store, spec="sim:h200")
    names = REQUEST.workloads
    rows = store.best_known(store.history(1)[0].id, names)

    assert len(rows) == len(outcome.trials)
    for pair, (_, row) in zip(outcome.trials, rows, strict=True):
        record, energy = trial_document(pair, names), row.energy
        if energy is None:
            continue
        assert record["energy_j_uncertainty"] == energy.uncertainty_j >= LEAST_SCATTER * energy.joules
        assert record["energy_j_window_uncertainty"] == energy.window_uncertainty_j
        assert 0.0 < (energy.window_uncertainty_j or 0.0) <= energy.uncertainty_j


def repeat(makespan_s: float, joules: float | None, *, u_j: float = 0.0, flag: str = "") -> Measurement:
    energy = None if joules is None else Energy(joules, u_j, joules / makespan_s, "sensor", "gpu")
    return Measurement(
        (WorkloadResult(Status.OK, makespan_s / 2),),
        makespan_s,
        energy=energy,
        rounds=10,
        window_s=1.0,
        flags=(Flag.parse(flag),) if flag else (),
        energy_total_j=5.0,
    )


def test_means_and_the_error_between_repeats() -> None:
    """Three repeats of 9, 10, 11 J: mean 10, standard error 1/sqrt(3) times Student's 4.303 / 1.96."""
    joined = join([repeat(1.0, 9.0), repeat(2.0, 10.0), repeat(3.0, 11.0)])

    assert joined.makespan_s == 2.0
    assert joined.energy is not None
    assert joined.energy.joules == 10.0
    assert joined.energy.uncertainty_j == pytest.approx(4.3027 / 1.96 / 3**0.5, rel=1e-3)
    assert joined.results[0].time_s == 1.0
    assert (joined.repeats, joined.rounds, joined.window_s, joined.energy_total_j) == (3, 30, 3.0, 15.0)


def test_repeats_cannot_be_surer_together_than_their_sensor_allows() -> None:
    """Repeats that agree by chance keep the uncertainty of each, divided by the root of their number."""
    joined = join([repeat(1.0, 10.0, u_j=0.3)] * 9)

    assert joined.energy is not None
    assert joined.energy.uncertainty_j == pytest.approx(0.1)


def test_repeats_of_few_degrees_are_surer_together() -> None:
    """Three repeats of five degrees have the scatter of one by sqrt(3), and the t of fifteen degrees."""
    five, fifteen = 2.5706 / 1.96, 2.1314 / 1.96
    energy = Energy(10.0, 0.3 * five, 10.0, "sensor", "gpu", 5.0)
    joined = join([replace(repeat(1.0, 10.0), energy=energy)] * 3)

    assert joined.energy is not None
    assert joined.energy.degrees == pytest.approx(15.0)
    assert joined.energy.uncertainty_j == pytest.approx(0.3 * fifteen / 3**0.5, rel=1e-3)


def test_failed_repeat_fails_the_trial() -> None:
    """A contender that fails when it is measured again is no answer."""
    failed = Measurement((WorkloadResult(Status.TIMEOUT, detail="late"),))

    assert join([repeat(1.0, 1.0), failed]) is failed


def test_energy_needs_every_burst() -> None:
    """Where a sensor was silent in one repeat, the joined trial has no joules."""
    assert join([repeat(1.0, 1.0), repeat(1.0, None)]).energy is None


def test_flags_are_kept_once() -> None:
    """What a reader must know of any repeat is known of the trial."""
    joined = join([repeat(1.0, 1.0, flag="a"), repeat(1.0, 1.0, flag="b"), repeat(1.0, 1.0, flag="a")])

    assert joined.flags == (Flag.parse("a"), Flag.parse("b"))


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=6))
def test_joined_values_lie_among_the_repeats(values: list[tuple[float, float]]) -> None:
    """A mean is never outside of what was measured."""
    joined = join([repeat(*pair) for pair in values])

    assert joined.makespan_s is not None
    assert joined.energy is not None
    assert min(t for t, _ in values) <= joined.makespan_s * (1 + 1e-12)
    assert joined.makespan_s <= max(t for t, _ in values) * (1 + 1e-12)
    assert joined.energy.uncertainty_j >= 0.0


# --- what the GPUs of a pool tell each other of power ----------------------------------------------


FOUND = GpuSetting()


def spent(joules: float, watts: float) -> Measurement:
    return replace(taking(joules / watts), energy=Energy(joules, 0.0, watts, "counter", "gpu"))


def test_a_trial_that_another_undercuts_is_not_kept() -> None:
    """Who has more joules at more watts has more net joules, at any idle power; each setting has its own."""
    energies = NetEnergies()
    for joules, watts in ((3.0, 300.0), (2.0, 400.0), (4.0, 200.0), (3.5, 350.0), (2.0, 400.0), (2.0, 390.0)):
        energies.add(FOUND, spent(joules, watts))
    energies.add(FOUND, taking(1.0))
    kept = [(one.joules, one.watts) for one in energies.at(FOUND, SAME_GPU)]

    assert kept == [(3.0, 300.0), (4.0, 200.0), (2.0, 390.0)]
    assert [one.joules for one in energies.at(FOUND, AnchorRatio(energy=2.0))] == [6.0, 8.0, 4.0]
    assert energies.at(GpuSetting(1000), SAME_GPU) == ()


def test_a_gpu_hears_of_trials_that_others_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one GPU of a pool has shown of power bounds the trials of the next one too."""
    monkeypatch.setattr("fake_pool.taking", lambda seconds: spent(100.0 * seconds, 100.0))
    workers = [FakeWorker(facts(number)) for number in range(2)]
    pool = Pool(FakeWorkers(*workers), SetupOrder("run", SearchRequest()), lambda _: None)  # type: ignore[arg-type]  # a fake
    pool.open()
    default = trial(100)
    reference = ReferenceTrial(default, (), pool.at_home("measurer", "measure", default, (), None))
    target = ComparisonTarget(Objective("energy"), (default, reference.measurement), 1)
    list(pool.measure_all((PlannedTrial(trial(n), (), target) for n in (9, 8, 7)), reference))
    last = [one for worker in workers for one in worker.targets if one is not None and one.elsewhere]

    assert last
    assert all(energy.watts == 100.0 for one in last for energy in one.elsewhere)
