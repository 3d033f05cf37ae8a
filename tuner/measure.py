"""From a trial to a measurement: answer checks, clock, measuring window, joules, flags."""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Any

from tuner.devices.sensors import open_clocks, open_meter
from tuner.errors import PowerError
from tuner.held_clock import OFF_CLOCK, THROTTLED, HeldClock
from tuner.idle import IdlePower, pause_of
from tuner.interfaces import (
    Check,
    ClockControl,
    ClockReading,
    Device,
    Meter,
    PowerReading,
    Recording,
    RunRecord,
)
from tuner.model import (
    Configuration,
    Energy,
    Measurement,
    Plan,
    Status,
    Trial,
    Workload,
    WorkloadResult,
)
from tuner.window import suggested_window_s

__all__ = ["Measurer", "open_clocks", "open_meter", "suggested_window_s"]

_LOG = logging.getLogger(__name__)
_GIVE_UP = 3  # bursts measured again in vain before a device counts as throttled for good
_MUTE = 3  # windows in a row that a sensor did not answer for, before it counts as lost
_SPOILT = (THROTTLED, OFF_CLOCK)
_KNOWN_FOR_SURE = (Status.COMPILE_ERROR, Status.WRONG_ANSWER)
_UNSTEADY = 0.01  # joules are of the mean round, times are medians: where these differ by more, it is told
_SETTLE_WINDOW_S = 0.1  # of load between two looks at a clock that was set


