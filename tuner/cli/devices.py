"""``tuner devices``, ``doctor`` and ``occupancy``: the devices, their problems, occupancy."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.options import database_option, device_option
from tuner.cli.output import console, echo, json_option, write_json

if TYPE_CHECKING:
    from tuner.devices.listing import DeviceReport
    from tuner.doctor.finding import Finding


_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "bold red"}
_MUST_BE_MENDED = 1


@click.command(short_help="Examine the machine for problems that affect measurements.")
@database_option
@json_option
def doctor(*, database: Path | None, json_path: str | None) -> None:
    """Examine driver, packages, sensors, clocks, GPU and host; nothing is set, and no GPU is given work.

    Each finding is ok, a note, a warning (measurements are possible, and less trustworthy) or an error.
    The exit code is 1 when there is an error, else 0.
    """
    from tuner.doctor.examination import Surroundings, examine
    from tuner.doctor.finding import worst

    around = Surroundings() if database is None else Surroundings(database=database)
    found = list(examine(around))
    if json_path is not None:
        write_json(json_path, {"worst": worst(found), "findings": [asdict(finding) for finding in found]})
    _show(found, json_path)
    if worst(found) == "error":
        sys.exit(_MUST_BE_MENDED)


def _show(found: "list[Finding]", json_path: str | None) -> None:
    from rich.text import Text

    from tuner.doctor.finding import counts

    out = console(json_path)
    for finding in found:
        line = Text(f"{finding.severity:<8}", style=_STYLES[finding.severity])
        line.append(f"{finding.check}: {finding.text}", style="default")
        out.print(line, soft_wrap=True, highlight=False)
        if finding.remedy:
            out.print(f"{'':8}-> {finding.remedy}", markup=False, highlight=False, soft_wrap=True)
    out.print(counts(found), markup=False, highlight=False)


@click.command(short_help="Print the occupancy of a kernel, and its limit.")
@device_option
@click.option("--threads", type=int, required=True, metavar="N", help="Threads of a block.")
@click.option(
    "--registers",
    type=int,
    default=0,
    metavar="N",
    help="Registers of a thread. Default: not counted.",
)
@click.option(
    "--shared-bytes",
    type=int,
    default=0,
    metavar="N",
    help="Shared memory of a block, static and dynamic. Default: none.",
)
@json_option
def occupancy(
    *, device: str | None, threads: int, registers: int, shared_bytes: int, json_path: str | None
) -> None:
    """Print resident blocks, warps and occupancy of a kernel, and the binding limit."""
    from tuner.devices.choice import open_device
    from tuner.model.errors import InputError
    from tuner.space.occupancy import occupancy as fill

    opened = open_device(device)
    try:
        limits, spec = opened.device.limits, opened.device.identity.spec
        if limits is None:
            raise InputError(f"{spec}: the limits of this GPU were not recorded")
    finally:
        opened.device.close()
    if opened.notice:
        echo(f"notice: {opened.notice}", err=True)
    filled = fill(limits, threads, registers, shared_bytes)
    if json_path is not None:
        write_json(
            json_path,
            {
                "device": spec,
                "threads_per_block": threads,
                "registers_per_thread": registers,
                "shared_bytes": shared_bytes,
                "blocks_per_sm": filled.blocks_per_sm,
                "warps_per_sm": filled.warps_per_sm,
                "occupancy": filled.occupancy,
                "limited_by": filled.limited_by,
                "binding": list(filled.binding),
            },
        )
    most = ""
    if threads > limits.max_threads_per_block:
        most = f": a block has at most {limits.max_threads_per_block} threads"
    elif registers > limits.max_registers_per_thread:
        most = f": a thread has at most {limits.max_registers_per_thread} registers"
    also = f" (with {', '.join(filled.binding[1:])})" if filled.binding[1:] else ""
    lines = (
        f"device         {spec}, compute capability {'.'.join(map(str, limits.compute_capability))}",
        f"blocks per SM  {filled.blocks_per_sm} of {limits.max_blocks_per_sm}",
        f"warps per SM   {filled.warps_per_sm} of {limits.max_warps_per_sm}",
        f"occupancy      {100 * filled.occupancy:.4g} %",
        f"limited by     {filled.limited_by}{also}{most}",
    )
    console(json_path).print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


@click.command(short_help="List GPUs, simulated devices and recordings.")
@json_option
def devices(*, json_path: str | None) -> None:
    """List GPUs, simulated devices and recordings with limits, clocks, power sensor, and what is missing."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from tuner.devices.listing import describe_devices

    rows = [_row(report) for report in describe_devices()]
    if json_path is not None:
        write_json(json_path, {"devices": rows})
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("device", "name", "cc", "SMs", "memory", "clocks", "power sensor"):
        table.add_column(title, no_wrap=title == "device")
    for row in rows:
        limits = row["limits"] or {}
        table.add_row(
            row["device"],
            _name(row),
            ".".join(map(str, limits.get("compute_capability", ()))) or "–",
            str(limits.get("multiprocessors", "–")),
            f"{limits['memory_bytes'] / 2**30:.0f} GiB" if limits else "–",
            _clocks(row["clocks_mhz"]),
            row["sensor"] or "–",
        )
    out = console(json_path)
    out.print(table)
    for row in rows:
        for what in row["missing"]:
            out.print(f"{row['device']}: {what}", markup=False, highlight=False)


def _row(report: "DeviceReport") -> dict[str, Any]:
    identity, limits = report.identity, report.limits
    return {
        "device": report.spec,
        "name": None if identity is None else identity.name,
        "uuid": None if identity is None else identity.uuid,
        "driver": None if identity is None else identity.driver,
        "modelled": identity is not None and identity.modelled,
        "recorded": identity.recorded or None if identity is not None else None,
        "limits": None if limits is None else vars(limits),
        "clocks_mhz": list(report.clocks_mhz),
        "sensor": report.sensor,
        "missing": list(report.missing),
    }


def _name(row: dict[str, Any]) -> str:
    """The name, marked where it is recorded; a simulated GPU's says itself that it is modelled."""
    return f"{row['name']}{' (recorded)' if row['recorded'] else ''}" if row["name"] else "–"


def _clocks(clocks_mhz: list[int]) -> str:
    if not clocks_mhz:
        return "–"
    if len(clocks_mhz) <= 5:  # noqa: PLR2004 - as many as fit the column
        return " ".join(map(str, clocks_mhz)) + " MHz"
    return f"{clocks_mhz[-1]} … {clocks_mhz[0]} MHz ({len(clocks_mhz)})"
