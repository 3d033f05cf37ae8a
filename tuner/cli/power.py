"""``tuner power``: the power sensors of this machine, their readings and traces."""

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from tuner.cli.main import LazyGroup
from tuner.cli.options import finite, scope_option
from tuner.cli.output import console, echo, json_option, writable, write_json
from tuner.model.errors import (
    DeviceUnavailableError,
    InputError,
    PowerError,
    RunInterrupted,
    SensorUnavailableError,
    UnknownNameError,
)
from tuner.system.untrusted.reading import escaped

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.devices.base import Device
    from tuner.devices.sensors import SensorReport
    from tuner.joules.trace_result import ProgramTrace
    from tuner.joules.watching import Gpu, PowerSnapshot
    from tuner.power.base import LoadSource, PowerSampler, Response, SensorInfo
    from tuner.power.response.calibrate import Identification


COMMANDS = {
    "sensors": "tuner.cli.power:sensors",
    "watch": "tuner.cli.power:watch",
    "trace": "tuner.cli.power:trace",
    "calibrate": "tuner.cli.power:calibrate",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def power() -> None:
    """Power sensors: find, watch, record and calibrate them."""


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
    from tuner.devices.choice import open_device
    from tuner.devices.gpu_users import require_exclusive_gpu
    from tuner.devices.sensors import user_file
    from tuner.joules.watching import readable_clocks
    from tuner.power.response import calibrate as response
    from tuner.power.response import calibrations

    path = user_file()
    calibrations.prepare(path)
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
            with _progress(seconds) as progress:
                identified = response.calibrate(
                    cast("LoadSource", opened),  # cuda: and sim: devices are
                    list(samplers.values()),
                    clocks=clocks,
                    seconds=seconds,
                    progress=progress,
                )
        except KeyboardInterrupt as order:
            raise RunInterrupted("interrupted; no calibration was stored") from order
        if not identity.modelled:
            celsius.append(require_exclusive_gpu(identity.uuid, ours=1))
    readings = [replace(one, name=name) for name, one in zip(samplers, identified, strict=True)]
    good = {one.name: (one.stored, one.period_s) for one in readings if one.stored is not None}
    if good:  # for later runs
        calibrations.store(path, identity.uuid, identity.driver, good)
    best = next((one.name for one in readings if one.usable), None)
    if json_path is not None:
        document = {
            "device": asdict(identity),
            "temperatures_c": celsius,
            "seconds": seconds,
            "readings": list(map(asdict, readings)),
            "unavailable": unavailable,
            "stored": str(path) if good else None,
            "best": best,
        }
        write_json(json_path, document)
    out = console(json_path)
    if notice:
        out.print(notice)
    out.print(f"{identity.name}, driver {identity.driver}")
    _print_calibration(readings, out)
    if len(warm := [one for one in celsius if one is not None]) > 1:
        out.print(f"{warm[0]:.0f} °C before the load, {warm[-1]:.0f} °C after it")
    modelled = " (modelled, and kept apart from real ones)" if identity.modelled else ""
    lines = [
        *(line for reading in readings for line in _remarks(reading)),
        *(f"{name}: not calibrated: {reason}" for name, reason in unavailable.items()),
        "Intervals are 95 %; C is that of equation (6).",
        "No reading may be used for energy." if best is None else f"The best reading for energy is {best}.",
        f"Stored for {identity.uuid} under driver {identity.driver}{modelled} in {path}."
        if good
        else "Nothing was stored.",
    ]
    for line in lines:
        out.print(line)


def _gpu(spec: str | None) -> "Gpu":
    """The GPU to calibrate, on which CUDA can run a load.

    Raises:
        InputError: the name of the device is none on which a load can run.
        DeviceUnavailableError: there is no such GPU.
    """
    from tuner.joules.watching import find_gpu

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
    """Samplers of the readings requested, or of all, best first, and why some of all are not there.

    Raises:
        InputError: the device has no reading of that name, or it does not answer.
        SensorUnavailableError: none at all answers.
    """
    from tuner.devices.sensors import device_readings, open_reading

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


@contextlib.contextmanager
def _progress(seconds: float) -> Iterator[Callable[[float, float], None]]:
    """A bar on standard error; nothing where that is no terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from tuner.report.layout import PlainConsole

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


def _print_calibration(readings: "Sequence[Identification]", out: "Console") -> None:
    from tuner.report.layout import ruled
    from tuner.report.rows import Column, Table

    def size(response: "Response") -> str | None:
        size_s = response.capacitance_s + response.window_s
        return _ms(size_s, response.capacitance_sigma_s + response.window_sigma_s) if size_s else None

    def response_of(reading: "Identification") -> "Response | None":
        return reading.response

    responses: list[Column[Response]] = [
        Column("model", lambda response: response.kind, whole=True),
        Column("C or window", size, number=True, whole=True),
        Column("delay", lambda one: _ms(one.delay_s, one.delay_sigma_s), number=True, whole=True),
    ]
    columns: list[Column[Identification]] = [
        Column("reading", lambda one: one.name, whole=True),
        Column("every", lambda one: _ms(one.period_s), number=True, whole=True),
        *(column.of(response_of) for column in responses),
        Column(
            "aliasing",
            lambda one: (
                None if one.response is None or one.aliasing is None else f"{one.aliasing:.0%} of load"
            ),
            number=True,
            whole=True,
        ),
        Column(
            "for energy",
            lambda one: "yes" if one.response is not None and one.usable else "no",
            number=True,
            whole=True,
        ),
    ]
    out.print(ruled(Table(columns, readings)))


def _ms(value_s: float, sigma_s: float | None = None) -> str:
    """Milliseconds, with a 95 % interval of two digits where an uncertainty is given."""
    if sigma_s is None:
        return f"{1e3 * value_s:.4g} ms"
    half = _Z95 * 1e3 * sigma_s
    decimals = max(0, 1 - math.floor(math.log10(half))) if half > 0 else 1
    return f"{1e3 * value_s:.{decimals}f} ± {half:.{decimals}f} ms"


def _remarks(reading: "Identification") -> Iterator[str]:
    """Reasons why a reading is not used or not corrected, and the evidence for its model."""
    name = reading.name
    if reading.reason:
        yield f"{name}: {reading.reason}"
    if not reading.candidates:
        return
    best, *others = reading.candidates
    behind = ", ".join(f"{other.kind} {other.bic - best.bic:+.0f}" for other in others)
    yield f"{name}: {best.kind} by BIC ({behind}), from {reading.samples} samples"
    sides = ""
    if reading.rise_s is not None and reading.fall_s is not None:
        sides = f"; {_ms(reading.rise_s)} as it rises, {_ms(reading.fall_s)} as it falls"
    loaded_w = reading.idle_w + reading.step_w
    yield f"{name}: {reading.idle_w:.4g} W idle, {loaded_w:.4g} W under load{sides}"
    if reading.kind == "counter" and reading.response is not None:
        age_s = reading.response.mean_age_s + reading.response.delay_s
        yield f"{name}: a tick has counted what was drawn up to {1e3 * age_s:.1f} ms before it"


LOOK_S = 1.0  # ten updates of the slowest reading of a GPU


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
    from tuner.devices.sensors import device_readings, host_readings, survey
    from tuner.devices.simulated.device import SimulatedDevice
    from tuner.joules.watching import find_gpu, readings

    if device is not None and device.startswith("sim:"):
        with contextlib.closing(SimulatedDevice(device)) as opened:
            reports = survey(device_readings(opened), seconds=LOOK_S, now=opened.now_s, pause=opened.sleep)
            identity = asdict(opened.identity)
    else:  # a GPU is looked at without being opened for computing
        gpu = find_gpu(device, "tuner power sensors", also="sim:NAME (see `tuner devices`)")
        reports = survey(readings(gpu), seconds=LOOK_S)
        reports += survey(host_readings(), seconds=LOOK_S, choose=False)
        identity = {"spec": device or "", "name": gpu.name, "uuid": gpu.uuid, "driver": gpu.driver}
        identity["modelled"] = False
    if json_path is not None:
        rows = []
        for report in reports:
            info = {} if report.info is None else asdict(report.info)
            info.pop("name", None)
            row = {"reading": report.name, "available": report.info is not None, "chosen": report.chosen}
            row |= {"why": report.why, "period_measured": report.measured, "watts": report.watts}
            rows.append(row | info)
        write_json(json_path, {"device": identity, "readings": rows})
    out = console(json_path)
    driver = f", driver {identity['driver']}" if identity["driver"] else ""
    out.print(f"{identity['name']}{driver}")
    if any(report.info for report in reports):
        _print_readings(reports, out)
    for report in reports:
        if report.why:
            out.print(f"{report.name}: {report.why}")
    chosen = next((report.name for report in reports if report.chosen), None)
    conclusion = "No power reading answers here: no energy can be measured."
    if chosen is not None:
        conclusion = f"{chosen} is taken; `--sensor NAME` of run, watch and trace takes another."
    elif any(report.info for report in reports):
        conclusion = "No reading is taken by itself; `--sensor NAME` of run, watch and trace takes one."
    out.print(conclusion)


def _print_readings(reports: "Sequence[SensorReport]", out: "Console") -> None:
    from tuner.model.units import si
    from tuner.report.layout import response_words, ruled
    from tuner.report.rows import Column, Table

    columns: list[Column[tuple[SensorReport, SensorInfo]]] = [
        Column("reading", lambda row: row[0].name, whole=True),
        Column("sees", lambda row: row[1].scope),
        Column("kind", lambda row: row[1].kind),
        Column(
            "every",
            lambda row: f"{si(row[1].period_s, 's', 3)}{'' if row[0].measured else ', expected'}",
        ),
        Column(
            "follows power as",
            lambda row: (
                "energy since a start" if row[1].kind == "counter" else response_words(row[1].response)
            ),
        ),
        Column("shows", lambda row: si(row[0].watts, "W")),
        Column("taken", lambda row: "yes" if row[0].chosen else "no"),
    ]
    answering = [(report, report.info) for report in reports if report.info is not None]
    out.print(ruled(Table(columns, answering)))


_FAILED = 1  # where the command ended well and the files could not be written


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Record the power of the GPU while a command runs.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
@click.option(
    "--device",
    metavar="SPEC",
    help="cuda:N, a GPU's UUID, or NVML's index. Default: cuda:0, else the first with a reading.",
)
@click.option(
    "--sensor",
    metavar="NAME",
    help="A reading, as `tuner power sensors` names it, or replay:FILE. Default: the best, and the counter.",
)
@scope_option
@click.option(
    "--against",
    metavar="NAME",
    help="Another reading of the same power, such as pipe:FILE of a meter; the report states the gain.",
)
@click.option(
    "--idle",
    "idle_s",
    type=click.FloatRange(min=0.2, max=600.0),
    callback=finite,
    metavar="SECONDS",
    help="Time of idle power before the command. Default: 2, or the time that the sensor needs.",
)
@click.option(
    "--idle-after",
    "idle_after_s",
    type=click.FloatRange(min=0.0, max=600.0),
    callback=finite,
    default=0.0,
    metavar="SECONDS",
    help="Time of idle power after the command; useful if the GPU warms up.",
)
@click.option("--csv", "csv_path", metavar="FILE", callback=writable, help="Write the samples as CSV.")
@click.option(
    "--json", "json_path", metavar="FILE", callback=writable, help="Write the trace as JSON; can be replayed."
)
@click.option("--plot", "plot_path", metavar="FILE", callback=writable, help="Draw it: .png, .svg or .pdf.")
def trace(
    command: tuple[str, ...],
    *,
    device: str | None,
    sensor: str | None,
    scope: str,
    against: str | None,
    idle_s: float | None,
    idle_after_s: float,
    csv_path: str | None,
    json_path: str | None,
    plot_path: str | None,
) -> None:
    """Run COMMAND and record the power of the GPU before, while and after it runs.

    Says joules in total and net of idle. The command keeps the terminal, its exit code is passed on, and
    signals reach it; the results go to standard error. A line that it writes into the pipe that the
    environment variable TUNER_MARKS names is a mark in the trace: echo phase > $TUNER_MARKS.
    """
    _check(command, csv_path, json_path, plot_path)
    from tuner.joules.trace_result import result
    from tuner.joules.traces import IdleTimes, Recorder, run_traced
    from tuner.joules.watching import gpu_for, opened, opened_host, opened_reference, readable_clocks

    sensors = [sensor] if sensor else []
    gpu = gpu_for(device, sensors, "tuner power trace", scope)
    with (
        opened(gpu, sensors) as of_gpu,
        opened_host(scope) as of_host,
        opened_reference(gpu, against) as reference,
        readable_clocks(gpu) as clocks,
    ):
        samplers = (*of_gpu, *of_host, *reference)
        if plot_path is not None and all(sampler.info.kind == "counter" for sampler in samplers):
            raise InputError(f"--plot {plot_path}: a counter shows no power over time; name another --sensor")
        recorder = Recorder(samplers, clocks)
        outcome = run_traced(command, recorder, IdleTimes(idle_s, idle_after_s))
        program = result(command, gpu, recorder, outcome, against)
    from tuner.report.power_tables import trace_lines

    _say(trace_lines(program))
    problems = [*_write(program, csv_path, json_path), *_draw(program, plot_path)]
    _say(f"Error: {problem}" for problem in problems)
    sys.exit(outcome.exit_code or (_FAILED if problems else 0))


def _check(
    command: tuple[str, ...], csv_path: str | None, json_path: str | None, plot_path: str | None
) -> None:
    """Refuse impossible options before anything is run."""
    import shutil

    if shutil.which(command[0]) is None:
        raise InputError(f"{command[0]}: no such program, or it may not be run")
    for option, path, suffix in (("--csv", csv_path, ".csv"), ("--json", json_path, ".json")):
        if path is not None and Path(path).suffix != suffix:
            raise InputError(f"{option} {path}: the name must end in {suffix}, by which it is read again")
    if plot_path is not None:
        from tuner.report.power_tables import check_picture

        check_picture(Path(plot_path))


def _write(program: "ProgramTrace", *paths: str | None) -> list[str]:
    """Write the trace files, and return messages about failures."""
    problems = []
    recorded = program.recorded()
    for path in paths:
        if path is None:
            continue
        if recorded is None:
            problems.append(f"{path}: no sensor was read")
            continue
        try:
            recorded.write(path)
        except InputError as error:
            problems.append(str(error))
    return problems


def _draw(program: "ProgramTrace", path: str | None) -> list[str]:
    """Draw the plot, and return messages about failures."""
    if path is None:
        return []
    from tuner.report.power_tables import draw, trace_picture

    picture = trace_picture(program)
    if picture is None:
        return [f"--plot {path}: the sensor gave no samples"]
    try:
        draw(picture, Path(path))
    except InputError as error:
        return [str(error)]
    return []


def _say(lines: Iterable[str]) -> None:
    """Print to standard error; a closed one must not change the command's exit code."""
    try:
        for line in lines:
            echo(line, err=True)
        sys.stderr.flush()
    except OSError:
        # What is left in the buffer would fail again as Python ends, whose exit code would then be 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stderr__.fileno() if sys.__stderr__ else 2)


SnapshotWriter = Callable[["PowerSnapshot"], None]


@click.command(short_help="Show power and joules now, until Ctrl-C.")
@click.option(
    "--device", metavar="SPEC", help="cuda:N, a GPU's UUID, or NVML's index. Default: cuda:0, else the first."
)
@click.option(
    "--sensor",
    "sensors",
    metavar="NAME",
    multiple=True,
    help="A reading of `tuner power sensors`, or replay:FILE; repeatable. Default: best and counter.",
)
@scope_option
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1, max=3600.0),
    callback=finite,
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between rows.",
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Number of intervals.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    callback=finite,
    help="Duration. Without --count and --seconds: until Ctrl-C.",
)
@click.option(
    "--json",
    "json_path",
    metavar="FILE",
    callback=writable,
    help="Write a line of JSON each time to FILE; - is standard output (and then nothing else goes there).",
)
def watch(
    *,
    device: str | None,
    sensors: tuple[str, ...],
    scope: str,
    interval_s: float,
    count: int | None,
    seconds: float | None,
    json_path: str | None,
) -> None:
    """Show power now, its mean, and the joules since the start, of each reading.

    Watts are corrected if the response of the sensor is known; the raw value is beside them. The command ends
    with a summary, also at Ctrl-C and when no reading is left. The exit code is 1 if the readings failed.
    """
    from tuner.joules.watching import gpu_for
    from tuner.report.power_tables import summary_lines

    gpu = gpu_for(device, sensors, "tuner power watch", scope)
    limits = [count or math.inf, math.inf if seconds is None else max(1, math.ceil(seconds / interval_s))]
    out = console(json_path)
    last, number = None, 0
    with _json_lines(json_path, gpu) as write, _display(out, gpu) as show:
        for number, last in enumerate(_snapshots(gpu, sensors, scope, interval_s, min(limits)), start=1):  # noqa: B007 - used below
            write(last)
            show(last)
    if last is not None:
        for line in summary_lines(last):
            out.print(line, soft_wrap=True)
    if last is not None and all(row.failure for row in last.rows):
        if not all(row.ended for row in last.rows):
            raise PowerError("no reading is left: the lines above say why")
    elif number < min(limits) < math.inf:
        raise RunInterrupted("interrupted")


