"""Another program in the place of the service's, and the way back where that one does not become ready.

A program is an environment, which the units name. That of before is left as it is, so that its units are the
way back. The journal holds their text from before the first change until the daemon is ready: who is killed
in between leaves one of both programs in force, and the next installation goes to the end, or back.
"""

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.client.client import Client
from tuner.client.transport import GOES_ON
from tuner.daemon.installing.steps import (
    JOURNAL,
    NAME,
    WORKER_UNIT,
    Command,
    Record,
    Site,
    Step,
    enabled,
    execute,
    placed,
    read,
    registered,
    remove,
    run,
    say,
    write,
)
from tuner.database.backup import back_up, restore
from tuner.database.connection import holds_something
from tuner.database.files import connect_to_read
from tuner.database.integrity.copy_state import CopyState, inspected
from tuner.model.errors import DaemonUnavailableError, InputError, InstallError, StoreError, TunerError
from tuner.system.ownership import try_lock, without_daemon
from tuner.system.service_manager import SYSTEM_SOCKET

BACKUP, ASIDE = "before-upgrade.db", "after-upgrade.db"
"""Backups of the last upgrade, beside the database: as it was, and as a program left it that was given up."""

_SERVICES = ("tuner.service", "tuner-clockd.service")
_READY_S = 120.0  # for a daemon that has started to find its GPUs
_LOOK_S = 0.2
_TRIES = 5
_PROGRAM = re.compile(r"^ExecStart=(/.*)/bin/tuner daemon\b", re.MULTILINE)

Ready = Callable[[float], str]
"""Returns the reason that the daemon is not ready within so many seconds; empty where it is."""


@dataclass(frozen=True)
class Journal:
    """Files that an upgrade replaces, and the database of before.

    Attributes:
        before: environment of the program of before.
        texts: file -> what was in it; None where there was none.
        state: directory of the database.
        changes: migrations that had made the database; None where there was none.
    """

    before: str
    texts: Mapping[str, str | None]
    state: str
    changes: int | None

    @property
    def database(self) -> Path:
        """The database of the daemon."""
        return Path(self.state) / "tuner.db"


