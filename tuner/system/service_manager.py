"""The protocol between systemd and a service (sd_notify(3), sd_listen_fds(3)), and default sockets."""

import contextlib
import os
import socket
import stat
import time
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path

from tuner.model.errors import InputError

_FIRST_FD = 3  # SD_LISTEN_FDS_START
_MICROSECONDS = 1e6
_PINGS_PER_TIMEOUT = 3.0  # sd_watchdog_enabled(3) asks for more than two


class ServiceManager:
    """Reports the state of the service to the service manager, if there is one.

    Args:
        environment: where $NOTIFY_SOCKET and $WATCHDOG_USEC are.
        now: monotonic clock in seconds.
    """

    def __init__(
        self,
        environment: MutableMapping[str, str] = os.environ,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._now = now
        watchdog_us = environment.get("WATCHDOG_USEC", "")
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.ping_interval_s: float | None = None
        if self._address and mine and watchdog_us.isdecimal():
            self.ping_interval_s = int(watchdog_us) / _MICROSECONDS / _PINGS_PER_TIMEOUT
        self._pinged_s = -float("inf")
        self._socket: socket.socket | None = None
        if self._address:
            # kept: a service that has no descriptor left must still ping
            with contextlib.suppress(OSError):
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def __del__(self) -> None:
        if getattr(self, "_socket", None) is not None:
            self._socket.close()  # type: ignore[union-attr]  # looked at just now

    @property
    def there(self) -> bool:
        """True where there is one: it starts a service again that ends with an error."""
        return bool(self._address)

    def say(self, *lines: str) -> None:
        """Send e.g. ``READY=1``; a manager that does not listen is none of the service's business."""
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto("\n".join(lines).encode(), address)

    def extend_watchdog(self, seconds: float | None) -> None:
        """Let pings stay away for longer; None for as long as the service manager said at the start."""
        if self.ping_interval_s is not None:
            usual_s = self.ping_interval_s * _PINGS_PER_TIMEOUT
            timeout_us = round((seconds or usual_s) * _MICROSECONDS)
            self.say(f"WATCHDOG_USEC={timeout_us}", "WATCHDOG=1")

    def ping(self) -> None:
        """Send ``WATCHDOG=1`` if it is time; call this only from the loop that does the work."""
        if self.ping_interval_s is not None and self._now() - self._pinged_s >= self.ping_interval_s:
            self._pinged_s = self._now()
            self.say("WATCHDOG=1")


def passed_socket(environment: MutableMapping[str, str] = os.environ) -> socket.socket | None:
    """The listening socket that systemd passed to this very process, or None."""
    passed = environment.pop("LISTEN_FDS", "") if environment.get("LISTEN_PID") == str(os.getpid()) else ""
    environment.pop("LISTEN_PID", None)
    if passed != "1":  # the socket unit has one; whoever passes more means another service
        return None
    os.set_inheritable(_FIRST_FD, False)
    return socket.socket(fileno=_FIRST_FD)


SOCKET_VARIABLE = "TUNER_SOCKET"
SYSTEM_SOCKET = Path("/run/tuner/tunerd.sock")
_NAME = Path("tuner/tunerd.sock")


def default_sockets(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Sockets where a daemon may listen, in the order in which they are tried.

    ``$TUNER_SOCKET`` alone where it is set; else the user's own below ``$XDG_RUNTIME_DIR``, then the
    system's. A daemon in the foreground takes the first that it may make.

    Raises:
        InputError: another user has made the folder of the user's own socket, or may change what is in it.
    """
    if environment.get(SOCKET_VARIABLE):
        return (Path(environment[SOCKET_VARIABLE]),)
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    if not runtime:
        return (SYSTEM_SOCKET,)
    own = Path(runtime) / _NAME
    _check_owner(own.parent)
    return (own, SYSTEM_SOCKET)


def _check_owner(folder: Path) -> None:
    try:
        status = folder.stat()
    except OSError:  # not made yet
        return
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InputError(
            f"{folder} is another user's, or others may write there, so that its daemon may be anybody's:"
            f" unset XDG_RUNTIME_DIR, or name a socket with --socket or ${SOCKET_VARIABLE}"
        )
