"""The borders of measuring: measurers, pools of them, and what a trial is held against."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tuner.model.objective import Objective
from tuner.model.plan import Plan, Workload
from tuner.model.trial import Energy, Measurement, Trial
from tuner.power.base import SpentEnergy


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
