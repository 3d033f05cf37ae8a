"""Commands run between two idle times while their power is recorded: joules, steady power, rare polls."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tuner.power.base import (
    ClockReading,
    PowerLevel,
    ProgramEnergy,
    ProgramTimeline,
    Response,
    Sample,
    SensorInfo,
)
from tuner.power.energy.programs import idle_level, joined, level
from tuner.power.energy.samples import SampleSeries

from tuner.joules import traces as module
from tuner.joules.trace_result import ProgramTrace, ReadingResult
from tuner.joules.traces import EDGE_S, CommandOutcome, IdleTimes, Recorder, pause_s, run_traced
from tuner.joules.watching import RECORDED
from tuner.model.errors import ClockError, InputError, PowerError, RunInterrupted
from tuner.system.marks import MarkPipe

RING = SensorInfo("ring", "ring", "gpu", 0.005)
COUNTER = SensorInfo("counter", "counter", "gpu", 0.01)
BRIEF = IdleTimes(before_s=0.02)


class FakeSampler:
    """A sensor with a sample for each period since the last poll; may fail at a poll."""

    def __init__(self, info: SensorInfo = RING, fails_at: int = -1) -> None:
        self.info = info
        self.due_s = 0.0
        self.polls = 0
        self._fails_at = fails_at
        self._last_s = time.monotonic()

    def poll(self) -> list[Sample]:
        self.polls += 1
        if self.polls == self._fails_at:
            raise PowerError("GPU is lost")
        count = int((time.monotonic() - self._last_s) / self.info.period_s)
        start_s, self._last_s = self._last_s, self._last_s + count * self.info.period_s
        return [Sample(start_s + (i + 1) * self.info.period_s, 100.0) for i in range(count)]

    def close(self) -> None:
        pass


class FakeClock:
    """A clock control that can be read."""

    def __init__(self, error: str = "") -> None:
        self.error = error

    def read(self) -> ClockReading:
        if self.error:
            raise ClockError(self.error)
        return ClockReading(1500.0, ("sw-power-cap",))

    def supported_mhz(self) -> tuple[int, ...]:
        return ()

    def locked(self, mhz: int) -> AbstractContextManager[None]:
        raise AssertionError(f"{mhz} MHz asked for")

    def close(self) -> None:
        pass


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def run(*command: str, sampler: FakeSampler | None = None, idle: IdleTimes = BRIEF) -> CommandOutcome:
    return run_traced(command, Recorder([sampler or FakeSampler()]), idle)


@pytest.mark.parametrize("code", [0, 1, 7, 130])
def test_exit_codes_pass_through(code: int) -> None:
    """The exit code is the command's."""
    assert run("sh", "-c", f"exit {code}").exit_code == code


def test_killed_commands_end_as_in_a_shell() -> None:
    """A command that a signal ended has 128 and its number."""
    assert run("sh", "-c", "kill -TERM $$").exit_code == 128 + signal.SIGTERM


