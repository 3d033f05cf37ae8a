"""Joint spaces that were recorded on a GPU, for `joint_spaces.py`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import tuner
from tuner.model.objective import Objective
from tuner.model.plan import Configuration, without_priority
from tuner.model.trial import Measurement, Trial
from tuner.recordings.files import open_recording
from tuner.recordings.values import RecordedSpace, search_of
from tuner.space.search_view import PriorRun, Search

SHIPPED = Path(tuner.__file__).parent / "recordings" / "h200.zip"


@dataclass(frozen=True)
class Recorded:
    """Several workloads of a recording.

    Attributes:
        path: of the recording.
        workloads: that were measured together.
        kept_out: it was not looked at while constants were chosen.
    """

    path: Path
    workloads: tuple[str, ...]
    kept_out: bool = False

    @property
    def label(self) -> str:
        """It was measured."""
        return "recorded"

    @property
    def name(self) -> str:
        """Kernels and GPU."""
        return f"{kernels_of(self.workloads)}, {self.space.identity.name}"

    @cached_property
    def space(self) -> RecordedSpace:
        """All trials."""
        return open_recording(self.path).space(self.workloads)

    def search(self, objective: Objective, seed: int) -> Search:
        """What a policy is told."""
        return search_of(self.space, objective.known, seed=seed, noise=objective.relative_uncertainty)

    def look(self, trial: Trial, seed: int) -> Measurement:  # noqa: ARG002 - it was measured once
        """What was recorded."""
        return self.space.look(trial)

    def costs(self, objective: Objective) -> Mapping[Trial, float]:
        """As recorded."""
        known = {trial: objective.known(one) for trial, one in self.space.trials.items()}
        return {trial: cost for trial, cost in known.items() if math.isfinite(cost)}

    def solo_bests(self, objective: Objective) -> Trial | None:
        """Of the spaces of single workloads in the same file."""
        known = [self._costs_alone(objective, place) for place in range(len(self.workloads))]
        if not all(known):
            return None
        trial = Trial(tuple(min(costs, key=costs.__getitem__) for costs in known))
        return trial if trial in self.space.trials else None

    def alone(self, objective: Objective, search: Search, seed: int) -> tuple[PriorRun, ...]:  # noqa: ARG002
        """Of the spaces of single workloads in the same file."""
        known = [self._costs_alone(objective, place) for place in range(len(self.workloads))]
        return prior_runs(search, known) if all(known) else ()

    def _costs_alone(self, objective: Objective, place: int) -> dict[Configuration, float]:
        """Of the configurations that run together; empty where one was not measured alone."""
        recording, name = open_recording(self.path), self.workloads[place]
        if (name,) not in recording.names:
            return {}
        trials = recording.space((name,)).trials
        costs = {trial.configurations[0]: objective.known(one) for trial, one in trials.items()}
        wanted = [one.configuration for one in self.space.workloads[place].candidates]
        found = {one: costs.get(without_priority(one), math.inf) for one in wanted}
        return found if all(map(math.isfinite, found.values())) else {}


def recorded_spaces(path: Path, *, kept_out: bool = False) -> list[Recorded]:
    """Every set of several workloads in a recording."""
    return [Recorded(path, names, kept_out) for names in open_recording(path).names if len(names) > 1]


def prior_runs(search: Search, known: Sequence[Mapping[Configuration, float]]) -> tuple[PriorRun, ...]:
    """Costs of every workload alone as a policy is told them; streams have no priorities there."""
    alone = [{without_priority(one): cost for one, cost in costs.items()} for costs in known]
    return tuple(
        PriorRun(place, search.sizes[place], search.device, tuple(costs.items()))
        for place, costs in enumerate(alone)
    )


def kernels_of(specs: Sequence[str]) -> str:
    """Names of workloads for tables, with one size at most."""
    return " + ".join(one.partition(",")[0] if ":N=" in one else one.partition(":")[0] for one in specs)
