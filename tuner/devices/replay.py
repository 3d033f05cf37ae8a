"""A device that replays the recorded measurements of a space, in virtual time.

Nothing runs. A trial takes as long as its recorded window and check took.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property

from tuner.devices.base import Check, RunRecord
from tuner.model.errors import ClockError, CompileError, DeviceError
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.plan import Configuration, Plan, Progress, Resources
from tuner.model.trial import GpuSetting, Measurement, Status, Trial
from tuner.model.typed import digest
from tuner.power.base import ClockReading
from tuner.recordings.files import document, matching, open_recording
from tuner.recordings.values import NOT_RECORDED, RecordedSpace

UNDATED = "undated"
_DIGITS = 12  # of a hash: enough that no two recordings of one GPU share them


class ReplayDevice:
    """Implements ``Device`` (``tuner.devices``) by what was recorded.

    Args:
        spec: ``replay:h200``, or ``replay:`` and a file (see ``tuner.recordings.files.open_recording``).
        workloads: names of the workloads measured together; none for the file's only or largest space.

    Attributes:
        spec: as given.
        space: what was recorded.
        setting: clock and power limit of the trials that ``run`` looks up.

    Raises:
        InputError: the file cannot be used, or those workloads are not in it.
    """

    def __init__(self, spec: str, workloads: Sequence[str] = ()) -> None:
        self.spec = spec
        self.recording = open_recording(spec.removeprefix("replay:"))
        self.space: RecordedSpace = self.recording.space(matching(self.recording, workloads))
        self.setting = GpuSetting(
            next(iter(self.space.clocks_mhz), None), next(iter(self.space.power_limits_w), None)
        )
        self._now_s = 0.0

    @cached_property
    def identity(self) -> DeviceIdentity:
        """The GPU that was recorded, under another UUID: no recorded answer passes for a measured one.

        Nor for one of another recording, as when a file was replaced between a run and its resumption.
        """
        recorded = self.space.identity
        when = self.space.provenance.get("date", UNDATED)
        return replace(
            recorded,
            spec=self.spec,
            uuid=f"{recorded.uuid} recorded {when} #{digest(document(self.space))[:_DIGITS]}",
            recorded=str(self.space.provenance.get("date", ""))[:10] or UNDATED,
        )

    @property
    def limits(self) -> DeviceLimits | None:
        """Inputs of the occupancy equations; None where they were not recorded."""
        return self.space.limits

    def measurement(self, trial: Trial) -> Measurement:
        """Return the measurement of a trial, and advance virtual time by its duration."""
        measurement = self.space.look(trial)
        self.sleep(measurement.check_s + measurement.window_s)
        return replace(measurement, ended_s=self._now_s)

    def resources(
        self, plans: Sequence[Plan], progress: Progress | None = None
    ) -> list[tuple[Resources, ...] | CompileError]:
        """Recorded resources of the plans' stages; empty where there are none."""
        reports: list[tuple[Resources, ...] | CompileError] = []
        for done, plan in enumerate(plans, start=1):
            recorded = self._launches.get((str(plan.workload), plan.configuration))
            failed = CompileError(f"{plan.label()}: {NOT_RECORDED}")
            reports.append(failed if recorded is None else recorded)
            if progress is not None:
                progress(done, len(plans))
        return reports

    def check(self, plan: Plan, seed: int) -> Check:  # noqa: ARG002 - the inputs were those of the recording
        """Right, where the configuration was recorded: trials have the statuses of wrong answers."""
        recorded = (str(plan.workload), plan.configuration) in self._launches
        return Check(Status.OK) if recorded else Check(Status.LAUNCH_ERROR, NOT_RECORDED)

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:  # noqa: ARG002 - windows are recorded
        """Return the record of the plans together, at the clock and power limit in force."""
        begun_s = self._now_s
        chosen = tuple(plan.configuration for plan in plans)
        measurement = self.measurement(Trial(chosen, self.setting.clock_mhz, self.setting.power_limit_w))
        return RunRecord(
            results=measurement.results,
            makespan_s=measurement.makespan_s,
            makespan_spread_s=measurement.makespan_spread_s,
            makespan_uncertainty_s=measurement.makespan_uncertainty_s,
            rounds=measurement.rounds,
            start_s=begun_s + measurement.check_s,
            end_s=self._now_s,
            flags=measurement.flags,
        )

    def run_single(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        """Return the record of the plans, as ``run``: a recording is of one timing (``require_timing``)."""
        return self.run(plans, window_s)

    def sm_units(self) -> tuple[int, int]:
        """Refuse: a recording has what was recorded.

        Raises:
            DeviceError: always.
        """
        raise DeviceError(f"{self.identity.spec} shares no multiprocessors out")

    def free_memory_bytes(self) -> int:
        """All of the GPU's memory; 0 where that was not recorded."""
        return 0 if self.limits is None else self.limits.memory_bytes

    def now_s(self) -> float:
        """Virtual time."""
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Virtual time goes on."""
        if seconds < 0:
            raise DeviceError(f"{self.spec}: time does not go back ({seconds} s)")
        self._now_s += seconds

    def resume_at(self, ended_s: float) -> None:
        """Virtual time goes on from here."""
        self._now_s = max(self._now_s, ended_s)

    def own_processes(self) -> int:
        """Nothing computes."""
        return 0

    def abort(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""

    @cached_property
    def _launches(self) -> Mapping[tuple[str, Configuration], tuple[Resources, ...]]:
        return {
            (workload.name, candidate.configuration): tuple(
                Resources(launch.registers_per_thread, launch.shared_bytes) for launch in candidate.launches
            )
            for workload in self.space.workloads
            for candidate in workload.candidates
        }


class RecordedClocks:
    """Implements ``ClockControl``: the clocks that were recorded can be chosen, and nothing is set."""

    def __init__(self, device: ReplayDevice) -> None:
        self._device = device

    def supported_mhz(self) -> tuple[int, ...]:
        """The clocks that were recorded, highest first."""
        return self._device.space.clocks_mhz

    def read(self) -> ClockReading:
        """The clock chosen."""
        mhz = self._device.setting.clock_mhz
        return ClockReading(None if mhz is None else float(mhz))

    def locked(self, mhz: int) -> AbstractContextManager[None]:
        """Choose a clock.

        Raises:
            ClockError: it was not recorded.
        """
        if mhz not in self.supported_mhz():
            raise ClockError(f"{self._device.spec}: {mhz} MHz was not recorded")
        self._device.setting = replace(self._device.setting, clock_mhz=mhz)
        return nullcontext()

    def close(self) -> None:
        """Nothing is held."""


class RecordedPowerLimits:
    """Implements ``PowerLimitControl``: the limits that were recorded can be chosen, and nothing is set."""

    def __init__(self, device: ReplayDevice) -> None:
        self._device = device

    def supported_w(self) -> tuple[int, ...]:
        """The power limits that were recorded, highest first."""
        return self._device.space.power_limits_w

    def read_w(self) -> float | None:
        """The power limit chosen."""
        return self._device.setting.power_limit_w

    def locked(self, watts: int) -> AbstractContextManager[None]:
        """Choose a power limit.

        Raises:
            ClockError: it was not recorded.
        """
        if watts not in self.supported_w():
            raise ClockError(f"{self._device.spec}: a power limit of {watts} W was not recorded")
        self._device.setting = replace(self._device.setting, power_limit_w=watts)
        return nullcontext()

    def close(self) -> None:
        """Nothing is held."""
