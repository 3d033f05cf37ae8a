"""Runs a command between two idle times while its power is recorded."""

import contextlib
import math
import os
import resource
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tuner.interfaces.power import SensorInfo
from tuner.model.errors import InputError, RunInterrupted
from tuner.power.base import ProgramTimeline
from tuner.system.marks import VARIABLE, MarkPipe
from tuner.tracing.recorder import Recorder
from tuner.tracing.signals import FROM_THE_TERMINAL, TO_PASS_ON, SignalPipe, in_foreground

IDLE_S = 2.0
"""How long idle power is measured unless something else is asked for."""

_IDLE_SAMPLES = 10.0  # give an idle power to a tenth of its noise or so
_LAST_S = 0.6  # of samples tell the power that goes on after the command: as many of them as
_LAST_PERIODS = 6.0  # at most,
_LEAST_PERIODS = 2.0  # or at least
_NEAR_TICKS = 2  # of a counter tell the power just before the command, and just after it
_GRACE_S = 10.0  # for a command to end when this process fails
_KILLED = 128  # what shells add to the number of the signal that ended a program


@dataclass(frozen=True)
class IdleTimes:
    """How long idle power is measured: before the command, and after it; None for what the sensor needs."""

    before_s: float | None = None
    after_s: float = 0.0


@dataclass(frozen=True)
class CommandOutcome:
    """What became of a traced command.

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

    Args:
        command: program and arguments.
        recorder: keeps what the sensors give.
        idle: how long idle power is measured.

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
    loop.attend(ended_s + _after_s(recorder))
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
    """How long to measure idle power before the command."""
    if idle.before_s is not None:
        return idle.before_s
    infos = [channel.info for channel in recorder.channels]
    return max(IDLE_S, *(info.response.memory_s + _IDLE_SAMPLES * info.period_s for info in infos))


def _after_s(recorder: Recorder) -> float:
    """How long after its end the sensors still show the command, and a little of what is after it."""
    return max(channel.info.response.memory_s + _last_s(channel.info) for channel in recorder.channels)


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
