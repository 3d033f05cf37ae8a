"""The launcher of job processes: started by the fork server, their events read, seen to their end.

It is light: who starts jobs (the daemon, a sweep, a worker of a pool) need not import what searches.
"""

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from tuner.model.errors import ChildCrashedError
from tuner.search.job_messages import (
    FORK,
    RESULT,
    SPENT,
    AttemptResult,
    AttemptSpec,
    LineReader,
    parse_line,
    parse_result,
    spec_json,
)
from tuner.system.threads import is_shortage

T = TypeVar("T")
_OF_THE_SERVICE = (
    *("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"),
    *("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"),
)  # of systemd, for the daemon alone
_FORK_SERVER = (
    "import sys; sys.path[:] = sys.argv[3:];"
    " from tuner.search.fork_server import main; main(*map(int, sys.argv[1:3]))"
)
_LINE_BYTES = 4096
_LOG = logging.getLogger(__name__)
_READ_BYTES = 65_536  # a pipe's worth
# After two reads so soon: a process that floods the pipe fills it, and the daemon has time for others.
_PAUSE_S = 0.02
_SILENCE_S = 900.0  # beside windows and time-outs: the longest that a search may compile or think
_TIMEOUTS = 3.0  # the answer check, the run and the worker's end may each take one
_KILL_S = 30.0  # a killed process that holds a GPU may need seconds until the driver lets go of it


class Process(Protocol):
    """A process, as ``asyncio.subprocess.Process`` has it.

    Attributes:
        pid: of the process.
        returncode: None until it has ended; negative for the signal that killed it.
    """

    @property
    def pid(self) -> int: ...  # noqa: D102 - above

    @property
    def returncode(self) -> int | None: ...  # noqa: D102 - above

    async def wait(self) -> int:
        """Wait for its end; returns ``returncode``."""


Launch = Callable[[int, int, int], Awaitable[Process]]
"""Starts a job's process in a session of its own, with descriptors of its spec, its lines and its lifeline.

They stay open here. It raises OSError or ChildCrashedError where no process can be started just now.
"""

OnEvent = Callable[[str, Mapping[str, Any]], None]
"""Is called with the kind (``tuner.model.jobs.Event``) and data of an event."""


# --- Processes come from the fork server.


