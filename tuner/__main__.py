"""The program ``tuner``: as little as possible before Ctrl-C is heeded."""

import atexit
import gc
import os
import signal
import sys
from types import FrameType, TracebackType

_INTERRUPTED = 130  # what a shell gives for Ctrl-C
_NEW_OBJECTS = 100_000  # between two searches for garbage; a short run makes fewer, and leaves them be


_SHORTAGES = ("failed to map segment", "Cannot allocate memory", "can't start new thread")


def _show_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that nothing expected; its message may quote a file.

    Of a shortage of memory it is a line, for which nothing more is imported.
    """
    if issubclass(kind, MemoryError) or any(words in str(error) for words in _SHORTAGES):
        if sys.stderr is not None:
            sys.stderr.write(
                "Error: the system gives this process no more memory, or threads: look at `ulimit -a`, and at"
                " the limits of its container\n"
            )
        return
    import traceback  # noqa: PLC0415 - never needed, where all goes well

    from tuner.system.untrusted.reading import plain  # noqa: PLC0415 - same

    if sys.stderr is not None:
        sys.stderr.write(plain("".join(traceback.format_exception(kind, error, trace))))


def _end_at_once(ended: list[int]) -> None:
    """Leave with the status of a command that has ended, behind all other handlers of the end.

    The interpreter would take a tenth of a short run to take its modules apart.
    """
    if not ended or "coverage" in sys.modules:  # which was there first, and writes what it counted after this
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return  # the interpreter says so
    os._exit(ended[0])


def main() -> None:
    """Run the command line as the installed command does; programs call ``tuner.cli.main.main``.

    Ctrl-C before it and behind it ends the process without a traceback, and so does its end, whoever goes on.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        del number, frame
        os._exit(_INTERRUPTED)  # nothing is open, before and after; an exception could be lost in a callback

    ended: list[int] = []
    atexit.register(_end_at_once, ended)  # the first of all: it is called last
    gc.set_threshold(_NEW_OBJECTS)
    sys.excepthook = _show_error
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where it is ignored
    if heeded:
        signal.signal(signal.SIGINT, leave)
    from tuner.cli.main import main as command_line  # noqa: PLC0415 - as the docstring says
    from tuner.system.signals import raised_as_interrupts  # noqa: PLC0415 - same

    try:
        with raised_as_interrupts([signal.SIGINT] if heeded else []):
            command_line(prog_name="tuner")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except SystemExit as end:
        if isinstance(end.code, int):
            ended.append(end.code)
        raise
    finally:
        gc.freeze()  # as it ends, the interpreter would look through all objects for garbage, several times


if __name__ == "__main__":
    main()
