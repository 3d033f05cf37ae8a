"""What the commands that talk to the daemon share."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.client import Client, Job

# those of tuner.client.addresses, whose import would take a tenth of what `tuner --help` may
SOCKET_VARIABLE = "TUNER_SOCKET"
TOKEN_VARIABLE = "TUNER_TOKEN_FILE"  # noqa: S105 - the name of a file, not what is in it
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
    from tuner.client import Client

    return Client(socket)


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

    roomy = out.width >= _ROOM_FOR_ALL
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("job", "submitted (UTC)", "state", "workloads", *(("device", "search") if roomy else ())):
        table.add_column(title, no_wrap=title not in ("state", "search"), overflow="fold")
    for title in ("priority", "trials", "run"):
        table.add_column(title, justify="right", no_wrap=True)
    for job in jobs:
        where = (job.device or "–", f"{job.objective}, {job.policy}, for {job.origin}")
        table.add_row(
            str(job.id),
            moment(job.created_at),
            f"{job.state}\n({job.reason})" if job.reason else job.state,
            "\n".join(job.workloads),
            *(where if roomy else ()),
            f"{job.priority:g}",
            str(job.trials),
            "–" if job.run is None else str(job.run),
        )
    out.print(table)


def show_job(job: "Job", out: "Console") -> None:
    """All that is known of a job, a line each."""
    lines = {
        "state": f"{job.state} ({job.reason})" if job.reason else job.state,
        "workloads": " ".join(job.workloads),
        "search": f"{job.objective}, policy {job.policy}, clocks {job.clocks}",
        "options": ", ".join(f"{name} {value}" for name, value in job.options.items()) or "–",
        "device": job.device or "–",
        "asked for": f"{job.origin}{'' if job.submitter is None else f', user {job.submitter}'}",
        "priority": f"{job.priority:g}",
        "submitted": moment(job.created_at),
        "started": f"{moment(job.started_at)} (attempts: {job.attempts})",
        "ended": moment(job.ended_at),
        "run": "–" if job.run is None else f"{job.run}, {job.trials} trials",
    }
    out.print(f"job {job.id}, {job.kind}", style="bold", highlight=False)
    for name, value in lines.items():
        out.print(f"  {name + ':':<11} {value}", markup=False, highlight=False)


def moment(at: str | None) -> str:
    """A point in time, UTC, to the second."""
    return "–" if at is None else at[:19].replace("T", " ")
