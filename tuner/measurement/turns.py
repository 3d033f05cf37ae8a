"""A measurer that takes turns with those of other GPUs of its host."""

from collections.abc import Sequence

from tuner.measurement.base import Contest, Measurer
from tuner.model.plan import Plan, Workload
from tuner.model.trial import Measurement, Trial
from tuner.power.base import SpentEnergy
from tuner.system.board_turns import BoardTurns


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
