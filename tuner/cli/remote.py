"""``tuner top`` and ``open``, and functions of the commands that use the daemon."""

import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

import click

from tuner.cli.output import echo
from tuner.model.errors import DaemonAbsentError, InputError
from tuner.model.units import moment

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.client.client import Client
    from tuner.model.jobs import Job


# those of tuner.client.transport, whose import would take a tenth of what `tuner --help` may
SOCKET_VARIABLE = "TUNER_SOCKET"
TOKEN_VARIABLE = "TUNER_TOKEN_FILE"  # noqa: S105 - the name of a file, not what is in it
_T = TypeVar("_T")

STARTING_S = 10.0
"""Time that a command waits for a daemon that may be starting."""

KNOCK_S = 0.1


socket_option = click.option(
    "--socket",
    metavar="PATH",
    envvar=SOCKET_VARIABLE,
    help="The daemon's socket, or http://127.0.0.1:PORT with the token's file in"
    f" ${TOKEN_VARIABLE}. Default: the user's own daemon, else the system's.",
)


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
    until_s, notified = time.monotonic() + STARTING_S, False
    while True:
        client = client_of(socket)  # anew: the socket that appears may be another than the one looked for
        try:
            return client, request(client)
        except DaemonAbsentError:
            if time.monotonic() >= until_s:
                raise
        if not notified:
            echo(f"no daemon listens at {client.address} yet: waiting up to {STARTING_S:g} s", err=True)
            notified = True
        time.sleep(KNOCK_S)


def one_line(job: "Job") -> str:
    """A job in a sentence."""
    from tuner.model.objective import OF_SINGLES
    from tuner.model.options import SINGLE

    singles = OF_SINGLES if job.options.get("timing") == SINGLE else ""
    why = f" ({job.reason})" if job.reason else ""
    where = f" on {job.device}" if job.device else ""
    return f"job {job.id} {job.state}{why}: {' '.join(job.workloads)}, {job.objective}{singles}{where}"


def show_jobs(jobs: Sequence["Job"], out: "Console") -> None:
    """A table of jobs."""
    from tuner.report.layout import rendered, table_lines
    from tuner.report.progress import asked_for, priority_of, search_of
    from tuner.report.rows import Column, Table

    columns: list[Column[Job]] = [
        Column("job", lambda job: str(job.id), number=True),
        Column("state", lambda job: str(job.state)),
        Column("submitted", lambda job: moment(job.created_at), rank=1),
        Column("device", lambda job: job.device or "any"),
        Column("priority", priority_of, number=True),
        Column("trials", lambda job: str(job.trials), number=True),
        Column("run", lambda job: None if job.run is None else str(job.run), number=True),
    ]

    def what(job: "Job") -> str:
        why = f" ({job.reason})" if job.reason else ""
        return f"{' + '.join(job.workloads)} · {search_of(job)}; {asked_for(job)}{why}"

    out.print(rendered(table_lines(Table(columns, jobs, Column("what", what)), out.width)))


def show_job(job: "Job", out: "Console") -> None:
    """All details of a job, one per line."""
    from tuner.report.progress import asked_for, priority_of, search_of

    device = job.device
    if job.device != job.wanted_device:
        device = f"{job.device or '–'} (asked for: {job.wanted_device or 'any'})"
    lines = {
        "state": f"{job.state} ({job.reason})" if job.reason else job.state,
        "workloads": " ".join(job.workloads),
        "search": search_of(job),
        "options": ", ".join(f"{name} {value}" for name, value in job.options.items()) or "–",
        "device": device,
        "asked by": asked_for(job),
        "priority": priority_of(job),
        "submitted": moment(job.created_at),
        "started": f"{moment(job.started_at)} (attempts: {job.attempts})",
        "ended": moment(job.ended_at),
        "run": "–" if job.run is None else f"{job.run}, {job.trials} trials",
    }
    out.print(f"job {job.id}, {job.kind}", style="bold")
    for name, value in lines.items():
        out.print(f"  {name + ':':<11} {value}")


@click.command("open", short_help="Show the daemon's live page in a browser.")
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    metavar="N",
    help="Port of 127.0.0.1. Default: 8750, or a free one.",
)
@click.option("--browser/--no-browser", default=True, help="Open a browser, or print the link only.")
@socket_option
def open_page(*, port: int | None, browser: bool, socket: str | None) -> None:
    """Show devices, jobs, trials and answers of the daemon in a browser, until Ctrl-C.

    The page is served on 127.0.0.1 to this user alone. The link is good for one browser. From another
    machine: `ssh -L 8750:127.0.0.1:8750 HOST tuner open --port 8750`.
    """
    from tuner.cli.page.app import listen, open_browser, serve

    client, _ = when_started(socket, lambda daemon: daemon.status())
    listener = listen(port)

    def opened(link: str) -> None:
        shown = browser and open_browser(link)
        echo(f"the page of the daemon at {client.address}, for one browser, until Ctrl-C:", err=True)
        echo(link)
        if browser and not shown:
            echo("no browser can be started here: open the link in yours", err=True)

    serve(client.transport, listener, opened)


# --- ``tuner top``: the daemon in the terminal.


@click.command(short_help="Show the daemon's devices, jobs, trials and answers in the terminal.")
@socket_option
def top(*, socket: str | None) -> None:
    """Show devices with their power, jobs, trials and answers of the daemon, until q.

    Jobs are cancelled, paused and resumed there, after a question; ? shows the keys. Power is sampled once a
    second meanwhile. Needs the extra `tui`. `tuner open` shows the same in a browser.
    """
    if find_spec("textual") is None:
        raise InputError("tuner top needs textual: pip install 'textual>=8,<9'")
    if not is_terminal():
        raise InputError("tuner top needs a terminal; `tuner status` and `tuner jobs` print")
    client, _ = when_started(socket, lambda daemon: daemon.status())

    import asyncio  # as many modules as all others that `tuner --help` needs

    from tuner.cli.top.live_state import EventReader
    from tuner.cli.top.view import TerminalView

    async def show() -> None:
        view = TerminalView(client, EventReader(client))
        for number in (signal.SIGINT, signal.SIGTERM):  # they leave the terminal as q does
            asyncio.get_running_loop().add_signal_handler(number, view.exit)
        await view.run_async()

    asyncio.run(show())


def is_terminal() -> bool:
    """True where keys come from a terminal and the screen is one."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
