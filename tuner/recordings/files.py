"""Recorded spaces on disk: a ZIP archive with one JSON document per space.

A document holds columns: one list per quantity, in the order of the trials; a quantity that is the same in
all trials is held once. ``tuner db export`` writes such files, and `docs/methodologies.md` lists the keys.
"""

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tuner.errors import InputError
from tuner.interfaces import Candidate
from tuner.launches import candidate, launch
from tuner.model import (
    Configuration,
    DeviceIdentity,
    DeviceLimits,
    Energy,
    Measurement,
    Status,
    Trial,
    Work,
    WorkloadResult,
)
from tuner.recordings.values import RecordedSpace, RecordedWorkload

FORMAT = "tuner-space"
VERSION = 1
_DATE = (1980, 1, 1, 0, 0, 0)  # of archive members: the same spaces give the same bytes
_RESULT = ("status", "time_s", "spread_s", "detail")
_MEASUREMENT = (
    *("makespan_s", "makespan_spread_s", "makespan_uncertainty_s", "bursts", "rounds", "window_s"),
    *("clock_mhz", "flags", "modelled", "check_s", "energy_total_j"),
)
_ENERGY = tuple(Energy.__dataclass_fields__)
_LAUNCH = ("blocks", "threads_per_block", "shared_bytes", "registers_per_thread", "resident")
_WORK = tuple(Work.__dataclass_fields__)


class RecordingFile:
    """An archive of recorded spaces; a space is read when it is asked for.

    Args:
        path: the file.

    Raises:
        InputError: it is no such archive.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                members = [name for name in archive.namelist() if name.endswith(".json")]
        except (OSError, zipfile.BadZipFile) as error:
            raise InputError(f"{path}: not a file of recorded spaces: {error}") from error
        self._members = {tuple(name.removesuffix(".json").split("+")): name for name in members}

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The names of the workloads of every space."""
        return tuple(self._members)

    def space(self, names: Sequence[str]) -> RecordedSpace:
        """The space of these workloads.

        Raises:
            InputError: there is none, or it cannot be read; the message names those there are.
        """
        member = self._members.get(tuple(names))
        if member is None:
            known = ", ".join("+".join(one) for one in self._members)
            raise InputError(f"{self.path}: no recorded space of {' + '.join(names)}; there are {known}")
        with zipfile.ZipFile(self.path) as archive:
            text = archive.read(member)
        try:
            return _space(json.loads(text))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(f"{self.path}: {member} is not readable: {error!r}") from error


def read(path: Path) -> list[RecordedSpace]:
    """All spaces of a file.

    Raises:
        InputError: it is no such file.
    """
    archive = RecordingFile(path)
    return [archive.space(names) for names in archive.names]


def write(path: Path, spaces: Iterable[RecordedSpace]) -> None:
    """Write spaces to a file; one that is there is replaced when all are written.

    Raises:
        OSError: the file cannot be written.
    """
    draft = path.with_name(path.name + ".part")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for space in spaces:
            member = zipfile.ZipInfo("+".join(space.names) + ".json", _DATE)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            archive.writestr(member, json.dumps(_document(space), separators=(",", ":")) + "\n")
    draft.replace(path)


# --- to JSON -------------------------------------------------------------------------------------


def _document(space: RecordedSpace) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "device": asdict(space.identity),
        "limits": None if space.limits is None else asdict(space.limits),
        "sensor": space.sensor,
        "provenance": dict(space.provenance),
        "workloads": [_workload_document(workload) for workload in space.workloads],
        "trials": _trials_document(space),
    }


def _workload_document(workload: RecordedWorkload) -> dict[str, Any]:
    stages = max((len(c.launches) for c in workload.candidates), default=0)
    columns: dict[str, Any] = {
        name: _packed([c.configuration[name] for c in workload.candidates]) for name in workload.tunables
    }
    return {
        "name": workload.name,
        "kernel": workload.kernel,
        "family": workload.family,
        "sizes": dict(workload.sizes),
        "batch": workload.batch,
        "fingerprint": workload.fingerprint,
        "tunables": {name: list(values) for name, values in workload.tunables.items()},
        "roles": dict(workload.roles),
        "default": dict(workload.default),
        "count": len(workload.candidates),
        "configurations": columns,
        "stages": [
            {name: _packed([_of_stage(c, number, name) for c in workload.candidates]) for name in _LAUNCH}
            for number in range(stages)
        ],
        "work": {
            name: _packed([None if c.work is None else getattr(c.work, name) for c in workload.candidates])
            for name in _WORK
        },
    }


def _of_stage(found: Candidate, number: int, name: str) -> Any:  # noqa: ANN401 - a number or None
    return getattr(found.launches[number], name) if number < len(found.launches) else None


