"""The HTTP server: uvicorn without its signal handlers and its ticking, on Unix sockets and the loopback."""

import asyncio
import contextlib
import grp
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.daemon.http.access import Gate, group_of
from tuner.daemon.http.client_connection import HEAD_BYTES, Connection, ServerLimits, SpareDescriptor
from tuner.daemon.http.routes import interface
from tuner.daemon.settings import LimitsTable, Settings, TuningTable
from tuner.daemon.tokens import Tokens
from tuner.model.errors import InputError
from tuner.system.logs import LogRateLimiter
from tuner.system.service_manager import default_sockets, passed_socket
from tuner.system.threads import is_shortage

if TYPE_CHECKING:
    from tuner.daemon.service import Service

Observe = Callable[[str, int, float], None]
"""Called for every answer: route, HTTP status, seconds from the head of the request to that of the answer."""

_NUMBER = re.compile(r"(?<=^/v1/(?:jobs|runs)/)[0-9]+")
_ROUTES = frozenset(
    {
        *("/v1/best", "/v1/uses", "/v1/status", "/v1/jobs", "/v1/jobs/{id}", "/metrics", "/openapi.json"),
        *("/healthz", "/readyz"),
        *(f"/v1/jobs/{{id}}/{verb}" for verb in ("cancel", "pause", "resume", "events")),
        *("/v1/runs", "/v1/runs/{id}", "/v1/runs/{id}/trials", "/v1/runs/{id}/samples"),
        *("/v1/answers", "/v1/history", "/v1/power", "/v1/events"),
    }
)
_OTHER = "other"
_CONNECTIONS = 128
_KEEP_ALIVE_S = 30  # of a connection without a request; a client that comes back later connects anew
_GRACE_S = 2  # for answers under way when the server stops; the service manager waits longer
_BACKLOG = 1024  # connections that wait to be accepted; beyond it a client has an error at once
_ACCEPTED_AT_ONCE = 16  # asyncio goes on for as many turns where no more files can be opened
_TOLD_EVERY_S = 10.0  # in the log
_LOG = logging.getLogger(__name__)


class LatencyObserver:
    """Measures how long an application takes to answer."""

    def __init__(self, app: ASGIApp, observe: Observe) -> None:
        self._app = app
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        begun_s = time.perf_counter()

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._observe(route(scope["path"]), message["status"], time.perf_counter() - begun_s)
            await send(message)

        await self._app(scope, receive, observed)


def route(path: str) -> str:
    """The route of a path; ``other`` for an unknown one, so that clients cannot add series to the metrics."""
    template = _NUMBER.sub("{id}", path)
    return template if template in _ROUTES else _OTHER


def nobody(route: str, status: int, seconds: float) -> None:
    """Observe nothing."""
    del route, status, seconds


@dataclass(frozen=True)
class Loopback:
    """Listening sockets, and what opens the gate behind them."""

    sockets: Sequence[socket.socket]
    tokens: Tokens
    open_health: bool = False

    @property
    def port(self) -> int:
        """Port that the sockets listen on."""
        port: int = self.sockets[0].getsockname()[1]
        return port


def open_loopback(port: int, tokens: Tokens, *, open_health: bool = False) -> Loopback:
    """Listen on the loopback, on both families where the machine has both.

    Args:
        port: 0 for any free one.
        tokens: that open the gate.
        open_health: probes of health need no token.

    Raises:
        InputError: the port cannot be had.
    """
    first = _listen(socket.AF_INET, "127.0.0.1", port)
    try:
        second = _listen(socket.AF_INET6, "::1", first.getsockname()[1])
    except InputError:  # no IPv6 here, or the port is another's there: one family is enough
        return Loopback((first,), tokens, open_health)
    return Loopback((first, second), tokens, open_health)


def _listen(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    try:
        # asyncio sends at once (TCP_NODELAY) only where the protocol is named.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise InputError(f"tcp.port: no sockets of this family: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise InputError(
            f"tcp.port: cannot listen on {host}, port {port}: {error}; choose another"
        ) from error
    listener.setblocking(False)
    return listener