@pytest.mark.parametrize("command", ["/nowhere/program", "", "nul\0"])
def test_a_command_that_cannot_be_started(command: str) -> None:
    """It is named, and the signals are what they were."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(InputError, match="cannot be started"):
        run(command)

    assert signal.getsignal(signal.SIGINT) is before


def test_times_are_in_order() -> None:
    """Idle, command, decay and idle again follow each other and last as long as asked for at least."""
    lag = SensorInfo("lag", "ring", "gpu", 0.005, response=Response("lag", capacitance_s=0.01))
    outcome = run("true", sampler=FakeSampler(lag), idle=IdleTimes(before_s=0.05, after_s=0.03))
    line = outcome.timeline

    assert line.started_s - line.began_s >= 0.05
    assert line.finished_s - line.ended_s >= 5 * 0.01 + 0.03
    assert line.idle_after_s >= 0.03


def test_the_sensor_decides_on_idle_time() -> None:
    """Without a wish, a sensor with a long mean has idle power measured for longer than its window."""
    slow = SensorInfo("slow", "ring", "gpu", 0.01, response=Response("ramp", window_s=5.0))

    assert module._idle_s(Recorder([FakeSampler()]), IdleTimes()) == module.IDLE_S
    assert module._idle_s(Recorder([FakeSampler(), FakeSampler(slow)]), IdleTimes()) > 5.0
    assert module._idle_s(Recorder([FakeSampler(slow)]), BRIEF) == BRIEF.before_s


def test_a_signal_before_the_start() -> None:
    """A signal while idle power is measured ends the trace; the command is not started."""
    timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    with pytest.raises(RunInterrupted, match="before the command"):
        run("/nowhere/program", idle=IdleTimes(before_s=60.0))
    timer.join()


def test_marks_have_the_times_of_the_command(tmp_path: Path) -> None:
    """What the command marks lies between its start and its end, in order."""
    script = 'for i in one two three; do echo "$i" > "$TUNER_MARKS"; done'
    outcome = run("sh", "-c", script)

    assert [label for _, label in outcome.marks] == ["one", "two", "three"]
    times_s = [time_s for time_s, _ in outcome.marks]
    assert times_s == sorted(times_s)
    assert outcome.timeline.started_s <= times_s[0] <= times_s[-1] <= outcome.timeline.ended_s
    assert tmp_path.exists()


def test_python_programs_set_marks() -> None:
    """A program sets marks by the function, as often as it likes."""
    outcome = run(*python("from tuner.system.marks import mark\nfor i in range(50): mark(f'step {i}')"))

    assert [label for _, label in outcome.marks] == [f"step {i}" for i in range(50)]


def test_samples_are_collected_throughout() -> None:
    """A ring is polled to the end, and no sample comes twice."""
    sampler = FakeSampler()
    recorder = Recorder([sampler], FakeClock())
    outcome = run_traced(("sleep", "0.05"), recorder, BRIEF)
    (channel,) = recorder.channels
    times_s = [sample.time_s for sample in channel.samples]

    assert times_s == sorted(set(times_s))
    assert times_s[0] <= outcome.timeline.started_s
    assert times_s[-1] >= outcome.timeline.ended_s
    assert recorder.clocks[0][1].mhz == 1500.0


def test_counters_are_read_at_the_edges_only() -> None:
    """While the command runs a counter is left alone."""
    sampler = FakeSampler(COUNTER)
    run("sleep", "0.01", sampler=sampler)
    brief = sampler.polls
    sampler = FakeSampler(COUNTER)
    run("sleep", "0.3", sampler=sampler)

    assert sampler.polls < 2 * brief
    assert pause_s(COUNTER) == float("inf")


def test_a_sensor_that_fails_ends_nothing() -> None:
    """The command runs on, and the failure is told."""
    sampler = FakeSampler(fails_at=2)
    recorder = Recorder([sampler], FakeClock("gone"))
    outcome = run_traced(("sh", "-c", "exit 3"), recorder, BRIEF)

    assert outcome.exit_code == 3
    assert recorder.channels[0].failure == "ring stopped answering: GPU is lost"
    assert recorder.clocks == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
def test_signals_reach_the_command(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal to the tracer goes on to the command, whose answer ends the trace."""
    monkeypatch.setattr("tuner.joules.traces.in_foreground", lambda: False)
    code = (
        "import signal, sys\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(9))\n"
        "from tuner.system.marks import mark\nmark('ready')\n"
        "while True: signal.pause()"
    )
    outcome = _when_ready(python(code), lambda: os.kill(os.getpid(), number))

    assert outcome.exit_code == 9


def test_the_terminals_signals_are_not_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the foreground the command has Ctrl-C from its terminal; a second one would hit its clean-up."""
    monkeypatch.setattr("tuner.joules.traces.in_foreground", lambda: True)
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(9))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))\n"
        "from tuner.system.marks import mark\nmark('ready')\n"
        "while True: signal.pause()"
    )

    def both() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    assert _when_ready(python(code), both).exit_code == 4


def _when_ready(command: tuple[str, ...], act: Callable[[], None]) -> CommandOutcome:
    """Run a command and act as soon as it has set its first mark."""

    class Watching(Recorder):
        acted = False

        def poll(self) -> None:
            super().poll()
            if desk and desk[0].marks and not self.acted:
                self.acted = True
                act()

    desk: list[MarkPipe] = []
    recorder = Watching([FakeSampler()])

    class Pipe(MarkPipe):
        def __init__(self, now: Callable[[], float]) -> None:
            super().__init__(now)
            desk.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MarkPipe", Pipe)
        return run_traced(command, recorder, BRIEF)


def test_ignored_signals_stay_ignored() -> None:
    """`nohup` holds for the tracer and for what it runs."""
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from tuner.joules.traces import SignalPipe, TO_PASS_ON\n"
        "with SignalPipe(TO_PASS_ON) as pipe:\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "    print([n.name for n in pipe.take()])\n"
    )
    done = subprocess.run(python(code), check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "['SIGUSR1']"


def test_inherited_files_reach_the_command() -> None:
    """What this process was handed to pass on, as a job server's pipe, is passed on."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    outcome = run(*python(f"import os; os.write({writing}, b'through')"))
    os.close(writing)

    assert outcome.exit_code == 0
    assert os.read(reading, 100) == b"through"
    os.close(reading)


