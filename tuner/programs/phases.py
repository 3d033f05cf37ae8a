"""A long run that is tuned while it goes on: clock and power limit change between windows of its steps."""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from typing import Protocol

from tuner.devices.sensors import is_of_host
from tuner.joules.traces import RunningCommand
from tuner.measurement.base import ComparisonTarget
from tuner.measurement.paired import scaled_energy
from tuner.measurement.settle import SettingLock
from tuner.model.errors import InputError
from tuner.model.plan import Plan, Workload
from tuner.model.trial import Energy, GpuSetting, Measurement, Status, Trial
from tuner.model.units import lasting, percent_with_interval, si, with_uncertainty
from tuner.power.base import ClockReading, Span, SpanEnergy
from tuner.power.energy.spans import span_energy
from tuner.programs.beats import BEAT, Beats, most_slower, shows_beats
from tuner.programs.measuring import ProgramMeasurer, ProgramRun
from tuner.programs.program import Program
from tuner.search.answer import TIMES_SCATTER, Outcome
from tuner.search.option_checks import LimitReachedError
from tuner.search.plan import SearchPlan
from tuner.system.marks import ended

# --- Windows of a run that goes on.

_LOOK_S = 0.05  # between two looks at the marks, which are dated as they come
_SILENT_S = 60.0  # without a mark: the user may have forgotten them
_NO_BEAT_S = 20.0  # at another setting than the default's: its window has failed
_SETTLE = 0.2  # of a window, after clock or limit has changed: a limit's controller takes tenths of a second
_PAUSE = 3.0  # usual steps: a longer one holds something else, as an evaluation
_MOST_PAUSES = 3  # in a window; steps that differ so much are all there is
_CONTEXT_S = 30.0  # of samples before a window
_PERIODS = 20.0  # of a sensor, in a window at least
_GROUPS, _LEAST_SCATTER = 10, 0.001  # of steps in a window, that tell how joules scatter; a least one
_REST = 0.1  # of the variance of steps, that is theirs at least
_FEW, _FEW_SCATTER = 3, 0.01  # steps that say little of how steps differ; what is assumed then


class Marks:
    """Steps that the program marks; ``Beats`` are those that its power shows, in the same form.

    Args:
        phase: what it calls a step.
        since_s: the time from which on marks are expected.
        tell: takes a sentence for the user.
    """

    comes_and_goes, lost, slower, dated_s, least = False, False, 1.0, 0.0, 1

    def __init__(self, phase: str, since_s: float, tell: Callable[[str], None]) -> None:
        self._phase, self._silent_since_s, self._tell = phase, since_s, tell
        self._marked = ""  # the phase; before it, the first mark of another one

    def begin(self, since_s: float, setting: GpuSetting) -> None:
        """See ``Beats``: marks are dated as they come, at any setting."""

    def note(self, marks: Sequence[tuple[float, str]]) -> None:
        """Note what the program marks."""
        for _, label in marks:
            if label == self._phase or not self._marked:
                self._marked = label

    def marks(self, noted: Sequence[tuple[float, str]], now_s: float) -> Sequence[tuple[float, str]]:
        """Marks since the last call; who marks none is told once how to."""
        if noted:
            self._silent_since_s = math.inf
        elif now_s - self._silent_since_s > _SILENT_S:
            self._silent_since_s = math.inf
            self._tell(f"beware: the program has so far marked {self._how_to_mark()}")
        return noted

    @property
    def missed(self) -> str:
        """Words for a program that has ended without a step."""
        return "" if self._marked == self._phase else f", and has marked {self._how_to_mark()}"

    def _how_to_mark(self) -> str:
        """Words for a step that was not marked, and for what was marked in its place."""
        other = f", but {self._marked!r}" if self._marked else ""
        return (
            f"no {self._phase!r}{other}; it does so by"
            f" `with tuner.phase({self._phase!r}):` around each, or by `echo {self._phase} > $TUNER_MARKS`"
        )


