"""Files of a database read beside SQLite, without taking its locks away.

When a process closes a file, POSIX releases all locks that the process has on it, those of SQLite too. A file
that was read here is closed when no connection of this process has it open any more.
"""

import os
import sqlite3
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

Place = tuple[int, int]  # device and inode
_lock = threading.Lock()
_connections: Counter[Place] = Counter()
_left_open: dict[Place, list[int]] = {}


class Connection(sqlite3.Connection):
    """A connection that is known to have its file open."""

    def __init__(self, name: str, *args: Any, **options: Any) -> None:  # noqa: ANN401 - SQLite's
        self._place = _place(name)
        if self._place is not None:
            with _lock:
                _connections[self._place] += 1
        try:
            super().__init__(name, *args, **options)
        except BaseException:
            self._leave()
            raise

    def close(self) -> None:
        """Close it; safe to call twice."""
        super().close()
        self._leave()

    def _leave(self) -> None:
        place, self._place = self._place, None
        if place is None:
            return
        with _lock:
            _connections[place] -= 1
            if _connections[place] <= 0:
                del _connections[place]
                for file in _left_open.pop(place, []):
                    os.close(file)


class RawFile:
    """A file of a database, open to read its bytes."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY)
        there = os.fstat(self._file)
        self.size = there.st_size
        self._place = (there.st_dev, there.st_ino)

    def read(self, place: int, size: int) -> bytes:
        """Some bytes; fewer where the file ends or cannot be read."""
        try:
            return os.pread(self._file, size, place)
        except OSError:  # a sector that cannot be read
            return b""

    def close(self) -> None:
        """Close it, now or with the last connection to the same file."""
        with _lock:
            if _connections[self._place]:
                _left_open.setdefault(self._place, []).append(self._file)
            else:
                del _connections[self._place]
                os.close(self._file)


def _place(name: str) -> Place | None:
    """Which file a URI names; None for one that is not there yet."""
    try:
        there = Path(unquote(name.removeprefix("file:").partition("?")[0])).stat()
    except OSError:
        return None
    return there.st_dev, there.st_ino
