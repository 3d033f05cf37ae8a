"""The document of a comparison, for ``--json``, tables and plots."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuner.comparing.scores import means, on_operation, on_space
from tuner.model.objective import Objective
from tuner.model.records import Record
from tuner.studies.comparison import Play, Rules
from tuner.studies.measured_spaces import Field, Truth

FORMAT, VERSION = "tuner-comparison", 1
ALL = "all"  # the operation that holds every workload

Cells = Mapping[tuple[int, int], Sequence[Play]]
"""Plays by the places of their space and their policy; only those there are."""


def document(
    truths: Sequence[Truth],
    plays: Iterable[Play],
    rules: Rules,
    *,
    status: str,
    provenance: Mapping[str, Any],
    notices: Sequence[str] = (),
) -> Record:
    """The comparison as a JSON object; its keys are described in ``docs/methodologies.md``.

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
        "provenance": dict(provenance),
        "status": status,
        "device": None if identity is None else dict(vars(identity)),
        "modelled": identity is not None and identity.modelled,
        "objective": rules.objective,
        "seeds": rules.seeds,
        "budget": rules.budget,
        "policies": [choice.label for choice in rules.policies],
        "operations": _operations(fields, cells, rules),
        "workloads": [_workload(place, field, cells, rules) for place, field in enumerate(fields)],
        "notices": [*notices, *_errors(fields, cells, rules)],
    }


def _workload(place: int, field: Field, cells: Cells, rules: Rules) -> Record:
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


def _operations(fields: Sequence[Field], cells: Cells, rules: Rules) -> list[Record]:
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
) -> Record:
    alike = name != ALL
    ended = [{space for space in spaces if _ended(cells, space, policy, rules)} for policy in _places(rules)]
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
            for policy in _places(rules)
            if common and ended[policy]
        },
    }


def _places(rules: Rules) -> range:
    return range(len(rules.policies))


def _ended(cells: Cells, space: int, policy: int, rules: Rules) -> bool:
    """Whether all searches of a policy on a space have ended: fewer seeds have another median."""
    return len(cells.get((space, policy), ())) == rules.seeds


def _errors(fields: Sequence[Field], cells: Cells, rules: Rules) -> list[str]:
    """What policies raised, each once, with the first space it happened on."""
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
