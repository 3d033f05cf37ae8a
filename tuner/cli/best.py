"""``tuner best``: the best answer for workloads, of the daemon or stored, on the present device."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import completing
from tuner.cli.db import reading
from tuner.cli.options import database_option, device_option, fraction, kernel_option
from tuner.cli.output import console, json_option, write_json
from tuner.cli.remote import client_of, socket_option
from tuner.errors import DaemonError, InputError
from tuner.report.words import moment

if TYPE_CHECKING:
    from tuner.client import Best


@click.command(short_help="Print the best answer for workloads that run together.")
@click.argument(
    "workloads", nargs=-1, required=True, metavar="WORKLOAD...", shell_complete=completing.workloads
)
@click.option(
    "--objective",
    default="energy",
    show_default=True,
    shell_complete=completing.objectives,
    help="time, energy, edp or ed2p.",
)
@click.option("--max-slowdown", callback=fraction, help="The limit that the runs were made under, e.g. 5%.")
@click.option("--clocks-as-found", is_flag=True, help="Only answers that set no GPU clock.")
@click.option("--no-daemon", is_flag=True, help="Read the database, whether or not a daemon answers.")
@device_option
@kernel_option
@database_option
@socket_option
@json_option
def best(
    workloads: tuple[str, ...],
    *,
    no_daemon: bool,
    kernel_files: tuple[Path, ...],
    database: Path | None,
    socket: str | None,
    json_path: str | None,
    **question: Any,  # noqa: ANN401 - the options that say what is asked for
) -> None:
    """Print the best configurations for workloads that run together.

    The daemon is asked where one answers; it also knows what was worked out or tuned for other sizes, says
    so, and tunes what it does not know. Without one, and with --no-daemon, --database or --kernel, the
    database is read; exit code 1 when nothing is stored.

    A stored answer is fresh when GPU, driver, CUDA and kernel sources are those it was measured with;
    otherwise it is printed as stale, with the reasons.
    """
    if not (no_daemon or kernel_files or database):
        found = _of_daemon(workloads, socket, **question)
        if found is not None:
            _show_served(found, json_path)
            return
    _show_stored(workloads, kernel_files, database, json_path, **question)


def _of_daemon(
    workloads: tuple[str, ...],
    socket: str | None,
    *,
    objective: str,
    max_slowdown: float | None,
    clocks_as_found: bool,
    device: str | None,
) -> "Best | None":
    """The daemon's answer; None where the database is to be read, which is said unless no daemon is here.

    Raises:
        TunerError: the daemon that was named does not answer.
    """
    client = client_of(socket)
    try:
        return client.best(
            *workloads,
            objective=objective,
            device=device or "",
            max_slowdown=max_slowdown,
            clocks_as_found=clocks_as_found,
        )
    except (DaemonError, InputError) as error:
        if socket is not None:
            raise
        if isinstance(error, InputError):
            _check(workloads, objective, device)  # what is wrong here too is said once
        path = client.address.path
        if path is not None and path.exists():
            click.echo(f"the database is read, as the daemon gave no answer: {error}", err=True)
        return None


def _check(workloads: tuple[str, ...], objective: str, device: str | None) -> None:
    """Refuse what cannot be asked of any database.

    Raises:
        InputError: the message says what would be right.
    """
    from tuner.config.catalog import Catalog
    from tuner.model.objective import Objective
    from tuner.search.request import asked_for

    Objective(objective)
    asked_for(Catalog.load(()), workloads, device)


def _show_served(best: "Best", json_path: str | None) -> None:
    from tuner.report.served import show_best

    out = console(json_path)
    if json_path is not None:
        write_json(json_path, asdict(best))
    out.print("of the daemon (--no-daemon reads the database)", markup=False, highlight=False)
    show_best(best, out)


def _show_stored(
    workloads: tuple[str, ...],
    kernel_files: tuple[Path, ...],
    database: Path | None,
    json_path: str | None,
    *,
    objective: str,
    max_slowdown: float | None,
    clocks_as_found: bool,
    device: str | None,
) -> None:
    from tuner.config.catalog import Catalog
    from tuner.database.answers import find_answer
    from tuner.model.objective import Objective, described
    from tuner.report.tables import show_run
    from tuner.search.request import asked_for

    Objective(objective)
    asked = asked_for(Catalog.load(kernel_files), workloads, device)
    with reading(database) as store:
        answer = (
            None
            if store is None
            else find_answer(
                store,
                list(asked.batches),
                described(objective, max_slowdown),
                device=asked.device,
                sources=asked.sources,
                batches=asked.batches,
                clocks_as_found=clocks_as_found,
            )
        )
    if answer is None or answer.run.answer is None:
        limit = "" if max_slowdown is None else f" --max-slowdown {100 * max_slowdown:g}%"
        words = f"{' '.join(workloads)} --objective {objective}{limit}"
        click.echo(f"nothing is stored: run `tuner run {words}`", err=True)
        sys.exit(1)
    out = console(json_path)
    if json_path is not None:
        write_json(json_path, {**answer.run.answer, "stale": list(answer.stale), "run": answer.run.id})
    out.print(f"run {answer.run.id} of {moment(answer.run.started_at)}", markup=False, highlight=False)
    show_run(answer.run.answer, out)
    for reason in answer.stale:
        out.print(f"stale: {reason}", markup=False, highlight=False)
