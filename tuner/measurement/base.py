"""The borders of measuring: measurers, pools of them, what a trial is held against, and its gates.

A gate waits for the host's turn, or for other users of the GPU.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tuner.devices.base import Device
from tuner.model.errors import RunInterrupted
from tuner.model.objective import Objective
from tuner.model.plan import Plan, Workload
from tuner.model.trial import Energy, Measurement, Trial
from tuner.power.base import SpentEnergy
from tuner.system.ownership import BoardTurns
from tuner.system.signals import StopRequest

if TYPE_CHECKING:
    from tuner.devices.gpu_users import ContentionProbe


@dataclass(frozen=True)
class ComparisonTarget:
    """Comparison for a trial while it is measured, so that no more is measured than necessary.

    Attributes:
        objective: whose lowest cost is looked for.
        best: the trial of lowest cost so far, with its measurement; None while there is none.
        measured: trials measured before this one.
        elsewhere: energies at the trial's setting that the GPUs of a pool have measured, as this GPU would
            have them: those of which one may have the least net joules.
    """

    objective: Objective
    best: tuple[Trial, Measurement] | None
    measured: int
    elsewhere: tuple[Energy, ...] = ()


class TrialGate(Protocol):
    """Barrier that a measurer passes before and after whatever it runs on its GPU."""

    def before(self, trial: Trial | None) -> None:
        """Wait until the GPU may be used, or raise where it may not; None for a reading of idle power."""

    def after(self, measurement: Measurement | None) -> None:
        """Take note of what was measured, of idle power too, without results; None where it raised."""


class Measurer(Protocol):
    """Measures trials on one device, one after another."""

    @property
    def windows_s(self) -> float:
        """Length of all windows so far, repeated ones included."""

    @property
    def notices(self) -> tuple[str, ...]:
        """Messages for the user."""

    def measure(
        self, trial: Trial, plans: Sequence[Plan], target: ComparisonTarget | None = None
    ) -> Measurement:
        """Measure a trial; failures of a candidate are statuses of the measurement.

        Args:
            trial: what is measured.
            plans: its configurations as plans, in its order.
            target: what it is held against: measuring may end once it is clearly worse. None to measure it
                to the end.

        Raises:
            ClockError: the trial's clock could not be set, held or restored.
            DeviceError: the device is lost.
            PowerError: joules are needed, and the sensor is lost.
        """

    def measure_otherwise(self, trial: Trial, plans: Sequence[Plan]) -> Measurement:
        """A short window, by the other timing than ``measure``, of a measured trial; errors as there."""

    def measure_idle(self, clock_mhz: int | None) -> float:
        """Read the power of the idle GPU at a clock; returns the joules that took.

        Raises:
            ClockError: the clock could not be set or restored.
        """

    def with_idle(self, measurement: Measurement, clock_mhz: int | None) -> Measurement:
        """The measurement with the idle power that is known by now."""

    def spent(self) -> SpentEnergy | None:
        """All joules since the meter was opened, gaps between trials included; None where nobody tells."""

    def recall(self, trials: Sequence[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """Take over what an interrupted run measured."""

    def close(self) -> None:
        """Give the clock back; the measurer may be used again."""


@dataclass(frozen=True)
class PlannedTrial:
    """A trial to measure, ready to run.

    Attributes:
        trial: what is measured.
        plans: its configurations as plans, in its order.
        target: what it is held against; None to measure it to the end.
    """

    trial: Trial
    plans: tuple[Plan, ...]
    target: ComparisonTarget | None = None


@dataclass(frozen=True)
class ReferenceTrial:
    """The default trial as home has measured it.

    Attributes:
        trial: the default trial.
        plans: its configurations as plans.
        measurement: what it gave on home.
    """

    trial: Trial
    plans: tuple[Plan, ...]
    measurement: Measurement


class TrialPool(Protocol):
    """Measures trials on several GPUs of one kind at once; the one that measures all else is its home."""

    @property
    def parallel(self) -> int:
        """GPUs that measure now."""

    def prepare(self, reference: PlannedTrial) -> None:
        """Have all GPUs but home begin to measure their anchors; nothing is waited for."""

    def measure_all(
        self, trials: Iterator[PlannedTrial], reference: ReferenceTrial
    ) -> Iterator[tuple[Trial, Measurement]]:
        """Measure trials, each on the first GPU that is free, and hand out each as it ends, once.

        Times and joules are scaled to home by the anchors' ratio, whose uncertainty is added to theirs. A
        trial whose worker is lost is measured by another.

        Args:
            trials: asked for the next one when a GPU is free.
            reference: what each GPU measures before its first trial, if it has not yet.

        Raises:
            PoolLostError: the pool cannot go on.
            ClockError, DeviceError, PowerError: as of ``Measurer``, of home.
        """


# --- Gates: the turns of a host, and other users of the GPU.

_LOG = logging.getLogger(__name__)


def passed(
    gates: Sequence[TrialGate], trial: Trial | None, measure: Callable[[], Measurement]
) -> Measurement:
    """Measure behind gates: the first is passed first, and left last."""
    if not gates:
        return measure()
    gates[0].before(trial)
    measurement = None
    try:
        measurement = passed(gates[1:], trial, measure)
    finally:
        gates[0].after(measurement)
    return measurement


class TurnGate:
    """Waits for the GPU's turn among those of its host, whose load would disturb its joules.

    Args:
        turns: of the GPUs of the host.
        alone: joules are measured, which load on other GPUs disturbs; times it does not.
    """

    def __init__(self, turns: BoardTurns, *, alone: bool) -> None:
        self._turns = turns
        self._alone = alone
        self._turn = ExitStack()

    def before(self, trial: Trial | None) -> None:  # noqa: ARG002 - whatever runs, it runs in a turn
        """Wait for the turn."""
        self._turn.enter_context(self._turns.turn(alone=self._alone))

    def after(self, measurement: Measurement | None) -> None:  # noqa: ARG002 - the turn has ended
        """Give the turn to another GPU."""
        self._turn.close()


class ContentionGate:
    """Looks before and after each trial who is on the GPU, and stops where others are.

    Args:
        stop: the request to stop the process.
        probe: looks for others; None to look for none.
        spent: hears after each measurement what the run has taken: seconds of windows, and joules.

    Attributes:
        others: who came; empty while none has.
        joules: that were spent, as far as they were measured.
    """

    def __init__(
        self, stop: StopRequest, probe: "ContentionProbe | None", spent: Callable[[float, float], None]
    ) -> None:
        self._stop = stop
        self._probe = probe
        self._spent = spent
        self._watched: tuple[Device, Measurer] | None = None
        self._logged = ""
        self.others = ""
        self.joules = 0.0

    def watch(self, device: Device, measurer: Measurer) -> None:
        """Begin to look after a device, and the measurer on it that has this gate."""
        self._watched = device, measurer

    @property
    def windows_s(self) -> float:
        """Length of all windows so far."""
        return 0.0 if self._watched is None else self._watched[1].windows_s

    def before(self, trial: Trial | None) -> None:
        """Look who is on the GPU.

        Raises:
            RunInterrupted: others are on the GPU; the clock is given back, the worker gone.
            KeyboardInterrupt: the process is to stop.
        """
        self._stop.check()
        if trial is not None:  # idle power is read right behind a trial
            self._check_users()

    def after(self, measurement: Measurement | None) -> None:
        """Note what was spent, and look for others again; raises as ``before`` does."""
        if measurement is None:
            return
        self.joules += measurement.energy_total_j
        self._spent(self.windows_s, self.joules)
        self._check_users()

    def leave(self) -> None:
        """Give back the clock and the GPU; nothing is measured afterwards."""
        if self._watched is not None:
            device, measurer = self._watched
            measurer.close()
            device.close()

    def _check_users(self) -> None:
        """Stop where others are on the GPU."""
        if self._probe is None or self._watched is None:
            return
        device, _ = self._watched
        contention = self._probe.look(device.identity.spec, device.identity.uuid, device.own_processes())
        if contention.busy:
            self.others = contention.reason
            self.leave()
            raise RunInterrupted(contention.reason)
        if contention.reason != self._logged:
            self._logged = contention.reason
            _LOG.warning("other users of the GPU are unknown: %s", contention.reason)
