"""The model of time and power over the clock: what it recovers from few points, and how sure it is."""

import math
from dataclasses import replace

import numpy as np
import pytest
from clock_lines import BOTH, CORES, FLAT, StatedLine
from examples import FEW
from hypothesis import given
from hypothesis import strategies as st
from tuner.policies.clock_model import ClockModel
from tuner.policies.steering import MOST_MODELLED, curve

from tuner.model.trial import Flag, FlagKind, Status, WorkloadResult

DESIGN = (1980, 1485, 1095, 795)
RANGE = tuple(mhz for mhz in FLAT.clocks_mhz if mhz >= 795)

lines = st.builds(
    StatedLine,
    memory_s=st.floats(50e-6, 400e-6),
    cores_s_mhz=st.floats(0.05, 0.8),
    exponent=st.sampled_from((1.0, 2.0, 4.0, 8.0)),
    static_w=st.floats(40.0, 200.0),
    switched_w=st.floats(100.0, 500.0),
    knee_mhz=st.floats(700.0, 1500.0),
    low=st.floats(0.6, 0.95),
)


def fitted(line: StatedLine, clocks: tuple[int, ...] = DESIGN) -> ClockModel:
    return ClockModel([(mhz, line.measurement(mhz)) for mhz in clocks])


@FEW
@given(lines)
def test_four_clocks_tell_the_others(line: StatedLine) -> None:
    """Times to 2 %; joules less well where a knee lies between two clocks, but no worse than is said."""
    found = fitted(line).at(RANGE)

    off_time = np.abs(found.time_s / [line.time_s(mhz) for mhz in RANGE] - 1)
    off_joules = np.abs(found.joules / [line.joules(mhz) for mhz in RANGE] - 1)
    assert np.all(off_time < 0.02)
    assert np.median(off_joules) < 0.05
    assert np.all(off_time < 4 * found.time_relative)
    assert np.all(off_joules < 5 * found.joules_relative)


@FEW
@given(lines)
def test_measured_clocks_are_met(line: StatedLine) -> None:
    """At a clock that was measured the model says what was measured."""
    found = fitted(line).at(DESIGN)

    assert found.time_s == pytest.approx([line.time_s(mhz) for mhz in DESIGN], rel=0.005)
    assert found.joules == pytest.approx([line.joules(mhz) for mhz in DESIGN], rel=0.015)


@FEW
@given(lines, st.floats(1e-3, 1e3))
def test_units_do_not_matter(line: StatedLine, factor: float) -> None:
    """A workload that is so many times longer is modelled as so many times longer."""
    longer = replace(line, memory_s=factor * line.memory_s, cores_s_mhz=factor * line.cores_s_mhz)
    one, other = fitted(line).at(RANGE), fitted(longer).at(RANGE)

    assert other.time_s == pytest.approx(factor * one.time_s, rel=1e-4)
    assert other.joules == pytest.approx(factor * one.joules, rel=1e-3)


def test_extrapolation_is_less_sure() -> None:
    """Far below the lowest measured clock both are known worse."""
    found = fitted(FLAT).at((795, 345))

    assert found.time_relative[1] > 2 * found.time_relative[0]
    assert found.joules_relative[1] > 2 * found.joules_relative[0]


def test_without_joules_there_is_a_time() -> None:
    """A search for time needs no sensor."""
    points = [(mhz, replace(CORES.measurement(mhz), energy=None)) for mhz in DESIGN]
    found = ClockModel(points).at((1200,))

    assert found.time_s[0] == pytest.approx(CORES.time_s(1200), rel=0.01)
    assert math.isnan(found.joules[0])


@pytest.mark.parametrize("joules", [0.0, -0.1, math.inf, math.nan])
def test_joules_that_are_none_are_left_out(joules: float) -> None:
    """A sensor that reads nonsense at one clock does not spoil the others."""
    points = [(mhz, CORES.measurement(mhz)) for mhz in (*DESIGN, 1800)]
    energy = points[-1][1].energy
    assert energy is not None
    points[-1] = points[-1][0], replace(points[-1][1], energy=replace(energy, joules=joules))
    found = ClockModel(points).at(RANGE)

    assert np.all(np.isfinite(found.joules))


class TestCurve:
    def test_measured_points_stand_among_modelled_ones(self) -> None:
        """Modelled ones lie between the measured ones, and there are not too many."""
        points = curve({mhz: BOTH.measurement(mhz) for mhz in DESIGN}, BOTH.clocks_mhz)
        clocks = [point.clock_mhz for point in points]

        assert clocks == sorted(clocks, reverse=True)
        assert (clocks[0], clocks[-1]) == (1980, 795)
        assert [point.clock_mhz for point in points if point.measured] == list(DESIGN)
        assert 20 < len(points) <= MOST_MODELLED + len(DESIGN)
        for point in points:
            assert point.time_s == pytest.approx(BOTH.time_s(point.clock_mhz), rel=0.02)
            assert point.joules == pytest.approx(BOTH.joules(point.clock_mhz), rel=0.05)

    def test_two_clocks_are_not_modelled(self) -> None:
        """Too few to fit: what was measured is all there is."""
        points = curve({mhz: BOTH.measurement(mhz) for mhz in DESIGN[:2]}, BOTH.clocks_mhz)

        assert [(point.clock_mhz, point.measured) for point in points] == [(1980, True), (1485, True)]

    def test_nothing_is_modelled_where_the_power_limit_binds(self) -> None:
        """A clock that is not reached says nothing of the clocks beside it."""
        measured = {mhz: BOTH.measurement(mhz) for mhz in DESIGN}
        capped = Flag(FlagKind.THROTTLED, "sw-power-cap")
        measured[1980] = replace(measured[1980], flags=(capped,), clock_mhz=1700.0)
        points = curve(measured, BOTH.clocks_mhz)

        modelled = [point.clock_mhz for point in points if not point.measured]
        assert points[0].clock_mhz == 1980
        assert 1485 < max(modelled) < 1980

    def test_failed_trials_are_left_out(self) -> None:
        """They have neither time nor joules."""
        measured = {mhz: BOTH.measurement(mhz) for mhz in DESIGN}
        measured[1485] = replace(measured[1485], results=(WorkloadResult(Status.CRASHED),), makespan_s=None)
        points = curve(measured, BOTH.clocks_mhz)

        assert [point.clock_mhz for point in points if point.measured] == [1980, 1095, 795]
