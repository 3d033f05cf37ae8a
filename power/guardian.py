"""The guardian process: ``python -m tuner.power.guardian CONTROL GPU DIRECTORY [--library PATH]``.

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

from . import nvml_clocks
from .guard import Restore, restored
from .journal import Place

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 5
_PAUSE_S = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Guard one GPU's clocks; 0 when nothing is left to restore, 1 when a clock could not be restored."""
    parser = argparse.ArgumentParser(prog="tuner.power.guardian")
    parser.add_argument("control", choices=[nvml_clocks.CONTROL])
    parser.add_argument("gpu")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--library")
    chosen = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        nvml_clocks.NvmlClocks(chosen.gpu, library=chosen.library).close()  # reading only: NVML answers here
    except TunerError as error:
        _LOG.error("%s", error)
        return 1
    sys.stdout.buffer.write(b"+")
    sys.stdout.buffer.flush()
    sys.stdin.buffer.read()
    place = Place(chosen.directory, chosen.control, chosen.gpu)
    return _restore(place, lambda entry: nvml_clocks.reset(entry, chosen.library))


def _restore(place: Place, restore: Restore) -> int:
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_S)
        try:
            restored(place, restore)
        except TunerError as error:
            _LOG.error("%s", error)
        else:
            return 0
    return 1  # the entry stays, for the next start


if __name__ == "__main__":
    sys.exit(main())
