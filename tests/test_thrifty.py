"""A thrifty measurer: short windows first, longer ones for contenders, joules where they can decide."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from fake_setup import PLANS, FakeClocks, FakeMeter, Watched, trial_of
from hypothesis import given
from hypothesis import strategies as st
from modelled import scan
from tuner.power.base import ClockReading, PowerReading

from tuner.devices.base import RunRecord
from tuner.devices.cuda.rounds import SINGLES
from tuner.measurement.base import ComparisonTarget
from tuner.measurement.measurer import TrialMeasurer
from tuner.measurement.race import RUNGS_S, SINGLE_REPEATABILITY
from tuner.measurement.window import JouleWindows, suggested_window_s
from tuner.model.errors import PowerError
from tuner.model.objective import COVERAGE, Objective
from tuner.model.plan import Plan
from tuner.model.trial import Energy, FlagKind, Measurement, Status

TIME, ENERGY = Objective("time"), Objective("energy")
WORSE = (scan(16, 64), PLANS[1])
LONE = PLANS[:1]
THROTTLED = ClockReading(700.0, ("hw-thermal-slowdown",))


class Timed(Watched):
    """A device that notes the windows it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_s: list[float] = []

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        self.asked_s.append(window_s)
        return replace(super().run(plans, window_s), flags=())


class Fast(Timed):
    """Its rounds are short against every window.

    Attributes:
        slower: factor of the time of a round.
        single: the same of single rounds.
        scatter: relative uncertainty of single rounds.
        uneven: rounds of windows differ from their median.
    """

    slower = single = 1.0
    scatter = 0.001
    uneven = False

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        record = super().run(plans, window_s)
        assert record.makespan_s is not None
        makespan_s = self.slower * record.makespan_s / 1e3
        rounds = round(window_s / makespan_s) or SINGLES
        if not window_s:
            makespan_s *= self.single
            record = replace(record, makespan_uncertainty_s=self.scatter * makespan_s)
        lasts_s = rounds * makespan_s * (2.0 if self.uneven and window_s else 1.0)
        return replace(record, makespan_s=makespan_s, rounds=rounds, end_s=record.start_s + lasts_s)


def race(
    device: Timed, clocks: FakeClocks | None = None, plans: Sequence[Plan] = PLANS
) -> tuple[TrialMeasurer, ComparisonTarget]:
    """A measurer that has measured one trial, and the comparison target of the next."""
    measurer = TrialMeasurer(device, clocks=clocks, thrifty=True)
    trial = trial_of(plans)
    best = measurer.measure(trial, plans, ComparisonTarget(TIME, None, 0))
    device.asked_s.clear()
    return measurer, ComparisonTarget(TIME, (trial, best), 1)


def test_the_first_trial_takes_every_look_behind_a_ramp() -> None:
    """Nothing is known yet: an idle GPU is brought up, and the windows grow."""
    device = Fast()
    measurement = TrialMeasurer(device, thrifty=True).measure(
        trial_of(PLANS), PLANS, ComparisonTarget(TIME, None, 0)
    )

    assert tuple(device.asked_s[1:]) == RUNGS_S
    assert measurement.energy is None
    assert measurement.makespan_uncertainty_s > 0, "from one window to another"


def test_a_trial_that_is_clearly_worse_takes_one_look() -> None:
    """A trial of twice the time is measured for three milliseconds."""
    device = Fast()
    measurer, target = race(device)
    device.slower = 2.0
    lost = measurer.measure(trial_of(WORSE), WORSE, target)

    assert device.asked_s == [RUNGS_S[0]]
    assert lost.ok
    assert target.best is not None
    assert TIME.cost(lost) > TIME.cost(target.best[1])


