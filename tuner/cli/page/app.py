"""The page's server on the loopback: the page itself, and the routes of the daemon that it needs."""

import asyncio
import contextlib
import errno
import html
import importlib.resources
import json
import os
import re
import socket
import webbrowser
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from tuner.cli.page import upstream
from tuner.cli.page.upstream import (
    Headers,
    Refusal,
    Session,
    is_another_user,
    refusal_of_site,
    refusal_to_read,
    refusal_to_write,
)
from tuner.client.transport import Transport
from tuner.model.errors import InputError, TunerError
from tuner.system.timed_connection import TimedConnection

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_READ = re.compile(r"/v1/(answers|runs/[0-9]{1,19}(/trials)?)")
_WRITE = re.compile(r"/v1/jobs(/[0-9]{1,19}/(cancel|pause|resume))?")
_PLACE = re.compile(r"([0-9a-f]{8}-[0-9]{1,19})?")
_MOST_BYTES = 65_536  # of a body, as the daemon has it
_PAGE = "index.html"
_CSRF = "{{csrf}}"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_KINDS = {401: "unauthorised", 403: "unauthorised", 404: "unknown-path", 413: "too-large", 415: "input"}

Handler = Callable[[Request], Awaitable[Response]]


class Asset(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str


def assets() -> dict[str, Asset]:
    """The files of the page, by their names."""
    files: dict[str, Asset] = {}
    folder = importlib.resources.files("tuner.cli.page") / "assets"
    for directory in (folder, folder / "uplot"):
        for file in directory.iterdir():
            media_type = _TYPES.get(f".{file.name.rpartition('.')[2]}")
            if media_type is not None and file.is_file():
                files[file.name] = Asset(file.read_bytes(), media_type)
    return files


class PageServer:
    """Answers the browser, and asks the daemon for it.

    Args:
        transport: to the daemon.
        session: who has opened the link.

    Attributes:
        closing: set when the server closes; streams end then.
    """

    def __init__(self, transport: Transport, session: Session) -> None:
        self.closing = asyncio.Event()
        self._transport = transport
        self._session = session
        self._assets = assets()

    def application(self) -> Starlette:
        """The ASGI application."""
        routes = [
            ("/open/{word}", self._enter, ["GET"]),
            ("/", self._page, ["GET"]),
            ("/assets/{name}", self._asset, ["GET"]),
            ("/v1/events", self._events, ["GET"]),
            ("/{path:path}", self._forward, ["GET", "POST"]),
        ]
        return Starlette(
            routes=[
                Route(path, _answering_errors(handler), methods=methods) for path, handler, methods in routes
            ]
        )

    async def _enter(self, request: Request) -> Response:
        refusal = refusal_of_site(_headers(request))
        if refusal is not None:
            return _refused(refusal)
        cookie = self._session.enter(request.path_params["word"])
        if cookie is None:
            return _refused(
                Refusal(403, "this link was used, or is wrong: a new `tuner open` prints another")
            )
        return RedirectResponse("/", 303, {**_HEADERS, "set-cookie": cookie})

    async def _page(self, request: Request) -> Response:
        refusal = refusal_to_read(_headers(request), self._session)
        if refusal is not None:
            return _refused(refusal)
        page = self._assets[_PAGE]
        filled = page.content.decode().replace(_CSRF, html.escape(self._session.csrf))
        return Response(filled, headers=_HEADERS, media_type=page.media_type)

    async def _asset(self, request: Request) -> Response:
        refusal = refusal_to_read(_headers(request), self._session)
        asset = self._assets.get(request.path_params["name"])
        if refusal is None and (asset is None or request.path_params["name"] == _PAGE):
            refusal = Refusal(404, "no such file")
        if refusal is not None or asset is None:
            return _refused(refusal or Refusal(404, "no such file"))
        return Response(asset.content, headers=_HEADERS, media_type=asset.media_type)

    async def _events(self, request: Request) -> Response:
        refusal = refusal_to_read(_headers(request), self._session)
        position = request.headers.get("last-event-id") or request.query_params.get("after", "")
        if refusal is None and not _PLACE.fullmatch(position):
            refusal = Refusal(400, "after: must be an id of an event")
        if refusal is not None:
            return _refused(refusal)
        power = request.query_params.get("power") == "true"
        stream = upstream.live_stream(self._transport, position, power=power)
        return StreamingResponse(
            upstream.until_closed(stream, self.closing), headers=_HEADERS, media_type="text/event-stream"
        )

    async def _forward(self, request: Request) -> Response:
        writes = request.method == "POST"
        check, paths = (refusal_to_write, _WRITE) if writes else (refusal_to_read, _READ)
        refusal = check(_headers(request), self._session)
        if refusal is None and not paths.fullmatch(request.url.path):
            refusal = Refusal(404, "no such path")
        if refusal is not None:
            return _refused(refusal)
        body = await _body(request)
        if body is None:
            return _refused(Refusal(413, f"a request has at most {_MOST_BYTES} bytes of body"))
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        async with upstream.request(self._transport, request.method, target, body=body) as answer:
            content = await answer.body()
            media_type = answer.header("content-type") or "application/json"
            return Response(content, answer.status, _HEADERS, media_type)


def _answering_errors(handler: Handler) -> Handler:
    """A handler whose errors are answers."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except TunerError as error:
            status = 400 if isinstance(error, InputError) else 503
            return _error(status, str(error), "input" if status == 400 else "away")  # noqa: PLR2004

    return handle


def _headers(request: Request) -> Headers:
    return dict(request.scope["headers"])


async def _body(request: Request) -> bytes | None:
    """The body of a request; None where it is too long."""
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > _MOST_BYTES:
                return None
    except ClientDisconnect:
        return b""
    return body


def _refused(refusal: Refusal) -> Response:
    return _error(refusal.status, refusal.message, _KINDS.get(refusal.status, "input"))


def _error(status: int, message: str, kind: str) -> Response:
    """An error in the form that the daemon's have."""
    content = json.dumps({"error": {"kind": kind, "message": message}})
    return Response(content, status, _HEADERS, "application/json")


# --- Serves the page on the loopback, and has a browser open it.

HOST = "127.0.0.1"
"""Address at which the page is served."""

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
