"""The clock curve of a document: whose it is, against what its ratios are, and what the report says of it."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from clock_lines import CORES, FLAT, StatedLine

from tuner.measurement.paired import PairedRepeats
from tuner.model.objective import COVERAGE, Objective
from tuner.model.plan import Configuration
from tuner.model.records import RunStatus
from tuner.model.trial import ASSUMED_SCATTER, Measurement, Trial, stated
from tuner.report.details import clock_table, reference_of, sentences, setting_lines
from tuner.search.answer import Outcome, clock_neighbours, confirm_neighbours
from tuner.search.document import clock_curve

CLOCKS = (1980, 1485, 1095, 795)
ONE, OTHER = Configuration({"L": 32}), Configuration({"L": 64})


def outcome(line: StatedLine, others: Sequence[tuple[Trial, Measurement]] = (), answer: int = 2) -> Outcome:
    trials = [*((Trial((ONE,), mhz), line.measurement(mhz)) for mhz in CLOCKS), *others]
    return Outcome(RunStatus.FINISHED, trials, answer, 0, 0, Objective("energy"))


def curve_of(found: Outcome) -> list[Any]:
    return list(clock_curve(found, FLAT.clocks_mhz, ("w",))["clock_curve"])


def said(found: Outcome, width: int = 120) -> str:
    record = clock_curve(found, FLAT.clocks_mhz, ("w",))
    answer = found.trials[found.answer or 0][0]
    best = {"clock_mhz": answer.clock_mhz, "configurations": {"w": dict(answer.configurations[0])}}
    document: Any = {**record, "best": best, "modelled": False}
    lines = setting_lines(clock_table(document), width)
    return "\n".join(line.text for line in lines)


def test_ratios_are_against_the_highest_clock() -> None:
    """And each saving is what the joules saved are by the slowdown, once there clearly is one."""
    points = curve_of(outcome(FLAT))

    assert reference_of(points) is points[0]
    for point in points[1:]:
        assert point["joules_ratio"] == pytest.approx(point["joules"] / points[0]["joules"])
        slower = point["time_ratio"] - 1
        if slower > point["time_ratio_interval"]:
            assert point["saving_per_slowdown"] == pytest.approx((1 - point["joules_ratio"]) / slower)
        else:
            assert point["saving_per_slowdown"] is None


def test_where_the_highest_has_no_joules_the_next_one_is_it() -> None:
    """A trial that was spared its joules has a time all the same."""
    found = outcome(FLAT)
    found.trials[0] = found.trials[0][0], replace(found.trials[0][1], energy=None, estimated_j=1.0)
    points = curve_of(found)

    assert reference_of(points)["clock_mhz"] == 1485
    assert points[0]["joules_ratio"] is None
    assert "1,485 MHz" in said(found)


def test_an_answer_at_one_clock_shows_the_curve_of_another() -> None:
    """A tie may choose what was measured at one clock: the cheapest configuration with more has a curve."""
    tied = (Trial((OTHER,), 1095), FLAT.measurement(1095, 1.001))
    found = outcome(FLAT, [tied], answer=4)
    record = clock_curve(found, FLAT.clocks_mhz, ("w",))

    assert record["clock_curve_of"] == {"w": {"L": 32}}
    assert "clocks of the cheapest configuration that was measured at several clocks" in said(found)


def test_without_other_clocks_there_is_none() -> None:
    """Nor without an answer."""
    found = outcome(FLAT)
    alone = replace(found, trials=found.trials[:1], answer=0)

    for one in (alone, replace(found, answer=None)):
        assert clock_curve(one, FLAT.clocks_mhz, ("w",)) == {"clock_curve": [], "clock_curve_of": None}


def test_a_flat_time_is_told() -> None:
    """A reader sees how far down the clock costs nothing, and what that saves."""
    text = said(outcome(FLAT))

    assert "against 1,980 MHz; ± is 95 %" in text
    assert "a round takes at most 1 % longer than at 1,980 MHz" in text
    assert re.search(r" answer\b", text, re.MULTILINE)
    assert "no clock below 1,095 MHz is seen to save energy, down to 795 MHz" in text


def test_what_a_lower_clock_would_bring_is_told() -> None:
    """From the answer's clock down to that of the least joules, per percent of slowdown."""
    (sentence,) = sentences(curve_of(outcome(CORES, answer=0)), 1980)

    assert sentence.startswith("from the answer's 1,980 MHz down to ")
    assert re.search(r"± [\d.]+ % energy for \+[\d.]+ ± [\d.]+ % time", sentence)
    least = min(curve_of(outcome(CORES, answer=0)), key=lambda point: float(point["joules"]))
    assert f"± {100 * least['joules_ratio_interval']:.1f} % energy" in sentence  # as in the table
    assert "% per percent of slowdown" in sentence


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_line_fits(width: int) -> None:
    """However narrow the console is."""
    assert max(map(len, said(outcome(FLAT), width).splitlines())) <= width


