"""Logs to the journal or to standard error, with job, trial and GPU, at a bounded rate."""

import contextlib
import json
import logging
import math
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal, TextIO

from tuner.system.untrusted.reading import continued, escaped, plain

# --- Limits of the log: how often one thing is told, and how many lines there are in a second.

LINES_PER_S = 10
_FOR_ERRORS = 3  # of them: what is no error leaves so many


class LogRateLimiter:
    """Says whether something may be told again, so that nobody fills the log."""

    def __init__(self, every_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._now = now
        self._told_s = -math.inf
        self._silent = 0

    def times(self) -> int:
        """Count an event, and return the number since the last report; 0 if that was a short while ago."""
        self._silent += 1
        now_s = self._now()
        if now_s - self._told_s < self._every_s:
            return 0
        self._told_s = now_s
        happened, self._silent = self._silent, 0
        return happened


class LineRateLimiter(logging.Filter):
    """At most ten lines a second, whoever brings them about; the first of a later second says how many more.

    Three of them are for errors.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._second = -math.inf
        self._lines = 0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if a line is written."""
        second = math.floor(self._now())
        if second != self._second:
            self._second, self._lines = second, 0
        most = LINES_PER_S if record.levelno >= logging.ERROR else LINES_PER_S - _FOR_ERRORS
        if self._lines >= most:
            self._left_out += 1
            return False
        self._lines += 1
        if self._left_out:
            record.msg = f"{record.getMessage()} (before this, {self._left_out} lines were left out)"
            record.args = ()
            self._left_out = 0
        return True


# --- Where logs go, and their formats.

Format = Literal["auto", "journal", "text", "json"]

JOURNAL = Path("/run/systemd/journal/socket")
_IDENTIFIER = "tunerd"
_FIELDS = ("job", "trial", "gpu")
_LONGEST_BYTES = 48 * 1024  # of a value: with the other fields well below the datagram that the kernel takes
_CUT = b" [cut]"
_LENGTH = struct.Struct("<Q")
# syslog(3)
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG_PRIORITY = 7

_about: ContextVar[Mapping[str, int | str]] = ContextVar("about", default={})  # noqa: B039 - never changed in place


@contextlib.contextmanager
def about(*, job: int | None = None, trial: int | None = None, gpu: str | None = None) -> Iterator[None]:
    """Add job, trial and GPU to every log line of the block and of its tasks; blocks nest."""
    subjects = {"job": job, "trial": trial, "gpu": gpu}
    token = _about.set(
        {**_about.get(), **{key: value for key, value in subjects.items() if value is not None}}
    )
    try:
        yield
    finally:
        _about.reset(token)


def configure(
    form: Format = "auto",
    level: int = logging.INFO,
    *,
    environment: Mapping[str, str] = os.environ,
    stream: TextIO = sys.stderr,
    journal: Path = JOURNAL,
) -> logging.Handler:
    """Send the log of this process to the journal or to standard error, and nowhere else.

    What is too much for one second is left out, and counted (``LineRateLimiter``).

    Args:
        form: ``auto`` is the journal where standard error goes there, and text elsewhere.
        level: least that is told.
        environment: where systemd puts $JOURNAL_STREAM.
        stream: standard error.
        journal: socket of the journal's native protocol.

    Returns:
        The one handler of the root logger.
    """
    if form == "auto":
        form = "journal" if journal.exists() and _is_journal(environment, stream) else "text"
    handler: logging.Handler
    if form == "journal":
        handler = JournalHandler(journal, stream)
    else:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(_note)
    handler.addFilter(LineRateLimiter())
    root = logging.getLogger()
    for old in tuple(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(level)
    return handler


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00Z INFO job 3, trial 14: the message``."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback follows on lines of its own."""
        who = ", ".join(f"{name} {value}" for name, value in _subjects(record).items())
        message = super().format(record)
        return continued(
            f"{_when(record, 'seconds')} {record.levelname} {who + ': ' if who else ''}{message}"
        )


class JsonFormatter(logging.Formatter):
    """One object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The object."""
        line = {
            "time": _when(record, "milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **_subjects(record),
            "message": super().format(record),
        }
        return escaped(json.dumps(line, default=str))


class JournalHandler(logging.Handler):
    """Speaks the journal's native protocol (https://systemd.io/JOURNAL_NATIVE_PROTOCOL).

    It never waits for the journal: what a full one does not take is lost, and the next line says so. A line
    for which there is no journal goes to standard error.
    """

    def __init__(self, path: Path, stream: TextIO) -> None:
        super().__init__()
        self._path = path
        self._stream = stream
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._text = TextFormatter()
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Send a line."""
        try:
            self._send(record)
        except Exception:  # noqa: BLE001 - a log line ends nothing; logging says what to do with its failure
            self.handleError(record)

    def close(self) -> None:
        """Leave the journal."""
        self._socket.close()
        super().close()

    def _send(self, record: logging.LogRecord) -> None:
        fields = _journal_fields(record, plain(logging.Formatter().format(record)))
        if self._lost:
            fields["TUNER_LOST"] = self._lost
        try:
            self._socket.sendto(entry(fields), str(self._path))
        except BlockingIOError:
            self._lost += 1
            return
        except OSError:  # the journal is being restarted, or gone
            self._stream.write(self._text.format(record) + "\n")
            self._stream.flush()
        self._lost = 0


def entry(fields: Mapping[str, int | str | None]) -> bytes:
    """A datagram of the native protocol: values of several lines in binary form, long ones cut."""
    parts = []
    for name, value in fields.items():
        data = str(value).encode(errors="replace")
        if len(data) > _LONGEST_BYTES:
            data = data[: _LONGEST_BYTES - len(_CUT)] + _CUT
        if b"\n" in data:
            parts.append(b"%s\n%s%s\n" % (name.encode(), _LENGTH.pack(len(data)), data))
        else:
            parts.append(b"%s=%s\n" % (name.encode(), data))
    return b"".join(parts)


def _journal_fields(record: logging.LogRecord, message: str) -> dict[str, int | str | None]:
    priority = next((number for least, number in _PRIORITIES if record.levelno >= least), _DEBUG_PRIORITY)
    return {
        "MESSAGE": message,
        "PRIORITY": priority,
        "SYSLOG_IDENTIFIER": _IDENTIFIER,
        "LOGGER": record.name,
        "CODE_FILE": record.pathname,
        "CODE_LINE": record.lineno,
        "CODE_FUNC": record.funcName,
        **{f"TUNER_{name.upper()}": value for name, value in _subjects(record).items()},
    }


def _note(record: logging.LogRecord) -> bool:
    """Write into the record what it is about; ``extra`` of the call goes first."""
    for name, value in _about.get().items():
        if not hasattr(record, name):
            setattr(record, name, value)
    return True


def _subjects(record: logging.LogRecord) -> dict[str, int | str]:
    return {name: value for name in _FIELDS if (value := getattr(record, name, None)) is not None}


def _when(record: logging.LogRecord, precision: str) -> str:
    at = datetime.fromtimestamp(record.created, tz=timezone.utc)
    return at.isoformat(timespec=precision).replace("+00:00", "Z")


def _is_journal(environment: Mapping[str, str], stream: TextIO) -> bool:
    """Return True if systemd connected the stream to the journal, and it was not redirected since."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # no file: a test's, or closed
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
