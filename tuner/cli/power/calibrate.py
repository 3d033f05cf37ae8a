"""``tuner power calibrate``: identify the response of each power reading."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import click

from tuner.cli.options import finite
from tuner.cli.output import console, json_option, write_json

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from tuner.devices.base import Device, LoadSource
    from tuner.devices.gpu_state import ResponseIdentification
    from tuner.interfaces.power import PowerSampler
    from tuner.joules.watching import Gpu
    from tuner.model.device import DeviceIdentity


_Z95 = 1.96  # standard uncertainties to either side hold 95 % of a normal distribution


@click.command()
@click.option(
    "--device",
    metavar="SPEC",
    help="cuda:N, or sim:NAME, e.g. sim:jetson-tx1 (see `tuner devices`). Default: cuda:0.",
)
@click.option(
    "--sensor",
    "names",
    multiple=True,
    metavar="NAME",
    help="A reading, as `tuner power sensors` names it; may be given several times. Default: all.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=15.0, max=600.0),
    metavar="SECONDS",
    callback=finite,
    default=60.0,
    show_default=True,
    help="Approximate duration of the load.",
)
@json_option
def calibrate(*, device: str | None, names: tuple[str, ...], seconds: float, json_path: str | None) -> None:
    """Identify how the power readings of a GPU follow its power.

    Runs a known load (steps, pulses of random lengths, square waves) for about a minute, with no clock or
    other setting changed, fits every model to what each reading shows, and stores the best for this GPU and
    driver. The GPU must have nothing else to do.
    """
    from tuner.devices import power
    from tuner.devices.choice import open_device
    from tuner.devices.gpu_users import require_exclusive_gpu
    from tuner.devices.sensors import user_file
    from tuner.joules.watching import readable_clocks
    from tuner.model.errors import RunInterrupted

    path = user_file()
    power.prepare_calibrations(path)
    with contextlib.ExitStack() as stack:
        clocks, celsius = None, []
        if device is None or not device.startswith("sim:"):
            gpu = _gpu(device)
            celsius.append(require_exclusive_gpu(gpu.gpu))
            clocks = stack.enter_context(readable_clocks(gpu))
        # named, so that no simulated device stands in: it tells nothing of this machine's sensors
        opened, notice = open_device(device or "cuda:0")
        stack.callback(opened.close)
        identity = opened.identity
        samplers, unavailable = _opened(stack, opened, names)
        try:
            with _progress(seconds) as told:
                found = power.calibrate(
                    cast("LoadSource", opened),  # cuda: and sim: devices are
                    list(samplers.values()),
                    clocks=clocks,
                    seconds=seconds,
                    progress=told,
                )
        except KeyboardInterrupt as order:
            raise RunInterrupted("interrupted; no calibration was stored") from order
        if not identity.modelled:
            celsius.append(require_exclusive_gpu(identity.uuid, ours=1))
    by_name = dict(zip(samplers, found, strict=True))
    document = {
        "device": asdict(identity),
        "temperatures_c": celsius,
        "seconds": seconds,
        "readings": [asdict(identified) | {"name": name} for name, identified in by_name.items()],
        "unavailable": unavailable,
        "stored": str(path) if _store(path, identity, by_name) else None,
        "best": next((name for name, identified in by_name.items() if identified.usable), None),
    }
    if json_path is not None:
        write_json(json_path, document)
    _show(console(json_path), document, notice)


def _gpu(spec: str | None) -> "Gpu":
    """The GPU to calibrate, on which CUDA can run a load.

    Raises:
        InputError: the name of the device is none on which a load can run.
        DeviceUnavailableError: there is no such GPU.
    """
    from tuner.joules.watching import find_gpu
    from tuner.model.errors import DeviceUnavailableError, UnknownNameError

    if spec is not None and not spec.startswith("cuda"):
        raise UnknownNameError(f"--device {spec}: choose cuda:N, or sim:NAME (see `tuner devices`)")
    try:
        return find_gpu(spec or "cuda:0", "tuner power calibrate")
    except DeviceUnavailableError as error:
        raise DeviceUnavailableError(
            f"no GPU to calibrate: {error}; --device sim:NAME calibrates a simulated one"
        ) from error


def _opened(
    stack: contextlib.ExitStack, device: "Device", names: tuple[str, ...]
) -> tuple[dict[str, "PowerSampler"], dict[str, str]]:
    """Samplers of the readings asked for, or of all, best first, and why some of all are not there.

    Raises:
        InputError: the device has no reading of that name, or it does not answer.
        SensorUnavailableError: none at all answers.
    """
    from tuner.devices.sensors import device_readings, open_reading
    from tuner.model.errors import SensorUnavailableError

    samplers: dict[str, PowerSampler] = {}
    unavailable = {}
    for name in dict.fromkeys(names):
        samplers[name] = open_reading(device, name)
        stack.callback(samplers[name].close)
    for reading in () if names else device_readings(device):
        try:
            samplers[reading.name] = reading.open()
        except SensorUnavailableError as error:
            unavailable[reading.name] = str(error).removeprefix(f"{reading.name}: ")
            continue
        stack.callback(samplers[reading.name].close)
    if not samplers:
        why = "; ".join(f"{name}: {reason}" for name, reason in unavailable.items())
        raise SensorUnavailableError(f"no power reading of {device.identity.spec} answers: {why or 'none'}")
    return samplers, unavailable


def _store(path: "Path", identity: "DeviceIdentity", found: "Mapping[str, ResponseIdentification]") -> bool:
    """Store the responses of the readings for later runs; False if none was identified."""
    from tuner.devices import power

    good = {
        name: (identified.stored, identified.period_s)
        for name, identified in found.items()
        if identified.stored is not None
    }
    if good:
        power.store_calibrations(path, identity.uuid, identity.driver, good)
    return bool(good)


@contextlib.contextmanager
def _progress(seconds: float) -> Iterator[Callable[[float, float], None]]:
    """A bar on standard error; nothing where that is no terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from tuner.report.console import PlainConsole

    err = PlainConsole(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:.0f} of {task.total:.0f} s"),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
    with bar:
        task = bar.add_task("running the load", total=seconds)
        yield lambda done_s, total_s: bar.update(task, completed=done_s, total=total_s)


