"""Lets a policy, the measurer and the store talk, trial by trial."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tuner.candidates import Prepared
from tuner.database import Store
from tuner.interfaces import Device, Policy, Search
from tuner.measure import Measurer
from tuner.model import Measurement, Plan, Trial
from tuner.objective import Objective


@dataclass(frozen=True)
class Measured:
    """Told to the observer after every trial.

    Attributes:
        trial: what was run.
        measurement: what it gave.
        cost: in the unit of the objective; infinity for a failed trial.
        best_cost: lowest cost so far, infinity while there is none.
        number: trials measured so far, this one included.
        expected: how many there will be at most (budget or size of the space); None where a descent decides.
        joules: spent by the run so far.
    """

    trial: Trial
    measurement: Measurement
    cost: float
    best_cost: float
    number: int
    expected: int | None
    joules: float


Observer = Callable[[Measured], None]


@dataclass(frozen=True)
class Limits:
    """When a search ends although its policy would go on.

    Attributes:
        budget: trials measured at most; None for no limit.
        time_limit_s: seconds on the device's clock; None for no limit.
    """

    budget: int | None = None
    time_limit_s: float | None = None


class LimitReachedError(Exception):
    """A limit of the run is reached; ends its search."""


class Driver:
    """A search in progress: what was measured, and who must hear of it.

    A trial asked for again is answered from memory; a new one is measured, stored and then told.
    """

    def __init__(
        self,
        *,
        prepared: Sequence[Prepared],
        device: Device,
        measurer: Measurer,
        store: Store,
        run_id: int,
        limits: Limits,
        observer: Observer,
    ) -> None:
        self._prepared = prepared
        self._names = tuple(str(item.workload) for item in prepared)
        self._device = device
        self._measurer = measurer
        self._store = store
        self._run_id = run_id
        self._limits = limits
        self._observer = observer
        self._started_s = device.now_s()
        self._memory: dict[Trial, Measurement] = {}
        self._best: dict[Objective, float] = {}
        self._joules = 0.0
        self.trials: list[tuple[Trial, Measurement]] = []
        self.reference_s: float | None = None  # makespan that --max-slowdown compares with

    def recall(self, trials: Iterable[tuple[Trial, Measurement]]) -> None:
        """Take over what a killed run measured, as if this one had."""
        for trial, measurement in trials:
            self._remember(trial, measurement)
        if self.trials:
            self._measurer.recall(self.trials, [item.workload for item in self._prepared])
            self._device.resume_at(self.trials[-1][1].ended_s)

    def measure(self, trial: Trial, objective: Objective, expected: int | None) -> Measurement:
        """The measurement of a trial: from memory, or made now and stored at once."""
        if trial in self._memory:
            return self._memory[trial]
        self._stop_at_limits()
        measurement = replace(self._measurer.measure(trial, self._plans(trial)), ended_s=self._device.now_s())
        self._remember(trial, measurement)
        self._store.add(self._run_id, len(self.trials), trial, measurement, self._names)
        self._tell(trial, measurement, objective, expected)
        return measurement

    def search(self, policy: Policy, search: Search, objective: Objective, expected: int | None) -> None:
        """Drive a policy's generator to its end."""
        generator = policy(search)
        try:
            batch = next(generator)
            while True:
                measured = [self.measure(trial, objective, expected) for trial in batch]
                batch = generator.send(measured)
        except StopIteration:
            return
        finally:
            generator.close()

    def fastest_s(self) -> float:
        """Shortest makespan of a valid trial so far; infinity while there is none."""
        return min((Objective("time").cost(measurement) for _, measurement in self.trials), default=math.inf)

    def _remember(self, trial: Trial, measurement: Measurement) -> None:
        self._memory[trial] = measurement
        self.trials.append((trial, measurement))
        self._joules += measurement.energy_total_j

    def _tell(
        self, trial: Trial, measurement: Measurement, objective: Objective, expected: int | None
    ) -> None:
        cost = objective.cost(measurement)
        if objective not in self._best:
            self._best[objective] = min(objective.cost(known) for _, known in self.trials)
        self._best[objective] = min(cost, self._best[objective])
        bounds = [bound for bound in (expected, self._limits.budget) if bound is not None]
        self._observer(
            Measured(
                trial,
                measurement,
                cost,
                self._best[objective],
                len(self.trials),
                min(bounds, default=None),
                self._joules,
            )
        )

    def _plans(self, trial: Trial) -> list[Plan]:
        return [
            item.plans[configuration]
            for item, configuration in zip(self._prepared, trial.configurations, strict=True)
        ]

    def _stop_at_limits(self) -> None:
        budget, time_limit_s = self._limits.budget, self._limits.time_limit_s
        if budget is not None and len(self.trials) >= budget:
            raise LimitReachedError(f"the budget of {budget} trials is used up")
        if time_limit_s is not None and self._device.now_s() - self._started_s >= time_limit_s:
            raise LimitReachedError(f"the time limit of {time_limit_s:g} s is reached")
