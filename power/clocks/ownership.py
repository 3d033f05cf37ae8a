"""The sole right to change one setting of a GPU, its clocks or its power limit, with the journal of changes.

The right is a lock on a file. Whoever gets it first undoes what a dead owner announced and did not undo.
"""

import contextlib
import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tuner.model.errors import ClockError, ClockPermissionError, TunerError
from tuner.system.ownership import is_alive, pid_of, this_process

from ..base import SettingState
from .journal import JournalEntry, SettingJournal, doubt, is_undone, journals

_LOG = logging.getLogger(__name__)
HANDOVER_S = 10.0  # a guardian that restores after its owner's death has let go by then
GLANCE_S = 0.2  # who only looks whether there is an owner holds the lock for far less
_RETRY_S = 0.02
_SIGNATURE_BYTES = 4096  # far longer than any identity
_FOLDER_MODE = 0o755  # the helper's socket may lie beside the journal

Undo = Callable[[JournalEntry], list[str]]
"""Undoes what an entry announces and tells what was left alone; raises a TunerError if it cannot."""


class HeldError(ClockError):
    """Somebody else owns the setting.

    Attributes:
        who: for people.
    """

    def __init__(self, journal: SettingJournal, who: str) -> None:
        kind = journal.kind
        super().__init__(f"the {kind.name} of {journal.gpu} {kind.held} by {who}: wait for it or end it")
        self.who = who


