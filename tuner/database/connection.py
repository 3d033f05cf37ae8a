"""The database, open: whole transactions in files that are whole."""

import logging
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import date
from pathlib import Path
from typing import TypeVar

from tuner.database.files import (
    MovedError,
    SuspectError,
    advice,
    damaged,
    lacks_shared_memory,
    mirror_of,
    translated,
    unreadable,
)
from tuner.database.integrity.checksums import Examination, IsolatedRow, Position
from tuner.database.pair import Pair
from tuner.database.transaction import Transaction
from tuner.model.errors import StoreDamagedError, StoreError, StoreFullError, StoreReadOnlyError
from tuner.system import signals
from tuner.system.user_folders import make_folder, user_folder

_LOG = logging.getLogger(__name__)
_TRIES = 3  # as found; opened again, as another process replaced a file; after putting the files right

T = TypeVar("T")


def default_path() -> Path:
    """Return the default path: ``tuner/tuner.db`` in the user's state directory (``$XDG_STATE_HOME``)."""
    return user_folder("state") / "tuner.db"


def holds_something(path: Path | None = None) -> bool:
    """Return True if there is a database to read: content in the file, or in its mirror; creates nothing.

    Args:
        path: the file; None for the default one.
    """
    path = path or default_path()
    return any(map(_has_content, (path, mirror_of(path))))


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # opening it says why
        return True


def _close_to_strangers(folder: Path) -> None:
    """Leave a folder to its user, and to its group where that may write: earlier versions left it open."""
    status = folder.stat()
    mode = stat.S_IMODE(status.st_mode) & (0o7770 if status.st_mode & stat.S_IWGRP else 0o7700)
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != mode:
        folder.chmod(mode)


