"""Ground truths of spaces, scores of policies against them, and their summary."""

import math
import os
import platform
import shlex
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TypedDict

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model import version
from tuner.model.errors import RunInterrupted
from tuner.model.objective import Objective
from tuner.model.records import Conditions, RunStatus, fingerprint, trial_record
from tuner.model.run_document import Device, TrialRecord, device_document
from tuner.model.trial import Measurement, Trial
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
    Rules,
    efficiency,
    evaluations_to,
    lowest_after,
    operation,
    phi,
)

# --- Ground truths: the measurement of every trial of a space, and its cost under an objective.
#
# Exhaustive runs on a device make them once; the database keeps them.


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
        "packages": {"tuner": version.VERSION, **{name: metadata.version(name) for name in _PACKAGES}},
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


# --- Scores of a policy: on one space, and over the problem sizes of an operation.

# Evaluations at which curves are given: close where policies differ, apart where they no longer do.
MARKS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100, 140, 200, 300, 500, 1000, 2000, 5000)
_BAND = (0.16, 0.84)  # quantiles over seeds: two of three values lie between

Played = Sequence[tuple[Field, Sequence[Play]]]
"""The plays of one policy, field by field."""


class Effort(TypedDict):
    """Evaluations and search time of plays; None where every one raised."""

    evaluations: int | None
    evaluations_most: int | None
    evaluations_to_close: int | None
    search_s_per_evaluation: float | None


class Means(TypedDict):
    """Means over sizes, as far as they exist."""

    rate: float | None
    rate_name: str
    energy_j: float | None
    energy_j_uncertainty: float | None
    energy_sizes: int


class Curve(TypedDict):
    """Φ over evaluations: median and band over seeds."""

    evaluations: list[int]
    median: list[float]
    low: list[float]
    high: list[float]


class SeedScores(TypedDict):
    """Efficiency and evaluations, seed by seed."""

    efficiency: list[float]
    evaluations: list[int]


class SpaceScores(Effort):
    """A policy on one space."""

    plays: int
    errors: list[str]
    efficiency: float
    efficiency_lowest: float
    efficiency_highest: float
    answer: ScoredTrial | None
    of_seeds: SeedScores


class OperationScores(Effort, Means):
    """A policy over the sizes of an operation."""

    sizes: int
    plays: int
    phi: float
    phi_lowest: float
    phi_highest: float
    curve: Curve


def on_space(field: Field, plays: Sequence[Play]) -> SpaceScores:
    """A policy on one space."""
    efficiencies = [field.efficiency(play) for play in plays]
    middle = field.median_play(plays)
    return {
        "plays": len(plays),
        "errors": sorted({play.error for play in plays if play.error}),
        "efficiency": statistics.median(efficiencies),
        "efficiency_lowest": min(efficiencies),
        "efficiency_highest": max(efficiencies),
        **_effort([(field, plays)]),
        "answer": field.answer(middle),
        "of_seeds": {"efficiency": efficiencies, "evaluations": [play.evaluations for play in plays]},
    }


def on_operation(played: Played, *, alike: bool) -> OperationScores:
    """A policy over the sizes of an operation.

    Args:
        played: at least one size.
        alike: whether the sizes share a rate, so that a mean of it says something.
    """
    answers = [field.answer(field.median_play(plays)) for field, plays in played]
    best = [field.described(*field.best) for field, _ in played]
    by_seed = phi_by_seed(played)
    return {
        "sizes": len(played),
        "plays": sum(len(plays) for _, plays in played),
        "phi": statistics.median(by_seed),  # of medians by size it could be above that of every seed
        "phi_lowest": min(by_seed),
        "phi_highest": max(by_seed),
        **_effort(played),
        **means(answers, best, alike=alike),
        "curve": _curve(played),
    }