def test_no_room_for_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no pipe can be made nothing is run, and the message says what to set."""

    def full(**_: str) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tuner.system.marks.tempfile.mkdtemp", full)
    with pytest.raises(InputError, match="No space left on device; set TMPDIR"):
        run("true")


LINE = ProgramTimeline(0.0, 2.0, 7.0, 7.5)
ENERGY = ProgramEnergy(1000.0, 1.0, 500.0, 1.1, 100.0, 0.1, 200.0, None, 0.0, PowerLevel(100.5, 0.2))
SAMPLES = (Sample(1.0, 100.0),)


def trace_of(counter: ProgramEnergy | None, ring: ProgramEnergy | None, failure: str = "") -> ProgramTrace:
    readings = (
        ReadingResult(SensorInfo("counter", "counter", "gpu", 0.1), SAMPLES, counter, failure),
        ReadingResult(SensorInfo("ring", "ring", "gpu", 0.02), SAMPLES, ring),
    )
    return ProgramTrace(("true",), RECORDED, CommandOutcome(0, LINE, (), 0, 0.001), readings)


def test_nothing_is_told_of_a_trace_that_is_as_it_should_be() -> None:
    """Readings that agree, and a GPU that goes back to idle, give no notes."""
    assert list(trace_of(ENERGY, replace(ENERGY, total_j=1008.0)).notes()) == []


@pytest.mark.parametrize(
    ("watts", "says"), [(130.0, "30 W above the idle power"), (60.0, "40 W below the idle power")]
)
def test_power_that_does_not_go_back_to_idle_is_told(watts: float, says: str) -> None:
    """Once, with what it means for the joules."""
    still = replace(ENERGY, after=PowerLevel(watts, 0.2))
    (note,) = trace_of(still, still).notes()

    assert says in note
    assert "the joules end with the command" in note
    assert list(trace_of(replace(still, after=None), replace(still, after=None)).notes()) == []


@pytest.mark.parametrize(
    ("total_j", "sigma_j", "told"),
    [(1020.0, 1.0, True), (980.0, 1.0, True), (1020.0, 10.0, False), (1005.0, 1.0, False)],
)
def test_readings_that_contradict_each_other_are_told(total_j: float, sigma_j: float, told: bool) -> None:
    """They do by 1 % that noise does not explain; then the interval of the answer holds both."""
    trace = trace_of(ENERGY, replace(ENERGY, total_j=total_j, total_sigma_j=sigma_j))
    notes, energy = list(trace.notes()), trace.energy

    assert [note for note in notes if "sensors-differ: counter 1,000.0 ± 2.0 J and ring " in note] == notes
    assert bool(notes) is told
    assert energy is not None
    assert (energy.total_sigma_j > ENERGY.total_sigma_j) is told
    assert (energy.net_sigma_j > ENERGY.net_sigma_j) is told
    assert not told or 1.96 * energy.total_sigma_j > abs(total_j - energy.total_j)  # it holds both


def test_the_counter_counts_first() -> None:
    """Its joules are the answer, unless a curve knows much more or it has none; one that failed is told."""
    assert trace_of(ENERGY, replace(ENERGY, total_j=1008.0)).provenance()["total_j"] == 1000.0
    for sigma_j, ring, name in ((9.0, ENERGY, "counter"), (11.0, ENERGY, "ring"), (11.0, None, "counter")):
        trace = trace_of(replace(ENERGY, total_sigma_j=sigma_j), ring)
        assert trace.provenance()["energy_sensor"] == name
    failed = trace_of(None, ENERGY, "counter stopped answering: gone")

    assert failed.provenance()["energy_sensor"] == "ring"
    assert list(failed.notes()) == ["counter stopped answering: gone"]


SLOW_RING = SensorInfo("ring", "ring", "gpu", 0.02)
SLOW_COUNTER = SensorInfo("counter", "counter", "gpu", 0.1)
LONG_LINE = ProgramTimeline(0.0, 3.0, 5.0, 10.0)


def series(watts: np.ndarray, period_s: float = 0.02) -> SampleSeries:
    return SampleSeries.of([Sample(i * period_s, float(w)) for i, w in enumerate(watts)])


def test_a_level_is_as_uncertain_as_its_noise() -> None:
    """The mean of noisy samples covers the power with its standard uncertainty, whatever the sensor's lag."""
    for response, least in ((Response(), 0.7), (Response("lag", capacitance_s=0.84), 0.2)):
        info, off = replace(SLOW_RING, response=response), []
        for seed in range(100):
            watts = 100.0 + np.random.default_rng(seed).normal(0.0, 0.5, 150)
            found = level(series(watts), info, 0.0, 3.0)
            assert found is not None
            off.append((found.watts - 100.0) / found.sigma_w)

        assert least < np.sqrt(np.mean(np.square(off))) < 1.3


