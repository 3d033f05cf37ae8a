"""The event loop of ``tuner-clockd``: many clients in one thread, none of which can block it."""

import logging
import selectors
import signal
import socket
import struct
import time
from collections.abc import Callable
from functools import partial

from tuner.model.errors import ClockPermissionError, TunerError
from tuner.system.service_manager import ServiceManager

from .clockd_energy import RareReads
from .clockd_leases import Leases
from .clockd_protocol import (
    MAX_REQUEST_BYTES,
    PROTOCOL,
    ClockRefusal,
    ClockRequest,
    granted,
    parse_request,
    refused,
)

TTL_S = 10.0  # far above what a busy machine keeps a thread waiting, short beside what a wrong clock costs
MAX_CLIENTS = 64
MAX_CLIENTS_OF_A_USER = 16  # one user cannot keep all others out
_ACCEPTS_PER_TURN = 8
_SEND_BUFFER_BYTES = 8192  # what the kernel holds for a client that never reads
_PEERCRED = struct.Struct("3i")  # struct ucred of unix(7)
_LOG = logging.getLogger(__name__)


class _Client:
    """One connection, which is one lease: who it is, what it has said in part, what it has not yet taken.

    Attributes:
        uid: user, as the kernel knew it when the client connected.
        heard_s: when it last made a whole request.
    """

    def __init__(self, connection: socket.socket, now_s: float) -> None:
        self.connection = connection
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
        self.pid, self.uid, self.gid = _PEERCRED.unpack(credentials)
        self.heard_s = now_s
        self.received = bytearray()
        self.unsent = b""

    def __str__(self) -> str:
        return f"process {self.pid} of user {self.uid}, group {self.gid}"

    def take_line(self) -> bytes | None:
        """Read at most one line, so that every client has its turn; None while it is incomplete.

        Raises:
            Refused: the line is too long.
            EOFError: the client has closed.
            OSError: the connection is broken.
        """
        room = MAX_REQUEST_BYTES - len(self.received)
        there = self.connection.recv(room, socket.MSG_PEEK)
        if not there:
            raise EOFError
        end = there.find(b"\n")
        self.received += self.connection.recv(end + 1 if end >= 0 else len(there))
        if end < 0:
            if len(self.received) >= MAX_REQUEST_BYTES:
                raise ClockRefusal(
                    "malformed", f"a request has at most {MAX_REQUEST_BYTES} bytes, with its newline"
                )
            return None
        line, self.received = bytes(self.received), bytearray()
        return line

    def send(self, data: bytes = b"") -> None:
        """Send what the kernel takes now; the rest waits, and nothing is read meanwhile."""
        self.unsent += data
        try:
            self.unsent = self.unsent[self.connection.send(self.unsent) :]
        except BlockingIOError:
            return


