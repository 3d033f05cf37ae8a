"""``GET /v1/best`` past the framework, whose layers take longer than the answer; the contract is the same."""

from typing import Any
from urllib.parse import parse_qsl

from pydantic import ValidationError
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tuner.daemon.api.encoding import encode
from tuner.daemon.api.errors import invalid_answer, refusal_answer
from tuner.daemon.api.models import BestQuery, reply_document
from tuner.daemon.interface import Peer, ServiceInterface
from tuner.errors import TunerError

PATH = "/v1/best"


class Shortcut:
    """Answers what is asked hundreds of times a second, and hands the rest on.

    Args:
        app: the application, which publishes the route and its errors.
        desk: what answers.
    """

    def __init__(self, app: ASGIApp, desk: ServiceInterface) -> None:
        self._app = app
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["path"] != PATH or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        await best_answer(self._desk, scope["query_string"], scope["state"]["caller"].peer)(
            scope, receive, send
        )


def best_answer(desk: ServiceInterface, query: bytes, peer: Peer) -> Response:
    """The answer to a question, or the error that it is."""
    try:
        reply = desk.best(BestQuery.model_validate(_words(query)).question(), peer)
    except ValidationError as error:
        return invalid_answer([{**fault, "loc": ("query", *fault["loc"])} for fault in error.errors()])
    except TunerError as error:
        return refusal_answer(error)
    return Response(encode(reply_document(reply)), media_type="application/json")


def _words(query: bytes) -> dict[str, Any]:
    """What a query string says; of what is said twice the last counts, but workloads are many."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    words: dict[str, Any] = dict(pairs)
    if "workload" in words:
        words["workload"] = [value for name, value in pairs if name == "workload"]
    return words