def means(answers: Sequence[ScoredTrial | None], best: Sequence[ScoredTrial], *, alike: bool) -> Means:
    """Average performance, as in the paper's Table II, and average energy over the sizes that have joules.

    A mean over other sizes than the best has could be above it: there is none where an answer is missing.

    Args:
        answers: one per size; None where there is none.
        best: of each size. Where these have joules, energy is averaged.
        alike: whether the sizes share a rate.
    """
    valid = [answer for answer in answers if answer is not None]
    units = {answer["rate_name"] for answer in valid}
    rates = [answer["rate"] for answer in valid if answer["rate"] is not None]
    rated = alike and len(units) == 1 and len(rates) == len(answers) > 0
    measured = [answer for answer, one in zip(answers, best, strict=True) if one["energy_j"] is not None]
    joules = [
        (answer["energy_j"], answer["energy_j_uncertainty"] or 0.0)
        for answer in measured
        if answer is not None and answer["energy_j"] is not None
    ]
    complete = alike and len(joules) == len(measured) > 0
    spread_j = math.hypot(*(sigma_j for _, sigma_j in joules))
    return {
        "rate": statistics.fmean(rates) if rated else None,
        "rate_name": units.pop() if rated else "",
        "energy_j": statistics.fmean(energy_j for energy_j, _ in joules) if complete else None,
        "energy_j_uncertainty": spread_j / len(joules) if complete else None,
        "energy_sizes": len(joules) if complete else 0,
    }


def phi_by_seed(played: Played, evaluations: float = math.inf) -> list[float]:
    """Φ of every seed, of what it had found after so many evaluations; each was played on all sizes."""
    by_seed = [{play.job.seed: play for play in plays} for _, plays in played]
    fields = [field for field, _ in played]
    return [
        phi([field.efficiency(of[seed], evaluations) for field, of in zip(fields, by_seed, strict=True)])
        for seed in sorted(by_seed[0])
    ]


def _effort(played: Played) -> Effort:
    """Evaluations and search time, over all plays that did not raise."""
    ended = [(field, play) for field, plays in played for play in plays if not play.error]
    if not ended:
        return {
            "evaluations": None,
            "evaluations_most": None,
            "evaluations_to_close": None,
            "search_s_per_evaluation": None,
        }
    counts = [play.evaluations for _, play in ended]
    to_close = statistics.median_low([field.to_close(play) for field, play in ended])
    each_s = [play.search_s / play.evaluations for _, play in ended if play.evaluations]
    return {
        "evaluations": statistics.median_low(counts),
        "evaluations_most": max(counts),
        "evaluations_to_close": int(to_close) if math.isfinite(to_close) else None,
        "search_s_per_evaluation": statistics.median(each_s) if each_s else None,
    }


def _curve(played: Played) -> Curve:
    """Φ over evaluations: median and band over seeds, up to where no play went on."""
    last = max(play.evaluations for _, plays in played for play in plays)
    marks = [mark for mark in MARKS if mark < last] + [last]
    columns = [sorted(phi_by_seed(played, mark)) for mark in marks]
    return {
        "evaluations": marks,
        "median": [statistics.median(column) for column in columns],
        "low": [_quantile(column, _BAND[0]) for column in columns],
        "high": [_quantile(column, _BAND[1]) for column in columns],
    }


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]


# --- The scores of a comparison as JSON.

FORMAT, VERSION = "tuner-comparison", 1
ALL = "all"  # the operation that holds every workload


class GroundTruthDocument(TypedDict):
    """The trials that policies were evaluated on."""

    origin: str
    trials: int
    failed: int
    missing: int
    sensor: str
    provenance: dict[str, object]


class WorkloadScores(TypedDict):
    """All policies on one space."""

    name: str
    operation: str
    workloads: list[str]
    sizes: list[dict[str, int | str]]
    batches: list[int]
    ground_truth: GroundTruthDocument
    best: ScoredTrial
    policies: dict[str, SpaceScores]


class OperationDocument(TypedDict):
    """All policies over the sizes of an operation."""

    operation: str
    workloads: list[str]
    compared: list[str]
    trials: int
    best: Means
    policies: dict[str, OperationScores]


class ComparisonDocument(TypedDict):
    """A comparison as ``--json`` writes it; ``docs/recordings.md`` describes its keys."""

    format: str
    version: int
    provenance: Provenance
    status: str
    device: Device | None
    modelled: bool
    objective: str
    seeds: int
    budget: int | None
    policies: list[str]
    operations: list[OperationDocument]
    workloads: list[WorkloadScores]
    notices: list[str]


Cells = Mapping[tuple[int, int], Sequence[Play]]
"""Plays by the places of their space and their policy; only those there are."""


