"""The face that clients see, over a socket that may be lost and settings that may change.

What signals mean to the daemon before its loop hears them, and when it is about to be gone.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from types import FrameType

from tuner.daemon.api.server import Loopback, Observe, Server, nobody, open_loopback
from tuner.daemon.interface import ServiceInterface
from tuner.daemon.process.listening import Listener
from tuner.daemon.settings.tables import Settings, TcpTable
from tuner.errors import InputError

_BEGIN_S = 10.0
_LOG = logging.getLogger(__name__)
ENDING = (signal.SIGTERM, signal.SIGINT)
_ALL = (*ENDING, signal.SIGHUP)


class Front:
    """Serves a desk.

    Args:
        desk: what answers.
        listener: the socket; its owner closes it.
        observe: hears how long answers take.

    Attributes:
        port: of the loopback, where it is served; None where it is not.
    """

    def __init__(self, desk: ServiceInterface, listener: Listener, observe: Observe = nobody) -> None:
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


class Early:
    """What was heard while the daemon was starting.

    Attributes:
        reload: SIGHUP came.
    """

    reload = False


@contextlib.contextmanager
def early() -> Iterator[Early]:
    """Until the loop listens: SIGTERM and SIGINT end the start in order, SIGHUP is remembered.

    Raises:
        SystemExit: with 0, where the start is ended.
    """
    heard = Early()

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise SystemExit(0)

    def remember(number: int, frame: FrameType | None) -> None:
        del number, frame
        heard.reload = True

    before = {number: signal.getsignal(number) for number in _ALL}
    for number in ENDING:
        signal.signal(number, end)
    signal.signal(signal.SIGHUP, remember)
    try:
        yield heard
    except BaseException:  # the process may live on; after an orderly end it stays as ``deaf`` has left it
        for number, handler in before.items():
            signal.signal(number, handler)
        raise


def deaf(loop: asyncio.AbstractEventLoop) -> None:
    """From here on signals change nothing: all has ended in order, and so shall the process."""
    for number in _ALL:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
