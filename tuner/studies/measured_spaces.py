"""Ground truths: the measurement of every trial of a space, and its cost under an objective."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tuner.model.objective import Objective
from tuner.model.records import trial_record
from tuner.model.run_document import TrialRecord
from tuner.model.trial import Measurement, Trial
from tuner.recordings.values import RecordedSpace
from tuner.studies.comparison import (
    TOGETHER,
    Group,
    Play,
    efficiency,
    evaluations_to,
    lowest_after,
    operation,
)


class ScoredTrial(TrialRecord):
    """A trial of a space with its rate and joules; None where these are not known."""

    time_s: float | None
    rate: float | None
    rate_name: str
    energy_j: float | None
    energy_j_uncertainty: float | None


@dataclass(frozen=True)
class Truth:
    """The known trials of a group of workloads."""

    group: Group
    space: RecordedSpace
    origin: str

    @property
    def name(self) -> str:
        """As on the command line."""
        return TOGETHER.join(self.group)

    @property
    def operation(self) -> str:
        """The operation of this group, which is one of its sizes."""
        return operation(self.group)

    @cached_property
    def trials(self) -> Mapping[Trial, Measurement]:
        """The trials that policies can find; if some ran at set clocks, only those."""
        if not self.space.clocks_mhz:
            return self.space.trials
        return {trial: m for trial, m in self.space.trials.items() if trial.clock_mhz is not None}

    def best(self, objective: Objective) -> tuple[Trial, Measurement] | None:
        """The trial of lowest cost, the earliest of equals; None where every one failed."""
        lowest = min(self.trials.items(), key=lambda pair: objective.cost(pair[1]), default=None)
        return None if lowest is None or not math.isfinite(objective.cost(lowest[1])) else lowest

    def unusable(self, objective: Objective) -> str:
        """Return the reason why policies cannot be compared on it; empty if they can."""
        trials = list(self.trials.values())
        if not trials:
            return f"{self.name}: nothing is recorded of it"
        best = self.best(objective)
        if best is not None:
            cost = objective.cost(best[1])
            if cost > 0:
                return ""
            return f"{self.name}: its lowest {objective.name} is {cost:g}, which is no cost"
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


@dataclass(frozen=True)
class Field:
    """A space on which policies were evaluated."""

    truth: Truth
    best: tuple[Trial, Measurement]
    lowest: float

    @classmethod
    def of(cls, truth: Truth, objective: Objective) -> "Field":
        """The field of a truth that is usable under the objective."""
        best = truth.best(objective)
        if best is None:
            raise ValueError(truth.unusable(objective))
        return cls(truth, best, objective.cost(best[1]))

    def efficiency(self, play: Play, evaluations: float = math.inf) -> float:
        """Of what a play had found after so many evaluations; 0 while that is nothing, or where it raised."""
        return efficiency(self.lowest, lowest_after(play.steps, evaluations))

    def to_close(self, play: Play) -> float:
        """Evaluations until a play was as good as at the best; infinity where it never was."""
        count = evaluations_to(play.steps, self.lowest)
        return math.inf if count is None else count

    def median_play(self, plays: Sequence[Play]) -> Play:
        """The play of median efficiency, of two the lower one: whose answer is shown."""
        ordered = sorted(plays, key=self.efficiency)
        return ordered[(len(ordered) - 1) // 2]

    def answer(self, play: Play) -> ScoredTrial | None:
        """The answer of an evaluation; None if no trial was valid."""
        if play.answer is None:
            return None
        return self.described(play.answer, self.truth.space.look(play.answer))

    def described(self, trial: Trial, measurement: Measurement) -> ScoredTrial:
        """A trial as a JSON object."""
        energy = measurement.energy
        rate, unit = self._rate(trial, measurement)
        return {
            **trial_record(trial, self.truth.group),
            "time_s": measurement.makespan_s,
            "rate": rate,
            "rate_name": unit,
            "energy_j": None if energy is None else energy.joules,
            "energy_j_uncertainty": None if energy is None else energy.uncertainty_j,
        }

    def _rate(self, trial: Trial, measurement: Measurement) -> tuple[float | None, str]:
        """The papers' rate of a workload alone; workloads that run together have none in common."""
        if len(self.truth.group) > 1 or not measurement.makespan_s:
            return None, ""
        (workload,) = self.truth.space.workloads
        works = (c.work for c in workload.candidates if c.configuration == trial.configurations[0])
        work = next(works, None)
        if work is None or not work.rate_units:
            return None, ""
        return work.rate_units / measurement.makespan_s / work.rate_scale, work.rate_name
