"""``tuner db merge``, ``pull`` and ``copy``: runs of other databases, and a copy for others."""

import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.lifecycle import orderly_stop
from tuner.cli.options import NamedPath, database_option
from tuner.cli.output import console, json_option, writable, write_json
from tuner.model.errors import InputError

if TYPE_CHECKING:
    from tuner.database.merging import MergeReport


_PIECE_BYTES = 2**20
_limited_option = click.option(
    "--limited",
    is_flag=True,
    help="Take over runs that a budget or a time limit has ended, too. One that is gone on with afterwards is"
    " taken over once more, as another run.",
)


@click.command(short_help="Take over the finished runs of another database file.")
@click.argument("file", type=NamedPath(dir_okay=False, path_type=Path))
@_limited_option
@database_option
@json_option
def merge(*, file: Path, limited: bool, database: Path | None, json_path: str | None) -> None:
    """Take over the finished runs of another database file that are not in this one yet.

    FILE is only read. Runs keep their trials, times and answers, and say where they come from. Merging again,
    or the same runs by way of another host, adds nothing. A run that is damaged there is left out and named;
    the exit status is 1 then.
    """
    from tuner.database.connection import Database, default_path
    from tuner.database.merging import merge_file

    if not file.exists():  # before a database is made
        raise InputError(f"{file}: there is no such file; name what `tuner run` or `tuner db copy` wrote")
    own = database or default_path()
    with Database(database) as there:
        if own.samefile(file):
            raise InputError(f"{file}: this is the database itself; name the file of another one")
        report = merge_file(there, file, limited=limited)
    _print_merge(report, str(file), json_path)


@click.command(short_help="Take over the finished runs of another host.")
@click.argument("address", metavar="ADDRESS")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1.0, max=86_400.0),
    default=600.0,
    show_default=True,
    metavar="S",
    help="Seconds that the transfer may take.",
)
@click.option(
    "--remote-command",
    default="tuner",
    show_default=True,
    metavar="COMMAND",
    help="The tuner of the host: one that is not on the path of its ssh sessions.",
)
@_limited_option
@database_option
@json_option
def pull(
    *,
    address: str,
    timeout_s: float,
    remote_command: str,
    limited: bool,
    database: Path | None,
    json_path: str | None,
) -> None:
    """Take over the finished runs of another host, as `tuner db merge` does.

    ADDRESS is `ssh:HOST`, `ssh:HOST:PATH` for another database than that of the user there, or the https URL
    of a database file. ssh must not ask for a password.
    """
    from tuner.database.connection import Database
    from tuner.database.merging import merge_file
    from tuner.database.pulling import pulled

    with (
        orderly_stop("interrupted; runs that were merged stay, and the same command adds the rest"),
        pulled(address, timeout_s=timeout_s, command=remote_command) as (file, source),
        Database(database) as there,
    ):
        report = merge_file(there, file, source=source, limited=limited)
    _print_merge(report, source, json_path)


def _print_merge(report: "MergeReport", source: str, json_path: str | None) -> None:
    from tuner.report.merges import merge_lines

    if json_path is not None:
        write_json(json_path, {"source": source, **asdict(report)})
    out = console(json_path)
    for line in merge_lines(report, source):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    if report.runs_refused:
        sys.exit(1)


@click.command(short_help="Write a copy of the runs, for `tuner db merge`.")
@click.option(
    "--output",
    metavar="FILE",
    required=True,
    callback=writable,
    help="The file to write; an existing copy is replaced; - is standard output.",
)
@database_option
def copy(*, output: str, database: Path | None) -> None:
    """Write a copy of the runs and their trials, for `tuner db merge` on another host.

    It is of one moment, whoever writes meanwhile. Jobs, users and uses stay behind.
    """
    from tuner.database.connection import default_path
    from tuner.database.copying import check_target, copied

    source = database or default_path()
    target = None if output == "-" else Path(output)
    if target is not None:
        check_target(target, source)
    if target is None and sys.stdout.isatty():
        raise InputError("--output -: a database is no text; name a file, or send it to a program")
    try:
        with copied(source, None if target is None else target.parent) as file:
            if target is not None:
                file.replace(target)
                return
            with file.open("rb") as content:
                shutil.copyfileobj(content, sys.stdout.buffer, _PIECE_BYTES)
            sys.stdout.buffer.flush()
    except OSError as error:
        raise InputError(f"--output {output}: {error.strerror}") from error
