"""Connections: HTTP/1.1 of uvicorn and h11, with a limit to every wait, every length and their number."""

import asyncio
import contextlib
import logging
import math
import os
import re
import resource
import socket
from collections import Counter
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import RequestResponseCycle
from uvicorn.server import ServerState

from tuner.daemon.http.access import Caller, caller_of
from tuner.daemon.http.responses import BUSY, error_body
from tuner.daemon.interface import User
from tuner.daemon.settings import LimitsTable
from tuner.system.logs import LogRateLimiter
from tuner.system.timed_connection import TimedConnection

# --- The head of a request, looked at before it is parsed: its length, and whether there is one way to read
# it.
#
# h11 bounds a head only while it is incomplete, and reads some heads that others in between read differently.
# Such a difference lets a second request hide in the body of a first.

HEAD_BYTES = 16_384
"""Of request line and headers at most; the longest question takes a quarter of it."""

_END = re.compile(rb"\n\r?\n")  # as h11 finds it
_LONE = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_FOLDED = re.compile(rb"\n[ \t]")
_LENGTH = re.compile(rb"\ncontent-length[ \t]*:([^\r\n]*)", re.IGNORECASE)
_CODING = re.compile(rb"\ntransfer-encoding[ \t]*:", re.IGNORECASE)


HeadFault = tuple[int, bytes, str]
"""Refusal of a request before it is parsed: status, its phrase, and what would be right."""

_TOO_LONG: HeadFault = (
    431,
    b"Request Header Fields Too Large",
    f"request line and headers have at most {HEAD_BYTES} bytes together",
)


def head_fault(received: bytes) -> HeadFault | None:
    """Return the fault in the head at the beginning of the received bytes; None for no fault, or not yet."""
    end = _END.search(received, 0, HEAD_BYTES)
    if end is None:
        return _TOO_LONG if len(received) >= HEAD_BYTES else None
    message = _fault(received[: end.end()])
    return (400, b"Bad Request", message) if message else None


def _fault(head: bytes) -> str:
    """Return the correction for a wrong head; empty if it is right (RFC 9112, sections 2.2, 5.2 and 6.1)."""
    if _LONE.search(head):
        return "lines of the head end with CR LF"
    if _FOLDED.search(head):
        return "a header is one line: continuation lines are not read"
    lengths = _LENGTH.findall(head)
    if len(lengths) > 1 or (lengths and b"," in lengths[0]):
        return "send Content-Length once"
    if _CODING.search(head):
        if lengths:
            return "send Content-Length or Transfer-Encoding, not both"
        if head.partition(b"\r\n")[0].endswith(b"HTTP/1.0"):
            return "HTTP/1.0 has no Transfer-Encoding"
    return ""


class BufferedTransport(asyncio.Transport):
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


# --- Slots of connections: how many there are, for whom, and what the limit of descriptors leaves of them.

SHARE = 0.75  # of all slots that one user may hold, so that nobody keeps all others out
_DISCARD_BYTES = 2**20  # beyond a body that was refused: read and dropped, so that the answer arrives
_MOST_REFUSED = 64  # connections too many that are heard out at a time
_MOST_UNKNOWN = 32  # connections of those who have not shown the token
_RESERVED = 24  # descriptors for the database, for attempts, and for connections about to be accepted
_PART = 8  # of the descriptors: for those refused, and again for those unknown
_LEAST = 4  # connections, however few descriptors there are
_TOLD_EVERY_S = 10.0  # in the log, of what anybody can bring about as often as he likes
_LOG = logging.getLogger(__name__)


class UserSlots:
    """A number of slots, of which no user holds all."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._share = max(1, math.floor(count * SHARE))
        self._taken: Counter[Hashable] = Counter()
        self._all = 0

    def __len__(self) -> int:
        return self._all

    def take(self, user: Hashable) -> bool:
        """Take a slot; False where there is none for this user."""
        if self._all >= self._count or self._taken[user] >= self._share:
            return False
        self._taken[user] += 1
        self._all += 1
        return True

    def leave(self, user: Hashable) -> None:
        """Give back a slot that was taken."""
        self._all -= 1
        self._taken[user] -= 1
        if not self._taken[user]:
            del self._taken[user]


class UnknownConnections:
    """Connections that have not shown who they are: a few, of which a new one ends the oldest.

    Who has the token shows it with the first request, while others may come in any number.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._connections: dict[TimedConnection, None] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: TimedConnection) -> bool:
        """Take a new one in; True where that ended another."""
        self._connections[connection] = None
        if len(self._connections) <= self._count:
            return False
        oldest = next(iter(self._connections))
        del self._connections[oldest]
        oldest.end()
        return True

    def remove(self, connection: TimedConnection) -> None:
        """Forget one: it is known now, or has ended."""
        self._connections.pop(connection, None)