def test_a_lone_trial_that_is_clearly_worse_takes_single_rounds() -> None:
    """No window is opened for it, and its uncertainty includes what is between single rounds."""
    device = Fast()
    measurer, target = race(device, plans=LONE)
    device.slower = 1.1
    lost = measurer.measure(trial_of(WORSE[:1]), WORSE[:1], target)

    assert device.asked_s == [0.0]
    assert lost.ok
    assert lost.rounds == SINGLES
    assert lost.makespan_s is not None
    assert lost.makespan_uncertainty_s > SINGLE_REPEATABILITY * lost.makespan_s


@pytest.mark.parametrize(
    ("circumstances", "asked_s"),
    [
        pytest.param({"slower": 1.02}, [0.0, *RUNGS_S[:1]], id="it is nearly as fast"),
        pytest.param({"slower": 0.9}, [0.0, *RUNGS_S[:2]], id="it is the best"),
        pytest.param({"slower": 1.1, "scatter": 0.1}, [0.0, RUNGS_S[0]], id="clocks come up"),
    ],
)
def test_single_rounds_that_decide_nothing_are_followed_by_windows(
    circumstances: dict[str, float], asked_s: list[float]
) -> None:
    """Who may be the best, or whose single rounds scatter, is raced in windows."""
    device = Fast()
    measurer, target = race(device, plans=LONE)
    for name, value in circumstances.items():
        setattr(device, name, value)
    measurer.measure(trial_of(WORSE[:1]), WORSE[:1], target)

    assert device.asked_s == asked_s


@pytest.mark.parametrize("single", [1.05, 0.9])
def test_single_rounds_that_mislead_are_not_made(single: float) -> None:
    """The events around rounds of microseconds take a part of them; or the best was throttled in windows."""
    device = Fast()
    device.single = single
    measurer, target = race(device, plans=LONE)
    device.slower = 2.0
    measurer.measure(trial_of(WORSE[:1]), WORSE[:1], target)

    assert device.asked_s == [RUNGS_S[0]]


def test_rounds_of_several_launches_are_not_made_singly() -> None:
    """Without a graph the host may be what takes long."""
    device = Fast()
    plans = (replace(LONE[0], stages=LONE[0].stages * 2),)
    measurer, target = race(device, plans=plans)
    measurer.measure(trial_of(plans), plans, target)
    assert device.asked_s
    assert 0.0 not in device.asked_s


def test_windows_that_stay_spoilt_are_repeated_a_few_times_only() -> None:
    """Single rounds that show nothing do not make them hopeful again."""
    device = Fast()
    measurer, target = race(device, plans=LONE)
    device.uneven = True
    for _ in range(12):
        measurer.measure(trial_of(WORSE[:1]), WORSE[:1], target)
    device.asked_s.clear()
    measurer.measure(trial_of(WORSE[:1]), WORSE[:1], target)
    assert device.asked_s == [0.0, *RUNGS_S]


def test_single_rounds_are_held_against_single_rounds_only() -> None:
    """Those of the best are not known where it was measured before a run was resumed."""
    device = Fast()
    _, target = race(device, plans=LONE)
    resumed = TrialMeasurer(device, thrifty=True)
    device.slower = 2.0
    resumed.measure(trial_of(WORSE[:1]), WORSE[:1], target)

    assert device.asked_s[-2:] == [0.0, RUNGS_S[0]]


def test_a_throttled_window_throws_nobody_away() -> None:
    """It is measured again, and where that is throttled too the trial goes on to longer windows."""
    device, seen = Fast(), [ClockReading(875.0)] * 4
    clocks = FakeClocks(seen=seen)
    measurer, target = race(device, clocks)
    device.slower = 2.0
    clocks._seen = [THROTTLED, THROTTLED, ClockReading(875.0)]
    lost = measurer.measure(trial_of(WORSE), WORSE, target)

    assert device.asked_s == [RUNGS_S[0], RUNGS_S[0], RUNGS_S[1]]
    assert FlagKind.THROTTLED not in lost.flag_kinds
    clocks._seen = [THROTTLED] * 99
    device.asked_s.clear()
    held_back = measurer.measure(trial_of(WORSE), WORSE, target)
    assert set(device.asked_s) == set(RUNGS_S)
    assert FlagKind.THROTTLED in held_back.flag_kinds


