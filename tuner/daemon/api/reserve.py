"""A descriptor in reserve: who connects while no more files can be opened is told so, and does not wait."""

import contextlib
import os
import socket

from tuner.daemon.http.responses import busy_body

_MOST_AT_ONCE = 64
_HEAD = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n"
)


class DescriptorReserve:
    """A descriptor that is given up for a moment, to answer those who wait to be accepted."""

    def __init__(self) -> None:
        self._reserved: int | None = None
        self._reserve()

    def answer_waiting(self, listener: socket.socket) -> int:
        """Answer 503 to connections that wait on a non-blocking socket; returns to how many."""
        answered = 0
        self.close()
        body = busy_body()
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