def _trials_document(space: RecordedSpace) -> dict[str, Any]:
    places = [
        {c.configuration: place for place, c in enumerate(workload.candidates)}
        for workload in space.workloads
    ]
    trials, found = list(space.trials), list(space.trials.values())
    return {
        "count": len(trials),
        "at": [
            _packed([place[trial.configurations[lane]] for trial in trials])
            for lane, place in enumerate(places)
        ],
        "set_mhz": _packed([trial.clock_mhz for trial in trials]),
        "results": [
            {name: _packed([_plain(getattr(m.results[lane], name)) for m in found]) for name in _RESULT}
            for lane in range(len(places))
        ],
        **{name: _packed([_plain(getattr(m, name)) for m in found]) for name in _MEASUREMENT},
        "energy": {
            name: _packed([None if m.energy is None else getattr(m.energy, name) for m in found])
            for name in _ENERGY
        },
    }


def _plain(value: Any) -> Any:  # noqa: ANN401 - any field of a measurement
    if isinstance(value, Status):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _packed(values: Sequence[Any]) -> Any:  # noqa: ANN401 - a list, or what all of it is
    if values and all(type(v) is type(values[0]) and v == values[0] for v in values):
        return {"all": values[0]}
    return list(values)


# --- from JSON -----------------------------------------------------------------------------------


def _space(document: Mapping[str, Any]) -> RecordedSpace:
    if document.get("format") != FORMAT or document.get("version") != VERSION:
        found = f"{document.get('format')!r} version {document.get('version')!r}"
        raise ValueError(f"expected format {FORMAT!r} version {VERSION}, found {found}")
    limits = document["limits"]
    if limits is not None:
        limits = DeviceLimits(**{**limits, "compute_capability": tuple(limits["compute_capability"])})
    workloads = tuple(_workload(one, limits) for one in document["workloads"])
    return RecordedSpace(
        workloads=workloads,
        identity=DeviceIdentity(**document["device"]),
        limits=limits,
        trials=dict(_trials(document["trials"], workloads)),
        sensor=document["sensor"],
        provenance=document["provenance"],
    )


def _workload(document: Mapping[str, Any], limits: DeviceLimits | None) -> RecordedWorkload:
    count = document["count"]
    columns = {name: _column(values, count) for name, values in document["configurations"].items()}
    stages = [{name: _column(v, count) for name, v in stage.items()} for stage in document["stages"]]
    work = {name: _column(values, count) for name, values in document["work"].items()}
    found = []
    for place in range(count):
        configuration = Configuration(tuple((name, column[place]) for name, column in columns.items()))
        mine = [
            launch(limits, **{name: column[place] for name, column in stage.items()})
            for stage in stages
            if limits is not None and stage["blocks"][place] is not None
        ]
        one = (
            None if work["bytes"][place] is None else Work(**{n: column[place] for n, column in work.items()})
        )
        found.append(candidate(configuration, mine, document["roles"], work=one))
    return RecordedWorkload(
        name=document["name"],
        kernel=document["kernel"],
        family=document["family"],
        sizes=document["sizes"],
        batch=document["batch"],
        fingerprint=document["fingerprint"],
        tunables={name: tuple(values) for name, values in document["tunables"].items()},
        roles=document["roles"],
        default=Configuration(document["default"]),
        candidates=tuple(found),
    )


def _trials(
    document: Mapping[str, Any], workloads: Sequence[RecordedWorkload]
) -> Iterator[tuple[Trial, Measurement]]:
    count = document["count"]
    at = [_column(places, count) for places in document["at"]]
    set_mhz = _column(document["set_mhz"], count)
    results = [{name: _column(v, count) for name, v in lane.items()} for lane in document["results"]]
    columns = {name: _column(document[name], count) for name in _MEASUREMENT}
    energy = {name: _column(values, count) for name, values in document["energy"].items()}
    for row in range(count):
        chosen = tuple(
            workload.candidates[places[row]].configuration
            for workload, places in zip(workloads, at, strict=True)
        )
        fields = {name: column[row] for name, column in columns.items()}
        fields["flags"] = tuple(fields["flags"])
        yield (
            Trial(chosen, set_mhz[row]),
            Measurement(
                results=tuple(_result(lane, row) for lane in results),
                energy=_energy(energy, row),
                **fields,
            ),
        )


def _result(columns: Mapping[str, Sequence[Any]], row: int) -> WorkloadResult:
    fields = {name: column[row] for name, column in columns.items()}
    return WorkloadResult(**{**fields, "status": Status(fields["status"])})


def _energy(columns: Mapping[str, Sequence[Any]], row: int) -> Energy | None:
    if columns["joules"][row] is None:
        return None
    return Energy(**{name: column[row] for name, column in columns.items()})


def _column(values: Any, count: int) -> Sequence[Any]:  # noqa: ANN401 - as ``_packed`` gave it
    if isinstance(values, Mapping):
        return [values["all"]] * count
    if len(values) != count:
        raise ValueError(f"a column of {len(values)} values for {count} rows")
    return list(values)
