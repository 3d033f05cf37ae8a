"""Columns of tables: what they write, what rows are sorted by, and that painters need nothing else."""

import io
from dataclasses import replace
from typing import NamedTuple

import pytest

from tuner.model.run_document import AnswerTrial
from tuner.report.html.markup import html_table
from tuner.report.layout import PlainConsole, ruled, table_lines
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
