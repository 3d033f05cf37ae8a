"""Serves the page on the loopback, and has a browser open it."""

import asyncio
import contextlib
import errno
import os
import socket
import webbrowser
from collections.abc import Callable, Mapping

import uvicorn

from tuner.client.transport import Transport
from tuner.errors import InputError
from tuner.page.app import HOST, PageServer
from tuner.page.session import Session

DEFAULT_PORT = 8750
"""Taken where it is free and no other was named."""

_BACKLOG = 64
_CONNECTIONS = 64
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


class _Server(uvicorn.Server):
    """Ends streams when it closes, so that their browsers see an end and not a fault."""

    def __init__(self, config: uvicorn.Config, page: PageServer) -> None:
        super().__init__(config)
        self._page = page

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then close what is left."""
        self._page.closing.set()
        await super().shutdown(sockets)


def page_server(transport: Transport, session: Session, port: int) -> uvicorn.Server:
    """A server of the page that does not run yet.

    Args:
        transport: to the daemon.
        session: who may ask.
        port: of 127.0.0.1 where it will be served.
    """
    page = PageServer(transport, session, port)
    config = uvicorn.Config(
        page.application(),
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
        asyncio.run(page_server(transport, session, port).serve([listener]))


def open_browser(link: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Have the user's browser open a link; False where there is none that shows windows."""
    if not (environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")):
        return False  # a text browser would take the terminal
    try:
        return webbrowser.open(link)
    except webbrowser.Error:
        return False
