"""A program's trials to numbers: whole runs, with their joules, at a clock and limit that are held."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import NoReturn

from tuner.devices.base import Check, RunRecord
from tuner.devices.gpu_users import require_exclusive_gpu
from tuner.devices.sensors import open_clocks, open_power_limits, restore_stale_clocks
from tuner.joules.trace_result import ProgramTrace, result
from tuner.joules.traces import CommandOutcome, Recorder, Unattended, run_traced, running
from tuner.joules.watching import THIS_HOST, Gpu, gpu_for, opened, opened_host, others_in_sight
from tuner.measurement.base import ComparisonTarget
from tuner.measurement.settle import SettingLock
from tuner.model.errors import (
    ClockError,
    CompileError,
    DeviceError,
    DeviceUnavailableError,
    InputError,
    RunInterrupted,
    SensorUnavailableError,
)
from tuner.model.jobs import DeviceIdentity
from tuner.model.objective import COVERAGE, Objective
from tuner.model.plan import Plan, Progress, Resources, Workload
from tuner.model.trial import Energy, Flag, FlagKind, Measurement, Status, Trial, WorkloadResult
from tuner.power.base import ClockControl, ClockReading, PowerSampler
from tuner.programs.program import MetricError, Program
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup

_SHORT_S = 2.0  # shorter runs are repeated until they take so long, where the sensor sees too little of one
_MOST_TIMES = 1000
_IMPRECISE = 2.0  # times the wanted precision
_LONGEST = 2.0  # times the default: a slower run is ended
_LONGEST_OF_UNITS = 10.0  # the same where work is counted, of which a run may do more
_LEAST_ENDED_S = 1.0  # no run is ended before
_TIME_REPEATS = 0.003  # relative standard deviation that times of whole runs have, where nothing tells
_UNREAD = ClockReading(None)
_TAIL_LINES, _TAIL_CHARACTERS = 5, 600  # of a failed run's output


@dataclass(frozen=True)
class ProgramRun:
    """One or more runs of a program, one behind the other, at one configuration and setting.

    Attributes:
        duration_s: of one run.
        energy: of one run; None where nobody tells.
        metrics: that the last run told, by name.
        failure: how it failed, and in words; None where it succeeded.
        clock: that was seen, with throttle reasons.
        notes: on the joules, and on what was left running.
        scatter: relative standard uncertainty of the duration; None for what whole runs have.
        times: runs, or steps of a window, that it is the mean of; None for as many as were asked for.
    """

    duration_s: float
    energy: Energy | None = None
    metrics: dict[str, float] | None = None
    failure: tuple[Status, str] | None = None
    clock: ClockReading = _UNREAD
    notes: tuple[str, ...] = ()
    scatter: float | None = None
    times: int | None = None


Runner = Callable[[Trial, float, int], ProgramRun]
"""Runs a trial: ended after so many seconds, and so often."""


class ProgramMeasurer:
    """Implements ``Measurer`` by whole runs; the default comes first, and runs once before it counts.

    A run that crashes is tried once more. Where the sensor sees too little of the default, all are repeated.

    Args:
        program: what runs.
        run: runs it.
        setting: holds clocks and power limits.
        precision: wanted of joules, relative.
        needs_energy: whether a run without joules is worth anything.
        tell: takes a sentence for the user.
    """

    def __init__(
        self,
        program: Program,
        run: Runner,
        setting: SettingLock,
        *,
        precision: float,
        needs_energy: bool,
        tell: Callable[[str], None],
    ) -> None:
        self._program, self._run, self._setting = program, run, setting
        self._precision, self._needs_energy, self._tell = precision, needs_energy, tell
        self._default_s: float | None = None
        self._times = 1
        self._measured_s = 0.0

    @property
    def windows_s(self) -> float:
        """Length of all runs so far."""
        return self._measured_s

    @property
    def notices(self) -> tuple[str, ...]:
        """None: they are told as they come."""
        return ()

    def measure(
        self,
        trial: Trial,
        plans: Sequence[Plan],  # noqa: ARG002 - a program needs none
        target: ComparisonTarget | None = None,  # noqa: ARG002 - a run is as long as it is
    ) -> Measurement:
        """Run a trial.

        Raises:
            InputError: the program fails as it stands.
            ClockError: the trial's clock or limit could not be set, held or restored.
            RunInterrupted: a signal came.
        """
        with self._setting.held(trial.setting):
            if self._default_s is None:
                self._warm_up(trial)
            run = self._attempted(trial)
            if self._default_s is None:
                if run.failure is not None:
                    raise InputError(f"{self._program.command[0]}: fails sometimes: {run.failure[1]}")
                self._default_s = run.duration_s
        return self._measurement(run)

    def _attempted(self, trial: Trial) -> ProgramRun:
        """Run a trial, and once more where it crashed; what took too long or was wrong will be again."""
        for last in (False, True):
            run = self._run(trial, self._most_s, self._times)
            self._measured_s += run.duration_s * self._times
            if run.failure is None or run.failure[0] is not Status.CRASHED or last:
                break
            if self._default_s is not None:
                self._tell(f"a run crashed, and is tried once more: {run.failure[1]}")
        return run

    def _warm_up(self, trial: Trial) -> None:
        """Run the default once before it counts, and choose how often it runs in a trial.

        What compiles, or reads files, is slower the first time: as a measurement of the default, which all is
        held against, that would be a saving of every other trial. A program that fails here is refused.
        """
        self._tell("the first run is not counted: it fills caches of files and of compilers")
        run = self._attempted(trial)
        if run.failure is not None:
            raise InputError(f"{self._program.command[0]}: fails as it stands: {run.failure[1]}")
        if self._needs_energy and run.duration_s < _SHORT_S and not self._is_seen(run):
            self._times = min(_MOST_TIMES, math.ceil(_SHORT_S / max(run.duration_s, 1e-3)))
            self._tell(
                f"a run takes {run.duration_s:.2g} s, of which the sensor sees too little: each trial is"
                f" {self._times} runs, one behind the other"
            )

    def _is_seen(self, run: ProgramRun) -> bool:
        energy = run.energy
        if energy is None or energy.joules <= 0.0:
            return False
        return COVERAGE * energy.uncertainty_j / energy.joules <= _IMPRECISE * self._precision

    @property
    def _most_s(self) -> float:
        """Seconds after which runs of a trial are ended."""
        if self._default_s is None:
            return math.inf
        longest = _LONGEST if self._program.counted is None else _LONGEST_OF_UNITS
        return max(_LEAST_ENDED_S, longest * self._default_s * self._times)

    def _measurement(self, run: ProgramRun) -> Measurement:
        times = self._times if run.times is None else run.times
        window_s = run.duration_s * times
        if run.failure is not None:
            return Measurement((WorkloadResult(run.failure[0], detail=run.failure[1]),), window_s=window_s)
        units = self._program.units_of(run.metrics or {}, run.duration_s)
        time_s = run.duration_s / units
        energy = run.energy
        if energy is not None and units != 1.0:
            energy = replace(energy, joules=energy.joules / units, uncertainty_j=energy.uncertainty_j / units)
        reasons = ", ".join(run.clock.throttle_reasons)
        flags = [Flag(FlagKind.THROTTLED, reasons)] if reasons else []
        seen_mhz, set_mhz = run.clock.mhz, self._setting.mhz
        if (
            set_mhz is not None
            and seen_mhz is not None
            and seen_mhz > set_mhz
            and self._setting.is_off(run.clock)
        ):
            # Below, it waited for something; above, somebody else has set another.
            flags.append(Flag(FlagKind.OFF_CLOCK, f"{seen_mhz:g} MHz seen, {set_mhz} MHz set"))
        flags += [Flag(FlagKind.OTHER, note) for note in run.notes]
        return Measurement(
            (WorkloadResult(Status.OK, time_s, metrics=tuple((run.metrics or {}).items())),),
            makespan_s=time_s,
            makespan_uncertainty_s=(_TIME_REPEATS if run.scatter is None else run.scatter) * time_s,
            energy=energy,
            rounds=times,
            window_s=window_s,
            clock_mhz=seen_mhz,
            flags=tuple(flags),
            energy_total_j=0.0 if run.energy is None else run.energy.joules * times,
        )

    def measure_otherwise(self, trial: Trial, plans: Sequence[Plan]) -> Measurement:
        """A program has one timing."""
        return self.measure(trial, plans)

    def measure_idle(self, clock_mhz: int | None) -> float:  # noqa: ARG002 - it is measured before each run
        """Nothing is measured."""
        return 0.0

    def with_idle(self, measurement: Measurement, clock_mhz: int | None) -> Measurement:  # noqa: ARG002 - as above
        """The measurement as it is."""
        return measurement

    def spent(self) -> None:
        """Joules are those of the trials."""

    def recall(
        self,
        trials: Sequence[tuple[Trial, Measurement]],
        workloads: Sequence[Workload],  # noqa: ARG002 - there is one
    ) -> None:
        """Take over how long the default took, and how often it ran."""
        first = trials[0][1]
        if first.ok and first.rounds:
            self._times, self._default_s = first.rounds, first.window_s / first.rounds

    def close(self) -> None:
        """Give clock and power limit back."""
        self._setting.release()


# --- Real runs, traced.


@dataclass(frozen=True)
class TracedRuns:
    """Runs a program without a terminal while the power of a GPU is recorded.

    Attributes:
        program: what runs.
        gpu: whose power is read.
        samplers: of its power; none measures time alone.
        clocks: read meanwhile; None for no clock.
    """

    program: Program
    gpu: Gpu
    samplers: tuple[PowerSampler, ...]
    clocks: ClockControl | None

    def __call__(self, trial: Trial, most_s: float, times: int) -> ProgramRun:
        """Run a trial, see ``Runner``.

        Raises:
            InputError: the program cannot be started.
            RunInterrupted: a signal came meanwhile.
        """
        command, environment = self.program.rendered(trial.configurations[0])
        recorder, began_at = Recorder(self.samplers, self.clocks), time.time()
        outcome = run_traced(
            command, recorder, unattended=Unattended(environment, most_s=most_s, times=times)
        )
        if outcome.interrupted:
            raise RunInterrupted("interrupted")
        traced = result(command, self.gpu, recorder, outcome)
        duration_s = outcome.timeline.duration_s / times
        metrics, failure = None, _failure(outcome, most_s)
        if failure is None:
            try:
                metrics = self.program.metrics_of(outcome.output, began_at)
            except MetricError as error:
                failure = Status.WRONG_ANSWER, str(error)
        notes = [note for note in traced.notes() if not note.startswith("throttled")]
        if outcome.left:
            count = "one process" if outcome.left == 1 else f"{outcome.left} processes"
            notes.append(f"left {count} running, which ended with the run")
        return ProgramRun(duration_s, _energy(traced, times), metrics, failure, traced.clock, tuple(notes))


def _failure(outcome: CommandOutcome, most_s: float) -> tuple[Status, str] | None:
    """The way a run failed, and that in words; None where it ended well."""
    if outcome.too_long:
        return Status.TIMEOUT, f"ended after {most_s:.3g} s, as it took too long"
    if outcome.exit_code == 0:
        return None
    lines = [line.strip() for line in outcome.output.splitlines() if line.strip()][-_TAIL_LINES:]
    said = f": {' | '.join(lines)[-_TAIL_CHARACTERS:]}" if lines else ", and it printed nothing"
    return Status.CRASHED, f"exit code {outcome.exit_code}{said}"


def _energy(traced: ProgramTrace, times: int) -> Energy | None:
    """Joules of one of so many runs."""
    energy = traced.energy
    if energy is None or energy.total_j <= 0.0:
        return None
    return Energy(
        energy.total_j / times,
        energy.total_sigma_j / times,
        energy.mean_w,
        "+".join(part.info.name for part in traced.counted),
        traced.scope,
        idle_watts=energy.idle_w,
        idle_uncertainty_w=energy.idle_sigma_w,
    )


# --- The GPU that programs run on: nothing of it is opened for computing.


class BystandingDevice:
    """Implements ``Device`` for programs, which open the GPU themselves: a name, and a clock.

    Attributes:
        identity: of the GPU.
    """

    limits = None

    def __init__(self, identity: DeviceIdentity) -> None:
        self.identity = identity

    def resources(
        self, plans: Sequence[Plan], progress: Progress | None = None
    ) -> list[tuple[Resources, ...] | CompileError]:
        """Nothing is compiled."""
        del progress
        return [() for _ in plans]

    def check(self, plan: Plan, seed: int) -> Check:  # noqa: ARG002 - programs tell by themselves
        """Programs check their answers."""
        return Check(Status.OK)

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:  # noqa: ARG002 - none runs
        """No kernel runs here."""
        self._refuse()

    def run_single(self, plans: Sequence[Plan], window_s: float) -> RunRecord:  # noqa: ARG002 - as above
        """No kernel runs here."""
        self._refuse()

    def sm_units(self) -> tuple[int, int]:
        """Nothing is shared out."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise DeviceError(f"{self.identity.name}: programs run beside it, and no kernels on it")

    def free_memory_bytes(self) -> int:
        """Nobody asks."""
        return 0

    def now_s(self) -> float:
        """Monotonic time."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def resume_at(self, ended_s: float) -> None:
        """A real clock needs nothing."""

    def own_processes(self) -> int:
        """None computes."""
        return 0

    def abort(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""


@contextmanager
def open_runs(
    device_spec: str | None,
    request: SearchRequest,
    program: Program,
    tell: Callable[[str], None],
    ended: Callable[[int], object] = int,
) -> Iterator[MeasurementSetup]:
    """Open sensors and controls of the GPU that a program runs on, and close them on every way out.

    A program that is tuned in phases is started here, and its end is waited for.

    Args:
        device_spec: ``cuda:N``, a UUID or NVML's index; None for ``cuda:0``, or the first.
        request: whose objective, sensor, scope, clocks and power limits are wanted.
        program: what runs.
        tell: takes a sentence for the user.
        ended: takes the exit code of a program that was tuned in phases.

    Raises:
        InputError: the objective needs joules, and no power sensor answers.
        DeviceUnavailableError: there is no such GPU.
    """
    needs_energy = Objective(request.objective).needs_energy
    wanted = [request.sensor] if request.sensor else []
    with ExitStack() as stack:
        gpu = gpu_for(device_spec, wanted, "tuner program run", request.scope)
        spec = device_spec or ("host" if gpu is THIS_HOST else "cuda:0")
        identity = DeviceIdentity(spec, gpu.name, str(gpu.gpu), gpu.driver, "", modelled=False)
        device = BystandingDevice(identity)
        samplers: tuple[PowerSampler, ...] = ()
        try:
            samplers = (
                *stack.enter_context(opened(gpu, wanted)),
                *stack.enter_context(opened_host(request.scope)),
            )
        except (SensorUnavailableError, DeviceUnavailableError) as error:
            if needs_energy:
                raise InputError(f"--objective {request.objective}: {error}; use --objective time") from error
            tell(f"no energy is measured: {error}")
        clocks = limits = None
        no_clocks = no_limits = "there is no GPU"
        if gpu is not THIS_HOST:
            restore_stale_clocks()
            clocks, no_clocks = open_clocks(device)
            if request.power_limits != "off":
                limits, no_limits = open_power_limits(device)
            try:
                require_exclusive_gpu(gpu.gpu)
            except DeviceError as error:
                tell(f"beware: {error}")
            if others := others_in_sight(gpu):
                tell(
                    f"beware: joules and clocks are those of {gpu.name} alone, and the program may use"
                    f" {others} more; CUDA_VISIBLE_DEVICES={gpu.uuid} shows it this one alone"
                )
        for control in (clocks, limits):
            if control is not None:
                stack.callback(control.close)
        setting, readable = SettingLock(clocks, limits), _readable(clocks)
        measurer: ProgramMeasurer
        if program.phase:
            from tuner.programs.phases import (  # noqa: PLC0415 - most have whole runs
                WINDOW_S,
                PhaseMeasurer,
                StepWindows,
            )

            command = stack.enter_context(running(program.command, Recorder(samplers, readable), ended))
            windows = StepWindows(command, program.phase, request.window_s or WINDOW_S, tell)
            measurer = PhaseMeasurer(program, windows, setting, request.max_slowdown, tell=tell)
        else:
            measurer = ProgramMeasurer(
                program,
                TracedRuns(program, gpu, samplers, readable),
                setting,
                precision=request.energy_precision,
                needs_energy=needs_energy,
                tell=tell,
            )
        stack.callback(measurer.close)
        sensor = samplers[0].info.name if samplers else None
        yield MeasurementSetup(device, measurer, clocks, no_clocks, sensor, 0.0, (), limits, no_limits)


def _readable(clocks: ClockControl | None) -> ClockControl | None:
    """A control that tells the clock; None where it does not."""
    if clocks is None:
        return None
    try:
        clocks.read()
    except ClockError:
        return None
    return clocks
