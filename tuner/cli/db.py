"""``tuner db``: the database of results, merged, pulled and copied."""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from tuner.cli.main import orderly_stop
from tuner.cli.options import NamedPath, database_option, kernel_option
from tuner.cli.output import console, echo, json_option, writable, write_json
from tuner.model.errors import InputError

if TYPE_CHECKING:
    from tuner.database.backup import Manifest
    from tuner.database.files import Progress
    from tuner.database.integrity.checksums import Examination
    from tuner.database.merging import MergeReport
    from tuner.database.runs import Store


# --- ``tuner db merge``, ``pull`` and ``copy``: runs of other databases, and a copy for others.

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
    with Database(database) as target:
        if own.samefile(file):
            raise InputError(f"{file}: this is the database itself; name the file of another one")
        report = merge_file(target, file, limited=limited)
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
    from tuner.database.copying import pulled
    from tuner.database.merging import merge_file

    with (
        orderly_stop("interrupted; runs that were merged stay, and the same command adds the rest"),
        pulled(address, timeout_s=timeout_s, command=remote_command) as (file, source),
        Database(database) as target,
    ):
        report = merge_file(target, file, source=source, limited=limited)
    _print_merge(report, source, json_path)


def _print_merge(report: "MergeReport", source: str, json_path: str | None) -> None:
    from tuner.report.lists import merge_lines

    if json_path is not None:
        write_json(json_path, {"source": source, **asdict(report)})
    out = console(json_path)
    for line in merge_lines(report, source):
        out.print(line, soft_wrap=True)
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

    It is of one moment, whoever writes meanwhile. Jobs, uses, models and calibrations are left out: `tuner db
    backup` takes everything.
    """
    from tuner.database.connection import default_path
    from tuner.database.copying import copied

    source = database or default_path()
    target = _target(output, source)
    try:
        with copied(source, None if target is None else target.parent) as file:
            if target is not None:
                file.replace(target)
            else:
                _send(file)
    except OSError as error:
        raise InputError(f"--output {output}: {error.strerror}") from error
    left_out = "jobs, uses, analytical answers, models, samples, spending and calibrations"
    echo(f"left out: {left_out}; `tuner db backup` takes everything", err=True)


def _target(output: str, source: Path) -> Path | None:
    """The file that a copy of a database is written to; None for standard output."""
    from tuner.database.copying import check_target

    if output == "-":
        if sys.stdout.isatty():
            raise InputError("--output -: a database is no text; name a file, or send it to a program")
        return None
    check_target(Path(output), source)
    return Path(output)


def _send(file: Path) -> None:
    import shutil

    with file.open("rb") as content:
        shutil.copyfileobj(content, sys.stdout.buffer, _PIECE_BYTES)
    sys.stdout.buffer.flush()


# --- ``tuner db backup`` and ``restore``: everything, to another disk or host.


@click.command(short_help="Write everything that is stored to one file.")
@click.option(
    "--output",
    metavar="FILE",
    required=True,
    callback=writable,
    help="The file to write; an existing backup is replaced once the new one is whole; - is standard output.",
)
@database_option
@json_option
def backup(*, output: str, database: Path | None, json_path: str | None) -> None:
    """Write everything that is stored to one file: runs, jobs, uses, models, answers, and calibrations.

    It is of one moment, and every row is verified; daemon and runs go on meanwhile. A checksum tells `tuner
    db restore` whether the file is still what was written. It is no signature: keep the file where nobody
    else writes.
    """
    from tuner.database.backup import back_up
    from tuner.database.connection import default_path
    from tuner.system.ownership import owned_folder
    from tuner.system.threads import give_way

    if output == json_path == "-":
        raise InputError("--json -: standard output has the backup; name a file")
    give_way()  # to clients of the daemon
    source = database or default_path()
    target = _target(output, source)
    with (
        contextlib.ExitStack() as stack,
        orderly_stop("interrupted; no backup was written"),
        _progress("backing up") as progress,
    ):
        folder = None if target is not None else stack.enter_context(owned_folder(".tuner-backup-"))
        file = target or Path(folder or "", "tuner.backup")
        manifest = back_up(source, file, progress=progress)
        if target is None:
            try:
                _send(file)
            except OSError as error:
                raise InputError(f"--output -: {error.strerror}") from error
    _print_manifest(manifest, f"{output}: backup of {source}", json_path, err=target is None)


@click.command(short_help="Put a backup in the place of the database.")
@click.argument("file", metavar="FILE")
@click.option("--replace", is_flag=True, help="Also where something is stored already, which is gone then.")
@database_option
@json_option
def restore(*, file: str, replace: bool, database: Path | None, json_path: str | None) -> None:
    """Put a backup in the place of the database, on this host or another; FILE `-` is standard input.

    The daemon must be stopped. Nothing is changed before the whole backup is verified; killed at any moment,
    the database is the old one or the new one. A backup of an earlier version is brought up to this one. The
    database belongs to the owner of its directory then. Calibrations of power sensors are added to those
    that are there.
    """
    from tuner.database.backup import restore as put_back
    from tuner.database.connection import Database, default_path
    from tuner.report.lists import sentences

    path = database or default_path()
    parts: list[Examination] = []
    with (
        orderly_stop("interrupted; the database is the old one, or the restored one as a whole"),
        _opened(file) as source,
    ):
        with _progress("restoring") as progress:
            manifest = put_back(source, file, path, replace=replace, progress=progress)
        with _progress("verifying every row"), Database(path, parts.append) as opened:
            last = opened.examine()
    _print_manifest(manifest, f"{path}: restored from {file}", json_path)
    _print([line for part in (*parts, last) for line in sentences(part)], json_path)


@contextlib.contextmanager
def _opened(file: str) -> "Iterator[BinaryIO]":
    if file == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise InputError("-: a backup is no text; name a file, or send it from a program")
        yield sys.stdin.buffer
        return
    try:
        opened = open(file, "rb")  # noqa: PTH123, SIM115 - also a pipe
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}; name a file that `tuner db backup` wrote") from error
    with opened:
        yield opened


@contextlib.contextmanager
def _progress(what: str) -> "Iterator[Progress]":
    """A bar on a terminal."""
    from rich.progress import Progress as Display

    from tuner.report.layout import PlainConsole

    err = PlainConsole(stderr=True)
    with Display(console=err, transient=True, disable=not err.is_terminal) as display:
        task = display.add_task(what, total=None)
        yield lambda done, total: display.update(task, completed=done, total=total)


def _print_manifest(manifest: "Manifest", what: str, json_path: str | None, *, err: bool = False) -> None:
    document = {
        "tuner": manifest.tuner,
        "at": manifest.at,
        "bytes": manifest.size_bytes,
        "rows": manifest.rows,
    }
    readings = len(manifest.calibrations.get("calibrations", ()))
    if json_path is not None:
        write_json(json_path, {**document, "sha256": manifest.sha256, "calibrations": readings})
    counts = [f"{count:,} {name.replace('_', ' ')}" for name, count in manifest.rows.items() if count]
    counts += [f"{readings:,} calibrations"] if readings else []
    said = f"{what}, of tuner {manifest.tuner} at {manifest.at}: {', '.join(counts) or 'nothing stored'}"
    echo(said, err=err or json_path == "-")


@contextlib.contextmanager
def reading(database: Path | None) -> Iterator["Store | None"]:
    """The store; None if nothing was stored yet, because a query creates no file.

    Args:
        database: as named; None for the default, which need not be there.

    Raises:
        InputError: nothing is in the file that was named.
    """
    if is_stored(database):
        from tuner.database.runs import Store

        with Store(database) as store:
            yield store
    else:
        yield None


def is_stored(database: Path | None) -> bool:
    """Return True if there is a database with content.

    Raises:
        InputError: nothing is in the file that was named.
    """
    from tuner.database.connection import holds_something

    stored = holds_something(database)
    if not stored and database is not None:
        raise InputError(f"--database {database}: no results are there; name the file that `tuner run` wrote")
    return stored


@click.group(
    short_help="Back up, check, repair or merge the database, or export a run as a recording.",
)
def db() -> None:
    """The database of results: its path, backups, repair, runs of other hosts, and runs as recordings."""


for _command in (merge, pull, copy, backup, restore):
    db.add_command(_command)


@db.command()
@database_option
def path(*, database: Path | None) -> None:
    """Print the path of the database."""
    from tuner.database.connection import default_path

    echo(database or default_path())


@db.command(short_help="Compare the database with its mirror; change nothing.")
@database_option
@json_option
def check(*, database: Path | None, json_path: str | None) -> None:
    """Read the database and its mirror completely, and compare them row by row. Nothing is changed.

    What both lack of the newest backup is named, too. The exit status is 1 where something is wrong, and
    `tuner db repair` puts that right. A daemon may go on meanwhile.
    """
    from tuner.database.connection import default_path
    from tuner.database.integrity.check import check_copies
    from tuner.report.lists import examination_document

    if not is_stored(database):
        echo("nothing is stored, and nothing to check")
        return
    path = database or default_path()
    examination = check_copies(path)
    if json_path is not None:
        write_json(json_path, {"path": str(path), **examination_document(examination)})
    _conclude(path, examination, json_path, "`tuner db repair` puts this right")


def _conclude(path: Path, examination: "Examination", json_path: str | None, advice: str) -> None:
    """Print the result of a check; exit with 1, after the advice, where something is wrong."""
    from tuner.report.lists import sentences

    _print([*sentences(examination), f"{examination.rows:,} rows were verified"], json_path)
    if not examination.whole:
        echo(advice, err=True)
        sys.exit(1)
    _print([f"{path} and its mirror are whole"], json_path)


@db.command(short_help="Verify every row, and put right what is wrong.")
@database_option
@json_option
def repair(*, database: Path | None, json_path: str | None) -> None:
    """Verify every row of the database and its mirror, and put right what is wrong.

    A row that is sound in one file is taken from there. One that is sound in neither comes from the newest
    backup of the daemon that has it, or is kept aside, and everything else is served: see `tuner db
    isolated`. A file that cannot be read at all is rebuilt, and the old one kept as FILE.damaged-1 and so on.
    Later transactions of a backup, which both files have lost, are taken from there; or, where the database
    has gone on without them, the command that merges their runs is named.

    At last both files are checked as `tuner db check` does. The exit status is 1 where something is still
    wrong, as on a full disk.
    """
    from tuner.database.connection import Database
    from tuner.database.integrity.check import check_copies
    from tuner.report.lists import examination_document, joined, sentences

    if not is_stored(database):
        echo("nothing is stored, and nothing to repair")
        return
    parts: list[Examination] = []
    with Database(database, parts.append) as opened:
        last = opened.examine()
    repaired, left = joined(parts, last.rows), check_copies(opened.path)
    if json_path is not None:
        document = {**examination_document(repaired), "left": examination_document(left)}
        write_json(json_path, {"path": str(opened.path), **document})
    _print(sentences(repaired), json_path)
    _conclude(opened.path, left, json_path, "this is left; repair again when its cause is gone")


@db.command()
@click.option(
    "--output",
    metavar="FILE",
    callback=writable,
    help="Write what is left of these rows as JSON; - is standard output.",
)
@database_option
def isolated(*, output: str | None, database: Path | None) -> None:
    """List rows that neither the database nor its mirror had soundly. They are kept aside and not served."""
    from tuner.database.integrity.checksums import named
    from tuner.model.units import moment
    from tuner.report.lists import isolated_document

    with reading(database) as store:
        rows = [] if store is None else store.database.isolated()
    if output is not None:
        write_json(output, {"isolated": [isolated_document(row) for row in rows]})
    lines = [f"{row.table} {named(row.key)}: {row.why} (found at {moment(row.found_at)})" for row in rows]
    _print(lines or ["no row is kept aside"], output)


def _print(lines: Iterable[str], json_path: str | None) -> None:
    out = console(json_path)
    for line in lines:
        out.print(line, soft_wrap=True)


@db.command()
@click.option(
    "--run",
    "run_id",
    type=click.IntRange(min=1),
    metavar="ID",
    help="A run of `tuner history`. Default: the newest with a trial.",
)
@click.option(
    "--output",
    metavar="FILE",
    callback=writable,
    help="The file to write; an existing recording is replaced. Default: run-ID.zip in this directory.",
)
@click.option("--out", "called_earlier", metavar="FILE", callback=writable, hidden=True)  # in version 0.1
@kernel_option
@database_option
def export(
    *,
    run_id: int | None,
    output: str | None,
    called_earlier: str | None,
    kernel_files: tuple[Path, ...],
    database: Path | None,
) -> None:
    """Write the trials of a run, finished or not, as a recorded space.

    Trials of all runs that measured the same workloads on the same GPU in the same way go with it. Replay it
    with `tuner run --device replay:FILE`.
    """
    from zipfile import is_zipfile

    from tuner.kernel_files.catalog import Catalog
    from tuner.recordings.files import write
    from tuner.search.replaying import covered, stored_space

    named = output or called_earlier
    if named == "-":
        raise InputError("--output -: a recording is no text; name a file")
    if named is not None and Path(named).is_file() and not is_zipfile(named):
        raise InputError(f"--output {named}: is there already, and is no recording; name another file")
    with reading(database) as store:
        if store is None:
            raise InputError("nothing is stored, so there is nothing to export")
        stored = stored_space(store, Catalog.load(kernel_files), run_id)
    target = Path(named or f"run-{run_id or stored.runs[0]}.zip")
    try:
        write(target, [stored.space])
    except OSError as error:
        raise InputError(f"--output {target}: {error.strerror}") from error
    names, runs = " + ".join(stored.space.names), ", ".join(map(str, stored.runs))
    of = "of run" if len(stored.runs) == 1 else "of runs"
    lines = [
        f"{target}: {names} on {stored.space.identity.name}: {covered(stored)}; {of} {runs}",
        *stored.notices,
        f"replay it: tuner run --device replay:{target}",
    ]
    _print(lines, None)
