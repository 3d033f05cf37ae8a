"""A recorded space as a JSON document: columns, one list per quantity, in the order of the trials.

A quantity that is the same in every row is held once, as ``{"all": value}``.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tuner.model.plan import Work
from tuner.model.trial import Energy, Measurement, Status
from tuner.recordings.values import RecordedSpace, RecordedWorkload
from tuner.space.search_view import Candidate

FORMAT = "tuner-space"
VERSION = 1
RESULT = ("status", "time_s", "spread_s", "detail")
RESTORE = "restore_s"
_SAME_NAME = ("rounds", "window_s", "clock_mhz", "flags", "modelled", "check_s", "energy_total_j")
MEASUREMENT = {
    "makespan_s": "makespan_s",
    "makespan_spread_s": "makespan_spread_s",
    "makespan_uncertainty_s": "makespan_uncertainty_s",
    "bursts": "repeats",
    **{name: name for name in _SAME_NAME},
}
"""Columns of the document, with the field of a measurement that each holds."""
ENERGY = tuple(Energy.__dataclass_fields__)
DEVICE = ("spec", "name", "uuid", "driver", "runtime", "modelled")
LAUNCH = ("blocks", "threads_per_block", "shared_bytes", "registers_per_thread", "resident")
ASSUMED = "assumed"
WORK = tuple(name for name in Work.__dataclass_fields__ if name != ASSUMED)


def document(space: RecordedSpace) -> dict[str, Any]:
    """The document of a space; ``decoding.space_of`` gives an equal space back.

    Kept are the quantities named above: compiled resources and the time at which a trial ended are not.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "device": {name: getattr(space.identity, name) for name in DEVICE},
        "limits": None if space.limits is None else asdict(space.limits),
        "sensor": space.sensor,
        "provenance": dict(space.provenance),
        "workloads": [_workload(workload) for workload in space.workloads],
        "trials": _trials(space),
    }


def _workload(workload: RecordedWorkload) -> dict[str, Any]:
    stages = max((len(c.launches) for c in workload.candidates), default=0)
    columns: dict[str, Any] = {
        name: _packed([c.configuration.get(name) for c in workload.candidates])  # null is no value
        for name in workload.tunables
    }
    return {
        "name": workload.name,
        "kernel": workload.kernel,
        "family": workload.family,
        "sizes": dict(workload.sizes),
        "batch": workload.batch,
        "fingerprint": workload.fingerprint,
        "tunables": {name: list(values) for name, values in workload.tunables.items()},
        "roles": None if workload.roles is None else dict(workload.roles),
        "default": dict(workload.default),
        "count": len(workload.candidates),
        "configurations": columns,
        "stages": [
            {name: _packed([_of_stage(c, number, name) for c in workload.candidates]) for name in LAUNCH}
            for number in range(stages)
        ],
        "work": {
            name: _packed([None if c.work is None else getattr(c.work, name) for c in workload.candidates])
            for name in _stated(workload)
        },
    }


def _stated(workload: RecordedWorkload) -> tuple[str, ...]:
    """The columns of a workload's work; whether it is assumed where it is of any configuration."""
    assumed = any(c.work is not None and c.work.assumed for c in workload.candidates)
    return (*WORK, ASSUMED) if assumed else WORK


def _of_stage(found: Candidate, number: int, name: str) -> Any:  # noqa: ANN401 - a number or None
    return getattr(found.launches[number], name) if number < len(found.launches) else None


def _trials(space: RecordedSpace) -> dict[str, Any]:
    places = [
        {c.configuration: place for place, c in enumerate(workload.candidates)}
        for workload in space.workloads
    ]
    trials, found = list(space.trials), list(space.trials.values())
    limited = any(trial.power_limit_w is not None for trial in trials)
    return {
        "count": len(trials),
        "at": [
            _packed([place[trial.configurations[lane]] for trial in trials])
            for lane, place in enumerate(places)
        ],
        "set_mhz": _packed([trial.clock_mhz for trial in trials]),
        **({"set_w": _packed([trial.power_limit_w for trial in trials])} if limited else {}),
        "results": [
            {
                name: _packed([_plain(getattr(m.results[lane], name)) for m in found])
                for name in _told(found, lane)
            }
            for lane in range(len(places))
        ],
        **{name: _packed([_plain(getattr(m, field)) for m in found]) for name, field in MEASUREMENT.items()},
        "energy": {
            name: _packed([None if m.energy is None else getattr(m.energy, name) for m in found])
            for name in _energy_told(found)
        },
    }


def _energy_told(found: Sequence[Measurement]) -> tuple[str, ...]:
    """The columns of energies; uncertainties of the windows where those beside them are about minutes."""
    of_windows = any(m.energy is not None and m.energy.window_uncertainty_j is not None for m in found)
    return ENERGY if of_windows else tuple(name for name in ENERGY if not name.startswith("window_"))


def _told(found: Sequence[Measurement], lane: int) -> tuple[str, ...]:
    """The columns of a workload's results; the time of restoring arrays where it took any."""
    return (*RESULT, RESTORE) if any(m.results[lane].restore_s for m in found) else RESULT


def _plain(value: Any) -> Any:  # noqa: ANN401 - any field of a measurement
    if isinstance(value, Status):
        return value.value
    return [str(flag) for flag in value] if isinstance(value, tuple) else value


def _packed(values: Sequence[Any]) -> Any:  # noqa: ANN401 - a list, or what all of it is
    if values and all(type(v) is type(values[0]) and v == values[0] for v in values):
        return {"all": values[0]}
    return list(values)
