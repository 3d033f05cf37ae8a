"""A recorded space as a JSON document: written, and read with every value checked."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.plan import Configuration, TunableValue, Work
from tuner.model.trial import Energy, Flag, Measurement, Status, Trial, WorkloadResult
from tuner.recordings import checking
from tuner.recordings.checking import Kind, column, member, objects, one, table
from tuner.recordings.values import RecordedSpace, RecordedWorkload
from tuner.space.occupancy import candidate, launch
from tuner.space.search_view import Candidate, StageLaunch

# --- A recorded space as a JSON document: columns, one list per quantity, in the order of the trials.
#
# A quantity that is the same in every row is held once, as ``{"all": value}``.

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
    """The document of a space; ``space_of`` gives an equal space back.

    Kept are the quantities named above: compiled resources and the time at which a trial ended are not.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "device": {name: getattr(space.identity, name) for name in DEVICE},
        "limits": None if space.limits is None else asdict(space.limits),
        "sensor": space.sensor,
        "provenance": dict(space.provenance),
        "workloads": [_encoded_workload(workload) for workload in space.workloads],
        "trials": _encoded_trials(space),
    }


def _encoded_workload(workload: RecordedWorkload) -> dict[str, Any]:
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


def _encoded_trials(space: RecordedSpace) -> dict[str, Any]:
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


_LAUNCH: Mapping[str, Kind] = {
    "blocks": checking.COUNT,
    "threads_per_block": checking.SIZE,
    "shared_bytes": checking.COUNT,
    "registers_per_thread": checking.COUNT,
    "resident": checking.FLAG,
}
_WORK: Mapping[str, Kind] = {
    **dict.fromkeys(("bytes", "operations", "steps", "rate_units", "rate_scale"), checking.AMOUNT),
    "rate_name": checking.TEXT,
}
_ASSUMED: dict[str, Kind] = {"assumed": checking.FLAG}
_RESULT: dict[str, Kind] = {
    "status": checking.STATUS,
    "time_s": checking.POSITIVE,
    "spread_s": checking.AMOUNT,
    "detail": checking.TEXT,
}
_RESTORE: dict[str, Kind] = {"restore_s": checking.AMOUNT}
_MEASUREMENT: Mapping[str, Kind] = {
    "makespan_s": checking.POSITIVE,
    "makespan_spread_s": checking.AMOUNT,
    "makespan_uncertainty_s": checking.AMOUNT,
    "bursts": checking.SIZE,
    "rounds": checking.COUNT,
    "window_s": checking.AMOUNT,
    "clock_mhz": checking.POSITIVE,
    "flags": checking.TEXTS,
    "modelled": checking.FLAG,
    "check_s": checking.AMOUNT,
    "energy_total_j": checking.AMOUNT,
}
_ENERGY: dict[str, Kind] = {
    "joules": checking.POSITIVE,
    "uncertainty_j": checking.AMOUNT,
    "watts": checking.POSITIVE,
    "sensor": checking.TEXT,
    "scope": checking.TEXT,
    "degrees": checking.POSITIVE,
    "idle_watts": checking.NUMBER,
    "idle_uncertainty_w": checking.AMOUNT,
}
_OF_WINDOWS: dict[str, Kind] = {
    "window_uncertainty_j": checking.AMOUNT,
    "window_degrees": checking.POSITIVE,
}
_OPTIONAL = {"time_s", "makespan_s", "clock_mhz"}  # of failed trials, and where nothing tells the clock


def space_of(document: Any) -> RecordedSpace:  # noqa: ANN401 - whatever a file held
    """The space of a document.

    Raises:
        ValueError: it is no such document; the message names the key and what would be right.
    """
    found = member(document, "format", "document"), member(document, "version", "document")
    if found != (FORMAT, VERSION):
        raise ValueError(f"format {found[0]!r} version {found[1]!r}; expected {FORMAT!r} version {VERSION}")
    limits = _limits(member(document, "limits", "document"))
    listed = objects(document, "workloads", "document")
    if not listed:
        raise ValueError("document: workloads is empty; expected at least one")
    workloads = tuple(_workload(each, f"workloads[{i}]", limits) for i, each in enumerate(listed))
    names = [workload.name for workload in workloads]
    if len(set(names)) < len(names):
        raise ValueError(f"workloads: {', '.join(names)}; a co-run holds a workload once")
    return RecordedSpace(
        workloads=workloads,
        identity=_identity(table(document, "device", "document")),
        limits=limits,
        trials=_distinct(_trials(table(document, "trials", "document"), workloads)),
        sensor=one(document, "sensor", "document", checking.TEXT),
        provenance=table(document, "provenance", "document"),
    )