@contextlib.contextmanager
def alone(site: Site) -> Iterator[None]:
    """Keep other installations from the site for the block.

    Raises:
        InputError: one is under way.
    """
    if not site.settings.is_dir():
        yield
        return
    lock = os.open(site.settings, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not try_lock(lock, site.settings):
            raise InputError(
                f"{site.settings}: another install-service is under way; wait until it has ended, and look at"
                " `tuner status`"
            )
        yield
    finally:
        os.close(lock)


def readiness(within_s: float) -> str:
    """Reason that this machine's daemon is not ready in time, as ``/readyz`` tells; empty where it is."""
    until_s = time.monotonic() + within_s
    while True:
        try:
            Client(SYSTEM_SOCKET).transport.text("/readyz")
        except DaemonUnavailableError as error:
            if time.monotonic() > until_s:
                return str(error).removesuffix(GOES_ON)  # the daemon that is given up does not
        except TunerError:  # it is older than the question, and answers
            return ""
        else:
            return ""
        time.sleep(_LOOK_S)


def upgrade(
    site: Site,
    state: Path,
    held: contextlib.ExitStack,
    runner: Command = execute,
    ready: Ready = readiness,
) -> list[Step]:
    """The steps that put a site's program in the place of the one that the service runs.

    Args:
        site: with the environment of the other program, newer or older.
        state: directory of the database.
        held: has the database while no daemon may; close it where a step fails, before ``back``.
        runner: runs commands.
        ready: asks the daemon.

    Raises:
        InputError: nothing is installed, the program is that of the service, or the daemon is not ready now.
        StoreError: the database is of a newer program than the site's.
    """
    before = program(site)
    if before is None:
        raise InputError("nothing is installed: leave out --upgrade, and the service is installed")
    if before == str(site.prefix):
        raise InputError(
            f"{before}: is the program of the service already; put the other version into an environment of"
            f" its own, such as {before}-2, and say `{before}-2/bin/tuner install-service --upgrade`: that of"
            " before is the way back"
        )
    if why := ready(0.0):
        raise InputError(f"the daemon is not ready before the upgrade: {why}; mend that first")
    journal = _journal(site, before, state)
    placing, again = placed(site)
    return [
        write(site.settings / JOURNAL, json.dumps(vars(journal))),
        *_switched(site, journal, held, placing=placing, again=again, runner=runner, ready=ready),
    ]


def unfinished(
    site: Site, held: contextlib.ExitStack, runner: Command = execute, ready: Ready = readiness
) -> list[Step]:
    """The steps that end an upgrade that was killed: forward where all files were in place, else back.

    Raises:
        InstallError: the journal cannot be read.
    """
    journal = _read(site)
    if journal is None:
        return []
    told = say(f"an upgrade was cut short: {site.settings / JOURNAL}")
    if program(site) == journal.before:
        return [told, *back(site, held, runner)]
    return [told, *_switched(site, journal, held, runner=runner, ready=ready)]


def _switched(
    site: Site,
    journal: Journal,
    held: contextlib.ExitStack,
    *,
    placing: Sequence[Step] = (),
    again: Sequence[str] = (),
    runner: Command,
    ready: Ready,
) -> Iterator[Step]:
    """From the journal to the daemon that is ready."""
    stop = run(site.systemctl("stop", *_SERVICES), runner)
    backup = Path(journal.state) / BACKUP
    yield stop
    yield Step(f"back up the database to {backup}", lambda: _back_up(journal, held, stop))
    yield from placing
    yield from registered(site, runner)
    yield stop  # whom a client has started meanwhile is the one of before, and waits for the database
    yield Step("let the daemon have the database", held.close)
    sockets = [name for name in again if name.endswith(".socket")]
    if sockets:
        yield run(site.systemctl("try-restart", *sockets), runner)
    yield enabled(site, runner)
    yield Step("wait until the daemon is ready", lambda: _wait(ready))
    yield from _workers_again(site, runner)
    yield remove(site.settings / JOURNAL)


def back(site: Site, held: contextlib.ExitStack, runner: Command = execute) -> list[Step]:
    """The steps back to the program and the database of before an upgrade; none where there is no way back.

    Raises:
        InstallError: the journal cannot be read.
    """
    journal = _read(site)
    if journal is None:
        return []
    given_up = program(site)
    programs = {str(item.path) for item in site.items() if item.program}
    differing = {path: text for path, text in journal.texts.items() if _text(Path(path)) != text}
    files = [
        remove(Path(path)) if text is None else write(Path(path), text, "put back", program=path in programs)
        for path, text in differing.items()
    ]
    stop = run(site.systemctl("stop", *_SERVICES), runner)
    sockets = [name for name in site.started if str(site.units / name) in differing and "socket" in name]
    return [
        stop,
        Step(
            f"put the database back if it was migrated, and keep that as {journal.database.with_name(ASIDE)}",
            lambda: _put_back(journal, given_up, held, stop),
        ),
        *files,
        *registered(site, runner),
        stop,  # whom a client has started meanwhile is the one that is given up, and waits for the database
        Step("let the daemon have the database", held.close),
        *([run(site.systemctl("try-restart", *sockets), runner)] if sockets else []),
        enabled(site, runner),
        *_workers_again(site, runner),
        remove(site.settings / JOURNAL),
    ]


def _workers_again(site: Site, runner: Command) -> list[Step]:
    """Have workers of a pool that run do so by the program that the units name now."""
    return [] if site.user else [run(site.systemctl("try-restart", WORKER_UNIT.format("*")), runner)]


def program(site: Site) -> str | None:
    """Environment of the program that the service runs; None without a service."""
    found = _PROGRAM.search(_text(site.units / "tuner.service") or "")
    return None if found is None else found[1]


def _journal(site: Site, before: str, state: Path) -> Journal:
    had = read(site.settings / NAME) or Record()
    paths = [site.settings / NAME, *map(Path, had.files), *(item.path for item in site.items())]
    texts = {str(path): _text(path) for path in paths}
    return Journal(before, texts, str(state), migrations(site, state))


def migrations(site: Site, state: Path) -> int | None:
    """The number of migrations that have made the database of a directory; None where there is none.

    Raises:
        StoreError: it is of a newer program than the site's, which could not use it.
    """
    database = state / "tuner.db"
    if not holds_something(database):
        return None
    there = inspected(database, to_change=False)
    if there.form is CopyState.NEWER:
        backup = (
            state / BACKUP
        )  # of the last upgrade, which may have been from a newer program than the site's
        older = inspected(backup, to_change=False).form in (CopyState.WHOLE, CopyState.EARLIER)
        raise StoreError(
            f"{database}: is of a newer tuner than {site.prefix} (migrations {there.trouble}); restore a"
            f" backup of that version or an earlier one first: `sudo tuner stop --until-told`, then"
            f" `sudo {site.prefix}/bin/tuner db restore {backup if older else 'FILE'} --database {database}"
            f" --replace`, then `sudo {site.prefix}/bin/tuner install-service`"
            f"{'' if older else f'; {backup} is none of these'}"
        )
    return there.changes


def _text(path: Path) -> str | None:
    """The text of a file; None where there is none."""
    return path.read_text() if path.exists() else None


def _read(site: Site) -> Journal | None:
    path = site.settings / JOURNAL
    try:
        return Journal(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InstallError(f"{path}: the journal of an upgrade cannot be read: {error}") from error


def _take(journal: Journal, held: contextlib.ExitStack, stop: Step) -> None:
    """Keep daemons from the database until ``held`` is closed."""
    for left in reversed(range(_TRIES)):
        try:
            held.enter_context(without_daemon(Path(journal.state)))
            break
        except InputError:  # a client was quicker, and has started the daemon again
            if not left:
                raise
            stop.action()


def _back_up(journal: Journal, held: contextlib.ExitStack, stop: Step) -> None:
    """Take the database, and back it up unless the other program has migrated it."""
    _take(journal, held, stop)
    if journal.changes is not None and not _migrated(journal):
        back_up(journal.database, journal.database.with_name(BACKUP))


def _put_back(journal: Journal, given_up: str | None, held: contextlib.ExitStack, stop: Step) -> str:
    """Take the database, and have it as it was before.

    Returns:
        What only the program that is given up has stored, and the way to it; empty where that is nothing.
    """
    _take(journal, held, stop)
    if journal.changes is None or not _migrated(journal):
        return ""
    database, aside = journal.database, journal.database.with_name(ASIDE)
    after, backup = back_up(database, aside), database.with_name(BACKUP)
    with backup.open("rb") as source:
        before = restore(source, str(backup), database, replace=True, held=True)
    more = {name: after.rows.get(name, 0) - before.rows.get(name, 0) for name in ("jobs", "runs", "trials")}
    if not any(count > 0 for count in more.values()):
        return ""
    with contextlib.closing(connect_to_read(aside)) as reading:
        newest = "SELECT id FROM jobs ORDER BY id DESC LIMIT ?"
        numbers = sorted(number for (number,) in reading.execute(newest, (max(0, more["jobs"]),)))
    counts = [f"{count} {name}" for name, count in more.items() if count > 0]
    listed = f" (jobs {', '.join(map(str, numbers))}, whose numbers are given again)" if numbers else ""
    return (
        f"{given_up} had stored {', '.join(counts)}{listed}, which are in {aside} alone now. Ask for the jobs"
        f" again; or, once that program can become ready, `tuner stop --until-told`, `{given_up}/bin/tuner db"
        f" restore {aside} --database {database} --replace` and `{given_up}/bin/tuner install-service` go on"
        " from there, without what is stored until then"
    )


def _migrated(journal: Journal) -> bool:
    """True where the tables are no longer those of the program of before."""
    return inspected(journal.database, to_change=False).changes != journal.changes


def _wait(ready: Ready) -> None:
    if why := ready(_READY_S):
        raise InstallError(f"the daemon does not become ready within {_READY_S:g} s: {why}")