class ServerLimits:
    """Limits that the connections of a server share.

    Args:
        limits: of ``daemon.toml``.
        descriptors: that are free; None to ask.

    Attributes:
        slots: of connections.
        refusals: of further connections, which are only told that there are too many.
        unknown: connections over TCP without a token, and of users who may not ask.
        request_timeout_s: for a request to arrive whole, and for an answer to be taken.
        most_bytes: of a request, with what is read and dropped.
        groups: path of a Unix socket -> the group that owns it.
        crowded: limits the log of connections too many.
        refused: limits the log of users who may not ask.
    """

    def __init__(self, limits: LimitsTable, descriptors: int | None = None) -> None:
        free = (free_descriptors() if descriptors is None else descriptors) - _RESERVED
        aside = max(1, free // _PART)
        refusals, unknown = min(_MOST_REFUSED, aside), min(_MOST_UNKNOWN, aside)
        count = max(_LEAST, min(limits.connections, free - refusals - unknown))
        if count < limits.connections:
            _LOG.warning(
                "%d connections at a time, not the %d of [limits] connections: this process may open too few"
                " files; raise LimitNOFILE= of the service, or `ulimit -n`",
                count,
                limits.connections,
            )
        self.slots = UserSlots(count)
        self.refusals = UserSlots(refusals)
        self.unknown = UnknownConnections(unknown)
        self.request_timeout_s = limits.request_timeout_s
        self.most_bytes = HEAD_BYTES + limits.body_bytes + _DISCARD_BYTES
        self.groups: Mapping[str, int | None] = {}
        self.crowded = LogRateLimiter(_TOLD_EVERY_S)
        self.refused = LogRateLimiter(_TOLD_EVERY_S)


def free_descriptors() -> int:
    """Return the number of further files that this process may open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = 2**31
    return limit - len(list(Path("/proc/self/fd").iterdir()))


# --- Descriptors that are held back, so that whoever finds none left is answered all the same.

_MOST_AT_ONCE = 64
_HEAD = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n"
)


class SpareDescriptor:
    """A descriptor that is given up for a moment, to answer those who wait to be accepted."""

    def __init__(self) -> None:
        self._reserved: int | None = None
        self._reserve()

    def answer_waiting(self, listener: socket.socket) -> int:
        """Answer 503 to connections that wait on a non-blocking socket; returns to how many."""
        answered = 0
        self.close()
        body = error_body("busy", BUSY)
        with contextlib.suppress(OSError):  # nobody waits any more, or somebody else took the descriptor
            while answered < _MOST_AT_ONCE:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):  # the client has gone
                    connection.setblocking(False)
                    connection.send(_HEAD % len(body) + body)
                answered += 1
        self._reserve()
        return answered

    def close(self) -> None:
        """Give the descriptor up; safe to call twice."""
        reserved, self._reserved = self._reserved, None
        if reserved is not None:
            os.close(reserved)

    def _reserve(self) -> None:
        with contextlib.suppress(OSError):  # the next time
            self._reserved = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


# --- One connection.

_REFUSED_S = 1.0  # for a client who is refused to take the answer
_COME_BACK = (("retry-after", "1"),)  # seconds
_SENDING = (h11.IDLE, h11.SEND_RESPONSE)  # states in which an answer can still be begun


class Connection(TimedConnection):
    """A connection of a client.

    It is answered 429 and closed when there are too many, whatever it asks. It is closed when a request does
    not arrive in time or is far too long, and when an answer is not taken in time. The application finds its
    ``Caller`` in the scope's state, and there calls ``authenticated`` when a token was shown.
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
        timeout_s = limits.request_timeout_s
        super().__init__(config, server_state, app_state, _loop, request_timeout_s=timeout_s)
        self._limits = limits
        self._holder: User | None = None  # the user who has the slot of this connection
        self._stalled: asyncio.TimerHandle | None = None  # while the client takes nothing
        self._received_bytes = 0
        self._refused = False
        self._refused_caller: Caller | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Identify the caller, and refuse one too many."""
        super().connection_made(BufferedTransport(transport, self.loop))
        connection = transport.get_extra_info("socket")
        name = connection.getsockname()
        try:
            caller = caller_of(connection, self._limits.groups.get(name) if isinstance(name, str) else None)
        except OSError:  # gone already
            transport.abort()
            return
        if not caller.admitted:
            self._await_authentication(caller)
        elif not self._take_slot(caller.peer.user):
            if times := self._limits.crowded.times():
                _LOG.warning("refused %d connections, the last of %s: there are too many", times, caller)
            self._refuse(caller)
            return
        self.app_state = {"caller": caller, "authenticated": self._authenticated}
        transport.set_write_buffer_limits(high=0)  # so that whatever is not taken at once is noticed

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the slot back, and let go of what refers back here: else memory waits for the collector."""
        self.resume_writing()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._limits.unknown.remove(self)
        if self._holder is not None:
            self._limits.slots.leave(self._holder)
            self._holder = None
        if self._refused_caller is not None:
            self._limits.refusals.leave(self._refused_caller.peer.user)
            self._refused_caller = None
        self.app_state = {}
        self.scope = self.cycle = None  # type: ignore[assignment]  # as uvicorn has them before the first request

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request."""
        self._received_bytes += len(data)
        if self._received_bytes > self._limits.most_bytes:
            self.end()
            return
        if self._refused:  # read, so that the answer arrives
            return
        super().data_received(data)

    def on_response_complete(self) -> None:
        """An answer is out: whatever comes next has its own length."""
        self._received_bytes = 0
        super().on_response_complete()

    def watch(self) -> None:
        """Have a deadline while a request is on its way; one that is refused has its own."""
        if not self._refused:
            super().watch()

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
            self._stalled = self.loop.call_later(self._limits.request_timeout_s, self.end)

    def resume_writing(self) -> None:
        """All is taken."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def handle_events(self) -> None:
        """Handle what was received, after a look at a head before it is parsed."""
        fault = head_fault(self.conn.trailing_data[0]) if self.conn.their_state is h11.IDLE else None
        if fault is None:
            super().handle_events()
            return
        self._refused = True  # whatever follows is no request any more
        status, reason, message = fault
        self._answer(status, reason, error_body("input", message))
        self._hear_out()

    def _take_slot(self, user: User) -> bool:
        """Take a slot for a known user; False where there is none."""
        if not self._limits.slots.take(user):
            return False
        self._holder = user
        return True

    def _await_authentication(self, caller: Caller) -> None:
        """Hold one of the few slots of those who are not known, until a token is shown."""
        crowded = self._limits.unknown.add(self)
        if crowded and (times := self._limits.crowded.times()):
            _LOG.warning("ended %d connections that showed no token: there are too many", times)
        if not caller.tcp and (times := self._limits.refused.times()):
            _LOG.warning("refused %d connections, the last of %s: not of the socket's group", times, caller)

    def _authenticated(self, user: User) -> bool:
        """A token was shown: have a slot among those who are known; False where there is none."""
        if self._holder is None and self._take_slot(user):
            self._limits.unknown.remove(self)
        return self._holder is not None

    def _refuse(self, caller: Caller) -> None:
        """Answer one connection too many, and wait a moment until its client has asked and heard."""
        self._refused = True
        self._answer(429, b"Too Many Requests", error_body("too-many", "too many connections"), *_COME_BACK)
        if not self._limits.refusals.take(caller.peer.user):
            self.transport.close()
            return
        self._refused_caller = caller
        self._hear_out()

    def _hear_out(self) -> None:
        """Say no more, and read for a moment what the client still sends, so that the answer arrives."""
        self.request_arrived()
        self.transport.write_eof()
        self._deadline = self.loop.call_later(_REFUSED_S, self.end)

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
