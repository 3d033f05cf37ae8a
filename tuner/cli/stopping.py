"""Commands that measure end the same way, whatever stops them."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from tuner.errors import Interrupted


@contextlib.contextmanager
def orderly_stop() -> Iterator[None]:
    """SIGTERM and SIGHUP end a command as Ctrl-C does: clocks restored, results kept, exit code 130.

    A signal that is ignored stays ignored: ``nohup tuner run`` outlives its terminal.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        # no error of this package: whoever goes on after an error must not go on after this
        raise KeyboardInterrupt(f"stopped by {signal.Signals(number).name}")

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    heeded = {number: before for number, before in handlers.items() if before is not signal.SIG_IGN}
    for number in heeded:
        signal.signal(number, stop)
    try:
        yield
    except KeyboardInterrupt as order:
        raise Interrupted("interrupted; trials that had ended are stored") from order
    finally:
        for number, before in heeded.items():
            signal.signal(number, before)
