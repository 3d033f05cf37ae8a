"""Marks: a traced program names its phases, by lines in a pipe.

``tuner power trace`` names the pipe in the environment variable ``TUNER_MARKS``. A mark is set from a shell
by ``echo phase > $TUNER_MARKS``, from Python by ``tuner.mark("phase")``. Programs that know nothing of the
pipe are not touched by it.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

VARIABLE = "TUNER_MARKS"
"""Environment variable that names the pipe."""

LABEL_CHARACTERS = 120
"""Longer labels are cut: they are meant for a picture."""

MOST_MARKS = 10_000
"""Later marks are counted and not kept: a program that marks each iteration must not eat the memory."""

_CHUNK_BYTES = 65_536  # what a pipe holds
_ROOM_BYTES = 1 << 20  # for marks that nobody reads, should the tracer be killed: then a write would wait
_CHUNKS = 8  # taken at once: a program that writes without end must not keep the tracer from its sensors


def mark(label: str) -> None:
    """Say that a phase begins, if this process is being traced; never blocks and never raises.

    Args:
        label: name of the phase; one line.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return
    line = _tidy(label) + "\n"
    with contextlib.suppress(OSError):  # nobody reads, or the pipe is full: a lost mark is better than a stop
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(pipe, line.encode(errors="replace"))
        finally:
            os.close(pipe)


class phase:  # noqa: N801 - called like a function
    """Say that a phase begins, as ``mark`` does, and, as a context, that it has ended.

    ``with tuner.phase("step"):`` around each step lets ``tuner program run --phase step`` choose clock and
    power limit while the program runs. A call alone ends where the next begins. It never blocks and never
    raises, and takes some two microseconds where nobody listens.

    Args:
        name: of the phase; one line.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name
        mark(name)

    def __enter__(self) -> None:
        """Nothing more: it has begun."""

    def __exit__(self, *_: object) -> None:
        mark(ended(self._name))


def ended(name: str) -> str:
    """The label that says that a phase has ended."""
    return f"after {name}"


class MarkPipe(AbstractContextManager["MarkPipe"]):
    """The reading end of the marks, a named pipe in a directory of its own that goes with it.

    It is opened for writing too, so that a program may open and close it as often as it likes. Whoever passes
    ``fileno()`` on to the command keeps the pipe open in there as well, so that a command that outlives its
    tracer does not wait for a reader.

    Raises:
        OSError: no pipe can be made in the directory for temporary files.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._rest = b""
        self._directory = Path(tempfile.mkdtemp(prefix="tuner-marks-"))
        self.path = self._directory / "marks"
        try:
            os.mkfifo(self.path, 0o600)
            self._pipe = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            with contextlib.suppress(OSError):  # a limit of this user's; the usual room does
                fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, _ROOM_BYTES)
        except OSError:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        self.marks: list[tuple[float, str]] = []
        self.dropped = 0

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._pipe

    def read(self) -> None:
        """Take what was written since the last call; a line's time is now."""
        time_s = self._now()
        for _ in range(_CHUNKS):
            chunk = self._take()
            if not chunk:
                return
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._rest = self._rest[-_CHUNK_BYTES:]
            for line in lines:
                self._add(time_s, line)

    def take(self) -> list[tuple[float, str]]:
        """The marks that were read since the last call, which are kept no longer."""
        taken, self.marks = self.marks, []
        return taken

    def end(self) -> None:
        """Take the last line too, although nothing ends it."""
        self.read()
        self._add(self._now(), self._rest)
        self._rest = b""

    def close(self) -> None:
        """Remove the pipe."""
        os.close(self._pipe)
        shutil.rmtree(self._directory, ignore_errors=True)

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self) -> bytes:
        try:
            return os.read(self._pipe, _CHUNK_BYTES)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            return b""

    def _add(self, time_s: float, line: bytes) -> None:
        label = _tidy(line.decode(errors="replace"))
        if not label:
            return
        if len(self.marks) < MOST_MARKS:
            self.marks.append((time_s, label))
        else:
            self.dropped += 1


def _tidy(label: str) -> str:
    """A label without anything that a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in label).strip()[:LABEL_CHARACTERS]
