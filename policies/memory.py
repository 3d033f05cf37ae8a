"""What a descent has measured so far, and the best of it."""

import math
from collections.abc import Generator, Sequence
from dataclasses import replace

from tuner.interfaces import Search
from tuner.model import Energy, Measurement, Trial

_SOME_ENERGY = Energy(joules=1.0, uncertainty_j=0.0, watts=0.0, sensor="", scope="")


class Memory:
    """Measurements by trial, so that a descent compares every trial by one and the same number.

    Args:
        search: what the policy was told; its ``cost`` is the number compared.
    """

    def __init__(self, search: Search) -> None:
        self._cost = search.cost
        self._costs: dict[Trial, float] = {}
        self._measurements: dict[Trial, Measurement] = {}
        self._best: Trial | None = None

    @property
    def best(self) -> Trial | None:
        """The cheapest trial measured, the earliest of equals; None while every trial has failed."""
        return self._best

    def cost(self, trial: Trial) -> Generator[list[Trial], list[Measurement], float]:
        """Cost of a trial, measured unless it is known; infinity when it failed.

        A cost that is not a finite number counts as a failure.
        """
        (cost,) = yield from self.costs([trial])
        return cost

    def costs(self, trials: Sequence[Trial]) -> Generator[list[Trial], list[Measurement], list[float]]:
        """Costs of trials whose order does not matter; those that are not known are measured together."""
        unknown = [trial for trial in dict.fromkeys(trials) if trial not in self._costs]
        if unknown:
            for trial, measurement in zip(unknown, (yield unknown), strict=True):
                self._remember(trial, measurement)
        return [self._costs[trial] for trial in trials]

    def __contains__(self, trial: object) -> bool:
        return trial in self._costs

    def __len__(self) -> int:
        return len(self._costs)

    def _remember(self, trial: Trial, measurement: Measurement) -> None:
        cost = self._cost(measurement)
        self._measurements[trial] = measurement
        self._costs[trial] = cost if math.isfinite(cost) else math.inf
        if math.isfinite(cost) and (self._best is None or cost < self._costs[self._best]):
            self._best = trial

    def measured_cost(self, trial: Trial) -> float:
        """Cost of a measured trial."""
        return self._costs[trial]

    def measurement(self, trial: Trial) -> Measurement:
        """What a measured trial gave."""
        return self._measurements[trial]

    def inadmissible(self, trial: Trial) -> bool:
        """True when a measured trial ran well but is slower than the user allows.

        Its cost is infinite whatever its joules. A trial without joules (the sensor missed it) is no slower
        than others for that: it is asked what it would cost with some.
        """
        measurement = self._measurements[trial]
        if measurement.energy is None or not math.isfinite(measurement.energy.joules):
            measurement = replace(measurement, energy=_SOME_ENERGY)
        return measurement.ok and self._cost(measurement) == math.inf