def _identity(fields: Mapping[str, Any]) -> DeviceIdentity:
    texts = {
        name: one(fields, name, "device", checking.TEXT)
        for name in ("spec", "name", "uuid", "driver", "runtime")
    }
    return DeviceIdentity(**texts, modelled=one(fields, "modelled", "device", checking.FLAG))


_MAY_BE_NOTHING = ("shared_reserved_bytes", "memory_bytes", "l2_bytes")  # others are divided by, or maxima


def _limits(fields: Any) -> DeviceLimits | None:  # noqa: ANN401 - any JSON value
    if fields is None:
        return None
    capability = objects(fields, "compute_capability", "limits")
    if len(capability) != 2 or not all(map(checking.COUNT.accepts, capability)):  # noqa: PLR2004 - major, minor
        raise ValueError(f"limits: compute_capability is {capability}; expected two whole numbers")
    names = [name for name in DeviceLimits.__dataclass_fields__ if name != "compute_capability"]
    kinds = dict.fromkeys(names, checking.SIZE) | dict.fromkeys(_MAY_BE_NOTHING, checking.COUNT)
    numbers = {name: one(fields, name, "limits", kinds[name]) for name in names}
    return DeviceLimits(compute_capability=(capability[0], capability[1]), **numbers)


# --- workloads -----------------------------------------------------------------------------------


def _workload(document: Any, where: str, limits: DeviceLimits | None) -> RecordedWorkload:  # noqa: ANN401
    tunables = _tunables(table(document, "tunables", where), where)
    ruled = document.get("roles", {}) is not None
    roles = table(document, "roles", where) if ruled else {}
    for role in roles:
        if one(roles, role, f"{where}.roles", checking.TEXT) not in tunables:
            raise ValueError(f"{where}.roles: {role} is {roles[role]!r}, which is none of the tunables")
    sizes = table(document, "sizes", where)
    candidates = _candidates(document, where, tunables, roles, limits)
    default = table(document, "default", where)
    always = {name for name in tunables if all(name in c.configuration for c in candidates)}
    if not always <= default.keys() <= tunables.keys():
        raise ValueError(f"{where}: default has {', '.join(default)}; expected {', '.join(tunables)}")
    return RecordedWorkload(
        name=one(document, "name", where, checking.NAME),
        kernel=one(document, "kernel", where, checking.NAME),
        family=one(document, "family", where, checking.TEXT),
        sizes={name: one(sizes, name, f"{where}.sizes", checking.PROBLEM) for name in sizes},
        batch=one(document, "batch", where, checking.SIZE),
        fingerprint=one(document, "fingerprint", where, checking.TEXT),
        tunables=tunables,
        roles=dict(roles) if ruled else None,
        default=Configuration(
            {name: one(default, name, f"{where}.default", checking.VALUE) for name in default}
        ),
        candidates=candidates,
    )


def _tunables(lists: Mapping[str, Any], where: str) -> dict[str, tuple[TunableValue, ...]]:
    if not lists:
        raise ValueError(f"{where}: tunables is empty; expected at least one")
    tunables = {}
    for name in lists:
        values = objects(lists, name, f"{where}.tunables")
        wrong = [value for value in values if not checking.VALUE.accepts(value)]
        if wrong or not values or len(set(values)) < len(values):
            raise ValueError(
                f"{where}.tunables: {name} is {checking.shown(values)}; expected different texts or numbers"
            )
        tunables[name] = tuple(values)
    return tunables


def _candidates(
    document: Mapping[str, Any],
    where: str,
    tunables: Mapping[str, tuple[TunableValue, ...]],
    roles: Mapping[str, str],
    limits: DeviceLimits | None,
) -> tuple[Candidate, ...]:
    count = _count(document, where)
    listed = table(document, "configurations", where)
    columns = {
        name: column(listed, name, f"{where}.configurations", count, checking.one_of(values), optional=True)
        for name, values in tunables.items()
    }
    stages = [
        {
            name: column(stage, name, f"{where}.stages[{i}]", count, kind, optional=True)
            for name, kind in _LAUNCH.items()
        }
        for i, stage in enumerate(objects(document, "stages", where))
    ]
    works = table(document, "work", where)
    kinds = {**_WORK, **(_ASSUMED if "assumed" in works else {})}
    work = {n: column(works, n, f"{where}.work", count, kind, optional=True) for n, kind in kinds.items()}
    found: dict[Configuration, Candidate] = {}
    for row in range(count):
        configuration = Configuration(
            [(name, values[row]) for name, values in columns.items() if values[row] is not None]
        )
        if configuration in found:
            raise ValueError(f"{where}.configurations: row {row} repeats {configuration}")
        mine = () if limits is None else _launches(limits, stages, row)
        found[configuration] = candidate(configuration, mine, roles, work=_work(work, row))
    return tuple(found.values())


