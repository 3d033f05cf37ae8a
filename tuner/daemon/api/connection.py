"""One connection: HTTP/1.1 of uvicorn and h11, with an end to every wait and every length."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from tuner.daemon.api.callers import Caller, Places, Seldom, caller_of
from tuner.daemon.api.errors import error_body
from tuner.daemon.settings.tables import LimitsTable

HEAD_BYTES = 16_384  # of request line and headers; the longest question takes a quarter of it
_DISCARD_BYTES = 2**20  # beyond a body that was refused: read and dropped, so that the answer arrives
_REFUSED_S = 1.0  # for a connection too many to take its answer
_MOST_REFUSED = 64  # at a time; beyond it the answer is sent and nobody waits until it is taken
_TOLD_EVERY_S = 10.0  # in the log, of what anybody can bring about as often as he likes
_COME_BACK = (("retry-after", "1"),)  # seconds
_SENDING = (h11.IDLE, h11.SEND_RESPONSE)  # states in which an answer can still be begun
_LOG = logging.getLogger(__name__)


class House:
    """What the connections of a server share.

    Attributes:
        places: connections that there may be.
        door: places of connections too many, which only hear that.
        request_timeout_s: for a request to arrive whole, and for an answer to be taken.
        most_bytes: of a request, with all that is not wanted of it.
        groups: of each Unix socket's path, the group that owns it.
        crowded: when it was told that there are too many.
        refused: when it was told that somebody may not ask.
    """

    def __init__(self, limits: LimitsTable) -> None:
        self.places = Places(limits.connections)
        self.door = Places(_MOST_REFUSED)
        self.request_timeout_s = limits.request_timeout_s
        self.most_bytes = HEAD_BYTES + limits.body_bytes + _DISCARD_BYTES
        self.groups: Mapping[str, int | None] = {}
        self.crowded = Seldom(_TOLD_EVERY_S)
        self.refused = Seldom(_TOLD_EVERY_S)


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
        house: House,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._house = house
        self._caller: Caller | None = None  # with a place
        self._deadline: asyncio.TimerHandle | None = None  # for the request that arrives
        self._stalled: asyncio.TimerHandle | None = None  # while the client takes nothing
        self._received_bytes = 0
        self._refused = False
        self._at_the_door: Caller | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """See who comes, and whether there is room."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        name = connection.getsockname()
        try:
            caller = caller_of(connection, self._house.groups.get(name) if isinstance(name, str) else None)
        except OSError:  # gone already
            transport.abort()
            return
        if not self._house.places.take(caller.peer.uid):
            if times := self._house.crowded.times():
                _LOG.warning("refused %d connections, the last of %s: there are too many", times, caller)
            self._refuse(transport, caller)
            return
        if not (caller.admitted or caller.tcp) and (times := self._house.refused.times()):
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
            self._house.places.leave(self._caller.peer.uid)
            self._caller = None
        if self._at_the_door is not None:
            self._house.door.leave(self._at_the_door.peer.uid)
            self._at_the_door = None

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request."""
        self._received_bytes += len(data)
        if self._received_bytes > self._house.most_bytes:
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
            self._stalled = self.loop.call_later(self._house.request_timeout_s, self._end)

    def resume_writing(self) -> None:
        """All is taken."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _refuse(self, transport: asyncio.Transport, caller: Caller) -> None:
        """Answer one connection too many, and wait a moment until its client has asked and heard."""
        self._refused = True
        self._answer(429, b"Too Many Requests", error_body("too-many", "too many connections"), *_COME_BACK)
        if not self._house.door.take(caller.peer.uid):
            transport.close()
            return
        self._at_the_door = caller
        transport.write_eof()
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
            self._deadline = self.loop.call_later(self._house.request_timeout_s, self._end)

    def _request_arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self) -> None:
        """Close at once, whatever is under way."""
        self._request_arrived()
        self.transport.abort()
