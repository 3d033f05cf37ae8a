"""The measurer's clocks: held, verified, given back; throttled windows measured again."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from fake_setup import NO_GRAPH, PLANS, FakeClocks, FakeMeter, Watched, trial_of
from tuner.power.base import ClockReading

from tuner.devices.base import RunRecord
from tuner.measurement.measurer import TrialMeasurer
from tuner.model.errors import ClockError, ClockLostError, ClockPermissionError, DeviceError
from tuner.model.plan import Plan
from tuner.model.trial import Flag, FlagKind

THROTTLED = ClockReading(700.0, ("sw-power-cap", "hw-thermal"))
CLEAN = ClockReading(875.0)


@pytest.mark.parametrize(
    ("clocks", "runs", "flagged"),
    [
        ([CLEAN], 1, False),
        ([THROTTLED, CLEAN], 2, False),
        ([THROTTLED, THROTTLED], 2, True),
    ],
)
def test_throttled_burst_is_measured_again(clocks: list[ClockReading], runs: int, flagged: bool) -> None:
    """A throttled burst is measured once more; what is still throttled then is flagged with its reasons."""
    device = Watched()
    measurement = TrialMeasurer(device, FakeMeter(clocks)).measure(trial_of(PLANS), PLANS)
    assert len(device.run_clocks) == runs
    assert (Flag(FlagKind.THROTTLED, "sw-power-cap, hw-thermal") in measurement.flags) == flagged
    assert measurement.energy_total_j == 7.0 * (1 + runs)
    assert measurement.ok


def test_windows_at_the_power_limit_are_longer() -> None:
    """Power swings with a period of a second there: windows are longer until one is not capped."""
    meter = FakeMeter([THROTTLED, THROTTLED, CLEAN, CLEAN])
    measurer = TrialMeasurer(Watched(), meter)
    lengths = [measurer.measure(trial_of(PLANS), PLANS).window_s for _ in range(3)]
    assert lengths == pytest.approx([1.5, 1.5, 0.79], rel=0.1)


def test_a_window_at_the_power_limit_is_not_measured_again() -> None:
    """The limit is the trial's own, and so are uneven rounds there; another reason beside it may pass."""
    limited = ClockReading(700.0, ("sw-power-cap",))

    class Swinging(Watched):
        def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
            record = super().run(plans, window_s)
            return replace(record, end_s=record.end_s + 0.05 * (record.end_s - record.start_s))

    device = Swinging()
    measurement = TrialMeasurer(device, FakeMeter([limited, limited])).measure(trial_of(PLANS), PLANS)
    assert len(device.run_clocks) == 1
    assert measurement.flag_kinds >= {FlagKind.THROTTLED, FlagKind.UNSTEADY}


def test_a_users_window_is_obeyed_at_the_power_limit() -> None:
    """A window that was asked for is as long as asked for, whatever the GPU does."""
    measurer = TrialMeasurer(Watched(), FakeMeter([THROTTLED] * 4), window_s=0.5)
    lengths = [measurer.measure(trial_of(PLANS), PLANS).window_s for _ in range(2)]
    assert lengths == pytest.approx([0.5, 0.5], rel=0.1)


def test_steady_throttling_is_not_measured_twice_for_ever() -> None:
    """After three windows measured again in vain, windows are flagged at once, until one is clean again."""
    device = Watched()
    meter = FakeMeter([THROTTLED] * 8 + [CLEAN, THROTTLED, CLEAN])
    measurer = TrialMeasurer(device, meter)
    counts = []
    for _ in range(7):
        before = len(device.run_clocks)
        measurer.measure(trial_of(PLANS), PLANS)
        counts.append(len(device.run_clocks) - before)
    assert counts == [2, 2, 2, 1, 1, 1, 2]


@pytest.mark.parametrize(
    ("seen", "flagged"), [(745.0, False), (810.0, False), (679.0, False), (880.0, True), (660.0, True)]
)
def test_off_clock_burst(seen: float, flagged: bool) -> None:
    """A median clock within one supported step of the clock set is on clock, anything else is flagged."""
    readings = [ClockReading(seen)] * 2
    device = Watched()
    with TrialMeasurer(device, FakeMeter(readings), FakeClocks()) as measurer:
        measurement = measurer.measure(trial_of(PLANS, 745), PLANS)
    assert (FlagKind.OFF_CLOCK in measurement.flag_kinds) == flagged
    assert len(device.run_clocks) == 1 + flagged


def settling(seen: list[float], readings: list[ClockReading] | None = None) -> tuple[Watched, TrialMeasurer]:
    """A trial at 745 MHz whose clock reads 345 MHz when it is set, and then what each load saw."""
    device, clocks = Watched(), FakeClocks(seen=[ClockReading(345.0)])
    meter = FakeMeter(readings or [ClockReading(mhz) for mhz in seen])
    return device, TrialMeasurer(device, meter, clocks)


