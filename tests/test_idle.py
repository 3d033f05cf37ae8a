"""Idle power, and the joules of a trial above it."""

from dataclasses import replace

import pytest
from fake_setup import PLANS, FakeMeter, Watched, trial_of
from tuner.power.base import Response

from tuner.devices.sensors import open_clocks, open_meter
from tuner.devices.simulated.time_model import idle_watts
from tuner.measurement.measurer import TrialMeasurer
from tuner.measurement.settle import IdlePower


def test_net_joules_are_those_above_idle() -> None:
    """What the idle GPU would have drawn in the time of a round is taken off, with its uncertainty."""
    device = Watched()
    meter, _ = open_meter(device)
    assert meter is not None
    measurer = TrialMeasurer(device, meter)
    assert not measurer.knows_idle(None)
    before = measurer.measure(trial_of(PLANS), PLANS)
    assert before.energy is not None
    assert before.energy.net_joules is None
    spent_j = measurer.measure_idle(None)
    energy = measurer.measure(trial_of(PLANS), PLANS).energy
    assert measurer.knows_idle(None)
    assert energy is not None
    assert energy.idle_watts is not None
    assert energy.idle_watts == pytest.approx(idle_watts(device.gpu, 875), rel=0.02)
    assert spent_j > energy.idle_watts * 1.0
    round_s = energy.joules / energy.watts
    assert energy.net_joules == pytest.approx((energy.watts - energy.idle_watts) * round_s)
    assert energy.net_uncertainty_j is not None
    assert energy.net_uncertainty_j > energy.uncertainty_j
    later = measurer.with_idle(before, None).energy
    assert later is not None
    assert later.net_joules is not None


def test_idle_power_is_that_of_the_clock() -> None:
    """Idle power is read at the clock of the trials, and told only for trials at that clock."""
    device = Watched()
    clocks, _ = open_clocks(device)
    meter, _ = open_meter(device, clocks)
    with TrialMeasurer(device, meter, clocks) as measurer:
        for mhz in (875, 666):
            measurer.measure_idle(mhz)
        found = {mhz: measurer.measure(trial_of(PLANS, mhz), PLANS).energy for mhz in (875, 745, 666)}
    assert found[745] is not None
    assert found[745].idle_watts is None
    for mhz in (875, 666):
        energy = found[mhz]
        assert energy is not None
        assert energy.idle_watts == pytest.approx(idle_watts(device.gpu, mhz), rel=0.02)
    assert device.clock_mhz == 875


def test_idle_before_and_after_are_held_together() -> None:
    """Two readings give their mean; that they differ makes it uncertain by their distance over sqrt(12)."""
    idle = IdlePower(Watched(), FakeMeter())
    assert idle.of(None) is None
    idle.recall(None, 100.0, 0.5)
    idle.recall(None, 999.0, 0.5)
    assert idle.of(None) == (100.0, 0.5)
    idle.measure(None, 1.0)
    assert (idle.of(None) or ()) == pytest.approx((100.0, 0.5 / 2**0.5))
    meter = FakeMeter(watts=112.0)
    warm = IdlePower(Watched(), meter)
    warm.recall(None, 100.0, 0.5)
    warm.measure(None, 1.0)
    assert (warm.of(None) or ()) == pytest.approx((106.0, (0.125 + 12.0) ** 0.5))


def test_a_sensor_that_is_dated_early_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibrated delay may be negative: then there is nothing to wait for, and no time goes back."""
    device, meter = Watched(), FakeMeter()
    meter.info = replace(meter.info, response=Response(delay_s=-0.0058))
    waits_s: list[float] = []
    monkeypatch.setattr(device, "sleep", waits_s.append)
    IdlePower(device, meter).measure(None, 1.0)
    assert sum(waits_s) == pytest.approx(1.3)
    assert min(waits_s) >= 0.0


def test_idle_power_that_cannot_be_read_is_not_known() -> None:
    """A sensor that gives nothing costs the net joules, and nothing else."""
    measurer = TrialMeasurer(Watched(), FakeMeter(watts=None))
    assert measurer.measure_idle(None) == 7.0
    assert not measurer.knows_idle(None)
    assert TrialMeasurer(Watched()).knows_idle(None)
    assert TrialMeasurer(Watched()).measure_idle(None) == 0.0


def test_idle_power_survives_a_killed_run() -> None:
    """A resumed run takes the idle power from the stored trials, and need not read it again."""
    device = Watched()
    meter, _ = open_meter(device)
    first = TrialMeasurer(device, meter)
    first.measure_idle(None)
    known = first.measure(trial_of(PLANS), PLANS)
    resumed = TrialMeasurer(Watched(), FakeMeter())
    resumed.recall([(trial_of(PLANS), known)], [plan.workload for plan in PLANS])
    assert resumed.knows_idle(None)
    energy = resumed.measure(trial_of(PLANS), PLANS).energy
    assert energy is not None
    assert known.energy is not None
    assert energy.idle_watts == known.energy.idle_watts
