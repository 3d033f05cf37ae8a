"""``tuner power trace``: run a command, and report its energy."""

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.options import finite, scope_option
from tuner.cli.output import echo, writable
from tuner.model.errors import InputError

if TYPE_CHECKING:
    from tuner.joules.trace_result import ProgramTrace


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
    from tuner.joules.traces import IdleTimes, run_traced
    from tuner.joules.watching import gpu_for, opened, opened_host, opened_reference, readable_clocks
    from tuner.tracing.recorder import Recorder

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
        found = result(command, gpu, recorder, outcome, against)
    from tuner.report.power import trace_lines

    _say(trace_lines(found))
    problems = [*_write(found, csv_path, json_path), *_draw(found, plot_path)]
    _say(f"Error: {problem}" for problem in problems)
    sys.exit(outcome.exit_code or (_FAILED if problems else 0))


def _check(
    command: tuple[str, ...], csv_path: str | None, json_path: str | None, plot_path: str | None
) -> None:
    """Refuse impossible options before anything is run."""
    if shutil.which(command[0]) is None:
        raise InputError(f"{command[0]}: no such program, or it may not be run")
    for option, path, suffixes in (("--csv", csv_path, (".csv",)), ("--json", json_path, (".json",))):
        if path is not None and Path(path).suffix not in suffixes:
            raise InputError(
                f"{option} {path}: the name must end in {suffixes[0]}, by which it is read again"
            )
    if plot_path is not None:
        from tuner.report.power_plot import FORMATS, need_matplotlib

        if Path(plot_path).suffix not in FORMATS:
            raise InputError(f"--plot {plot_path}: the name must end in one of {', '.join(FORMATS)}")
        need_matplotlib()


def _write(found: "ProgramTrace", *paths: str | None) -> list[str]:
    """Write the trace files, and return messages about failures."""
    problems = []
    recorded = found.recorded()
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


def _draw(found: "ProgramTrace", path: str | None) -> list[str]:
    """Draw the plot, and return messages about failures."""
    if path is None:
        return []
    from tuner.report.power import trace_picture
    from tuner.report.power_plot import draw

    picture = trace_picture(found)
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
