"""From a trial to a measurement: answer checks, clock, measuring window, joules, flags."""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Any

from tuner.devices.sensors import open_clocks, open_meter
from tuner.errors import ClockError
from tuner.interfaces import Check, ClockControl, Device, Meter, Recording, RunRecord, SensorInfo
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

__all__ = ["Measurer", "open_clocks", "open_meter", "suggested_window_s"]

_LOG = logging.getLogger(__name__)
_GIVE_UP = 3  # bursts measured again in vain before a device counts as throttled for good
_SPOILT = ("throttled", "off-clock")
_KNOWN_FOR_SURE = (Status.COMPILE_ERROR, Status.WRONG_ANSWER)
_UNSTEADY = 0.01  # joules are of the mean round, times are medians: where these differ by more, it is told
_TIME_WINDOW_S = 0.3
_POWER_WINDOW_S = 1.2  # shorter ones would leave no time to warm up in, or outweigh their warm-up
_WINDOW_PERIODS = {"counter": 20, "ring": 20, "stream": 20}
_WINDOW_LAGS = 5
_LONGEST_WINDOW_S = 4.0


class Measurer:
    """Measures trials on one device, one after another.

    The clock of a trial stays locked until a trial with another clock comes, ``close`` is called, or an
    exception passes through; device, meter and clock control stay the caller's.

    Args:
        device: where trials run.
        meter: for joules; None measures time only.
        clocks: sets the clocks of trials that name one.
        window_s: length of the measuring window.
        seed: of the random inputs of answer checks.
    """

    def __init__(
        self,
        device: Device,
        meter: Meter | None = None,
        clocks: ClockControl | None = None,
        window_s: float = _TIME_WINDOW_S,
        *,
        seed: int = 0,
    ) -> None:
        self._device = device
        self._meter = meter
        self._clocks = clocks
        self._window_s = window_s
        self._seed = seed
        self._checks: dict[tuple[Workload, Configuration], Check] = {}
        self._lock = ExitStack()
        self._locked_mhz: int | None = None
        self._vain = 0
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
            PowerError: the sensor stopped answering.
        """
        try:
            self._set_clock(trial.clock_mhz)
            return self._measure(trial, plans)
        except BaseException:
            self.close()
            raise

    def recall(self, trials: Iterable[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """Take over from stored trials which answers were right and which were not.

        A crash or a time-out need not have been the check's, so those are checked again.
        """
        for trial, measurement in trials:
            for workload, configuration, result in zip(
                workloads, trial.configurations, measurement.results, strict=True
            ):
                if result.status is Status.OK or result.status in _KNOWN_FOR_SURE:
                    self._checks[workload, configuration] = Check(result.status, result.detail)

    def close(self) -> None:
        """Give the clock back; the measurer may be used again."""
        self._locked_mhz = None
        self._lock.close()

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
        reading = recording.reading(record.start_s, record.end_s)
        flags = list(measurement.flags)
        if clock.throttle_reasons:
            flags.append(f"throttled: {', '.join(clock.throttle_reasons)}")
        if trial.clock_mhz is not None and clock.mhz is not None:
            allowed = self._step_mhz(trial.clock_mhz)
            if abs(clock.mhz - trial.clock_mhz) > allowed:
                flags.append(f"off-clock: {clock.mhz:g} MHz seen, {trial.clock_mhz} MHz set")
        energy = None
        if reading is not None and record.rounds:
            round_s = measurement.window_s / record.rounds
            energy = Energy(
                joules=reading.watts * round_s,
                uncertainty_j=reading.uncertainty_w * round_s,
                watts=reading.watts,
                sensor=reading.sensor,
                scope=reading.scope,
            )
        elif reading is None:
            flags.append("no-energy: the sensor gave too little for this window")
        return replace(measurement, energy=energy, clock_mhz=clock.mhz, flags=tuple(flags))

    # --- clock, sensor, seed ---------------------------------------------------------------------

    def _set_clock(self, mhz: int | None) -> None:
        if mhz == self._locked_mhz:
            return
        self.close()
        if mhz is None:
            return
        if self._clocks is None:
            raise ClockError(f"a trial asks for {mhz} MHz, and the clocks of this device cannot be set here")
        self._lock.enter_context(self._clocks.locked(mhz))
        self._locked_mhz = mhz

    def _step_mhz(self, mhz: int) -> float:
        """Distance to the farther of the neighbouring supported clocks: what a median may be off."""
        supported = sorted(self._clocks.supported_mhz()) if self._clocks is not None else []
        if mhz not in supported:
            return 0.0
        place = supported.index(mhz)
        return max(abs(mhz - other) for other in supported[max(place - 1, 0) : place + 2])

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


def suggested_window_s(info: SensorInfo | None) -> float:
    """A window in which this sensor resolves a fraction of a percent; short where only time is measured.

    Twenty ticks of a counter (2 s on an H200, whose power swings with a period of 1 s when it is at its
    limit), twenty samples of a ring or stream, five times the sensor's lag or mean, and what makes the
    warm-up, a sixth of the window at most, long enough for power to settle.
    """
    if info is None:
        return _TIME_WINDOW_S
    wanted_s = max(
        _POWER_WINDOW_S,
        _WINDOW_PERIODS[info.kind] * info.period_s,
        _WINDOW_LAGS * info.response.capacitance_s,
        _WINDOW_LAGS * info.response.window_s,
    )
    return min(wanted_s, _LONGEST_WINDOW_S)
