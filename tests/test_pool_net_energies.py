"""What the GPUs of a pool tell each other of power."""

from dataclasses import replace

import pytest
from fake_pool import FakeWorker, FakeWorkers, facts, taking, trial

from tuner.measurement.base import ComparisonTarget, PlannedTrial, ReferenceTrial
from tuner.model.objective import Objective
from tuner.model.trial import SAME_GPU, AnchorRatio, Energy, GpuSetting, Measurement
from tuner.pool.pool import Pool
from tuner.pool.scaling import NetEnergies
from tuner.pool.worker import SetupOrder
from tuner.search.request import SearchRequest

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
