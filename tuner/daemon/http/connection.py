"""Connections: HTTP/1.1 of uvicorn and h11, with a limit to every wait and every length."""

import asyncio
import logging
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import RequestResponseCycle
from uvicorn.server import ServerState

from tuner.daemon.api.heads import HeadFault, head_fault
from tuner.daemon.api.joining import JoiningTransport
from tuner.daemon.api.places import ServerLimits
from tuner.daemon.http.access import Caller, caller_of
from tuner.daemon.http.responses import error_body
from tuner.daemon.queue.users import TOKEN_HOLDER
from tuner.system.timed_connection import TimedConnection

_REFUSED_S = 1.0  # for a client who is refused to take the answer
_COME_BACK = (("retry-after", "1"),)  # seconds
_SENDING = (h11.IDLE, h11.SEND_RESPONSE)  # states in which an answer can still be begun
_LOG = logging.getLogger(__name__)


class Connection(TimedConnection):
    """A connection of a client.

    It is answered 429 and closed when there are too many, whatever it asks. It is closed when a request does
    not arrive in time or is far too long, and when an answer is not taken in time. The application finds its
    ``Caller`` in the scope's state, and there calls ``authenticated`` when the token was shown.
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
        self._holder: int | str | None = None  # the user who has the place of this connection
        self._stalled: asyncio.TimerHandle | None = None  # while the client takes nothing
        self._received_bytes = 0
        self._refused = False
        self._refused_caller: Caller | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Identify the caller, and refuse one too many."""
        super().connection_made(JoiningTransport(transport, self.loop))
        connection = transport.get_extra_info("socket")
        name = connection.getsockname()
        try:
            caller = caller_of(connection, self._limits.groups.get(name) if isinstance(name, str) else None)
        except OSError:  # gone already
            transport.abort()
            return
        if not caller.admitted:
            self._await_authentication(caller)
        elif not self._take_place(caller.peer.uid):
            if times := self._limits.crowded.times():
                _LOG.warning("refused %d connections, the last of %s: there are too many", times, caller)
            self._refuse(caller)
            return
        self.app_state = {"caller": caller, "authenticated": self._authenticated}
        transport.set_write_buffer_limits(high=0)  # so that whatever is not taken at once is noticed

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self.resume_writing()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._limits.unknown.remove(self)
        if self._holder is not None:
            self._limits.places.leave(self._holder)
            self._holder = None
        if self._refused_caller is not None:
            self._limits.refusals.leave(self._refused_caller.peer.uid)
            self._refused_caller = None

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
        else:
            self._refuse_head(fault)

    def _take_place(self, user: int | str | None) -> bool:
        """Take a place of a user who is known; False where there is none."""
        if user is None or not self._limits.places.take(user):
            return False
        self._holder = user
        return True

    def _await_authentication(self, caller: Caller) -> None:
        """Hold one of the few places of those who are not known, until the token is shown."""
        crowded = self._limits.unknown.add(self)
        if crowded and (times := self._limits.crowded.times()):
            _LOG.warning("ended %d connections that showed no token: there are too many", times)
        if not caller.tcp and (times := self._limits.refused.times()):
            _LOG.warning("refused %d connections, the last of %s: not of the socket's group", times, caller)

    def _authenticated(self) -> bool:
        """The token was shown: have a place among those who are known; False where there is none."""
        if self._holder is None and self._take_place(TOKEN_HOLDER):
            self._limits.unknown.remove(self)
        return self._holder is not None

    def _refuse(self, caller: Caller) -> None:
        """Answer one connection too many, and wait a moment until its client has asked and heard."""
        self._refused = True
        self._answer(429, b"Too Many Requests", error_body("too-many", "too many connections"), *_COME_BACK)
        if not self._limits.refusals.take(caller.peer.uid):
            self.transport.close()
            return
        self._refused_caller = caller
        self._hear_out()

    def _refuse_head(self, fault: HeadFault) -> None:
        """Answer what must not be parsed; whatever follows it is no request any more."""
        self._refused = True
        self._answer(fault.status, fault.reason, error_body("input", fault.message))
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