def test_neighbours_differ_in_the_clock_only() -> None:
    """The nearest above and below that may be the answer, under the bound of the run."""
    trials = dict(outcome(FLAT, [(Trial((OTHER,), 1200), FLAT.measurement(1200))]).trials)
    present = Trial((ONE,), 1095)
    bound = Objective("energy", limit_s=1.2 * FLAT.time_s(1980))

    assert clock_neighbours(Objective("energy"), trials, present) == (
        Trial((ONE,), 1485),
        Trial((ONE,), 795),
    )
    assert clock_neighbours(bound, trials, present) == (Trial((ONE,), 1485),)


class TruthfulSession:
    """Repeats trials without noise; what a search measured was off."""

    def __init__(self, line: StatedLine) -> None:
        self.rounds: list[tuple[Trial, ...]] = []
        self._line = line

    def confirm(self, trials: Sequence[Trial], beside: Sequence[Trial]) -> PairedRepeats:
        turn = tuple(dict.fromkeys((*beside, *trials)))
        self.rounds.append(turn)
        return PairedRepeats(
            tuple({one: self._line.measurement(one.clock_mhz or 0) for one in turn} for _ in "123")
        )


@pytest.mark.parametrize("out_of_time", [False, True])
def test_where_a_neighbour_costs_less_its_own_neighbours_follow(out_of_time: bool) -> None:
    """The search took 1,485 MHz for the best; repeats go down to 1,095 MHz, and on to the one below it."""
    trials = dict(outcome(FLAT).trials)
    wrong = Trial((ONE,), 1485)
    session = TruthfulSession(FLAT)
    paired = confirm_neighbours(
        session.confirm, lambda: not out_of_time, Objective("energy"), trials, ((wrong,), ())
    )

    assert [sorted(one.clock_mhz or 0 for one in turn) for turn in session.rounds] == [
        [1095, 1485, 1980],
        [795, 1095],
    ][: 1 if out_of_time else 2]
    assert next(iter(paired.rivals(Objective("energy")))) == Trial((ONE,), 1095)
    assert len(paired.joined()) == (3 if out_of_time else 4)


def test_the_scatter_between_windows_counts_once() -> None:
    """It is part of the joules that a run states; a ratio of two clocks has it from each, and no more."""
    windows = outcome(FLAT)
    told = replace(windows, trials=[(trial, stated(one)) for trial, one in windows.trials])
    top, low = (point for point in curve_of(told) if point["clock_mhz"] in (1980, 795))
    own = [point["joules_uncertainty"] / point["joules"] for point in (top, low)]

    assert all(one > ASSUMED_SCATTER for one in own)
    assert low["joules_ratio_interval"] == pytest.approx(COVERAGE * low["joules_ratio"] * math.hypot(*own))
    modelled = [[point for point in curve_of(one) if point["kind"] == "modelled"] for one in (windows, told)]
    assert modelled[0][3]["joules_uncertainty"] == modelled[1][3]["joules_uncertainty"]
