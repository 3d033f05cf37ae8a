"""Limits of the log: how often one thing is told, and how many lines there are in a second."""

import logging
import math
import time
from collections.abc import Callable

LINES_PER_S = 10
_FOR_ERRORS = 3  # of them: what is no error leaves so many


class LogRateLimiter:
    """Says whether something may be told again, so that nobody fills the log.

    Args:
        every_s: at most once in so many seconds.
        now: monotonic clock in seconds.
    """

    def __init__(self, every_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._now = now
        self._told_s = -math.inf
        self._silent = 0

    def times(self) -> int:
        """How often it happened since it was told; 0 where it was told a short while ago."""
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

    Args:
        now: monotonic clock in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._second = -math.inf
        self._lines = 0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
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