class Database(AbstractContextManager["Database"]):
    """The database, open. A context manager; one thread uses it, one process may hold several.

    It is kept twice: every transaction goes to the file and to its mirror, ``NAME.mirror``, and every row has
    a checksum. What is read is read in both and verified. A row that one of them does not have soundly is
    taken from the other, with a warning; a file that SQLite cannot read is rebuilt, and the old one kept as
    ``NAME.damaged-1`` and so on. A row that neither has soundly comes from a backup, or is kept aside. To
    start anew, remove both.

    Args:
        path: of the file; None for the default one.
        on_repair: called with what was wrong, each time that something was put right.

    Raises:
        StoreBusyError: (any method) another process held it for too long.
        StoreFullError: the disk is full; nothing was changed.
        StoreDamagedError: nothing of this program is in either file.
        StoreReadOnlyError: this user may not write it.
        StoreError: anything else; the message says what, and what to do.
    """

    def __init__(
        self, path: Path | None = None, on_repair: Callable[[Examination], None] | None = None
    ) -> None:
        self.path = path or default_path()
        self._pair: Pair | None = None
        self._why_no_mirror: StoreError | None = None
        self._read_only_reason = ""  # why nothing can be stored, while that lasts
        self._on_repair = on_repair or (lambda _: None)
        try:
            make_folder(self.path.parent)
            if self.path == default_path():  # this program's own folder
                _close_to_strangers(self.path.parent)
        except OSError as error:
            raise StoreError(f"cannot make the directory of {self.path}: {error.strerror}") from error
        self._trusted(Pair.check)

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; safe to call twice."""
        if self._pair is not None:
            self._pair.close()
            self._pair = None

    def read(self, look: Callable[[Transaction], T]) -> T:
        """Do something that changes nothing; it may be done again if the files have to be put right."""
        return self._trusted(lambda pair: pair.read(look))

    def write(self, change: Callable[[Transaction], T], *, synced: bool = False) -> T:
        """Do something in one transaction: stored when this returns, undone when anything is raised.

        Args:
            change: what to do; it may be done again if the files have to be put right.
            synced: wait until it is on the disk, so that it outlives a power cut and not just this process.
        """
        return self._trusted(lambda pair: pair.write(change, synced=synced))

    def examine(self) -> Examination:
        """Verify every row of both files, and put right what is wrong; takes long where they are large."""
        return self._repair()

    def scrub(self, after: Position | None, most_rows: int) -> tuple[Position | None, Examination]:
        """Verify the next rows in both files, and examine them whole where something is wrong.

        Args:
            after: where the last call stopped; None to begin.
            most_rows: so many rows at most are read of each file.

        Returns:
            Where to go on, None behind the last row; and what was found.
        """
        from tuner.database.integrity.check import scrubbed  # noqa: PLC0415 - a run does without

        try:
            return self._trusted(lambda pair: scrubbed(pair, after, most_rows), heals=False)
        except SuspectError:
            return after, self.examine()

    def back_up(self, day: date) -> bool:
        """Write the backup of a day beside the files, and keep the last three: ``backup.back_up_day``.

        Returns:
            False where the mirror is missing or behind: nothing was written.
        """
        from tuner.database.backup import back_up_day  # noqa: PLC0415 - a run does without

        return self._trusted(lambda pair: back_up_day(pair, self.path, day))

    def shrink(self) -> None:
        """Give back the memory of pages that were read, up to 2 MB of each file; the system has them, too."""
        self.read(lambda view: view.row("PRAGMA shrink_memory"))

    def isolated(self) -> list[IsolatedRow]:
        """Rows that neither file had soundly, oldest first."""
        from tuner.database.integrity.check import isolated_rows  # noqa: PLC0415 - a run does without

        return self.read(isolated_rows)

    def _trusted(self, act: Callable[[Pair], T], *, heals: bool = True) -> T:
        """Do something with files that are whole as far as can be told."""
        trouble: Exception = SuspectError("never tried")
        before = signals.count()
        for _ in range(_TRIES):
            try:
                if self._pair is None:
                    self._pair = Pair(self.path)
                return act(self._pair)
            except MovedError as error:  # noqa: PERF203 - three turns at most
                trouble = error
                self.close()
            except (SuspectError, sqlite3.Error, UnicodeDecodeError) as error:
                signals.raise_again(before)  # SQLite says of it that a function of its own has failed
                if isinstance(error, sqlite3.Error) and not (
                    damaged(error) or lacks_shared_memory(error, self.path)
                ):
                    raise translated(error, self.path) from error
                if not heals:
                    raise SuspectError(str(error)) from error
                trouble = error
                self._repair()
            except (OverflowError, UnicodeEncodeError) as error:
                raise StoreError(f"{self.path}: a value cannot be stored or looked for: {error}") from error
            except OSError as error:  # as in a folder of another user
                raise unreadable(error, self.path) from error
        raise self._explained(trouble) from trouble

    def _repair(self) -> Examination:
        """Put the files right; where only the mirror cannot be, go on reading without it."""
        from tuner.database.integrity.repair import repair  # noqa: PLC0415 - most runs find all whole

        self.close()
        self._why_no_mirror = None
        try:
            examination = repair(self.path)
        except (StoreFullError, StoreReadOnlyError) as error:
            try:
                self._pair = Pair(self.path, mirrored=False)
            except (SuspectError, sqlite3.Error, UnicodeDecodeError):
                raise error from None
            self._why_no_mirror = error
            if str(error) != self._read_only_reason:  # each attempt to store comes here again
                self._read_only_reason = str(error)
                _LOG.warning("nothing can be stored: %s", error)
            return Examination()
        self._read_only_reason = ""
        if not examination.whole:
            self._on_repair(examination)
        return examination

    def _explained(self, trouble: Exception) -> StoreError:
        if self._why_no_mirror is not None:
            return self._why_no_mirror
        if isinstance(trouble, sqlite3.Error):
            return translated(trouble, self.path)
        return StoreDamagedError(f"{self.path}: {trouble}; {advice(self.path)}")