class Ownership:
    """Ownership of one setting of a GPU and its journal.

    Args:
        journal: of the setting, with its lock; the directory is made if missing.
        undo: undoes what a dead owner left.
        owner: identity of the process that is to be named to others; this one if empty.
        patience_s: how long to wait for the guardian of a dead owner; a living owner is not waited for.
    """

    def __init__(
        self, journal: SettingJournal, undo: Undo, *, owner: str = "", patience_s: float = GLANCE_S
    ) -> None:
        self._journal = journal
        self._undo = undo
        self._owner = owner or this_process()
        self._patience_s = patience_s
        self._lock: int | None = None

    def take(self, *, settle: bool = True) -> list[str] | None:
        """Own the setting, and undo what a dead owner left.

        Args:
            settle: False for somebody who resets whatever was left.

        Returns:
            What ``restored`` says.

        Raises:
            HeldError: another process owns it.
            ClockError: the directory cannot be written or trusted, or a stale change cannot be undone.
        """
        self._lock = _taken(self._journal, self._patience_s)
        try:
            notes = restored(self._journal, self._undo) if settle else None
            # Who is named here holds the lock for long: nobody waits for a living one, or is told of a guest.
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, self._owner.encode(), 0)
        except OSError as error:
            self.give_up()
            raise ClockError(f"{self._journal.lock} cannot be signed: {error}") from error
        except BaseException:
            self.give_up()
            raise
        return notes

    def announce(self, old: SettingState, new: int) -> None:
        """Put the entry on disk; to be called before each change, with what is there now.

        Raises:
            ClockError: it cannot be written, or the setting is not owned.
        """
        # Whoever removed the file made room for another lock of the same name.
        if self._lock is None or not _is_same_file(self._journal.lock, self._lock):
            what = f"the {self._journal.kind.name} of {self._journal.gpu}"
            raise ClockError(f"nobody owns {what} any more: {self._journal.lock} was removed")
        self._journal.write(self._owner, old, new)

    def clear(self) -> None:
        """Remove the entry; to be called when the change is undone."""
        self._journal.clear()

    def give_up(self) -> None:
        """Let the next owner have the setting."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with contextlib.suppress(OSError):  # of a full disk
                os.ftruncate(lock, 0)  # who signed may live on, and owns it no more
            os.close(lock)


def restored(journal: SettingJournal, undo: Undo) -> list[str] | None:
    """Undo what the entry of a journal announces and remove it; to be called by the owner.

    Returns:
        Why that was in doubt and what was left alone, for people; None where there was nothing to undo.

    Raises:
        TunerError: the entry is unreadable or could not be undone; it stays.
    """
    entry = journal.read()
    if entry is None or is_undone(entry):
        journal.clear()
        return None
    notes = [*filter(None, [doubt(entry)]), *undo(entry)]
    journal.clear()
    _LOG.info("restored the %s of %s, which a killed process had left set", journal.kind.name, journal.gpu)
    for note in notes:
        _LOG.warning("%s: %s", journal.gpu, note)
    return notes


@dataclass(frozen=True)
class RestoreOutcome:
    """Result of restoring one GPU that the journal names.

    Attributes:
        control: of what was set.
        gpu: what that knows it by.
        state: ``restored``; ``undone`` by a reboot, or nothing had been set; ``owned`` by a living process;
            ``failed`` and still in the journal.
        details: for people: who owns it, why it was restored in doubt, what was left alone, or why it failed.
    """

    control: str
    gpu: str
    state: Literal["restored", "undone", "owned", "failed"]
    details: tuple[str, ...] = ()


def restore_stale(directory: Path, undo: Undo) -> list[RestoreOutcome]:
    """Restore every setting whose journal entry has no living owner or guardian; goes on past errors."""
    return [_settled(journal, undo) for journal in journals(directory)]


def _settled(journal: SettingJournal, undo: Undo) -> RestoreOutcome:
    try:
        lock = _taken(journal, GLANCE_S)
        try:
            notes = restored(journal, undo)
        finally:
            os.close(lock)
    except HeldError as error:
        return RestoreOutcome(journal.control, journal.gpu, "owned", (error.who,))
    except TunerError as error:
        _LOG.error("a %s that a killed process left set stays so: %s", journal.kind.value, error)
        return RestoreOutcome(journal.control, journal.gpu, "failed", (str(error),))
    if notes is None:
        return RestoreOutcome(journal.control, journal.gpu, "undone")
    return RestoreOutcome(journal.control, journal.gpu, "restored", tuple(notes))


def owner_of(journal: SettingJournal) -> str:
    """Return the owner of a setting, for people; empty if it has none.

    Raises:
        ClockError: that cannot be told, and the journal names nobody who lives.
    """
    try:
        lock = os.open(journal.lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    except OSError:  # another user's, who is in the journal while a clock is set
        return _named(journal)
    try:
        return "" if _locked(lock) else _holder(lock)
    finally:
        os.close(lock)


def _named(journal: SettingJournal) -> str:
    """The process that the journal of another user names, if it lives."""
    entry = journal.read()
    return f"process {pid_of(entry.owner)}" if entry is not None and is_alive(entry.owner) else ""


def _taken(journal: SettingJournal, patience_s: float) -> int:
    """Get the lock of a setting; the descriptor is the ownership."""
    lock = _opened(journal)
    try:
        _await(journal, lock, patience_s)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _await(journal: SettingJournal, lock: int, patience_s: float) -> None:
    """Lock the file as soon as nobody else has."""
    deadline = time.monotonic() + patience_s
    while not _locked(lock):
        if is_alive(_signature(lock)) or time.monotonic() > deadline:
            raise HeldError(journal, _holder(lock))
        time.sleep(_RETRY_S)


def _opened(journal: SettingJournal) -> int:
    """Open the lock of a setting, in a directory whose journal this user may act on."""
    _make(journal.directory)
    try:
        return os.open(journal.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        who = _named(journal)
        if who:
            raise HeldError(journal, who) from error
        raise ClockPermissionError(
            f"{journal.lock} is another user's: run as that user or as root"
        ) from error
    except OSError as error:
        raise ClockError(f"{journal.lock} cannot be opened: {error}") from error


def _make(folder: Path) -> None:
    """Make the directory if it is missing, and refuse one in which others could put what is acted on."""
    try:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise ClockError(f"the clock journal cannot be kept in {folder}: {error}") from error
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ClockError(f"no clock journal is kept in {folder}, where other users may write")


def _is_same_file(path: Path, descriptor: int) -> bool:
    """True where a path leads to the file of a descriptor."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


def _locked(lock: int) -> bool:
    """Lock the file unless somebody else has."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _signature(lock: int) -> str:
    """Identity of who signed the lock file last; empty before it is signed."""
    return os.pread(lock, _SIGNATURE_BYTES, 0).decode(errors="replace")


def _holder(lock: int) -> str:
    """Return the process that holds a lock, for people."""
    signature = _signature(lock)
    pid = pid_of(signature)
    if pid is None:
        return "another process"
    return f"process {pid}" if is_alive(signature) else f"process {pid} or its guardian"
