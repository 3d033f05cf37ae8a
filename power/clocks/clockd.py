"""``tuner-clockd``: sets and restores GPU clocks as root, for others.

``tuner-clockd serve`` listens on a Unix socket, which systemd passes or it makes itself; ``tuner-clockd
restore`` undoes what a killed helper left; ``tuner-clockd guard`` is what ``guardian.hire`` starts. It has no
network, runs nobody's code, and can do nothing but set a clock, power limit or power profile that a GPU
supports and the administrator allows, and take that back.
"""

import argparse
import contextlib
import errno
import grp
import logging
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path

from tuner.model.errors import (
    ClockError,
    ClockLostError,
    ClockPermissionError,
    ClockRefusedError,
    InputError,
    PowerError,
    TunerError,
)
from tuner.system.service_manager import ServiceManager, passed_socket
from tuner.system.untrusted.reading import PlainFormatter

from ..base import SettingState, kind_of
from ..sensors.attributes import zones
from .actuator import Actuator, ClockPaths, demand, load_config, strangers
from .clockd_client import (
    MAX_REQUEST_BYTES,
    PROTOCOL,
    SETTING,
    SOCKET,
    ClockRefusal,
    ClockRequest,
    SetterConnection,
    granted,
    parse_request,
    reach,
    refused,
)
from .control import open_actuator, undo
from .journal import GLANCE_S, HANDOVER_S, Ownership, SettingJournal, Undo, restore_stale, runtime_directory

# --- Energy counters of processors that only root may read, read by ``tuner-clockd`` for its group.
#
# Reads of such counters in quick succession have told secrets of other programs (PLATYPUS, CVE-2020-8694):
# that is why the kernel keeps them for root. The helper reads none unless the administrator's file says
# ``[powercap] read = true``, none more often than every 20 ms, and only packages and DRAM by name.

LEAST_S = 0.02
"""Between two reads of one zone."""

_ADVICE = "the administrator allows it by [powercap] read = true in /etc/tuner/clockd.toml"


