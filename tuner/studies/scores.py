"""Scores of policies against a ground truth, and their summary."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from tuner.model.objective import Objective
from tuner.model.run_document import Device, device_document
from tuner.studies.comparison import Play, Rules, phi
from tuner.studies.measured_spaces import Field, Provenance, ScoredTrial, Truth

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