class Launcher:
    """Starts jobs as forks of one process that has imported what they need.

    The fork server is started when it is first needed; it ends by itself when it is not, and with this
    process. Where it has ended, it is started anew.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._orders: socket.socket | None = None
        self._lifeline = -1
        self._starting = asyncio.Lock()

    async def launch(self, spec: int, lines: int, lifeline: int) -> Process:
        """See ``Launch``.

        Raises:
            OSError, ChildCrashedError: as there.
        """
        try:
            return await self._forked(spec, lines, lifeline)
        except _ForkServerEndedError:  # while it was asked
            return await self._forked(spec, lines, lifeline)

    async def close(self) -> None:
        """End the fork server, and with it what it has forked."""
        if self._orders is not None:
            self._orders.close()
            self._orders = None
        if self._lifeline >= 0:
            os.close(self._lifeline)  # the kernel ends it
            self._lifeline = -1
        if self._process is not None:
            await self._process.wait()
            self._process = None

    async def _forked(self, *descriptors: int) -> "ForkedProcess":
        async with self._starting:
            orders = await self._fork_server()
        try:
            process = _ordered(orders, descriptors)
            await process.begun()
        except _ForkServerEndedError:
            if self._orders is orders:
                await self.close()
            raise
        return process

    async def _fork_server(self) -> socket.socket:
        """The socket that orders go to; the process is started where there is none."""
        if self._orders is not None and self._process is not None and self._process.returncode is None:
            return self._orders
        await self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        lifeline, self._lifeline = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", _FORK_SERVER, str(theirs.fileno()), str(lifeline), *sys.path),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=2,
                pass_fds=(theirs.fileno(), lifeline),
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if name not in _OF_THE_SERVICE},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(lifeline)
        self._orders = ours
        return ours


def _ordered(orders: socket.socket, descriptors: Sequence[int]) -> "ForkedProcess":
    """Order a process with these descriptors.

    Raises:
        _ForkServerEndedError: nobody takes orders any more.
    """
    reading, status = os.pipe()
    try:
        socket.send_fds(orders, [FORK], [*descriptors, status])
    except OSError as error:
        os.close(reading)
        raise _ForkServerEndedError(str(error)) from error
    finally:
        os.close(status)
    return ForkedProcess(reading)


class _ForkServerEndedError(ChildCrashedError):
    """The fork server has ended before it forked."""


class ForkedProcess:
    """A process of the fork server, which reports its end.

    Args:
        reading: descriptor that the reports come from; owned.
    """

    def __init__(self, reading: int) -> None:
        loop = asyncio.get_running_loop()
        self.pid = -1
        self.returncode: int | None = None
        self._loop = loop
        self._reading = reading
        self._text = b""
        self._begun: asyncio.Future[str] = loop.create_future()
        self._ended = asyncio.Event()
        os.set_blocking(reading, False)
        loop.add_reader(reading, self._read)

    async def begun(self) -> None:
        """Wait until it is there.

        Raises:
            ChildCrashedError: it cannot be forked, or the fork server has ended.
        """
        why = await self._begun
        if why:
            raise ChildCrashedError(f"the process of a job cannot be started: {why}")
        if self.pid < 0:
            raise _ForkServerEndedError("the process that starts jobs has ended")

    async def wait(self) -> int:
        """Wait for its end; returns ``returncode``, that of SIGKILL where nobody can tell."""
        await self._ended.wait()
        return -signal.SIGKILL if self.returncode is None else self.returncode

    def _read(self) -> None:
        try:
            data = os.read(self._reading, _LINE_BYTES)
        except BlockingIOError:
            return
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            kind, _, value = line.decode(errors="replace").partition(" ")
            if kind == "begun":
                self.pid = int(value)
            elif kind == "ended":
                self.returncode = int(value)
            if not self._begun.done():
                self._begun.set_result(value if kind == "error" else "")
        if not data:
            self._close()

    def _close(self) -> None:
        """Kill a fork whose fork server has ended before it: nobody reports its end."""
        self._loop.remove_reader(self._reading)
        os.close(self._reading)
        if self.pid >= 0 and self.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self.returncode = -signal.SIGKILL
        if not self._begun.done():
            self._begun.set_result("")
        self._ended.set()


# --- A job's process: started, its events read, seen to its end.


async def start(
    spec: AttemptSpec, on_event: OnEvent, launch: Launch, *, silence_s: float | None = None
) -> "AttemptProcess":
    """Start the process of an attempt.

    It has a session of its own, and writes its log to standard error. The kernel ends it when this process
    ends in whatever way.

    Args:
        spec: what it is to do.
        on_event: called in the event loop for every event; what it raises is logged.
        launch: starts the process.
        silence_s: without a sign of life for so long it hangs, and is killed; None for what follows from its
            options.

    Raises:
        ChildCrashedError: no process can be started just now.
    """
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        try:
            reading, writing = os.pipe()
            ours.callback(os.close, reading)
            theirs.callback(os.close, writing)
            theirs_of_lifeline, lifeline = os.pipe()
            ours.callback(os.close, lifeline)
            theirs.callback(os.close, theirs_of_lifeline)
            stdin = theirs.enter_context(os.fdopen(os.memfd_create("attempt-spec"), "w+", encoding="utf-8"))
            stdin.write(spec_json(spec))
            stdin.seek(0)
            process = await launch(stdin.fileno(), writing, theirs_of_lifeline)
        except (OSError, RuntimeError, MemoryError) as error:
            if not isinstance(error, OSError) and not is_shortage(error):
                raise
            raise ChildCrashedError(f"the process of a job cannot be started: {error}") from error
        ours.pop_all()
    if silence_s is None:  # it gives a sign of life with every measurement
        options = spec.job_spec.options
        limits_s = (options.get(name) or 0.0 for name in ("trial_timeout_s", "window_s"))
        silence_s = _SILENCE_S + _TIMEOUTS * sum(map(float, limits_s))
    return AttemptProcess(process, reading, lifeline, on_event, silence_s)


class AttemptProcess:
    """The process of one attempt at a job; made by ``start``.

    Args:
        process: the process, which leads a session.
        reading: descriptor of its lines; owned, as is the next.
        lifeline: closed when the process is to end at once.
        on_event: called for every event.
        silence_s: a process without a sign of life for so long hangs, and is ended.
    """

    def __init__(
        self,
        process: Process,
        reading: int,
        lifeline: int,
        on_event: OnEvent,
        silence_s: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._reading = reading
        self._lifeline = lifeline
        self._on_event = on_event
        self._silence_s = silence_s
        self._lines = LineReader(self._handle)
        self._garbled = 0
        self._stopped = False
        self._hung = False
        self._spent = AttemptResult("crashed")
        self._run: int | None = None
        self._result: AttemptResult | None = None
        self._pause_timer: asyncio.TimerHandle | None = None
        self._alive_s = self._loop.time()
        self._read_s = -math.inf
        os.set_blocking(reading, False)
        self._resume()
        self._end = self._loop.create_task(self._supervise())

    @property
    def pid(self) -> int:
        """Process id of the job's process."""
        return self._process.pid

    @property
    def spent(self) -> tuple[float, float]:
        """Seconds of windows and joules of the attempt so far, as it reports them."""
        return self._spent.seconds, self._spent.joules

    async def stop(self, grace_s: float) -> None:
        """Stop it in order, and kill it after ``grace_s`` seconds; returns when it has ended.

        What it has measured so far is stored, its clocks are restored, and its run can be resumed.
        """
        self._stopped = True
        self._signal(signal.SIGTERM)
        done, _ = await asyncio.wait({self._end}, timeout=grace_s)
        if not done:
            _LOG.warning("process %d has not stopped within %g s: killed", self.pid, grace_s)
            self._signal(signal.SIGKILL)
            await asyncio.wait({self._end}, timeout=_KILL_S)

    async def result(self) -> AttemptResult:
        """Wait for its end; may be called any number of times."""
        return await asyncio.shield(self._end)

    # --- its life ------------------------------------------------------------------------------------

    async def _supervise(self) -> AttemptResult:
        """Wait for the end of the process, and release what it held."""
        try:
            await self._wait()
        finally:
            self._pause()
            with contextlib.suppress(OSError):  # what is left in the pipe; others may hold its other end open
                while data := os.read(self._reading, _READ_BYTES):
                    self._lines.feed(data)
            os.close(self._reading)
            os.close(self._lifeline)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)  # its session: children that outlive it
        return self._conclusion()

    async def _wait(self) -> None:
        """Wait for the process; kill it where it gives no sign of life."""
        waiting = self._loop.create_task(self._process.wait())
        while True:
            left_s = self._alive_s + self._silence_s - self._loop.time()
            done, _ = await asyncio.wait({waiting}, timeout=max(0.0, left_s))
            if done:
                return
            if self._alive_s + self._silence_s <= self._loop.time():
                _LOG.error("process %d: no sign of life for %g s: killed", self.pid, self._silence_s)
                self._hung = True
                self._alive_s = self._loop.time()
                self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)  # Popen's send_signal would reap it, and asyncio lose its exit status

    def _conclusion(self) -> AttemptResult:
        """The result that the process sent, else one that follows from its exit status."""
        status = self._process.returncode
        if self._result is not None:
            return self._result
        known = replace(self._spent, run=self._run)
        if self._hung:
            message = f"no sign of life for {self._silence_s:.0f} s; it was killed"
            return replace(known, status="crashed", message=message)
        if self._stopped and status in (-signal.SIGTERM, -signal.SIGKILL, -signal.SIGIO):
            return replace(known, status="interrupted", message="stopped before it sent a result")
        return replace(known, status="crashed", message=f"its process {_exit(status)} without a result")

    # --- its lines -----------------------------------------------------------------------------------

    def _resume(self) -> None:
        self._pause_timer = None
        self._loop.add_reader(self._reading, self._read)

    def _pause(self) -> None:
        self._loop.remove_reader(self._reading)
        if self._pause_timer is not None:
            self._pause_timer.cancel()
            self._pause_timer = None

    def _read(self) -> None:
        try:
            data = os.read(self._reading, _READ_BYTES)
        except BlockingIOError:
            data = b"\n"
        except OSError:
            data = b""
        now_s = self._loop.time()
        soon, self._read_s = now_s - self._read_s < _PAUSE_S, now_s
        if not data:  # after the end of file, only the end of the process is awaited
            self._pause()
            return
        self._lines.feed(data)
        if soon:
            self._pause()
            self._pause_timer = self._loop.call_later(_PAUSE_S, self._resume)

    def _handle(self, text: bytes) -> None:
        parsed = parse_line(text)
        if parsed is None:
            self._garbled += 1
            if self._garbled == 1:
                _LOG.warning("process %d sent a line that is no event: %.200r", self.pid, text)
            return
        self._alive_s = self._loop.time()
        kind, data = parsed
        if kind == RESULT:
            self._result = parse_result(data)
        elif kind == SPENT:
            self._spent = parse_result({**data, "status": "crashed"}) or self._spent
        else:
            if kind == "run" and isinstance(data.get("run"), int):
                self._run = data["run"]
            try:
                self._on_event(kind, data)
            except Exception:  # noqa: BLE001 - an error of a handler must not end the job
                _LOG.exception("process %d: the event %s was not handled", self.pid, kind)


def _exit(status: int | None) -> str:
    if status is None or status >= 0:
        return f"exited with status {status}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-status).name}"
    return f"was killed by signal {-status}"


# --- The same for threads, which wait.


class BlockingLauncher:
    """Starts jobs for threads: an event loop in a thread of its own, and one fork server for all."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._launcher = Launcher()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def start(self, spec: AttemptSpec, silence_s: float = math.inf) -> AttemptProcess:
        """Start the process of an attempt, whose events nobody hears; see ``start``.

        Raises:
            ChildCrashedError: no process can be started just now.
        """
        return self._wait(start(spec, lambda *_: None, self._launcher.launch, silence_s=silence_s))

    def result(self, process: AttemptProcess) -> AttemptResult:
        """Wait for the end of a process."""
        return self._wait(process.result())

    def stop(self, process: AttemptProcess, grace_s: float) -> None:
        """Have a process end as ``AttemptProcess.stop`` does; does not wait."""
        asyncio.run_coroutine_threadsafe(process.stop(grace_s), self._loop)

    def close(self) -> None:
        """End what runs."""
        self._wait(self._launcher.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
