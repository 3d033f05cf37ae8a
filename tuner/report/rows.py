"""Tables as columns of values: what text, HTML, terminal and page paint.

A column has a name, a unit and the value of a row; none of it depends on the painter. ``layout.py`` paints
text, and tables of rich whose cells fold; ``html/elements.py`` HTML; ``html/assets/trials.js`` trials in a
page; ``tuner/cli/top`` its panes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from tuner.model.objective import COVERAGE
from tuner.model.run_document import AnswerTrial, Changes, CoRunTotals, HasEnergy, TrialDocument, TuningEnergy
from tuner.model.units import percent_with_interval, si, with_uncertainty

if TYPE_CHECKING:
    from tuner.client.answer_values import TrialData

Row = TypeVar("Row")
Found = TypeVar("Found")
RowIn = TypeVar("RowIn", contravariant=True)  # noqa: PLC0105 - a column of all trials is one of some
Value = float | str | None


@dataclass(frozen=True)
class Column(Generic[RowIn]):
    """A column of a table.

    Attributes:
        name: its head.
        value: of a row: a number in ``unit``, or a text; None where it is not known.
        unit: of the numbers; ``%`` of a change, which is a fraction; empty of what is counted and of texts.
        half: half of the 95 % interval of a row's value.
        digits: of a number without an interval; 0 for whole ones, which are without a prefix of their unit.
        unknown: text of None.
        number: aligned as numbers are, as all with a unit are.
        key: of a row, by which rows are sorted; None for the value.
        width: characters that it may be cut to where a line is too long; 0 for a column that is never cut.
        whole: its cells stay on one line while those of others still fold.
        rank: 0 for a column that is always shown; else those of the highest rank are left out first.
    """

    name: str
    value: Callable[[RowIn], Value]
    unit: str = ""
    half: Callable[[RowIn], float | None] | None = None
    digits: int = 4
    unknown: str = "–"
    number: bool = False
    key: Callable[[RowIn], Value] | None = None
    width: int = 0
    whole: bool = False
    rank: int = 0

    @property
    def right(self) -> bool:
        """True for a column of numbers."""
        return self.number or bool(self.unit)

    def text(self, row: RowIn) -> str:
        """The value of a row with its interval and its unit."""
        value = self.value(row)
        if value is None:
            return self.unknown
        if isinstance(value, str):
            return value
        half = None if self.half is None else self.half(row)
        if self.unit == "%" and self.digits:
            return percent_with_interval(value, half)
        if self.half is not None:
            return with_uncertainty(value, half, self.unit)
        if self.unit and self.digits:
            return si(value, self.unit, self.digits)
        return f"{value:.0f} {self.unit}" if self.unit else f"{value:,}"

    def order(self, row: RowIn) -> Value:
        """The value by which rows are sorted; None comes last."""
        return self.value(row) if self.key is None else self.key(row)

    def of(self, part: Callable[[Row], RowIn | None]) -> "Column[Row]":
        """The same column of rows that contain such a one; not known where the part is None."""

        def within(get: Callable[[RowIn], Found | None]) -> Callable[[Row], Found | None]:
            return lambda row: None if (found := part(row)) is None else get(found)

        half = None if self.half is None else within(self.half)
        key: Callable[[Row], Value] | None = None if self.key is None else within(self.key)
        return replace(cast("Column[Row]", self), value=within(self.value), half=half, key=key)


@dataclass(frozen=True)
class Table(Generic[Row]):
    """Rows below the names of their columns.

    Attributes:
        note: of each row, a long text: a last column, or below its row.
        title: words above the table.
        sentences: words below it.
    """

    columns: Sequence[Column[Row]]
    rows: Sequence[Row]
    note: Column[Row] | None = None
    title: str = ""
    sentences: Sequence[str] = ()

    @property
    def cells(self) -> list[list[str]]:
        """A text for each column of each row, below the names."""
        names = [column.name for column in self.columns]
        return [names, *([column.text(row) for column in self.columns] for row in self.rows)]

    @property
    def notes(self) -> list[str]:
        """The note of each row, below their name; all empty without notes."""
        if self.note is None:
            return [""] * (1 + len(self.rows))
        return [self.note.name, *map(self.note.text, self.rows)]


def filled(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> list[Column[Row]]:
    """The columns in which some row has a value."""
    return [column for column in columns if any(column.value(row) not in (None, "") for row in rows)]


# --- Columns of several tables: what a trial took, and how it was set.


def interval(uncertainty: float | None) -> float | None:
    """Half a 95 % interval from a standard uncertainty."""
    return None if uncertainty is None else COVERAGE * uncertainty


TIME: "Column[TrialDocument | AnswerTrial | CoRunTotals | TrialData]" = Column(
    "time",
    lambda trial: trial.get("time_s"),
    "s",
    half=lambda trial: interval(trial.get("time_s_uncertainty")),
)
BRIEF_TIME = replace(TIME, half=None)
"""For tables with a row for each trial or run."""
ENERGY: "Column[HasEnergy | TrialData]" = Column(
    "energy",
    lambda trial: trial.get("energy_j"),
    "J",
    half=lambda trial: interval(trial.get("energy_j_uncertainty")),
)
POWER: Column[TrialDocument | AnswerTrial] = Column("power", lambda trial: trial.get("power_w"), "W")
CLOCK: Column[TrialDocument] = Column(
    "clock", lambda trial: trial["clock_mhz"], "MHz", digits=0, unknown="as found"
)
POWER_LIMIT: Column[TrialDocument] = Column(
    "power limit", lambda trial: trial.get("power_limit_w"), "W", digits=0, unknown="as found"
)
TUNING_ENERGY: Column[TuningEnergy] = Column(
    "tuning energy",
    lambda run: run.get("tuning_energy_j"),
    "J",
    half=lambda run: interval(run.get("tuning_energy_j_uncertainty")),
)
TIME_CHANGE: Column[Changes] = Column(
    "time", lambda changes: changes["slowdown"], "%", half=lambda changes: changes.get("slowdown_interval")
)
ENERGY_CHANGE: Column[Changes] = Column(
    "energy",
    lambda changes: -changes["energy_saving"] if "energy_saving" in changes else None,
    "%",
    half=lambda changes: changes.get("energy_saving_interval"),
)


def amounts(trial: TrialDocument | AnswerTrial) -> list[str]:
    """The time of a trial, and its joules and power where they were measured, as sentences have them."""
    measured = trial.get("energy_j") is not None
    return [BRIEF_TIME.text(trial), *([ENERGY.text(trial), POWER.text(trial)] if measured else [])]
