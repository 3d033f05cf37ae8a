"""Time that is proven: by how long the machine has run, and not by the word of its wall clock alone."""

import contextlib
import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

from tuner.system.whole_file import replace_file

CATCHING_UP = 4.0
"""Seconds that are proven at most by one second of running: a machine that runs six hours a day keeps up."""


class ProvenTime:
    """A time that is never later than the wall clock says, and never runs much faster than the machine.

    What is deleted after some days is deleted by this time. A wall clock that is 200 days ahead must be so
    for 50 days of running before 200 days have passed here. After a long time off, what is old is deleted
    later than it might be. It is kept in a file; without one it begins at the newest time that is stored.

    Args:
        path: of the file.
        wall: the wall clock, with its zone.
        running: seconds, also while the machine sleeps.
    """

    def __init__(
        self,
        path: Path,
        wall: Callable[[], datetime],
        running: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._path = path
        self._wall = wall
        self._running = running
        self._looked_s = running()
        self._proven: datetime | None = None

    def advance(self, newest: str) -> datetime:
        """The time that is proven now.

        Args:
            newest: the newest time that was stored, ISO 8601; empty where nothing is.
        """
        now, running_s = self._wall().astimezone(timezone.utc), self._running()
        proven = min(now, self._proven or self._kept() or _read(newest) or now)
        ran_s = max(0.0, running_s - self._looked_s)
        self._looked_s = running_s
        self._proven = min(now, proven + timedelta(seconds=CATCHING_UP * ran_s))
        with contextlib.suppress(OSError):  # a later start proves a little less
            replace_file(self._path, json.dumps({"utc": self._proven.isoformat()}))
        return self._proven

    def _kept(self) -> datetime | None:
        try:
            document = json.loads(self._path.read_text())
        except (OSError, ValueError, RecursionError):
            return None
        return _read(document.get("utc")) if isinstance(document, dict) else None


def _read(text: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(str(text))
        return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, OverflowError):  # the first or last day of all, in another zone
        return None
