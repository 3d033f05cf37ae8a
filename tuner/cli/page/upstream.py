"""Requests of a browser: those of the user who has opened the link, handed on to the daemon as they come."""

import asyncio
import contextlib
import hmac
import json
import os
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import h11

from tuner.client.transport import Transport
from tuner.model.errors import DaemonUnavailableError, TunerError

ANSWER_S = 30.0
"""For an answer to begin: the daemon gives one within this time or says that it cannot."""

_READ_BYTES = 65_536
_SILENCE_S = 45.0  # three of the daemon's signs of life


class DaemonAnswer:
    """An answer of the daemon that has begun.

    Args:
        head: of the answer.
        connection: from which the body comes.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, head: h11.Response, connection: "_DaemonConnection") -> None:
        self.status = head.status_code
        self._headers = {name.decode(): text.decode("latin-1") for name, text in head.headers}
        self._connection = connection

    def header(self, name: str) -> str:
        """A header by its name in lower case; empty where there is none."""
        return self._headers.get(name, "")

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, piece by piece.

        Raises:
            DaemonUnavailableError: the daemon went away or says nothing any more.
        """
        while True:
            event = await self._connection.event(_SILENCE_S)
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise DaemonUnavailableError("the daemon ended the connection before its answer was whole")

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self.pieces()])


@contextlib.asynccontextmanager
async def request(
    transport: Transport,
    method: str,
    target: str,
    *,
    body: bytes = b"",
) -> AsyncIterator[DaemonAnswer]:
    """Send a request on a connection of its own, which is closed when the block ends.

    Args:
        transport: knows the address and who asks.
        method: of HTTP.
        target: path and query.
        body: JSON; empty for none.

    Raises:
        DaemonUnavailableError: no daemon answers there in time, or not to this user.
        InputError: the token file cannot be read.
    """
    connection = await _connected(transport)
    try:
        sent = {"Host": "localhost", "Connection": "close", **transport.authorisation()}
        if body:
            sent |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        await connection.send(method, target, sent, body)
        head = await connection.event(ANSWER_S)
        if not isinstance(head, h11.Response):
            raise DaemonUnavailableError("the daemon ended the connection without an answer")
        yield DaemonAnswer(head, connection)
    finally:
        connection.close()


async def _connected(transport: Transport) -> "_DaemonConnection":
    address = transport.address
    try:
        if address.path is not None:
            opening = asyncio.open_unix_connection(str(address.path))
        else:
            opening = asyncio.open_connection(address.host, address.port)
        return _DaemonConnection(*await asyncio.wait_for(opening, ANSWER_S))
    except (OSError, asyncio.TimeoutError) as error:
        raise DaemonUnavailableError(f"no daemon answers at {address}") from error


