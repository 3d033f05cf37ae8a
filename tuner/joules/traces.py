"""Traces of a command: it runs between two idle times while its power is recorded."""

import contextlib
import math
import os
import resource
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from tuner.model.errors import ClockError, InputError, PowerError, RunInterrupted
from tuner.power.base import ClockControl, ClockReading, PowerSampler, ProgramTimeline, Sample, SensorInfo
from tuner.system.marks import VARIABLE, MarkPipe

if TYPE_CHECKING:
    from typing_extensions import Self


# --- Records samplers and clocks at the lowest rate that loses nothing.

RING_S = 1.0
"""Time between polls of a driver's ring: an H200's holds 2.4 s."""

CLOCK_S = 1.0
"""Time between readings of the clock."""

EDGE_S = 0.35
"""Longest wait for a tick of a counter, in s; existing counters tick every 10 to 100 ms."""

_EDGE_POLL_S = 0.002  # a tick is dated as well as it is polled
_HALF = 0.5  # a number that is shown for a period is not missed at two looks a period


def pause_s(info: SensorInfo) -> float:
    """Time between polls of a reading; of a counter, which is read at the edges, what its wraps ask for."""
    if info.kind == "counter":
        return _HALF * info.longest_pause_s or math.inf
    if info.kind == "ring" or info.poll_interval_s == 0:
        return RING_S
    return max(info.poll_interval_s, _HALF * info.period_s)


class SensorChannel:
    """One sampler and what it gave; should it fail, the others go on.

    Args:
        sampler: closed by whoever opened it.
        now: the clock of the samples, in seconds.
    """

    def __init__(self, sampler: PowerSampler, now: Callable[[], float]) -> None:
        self.sampler = sampler
        self.samples: list[Sample] = []
        self.failure = ""
        self._now = now
        self.due_s = 0.0

    @property
    def info(self) -> SensorInfo:
        """The reading."""
        return self.sampler.info

    def poll(self) -> bool:
        """Take fresh samples; False when there were none."""
        if self.failure:
            return False
        try:
            fresh = self.sampler.poll()
        except PowerError as error:
            why = str(error).removeprefix(f"{self.info.name}: ")
            self.failure = f"{self.info.name} stopped answering: {why}"
            self.due_s = math.inf
            return False
        self.samples += fresh
        self.due_s = max(self._now() + pause_s(self.info), self.sampler.due_s)
        return bool(fresh)


class Recorder:
    """Channels and the GPU's clock, polled when they are due.

    Args:
        samplers: what is recorded.
        clocks: read beside them, never asked to set anything; None for no clock.
        now: the clock of the samples, in seconds.
    """

    def __init__(
        self,
        samplers: Sequence[PowerSampler],
        clocks: ClockControl | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.channels = tuple(SensorChannel(sampler, now) for sampler in samplers)
        self.clocks: list[tuple[float, ClockReading]] = []
        self._control = clocks
        self._clock_due_s = 0.0 if clocks is not None else math.inf
        self.now = now

    @property
    def due_s(self) -> float:
        """When the next poll is due."""
        return min((self._clock_due_s, *(channel.due_s for channel in self.channels)))

    def poll(self) -> None:
        """Poll what is due."""
        for channel in self.channels:
            if self.now() >= channel.due_s:
                channel.poll()
        if self.now() >= self._clock_due_s:
            self._read_clock()

    def edge(self, pause: Callable[[float], object], ticks: int = 1) -> None:
        """Poll all, and counters until each has ticked: a difference of dated ticks is exact.

        Args:
            pause: waits so many seconds.
            ticks: that are waited for; two of them tell the power between them.
        """
        for channel in self.channels:
            channel.poll()
        missing = {channel: ticks for channel in self.channels if channel.info.kind == "counter"}
        until_s = self.now() + ticks * EDGE_S
        while any(missing.values()) and self.now() < until_s:
            pause(_EDGE_POLL_S)
            self.poll()
            for channel, count in missing.items():
                if count and (channel.failure or channel.poll()):
                    missing[channel] = 0 if channel.failure else count - 1

    def _read_clock(self) -> None:
        self._clock_due_s = self.now() + CLOCK_S
        if self._control is None:
            return
        try:
            self.clocks.append((self.now(), self._control.read()))
        except ClockError:  # there is none to be had any more; power goes on
            self._clock_due_s = math.inf


# --- Signals as a descriptor to wait for, beside pipes and times.

_ROOM_BYTES = 4096  # signals that can arrive between two looks

TO_PASS_ON = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
"""Signals that a program which runs another passes on to it."""

TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a program to end."""

FROM_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""Of these, what a terminal sends to every process in its foreground (Ctrl-C and Ctrl-backslash)."""


class SignalPipe:
    """Collects signals while it is open, instead of what they would do; ignored ones stay ignored.

    A program started meanwhile has the default handlers. To be used in the main thread.
    """

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._numbers = tuple(numbers)

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._mouth.fileno()

    def take(self) -> list[signal.Signals]:
        """Signals that came since the last call, in order."""
        try:
            came = self._mouth.recv(_ROOM_BYTES)
        except BlockingIOError:
            return []
        return [signal.Signals(number) for number in came if number in self._numbers]

    def quiet_for(self, duration_s: float) -> bool:
        """Wait for so long; False, and sooner, when a signal came."""
        waiting = select.poll()
        waiting.register(self.fileno(), select.POLLIN)
        waiting.poll(math.ceil(duration_s * 1e3))
        return not self.take()

    def __enter__(self) -> "Self":
        self._mouth, self._ear = socket.socketpair()
        self._mouth.setblocking(False)
        self._ear.setblocking(False)
        self._old_ear = signal.set_wakeup_fd(self._ear.fileno(), warn_on_full_buffer=False)
        handlers = {number: signal.getsignal(number) for number in self._numbers}
        self._handlers = {
            number: old
            for number, old in handlers.items()
            # an ignored signal stays so; but who ignores SIGCHLD never learns how its own children ended
            if old is not None and (old is not signal.SIG_IGN or number == signal.SIGCHLD)
        }
        for number in self._handlers:
            signal.signal(number, _heard)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_ear)
        self._mouth.close()
        self._ear.close()


