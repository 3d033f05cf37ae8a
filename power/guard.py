"""Makes sure that a changed clock is restored, whatever becomes of the process that changed it.

The journal entry is on disk before the change and removed after the restore. The owner holds a file lock, and
so does its guardian, a small process at the other end of a pipe: when the owner is gone, however it went, the
pipe ends, and the guardian restores what the journal announces. As both share one lock, a next owner gets it
only when the guardian has finished. Should guardian and owner be killed together, the entry outlives them,
and ``restore_stale`` acts on it at the next start. After a reboot there is nothing to restore.
"""

import fcntl
import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tuner.errors import ClockError, TunerError
from tuner.owner import is_alive, pid_of, this_process

from .journal import Entry, Place

_LOG = logging.getLogger(__name__)
_HANDOVER_S = 10.0  # a guardian that restores after its owner's death has let go by then
_RETRY_S = 0.05
_PATIENCE_S = 10.0  # a guardian that takes longer hangs in the driver

# Guardians left at work when their owner had waited long enough.
_left: list[subprocess.Popen[bytes]] = []

Restore = Callable[[Entry], None]
"""Undoes what an entry announces; raises a TunerError if it cannot."""


class ClockGuard:
    """Ownership of one GPU's clocks, its journal and its guardian.

    Args:
        place: where journal and lock are; the directory is made if missing.
        restore: undoes what a dead owner left.
        options: options of ``tuner.power.guardian``, e.g. which library to load.
    """

    def __init__(self, place: Place, restore: Restore, options: Sequence[str] = ()) -> None:
        self._place = place
        self._restore = restore
        self._options = tuple(options)
        self._lock: int | None = None
        self._guardian: subprocess.Popen[bytes] | None = None

    @property
    def guardian_pid(self) -> int | None:
        """Process id of the guardian, None while there is none."""
        return self._guardian.pid if self._guardian else None

    def prepare(self, mhz: int) -> None:
        """Own the clocks, have a guardian, and put the entry on disk; to be called before each change.

        Raises:
            ClockError: another process owns the clocks (it is named), the runtime directory cannot be
                written, a stale change cannot be restored, or the guardian does not start.
        """
        if self._lock is None:
            self._lock = _take(self._place)
            if restored(self._place, self._restore):
                _LOG.warning("reset the clocks of %s, which a killed process had left set", self._place.gpu)
        if self._guardian is None or self._guardian.poll() is not None:
            self._dismiss()
            self._hire(self._lock)
        self._place.write(mhz)

    def clear(self) -> None:
        """Remove the journal entry; to be called when the change is undone."""
        self._place.clear()

    def close(self) -> None:
        """Let the guardian go, which restores if an entry is left, and give up ownership."""
        self._dismiss()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _hire(self, lock: int) -> None:
        """Start a guardian and wait until it says that it could restore."""
        place = self._place
        command = [sys.executable, "-m", "tuner.power.guardian", place.control, place.gpu]
        command += [str(place.directory.absolute()), *self._options]
        try:
            guardian = self._guardian = subprocess.Popen(  # noqa: S603 - this interpreter and this package, no shell
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=(lock,),
                start_new_session=True,  # a Ctrl-C of the terminal goes to the owner alone
                cwd="/",
            )
        except OSError as error:
            raise ClockError(f"the guardian of the clocks cannot be started: {error}") from error
        try:
            ready = _says(guardian)
        except TimeoutError as error:
            guardian.kill()  # nothing is changed yet that it could restore
            self._dismiss()
            raise ClockError(
                f"the guardian of the clocks did not reach {place.gpu} within {_PATIENCE_S:g} s; no clock "
                "was changed: see whether nvidia-smi answers, or use --clocks off"
            ) from error
        if not ready:
            self._dismiss()
            raise ClockError(
                f"the guardian of the clocks ended with {guardian.returncode}; no clock was changed"
            )

    def _dismiss(self) -> None:
        """Close the pipes and wait for the guardian's end, but not for ever.

        One that hangs is left at work: should the driver answer again, it still restores.
        """
        guardian, self._guardian = self._guardian, None
        if guardian is None:
            return
        for pipe in (guardian.stdin, guardian.stdout):
            if pipe is not None:
                pipe.close()
        try:
            guardian.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            _left.append(guardian)  # Popen warns of one that is dropped while it runs
            _LOG.error(
                "the guardian of the clocks of %s, process %d, has not ended within %g s; what it could not "
                "restore stays in %s and is restored when the program starts next",
                self._place.gpu,
                guardian.pid,
                _PATIENCE_S,
                self._place.journal,
            )


def restore_stale(directory: Path, control: str, restore: Restore) -> list[str]:
    """Restore every GPU of a control whose journal entry has no living owner or guardian.

    Goes on past errors: an entry that cannot be restored is logged and kept.

    Returns:
        The GPUs that were restored.
    """
    done = []
    for path in sorted(directory.glob(f"{control}-*.json")):
        place = Place(directory, control, path.stem.removeprefix(f"{control}-"))
        try:
            lock = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if _locked(lock) and restored(place, restore):
                    done.append(place.gpu)
            finally:
                os.close(lock)
        except (TunerError, OSError) as error:
            _LOG.error("a clock that a killed process left set stays so: %s", error)
    return done


def restored(place: Place, restore: Restore) -> bool:
    """Undo what the entry of a place announces and remove it; True if there was something to undo."""
    entry = place.read()
    if entry is not None:
        restore(entry)
    place.clear()
    return entry is not None


def _take(place: Place) -> int:
    """Get the lock of a place and sign it; the descriptor is the ownership."""
    deadline = time.monotonic() + _HANDOVER_S
    try:
        place.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ClockError(f"the clock journal cannot be kept in {place.directory}: {error}") from error
    while not _locked(lock):
        holder = _signature(lock)
        # After an owner's death its guardian needs a moment; a living owner is not waited for.
        if not holder or is_alive(holder) or time.monotonic() > deadline:
            os.close(lock)
            who = f"process {pid_of(holder)}" if holder else "another process"
            if holder and not is_alive(holder):
                who = f"the guardian of {who}, which has ended"
            raise ClockError(f"the clocks of {place.gpu} are held by {who}: wait for it or end it")
        time.sleep(_RETRY_S)
    os.ftruncate(lock, 0)
    os.pwrite(lock, this_process().encode(), 0)
    return lock


def _locked(lock: int) -> bool:
    """Lock the file unless somebody else has."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _signature(lock: int) -> str:
    """Identity of who signed the lock file last; empty before it is signed."""
    return os.pread(lock, 4096, 0).decode(errors="replace")


def _says(guardian: subprocess.Popen[bytes]) -> bytes:
    """The byte a guardian says when it could restore; empty if it ended instead."""
    if guardian.stdout is None:
        return b""
    waiting = select.poll()  # unlike select it takes any file descriptor
    waiting.register(guardian.stdout, select.POLLIN)
    if not waiting.poll(_PATIENCE_S * 1000.0):
        raise TimeoutError
    return guardian.stdout.read(1)
