"""The first thing that a request meets: who asks, how often, how much, and for how long."""

import asyncio
import hmac
import logging
import math
import re
import time
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.daemon.api.callers import Caller, Rate
from tuner.daemon.api.errors import error_answer, internal_answer
from tuner.daemon.settings.tables import LimitsTable

ANSWER_TIMEOUT_S = 30.0  # far above what a busy database takes; beyond it something hangs
_LOCAL = re.compile(rb"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_BEARER = b"bearer "
_LONGEST_PATH = 200  # characters of it in the log
_LOG = logging.getLogger(__name__)


class _Gone(Exception):  # noqa: N818 - nothing is wrong, somebody left
    """The client left before its request was whole."""


class Gate:
    """Answers what must not pass, and hands the rest to the application with its body whole.

    Args:
        app: what is behind the gate.
        limits: bytes of a body, requests per second.
        token: what opens the gate for those who come over the loopback; None where nobody does.
        answer_timeout_s: longest wait for an answer to begin.
        now: monotonic clock in seconds.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: LimitsTable,
        *,
        token: str | None = None,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._body_bytes = limits.body_bytes
        self._rate = Rate(limits.requests_per_s, now)
        self._token = None if token is None else token.encode()
        self._answer_timeout_s = answer_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of HTTP; nothing else is offered."""
        caller: Caller = scope["state"]["caller"]
        headers = dict(scope["headers"])
        if _LOG.isEnabledFor(logging.DEBUG):
            path = scope["raw_path"][:_LONGEST_PATH].decode("ascii", "replace")
            _LOG.debug("%s %s by %s", scope["method"], path, caller)
        refusal = self._refusal(caller, headers)
        try:
            if refusal is None and _has_body(headers):
                receive = await self._whole(headers, receive)
        except _TooLargeError as error:
            refusal = error_answer(413, str(error))
        except _Gone:
            return
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._timed(scope, receive, send)

    def _refusal(self, caller: Caller, headers: dict[bytes, bytes]) -> Response | None:
        """The answer to who must not pass; None for who may."""
        if caller.tcp:
            refusal = self._refusal_of_stranger(headers)
            if refusal is not None:
                return refusal
        elif not caller.admitted:
            return error_answer(403, "only root, the daemon's user and the socket's group may ask")
        wait_s = self._rate.wait_s(caller.peer.uid)
        if wait_s > 0.0:
            retry = {"retry-after": str(math.ceil(wait_s))}
            return error_answer(429, "too many requests of one user in a second", headers=retry)
        return None

    def _refusal_of_stranger(self, headers: dict[bytes, bytes]) -> Response | None:
        """Over TCP anybody on the machine can come, and a browser too: host and token decide."""
        if not _LOCAL.fullmatch(headers.get(b"host", b"")):
            return error_answer(403, "the Host header must be localhost, 127.0.0.1 or [::1]")
        given = headers.get(b"authorization", b"")
        bearer = given[: len(_BEARER)].lower() == _BEARER
        known = self._token is not None and hmac.compare_digest(given[len(_BEARER) :].strip(), self._token)
        if bearer and known:
            return None
        challenge = {"www-authenticate": "Bearer"}
        return error_answer(401, "send the header 'Authorization: Bearer TOKEN'", headers=challenge)

    async def _whole(self, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        """The body of a request, as one message.

        Raises:
            _TooLargeError: it has more bytes than it may.
            _Gone: the client left.
        """
        announced = headers.get(b"content-length", b"0")
        if int(announced) > self._body_bytes:
            raise _TooLargeError(self._body_bytes)
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._body_bytes:
                raise _TooLargeError(self._body_bytes)
        first: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Message:
            return first.pop() if first else await receive()

        return replay

    async def _timed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application begin its answer in time; a stream that has begun may go on."""
        task = asyncio.current_task()
        begun = late = False

        def give_up() -> None:
            nonlocal late
            late = True
            if task is not None:
                task.cancel()

        timer = asyncio.get_running_loop().call_later(self._answer_timeout_s, give_up)

        async def begin(message: Message) -> None:
            nonlocal begun
            begun = True
            timer.cancel()
            await send(message)

        try:
            await self._app(scope, receive, begin)
        except asyncio.CancelledError:
            if not late or begun:
                raise
            _LOG.error("no answer to %s %s in time", scope["method"], scope["path"][:_LONGEST_PATH])
            late_answer = error_answer(
                503, "the daemon is too busy to answer in time", kind="store", headers={"retry-after": "1"}
            )
            await late_answer(scope, receive, send)
        except Exception as error:
            if begun:  # nothing else can be said any more; the server closes and logs
                raise
            _LOG.exception("%s %s", scope["method"], scope["path"][:_LONGEST_PATH])
            await internal_answer(error)(scope, receive, send)
        finally:
            timer.cancel()


class _TooLargeError(Exception):
    """A body has more bytes than it may."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"a request has at most {most_bytes} bytes of body")


def _has_body(headers: dict[bytes, bytes]) -> bool:
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
