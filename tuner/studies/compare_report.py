"""The table and the picture of a comparison: Φ of every policy, and how it grows with the evaluations."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.text import Text

from tuner.model.objective import COVERAGE
from tuner.model.units import si, significant, with_uncertainty
from tuner.report.layout import ruled
from tuner.report.power_tables import need_matplotlib, save_figure
from tuner.report.rows import Column, Table
from tuner.studies.comparison import CLOSE, TOGETHER, Group, Rules
from tuner.studies.comparison import operation as operation_of
from tuner.studies.scores import ComparisonDocument, Means, OperationDocument

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table as RichTable


_ROOM_FOR_ALL = 110  # characters
_COLUMNS = 3  # of small pictures
_WIDTH_INCHES, _BARS_INCHES, _ROW_INCHES = 10.0, 2.6, 2.1
_DPI = 80
_GROUP = 0.84  # of the room of an operation, for its bars
_FIRST = 2  # points of a curve that may lie below the picture: the first trials are anybody's guess
_ROOM = 0.1  # below the lowest value shown, by the range to 1
_LEAST_RANGE = 0.02  # of Φ shown: less is noise of the measurements


def show_comparison(document: ComparisonDocument, console: Console) -> None:
    """Print a comparison: per operation the best of all trials, and what every policy made of it."""
    console.print(Text(_title(document), style="bold"))
    if document["operations"]:
        console.print(_table(document, console.width))
    for line in (*_legend(document), *document["notices"]):
        console.print(Text(line))


def plan(groups: Sequence[Group], rules: Rules) -> str:
    """Return a line on the size of a comparison: its policies, spaces, seeds and searches."""
    searches = len(groups) * len(rules.policies) * rules.seeds
    return (
        f"comparing {_counted(len(rules.policies), 'policy', 'policies')}"
        f" on {_counted(len(groups), 'space', 'spaces')}"
        f" of {_counted(len(set(map(operation_of, groups))), 'operation', 'operations')}"
        f" with {_counted(rules.seeds, 'seed', 'seeds')}: {_counted(searches, 'search', 'searches')}"
        + ("" if rules.budget is None else f", each of at most {rules.budget:,} trials")
    )


def provenance_word(document: ComparisonDocument) -> str:
    """Return the provenance of its numbers: ``modelled``, ``recorded`` or ``measured``."""
    if document["modelled"]:
        return "modelled"
    origins = {workload["ground_truth"]["origin"] for workload in document["workloads"]}
    return "recorded" if origins == {"recorded"} else "measured"


def _title(document: ComparisonDocument) -> str:
    device = document["device"]
    if device is None:
        return "nothing to compare yet"
    kind = provenance_word(document)
    note = "modelled: a simulated device made these numbers, no GPU ran" if kind == "modelled" else kind
    stopped = ", interrupted" if document["status"] == "interrupted" else ""
    where = f" ({device['spec']})" if device["spec"] else ""  # spaces of other tuners have none
    return f"{device['name']}{where}, {note}; objective {document['objective']}{stopped}"


class _Row(NamedTuple):
    """Texts of a policy, or of the best of all; dashes for one that an interruption left without figures."""

    operation: str
    policy: str
    phi: str = "–"
    of_seeds: str = "–"
    evaluations: str = "–"
    most: str = "–"
    to_close: str = "–"
    performance: str = "–"
    energy: str = "–"
    search: str = "–"


def _table(document: ComparisonDocument, width: int) -> "RichTable":
    """A row per operation and policy; a narrow console gets what the comparison is about."""
    kind = provenance_word(document)
    columns: list[Column[_Row]] = [
        Column("operation", lambda row: row.operation),
        Column("policy", lambda row: row.policy),
        Column("Φ", lambda row: row.phi, number=True, whole=True),
        Column("Φ of seeds", lambda row: row.of_seeds, number=True, whole=True),
        Column("trials", lambda row: row.evaluations, number=True, whole=True),
        Column("most", lambda row: row.most, number=True, whole=True),
        Column(f"to\n{100 * CLOSE:.0f} %", lambda row: row.to_close, number=True, whole=True),
    ]
    if width >= _ROOM_FOR_ALL:
        columns += [
            Column(f"performance\n({kind})", lambda row: row.performance, number=True, whole=True),
            Column(f"energy\n({kind})", lambda row: row.energy, number=True, whole=True),
            Column("search of\na trial", lambda row: row.search, number=True, whole=True),
        ]
    groups = [list(_rows(operation, document["policies"])) for operation in document["operations"]]
    shown = ruled(Table(columns, [row for group in groups for row in group]))
    shown.collapse_padding = True
    for end in accumulate(map(len, groups)):
        shown.rows[end - 1].end_section = True
    return shown


def _rows(operation: OperationDocument, policies: Sequence[str]) -> Iterator[_Row]:
    """The best, and every policy."""
    best, scores = operation["best"], operation["policies"]
    yield _Row(
        " +".join(operation["operation"].split(TOGETHER)),  # a cell breaks at spaces
        "best of all",
        phi="1",
        of_seeds="",
        evaluations=f"{operation['trials']:,}",
        most="",
        to_close="",
        performance=_rate(best),
        energy=_energy(best),
        search="",
    )
    every, compared = len(operation["workloads"]), len(operation["compared"])
    sizes = _counted(every, "size", "sizes")
    note = f"({sizes})" if compared == every else f"({compared} of {sizes})"
    if not scores:
        yield _Row(note, "no policy yet")
        return
    for number, policy in enumerate(policies):
        beside = note if number == 0 else ""
        if policy not in scores:
            yield _Row(beside, policy)
            continue
        row = scores[policy]
        yield _Row(
            beside,
            policy,
            phi=f"{row['phi']:.4f}",
            of_seeds=f"{row['phi_lowest']:.4f}–{row['phi_highest']:.4f}",
            evaluations=_count(row["evaluations"]),
            most=_count(row["evaluations_most"]),
            to_close=_count(row["evaluations_to_close"]),
            performance=_rate(row),
            energy=_energy(row),
            search=si(row["search_s_per_evaluation"], "s", 2),
        )


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _rate(row: Means) -> str:
    return "–" if row["rate"] is None else f"{significant(row['rate'])} {row['rate_name']}"


def _energy(row: Means) -> str:
    if row["energy_j"] is None or row["energy_j_uncertainty"] is None:
        return "–"
    return with_uncertainty(row["energy_j"], COVERAGE * row["energy_j_uncertainty"], "J")


def _legend(document: ComparisonDocument) -> Iterator[str]:
    if not document["operations"]:
        return
    yield f"best of all: the trials of lowest {document['objective']}, over the same sizes as the policies"
    yield (
        "Φ: harmonic mean over the sizes of the efficiency (best cost / cost of the answer); the median of"
        f" {document['seeds']} seeds, and their lowest – highest"
    )
    yield (
        f"trials: median and maximum of all searches, {document['budget']} allowed;"
        f" to {100 * CLOSE:.0f} %: trials until the answer was so near to the best;"
        " – if most searches never were"
    )
    yield "search of a trial: CPU time of the policy itself for each of them"
    rows = [row for operation in document["operations"] for row in operation["policies"].values()]
    if any(row["energy_j"] is not None for row in rows):
        yield "performance and energy: means over sizes; energy over those with joules, ± is a 95 % interval"


def draw_comparison(document: ComparisonDocument, path: Path) -> None:
    """Draw a comparison into a file: bars of Φ above, below Φ over evaluations for every operation.

    Raises:
        InputError: matplotlib is missing, or the file cannot be written.
    """
    need_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and optional

    operations = [operation for operation in document["operations"] if operation["policies"]]
    rows = math.ceil(len(operations) / _COLUMNS)
    figure = Figure(
        figsize=(_WIDTH_INCHES, _BARS_INCHES + rows * _ROW_INCHES + 0.6), dpi=_DPI, layout="constrained"
    )
    grid = figure.add_gridspec(1 + rows, _COLUMNS, height_ratios=[_BARS_INCHES, *[_ROW_INCHES] * rows])
    colours = {policy: f"C{number}" for number, policy in enumerate(document["policies"])}
    bars = figure.add_subplot(grid[0, :])
    _bars(bars, operations, colours)
    for place, operation in enumerate(operations):
        axes = figure.add_subplot(grid[1 + place // _COLUMNS, place % _COLUMNS])
        _curves(axes, operation, colours)
        if place + _COLUMNS >= len(operations):  # the lowest of its column
            axes.set_xlabel("trials", fontsize="small")
    handles, labels = bars.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small", frameon=False)
    device = "" if document["device"] is None else document["device"]["name"]
    title = (
        f"Φ by policy on {device} ({provenance_word(document)}), objective {document['objective']},"
        f" {document['seeds']} seeds; bands hold two of three seeds"
    )
    figure.suptitle(title, fontsize="medium", parse_math=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a letter that the font lacks is drawn as a box
        save_figure(figure, path)


def _bars(axes: "Axes", operations: Sequence[OperationDocument], colours: Mapping[str, str]) -> None:
    """Φ of every policy by operation, with the range over seeds."""
    width = _GROUP / len(colours)
    for number, (policy, colour) in enumerate(colours.items()):
        rows = [
            (place, o["policies"][policy]) for place, o in enumerate(operations) if policy in o["policies"]
        ]
        middles = [row["phi"] for _, row in rows]
        axes.bar(
            [place + (number + 0.5) * width - _GROUP / 2 for place, _ in rows],
            middles,
            width,
            color=colour,
            label=policy,
            yerr=[
                [max(0.0, phi - row["phi_lowest"]) for phi, (_, row) in zip(middles, rows, strict=True)],
                [max(0.0, row["phi_highest"] - phi) for phi, (_, row) in zip(middles, rows, strict=True)],
            ],
            error_kw={"lw": 0.8, "ecolor": "0.3"},
        )
    every = [row["phi_lowest"] for o in operations for row in o["policies"].values()]
    axes.set_ylim(*_limits(every))
    axes.set_xticks(range(len(operations)), [_short(o["operation"], 1) for o in operations], fontsize="small")
    axes.set_ylabel("Φ")
    axes.grid(axis="y", alpha=0.3)


def _curves(axes: "Axes", operation: OperationDocument, colours: Mapping[str, str]) -> None:
    """Φ over evaluations: median and band over seeds, dotted from the end of the last play on."""
    last = max(row["curve"]["evaluations"][-1] for row in operation["policies"].values())
    lows: list[float] = []
    for policy, row in operation["policies"].items():
        curve, colour = row["curve"], colours[policy]
        counts, median = curve["evaluations"], curve["median"]
        axes.plot(counts, median, color=colour, lw=1.2)
        axes.plot(counts[-1], median[-1], "o", ms=3.0, color=colour)
        axes.plot((counts[-1], last), (median[-1], median[-1]), ":", color=colour, lw=1.0)
        axes.fill_between(counts, curve["low"], curve["high"], color=colour, alpha=0.15, lw=0)
        lows += median[_FIRST:] or median[-1:]
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(*_limits(lows))
    axes.set_title(_short(operation["operation"], 2), fontsize="small", parse_math=False)
    axes.tick_params(labelsize="x-small")
    axes.grid(alpha=0.3)


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """Of the axis of Φ: from a little below the lowest value to 1; where all plays failed, it is left out."""
    span = max(_LEAST_RANGE, 1.0 - min((value for value in values if value > 0.0), default=0.0))
    return max(0.0, 1.0 - (1.0 + _ROOM) * span), 1.0 + 0.03 * span


def _short(operation: str, kernels: int) -> str:
    """A name that has room: so many kernels of a co-run in a line."""
    parts = operation.split(TOGETHER)
    lines = [TOGETHER.join(parts[i : i + kernels]) for i in range(0, len(parts), kernels)]
    return f"{TOGETHER}\n".join(lines)
