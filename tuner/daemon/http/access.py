"""Access to the HTTP interface: who may ask, how often and how much.

The kernel names the process at the other end of a Unix socket. Over TCP a token decides. Web pages
are refused on both, whoever's browser shows them.
"""

import asyncio
import contextlib
import logging
import math
import os
import pwd
import re
import socket
import struct
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.daemon.http.responses import error_answer, internal_answer
from tuner.daemon.interface import Peer, User
from tuner.daemon.settings import LimitsTable
from tuner.daemon.tokens import Tokens
from tuner.system.logs import LogRateLimiter
from tuner.system.threads import is_shortage

# --- Requests of web pages are refused: no page is served here, so that each of them comes from another site.
#
# A browser reaches the daemon through a forwarded socket (``ssh -L``) or a proxy as it reaches the loopback.
# It sends ``Origin`` with every request that is no plain GET of its own site, and ``Sec-Fetch-Site`` with all
# (Fetch Metadata, W3C). ``Host`` is the name that the page knows the daemon by, also where DNS has rebound
# that name to the loopback.

_LOCAL = re.compile(rb"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_OWN_SITES = (b"none", b"same-origin")  # typed by the user, or by a page of the daemon under a local name


def cross_site_fault(headers: Mapping[bytes, bytes]) -> str:
    """Return the reason that a request may come from a web page of another site; empty if it cannot.

    Args:
        headers: by their names in lower case.
    """
    if not _LOCAL.fullmatch(headers.get(b"host", b"")):
        return "the Host header must be localhost, 127.0.0.1 or [::1]"
    if b"origin" in headers:
        return "web pages may not ask: send no Origin header"
    if headers.get(b"sec-fetch-site", b"none").strip().lower() not in _OWN_SITES:
        return "web pages of other sites may not ask (Sec-Fetch-Site)"
    return ""


# --- Requests per second of each user.

_MOST_USERS = 1024  # remembered; those who have not asked for a second have nothing to remember


class UserRateLimiter:
    """Requests per second of each user: a bucket of one second's requests that fills steadily."""

    def __init__(self, per_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._room = max(1.0, per_s)
        self._now = now
        self._buckets: dict[Hashable, tuple[float, float]] = {}  # user -> requests left, and when

    def wait_s(self, user: Hashable) -> float:
        """Count a request: 0 where it may pass, else how long the user has to wait in seconds."""
        now_s = self._now()
        tokens, then_s = self._buckets.get(user, (self._room, now_s))
        tokens = min(self._room, tokens + (now_s - then_s) * self._per_s)
        if tokens < 1.0:
            self._buckets[user] = tokens, now_s
            return (1.0 - tokens) / self._per_s
        if len(self._buckets) >= _MOST_USERS:
            self._forget(now_s)
        self._buckets[user] = tokens - 1.0, now_s
        return 0.0

    def _forget(self, now_s: float) -> None:
        """Drop the users whose buckets are full again."""
        full_after_s = self._room / self._per_s
        self._buckets = {
            user: bucket for user, bucket in self._buckets.items() if now_s - bucket[1] < full_after_s
        }


# --- Who is at the other end of a connection, and the gate that all requests pass.

ANSWER_TIMEOUT_S = 30.0  # far above what a busy database takes; beyond it something hangs
_HEALTH = frozenset({"/healthz", "/readyz"})
_BEARER = b"bearer "
_COME_BACK = {"retry-after": "1"}  # seconds
_TOLD_EVERY_S = 10.0  # in the log
_LOOK_S = 2.0  # whether a stream's token still counts
_LONGEST_PATH = 200  # characters of it in the log
_CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7)
_SO_PEERGROUPS = 59  # of asm-generic/socket.h; Python has no name for it
_GROUPS_BYTES = 1024  # the most that Python asks the kernel for; whoever is in more than 256 is looked up
_GID = struct.Struct("I")
_OVERFLOW_ID = 65_534  # what the kernel shows of whom this user namespace does not know: it can be anybody
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Caller:
    """Caller at the other end of a connection.

    Attributes:
        peer: user and process; of TCP, nobody that can be told.
        admitted: whether the kernel's word is enough; if not, a token decides (TCP) or nothing does (Unix).
        tcp: whether the connection came over the loopback.
    """

    peer: Peer
    admitted: bool
    tcp: bool

    def __str__(self) -> str:
        if self.tcp:
            return f"the holder of token {self.peer.token}" if self.peer.token else "somebody on the loopback"
        return f"user {self.peer.uid}, process {self.peer.pid}"


def caller_of(connection: socket.socket, group: int | None) -> Caller:
    """Identify the caller of a connection, and check its permission.

    Besides the mode of the socket, which may have been changed by mistake: only root, the daemon's own user
    and members of the socket's group are admitted.

    Args:
        connection: a connected socket.
        group: id of the group that owns the Unix socket; None where it has none.
    """
    if connection.family != socket.AF_UNIX:
        return Caller(Peer(), admitted=False, tcp=True)
    size = _CREDENTIALS.size
    pid, uid, gid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    admitted = uid in (0, os.geteuid()) or (
        group is not None and group != _OVERFLOW_ID and (group == gid or group in _groups(connection, uid))
    )
    return Caller(Peer(uid=uid, pid=pid), admitted=admitted, tcp=False)


def _groups(connection: socket.socket, uid: int) -> set[int]:
    """Supplementary groups: those of the process where the kernel tells them, else those of its user."""
    with contextlib.suppress(OSError):
        packed = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
        return {gid for (gid,) in _GID.iter_unpack(packed)}
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return set()
    return set(os.getgrouplist(user.pw_name, user.pw_gid))


def group_of(listener: socket.socket) -> int | None:
    """Id of the group that owns the file of a listening Unix socket; None where there is no such file."""
    name = listener.getsockname()
    if listener.family != socket.AF_UNIX or not isinstance(name, str) or not name:
        return None
    try:
        return Path(name).stat().st_gid
    except OSError:
        return None


class _DisconnectError(Exception):
    """The client left before its request was whole."""


class _TooLargeError(Exception):
    """A body has more bytes than it may."""


def _refusal_of_stranger(caller: Caller, authenticated: Callable[[User], bool] | None) -> Response | None:
    """Over TCP anybody on the machine can come: the token decides."""
    if caller.peer.token:
        if authenticated is None or authenticated(caller.peer.user):  # None of a scope without a connection
            return None
        return error_answer(429, "too many connections", headers=_COME_BACK)
    challenge = {"www-authenticate": "Bearer"}
    message = "send the header 'Authorization: Bearer TOKEN', with one of `tuner token`"
    return error_answer(401, message, headers=challenge)


class Gate:
    """Answers what must not pass, and hands the rest to the application with its body whole.

    Args:
        app: what is behind the gate.
        limits: bytes of a body, requests per second.
        tokens: that open the gate for those who come over the loopback; None where nobody does.
        open_health: probes of health need no token.
        answer_timeout_s: longest wait for an answer to begin.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: LimitsTable,
        *,
        tokens: Tokens | None = None,
        open_health: bool = False,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self._app = app
        self._body_bytes = limits.body_bytes
        self._rate = UserRateLimiter(limits.requests_per_s)
        self._tokens = tokens or Tokens()
        self._open = _HEALTH if open_health else frozenset[str]()
        self._answer_timeout_s = answer_timeout_s
        self._short = LogRateLimiter(_TOLD_EVERY_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of HTTP; nothing else is offered."""
        caller: Caller = scope["state"]["caller"]
        headers = dict(scope["headers"])
        if _LOG.isEnabledFor(logging.DEBUG):
            path = scope["raw_path"][:_LONGEST_PATH].decode("ascii", "replace")
            _LOG.debug("%s %s by %s", scope["method"], path, caller)
        refusal = self._refusal(caller, headers, scope)
        has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
        try:
            if refusal is None and has_body:
                receive = await self._whole(headers, receive)
        except _TooLargeError:
            refusal = error_answer(413, f"a request has at most {self._body_bytes} bytes of body")
        except _DisconnectError:
            return
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if scope["state"]["caller"].peer.token:
            receive = self._while_it_counts(headers, receive)
        await self._timed(scope, receive, send)

    def _refusal(self, caller: Caller, headers: dict[bytes, bytes], scope: Scope) -> Response | None:
        """The answer to who must not pass; None for who may."""
        fault = cross_site_fault(headers)
        if fault:
            return error_answer(403, fault)
        if caller.tcp:
            caller = replace(caller, peer=Peer(token=self._token_of(headers)))
            scope["state"]["caller"] = caller
            refusal = _refusal_of_stranger(caller, scope["state"].get("authenticated"))
            if refusal is not None and scope["path"] not in self._open:
                return refusal
        elif not caller.admitted:
            return error_answer(403, "only root, the daemon's user and the socket's group may ask")
        wait_s = self._rate.wait_s(caller.peer.user)
        if wait_s > 0.0:
            retry = {"retry-after": str(math.ceil(wait_s))}
            return error_answer(429, "too many requests of one user in a second", headers=retry)
        return None

    def _token_of(self, headers: dict[bytes, bytes]) -> str:
        """Name of the token that a request shows; empty where it shows none that counts."""
        sent = headers.get(b"authorization", b"")
        bearer = sent[: len(_BEARER)].lower() == _BEARER
        return (self._tokens.holder(sent[len(_BEARER) :].strip()) or "") if bearer else ""

    def _while_it_counts(self, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        """End what is told for long, such as a stream, when its token is revoked or ends."""

        async def next_message() -> Message:
            coming = asyncio.ensure_future(receive())
            try:
                while not (await asyncio.wait({coming}, timeout=_LOOK_S))[0]:
                    if not self._token_of(headers):
                        return {"type": "http.disconnect"}
                return coming.result()
            finally:
                coming.cancel()

        return next_message

    async def _whole(self, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        """The body of a request, as one message.

        Raises:
            _TooLargeError: it has more bytes than it may.
            _DisconnectError: the client left.
        """
        announced = headers.get(b"content-length", b"0")
        if int(announced) > self._body_bytes:
            raise _TooLargeError
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _DisconnectError
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._body_bytes:
                raise _TooLargeError
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
            if not is_shortage(error):
                _LOG.exception("%s %s", scope["method"], scope["path"][:_LONGEST_PATH])
            elif times := self._short.times():
                _LOG.error("%d requests could not be answered: %s", times, str(error) or type(error).__name__)
            await internal_answer(error)(scope, receive, send)
        finally:
            timer.cancel()
