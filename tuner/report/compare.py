"""The table of a comparison, made from its document."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.comparing.choices import TOGETHER
from tuner.comparing.evaluations import CLOSE
from tuner.model.objective import COVERAGE
from tuner.report.words import si, significant, with_uncertainty

_ROOM_FOR_ALL = 110  # characters


def show_comparison(document: Mapping[str, Any], console: Console) -> None:
    """Print a comparison: per operation the best of all trials, and what every policy made of it."""
    console.print(Text(_title(document), style="bold"))
    if document["operations"]:
        console.print(_table(document, console.width))
    for line in (*_legend(document), *document["notices"]):
        console.print(Text(line))


def provenance_word(document: Mapping[str, Any]) -> str:
    """Whether its numbers are ``modelled``, ``recorded`` or ``measured``."""
    if document["modelled"]:
        return "modelled"
    origins = {workload["ground_truth"]["origin"] for workload in document["workloads"]}
    return "recorded" if origins == {"recorded"} else "measured"


def _title(document: Mapping[str, Any]) -> str:
    device = document["device"]
    if device is None:
        return "nothing to compare yet"
    kind = provenance_word(document)
    note = "modelled: a simulated device made these numbers, no GPU ran" if kind == "modelled" else kind
    stopped = ", interrupted" if document["status"] == "interrupted" else ""
    where = f" ({device['spec']})" if device["spec"] else ""  # spaces of other tuners have none
    return f"{device['name']}{where}, {note}; objective {document['objective']}{stopped}"


def _table(document: Mapping[str, Any], width: int) -> Table:
    """A row per operation and policy; a narrow console gets what the comparison is about."""
    kind = provenance_word(document)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    table.add_column("operation", overflow="fold")
    table.add_column("policy", overflow="fold")
    titles = ["Φ", "Φ of seeds", "evalu-\nations", "most", f"to\n{100 * CLOSE:.0f} %"]
    if width >= _ROOM_FOR_ALL:
        titles += [f"performance\n({kind})", f"energy\n({kind})", "search of\na trial"]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for operation in document["operations"]:
        for row in _rows(operation):
            table.add_row(*row[: len(titles) + 2])
        table.add_section()
    return table


def _rows(operation: Mapping[str, Any]) -> Iterator[list[str]]:
    sizes, best = len(operation["workloads"]), operation["best"]
    yield [
        " +".join(operation["operation"].split(TOGETHER)),  # a cell breaks at spaces
        "best of all",
        "1",
        "",
        f"{operation['trials']:,}",
        "",
        "",
        _rate(best),
        _energy(best),
        "",
    ]
    for number, (policy, row) in enumerate(operation["policies"].items()):
        note = f"({sizes} {'size' if sizes == 1 else 'sizes'})" if number == 0 else ""
        yield [
            note,
            policy,
            f"{row['phi']:.4f}",
            f"{row['phi_lowest']:.4f}–{row['phi_highest']:.4f}",
            *map(_count, (row["evaluations"], row["evaluations_most"], row["evaluations_to_close"])),
            _rate(row),
            _energy(row),
            si(row["search_s_per_evaluation"], "s", 2),
        ]


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _rate(row: Mapping[str, Any]) -> str:
    return "–" if row["rate"] is None else f"{significant(row['rate'])} {row['rate_name']}"


def _energy(row: Mapping[str, Any]) -> str:
    if row["energy_j"] is None:
        return "–"
    return with_uncertainty(row["energy_j"], COVERAGE * row["energy_j_uncertainty"], "J")


def _legend(document: Mapping[str, Any]) -> Iterator[str]:
    if not document["operations"]:
        return
    yield (
        "Φ: harmonic mean over the sizes of the efficiency (best cost / cost of the answer); the median of"
        f" {document['seeds']} seeds, and their lowest – highest"
    )
    yield (
        f"evaluations: median and maximum of all searches, {document['budget']} allowed;"
        f" to {100 * CLOSE:.0f} %: evaluations until the answer was so near to the best;"
        " – if most searches never were"
    )
    yield "search of a trial: CPU time of the policy itself for each evaluation"
    rows = [row for operation in document["operations"] for row in operation["policies"].values()]
    if any(row["energy_j"] is not None for row in rows):
        yield "performance and energy: means over sizes; energy over those with joules, ± is a 95 % interval"