def test_power_that_drifts_is_told() -> None:
    """A GPU that was still cooling down while idle power was measured is told from an idle one."""
    noise = np.random.default_rng(1).normal(0.0, 0.3, 150)
    falling = level(series(np.linspace(130.0, 80.0, 150) + noise), SLOW_RING, 0.0, 3.0)
    steady = level(series(100.0 + noise), SLOW_RING, 0.0, 3.0)
    warming = level(series(np.linspace(100.0, 100.5, 150) + noise / 10.0), SLOW_RING, 0.0, 3.0)

    assert falling is not None
    assert falling.unsteady
    assert falling.drift_w == pytest.approx(-25.0, abs=1.0)
    assert abs(falling.watts - 80.0) < falling.sigma_w
    assert steady is not None
    assert (steady.drift_w, steady.unsteady) == (0.0, False)
    assert warming is not None
    assert warming.drift_w > 0.0
    assert not warming.unsteady


def test_a_counter_tells_a_drift_too() -> None:
    """Three ticks say whether power was the same in both halves of the time."""
    steady, falling = (
        level(
            SampleSeries.of([Sample(t, j, 0.001) for t, j in zip((0.1, 1.5, 2.8, 2.9), joules, strict=True)]),
            SLOW_COUNTER,
            *(0.0, 3.0),
        )
        for joules in ((0.0, 140.0, 270.0, 280.0), (0.0, 182.0, 286.0, 294.0))
    )

    assert steady is not None
    assert steady.watts == pytest.approx(100.0)
    assert steady.drift_w == 0.0
    assert falling is not None
    assert falling.drift_w == pytest.approx(-50.0)
    assert falling.unsteady


def test_idle_power_after_counts_too() -> None:
    """Idle power that has risen by the end is met half-way, and the rise is uncertainty."""
    times = np.arange(0.0, 10.0, 0.02)
    watts = series(np.where(times < 3.0, 100.0, np.where(times < 5.0, 500.0, 110.0)))
    before, both = (
        idle_level(watts, SLOW_RING, replace(LONG_LINE, idle_after_s=after_s)) for after_s in (0.0, 3.0)
    )

    assert before is not None
    assert both is not None
    assert (before.watts, both.watts) == pytest.approx((100.0, 105.0))
    assert both.sigma_w > before.sigma_w


def test_two_levels_are_joined_if_they_are_one() -> None:
    """Levels that agree make a better known one, others do not."""
    both = joined(PowerLevel(100.0, 0.2), PowerLevel(100.3, 0.2))

    assert both is not None
    assert both.watts == pytest.approx(100.15)
    assert both.sigma_w == pytest.approx(0.2 / 2**0.5)
    assert joined(PowerLevel(100.0, 0.2), PowerLevel(101.0, 0.2)) is None


STREAM = SensorInfo("stream", "stream", "gpu", 0.02, poll_interval_s=0.01)


class Time:
    """A clock that goes on when someone waits."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def wait(self, duration_s: float) -> None:
        self.now_s += duration_s


class Ticking:
    """A sensor with a fresh sample every period, of which a late poll sees the last."""

    due_s = 0.0

    def __init__(self, info: SensorInfo, now: Time, *, stands: bool = False, fails: bool = False) -> None:
        self.info = info
        self._now, self._stands, self._fails = now, stands, fails
        self._seen = int(now() / info.period_s)

    def poll(self) -> list[Sample]:
        if self._fails:
            raise PowerError("gone")
        tick = int(self._now() / self.info.period_s)
        if tick == self._seen or self._stands:
            return []
        self._seen = tick
        return [Sample(tick * self.info.period_s, 1.0 * tick)]

    def close(self) -> None:
        """Nothing to release."""


@pytest.mark.parametrize("ticks", [1, 2])
def test_an_edge_waits_for_ticks(ticks: int) -> None:
    """A counter's next ticks are waited for, and a stream loses no sample meanwhile."""
    now = Time()
    recorder = Recorder([Ticking(SLOW_COUNTER, now), Ticking(STREAM, now)], now=now)
    recorder.edge(now.wait, ticks)
    counter, stream = (channel.samples for channel in recorder.channels)

    assert len(counter) == ticks
    assert now() - counter[-1].time_s < 0.01
    assert len(stream) >= 4 * ticks
    gaps = [b.time_s - a.time_s for a, b in itertools.pairwise(stream)]
    assert max(gaps) < 1.5 * STREAM.period_s


def test_an_edge_is_not_waited_for_without_end() -> None:
    """A counter that stands still, or is gone, holds nothing up."""
    now = Time()
    recorder = Recorder([Ticking(SLOW_COUNTER, now, stands=True)], now=now)
    recorder.edge(now.wait, 2)

    assert 2.0 * EDGE_S <= now() - 100.0 < 2.0 * EDGE_S + 0.01
    assert recorder.channels[0].samples == []
    gone = Recorder([Ticking(SLOW_COUNTER, now, fails=True)], now=now)
    began_s = now()
    gone.edge(now.wait, 2)

    assert now() - began_s < 0.01
    assert gone.channels[0].failure == "counter stopped answering: gone"
