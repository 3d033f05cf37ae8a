"""The server: uvicorn without its signal handlers and without its ticking."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

import uvicorn

from tuner.daemon.api.app import application
from tuner.daemon.api.gate import Gate
from tuner.daemon.api.loopback import Loopback
from tuner.daemon.api.peers import group_of
from tuner.daemon.api.protocol import HEAD_BYTES, Connection, House
from tuner.daemon.api.shortcut import Shortcut
from tuner.daemon.api.timing import Observe, Timed, nobody
from tuner.daemon.desk import Desk
from tuner.daemon.settings.tables import LimitsTable, TuningTable

_KEEP_ALIVE_S = 30  # of a connection without a request; a client that comes back later connects anew
_GRACE_S = 2  # for answers under way when the server stops; the service manager waits longer
_BACKLOG = 1024  # connections that wait to be accepted; beyond it a client has an error at once
_LOG = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """Serves a desk over Unix sockets, and over the loopback where that is wanted.

    Args:
        desk: what answers.
        limits: what clients may take.
        tuning: what submissions mean that leave something out; None for what ``daemon.toml`` has by default.
        observe: hears how long answers take.

    Attributes:
        listening: set as soon as connections are accepted.
    """

    def __init__(
        self,
        desk: Desk,
        limits: LimitsTable,
        tuning: TuningTable | None = None,
        observe: Observe = nobody,
    ) -> None:
        self.listening = asyncio.Event()
        self._observe = observe
        self._closing = asyncio.Event()
        self._limits = limits
        self._house = House(limits)
        self._app = Shortcut(application(desk, limits, tuning or TuningTable(), self._closing), desk)
        super().__init__(self._config(token=None))

    def _config(self, token: str | None) -> uvicorn.Config:
        return uvicorn.Config(
            Timed(Gate(self._app, self._limits, token=token), self._observe),
            http=cast("type[asyncio.Protocol]", partial(Connection, house=self._house)),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",  # anybody can make it warn of what is no HTTP, as often as he likes
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
            h11_max_incomplete_event_size=HEAD_BYTES,
        )

    async def serve(  # type: ignore[override]  # which sockets there are is for the daemon to say
        self, sockets: Sequence[socket.socket], tcp: Loopback | None = None
    ) -> None:
        """Serve until ``stop`` is called; the sockets are closed then.

        Args:
            sockets: listening Unix sockets.
            tcp: sockets of the loopback, with the token that they ask for.
        """
        listeners = [*sockets, *(tcp.sockets if tcp else ())]
        self._house.groups = {
            listener.getsockname(): group_of(listener)
            for listener in sockets
            if listener.family == socket.AF_UNIX
        }
        if tcp is not None:
            self.config = self._config(tcp.token)
        await super().serve(listeners)

    def stop(self) -> None:
        """Have ``serve`` return: no connection is accepted any more, answers under way may end."""
        self.should_exit = True
        self._closing.set()

    async def main_loop(self) -> None:
        """Wait for the end, without the ten looks per second that uvicorn takes."""
        self.listening.set()
        await self._closing.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let answers end, and then close what is still open."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            cast("Connection", connection).transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the daemon."""
        yield
