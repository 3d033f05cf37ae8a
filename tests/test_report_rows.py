"""Columns, moments and the lines of a trace: what they write, and that painters need nothing else."""

import io
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.base import ProgramEnergy, ProgramTimeline, Response, Sample, SensorInfo

from tuner.joules.trace_result import ProgramTrace, ReadingResult
from tuner.joules.traces import CommandOutcome
from tuner.joules.watching import Gpu
from tuner.model.run_document import AnswerTrial
from tuner.model.units import moment, with_moments
from tuner.report.html.markup import html_table
from tuner.report.layout import PlainConsole, ruled, table_lines
from tuner.report.power_tables import shortened, trace_lines, trace_picture
from tuner.report.rows import ENERGY, TIME, Column, Table, amounts, filled

TRIAL: AnswerTrial = {"time_s": 1.23e-3, "energy_j": 0.5, "energy_j_uncertainty": 1e-3, "power_w": 412.0}


class Run(NamedTuple):
    """A row that has a trial, or none."""

    number: int
    best: AnswerTrial | None


RUNS = (Run(1, TRIAL), Run(1200, None))


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (Column[float]("", lambda row: row, "s"), "1.230 ms"),
        (Column[float]("", lambda row: row, "s", half=lambda _: 2e-5), "1.230 ± 0.020 ms"),
        (Column[float]("", lambda row: row, "%"), "+0.1 %"),
        (Column[float]("", lambda row: row, "%", half=lambda _: 0.01), "+0.1 ± 1.0 %"),
        (Column[float]("", lambda row: 1e6 * row, "MHz", digits=0), "1230 MHz"),
        (Column[float]("", lambda row: round(1e6 * row)), "1,230"),
        (Column[float]("", lambda _: None, "MHz", unknown="as found"), "as found"),
        (Column[float]("", lambda _: "words"), "words"),
    ],
)
def test_a_value_is_written_by_its_unit(column: Column[float], text: str) -> None:
    """With a prefix, with an interval, as a change, as it was set, as a count, as words."""
    assert column.text(1.23e-3) == text


def test_rows_are_sorted_by_the_value_or_by_a_key() -> None:
    """A text that is made for people need not be sorted as such."""
    number = Column[Run]("run", lambda run: f"run {run.number}", key=lambda run: run.number)
    assert [number.order(run) for run in RUNS] == [1, 1200]
    assert [replace(number, key=None).order(run) for run in RUNS] == ["run 1", "run 1200"]


def test_a_column_of_a_part_knows_nothing_where_there_is_none() -> None:
    """Unit, interval and alignment are those of the column; the part that is missing has a dash."""
    energy = ENERGY.of(_best)
    assert [energy.text(run) for run in RUNS] == ["500.0 ± 2.0 mJ", "–"]
    assert [energy.order(run) for run in RUNS] == [0.5, None]
    assert energy.right


def test_columns_that_nobody_fills_are_left_out() -> None:
    """Neither what is unknown nor an empty text fills one."""
    empty = Column[Run]("empty", lambda _: "")
    unknown = Column[Run]("unknown", lambda _: None)
    number = Column[Run]("run", lambda run: run.number)
    assert filled([empty, number, unknown], RUNS) == [number]


def test_text_and_html_paint_the_same_cells() -> None:
    """Numbers are aligned to the right; a note is the last column, in text below its row if room is short."""
    time = TIME.of(_best)
    table = Table([Column("run", lambda run: run.number, number=True), time], RUNS, Column("of", _words))
    assert [line.text for line in table_lines(table, 80)] == [
        "  run      time  of",
        "    1  1.230 ms  a GPU",
        "1,200         –",
    ]
    assert [line.text for line in table_lines(table, 20)] == [
        "  run      time",
        "    1  1.230 ms",
        "    a GPU",
        "1,200         –",
    ]
    page = html_table(table)
    for cell in ('class="number" dir="auto">1,200<', ">1.230 ms<", 'class="note" dir="auto">a GPU<'):
        assert cell in page


def _best(run: Run) -> AnswerTrial | None:
    return run.best


def _words(run: Run) -> str:
    return "" if run.best is None else "a GPU"


def test_sentences_have_joules_where_they_were_measured() -> None:
    """Time, energy and power; of time alone no dashes."""
    assert amounts(TRIAL) == ["1.230 ms", "500.0 ± 2.0 mJ", "412.0 W"]
    assert amounts({"time_s": 1.23e-3}) == ["1.230 ms"]


def test_a_ruled_table_folds_and_cuts_nothing_but_whole_columns() -> None:
    """Where a line is too long, cells take several lines; a column that is whole keeps to one."""
    columns: list[Column[Run]] = [
        Column("run", lambda run: f"run-{run.number}", whole=True),
        Column("of", lambda _: "several words of a long note"),
    ]
    text = io.StringIO()
    PlainConsole(file=text, width=20, color_system=None).print(ruled(Table(columns, RUNS)))
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    assert lines[2].startswith("run-1 ")
    assert " ".join(" ".join(lines[2:6]).split()).startswith("run-1 several words of a long note")
    assert "…" not in "".join(lines)


# --- points in time are written one way, wherever people read them --------------------------------


@pytest.mark.parametrize(
    "at",
    [
        "2026-11-21T22:00:00.123+00:00",
        "2026-11-21T23:00:00+01:00",
        "2026-11-21T22:00:00Z",
        "2026-11-21T22:00:00",
    ],
)
def test_a_moment_is_in_utc_to_the_second(at: str) -> None:
    """Whatever its zone and precision, and without a zone as UTC."""
    assert moment(at) == "2026-11-21 22:00:00 UTC"
    assert with_moments(f"run 1 of {at}, stale") == "run 1 of 2026-11-21 22:00:00 UTC, stale"


