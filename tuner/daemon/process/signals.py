"""What signals mean to the daemon before its loop hears them, and when it is about to be gone."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT)
_ALL = (*ENDING, signal.SIGHUP)


class Early:
    """What was heard while the daemon was starting.

    Attributes:
        reload: SIGHUP came.
    """

    reload = False


@contextlib.contextmanager
def early() -> Iterator[Early]:
    """Until the loop listens: SIGTERM and SIGINT end the start in order, SIGHUP is remembered.

    Raises:
        SystemExit: with 0, where the start is ended.
    """
    heard = Early()

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise SystemExit(0)

    def remember(number: int, frame: FrameType | None) -> None:
        del number, frame
        heard.reload = True

    before = {number: signal.getsignal(number) for number in _ALL}
    for number in ENDING:
        signal.signal(number, end)
    signal.signal(signal.SIGHUP, remember)
    try:
        yield heard
    except BaseException:  # the process may live on; after an orderly end it stays as ``deaf`` has left it
        for number, handler in before.items():
            signal.signal(number, handler)
        raise


def deaf(loop: asyncio.AbstractEventLoop) -> None:
    """From here on signals change nothing: all has ended in order, and so shall the process."""
    for number in _ALL:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
