"""From a trial to a measurement: answer checks, clock, windows, idle power."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import TracebackType

from tuner.devices.base import Check, Device
from tuner.devices.sensors import open_clocks, open_meter
from tuner.measurement.base import Contest
from tuner.measurement.settle import IdlePower, SettingLock, WarmUp
from tuner.measurement.trial_windows import TrialWindows
from tuner.measurement.window import WindowRunner, recording_of, suggested_window_s
from tuner.model.options import SearchOptions
from tuner.model.plan import Configuration, Plan, Workload, without_priority
from tuner.model.trial import GpuSetting, Measurement, Status, Trial, WorkloadResult
from tuner.power.base import ClockControl, ClockReading, Meter, PowerLimitControl, SpentEnergy

_KNOWN_FOR_SURE = (Status.OK, Status.COMPILE_ERROR, Status.WRONG_ANSWER)


class AnswerChecks:
    """The checks made so far.

    Args:
        device: makes them.
        seed: of the random inputs.
    """

    def __init__(self, device: Device, seed: int) -> None:
        self._device = device
        self._seed = seed
        self._known: dict[tuple[Workload, Configuration], Check] = {}

    def missing(self, plans: Sequence[Plan]) -> list[Plan]:
        """The plans that were not checked yet."""
        return [plan for plan in plans if _key(plan) not in self._known]

    def make(self, plans: Sequence[Plan]) -> float:
        """Check plans; returns the seconds that took."""
        seconds = 0.0
        for plan in plans:
            check = self._device.check(plan, self._seed_of(plan))
            self._known[_key(plan)] = check
            seconds += check.seconds
        return seconds

    def of(self, plans: Sequence[Plan]) -> list[Check]:
        """The checks of plans that were all checked."""
        return [self._known[_key(plan)] for plan in plans]

    def recall(self, trials: Iterable[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """Take over from stored trials which answers were right and which were not.

        A crash or a time-out need not have been the check's, so those are checked again.
        """
        for trial, measurement in trials:
            parts = zip(workloads, trial.configurations, measurement.results, strict=True)
            for workload, configuration, result in parts:
                if result.status in _KNOWN_FOR_SURE:
                    self._known[workload, without_priority(configuration)] = Check(
                        result.status, result.detail
                    )

    def _seed_of(self, plan: Plan) -> int:
        """One seed for all configurations of a workload, so that they are given the same inputs."""
        digest = hashlib.blake2b(f"{self._seed}|{plan.workload}".encode(), digest_size=4).digest()
        return int.from_bytes(digest, "little")


def _key(plan: Plan) -> tuple[Workload, Configuration]:
    return plan.workload, without_priority(plan.configuration)


__all__ = ["TrialMeasurer", "open_clocks", "open_meter", "suggested_window_s"]

_ARRIVE_WINDOW_S = 0.1  # of load between two looks at a clock that was set


class TrialMeasurer:
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
        thrifty: measure a trial in a contest no longer than it may be the best. Times are raced (``race``);
            for joules, bounds may rule a trial out (``joule_bounds``), or a brief window.
        limits: sets the power limits of trials that name one.
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
    ) -> None:
        self._device = device
        self._meter = meter
        self._setting = SettingLock(clocks, limits)
        length_s = window_s or suggested_window_s(None if meter is None else meter.info, precision)
        self._idle = None if meter is None else IdlePower(device, meter, length_s)
        self._checks = AnswerChecks(device, seed)
        self._windows = WindowRunner(device, meter, self._setting, needs_energy=needs_energy)
        self._warm_up = warm_up
        self._trial = TrialWindows(
            device,
            self._windows,
            meter,
            self._idle,
            warm_up,
            window_s=window_s,
            precision=precision,
            thrifty=thrifty,
        )

    @property
    def window_s(self) -> float:
        """Length of a full window."""
        return self._trial.length_s

    @property
    def windows_s(self) -> float:
        """Length of all windows so far, of those that were not the last of their trial too."""
        return self._windows.total_s

    @property
    def notices(self) -> tuple[str, ...]:
        """Messages for the user."""
        return () if self._warm_up is None else tuple(self._warm_up.notices)

    def measure(self, trial: Trial, plans: Sequence[Plan], contest: Contest | None = None) -> Measurement:
        """Check what was not checked before, then run the plans at the trial's clock and power limit.

        Args:
            trial: what is measured.
            plans: its configurations as plans, in its order.
            contest: what it is held against; None to measure it to the end.

        Returns:
            The measurement; failures of a candidate are statuses in it.

        Raises:
            ClockError: the trial's clock or power limit could not be set, held or restored.
            DeviceError: the device is lost.
            PowerError: joules are needed, and the sensor did not answer for three windows in a row.
        """
        try:
            self._setting.hold(trial.setting)
            measurement = self._measure(trial, plans, contest)
            self._setting.confirm()
        except BaseException:
            self.close()
            raise
        return measurement

    def measure_idle(self, clock_mhz: int | None) -> float:
        """Read the power of the idle GPU at a clock, for the net joules of trials there.

        Returns:
            The joules that took; 0 without a meter.

        Raises:
            ClockError: the clock could not be set or restored.
        """
        if self._idle is None:
            return 0.0
        try:
            self._setting.hold(GpuSetting(clock_mhz))
            spent_j = self._idle.measure(clock_mhz)
            self._setting.confirm()
        except BaseException:
            self.close()
            raise
        return spent_j

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

    def spent(self) -> SpentEnergy | None:
        """All joules since the meter was opened; None without one, or without samples."""
        return None if self._meter is None else self._meter.spent()

    def recall(self, trials: Sequence[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """Take over from stored trials: which answers were right, and the idle power that was read.

        A virtual GPU goes on as warm as it was; a real one has cooled down.
        """
        self._checks.recall(trials, workloads)
        for number, (trial, measurement) in enumerate(trials, start=1):
            energy = measurement.energy
            if self._idle is not None and energy is not None and energy.idle_watts is not None:
                self._idle.recall(trial.clock_mhz, energy.idle_watts, energy.idle_uncertainty_w)
            self._trial.learn(trial, measurement)
            if self._device.identity.modelled:
                if number > 1 or energy is None or energy.idle_watts is None:  # else its idle power was read
                    self._trial.take_over(measurement.ended_s)
                if self._warm_up is not None and energy is not None:
                    self._warm_up.take_over(trial.setting)

    def close(self) -> None:
        """Give clock and power limit back; the measurer may be used again."""
        self._setting.release()

    def __enter__(self) -> "TrialMeasurer":  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- one trial -------------------------------------------------------------------------------

    def _measure(self, trial: Trial, plans: Sequence[Plan], contest: Contest | None) -> Measurement:
        check_s, spent_j = self._check(plans)
        checks = self._checks.of(plans)
        if any(check.status is not Status.OK for check in checks):
            return Measurement(
                results=tuple(_of_check(check) for check in checks),
                modelled=self._device.identity.modelled,
                check_s=check_s,
                energy_total_j=spent_j,
            )
        spent_j += self._arrive(plans)
        cold = self._warm_up is not None and self._warm_up.cold
        windows = self._trial.run(trial, plans, contest)
        measurement = windows[-1]
        spent_j += math.fsum(window.energy_total_j for window in windows)
        if cold and measurement.energy is not None and not self.knows_idle(trial.clock_mhz):
            spent_j += self.measure_idle(trial.clock_mhz)  # now that the GPU is warm
        measurement = self.with_idle(measurement, trial.clock_mhz)
        return replace(measurement, check_s=check_s, energy_total_j=spent_j)

    def _check(self, plans: Sequence[Plan]) -> tuple[float, float]:
        """Check what was not checked yet; the seconds and joules that took."""
        missing = self._checks.missing(plans)
        if not missing:
            return 0.0, 0.0
        with recording_of(self._meter) as recording:
            check_s = self._checks.make(missing)
        return check_s, 0.0 if recording is None else recording.joules()

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


def _of_check(check: Check) -> WorkloadResult:
    return WorkloadResult(check.status, detail="" if check.status is Status.OK else check.detail)
