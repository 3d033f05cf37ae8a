"""Requests to stop: signals while a program starts, measures and stores, raised as exceptions."""

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio  # 30 ms, which `tuner --help` need not wait for

# --- Signals that end a command, raised as an exception that is not lost.

_LATER_S = 0.01  # until a lost one comes again: the callback that lost it has returned
_TRIES = 100  # others may have replaced the handler for a while
_raised: list[int] = []  # numbers of all that were raised in this process


class SignalInterrupt(KeyboardInterrupt):
    """A signal asks the command to end; whoever handles Ctrl-C handles it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = signal.Signals(number)

    def __str__(self) -> str:
        return f"stopped by {self.number.name}"


@contextlib.contextmanager
def raised_as_interrupts(numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """In the block, signals are raised as ``SignalInterrupt``. One that is ignored stays ignored.

    Python cannot raise out of a destructor, nor out of the callback of a weak reference: it prints the
    exception and goes on. A signal that is lost so is sent again. Libraries that make an error of their own
    of it ask ``raise_again``. To be used in the main thread.
    """
    handlers_before = {number: signal.getsignal(number) for number in numbers}
    handlers = {number: before for number, before in handlers_before.items() if before is not signal.SIG_IGN}
    hook_before = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        lost = unraisable.exc_value
        if isinstance(lost, SignalInterrupt):
            # by the lowest means: it may have interrupted whatever the threading module does
            _thread.start_new_thread(_send_again, (lost.number,))
        else:
            hook_before(unraisable)

    sys.unraisablehook = hook
    for number in handlers:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, before in handlers.items():
            if signal.getsignal(number) is _raise:  # else it was decided that nothing more is heeded
                signal.signal(number, before)
        sys.unraisablehook = hook_before


def count() -> int:
    """Return the number of signals raised so far, for ``raise_again``."""
    return len(_raised)


def raise_again(since: int) -> None:
    """Raise what was raised since a count: its exception has become an error of a library, as of SQLite.

    Signals are raised in the main thread; in others nothing is.

    Raises:
        SignalInterrupt: a signal was.
    """
    if len(_raised) > since and threading.current_thread() is threading.main_thread():
        raise SignalInterrupt(_raised[-1])


def _raise(number: int, frame: FrameType | None) -> None:
    del frame
    _raised.append(number)
    raise SignalInterrupt(number)


def _send_again(number: int) -> None:
    for _ in range(_TRIES):
        time.sleep(_LATER_S)
        if signal.getsignal(number) is _raise:
            signal.pthread_kill(threading.main_thread().ident or 0, number)
            return


# --- Signals of the daemon: while it starts, and from the end of its event loop on.

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_ALL = (*STOP_SIGNALS, signal.SIGHUP)


class StartupSignals:
    """Signals that came before the event loop listened.

    Attributes:
        reload: SIGHUP came.
    """

    reload = False
    _end = False

    def check(self) -> None:
        """End the start here if that was asked for: its exception may have been lost in a destructor.

        Raises:
            SystemExit: with 0, where it was.
        """
        if self._end:
            raise SystemExit(0)

    def end(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM and SIGINT."""
        del number, frame
        self._end = True
        raise SystemExit(0)


@contextlib.contextmanager
def startup_signals() -> Iterator[StartupSignals]:
    """Until the event loop listens: SIGTERM and SIGINT end the start in order, SIGHUP is remembered.

    Raises:
        SystemExit: with 0, where the start is ended.
    """
    received = StartupSignals()

    def remember(number: int, frame: FrameType | None) -> None:
        del number, frame
        received.reload = True

    before = {number: signal.getsignal(number) for number in _ALL}
    for number in STOP_SIGNALS:
        signal.signal(number, received.end)
    signal.signal(signal.SIGHUP, remember)
    try:
        yield received
    except BaseException:  # the process may live on; after an orderly end, ``ignore_signals`` stays in force
        for number, handler in before.items():
            signal.signal(number, handler)
        raise


def ignore_signals(loop: "asyncio.AbstractEventLoop") -> None:
    """From here on signals change nothing: the process ends in order.

    The loop's own removal of a handler puts the default in its place for a moment, in which SIGTERM kills.
    """
    for number in _ALL:
        signal.signal(number, signal.SIG_IGN)
    vars(loop).get("_signal_handlers", {}).clear()  # so that closing the loop does not bring the default back
    signal.set_wakeup_fd(-1)  # the loop closes its own, whose number another file may get


# --- Signals of a job's process: a request to stop, raised where that does no harm.


class StopRequest:
    """SIGTERM in a job's process; raised as ``KeyboardInterrupt``, like Ctrl-C.

    An exception that is swallowed on its way, as in a destructor, is raised again by the next ``check``.

    Attributes:
        received: True from the first SIGTERM on.
        on_signal: called when it comes, wherever the program is; must neither wait nor raise.
    """

    def __init__(self) -> None:
        self.received = False
        self.on_signal: Callable[[], None] = lambda: None
        self._deferred = 1  # until ``enable``

    @contextlib.contextmanager
    def handler_installed(self) -> Iterator[None]:
        """Record SIGTERM; ignore what a terminal sends, since the daemon decides on that."""
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        before = {number: signal.getsignal(number) for number in numbers}
        signal.signal(signal.SIGTERM, self._handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # whatever the daemon does
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def enable(self) -> None:
        """Raise the request from here on; one that was received already is raised now.

        Raises:
            KeyboardInterrupt: it was received.
        """
        self._deferred -= 1
        self.check()

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """A request that comes in the block is raised at its end."""
        received_before = self.received
        self._deferred += 1
        try:
            yield
        finally:
            self._deferred -= 1
        if self.received and not received_before:
            self._raise()

    def disable(self) -> None:
        """Raise no more from here on: there is nothing left to stop."""
        self._deferred += 1

    def check(self) -> None:
        """Stop here if that was requested.

        Raises:
            KeyboardInterrupt: it was.
        """
        if self.received:
            self._raise()

    def sleep(self, seconds: float) -> None:
        """Wait; a request to stop ends that."""
        self.check()
        time.sleep(seconds)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        first, self.received = not self.received, True
        if first:
            self.on_signal()
            self._raise()

    def _raise(self) -> None:
        if not self._deferred:
            raise KeyboardInterrupt("told to stop")
