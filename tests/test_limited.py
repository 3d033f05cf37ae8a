"""Trials at the power limit: flagged with both numbers, in windows that are long enough."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fake_setup import PLANS, FakeMeter, Watched, trial_of
from modelled import NoNvrtc, scan
from tuner.power.base import ClockReading

from tuner.devices.sensors import open_clocks, open_meter
from tuner.devices.simulated.device import SimulatedDevice
from tuner.measurement.measurer import TrialMeasurer
from tuner.measurement.paired import join
from tuner.measurement.race import JouleBounds
from tuner.measurement.settle import LimitedWindows
from tuner.model.trial import Energy, Flag, FlagKind, GpuSetting, Measurement, Status, WorkloadResult

LIMIT = ClockReading(1980.0, (), 100.0)


def window(joules: float, length_s: float, *, limited: bool = True) -> Measurement:
    flags = (Flag(FlagKind.POWER_LIMIT, "700 W of 700 W"),) if limited else ()
    energy = Energy(joules, 0.1 * joules, 700.0, "s", "gpu")
    return Measurement(
        (WorkloadResult(Status.OK, 1e-3),), 1e-3, window_s=length_s, energy=energy, flags=flags
    )


def lengths(joules: Sequence[float], windows: LimitedWindows) -> list[float]:
    """Lengths of the windows behind the first one, of which each gives the next of ``joules``."""
    left = list(joules[1:])
    found = windows.lengthened(
        window(joules[0], 0.8), lambda length_s: window(left.pop(0), length_s), lambda _: False
    )
    return [one.window_s for one in found]


@pytest.mark.parametrize(
    ("watts", "reading", "flag"),
    [
        (98.0, LIMIT, "power-limit: 98 W of 100 W"),
        (104.6, LIMIT, "power-limit: 105 W of 100 W"),
        (97.9, LIMIT, None),
        (104.0, ClockReading(1980.0, (), None), None),
        (104.0, replace(LIMIT, limit_scope="VDD_IN"), None),
    ],
)
def test_watts_at_the_limit_are_flagged(watts: float, reading: ClockReading, flag: str | None) -> None:
    """From 98 % of a limit of the same scope the trial says so with both numbers, unthrottled too."""
    measurer = TrialMeasurer(Watched(), FakeMeter([reading] * 9, watts), window_s=0.5)
    measurement = measurer.measure(trial_of(PLANS), PLANS)

    told = [str(one) for one in measurement.flags if one.kind is FlagKind.POWER_LIMIT]
    assert told == ([] if flag is None else [flag])
    assert measurement.at_power_limit == (flag is not None)


def test_repeats_at_the_limit_have_one_flag() -> None:
    """Of several powers the last is told, beside what else the repeats say."""
    other = Flag(FlagKind.NO_GRAPH, "a test")
    repeats = [
        replace(window(1.0, 0.8), flags=(Flag(FlagKind.POWER_LIMIT, f"{watts} W of 700 W"), other))
        for watts in (701, 703, 702)
    ]

    assert set(map(str, join(repeats).flags)) == {"power-limit: 702 W of 700 W", str(other)}


def test_windows_grow_until_joules_are_flat() -> None:
    """Each is twice as long; two within 0.5 % end it, and the next trial begins near what was enough."""
    windows = LimitedWindows(0.8, 0.01)

    assert lengths([1.0, 0.95, 0.93, 0.929], windows) == [1.6, 3.2, 6.4]
    assert lengths([1.0, 0.95, 0.949], windows) == [3.2, 6.4]
    assert lengths([1.0, 1.0], LimitedWindows(0.8, 0.01)) == [1.6]


def test_what_is_not_flat_in_the_longest_window_is_said() -> None:
    """Windows end at eight times the usual one; what still changes then is a flag."""
    left = [0.9, 0.8, 0.7]
    found = LimitedWindows(0.8, 0.01).lengthened(
        window(1.0, 0.8), lambda length_s: window(left.pop(0), length_s), lambda _: False
    )

    assert str(found[-1].flags[-1]) == "unsettled: energy still changed by -12.5% in windows of 6.4 s"


def test_no_more_is_measured_of_what_cannot_win_or_leaves_the_limit() -> None:
    """A trial that is clearly worse needs no longer window; one that left the limit is at it no more."""
    windows = LimitedWindows(0.8, 0.01)
    first = window(1.0, 0.8)

    assert windows.lengthened(first, lambda length_s: window(0.9, length_s), lambda _: True) == []
    found = windows.lengthened(first, lambda length_s: window(0.9, length_s, limited=False), lambda _: False)
    assert [one.window_s for one in found] == [1.6]


@pytest.mark.parametrize(
    ("joules", "enough_s"),
    [((1.0,), 0.8), ((1.0, 0.9985), 0.8), ((1.0, 0.99, 0.986), 3.2 * 0.8), ((1.0, 0.9), 1.6)],
)
def test_a_length_is_enough_that_leaves_what_is_flat(joules: Sequence[float], enough_s: float) -> None:
    """Of what the last window has changed by as much is left in it, and more in shorter ones."""
    windows = [window(each, 0.8 * 2**place) for place, each in enumerate(joules)]

    assert LimitedWindows(0.8, 0.01).enough_of(windows) == pytest.approx(enough_s, rel=0.02)


@pytest.mark.parametrize(
    ("held_w", "watts", "enough"),
    [
        ((699.0, 697.5), 700.0, True),
        ((699.0, 697.5), 716.0, False),
        ((699.0, 697.5), 692.0, False),
        ((699.0,), 699.0, False),
    ],
)
def test_power_of_trials_that_were_held_tells_a_window_that_is_enough(
    held_w: Sequence[float], watts: float, *, enough: bool
) -> None:
    """Two trials in long windows tell it, at their clock and power limit alone; joules follow power there."""
    bounds, setting = JouleBounds(), GpuSetting()
    for each in held_w:
        bounds.add_held(setting, replace(window(1.0, 6.4), energy=Energy(1.0, 0.01, each, "s", "gpu")))
    short = replace(window(1.0, 0.8), energy=Energy(1.0, 0.01, watts, "s", "gpu"))

    assert bounds.draws_as_held(short, setting) is enough
    assert not bounds.draws_as_held(short, GpuSetting(clock_mhz=1000))


def test_a_trial_at_the_limit_is_measured_again_in_one_window() -> None:
    """The length that was enough for it is known; that of another trial there is the longest of the run."""
    plans, other = [scan(4, 256)], [scan(8, 128)]
    device = SimulatedDevice("h200", 0, NoNvrtc(), noise=0.0)
    device.set_power_limit_w(620)
    clocks, _ = open_clocks(device)
    meter, _ = open_meter(device, clocks)
    measurer = TrialMeasurer(device, meter, clocks, thrifty=True)
    first = measurer.measure(trial_of(plans), plans)
    before_s = measurer.windows_s
    again = measurer.measure(trial_of(plans), plans)

    assert first.energy is not None
    assert again.energy is not None
    assert measurer.windows_s - before_s == pytest.approx(again.window_s)
    assert 0.5 * first.window_s <= again.window_s <= first.window_s
    assert again.energy.joules == pytest.approx(first.energy.joules, rel=0.006)
    assert measurer.measure(trial_of(other), other).window_s >= 0.9 * again.window_s


def test_a_modelled_gpu_over_its_limit_is_measured_until_it_is_held() -> None:
    """Joules of an H200 whose limit is lowered to 620 W come near those of a long run, and say why."""
    plans = [scan(4, 256)]
    device = SimulatedDevice("h200", 0, NoNvrtc(), noise=0.0)
    device.set_power_limit_w(620)
    clocks, _ = open_clocks(device)
    meter, _ = open_meter(device, clocks)
    usual = TrialMeasurer(device, meter, clocks, window_s=0.8).measure(trial_of(plans), plans)
    found = TrialMeasurer(device, meter, clocks).measure(trial_of(plans), plans)
    long = TrialMeasurer(device, meter, clocks, window_s=60.0).measure(trial_of(plans), plans)

    assert usual.energy is not None
    assert found.energy is not None
    assert long.energy is not None
    assert found.window_s > 1.5
    assert FlagKind.POWER_LIMIT in usual.flag_kinds & found.flag_kinds
    assert usual.energy.joules > 1.008 * long.energy.joules
    assert found.energy.joules == pytest.approx(long.energy.joules, rel=0.006)
