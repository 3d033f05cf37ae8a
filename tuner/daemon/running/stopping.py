"""SIGTERM in a job's process: an order to stop that is heeded once, and not in the middle of storing."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType


class Stopping:
    """Whether the process is to stop; the order is raised as ``KeyboardInterrupt``, like Ctrl-C.

    One that is swallowed on its way, as in a destructor, is raised again by the next ``check``.

    Attributes:
        asked: True from the first SIGTERM on.
        at_once: called when it comes, wherever the program is; must neither wait nor raise.
    """

    def __init__(self) -> None:
        self.asked = False
        self.at_once: Callable[[], None] = lambda: None
        self._deaf = 1  # until ``listen``

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """From here on SIGTERM is noted; what a terminal sends is not: the daemon decides on that."""
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        before = {number: signal.getsignal(number) for number in numbers}
        signal.signal(signal.SIGTERM, self._stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # whatever the daemon does
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def listen(self) -> None:
        """From here on an order to stop is raised where the program is; one that has come is raised now.

        Raises:
            KeyboardInterrupt: it has.
        """
        self._deaf -= 1
        self.check()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """An order that comes meanwhile is heeded at the end of the block."""
        asked_before = self.asked
        self._deaf += 1
        try:
            yield
        finally:
            self._deaf -= 1
        if self.asked and not asked_before:
            self._raise()

    def done(self) -> None:
        """From here on an order changes nothing: there is nothing left to stop."""
        self._deaf += 1

    def check(self) -> None:
        """Stop here if that was asked for.

        Raises:
            KeyboardInterrupt: it was.
        """
        if self.asked:
            self._raise()

    def sleep(self, seconds: float) -> None:
        """Wait; an order to stop ends that."""
        self.check()
        time.sleep(seconds)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        first, self.asked = not self.asked, True
        if first:
            self.at_once()
            self._raise()

    def _raise(self) -> None:
        if not self._deaf:
            raise KeyboardInterrupt("told to stop")
