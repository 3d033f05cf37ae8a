"""``tuner explain``: the choice of the analytical model, and its reasons."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import completion
from tuner.cli.options import device_option, kernel_option, with_files
from tuner.cli.output import console, echo, json_option, write_json

if TYPE_CHECKING:
    from rich.table import Table


_LETTERS = ("S", "P", "L", "r", "shuffle")
_LEGEND = (
    "of a block: S elements in shared memory, P elements of each thread, L threads, r radix;"
    " of a multiprocessor: B_a blocks and W_SM warps at once"
)
_KIB = 1024


@click.command(short_help="Show the analytical model's choice and reasons; runs nothing.")
@click.argument(
    "workloads", nargs=-1, required=True, metavar="WORKLOAD...", shell_complete=completion.workloads
)
@device_option
@kernel_option
@click.option(
    "--rule",
    type=click.Choice(["embedded", "server"]),
    help="The rule. Default: embedded up to 20 multiprocessors, server above.",
)
@click.option(
    "--all", "show_all", is_flag=True, help="Compile and show all candidates, not only the first ten."
)
@json_option
def explain(
    workloads: tuple[str, ...],
    *,
    device: str | None,
    kernel_files: tuple[Path, ...],
    rule: str | None,
    show_all: bool,
    json_path: str | None,
) -> None:
    """Show what the analytical model chooses for each WORKLOAD on a GPU, and why; nothing is run.

    A WORKLOAD is a kernel at a problem size, e.g. scan-lf:N=1024. Its candidates that may be the best are
    compiled (once; the code is kept) and listed in the order of the rule, best first.
    """
    from tuner.report.progress import RunProgress
    from tuner.search.explaining import SHOWN
    from tuner.search.explaining import explain as explained

    workloads, kernel_files = with_files(workloads, kernel_files)
    with RunProgress("time") as progress:
        document = explained(
            workloads,
            device,
            kernel_files,
            rule=rule,
            shown=None if show_all else SHOWN,
            progress=progress.compiled,
        )
    for notice in document["notices"]:
        echo(f"notice: {notice}", err=True)
    if json_path is not None:
        write_json(json_path, document)
    _print(document, json_path)


def _print(document: dict[str, Any], json_path: str | None) -> None:
    from rich.text import Text

    out = console(json_path)
    device = document["device"]
    limits = (
        "limits not known"
        if device["compute_capability"] is None
        else f"compute capability {'.'.join(map(str, device['compute_capability']))}, "
        f"{device['multiprocessors']} multiprocessors of {device['max_warps_per_sm']} warps and"
        f" {device['max_blocks_per_sm']} blocks"
    )
    out.print(Text(f"{device['name']} ({device['spec']}): {limits}"), soft_wrap=True)
    for workload in document["workloads"]:
        out.print()
        out.print(Text(workload["workload"], style="bold"))
        if workload["candidates"]:
            out.print(_table(workload["candidates"]))
            out.print(Text(_LEGEND, style="dim"))
        for line in (*workload["reasons"], *_cost(workload)):
            out.print(Text(line))


def _table(rows: list[dict[str, Any]]) -> "Table":
    """A row per candidate; tunables without a role stand where they differ, launches side by side."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from tuner.model.plan import shown_values

    letters = [letter for letter in _LETTERS if rows[0][letter] is not None]
    others = _others(rows)
    in_flight = any(row["bytes_in_flight"] for row in rows)
    titles = [*letters, "registers", "shared\n(B)", "B_a", "W_SM", "occu-\npancy", "bound by"]
    titles += ["in flight\n(KiB)"] if in_flight else []
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in titles:
        table.add_column(title, no_wrap=True)
    if others:
        table.add_column("others")
    for row in rows:
        cells = [*(_value(row[letter]) for letter in letters), *_numbers(row)]
        if in_flight:
            cells.append(f"{row['bytes_in_flight'] / _KIB:.0f}")
        if others:
            cells.append(shown_values({name: row["configuration"][name] for name in others}))
        table.add_row(*cells)
    return table


def _others(rows: list[dict[str, Any]]) -> list[str]:
    """Tunables that no letter shows and that differ among the rows."""
    shown = [row["configuration"] for row in rows]
    lettered = {
        name
        for name in shown[0]
        if any(all(row[letter] == row["configuration"][name] for row in rows) for letter in _LETTERS)
    }
    return [name for name in shown[0] if name not in lettered and len({c[name] for c in shown}) > 1]


def _numbers(row: dict[str, Any]) -> list[str]:
    launches = row["launches"]
    joined = [
        " + ".join(str(launch[key]) for launch in launches)
        for key in ("registers_per_thread", "shared_bytes", "B_a", "W_SM")
    ]
    names = list(dict.fromkeys(name for launch in launches for name in launch["binding"]))
    binding = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    return [*joined, f"{100 * row['occupancy']:.3g} %", binding]


def _value(value: Any) -> str:  # noqa: ANN401 - any value of a tunable
    return str(int(value)) if isinstance(value, bool) else str(value)


def _cost(workload: dict[str, Any]) -> list[str]:
    """The time of the model, and the number of candidates."""
    from tuner.report.words import si

    pruned = "".join(f", {count} dropped: {reason}" for reason, count in workload["pruned"].items())
    count = workload["considered"] - workload["uncompiled"]
    number = f"{count:,} of {workload['considered']:,}" if workload["uncompiled"] else f"{count:,}"
    prepare, choose = (si(workload[key], "s") for key in ("prepare_s", "choose_s"))
    return [
        f"{number} candidates, {workload['resources']}{pruned}",
        f"{prepare} for the space, {choose} to compile and choose; nothing was run",
    ]