def _heard(number: int, frame: FrameType | None) -> None:
    """Do nothing: the interpreter has written the number into the pipe."""


def in_foreground() -> bool:
    """True when this process is in the foreground of its terminal, whose Ctrl-C then goes to its children."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # no terminal
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


# --- The command, between two idle times.

IDLE_S = 2.0
"""Shortest time to measure idle power if none is requested, in s."""

_IDLE_SAMPLES = 10.0  # give an idle power to a tenth of its noise or so
_LAST_S = 0.6  # of samples tell the power that goes on after the command: as many of them as
_LAST_PERIODS = 6.0  # at most,
_LEAST_PERIODS = 2.0  # or at least
_NEAR_TICKS = 2  # of a counter tell the power just before the command, and just after it
_GRACE_S = 10.0  # for a command to end when this process fails
_KILLED = 128  # what shells add to the number of the signal that ended a program


@dataclass(frozen=True)
class IdleTimes:
    """Times to measure idle power before and after the command, in s; None for what the sensor needs."""

    before_s: float | None = None
    after_s: float = 0.0


@dataclass(frozen=True)
class CommandOutcome:
    """Outcome of a traced command.

    Attributes:
        exit_code: the command's, or 128 and the number of the signal that ended it.
        timeline: when what happened.
        marks: (time, label) of what the command marked.
        dropped_marks: how many more it marked than are kept.
        overhead: processor time of this process while the command ran, in cores.
    """

    exit_code: int
    timeline: ProgramTimeline
    marks: tuple[tuple[float, str], ...]
    dropped_marks: int
    overhead: float


def run_traced(
    command: Sequence[str],
    recorder: Recorder,
    idle: IdleTimes = IdleTimes(),
) -> CommandOutcome:
    """Run a command; record before, during and after it.

    The command keeps this process's terminal, input and output. Signals that this process gets go on to it,
    except those that the terminal has sent to both; the recording ends when the command does.

    Raises:
        InputError: the command cannot be started, or there is no room for the pipe of its marks.
        RunInterrupted: a signal came before the command was started.
    """
    with SignalPipe((*TO_PASS_ON, signal.SIGCHLD)) as signals, _marks(recorder) as marks:
        loop = _EventLoop(recorder, signals, marks)
        began_s = recorder.now()
        _before(loop, recorder, _idle_s(recorder, idle))
        started_s = recorder.now()
        with _started(command, marks) as child:
            started_cpu_s = _cpu_s()
            loop.attend(math.inf, child)
        ended_s = recorder.now()
        overhead = (_cpu_s() - started_cpu_s) / (ended_s - started_s)
        marks.end()
        loop.unsent.clear()
        finished_s, after_s = _after(loop, recorder, ended_s, idle.after_s)
        return CommandOutcome(
            exit_code=child.returncode if child.returncode >= 0 else _KILLED - child.returncode,
            timeline=ProgramTimeline(began_s, started_s, ended_s, finished_s, after_s),
            marks=tuple(marks.marks),
            dropped_marks=marks.dropped,
            overhead=overhead,
        )


def _before(loop: "_EventLoop", recorder: Recorder, idle_s: float) -> None:
    """Record while the GPU is idle."""
    began_s = recorder.now()
    recorder.edge(loop.pause)
    loop.attend(began_s + idle_s / 2.0)
    recorder.edge(loop.pause)  # whether idle power is steady, a counter says by three ticks
    loop.attend(began_s + idle_s)
    recorder.edge(loop.pause, _NEAR_TICKS)
    if loop.unsent:
        raise RunInterrupted("interrupted before the command was started")


def _after(loop: "_EventLoop", recorder: Recorder, ended_s: float, idle_s: float) -> tuple[float, float]:
    """Record until the sensors have forgotten the command, then idle power: its end and its length."""
    recorder.edge(loop.pause, _NEAR_TICKS)
    infos = [channel.info for channel in recorder.channels]
    # The sensors' memory of the command, and some samples of the power that goes on after it.
    loop.attend(ended_s + max(info.response.memory_s + _last_s(info) for info in infos))
    recorder.edge(loop.pause)
    settled_s = recorder.now()
    loop.attend(settled_s + idle_s)
    if idle_s > 0:
        recorder.edge(loop.pause)
    finished_s = recorder.now()
    return finished_s, min(idle_s, finished_s - settled_s)


def _marks(recorder: Recorder) -> MarkPipe:
    try:
        return MarkPipe(recorder.now)
    except OSError as error:
        raise InputError(
            f"no pipe for marks can be made: {error}; set TMPDIR to a writable directory"
        ) from error


def _idle_s(recorder: Recorder, idle: IdleTimes) -> float:
    """Return the time to measure idle power before the command, in s."""
    if idle.before_s is not None:
        return idle.before_s
    infos = [channel.info for channel in recorder.channels]
    return max(IDLE_S, *(info.response.memory_s + _IDLE_SAMPLES * info.period_s for info in infos))


def _last_s(info: SensorInfo) -> float:
    return max(_LEAST_PERIODS * info.period_s, min(_LAST_PERIODS * info.period_s, _LAST_S))


def _cpu_s() -> float:
    """Processor time of this process so far; not that of the command."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def _started(command: Sequence[str], marks: MarkPipe) -> Iterator["subprocess.Popen[bytes]"]:
    """Start the command; should this process fail while it runs, it is ended.

    It inherits what this process would have handed on to any program, the job server of a make for one, and a
    copy of the pipe, so that marks can be written even if this process is killed.
    """
    inherited = os.dup(marks.fileno())
    os.set_inheritable(inherited, True)
    environment = {**os.environ, VARIABLE: str(marks.path)}
    try:
        child = subprocess.Popen(command, env=environment, close_fds=False)  # noqa: S603 - the user's own
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
        raise InputError(f"{command[0]}: cannot be started: {error}") from error
    finally:
        os.close(inherited)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


