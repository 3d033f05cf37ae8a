"""``tuner run``: tune workloads that run together, and print, store and return the best."""

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner import registry
from tuner.cli import completing
from tuner.cli.lifecycle import orderly_stop
from tuner.cli.options import database_option, device_option, finite, fraction, kernel_option, sensor_option
from tuner.cli.output import console, json_option, write_json
from tuner.errors import Interrupted

if TYPE_CHECKING:
    from tuner.search.request import Request
    from tuner.search.tuning import TuningResult


@click.command()
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...", shell_complete=completing.workloads)
@click.option(
    "--objective",
    default="energy",
    show_default=True,
    shell_complete=completing.objectives,
    help="What to minimise: time, energy, edp or ed2p.",
)
@click.option(
    "--max-slowdown",
    callback=fraction,
    help="At most this much slower than the fastest trial, e.g. 5%; a time search comes first.",
)
@click.option(
    "--policy",
    default="auto",
    show_default=True,
    shell_complete=completing.policies,
    help=f"Search strategy: {', '.join(registry.names('policy'))}.",
)
@click.option(
    "--patience",
    type=click.IntRange(min=1),
    metavar="N",
    help="Evaluations without progress that end a Bayesian search (default: the policy's).",
)
@click.option(
    "--clocks",
    default="off",
    show_default=True,
    metavar="CHOICE",
    help="GPU clocks to search: off (as found), all, a LIST in MHz, or MIN:MAX[:STEP]. Restored afterwards.",
)
@click.option("--budget", type=click.IntRange(min=1), help="Measure at most this many trials.")
@click.option(
    "--runs-per-day",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    metavar="N",
    help="How often the answer will be run: the search stops when going on does not pay.",
)
@click.option(
    "--pay-back-days",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    default=30.0,
    show_default=True,
    metavar="DAYS",
    help="Within which the tuning is to pay for itself.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    help="Search at most this many seconds.",
)
@click.option(
    "--min-occupancy",
    callback=fraction,
    help="Drop configurations below this occupancy (default: the kernel file's).",
)
@click.option(
    "--energy-precision",
    callback=fraction,
    default="1%",
    show_default=True,
    help="Wanted 95 % interval of joules, +- so much: chooses the window, and extra repeats of contenders.",
)
@click.option(
    "--window",
    type=click.FloatRange(min=0.01, max=600.0),
    callback=finite,
    metavar="SECONDS",
    help="Measuring window of a trial. Default: the shortest that gives --energy-precision.",
)
@click.option(
    "--trial-timeout",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Kill a check or run that takes longer.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of policy and inputs."
)
@click.option("--resume", is_flag=True, help="Continue the newest unfinished run under the same conditions.")
@device_option
@sensor_option
@kernel_option
@database_option
@json_option
def run(
    workloads: tuple[str, ...],
    *,
    json_path: str | None,
    database: Path | None,
    device: str | None,
    resume: bool,
    time_limit: float | None,
    trial_timeout: float,
    window: float | None,
    **words: Any,  # noqa: ANN401 - the remaining options are fields of Request, by name
) -> None:
    """Tune workloads that run at the same time on one GPU.

    A WORKLOAD is a kernel at a problem size, e.g. scan-lf:N=1024 or fft:N=512,batch=4096; without any, one
    of each family is tuned. `tuner kernels list` shows what there is.
    """
    from tuner.model import RunStatus
    from tuner.report.tables import show_run
    from tuner.search.request import Request
    from tuner.search.tuning import no_answer

    request = Request(
        workloads=workloads,
        time_limit_s=time_limit,
        trial_timeout_s=trial_timeout,
        window_s=window,
        **words,
    )
    request.check()
    tuned = _tune(request, device, database, resume=resume)
    try:
        if json_path is not None:
            write_json(json_path, tuned.document)
    finally:  # a full disk costs no tables, and `| head` no file
        seen = tuned.told if _both_go_to_the_same_place(json_path) else ()
        show_run(tuned.document, console(json_path), seen=seen)
    if tuned.outcome.status is RunStatus.INTERRUPTED:
        sys.exit(Interrupted.exit_code)
    why = no_answer(tuned)
    if why:
        click.echo(f"Error: {why}", err=True)
        sys.exit(1)


def _tune(
    request: "Request", device_spec: str | None, database: Path | None, *, resume: bool
) -> "TuningResult":
    from tuner.cli.progress import RunProgress
    from tuner.config.catalog import Catalog
    from tuner.database import Store
    from tuner.search.setup import open_setup
    from tuner.search.tuning import tune

    with contextlib.ExitStack() as stack:
        stack.enter_context(orderly_stop())
        store = stack.enter_context(Store(database))
        catalog = Catalog.load(request.kernel_files)
        progress = stack.enter_context(RunProgress(request.objective))
        setup = stack.enter_context(open_setup(device_spec, request, progress.warming))
        return tune(setup, request, catalog, store, progress, resume=resume)


def _both_go_to_the_same_place(json_path: str | None) -> bool:
    """True where tables stand below what was told on standard error: one terminal, or one file."""
    if json_path == "-":
        return True
    if sys.stdout is None or sys.stderr is None:
        return False
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except OSError:  # no files at all, as in tests
        return False