def _launches(
    limits: DeviceLimits, stages: Sequence[Mapping[str, Sequence[Any]]], row: int
) -> tuple[StageLaunch, ...]:
    return tuple(
        launch(limits, **{name: values[row] for name, values in stage.items()})
        for stage in stages
        if all(values[row] is not None for values in stage.values())
    )


def _work(columns: Mapping[str, Sequence[Any]], row: int) -> Work | None:
    fields = {name: values[row] for name, values in columns.items()}
    return None if None in fields.values() else Work(**fields)


def _count(document: Mapping[str, Any], where: str) -> int:
    count: int = one(document, "count", where, checking.SIZE)
    if count > checking.MAX_ROWS:
        raise ValueError(f"{where}: count is {count}; at most {checking.MAX_ROWS} are read")
    return count


# --- trials --------------------------------------------------------------------------------------


def _distinct(pairs: Iterator[tuple[Trial, Measurement]]) -> dict[Trial, Measurement]:
    trials: dict[Trial, Measurement] = {}
    for row, (trial, measurement) in enumerate(pairs):
        if trial in trials:
            raise ValueError(f"trials: row {row} repeats an earlier trial")
        trials[trial] = measurement
    return trials


def _trials(
    document: Mapping[str, Any], workloads: Sequence[RecordedWorkload]
) -> Iterator[tuple[Trial, Measurement]]:
    count = _count(document, "trials")
    places, lanes = objects(document, "at", "trials"), objects(document, "results", "trials")
    if not len(places) == len(lanes) == len(workloads):
        raise ValueError(
            f"trials: at and results have {len(places)} and {len(lanes)} of {len(workloads)} workloads"
        )
    at = [
        column({"at": place}, "at", "trials", count, checking.place(len(workload.candidates)))
        for place, workload in zip(places, workloads, strict=True)
    ]
    set_mhz = column(document, "set_mhz", "trials", count, checking.SIZE, optional=True)
    set_w: Sequence[int | None] = [None] * count  # where no trial was made at a power limit of its own
    if "set_w" in document:
        set_w = column(document, "set_w", "trials", count, checking.SIZE, optional=True)
    results = [
        _columns(lane, f"trials.results[{i}]", count, _RESULT | (_RESTORE if "restore_s" in lane else {}))
        for i, lane in enumerate(lanes)
    ]
    columns = _columns(document, "trials", count, _MEASUREMENT)
    energies = table(document, "energy", "trials")
    energy = {
        n: column(energies, n, "trials.energy", count, kind, optional=True)
        for n, kind in (_ENERGY | {n: kind for n, kind in _OF_WINDOWS.items() if n in energies}).items()
    }
    for row in range(count):
        chosen = tuple(w.candidates[p[row]].configuration for w, p in zip(workloads, at, strict=True))
        yield Trial(chosen, set_mhz[row], set_w[row]), _measurement(columns, results, energy, row)


def _columns(
    document: Any,  # noqa: ANN401 - any JSON value
    where: str,
    count: int,
    kinds: Mapping[str, Kind],
) -> dict[str, Sequence[Any]]:
    return {
        name: column(document, name, where, count, kind, optional=name in _OPTIONAL)
        for name, kind in kinds.items()
    }


def _measurement(
    columns: Mapping[str, Sequence[Any]],
    results: Sequence[Mapping[str, Sequence[Any]]],
    energy: Mapping[str, Sequence[Any]],
    row: int,
) -> Measurement:
    fields = {field: columns[name][row] for name, field in MEASUREMENT.items()}
    measurement = Measurement(
        results=tuple(_result(lane, row) for lane in results),
        energy=_energy(energy, row),
        **{**fields, "flags": tuple(map(Flag.parse, fields["flags"]))},
    )
    if measurement.ok and measurement.makespan_s is None:
        raise ValueError(f"trials: makespan_s[{row}] is null although all workloads are ok")
    return measurement


def _result(columns: Mapping[str, Sequence[Any]], row: int) -> WorkloadResult:
    fields = {name: values[row] for name, values in columns.items()}
    status = Status(fields["status"])
    if status is Status.OK and fields["time_s"] is None:
        raise ValueError(f"trials.results: time_s[{row}] is null although the status is ok")
    return WorkloadResult(**{**fields, "status": status})


def _energy(columns: Mapping[str, Sequence[Any]], row: int) -> Energy | None:
    fields = {name: values[row] for name, values in columns.items()}
    if fields["joules"] is None:
        return None
    missing = [name for name in ("uncertainty_j", "watts", "sensor", "scope") if fields[name] is None]
    if missing:
        raise ValueError(f"trials.energy: {missing[0]}[{row}] is null although there are joules")
    return Energy(**fields)
