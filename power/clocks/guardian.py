"""The guardian: a private ``tuner-clockd`` of this process, used where no helper runs.

It sets clocks for this process over a private pair of sockets, and for nobody else. What it does not share
with this process is its end: signals that end a run do not end it, and when this process is gone, however it
went, or was not heard of for too long, it restores. Should both be killed, the journal outlives them.
"""

import logging
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

from tuner.model.errors import ClockError
from tuner.system.ownership import this_process

from .actuator import ClockPaths
from .clockd_client import SetterLink
from .journal import runtime_directory

_LOG = logging.getLogger(__name__)
PATIENCE_S = 10.0  # a guardian that takes longer hangs in the driver

# Guardians left at work when their owner had waited long enough.
_left: list[subprocess.Popen[bytes]] = []


def hire(where: ClockPaths, *, patience_s: float = PATIENCE_S, ttl_s: float | None = None) -> SetterLink:
    """Start a guardian.

    Args:
        where: what it finds what it sets by.
        patience_s: how long its end is waited for.
        ttl_s: how long it lets its owner be silent; None for as long as it does by itself.

    Raises:
        ClockError: it cannot be started, or there is no place for its journal.
    """
    places = _places(where)
    options = places if ttl_s is None else [*places, "--ttl", f"{ttl_s:g}"]
    mine, theirs = socket.socketpair()
    with theirs:
        try:
            guardian = _started(
                [*_command("guard", options), str(theirs.fileno()), this_process()], theirs.fileno()
            )
        except OSError as error:
            mine.close()
            raise ClockError(f"the guardian of the clocks cannot be started: {error}") from error
    see_off = partial(_see_off, guardian, _command("restore", places), patience_s)
    return SetterLink("the guardian of the clocks", mine, see_off)


def _see_off(guardian: "subprocess.Popen[bytes]", restore: list[str], patience_s: float) -> None:
    """Wait for the guardian's end, but not for ever, and do after it what a service manager would.

    Who hangs is left at work: should the driver answer again, it still restores.
    """
    try:
        if guardian.wait(patience_s):  # it was killed, or could not restore
            guardian = _started(restore)  # goes on if this process is killed now
            guardian.wait(patience_s)
    except OSError as error:
        _LOG.error("what the guardian of the clocks has left set cannot be restored now: %s", error)
    except subprocess.TimeoutExpired:
        _left.append(guardian)  # Popen warns of one that is dropped while it runs
        _LOG.error(
            "the guardian of the clocks, process %d, has not ended within %g s; what it could not restore "
            "stays in the journal and is restored when the program starts next",
            guardian.pid,
            patience_s,
        )


def _started(command: list[str], *descriptors: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - this interpreter and this package, no shell
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=descriptors,
        start_new_session=True,  # a Ctrl-C or Ctrl-Z of the terminal goes to the owner alone
        cwd="/",
    )


def _command(verb: str, places: list[str]) -> list[str]:
    return [sys.executable, "-m", "tuner.power.clocks.clockd", verb, *places]


def _places(where: ClockPaths) -> list[str]:
    """The options that let a guardian find what its owner found."""
    folders = {
        "--directory": where.directory or runtime_directory(),
        "--config": where.config,
        "--devfreq": where.devfreq,
    }
    options = [word for name, path in folders.items() for word in (name, str(path.absolute()))]
    return options if where.library is None else [*options, "--library", str(Path(where.library).absolute())]
