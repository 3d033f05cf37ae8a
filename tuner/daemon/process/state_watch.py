"""Watches over the state directory while the daemon runs: it may be removed, replaced or become read-only."""

import logging

from tuner.daemon.state import State
from tuner.system.ownership import StateLock

_SURE = 3  # looks in a row at another directory, before the daemon begins anew with it
_SUBJECT = "state directory"
_LOG = logging.getLogger(__name__)


class StateWatch:
    """Halts all jobs while the state directory is not what it was; answers are served from memory.

    Args:
        lock: of the directory; None to watch over nothing.
        state: of the daemon, which is told.
    """

    def __init__(self, lock: StateLock | None, state: State) -> None:
        self._lock = lock
        self._state = state
        self._others = 0

    def look(self) -> bool:
        """Look now; True where something has changed."""
        if self._lock is None:
            return False
        trouble = self._lock.trouble()
        self._others = self._others + 1 if self._lock.replaced or self.hidden else 0
        if trouble == self._state.halted:
            return False
        if trouble:
            _LOG.error("%s; jobs wait, and answers are served from memory", trouble)
            self._state.troubles[_SUBJECT] = [f"{trouble}; jobs wait, and answers are served from memory"]
        else:
            _LOG.warning("%s can be used again", self._lock.directory)
            self._state.troubles.pop(_SUBJECT, None)
        self._state.halted = trouble
        return True

    @property
    def another(self) -> bool:
        """True where another directory has taken the place of the one that is gone, and stays."""
        return self._others >= _SURE

    @property
    def hidden(self) -> bool:
        """True where only a new process could use the directory that is there now."""
        return self._lock is not None and self._lock.hidden
