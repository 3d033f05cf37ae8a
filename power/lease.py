"""Clocks set through ``tuner-clockd``: this process reads, the helper sets, and restores come what may."""

import contextlib
import logging
import socket as sockets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.errors import ClockError, ClockPermissionError
from tuner.interfaces import ClockReading

from .actuator import Actuator, demand
from .clockd_protocol import (
    FINAL,
    MAX_ANSWER_BYTES,
    PROTOCOL,
    SOCKET,
    Refused,
    Request,
    parse_answer,
    request_line,
)

_PATIENCE_S = 20.0  # a helper that takes longer hangs in the driver; its watchdog ends it sooner
_HELLO_PATIENCE_S = 5.0  # systemd starts the helper for the first who connects
_RENEWALS_PER_TTL = 4.0  # three may be late
_LOG = logging.getLogger(__name__)


def helper_answers(socket: Path = SOCKET) -> bool:
    """True where a helper can be reached; starts it under systemd, and changes nothing."""
    try:
        with contextlib.closing(_Connection(socket, _HELLO_PATIENCE_S)) as connection:
            connection.greeted_s()
    except ClockError:
        return False
    return True


class LeasedClocks:
    """Implements ``tuner.interfaces.ClockControl`` through the helper; opening and reading change nothing.

    The lease is the connection, from the first ``locked`` until ``close``: nobody else sets this GPU's clocks
    between two blocks either. A thread renews it. When the helper is gone, or has ended the lease because
    this process slept for too long, ``read`` and the end of ``locked`` raise a ClockError: what was measured
    meanwhile was measured at no known clock.

    Args:
        actuator: reads the clock, and is never asked to set it; closed with this control.
        socket: of the helper.
        patience_s: how long an answer may take.
    """

    def __init__(self, actuator: Actuator, socket: Path = SOCKET, *, patience_s: float = _PATIENCE_S) -> None:
        self._actuator = actuator
        self._socket = socket
        self._patience_s = patience_s
        self._lease: _Lease | None = None
        self._held_mhz: int | None = None

    def supported_mhz(self) -> tuple[int, ...]:
        """See ``ClockControl.supported_mhz``; without those that the administrator does not allow."""
        return self._actuator.supported_mhz()

    def read(self) -> ClockReading:
        """See ``ClockControl.read``.

        Raises:
            ClockError: the GPU stopped answering, or the clock that was asked for is no longer held.
        """
        if self._held_mhz is not None and self._lease is not None:
            self._lease.demand_held()
        return self._actuator.read()

    @contextlib.contextmanager
    def locked(self, mhz: int) -> Iterator[None]:
        """Hold the GPU at ``mhz`` while the block runs and restore what was there on every way out.

        Raises:
            ClockPermissionError: the helper may not set clocks, or this user may not use the helper.
            ClockError: the clock is not supported or not allowed, another process holds this GPU's clocks,
                the helper or the lease was lost in the middle, or the clock could not be set or restored.
        """
        if self._held_mhz is not None:
            raise ClockError(f"{self._actuator.gpu} is locked at {self._held_mhz} MHz already")
        demand(self._actuator, mhz)
        lease = self._leased()
        self._held_mhz = mhz
        try:
            lease.ask(Request("set", self._actuator.control, self._actuator.gpu, mhz))
            yield
        except BaseException:
            self._release(lease, quietly=True)
            raise
        self._release(lease, quietly=False)

    def close(self) -> None:
        """End the lease, which restores the clock if it is still held, and release everything."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None
        self._actuator.close()

    def _leased(self) -> "_Lease":
        """The lease, or a new one where a helper that was restarted has forgotten the old one."""
        if self._lease is not None and self._lease.lost is not None:
            self._lease.close()
            self._lease = None
        if self._lease is None:
            self._lease = _Lease(self._socket, self._patience_s)
        return self._lease

    def _release(self, lease: "_Lease", *, quietly: bool) -> None:
        self._held_mhz = None
        try:
            answer = lease.ask(Request("reset"))
        except ClockError as error:
            if not quietly:
                raise
            _LOG.error("%s", error)
            return
        for what in answer.get("left", ()):
            _LOG.warning("%s: %s", self._actuator.gpu, what)


class _LostError(ClockError):
    """The connection, and with it the lease, has ended."""


class _Lease:
    """A connection that a thread keeps alive; whatever breaks it is remembered.

    Attributes:
        lost: why the lease has ended; None while it holds.
    """

    def __init__(self, path: Path, patience_s: float) -> None:
        self.lost: str | None = None
        self._connection = _Connection(path, patience_s)
        self._turn = threading.Lock()
        self._ended = threading.Event()
        try:
            self._interval_s = self._connection.greeted_s() / _RENEWALS_PER_TTL
        except BaseException:
            self._connection.close()
            raise
        self._thread = threading.Thread(target=self._renew, name="clock-lease", daemon=True)
        self._thread.start()

    def ask(self, request: Request) -> dict[str, Any]:
        """See ``_Connection.ask``; a conversation that breaks off ends the lease, and the helper restores."""
        with self._turn:
            self.demand_held()
            try:
                return self._connection.ask(request)
            except _LostError as error:
                self.lost = str(error)
                self._connection.end()  # one that hangs finds that out when it goes on
                raise ClockError(f"the clock is not held: {error}") from error
            except ClockError:
                raise
            except BaseException:  # Ctrl-C before the answer: the next one would be taken for another's
                self.lost = "it was interrupted"
                self._connection.end()
                raise

    def demand_held(self) -> None:
        """Raise a ClockError if the lease has ended."""
        if self.lost is not None:
            raise ClockError(f"the clock is not held: {self.lost}")

    def close(self) -> None:
        """End the lease, and come back when the helper has restored."""
        self._ended.set()
        try:
            with self._turn:
                if self.lost is None:
                    self.lost = "the lease was given up"
                    self._connection.leave()
        finally:
            self._connection.close()
            self._thread.join()

    def _renew(self) -> None:
        try:
            while not self._ended.wait(self._interval_s):
                self.ask(Request("renew"))
        except ClockError as error:
            if not self._ended.is_set():
                _LOG.warning("%s", error)


class _Connection:
    """Asks and waits for the answer, one at a time."""

    def __init__(self, path: Path, patience_s: float) -> None:
        self._socket = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        self._socket.settimeout(patience_s)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            if isinstance(error, PermissionError):
                raise ClockPermissionError(
                    f"{path} is not for this user: join its group (usermod -aG tuner USER) and log in anew"
                ) from error
            raise ClockError(f"tuner-clockd does not listen on {path}: {error}") from error

    def ask(self, request: Request) -> dict[str, Any]:
        """Send a request and return what was granted.

        Raises:
            _LostError: the helper has ended the lease, is gone, or does not answer.
            ClockPermissionError: the helper may not set this clock.
            ClockError: it refused for another reason.
        """
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its last words wait to be read
                self._socket.sendall(request_line(request))
            return parse_answer(self._line())
        except OSError as error:
            raise _LostError(f"tuner-clockd does not answer ({error})") from error
        except Refused as refusal:
            if refusal.code in FINAL:
                raise _LostError(str(refusal)) from refusal
            kind = ClockPermissionError if refusal.code == "permission" else ClockError
            raise kind(str(refusal)) from refusal

    def greeted_s(self) -> float:
        """Greet the helper; tells how long it lets a client be silent.

        Raises:
            ClockError: it speaks another protocol, or none.
        """
        greeting = self.ask(Request("hello"))
        try:
            if greeting["protocol"] == PROTOCOL:
                return float(greeting["ttl_s"])
        except (KeyError, TypeError, ValueError) as error:
            raise ClockError(f"what answers there is not tuner-clockd: {greeting}") from error
        raise ClockError(
            f"tuner-clockd speaks protocol {greeting['protocol']}, not {PROTOCOL}: update it or tuner"
        )

    def leave(self) -> None:
        """Say that nothing more will be asked, and wait until the helper has hung up, which it does last."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(sockets.SHUT_WR)
            while self._socket.recv(MAX_ANSWER_BYTES):
                pass

    def end(self) -> None:
        """Hang up without waiting for anything."""
        with contextlib.suppress(OSError):  # the helper was faster
            self._socket.shutdown(sockets.SHUT_RDWR)

    def close(self) -> None:
        """Release the connection; the helper restores what it set for it."""
        self._socket.close()

    def _line(self) -> bytes:
        line = bytearray()
        while not line.endswith(b"\n"):
            more = self._socket.recv(MAX_ANSWER_BYTES)
            if not more or len(line) > MAX_ANSWER_BYTES:
                raise ConnectionError("it closed the connection")
            line += more
        return bytes(line)
