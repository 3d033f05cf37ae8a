"""Ground truths: the measurement of every trial of a space, and its cost under an objective.

Exhaustive runs on a device make them once; the database keeps them.
"""

import math
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TypedDict

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import RunInterrupted
from tuner.model.objective import Objective
from tuner.model.records import Conditions, RunStatus, fingerprint, trial_record
from tuner.model.run_document import TrialRecord
from tuner.model.trial import Measurement, Trial
from tuner.model.version import VERSION
from tuner.recordings.values import RecordedSpace
from tuner.search.compilation import Compilation
from tuner.search.plan import plan_search
from tuner.search.replaying import recorded_space
from tuner.search.request import SearchRequest
from tuner.search.session import Session
from tuner.search.setup import open_setup
from tuner.search.tuning import RunListener
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


# --- Exhaustive runs on a device, made once and kept in the database.

_PACKAGES = ("numpy", "scipy")


class Provenance(TypedDict, total=False):
    """Time, command and machine of a comparison."""

    date: str
    command: str
    python: str
    packages: dict[str, str]
    system: str


def provenance() -> Provenance:
    """Date, command line, versions and the machine that the policies searched on."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["tuner", *map(_relative, sys.argv[1:])]),
        "python": platform.python_version(),
        "packages": {"tuner": VERSION, **{name: metadata.version(name) for name in _PACKAGES}},
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }


def _relative(word: str) -> str:
    """An argument without the directories of the machine it was given on."""
    return f".../{Path(word).name}" if Path(word).is_absolute() else word


def measured(
    group: Group,
    request: SearchRequest,
    device_spec: str | None,
    *,
    catalog: Catalog,
    store: Store,
    listener: RunListener,
) -> Truth:
    """The exhaustive run of a group: the stored one if it is finished and was made under these conditions.

    Else it is made now; one that was stopped before goes on where it ended. It is the run that ``tuner run
    --policy exhaustive`` makes (for joules with ``--joules``: of all trials), and one made by that is taken.

    Args:
        group: the workloads.
        request: how to measure; its workloads and its policy are replaced.
        device_spec: where, as in ``--device``.
        catalog: the kernel files.
        store: the database.
        listener: is notified of the progress.

    Raises:
        RunInterrupted: by the user; the trials so far are stored.
    """
    joules = Objective(request.objective).needs_energy
    request = replace(request, workloads=group, policy="exhaustive", joules=joules)
    with open_setup(device_spec, request, listener.warming) as setup:
        plan = plan_search(request, catalog, setup)
        conditions = plan.conditions
        run_id = finished(store, conditions)
        origin = f"run {run_id} of the database, measured before"
        if run_id is None:
            outcome = Session(plan, setup, store, listener).run(resume=True)
            run_id = finished(store, conditions)
            if outcome.status is RunStatus.INTERRUPTED or run_id is None:
                raise RunInterrupted("interrupted; the same command goes on with the ground truth from here")
            origin = f"run {run_id} of the database, measured now"
        identity, limits = setup.device.identity, setup.device.limits
        sensor = str(setup.measuring["sensor"] or "")
        compilation = Compilation(plan.spaces(setup.device), setup.device, progress=listener.compiled)
        prepared = compilation.resolve_all()
    # a default that pruning drops is measured, but no policy may choose it
    candidates = [{c.configuration for c in workload.candidates} for workload in prepared]
    trials = {
        trial: measurement
        for trial, measurement in store.trials(run_id, conditions.names)
        if all(c in allowed for c, allowed in zip(trial.configurations, candidates, strict=True))
    }
    space = recorded_space(prepared, identity, limits, trials, sensor, {"run": run_id, **conditions.record()})
    return Truth(group, space, origin)


def finished(store: Store, conditions: Conditions) -> int | None:
    """The newest finished run under exactly these conditions."""
    same = fingerprint(conditions.record())
    runs = (run for run in store.history() if run.status is RunStatus.FINISHED)
    return next((run.id for run in runs if fingerprint(run.conditions) == same), None)
