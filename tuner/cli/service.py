"""``tuner start`` and ``tuner stop``: of the service, and of a daemon in the foreground."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tuner.cli.remote import socket_option

_WAIT_S = 30.0  # the daemon stops within ten seconds
_LOOK_S = 0.05


def _user_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--user", is_flag=True, help="Your own, of `install-service --user`.")(command)


@click.command(short_help="Stop the daemon; with --until-told for good.")
@click.option(
    "--until-told", is_flag=True, help="Keep it stopped until `tuner start`, whoever asks and after a reboot."
)
@_user_option
@socket_option
def stop(*, until_told: bool, user: bool, socket: str | None) -> None:
    """Stop the daemon. Running jobs go on where they were when it is started again.

    Without --until-told the next client that asks starts the service again, by its socket. A daemon in the
    foreground, without systemd, is told to end, and stays so.
    """
    if socket is not None or not _installed(user=user):
        _stop_foreground(socket)
        return
    if until_told:
        _systemctl(user, "disable", "--now", "tuner.socket", "tuner.service")
        click.echo(f"stopped until told: `{_way_back(user=user)}` starts it again")
        return
    _systemctl(user, "stop", "tuner.service")
    click.echo("stopped; the next client starts it again: `tuner stop --until-told` keeps it stopped")


@click.command(short_help="Start the daemon's service, also after `tuner stop --until-told`.")
@_user_option
def start(*, user: bool) -> None:
    """Start the service that `tuner install-service` made, now and after every boot."""
    from tuner.model.errors import InputError

    if not _installed(user=user):
        raise InputError(
            "no service is installed; `tuner install-service` makes one, and `tuner daemon --foreground` runs"
            " the daemon here"
        )
    _systemctl(user, "enable", "--now", "tuner.socket", "tuner.service")
    click.echo("started: `tuner status` shows it")


def _way_back(*, user: bool) -> str:
    return "tuner start --user" if user else "sudo tuner start"


def _installed(*, user: bool) -> bool:
    from tuner.installing.places import user_config

    units = user_config() / "systemd/user" if user else Path("/etc/systemd/system")
    return (units / "tuner.service").exists()


def _systemctl(user: bool, *words: str) -> None:
    """Run a command of systemd.

    Raises:
        InputError: this user may not.
        InstallError: it fails; the message has what it said.
    """
    from tuner.installing.steps import execute
    from tuner.model.errors import InputError

    if not user and os.geteuid() != 0:
        raise InputError("the service of a machine is root's: put sudo before it; --user is for your own")
    execute(("systemctl", *(("--user",) if user else ()), *words))


def _stop_foreground(socket: str | None) -> None:
    """Have a daemon that nobody starts again end, and wait until it has.

    Raises:
        InputError: it is another user's, or a service manager started it.
        DaemonUnavailableError: none answers.
        DaemonError: it does not end.
    """
    from tuner.client.client import Client
    from tuner.model.errors import DaemonError, InputError
    from tuner.system.owner import identity_of, is_alive

    client = Client(socket)
    pid = client.status().get("pid")
    path = client.address.path
    if path is None or not isinstance(pid, int) or _listens(path) != pid:
        raise InputError(
            f"the daemon at {client.address} belongs to a service manager or is in a container; stop it there"
        )
    owner = identity_of(pid)
    try:
        os.kill(pid, signal.SIGTERM)
    except PermissionError as error:
        raise InputError(
            f"the daemon at {path} (process {pid}) is another user's, who may stop it"
        ) from error
    except ProcessLookupError:
        pass
    until_s = time.monotonic() + _WAIT_S
    while is_alive(owner) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    if is_alive(owner):
        raise DaemonError(f"process {pid} has not ended within {_WAIT_S:g} s")
    click.echo("stopped; `tuner daemon --foreground` starts it again")


def _listens(path: Path) -> int:
    """The process that made a socket."""
    import socket
    import struct

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_WAIT_S)
        probe.connect(str(path))
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])
