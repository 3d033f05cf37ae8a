"""HTTP/1.1 connections of uvicorn and h11 whose requests must arrive in time."""

import asyncio
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState


class TimedConnection(H11Protocol):
    """A connection that is closed when a request is not there in time, from its first byte to its last.

    uvicorn itself waits for ever for the rest of a request, and for the first byte of the first one.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        request_timeout_s: float,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._request_timeout_s = request_timeout_s
        self._deadline: asyncio.TimerHandle | None = None  # for the request that arrives

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for the first request."""
        super().connection_made(transport)
        self.await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self.request_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request."""
        super().data_received(data)
        self.watch()

    def on_response_complete(self) -> None:
        """An answer is out: whatever comes next has its own time."""
        super().on_response_complete()
        self.watch()

    def end(self) -> None:
        """Close at once, whatever is under way."""
        self.request_arrived()
        self.transport.abort()

    def watch(self) -> None:
        """Have a deadline while a request is on its way."""
        if self.transport.is_closing() or self.conn.their_state is not h11.IDLE:
            arriving = self.conn.their_state is h11.SEND_BODY
        else:
            arriving = bool(self.conn.trailing_data[0])
        if arriving and not self.transport.is_closing():
            self.await_request()
        else:
            self.request_arrived()

    def await_request(self) -> None:
        """Begin the time of a request, unless it has begun."""
        if self._deadline is None:
            self._deadline = self.loop.call_later(self._request_timeout_s, self.end)

    def request_arrived(self) -> None:
        """End the time of a request."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
