"""Requests to the daemon and its stream, handed on to a browser as they come."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
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