class StepWindows:
    """Implements ``Windows`` by those of a running command, which marks its steps, or whose power shows them.

    Args:
        command: marks the beginning of each step.
        phase: what it calls a step; ``BEAT`` where it marks none.
        window_s: shortest window, before the sensors are asked.
        tell: takes a sentence for the user.

    Attributes:
        least_s: shortest window, of which the sensors see enough.
    """

    def __init__(
        self, command: RunningCommand, phase: str, window_s: float, tell: Callable[[str], None]
    ) -> None:
        self._command, self._phase = command, phase
        self._now = command.recorder.now
        infos = [channel.info for channel in command.recorder.channels]
        shown = [info.period_s for info in infos if info.kind != "counter"]  # a counter is read at both ends
        self.least_s = max([window_s, *(_PERIODS * period_s for period_s in shown)])
        self._settle_s = max([_SETTLE * self.least_s, *(info.response.memory_s for info in infos)])
        self._late_s = max([0.0, *(info.period_s + info.response.delay_s for info in infos)])
        self._steps: Marks | Beats = Marks(phase, self._now(), tell)
        if phase == BEAT:
            self._steps = Beats(next(one for one in command.recorder.channels if shows_beats(one.info)), tell)

    def __call__(self, trial: Trial, most_s: float, times: int) -> ProgramRun:
        """Wait until the GPU has settled, and then for so many steps, or so many seconds at most.

        Raises:
            LimitReachedError: the program has ended.
        """
        for channel in self._command.recorder.channels:
            channel.samples[:] = [one for one in channel.samples if one.time_s > self._now() - _CONTEXT_S]
        del self._command.recorder.clocks[:]
        self._attend(self._now() + self._settle_s)
        self._steps.begin(self._now(), trial.setting)
        least = self._steps.least
        most_s, times = most_s * max(1.0, least / times), max(times, least)
        begins_s = self._begins(most_s, times)
        self._command.edge()
        self._attend(self._now() + self._late_s)
        if not (each_s := _between(begins_s)):
            return ProgramRun(most_s, failure=(Status.TIMEOUT, f"no step ended in {most_s:.3g} s"), times=1)
        steps, mean_s = len(each_s), statistics.fmean(each_s)
        scatter = _FEW_SCATTER
        if steps >= _FEW:
            scatter = _scatter(each_s, self._steps.dated_s) / mean_s / math.sqrt(steps)
        energy, clock = self._energy(begins_s, scatter), self._clock(begins_s[0])
        return ProgramRun(mean_s, energy, clock=clock, scatter=scatter, times=steps)

    @property
    def over(self) -> bool:
        """True once the program has ended, or its beat is lost."""
        return self._command.exit_code is not None or self._steps.lost

    def rest(self) -> tuple[int, float]:
        """Wait for the end of the program; its steps until then, and their seconds."""
        self._command.stop_recording()
        steps, first_s, last_s = 0, 0.0, 0.0
        while self._command.exit_code is None:
            for time_s, label in self._command.attend(self._now() + _SILENT_S):
                if label == self._phase:
                    first_s = first_s or time_s
                    steps, last_s = steps + 1, time_s
        return max(0, steps - 1), last_s - first_s

    def _attend(self, until_s: float) -> list[tuple[float, str]]:
        marks = self._command.attend(until_s)
        self._steps.note(marks)
        if self.over:
            raise LimitReachedError(f"the program has ended{self._steps.missed}")
        return marks

    def _begins(self, most_s: float, times: int) -> list[float]:
        """Beginnings of steps in a row, and the end of the last one; of beats that come and go the most."""
        begins_s, most = list[float](), list[float]()
        paused, pauses, seen_s = False, 0, self._now()
        while len(begins_s) <= times and (paused or not begins_s or self._now() - begins_s[0] < most_s):
            noted = self._attend(self._now() + _LOOK_S)
            for time_s, label in self._steps.marks(noted, self._now()):
                if label != self._phase:
                    paused = paused or label != ended(self._phase)
                    continue
                if each_s := _between(begins_s):
                    paused = paused or time_s - begins_s[-1] > _PAUSE * statistics.median(each_s)
                if self._steps.comes_and_goes and paused:
                    most = max(most, begins_s, key=len)
                    if pauses == _MOST_PAUSES:
                        return most
                if not begins_s or (paused and pauses < _MOST_PAUSES):
                    pauses += bool(begins_s)
                    begins_s = []
                    self._command.edge()
                begins_s.append(time_s)
                paused, seen_s = False, self._now()
            if self._steps.slower > 1.0 and self._now() - seen_s > _NO_BEAT_S:
                break  # what the default has may not be seen here, or the program does something else
        return max(begins_s[: times + 1], most, key=len)

    def _energy(self, begins_s: Sequence[float], scatter: float) -> Energy | None:
        """Joules of a step; None where a reading gave too little.

        Groups of steps in a row tell how their joules scatter. That counts where a sensor sees all of the
        time, as the noise of its samples cannot be told from what short steps draw in turn.
        """
        energies, steps = self._spent(begins_s[0], begins_s[-1]), len(begins_s) - 1
        joules = math.fsum(energy.joules for energy in energies)
        if joules <= 0.0:
            return None
        sigma_j = math.hypot(*(energy.sigma_j for energy in energies), scatter * joules)
        groups = begins_s[: steps // _GROUPS * _GROUPS + 1 : max(1, steps // _GROUPS)]
        if steps >= _GROUPS and all(one.info.response.averages for one in self._command.recorder.channels):
            each = [self._spent(*edges_s) for edges_s in itertools.pairwise(groups)]
            each_j = [math.fsum(energy.joules for energy in one) for one in each]
            if all(each):
                seen = statistics.stdev(each_j) / statistics.fmean(each_j) / math.sqrt(len(each_j))
                sigma_j = min(sigma_j, max(seen, _LEAST_SCATTER) * joules)
        sensors = "+".join(energy.sensor for energy in energies)
        scope = "+".join(energy.scope for energy in energies)
        return Energy(joules / steps, sigma_j / steps, joules / (begins_s[-1] - begins_s[0]), sensors, scope)

    def _spent(self, begin_s: float, end_s: float) -> list[SpanEnergy]:
        """Energies of GPU and host between two times; none where a reading gave too little."""
        channels = self._command.recorder.channels
        of_gpu = [(one.info, one.samples) for one in channels if not is_of_host(one.info)]
        parts = [of_gpu, *([(one.info, one.samples)] for one in channels if is_of_host(one.info))]
        span = Span(begin_s, end_s, starts=False, ends=False)
        energies = [span_energy(readings, span) for readings in parts if readings]
        return [] if None in energies else [energy for energy in energies if energy is not None]

    def _clock(self, since_s: float) -> ClockReading:
        seen = [reading for time_s, reading in self._command.recorder.clocks if time_s >= since_s]
        rates = [reading.mhz for reading in seen if reading.mhz is not None]
        reasons = {reason for reading in seen for reason in reading.throttle_reasons}
        return ClockReading(statistics.median(rates) if rates else None, tuple(sorted(reasons)))


def _between(times_s: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times_s)]


