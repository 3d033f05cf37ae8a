"""The measurer: checks once, joules of a round, sensors found."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from fake_setup import NO_GRAPH, OTHER, PLANS, FakeClocks, FakeMeter, Watched, trial_of
from modelled import NoNvrtc, scan
from tuner.power.base import ClockReading, PowerReading, Response

from tuner.devices.base import RunRecord
from tuner.devices.sensors import open_clocks, open_meter
from tuner.devices.simulated.device import Faults, SimulatedDevice
from tuner.measurement.measurer import TrialMeasurer
from tuner.model.errors import ClockError, ClockLostError, ClockPermissionError, DeviceError, PowerError
from tuner.model.plan import Plan
from tuner.model.trial import Flag, FlagKind, Measurement, Status


def test_one_check_per_configuration() -> None:
    """Every configuration of a workload is checked once, all on the inputs of one seed."""
    device = Watched()
    measurer = TrialMeasurer(device)
    first = measurer.measure(trial_of(PLANS), PLANS)
    again = measurer.measure(trial_of(PLANS), PLANS)
    measurer.measure(trial_of(OTHER), OTHER)
    assert [plan for plan, _ in device.checked] == [*PLANS, OTHER[0]]
    first_seed, second_seed, third_seed = (seed for _, seed in device.checked)
    assert first_seed == third_seed != second_seed
    assert first.check_s > 0
    assert again.check_s == 0
    assert first.ok
    assert first.modelled


def shown(measurement: Measurement) -> tuple[str, ...]:
    return tuple(map(str, measurement.flags))


def test_seeds_repeat_with_the_run() -> None:
    """The same seed gives the same inputs, another seed others."""

    def seeds(seed: int) -> list[int]:
        device = Watched()
        TrialMeasurer(device, seed=seed).measure(trial_of(PLANS), PLANS)
        return [drawn for _, drawn in device.checked]

    assert seeds(1) == seeds(1)
    assert not set(seeds(1)) & set(seeds(2))


@pytest.mark.parametrize(
    "status",
    [Status.WRONG_ANSWER, Status.COMPILE_ERROR, Status.LAUNCH_ERROR, Status.TIMEOUT, Status.CRASHED],
)
def test_failed_check_ends_the_trial(status: Status) -> None:
    """A failed check is its workload's status; the others are ok without a time, and nothing is run."""
    device = Watched(Faults({"other": status}))
    meter = FakeMeter()
    measurer = TrialMeasurer(device, meter)
    measurement = measurer.measure(trial_of(PLANS), PLANS)
    assert [result.status for result in measurement.results] == [Status.OK, status]
    assert [result.time_s for result in measurement.results] == [None, None]
    assert measurement.results[0].detail == ""
    assert "told to fail" in measurement.results[1].detail
    assert measurement.status is status
    assert measurement.makespan_s is None
    assert measurement.energy is None
    assert measurement.energy_total_j == 7.0
    assert device.run_clocks == []
    again = measurer.measure(trial_of(PLANS), PLANS)
    assert again.status is status
    assert again.energy_total_j == 0.0
    assert len(device.checked) == 2


def test_failure_of_a_co_run_says_that_the_parts_were_right() -> None:
    """Where only the co-run fails, every workload says that it passed its check alone."""
    together = Faults(joint=lambda plans: [Status.CRASHED for _ in plans])
    measurement = TrialMeasurer(Watched(together), FakeMeter()).measure(trial_of(PLANS), PLANS)
    assert [result.status for result in measurement.results] == [Status.CRASHED, Status.CRASHED]
    assert all("passed its check alone" in result.detail for result in measurement.results)
    assert measurement.energy is None
    assert measurement.energy_total_j == 14.0


def test_failure_of_a_lone_run_is_told_as_it_is() -> None:
    """One workload alone has no co-run to blame."""
    faults = Faults(joint=lambda plans: [Status.LAUNCH_ERROR for _ in plans])
    measurement = TrialMeasurer(Watched(faults)).measure(trial_of(PLANS[:1]), PLANS[:1])
    assert measurement.status is Status.LAUNCH_ERROR
    assert "alone" not in measurement.results[0].detail


def test_energy_of_a_round() -> None:
    """Joules of a round are watts by the time of a round of the window, and so is their uncertainty."""
    device, meter = Watched(), FakeMeter()
    measurement = TrialMeasurer(device, meter, window_s=0.5).measure(trial_of(PLANS), PLANS)
    (window,) = meter.windows
    assert measurement.window_s == pytest.approx(window[1] - window[0])
    assert measurement.window_s == pytest.approx(0.5, rel=0.1)
    assert measurement.energy is not None
    assert measurement.makespan_s is not None
    assert measurement.energy.joules == pytest.approx(100.0 * measurement.makespan_s)
    assert measurement.energy.uncertainty_j == pytest.approx(0.5 * measurement.makespan_s)
    assert measurement.energy.watts == 100.0
    assert measurement.energy.sensor == "fake-counter"
    assert measurement.energy_total_j == 14.0
    assert measurement.flags == (NO_GRAPH,)
    assert measurement.clock_mhz == 875.0


