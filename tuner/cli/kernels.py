"""``tuner kernels``: list the catalogue, and check kernel files."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.kernel_check import check
from tuner.cli.kernel_expand import expand
from tuner.cli.kernel_new import new
from tuner.cli.kernel_words import configuration_text, extremes, listed
from tuner.cli.options import kernel_option
from tuner.cli.output import console, echo, json_option, write_json
from tuner.model.errors import InputError

if TYPE_CHECKING:
    from tuner.kernel_files.catalog import Catalog
    from tuner.kernel_files.kernel_file import KernelFile
    from tuner.kernel_files.sizes import SizeValues
    from tuner.model.plan import Workload


@click.group()
def kernels() -> None:
    """List, show, check and begin kernels and their files."""


kernels.add_command(check)
kernels.add_command(expand)
kernels.add_command(new)


@kernels.command("list")
@kernel_option
@json_option
def list_(*, kernel_files: tuple[Path, ...], json_path: str | None) -> None:
    """List the kernels of the catalogue."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from tuner.kernel_files.catalog import Catalog

    catalog = Catalog.load(kernel_files)
    rows = [_summary(catalog.kernel(name)) for name in catalog.names]
    if json_path is not None:
        write_json(json_path, {"kernels": rows, "broken": [str(error) for error in catalog.broken]})
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("name", "family", "sizes", "tunables", "configurations", "from"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(
            row["name"],
            row["family"],
            Text(_sizes(row["sizes"], row["optional"])),
            " ".join(row["tunables"]),
            extremes(sorted(size["configurations"] for size in row["workloads"])),
            row["origin"],
        )
    console(json_path).print(table)
    _warn(catalog)


@kernels.command()
@click.argument("name")
@kernel_option
@json_option
def show(*, name: str, kernel_files: tuple[Path, ...], json_path: str | None) -> None:
    """Show everything about one kernel."""
    from tuner.kernel_files.catalog import Catalog

    alone, _, sizes = name.partition(":")
    if sizes:
        raise InputError(f"{name}: a kernel is shown with all its sizes; write {alone}")
    kernel = Catalog.load(kernel_files).kernel(name)
    document = _details(kernel)
    if json_path is not None:
        write_json(json_path, document)
    _print_details(document, json_path)


@kernels.command(short_help="Write the JSON Schema of kernel files, for editors.")
@click.argument("file", default="-")
@json_option
def schema(*, file: str, json_path: str | None) -> None:
    """Write the JSON Schema of kernel files to FILE (standard output without it), for editors."""
    from tuner.kernel_files.schema import json_schema

    write_json(json_path or file, json_schema())


def _summary(kernel: "KernelFile") -> dict[str, Any]:
    from tuner.kernel_files.catalog import origin

    return {
        "name": kernel.name,
        "description": kernel.description,
        "family": kernel.family,
        "sizes": {name: _values(values) for name, values in kernel.sizes.items()},
        "optional": list(kernel.optional),
        "tunables": {name: list(values) for name, values in kernel.tunables.items()},
        "workloads": _workloads(kernel),
        "origin": origin(kernel.path),
        "path": str(kernel.path),
    }


def _workloads(kernel: "KernelFile") -> list[dict[str, Any]]:
    """The workloads of a kernel, each with its number of configurations."""
    from tuner.config.configuration_counts import configuration_counts

    workloads = kernel.workloads()
    try:
        counts = configuration_counts(kernel, workloads)
    except InputError:  # of one of them: each says so itself
        counts = [0] * len(workloads)
    return [_size(kernel, workload, count) for workload, count in zip(workloads, counts, strict=True)]


def _size(kernel: "KernelFile", workload: "Workload", count: int) -> dict[str, Any]:
    """A workload and its number of configurations; a kernel whose rules fail does not end the list.

    Args:
        kernel: of the workload.
        workload: one of its sizes.
        count: configurations; 0 where they are still to be counted.
    """
    note = ""
    try:
        count = count or kernel.space(workload).size
    except InputError as error:
        note = str(error)
    return {"workload": str(workload), "batch": workload.batch, "configurations": count, "note": note}


def _details(kernel: "KernelFile") -> dict[str, Any]:
    summary = _summary(kernel)
    for row, workload in zip(summary["workloads"], kernel.workloads(), strict=True):
        row["default"] = dict(kernel.default(workload)) if row["configurations"] else None
    return summary | {
        "roles": dict(kernel.roles),
        "conditions": dict(kernel.conditions),
        "rules": list(kernel.rules),
        "spills": kernel.spills,
        "min_occupancy": kernel.min_occupancy,
        "problem": kernel.problem.name,
        "tolerance": kernel.problem.tolerance,
        "stages": list(kernel.stages),
    }


def _print_details(document: dict[str, Any], json_path: str | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    played = {tunable: role for role, tunable in document["roles"].items()}
    occupancy = document["min_occupancy"]
    lines = [
        ("kernel", document["name"]),
        ("description", document["description"]),
        ("family", document["family"]),
        ("problem", document["problem"]),
        ("file", f"{document['path']} ({document['origin']})"),
        ("launches", ", ".join(document["stages"])),
        ("sizes", _sizes(document["sizes"], document["optional"])),
        ("occupancy", "" if occupancy is None else f"at least {occupancy:.0%}"),
        ("spills", "allowed" if document["spills"] else ""),
    ]
    for name, values in document["tunables"].items():
        role = f"   ({played[name]})" if name in played else ""
        condition = document["conditions"].get(name)
        where = "" if condition is None else f"   (where {condition})"
        lines.append((f"tunable {name}", f"{listed(values)}{role}{where}"))
    lines += [("rule", rule) for rule in document["rules"]]
    for key, value in lines:
        if value:
            facts.add_row(Text(key), Text(value))
    sizes = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("workload", "batch", "configurations", "default"):
        sizes.add_column(title, overflow="fold")
    for row in document["workloads"]:
        default = row["note"] if row["default"] is None else configuration_text(row["default"])
        sizes.add_row(row["workload"], str(row["batch"]), str(row["configurations"]), Text(default))
    out = console(json_path)
    out.print(facts)
    out.print()
    out.print(sizes)


def _warn(catalog: "Catalog") -> None:
    for error in catalog.broken:
        echo(f"Warning: {error}", err=True)


def _values(values: "SizeValues") -> list[int | str] | dict[str, int]:
    """The values of a size as the kernel file writes them."""
    return {"from": values[0], "to": values[-1]} if isinstance(values, range) else list(values)


def _sizes(sizes: dict[str, Any], optional: list[str]) -> str:
    """All sizes in a line, as ``N=2…8192 [dtype=float32|float64]``; those in brackets may be left out."""
    shown = []
    for name, values in sizes.items():
        if isinstance(values, dict):
            choice = f"{values['from']}…{values['to']}"
        else:
            choice = "|".join(values) if all(isinstance(value, str) for value in values) else extremes(values)
        shown.append(f"[{name}={choice}]" if name in optional else f"{name}={choice}")
    return " ".join(shown)
