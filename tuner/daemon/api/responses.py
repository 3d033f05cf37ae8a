"""Responses of the routes, and how the OpenAPI document describes them."""

from collections.abc import Mapping
from typing import Any

from fastapi import Request
from starlette.responses import Response

from tuner.daemon.http.access import Caller
from tuner.daemon.http.models import ErrorAnswer
from tuner.daemon.interface import encode

STREAM: dict[str, Any] = {
    "description": "Events as they come: `id:` of stored ones, `event:` kind, `data:` JSON.",
    "content": {
        "text/event-stream": {
            "schema": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
                "required": ["event", "data"],
            }
        }
    },
}
TEXT: dict[str, Any] = {
    "description": "What Prometheus scrapes.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}
IN_MEMORY = {
    "description": "Counted in memory; stored as soon as the database can be used again.",
    "content": {"application/json": {"schema": {"type": "object"}}},
}
_MEANINGS: Mapping[int, str] = {
    400: "What was asked for is wrong.",
    401: "Over TCP: no token, or a wrong one.",
    403: "This user may not ask, or not change this job, or a web page asks.",
    404: "No such job or run.",
    409: "It cannot be done now.",
    413: "The body is too large.",
    422: "A parameter or the body is not as documented.",
    429: "Too many requests or followers; see Retry-After.",
    503: "The database cannot be used just now; see Retry-After.",
}
_ANY_TIME = (400, 401, 403, 413, 422, 429, 503)


def errors(*more: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route: those of all routes, and further statuses."""
    return {
        status: {"model": ErrorAnswer, "description": _MEANINGS[status]}
        for status in sorted({*_ANY_TIME, *more})
    }


def json_response(document: object, status: int = 200) -> Response:
    """A document as the body of a response."""
    return Response(encode(document), status, media_type="application/json")


def caller_of_request(request: Request) -> Caller:
    """Who made a request."""
    caller: Caller = request.scope["state"]["caller"]
    return caller
