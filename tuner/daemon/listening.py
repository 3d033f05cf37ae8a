"""The listening socket, and the server on it.

The socket is systemd's, or one that the daemon makes. Its file may be lost and settings may change: the
server is then replaced.
"""

import asyncio
import contextlib
import grp
import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.daemon.http.server import Observe, Server, nobody, open_loopback
from tuner.daemon.settings import Settings
from tuner.daemon.tokens import Tokens
from tuner.model.errors import InputError
from tuner.system.service_manager import default_sockets, passed_socket

if TYPE_CHECKING:
    from tuner.daemon.service import Service


_BACKLOG = 128
_FOR_GROUP = 0o660
_FOR_OWNER = 0o600
_FOLDER_MODE = 0o755
_PROBE_S = 1.0  # for another daemon to accept a connection
_START_S = 10.0
_LOG = logging.getLogger(__name__)


class ListeningSocket:
    """A listening socket: the daemon's own, or the one that the service manager passed.

    Args:
        given: the socket that the service manager passed; None to make one.
        path: where to make it.
        group: who may connect, beside the daemon's user.

    Raises:
        InputError: it cannot be made, or another daemon answers there.
    """

    def __init__(self, passed: socket.socket | None, path: Path | None = None, group: str = "") -> None:
        self._path = path
        self._group = group
        self._made: os.stat_result | None = None
        if path is not None:
            passed = _listen(path, group)
            self._made = path.lstat()
        if passed is None:
            raise InputError("no socket to listen on; name one with --socket")
        self.socket = passed

    @property
    def name(self) -> str:
        """Address of the socket, for people."""
        name = self._path if self._path is not None else self.socket.getsockname()
        return str(name) if isinstance(name, str | Path) and str(name) else "a socket without a name"

    @property
    def lost(self) -> bool:
        """True where the file of a socket made here is gone, or is another's."""
        if self._made is None or self._path is None:
            return False
        try:
            now = self._path.lstat()
        except OSError:
            return True
        return (now.st_dev, now.st_ino) != (self._made.st_dev, self._made.st_ino)

    def renew(self) -> None:
        """Replace a lost socket.

        Raises:
            InputError: it cannot be made.
        """
        if self._path is not None:
            renewed = _listen(self._path, self._group)
            self.socket.close()
            self.socket, self._made = renewed, self._path.lstat()

    def close(self) -> None:
        """Close the socket, and remove its file if it is ours."""
        if self._made is not None and self._path is not None and not self.lost:
            with contextlib.suppress(OSError):
                self._path.unlink()
        self.socket.close()


def listener(named: Path | None, group: str) -> ListeningSocket:
    """The daemon's socket: systemd's, else the one named, else the first default that it may make.

    Raises:
        InputError: none can be made; the message says why of each.
    """
    passed = passed_socket()
    if passed is not None:
        passed.setblocking(False)
        return ListeningSocket(passed)
    reasons = []
    for path in (named,) if named is not None else default_sockets(os.environ):
        try:
            return ListeningSocket(None, path, group)
        except InputError as error:  # noqa: PERF203 - of two
            reasons.append(str(error))
    raise InputError("; ".join(reasons))


def _listen(path: Path, group: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(error.errno, f"{path.parent} is no directory") from error
        _unlink_dead(path)
        mask = os.umask(0o777 & ~_FOR_OWNER)  # nobody else connects before the group is known
        try:
            listening.bind(str(path))
        finally:
            os.umask(mask)
        _open_to(group, path)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        reason = error.strerror or str(error)
        raise InputError(f"cannot listen on {path}: {reason}; name a socket with --socket") from error
    except BaseException:
        listening.close()
        raise
    return listening


def _open_to(group: str, path: Path) -> None:
    """Let the group connect, where there is one and this user may give it the socket."""
    try:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
    except (KeyError, PermissionError) as error:
        why = "there is no such group" if isinstance(error, KeyError) else "this user is not in it"
        _LOG.info(
            "only user %d may connect to %s: group %s: %s; as usual without `tuner install-service`",
            os.geteuid(),
            path,
            group,
            why,
        )
        return
    path.chmod(_FOR_GROUP)


def _unlink_dead(path: Path) -> None:
    """Remove the socket of a daemon that is gone; one that answers is left alone.

    Raises:
        InputError: a daemon answers there, or there is something else than a socket.
    """
    try:
        if not path.is_socket():
            path.lstat()
            raise InputError(f"{path}: is there, and is no socket; name another with --socket")
    except FileNotFoundError:
        return
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except FileNotFoundError:
            return
        except TimeoutError:
            pass  # it is full of clients, and so somebody's
    raise InputError(f"{path}: another daemon answers there; stop it, or name another with --socket")


class FrontEnd:
    """Runs the server on the listening socket, and replaces it.

    Args:
        service: answers requests.
        listener: the socket; its owner closes it.
        tokens: of those who come over the loopback.
        observe: is told how long answers take.

    Attributes:
        port: of the loopback, where it is served; None where it is not.
    """

    def __init__(
        self, service: "Service", listener: ListeningSocket, tokens: Tokens, observe: Observe = nobody
    ) -> None:
        self._service = service
        self._tokens = tokens
        self._observe = observe
        self._listener = listener
        self.port: int | None = None
        self._server: Server | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """True while clients are served."""
        return self._serving is not None and not self._serving.done()

    async def start(self, settings: Settings) -> None:
        """Start to serve.

        Raises:
            InputError: the port of [tcp] cannot be had; clients of the socket are served then, too.
        """
        trouble: InputError | None = None
        tcp = None
        try:
            if settings.tcp.port is not None:
                tcp = open_loopback(settings.tcp.port, self._tokens, open_health=settings.tcp.open_health)
        except InputError as error:
            trouble = error
        self.port = None if tcp is None else tcp.port
        self._server = Server(self._service, settings.limits, settings.tuning, self._observe)
        # a copy: the server closes what it is given, and the next one needs it again
        copy = self._listener.socket.dup()
        copy.setblocking(False)
        self._serving = asyncio.create_task(self._server.serve([copy], tcp), name="server")
        listening = asyncio.create_task(self._server.listening.wait())
        either: set[asyncio.Task[object]] = {self._serving, listening}
        await asyncio.wait(either, timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        if trouble is not None:
            raise trouble

    async def stop(self) -> None:
        """Stop to serve; answers under way end first."""
        if self._server is None or self._serving is None:
            return
        self._server.stop()
        await asyncio.wait({self._serving})
        if self._serving.exception() is not None:
            _LOG.error("the server failed", exc_info=self._serving.exception())

    async def renew(self, settings: Settings) -> None:
        """Replace the server after a change of settings, and the socket where it is lost.

        Raises:
            InputError: the socket or the port of [tcp] cannot be had.
        """
        if self._listener.lost:
            _LOG.warning("the socket's file was removed: it is made again")
            self._listener.renew()
        await self.stop()
        await self.start(settings)
