"""``tuner db``: the database of results."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.options import database_option, kernel_option
from tuner.cli.output import console, echo, writable
from tuner.errors import InputError

if TYPE_CHECKING:
    from tuner.database import Store


@contextlib.contextmanager
def reading(database: Path | None) -> Iterator["Store | None"]:
    """The store; None if nothing was stored yet, because a query creates no file.

    Args:
        database: as named; None for the default, which need not be there.

    Raises:
        InputError: nothing is in the file that was named.
    """
    if is_stored(database):
        from tuner.database import Store

        with Store(database) as store:
            yield store
    else:
        yield None


def is_stored(database: Path | None) -> bool:
    """Whether there is a database.

    Raises:
        InputError: nothing is in the file that was named.
    """
    from tuner.database import holds_something

    found = holds_something(database)
    if not found and database is not None:
        raise InputError(f"--database {database}: no results are there; name the file that `tuner run` wrote")
    return found


@click.group(
    short_help="Print the path of the database, repair it, or export a run as a recording.",
)
def db() -> None:
    """The database of results: its path, its repair, and its runs as recorded spaces."""


@db.command()
@database_option
def path(*, database: Path | None) -> None:
    """Print the path of the database."""
    from tuner.database import default_path

    echo(database or default_path())


@db.command()
@database_option
def repair(*, database: Path | None) -> None:
    """Read the database and its mirror completely, and rebuild a damaged one from the other.

    The damaged file is kept as FILE.damaged-1 and so on.
    """
    from tuner.database import Database

    if not is_stored(database):
        echo("nothing is stored, and nothing to repair")
        return
    with Database(database) as there:
        there.examine()
        echo(f"{there.path} and its mirror are whole")


@db.command()
@click.option(
    "--run",
    "run_id",
    type=click.IntRange(min=1),
    metavar="ID",
    help="A run of `tuner history`. Default: the newest with a trial.",
)
@click.option(
    "--out",
    metavar="FILE",
    callback=writable,
    help="The file to write; an existing one is replaced. Default: run-ID.zip in this directory.",
)
@kernel_option
@database_option
def export(
    *, run_id: int | None, out: str | None, kernel_files: tuple[Path, ...], database: Path | None
) -> None:
    """Write the trials of a run, finished or not, as a recorded space.

    Trials of all runs that measured the same workloads on the same GPU in the same way go with it. Replay it
    with `tuner run --device replay:FILE`.
    """
    from tuner.config.catalog import Catalog
    from tuner.errors import InputError
    from tuner.recordings import write
    from tuner.search.exporting import covered, stored_space

    if out == "-":
        raise InputError("--out -: a recording is no text; name a file")
    with reading(database) as store:
        if store is None:
            raise InputError("nothing is stored, so there is nothing to export")
        stored = stored_space(store, Catalog.load(kernel_files), run_id)
    target = Path(out or f"run-{run_id or stored.runs[0]}.zip")
    try:
        write(target, [stored.space])
    except OSError as error:
        raise InputError(f"--out {target}: {error.strerror}") from error
    names, runs = " + ".join(stored.space.names), ", ".join(map(str, stored.runs))
    of = "of run" if len(stored.runs) == 1 else "of runs"
    lines = [
        f"{target}: {names} on {stored.space.identity.name}: {covered(stored)}; {of} {runs}",
        *stored.notices,
        f"replay it: tuner run --device replay:{target}",
    ]
    for line in lines:
        console().print(line, markup=False, highlight=False, soft_wrap=True)
