"""Makes sure that a changed clock is restored, whatever becomes of the process that changed it.

The journal entry is on disk before the change and removed after the restore. The owner holds a file lock, and
so does its guardian, a small process at the other end of a pipe: when the owner is gone, however it went, the
pipe ends, and the guardian restores what the journal announces. As both share one lock, a next owner gets it
only when the guardian has finished. Should guardian and owner be killed together, the entry outlives them,
and ``restore_stale`` acts on it at the next start. After a reboot there is nothing to restore.
"""

import logging
import select
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.errors import ClockError

from .journal import Place
from .ownership import Ownership, Undo

_LOG = logging.getLogger(__name__)
_PATIENCE_S = 10.0  # a guardian that takes longer hangs in the driver

# Guardians left at work when their owner had waited long enough.
_left: list[subprocess.Popen[bytes]] = []


class ClockGuard:
    """Ownership of one GPU's clocks, its journal and its guardian.

    Args:
        place: where journal and lock are; the directory is made if missing.
        undo: undoes what a dead owner left.
        options: options of ``tuner.power.guardian``, e.g. which library to load.
    """

    def __init__(self, place: Place, undo: Undo, options: Sequence[str] = ()) -> None:
        self._place = place
        self._ownership = Ownership(place, undo)
        self._options = tuple(options)
        self._guardian: subprocess.Popen[bytes] | None = None

    @property
    def guardian_pid(self) -> int | None:
        """Process id of the guardian, None while there is none."""
        return self._guardian.pid if self._guardian else None

    def prepare(self, before: Callable[[], Mapping[str, Any]], new_mhz: int) -> Mapping[str, Any]:
        """Own the clocks, have a guardian, and put the entry on disk; to be called before each change.

        Args:
            before: reads what is there; called when what a dead owner left is undone.
            new_mhz: the clock that is about to be set.

        Returns:
            What ``before`` said.

        Raises:
            ClockError: another process owns the clocks (it is named), the runtime directory cannot be
                written, a stale change cannot be restored, or the guardian does not start.
        """
        self._ownership.take()
        if self._guardian is None or self._guardian.poll() is not None:
            self._dismiss()
            self._hire()
        old = before()
        self._ownership.announce(old, new_mhz)
        return old

    def clear(self) -> None:
        """Remove the journal entry; to be called when the change is undone."""
        self._ownership.clear()

    def close(self) -> None:
        """Let the guardian go, which restores if an entry is left, and give up ownership."""
        self._ownership.give_up(shared=not self._dismiss())

    def _hire(self) -> None:
        """Start a guardian and wait until it says that it could restore."""
        place, lock = self._place, self._ownership.lock
        command = [sys.executable, "-m", "tuner.power.guardian", place.control, place.gpu]
        command += [str(place.directory.absolute()), *self._options]
        try:
            guardian = self._guardian = subprocess.Popen(  # noqa: S603 - this interpreter and this package, no shell
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=() if lock is None else (lock,),
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

    def _dismiss(self) -> bool:
        """Close the pipes and wait for the guardian's end, but not for ever; True if there is none now.

        One that hangs is left at work: should the driver answer again, it still restores.
        """
        guardian, self._guardian = self._guardian, None
        if guardian is None:
            return True
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
            return False
        return True


def _says(guardian: subprocess.Popen[bytes]) -> bytes:
    """The byte a guardian says when it could restore; empty if it ended instead."""
    if guardian.stdout is None:
        return b""
    waiting = select.poll()  # unlike select it takes any file descriptor
    waiting.register(guardian.stdout, select.POLLIN)
    if not waiting.poll(_PATIENCE_S * 1000.0):
        raise TimeoutError
    return guardian.stdout.read(1)