@pytest.mark.parametrize(
    ("longer", "flags"),
    [
        (1.008, ()),
        (1.03, ("unsteady: mean round +3.0% from the median",)),
        (0.97, ("unsteady: mean round -3.0% from the median",)),
    ],
)
def test_mean_round_away_from_the_median_is_flagged(longer: float, flags: tuple[str, ...]) -> None:
    """Joules are of the mean round and times of the median one: over a percent between them is told."""

    class Uneven(Watched):
        def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
            record = super().run(plans, window_s)
            return replace(record, end_s=record.start_s + longer * (record.end_s - record.start_s), flags=())

    assert shown(TrialMeasurer(Uneven()).measure(trial_of(PLANS), PLANS)) == flags


def test_a_window_with_a_stall_is_measured_again() -> None:
    """A host that paused in one window costs another window, not a percent of joules; one in all is told."""

    class Stalled(Watched):
        stalls = 1

        def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
            record = replace(super().run(plans, window_s), flags=())
            self.stalls -= 1
            if self.stalls < 0:
                return record
            return replace(record, end_s=record.end_s + 0.05 * (record.end_s - record.start_s))

    device = Stalled()
    measurer = TrialMeasurer(device, FakeMeter())
    assert measurer.measure(trial_of(PLANS), PLANS).flags == ()
    assert len(device.run_clocks) == 2
    device.stalls, device.run_clocks = 99, []
    flags = [shown(measurer.measure(trial_of(PLANS), PLANS)) for _ in range(5)]
    assert flags == [("unsteady: mean round +5.0% from the median",)] * 5
    assert len(device.run_clocks) == 3 * 2 + 2, "given up after three in vain"


def test_a_window_measured_again_is_told_to_who_looks_for_it(caplog: pytest.LogCaptureFixture) -> None:
    """It is a line for DEBUG, with configurations and flags as people write them."""

    class Stalled(Watched):
        def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
            record = replace(super().run(plans, window_s), flags=())
            return replace(record, end_s=record.end_s + 0.05 * (record.end_s - record.start_s))

    with caplog.at_level("DEBUG", logger="tuner.measurement.measurer"):
        TrialMeasurer(Stalled()).measure(trial_of(PLANS), PLANS)
    (line,) = [record for record in caplog.records if record.name == "tuner.measurement.measurer"]
    assert line.levelname == "DEBUG"
    together = " | ".join(str(plan.configuration) for plan in PLANS)
    assert line.getMessage() == f"measured again: {together}: unsteady: mean round +5.0% from the median"


def test_uncertainty_of_the_makespan_is_the_devices() -> None:
    """The measurement carries what the device says of its makespan."""

    class Sure(Watched):
        def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
            return replace(super().run(plans, window_s), makespan_uncertainty_s=1.5e-6)

    assert TrialMeasurer(Sure()).measure(trial_of(PLANS), PLANS).makespan_uncertainty_s == 1.5e-6


def test_sensor_without_an_answer_is_flagged() -> None:
    """A window the sensor cannot answer for has no energy, never zero, and says so."""
    measurement = TrialMeasurer(Watched(), FakeMeter(watts=None)).measure(trial_of(PLANS), PLANS)
    assert measurement.ok
    assert measurement.energy is None
    assert FlagKind.NO_ENERGY in measurement.flag_kinds


def test_recalled_answers_are_not_checked_again() -> None:
    """A resumed run knows right and wrong answers, and checks anew what a crash left open."""
    device = Watched()
    measurer = TrialMeasurer(device)
    known = measurer.measure(trial_of(PLANS), PLANS)
    resumed_device = Watched()
    resumed = TrialMeasurer(resumed_device)
    crashed = Measurement(tuple(replace(r, status=Status.CRASHED) for r in known.results))
    wrong = replace(known.results[0], status=Status.WRONG_ANSWER, detail="error 1, allowed 0")
    workloads = [plan.workload for plan in PLANS]
    resumed.recall([(trial_of(OTHER), crashed)], [plan.workload for plan in OTHER])
    resumed.measure(trial_of(PLANS), PLANS)
    assert [plan for plan, _ in resumed_device.checked] == list(PLANS)
    resumed = TrialMeasurer(resumed_device)
    resumed.recall([(trial_of(PLANS), replace(known, results=(wrong, known.results[1])))], workloads)
    measurement = resumed.measure(trial_of(PLANS), PLANS)
    assert len(resumed_device.checked) == 2
    assert measurement.results[0].detail == "error 1, allowed 0"


