"""The guardian process: ``python -m tuner.power.guardian CONTROL GPU DIRECTORY [--library PATH] ...``.

It writes one byte when it could restore, then waits for the end of its standard input, which comes when its
owner lets it go or dies. An entry left in the journal by then is undone. It ignores the signals that end its
owner: a terminal's and a service manager's reach both.
"""

import argparse
import logging
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tuner.errors import TunerError

from .actuator import Where
from .controls import CONTROLS, open_actuator, undo
from .journal import Place
from .ownership import Undo, restored

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 5
_PAUSE_S = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Guard one GPU's clocks; 0 when nothing is left to restore, 1 when a clock could not be restored."""
    parser = argparse.ArgumentParser(prog="tuner.power.guardian")
    parser.add_argument("control", choices=CONTROLS)
    parser.add_argument("gpu")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--library")
    parser.add_argument("--devfreq", type=Path, default=Where().devfreq)
    chosen = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    where = Where(library=chosen.library, devfreq=chosen.devfreq)
    try:
        open_actuator(chosen.control, chosen.gpu, where).close()  # changes nothing: the driver answers here
    except TunerError as error:
        _LOG.error("%s", error)
        return 1
    sys.stdout.buffer.write(b"+")
    sys.stdout.buffer.flush()
    sys.stdin.buffer.read()
    return _restored(Place(chosen.directory, chosen.control, chosen.gpu), undo(where))


def _restored(place: Place, undone: Undo) -> int:
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_S)
        try:
            restored(place, undone)
        except TunerError as error:
            _LOG.error("%s", error)
        else:
            return 0
    return 1  # the entry stays, for the next start


if __name__ == "__main__":
    sys.exit(main())