def test_a_clock_is_waited_for_under_load() -> None:
    """After a clock was set, short loads run until it is seen to be there, once; their joules are counted."""
    device, measurer = settling([345.0, 510.0, 745.0, 745.0, 745.0])
    with measurer:
        measurement = measurer.measure(trial_of(PLANS, 745), PLANS)
        assert len(device.run_clocks) == 4
        assert measurement.flags == (NO_GRAPH,)
        assert measurement.energy_total_j == 7.0 * (1 + 3 + 1)
        measurer.measure(trial_of(PLANS, 745), PLANS)
    assert len(device.run_clocks) == 5


def test_a_clock_that_never_comes_is_flagged() -> None:
    """After five seconds of load the trial is measured all the same, once more, and flagged."""
    device, measurer = settling([345.0] * 99)
    with measurer:
        begun_s = device.now_s()
        measurement = measurer.measure(trial_of(PLANS, 745), PLANS)
    assert Flag(FlagKind.OFF_CLOCK, "345 MHz seen, 745 MHz set") in measurement.flags
    assert 5.0 < device.now_s() - begun_s < 9.0


def test_a_throttled_gpu_is_not_waited_for() -> None:
    """Where a limit holds the clock back no waiting brings it."""
    device, measurer = settling([], [THROTTLED] * 3)
    with measurer:
        measurement = measurer.measure(trial_of(PLANS, 745), PLANS)
    assert len(device.run_clocks) == 3
    assert FlagKind.THROTTLED in measurement.flag_kinds


def test_a_clock_is_waited_for_without_a_meter() -> None:
    """Without a sensor the control itself is asked, after each load."""
    device, clocks = (
        Watched(),
        FakeClocks(seen=[ClockReading(345.0), ClockReading(510.0), ClockReading(745.0)]),
    )
    with TrialMeasurer(device, None, clocks) as measurer:
        measurer.measure(trial_of(PLANS, 745), PLANS)
    assert len(device.run_clocks) == 3


def test_clock_is_held_across_trials() -> None:
    """Consecutive trials at one clock lock it once; another clock, none, and the end give it back first."""
    clocks = FakeClocks()
    with TrialMeasurer(Watched(), None, clocks) as measurer:
        for mhz in (810, 810, 745):
            measurer.measure(trial_of(PLANS, mhz), PLANS)
        assert clocks.events == ["810", "restored", "745"]
        measurer.measure(trial_of(PLANS), PLANS)
        assert clocks.events[3:] == ["restored"]
        measurer.measure(trial_of(PLANS, 745), PLANS)
    assert clocks.events[4:] == ["745", "restored"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), DeviceError("gone")])
def test_clock_is_restored_on_exceptions(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever passes through a measurement, the clock is given back before it leaves."""
    device, clocks = Watched(), FakeClocks()
    measurer = TrialMeasurer(device, None, clocks)

    def fail(*_: object) -> RunRecord:
        assert clocks.events == ["810"]
        raise error

    monkeypatch.setattr(device, "run", fail)
    with pytest.raises(type(error)):
        measurer.measure(trial_of(PLANS, 810), PLANS)
    assert clocks.events == ["810", "restored"]
    monkeypatch.undo()
    assert measurer.measure(trial_of(PLANS, 810), PLANS).ok
    assert clocks.events[2:] == ["810"]


@pytest.mark.parametrize("look", [TrialMeasurer.measure, TrialMeasurer.measure_idle])
def test_a_clock_that_is_lost_meanwhile_counts_for_nothing(
    look: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured at a clock that is not held any more is an error, and so is going on at it."""
    clocks = FakeClocks()
    measurer = TrialMeasurer(Watched(), FakeMeter(), clocks)
    measurer.measure(trial_of(PLANS, 810), PLANS)

    def lost() -> ClockReading:
        raise ClockLostError("nothing was heard for 10 s")

    monkeypatch.setattr(clocks, "read", lost)
    words = (trial_of(PLANS, 810), PLANS) if look is TrialMeasurer.measure else (810,)
    with pytest.raises(ClockLostError):
        look(measurer, *words)
    assert clocks.events == ["810", "restored"]


def test_clock_that_cannot_be_set() -> None:
    """A clock that cannot be set is an error of the run, not a measurement at another clock."""
    device = Watched()
    with pytest.raises(ClockPermissionError):
        TrialMeasurer(device, None, FakeClocks(denied=True)).measure(trial_of(PLANS, 810), PLANS)
    with pytest.raises(ClockError, match="810 MHz"):
        TrialMeasurer(device).measure(trial_of(PLANS, 810), PLANS)
    assert device.run_clocks == []