def test_simulated_device_with_its_own_sensor() -> None:
    """The modelled energy of a round is what the model spends, within three standard uncertainties."""
    device = Watched()
    clocks, no_clocks = open_clocks(device)
    meter, no_meter = open_meter(device, clocks)
    assert (no_clocks, no_meter) == ("", "")
    assert meter is not None
    with TrialMeasurer(device, meter, clocks) as measurer:
        fast = measurer.measure(trial_of(PLANS, 875), PLANS)
        (_, _, watts) = device.power_segments(device.now_s() - 0.01)[-1]
        slow = measurer.measure(trial_of(PLANS, 666), PLANS)
    assert device.run_clocks == [875, 666]
    for measurement, mhz in ((fast, 875.0), (slow, 666.0)):
        assert measurement.ok
        assert measurement.flags == (NO_GRAPH,)
        assert measurement.clock_mhz == mhz
        assert measurement.energy is not None
        assert measurement.energy_total_j > measurement.energy.joules * measurement.rounds * 0.9
    assert fast.energy is not None
    assert slow.energy is not None
    assert abs(fast.energy.watts - watts) < 0.02 * watts
    assert fast.energy.uncertainty_j < 0.05 * fast.energy.joules
    assert slow.energy.watts < fast.energy.watts
    assert device.clock_mhz == 875


def test_board_without_a_sensor() -> None:
    """Where there is no power sensor, time is measured and the reason is told."""
    device = SimulatedDevice("gtx580", 0, NoNvrtc())
    meter, why = open_meter(device)
    assert meter is None
    assert "no power sensor" in why
    plans = (scan(4, 256),)
    measurement = TrialMeasurer(device, meter).measure(trial_of(plans), plans)
    assert measurement.ok
    assert measurement.energy is None
    assert measurement.energy_total_j == 0.0


def test_the_meter_is_told_the_period_of_rounds() -> None:
    """A load in step with a sensor is one whose rounds are: window and number of rounds tell their period."""
    told: list[tuple[float, float]] = []

    class Listening(FakeMeter):
        def reading(self, start_s: float, end_s: float, round_s: float = 0.0) -> PowerReading | None:
            told.append((end_s - start_s, round_s))
            return super().reading(start_s, end_s)

    measurement = TrialMeasurer(Watched(), Listening()).measure(trial_of(PLANS), PLANS)

    window_s, round_s = told[-1]
    assert measurement.makespan_s is not None
    assert round_s == pytest.approx(measurement.makespan_s, rel=0.05)
    assert window_s / round_s == pytest.approx(round(window_s / round_s))


def test_a_sensor_that_is_lost_ends_a_run_for_energy() -> None:
    """Where joules are needed, three windows without an answer are the end; where not, they are flagged."""

    class Lost(FakeMeter):
        def reading(self, start_s: float, end_s: float, round_s: float = 0.0) -> PowerReading | None:
            del start_s, end_s, round_s
            raise PowerError("fake-counter stopped answering: GPU is lost")

    needed = TrialMeasurer(Watched(), Lost(), needs_energy=True)
    flags = [shown(needed.measure(trial_of(PLANS), PLANS)) for _ in range(2)]
    assert all("no-energy: fake-counter stopped answering: GPU is lost" in found for found in flags)
    with pytest.raises(PowerError, match=r"3 windows in a row: .*GPU is lost"):
        needed.measure(trial_of(PLANS), PLANS)
    other = TrialMeasurer(Watched(), Lost())
    assert all(other.measure(trial_of(PLANS), PLANS).ok for _ in range(5))


def test_what_the_reading_notes_is_flagged() -> None:
    """A gap or an aliasing sensor is a flag of the measurement, beside its energy."""
    meter = FakeMeter()
    meter.notes = ("sensor-gap: no sample for 1 s of 3 s",)
    measurement = TrialMeasurer(Watched(), meter).measure(trial_of(PLANS), PLANS)
    assert measurement.energy is not None
    assert Flag(FlagKind.SENSOR_GAP, "no sample for 1 s of 3 s") in measurement.flags


def test_a_late_sensor_is_waited_for() -> None:
    """The recording goes on for the sensor's delay, so that the window's end is among the samples."""
    device, meter = Watched(), FakeMeter()
    meter.info = replace(meter.info, response=Response(delay_s=0.2))
    TrialMeasurer(device, meter).measure(trial_of(PLANS), PLANS)
    assert device.now_s() - meter.windows[-1][1] == pytest.approx(0.2)


# --- the measurer's clocks: held, verified, given back; throttled windows measured again -----------


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
