"""Traces of a command: it runs between two idle times while its power is recorded."""

import contextlib
import ctypes
import functools
import math
import os
import resource
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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

GRACE_S = 10.0
"""Time for a command to end when this process fails."""

_IDLE_SAMPLES = 10.0  # give an idle power to a tenth of its noise or so
_LAST_S = 0.6  # of samples tell the power that goes on after the command: as many of them as
_LAST_PERIODS = 6.0  # at most,
_LEAST_PERIODS = 2.0  # or at least
_NEAR_TICKS = 2  # of a counter tell the power just before the command, and just after it
_KILLED = 128  # what shells add to the number of the signal that ended a program


@dataclass(frozen=True)
class IdleTimes:
    """Times to measure idle power before and after the command, in s; None for what the sensor needs."""

    before_s: float | None = None
    after_s: float = 0.0


@dataclass(frozen=True)
class Unattended:
    """Way of running a command that has no terminal: no input, its output kept, in a session of its own.

    What asks this process to end ends the command, and what it leaves running is ended behind it.

    Attributes:
        environment: variables it has beside those of this process; None for one that it has not.
        most_s: it is ended after so many seconds.
        times: it runs so often, one run behind the other, while it succeeds.
    """

    environment: Mapping[str, str | None] = field(default_factory=dict)
    most_s: float = math.inf
    times: int = 1


@dataclass(frozen=True)
class CommandOutcome:
    """Outcome of a traced command.

    Attributes:
        exit_code: the command's, or 128 and the number of the signal that ended it.
        timeline: when what happened.
        marks: (time, label) of what the command marked.
        dropped_marks: how many more it marked than are kept.
        overhead: processor time of this process while the command ran, in cores.
        output: the end of what an unattended command printed last, errors too.
        too_long: True where an unattended command was ended for the time that it took.
        interrupted: True where one was ended because this process is to end.
        left: processes that it had left running, which were ended.
    """

    exit_code: int
    timeline: ProgramTimeline
    marks: tuple[tuple[float, str], ...]
    dropped_marks: int
    overhead: float
    output: str = ""
    too_long: bool = False
    interrupted: bool = False
    left: int = 0


def run_traced(
    command: Sequence[str],
    recorder: Recorder,
    idle: IdleTimes = IdleTimes(),
    unattended: Unattended | None = None,
) -> CommandOutcome:
    """Run a command; record before, during and after it.

    The command keeps this process's terminal, input and output, unless it is unattended. Signals that this
    process gets go on to it, except those that the terminal has sent to both; the recording ends when the
    command does.

    Raises:
        InputError: the command cannot be started, or there is no room for the pipe of its marks.
        RunInterrupted: a signal came before the command was started.
    """
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(SignalPipe((*TO_PASS_ON, signal.SIGCHLD)))
        marks = stack.enter_context(_marks(recorder))
        end_orphans = stack.enter_context(_orphans_adopted()) if unattended else int
        loop = _EventLoop(recorder, signals, marks)
        began_s = recorder.now()
        _before(loop, recorder, _idle_s(recorder, idle))
        started_s, started_cpu_s = recorder.now(), _cpu_s()
        if unattended is None:
            with _started(command, {}, marks) as child:
                loop.attend(math.inf, child)
            ran = _Ran(exit_code(child))
        else:
            ran = _run_unattended(command, loop, recorder, marks, unattended)
        ended_s = recorder.now()
        overhead = (_cpu_s() - started_cpu_s) / (ended_s - started_s)
        marks.end()
        loop.unsent.clear()
        finished_s, after_s = _after(loop, recorder, ended_s, idle.after_s)
        return CommandOutcome(
            exit_code=ran.exit_code,
            timeline=ProgramTimeline(began_s, started_s, ended_s, finished_s, after_s),
            marks=tuple(marks.marks),
            dropped_marks=marks.dropped,
            overhead=overhead,
            output=ran.output,
            too_long=ran.too_long,
            interrupted=ran.interrupted,
            left=end_orphans(),  # last: the time that they take to end is not the command's
        )


def run_attended(command: Sequence[str], environment: Mapping[str, str | None]) -> int:
    """Run a command that keeps this process's terminal, input and output, and pass signals on to it.

    Args:
        command: program and arguments.
        environment: see ``Unattended``.

    Returns:
        Its exit code, or 128 and the number of the signal that ended it.

    Raises:
        InputError: it cannot be started.
    """
    signals, started = SignalPipe((*TO_PASS_ON, signal.SIGCHLD)), _started(command, environment)
    with signals, started as child:
        _EventLoop(Recorder(()), signals).attend(math.inf, child)
    return exit_code(child)


