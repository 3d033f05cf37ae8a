"""The program ``tuner``: as little as possible before Ctrl-C is heeded."""

import signal
import sys
from types import FrameType

_INTERRUPTED = 130  # what a shell gives for Ctrl-C


def main() -> None:
    """Run the command line. Ctrl-C while it is being imported ends the program without a traceback."""

    def leave(number: int, frame: FrameType | None) -> None:
        del number, frame
        sys.exit(_INTERRUPTED)

    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where it is ignored
    if heeded:
        signal.signal(signal.SIGINT, leave)
    from tuner.cli import main as command_line  # noqa: PLC0415 - as the docstring says

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command_line(prog_name="tuner")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
