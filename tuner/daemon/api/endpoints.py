"""The endpoints that are plain ASGI: the best configurations, and the events of a job."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl

from pydantic import ValidationError
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tuner.daemon.http.models import BestQuery
from tuner.daemon.http.responses import invalid_answer, refusal_answer
from tuner.daemon.interface import FeedEvent, Peer, ServiceInterface, encode
from tuner.daemon.jobs.documents import event_document
from tuner.model.errors import TunerError
from tuner.model.jobs import JobEvent

E = TypeVar("E")
BEST_PATH = "/v1/best"
KEEP_ALIVE_S = 15.0  # proxies and clients close what is silent for a minute or less
_STREAM_HEADERS = {"cache-control": "no-store", "content-type": "text/event-stream; charset=utf-8"}


class BestEndpoint:
    """Answers ``GET /v1/best``, which is asked hundreds of times a second.

    The layers of the framework take longer than the answer. Called as an application, it answers this
    request itself and hands all others on.

    Args:
        service: what answers.
        others: the application for all other requests.
    """

    def __init__(self, service: ServiceInterface, others: ASGIApp) -> None:
        self._service = service
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["path"] != BEST_PATH or scope["method"] != "GET":
            await self._others(scope, receive, send)
            return
        response = self.response(scope["query_string"], scope["state"]["caller"].peer)
        await response(scope, receive, send)

    def response(self, query: bytes, peer: Peer) -> Response:
        """The response to a query string."""
        try:
            question = BestQuery.model_validate(_parameters(query)).question()
            body = self._service.best(question, peer).json
        except ValidationError as error:
            return invalid_answer([{**fault, "loc": ("query", *fault["loc"])} for fault in error.errors()])
        except TunerError as error:
            return refusal_answer(error)
        return Response(body, media_type="application/json")


def _parameters(query: bytes) -> dict[str, Any]:
    """The parameters of a query string; the last of several counts, but workloads are a list."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    parameters: dict[str, Any] = dict(pairs)
    if "workload" in parameters:
        parameters["workload"] = [value for name, value in pairs if name == "workload"]
    return parameters


class EventStream(Response, Generic[E]):
    """Sends events as they come, and a comment when none came for a while.

    Args:
        events: what is told; it is closed when the stream ends, however that is.
        closing: set when the daemon stops.
        done: called once, when the stream has ended.
        text: an event as the stream has it.
        keep_alive_s: longest silence.
    """

    def __init__(
        self,
        events: AsyncIterator[E],
        closing: asyncio.Event,
        done: Callable[[], None],
        text: Callable[[E], bytes],
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        super().__init__(headers=_STREAM_HEADERS)
        del self.headers["content-length"]
        self._events = events
        self._closing = closing
        self._done = done
        self._text = text
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
        coming: asyncio.Future[E | None] = asyncio.ensure_future(_following(self._events))
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
                    text = self._text(event)
                    coming = asyncio.ensure_future(_following(self._events))
                message = {"type": "http.response.body", "body": text, "more_body": True}
                await send(message)  # as slowly as the client reads; the connection has a deadline for that
        finally:
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await coming
            if (close := getattr(self._events, "aclose", None)) is not None:
                await close()


async def _following(events: AsyncIterator[E]) -> E | None:
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


def feed_text(event: FeedEvent) -> bytes:
    """An event of the stream of everything; one without a place to go on from has no id."""
    place = f"id: {event.place}\n" if event.place else ""
    return b"%sevent: %s\ndata: %s\n\n" % (place.encode(), event.kind.encode(), event.body)
