"""A job's process as the daemon has it: started, listened to, stopped, and never left behind."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tuner.daemon.attempts.messages import (
    ENDING,
    SPENT,
    Ending,
    Errand,
    Lines,
    ending_from,
    errand_text,
    event,
)
from tuner.errors import ChildCrashedError

Tell = Callable[[str, Mapping[str, Any]], None]
"""Hears of events: their kind (``tuner.model.jobs.JobEvent``) and data."""

_BOOT = (
    "import sys; sys.path[:] = sys.argv[3:];"
    " from tuner.daemon.attempts.attempt import main; main(*map(int, sys.argv[1:3]))"
)
_LOG = logging.getLogger(__name__)
_READ_BYTES = 65_536  # a pipe's worth
_BREATH_S = 0.02  # between two reads: whoever floods the pipe fills it, and the daemon has time for others
_PATIENCE_S = 900.0  # beside windows and time-outs: the longest that a search may compile or think unheard
_TIMEOUTS = 3.0  # the answer check, the run and the worker's end may each take one
_KILL_S = 30.0  # a killed process that holds a GPU may need seconds until the driver lets go of it
_OF_THE_SERVICE = (
    *("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"),
    *("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"),
)  # what systemd told the daemon, and nobody else


async def start(errand: Errand, tell: Tell) -> "Runner":
    """Start the process of a job.

    It is a fresh interpreter in a session of its own, writes its log to standard error, and is ended by the
    kernel when this process ends, however that comes.

    Args:
        errand: what it is to do.
        tell: called in the event loop for everything it tells; what it raises is logged.

    Raises:
        ChildCrashedError: no process can be started just now.
    """
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        try:
            listening, telling = os.pipe()
            ours.callback(os.close, listening)
            theirs.callback(os.close, telling)
            theirs_of_lifeline, lifeline = os.pipe()
            ours.callback(os.close, lifeline)
            theirs.callback(os.close, theirs_of_lifeline)
            words = theirs.enter_context(os.fdopen(os.memfd_create("errand"), "w+", encoding="utf-8"))
            words.write(errand_text(errand))
            words.seek(0)
            passed = (telling, theirs_of_lifeline)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", _BOOT, *map(str, passed), *sys.path),
                stdin=words.fileno(),
                stdout=2,
                pass_fds=passed,
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if name not in _OF_THE_SERVICE},
            )
        except OSError as error:
            raise ChildCrashedError(f"the process of a job cannot be started: {error}") from error
        ours.pop_all()
    return Runner(process, listening, lifeline, tell, _silence_s(errand))


class Runner:
    """The process of one attempt at a job; made by ``start``.

    Args:
        process: the process, which leads a session.
        listening: where its lines come from; owned, as is the next.
        lifeline: closed when it is to end at once.
        tell: hears of its events.
        silence_s: without a sign of life for so long, it is taken to hang and is ended.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, listening: int, lifeline: int, tell: Tell, silence_s: float
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._listening = listening
        self._lifeline = lifeline
        self._tell = tell
        self._silence_s = silence_s
        self._lines = Lines(self._take)
        self._garbled = 0
        self._stopped = False
        self._hung = False
        self._spent = Ending("crashed")
        self._run: int | None = None
        self._ending: Ending | None = None
        self._breath: asyncio.TimerHandle | None = None
        self._heard_s = self._loop.time()
        os.set_blocking(listening, False)
        self._listen()
        self._end = self._loop.create_task(self._live())

    @property
    def pid(self) -> int:
        """Process id of the job's process."""
        return self._process.pid

    @property
    def spent(self) -> tuple[float, float]:
        """Seconds of windows and joules that the attempt has taken so far, as it tells."""
        return self._spent.seconds, self._spent.joules

    async def stop(self, grace_s: float) -> None:
        """Have it stop in order; kill it where it has not ended after ``grace_s`` seconds. Waits for its end.

        What it has measured so far is stored, its clocks are restored, and its run can be resumed.
        """
        self._stopped = True
        self._signal(signal.SIGTERM)
        done, _ = await asyncio.wait({self._end}, timeout=grace_s)
        if not done:
            _LOG.warning("process %d has not stopped within %g s: killed", self.pid, grace_s)
            self._signal(signal.SIGKILL)
            await asyncio.wait({self._end}, timeout=_KILL_S)

    async def ended(self) -> Ending:
        """How it ended, once it has; may be asked for as often as one likes."""
        return await asyncio.shield(self._end)

    # --- its life ------------------------------------------------------------------------------------

    async def _live(self) -> Ending:
        """See the process to its end, and clear up after it."""
        try:
            await self._outlast()
        finally:
            self._hush()
            with contextlib.suppress(OSError):  # what is left in the pipe; others may hold its other end open
                while data := os.read(self._listening, _READ_BYTES):
                    self._lines.feed(data)
            os.close(self._listening)
            os.close(self._lifeline)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)  # its session: children that outlive it
        return self._how()

    async def _outlast(self) -> None:
        """Wait for the process; one that gives no sign of life is ended."""
        waiting = self._loop.create_task(self._process.wait())
        while True:
            left_s = self._heard_s + self._silence_s - self._loop.time()
            done, _ = await asyncio.wait({waiting}, timeout=max(0.0, left_s))
            if done:
                return
            if self._heard_s + self._silence_s <= self._loop.time():
                _LOG.error("process %d: no sign of life for %g s: killed", self.pid, self._silence_s)
                self._hung = True
                self._heard_s = self._loop.time()
                self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _how(self) -> Ending:
        """How the attempt ended, by its own words where it had time for them."""
        status = self._process.returncode
        if self._ending is not None:
            return self._ending
        known = replace(self._spent, run=self._run)
        if self._hung:
            message = f"no sign of life for {self._silence_s:.0f} s; it was killed"
            return replace(known, status="crashed", message=message)
        if self._stopped and status in (-signal.SIGTERM, -signal.SIGKILL, -signal.SIGIO):
            return replace(known, status="interrupted", message="stopped before it could say so")
        return replace(known, status="crashed", message=f"its process {_how(status)} without a word")

    # --- what it tells -------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._breath = None
        self._loop.add_reader(self._listening, self._read)

    def _hush(self) -> None:
        self._loop.remove_reader(self._listening)
        if self._breath is not None:
            self._breath.cancel()
            self._breath = None

    def _read(self) -> None:
        self._hush()
        try:
            data = os.read(self._listening, _READ_BYTES)
        except BlockingIOError:
            data = b"\n"
        except OSError:
            data = b""
        if data:  # at the end of file, the end of the process is what is waited for
            self._lines.feed(data)
            self._breath = self._loop.call_later(_BREATH_S, self._listen)

    def _take(self, text: bytes) -> None:
        told = event(text)
        if told is None:
            self._garbled += 1
            if self._garbled == 1:
                _LOG.warning("process %d tells what is no event: %.200r", self.pid, text)
            return
        self._heard_s = self._loop.time()
        kind, data = told
        if kind == ENDING:
            self._ending = ending_from(data)
        elif kind == SPENT:
            self._spent = ending_from({**data, "status": "crashed"}) or self._spent
        else:
            if kind == "run" and isinstance(data.get("run"), int):
                self._run = data["run"]
            try:
                self._tell(kind, data)
            except Exception:  # noqa: BLE001 - whoever listens badly ends no job
                _LOG.exception("process %d: the event %s could not be told on", self.pid, kind)


def _silence_s(errand: Errand) -> float:
    """How long an attempt may be silent; it gives a sign of life with every measurement."""
    options = errand.order.options
    trial_timeout_s, window_s = (options.get(name) or 0.0 for name in ("trial_timeout_s", "window_s"))
    return _PATIENCE_S + _TIMEOUTS * (float(trial_timeout_s) + float(window_s))


def _how(status: int | None) -> str:
    if status is None or status >= 0:
        return f"ended with exit status {status}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-status).name}"
    return f"was killed by signal {-status}"