def _show(out: "Console", document: dict[str, Any], notice: str) -> None:
    """The table, remarks on each reading, and the place where the result is stored."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    identity = document["device"]
    if notice:
        out.print(notice, markup=False, highlight=False)
    out.print(f"{identity['name']}, driver {identity['driver']}", markup=False, highlight=False)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("reading", "every", "model", "C or window", "delay", "aliasing", "for energy"):
        table.add_column(title, no_wrap=True, justify="left" if title in ("reading", "model") else "right")
    for row in document["readings"]:
        table.add_row(*_cells(row))
    out.print(table)
    if len(warm := [celsius for celsius in document["temperatures_c"] if celsius is not None]) > 1:
        out.print(f"{warm[0]:.0f} °C before the load, {warm[-1]:.0f} °C after it", highlight=False)
    for row in document["readings"]:
        for line in _remarks(row):
            out.print(line, markup=False, highlight=False)
    for name, reason in document["unavailable"].items():
        out.print(f"{name}: not calibrated: {reason}", markup=False, highlight=False)
    _conclude(out, document)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    response = row["response"]
    if response is None:
        return (row["name"], _ms(row["period_s"]), *4 * ("–",), "no")
    size = response["capacitance_s"] + response["window_s"]
    sigma = response["capacitance_sigma_s"] + response["window_sigma_s"]
    return (
        row["name"],
        _ms(row["period_s"]),
        response["kind"],
        _ms(size, sigma) if size else "–",
        _ms(response["delay_s"], response["delay_sigma_s"]),
        "–" if row["aliasing"] is None else f"{row['aliasing']:.0%} of load",
        "yes" if row["usable"] else "no",
    )


def _ms(value_s: float, sigma_s: float | None = None) -> str:
    """Milliseconds, with a 95 % interval of two digits where an uncertainty is given."""
    if sigma_s is None:
        return f"{1e3 * value_s:.4g} ms"
    half = _Z95 * 1e3 * sigma_s
    decimals = max(0, 1 - math.floor(math.log10(half))) if half > 0 else 1
    return f"{1e3 * value_s:.{decimals}f} ± {half:.{decimals}f} ms"


def _remarks(row: dict[str, Any]) -> Iterator[str]:
    """Reasons why a reading is not used or not corrected, and the evidence for its model."""
    name = row["name"]
    if row["reason"]:
        yield f"{name}: {row['reason']}"
    if not row["candidates"]:
        return
    best, *others = row["candidates"]
    behind = ", ".join(f"{other['kind']} {other['bic'] - best['bic']:+.0f}" for other in others)
    yield f"{name}: {best['kind']} by BIC ({behind}), from {row['samples']} samples"
    sides = ""
    if row["rise_s"] is not None:
        sides = f"; {_ms(row['rise_s'])} as it rises, {_ms(row['fall_s'])} as it falls"
    yield f"{name}: {row['idle_w']:.4g} W idle, {row['idle_w'] + row['step_w']:.4g} W under load{sides}"
    if row["kind"] == "counter" and (response := row["response"]) is not None:
        age_s = response["capacitance_s"] + response["delay_s"]
        yield f"{name}: a tick has counted what was drawn up to {1e3 * age_s:.1f} ms before it"


def _conclude(out: "Console", document: dict[str, Any]) -> None:
    modelled = " (modelled, and kept apart from real ones)" if document["device"]["modelled"] else ""
    lines = ["Intervals are 95 %; C is that of equation (6)."]
    if document["best"] is None:
        lines.append("No reading may be used for energy.")
    else:
        lines.append(f"The best reading for energy is {document['best']}.")
    if document["stored"] is None:
        lines.append("Nothing was stored.")
    else:
        gpu, driver = document["device"]["uuid"], document["device"]["driver"]
        lines.append(f"Stored for {gpu} under driver {driver}{modelled} in {document['stored']}.")
    for line in lines:
        out.print(line, markup=False, highlight=False)
