"""What clients are told while the daemon cannot start: every request is answered with 503 and the reason.

It takes one thread and a few descriptors, and waits for nobody: what keeps the daemon from starting may be
that there are no more of them.
"""

import contextlib
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tuner.daemon.http.responses import error_body

_SLICE_S = 0.5  # after so long a signal that came meanwhile is seen
_MOST = 32  # clients at a time; others wait in the queue of the socket
_PATIENCE_S = 5.0  # for a client to send the head of its request, and to read the answer
_HEAD_BYTES = 16 * 2**10
_READ_BYTES = 4096
_END_OF_HEAD = (b"\r\n\r\n", b"\n\n")
_KIND = "not-ready"


@dataclass
class _Client:
    """A connection.

    Attributes:
        until_s: monotonic time at which it is closed.
        head: what was received of its request.
        answered: whether the answer was sent; what comes after it is thrown away.
    """

    until_s: float
    head: bytearray = field(default_factory=bytearray)
    answered: bool = False


class Lobby:
    """Answers on a listening socket while the daemon cannot.

    Args:
        listening: the socket, which does not block.
        alive: called several times a second, to tell the service manager.
        interrupted: asked as often; True ends a wait.
    """

    def __init__(
        self, listening: socket.socket, alive: Callable[[], None], interrupted: Callable[[], bool]
    ) -> None:
        self._listening = listening
        self._alive = alive
        self._interrupted = interrupted
        self._clients: dict[socket.socket, _Client] = {}

    def wait(self, seconds: float, reason: str) -> None:
        """Answer for so long.

        Args:
            seconds: also what clients are told to wait.
            reason: why the daemon cannot start, for people.
        """
        answer = _answer(reason, max(1, round(seconds)))
        until_s = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._listening, selectors.EVENT_READ)
            for client in self._clients:
                selector.register(client, selectors.EVENT_READ)
            while (left_s := until_s - time.monotonic()) > 0 and not self._interrupted():
                self._alive()
                for key, _ in selector.select(min(left_s, _SLICE_S)):
                    if key.fileobj is self._listening:
                        self._accept(selector)
                    else:
                        self._read(key.fileobj, answer, selector)  # type: ignore[arg-type]  # a socket
                self._close_late(selector)

    def close(self) -> None:
        """Close what is open; who was not answered asks again."""
        for client in tuple(self._clients):
            client.close()
        self._clients.clear()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        if len(self._clients) >= _MOST:
            oldest = min(self._clients, key=lambda client: self._clients[client].until_s)
            self._close(oldest, selector)
        with contextlib.suppress(OSError):  # it has gone, or there is no descriptor for it
            client, _ = self._listening.accept()
            client.setblocking(False)
            self._clients[client] = _Client(time.monotonic() + _PATIENCE_S)
            selector.register(client, selectors.EVENT_READ)

    def _read(self, client: socket.socket, answer: bytes, selector: selectors.BaseSelector) -> None:
        """Read on; answer a whole head, and throw away what comes after it: closing early would lose it."""
        state = self._clients[client]
        try:
            data = client.recv(_READ_BYTES)
            if not data:
                self._close(client, selector)
            elif not state.answered:
                state.head += data
                if any(end in state.head for end in _END_OF_HEAD) or len(state.head) > _HEAD_BYTES:
                    state.answered, state.head = True, bytearray()
                    client.send(answer)  # less than the buffer of a new socket
                    client.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError:
            self._close(client, selector)

    def _close_late(self, selector: selectors.BaseSelector) -> None:
        now_s = time.monotonic()
        for client in [client for client, state in self._clients.items() if state.until_s < now_s]:
            self._close(client, selector)

    def _close(self, client: socket.socket, selector: selectors.BaseSelector) -> None:
        selector.unregister(client)
        del self._clients[client]
        client.close()


def _answer(reason: str, retry_s: int) -> bytes:
    body = error_body(_KIND, f"the daemon is not ready: {reason}")
    head = (
        "HTTP/1.1 503 Service Unavailable",
        "content-type: application/json",
        f"content-length: {len(body)}",
        f"retry-after: {retry_s}",
        "connection: close",
    )
    return "\r\n".join((*head, "", "")).encode() + body
