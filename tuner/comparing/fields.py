"""A ground truth under an objective: what plays on it are worth."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.comparing.efficiency import efficiency, evaluations_to, lowest_after
from tuner.comparing.plays import Play
from tuner.comparing.truth import Truth
from tuner.model import Measurement, Trial
from tuner.model.objective import Objective
from tuner.model.records import Record, trial_record


@dataclass(frozen=True)
class Field:
    """A space that policies played on.

    Attributes:
        truth: the space.
        best: its trial of lowest cost, and what it gave.
        lowest: that cost.
    """

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

    def median_efficiency(self, plays: Sequence[Play]) -> float:
        """Of all plays, each a search with another seed."""
        return statistics.median(map(self.efficiency, plays))

    def median_play(self, plays: Sequence[Play]) -> Play:
        """The play of median efficiency, of two the lower one: whose answer is shown."""
        ordered = sorted(plays, key=self.efficiency)
        return ordered[(len(ordered) - 1) // 2]

    def answer(self, play: Play) -> Record | None:
        """What a play found; None where no trial was valid."""
        if play.answer is None:
            return None
        return self.described(play.answer, self.truth.space.look(play.answer))

    def described(self, trial: Trial, measurement: Measurement) -> Record:
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