class _EventLoop:
    """Waits for what comes next: a sensor that is due, a mark, a signal, the end of the command.

    Attributes:
        unsent: signals that came and were not passed on to a command.
    """

    def __init__(self, recorder: Recorder, signals: SignalPipe, marks: MarkPipe) -> None:
        self._recorder = recorder
        self._signals = signals
        self._marks = marks
        self.unsent: list[signal.Signals] = []
        self._watch = select.poll()
        self._watch.register(signals.fileno(), select.POLLIN)
        self._watch.register(marks.fileno(), select.POLLIN)

    def attend(self, until_s: float, child: "subprocess.Popen[bytes] | None" = None) -> None:
        """Record until a time, the child's end, or, without a child, a signal."""
        now: Callable[[], float] = self._recorder.now
        while now() < until_s and not self.unsent:
            self.pause(min(until_s, self._recorder.due_s) - now(), child)
            self._recorder.poll()
            if child is not None and child.poll() is not None:
                return

    def pause(self, duration_s: float, child: "subprocess.Popen[bytes] | None" = None) -> None:
        """Wait for so long at most; take marks and signals that come."""
        # upwards: a wait that ends too early would be followed by one of zero
        self._watch.poll(math.ceil(max(0.0, duration_s) * 1e3) if duration_s < math.inf else None)
        self._marks.read()
        for number in self._signals.take():
            if number == signal.SIGCHLD:
                continue
            if child is None:
                self.unsent.append(number)
            elif not (number in FROM_THE_TERMINAL and in_foreground()):
                child.send_signal(number)
