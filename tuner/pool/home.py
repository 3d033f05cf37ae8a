"""The home of a pool as the device and the measurer of a run."""

import time
from collections.abc import Sequence
from dataclasses import replace

from tuner.compiler.compiler import Compiler
from tuner.compiler.contract import plan_resources
from tuner.devices.base import Check, RunRecord
from tuner.devices.simulated.device import SimulatedDevice
from tuner.measurement.base import ComparisonTarget
from tuner.model.errors import CompileError
from tuner.model.plan import Plan, Progress, Resources, Workload
from tuner.model.trial import Measurement, Trial
from tuner.pool.pool import Pool, joined
from tuner.power.base import SpentEnergy


class HomeDevice:
    """Implements ``Device`` by the GPU of a pool's home.

    Plans are compiled on this host, for home's architecture, which needs no GPU; workers of this host find
    the code in the cache on the disk, and others compile what they measure.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        facts = pool.crew.home.known
        self.identity, self.limits = facts.identity, facts.limits
        self._model = SimulatedDevice(facts.identity.spec) if facts.identity.modelled else None
        self._compiler: Compiler | None = None
        if self._model is None and facts.limits is not None:
            self._compiler = Compiler(facts.limits.architecture)

    def resources(
        self, plans: Sequence[Plan], progress: Progress | None = None
    ) -> list[tuple[Resources, ...] | CompileError]:
        """See ``Device.resources``."""
        if self._compiler is None:
            return [] if self._model is None else self._model.resources(plans, progress)
        return plan_resources(self._compiler, plans, progress)

    def check(self, plan: Plan, seed: int) -> Check:
        """See ``Device.check``."""
        check: Check = self._pool.at_home("device", "check", plan, seed)
        return check

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        """See ``Device.run``."""
        record: RunRecord = self._pool.at_home("device", "run", tuple(plans), window_s)
        return record

    def run_single(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        """See ``Device.run_single``."""
        record: RunRecord = self._pool.at_home("device", "run_single", tuple(plans), window_s)
        return record

    def sm_units(self) -> tuple[int, int]:
        """See ``Device.sm_units``."""
        units: tuple[int, int] = self._pool.at_home("device", "sm_units")
        return units

    def free_memory_bytes(self) -> int:
        """Return the least free memory of any GPU of the pool when it was opened, in bytes."""
        return min(member.known.free_memory_bytes for member in self._pool.crew.all_members)

    def now_s(self) -> float:
        """This host's monotonic clock; of simulated GPUs the latest virtual time of any."""
        if self._model is None:
            return time.monotonic()
        return max(member.now_s for member in self._pool.crew.all_members)

    def sleep(self, seconds: float) -> None:
        """See ``Device.sleep``."""
        self._pool.at_home("device", "sleep", seconds)

    def resume_at(self, ended_s: float) -> None:
        """See ``Device.resume_at``."""
        self._pool.at_home("device", "resume_at", ended_s)

    def own_processes(self) -> int:
        """See ``Device.own_processes``."""
        processes: int = self._pool.at_home("device", "own_processes")
        return processes

    def abort(self) -> None:
        """See ``Device.abort``."""
        self._pool.close()

    def close(self) -> None:
        """Close what compiles; the workers close their own."""
        if self._compiler is not None:
            self._compiler.close()
        if self._model is not None:
            self._model.close()


class HomeMeasurer:
    """Implements ``Measurer`` on a pool's home; what it says of cost is about all members."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @property
    def windows_s(self) -> float:
        """Length of all windows of all members."""
        return sum(member.windows_s for member in self._pool.crew.all_members)

    @property
    def notices(self) -> tuple[str, ...]:
        """Messages of the pool and its members."""
        members = (notice for member in self._pool.crew.all_members for notice in member.notices)
        return tuple(dict.fromkeys((*self._pool.crew.told, *members)))

    def measure(
        self, trial: Trial, plans: Sequence[Plan], target: ComparisonTarget | None = None
    ) -> Measurement:
        """See ``Measurer.measure``."""
        measured: Measurement = self._pool.at_home("measurer", "measure", trial, tuple(plans), target)
        self._pool.learn(trial, measured)
        return replace(measured, gpu=self._pool.crew.home.gpu)

    def measure_otherwise(self, trial: Trial, plans: Sequence[Plan]) -> Measurement:
        """See ``Measurer.measure_otherwise``."""
        measured: Measurement = self._pool.at_home("measurer", "measure_otherwise", trial, tuple(plans))
        return measured

    def measure_idle(self, clock_mhz: int | None) -> float:
        """See ``Measurer.measure_idle``."""
        joules: float = self._pool.at_home("measurer", "measure_idle", clock_mhz)
        return joules

    def with_idle(self, measurement: Measurement, clock_mhz: int | None) -> Measurement:
        """See ``Measurer.with_idle``."""
        told: Measurement = self._pool.at_home("measurer", "with_idle", measurement, clock_mhz)
        return told

    def spent(self) -> SpentEnergy | None:
        """Joules of all members, as far as they have told them."""
        return joined([spent for member in self._pool.crew.all_members for spent in member.spent])

    def recall(self, trials: Sequence[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """Let home take over what an interrupted run measured there."""
        own = [(trial, measurement) for trial, measurement in trials if not measurement.scaled]
        self._pool.at_home("measurer", "recall", own, list(workloads))

    def close(self) -> None:
        """Let home give its clock back."""
        self._pool.at_home("measurer", "close")