def test_confirming_takes_windows_of_full_length() -> None:
    """Without a comparison target nothing is left out."""
    device = Fast()
    measurer, _ = race(device)
    measurer.measure(trial_of(PLANS), PLANS)

    assert device.asked_s == [measurer.window_s]


def test_a_gpu_that_idled_is_brought_up_again() -> None:
    """Short windows follow a window that does not count, where the host was long in asking."""
    device = Fast()
    measurer, target = race(device)
    device.sleep(1.0)
    measurer.measure(trial_of(PLANS), PLANS, target)

    assert len(device.asked_s) > 1
    assert device.asked_s[1] == RUNGS_S[0]


def test_a_window_that_was_asked_for_is_not_raced() -> None:
    """Without thrift every trial takes the same window."""
    device = Fast()
    measurer = TrialMeasurer(device, window_s=0.2)
    best = measurer.measure(trial_of(PLANS), PLANS)
    measurer.measure(trial_of(WORSE), WORSE, ComparisonTarget(TIME, (trial_of(PLANS), best), 1))

    assert device.asked_s == [0.2, 0.2]


def bounded(device: Timed, meter: FakeMeter) -> tuple[TrialMeasurer, ComparisonTarget]:
    """A measurer that knows the best trial's joules and the idle power."""
    measurer = TrialMeasurer(device, meter, thrifty=True)
    trial = trial_of(PLANS)
    best = measurer.measure(trial, PLANS, ComparisonTarget(ENERGY, None, 0))
    meter.watts = 60.0
    measurer.measure_idle(None)
    meter.watts = 100.0
    device.asked_s.clear()
    return measurer, ComparisonTarget(ENERGY, (trial, best), 1)


def test_a_trial_that_time_rules_out_has_no_joules() -> None:
    """At 60 W idle, twice the time is more than the best's joules at 100 W: no window for joules."""
    device, meter = Fast(), FakeMeter()
    measurer, target = bounded(device, meter)
    device.slower = 2.0
    measurer.measure(trial_of(WORSE), WORSE, target)
    device.asked_s.clear()
    recordings = meter.recordings
    spared = measurer.measure(trial_of(PLANS), PLANS, target)

    assert device.asked_s == [RUNGS_S[0]]
    assert meter.recordings == recordings
    assert spared.energy is None
    assert FlagKind.ESTIMATED in spared.flag_kinds
    assert target.best is not None
    assert ENERGY.cost(spared) > ENERGY.cost(target.best[1])


def test_no_bound_is_drawn_from_a_gpu_that_idled() -> None:
    """Its first milliseconds are slow, and would rule out the best: rounds that do not count come before."""
    device, meter = Fast(), FakeMeter()
    measurer, target = bounded(device, meter)
    device.sleep(5.0)
    measured = measurer.measure(trial_of(PLANS), PLANS, target)

    assert device.asked_s[0] > RUNGS_S[0] == device.asked_s[1]
    assert measured.energy is not None


@pytest.mark.parametrize(
    ("unsure_w", "searched", "windows"),
    [
        pytest.param(0.4, True, ["short"], id="as sure as wanted"),
        pytest.param(0.6, True, ["short", "full"], id="less sure than 1 %"),
        pytest.param(0.4, False, ["full"], id="a contender measured again"),
    ],
)
def test_a_trial_that_may_be_the_best_has_joules(
    unsure_w: float, windows: list[str], *, searched: bool
) -> None:
    """A full window follows a short one of the search only where that is less sure than 1 %."""
    device, meter = Fast(), FakeMeter()
    meter.uncertainty_w = 0.1
    measurer, target = bounded(device, meter)
    meter.uncertainty_w = unsure_w
    measured = measurer.measure(trial_of(PLANS), PLANS, target if searched else None)
    asked_s = [one for one in device.asked_s if one > RUNGS_S[-1]]  # others are for its time

    assert measured.energy is not None
    assert ["full" if one == measurer.window_s else "short" for one in asked_s] == windows
    assert max(asked_s) <= measurer.window_s


