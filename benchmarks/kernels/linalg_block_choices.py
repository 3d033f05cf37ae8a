"""How good choices of blocks are that nobody measured, by the results of linalg_blocks.py.

The efficiency of a choice is the least time of the space by its own time, and Phi the harmonic mean over the
orders ("Performance Tuning for GPU-Embedded Systems", section VI). Three choices are judged: ``[default]``
and ``[analytical]`` of the kernel file, and a simple rule that did not see the order it is judged at: every
tunable is a constant, or the order divided by a constant, or of a panel's columns as many as stay in
registers, as is best at all other orders.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile, environment
from tuner.model.errors import KernelFileError
from tuner.model.plan import Configuration, TunableValue

DIVISORS = (2, 4, 8, 16, 256, 512)  # of the order
CHOICES = ("default", "analytical", "left out")
_NEEDS_SPREAD = 3  # values of a tunable that may follow the order
_COLUMNS, _IN_REGISTERS = (
    "IB",
    "R",
)  # of a panel: a tunable, and a derived name that is 0 where rows are in memory

Document = dict[str, Any]
Chosen = dict[str, TunableValue]


@dataclass(frozen=True)
class MeasuredSpace:
    """Times of one factorisation at one order and in one type.

    Attributes:
        ms: of each configuration that runs.
        default: of the kernel file.
        held: configurations whose panels stay in registers.
        analytical: of the kernel file; None without one.
    """

    operation: str
    dtype: str
    n: int
    ms: Mapping[Configuration, float]
    held: frozenset[Configuration]
    default: Configuration
    analytical: Configuration | None

    @property
    def best(self) -> Configuration:
        """The fastest configuration."""
        return min(self.ms, key=lambda one: self.ms[one])

    def efficiency(self, configuration: Configuration | None) -> float | None:
        """Share of the best speed; None where it was not measured."""
        if configuration is None or configuration not in self.ms:
            return None
        return self.ms[self.best] / self.ms[configuration]


Form = Callable[[MeasuredSpace, Chosen], TunableValue]
"""The value of a tunable, by the space and by the values of others."""

Rule = Mapping[str, Form]


def spaces_of(documents: Sequence[Document], catalog: Catalog) -> list[MeasuredSpace]:
    """The spaces of results; later ones replace earlier ones of the same order and type."""
    rows = {
        (row["operation"], row["dtype"], row["n"]): row for document in documents for row in document["rows"]
    }
    return [_space(row, catalog.kernel(row["operation"])) for _, row in sorted(rows.items())]


def _space(row: Document, kernel: KernelFile) -> MeasuredSpace:
    ms = {Configuration(one["configuration"]): one["ms"] for one in row["measured"] if one.get("ms")}
    for one in row["turns"]:
        if one.get("turns_ms"):
            times = sorted(one["turns_ms"])
            ms[Configuration(one["configuration"])] = times[len(times) // 2]
    workload = kernel.workload({"n": row["n"], "dtype": row["dtype"]}, 1)
    try:
        stated = kernel.stated(workload)
    except KernelFileError:
        stated = None
    held = frozenset(one for one in ms if environment(kernel.recipe, workload, one).get(_IN_REGISTERS, 0))
    of = (row["operation"], row["dtype"], row["n"])
    return MeasuredSpace(*of, ms, held, kernel.default(workload), stated)


def phi(efficiencies: Sequence[float | None]) -> float | None:
    """Harmonic mean; None of nothing, or where one was not measured."""
    known = [one for one in efficiencies if one]
    return len(known) / sum(1 / one for one in known) if known and len(known) == len(efficiencies) else None


def left_out(spaces: Sequence[MeasuredSpace]) -> dict[int, Configuration]:
    """For each order the choice of the rule that is best at all others; spaces of one kernel and type."""
    rules = list(_rules(spaces))
    return {
        space.n: _chosen(max(rules, key=lambda rule, at=space: _score(rule, spaces, at)), space)
        for space in spaces
    }


def _score(rule: Rule, spaces: Sequence[MeasuredSpace], without: MeasuredSpace) -> float:
    """Phi at the other orders."""
    others = [one.efficiency(_chosen(rule, one)) for one in spaces if one is not without]
    return phi(others) or 0.0


def _chosen(rule: Rule, space: MeasuredSpace) -> Configuration:
    """What a rule says, or where that was not measured, what differs from it in the fewest tunables."""
    values: Chosen = {}
    for name in sorted(rule, key=lambda one: one == _COLUMNS):  # these depend on the others
        values[name] = rule[name](space, values)
    said = Configuration(values)
    if said in space.ms:
        return said
    return min(space.ms, key=lambda one: sum(one[name] != value for name, value in said.items()))


def _rules(spaces: Sequence[MeasuredSpace]) -> Iterator[Rule]:
    names = list(spaces[0].default)
    seen = {name: sorted({one[name] for space in spaces for one in space.ms}) for name in names}
    forms = [list(_forms(name, seen[name])) for name in names]
    if any(space.held for space in spaces):
        forms[names.index(_COLUMNS)].append(_most_columns)
    for values in itertools.product(*forms):
        yield dict(zip(names, values, strict=True))


def _forms(name: str, values: Sequence[Any]) -> Iterator[Form]:
    """Constants, and the order divided by constants, as the next smaller value there is."""
    for value in values:
        yield lambda *_, fixed=value: fixed
    if len(values) < _NEEDS_SPREAD or name == _COLUMNS:
        return
    for divisor in DIVISORS:
        yield lambda space, _, by=divisor: max(
            (one for one in values if one <= space.n // by), default=values[0]
        )


def _most_columns(space: MeasuredSpace, others: Chosen) -> TunableValue:
    """As many columns of a panel as stay in registers; the fewest where none do."""
    known = {one[_COLUMNS]: one for one in space.ms if all(one[name] == v for name, v in others.items())}
    held = [columns for columns, one in known.items() if one in space.held]
    return max(held, default=min(one[_COLUMNS] for one in space.ms))


def judged(spaces: Sequence[MeasuredSpace]) -> list[Document]:
    """For each kernel and type the efficiencies of the three choices by order, and their Phi."""
    tables = []
    groups = itertools.groupby(spaces, key=lambda one: (one.operation, one.dtype))
    for (operation, dtype), group in groups:
        some = list(group)
        unseen = left_out(some) if len(some) > 1 else {}
        rows = [_judged_row(space, unseen.get(space.n)) for space in some]
        means = {name: phi([row["efficiency"][name] for row in rows]) for name in CHOICES}
        tables.append({"operation": operation, "dtype": dtype, "rows": rows, "phi": means})
    return tables


def _judged_row(space: MeasuredSpace, unseen: Configuration | None) -> Document:
    choices = dict(zip(CHOICES, (space.default, space.analytical, unseen), strict=True))
    return {
        "n": space.n,
        "ms": space.ms[space.best],
        "best": dict(space.best),
        "efficiency": {name: space.efficiency(one) for name, one in choices.items()},
    }


def shown(tables: Sequence[Document]) -> str:
    """The tables as Markdown."""
    parts = []
    for table in tables:
        parts.append(f"\n**{table['operation']}, {table['dtype']}**\n")
        parts.append(f"| n | best, ms | {' | '.join(CHOICES)} | best |")
        parts.append("| --- " * (len(CHOICES) + 3) + "|")
        for row in table["rows"]:
            cells = [_share(row["efficiency"][name]) for name in CHOICES]
            best = ", ".join(f"{name}={value}" for name, value in row["best"].items())
            parts.append(f"| {row['n']} | {row['ms']:.3f} | {' | '.join(cells)} | {best} |")
        parts.append(f"| Φ | | {' | '.join(_share(table['phi'][name]) for name in CHOICES)} | |")
    return "\n".join(parts) + "\n"


def _share(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.3f}"
