"""Measuring that gives way: what was measured while others were on the GPU counts for nothing."""

import logging
from collections.abc import Callable, Sequence

from tuner.daemon.running.presence import Watcher
from tuner.daemon.running.stopping import Stopping
from tuner.devices import occupants
from tuner.devices.worker import WorkerDevice
from tuner.errors import Interrupted
from tuner.interfaces import Device
from tuner.measurement.measurer import Measurer
from tuner.model import Measurement, Plan, Trial, Workload

_LOG = logging.getLogger(__name__)


class GuardedMeasurer(Measurer):
    """A measurer that looks after each burst whether others are on the GPU, and stops where they are.

    Args:
        measurer: measures; stays the caller's.
        device: where it measures.
        stopping: whether the process is to stop.
        watcher: who is on the GPU; None where nobody is to be looked for.
        spent: hears after each burst what the attempt has taken: seconds of windows, and joules.

    Attributes:
        others: who came; empty while nobody has.
        joules: that were spent, as far as they were measured.
    """

    def __init__(
        self,
        measurer: Measurer,
        device: Device,
        stopping: Stopping,
        watcher: Watcher | None,
        spent: Callable[[float, float], None],
    ) -> None:
        super().__init__(device)
        self._inner = measurer
        self._gpu = device
        self._stopping = stopping
        self._watcher = watcher
        self._spent = spent
        self._told = ""
        self.others = ""
        self.joules = 0.0

    @property
    def windows_s(self) -> float:
        """See ``Measurer.windows_s``."""
        return self._inner.windows_s

    @property
    def notices(self) -> tuple[str, ...]:
        """See ``Measurer.notices``."""
        return self._inner.notices

    def measure(self, trial: Trial, plans: Sequence[Plan]) -> Measurement:
        """See ``Measurer.measure``.

        Raises:
            Interrupted: others were on the GPU before or after; the clock is given back, the worker gone.
            KeyboardInterrupt: the process is to stop.
        """
        self._stopping.check()
        self._give_way()
        measurement = self._inner.measure(trial, plans)
        self._took(measurement.energy_total_j)
        self._give_way()
        return measurement

    def measure_idle(self, clock_mhz: int | None) -> float:
        """See ``Measurer.measure_idle``; raises as ``measure`` does."""
        self._stopping.check()
        spent_j = self._inner.measure_idle(clock_mhz)
        self._took(spent_j)
        self._give_way()
        return spent_j

    def knows_idle(self, clock_mhz: int | None) -> bool:
        """See ``Measurer.knows_idle``."""
        return self._inner.knows_idle(clock_mhz)

    def with_idle(self, measurement: Measurement, clock_mhz: int | None) -> Measurement:
        """See ``Measurer.with_idle``."""
        return self._inner.with_idle(measurement, clock_mhz)

    def recall(self, trials: Sequence[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """See ``Measurer.recall``."""
        self._inner.recall(trials, workloads)

    def close(self) -> None:
        """See ``Measurer.close``."""
        self._inner.close()

    def leave(self) -> None:
        """Give back the clock and the GPU; nothing is measured afterwards."""
        self._inner.close()
        self._gpu.close()

    def _took(self, joules: float) -> None:
        self.joules += joules
        self._spent(self.windows_s, self.joules)

    def _give_way(self) -> None:
        """Stop where others are on the GPU."""
        if self._watcher is None:
            return
        identity = self._gpu.identity
        seen = self._watcher.look(identity.spec, identity.uuid, _ours(self._gpu))
        if seen.busy:
            self.others = seen.why
            self.leave()
            raise Interrupted(seen.why)
        if seen.why != self._told:
            self._told = seen.why
            _LOG.warning("nobody tells who else is on the GPU: %s", seen.why)


def _ours(device: Device) -> int:
    """How many processes of ours compute on a device: its worker, or on a simulated one this process."""
    if isinstance(device, WorkerDevice):
        return int(device.pid is not None)
    return int(occupants.is_present(device.identity.spec))
