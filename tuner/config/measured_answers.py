"""Answers that were measured at some sizes: comma-separated values in a file beside the kernel file."""

import csv
import hashlib
import io
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.config.formulas import Environment, Formula, Place, derived_for, with_derived
from tuner.config.schema import MeasuredTable
from tuner.config.source_folder import read_text
from tuner.errors import suggestion
from tuner.model import TunableValue

Sizes = Mapping[str, Sequence[int | str]]
Tunables = Mapping[str, Collection[TunableValue]]
MOST_DIGITS = 20  # of a size


@dataclass(frozen=True)
class MeasuredAnswer:
    """The values of one row, and the place that messages name."""

    place: Place
    values: Mapping[str, TunableValue]


@dataclass(frozen=True)
class MeasuredAnswers:
    """The rows of a file.

    Attributes:
        when: the condition for the answers.
        derived: the derived names that it needs.
        sizes: names of the columns that are sizes.
        rows: by the values of these sizes, those of the same sizes in order of preference.
        sha256: of the file.
    """

    when: Formula
    derived: Mapping[str, Formula]
    sizes: tuple[str, ...]
    rows: Mapping[tuple[int | str, ...], tuple[MeasuredAnswer, ...]]
    sha256: str

    def hold(self, env: Environment) -> bool:
        """Whether the answers do at the sizes and the batch of an environment."""
        return bool(self.when.value(with_derived(env, self.derived)))

    def at(self, sizes: Mapping[str, int | str]) -> tuple[MeasuredAnswer, ...]:
        """The answers at the sizes of a workload; none where nothing was measured."""
        return self.rows.get(tuple(sizes[name] for name in self.sizes), ())

    def with_value(self, name: str, value: TunableValue) -> "MeasuredAnswers":
        """The same answers with a value of a further tunable."""
        rows = {
            key: tuple(replace(one, values={**one.values, name: value}) for one in found)
            for key, found in self.rows.items()
        }
        return replace(self, rows=rows)


def read_measured(
    at: Callable[[str], Place],
    table: MeasuredTable,
    folder: Path,
    *,
    sizes: Sizes,
    tunables: Tunables,
    fixed: Collection[str],
    derived: Mapping[str, Formula],
) -> MeasuredAnswers:
    """The answers of the file that ``[measured]`` names.

    Args:
        at: the place of a key.
        table: what the kernel file says.
        folder: of the kernel file.
        sizes: of the kernel, with their values.
        tunables: of the kernel, with their values.
        fixed: names of the sizes, and ``batch``.
        derived: derived names, which the condition may use, too.

    Raises:
        KernelFileError: the file cannot be read, a column is neither size nor tunable, or a value is none of
            its column's; the message names file and line.
    """
    place, path = at("[measured] file"), folder / table.file
    text = read_text(path, f"{place.path}: {place.key}").removeprefix("\ufeff")
    lines = _lines(str(path), text)
    where, columns = next(lines, (Place(str(path), "line 1"), []))
    _check_columns(where, columns, sizes, tunables)
    asked = tuple(name for name in columns if name in sizes)
    rows: dict[tuple[int | str, ...], list[MeasuredAnswer]] = defaultdict(list)
    for where, words in lines:
        if len(words) != len(columns):
            raise where.error(f"has {len(words)} values; the columns are {', '.join(columns)}")
        row = dict(zip(columns, words, strict=True))
        key = tuple(_size(where, name, row[name], sizes[name]) for name in asked)
        values = {
            name: _value(where, name, word, tunables[name])
            for name, word in row.items()
            if name in tunables and word
        }
        rows[key].append(MeasuredAnswer(where, values))
    if not rows:
        raise where.error("holds no answers: write a row for each of the sizes that were measured")
    when = Formula(at("[measured] when"), table.when, [*fixed, *derived])
    digest = hashlib.sha256(text.encode()).hexdigest()
    return MeasuredAnswers(
        when,
        derived_for(when.expression.names, derived),
        asked,
        {key: tuple(found) for key, found in rows.items()},
        digest,
    )


def _lines(path: str, text: str) -> Iterator[tuple[Place, list[str]]]:
    """The words of each line that is not blank, and its place."""
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        for words in lines:
            if words:
                yield Place(path, f"line {lines.line_num}"), [word.strip() for word in words]
    except csv.Error as error:
        raise Place(path, f"line {lines.line_num}").error(error) from error


def _check_columns(where: Place, columns: Sequence[str], sizes: Sizes, tunables: Tunables) -> None:
    known = [*sizes, *tunables]
    for name in columns:
        if name not in known:
            raise where.error(
                f"the column {name!r} is neither a size nor a tunable; choose from {', '.join(known)}"
                f"{suggestion(name, known)}"
            )
        if columns.count(name) > 1:
            raise where.error(f"the column {name!r} stands twice")
    for kind, names in (("size", sizes), ("tunable", tunables)):
        if not any(name in names for name in columns):
            raise where.error(f"no column is a {kind}; the {kind}s are {', '.join(names)}")


def _size(where: Place, name: str, word: str, values: Sequence[int | str]) -> int | str:
    if isinstance(values, range):
        is_number = word.isascii() and word.isdecimal() and len(word) <= MOST_DIGITS
        found: list[int | str] = [int(word)] if is_number and int(word) in values else []
    else:
        found = [value for value in values if str(value) == word]
    if not found:
        raise where.error(f"{name} is {word!r}, which is no size of the kernel")
    return found[0]


def _value(where: Place, name: str, word: str, values: Collection[TunableValue]) -> TunableValue:
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
