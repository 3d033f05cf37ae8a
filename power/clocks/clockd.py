"""``tuner-clockd``: sets and restores GPU clocks as root, for others.

``tuner-clockd serve`` listens on a Unix socket, which systemd passes or it makes itself; ``tuner-clockd
restore`` undoes what a killed helper left; ``tuner-clockd guard`` is what ``guardian.hire`` starts. It has no
network, runs nobody's code, and can do nothing but set a clock that a GPU supports and the administrator
allows, and take that back.
"""

import argparse
import contextlib
import errno
import grp
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tuner.model.errors import ClockError, InputError, TunerError
from tuner.system.service_manager import ServiceManager, passed_socket
from tuner.untrusted.text import PlainFormatter

from ..sensors.powercap_zones import zones
from .actuator import ClockPaths, load_config
from .clockd_energy import RareReads
from .clockd_leases import Leases
from .clockd_server import TTL_S, ClockServer
from .control import open_actuator, undo
from .journal import runtime_directory
from .ownership import HANDOVER_S, restore_stale

_BACKLOG = 64
_SOCKET_MODE = 0o660  # the group that may set clocks
_FOLDER_MODE = 0o755
_LOG = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the helper; 0 when all is restored, 1 when a clock could not be, 2 for wrong options."""
    chosen = _parser().parse_args(arguments)
    level = logging.WARNING if chosen.command == "guard" else logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter("%(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    where = ClockPaths(
        library=chosen.library,
        devfreq=chosen.devfreq,
        config=chosen.config,
        directory=chosen.directory,
        socket=chosen.socket or ClockPaths().socket,
    )
    try:
        directory = where.directory or runtime_directory()
        if chosen.command == "restore":
            # No configuration is read: what is wrong in it must not keep clocks set.
            outcomes = restore_stale(directory, undo(where))
            return int(any(outcome.state == "failed" for outcome in outcomes))
        rules = load_config(where.config).rules
        opened = partial(open_actuator, where=where, rules=rules)
        if chosen.command == "guard":
            leases = Leases(directory, opened, undo(where), owner=chosen.owner, patience_s=HANDOVER_S)
            return _guard(leases, chosen)
        energy = RareReads(lambda: load_config(where.config).reads_powercap, partial(_zones, chosen.powercap))
        leases = Leases(directory, opened, undo(where))
        _serve(leases, _listener(chosen.socket, chosen.group), energy, chosen)
    except TunerError as error:
        _LOG.error("tuner-clockd: %s", error)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    places = argparse.ArgumentParser(add_help=False)
    standard = ClockPaths()
    places.add_argument("--directory", type=Path, metavar="DIR", help="of the journal [/run/tuner for root]")
    places.add_argument("--config", type=Path, default=standard.config, metavar="FILE", help="[%(default)s]")
    places.add_argument("--library", metavar="FILE", help="libnvidia-ml.so.1 [what the system finds]")
    places.add_argument("--devfreq", type=Path, default=standard.devfreq, metavar="DIR", help="[%(default)s]")
    places.add_argument(
        "--ttl", type=_seconds, default=TTL_S, metavar="S", help="longest silence of a client [%(default)g]"
    )
    places.add_argument(
        "--socket", type=Path, metavar="PATH", help=f"[what systemd passes, or {standard.socket}]"
    )
    parser = argparse.ArgumentParser(
        prog="tuner-clockd", description="Sets GPU clocks for others, and restores them."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", parents=[places], help="answer on a Unix socket until stopped")
    serve.add_argument(
        "--group", metavar="NAME", help="who may connect to a socket made here [the own group]"
    )
    serve.add_argument(
        "--idle-exit", type=_seconds, metavar="S", help="end after so long without a client [never]"
    )
    serve.add_argument(
        "--powercap", type=Path, default=Path("/sys"), metavar="DIR", help="the kernel's /sys [%(default)s]"
    )
    commands.add_parser("restore", parents=[places], help="undo what a killed helper left, and end")
    guard = commands.add_parser("guard", parents=[places], help="serve the one process that starts it so")
    guard.add_argument("fd", type=int, help="descriptor of a socket connected to it")
    guard.add_argument("owner", help="its identity")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no positive number of seconds")
    return value


def _zones(sysfs: Path) -> dict[str, Path]:
    """The folders of the energy counters that may be read for others."""
    return {zone.name: zone.folder for zone in zones(sysfs) if zone.domain != "psys"}


def _serve(leases: Leases, listener: socket.socket, energy: RareReads, chosen: argparse.Namespace) -> None:
    manager = ServiceManager()
    server = ClockServer(
        listener, leases, ttl_s=chosen.ttl, idle_exit_s=chosen.idle_exit, manager=manager, energy=energy
    )
    server.stop_on(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    leases.restore_stale()  # what cannot be restored now is tried again while serving
    manager.say("READY=1")
    try:
        server.serve()
    finally:
        manager.say("STOPPING=1")


def _guard(leases: Leases, chosen: argparse.Namespace) -> int:
    """Serve one process until it ends the lease or dies; 1 if a clock could not be restored then.

    Signals that end that process may reach this one too: they are not for it.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    server = ClockServer(None, leases, ttl_s=chosen.ttl, idle_exit_s=0.0)
    server.admit(socket.socket(fileno=chosen.fd))
    server.serve()
    return int(leases.retry_at_s is not None)


def _listener(path: Path | None, group: str | None) -> socket.socket:
    """The socket to listen on: the one made at ``path`` if given, else the one that systemd passed."""
    passed = passed_socket() if path is None else None
    if passed is not None:
        return passed
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _bind(listener, path or ClockPaths().socket, group)
    except BaseException:
        listener.close()
        raise
    return listener


def _bind(listener: socket.socket, path: Path, group: str | None) -> None:
    """Listen on a new socket that is open to its group and closed to others."""
    try:
        gid = grp.getgrnam(group).gr_gid if group else -1
    except KeyError as error:
        raise InputError(f"--group {group}: there is no such group") from error
    try:
        path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        _unlink_dead(path)
        mask = os.umask(0o777 & ~_SOCKET_MODE)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        os.chown(path, -1, gid)
        listener.listen(_BACKLOG)
    except OSError as error:
        raise ClockError(f"tuner-clockd cannot listen on {path}: {error}") from error


def _unlink_dead(path: Path) -> None:
    """Remove the socket of a helper that is gone; one that answers is left alone."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:  # what a file that is no socket says too
            if path.is_socket():
                path.unlink()
        except FileNotFoundError:
            return
        else:
            raise OSError(errno.EADDRINUSE, "another helper answers there")


if __name__ == "__main__":
    sys.exit(main())
