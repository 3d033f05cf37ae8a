"""Connections: HTTP/1.1 of uvicorn and h11, with a limit to every wait and every length."""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from tuner.daemon.api.access import Caller, caller_of
from tuner.daemon.api.errors import error_body
from tuner.daemon.settings.tables import LimitsTable

SHARE = 0.75  # of all places that one user may hold, so that nobody keeps all others out
HEAD_BYTES = 16_384  # of request line and headers; the longest question takes a quarter of it
_DISCARD_BYTES = 2**20  # beyond a body that was refused: read and dropped, so that the answer arrives
_REFUSED_S = 1.0  # for a connection too many to take its answer
_MOST_REFUSED = 64  # at a time; beyond it the answer is sent and nobody waits until it is taken
_TOLD_EVERY_S = 10.0  # in the log, of what anybody can bring about as often as he likes
_COME_BACK = (("retry-after", "1"),)  # seconds
_SENDING = (h11.IDLE, h11.SEND_RESPONSE)  # states in which an answer can still be begun
_LOG = logging.getLogger(__name__)


class UserSlots:
    """A number of places, of which no user holds all.

    Args:
        count: of places.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._share = max(1, math.floor(count * SHARE))
        self._taken: Counter[Hashable] = Counter()
        self._all = 0

    def __len__(self) -> int:
        return self._all

    def take(self, user: Hashable) -> bool:
        """Take a place; False where there is none for this user."""
        if self._all >= self._count or self._taken[user] >= self._share:
            return False
        self._taken[user] += 1
        self._all += 1
        return True

    def leave(self, user: Hashable) -> None:
        """Give back a place that was taken."""
        self._all -= 1
        self._taken[user] -= 1
        if not self._taken[user]:
            del self._taken[user]


class LogRateLimiter:
    """Says whether something may be told again, so that nobody fills the log.

    Args:
        every_s: at most once in so many seconds.
        now: monotonic clock in seconds.
    """

    def __init__(self, every_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._now = now
        self._told_s = -math.inf
        self._silent = 0

    def times(self) -> int:
        """How often it happened since it was told; 0 where it was told a short while ago."""
        self._silent += 1
        now_s = self._now()
        if now_s - self._told_s < self._every_s:
            return 0
        self._told_s = now_s
        happened, self._silent = self._silent, 0
        return happened


class ServerLimits:
    """What the connections of a server share.

    Attributes:
        places: of connections.
        refusals: of further connections, which are only told that there are too many.
        request_timeout_s: for a request to arrive whole, and for an answer to be taken.
        most_bytes: of a request, with what is read and dropped.
        groups: path of a Unix socket -> the group that owns it.
        crowded: limits the log of connections too many.
        refused: limits the log of users who may not ask.
    """

    def __init__(self, limits: LimitsTable) -> None:
        self.places = UserSlots(limits.connections)
        self.refusals = UserSlots(_MOST_REFUSED)
        self.request_timeout_s = limits.request_timeout_s
        self.most_bytes = HEAD_BYTES + limits.body_bytes + _DISCARD_BYTES
        self.groups: Mapping[str, int | None] = {}
        self.crowded = LogRateLimiter(_TOLD_EVERY_S)
        self.refused = LogRateLimiter(_TOLD_EVERY_S)


class _JoiningTransport(asyncio.Transport):
    """Sends the head of a response together with the first piece of its body.

    Each send wakes the client. On a busy machine, a client that wakes for the head alone takes the
    processor from the server, and the body waits.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:  # type: ignore[override]  # uvicorn writes bytes only
        """Hold the first piece until the second, or the end of this step; send with the second."""
        self._pieces.append(data)
        if len(self._pieces) == 1:
            self._loop.call_soon(self.flush)
        else:
            self.flush()

    def flush(self) -> None:
        """Send what is held."""
        if self._pieces:
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._transport.write(data)

    def write_eof(self) -> None:
        """Send, and end this direction."""
        self.flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Send, and close."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._pieces.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        """As the transport has it."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as asyncio has it
        """As the transport has it."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """As the transport has it."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """As the transport has it."""
        self._transport.resume_reading()


class Connection(H11Protocol):
    """A connection of a client.

    It is answered 429 and closed when there are too many, whatever it asks. It is closed when a request does
    not arrive in time or is far too long, and when an answer is not taken in time. The application finds its
    ``Caller`` in the scope's state.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ServerLimits,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._caller: Caller | None = None  # with a place
        self._deadline: asyncio.TimerHandle | None = None  # for the request that arrives
        self._stalled: asyncio.TimerHandle | None = None  # while the client takes nothing
        self._received_bytes = 0
        self._refused = False
        self._refused_caller: Caller | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Identify the caller, and refuse one too many."""
        super().connection_made(_JoiningTransport(transport, self.loop))
        connection = transport.get_extra_info("socket")
        name = connection.getsockname()
        try:
            caller = caller_of(connection, self._limits.groups.get(name) if isinstance(name, str) else None)
        except OSError:  # gone already
            transport.abort()
            return
        if not self._limits.places.take(caller.peer.uid):
            if times := self._limits.crowded.times():
                _LOG.warning("refused %d connections, the last of %s: there are too many", times, caller)
            self._refuse(caller)
            return
        if not (caller.admitted or caller.tcp) and (times := self._limits.refused.times()):
            _LOG.warning("refused %d connections, the last of %s: not of the socket's group", times, caller)
        self._caller = caller
        self.app_state = {"caller": caller}
        transport.set_write_buffer_limits(high=0)  # so that whatever is not taken at once is noticed
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._request_arrived()
        self.resume_writing()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._caller is not None:
            self._limits.places.leave(self._caller.peer.uid)
            self._caller = None
        if self._refused_caller is not None:
            self._limits.refusals.leave(self._refused_caller.peer.uid)
            self._refused_caller = None

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request."""
        self._received_bytes += len(data)
        if self._received_bytes > self._limits.most_bytes:
            self._end()
            return
        if self._refused:  # read, so that the answer arrives
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """An answer is out: whatever comes next has its own time."""
        self._received_bytes = 0
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, unless an answer has begun, and close."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # the application has nobody to answer any more
            cycle.message_event.set()
        if self.conn.our_state in _SENDING:
            self._answer(400, b"Bad Request", error_body("input", msg))
        self.transport.close()

    def pause_writing(self) -> None:
        """The client does not take what was sent: it has some time."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self._limits.request_timeout_s, self._end)

    def resume_writing(self) -> None:
        """All is taken."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _refuse(self, caller: Caller) -> None:
        """Answer one connection too many, and wait a moment until its client has asked and heard."""
        self._refused = True
        self._answer(429, b"Too Many Requests", error_body("too-many", "too many connections"), *_COME_BACK)
        if not self._limits.refusals.take(caller.peer.uid):
            self.transport.close()
            return
        self._refused_caller = caller
        self.transport.write_eof()
        self._deadline = self.loop.call_later(_REFUSED_S, self._end)

    def _answer(self, status: int, reason: bytes, body: bytes, *more: tuple[str, str]) -> None:
        """Write an error as the last answer."""
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
            *more,
        ]
        answer = h11.Response(status_code=status, headers=headers, reason=reason)
        for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")

    def _should_upgrade(self) -> bool:
        return False  # there is nothing but HTTP/1.1

    def _watch(self) -> None:
        """Have a deadline while a request is on its way, from its first byte to its last."""
        if self.transport.is_closing() or self.conn.their_state is not h11.IDLE:
            arriving = self.conn.their_state is h11.SEND_BODY
        else:
            arriving = bool(self.conn.trailing_data[0])
        if arriving and not self.transport.is_closing():
            self._await_request()
        else:
            self._request_arrived()

    def _await_request(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self._limits.request_timeout_s, self._end)

    def _request_arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self) -> None:
        """Close at once, whatever is under way."""
        self._request_arrived()
        self.transport.abort()