def _scatter(each_s: Sequence[float], dated_s: float) -> float:
    """Standard deviation of steps, which over the root of their number is the uncertainty of their mean.

    Where their beginnings are seen with an error of their own, a longer step follows a shorter one: that part
    of the scatter is in the first and the last beginning alone.

    Args:
        each_s: steps in a row.
        dated_s: standard uncertainty of a beginning, for which the scatter need not tell; 0 for none.
    """
    variance, mean_s = statistics.variance(each_s), statistics.fmean(each_s)
    if not dated_s:
        return math.sqrt(variance)
    along = statistics.fmean((one - mean_s) * (other - mean_s) for one, other in itertools.pairwise(each_s))
    seen = min(max(0.0, -2.0 * along), (1.0 - _REST) * variance)
    return math.sqrt(variance - seen + max(seen, 2.0 * dated_s**2) / len(each_s))


# --- The search: windows at the settings that are asked for, each followed by one of the default.

WINDOW_S = 5.0
"""Shortest window of steps, where nothing else is asked for."""

_LEAST_STEPS = 8
_FIRST_STEPS = 4  # that tell how long a window of so many seconds is
_MOST_TIMES, _MOST_OF_BOUND = 3, 4  # longer a window may be, where steps differ much; under a bound
_SCATTER, _SCATTER_OF_BOUND = 0.004, 0.003  # of a window's time, without a bound on it and with one
_FLAT = 0.02  # windows of a default that has settled differ by no more
_MOST_BEFORE = 6  # windows until it has
_TRIES = 3
_CHANGED = 0.05  # of the default from a window to the next: the work is another one
_PROBE_S = 1.0
_UNSURE = 1.5  # standard uncertainties of a probe, that it may be off by
_NOT_YET, _BEGUN = 0.5, 0.75  # of how far a program may follow, that it will, by whether it has before
_PERHAPS = 1.4  # times the bound: a probe that is slower is so not by chance
_ODD = 0.05  # of a beat, that it may be off from what a clock can make of it
_LEAST_BOUND = 0.002  # a smaller one is not told from chance by a probe
_SURE = 4.0  # times the scatter of a probe, the bound


