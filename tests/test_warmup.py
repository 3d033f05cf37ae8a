"""Joules that are flat are waited for, also after a change of clock; idle power, and joules above it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fake_setup import PLANS, FakeClocks, FakeMeter, Watched, trial_of
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.base import PowerReading, Response, SensorInfo

from tuner.devices.sensors import open_clocks, open_meter
from tuner.devices.simulated.time_model import idle_watts
from tuner.measurement.measurer import TrialMeasurer
from tuner.measurement.settle import COLD_S, NEW_CLOCK_S, IdlePower, WarmUp
from tuner.measurement.window import suggested_window_s
from tuner.model.trial import Energy, Flag, FlagKind, GpuSetting, Measurement, Status, WorkloadResult


class Bench:
    """Windows of a second that show the watts they are handed, the last one again and again."""

    def __init__(self, watts: Sequence[float | None], *, u_w: float = 0.0, window_s: float = 1.0) -> None:
        self.watts = list(watts)
        self.u_w, self.window_s = u_w, window_s
        self.now = 0.0
        self.told: list[tuple[float, float]] = []
        self.warmth = WarmUp(lambda: self.now, lambda watts, seconds: self.told.append((watts, seconds)))

    def window(self) -> Measurement:
        self.now += self.window_s
        watts = self.watts.pop(0) if len(self.watts) > 1 else self.watts[0]
        energy = None if watts is None else Energy(watts, self.u_w, watts, "s", "gpu")
        return Measurement((WorkloadResult(Status.OK, 1.0),), 1.0, energy=energy)

    def settle(self, clock_mhz: int | None = None, power_limit_w: int | None = None) -> list[Measurement]:
        return self.warmth.settle(GpuSetting(clock_mhz, power_limit_w), self.window)


def test_a_new_power_limit_is_waited_for() -> None:
    """At another power limit the GPU settles again, as at another clock."""
    bench = Bench([100.0, 100.0, 70.0, 65.0, 65.0, 65.0])

    assert [len(bench.settle(None, limit_w)) for limit_w in (None, 200, 200)] == [2, 3, 1]


def test_a_cold_gpu_is_warmed_until_joules_are_flat() -> None:
    """Windows go on until two in a row agree within 0.5 %; the last one counts, each is told."""
    bench = Bench([580.0, 590.0, 598.0, 600.0, 605.0])
    measured = bench.settle()

    assert [m.energy.watts for m in measured if m.energy] == [580.0, 590.0, 598.0, 600.0]
    assert measured[-1].flags == ()
    assert bench.told == [(580.0, 1.0), (590.0, 2.0), (598.0, 3.0), (600.0, 4.0)]
    assert bench.warmth.notices == []


def test_a_warm_gpu_is_measured_once() -> None:
    """After the first trial, one at the same clock takes one window."""
    bench = Bench([600.0, 600.0, 500.0, 400.0])
    bench.settle()

    assert len(bench.settle()) == 1
    assert len(bench.settle()) == 1


def rising(step: float) -> list[float | None]:
    return [100.0 * (1.0 + step) ** n for n in range(100)]


@pytest.mark.parametrize(("cold", "limit_s"), [(True, COLD_S), (False, NEW_CLOCK_S)])
def test_what_never_settles_is_flagged(cold: bool, limit_s: float) -> None:
    """Waiting ends after 6 s of warm-up, or 3 s at a new clock: the measurement says so, and the run."""
    bench = Bench([100.0, 100.0] if not cold else rising(0.01))
    if not cold:
        bench.settle()
        bench.watts = rising(0.01)
    begun_s = bench.now
    measured = bench.settle(None if cold else 900)

    assert bench.now - begun_s == limit_s
    assert measured[-1].flags == (
        Flag(FlagKind.UNSETTLED, f"energy still changed by +1.0% after {limit_s:g} s"),
    )
    assert len(bench.warmth.notices) == cold


def test_a_new_clock_is_waited_for_once() -> None:
    """At another clock than that of the trial before, the GPU settles again."""
    bench = Bench([100.0, 100.0, 70.0, 65.0, 65.0, 65.0, 98.0, 100.0, 100.0])
    counts = [len(bench.settle(mhz)) for mhz in (None, 900, 900, None)]

    assert counts == [2, 3, 1, 3]
    assert len(bench.told) == 2, "only a warm-up is told"


def test_noise_is_no_drift() -> None:
    """Windows whose intervals overlap are flat: a sensor that sees no better is not waited for."""
    assert len(Bench([100.0, 103.0], u_w=1.0).settle()) == 2
    assert len(Bench([100.0, 103.0, 103.0], u_w=0.1).settle()) == 3


def test_short_windows_are_held_against_earlier_ones() -> None:
    """Windows of 0.1 s that follow each other would all look alike: half a second lies between."""
    slow = [100.0 * 1.002**n for n in range(12)]

    assert len(Bench([*slow, slow[-1]], window_s=0.1).settle()) > 12
    assert len(Bench([100.0], window_s=0.1).settle()) == 6


def test_one_long_window_is_enough() -> None:
    """A window that is as long as the warm-up may be is one."""
    measured = Bench([100.0, 200.0], window_s=30.0).settle()

    assert len(measured) == 1
    assert measured[0].flags == ()


@pytest.mark.parametrize("watts", [[None], [500.0, None]])
def test_without_joules_there_is_nothing_to_wait_for(watts: list[float | None]) -> None:
    """A trial that failed, and a sensor that is silent, end the waiting; the GPU is still cold then."""
    bench = Bench(watts)

    assert len(bench.settle()) == len(watts)
    assert bench.warmth.cold


def test_a_rail_without_load_is_flat() -> None:
    """Nothing divides by a power of nought."""
    assert len(Bench([0.0, 0.0]).settle()) == 2


def test_a_virtual_gpu_stays_warm() -> None:
    """A resumed run on a simulated device goes on as the killed one would have."""
    bench = Bench([100.0, 200.0])
    bench.warmth.take_over(GpuSetting(900))

    assert len(bench.settle(900)) == 1


# --- in a measurer -------------------------------------------------------------------------------


class Warming(FakeMeter):
    """A meter that shows the watts it is handed for windows, one after another."""

    def __init__(self, watts: Sequence[float | None]) -> None:
        super().__init__()
        self.shown = list(watts)

    def reading(self, start_s: float, end_s: float, round_s: float = 0.0) -> PowerReading | None:
        super().reading(start_s, end_s, round_s)
        return PowerReading(self.shown.pop(0) or 0.0, 0.01, "fake-counter", "gpu")


def warmed(watts: Sequence[float | None]) -> TrialMeasurer:
    device = Watched()
    return TrialMeasurer(device, Warming(watts), warm_up=WarmUp(device.now_s))


def test_idle_power_is_read_warm() -> None:
    """Idle power is read after the first trial, whose last window it serves, and its joules are counted."""
    measurer = warmed([95.0, 99.0, 100.0, 100.0, 40.0, 101.0])
    first = measurer.measure(trial_of(PLANS), PLANS)

    assert first.energy is not None
    assert (first.energy.watts, first.energy.idle_watts) == (100.0, 40.0)
    assert first.energy_total_j == 7.0 * (1 + 4 + 1), "check, windows, idle"
    second = measurer.measure(trial_of(PLANS), PLANS)
    assert second.energy is not None
    assert (second.energy.watts, second.energy.idle_watts) == (101.0, 40.0)
    assert second.energy_total_j == 7.0
    assert measurer.windows_s == pytest.approx(5 * first.window_s)


def test_ctrl_c_in_the_warm_up_gives_the_clock_back() -> None:
    """Whatever passes through a warm-up, the clock is restored before it leaves."""

    def stop(*told: float) -> None:
        raise KeyboardInterrupt(told)

    device, clocks = Watched(), FakeClocks()
    measurer = TrialMeasurer(device, Warming([90.0, 95.0]), clocks, warm_up=WarmUp(device.now_s, stop))
    with pytest.raises(KeyboardInterrupt):
        measurer.measure(trial_of(PLANS, 810), PLANS)

    assert clocks.events == ["810", "restored"]


def test_what_never_settled_is_a_notice() -> None:
    """The run's notices say that the first trials may be off."""
    measurer = warmed(rising(0.01))
    measurer.measure(trial_of(PLANS), PLANS)

    assert [notice.partition(":")[0] for notice in measurer.notices] == ["unsettled"]


