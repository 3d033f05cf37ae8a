"""The start of the daemon: what may pass by itself is waited for, with the socket open.

Under a service manager the start never ends because of a wrong file, a full disk, a lock or a lack of
threads: clients are answered 503 with the reason, and it goes on when the reason is gone. Started by hand,
the daemon says what is wrong, and ends.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import selectors
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tuner.daemon.http.responses import error_body
from tuner.daemon.http.server import ListeningSocket, listener
from tuner.daemon.machine import GpuSurvey, restore_and_find, restore_clocks
from tuner.daemon.main import BEGIN_ANEW, Daemon
from tuner.daemon.settings_file import service_table
from tuner.daemon.state import LoadedConfig, StartOptions, load_config, usable_config
from tuner.database.storage import Storage
from tuner.model.errors import ChildError, InputError, ResourceError, TunerError
from tuner.system import logs
from tuner.system.ownership import StateLock, signature
from tuner.system.service_manager import ServiceManager, passed_socket
from tuner.system.signals import StartupSignals, ignore_signals, startup_signals
from tuner.system.threads import StartedThreads

# --- What clients are told while the daemon cannot start: every request is answered with 503 and the reason,
# but that for /healthz: the process lives.
#
# It takes one thread and a few descriptors, and waits for nobody: what keeps the daemon from starting may be
# that there are no more of them.

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


class StartupServer:
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
                    probed = state.head.startswith(_PROBE)
                    state.answered, state.head = True, bytearray()
                    client.send(_ALIVE if probed else answer)  # less than the buffer of a new socket
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


_PROBE = b"GET /healthz "
_ALIVE = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\nconnection: close\r\n\r\nok\n"


# --- The start itself, tried until it succeeds.

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 5.0
_LOOK_S = 0.5  # at a file that is wrong
_SURVEY_S = 180.0  # for drivers that hang
_WORKERS = 4  # threads: one analyses for minutes, the others read files
_INIT = 1  # of a container without an init, to which orphans fall
_LOG = logging.getLogger(__name__)

T = TypeVar("T")


def run(options: StartOptions, log_format: logs.Format = "auto") -> int:
    """Run the daemon until it is told to end; returns the exit code.

    Raises:
        InputError: a file is wrong, or another daemon is there already; never under a service manager.
        StoreFullError: there is no room for the state; never under a service manager.
        ResourceError: there are no threads; never under a service manager.
    """
    logs.configure(log_format)
    _share_one_heap()
    if os.getpid() == _INIT:
        _LOG.warning("process 1: what killed jobs leave is not reaped; start the container with --init")
    notice = ""
    passed = passed_socket()
    while True:
        with startup_signals() as received:
            with Start(options, ServiceManager(), received, passed) as start:
                daemon, storage = start.daemon(notice)
                received.check()
                if received.reload:
                    daemon.reload()
                code = asyncio.run(_run_daemon(daemon, start.workers))
                if not storage.closed:  # its thread hangs, and the interpreter would wait for it
                    logging.shutdown()
                    os._exit(code)
            if code != BEGIN_ANEW:
                return code
            notice = daemon.why_anew


# parameters of mallopt(3), and their values
_HEAP = ((-8, 1), (-3, 2**16), (-1, 2**17))  # M_ARENA_MAX; M_MMAP_THRESHOLD, M_TRIM_THRESHOLD in bytes


def _share_one_heap() -> None:
    """Keep free memory together, and give it back: call this before there are threads.

    Else each thread has a heap of its own, whose gaps no other thread fills, and blocks of megabytes go there
    too: the daemon would grow for hours without holding more.
    """
    with contextlib.suppress(AttributeError):  # not of the GNU C library
        for parameter, value in _HEAP:
            ctypes.CDLL(None).mallopt(parameter, value)


async def _run_daemon(daemon: Daemon, workers: StartedThreads) -> int:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(workers)
    if sys.version_info < (3, 12) and _knows_pidfd():  # else each job's process takes a thread
        watcher = asyncio.PidfdChildWatcher()
        watcher.attach_loop(loop)
        asyncio.set_child_watcher(watcher)
    code = await daemon.run()
    if code != BEGIN_ANEW:
        ignore_signals(loop)
    return code


def _knows_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


class _FileChangedError(Exception):
    """daemon.toml has changed while something was waited for that it may name."""


class Start(AbstractContextManager["Start"]):
    """A start, and what it has taken. A context manager, which gives it back.

    Args:
        options: of the command line.
        manager: of services.
        received: signals that come meanwhile.
        given: the socket that the service manager passed; None to make one. It stays open.
    """

    def __init__(
        self,
        options: StartOptions,
        manager: ServiceManager,
        received: StartupSignals,
        passed: socket.socket | None = None,
    ) -> None:
        self._options = options
        self._manager = manager
        self._received = received
        self._given = passed
        self._stack = contextlib.ExitStack()
        self._startup_server: StartupServer | None = None
        self._told = ""
        self._clocks_restored = False

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def daemon(self, notice: str = "") -> tuple[Daemon, Storage]:
        """Take all that a daemon needs.

        Args:
            notice: what users should know, beside what is found here.
        """
        while True:
            try:
                return self._begun(notice)
            except _FileChangedError:  # noqa: PERF203 - seldom
                _LOG.info("%s has changed: the start begins anew", self._options.file)
                self._close_startup_server()
                self._stack.close()

    def _begun(self, notice: str) -> tuple[Daemon, Storage]:
        self._read_file: object = None
        config, listening = self._config_and_socket()
        self._read_file = signature(self._options.file)
        service = config.settings.service
        directory = self._options.state_directory(config.settings)
        lock = self._until(lambda: StateLock(directory))
        self._stack.callback(lock.close)
        self.workers = self._until(lambda: StartedThreads(_WORKERS, "worker"))
        self._stack.callback(self.workers.shutdown, wait=False, cancel_futures=True)
        # pings wait while a driver is asked, and are asked for once the startup server was open
        self._manager.extend_watchdog(_SURVEY_S)
        self._manager.say("STATUS=looking for GPUs, and for clocks to give back")
        survey = self._until(lambda: self._survey(self._options.devices or service.devices))
        storage = self._until(lambda: Storage(directory / "tuner.db", lock.check))
        daemon = Daemon(
            self._options,
            config,
            survey,
            storage=storage,
            listening=listening,
            manager=self._manager,
            lock=lock,
            notice=notice,
        )
        self._close_startup_server()
        self._manager.extend_watchdog(None)
        return daemon, storage

    def _config_and_socket(self) -> tuple[LoadedConfig, ListeningSocket]:
        """Settings that can be used, and the socket that they name."""
        if not self._manager.there:
            config = load_config(self._options)
            # before the socket: who is told that another daemon has the state is told which
            StateLock(self._options.state_directory(config.settings)).close()
            return config, self._listen(config.settings.service.socket, config.settings.service.group)
        try:
            config = usable_config(self._options)
        except InputError:
            service = service_table(self._options.file)
            listening = self._until(lambda: self._listen(service.socket, service.group))
            config = self._until(lambda: usable_config(self._options), lambda: signature(self._options.file))
            if config.settings.service.socket == service.socket:
                return config, listening
            self._close_startup_server()
            listening.close()
        service = config.settings.service
        return config, self._until(lambda: self._listen(service.socket, service.group))

    def _listen(self, named: Path | None, group: str) -> ListeningSocket:
        if self._given is not None:
            listening = ListeningSocket(self._given.dup())
            listening.socket.setblocking(False)
        else:
            listening = listener(self._options.socket or named, group)
        self._stack.callback(listening.close)
        self._startup_server = StartupServer(
            listening.socket, self._manager.ping, lambda: self._received.reload
        )
        return listening

    def _close_startup_server(self) -> None:
        if self._startup_server is not None:
            self._startup_server.close()
            self._startup_server = None

    def _survey(self, devices: tuple[str, ...]) -> GpuSurvey:
        survey = restore_and_find(devices, may_simulate=not devices)
        if survey.unasked:
            raise ResourceError(survey.unasked)
        return survey

    def _until(self, action: Callable[[], T], seen: Callable[[], object] = lambda: None) -> T:
        """Do something, under a service manager again and again until it succeeds.

        Args:
            action: raises TunerError or MemoryError where it does not succeed now.
            seen: a change of what it returns is a reason to try at once.
        """
        wait_s = _FIRST_WAIT_S
        while True:
            self._received.check()
            before = seen()
            try:
                return action()
            except (TunerError, MemoryError) as error:
                if not self._manager.there:
                    raise
                self._tell(str(error) or "no memory is left")
            if not self._clocks_restored:  # before anything is waited for
                self._clocks_restored = True
                self._manager.extend_watchdog(_SURVEY_S)
                with contextlib.suppress(ChildError):
                    restore_clocks()
            until_s = time.monotonic() + wait_s
            while time.monotonic() < until_s and seen() == before and not self._received.reload:
                self._pause(min(_LOOK_S, wait_s))
            if self._read_file is not None and signature(self._options.file) != self._read_file:
                raise _FileChangedError
            self._received.reload = False
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _pause(self, seconds: float) -> None:
        if self._startup_server is not None:
            self._startup_server.wait(seconds, self._told)
        else:  # there is no socket yet
            self._manager.ping()
            time.sleep(seconds)

    def _tell(self, reason: str) -> None:
        """Say once why the daemon does not start; where clients are answered, it counts as started."""
        if reason != self._told:
            self._told = reason
            _LOG.error("the daemon waits: %s", reason)
        ready = ("READY=1",) if self._startup_server is not None else ()
        self._manager.say(*ready, f"STATUS=waits: {reason.splitlines()[0]}")