def _snapshots(
    gpu: "Gpu", sensors: tuple[str, ...], scope: str, interval_s: float, most: float
) -> Iterator["PowerSnapshot"]:
    """A limited number of snapshots, or snapshots until a signal."""
    from tuner.joules.traces import TO_END, SignalPipe
    from tuner.joules.watching import WatchedReading, opened, opened_host, readable_clocks, snapshots
    from tuner.power.nvml.library import Thermometer

    thermometer = Thermometer(gpu.gpu)
    with (
        contextlib.closing(thermometer),
        opened(gpu, sensors, rails=True, interval_s=interval_s) as of_gpu,
        opened_host(scope) as of_host,
        readable_clocks(gpu) as clocks,
        SignalPipe(TO_END) as signals,
    ):
        watched = [WatchedReading(sampler) for sampler in (*of_gpu, *of_host)]
        taken = snapshots(watched, clocks, thermometer, pause=signals.quiet_for, interval_s=interval_s)
        for number, snapshot in enumerate(taken, start=1):
            yield snapshot
            if number >= most:
                return


@contextlib.contextmanager
def _json_lines(path: str | None, gpu: "Gpu") -> Iterator[SnapshotWriter]:
    """A function that writes a snapshot as a line of JSON and flushes it."""
    if path is None:
        yield lambda _: None
        return
    try:
        stream = sys.stdout if path == "-" else open(path, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - closed below
    except OSError as error:
        raise InputError(f"--json {path}: {error.strerror}") from error

    def write(snapshot: "PowerSnapshot") -> None:
        document = {
            "time_s": snapshot.time_s,
            "gpu": gpu.uuid or gpu.name,
            "clock_mhz": snapshot.clock.mhz,
            "throttle_reasons": list(snapshot.clock.throttle_reasons),
            "temperature_c": snapshot.temperature_c,
            "readings": [
                {
                    "reading": row.info.name,
                    "scope": row.info.scope,
                    "response": row.info.response.kind,
                    "watts": row.watts,
                    "shown_w": row.shown_w,
                    "mean_w": row.mean_w,
                    "joules": row.joules,
                    "joules_uncertainty": row.joules_sigma,  # a standard one
                    "seconds": row.seconds,
                    "failure": row.failure or None,
                }
                for row in snapshot.rows
            ],
        }
        try:
            stream.write(escaped(json.dumps(document, allow_nan=False)) + "\n")
            stream.flush()
        except BrokenPipeError:  # who followed has seen enough
            raise
        except OSError as error:
            raise InputError(f"--json {path}: {error.strerror}") from error

    try:
        yield write
    finally:
        if path != "-":
            stream.close()


@contextlib.contextmanager
def _display(out: "Console", gpu: "Gpu") -> Iterator[SnapshotWriter]:
    """A function that shows a snapshot: a live table on a terminal, lines elsewhere."""
    from tuner.report.power_tables import lines, table

    if not out.is_terminal:

        def show_lines(snapshot: "PowerSnapshot") -> None:
            try:
                for line in lines(snapshot):
                    out.print(line, soft_wrap=True)
            except OSError as error:
                raise InputError(f"standard output: {error.strerror}") from error

        yield show_lines
        return
    from rich.live import Live

    with Live(console=out, auto_refresh=False, transient=True) as live:
        yield lambda snapshot: live.update(table(snapshot, gpu.name), refresh=True)
