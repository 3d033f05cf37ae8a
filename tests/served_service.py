"""The HTTP face over a fake service, on a real Unix socket (and the loopback), in a thread of the test."""

import asyncio
import contextlib
import http.client
import json
import os
import socket
import tempfile
import threading
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fake_service import FakeService

from tuner.daemon.http.access import Caller
from tuner.daemon.http.server import Loopback, Server, open_loopback
from tuner.daemon.interface import Peer
from tuner.daemon.settings import LimitsTable
from tuner.daemon.tokens import Tokens, added, new_secret, update

PATIENCE_S = 120.0  # far above what anything here takes
_Result = TypeVar("_Result")


class Answer(NamedTuple):
    """What came back: status, headers by lower-case name, and the bytes of the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def kind(self) -> str:
        """Kind of the error that it is; it must have the one shape of errors."""
        assert self.headers["content-type"] == "application/json"
        assert set(self.document) == {"error"}
        assert set(self.document["error"]) == {"kind", "message"}
        kind: str = self.document["error"]["kind"]
        return kind


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = connected(self._path)


def connected(path: Path) -> socket.socket:
    """A connection to a Unix socket."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(path))  # without a time-out: a queue that is full would be an error at once
    connection.settimeout(PATIENCE_S)
    return connection


async def answered(app: Any, path: str = "/", query: str = "") -> list[Any]:
    """The messages with which an application answers a GET of a member of the group."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode("ascii"),
        "headers": [(b"host", b"localhost")],
        "state": {"caller": Caller(Peer(0, 1), admitted=True, tcp=False)},
    }
    await app(scope, receive, send)
    return messages


@dataclass
class ServedService:
    """A server that runs, and what is behind it."""

    service: FakeService
    server: Server
    path: Path
    loop: asyncio.AbstractEventLoop
    tcp: Loopback | None
    token: str = ""

    def wait(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Run something in the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE_S)

    def connection(self) -> UnixConnection:
        """A new connection."""
        return UnixConnection(self.path)

    def ask(
        self, method: str, target: str, document: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request on a connection of its own."""
        with contextlib.closing(self.connection()) as connection:
            return ask(connection, method, target, document, headers)


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    document: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request; a document that is not bytes is sent as JSON."""
    body = document
    sent = dict(headers or {})
    if document is not None and not isinstance(document, bytes):
        body = json.dumps(document).encode()
        sent.setdefault("Content-Type", "application/json")
    connection.request(method, target, body, sent)
    response = connection.getresponse()
    return Answer(
        response.status, {name.lower(): text for name, text in response.getheaders()}, response.read()
    )


@contextlib.contextmanager
def served(
    *,
    service: FakeService | None = None,
    mode: int = 0o660,
    gid: int = -1,
    tcp: bool = False,
    open_health: bool = False,
    **limits: Any,
) -> Iterator[ServedService]:
    """A server with these limits, until the block ends; it must then end by itself.

    Args:
        service: what answers; a new one if not given.
        mode: of the socket.
        gid: group of the socket; -1 for the test's own.
        tcp: listen on the loopback too.
        open_health: there, health needs no token.
        limits: fields of ``LimitsTable``.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "s"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        path.chmod(mode)
        os.chown(path, -1, gid)
        listener.listen(128)
        token, tokens = new_secret(), Tokens(Path(folder) / "tokens.json")
        update(Path(folder) / "tokens.json", lambda _: added((), "tests", token, 0.0))
        tokens.look()
        loopback = open_loopback(0, tokens, open_health=open_health) if tcp else None
        started: list[ServedService] = []
        ready = threading.Event()

        async def main() -> None:
            loop = asyncio.get_running_loop()
            fake = service or FakeService()
            server = Server(fake, LimitsTable(**limits))
            started.append(ServedService(fake, server, path, loop, loopback, token))
            ready.set()
            await server.serve([listener], loopback)

        thread = threading.Thread(target=asyncio.run, args=(main(),))
        thread.start()
        assert ready.wait(PATIENCE_S)
        try:
            started[0].wait(started[0].server.listening.wait())
            yield started[0]
        finally:
            with contextlib.suppress(RuntimeError):  # stopped by the test already
                started[0].loop.call_soon_threadsafe(started[0].server.stop)
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