class RareReads:
    """Reads zones by name, each at most every ``LEAST_S``: in between the last value is given again.

    Args:
        allowed: tells whether the administrator allows it; asked once.
        folders: finds the folder of each zone that may be read, by its name.
        now: monotonic clock in seconds.
    """

    def __init__(
        self,
        allowed: Callable[[], bool],
        folders: Callable[[], dict[str, Path]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._allowed = allowed
        self._folders = folders
        self._now = now
        self._latest: dict[str, tuple[float, int]] = {}

    def microjoules(self, zone: str) -> int:
        """The counter of a zone.

        Raises:
            ClockRefusal: it may not be read, is not there, or cannot be read.
        """
        if not self._allowed():
            raise ClockRefusal("permission", f"tuner-clockd reads no energy: {_ADVICE}")
        read_s, value = self._latest.get(zone, (-LEAST_S, 0))
        if self._now() - read_s < LEAST_S:
            return value
        folder = self._folders().get(zone)
        if folder is None:
            raise ClockRefusal("clock", f"this host does not count {zone}")
        try:
            value = int((folder / "energy_uj").read_text())
        except (OSError, ValueError) as error:
            raise ClockRefusal("clock", f"{folder / 'energy_uj'}: {error}") from error
        self._latest[zone] = self._now(), value
        return value


class HelperCounter:
    """A zone's counter, read through the helper.

    Raises:
        PowerError: the helper is not there, or may not or does not read it.
    """

    def __init__(self, zone: str, path: Path = SOCKET) -> None:
        self._zone = zone
        self._path = path
        self._connection: SetterConnection | None = None
        try:
            self.read()
        except BaseException:
            self.close()
            raise

    def read(self) -> int:
        """Microjoules; a connection that the helper has ended for silence is made anew.

        Raises:
            PowerError: the helper is gone, or does not read it any more.
        """
        try:
            try:
                return self._asked()
            except ClockLostError:
                self.close()
                return self._asked()
        except (ClockError, KeyError, TypeError, ValueError) as error:
            raise PowerError(f"{self._zone} through tuner-clockd: {error}") from error

    def close(self) -> None:
        """End the connection; twice is fine."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _asked(self) -> int:
        if self._connection is None:
            self._connection = SetterConnection(reach(self._path))
        return int(self._connection.ask(ClockRequest("energy", zone=self._zone))["uj"])


# --- Leases: who holds which setting, what is restored, and what is tried again.

_ATTEMPTS = 3
_PAUSE_S = 0.1  # short: the other clients wait meanwhile
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0  # a GPU that is lost stays so until somebody acts
_LOG = logging.getLogger(__name__)

OpenActuator = Callable[[str, str, int | None], Actuator]
"""Opens the actuator of a control for a GPU, by their names, under the rules for a user, by number.

Raises a ClockError if there is none.
"""


class _ClientLease:
    """A setting of one GPU in the hands of one client; the helper owns it as long as this is open."""

    def __init__(self, actuator: Actuator, ownership: Ownership) -> None:
        self.actuator = actuator
        self._ownership = ownership
        self._old: SettingState | None = None
        self._new = 0

    def set(self, value: int) -> None:
        """Set a value, from what was there before any other that this lease has set.

        Going back first costs one more call and keeps the journal simple: at every moment one entry tells
        the whole way back.
        """
        demand(self.actuator, value)
        self.restore()
        old = self.actuator.before()
        self._ownership.announce(old, value)
        self._old, self._new = old, value
        try:
            self.actuator.set(value)
        except ClockRefusedError:  # nothing was changed
            self._forget()
            raise
        except BaseException:
            self.restore()
            raise

    def restore(self) -> list[str]:
        """Undo what is set, trying a few times; tells what was left alone. The journal stays if it fails."""
        if self._old is None:
            return []
        for attempt in range(_ATTEMPTS):
            try:
                notes = self.actuator.restore(self._old, self._new)
                break
            except ClockError:
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(_PAUSE_S)
        self._forget()
        return notes

    def close(self) -> None:
        """Give the GPU up; what could not be restored stays in the journal."""
        self._ownership.give_up()
        self.actuator.close()

    def _forget(self) -> None:
        self._ownership.clear()
        self._old = None


class Leases:
    """The settings of GPUs that clients hold.

    Args:
        directory: of journals and locks.
        open_actuator: opens a GPU for a client.
        undo: undoes what a dead owner left in the journal.
        now: monotonic clock in seconds.
        owner: identity of the process that others are told of; this one if empty.
        patience_s: how long a client, and all others with it, may wait for the guardian of a dead owner.

    Attributes:
        retry_at_s: when ``retry`` has something to do; None while nothing is left to restore.
    """

    def __init__(
        self,
        directory: Path,
        open_actuator: OpenActuator,
        undo: Undo,
        now: Callable[[], float] = time.monotonic,
        *,
        owner: str = "",
        patience_s: float = GLANCE_S,
    ) -> None:
        self._owner = owner
        self._patience_s = patience_s
        self._directory = directory
        self._open_actuator = open_actuator
        self._undo = undo
        self._now = now
        self._by_holder: dict[Hashable, _ClientLease] = {}
        self._retry_s = _FIRST_RETRY_S
        self.retry_at_s: float | None = None

    def __len__(self) -> int:
        return len(self._by_holder)

    def set(self, holder: Hashable, request: ClockRequest, user: int | None = None) -> None:
        """Hold a setting of a GPU for ``holder``; a client's first success makes it the owner.

        Args:
            holder: which client.
            request: of it.
            user: whose rules hold.

        Raises:
            ClockRefusal: another client holds it, or this one holds another.
            ClockError: the value is not supported or not allowed, or setting it failed; then nothing is set.
        """
        kind = kind_of(request.control)
        lease = self._by_holder.get(holder)
        if lease is not None:
            if (lease.actuator.control, lease.actuator.gpu) != (request.control, request.gpu):
                present = f"the {kind_of(lease.actuator.control).name} of {lease.actuator.gpu}"
                raise ClockRefusal("busy", f"this connection holds {present}: open another for {request.gpu}")
            lease.set(request.value)
        else:
            lease = self._by_holder[holder] = self._opened(request, user)
            try:
                lease.set(request.value)
            except BaseException:
                self.drop(holder)
                raise
            _LOG.info("%s holds the %s of %s", holder, kind.name, request.gpu)
        _LOG.debug("%s set %s to %d %s", holder, request.gpu, request.value, kind.unit)

    def reset(self, holder: Hashable) -> list[str]:
        """Restore the setting of a holder, who stays its owner; tells what was left alone.

        Raises:
            ClockError: it could not be restored; the journal stays.
        """
        lease = self._by_holder.get(holder)
        return lease.restore() if lease else []

    def drop(self, holder: Hashable) -> None:
        """Restore and give up what a holder has; what fails is logged, kept in the journal and retried."""
        lease = self._by_holder.pop(holder, None)
        if lease is None:
            return
        kind = kind_of(lease.actuator.control)
        try:
            for note in lease.restore():
                _LOG.warning("%s: %s", lease.actuator.gpu, note)
        except Exception:  # noqa: BLE001 - the others must be restored, whatever this one met
            _LOG.exception("the %s of %s is not restored yet", kind.value, lease.actuator.gpu)
            self._retry_s = _FIRST_RETRY_S
            self.retry_at_s = self._now() + self._retry_s
        finally:
            lease.close()
        _LOG.info("%s gave up the %s of %s", holder, kind.name, lease.actuator.gpu)

    def restore_stale(self) -> bool:
        """Undo what dead owners left, and what could not be restored before; False if something is left."""
        outcomes = restore_stale(self._directory, self._undo)  # which logs what it does
        done = all(outcome.state != "failed" for outcome in outcomes)
        self.retry_at_s = None if done else self._now() + self._retry_s
        return done

    def retry(self) -> None:
        """Try again to restore what could not be, ever more rarely."""
        if self.retry_at_s is not None and self._now() >= self.retry_at_s:
            self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)
            self.restore_stale()

    def close(self) -> None:
        """Restore everything."""
        for holder in list(self._by_holder):
            self.drop(holder)

    def _opened(self, request: ClockRequest, user: int | None) -> _ClientLease:
        kind = kind_of(request.control)
        for holder, lease in self._by_holder.items():
            if (lease.actuator.control, lease.actuator.gpu) == (request.control, request.gpu):
                raise ClockRefusal(
                    "busy", f"the {kind.name} of {request.gpu} {kind.held} by {holder}: wait for it or end it"
                )
        actuator = self._open_actuator(request.control, request.gpu, user)
        if (actuator.control, actuator.gpu) != (request.control, request.gpu):
            actuator.close()
            raise ClockRefusal("clock", f"{request.gpu} is no name of a GPU, but {actuator.gpu} is")
        journal = SettingJournal(self._directory, request.control, request.gpu)
        ownership = Ownership(journal, self._undo, owner=self._owner, patience_s=self._patience_s)
        try:
            ownership.take()
        except BaseException:
            actuator.close()
            raise
        return _ClientLease(actuator, ownership)


# --- The server: clients on a socket, each of which may die with its lease.

TTL_S = 10.0  # far above what a busy machine keeps a thread waiting, short beside what a wrong clock costs
MAX_CLIENTS = 64
MAX_CLIENTS_OF_A_USER = 16  # one user cannot keep all others out
_ACCEPTS_PER_TURN = 8
_SEND_BUFFER_BYTES = 8192  # what the kernel holds for a client that never reads
_PEERCRED = struct.Struct("3i")  # struct ucred of unix(7)


class _Client:
    """One connection, which is one lease: who it is, what it has said in part, what it has not yet taken.

    Attributes:
        uid: user, as the kernel knew it when the client connected.
        requested_s: when it last made a whole request.
    """

    def __init__(self, connection: socket.socket, now_s: float) -> None:
        self.connection = connection
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
        self.pid, self.uid, self.gid = _PEERCRED.unpack(credentials)
        self.requested_s = now_s
        self.received = bytearray()
        self.unsent = b""

    def __str__(self) -> str:
        return f"process {self.pid} of user {self.uid}, group {self.gid}"

    def take_line(self) -> bytes | None:
        """Read at most one line, so that every client has its turn; None while it is incomplete.

        Raises:
            ClockRefusal: the line is too long.
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

        # The service manager's status line follows.
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
        """Return the time in s until a lease ends, ping is due, or idleness is enough; None to sleep on."""
        now_s = self._now()
        ends_s = [client.requested_s + self._ttl_s - now_s for client in self._clients]
        if self._leases.retry_at_s is not None:
            ends_s.append(self._leases.retry_at_s - now_s)
        if self._manager.ping_interval_s is not None:
            ends_s.append(self._manager.ping_interval_s)
        if self._idle_exit_s is not None and not self._clients:
            ends_s.append(self._busy_s + self._idle_exit_s - now_s)
        return max(0.0, min(ends_s)) if ends_s else None

    def _idle(self) -> bool:
        unrestored = self._listener is not None and self._leases.retry_at_s is not None
        if self._clients or unrestored or self._idle_exit_s is None:
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
        # After the driver's answer: what it took is not the client's silence.
        client.requested_s = self._now()
        return answer

    def _granted(self, client: _Client, request: ClockRequest) -> bytes:
        if request.verb in SETTING:
            self._leases.set(client, request, client.uid)
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
        silent = [client for client in self._clients if self._now() - client.requested_s >= self._ttl_s]
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


# --- The program: options, the socket, and the guardian's form of it.

_BACKLOG = 64
_SOCKET_MODE = 0o660  # the group that may set clocks
_FOLDER_MODE = 0o755


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the helper; 0 when all is restored, 1 when a clock could not be, 2 for wrong options."""
    options = _parser().parse_args(arguments)
    level = logging.WARNING if options.command == "guard" else logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter("%(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    where = ClockPaths(
        library=options.library,
        devfreq=options.devfreq,
        config=options.config,
        directory=options.directory,
        socket=options.socket or ClockPaths().socket,
    )
    try:
        directory = where.directory or runtime_directory()
        if options.command == "restore":
            # No configuration is read: what is wrong in it must not keep clocks set.
            outcomes = restore_stale(directory, undo(where))
            return int(any(outcome.state == "failed" for outcome in outcomes))
        config = load_config(where.config)

        def opened(control: str, gpu: str, user: int | None) -> Actuator:
            return open_actuator(control, gpu, where, partial(config.rules, user=user))

        if options.command == "guard":
            leases = Leases(directory, opened, undo(where), owner=options.owner, patience_s=HANDOVER_S)
            return _guard(leases, options)
        for warning in strangers(where.config, config):
            _LOG.warning("%s", warning)
        energy = RareReads(
            lambda: load_config(where.config).reads_powercap, partial(_zones, options.powercap)
        )
        leases = Leases(directory, opened, undo(where))
        _serve(leases, _listener(options.socket, options.group), energy, options)
    except TunerError as error:
        _LOG.error("tuner-clockd: %s", error)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    standard = ClockPaths()
    common.add_argument("--directory", type=Path, metavar="DIR", help="of the journal [/run/tuner for root]")
    common.add_argument("--config", type=Path, default=standard.config, metavar="FILE", help="[%(default)s]")
    common.add_argument("--library", metavar="FILE", help="libnvidia-ml.so.1 [what the system finds]")
    common.add_argument("--devfreq", type=Path, default=standard.devfreq, metavar="DIR", help="[%(default)s]")
    common.add_argument(
        "--ttl", type=_seconds, default=TTL_S, metavar="S", help="longest silence of a client [%(default)g]"
    )
    common.add_argument(
        "--socket", type=Path, metavar="PATH", help=f"[what systemd passes, or {standard.socket}]"
    )
    parser = argparse.ArgumentParser(
        prog="tuner-clockd", description="Sets GPU clocks for others, and restores them."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", parents=[common], help="answer on a Unix socket until stopped")
    serve.add_argument(
        "--group", metavar="NAME", help="who may connect to a socket made here [the own group]"
    )
    serve.add_argument(
        "--idle-exit", type=_seconds, metavar="S", help="end after so long without a client [never]"
    )
    serve.add_argument(
        "--powercap", type=Path, default=Path("/sys"), metavar="DIR", help="the kernel's /sys [%(default)s]"
    )
    commands.add_parser("restore", parents=[common], help="undo what a killed helper left, and end")
    guard = commands.add_parser("guard", parents=[common], help="serve the one process that starts it so")
    guard.add_argument("fd", type=int, help="descriptor of a socket connected to it")
    guard.add_argument("owner", help="its identity")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no positive number of seconds")
    return value


def _zones(sysfs: Path) -> dict[str, Path]:
    """The folders of the energy counters that may be read for others."""
    return {zone.name: zone.folder for zone in zones(sysfs) if zone.domain != "psys"}


def _serve(leases: Leases, listener: socket.socket, energy: RareReads, options: argparse.Namespace) -> None:
    manager = ServiceManager()
    server = ClockServer(
        listener, leases, ttl_s=options.ttl, idle_exit_s=options.idle_exit, manager=manager, energy=energy
    )
    server.stop_on(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    leases.restore_stale()  # what cannot be restored now is tried again while serving
    manager.say("READY=1")
    try:
        server.serve()
    finally:
        manager.say("STOPPING=1")


def _guard(leases: Leases, options: argparse.Namespace) -> int:
    """Serve one process until it ends the lease or dies; 1 if a clock could not be restored then.

    Signals that end that process may reach this one too: they are not for it.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    server = ClockServer(None, leases, ttl_s=options.ttl, idle_exit_s=0.0)
    server.admit(socket.socket(fileno=options.fd))
    server.serve()
    return int(leases.retry_at_s is not None)


def _listener(path: Path | None, group: str | None) -> socket.socket:
    """The socket to listen on: the one made at ``path`` if given, else the one that systemd passed."""
    passed = passed_socket() if path is None else None
    if passed is not None:
        return passed
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _bind(listener, path or ClockPaths().socket, group)
    except BaseException:
        listener.close()
        raise
    return listener


def _bind(listener: socket.socket, path: Path, group: str | None) -> None:
    """Listen on a new socket that is open to its group and closed to others."""
    try:
        gid = grp.getgrnam(group).gr_gid if group else -1
    except KeyError as error:
        raise InputError(f"--group {group}: there is no such group") from error
    try:
        path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        _unlink_dead(path)
        mask = os.umask(0o777 & ~_SOCKET_MODE)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        os.chown(path, -1, gid)
        listener.listen(_BACKLOG)
    except OSError as error:
        raise ClockError(f"tuner-clockd cannot listen on {path}: {error}") from error


def _unlink_dead(path: Path) -> None:
    """Remove the socket of a helper that is gone; one that answers is left alone."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:  # what a file that is no socket says too
            if path.is_socket():
                path.unlink()
        except FileNotFoundError:
            return
        else:
            raise OSError(errno.EADDRINUSE, "another helper answers there")


if __name__ == "__main__":
    sys.exit(main())
