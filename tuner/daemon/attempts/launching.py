"""Ways to start the process of an attempt: a fresh interpreter, or a fork of the launcher."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Protocol

from tuner.model.errors import ChildCrashedError

_OF_THE_SERVICE = (
    *("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"),
    *("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"),
)  # of systemd, for the daemon alone
_BOOT = (
    "import sys; sys.path[:] = sys.argv[3:];"
    " from tuner.daemon.attempts.attempt import main; main(*map(int, sys.argv[1:3]))"
)
_LAUNCHER = _BOOT.replace("attempts.attempt", "attempts.launcher")
_ORDER = b"fork"  # launcher.ORDER; the daemon, which says it, imports no search
_LINE_BYTES = 4096


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


class AttemptLauncher(Protocol):
    """Starts the process of an attempt."""

    async def __call__(self, spec: int, lines: int, lifeline: int) -> Process:
        """Start it in a session of its own; the descriptors stay open here.

        Raises:
            OSError, ChildCrashedError: no process can be started just now.
        """


async def fresh_interpreter(spec: int, lines: int, lifeline: int) -> Process:
    """Start an attempt in a fresh interpreter.

    Args:
        spec: descriptor that its standard input is read from.
        lines: descriptor that events go to.
        lifeline: descriptor of a pipe; the kernel ends the process when its other end is closed.
    """
    return await _interpreter(_BOOT, (lines, lifeline), spec)


async def _interpreter(code: str, passed: Sequence[int], stdin: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, *map(str, passed), *sys.path),
        stdin=stdin,
        stdout=2,
        pass_fds=passed,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if name not in _OF_THE_SERVICE},
    )


class Launcher:
    """Starts attempts as forks of one process that has imported what they need.

    The process is started when it is first needed; it ends by itself when it is not, and with this one. Where
    it has ended, it is started anew.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._orders: socket.socket | None = None
        self._lifeline = -1
        self._starting = asyncio.Lock()

    async def launch(self, spec: int, lines: int, lifeline: int) -> Process:
        """See ``AttemptLauncher``.

        Raises:
            OSError, ChildCrashedError: as there.
        """
        try:
            return await self._forked(spec, lines, lifeline)
        except _LauncherEndedError:  # while it was asked
            return await self._forked(spec, lines, lifeline)

    async def close(self) -> None:
        """End the process, and with it the attempts that it has forked."""
        if self._orders is not None:
            self._orders.close()
            self._orders = None
        if self._lifeline >= 0:
            os.close(self._lifeline)  # the kernel ends it
            self._lifeline = -1
        if self._process is not None:
            await self._process.wait()
            self._process = None

    async def _forked(self, spec: int, lines: int, lifeline: int) -> "ForkedProcess":
        async with self._starting:
            orders = await self._ready()
        try:
            process = _ordered(orders, (spec, lines, lifeline))
            await process.begun()
        except _LauncherEndedError:
            if self._orders is orders:
                await self.close()
            raise
        return process

    async def _ready(self) -> socket.socket:
        """The socket that orders go to; the process is started where there is none."""
        if self._orders is not None and self._process is not None and self._process.returncode is None:
            return self._orders
        await self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        held, self._lifeline = os.pipe()
        try:
            self._process = await _interpreter(_LAUNCHER, (theirs.fileno(), held), asyncio.subprocess.DEVNULL)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(held)
        self._orders = ours
        return ours


def _ordered(orders: socket.socket, descriptors: Sequence[int]) -> "ForkedProcess":
    """Order a process with these descriptors.

    Raises:
        _LauncherEndedError: nobody takes orders any more.
    """
    reading, status = os.pipe()
    try:
        socket.send_fds(orders, [_ORDER], [*descriptors, status])
    except OSError as error:
        os.close(reading)
        raise _LauncherEndedError(str(error)) from error
    finally:
        os.close(status)
    return ForkedProcess(reading)


class _LauncherEndedError(ChildCrashedError):
    """The launcher has ended before it forked."""


class ForkedProcess:
    """A process that the launcher has forked, and whose end it reports.

    Args:
        reading: descriptor that the launcher's reports come from; owned.
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
            ChildCrashedError: it cannot be forked, or the launcher has ended.
        """
        why = await self._begun
        if why:
            raise ChildCrashedError(f"the process of a job cannot be started: {why}")
        if self.pid < 0:
            raise _LauncherEndedError("the process that starts jobs has ended")

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
            self._told(line.decode(errors="replace"))
        if not data:
            self._close()

    def _told(self, line: str) -> None:
        kind, _, value = line.partition(" ")
        if kind == "begun":
            self.pid = int(value)
        elif kind == "ended":
            self.returncode = int(value)
        if not self._begun.done():
            self._begun.set_result(value if kind == "error" else "")

    def _close(self) -> None:
        """The reports have ended; without an end of the process, the launcher has, and its fork is killed."""
        self._loop.remove_reader(self._reading)
        os.close(self._reading)
        if self.pid >= 0 and self.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self.returncode = -signal.SIGKILL
        if not self._begun.done():
            self._begun.set_result("")
        self._ended.set()
