"""``tuner power sensors``: the power readings of a device, and the selected one."""

import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.output import console, json_option, write_json

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.devices.sensor_survey import SensorReport
    from tuner.interfaces.power import SensorInfo


_LOOK_S = 1.0  # ten updates of the slowest reading of a GPU


@click.command(short_help="List power readings, and the selected one.")
@click.option(
    "--device",
    metavar="SPEC",
    help="cuda:N, a GPU's UUID, NVML's index, or sim:NAME (see `tuner devices`). Default: the first GPU.",
)
@json_option
def sensors(*, device: str | None, json_path: str | None) -> None:
    """List power readings with scope and response, and the selected one.

    A reading is there if it answers a read. Each is looked at for a second, with nothing set and nothing run.
    `tuner power calibrate` replaces what is published or assumed of a reading by what this very GPU shows.
    """
    found, reports = _found(device)
    document = {"device": found, "readings": [_row(report) for report in reports]}
    if json_path is not None:
        write_json(json_path, document)
    _show(console(json_path), found, reports)


def _found(spec: str | None) -> tuple[dict[str, Any], "list[SensorReport]"]:
    """The device, and the reports of its readings; a GPU is looked at without being opened for computing."""
    import time

    from tuner.devices.scopes import host_readings
    from tuner.devices.sensor_survey import survey
    from tuner.devices.sensors import device_readings
    from tuner.devices.simulated.device import SimulatedDevice
    from tuner.joules.watching import find_gpu, readings

    if spec is not None and spec.startswith("sim:"):
        with contextlib.closing(SimulatedDevice(spec)) as device:
            reports = survey(device_readings(device), seconds=_LOOK_S, now=device.now_s, pause=device.sleep)
            return asdict(device.identity), reports
    gpu = find_gpu(spec, "tuner power sensors", also="sim:NAME (see `tuner devices`)")
    reports = survey(readings(gpu), seconds=_LOOK_S, now=time.monotonic)
    reports += survey(host_readings(), seconds=_LOOK_S, now=time.monotonic, choose=False)
    identity = {"spec": spec or "", "name": gpu.name, "uuid": gpu.uuid, "driver": gpu.driver}
    return {**identity, "modelled": False}, reports


def _row(report: "SensorReport") -> dict[str, Any]:
    info = report.info
    told = {} if info is None else {name: value for name, value in asdict(info).items() if name != "name"}
    return {
        "reading": report.name,
        "available": info is not None,
        "chosen": report.chosen,
        "why": report.why,
        "period_measured": report.measured,
        "watts": report.watts,
        **told,
    }


def _show(out: "Console", device: dict[str, Any], reports: "list[SensorReport]") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    name = f"{device['name']}, driver {device['driver']}" if device["driver"] else device["name"]
    out.print(name, markup=False, highlight=False)
    if any(report.info for report in reports):
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for title in ("reading", "sees", "kind", "every", "follows power as", "shows", "taken"):
            table.add_column(title, no_wrap=title == "reading")
        for report in reports:
            if report.info is not None:
                table.add_row(*_cells(report, report.info))
        out.print(table)
    for report in reports:
        if report.why:
            out.print(f"{report.name}: {report.why}", markup=False, highlight=False)
    out.print(_conclusion(reports), markup=False, highlight=False)


def _cells(report: "SensorReport", info: "SensorInfo") -> tuple[str, ...]:
    from tuner.report.words import response_words, si

    every = si(info.period_s, "s", 3)
    return (
        report.name,
        info.scope,
        info.kind,
        every if report.measured else f"{every}, expected",
        "energy since a start" if info.kind == "counter" else response_words(info.response),
        si(report.watts, "W"),
        "yes" if report.chosen else "no",
    )


def _conclusion(reports: "list[SensorReport]") -> str:
    chosen = next((report.name for report in reports if report.chosen), None)
    if chosen is not None:
        return f"{chosen} is taken; `--sensor NAME` of run, watch and trace takes another."
    if any(report.info for report in reports):
        return "No reading is taken by itself; `--sensor NAME` of run, watch and trace takes one."
    return "No power reading answers here: no energy can be measured."
