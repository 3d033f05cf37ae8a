"""Answers that were measured at some sizes: comma-separated values in a file beside the kernel file."""

import csv
import hashlib
import io
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tuner.kernel_files.formulas import Environment, Formula, Location, derived_for, with_derived
from tuner.kernel_files.schema import MeasuredTable
from tuner.kernel_files.source_folder import read_text
from tuner.model.errors import suggestion
from tuner.model.plan import TunableValue

Sizes = Mapping[str, Sequence[int | str]]
Tunables = Mapping[str, Collection[TunableValue]]
MOST_DIGITS = 20  # of a size
GPU_COLUMN = "gpu"


@dataclass(frozen=True)
class MeasuredAnswer:
    """The values of one row, and the location that messages name."""

    location: Location
    values: Mapping[str, TunableValue]


class Row(NamedTuple):
    """A line of the file.

    Attributes:
        line: its number.
        gpu: a word of the product name of the GPU that it is for, in small letters; empty for any GPU.
        cells: values of the tunables; None where a cell is empty.
    """

    line: int
    gpu: str
    cells: tuple[TunableValue | None, ...]


@dataclass(frozen=True)
class MeasuredAnswers:
    """The rows of a file.

    Attributes:
        when: the condition for the answers.
        sizes: names of the columns that are sizes.
        tunables: names of the columns that are tunables.
        rows: by the values of the sizes, those of the same sizes in order of preference.
        further: values of tunables without a column.
    """

    path: str
    when: Formula
    derived: Mapping[str, Formula]
    sizes: tuple[str, ...]
    tunables: tuple[str, ...]
    rows: Mapping[tuple[int | str, ...], tuple[Row, ...]]
    sha256: str
    further: Mapping[str, TunableValue] = field(default_factory=dict)

    def hold(self, env: Environment) -> bool:
        """Return True if the answers are valid at the sizes and the batch of an environment."""
        return bool(self.when.value(with_derived(env, self.derived)))

    def at(self, sizes: Mapping[str, int | str], gpu: str | None) -> list[MeasuredAnswer]:
        """The answers at the sizes of a workload; none where nothing was measured.

        Args:
            sizes: of the workload.
            gpu: product name. Rows for this GPU come first, then those for any. An empty name has only these;
                None gives all rows, in the order of the file.
        """
        rows = self.rows.get(tuple(sizes[name] for name in self.sizes), ())
        if gpu is not None:
            words = re.split(r"\W+", gpu.casefold())
            own = [row for row in rows if row.gpu and row.gpu in words]
            rows = (*own, *(row for row in rows if not row.gpu))
        answers = []
        for row in rows:
            cells = zip(self.tunables, row.cells, strict=True)
            values = {name: cell for name, cell in cells if cell is not None} | dict(self.further)
            answers.append(MeasuredAnswer(Location(self.path, f"line {row.line}"), values))
        return answers


def read_measured(
    at: Callable[[str], Location],
    table: MeasuredTable,
    folder: Path,
    *,
    sizes: Sizes,
    tunables: Tunables,
    fixed: Collection[str],
    derived: Mapping[str, Formula],
) -> MeasuredAnswers:
    """The answers of the file that ``[measured]`` names.

    Raises:
        KernelFileError: the file cannot be read, a column is neither size nor tunable, or a value is none of
            its column's; the message names file and line.
    """
    location, path = at("[measured] file"), folder / table.file
    text = read_text(path, f"{location.path}: {location.key}").removeprefix("\ufeff")
    lines = _lines(str(path), text)
    line, columns = next(lines, (1, []))
    where = Location(str(path), f"line {line}")
    _check_columns(where, columns, sizes, tunables)
    rows: dict[tuple[int | str, ...], list[Row]] = defaultdict(list)
    read: dict[tuple[str, str], TunableValue | None] = {(name, ""): None for name in tunables}
    for line, words in lines:
        where = Location(str(path), f"line {line}")
        if len(words) != len(columns):
            raise where.error(f"has {len(words)} values; the columns are {', '.join(columns)}")
        row = list(zip(columns, words, strict=True))
        key = tuple(_size(where, name, word, sizes[name]) for name, word in row if name in sizes)
        cells = [cell for cell in row if cell[0] in tunables]
        read |= {cell: _value(where, *cell, tunables[cell[0]]) for cell in cells if cell not in read}
        gpu = "" if GPU_COLUMN in (*sizes, *tunables) else _gpu(where, dict(row))
        rows[key].append(Row(line, gpu, tuple(read[cell] for cell in cells)))
    if not rows:
        raise where.error("holds no answers: write a row for each of the sizes that were measured")
    when = Formula(at("[measured] when"), table.when, [*fixed, *derived])
    return MeasuredAnswers(
        path=str(path),
        when=when,
        derived=derived_for(when.expression.names, derived),
        sizes=tuple(name for name in columns if name in sizes),
        tunables=tuple(name for name in columns if name in tunables),
        rows={key: tuple(group) for key, group in rows.items()},
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )


def _lines(path: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """The words of each line that is not blank, and its number."""
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        for words in lines:
            if words:
                yield lines.line_num, [word.strip() for word in words]
    except csv.Error as error:
        raise Location(path, f"line {lines.line_num}").error(error) from error


def _check_columns(where: Location, columns: Sequence[str], sizes: Sizes, tunables: Tunables) -> None:
    choices = [*sizes, *tunables, GPU_COLUMN]
    for name in columns:
        if name not in choices:
            raise where.error(
                f"the column {name!r} is neither a size nor a tunable nor {GPU_COLUMN}; choose from"
                f" {', '.join(choices)}{suggestion(name, choices)}"
            )
        if columns.count(name) > 1:
            raise where.error(f"the column {name!r} stands twice")
    for kind, names in (("size", sizes), ("tunable", tunables)):
        if not any(name in names for name in columns):
            raise where.error(f"no column is a {kind}; the {kind}s are {', '.join(names)}")


def _gpu(where: Location, row: Mapping[str, str]) -> str:
    """The word of the column ``gpu``, in small letters; empty without it."""
    word = row.get(GPU_COLUMN, "")
    if word and not re.fullmatch(r"(?=.*\d)\w+", word):
        raise where.error(
            f"{GPU_COLUMN} is {word!r}; write a word of the product name with a number, as H100, or nothing"
        )
    return word.casefold()


def _size(where: Location, name: str, word: str, values: Sequence[int | str]) -> int | str:
    if isinstance(values, range):
        is_number = word.isascii() and word.isdecimal() and len(word) <= MOST_DIGITS
        matches: list[int | str] = [int(word)] if is_number and int(word) in values else []
    else:
        matches = [value for value in values if str(value) == word]
    if not matches:
        raise where.error(f"{name} is {word!r}, which is no size of the kernel")
    return matches[0]


def _value(where: Location, name: str, word: str, values: Collection[TunableValue]) -> TunableValue:
    """The value of the kernel file that is written so; of numbers with a point any way to write them."""
    written = {str(value).lower() if isinstance(value, bool) else str(value): value for value in values}
    for value in values:
        if isinstance(value, float) and _number(word) == value:
            return value
    if word not in written:
        raise where.error(f"{name} is {word!r}; choose from {', '.join(written)}{suggestion(word, written)}")
    return written[word]


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
