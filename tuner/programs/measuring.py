"""A program's trials to numbers: whole runs, with their joules, at a clock and limit that are held."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tuner.joules.trace_result import ProgramTrace, result
from tuner.joules.traces import CommandOutcome, Recorder, Unattended, run_traced
from tuner.joules.watching import Gpu
from tuner.measurement.base import ComparisonTarget
from tuner.measurement.settle import SettingLock
from tuner.model.errors import ClockError, InputError, RunInterrupted
from tuner.model.objective import COVERAGE
from tuner.model.plan import Plan, Workload
from tuner.model.trial import Energy, Flag, FlagKind, Measurement, Status, Trial, WorkloadResult
from tuner.power.base import ClockControl, ClockReading, PowerSampler
from tuner.programs.program import PROFILE, MetricError, Program

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
        profiles: IDs of the GPU's power profiles by name, where these are a tunable.
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
        profiles: Mapping[str, int] | None = None,
    ) -> None:
        self._program, self._run, self._setting = program, run, setting
        self._profiles = profiles or {}
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
        profile = self._profiles.get(str(trial.configurations[0].get(PROFILE)))
        with self._setting.held(replace(trial.setting, power_profile=profile)):
            if self._default_s is None:
                self._warm_up(trial)
            run = self._attempted(trial)
            overridden = self._overridden()
            if self._default_s is None:
                if run.failure is not None:
                    raise InputError(f"{self._program.command[0]}: fails sometimes: {run.failure[1]}")
                self._default_s = run.duration_s
        if overridden is None:
            return self._measurement(run)
        measurement = self._measurement(replace(run, clock=overridden))
        self._setting.release()  # so that the next trial sets its clock anew
        return measurement

    def _overridden(self) -> ClockReading | None:
        """The present clock where it is above the one that is held: the program, or another, has set it."""
        with suppress(ClockError):  # is the business of who holds it
            after = self._setting.read()
            held_mhz = self._setting.mhz
            if held_mhz is not None and (after.mhz or 0.0) > held_mhz and self._setting.is_off(after):
                self._tell(
                    f"beware: the clock is {after.mhz:g} MHz after a run at {held_mhz} MHz: the program, or"
                    " somebody else, has set it"
                )
                return after
        return None

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
