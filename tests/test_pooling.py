"""Several measuring windows of one trial, joined."""

from dataclasses import replace

import pytest
from fake_pool import FakeWorker, FakeWorkers, facts, taking, trial
from hypothesis import given
from hypothesis import strategies as st

from tuner.measurement.base import ComparisonTarget, PlannedTrial, ReferenceTrial
from tuner.measurement.paired import join
from tuner.model.objective import Objective
from tuner.model.trial import (
    SAME_GPU,
    AnchorRatio,
    Energy,
    Flag,
    GpuSetting,
    Measurement,
    Status,
    WorkloadResult,
)
from tuner.pool.pool import Pool
from tuner.pool.scaling import NetEnergies
from tuner.pool.worker import SetupOrder
from tuner.search.request import SearchRequest


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