class RunningCommand:
    """A command that goes on beside what this process does, see ``running``.

    Args:
        child: the command.
        recorder: of the power meanwhile.
        signals: that are passed on to it.
        marks: that it sets.
    """

    def __init__(
        self, child: "subprocess.Popen[bytes]", recorder: Recorder, signals: SignalPipe, marks: MarkPipe
    ) -> None:
        self.recorder = recorder
        self._child, self._signals, self._marks = child, signals, marks
        self._loop = _EventLoop(recorder, signals, marks)

    @property
    def exit_code(self) -> int | None:
        """Its exit code, as shells tell it; None while it runs."""
        return None if self._child.poll() is None else exit_code(self._child)

    def attend(self, until_s: float) -> list[tuple[float, str]]:
        """Record until a time of the recorder's clock, or its end; the marks since the last call."""
        self._loop.attend(until_s, self._child)
        return self._marks.take()

    def edge(self) -> None:
        """Poll all readings, and counters until each has ticked."""
        self.recorder.edge(lambda duration_s: self._loop.pause(duration_s, self._child))

    def stop_recording(self) -> None:
        """Read no power any more: what is left is only waited for."""
        self.recorder = Recorder((), now=self.recorder.now)
        self._loop = _EventLoop(self.recorder, self._signals, self._marks)


@contextlib.contextmanager
def running(
    command: Sequence[str], recorder: Recorder, ended: Callable[[int], object]
) -> Iterator[RunningCommand]:
    """Start a command that keeps this process's terminal; its end is waited for, on every way out.

    Args:
        command: program and arguments.
        recorder: of the power meanwhile.
        ended: takes its exit code.

    Raises:
        InputError: it cannot be started, or there is no room for the pipe of its marks.
    """
    with (
        SignalPipe((*TO_PASS_ON, signal.SIGCHLD)) as signals,
        _marks(recorder) as marks,
        _started(command, {}, marks) as child,
    ):
        beside = RunningCommand(child, recorder, signals, marks)
        try:
            yield beside
        finally:
            beside.stop_recording()
            while (code := beside.exit_code) is None:
                beside.attend(math.inf)
            ended(code)


def exit_code(child: "subprocess.Popen[bytes]") -> int:
    """The exit code of a command that has ended, as shells tell it."""
    return child.returncode if child.returncode >= 0 else _KILLED - child.returncode


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
    loop.attend(ended_s + max((info.response.memory_s + _last_s(info) for info in infos), default=0.0))
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
    if idle.before_s is not None or not recorder.channels:
        return idle.before_s or 0.0
    infos = [channel.info for channel in recorder.channels]
    return max(IDLE_S, *(info.response.memory_s + _IDLE_SAMPLES * info.period_s for info in infos))


def _last_s(info: SensorInfo) -> float:
    return max(_LEAST_PERIODS * info.period_s, min(_LAST_PERIODS * info.period_s, _LAST_S))