def test_without_a_sensor_nothing_is_warmed() -> None:
    """A time search without a sensor spends nothing on it."""
    device = Watched()
    TrialMeasurer(device, warm_up=WarmUp(device.now_s)).measure(trial_of(PLANS), PLANS)

    assert len(device.run_clocks) == 1


# --- how long a measuring window must be for a sensor ----------------------------------------------


COUNTER = SensorInfo("counter", "counter", "gpu", period_s=0.1)
RING = SensorInfo("ring", "ring", "gpu", period_s=0.02, response=Response("lag", 0.017))
K40 = SensorInfo("stream", "stream", "gpu", period_s=0.015, response=Response("lag", 0.79))
TILES = SensorInfo("stream", "stream", "gpu", period_s=0.1, response=Response("boxcar", window_s=0.1))
MEAN = SensorInfo("stream", "stream", "gpu", period_s=0.1, response=Response("ramp", window_s=1.0))


@pytest.mark.parametrize(
    ("info", "precision", "window_s"),
    [
        (None, 0.01, 0.015),
        (COUNTER, 0.01, 0.79),
        (COUNTER, 0.02, 0.5),
        (COUNTER, 0.005, 1.49),
        (RING, 0.01, 0.5),
        (K40, 0.01, 2.22),
        (K40, 0.02, 1.11),
        (TILES, 0.01, 0.9),
        (MEAN, 0.01, 2.0),
        (COUNTER, 0.0001, 10.0),
    ],
)
def test_suggested_window(info: SensorInfo | None, precision: float, window_s: float) -> None:
    """A window is as long as ticks, samples, lags and means need for the precision, within bounds."""
    assert suggested_window_s(info, precision) == pytest.approx(window_s, abs=0.01)


@given(st.sampled_from((COUNTER, RING, K40, TILES, MEAN)), st.floats(1e-4, 0.4), st.floats(1.0, 2.0))
def test_more_precision_is_never_shorter(info: SensorInfo, precision: float, looser: float) -> None:
    """A wider interval never asks for a longer window."""
    assert suggested_window_s(info, precision) >= suggested_window_s(info, min(precision * looser, 0.5))


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