class _DaemonConnection:
    """HTTP/1.1 on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT)

    async def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        """Send a whole request."""
        request = h11.Request(method=method, target=target, headers=list(headers.items()))
        events = [request, *([h11.Data(data=body)] if body else []), h11.EndOfMessage()]
        for event in events:
            self._writer.write(self._http.send(event) or b"")
        with contextlib.suppress(ConnectionError):  # refused before all was sent: its answer is there
            await self._writer.drain()

    async def event(self, patience_s: float) -> object:
        """The next event of the answer.

        Raises:
            DaemonUnavailableError: none comes in time, or what comes is no HTTP.
        """
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                read = self._reader.read(_READ_BYTES)
                self._http.receive_data(await asyncio.wait_for(read, patience_s))
        except (OSError, asyncio.TimeoutError, h11.RemoteProtocolError) as error:
            raise DaemonUnavailableError(
                f"the daemon does not answer: {str(error) or type(error).__name__}"
            ) from error
        return event

    def close(self) -> None:
        """Close at once."""
        self._writer.transport.abort()


# --- The daemon's stream of everything for one browser, which outlives the daemon.

_PAUSE_S = 0.2  # before the first attempt to find the daemon again ...
_LONGEST_PAUSE_S = 2.0  # ... and, doubling, at most
_END = b"\n\n"
_ID = b"id: "
_OK = 200


async def live_stream(transport: Transport, position: str, *, power: bool) -> AsyncGenerator[bytes, None]:
    """Whole events of the daemon; ``away`` says that it cannot be reached, and why.

    A daemon that comes back is asked for what was missed.

    Args:
        transport: to the daemon.
        position: of the last event that the browser has; empty for none.
        power: have the power of the devices sampled.
    """
    pause_s = _PAUSE_S
    while True:
        query = urlencode({"power": "true" if power else "false", "after": position})
        try:
            async with request(transport, "GET", f"/v1/events?{query}") as answer:
                if answer.status == _OK:
                    async for event in _whole(answer):
                        pause_s = _PAUSE_S
                        position = _place(event) or position
                        yield event
                    why = "it has stopped"
                else:
                    why = _message(await answer.body())
        except TunerError as error:
            why = str(error)
        yield b"event: away\ndata: %s\n\n" % json.dumps({"message": why}).encode()
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


async def until_closed(
    events: AsyncGenerator[bytes, None], closing: asyncio.Event
) -> AsyncGenerator[bytes, None]:
    """Events until there are no more, or the server closes."""
    closed = asyncio.ensure_future(closing.wait())
    coming: asyncio.Future[Any] = closed
    try:
        while not closing.is_set():
            coming = asyncio.ensure_future(anext(events, b""))
            await asyncio.wait({coming, closed}, return_when=asyncio.FIRST_COMPLETED)
            if not (coming.done() and coming.result()):
                return
            yield coming.result()
    finally:
        closed.cancel()
        coming.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await coming
        await events.aclose()


async def _whole(answer: DaemonAnswer) -> AsyncIterator[bytes]:
    """Events of a stream; one that its end cuts off is dropped."""
    begun = b""
    async for piece in answer.pieces():
        *events, begun = (begun + piece).split(_END)
        for event in events:
            yield event + _END


def _place(event: bytes) -> str:
    """The place of an event; empty where it has none."""
    first = event.split(b"\n", 1)[0]
    return first.removeprefix(_ID).decode() if first.startswith(_ID) else ""


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return "it gives no answer that can be understood"


# --- The secrets of one ``tuner open``: a link that is used once, a cookie, and a word that writes repeat.

_BYTES = 32
CSRF_HEADER = b"x-tuner-csrf"


class Session:
    """Browser session that has opened the link of this ``tuner open``.

    Args:
        port: of the page; cookies do not tell ports apart, so that its name does.

    Attributes:
        link: the word in the link.
        csrf: the word that writes repeat in a header, which no other site can send.
    """

    def __init__(self, port: int) -> None:
        self.link = secrets.token_urlsafe(_BYTES)
        self.csrf = secrets.token_urlsafe(_BYTES)
        self._name = f"tuner-{port}"
        self._cookie = secrets.token_urlsafe(_BYTES)
        self._used = False

    def enter(self, word: str) -> str | None:
        """The Set-Cookie header for whoever opens the link first; None for a wrong or used one."""
        if not same(word, self.link) or self._used:
            return None
        self._used = True
        return f"{self._name}={self._cookie}; HttpOnly; SameSite=Strict; Path=/"

    def known(self, header: bytes) -> bool:
        """True for the Cookie header of whoever has opened the link."""
        try:
            cookies = SimpleCookie(header.decode("latin-1"))
        except CookieError:
            return False
        return self._name in cookies and same(cookies[self._name].value, self._cookie)

    def may_write(self, header: bytes) -> bool:
        """True for the CSRF header that the page sends."""
        return same(header.decode("latin-1"), self.csrf)


def same(secret: str, other: str) -> bool:
    """Return True if two secrets are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(secret.encode(), other.encode())


# --- Requests that are refused: of other sites, and without the secrets.

_LOCAL = re.compile(rb"(localhost|127\.0\.0\.1)(:[0-9]{1,5})?", re.IGNORECASE)
_OWN_SITES = (b"none", b"same-origin")
_JSON = re.compile(rb"application/json(; *charset=utf-8)?", re.IGNORECASE)

