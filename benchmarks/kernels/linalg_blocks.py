"""Times of all blocks of potrf, getrf and geqrf on a GPU.

A space is one factorisation at one order and in one type. Spaces are gone through in random order, and so are
the configurations of each: medians of three runs with the L2 flushed, each run one CUDA graph. The fastest
then go by turns, with the default. The panels alone are timed once in every form. The answers of those that
went by turns are judged by the law of the kernel file. Spaces are written as they are measured. Those already
in the file are not measured again, so that a run that was cut short goes on.

    python benchmarks/kernels/linalg_blocks.py --limit 560 --out blocks.json
    python benchmarks/kernels/linalg_blocks.py --judge blocks.json   # how good are unmeasured choices?
"""

import argparse
import itertools
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from linalg_contest import (
    Contender,
    Document,
    Machine,
    Run,
    Searcher,
    Space,
    as_json,
    compared,
    order,
    seconds,
    shown,
)
from linalg_large_contest import DTYPES, OPERATIONS, LargeLibraries, LargeSets, drawn, large_cases
from linalg_libraries import Case, HostArrays
from provenance import provenance

from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile, environment
from tuner.model.errors import KernelFileError, TunerError
from tuner.model.plan import Configuration, TunableValue

# --- choices that nobody measured -----------------------------------------------------------------
#
# The efficiency of a choice is the least time of the space by its own time, and Phi the harmonic mean over
# the orders ("Performance Tuning for GPU-Embedded Systems", section VI). Three choices are judged:
# ``[default]`` and ``[analytical]`` of the kernel file, and a simple rule that did not see the order it is
# judged at: every tunable is a constant, or the order divided by a constant, or of a panel's columns as many
# as stay in registers, as is best at all other orders.


DIVISORS = (2, 4, 8, 16, 256, 512)  # of the order
CHOICES = ("default", "analytical", "left out")
_NEEDS_SPREAD = 3  # values of a tunable that may follow the order
_COLUMNS, _IN_REGISTERS = (
    "IB",
    "R",
)  # of a panel: a tunable, and a derived name that is 0 where rows are in memory

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


def _times(measured: Any) -> dict[Configuration, float]:
    """Milliseconds of configurations; stored results have a row of values and milliseconds for each."""
    if isinstance(measured, dict):
        return {
            Configuration(dict(zip(measured["tunables"], values, strict=True))): ms
            for *values, ms in measured["times"]
        }
    return {Configuration(one["configuration"]): one["ms"] for one in measured if one.get("ms")}


def _space(row: Document, kernel: KernelFile) -> MeasuredSpace:
    ms = _times(row["measured"])
    for one in row.get("turns", ()):
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


def judged_tables(tables: Sequence[Document]) -> str:
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


# --- a space, every configuration of it measured --------------------------------------------------


FINALISTS = 4
_NEAR = 1.25  # times the fastest: who may go by turns
_PANEL = "panel"  # name of the stage
_NO_PANEL = ("NB", "parts", "ahead")  # tunables that panels alone do not depend on


class OutOfTimeError(RuntimeError):
    """The time ended before all of a space was measured."""


@dataclass(frozen=True)
class OpenedSpace:
    """A space with its matrix.

    Attributes:
        space: of the kernel.
        configurations: that compile, without spills.
        inputs: on the host.
    """

    space: Space
    configurations: Sequence[Configuration]
    inputs: HostArrays


class BlockSpaces:
    """Measures spaces.

    Args:
        machine: the GPU.
        rng: of the order of configurations.
        ends_s: on the monotonic clock.
    """

    def __init__(self, machine: Machine, rng: random.Random, ends_s: float) -> None:
        self._machine, self._rng, self._ends_s = machine, rng, ends_s

    def opened(self, case: Case) -> OpenedSpace:
        """Compile all of a space, and draw its matrix.

        Raises:
            TunerError: nothing is left of the space.
        """
        searcher = self._machine.searcher
        space, first = searcher.opened(case)
        rest = searcher.compiled(space, [one.configuration for one in space.item.candidates])
        return OpenedSpace(space, [*first, *rest], drawn(space.plans[space.item.default]))

    def measured(self, opened: OpenedSpace, budget_s: float) -> dict[str, Any]:
        """Times of all configurations, and of the panels alone.

        Raises:
            OutOfTimeError: the time ends before.
        """
        del budget_s
        begun_s = time.monotonic()
        machine, space = self._machine, opened.space
        given = {name: machine.cp.asarray(host) for name, host in opened.inputs.items()}
        sets = LargeSets(machine.cp, space.plans[space.item.default], given)
        order = list(opened.configurations)
        self._rng.shuffle(order)
        own, panels = self._each(space, order, sets)
        best = sorted((one for one in own if isfinite(one.quick_ms)), key=_quick_ms)
        default = [one for one in best if one.configuration == space.item.default]
        chosen = {one.name: one for one in [*default, *best[:FINALISTS]]}.values()
        finalists = [one for one in chosen if one.quick_ms <= _NEAR * best[0].quick_ms]
        for one in finalists:
            machine.check(space, one, sets)
        machine.rounds([one for one in finalists if one.right], seed=space.case.n)
        return {
            **vars(space.case),
            "measured": [_values(one) for one in own],
            "panels": panels,
            **compared(space, finalists, [], 1, None),
            "turns": [_values(one) for one in finalists],
            "wrong": [shown(one, 1) for one in finalists if not one.right],
            "seconds": round(time.monotonic() - begun_s, 2),
        }

    def _each(
        self, space: Space, order: Sequence[Configuration], sets: LargeSets
    ) -> tuple[list[Contender], list[dict[str, Any]]]:
        """Configurations one after another; a form of panels with the first that has it."""
        own: list[Contender] = []
        panels: dict[Configuration, dict[str, Any]] = {}
        for configuration in order:
            if time.monotonic() >= self._ends_s:
                raise OutOfTimeError(f"only {len(own)} of {len(order)} configurations in time")
            own.append(self._machine.kernel(space, configuration, sets))
            form = Configuration({k: v for k, v in configuration.items() if k not in _NO_PANEL})
            if form not in panels and not own[-1].trouble:
                ms = self._panels_ms(space, configuration, sets)
                panels[form] = {"configuration": as_json(form), "ms": ms}
        return own, list(panels.values())

    def _panels_ms(self, space: Space, configuration: Configuration, sets: LargeSets) -> float | None:
        """Time of the panels one behind the other, of a matrix that nothing updates."""
        plan = space.plans[configuration]
        program = self._machine.code.program(plan)
        own = sets.of(plan)
        steps = [one for one in program.stages if one.name == _PANEL]
        bound = [one.bound(own.arrays[0], program.driver) for one in steps]

        def enqueue(stream: Any, places: Sequence[int]) -> None:
            del places
            for step in bound:
                step.enqueue(stream)

        found = self._machine.timed(f"panels of {configuration}", enqueue, own).quick_ms
        return found if isfinite(found) else None


