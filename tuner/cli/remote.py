"""Functions of the commands that use the daemon."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tuner.cli.output import echo
from tuner.model.errors import DaemonAbsentError
from tuner.report.words import MOMENT_WIDTH, moment

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.client.client import Client
    from tuner.client.values import Job


# those of tuner.client.addresses, whose import would take a tenth of what `tuner --help` may
SOCKET_VARIABLE = "TUNER_SOCKET"
TOKEN_VARIABLE = "TUNER_TOKEN_FILE"  # noqa: S105 - the name of a file, not what is in it
_T = TypeVar("_T")

STARTING_S = 10.0
"""Time that a command waits for a daemon that may be starting."""

_KNOCK_S = 0.1
_ROOM_FOR_ALL = 110  # characters


def socket_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--socket``; the parameter is called ``socket``."""
    return click.option(
        "--socket",
        metavar="PATH",
        envvar=SOCKET_VARIABLE,
        help="The daemon's socket, or http://127.0.0.1:PORT with the token's file in"
        f" ${TOKEN_VARIABLE}. Default: the user's own daemon, else the system's.",
    )(command)


def client_of(socket: str | None) -> "Client":
    """The client of a command."""
    from tuner.client.client import Client

    return Client(socket)


def when_started(socket: str | None, request: Callable[["Client"], _T]) -> tuple["Client", _T]:
    """Make a request of the daemon, and wait up to `STARTING_S` for one to listen.

    Returns:
        The client, and what the request returned.

    Raises:
        DaemonUnavailableError: none listens by then, or not to this user.
    """
    until_s, told = time.monotonic() + STARTING_S, False
    while True:
        client = client_of(socket)  # anew: the socket that appears may be another than the one looked for
        try:
            return client, request(client)
        except DaemonAbsentError:
            if time.monotonic() >= until_s:
                raise
        if not told:
            echo(f"no daemon listens at {client.address} yet: waiting up to {STARTING_S:g} s", err=True)
            told = True
        time.sleep(_KNOCK_S)


def document_of(job: "Job") -> dict[str, Any]:
    """A job as ``--json`` writes it."""
    return asdict(job)


def one_line(job: "Job") -> str:
    """A job in a sentence."""
    why = f" ({job.reason})" if job.reason else ""
    where = f" on {job.device}" if job.device else ""
    return f"job {job.id} {job.state}{why}: {' '.join(job.workloads)}, {job.objective}{where}"


def show_jobs(jobs: Sequence["Job"], out: "Console") -> None:
    """A table of jobs."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from tuner.report.job_words import asked_for, priority_of, search_of

    roomy = out.width >= _ROOM_FOR_ALL
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("job", "submitted", "state", "workloads", *(("device", "search") if roomy else ())):
        narrow = title in ("workloads", "state", "search")  # which fold before a time is broken
        whole = MOMENT_WIDTH if title == "submitted" else None
        table.add_column(title, no_wrap=not narrow, overflow="fold", min_width=whole)
    for title in ("priority", "trials", "run"):
        table.add_column(title, justify="right", no_wrap=True)
    for job in jobs:
        where = (job.device or "any", f"{search_of(job)}; {asked_for(job)}")
        table.add_row(
            str(job.id),
            moment(job.created_at),
            f"{job.state}\n({job.reason})" if job.reason else job.state,
            "\n".join(job.workloads),
            *(where if roomy else ()),
            priority_of(job),
            str(job.trials),
            "–" if job.run is None else str(job.run),
        )
    out.print(table)


def _device(job: "Job") -> str:
    """Where a job runs, and what it asked for where that is more."""
    wanted = job.wanted_device or "any"
    return job.device if job.device == job.wanted_device else f"{job.device or '–'} (asked for: {wanted})"


def show_job(job: "Job", out: "Console") -> None:
    """All details of a job, one per line."""
    from tuner.report.job_words import asked_for, priority_of, search_of

    lines = {
        "state": f"{job.state} ({job.reason})" if job.reason else job.state,
        "workloads": " ".join(job.workloads),
        "search": search_of(job),
        "options": ", ".join(f"{name} {value}" for name, value in job.options.items()) or "–",
        "device": _device(job),
        "asked by": asked_for(job),
        "priority": priority_of(job),
        "submitted": moment(job.created_at),
        "started": f"{moment(job.started_at)} (attempts: {job.attempts})",
        "ended": moment(job.ended_at),
        "run": "–" if job.run is None else f"{job.run}, {job.trials} trials",
    }
    out.print(f"job {job.id}, {job.kind}", style="bold", highlight=False)
    for name, value in lines.items():
        out.print(f"  {name + ':':<11} {value}", markup=False, highlight=False)