class ClockServer:
    """Serves clients until it is stopped, then restores every clock.

    A client loses its lease, and the clock is restored, when its connection ends, when it makes no request
    for ``ttl_s``, or when what it sends is no request.

    Args:
        listener: a listening Unix socket, which the server closes; None to serve whom ``admit`` lets in only.
        leases: what sets and restores clocks.
        ttl_s: how long a client may be silent.
        idle_exit_s: stop when there was no client for so long; None for never. Who listens stays as long as a
            clock is left that could not be restored.
        manager: is pinged from the loop, so that a driver call that hangs starves its watchdog.
        energy: reads energy counters for clients; None for a guardian, which reads none.
        now: monotonic clock in seconds.
    """

    def __init__(
        self,
        listener: socket.socket | None,
        leases: Leases,
        *,
        ttl_s: float = TTL_S,
        idle_exit_s: float | None = None,
        manager: ServiceManager | None = None,
        energy: RareReads | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listener = listener
        self._leases = leases
        self._ttl_s = ttl_s
        self._idle_exit_s = idle_exit_s
        self._manager = manager or ServiceManager({})
        self._energy = energy
        self._now = now
        self._clients: set[_Client] = set()
        self._busy_s = now()
        self._stopping = False
        self._status = ""
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ, self._stop)
        if listener is not None:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, partial(self._accept, listener))

    def stop_on(self, *numbers: signal.Signals) -> None:
        """Let these signals stop the server; to be called in the main thread."""
        for number in numbers:
            signal.signal(number, lambda *_: None)  # the byte that Python writes to the waker does it
        signal.set_wakeup_fd(self._waker.fileno())

    def stop(self) -> None:
        """Stop the server from another thread."""
        self._waker.send(b"\0")

    def serve(self) -> None:
        """Serve until stopped or idle; every clock is restored when this returns or raises."""
        try:
            while not self._stopping and not self._idle():
                self.turn()
        finally:
            self._close()

    def turn(self) -> None:
        """Wait until something is due or somebody says something, and give each who does one turn."""
        self._manager.ping()
        for key, events in self._selector.select(self._patience_s()):
            self._manager.ping()  # many driver calls in one turn are no hang
            key.data(events)
        self._expire()
        self._leases.retry()
        self._tell()

    def _tell(self) -> None:
        """Keep the service manager's status line true."""
        status = f"STATUS=GPUs held: {len(self._leases)}, clients: {len(self._clients)}"
        if status != self._status:
            self._status = status
            self._manager.say(status)

    def _close(self) -> None:
        for client in list(self._clients):
            self._manager.ping()
            self._end(client, ClockRefusal("stopped", "tuner-clockd was stopped"))
        self._leases.close()
        self._selector.close()
        for end in (self._waker, self._woken, self._listener):
            if end is not None:
                end.close()

    def _patience_s(self) -> float | None:
        """How long the loop may sleep: until the next lease ends, ping is due, or idleness is enough."""
        now_s = self._now()
        ends_s = [client.heard_s + self._ttl_s - now_s for client in self._clients]
        if self._leases.retry_at_s is not None:
            ends_s.append(self._leases.retry_at_s - now_s)
        if self._manager.ping_interval_s is not None:
            ends_s.append(self._manager.ping_interval_s)
        if self._idle_exit_s is not None and not self._clients:
            ends_s.append(self._busy_s + self._idle_exit_s - now_s)
        return max(0.0, min(ends_s)) if ends_s else None

    def _idle(self) -> bool:
        left = self._listener is not None and self._leases.retry_at_s is not None
        if self._clients or left or self._idle_exit_s is None:
            return False
        return self._now() - self._busy_s >= self._idle_exit_s

    def _stop(self, _: int) -> None:
        self._stopping = True

    def _accept(self, listener: socket.socket, _: int) -> None:
        for _turn in range(_ACCEPTS_PER_TURN):
            try:
                connection, _address = listener.accept()
            except OSError:  # none is left, or one was gone before it was accepted
                return
            self.admit(connection)

    def admit(self, connection: socket.socket) -> None:
        """Serve who is at the other end of a connection, unless there are too many."""
        client = _Client(connection, self._now())
        of_user = sum(other.uid == client.uid for other in self._clients)
        self._clients.add(client)
        self._selector.register(client.connection, selectors.EVENT_READ, partial(self._turn, client))
        if len(self._clients) > MAX_CLIENTS or of_user >= MAX_CLIENTS_OF_A_USER:
            self._end(client, ClockRefusal("full", "tuner-clockd has too many connections: close some"))

    def _turn(self, client: _Client, events: int) -> None:
        """Give a client one turn; whatever goes wrong in it ends that client and no other."""
        try:
            if events & selectors.EVENT_WRITE:
                client.send()
            else:
                line = client.take_line()
                if line is not None:
                    client.send(self._answer(client, line))
            waits = selectors.EVENT_WRITE if client.unsent else selectors.EVENT_READ
            self._selector.modify(client.connection, waits, partial(self._turn, client))
        except ClockRefusal as reason:
            self._end(client, reason)
        except (EOFError, OSError):
            self._end(client, None)
        except Exception:  # noqa: BLE001 - one client's trouble is not the others', and its clock is restored
            _LOG.exception("an error that should not be; the lease of %s ends", client)
            self._end(client, ClockRefusal("clock", "tuner-clockd failed: see its log"))

    def _answer(self, client: _Client, line: bytes) -> bytes:
        try:
            answer = self._granted(client, parse_request(line))
        except ClockRefusal as reason:
            if reason.code == "malformed":
                raise
            answer = refused(reason)
        except ClockPermissionError as error:
            answer = refused(ClockRefusal("permission", str(error)))
        except TunerError as error:
            answer = refused(ClockRefusal("clock", str(error)))
        client.heard_s = self._now()  # after the driver's answer: what it took is not the client's silence
        return answer

    def _granted(self, client: _Client, request: ClockRequest) -> bytes:
        if request.verb in ("set", "limit"):
            self._leases.set(client, request)
        elif request.verb == "reset":
            return granted(left=self._leases.reset(client))
        elif request.verb == "energy":
            if self._energy is None:
                raise ClockRefusal("clock", "a guardian reads no energy")
            return granted(uj=self._energy.microjoules(request.zone))
        return granted(protocol=PROTOCOL, ttl_s=self._ttl_s)

    def _expire(self) -> None:
        """End the leases of clients that were silent for too long.

        One whose words wait to be read was not: the loop is late, after a slow driver call.
        """
        silent = [client for client in self._clients if self._now() - client.heard_s >= self._ttl_s]
        waiting = {key.fileobj for key, _ in self._selector.select(0)} if silent else set()
        for client in silent:
            if client.connection not in waiting:
                _LOG.warning("%s was silent for %g s", client, self._ttl_s)
                why = f"the lease has ended: nothing was heard for {self._ttl_s:g} s"
                self._end(client, ClockRefusal("expired", why))

    def _end(self, client: _Client, reason: ClockRefusal | None) -> None:
        """Restore what the client has changed, then tell it why and forget it."""
        self._clients.discard(client)
        self._busy_s = self._now()
        self._leases.drop(client)
        self._selector.unregister(client.connection)
        with client.connection:
            if reason is not None and not client.unsent:
                try:
                    client.send(refused(reason))
                except OSError:
                    return
