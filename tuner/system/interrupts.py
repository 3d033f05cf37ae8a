"""Signals that end a command, raised as an exception that is not lost."""

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from types import FrameType

_LATER_S = 0.01  # until a lost one comes again: the callback that lost it has returned
_TRIES = 100  # others may have replaced the handler for a while
_raised: list[int] = []  # numbers of all that were raised in this process


class SignalInterrupt(KeyboardInterrupt):
    """A signal asks the command to end; whoever handles Ctrl-C handles it.

    Args:
        number: of the signal.
    """

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

    Args:
        numbers: of the signals.
    """
    found = {number: signal.getsignal(number) for number in numbers}
    handlers = {number: before for number, before in found.items() if before is not signal.SIG_IGN}
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
    """How many signals were raised so far, for ``raise_again``."""
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
