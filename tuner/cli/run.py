"""``tuner run``: tune workloads that run together, and print, store and return the best."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import completion
from tuner.cli.balance import show_balance
from tuner.cli.lifecycle import orderly_stop
from tuner.cli.options import (
    database_option,
    device_option,
    kernel_option,
    named_database,
    search_options,
    with_files,
)
from tuner.cli.output import console, echo, json_option, series_option, write_json
from tuner.model.errors import InputError, RunInterrupted

if TYPE_CHECKING:
    from tuner.search.request import Request
    from tuner.search.tuning import TuningResult


@click.command()
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...", shell_complete=completion.workloads)
@search_options()
@click.option("--resume", is_flag=True, help="Continue the newest unfinished run under the same conditions.")
@click.option(
    "--allow-simulated", is_flag=True, help="Model a device where the GPU of this machine does not answer."
)
@click.option(
    "--balance",
    is_flag=True,
    help="Measure each workload alone, and propose batches and repeats that bring their times within a factor"
    " of 2; search nothing.",
)
@click.option(
    "--exclusive-board",
    is_flag=True,
    help="Measure joules while runs on other GPUs of this host wait; for runs with databases of one folder.",
)
@click.option(
    "--on",
    metavar="PLACE",
    help="Measure on several GPUs of one kind at once: local or local:N of this host, dask://HOST:PORT of a"
    " running scheduler, or slurm within an allocation. Needs pip install 'gpu-tuner[dask]'.",
)
@click.option("--verbose", is_flag=True, help="Report everything: how sure, net of idle, where time went.")
@device_option
@kernel_option
@database_option
@json_option
@series_option
def run(
    workloads: tuple[str, ...],
    *,
    json_path: str | None,
    with_series: bool,
    database: Path | None,
    device: str | None,
    kernel_files: tuple[Path, ...],
    resume: bool,
    allow_simulated: bool,
    balance: bool,
    exclusive_board: bool,
    on: str | None,
    verbose: bool,
    **options: Any,  # noqa: ANN401 - those of a search, by name
) -> None:
    """Tune workloads that run at the same time on one GPU.

    A WORKLOAD is a kernel at a problem size, e.g. scan-lf:N=1024 or fft:N=512,batch=4096, or a kernel file at
    one, e.g. my.cu:N=4096 of a CUDA file with tuning pragmas. Without any, the kernels of --kernel are tuned
    at their first size; without these, a scan, tridiagonal systems and an FFT of the catalogue run together.
    `tuner kernels list` shows what there is.
    """
    from tuner.model.records import RunStatus
    from tuner.report.run_report import show_run
    from tuner.search.request import Request
    from tuner.search.tuning import no_answer, with_trial_series

    if with_series and json_path is None:
        raise InputError("--with-series: adds to what --json writes; name a file after --json")
    request = Request(*with_files(workloads, kernel_files), **options)
    if balance:
        if on is not None:
            raise InputError(f"--on {on}: --balance measures on one GPU; leave one of them out")
        if resume:
            raise InputError(
                "--balance: searches nothing that --resume could go on with; leave one of them out"
            )
        show_balance(request, device, database, json_path=json_path, allow_simulated=allow_simulated)
        return
    tuned = _tune(
        request,
        device,
        database,
        resume=resume,
        allow_simulated=allow_simulated,
        exclusive_board=exclusive_board,
        on=on,
    )
    try:
        if json_path is not None:
            write_json(json_path, with_trial_series(tuned) if with_series else tuned.document)
    finally:  # a full disk costs no tables, and `| head` no file
        seen = tuned.told if _both_go_to_the_same_place(json_path) else ()
        out = console(json_path)
        show_run(tuned.document, out, verbose=verbose, seen=seen, database=named_database())
    if tuned.outcome.status is RunStatus.INTERRUPTED:
        sys.exit(RunInterrupted.exit_code)
    why = no_answer(tuned)
    if why:
        echo(f"Error: {why}", err=True)
        sys.exit(1)


def _tune(
    request: "Request",
    device_spec: str | None,
    database: Path | None,
    *,
    resume: bool,
    allow_simulated: bool,
    exclusive_board: bool,
    on: str | None,
) -> "TuningResult":
    from tuner.kernel_files.catalog import Catalog
    from tuner.pool.opening import opener_on
    from tuner.report.progress import RunProgress
    from tuner.search.running import run as run_search

    with orderly_stop():
        request.check()
        catalog = Catalog.load(request.kernel_files)
        with RunProgress(request.objective) as progress:
            return run_search(
                request,
                catalog,
                progress,
                device=device_spec,
                database=database,
                resume=resume,
                allow_simulated=allow_simulated,
                exclusive_board=exclusive_board,
                opener=opener_on(on, progress.told, database, resume=resume),
            )


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
