"""``tuner sweep``: run all jobs of a file, in the daemon's queues or in lanes of this machine."""

import sys
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.lifecycle import orderly_stop
from tuner.cli.options import NamedPath, database_option, named_database
from tuner.cli.output import console, echo, json_option, write_json
from tuner.cli.remote import client_of, socket_option
from tuner.model.errors import DaemonAbsentError, DaemonUnavailableError, InputError, RunInterrupted

if TYPE_CHECKING:
    from tuner.pool.places import PoolPlace
    from tuner.studies.sweep_file import SweepFile
    from tuner.sweep.running import Backend


_DAEMON = "daemon"


@click.command(short_help="Run all jobs of a file: kernels, sizes, objectives, devices.")
@click.argument("file", type=NamedPath(dir_okay=False, path_type=Path), metavar="FILE.toml")
@click.option(
    "--on",
    "where",
    default=_DAEMON,
    show_default=True,
    metavar="WHERE",
    help="Where jobs run: daemon; this machine without a daemon, local in a lane for each GPU, local:N in"
    " N lanes; or the workers of dask://HOST:PORT or slurm, as with tuner run --on.",
)
@click.option("--dry-run", is_flag=True, help="Check and list the jobs; run nothing.")
@database_option
@socket_option
@json_option
def sweep(
    file: Path, *, where: str, dry_run: bool, database: Path | None, socket: str | None, json_path: str | None
) -> None:
    """Run every search that FILE.toml stands for, and report them as a whole.

    A job that a finished run has answered under the same conditions is not run again: the same command goes
    on with a sweep that was stopped. A job that fails does not stop the others. Exit code 0 when all jobs
    have an answer, 1 when some failed, 130 after Ctrl-C.
    """
    from tuner.studies.sweep_file import read_sweep

    place = _place(where)
    read = read_sweep(file)
    if dry_run:
        _check_jobs(read, place, socket)
        _list_jobs(read, json_path)
        return
    with orderly_stop(), ExitStack() as stack:
        backend: Backend
        if place is None:
            backend = _on_daemon(read, socket)
        elif place.kind == "local":
            backend = _on_lanes(read, place.workers, database)
        else:
            backend = stack.enter_context(_on_pool(read, where, database))
        code = _run(read, backend, json_path)
    sys.exit(code)


def _place(where: str) -> "PoolPlace | None":
    """Where jobs run without the daemon; None for the daemon."""
    from tuner.pool.places import parse_place

    if where == _DAEMON:
        return None
    try:
        return parse_place(where)
    except InputError as error:
        raise InputError(
            f"--on {where}: write daemon, local or local:N with N lanes, such as local:4,"
            " dask://HOST:PORT or slurm"
        ) from error


def _on_daemon(read: "SweepFile", socket: str | None) -> "Backend":
    from tuner.studies.sweep_daemon import DaemonQueues

    if named_database() is not None:
        raise InputError("--database: the daemon has its own; leave the option out, or use --on local")
    if read.kernel_files:
        keys = "the daemon reads kernels from its own directories; leave them out, or use --on local"
        raise read.refused([("[sweep] kernel_files", keys)])
    try:
        return DaemonQueues(client_of(socket))
    except DaemonAbsentError as error:
        raise DaemonAbsentError(f"{error}\n--on local runs a sweep without a daemon") from error


def _on_lanes(read: "SweepFile", lanes: int | None, database: Path | None) -> "Backend":
    from tuner.sweep.local import LocalLanes, lanes_for

    if lanes is None:
        return lanes_for(read.jobs, database, read.kernel_files)
    return LocalLanes(lanes, database, read.kernel_files)


def _on_pool(read: "SweepFile", where: str, database: Path | None) -> AbstractContextManager["Backend"]:
    from tuner.studies.sweep_pool import open_pool_lanes

    return open_pool_lanes(where, database, read.kernel_files)


def _run(read: "SweepFile", backend: "Backend", json_path: str | None) -> int:
    """Run the sweep and show it; returns the exit code."""
    from tuner.report.sweep_progress import SweepProgress
    from tuner.studies.progress import show_sweep
    from tuner.studies.sweep import RefusedJobsError
    from tuner.sweep.running import run_sweep

    try:
        with SweepProgress() as progress:
            report = run_sweep(read.jobs, backend, progress, str(read.path))
    except RefusedJobsError as error:
        raise read.refused(error.refused) from error
    try:
        if json_path is not None:
            write_json(json_path, report.document())
    finally:  # a full disk costs no tables
        show_sweep(report, console(json_path), named_database())
    if report.trouble:
        echo(f"Error: {report.trouble}", err=True)
    if report.interrupted:
        echo("interrupted; what has ended is stored", err=True)
        return RunInterrupted.exit_code
    return 1 if report.failed or report.left else 0


def _check_jobs(read: "SweepFile", place: "PoolPlace | None", socket: str | None) -> None:
    """Refuse jobs that name what is not there: by the daemon, where it would run them and answers.

    Raises:
        InputError: names the keys of the file.
    """
    from tuner.kernel_files.catalog import Catalog
    from tuner.studies.sweep import RefusedJobsError, check_workloads
    from tuner.studies.sweep_daemon import DaemonQueues
    from tuner.studies.sweep_local import LocalDevices

    try:
        if place is None and not read.kernel_files:
            with suppress(DaemonUnavailableError):
                DaemonQueues(client_of(socket)).check(read.jobs)
                return
        catalog = Catalog.load(read.kernel_files)
        check_workloads(read.jobs, catalog)
        if place is not None and place.kind == "local":
            LocalDevices().check_all(read.jobs, catalog)
    except RefusedJobsError as error:
        raise read.refused(error.refused) from error


def _list_jobs(read: "SweepFile", json_path: str | None) -> None:
    if json_path is not None:
        jobs = [
            {
                "group": job.group,
                "workloads": list(job.workloads),
                "objective": job.objective,
                "device": job.device,
                "options": dict(job.options),
            }
            for job in read.jobs
        ]
        document = {
            "sweep": str(read.path),
            "jobs": jobs,
            "excluded": read.excluded,
            "repeated": read.repeated,
        }
        write_json(json_path, document)
    out = console(json_path)
    for job in read.jobs:
        out.print(f"{job.group}: {job.title}", markup=False, highlight=False, soft_wrap=True)
    beside = [f"{read.excluded} excluded"] if read.excluded else []
    beside += [f"{read.repeated} named twice"] if read.repeated else []
    count = f"{len(read.jobs)} job{'s' if len(read.jobs) > 1 else ''}"
    out.print(", ".join([count, *beside]), markup=False, highlight=False)
