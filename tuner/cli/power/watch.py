"""``tuner power watch``: live power readings of a GPU."""

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.options import finite, scope_option
from tuner.cli.output import console, writable
from tuner.model.errors import InputError, PowerError, RunInterrupted
from tuner.untrusted.json import escaped

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.joules.watching import Gpu
    from tuner.tracing.watching import PowerSnapshot


Shown = Callable[["PowerSnapshot"], None]


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
    from tuner.report.power import summary_lines

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
            out.print(line, markup=False, highlight=False, soft_wrap=True)
    if last is not None and all(row.failure for row in last.rows):
        if not all(row.ended for row in last.rows):
            raise PowerError("no reading is left: the lines above say why")
    elif number < min(limits) < math.inf:
        raise RunInterrupted("interrupted")


def _snapshots(
    gpu: "Gpu", sensors: tuple[str, ...], scope: str, interval_s: float, most: float
) -> Iterator["PowerSnapshot"]:
    """A limited number of snapshots, or snapshots until a signal."""
    from tuner.devices import power
    from tuner.joules.watching import opened, opened_host, readable_clocks
    from tuner.tracing.signals import TO_END, SignalPipe
    from tuner.tracing.watching import WatchedReading, snapshots

    thermometer = power.thermometer(gpu.gpu)
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
def _json_lines(path: str | None, gpu: "Gpu") -> Iterator[Shown]:
    """A function that writes a snapshot as a line of JSON and flushes it."""
    if path is None:
        yield lambda _: None
        return
    try:
        stream = sys.stdout if path == "-" else open(path, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - closed below
    except OSError as error:
        raise InputError(f"--json {path}: {error.strerror}") from error

    def write(snapshot: "PowerSnapshot") -> None:
        try:
            stream.write(escaped(json.dumps(_record(snapshot, gpu), allow_nan=False)) + "\n")
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


def _record(snapshot: "PowerSnapshot", gpu: "Gpu") -> dict[str, Any]:
    """A snapshot as JSON; uncertainties are standard ones."""
    return {
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
                "joules_uncertainty": row.joules_sigma,
                "seconds": row.seconds,
                "failure": row.failure or None,
            }
            for row in snapshot.rows
        ],
    }


@contextlib.contextmanager
def _display(out: "Console", gpu: "Gpu") -> Iterator[Shown]:
    """A function that shows a snapshot: a live table on a terminal, lines elsewhere."""
    from tuner.report.power import lines, table

    if not out.is_terminal:

        def show_lines(snapshot: "PowerSnapshot") -> None:
            try:
                for line in lines(snapshot):
                    out.print(line, markup=False, highlight=False, soft_wrap=True)
            except OSError as error:
                raise InputError(f"standard output: {error.strerror}") from error

        yield show_lines
        return
    from rich.live import Live

    with Live(console=out, auto_refresh=False, transient=True) as live:
        yield lambda snapshot: live.update(table(snapshot, gpu.name), refresh=True)
