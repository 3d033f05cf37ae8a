"""Error responses, and the endpoints that are plain ASGI.

The message names what is wrong in a request and what would be right.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from tuner.daemon.http.api_models import BestQuery
from tuner.daemon.interface import (
    NoSuchJobError,
    NoSuchRunError,
    NotYoursError,
    Peer,
    stream_text,
)
from tuner.daemon.settings import bound
from tuner.model.errors import InputError, StoreError, TunerError
from tuner.model.jobs import Event
from tuner.model.options import OPTIONS, Text
from tuner.system.threads import is_shortage

if TYPE_CHECKING:
    from tuner.daemon.service import Service


_LONGEST_MESSAGE = 1000  # characters; what a client sent must not come back at any length
_FAULTS_NAMED = 5  # of a request that is wrong in many places
_RETRY_S = 1  # a database that is locked is free again after about so long
_NO_BODY = 400  # said by the framework of nothing else
_NO_PATH = 404
_WRONG_METHOD = 405
_LONGEST_METHOD = 20  # characters of it in a message
BUSY = "the daemon has too few threads, files or too little memory just now"
_KINDS = {
    400: "input",
    401: "unauthorised",
    403: "unauthorised",
    404: "unknown-path",
    405: "wrong-method",
    413: "too-large",
    422: "input",
    429: "too-many",
}
_WORKLOAD = "must be a kernel and its sizes in ASCII without spaces, e.g. scan-lf:N=1024"
_FORMS = {
    "workload": _WORKLOAD,
    "workloads": _WORKLOAD,
    "device": "must be cuda:N or sim:NAME, e.g. cuda:0, or empty; of a job also kind:MODEL[@DRIVER] or any",
    "last-event-id": "must be the id of an event of this stream",
    **{name: f"must be {option.form}" for name, option in OPTIONS.items() if isinstance(option.form, Text)},
}
"""By field, what a text must be."""

_TEXTS = ("string_pattern_mismatch", "string_too_short")
_LENGTHS = {
    "string_too_long": "must be of at most {max_length} characters",
    "too_long": "must hold at most {max_length}",
    "too_short": "must hold at least {min_length}",
}
_SIMPLE = {
    "missing": "is needed",
    "extra_forbidden": "is not known here; /openapi.json lists what is",
    "string_type": "must be text",
    "string_unicode": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "has too many digits",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "json_invalid": "is no JSON",
}


def error_body(kind: str, message: str) -> bytes:
    """The JSON of an error; in ASCII, so that no text can break it."""
    return json.dumps({"error": {"kind": kind, "message": message[:_LONGEST_MESSAGE]}}).encode("ascii")


def error_answer(
    status: int, message: str, *, kind: str | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """An error as an answer.

    Args:
        status: of HTTP.
        message: for people; what is wrong and what would be right.
        kind: what clients tell errors apart by; None for that of the status.
        headers: more of them.
    """
    body = error_body(kind or _KINDS.get(status, "input"), message)
    return Response(body, status, headers=dict(headers or {}), media_type="application/json")


def answer_errors(app: FastAPI) -> None:
    """Have an application answer every error in our shape."""
    app.add_exception_handler(TunerError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(Exception, _unexpected)


async def _refused(_: Request, error: Exception) -> Response:
    return refusal_answer(error)


def refusal_answer(error: Exception) -> Response:
    """The answer to what the service does not do."""
    if isinstance(error, StoreError):  # told in the log once, not for each who asks
        retry = {"retry-after": str(_RETRY_S)}
        return error_answer(503, f"the database cannot be used: {error}", kind="store", headers=retry)
    if isinstance(error, InputError):
        return error_answer(400, str(error))
    if isinstance(error, NoSuchJobError):
        return error_answer(404, str(error), kind="unknown-job")
    if isinstance(error, NoSuchRunError):
        return error_answer(404, str(error), kind="unknown-run")
    if isinstance(error, NotYoursError):
        return error_answer(403, str(error), kind="not-yours")
    return error_answer(409, str(error), kind="not-now")


async def _invalid(_: Request, error: Exception) -> Response:
    return invalid_answer(error.errors() if isinstance(error, RequestValidationError) else [])


def invalid_answer(faults: Sequence[ErrorDetails]) -> Response:
    """The answer to a request that is not as documented; faults are as pydantic tells them."""
    named = [worded(fault) for fault in faults[:_FAULTS_NAMED]]
    more = len(faults) - len(named)
    return error_answer(422, "; ".join(named) + (f"; and {more} more" if more > 0 else ""))


async def _of_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):  # Starlette's table of handlers is typed for any exception
        raise error
    if error.status_code == _WRONG_METHOD:
        # of all routes of the path: the framework names only the methods of the first
        routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
        allowed = ", ".join(sorted({method for route in routes for method in route.methods}))
        text = f"this path takes {allowed}, not {request.method[:_LONGEST_METHOD]}"
        return error_answer(_WRONG_METHOD, text, headers={"allow": allowed})
    texts = {_NO_PATH: "no such path; see /openapi.json", _NO_BODY: "the body is no JSON that can be read"}
    text = texts.get(error.status_code) or str(error.detail)
    return error_answer(error.status_code, text, headers=error.headers)


async def _unexpected(_: Request, error: Exception) -> Response:
    return internal_answer(error)


def internal_answer(error: Exception) -> Response:
    """The answer where the daemon is at fault; what happened is for its log."""
    if is_shortage(error):
        return error_answer(503, BUSY, kind="busy", headers={"retry-after": str(_RETRY_S)})
    text = f"the daemon failed, and its log tells how: {type(error).__name__}"
    return error_answer(500, text, kind="internal")


def worded(fault: ErrorDetails) -> str:
    """Return the place of a fault and its correction; the value itself is not repeated.

    Args:
        fault: of ``ValidationError.errors()``, its place beginning with the part of the request.
    """
    source, *rest = fault["loc"]
    if fault["type"] == "json_invalid":  # what follows is a count of characters
        rest = []
    fields = [part for part in rest if isinstance(part, str)]
    return f"{'.'.join(str(part)[:64] for part in rest) or source}: {_right(fields[-1:], fault)}"


def _right(field: list[str], fault: ErrorDetails) -> str:
    kind, context = fault["type"], fault.get("ctx") or {}
    if kind in _TEXTS and field and field[0] in _FORMS:
        return _FORMS[field[0]]
    if kind in _LENGTHS:
        return _LENGTHS[kind].format(**context)
    if kind == "literal_error":
        return f"must be one of {context['expected'].replace(chr(39), '').replace(' or ', ', ')}"
    if kind == "model_attributes_type" and isinstance(fault.get("input"), str | bytes):
        return "must be an object, and sent with Content-Type: application/json"
    return bound(kind, context) or _SIMPLE.get(kind) or str(fault["msg"])


# --- The endpoints that are plain ASGI: the best configurations, and the events of a job.

E = TypeVar("E")
BEST_PATH = "/v1/best"
KEEP_ALIVE_S = 15.0  # proxies and clients close what is silent for a minute or less
_STREAM_HEADERS = {"cache-control": "no-store", "content-type": "text/event-stream; charset=utf-8"}


class BestEndpoint:
    """Answers ``GET /v1/best``, which is asked hundreds of times a second.

    The layers of the framework take longer than the answer. Called as an application, it answers this
    request itself and hands all others on.
    """

    def __init__(self, service: "Service", others: ASGIApp) -> None:
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


def _parameters(query: bytes) -> dict[str, str | list[str]]:
    """The parameters of a query string; the last of several counts, but workloads are a list."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    parameters = dict[str, str | list[str]](pairs)
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
        coming: asyncio.Future[E | None] = asyncio.ensure_future(anext(self._events, None))
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
                    coming = asyncio.ensure_future(anext(self._events, None))
                message = {"type": "http.response.body", "body": text, "more_body": True}
                await send(message)  # as slowly as the client reads; the connection has a deadline for that
        finally:
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await coming
            if (close := getattr(self._events, "aclose", None)) is not None:
                await close()


async def _left(receive: Receive) -> None:
    """Wait until the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass


def event_text(event: Event) -> bytes:
    """An event of a job as the stream has it; progress that is not stored has no id to go on from."""
    body = {"id": event.id, "job": event.job, "kind": event.kind, "at": event.at, "data": event.data}
    return stream_text(event.kind, body, "" if event.id is None else event.id)
