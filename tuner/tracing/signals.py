"""Signals as a descriptor to wait for, beside pipes and times."""

import math
import os
import select
import signal
import socket
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


_ROOM_BYTES = 4096  # signals that can arrive between two looks

TO_PASS_ON = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
"""Signals that a program which runs another passes on to it."""

TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a program to end."""

FROM_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""Of these, what a terminal sends to every process in its foreground (Ctrl-C and Ctrl-backslash)."""


class SignalPipe:
    """Collects signals while it is open, instead of what they would do; ignored ones stay ignored.

    A program started meanwhile has the default handlers. To be used in the main thread.

    Args:
        numbers: the signals.
    """

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._numbers = tuple(numbers)

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._mouth.fileno()

    def take(self) -> list[signal.Signals]:
        """Signals that came since the last call, in order."""
        try:
            came = self._mouth.recv(_ROOM_BYTES)
        except BlockingIOError:
            return []
        return [signal.Signals(number) for number in came if number in self._numbers]

    def quiet_for(self, duration_s: float) -> bool:
        """Wait for so long; False, and sooner, when a signal came."""
        waiting = select.poll()
        waiting.register(self.fileno(), select.POLLIN)
        waiting.poll(math.ceil(duration_s * 1e3))
        return not self.take()

    def __enter__(self) -> "Self":
        self._mouth, self._ear = socket.socketpair()
        self._mouth.setblocking(False)
        self._ear.setblocking(False)
        self._old_ear = signal.set_wakeup_fd(self._ear.fileno(), warn_on_full_buffer=False)
        found = {number: signal.getsignal(number) for number in self._numbers}
        self._handlers = {number: old for number, old in found.items() if _is_replaced(number, old)}
        for number in self._handlers:
            signal.signal(number, _heard)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_ear)
        self._mouth.close()
        self._ear.close()


def _is_replaced(number: signal.Signals, handler: object) -> bool:
    """False for an ignored signal; who ignores SIGCHLD would never learn how its own children ended."""
    return handler is not None and (handler is not signal.SIG_IGN or number == signal.SIGCHLD)


def _heard(number: int, frame: FrameType | None) -> None:
    """Do nothing: the interpreter has written the number into the pipe."""


def in_foreground() -> bool:
    """True when this process is in the foreground of its terminal, whose Ctrl-C then goes to its children."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # no terminal
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