def test_what_is_no_moment_stays() -> None:
    """None is a dash; text of a newer daemon is shown as it is."""
    assert moment(None) == "–"
    assert moment("soon") == "soon"


@given(
    st.datetimes(min_value=datetime(1971, 1, 2), max_value=datetime(9000, 1, 1)),  # noqa: DTZ001 - zone follows
    st.integers(-23, 23),
)
def test_all_moments_are_as_wide(at: datetime, hours: int) -> None:
    """So a table can keep them whole."""
    assert len(moment(at.replace(tzinfo=timezone(timedelta(hours=hours))))) == len("2026-11-21 22:00:00 UTC")


# --- the lines that a trace ends with, and what its picture says ----------------------------------


LINE = ProgramTimeline(0.0, 2.0, 7.0, 7.5)
METERED = ProgramEnergy(1000.0, 1.0, 500.0, 2.0, 100.0, 0.1, 200.0, None, 0.0)
RING = SensorInfo("ring", "ring", "gpu", 0.02, response=Response("lag", capacitance_s=0.013))
TRACE = ProgramTrace(
    ("/opt/tools/solver", "--size", "4096"),
    Gpu(0, "GPU-1", "580.1", "an H200"),
    CommandOutcome(3, LINE, ((2.5, "solve"),), 0, 0.0012),
    (
        ReadingResult(SensorInfo("counter", "counter", "gpu", 0.1), (Sample(1.0, 5.0),), METERED),
        ReadingResult(
            RING, tuple(Sample(0.02 * i, 100.0) for i in range(400)), replace(METERED, peak_w=300.0)
        ),
    ),
)


def test_lines() -> None:
    """Total and net have 95 % intervals; which reading, its model and its disagreement stand below."""
    head, energy, net, counter, ring, *_ = trace_lines(TRACE)

    assert head == "solver --size 4096: exit code 3, 5.000 s"
    assert energy == "energy 1,000.0 ± 2.0 J, mean 200.0 W"
    assert net == "net of idle 500.0 ± 3.9 J; idle 100.00 ± 0.20 W, measured before"
    assert counter == "counter (gpu; counts joules): 1 samples, 1,000.0 ± 2.0 J"
    assert ring.startswith(
        "ring (gpu; lag, C = 13.0 ms, assumed): 400 samples, 1,000.0 ± 2.0 J (+0.0 %), peak 300.0 W"
    )


def test_a_gain_that_is_not_told_is_no_number() -> None:
    """Where the load draws nothing above idle, two meters cannot be compared net of idle."""
    reference = replace(TRACE.readings[1], info=replace(RING, name="meter"))
    told = list(trace_lines(replace(TRACE, reference=reference)))
    nothing = replace(METERED, net_j=0.1, net_sigma_j=5.0)
    readings = tuple(replace(one, energy=nothing) for one in TRACE.readings)
    unknown = list(
        trace_lines(replace(TRACE, readings=readings, reference=replace(reference, energy=nothing)))
    )

    assert any(line.startswith("counter shows 1.0") and line.endswith("of it, net of idle") for line in told)
    assert any(line.startswith("no gain of counter can be told") for line in unknown)


def test_no_joules() -> None:
    """A trace without joules says so, and why."""
    readings = (replace(TRACE.readings[1], energy=None, failure="ring stopped answering: gone"),)
    lines = list(trace_lines(replace(TRACE, readings=readings)))

    assert lines[1] == "no joules: no reading gave enough"
    assert lines[-1] == "beware: ring stopped answering: gone"


def test_the_picture_says_what_and_where() -> None:
    """Its title has the command with its joules, then reading, GPU and driver; net joules are shaded."""
    picture = trace_picture(TRACE)

    assert picture is not None
    what, where = picture.title.split("\n")
    assert what == "solver --size 4096: 1,000.0 ± 2.0 J"
    assert where.startswith("ring (gpu) of an H200 in ")
    assert ", driver 580.1, " in where
    assert picture.net == "500.0 ± 3.9 J"
    assert picture.counter == (200.0, "counter: mean of 1,000.0 ± 2.0 J")
    assert picture.marks == [(0.5, "solve")]


def test_without_a_curve_there_is_no_picture() -> None:
    """A counter shows no power over time, a reading without samples neither."""
    assert trace_picture(replace(TRACE, readings=TRACE.readings[:1])) is None
    assert trace_picture(replace(TRACE, readings=(replace(TRACE.readings[1], samples=()),))) is None


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("/usr/bin/env",), "env"),
        (("a b", "c\nd"), "'a b' 'c d'"),
        (("/",), "/"),
        (("./run.sh", *(f"--option-{i}" for i in range(20))), "run.sh --option-0 --option-1"),
    ],
)
def test_commands_are_shortened(command: tuple[str, ...], words: str) -> None:
    """The folder of the program goes first, then the last words."""
    assert shortened(command).startswith(words)


@given(st.lists(st.text(), min_size=1, max_size=20).map(tuple))
def test_a_shortened_command_is_one_short_line(command: tuple[str, ...]) -> None:
    """Whatever a command holds, it takes one line and does nothing to a terminal."""
    words = shortened(command)

    assert len(words) <= 92
    assert words.isprintable()
