"""From a trial to a measurement: answer checks, clock, settled power, windows measured again where spoilt."""

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

from tuner.devices.sensors import open_clocks, open_meter
from tuner.interfaces import Check, ClockControl, ClockReading, Device, Meter
from tuner.measurement.clock_lock import ClockLock
from tuner.measurement.verification import AnswerChecks
from tuner.measurement.warmup import IdlePower, WarmUp
from tuner.measurement.window import WindowRunner, recording_of, suggested_window_s
from tuner.model import FlagKind, Measurement, Plan, Status, Trial, Workload, WorkloadResult

__all__ = ["TrialMeasurer", "open_clocks", "open_meter", "suggested_window_s"]

_LOG = logging.getLogger(__name__)
_GIVE_UP = 3  # windows measured again in vain before what spoilt them counts as lasting
_SPOILT = frozenset({FlagKind.THROTTLED, FlagKind.OFF_CLOCK, FlagKind.UNSTEADY})
_CAPPED_WINDOW_S = 2.0  # there an H200 swings between 500 and 800 W with a period of a second
_ARRIVE_WINDOW_S = 0.1  # of load between two looks at a clock that was set


class TrialMeasurer:
    """Measures trials on one device, one after another.

    The clock of a trial stays locked until a trial with another clock comes, ``close`` is called, or an
    exception passes through; device, meter and clock control stay the caller's.

    Args:
        device: where trials run.
        meter: for joules; None measures time only.
        clocks: sets the clocks of trials that name one.
        window_s: length of the measuring window; None for the sensor's own.
        seed: of the random inputs of answer checks.
        needs_energy: True where measurements without joules are worth nothing: a sensor that is lost then
            ends the run.
        warm_up: has windows repeated until power is settled; the first trial is then followed by a reading of
            idle power. None for single windows.
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
    ) -> None:
        self._device = device
        self._meter = meter
        self._clock = ClockLock(clocks)
        self._window_s = suggested_window_s(None if meter is None else meter.info)
        if window_s is not None:
            self._window_s = window_s
        self._idle = None if meter is None else IdlePower(device, meter, self._window_s)
        self._checks = AnswerChecks(device, seed)
        self._windows = WindowRunner(device, meter, self._clock, needs_energy=needs_energy)
        self._warm_up = warm_up
        self._vain: Counter[FlagKind] = Counter()
        self._capped = False

    @property
    def windows_s(self) -> float:
        """Length of all windows so far, of those that were not the last of their trial too."""
        return self._windows.total_s

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know."""
        return () if self._warm_up is None else tuple(self._warm_up.notices)

    def measure(self, trial: Trial, plans: Sequence[Plan]) -> Measurement:
        """Check what was not checked before, then run the plans together at the trial's clock.

        Args:
            trial: what is measured.
            plans: its configurations as plans, in its order.

        Returns:
            The measurement; failures of a candidate are statuses in it.

        Raises:
            ClockError: the trial's clock could not be set, held or restored.
            DeviceError: the device is lost.
            PowerError: joules are needed, and the sensor did not answer for three windows in a row.
        """
        try:
            self._clock.hold(trial.clock_mhz)
            measurement = self._measure(trial, plans)
            self._clock.confirm()
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
            self._clock.hold(clock_mhz)
            spent_j = self._idle.measure(clock_mhz)
            self._clock.confirm()
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

    def recall(self, trials: Sequence[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """Take over from stored trials: which answers were right, and the idle power that was read.

        A virtual GPU goes on as warm as it was; a real one has cooled down.
        """
        self._checks.recall(trials, workloads)
        for trial, measurement in trials:
            energy = measurement.energy
            if self._idle is not None and energy is not None and energy.idle_watts is not None:
                self._idle.recall(trial.clock_mhz, energy.idle_watts, energy.idle_uncertainty_w)
            if self._warm_up is not None and energy is not None and self._device.identity.modelled:
                self._warm_up.take_over(trial.clock_mhz)

    def close(self) -> None:
        """Give the clock back; the measurer may be used again."""
        self._clock.release()

    def __enter__(self) -> "TrialMeasurer":  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- one trial -------------------------------------------------------------------------------

    def _measure(self, trial: Trial, plans: Sequence[Plan]) -> Measurement:
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
        windows = self._settled(trial, plans)
        self._again_if_spoilt(windows, trial, plans)
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
                    return self._clock.read()
            spent_j += recording.joules()
            failed = any(result.status is not Status.OK for result in record.results)
            return None if failed else recording.clock(record.start_s, record.end_s)

        self._clock.settle(look, self._device.now_s)
        return spent_j

    def _settled(self, trial: Trial, plans: Sequence[Plan]) -> list[Measurement]:
        """Windows of a trial until its power is settled; the last one counts."""

        def window() -> Measurement:
            return self._window(plans)

        return [window()] if self._warm_up is None else self._warm_up.settle(trial.clock_mhz, window)

    def _window(self, plans: Sequence[Plan]) -> Measurement:
        """One window, a longer one for joules while the GPU is at its power limit."""
        longer = self._capped and self._meter is not None
        length_s = max(self._window_s, _CAPPED_WINDOW_S) if longer else self._window_s
        measurement = self._windows.run(plans, length_s)
        self._capped = measurement.at_power_limit
        return measurement

    def _again_if_spoilt(self, windows: list[Measurement], trial: Trial, plans: Sequence[Plan]) -> None:
        """Add another window where the last was spoilt, unless that has been in vain several times."""
        spoilt = _spoilt(windows[-1])
        if any(self._vain[kind] < _GIVE_UP for kind in spoilt):
            together = " | ".join(map(str, trial.configurations))
            _LOG.debug("measured again: %s: %s", together, "; ".join(map(str, windows[-1].flags)))
            windows.append(self._window(plans))
            self._vain.update(spoilt & _spoilt(windows[-1]))
        for kind in _SPOILT - _spoilt(windows[-1]):
            self._vain[kind] = 0


def _of_check(check: Check) -> WorkloadResult:
    return WorkloadResult(check.status, detail="" if check.status is Status.OK else check.detail)


def _spoilt(measurement: Measurement) -> frozenset[FlagKind]:
    """What makes a window one to measure again."""
    return _SPOILT & measurement.flag_kinds if measurement.ok else frozenset()
