"""Lines printed by a child process, each stamped on arrival. The child ends with this process.

A thread starts the child and reads it, so that a line's time is that of its coming, not of being asked for.
The kernel is told to end the child when that thread ends, which it does with this process too, even when that
is killed: nothing keeps printing into a pipe that nobody reads.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO

_KEPT = 8192  # lines; more than one recording spans at ten a second
_LONGEST = 65_536  # characters of a line; what never ends one must not eat the memory
_GRACE_S = 1.0  # between asking the child to end and killing it

# Python is started only to ask the kernel for the signal, and then becomes the command: asking between fork
# and exec in this process is not safe beside other threads. Who asks too late finds that the parent is gone.
_SHIM = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    try:
        os.execv(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit(f"{sys.argv[2]}: {error.strerror}")
"""


@dataclass(frozen=True)
class TimedLine:
    """One line without its end, and when it came."""

    time_s: float
    text: str


class ChildLines:
    """The lines of one child process; of a long time without asking, the last 8192.

    Args:
        command: an absolute path and its arguments. What it prints on standard error counts as lines too, so
            that its complaints can be shown.
        now: clock of the stamps, in seconds.
    """

    def __init__(self, command: Sequence[str], now: Callable[[], float]) -> None:
        self._command = list(command)
        self._now = now
        self._changed = threading.Condition()
        self._lines: deque[TimedLine] = deque(maxlen=_KEPT)
        self._count = 0
        self._end: str | None = None
        self._process: subprocess.Popen[str] | None = None
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="tuner-lines", daemon=True)
        self._thread.start()

    @property
    def end(self) -> str | None:
        """How the child ended, with its last line; None while it runs."""
        return self._end

    def since(self, count: int) -> tuple[int, list[TimedLine]]:
        """The lines after the first ``count``, and how many there are now in all."""
        with self._changed:
            fresh = min(self._count - count, len(self._lines))
            return self._count, list(islice(self._lines, len(self._lines) - fresh, None))

    def wait(self, count: int, until_s: float) -> bool:
        """Wait until there are more than ``count`` lines or the child ended; False when it took too long.

        Args:
            count: lines that are known.
            until_s: on the clock of ``time.monotonic``.
        """
        with self._changed:
            left_s = until_s - time.monotonic()
            return self._changed.wait_for(
                lambda: self._count > count or self._end is not None, max(left_s, 0.0)
            )

    def close(self) -> None:
        """End the child and wait until it is gone."""
        with self._changed:
            self._stop = True
            process = self._process
        if process is not None:
            _end(process)
        self._thread.join()

    def _run(self) -> None:
        """The thread: start, read, reap."""
        shim = [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), *self._command]
        try:
            with self._changed:
                if self._stop:
                    return
                self._process = subprocess.Popen(  # noqa: S603 - a path the caller chose, no shell
                    shim,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    encoding="utf-8",
                    errors="replace",
                    start_new_session=True,  # a Ctrl-C of the terminal is for this process to handle
                )
        except OSError as error:
            self._finish(f"cannot be started: {error.strerror}")
            return
        with self._process as process:
            for text in _bounded(process.stdout):
                self._add(text)
        self._finish(_how(process.returncode))

    def _add(self, text: str) -> None:
        line = TimedLine(self._now(), text)
        with self._changed:
            self._lines.append(line)
            self._count += 1
            self._changed.notify_all()

    def _finish(self, how: str) -> None:
        with self._changed:
            said = next((line.text.strip() for line in reversed(self._lines) if line.text.strip()), "")
            self._end = f"{how}, saying: {said}" if said else how
            self._changed.notify_all()


class SharedLines:
    """One child for several readers: started by the first, ended by the last.

    Args:
        start: makes the child.
    """

    def __init__(self, start: Callable[[], ChildLines]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._lines: ChildLines | None = None
        self._users = 0

    def acquire(self) -> ChildLines:
        """The running child; ``release`` it when it is not needed any more."""
        with self._lock:
            if self._lines is None or self._lines.end is not None:
                self._retire()
                self._lines = self._start()
            self._users += 1
            return self._lines

    def release(self) -> None:
        """Let go of the child."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._retire()

    def _retire(self) -> None:
        if self._lines is not None:
            self._lines.close()
            self._lines = None


def _bounded(stream: IO[str] | None) -> Iterator[str]:
    """The lines of a stream without their ends, one that is too long in pieces."""
    while stream is not None and (text := stream.readline(_LONGEST)):
        yield text.rstrip("\r\n")


def _end(process: "subprocess.Popen[str]") -> None:
    """End a child and what it may have started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(
            ProcessLookupError, PermissionError
        ):  # PermissionError: only zombies are left
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
            return


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"
