"""Client of ``tuner-clockd``, and of a guardian."""

import contextlib
import logging
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.model.errors import ClockError, ClockLostError, ClockPermissionError

from .clockd_protocol import (
    FINAL,
    MAX_ANSWER_BYTES,
    PROTOCOL,
    SOCKET,
    ClockRefusal,
    ClockRequest,
    parse_answer,
    request_line,
)

PATIENCE_S = 20.0  # who takes longer hangs in the driver; the service's watchdog ends it sooner
_HELLO_PATIENCE_S = 5.0  # systemd starts the helper for the first who connects


_LOG = logging.getLogger(__name__)


class OtherProtocolError(ClockError):
    """The helper is of another version."""


@dataclass(frozen=True)
class SetterLink:
    """A way to who sets clocks for this process.

    Attributes:
        name: of the other side, for people.
        socket: connected to it.
        ended: to be called when the socket is closed; waits for what there is to wait for.
    """

    name: str
    socket: socket.socket
    ended: Callable[[], None] = lambda: None


def reach(path: Path = SOCKET) -> SetterLink:
    """Connect to the helper; starts it under systemd.

    Raises:
        ClockPermissionError: this user may not use it.
        ClockError: nobody listens there.
    """
    link = SetterLink("tuner-clockd", socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    link.socket.settimeout(_HELLO_PATIENCE_S)  # that its queue is full does not last
    try:
        link.socket.connect(str(path))
    except OSError as error:
        link.socket.close()
        if isinstance(error, PermissionError):
            raise ClockPermissionError(
                f"{path} is not for this user: join its group (usermod -aG tuner-clocks USER) and log in anew"
            ) from error
        raise ClockError(f"tuner-clockd does not listen on {path}: {error}") from error
    return link


def helper_answers(path: Path = SOCKET) -> bool:
    """True where a helper can be reached; starts it under systemd, and changes nothing.

    One of another version is told of: it is there, and to start it, as who needs it is told, would not help.
    """
    try:
        with contextlib.closing(SetterConnection(reach(path), _HELLO_PATIENCE_S)) as connection:
            connection.greeted_s()
    except OtherProtocolError as error:
        _LOG.warning("%s", error)
        return False
    except ClockError:
        return False
    return True


class SetterConnection:
    """Asks and waits for the answer, one at a time.

    Args:
        link: to whom; ended with this connection.
        patience_s: how long an answer may take.
    """

    def __init__(self, link: SetterLink, patience_s: float = PATIENCE_S) -> None:
        self._link = link
        self._socket = link.socket
        self._socket.settimeout(patience_s)

    def ask(self, request: ClockRequest) -> dict[str, Any]:
        """Send a request and return what was granted.

        Raises:
            ClockLostError: the other side has ended the lease, is gone, or does not answer.
            ClockPermissionError: it may not set this clock.
            ClockError: it refused for another reason.
        """
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its last words wait to be read
                self._socket.sendall(request_line(request))
            return parse_answer(self._line())
        except OSError as error:
            raise ClockLostError(f"{self._link.name} does not answer ({error})") from error
        except ClockRefusal as refusal:
            if refusal.code in FINAL:
                raise ClockLostError(str(refusal)) from refusal
            kind = ClockPermissionError if refusal.code == "permission" else ClockError
            raise kind(str(refusal)) from refusal

    def greeted_s(self) -> float:
        """Greet the other side; tells how long it lets a client be silent.

        Raises:
            OtherProtocolError: it speaks another protocol.
            ClockError: it speaks none.
        """
        greeting = self.ask(ClockRequest("hello"))
        try:
            if greeting["protocol"] == PROTOCOL:
                return float(greeting["ttl_s"])
        except (KeyError, TypeError, ValueError) as error:
            raise ClockError(f"what answers there is not tuner-clockd: {greeting}") from error
        raise OtherProtocolError(
            f"tuner-clockd speaks protocol {greeting['protocol']}, not {PROTOCOL}: update it or tuner"
        )

    def has_news(self) -> bool:
        """True where something came that was not asked for: the other side is gone or has ended the lease."""
        news = select.poll()  # unlike select it takes any file descriptor
        try:
            news.register(self._socket, select.POLLIN)
        except ValueError:  # closed meanwhile
            return True
        return bool(news.poll(0))

    def leave(self) -> None:
        """Say that nothing more will be asked, and wait until the other side has hung up, which it does last.

        Raises:
            ClockLostError: it has not, in time.
        """
        try:
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(MAX_ANSWER_BYTES):
                pass
        except TimeoutError as error:
            raise ClockLostError(f"{self._link.name} does not answer: the clock may still be set") from error
        except OSError:  # it has hung up before
            return

    def hang_up(self) -> None:
        """End the conversation without waiting for anything."""
        with contextlib.suppress(OSError):  # the other side was faster
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the connection; the other side restores what it has set for it."""
        self._socket.close()
        self._link.ended()

    def _line(self) -> bytes:
        line = bytearray()
        while not line.endswith(b"\n"):
            more = self._socket.recv(MAX_ANSWER_BYTES)
            if not more or len(line) > MAX_ANSWER_BYTES:
                raise ConnectionError("it closed the connection")
            line += more
        return bytes(line)