class Server(uvicorn.Server):
    """Serves the interface over Unix sockets, and over the loopback where that is wanted.

    Args:
        service: what answers.
        limits: what clients may take.
        tuning: what submissions mean that leave something out; None for what ``daemon.toml`` has by default.
        observe: hears how long answers take.

    Attributes:
        listening: set as soon as connections are accepted.
    """

    def __init__(
        self,
        service: "Service",
        limits: LimitsTable,
        tuning: TuningTable | None = None,
        observe: Observe = nobody,
    ) -> None:
        self.listening = asyncio.Event()
        self._observe = observe
        self._closing = asyncio.Event()
        self._limits = limits
        self._listeners: Sequence[socket.socket] = ()
        self._spare = SpareDescriptor()
        self._crowded = LogRateLimiter(_TOLD_EVERY_S)
        self._server_limits = ServerLimits(limits)
        self._app = interface(service, limits, tuning or TuningTable(), self._closing)
        super().__init__(self._config(None))

    def _config(self, tcp: Loopback | None) -> uvicorn.Config:
        gate = Gate(
            self._app,
            self._limits,
            tokens=None if tcp is None else tcp.tokens,
            open_health=tcp is not None and tcp.open_health,
        )
        return uvicorn.Config(
            LatencyObserver(gate, self._observe),
            http=cast("type[asyncio.Protocol]", partial(Connection, limits=self._server_limits)),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",  # anybody can make it warn of what is no HTTP, as often as he likes
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=_ACCEPTED_AT_ONCE,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
            h11_max_incomplete_event_size=HEAD_BYTES,
        )

    async def serve(  # type: ignore[override]  # which sockets there are is for the daemon to say
        self, sockets: Sequence[socket.socket], tcp: Loopback | None = None
    ) -> None:
        """Serve until ``stop`` is called; the sockets are closed then."""
        self._listeners = listeners = [*sockets, *(tcp.sockets if tcp else ())]
        self._server_limits.groups = {
            listener.getsockname(): group_of(listener)
            for listener in sockets
            if listener.family == socket.AF_UNIX
        }
        if tcp is not None:
            self.config = self._config(tcp)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._handle_exception)
        with contextlib.closing(self._spare):
            await super().serve(listeners)

    def stop(self) -> None:
        """Have ``serve`` return: no connection is accepted any more, answers under way may end."""
        self.should_exit = True
        self._closing.set()

    async def main_loop(self) -> None:
        """Wait for the end, without the ten looks per second that uvicorn takes."""
        for listener in self._listeners:
            listener.listen(_BACKLOG)  # uvicorn has one number for this and for what is accepted at once
        self.listening.set()
        await self._closing.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let answers end, and then close what is still open."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            cast("Connection", connection).transport.abort()

    def _handle_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Answer those whom asyncio could not accept; anything else is told as usual."""
        error, listening = context.get("exception"), context.get("socket")
        if listening is None or not (isinstance(error, OSError) and is_shortage(error)):
            loop.default_exception_handler(context)
            return
        if times := self._crowded.times():
            _LOG.error("no connection can be accepted (%d times): %s", times, error)
        for listener in self._listeners:
            if listener.fileno() == listening.fileno():
                self._spare.answer_waiting(listener)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the daemon."""
        yield


# --- The socket, which is systemd's or one that the daemon makes, and the server on it. It may be lost, and
# settings may change: the server is then replaced.

_FOR_GROUP = 0o660
_FOR_OWNER = 0o600
_FOLDER_MODE = 0o755
_PROBE_S = 1.0  # for another daemon to accept a connection
_START_S = 10.0


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
            passed = _listen_at(path, group)
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
            renewed = _listen_at(self._path, self._group)
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


def _listen_at(path: Path, group: str) -> socket.socket:
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
        listening.listen(_CONNECTIONS)
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