Headers = Mapping[bytes, bytes]


@dataclass(frozen=True)
class Refusal:
    """Refusal of a request.

    Attributes:
        status: of HTTP.
        message: what is wrong and what would be right.
    """

    status: int
    message: str


def refusal_of_site(headers: Headers) -> Refusal | None:
    """Return the refusal of a request from another site; None for this site.

    The port may be another one, as where the page is reached through ``ssh -L``.
    """
    if not _LOCAL.fullmatch(headers.get(b"host", b"")):
        return Refusal(403, "the Host header must be localhost or 127.0.0.1")
    if headers.get(b"sec-fetch-site", b"none").lower() not in _OWN_SITES:
        return Refusal(403, "another site asks (Sec-Fetch-Site)")
    if b"origin" in headers and not _own_origin(headers):
        return Refusal(403, "another site asks (Origin)")
    return None


def refusal_to_read(headers: Headers, session: Session) -> Refusal | None:
    """Return the refusal of a request to read; None if it may."""
    refusal = refusal_of_site(headers)
    if refusal is None and not session.known(headers.get(b"cookie", b"")):
        refusal = Refusal(401, "open the link that `tuner open` has printed")
    return refusal


def refusal_to_write(headers: Headers, session: Session) -> Refusal | None:
    """Return the refusal of a request to change anything; None if it may."""
    refusal = refusal_to_read(headers, session)
    if refusal is not None:
        return refusal
    if not _own_origin(headers):
        return Refusal(403, "a change needs the Origin header of this page")
    if not session.may_write(headers.get(CSRF_HEADER, b"")):
        return Refusal(403, "a change needs the header X-Tuner-CSRF with the word of this page")
    if not _JSON.fullmatch(headers.get(b"content-type", b"")):
        return Refusal(415, "a change is JSON: send Content-Type: application/json")
    return None


def _own_origin(headers: Headers) -> bool:
    return headers.get(b"origin", b"").lower() == b"http://" + headers.get(b"host", b"").lower()


# --- Which user is at the other end of a connection over the loopback, by the kernel's table of TCP sockets.
#
# Cookies do not tell ports apart: a page that another user of this machine serves on the loopback would be
# sent the cookie of ours. With the user known, the cookie alone is of no use to anybody else.

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOCAL_COLUMN, _REMOTE_COLUMN, _STATE_COLUMN, _UID_COLUMN = 1, 2, 3, 7  # columns, see proc_pid_net(5)
_ESTABLISHED = "01"
_MAPPED = (
    "0000000000000000FFFF0000"  # before an IPv4 address of a socket that takes both, in the second table
)


def is_another_user(
    client: tuple[str, int], server: tuple[str, int], tables: Sequence[Path] = TABLES
) -> bool:
    """False for a client of this process's user, or of root, that is still there.

    A socket that nobody holds any more is told as root's, or not at all, whoever had it: who has closed it is
    taken for another user. Where the kernel has no tables, everybody is this user.

    Args:
        client: address and port of the client's end, IPv4.
        server: those of this end.
        tables: of TCP sockets.
    """
    ends = [_hex(*client), _hex(*server)]
    lines = list[str]()
    for table in tables:
        with suppress(OSError, ValueError):
            lines += table.read_text("ascii").splitlines()[1:]
    for line in lines:
        fields = line.split()
        if [
            fields[_LOCAL_COLUMN].removeprefix(_MAPPED),
            fields[_REMOTE_COLUMN].removeprefix(_MAPPED),
        ] == ends:
            gone = fields[_STATE_COLUMN] != _ESTABLISHED and int(fields[_UID_COLUMN]) == 0
            return gone or int(fields[_UID_COLUMN]) not in (0, os.geteuid())
    return any(table.exists() for table in tables)


def _hex(host: str, port: int) -> str:
    """An address as the table has it: the bytes of a little-endian machine reversed, then the port."""
    number = int.from_bytes(bytes(map(int, host.split("."))), "little")
    return f"{number:08X}:{port:04X}"
