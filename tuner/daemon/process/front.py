"""The face that clients see, over a socket that may be lost and settings that may change."""

import asyncio
import logging
import socket

from tuner.daemon.api.loopback import Loopback, open_loopback
from tuner.daemon.api.serving import Server
from tuner.daemon.api.timing import Observe, nobody
from tuner.daemon.desk import Desk
from tuner.daemon.process.listening import Listener
from tuner.daemon.settings.tables import Settings, TcpTable
from tuner.errors import InputError

_BEGIN_S = 10.0
_LOG = logging.getLogger(__name__)


class Front:
    """Serves a desk.

    Args:
        desk: what answers.
        listener: the socket; its owner closes it.
        observe: hears how long answers take.

    Attributes:
        port: of the loopback, where it is served; None where it is not.
    """

    def __init__(self, desk: Desk, listener: Listener, observe: Observe = nobody) -> None:
        self._desk = desk
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
        """Serve from now on.

        Raises:
            InputError: the port of [tcp] cannot be had; clients of the socket are served then, too.
        """
        trouble: InputError | None = None
        tcp = None
        try:
            tcp = _loopback(settings.tcp)
        except InputError as error:
            trouble = error
        self.port = None if tcp is None else tcp.port
        self._server = Server(self._desk, settings.limits, settings.tuning, self._observe)
        # a copy: the server closes what it is given, and the next one needs it again
        sockets = [_copy(self._listener.socket)]
        self._serving = asyncio.create_task(self._server.serve(sockets, tcp), name="front")
        listening = asyncio.create_task(self._server.listening.wait())
        either: set[asyncio.Task[object]] = {self._serving, listening}
        await asyncio.wait(either, timeout=_BEGIN_S, return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        if trouble is not None:
            raise trouble

    async def stop(self) -> None:
        """Serve nobody any more; answers under way end first."""
        if self._server is None or self._serving is None:
            return
        self._server.stop()
        await asyncio.wait({self._serving})
        if self._serving.exception() is not None:
            _LOG.error("the server ended badly", exc_info=self._serving.exception())

    async def renew(self, settings: Settings) -> None:
        """Serve under other settings, or on a socket made anew where the old one is lost.

        Raises:
            InputError: the socket or the port of [tcp] cannot be had.
        """
        if self._listener.lost:
            _LOG.warning("the socket's file was taken away: it is made anew")
            self._listener.renew()
        await self.stop()
        await self.start(settings)


def _copy(listening: socket.socket) -> socket.socket:
    copy = listening.dup()
    copy.setblocking(False)
    return copy


def _loopback(tcp: TcpTable) -> Loopback | None:
    if tcp.port is None:
        return None
    if tcp.token_file is None:
        raise InputError("[tcp] port: clients need a token; name its file in token_file")
    return open_loopback(tcp.port, tcp.token_file)
