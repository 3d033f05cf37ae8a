"""The ground truth of a comparison: what every trial of a space gives."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tuner.comparing.choices import TOGETHER, Group, operation
from tuner.model import Measurement, Trial
from tuner.model.objective import Objective
from tuner.recordings import RecordedSpace


@dataclass(frozen=True)
class Truth:
    """What is known of a group of workloads.

    Attributes:
        group: the workloads.
        space: every configuration with what it gave.
        origin: where that came from, for people.
    """

    group: Group
    space: RecordedSpace
    origin: str

    @property
    def name(self) -> str:
        """As on the command line."""
        return TOGETHER.join(self.group)

    @property
    def operation(self) -> str:
        """What this group is a size of."""
        return operation(self.group)

    @cached_property
    def trials(self) -> Mapping[Trial, Measurement]:
        """What policies can find: where some trials ran at clocks that were set, those alone."""
        if not self.space.clocks_mhz:
            return self.space.trials
        return {trial: m for trial, m in self.space.trials.items() if trial.clock_mhz is not None}

    def best(self, objective: Objective) -> tuple[Trial, Measurement] | None:
        """The trial of lowest cost, the earliest of equals; None where every one failed."""
        found = min(self.trials.items(), key=lambda pair: objective.cost(pair[1]), default=None)
        return None if found is None or not math.isfinite(objective.cost(found[1])) else found

    def unusable(self, objective: Objective) -> str:
        """Why no policy can be compared on it; empty where one can."""
        trials = list(self.trials.values())
        if not trials:
            return f"{self.name}: nothing is recorded of it"
        found = self.best(objective)
        if found is not None:
            cost = objective.cost(found[1])
            return (
                "" if cost > 0 else f"{self.name}: its lowest {objective.name} is {cost:g}, which is no cost"
            )
        if any(measurement.ok for measurement in trials):
            return (
                f"{self.name}: no joules are recorded, which --objective {objective.name} needs;"
                " use --objective time"
            )
        details = [r.detail for m in trials for r in m.results if r.detail]
        first = f"; the first: {details[0]}" if details else ""
        return f"{self.name}: every one of its {len(trials):,} trials failed{first}"

    @property
    def missing(self) -> int:
        """Trials of the joint space that are not known; a policy that asks for one sees it fail."""
        whole = math.prod(len(workload.candidates) for workload in self.space.workloads)
        return whole * max(1, len(self.space.clocks_mhz)) - len(self.trials)
