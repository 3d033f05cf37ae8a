"""Serves the page on the loopback, and has a browser open it."""

import asyncio
import contextlib
import errno
import os
import socket
import webbrowser
from collections.abc import Callable, Mapping
from functools import partial

import uvicorn

from tuner.client.transport import Transport
from tuner.model.errors import InputError
from tuner.page.app import PageServer
from tuner.page.peer_user import is_another_user
from tuner.page.session import Session
from tuner.system.timed_connection import TimedConnection

HOST = "127.0.0.1"
"""Where the page is served."""

DEFAULT_PORT = 8750
"""Taken where it is free and no other was named."""

_BACKLOG = 64
_CONNECTIONS = 64
_REQUEST_TIMEOUT_S = 10.0  # a browser on this machine sends a request at once
_GRACE_S = 1  # for answers under way; streams do not end by themselves


def listen(port: int | None) -> socket.socket:
    """A listening socket on the loopback.

    Args:
        port: the one to take; None for the default one or, where that is in use, any free one.

    Raises:
        InputError: the port cannot be had.
    """
    try:
        return _bound(DEFAULT_PORT if port is None else port)
    except OSError as error:
        if port is None and error.errno == errno.EADDRINUSE:
            return _bound(0)
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had ({error.strerror})"
        raise InputError(f"--port {port}: port {port} of {HOST} {reason}; name another, or none") from error


def _bound(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


class _Connection(TimedConnection):
    """A connection of this user: others are closed before they have taken a place, or said a word."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Close it where it is another user's."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        try:
            stranger = is_another_user(connection.getpeername(), connection.getsockname())
        except OSError:  # gone already
            stranger = True
        if stranger:
            self.end()


class _Server(uvicorn.Server):
    """Ends streams when it closes, so that their browsers see an end and not a fault."""

    def __init__(self, config: uvicorn.Config, page: PageServer) -> None:
        super().__init__(config)
        self._page = page

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then close what is left."""
        self._page.closing.set()
        await super().shutdown(sockets)


def page_server(
    transport: Transport, session: Session, request_timeout_s: float = _REQUEST_TIMEOUT_S
) -> uvicorn.Server:
    """A server of the page that does not run yet.

    Args:
        transport: to the daemon.
        session: who may ask.
        request_timeout_s: for a request to arrive whole.
    """
    page = PageServer(transport, session)
    config = uvicorn.Config(
        page.application(),
        http=partial(_Connection, request_timeout_s=request_timeout_s),  # type: ignore[arg-type]  # called as a class
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_GRACE_S,
    )
    return _Server(config, page)


def serve(transport: Transport, listener: socket.socket, opened: Callable[[str], None]) -> None:
    """Serve the page until SIGINT or SIGTERM.

    Args:
        transport: to the daemon.
        listener: closed at the end.
        opened: called with the link when it can be opened.
    """
    with contextlib.closing(listener):
        port = listener.getsockname()[1]
        session = Session(port)
        opened(f"http://{HOST}:{port}/open/{session.link}")  # who comes before the server waits a moment
        asyncio.run(page_server(transport, session).serve([listener]))


def open_browser(link: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Have the user's browser open a link; False where there is none that shows windows."""
    if not (environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")):
        return False  # a text browser would take the terminal
    try:
        return webbrowser.open(link)
    except webbrowser.Error:
        return False
