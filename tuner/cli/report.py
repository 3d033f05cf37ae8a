"""``tuner report``: a run, two runs or the daemon's answers as one HTML file."""

import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.options import database_option
from tuner.cli.output import echo, writable, write_whole
from tuner.cli.remote import client_of, socket_option
from tuner.cli.stored_runs import document_of, title_of
from tuner.model.errors import InputError

if TYPE_CHECKING:
    from tuner.model.run_document import RunDocument


_MEGABYTE = 1e6


@click.command(short_help="Write a run, or two side by side, as one HTML file.")
@click.argument("run", required=False, metavar="[RUN")
@click.argument("other", required=False, metavar="[RUN2]]")
@click.option("--daemon", is_flag=True, help="All answers that the daemon has, and what they save.")
@click.option(
    "--output",
    metavar="FILE",
    callback=writable,
    help="Where to write; - is standard output. Default: run-N.html or daemon.html here.",
)
@database_option
@socket_option
def report(
    run: str | None,
    other: str | None,
    *,
    daemon: bool,
    output: str | None,
    database: Path | None,
    socket: str | None,
) -> None:
    """Write a report that any browser opens, without a network: the answer, how sure it is, charts, trials.

    RUN is a number of `tuner history`, or a file of `tuner run --json`; without one, the newest run is shown.
    With RUN2, both stand side by side, and the second is held against the first.
    """
    if daemon:
        if run is not None:
            raise InputError("--daemon: shows all answers of the daemon; leave RUN out")
        text, name = _of_daemon(socket), "daemon.html"
    else:
        text, name = _of_runs(run, other, database)
    if output == "-":
        sys.stdout.write(text)
        return
    if output is None:
        output = writable(click.get_current_context(), _output(), name)
    write_whole(Path(str(output)), text, f"--output {output}")
    echo(f"report: {output} ({len(text.encode()) / _MEGABYTE:.2f} MB)")


def _output() -> click.Parameter:
    """The option that names the file."""
    return next(one for one in click.get_current_context().command.params if one.name == "output")


def _of_runs(run: str | None, other: str | None, database: Path | None) -> tuple[str, str]:
    """The page of one run or of two, and the name of its file."""
    from tuner.report.html.report import pair_page, run_page

    one = document_of(run, database, with_series=True)
    if other is None:
        return run_page(one, _now()), f"run-{_named(one, run)}.html"
    two = document_of(other, database, with_series=True)
    titles = (title_of(one, run), title_of(two, other))
    name = f"run-{_named(one, run)}-{_named(two, other)}.html"
    return pair_page(one, two, titles, _now()), name


def _named(document: "RunDocument", name: str | None) -> str:
    return str(document["run"]) if name is None or name.isdecimal() else Path(name).stem


def _of_daemon(socket: str | None) -> str:
    from tuner.client.answers import known_answers
    from tuner.report.html.machine import machine_page

    client = client_of(socket)
    status = client.status()
    return machine_page(status, known_answers(client), client.savings(), _now())


def _now() -> datetime:
    return datetime.now(timezone.utc)
