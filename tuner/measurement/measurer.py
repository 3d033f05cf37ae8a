"""A trial from request to numbers.

*Check*: the answer of each configuration, once. *Settle*: clock and power limit are set and reached under
load (``settle``). *Race*: short windows of time, or a bound on joules by them, end what cannot be the best
(``race``). *Window*: rounds back to back while power is recorded (``window``), again until power is flat,
once more where something spoilt one, and longer at the power limit. *Correct*: idle power is told beside the
joules. The last window has the numbers; what a trial cost is summed over all of them.
"""

import copy
import hashlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType

from tuner.devices.base import Check, Device
from tuner.measurement.base import ComparisonTarget, TrialGate, passed
from tuner.measurement.race import RUNGS_S, JouleBounds, Race, is_clearly_worse
from tuner.measurement.settle import IdlePower, LimitedWindows, SettingLock, WarmUp, is_limited
from tuner.measurement.window import JouleWindows, WindowRunner, recording_of, suggested_window_s
from tuner.model.options import BACK_TO_BACK, SINGLE, SearchOptions
from tuner.model.plan import SM_SHARE, Configuration, Plan, Workload, with_place, without_place
from tuner.model.trial import (
    SPOILING,
    FlagKind,
    GpuSetting,
    Measurement,
    Status,
    Trial,
    WorkloadResult,
)
from tuner.power.base import ClockControl, ClockReading, Meter, PowerLimitControl, SpentEnergy

_LOG = logging.getLogger(__name__)
_OF_THE_CHECK = (Status.OK, Status.COMPILE_ERROR, Status.WRONG_ANSWER)
_ARRIVE_WINDOW_S = 0.1  # of load between two looks at a clock that was set
_CAPPED_WINDOW_S = 1.5  # at its power limit an H200 swings between 500 and 800 W with a period of a second
_RAMP_S = 0.03  # of load before short windows: clocks and memory of an idle GPU take some ms to come up
_IDLE_S = 0.25  # so long may a GPU wait for the host and still be at its clocks
_GIVE_UP = 3  # windows measured again in vain before what spoilt them counts as lasting


