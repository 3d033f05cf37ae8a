"""The sole right to change one GPU's clocks, with the journal of what is changed.

The right is a lock on a file. Whoever gets it first undoes what a dead owner announced and did not undo.
"""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tuner.errors import ClockError, ClockPermissionError, TunerError
from tuner.owner import is_alive, pid_of, this_process

from .journal import Entry, Place, is_undone, places

_LOG = logging.getLogger(__name__)
_HANDOVER_S = 10.0  # a guardian that restores after its owner's death has let go by then
_RETRY_S = 0.05
_SIGNATURE_BYTES = 4096  # far longer than any identity

Undo = Callable[[Entry], list[str]]
"""Undoes what an entry announces and tells what was left alone; raises a TunerError if it cannot."""


class Ownership:
    """Ownership of one GPU's clocks and its journal.

    Args:
        place: where journal and lock are; the directory is made if missing.
        undo: undoes what a dead owner left.
    """

    def __init__(self, place: Place, undo: Undo) -> None:
        self._place = place
        self._undo = undo
        self._lock: int | None = None

    @property
    def lock(self) -> int | None:
        """Descriptor that is the ownership, for a guardian to share; None while there is none."""
        return self._lock

    def take(self, *, settle: bool = True) -> None:
        """Own the clocks, and undo what a dead owner left; again is harmless.

        Args:
            settle: False for somebody who resets whatever was left.

        Raises:
            ClockError: another process owns the clocks (it is named), the directory cannot be written, or a
                stale change cannot be undone.
        """
        if self._lock is not None:
            return
        self._lock = _taken(self._place)
        try:
            if settle and restored(self._place, self._undo) is not None:
                gpu = self._place.gpu
                _LOG.warning("restored the clocks of %s, which a killed process had left set", gpu)
        except BaseException:
            self.give_up()
            raise

    def announce(self, old: Mapping[str, Any], new_mhz: int) -> None:
        """Put the entry on disk; to be called before each change, with what is there now.

        Raises:
            ClockError: it cannot be written, or the clocks are not owned.
        """
        if self._lock is None:
            raise ClockError(f"the clocks of {self._place.gpu} are not owned by this process")
        self._place.write(old, new_mhz)

    def clear(self) -> None:
        """Remove the entry; to be called when the change is undone."""
        self._place.clear()

    def give_up(self, *, shared: bool = False) -> None:
        """Let the next owner have the clocks.

        Args:
            shared: a guardian that is left at work keeps the lock; the signature stays to say whose it is.
        """
        lock, self._lock = self._lock, None
        if lock is not None:
            if not shared:
                os.ftruncate(lock, 0)  # this process may live on, and owns them no more
            os.close(lock)


def restored(place: Place, undo: Undo) -> list[str] | None:
    """Undo what the entry of a place announces and remove it; to be called by the owner.

    Returns:
        What was left alone, for people; None where there was nothing to undo.

    Raises:
        TunerError: the entry is unreadable or could not be undone; it stays.
    """
    entry = place.read()
    pending = entry is not None and not is_undone(entry)
    left = undo(entry) if entry is not None and pending else []
    for what in left:
        _LOG.warning("%s: %s", place.gpu, what)
    place.clear()
    return left if pending else None


@dataclass(frozen=True)
class Outcome:
    """What became of one GPU that the journal names.

    Attributes:
        control: its clock control.
        gpu: what that knows it by.
        state: ``restored``; ``undone`` by a reboot, or nothing had been set; ``owned`` by a living process;
            ``failed`` and still in the journal.
        details: for people: who owns it, what was left alone, or why it failed.
    """

    control: str
    gpu: str
    state: Literal["restored", "undone", "owned", "failed"]
    details: tuple[str, ...] = ()


def restore_stale(directory: Path, undo: Undo) -> list[Outcome]:
    """Restore every GPU whose journal entry has no living owner or guardian; goes on past errors."""
    return [_settled(place, undo) for place in places(directory)]


def _settled(place: Place, undo: Undo) -> Outcome:
    try:
        lock = _opened(place)
        try:
            if not _locked(lock):
                return Outcome(place.control, place.gpu, "owned", (_holder(lock),))
            left = restored(place, undo)
        finally:
            os.close(lock)
    except TunerError as error:
        _LOG.error("a clock that a killed process left set stays so: %s", error)
        return Outcome(place.control, place.gpu, "failed", (str(error),))
    if left is None:
        return Outcome(place.control, place.gpu, "undone")
    return Outcome(place.control, place.gpu, "restored", tuple(left))


def owner_of(place: Place) -> str:
    """Who owns a GPU's clocks, for people; empty where nobody does.

    Raises:
        ClockPermissionError: this user may not see that.
    """
    if not place.lock.exists():
        return ""
    lock = _opened(place)
    try:
        return "" if _locked(lock) else _holder(lock)
    finally:
        os.close(lock)


def _taken(place: Place) -> int:
    """Get the lock of a place and sign it; the descriptor is the ownership."""
    deadline = time.monotonic() + _HANDOVER_S
    try:
        place.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ClockError(f"the clock journal cannot be kept in {place.directory}: {error}") from error
    lock = _opened(place)
    while not _locked(lock):
        # After an owner's death its guardian needs a moment, and who only looks whether there is an owner
        # holds the lock for an instant, unsigned; a living owner is not waited for.
        if is_alive(_signature(lock)) or time.monotonic() > deadline:
            who = _holder(lock)
            os.close(lock)
            raise ClockError(f"the clocks of {place.gpu} are held by {who}: wait for it or end it")
        time.sleep(_RETRY_S)
    os.ftruncate(lock, 0)
    os.pwrite(lock, this_process().encode(), 0)
    return lock


def _opened(place: Place) -> int:
    try:
        return os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        raise ClockPermissionError(f"{place.lock} is another user's: run as that user or as root") from error
    except OSError as error:
        raise ClockError(f"the clock journal cannot be kept in {place.directory}: {error}") from error


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
    """Who holds a lock, for people."""
    signature = _signature(lock)
    pid = pid_of(signature)
    if pid is None:
        return "another process"
    return f"process {pid}" if is_alive(signature) else f"the guardian of process {pid}, which has ended"
