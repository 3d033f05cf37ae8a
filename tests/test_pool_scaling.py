"""Numbers of one GPU of a pool as those of its home."""

from dataclasses import replace

import pytest

from tuner.model.records import measurement_from, measurement_record
from tuner.model.trial import AnchorRatio, Energy, Measurement, PoolGpu, Status, WorkloadResult
from tuner.pool.scaling import measured_on, ratio_of, scaled


def measurement(time_s: float, joules: float, *, joules_u: float = 0.0, time_u: float = 0.0) -> Measurement:
    return Measurement(
        (WorkloadResult(Status.OK, time_s, 0.01 * time_s, restore_s=0.1 * time_s),),
        makespan_s=time_s,
        makespan_spread_s=0.01 * time_s,
        makespan_uncertainty_s=time_u,
        energy=Energy(joules, joules_u, joules / time_s, "counter", "gpu", idle_watts=40.0),
        window_s=0.5,
        energy_total_j=70.0,
    )


HOME, OTHER = measurement(1.0e-3, 0.30), measurement(1.25e-3, 0.36)


def test_ratio_makes_an_anchor_that_of_home() -> None:
    """The anchor of another GPU has the times, joules and watts of home's, once it is scaled."""
    found = scaled(OTHER, ratio_of(HOME, OTHER))
    assert found.makespan_s == pytest.approx(HOME.makespan_s)
    assert found.results[0].time_s == pytest.approx(HOME.results[0].time_s)
    assert found.results[0].restore_s == pytest.approx(HOME.results[0].restore_s)
    assert found.energy is not None
    assert HOME.energy is not None
    assert found.energy.joules == pytest.approx(HOME.energy.joules)
    assert found.energy.watts == pytest.approx(HOME.energy.watts)


def test_what_a_trial_cost_is_not_scaled() -> None:
    """Window and joules that a GPU spent stay as they were."""
    found = scaled(OTHER, ratio_of(HOME, OTHER))
    assert (found.window_s, found.energy_total_j) == (OTHER.window_s, OTHER.energy_total_j)


def test_uncertainties_of_both_anchors_are_in_a_trial() -> None:
    """A trial has the ratio's uncertainty beside its own: both anchors', and how they repeat."""
    ratio = ratio_of(measurement(1.0, 1.0, joules_u=0.03, time_u=0.003), measurement(1.0, 1.0, time_u=0.004))
    assert ratio.time_uncertainty == pytest.approx((0.005**2 + 2 * 0.002**2) ** 0.5)
    assert ratio.energy_uncertainty == pytest.approx((0.03**2 + 2 * 0.004**2) ** 0.5)
    found = scaled(measurement(2.0, 5.0), ratio)
    assert found.energy is not None
    assert found.makespan_uncertainty_s == pytest.approx(2.0 * ratio.time_uncertainty)
    assert found.energy.uncertainty_j == pytest.approx(5.0 * ratio.energy_uncertainty)


def test_inverse_ratio_leads_back() -> None:
    """Home's numbers as another GPU's, and back, are home's."""
    ratio = AnchorRatio(0.8, 0.0, 0.9, 0.0)
    assert scaled(scaled(HOME, ratio.inverse), ratio).makespan_s == pytest.approx(HOME.makespan_s)


def test_anchor_without_an_energy_scales_times_alone() -> None:
    """Where no joules are measured, only times have a ratio."""
    ratio = ratio_of(replace(HOME, energy=None), replace(OTHER, energy=None))
    assert ratio.time == pytest.approx(0.8)
    assert ratio.energy == 1.0


def test_record_keeps_the_gpu_of_a_trial() -> None:
    """Host, GPU, driver and ratio are in the record of a measurement; without a pool nothing is."""
    gpu = PoolGpu("node7", "GPU-1", "560.1", ratio_of(HOME, OTHER))
    noted = measured_on(OTHER, gpu)
    assert noted.scaled
    assert measurement_record(noted)["gpu"]["host"] == "node7"
    assert measurement_from(measurement_record(noted)) == noted
    assert "gpu" not in measurement_record(OTHER)
    assert not replace(OTHER, gpu=PoolGpu("node7", "GPU-1", "560.1")).scaled