@given(st.lists(st.tuples(st.floats(0.01, 20.0), st.floats(0.0, 0.2)), max_size=8), st.floats(0.001, 0.5))
def test_windows_are_as_long_as_the_last_have_needed(
    seen: list[tuple[float, float]], precision: float
) -> None:
    """No window is longer than a full one, nor shorter than the sensor's least, whatever others stated."""
    info = FakeMeter.info
    full_s = suggested_window_s(info, precision)
    lengths = JouleWindows(info, precision, full_s)
    least_s = lengths.short_s
    for length_s, unsure in seen:
        window = Measurement(
            (), window_s=length_s, energy=Energy(2.0, 2.0 * unsure, 2.0, "fake-counter", "gpu")
        )
        lengths.learn(window)
        assert least_s <= lengths.short_s <= full_s
        assert lengths.suffices(window) == (COVERAGE * unsure <= precision or length_s >= full_s)
        if lengths.suffices(window):
            continue
        assert lengths.short_s >= min(length_s, full_s)


def test_the_fastest_trial_is_looked_for_with_full_windows() -> None:
    """A search for time with a meter precedes one for joules, which needs the joules of every trial."""
    device, meter = Fast(), FakeMeter()
    measurer, target = bounded(device, meter)
    device.slower = 2.0
    measured = measurer.measure(trial_of(PLANS), PLANS, replace(target, objective=TIME))

    assert measured.energy is not None
    assert device.asked_s == [measurer.window_s]


def test_a_sensor_that_dies_spares_nobody() -> None:
    """Without joules a trial is neither estimated nor clearly worse, and soon the run for energy ends."""

    class Dying(FakeMeter):
        def reading(self, start_s: float, end_s: float, round_s: float = 0.0) -> PowerReading | None:
            if self.watts is None:
                raise PowerError("the sensor is gone")
            return super().reading(start_s, end_s, round_s)

    device, meter = Fast(), Dying()
    measurer = TrialMeasurer(device, meter, thrifty=True, needs_energy=True)
    best = measurer.measure(trial_of(PLANS), PLANS, ComparisonTarget(ENERGY, None, 0))
    measurer.measure_idle(None)
    target = ComparisonTarget(ENERGY, (trial_of(PLANS), best), 1)
    measurer.measure(trial_of(PLANS), PLANS, target)
    meter.watts = None
    unknown = measurer.measure(trial_of(PLANS), PLANS, target)

    assert unknown.ok
    assert unknown.energy is None
    assert unknown.estimated_j is None
    assert ENERGY.cost(unknown) == math.inf
    with pytest.raises(PowerError, match="the sensor is gone"):
        measurer.measure(trial_of(PLANS), PLANS, target)


def test_a_hang_is_waited_for_once() -> None:
    """A trial that fails in the window before those that count has failed."""

    class Hanging(Fast):
        def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
            record = super().run(plans, window_s)
            results = tuple(replace(result, status=Status.TIMEOUT) for result in record.results)
            return RunRecord(results, start_s=record.start_s, end_s=record.start_s)

    device = Hanging()
    failed: Measurement = TrialMeasurer(device, thrifty=True).measure(
        trial_of(PLANS), PLANS, ComparisonTarget(TIME, None, 0)
    )
    assert failed.status is Status.TIMEOUT
    assert len(device.asked_s) == 1


@pytest.mark.parametrize("rounds", [1, 5])
def test_rounds_as_long_as_a_window_are_not_measured_thrice(rounds: int) -> None:
    """Where a short window is as long as the next one, the next one is left out."""
    device = Timed()
    TrialMeasurer(device, thrifty=True).measure(trial_of(PLANS), PLANS, ComparisonTarget(TIME, None, 0))

    assert len(device.asked_s) <= len(RUNGS_S) + rounds
    assert device.asked_s[1:] == sorted(set(device.asked_s[1:]))
