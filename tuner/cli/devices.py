"""``tuner devices``: where trials can run, and what is missing."""

from typing import TYPE_CHECKING, Any

import click

from tuner.cli.output import console, json_option, write_json

if TYPE_CHECKING:
    from tuner.devices.worker import DeviceReport


@click.command(short_help="List GPUs, simulated devices and recordings.")
@json_option
def devices(*, json_path: str | None) -> None:
    """List GPUs, simulated devices and recordings with limits, clocks, power sensor, and what is missing."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from tuner.devices.worker import describe_devices

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
