"""The daemon's stream of everything for one browser, which outlives the daemon."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any
from urllib.parse import urlencode

from tuner.client.transport import Transport
from tuner.model.errors import TunerError
from tuner.page.upstream import DaemonAnswer, asked

_PAUSE_S = 0.2  # before the first attempt to find the daemon again ...
_LONGEST_PAUSE_S = 2.0  # ... and, doubling, at most
_END = b"\n\n"
_ID = b"id: "
_OK = 200


async def live_stream(transport: Transport, place: str, *, power: bool) -> AsyncGenerator[bytes, None]:
    """Whole events of the daemon; ``away`` says that it cannot be reached, and why.

    A daemon that comes back is asked for what was missed.

    Args:
        transport: to the daemon.
        place: of the last event that the browser has; empty for none.
        power: have the power of the devices sampled.
    """
    pause_s = _PAUSE_S
    while True:
        query = urlencode({"power": "true" if power else "false", "after": place})
        try:
            async with asked(transport, "GET", f"/v1/events?{query}") as answer:
                if answer.status == _OK:
                    async for event in _whole(answer):
                        pause_s = _PAUSE_S
                        place = _place(event) or place
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