def _values(one: Contender) -> dict[str, Any]:
    """A configuration with its milliseconds: of three runs, and of all turns that it had."""
    row: dict[str, Any] = {"configuration": as_json(one.configuration)}
    if one.trouble:
        return {**row, "trouble": one.trouble}
    return {**row, "ms": one.quick_ms, **({"turns_ms": list(one.times_ms)} if one.times_ms else {})}


def _quick_ms(contender: Contender) -> float:
    return contender.quick_ms


SIZES = (512, 1024, 2048, 4096, 8192, 16384)


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--judge", nargs="+", type=Path, metavar="FILE", help="measure nothing, judge choices"
    )
    parser.add_argument("--only", nargs="+", choices=OPERATIONS, default=list(OPERATIONS), metavar="KERNEL")
    parser.add_argument("--n", nargs="+", type=order(2, 32768), default=list(SIZES), help="orders")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--limit", type=seconds, default=560.0, metavar="SECONDS", help="for all")
    parser.add_argument("--seed", type=int, default=20, help="of the order")
    parser.add_argument("--out", type=Path, help="JSON, written after every space")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code."""
    options = parsed(words)
    if options.judge:
        documents = [json.loads(path.read_text()) for path in options.judge]
        print(judged_tables(judged(spaces_of(documents, Catalog.load()))))
        return 0
    ends_s = time.monotonic() + options.limit
    try:
        cp = probe.open_cupy(0)
        limits = probe.gpu_limits(cp, 0)
        compiler = Compiler(limits.architecture)
    except TunerError as error:
        print(f"{error}\nThis benchmark needs a CUDA GPU.", file=sys.stderr)
        return 2
    document = begun(options.out)
    document["runs"].append(provenance())
    document |= {"limits": asdict(limits), "failed": [], "left_out": []}
    rng = random.Random(options.seed)  # noqa: S311 - an order
    cases = missing(document, large_cases(options.only, options.n, options.dtype))
    rng.shuffle(cases)
    with compiler:
        searcher = Searcher(limits, compiler, Catalog.load(), batch=1)
        machine = Machine(cp, CodeCache(cp, compiler, limits), LargeLibraries(cp), searcher)
        spaces = BlockSpaces(machine, rng, ends_s)
        run = Run(cp, spaces.opened, spaces.measured, line, options.limit, ends_s, options.out, ahead=False)
        ended = run.rows(cases, document)
    print(f"{len(document['rows'])} spaces; {len(document['left_out'])} left out for want of time")
    return ended


def begun(path: Path | None) -> Document:
    """What is in the file already, or a new document."""
    if path is None or not path.exists():
        return {"runs": [], "rows": []}
    found: Document = json.loads(path.read_text())
    return found


def missing(document: Document, cases: Sequence[Case]) -> list[Case]:
    """The spaces that were not measured yet."""
    known = {(row["operation"], row["n"], row["dtype"]) for row in document["rows"]}
    return [one for one in cases if (one.operation, one.n, one.dtype) not in known]


def line(row: dict[str, Any]) -> str:
    """A space for the terminal."""
    words = [f"{row['operation']} {row['dtype']} n={row['n']:<5}", f"{len(row['measured'])} configurations"]
    for name in ("default", "best"):
        one = row[name]
        if one is not None:
            values = " ".join(f"{key}={value}" for key, value in one["configuration"].items())
            words.append(f"{name} {one['us'] / 1e3:.3f} ms ({values})")
    if row["wrong"]:
        words.append(f"WRONG: {', '.join(one['name'] for one in row['wrong'])}")
    return "  ".join([*words, f"{row['seconds']:.0f} s"])


if __name__ == "__main__":
    sys.exit(main())
