"""How long requests take, by their routes: of these there are few, whatever paths clients send."""

import re
import time
from collections.abc import Callable

from tuner.daemon.api.asgi import App, Message, Receive, Scope, Send

Observe = Callable[[str, int, float], None]
"""Hears of every answer: route, HTTP status, seconds from the head of the request to that of the answer."""

_NUMBER = re.compile(r"(?<=^/v1/jobs/)[0-9]+")
_ROUTES = frozenset(
    {
        *("/v1/best", "/v1/uses", "/v1/status", "/v1/jobs", "/v1/jobs/{id}", "/metrics", "/openapi.json"),
        *(f"/v1/jobs/{{id}}/{verb}" for verb in ("cancel", "pause", "resume", "events")),
    }
)
_OTHER = "other"


class Timed:
    """Times what an application answers.

    Args:
        app: the application.
        observe: hears of it.
    """

    def __init__(self, app: App, observe: Observe) -> None:
        self._app = app
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        begun_s = time.perf_counter()

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._observe(route(scope["path"]), message["status"], time.perf_counter() - begun_s)
            await send(message)

        await self._app(scope, receive, told)


def route(path: str) -> str:
    """The route of a path; ``other`` for one that there is not."""
    found = _NUMBER.sub("{id}", path)
    return found if found in _ROUTES else _OTHER


def nobody(route: str, status: int, seconds: float) -> None:
    """Where nobody wants to hear of it."""
    del route, status, seconds