def _cpu_s() -> float:
    """Processor time of this process so far; not that of the command."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def _started(
    command: Sequence[str],
    changes: Mapping[str, str | None],
    marks: MarkPipe | None = None,
    output: int | None = None,
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start the command; should this process fail while it runs, it is ended.

    It inherits what this process would have handed on to any program, the job server of a make for one, and a
    copy of the pipe of marks, so that these can be written even if this process is killed.

    Args:
        command: program and arguments.
        changes: of its environment, see ``Unattended``.
        marks: what it may write marks into.
        output: descriptor that one without a terminal prints to, which is closed here; None for one that
            keeps this process's.
    """
    environment = dict(os.environ)
    for name, value in changes.items():
        environment.pop(name, None)
        environment |= {} if value is None else {name: value}
    with contextlib.ExitStack() as stack:
        if output is not None:  # so that its end is seen
            stack.callback(os.close, output)
        if marks is not None:
            inherited = os.dup(marks.fileno())
            stack.callback(os.close, inherited)
            os.set_inheritable(inherited, True)
            environment[VARIABLE] = str(marks.path)
        try:
            child = subprocess.Popen(  # noqa: S603 - the user's own
                command,
                env=environment,
                close_fds=False,
                stdin=None if output is None else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=output is not None,
                preexec_fn=None if output is None else _ends_with_us(),  # noqa: PLW1509 - one call of C
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
            why = error.strerror if isinstance(error, OSError) else error
            if isinstance(error, FileNotFoundError) and Path(command[0]).is_file():
                why = "the interpreter that its first line names is not there"
            raise InputError(f"{command[0]}: cannot be started: {why}") from error
    try:
        yield child
    finally:
        if child.poll() is None:
            _end(child, whole_session=output is not None)


def _ends_with_us() -> Callable[[], object]:
    """A function that, in a child, has it get SIGTERM when the thread that started it is gone: a killed one.

    A trial is worth nothing then, and would disturb the runs that ``--resume`` makes.
    """
    return functools.partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _end(child: "subprocess.Popen[bytes]", *, whole_session: bool) -> None:
    """End a command: by SIGTERM, and one that ignores it by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if whole_session else os.kill)(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
            return
    child.wait()


# --- A command without a terminal: its output, its time, and what it leaves running.

_KEPT_BYTES = 2**20  # of the output: its end
_READ_BYTES = 2**16
_LEFT_S = 2.0  # for what a command has left running to end by itself, once it is told to
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 36, 37  # linux/prctl.h


@dataclass(frozen=True)
class _Ran:
    """Outcome of a command; see ``CommandOutcome``."""

    exit_code: int
    output: str = ""
    too_long: bool = False
    interrupted: bool = False


class _OutputTail:
    """The end of what a command prints; the rest is read and forgotten."""

    def __init__(self) -> None:
        self._reads, self.writes = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reads, False)
        self._kept = bytearray()

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._reads

    def read(self) -> bool:
        """Take what is there; False where nobody can write any more."""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._reads, _READ_BYTES):
                self._kept += part
                del self._kept[:-_KEPT_BYTES]
            return False
        return True

    def text(self) -> str:
        """The text that is kept; bytes that are no UTF-8 are replaced."""
        return self._kept.decode(errors="replace")

    def close(self) -> None:
        """Release the pipe."""
        os.close(self._reads)


def _run_unattended(
    command: Sequence[str], loop: "_EventLoop", recorder: Recorder, marks: MarkPipe, how: Unattended
) -> _Ran:
    """Run a command as often as is asked for, while it succeeds."""
    ends_s = recorder.now() + how.most_s
    for _ in range(how.times):
        tail = _OutputTail()
        with contextlib.closing(tail):
            with _started(command, how.environment, marks, tail.writes) as child:
                loop.attend(ends_s, child, tail)
                ended_itself = child.poll() is not None
            tail.read()
            interrupted = bool(loop.unsent)
            ran = _Ran(exit_code(child), tail.text(), not (ended_itself or interrupted), interrupted)
        if ran.exit_code or ran.too_long or ran.interrupted:
            break
    return ran


@contextlib.contextmanager
def _orphans_adopted() -> Iterator[Callable[[], int]]:
    """Have processes that lose their parent become children of this one: a function that ends them.

    So a daemon is found that has left the session of the command which started it.
    """
    prctl, was = ctypes.CDLL(None).prctl, ctypes.c_int()
    before = _children()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(was), 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def end() -> int:
        told: set[int] = set()
        begun_s = time.monotonic()
        while left := _children() - before:
            waited_s = time.monotonic() - begun_s
            if waited_s > 2.0 * _LEFT_S:  # one that waits for a driver for ever
                break
            for pid in left:
                with contextlib.suppress(ChildProcessError, ProcessLookupError):
                    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None:
                        continue  # it has ended
                    if waited_s > _LEFT_S or pid not in told:
                        os.kill(pid, signal.SIGKILL if waited_s > _LEFT_S else signal.SIGTERM)
                    told.add(pid)
            time.sleep(_EDGE_POLL_S)
        return len(told)

    try:
        yield end
    finally:
        end()
        prctl(_PR_SET_CHILD_SUBREAPER, was.value, 0, 0, 0)


def _children() -> set[int]:
    """Processes whose parent is this one; none where the kernel does not tell."""
    told = (task / "children" for task in Path("/proc/self/task").iterdir())
    pids: set[int] = set()
    for path in told:
        with contextlib.suppress(OSError):
            pids |= set(map(int, path.read_text().split()))
    return pids


class _EventLoop:
    """Waits for what comes next: a sensor that is due, a mark, a signal, the end of the command.

    Attributes:
        unsent: signals that came and were not passed on to a command.
    """

    def __init__(self, recorder: Recorder, signals: SignalPipe, marks: MarkPipe | None = None) -> None:
        self._recorder = recorder
        self._signals = signals
        self._marks = marks
        self.unsent: list[signal.Signals] = []
        self._watch = select.poll()
        self._watch.register(signals.fileno(), select.POLLIN)
        if marks is not None:
            self._watch.register(marks.fileno(), select.POLLIN)

    def attend(
        self,
        until_s: float,
        child: "subprocess.Popen[bytes] | None" = None,
        tail: _OutputTail | None = None,
    ) -> None:
        """Record until a time, the child's end, or a signal that is not passed on to a child.

        Args:
            until_s: the time.
            child: the command; None while none runs.
            tail: of an unattended command, which no signal is passed on to.
        """
        now: Callable[[], float] = self._recorder.now
        if tail is not None:
            self._watch.register(tail.fileno(), select.POLLIN)
        open_tail = tail
        while now() < until_s and not self.unsent:
            self.pause(min(until_s, self._recorder.due_s) - now(), child if tail is None else None)
            self._recorder.poll()
            if open_tail is not None and not open_tail.read():
                self._watch.unregister(open_tail.fileno())
                open_tail = None
            if child is not None and child.poll() is not None:
                break
        if open_tail is not None:
            self._watch.unregister(open_tail.fileno())

    def pause(self, duration_s: float, child: "subprocess.Popen[bytes] | None" = None) -> None:
        """Wait for so long at most; take marks and signals that come."""
        # upwards: a wait that ends too early would be followed by one of zero
        self._watch.poll(math.ceil(max(0.0, duration_s) * 1e3) if duration_s < math.inf else None)
        if self._marks is not None:
            self._marks.read()
        for number in self._signals.take():
            if number == signal.SIGCHLD:
                continue
            if child is None:
                self.unsent.append(number)
            elif not (number in FROM_THE_TERMINAL and in_foreground()):
                child.send_signal(number)