class Measurer:
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
    ) -> None:
        self._device = device
        self._meter = meter
        self._clock = HeldClock(clocks)
        self._window_s = suggested_window_s(None if meter is None else meter.info)
        if window_s is not None:
            self._window_s = window_s
        self._idle = None if meter is None else IdlePower(device, meter, self._window_s)
        self._seed = seed
        self._needs_energy = needs_energy
        self._checks: dict[tuple[Workload, Configuration], Check] = {}
        self._vain = 0
        self._mute = 0
        self.windows_s = 0.0  # all windows so far, those measured in vain too

    def measure(self, trial: Trial, plans: Sequence[Plan]) -> Measurement:
        """Check what was not checked before, then run the plans together at the trial's clock.

        Args:
            trial: what is measured.
            plans: its configurations as plans, in its order.

        Returns:
            The measurement; failures of a candidate are statuses in it.

        Raises:
            ClockError: the trial's clock could not be set or restored.
            DeviceError: the device is lost.
            PowerError: joules are needed, and the sensor did not answer for three windows in a row.
        """
        try:
            self._clock.hold(trial.clock_mhz)
            return self._measure(trial, plans)
        except BaseException:
            self.close()
            raise

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
            return self._idle.measure(clock_mhz)
        except BaseException:
            self.close()
            raise

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

    def recall(self, trials: Iterable[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """Take over from stored trials which answers were right and which were not.

        A crash or a time-out need not have been the check's, so those are checked again. The idle power that
        was read then serves on.
        """
        for trial, measurement in trials:
            energy = measurement.energy
            if self._idle is not None and energy is not None and energy.idle_watts is not None:
                self._idle.recall(trial.clock_mhz, energy.idle_watts, energy.idle_uncertainty_w)
            for workload, configuration, result in zip(
                workloads, trial.configurations, measurement.results, strict=True
            ):
                if result.status is Status.OK or result.status in _KNOWN_FOR_SURE:
                    self._checks[workload, configuration] = Check(result.status, result.detail)

    def close(self) -> None:
        """Give the clock back; the measurer may be used again."""
        self._clock.release()

    def __enter__(self) -> "Measurer":  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- one trial -------------------------------------------------------------------------------

    def _measure(self, trial: Trial, plans: Sequence[Plan]) -> Measurement:
        checks, check_s, spent_j = self._check(plans)
        if any(check.status is not Status.OK for check in checks):
            return Measurement(
                results=tuple(_of_check(check) for check in checks),
                modelled=self._device.identity.modelled,
                check_s=check_s,
                energy_total_j=spent_j,
            )
        spent_j += self._settle(plans)
        measurement = self._run(trial, plans)
        spent_j += measurement.energy_total_j
        if _spoilt(measurement) and self._vain < _GIVE_UP:
            _LOG.info("measured again: %s: %s", trial, "; ".join(measurement.flags))
            measurement = self._run(trial, plans)
            spent_j += measurement.energy_total_j
            self._vain += 1
        if not _spoilt(measurement):
            self._vain = 0
        return replace(measurement, check_s=check_s, energy_total_j=spent_j)

    def _check(self, plans: Sequence[Plan]) -> tuple[list[Check], float, float]:
        """Checks of the plans, and the seconds and joules of those made now."""
        new = [plan for plan in plans if (plan.workload, plan.configuration) not in self._checks]
        check_s = spent_j = 0.0
        if new:
            with self._recording() as recording:
                for plan in new:
                    check = self._device.check(plan, self._seed_of(plan))
                    self._checks[plan.workload, plan.configuration] = check
                    check_s += check.seconds
            spent_j = recording.joules() if recording is not None else 0.0
        return [self._checks[plan.workload, plan.configuration] for plan in plans], check_s, spent_j

    def _run(self, trial: Trial, plans: Sequence[Plan]) -> Measurement:
        with self._recording() as recording:
            record = self._device.run(plans, self._window_s)
            self._linger()
        self.windows_s += record.end_s - record.start_s
        measurement = Measurement(
            results=_told_apart(record.results),
            makespan_s=record.makespan_s,
            makespan_spread_s=record.makespan_spread_s,
            makespan_uncertainty_s=record.makespan_uncertainty_s,
            rounds=record.rounds,
            window_s=record.end_s - record.start_s,
            flags=(*record.notes, *_unsteady(record)),
            modelled=self._device.identity.modelled,
        )
        if recording is None:
            return measurement
        measurement = replace(measurement, energy_total_j=recording.joules())
        return self._with_power(measurement, record, recording, trial) if measurement.ok else measurement

    def _with_power(
        self, measurement: Measurement, record: RunRecord, recording: Recording, trial: Trial
    ) -> Measurement:
        clock = recording.clock(record.start_s, record.end_s)
        reading, why = self._read(recording, record)
        flags = [*measurement.flags, *self._clock.flags(clock)]
        energy = None
        if reading is None:
            flags.append(f"no-energy: {why}")
        else:
            flags += reading.notes
        if reading is not None and record.rounds:
            round_s = measurement.window_s / record.rounds
            energy = Energy(
                joules=reading.watts * round_s,
                uncertainty_j=reading.uncertainty_w * round_s,
                watts=reading.watts,
                sensor=reading.sensor,
                scope=reading.scope,
                degrees=reading.degrees,
            )
        found = replace(measurement, energy=energy, clock_mhz=clock.mhz, flags=tuple(flags))
        return self.with_idle(found, trial.clock_mhz)

    def _read(self, recording: Recording, record: RunRecord) -> tuple[PowerReading | None, str]:
        """Mean power of a window, or why there is none.

        Raises:
            PowerError: joules are needed, and the sensor has not answered several times in a row.
        """
        try:
            reading = recording.reading(record.start_s, record.end_s)
        except PowerError as error:
            self._mute += 1
            if self._needs_energy and self._mute >= _MUTE:
                raise PowerError(f"no energy for {_MUTE} windows in a row: {error}") from error
            return None, str(error)
        self._mute = 0
        return reading, recording.problem

    # --- clock, sensor, seed ---------------------------------------------------------------------

    def _settle(self, plans: Sequence[Plan]) -> float:
        """Let a clock that was set arrive, under the load of the plans; returns the joules that took."""
        spent_j = 0.0

        def look() -> ClockReading | None:
            nonlocal spent_j
            with self._recording() as recording:
                record = self._device.run(plans, _SETTLE_WINDOW_S)
                if recording is None:
                    return self._clock.read()
            spent_j += recording.joules()
            failed = any(result.status is not Status.OK for result in record.results)
            return None if failed else recording.clock(record.start_s, record.end_s)

        self._clock.settle(look, self._device.now_s)
        return spent_j

    def _linger(self) -> None:
        """Record on until a sensor that is late has shown the end of the window."""
        late_s = 0.0 if self._meter is None else self._meter.info.response.delay_s
        if late_s > 0:
            pause_of(self._device)(late_s)

    def _recording(self) -> Any:  # noqa: ANN401 - a context manager of a Recording or None
        return nullcontext() if self._meter is None else self._meter.recording()

    def _seed_of(self, plan: Plan) -> int:
        """Another seed for every check, the same again when a run is repeated."""
        digest = hashlib.blake2b(f"{self._seed}|{plan.label()}".encode(), digest_size=4).digest()
        return int.from_bytes(digest, "little")


def _of_check(check: Check) -> WorkloadResult:
    return WorkloadResult(check.status, detail="" if check.status is Status.OK else check.detail)


def _spoilt(measurement: Measurement) -> bool:
    return measurement.ok and any(flag.startswith(_SPOILT) for flag in measurement.flags)


def _unsteady(record: RunRecord) -> tuple[str, ...]:
    if not record.rounds or not record.makespan_s:
        return ()
    excess = (record.end_s - record.start_s) / record.rounds / record.makespan_s - 1
    return (f"unsteady: mean round {excess:+.1%} from the median",) if abs(excess) > _UNSTEADY else ()


def _told_apart(results: Sequence[WorkloadResult]) -> tuple[WorkloadResult, ...]:
    """Results of a co-run; where all failed, say that each had passed its check alone."""
    if len(results) > 1 and all(result.status is not Status.OK for result in results):
        return tuple(
            replace(result, detail=f"{result.detail} (each workload passed its check alone)")
            for result in results
        )
    return tuple(results)
