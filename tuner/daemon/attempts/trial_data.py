"""The data of ``trial`` events: the same for a trial that has just ended and for one that is read again."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.model.objective import UNITS, Objective
from tuner.model.records import StoredTrial
from tuner.model.trial import Measurement, Status, Trial

if TYPE_CHECKING:
    from tuner.search.trial_event import TrialEvent


_LONGEST_DETAIL = 500  # characters of why a trial failed


def told_trial(event: "TrialEvent", run: int | None, unit: str) -> dict[str, Any]:
    """The data of a trial, or of a contender's repeat, that has just ended.

    Args:
        event: of the search.
        run: its run.
        unit: of its cost.
    """
    return {
        "run": run,
        "number": event.number,
        "trial": event.place or event.number,
        "repeat": event.repeat,
        "confirming": event.confirming,
        "cost": _finite(event.cost),
        "best": _finite(event.best_cost),
        "unit": unit,
        "joules": event.joules,
        "expected": event.expected,
        **_measured(event.trial, event.measurement, event.names),
    }


def stored_trial(stored: StoredTrial, run: int, objective: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """The data of a stored trial; of a contender, its joined repeats too.

    The lowest cost and the joules of the run so far are not stored, and None here.

    Args:
        stored: the trial.
        run: its run.
        objective: of the run, with its slowdown limit.
        names: of its workloads.
    """
    name = objective.split(" ", 1)[0]
    told = [(stored.searched, 0)]
    if stored.known.repeats > 1:
        told.append((stored.known, stored.known.repeats))
    return [
        {
            "run": run,
            "number": stored.number,
            "trial": stored.number,
            "repeat": repeat,
            "confirming": repeat > 0,
            "cost": _finite(Objective(name).known(measurement)),
            "best": None,
            "unit": UNITS.get(name, ""),
            "joules": None,
            "expected": None,
            **_measured(stored.trial, measurement, names),
        }
        for measurement, repeat in told
    ]


def _measured(trial: Trial, measurement: Measurement, names: Sequence[str]) -> Mapping[str, Any]:
    """What was run, and what it gave."""
    energy = measurement.energy
    failed = next((result for result in measurement.results if result.status is not Status.OK), None)
    return {
        "status": measurement.status.value,
        "detail": "" if failed is None else failed.detail[:_LONGEST_DETAIL],
        "configurations": {
            name: dict(configuration)
            for name, configuration in zip(names, trial.configurations, strict=False)
        },
        "clock_set_mhz": trial.clock_mhz,
        "power_limit_w": trial.power_limit_w,
        "time_s": _finite(measurement.makespan_s),
        "time_s_uncertainty": _finite(measurement.makespan_uncertainty_s),
        "energy_j": None if energy is None else _finite(energy.joules),
        "energy_j_uncertainty": None if energy is None else _finite(energy.uncertainty_j),
        "watts": None if energy is None else _finite(energy.watts),
        "clock_mhz": measurement.clock_mhz,
        "modelled": measurement.modelled,
        "flags": [str(flag) for flag in measurement.flags],
    }


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