class TrialMeasurer(AbstractContextManager["TrialMeasurer"]):
    """Measures trials on one device, one after another.

    Clock and power limit of a trial stay set until a trial with another one comes, ``close`` is called, or an
    exception passes through; device, meter and controls stay the caller's.

    Args:
        device: where trials run.
        meter: for joules; None measures time only.
        clocks: sets the clocks of trials that name one.
        window_s: length of every measuring window; None for the sensor's own, and for longer ones where a
            GPU is at its power limit.
        seed: of the random inputs of answer checks.
        needs_energy: True where measurements without joules are worth nothing: a sensor that is lost then
            ends the run.
        warm_up: has windows repeated until power is settled; the first trial is then followed by a reading of
            idle power. None for single windows.
        precision: wanted of joules, see ``suggested_window_s``.
        thrifty: measure a trial that has a comparison target only while it may be the best. Times are raced
            (``race``); for joules, bounds may rule a trial out (``JouleBounds``), or a brief window.
        limits: sets the power limits of trials that name one.
        gates: passed, in their order, before anything runs on the device, and left in the reverse one.
        timing: ``back-to-back`` for windows of rounds; ``single`` for windows of single rounds, each behind a
            flush of the L2, which have no joules.

    Attributes:
        window_s: length of a full window.
    """

    def __init__(
        self,
        device: Device,
        meter: Meter | None = None,
        clocks: ClockControl | None = None,
        window_s: float | None = None,
        *,
        seed: int = 0,
        needs_energy: bool = False,
        warm_up: WarmUp | None = None,
        precision: float = SearchOptions.energy_precision,
        thrifty: bool = False,
        limits: PowerLimitControl | None = None,
        gates: Sequence[TrialGate] = (),
        timing: str = BACK_TO_BACK,
    ) -> None:
        self.window_s = window_s or suggested_window_s(None if meter is None else meter.info, precision)
        self._fixed = window_s is not None
        self._lengths = JouleWindows(None if meter is None else meter.info, precision, self.window_s)
        self._device = device
        self._meter = meter
        self._thrifty = thrifty
        self._gates = gates
        self._setting = SettingLock(clocks, limits)
        self._checks = AnswerChecks(device, seed)
        self._windows = WindowRunner(device, meter, self._setting, needs_energy=needs_energy, timing=timing)
        self._other_timing = BACK_TO_BACK if timing == SINGLE else SINGLE
        self._idle = None if meter is None else IdlePower(device, meter)
        self._warm_up = warm_up
        self._limited = LimitedWindows(self.window_s, precision)
        self._race = Race()
        self._bounds = JouleBounds()
        self._in_vain: Counter[FlagKind] = Counter()  # windows measured again that were spoilt again
        self._at_power_limit = False  # in the last window for joules
        self._busy_s = -math.inf  # when a window ended last

    # --- one trial -------------------------------------------------------------------------------

    def measure(
        self, trial: Trial, plans: Sequence[Plan], target: ComparisonTarget | None = None
    ) -> Measurement:
        """Check what was not checked before, then run the plans at the trial's clock and power limit.

        Raises:
            ClockError, DeviceError, PowerError: as of ``Measurer``; a sensor is lost that did not answer for
                three windows in a row.
        """
        return passed(self._gates, trial, lambda: self._measure(trial, plans, target))

    def _measure(self, trial: Trial, plans: Sequence[Plan], target: ComparisonTarget | None) -> Measurement:
        """Measure a trial; its joules are those of all that it made the GPU do."""
        with self._setting.held(trial.setting):
            checks, check_s, spent_j = self._checked(plans)
            if any(check.status is not Status.OK for check in checks):
                return Measurement(
                    results=tuple(
                        WorkloadResult(check.status, detail="" if check.status is Status.OK else check.detail)
                        for check in checks
                    ),
                    modelled=self._device.identity.modelled,
                    check_s=check_s,
                    energy_total_j=spent_j,
                )
            spent_j += self._arrive(plans)
            cold = self._warm_up is not None and self._warm_up.cold
            windows = self._chosen_windows(trial, plans, target)
            self._busy_s = self._device.now_s()
            measurement = windows[-1]
            self._bounds.add(trial.setting, measurement)
            self._lengths.learn(measurement)
            spent_j += math.fsum(window.energy_total_j for window in windows)
            if cold and measurement.energy is not None and not self.knows_idle(trial.clock_mhz):
                spent_j += self._read_idle(trial.clock_mhz)  # now that the GPU is warm
            measurement = self.with_idle(measurement, trial.clock_mhz)
            return replace(measurement, check_s=check_s, energy_total_j=spent_j)

    def measure_otherwise(self, trial: Trial, plans: Sequence[Plan]) -> Measurement:
        """A short window by the other timing, for the time alone, of a trial whose answers were right."""

        def measured() -> Measurement:
            with self._setting.held(trial.setting):
                self._arrive(plans)
                self._ramp(plans)
                window = self._windows.run(plans, RUNGS_S[0], joules=False, timing=self._other_timing)
                self._busy_s = self._device.now_s()
            return window

        return passed(self._gates, trial, measured)

    def _checked(self, plans: Sequence[Plan]) -> tuple[list[Check], float, float]:
        """Checks of the plans, with the seconds and joules that those took which were not made yet."""
        missing = self._checks.missing(plans)
        if not missing:
            return self._checks.of(plans), 0.0, 0.0
        with recording_of(self._meter) as recording:
            check_s = self._checks.make(missing)
        return self._checks.of(plans), check_s, 0.0 if recording is None else recording.joules()

    def _arrive(self, plans: Sequence[Plan]) -> float:
        """Let a clock that was set arrive, under the load of the plans; returns the joules that took."""
        spent_j = 0.0

        def look() -> ClockReading | None:
            nonlocal spent_j
            with recording_of(self._meter) as recording:
                record = self._device.run(plans, _ARRIVE_WINDOW_S)
                if recording is None:
                    return self._setting.read()
            spent_j += recording.joules()
            failed = any(result.status is not Status.OK for result in record.results)
            return None if failed else recording.clock(record.start_s, record.end_s)

        self._setting.settle(look, self._device.now_s)
        return spent_j

    # --- its windows, of which the last one counts --------------------------------------------------

    def _chosen_windows(
        self, trial: Trial, plans: Sequence[Plan], target: ComparisonTarget | None
    ) -> list[Measurement]:
        """Windows that are as many and as long as the trial deserves."""
        if not self._thrifty:
            return self._full(trial, plans)
        if self._meter is not None:
            return self._again(trial, plans) if target is None else self._bounded(trial, plans, target)
        ramp = self._ramp(plans)
        if any(not window.ok for window in ramp):
            return ramp  # what hangs is not waited for twice
        return self._full(trial, plans) if target is None else self._raced(trial, plans, target)

    def _ramp(self, plans: Sequence[Plan]) -> list[Measurement]:
        """A window that does not count, where the GPU has idled and short windows follow."""
        if self._device.now_s() - self._busy_s <= _IDLE_S:
            return []
        return [self._windows.run(plans, _RAMP_S, joules=False)]

    def _raced(self, trial: Trial, plans: Sequence[Plan], target: ComparisonTarget) -> list[Measurement]:
        """Single rounds, then windows for the time, longer and longer while the trial may be the best."""
        windows: list[Measurement] = []
        # Of several launches the host may be what takes long.
        one_launch = len(plans) == 1 and len(plans[0].stages) == 1
        if one_launch and self._race.takes_singles(target):
            singles = self._windows.run(plans, 0.0, joules=False)  # not again where spoilt: it proves nothing
            windows.append(singles)
            if not singles.ok:
                return windows
            if self._race.lost_in_singles(singles, target):
                return [self._race.honest_singles(singles, target)]
            self._race.add_singles(trial, singles)
        rungs: list[Measurement] = []
        for rung_s in RUNGS_S:
            if rungs and rung_s <= rungs[-1].window_s:
                break  # rounds as long as that give no more in a longer window
            windows += self._short(trial, plans, rung_s, joules=False)
            if not windows[-1].ok:
                return windows
            rungs.append(windows[-1])
            if self._race.lost(rungs, target) or not self._race.tells_more(rungs, target):
                break
        self._race.add(trial, rungs)
        unsure_s = self._race.honest(windows[-1])
        windows[-1] = replace(windows[-1], makespan_uncertainty_s=unsure_s)
        return windows

    def _bounded(self, trial: Trial, plans: Sequence[Plan], target: ComparisonTarget) -> list[Measurement]:
        """Windows for joules, as long as the trial may be the best; none where its time rules it out.

        In a search for the fastest trial that one for joules follows, every trial takes a full window.
        """
        idle = None if self._idle is None else self._idle.of(trial.clock_mhz)
        settling = self._warm_up is not None and self._warm_up.is_due(trial.setting)
        if target.best is None or idle is None or settling or not target.objective.needs_energy:
            return self._full(trial, plans, target)
        ramp = self._ramp(plans)  # from idle, its time would be too long, and the bound too high
        if any(not window.ok for window in ramp):
            return ramp
        windows = self._short(trial, plans, RUNGS_S[0], joules=False)
        if not windows[-1].ok:
            return windows
        bound = self._bounds.rules_out(windows[-1], trial.setting, idle, target)
        if bound is not None and not windows[-1].spoilt - target.best[1].spoilt:
            return [*windows[:-1], bound.estimated(windows[-1])]
        brief_s = self._lengths.brief_s
        if brief_s < self.window_s and not self._at_power_limit:  # there it would hardly tell
            windows += self._short(trial, plans, brief_s, joules=True)
            brief = windows[-1]
            if not brief.ok or self._lengths.suffices(brief) or is_clearly_worse(brief, target):
                return windows
        return windows + self._full(trial, plans, target)

    def _again(self, trial: Trial, plans: Sequence[Plan]) -> list[Measurement]:
        """Windows for joules that nothing ends early: full ones.

        At the power limit one as long as was enough for this very trial, and more where it is not.
        """
        enough_s = self._limited.enough_s(trial.setting, plans)
        settling = self._warm_up is not None and self._warm_up.is_due(trial.setting)
        if settling or enough_s is None:
            return self._full(trial, plans)
        windows = self._short(trial, plans, enough_s, joules=True)
        last = windows[-1]
        if not last.ok or self._lengths.suffices(last) or last.at_power_limit:
            return windows
        return windows + self._full(trial, plans)

    def _full(
        self, trial: Trial, plans: Sequence[Plan], target: ComparisonTarget | None = None
    ) -> list[Measurement]:
        """Windows of full length until power is settled, longer ones where the GPU is at its power limit."""

        def window() -> Measurement:
            """A window; a longer one for joules of a contender while the GPU is at its power limit."""
            length_s = self.window_s
            if self._at_power_limit and target is None and self._meter is not None and not self._fixed:
                length_s = max(length_s, self._limited.longest_s, _CAPPED_WINDOW_S)
            return self._window(plans, length_s)

        def settled() -> list[Measurement]:
            return [window()] if self._warm_up is None else self._warm_up.settle(trial.setting, window)

        def worse(measurement: Measurement) -> bool:
            return target is not None and (
                is_clearly_worse(measurement, target)
                or self._bounds.costs_more_when_held(measurement, trial.setting, target)
            )

        def enough(measurement: Measurement) -> bool:
            return worse(measurement) or self._bounds.draws_as_held(measurement, trial.setting)

        windows = self._unspoilt(trial, settled)
        if self._fixed or not windows[-1].ok:
            return windows
        if is_limited(windows[-1]) and not self._limited.is_long(windows[-1]):
            windows += self._limited.lengthened(
                windows[-1], lambda length_s: self._windows.run(plans, length_s), enough
            )
            if is_limited(windows[-1]) and not worse(windows[-1]):
                self._bounds.add_held(trial.setting, windows[-1])
        if windows[-1].at_power_limit and not worse(windows[-1]):
            enough_s = max(self._limited.enough_of(windows), _CAPPED_WINDOW_S)
            self._limited.learn(trial.setting, plans, enough_s)
        return windows

    def _window(self, plans: Sequence[Plan], window_s: float, *, joules: bool = True) -> Measurement:
        """One window; one for joules tells whether the GPU is at its power limit."""
        measurement = self._windows.run(plans, window_s, joules=joules)
        if joules:
            self._at_power_limit = measurement.at_power_limit
        return measurement

    def _short(
        self, trial: Trial, plans: Sequence[Plan], window_s: float, *, joules: bool
    ) -> list[Measurement]:
        """A window, and another one where it was spoilt."""
        return self._unspoilt(trial, lambda: [self._window(plans, window_s, joules=joules)])

    def _unspoilt(self, trial: Trial, measure: Callable[[], list[Measurement]]) -> list[Measurement]:
        """Measure, and once more where the last window was spoilt, unless that was in vain several times."""
        windows = measure()
        last = windows[-1]
        clearable = last.spoilt if last.energy is None else last.passing
        if any(self._in_vain[kind] < _GIVE_UP for kind in clearable):
            together = " | ".join(map(str, trial.configurations))
            _LOG.debug("measured again: %s: %s", together, "; ".join(map(str, last.flags)))
            windows += measure()
            self._in_vain.update(clearable & windows[-1].spoilt)
        for kind in SPOILING - windows[-1].spoilt:
            self._in_vain[kind] = 0
        return windows

    # --- idle power, joules and runs that were killed -----------------------------------------------

    def measure_idle(self, clock_mhz: int | None) -> float:
        """Read the power of the idle GPU at a clock, for the net joules of trials there.

        Returns:
            The joules that took; 0 without a meter.

        Raises:
            ClockError: the clock could not be set or restored.
        """

        def read() -> Measurement:
            return Measurement((), energy_total_j=self._read_idle(clock_mhz))

        return passed(self._gates, None, read).energy_total_j

    def _read_idle(self, clock_mhz: int | None) -> float:
        if self._idle is None:
            return 0.0
        with self._setting.held(GpuSetting(clock_mhz)):
            return self._idle.measure(clock_mhz, self.window_s if self._fixed else self._lengths.short_s)

    def knows_idle(self, clock_mhz: int | None) -> bool:
        """True where net joules can be told at a clock, and where none ever can."""
        return self._idle is None or self._idle.of(clock_mhz) is not None

    def with_idle(self, measurement: Measurement, clock_mhz: int | None) -> Measurement:
        """The measurement with the idle power that is known by now."""
        idle = None if self._idle is None else self._idle.of(clock_mhz)
        if measurement.energy is None or idle is None:
            return measurement
        energy = replace(measurement.energy, idle_watts=idle[0], idle_uncertainty_w=idle[1])
        return replace(measurement, energy=energy)

    @property
    def windows_s(self) -> float:
        """Length of all windows so far, of those that were not the last of their trial too."""
        return self._windows.total_s

    @property
    def notices(self) -> tuple[str, ...]:
        """Messages for the user."""
        return () if self._warm_up is None else tuple(self._warm_up.notices)

    def spent(self) -> SpentEnergy | None:
        """All joules since the meter was opened; None without one, or without samples."""
        return None if self._meter is None else self._meter.spent()

    def recall(self, trials: Sequence[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """Take over from stored trials: which answers were right, and the idle power that was read.

        A virtual GPU goes on as warm as it was, and as if it had not idled; a real one has cooled down.
        """
        self._checks.recall(trials, workloads)
        for number, (trial, measurement) in enumerate(trials, start=1):
            energy = measurement.energy
            if self._idle is not None and energy is not None and energy.idle_watts is not None:
                self._idle.recall(trial.clock_mhz, energy.idle_watts, energy.idle_uncertainty_w)
            self._bounds.add(trial.setting, measurement)
            self._lengths.learn(measurement)
            if self._device.identity.modelled:
                if number > 1 or energy is None or energy.idle_watts is None:  # else its idle power was read
                    self._busy_s = measurement.ended_s
                if self._warm_up is not None and energy is not None:
                    self._warm_up.take_over(trial.setting)

    def beside(self) -> "TrialMeasurer":
        """The same measurer for other code under the same names: answers are checked by themselves."""
        other = copy.copy(self)
        other._checks = self._checks.anew()  # noqa: SLF001 - its own
        return other

    def close(self) -> None:
        """Give clock and power limit back; the measurer may be used again."""
        self._setting.release()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AnswerChecks:
    """The checks made so far.

    Args:
        device: makes them.
        seed: of the random inputs.
    """

    def __init__(self, device: Device, seed: int) -> None:
        self._device = device
        self._seed = seed
        self._made: dict[tuple[Workload, Configuration], Check] = {}

    def anew(self) -> "AnswerChecks":
        """The same, of which none is made."""
        return AnswerChecks(self._device, self._seed)

    def missing(self, plans: Sequence[Plan]) -> list[Plan]:
        """The plans that were not checked yet."""
        return [plan for plan in plans if _key(plan) not in self._made]

    def make(self, plans: Sequence[Plan]) -> float:
        """Check plans; returns the seconds that took."""
        seconds = 0.0
        for plan in plans:
            check = self._device.check(plan, self._seed_of(plan))
            self._made[_key(plan)] = check
            seconds += check.seconds
        return seconds

    def of(self, plans: Sequence[Plan]) -> list[Check]:
        """The checks of plans that were all checked."""
        return [self._made[_key(plan)] for plan in plans]

    def recall(self, trials: Iterable[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """Take over from stored trials which answers were right and which were not.

        A crash or a time-out need not have been the check's, so those are checked again.
        """
        for trial, measurement in trials:
            parts = zip(workloads, trial.configurations, measurement.results, strict=True)
            for workload, configuration, result in parts:
                if result.status in _OF_THE_CHECK:
                    self._made[workload, without_place(configuration)] = Check(result.status, result.detail)

    def _seed_of(self, plan: Plan) -> int:
        """One seed for all configurations of a workload, so that they are given the same inputs."""
        digest = hashlib.blake2b(f"{self._seed}|{plan.workload}".encode(), digest_size=4).digest()
        return int.from_bytes(digest, "little")


def _key(plan: Plan) -> tuple[Workload, Configuration]:
    """Whatever changes an answer: a grid that the device has to hold is another on a share of it."""
    bare = without_place(plan.configuration)
    if plan.sm_share and any(stage.resident or stage.cooperative for stage in plan.stages):
        bare = with_place(bare, {SM_SHARE: plan.sm_share})
    return plan.workload, bare
