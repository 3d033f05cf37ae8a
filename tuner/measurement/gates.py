"""Measurers that wait: for other users of the GPU, and for their turn on the host."""

import logging
from collections.abc import Callable, Sequence

from tuner.devices.base import Device
from tuner.devices.gpu_users import ContentionProbe
from tuner.measurement.base import Contest, Measurer
from tuner.model.errors import RunInterrupted
from tuner.model.plan import Plan, Workload
from tuner.model.trial import Measurement, Trial
from tuner.power.base import SpentEnergy
from tuner.system.ownership import BoardTurns
from tuner.system.signals import StopRequest

_LOG = logging.getLogger(__name__)


class GuardedMeasurer:
    """Wraps a measurer: looks before and after each trial who is on the GPU, and stops where others are.

    Args:
        measurer: measures; stays the caller's.
        device: where it measures.
        stop: the request to stop the process.
        probe: looks for others; None to look for none.
        spent: hears after each measurement what the attempt has taken: seconds of windows, and joules.

    Attributes:
        others: who came; empty while none has.
        joules: that were spent, as far as they were measured.
    """

    def __init__(
        self,
        measurer: Measurer,
        device: Device,
        stop: StopRequest,
        probe: ContentionProbe | None,
        spent: Callable[[float, float], None],
    ) -> None:
        self._inner = measurer
        self._gpu = device
        self._stop = stop
        self._probe = probe
        self._spent = spent
        self._logged = ""
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

    def measure(self, trial: Trial, plans: Sequence[Plan], contest: Contest | None = None) -> Measurement:
        """See ``Measurer.measure``.

        Raises:
            RunInterrupted: others were on the GPU before or after; the clock is given back, the worker gone.
            KeyboardInterrupt: the process is to stop.
        """
        self._stop.check()
        self._check_users()
        measurement = self._inner.measure(trial, plans, contest)
        self._took(measurement.energy_total_j)
        self._check_users()
        return measurement

    def measure_idle(self, clock_mhz: int | None) -> float:
        """See ``Measurer.measure_idle``; raises as ``measure`` does."""
        self._stop.check()
        spent_j = self._inner.measure_idle(clock_mhz)
        self._took(spent_j)
        self._check_users()
        return spent_j

    def with_idle(self, measurement: Measurement, clock_mhz: int | None) -> Measurement:
        """See ``Measurer.with_idle``."""
        return self._inner.with_idle(measurement, clock_mhz)

    def spent(self) -> SpentEnergy | None:
        """See ``Measurer.spent``."""
        return self._inner.spent()

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

    def _check_users(self) -> None:
        """Stop where others are on the GPU."""
        if self._probe is None:
            return
        identity = self._gpu.identity
        contention = self._probe.look(identity.spec, identity.uuid, self._gpu.own_processes())
        if contention.busy:
            self.others = contention.reason
            self.leave()
            raise RunInterrupted(contention.reason)
        if contention.reason != self._logged:
            self._logged = contention.reason
            _LOG.warning("other users of the GPU are unknown: %s", contention.reason)


class TurnTakingMeasurer:
    """Wraps a measurer: whatever it runs on its GPU, it runs in a turn.

    Args:
        measurer: measures; stays the caller's.
        turns: of the GPUs of the host.
        alone: its joules are disturbed by load on other GPUs; times are not.
    """

    def __init__(self, measurer: Measurer, turns: BoardTurns, *, alone: bool) -> None:
        self._inner = measurer
        self._turns = turns
        self._alone = alone

    @property
    def windows_s(self) -> float:
        """See ``Measurer.windows_s``."""
        return self._inner.windows_s

    @property
    def notices(self) -> tuple[str, ...]:
        """See ``Measurer.notices``."""
        return self._inner.notices

    def measure(self, trial: Trial, plans: Sequence[Plan], contest: Contest | None = None) -> Measurement:
        """See ``Measurer.measure``."""
        with self._turns.turn(alone=self._alone):
            return self._inner.measure(trial, plans, contest)

    def measure_idle(self, clock_mhz: int | None) -> float:
        """See ``Measurer.measure_idle``."""
        with self._turns.turn(alone=self._alone):
            return self._inner.measure_idle(clock_mhz)

    def with_idle(self, measurement: Measurement, clock_mhz: int | None) -> Measurement:
        """See ``Measurer.with_idle``."""
        return self._inner.with_idle(measurement, clock_mhz)

    def spent(self) -> SpentEnergy | None:
        """See ``Measurer.spent``."""
        return self._inner.spent()

    def recall(self, trials: Sequence[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """See ``Measurer.recall``."""
        self._inner.recall(trials, workloads)

    def close(self) -> None:
        """See ``Measurer.close``."""
        self._inner.close()
