"""``--clocks``: its forms, the model of time and power, and which clocks a steered search finds."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from clock_lines import BOTH, CORES, FLAT, StatedLine
from examples import FEW
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_driver import Measure, Played, blocks, play, search_over
from tuner.policies.clock_model import MOST, ClockLine, ClockModel
from tuner.policies.greedy import greedy
from tuner.policies.independent import exhaustive
from tuner.policies.steering import MOST_MODELLED, curve, steered

from tuner.model import registry
from tuner.model.errors import ClockError, InputError
from tuner.model.objective import Objective
from tuner.model.trial import Flag, FlagKind, Measurement, Status, Trial, WorkloadResult
from tuner.search.option_checks import choose_clocks
from tuner.space.search_view import Payback, Search

# --- The model of time and power over the clock: what it recovers from few points, and how sure it is.

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


SLOWER = {512: 1.04, 256: 1.0, 128: 1.07}
"""Factors of three configurations: 512 is the default, 256 is the best at every clock."""

VERY_FEW = settings(max_examples=max(settings().max_examples // 8, 1))  # of whole searches

search_exhaustively = partial(steered, inner=exhaustive)


def searched(cost: Callable[[Measurement], float], clocks: tuple[int, ...] = FLAT.clocks_mhz) -> Search:
    return search_over(blocks(*SLOWER), clocks=clocks, cost=cost)


def follows(line: StatedLine) -> Measure:
    """Trials that follow a curve, each configuration slower by its factor; joules are off by 0.3 %."""

    def measure(trial: Trial) -> Measurement:
        block, mhz = int(str(trial.configurations[0]["L"])), trial.clock_mhz or 0
        return line.measurement(mhz, SLOWER[block], 0.003 * math.sin(mhz + block))

    return measure


def lowest(line: StatedLine, objective: Objective) -> float:
    return min(objective.cost(line.measurement(mhz)) for mhz in line.clocks_mhz)


def clocks_of(played: Played, block: int = 256) -> list[int]:
    """Clocks at which a configuration was measured, in order."""
    found = [trial for trial in dict.fromkeys(played.trials) if trial.configurations[0]["L"] == block]
    return [trial.clock_mhz or 0 for trial in found]


def block_of(played: Played) -> object:
    assert played.best is not None
    return played.best.configurations[0]["L"]


@VERY_FEW
@given(lines, st.sampled_from(("energy", "edp", "ed2p")))
def test_the_best_clock_is_found_by_few(line: StatedLine, name: str) -> None:
    """Whatever the curve, the answer costs at most 1.5 % more than the best of 110 clocks."""
    objective = Objective(name)
    played = play(search_exhaustively, searched(objective.cost), follows(line))

    assert played.best is not None
    assert block_of(played) == 256
    true = objective.cost(line.measurement(played.best.clock_mhz or 0))
    assert true <= 1.015 * lowest(line, objective)
    assert len(clocks_of(played)) <= MOST


def test_a_time_that_does_not_need_the_clock_ends_at_a_low_one() -> None:
    """The same 304 µs from 1,400 MHz on: within 2 % the clock goes down, after few measurements."""
    objective = Objective("energy", limit_s=1.02 * FLAT.time_s(1980))
    played = play(search_exhaustively, searched(objective.cost), follows(FLAT))

    assert played.best is not None
    assert played.best.clock_mhz is not None
    assert played.best.clock_mhz <= 1410
    assert FLAT.time_s(played.best.clock_mhz) <= 1.02 * FLAT.time_s(1980)
    assert len(clocks_of(played)) <= 8
    assert len({trial.clock_mhz for trial in played.trials}) <= 12


def test_without_a_bound_it_goes_to_the_least_joules() -> None:
    """Below the knee of the voltage nothing is saved: the answer lies near it."""
    played = play(search_exhaustively, searched(Objective("energy").cost), follows(FLAT))

    assert played.best is not None
    assert FLAT.joules(played.best.clock_mhz or 0) <= 1.01 * lowest(FLAT, Objective("energy"))
    assert len(clocks_of(played)) <= 8


def test_a_search_for_time_stays_at_the_top() -> None:
    """Where every lower clock is slower few are tried, and the highest is the answer."""
    played = play(search_exhaustively, searched(Objective("time").cost), follows(CORES))

    assert played.best is not None
    assert (played.best.clock_mhz, block_of(played)) == (1980, 256)
    assert len(clocks_of(played)) <= 6


def test_the_best_clock_has_neighbours() -> None:
    """On both sides a clock was measured that costs about as much: near enough to be told by repeats."""
    objective = Objective("energy")
    played = play(search_exhaustively, searched(objective.cost), follows(BOTH))

    assert played.best is not None
    best_mhz = played.best.clock_mhz or 0
    above = [mhz for mhz in clocks_of(played) if mhz > best_mhz]
    below = [mhz for mhz in clocks_of(played) if mhz < best_mhz]
    for neighbour in (min(above), max(below)):
        assert 0.995 < BOTH.joules(neighbour) / BOTH.joules(best_mhz) < 1.06


def test_few_clocks_are_all_measured() -> None:
    """Four clocks need no model."""
    clocks = (875, 810, 745, 666)
    played = play(search_exhaustively, searched(Objective("energy").cost, clocks), follows(BOTH))

    assert set(clocks_of(played)) == set(clocks)


def test_several_workloads_are_one_line() -> None:
    """The policy of the run searches configurations of both; clocks are those of the round."""
    search = search_over(
        blocks(512, 256), blocks(512, 256), clocks=FLAT.clocks_mhz, cost=Objective("energy").cost
    )

    def measure(trial: Trial) -> Measurement:
        first, second = (int(str(one["L"])) for one in trial.configurations)
        one = BOTH.measurement(trial.clock_mhz or 0, SLOWER[first] * SLOWER[second])
        return replace(one, results=one.results * 2)

    played = play(partial(steered, inner=greedy), search, measure)

    assert played.best is not None
    assert [one["L"] for one in played.best.configurations] == [256, 256]
    assert BOTH.joules(played.best.clock_mhz or 0) <= 1.01 * lowest(BOTH, Objective("energy"))


def test_what_is_known_beforehand_begins_the_second_search() -> None:
    """Under ``--max-slowdown`` the trials of the search for time are not asked for in vain."""
    first = play(search_exhaustively, searched(Objective("time").cost), follows(FLAT))
    prior = {trial: follows(FLAT)(trial) for trial in first.trials}
    objective = Objective("energy", limit_s=1.02 * FLAT.time_s(1980))
    search = replace(searched(objective.cost), prior=prior)
    second = play(search_exhaustively, search, follows(FLAT))

    assert second.best is not None
    assert second.best.clock_mhz is not None
    assert second.best.clock_mhz <= 1410
    assert len([trial for trial in dict.fromkeys(second.trials) if trial not in prior]) <= 14


def test_clocks_above_the_power_limit_are_not_tried() -> None:
    """From 1,500 MHz on the GPU runs at 1,500 MHz whatever is set: what is set there is all the same."""
    limited = Flag(FlagKind.THROTTLED, "sw-power-cap")

    def measure(trial: Trial) -> Measurement:
        mhz = trial.clock_mhz or 0
        block = int(str(trial.configurations[0]["L"]))
        one = CORES.measurement(min(mhz, 1500), SLOWER[block])
        return replace(one, clock_mhz=float(min(mhz, 1500)), flags=(limited,) if mhz > 1500 else ())

    played = play(search_exhaustively, searched(Objective("edp").cost), measure)

    assert played.best is not None
    assert lowest(CORES, Objective("edp")) * 1.01 >= Objective("edp").cost(
        CORES.measurement(played.best.clock_mhz or 0)
    )
    assert len([mhz for mhz in clocks_of(played) if mhz > 1500]) <= 2


@pytest.mark.parametrize("bad", [lambda mhz: mhz > 0, lambda mhz: mhz > 1000])
def test_trials_that_fail_do_not_end_it(bad: Callable[[int], bool]) -> None:
    """Where all fail there is no answer, else the cheapest of the others."""

    def measure(trial: Trial) -> Measurement:
        if bad(trial.clock_mhz or 0):
            return Measurement((WorkloadResult(Status.CRASHED),))
        return follows(BOTH)(trial)

    played = play(search_exhaustively, searched(Objective("energy").cost), measure)

    assert played.ended
    assert (played.best is None) == all(bad(mhz) for mhz in FLAT.clocks_mhz if mhz in (1980, 1485, 795))
    if played.best is not None:
        assert not bad(played.best.clock_mhz or 0)


@pytest.mark.parametrize("name", registry.names("policy"))
def test_every_policy_searches_configurations(name: str) -> None:
    """At the clocks that the model chooses, and the answer is the cheapest trial that was measured."""
    policy = partial(steered, inner=registry.load("policy", name))
    cost = Objective("energy").cost
    played = play(policy, searched(cost, FLAT.clocks_mhz[::10]), follows(BOTH), budget=60)

    measured = {trial: cost(follows(BOTH)(trial)) for trial in played.trials}
    assert played.ended
    assert played.best == min(measured, key=measured.__getitem__)
    assert len({trial.clock_mhz for trial in measured}) <= 16


def test_a_gpu_that_is_held_back_counts_at_the_clock_it_had() -> None:
    """Heat lowers what was set at the top: the curve is fitted to the clock that was seen."""
    hot = Flag(FlagKind.THROTTLED, "sw-thermal-slowdown")

    def measure(trial: Trial) -> Measurement:
        mhz = trial.clock_mhz or 0
        if mhz < 1900:
            return follows(BOTH)(trial)
        block = int(str(trial.configurations[0]["L"]))
        return replace(BOTH.measurement(1600, SLOWER[block]), clock_mhz=1600.0, flags=(hot,))

    played = play(search_exhaustively, searched(Objective("energy").cost), measure)

    assert played.best is not None
    assert BOTH.joules(played.best.clock_mhz or 0) <= 1.015 * lowest(BOTH, Objective("energy"))


def test_a_measurement_that_does_not_pay_is_not_made() -> None:
    """With a break-even of few runs the line ends behind its first clocks."""
    search = searched(Objective("energy").cost)
    paid = replace(search, payback=Payback(1.0, lambda _: 1e6))
    free, dear = (play(search_exhaustively, one, follows(BOTH)) for one in (search, paid))

    assert len(dear.trials) < len(free.trials)


@pytest.mark.parametrize(
    ("clocks", "wanted", "reason"),
    [
        (FLAT.clocks_mhz, None, "no other may save more than 0.5 %, as modelled from these"),
        ((875, 810, 745, 666), None, "there are no others"),
        (FLAT.clocks_mhz, Payback(1.0, lambda _: 1e6), "no other is expected to pay for its measurement"),
    ],
)
def test_the_user_hears_how_many_clocks_and_why(
    clocks: tuple[int, ...], wanted: Payback | None, reason: str
) -> None:
    """One sentence at the end."""
    said: list[str] = []
    search = replace(searched(Objective("energy").cost, clocks), payback=wanted, tell=said.append)
    play(search_exhaustively, search, follows(BOTH))

    (sentence,) = [one for one in said if one.startswith("clocks auto: ")]
    assert f"of {len(clocks)} clocks measured" in sentence
    assert sentence.endswith(reason)


def test_no_clock_is_promising_without_a_model() -> None:
    """Nothing measured, nothing said."""
    search = searched(Objective("energy").cost)
    line = ClockLine(search, Trial(search.defaults, 1980), {})

    assert line.measured == {}
    assert line.promising() is None


K40C = (875, 810, 745, 666)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("off", ()),
        ("all", K40C),
        ("745,875", (875, 745)),
        ("700:820", (810, 745)),
        ("600:900:100", (875, 745)),
    ],
)
def test_forms(text: str, expected: tuple[int, ...]) -> None:
    """Each form of the option gives supported clocks, highest first."""
    assert choose_clocks(text, K40C) == expected


@pytest.mark.parametrize("text", ["fast", "", "1:2:3:4", "900:600", "-5", "600:900:0", "8e2", "875,"])
def test_other_texts_are_refused_with_the_forms(text: str) -> None:
    """What is not a choice of clocks is answered with the forms that are."""
    with pytest.raises(InputError, match="off, auto, all, a list"):
        choose_clocks(text, K40C)


def test_unsupported_clock_names_the_nearest() -> None:
    """A clock the GPU lacks is answered with what it has."""
    with pytest.raises(InputError, match=r"does not have 800 MHz; it has 4 from 666 to 875 MHz.*810"):
        choose_clocks("800", K40C)


def test_empty_range_says_what_there_is() -> None:
    """A range between two clocks is an error, not an empty search."""
    with pytest.raises(InputError, match="no clock in that range"):
        choose_clocks("820:870", K40C)


def test_gpu_without_clocks() -> None:
    """Asking for clocks where none can be set says how to go on."""
    with pytest.raises(ClockError, match="--clocks off"):
        choose_clocks("all", ())


@given(st.sets(st.integers(100, 2000), min_size=1), st.integers(1, 300))
def test_range_keeps_the_step(supported: set[int], step: int) -> None:
    """Clocks of a range are supported, falling, at least a step apart, and include the highest."""
    chosen = choose_clocks(f"100:2000:{step}", tuple(supported))

    assert set(chosen) <= supported
    assert chosen[0] == max(supported)
    assert all(a - b >= step for a, b in itertools.pairwise(chosen))