def document(
    truths: Sequence[Truth],
    plays: Iterable[Play],
    rules: Rules,
    *,
    status: str,
    provenance: Provenance,
    notices: Sequence[str] = (),
) -> ComparisonDocument:
    """The comparison as a JSON object.

    Times are seconds and energies joules of one round; +- 1.96 uncertainties cover 95 %. What is not known is
    null.

    Args:
        truths: the spaces, all usable, in the order that plays count them.
        plays: those that ended; all of them unless the comparison was interrupted.
        rules: what was played.
        status: ``finished`` or ``interrupted``.
        provenance: date, command, versions.
        notices: what the user should know.
    """
    fields = [Field.of(truth, Objective(rules.objective)) for truth in truths]
    cells: dict[tuple[int, int], list[Play]] = {}
    for play in sorted(plays, key=lambda play: play.job):
        cells.setdefault((play.job.space, play.job.policy), []).append(play)
    identity = truths[0].space.identity if truths else None
    return {
        "format": FORMAT,
        "version": VERSION,
        "provenance": provenance,
        "status": status,
        "device": None if identity is None else device_document(identity),
        "modelled": identity is not None and identity.modelled,
        "objective": rules.objective,
        "seeds": rules.seeds,
        "budget": rules.budget,
        "policies": [choice.label for choice in rules.policies],
        "operations": _operations(fields, cells, rules),
        "workloads": [_workload(place, field, cells, rules) for place, field in enumerate(fields)],
        "notices": [*notices, *_errors(fields, cells, rules)],
    }


def _workload(place: int, field: Field, cells: Cells, rules: Rules) -> WorkloadScores:
    truth, space = field.truth, field.truth.space
    return {
        "name": truth.name,
        "operation": truth.operation,
        "workloads": list(truth.group),
        "sizes": [dict(workload.sizes) for workload in space.workloads],
        "batches": [workload.batch for workload in space.workloads],
        "ground_truth": {
            "origin": truth.origin,
            "trials": len(truth.trials),
            "failed": sum(not measurement.ok for measurement in truth.trials.values()),
            "missing": truth.missing,
            "sensor": space.sensor,
            "provenance": dict(space.provenance),
        },
        "best": field.described(*field.best),
        "policies": {
            choice.label: on_space(field, cells[place, policy])
            for policy, choice in enumerate(rules.policies)
            if (place, policy) in cells
        },
    }


def _operations(fields: Sequence[Field], cells: Cells, rules: Rules) -> list[OperationDocument]:
    """Every operation, and all together where there are several.

    The figures of an operation are all of the same sizes: those on which every policy shown has ended all its
    searches. Only an interruption leaves others. While there is none, the best is that of all sizes.
    """
    places: dict[str, list[int]] = {}
    for place, field in enumerate(fields):
        places.setdefault(field.truth.operation, []).append(place)
    if len(places) > 1:
        places[ALL] = list(range(len(fields)))
    return [_operation(name, fields, spaces, cells, rules) for name, spaces in places.items()]


def _operation(
    name: str, fields: Sequence[Field], spaces: Sequence[int], cells: Cells, rules: Rules
) -> OperationDocument:
    alike = name != ALL
    policies = range(len(rules.policies))
    ended = [{space for space in spaces if _ended(cells, space, policy, rules)} for policy in policies]
    common = set[int]().union(*ended).intersection(*filter(None, ended))
    compared = [fields[space] for space in spaces if space in common or not common]
    best = [field.described(*field.best) for field in compared]
    return {
        "operation": name,
        "workloads": [fields[space].truth.name for space in spaces],
        "compared": [field.truth.name for field in compared],
        "trials": sum(len(field.truth.trials) for field in compared),
        "best": means(best, best, alike=alike),
        "policies": {
            rules.policies[policy].label: on_operation(
                [(fields[space], cells[space, policy]) for space in spaces if space in common], alike=alike
            )
            for policy in policies
            if common and ended[policy]
        },
    }


def _ended(cells: Cells, space: int, policy: int, rules: Rules) -> bool:
    """Return True if all searches of a policy on a space have ended: fewer seeds have another median."""
    return len(cells.get((space, policy), ())) == rules.seeds


def _errors(fields: Sequence[Field], cells: Cells, rules: Rules) -> list[str]:
    """Return the errors that policies raised, each once, with the first space it happened on."""
    seen: dict[tuple[str, str], tuple[str, int]] = {}
    for (space, policy), plays in cells.items():
        for play in plays:
            if play.error:
                key = (rules.policies[policy].label, play.error)
                where, count = seen.get(key, (fields[space].truth.name, 0))
                seen[key] = (where, count + 1)
    return [
        f"{label} raised in {count} {'play' if count == 1 else 'plays'}, which count as no answer; first on"
        f" {where}: {error}"
        for (label, error), (where, count) in seen.items()
    ]
