"""JSON of answers: fast, and never at a loss.

Server-sent events of a job: what happened, then what happens, until it ends.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tuner.daemon.api.models import event_document
from tuner.model.jobs import JobEvent

KEEP_ALIVE_S = 15.0  # proxies and clients close what is silent for a minute or less
_HEADERS = {"cache-control": "no-store", "content-type": "text/event-stream; charset=utf-8"}


def encode(document: object) -> bytes:
    """JSON of a document; infinity and what is no number become null, as JSON has neither."""
    try:
        return to_json(document, inf_nan_mode="null", fallback=_plain)
    except (PydanticSerializationError, UnicodeError):
        return to_json(_clean(document), inf_nan_mode="null", fallback=_plain)


def _plain(value: object) -> object:
    """What JSON has instead of a value it does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    return str(value)


def _clean(value: object) -> Any:  # noqa: ANN401 - whatever was in the document
    """The same without halves of characters, which names of files may hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Enum):
        return _clean(value.value)
    if isinstance(value, Path):
        return _clean(str(value))
    if isinstance(value, Mapping):
        return {_clean(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean(item) for item in value]
    return value


class EventStream(Response):
    """Sends events as they come, and a comment when none came for a while.

    Args:
        events: what is told; it is closed when the stream ends, however that is.
        closing: set when the daemon stops.
        done: called once, when the stream has ended.
        keep_alive_s: longest silence.
    """

    def __init__(
        self,
        events: AsyncIterator[JobEvent],
        closing: asyncio.Event,
        done: Callable[[], None],
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._events = events
        self._closing = closing
        self._done = done
        self._keep_alive_s = keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Serve until the job ends, the client leaves or the daemon stops."""
        ends: set[asyncio.Future[Any]] = {
            asyncio.ensure_future(_left(receive)),
            asyncio.ensure_future(self._closing.wait()),
        }
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._tell(send, ends)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            for end in ends:
                end.cancel()
            self._done()

    async def _tell(self, send: Send, ends: set[asyncio.Future[Any]]) -> None:
        """Send events until there are no more or one of the ends has come."""
        coming: asyncio.Future[JobEvent | None] = asyncio.ensure_future(_following(self._events))
        try:
            while True:
                done, _ = await asyncio.wait(
                    {coming, *ends}, timeout=self._keep_alive_s, return_when=asyncio.FIRST_COMPLETED
                )
                if done & ends:
                    return
                text = b":\n\n"
                if done:
                    event = coming.result()
                    if event is None:
                        return
                    text = event_text(event)
                    coming = asyncio.ensure_future(_following(self._events))
                message = {"type": "http.response.body", "body": text, "more_body": True}
                await send(message)  # as slowly as the client reads; the connection has a deadline for that
        finally:
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await coming
            if (close := getattr(self._events, "aclose", None)) is not None:
                await close()


async def _following(events: AsyncIterator[JobEvent]) -> JobEvent | None:
    """The next event; None after the last."""
    return await anext(events, None)


async def _left(receive: Receive) -> None:
    """Wait until the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass


def event_text(event: JobEvent) -> bytes:
    """An event as the stream has it; progress that is not stored has no id to go on from."""
    number = b"" if event.id is None else b"id: %d\n" % event.id
    # JSON escapes line ends, so that data is one line.
    data = encode(event_document(event))
    return b"%sevent: %s\ndata: %s\n\n" % (number, event.kind.encode(), data)
