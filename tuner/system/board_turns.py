"""Turns of processes that measure on GPUs of one host, where load on one disturbs the joules of another.

Two locks of files. Who wants a turn holds the first, ``next``, while it waits for the second, ``board``: so
a process that has just ended its turn does not take the next one before those that wait. The kernel
releases both when a process dies.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tuner.model.errors import StoreError
from tuner.system.lock_files import open_lock, try_lock
from tuner.system.user_folders import make_folder

_POLL_S = 0.02


class BoardTurns:
    """Turns on the GPUs of this host. A context manager.

    Args:
        folder: of the files, which all that take turns have in common; that of the database.
        wait: waits some seconds; may raise to end the waiting.

    Raises:
        StoreError: the files cannot be opened or locked.
    """

    def __init__(self, folder: Path, wait: Callable[[float], None] = time.sleep) -> None:
        self._wait = wait
        self._stack = contextlib.ExitStack()
        self._paths = (folder / "board-next.lock", folder / "board.lock")
        try:
            make_folder(folder)
            self._next, self._board = (self._open(path) for path in self._paths)
        except OSError as error:
            self._stack.close()
            raise StoreError(f"{folder}: GPUs cannot take turns: {error.strerror}") from error

    def __enter__(self) -> "BoardTurns":  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def turn(self, *, alone: bool) -> Iterator[None]:
        """A turn for the block.

        Args:
            alone: nothing may run on another GPU meanwhile; else others that need not be alone may.
        """
        self._lock(self._next, self._paths[0], fcntl.LOCK_EX)
        try:
            self._lock(self._board, self._paths[1], fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._board, fcntl.LOCK_UN)

    def _open(self, path: Path) -> int:
        file = open_lock(path)
        self._stack.callback(os.close, file)
        return file

    def _lock(self, file: int, path: Path, how: int) -> None:
        while not try_lock(file, path, how):
            self._wait(_POLL_S)