class Windows(Protocol):
    """Windows of one run, see ``StepWindows``."""

    least_s: float

    def __call__(self, trial: Trial, most_s: float, times: int) -> ProgramRun:
        """See ``Runner``."""

    @property
    def over(self) -> bool:
        """True once the program has ended."""

    def rest(self) -> tuple[int, float]:
        """Wait for the end of the program; its steps until then, and their seconds."""


class PhaseMeasurer(ProgramMeasurer):
    """Implements ``Measurer`` by windows of one run; times and joules are those of a step.

    A setting that is new is followed by a window of the default, and its numbers are scaled by what the
    default has changed since its first one: the work, and the warmth of the GPU, go on changing. Settings
    that are measured again take turns with the default, there and back.

    Args:
        program: what runs.
        windows: of it.
        setting: holds clocks and power limits.
        max_slowdown: no setting is tried that may be slower than twice that, nor a window made whole that is
            slower than it; None for windows twice as long as the default's at most.
        tell: takes a sentence for the user.
    """

    def __init__(
        self,
        program: Program,
        windows: Windows,
        setting: SettingLock,
        max_slowdown: float | None,
        *,
        tell: Callable[[str], None],
    ) -> None:
        super().__init__(program, windows, setting, precision=0.0, needs_energy=False, tell=tell)
        self._windows = windows
        self._window_s = windows.least_s
        self._slower = max_slowdown
        self._default = GpuSetting()
        self._lowest = GpuSetting(0, 0)  # that is tried
        self._unused = True  # the first window of the default, which was made before the search
        self._known: set[Trial] = set()

    def begun(self, plan: SearchPlan, stones_mhz: Sequence[int], stones_w: Sequence[int]) -> SearchPlan:
        """Measure the default until it has settled, and leave out the settings that may be too slow.

        Args:
            plan: of the search.
            stones_mhz: clocks that may be set on the way to slower ones, highest first.
            stones_w: power limits, likewise.

        Raises:
            LimitReachedError: the program has ended.
            ClockError: a clock or limit could not be set, held or restored.
        """
        highest = [values[0] if values else None for values in (plan.clocks_mhz, plan.power_limits_w)]
        self._default = GpuSetting(*highest)
        self._first = self._latest = run = self._settled_default()
        self._default_s = run.duration_s
        self._beats_s = {self._default: run.duration_s}
        self._tell(
            f"a {self._program.phase} takes {si(run.duration_s, 's')}; a window is {self._times} of them,"
            f" {lasting(run.duration_s * self._times)}"
        )
        if self._slower is None:
            return plan
        clocks = self._within(plan.clocks_mhz, stones_mhz, 1.0 + 2.0 * self._slower, "clock_mhz")
        limits = self._within(plan.power_limits_w, stones_w, 1.0 + self._slower, "power_limit_w")
        self._lowest = GpuSetting(min(clocks, default=0), min(limits, default=0))
        left = len(plan.clocks_mhz) - len(clocks), len(plan.power_limits_w) - len(limits)
        notices = [
            f"{count} of {len(values)} {name} are not tried, as they may be more than"
            f" {100 * self._slower:g} % slower"
            for count, values, name in zip(
                left, (plan.clocks_mhz, plan.power_limits_w), ("clocks", "power limits"), strict=True
            )
            if count
        ]
        return replace(plan, clocks_mhz=clocks, power_limits_w=limits, notices=(*plan.notices, *notices))

    def measure(
        self,
        trial: Trial,
        plans: Sequence[Plan],  # noqa: ARG002 - a program needs none
        target: ComparisonTarget | None = None,  # noqa: ARG002 - a window is as long as it is
    ) -> Measurement:
        """Measure a window at a setting.

        Raises:
            ClockError: the trial's clock or limit could not be set, held or restored.
            InputError: see ``_check_beat``.
            LimitReachedError: the program has ended.
        """
        if trial.setting == self._default:
            if not self._unused:
                self._latest = self._at(self._default)
            self._unused = False
            return self._measurement(self._latest)
        lowest = self._lowest
        if any(
            value is not None and value < (least or 0)
            for value, least in (
                (trial.clock_mhz, lowest.clock_mhz),
                (trial.power_limit_w, lowest.power_limit_w),
            )
        ):  # the answer of an earlier run
            return self._measurement(ProgramRun(0.0, failure=(Status.TIMEOUT, "may be too slow"), times=0))
        run = self._at(trial.setting)
        if trial not in self._known and run.failure is None:
            run = self._beside_default(trial, run)
            if self._program.phase == BEAT and run.failure is None and not run.notes:
                self._check_beat(trial.setting, run.duration_s)
        self._known.add(trial)
        return self._measurement(run)

    def _check_beat(self, setting: GpuSetting, beat_s: float) -> None:
        """Refuse beats that no time of steps can be: shorter at a lower clock, or longer by more than that.

        Steps that are too short for the sensor look like longer ones, which any clock changes beyond measure.
        """
        self._beats_s[setting] = beat_s
        for high, low in itertools.permutations(self._beats_s, 2):
            ratio = self._beats_s[low] / self._beats_s[high]
            is_below = all((a or 0) <= (b or 0) for a, b in zip(astuple(low), astuple(high), strict=True))
            if is_below and not -_ODD <= ratio - 1.0 <= (1.0 + _ODD) * most_slower(high, low) - 1.0:
                raise InputError(
                    f"--phase {BEAT}: what repeats takes {ratio - 1.0:+.0%} time at a slower clock or limit,"
                    " as no step does; steps may be too short for the sensor: mark them"
                )

    def recall(self, trials: Sequence[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """Nothing: what a run has measured is of no use in another."""

    def _settled_default(self) -> ProgramRun:
        """A window of the default like the one before it, as long as the scatter of its steps asks for."""
        scatter, most = (
            (_SCATTER, _MOST_TIMES) if self._slower is None else (_SCATTER_OF_BOUND, _MOST_OF_BOUND)
        )
        with self._setting.held(self._default):
            run = self._window(self._default, _FIRST_STEPS, math.inf)
            for _ in range(_MOST_BEFORE):
                before_s = run.duration_s
                least = max(_LEAST_STEPS, self._window_s / before_s)
                self._times = math.ceil(least)
                run = self._window(self._default, self._times, math.inf)
                self._step_scatter = (run.scatter or 0.0) * math.sqrt(run.times or 1)
                wanted = math.ceil(min(most * least, (self._step_scatter / scatter) ** 2))
                if wanted > self._times:
                    self._times = wanted
                    run = self._window(self._default, self._times, math.inf)
                if abs(run.duration_s / before_s - 1.0) <= _FLAT:
                    break
        return run

    def _at(self, setting: GpuSetting) -> ProgramRun:
        with self._setting.held(setting):
            slower = 1.0 if self._slower is None else self._slower + TIMES_SCATTER
            return self._window(setting, self._times, (1.0 + slower) * self._latest.duration_s * self._times)

    def _window(self, setting: GpuSetting, steps: int, most_s: float) -> ProgramRun:
        """A window; one without a whole step has met a pause, and is made again."""
        for _ in range(_TRIES):
            run = self._run(Trial((), setting.clock_mhz, setting.power_limit_w), most_s, steps)
            self._measured_s += run.duration_s * (run.times or steps)
            if run.failure is None:
                break
        return run

    def _beside_default(self, trial: Trial, run: ProgramRun) -> ProgramRun:
        """A window of a setting as it would have been when the default was measured first."""
        for last in (False, True):
            before, self._latest = self._latest, self._at(self._default)
            change = self._latest.duration_s / before.duration_s - 1.0
            if abs(change) <= _CHANGED or last:
                break
            self._tell(f"a {self._program.phase} takes {change:+.0%} now: that window is made again")
            run = self._at(trial.setting)
        both = before, self._latest
        time = self._first.duration_s / statistics.fmean(one.duration_s for one in both)
        energy, joules = run.energy, [one.energy.joules for one in (self._first, *both) if one.energy]
        if energy is not None and len(joules) == 1 + len(both):
            energy = scaled_energy(energy, joules[0] / statistics.fmean(joules[1:]), 0.0, time)
        notes = (f"the work of a step changed by {change:+.0%} meanwhile",) if abs(change) > _CHANGED else ()
        return replace(run, duration_s=run.duration_s * time, energy=energy, notes=(*run.notes, *notes))

    def _within(
        self, values: Sequence[int], stones: Sequence[int], ratio: float, name: str
    ) -> tuple[int, ...]:
        """Those of some values that are not known to be slower than the bound, highest first.

        A program gets slower by no more than a clock does, or than twice what a power limit does: each step
        down is as far as keeps within twice the bound by that, and by what was seen of the one before. Where
        values lie too far apart for that, the last one is looked at for longer, and a program that has not
        followed them so far is taken to follow them half as far as it may; one that has begun to, by more.
        """
        bound = max(self._slower or 0.0, _LEAST_BOUND)
        if len(set(values)) <= 1:
            return tuple(values)
        at, slow, unsure = values[0], 0.0, _UNSURE * self._step_scatter / math.sqrt(self._times)
        least = max(self._times * _PROBE_S / self._window_s, (_SURE * self._step_scatter / bound) ** 2, _FEW)
        steps = short = min(self._times, math.ceil(least))
        while at > values[-1]:
            taken = 1.0 + max(0.0, slow) + unsure
            surely = max(values[-1], at * taken / ratio)
            to = min((stone for stone in stones if surely <= stone < at), default=0)
            if not to:
                to = max((stone for stone in stones if stone < at), default=at)
                followed = 1.0 if at == values[0] else min(1.0, max(0.0, slow) / (values[0] / at - 1.0))
                follows = followed + (1.0 - followed) * (_BEGUN if slow > unsure else _NOT_YET)
                likely = 1.0 + follows * (at / to - 1.0)
                if at != values[0] and steps < self._times:
                    to = at  # a longer look at it, before one that is not known to be safe
                elif to == at or taken * likely > ratio:
                    return tuple(value for value in values if value >= at)
            steps = self._times if to == at else short
            at, unsure = to, _UNSURE * self._step_scatter * math.sqrt(1.0 / steps + 1.0 / self._times)
            setting = replace(self._default, **{name: at})
            with self._setting.held(setting):
                run = self._window(setting, steps, (1.0 + 2.0 * bound) * self._latest.duration_s * steps)
            slow = run.duration_s / self._latest.duration_s - 1.0
            if run.failure is not None or slow > bound:
                least = at if slow < _PERHAPS * bound and run.failure is None else at + 1
                return tuple(value for value in values if value >= least)
        return tuple(values)

    def keep(self, outcome: Outcome) -> None:
        """Hold the answer of a search until the program ends, and tell what that has saved.

        Raises:
            ClockError: it could not be set, or was not held to the end.
        """
        if self._windows.over:
            return
        chosen = None if outcome.answer is None else outcome.trials[outcome.answer][0].setting
        stays = outcome.answer == outcome.default
        changes = outcome.document["against_default"]
        if chosen is None or stays or changes is None:
            self._setting.release()
            self._tell("the rest of the run is as it was: nothing else is better")
            self._windows.rest()
            return
        words = [f"{chosen.clock_mhz} MHz"] if chosen.clock_mhz is not None else []
        words += [f"{chosen.power_limit_w} W at most"] if chosen.power_limit_w is not None else []
        gained = f"time {percent_with_interval(changes['slowdown'], changes['slowdown_interval'])}"
        if "energy_saving" in changes:
            saved = percent_with_interval(-changes["energy_saving"], changes["energy_saving_interval"])
            gained = f"joules {saved}, {gained}"
        with self._setting.held(chosen):
            self._tell(f"held for the rest of the run: {', '.join(words)}; {gained} against the default")
            steps, seconds = self._windows.rest()
        default = outcome.document["default"]
        joules = None if default is None else default.get("energy_j")
        if not steps:
            return
        told = f"the rest took {steps} steps and {lasting(seconds)}"
        if joules is not None and "energy_saving" in changes:
            whole_j, half = joules * steps, changes["energy_saving_interval"] or 0.0
            saved = with_uncertainty(whole_j * changes["energy_saving"], whole_j * half, "J")
            told += f"; by the turns, {saved} were saved"
        self._tell(told)
