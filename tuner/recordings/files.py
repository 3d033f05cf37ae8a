"""Recorded spaces on disk and by name: a ZIP archive with one JSON document per space.

``tuner db export`` writes such files, and ``docs/recordings.md`` lists the keys.
"""

import json
import logging
import os
import zipfile
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypedDict

from tuner.model.errors import InputError
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.plan import Configuration, TunableValue, Work
from tuner.model.records import WorkloadName
from tuner.model.trial import Energy, Flag, Measurement, Status, Trial, WorkloadResult
from tuner.recordings import checking
from tuner.recordings.checking import NAME, Fields, Kind
from tuner.recordings.other_tuners import LEFT_OUT, OneSpace, read_cache, read_npz
from tuner.recordings.values import RecordedSpace, RecordedWorkload
from tuner.space.occupancy import candidate, launch
from tuner.space.search_view import Candidate
from tuner.system.ownership import open_result
from tuner.system.untrusted.archives import member_of, open_zip
from tuner.system.untrusted.reading import load_json

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


PackedColumn = list[Any] | dict[Literal["all"], Any]
"""A value per row; or the one that all have."""
_Trials = dict[
    str, int | PackedColumn | list[PackedColumn] | dict[str, PackedColumn] | list[dict[str, PackedColumn]]
]


class _WorkloadDocument(TypedDict):
    name: str
    kernel: str
    family: str
    sizes: dict[str, int | str]
    batch: int
    fingerprint: str
    tunables: dict[str, list[TunableValue]]
    roles: dict[str, str] | None
    default: dict[str, TunableValue]
    count: int
    configurations: dict[str, PackedColumn]
    stages: list[dict[str, PackedColumn]]
    work: dict[str, PackedColumn]


class SpaceDocument(TypedDict):
    """A recorded space as JSON has it."""

    format: str
    version: int
    device: dict[str, str | bool]
    limits: dict[str, int | tuple[int, int]] | None
    sensor: str
    provenance: Mapping[str, Any]
    workloads: list[_WorkloadDocument]
    trials: _Trials


def document(space: RecordedSpace) -> SpaceDocument:
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


def _encoded_workload(workload: RecordedWorkload) -> _WorkloadDocument:
    candidates = workload.candidates
    launches = [c.launches for c in candidates]
    works = [c.work for c in candidates]
    assumed = any(work is not None and work.assumed for work in works)
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
        "count": len(candidates),
        "configurations": {
            name: _packed([c.configuration.get(name) for c in candidates])  # null is no value
            for name in workload.tunables
        },
        "stages": [
            {
                name: _packed([getattr(stages[i], name) if i < len(stages) else None for stages in launches])
                for name in LAUNCH
            }
            for i in range(max(map(len, launches), default=0))
        ],
        "work": {
            name: _packed([None if work is None else getattr(work, name) for work in works])
            for name in (*WORK, *([ASSUMED] if assumed else []))
        },
    }


def _encoded_trials(space: RecordedSpace) -> _Trials:
    positions = [
        {c.configuration: position for position, c in enumerate(workload.candidates)}
        for workload in space.workloads
    ]
    trials, measured = list(space.trials), list(space.trials.values())
    lanes = [[m.results[lane] for m in measured] for lane in range(len(positions))]
    energies = [m.energy for m in measured]
    # Uncertainties of the windows are there where those beside them are about minutes.
    of_windows = any(energy is not None and energy.window_uncertainty_j is not None for energy in energies)
    limited = any(trial.power_limit_w is not None for trial in trials)
    return {
        "count": len(trials),
        "at": [
            _packed([position[trial.configurations[lane]] for trial in trials])
            for lane, position in enumerate(positions)
        ],
        "set_mhz": _packed([trial.clock_mhz for trial in trials]),
        **({"set_w": _packed([trial.power_limit_w for trial in trials])} if limited else {}),
        "results": [
            {
                name: _packed([_plain(getattr(result, name)) for result in lane])
                for name in (*RESULT, *([RESTORE] if any(result.restore_s for result in lane) else []))
            }
            for lane in lanes
        ],
        **{
            name: _packed([_plain(getattr(m, field)) for m in measured])
            for name, field in MEASUREMENT.items()
        },
        "energy": {
            name: _packed([None if energy is None else getattr(energy, name) for energy in energies])
            for name in ENERGY
            if of_windows or not name.startswith("window_")
        },
    }


def _plain(value: Any) -> Any:  # noqa: ANN401 - any field of a measurement
    if isinstance(value, Status):
        return value.value
    return [str(flag) for flag in value] if isinstance(value, tuple) else value


def _packed(values: list[Any]) -> PackedColumn:
    if values and all(type(v) is type(values[0]) and v == values[0] for v in values):
        return {"all": values[0]}
    return values


_LAUNCH: dict[str, Kind] = {
    "blocks": checking.COUNT,
    "threads_per_block": checking.SIZE,
    "shared_bytes": checking.COUNT,
    "registers_per_thread": checking.COUNT,
    "resident": checking.FLAG,
}
_WORK: dict[str, Kind] = {
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
_OF_WINDOWS: dict[str, Kind] = {"window_uncertainty_j": checking.AMOUNT, "window_degrees": checking.POSITIVE}
Columns = Mapping[str, Sequence[Any]]
"""By name a value per row."""

_OPTIONAL = {"time_s", "makespan_s", "clock_mhz"}  # of failed trials, and where nothing tells the clock


def space_of(document: object) -> RecordedSpace:
    """The space of a document, whatever a file held.

    Raises:
        ValueError: it is no such document; the message names the key and what would be right.
    """
    fields = Fields(document, "document")
    form = fields["format"], fields["version"]
    if form != (FORMAT, VERSION):
        raise ValueError(f"format {form[0]!r} version {form[1]!r}; expected {FORMAT!r} version {VERSION}")
    limits = None if fields["limits"] is None else _limits(Fields(fields["limits"], "limits"))
    listed = fields.entries("workloads")
    if not listed:
        raise ValueError("document: workloads is empty; expected at least one")
    workloads = tuple(_workload(Fields(each, f"workloads[{i}]"), limits) for i, each in enumerate(listed))
    names = [workload.name for workload in workloads]
    if len(set(names)) < len(names):
        raise ValueError(f"workloads: {', '.join(names)}; a co-run holds a workload once")
    device = fields.fields("device", "device")
    texts = {name: device.value(name, checking.TEXT) for name in DEVICE if name != "modelled"}
    return RecordedSpace(
        workloads=workloads,
        identity=DeviceIdentity(**texts, modelled=device.value("modelled", checking.FLAG)),
        limits=limits,
        trials=_trials(fields.fields("trials", "trials"), workloads),
        sensor=fields.value("sensor", checking.TEXT),
        provenance=fields.fields("provenance").raw,
    )


_MAY_BE_NOTHING = ("shared_reserved_bytes", "memory_bytes", "l2_bytes")  # others are divided by, or maxima


def _limits(fields: Fields) -> DeviceLimits:
    capability = fields.entries("compute_capability")
    if len(capability) != 2 or not all(map(checking.COUNT.accepts, capability)):  # noqa: PLR2004 - major, minor
        raise ValueError(f"limits: compute_capability is {capability}; expected two whole numbers")
    names = [name for name in DeviceLimits.__dataclass_fields__ if name != "compute_capability"]
    kinds = dict.fromkeys(names, checking.SIZE) | dict.fromkeys(_MAY_BE_NOTHING, checking.COUNT)
    numbers = {name: fields.value(name, kinds[name]) for name in names}
    return DeviceLimits(compute_capability=(capability[0], capability[1]), **numbers)


# --- workloads -----------------------------------------------------------------------------------


def _workload(fields: Fields, limits: DeviceLimits | None) -> RecordedWorkload:
    tunables = _tunables(fields)
    roles: dict[str, str] | None = None
    if fields.get("roles", {}) is not None:
        named = fields.fields("roles")
        roles = {role: named.value(role, checking.TEXT) for role in named}
        for role, tunable in roles.items():
            if tunable not in tunables:
                raise ValueError(f"{named.where}: {role} is {tunable!r}, which is none of the tunables")
    sizes = fields.fields("sizes")
    candidates = _candidates(fields, tunables, roles or {}, limits)
    default = fields.fields("default")
    always = {name for name in tunables if all(name in c.configuration for c in candidates)}
    if not always <= default.raw.keys() <= tunables.keys():
        raise ValueError(f"{fields.where}: default has {', '.join(default)}; expected {', '.join(tunables)}")
    return RecordedWorkload(
        name=fields.value("name", checking.NAME),
        kernel=fields.value("kernel", checking.NAME),
        family=fields.value("family", checking.TEXT),
        sizes={name: sizes.value(name, checking.PROBLEM) for name in sizes},
        batch=fields.value("batch", checking.SIZE),
        fingerprint=fields.value("fingerprint", checking.TEXT),
        tunables=tunables,
        roles=roles,
        default=Configuration({name: default.value(name, checking.VALUE) for name in default}),
        candidates=candidates,
    )


def _tunables(workload: Fields) -> dict[str, tuple[TunableValue, ...]]:
    lists = workload.fields("tunables")
    if not lists.raw:
        raise ValueError(f"{workload.where}: tunables is empty; expected at least one")
    tunables = {}
    for name in lists:
        values = lists.entries(name)
        wrong = [value for value in values if not checking.VALUE.accepts(value)]
        if wrong or not values or len(set(values)) < len(values):
            raise ValueError(
                f"{lists.where}: {name} is {checking.shown(values)}; expected different texts or numbers"
            )
        tunables[name] = tuple(values)
    return tunables


def _candidates(
    workload: Fields,
    tunables: Mapping[str, tuple[TunableValue, ...]],
    roles: Mapping[str, str],
    limits: DeviceLimits | None,
) -> tuple[Candidate, ...]:
    count = _count(workload)
    listed = workload.fields("configurations")
    columns = {
        name: listed.column(name, count, checking.one_of(values), optional=True)
        for name, values in tunables.items()
    }
    stages = [
        _columns(Fields(stage, f"{workload.where}.stages[{i}]"), count, _LAUNCH, optional=_LAUNCH)
        for i, stage in enumerate(workload.entries("stages"))
    ]
    works = workload.fields("work")
    kinds = _WORK | (_ASSUMED if "assumed" in works else {})
    work = _columns(works, count, kinds, optional=kinds)
    candidates: dict[Configuration, Candidate] = {}
    for row in range(count):
        configuration = Configuration(
            [(name, value) for name, value in _row(columns, row).items() if value is not None]
        )
        if configuration in candidates:
            raise ValueError(f"{listed.where}: row {row} repeats {configuration}")
        launched = [_row(stage, row) for stage in stages] if limits is not None else []
        launches = tuple(
            launch(limits, **stage) for stage in launched if limits and None not in stage.values()
        )
        worked = _row(work, row)
        candidates[configuration] = candidate(
            configuration, launches, roles, work=None if None in worked.values() else Work(**worked)
        )
    return tuple(candidates.values())


def _count(fields: Fields) -> int:
    count: int = fields.value("count", checking.SIZE)
    if count > checking.MAX_ROWS:
        raise ValueError(f"{fields.where}: count is {count}; at most {checking.MAX_ROWS} are read")
    return count


def _columns(
    fields: Fields, count: int, kinds: Mapping[str, Kind], optional: Collection[str] = _OPTIONAL
) -> Columns:
    return {name: fields.column(name, count, kind, optional=name in optional) for name, kind in kinds.items()}


def _row(columns: Columns, row: int) -> dict[str, Any]:
    return {name: values[row] for name, values in columns.items()}


# --- trials --------------------------------------------------------------------------------------


def _trials(fields: Fields, workloads: Sequence[RecordedWorkload]) -> dict[Trial, Measurement]:
    count = _count(fields)
    positions, lanes = fields.entries("at"), fields.entries("results")
    if not len(positions) == len(lanes) == len(workloads):
        raise ValueError(
            f"trials: at and results have {len(positions)} and {len(lanes)} of {len(workloads)} workloads"
        )
    at = [
        Fields({"at": each}, "trials").column("at", count, checking.place(len(workload.candidates)))
        for each, workload in zip(positions, workloads, strict=True)
    ]
    set_mhz = fields.column("set_mhz", count, checking.SIZE, optional=True)
    set_w: Sequence[int | None] = [None] * count  # where no trial was made at a power limit of its own
    if "set_w" in fields:
        set_w = fields.column("set_w", count, checking.SIZE, optional=True)
    results = []
    for i, lane in enumerate(lanes):
        result = Fields(lane, f"trials.results[{i}]")
        results.append(_columns(result, count, _RESULT | (_RESTORE if "restore_s" in result else {})))
    columns = _columns(fields, count, _MEASUREMENT)
    energies = fields.fields("energy")
    kinds = _ENERGY | {name: kind for name, kind in _OF_WINDOWS.items() if name in energies}
    energy = _columns(energies, count, kinds, optional=kinds)
    trials: dict[Trial, Measurement] = {}
    for row in range(count):
        chosen = tuple(w.candidates[p[row]].configuration for w, p in zip(workloads, at, strict=True))
        trial = Trial(chosen, set_mhz[row], set_w[row])
        measurement = _measurement(columns, results, energy, row)
        if trial in trials:
            raise ValueError(f"trials: row {row} repeats an earlier trial")
        trials[trial] = measurement
    return trials


def _measurement(columns: Columns, results: Sequence[Columns], energy: Columns, row: int) -> Measurement:
    values = {field: columns[name][row] for name, field in MEASUREMENT.items()}
    measurement = Measurement(
        results=tuple(_result(lane, row) for lane in results),
        energy=_energy(energy, row),
        **{**values, "flags": tuple(map(Flag.parse, values["flags"]))},
    )
    if measurement.ok and measurement.makespan_s is None:
        raise ValueError(f"trials: makespan_s[{row}] is null although all workloads are ok")
    return measurement


def _result(columns: Columns, row: int) -> WorkloadResult:
    values = _row(columns, row)
    status = Status(values["status"])
    if status is Status.OK and values["time_s"] is None:
        raise ValueError(f"trials.results: time_s[{row}] is null although the status is ok")
    return WorkloadResult(**{**values, "status": status})


def _energy(columns: Columns, row: int) -> Energy | None:
    values = _row(columns, row)
    if values["joules"] is None:
        return None
    missing = [name for name in ("uncertainty_j", "watts", "sensor", "scope") if values[name] is None]
    if missing:
        raise ValueError(f"trials.energy: {missing[0]}[{row}] is null although there are joules")
    return Energy(**values)


# --- Archives, and spaces by name.

_DATE = (1980, 1, 1, 0, 0, 0)  # of archive members: the same spaces give the same bytes
_JOINT = "+"  # between names of workloads measured together, in the name of a member
_SUFFIX = ".json"
_UNREADABLE = (  # what a damaged, encrypted, strangely packed or missing member raises
    *(OSError, EOFError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, KeyError),  # a key: the file was replaced since it was opened
)


class RecordingFile:
    """An archive of recorded spaces; a space is read when it is asked for.

    Raises:
        InputError: it is no such archive, or holds no space.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open_zip(path) as archive:
                members = [name for name in archive.namelist() if name.endswith(_SUFFIX)]
        except (OSError, zipfile.BadZipFile, ValueError) as error:
            raise InputError(f"{path}: not a file of recorded spaces: {error}") from error
        self._members = {tuple(name.removesuffix(_SUFFIX).split(_JOINT)): name for name in members}
        if not self._members:
            raise InputError(f"{path}: no recorded space is in it; expected members *{_SUFFIX}")
        if len(self._members) < len(members):
            raise InputError(f"{path}: a recorded space is in it twice")

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
            names_listed = ", ".join(map(_JOINT.join, self._members))
            raise InputError(
                f"{self.path}: no recorded space of {' + '.join(names)}; there are {names_listed}"
            )
        try:
            space = space_of(load_json(self._text(member)))
        except ValueError as error:
            raise InputError(f"{self.path}: {member}: {error}") from error
        if space.names != tuple(names):
            raise InputError(
                f"{self.path}: {member}: holds {' + '.join(space.names)}, which is not what its name says"
            )
        return space

    def sensor(self, names: Sequence[str]) -> str:
        """The reading that the joules of a space came from; empty where there are none, or it is damaged."""
        try:
            document = load_json(self._text(self._members[tuple(names)]))
        except ValueError:  # of this tree, too: a damaged neighbour hides no other space
            return ""
        sensor = document.get("sensor") if isinstance(document, dict) else None
        return sensor if isinstance(sensor, str) else ""

    def _text(self, member: str) -> bytes:
        try:
            with open_zip(self.path) as archive:  # as long as the directory says, and no longer
                return member_of(archive, member)
        except _UNREADABLE as error:
            raise ValueError(f"cannot be read: {error}") from error


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
        InputError: a space is given twice, has no trial, or has a name that no member can have; a device or
            a pipe is there.
        OSError: the file cannot be written.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is a device or a pipe; name a file")
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")  # two may write the same file at once
    written: set[tuple[str, ...]] = set()
    try:
        with (
            open_result(draft, "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        ):
            for space in spaces:
                _check(space, written)
                written.add(space.names)
                member = zipfile.ZipInfo(_JOINT.join(space.names) + _SUFFIX, _DATE)
                member.compress_type = zipfile.ZIP_DEFLATED
                member.external_attr = 0o644 << 16
                text = json.dumps(document(space), separators=(",", ":"), allow_nan=False)
                archive.writestr(member, text + "\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _check(space: RecordedSpace, written: set[tuple[str, ...]]) -> None:
    words = " + ".join(space.names)
    if space.names in written:
        raise InputError(f"{words}: given twice; a file holds a space once")
    if any(sign in name for name in space.names for sign in (_JOINT, "/", "\\")):
        raise InputError(f"{words}: a workload's name in a file has no {_JOINT}, / or \\")
    if len(set(space.names)) < len(space.names) or not all(map(NAME.accepts, space.names)):
        raise InputError(f"{words!r}: workloads of a file have different names that can be printed")
    if not space.trials:
        raise InputError(f"{words}: no trial was recorded")


# --- Recorded spaces by name: those that come with the package, and files of this and of other tuners.

_LOG = logging.getLogger(__name__)

SHIPPED = ("h200", "h200-applications", "h100")
_NPZ_MEMBER = "meta.npy"  # every NumPy archive of a recorded space has it

RecordedSpaces = RecordingFile | OneSpace


def open_recording(spec: str | Path) -> RecordedSpaces:
    """Open recorded spaces.

    Args:
        spec: one of ``SHIPPED``, which come with the package, or a file: an archive of ``tuner db export``, a
            simulation cache of Kernel Tuner (JSON), or a NumPy archive (.npz) of such a cache.

    Raises:
        InputError: there is no such file, or it is none of these; the message names it.
    """
    if isinstance(spec, str) and spec in SHIPPED:
        return RecordingFile(Path(str(files("tuner.recordings"))) / f"{spec}.zip")
    path = Path(spec)
    if not str(spec):
        raise InputError(f"no recording is named; name a file of recorded spaces, or {', '.join(SHIPPED)}")
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "there is no such file"
        raise InputError(f"{path}: {what}; name a file of recorded spaces, or {', '.join(SHIPPED)}")
    if not _is_zip(path):
        space = read_cache(path)
        for sentence in space.provenance.get(LEFT_OUT, ()):
            _LOG.warning("%s: left out: %s", path, sentence)
        return OneSpace(path, space)
    return OneSpace(path, read_npz(path)) if _is_npz(path) else RecordingFile(path)


def matching(recording: RecordedSpaces, workloads: Sequence[str]) -> tuple[str, ...]:
    """The recorded names of the requested space.

    Args:
        recording: the file.
        workloads: in any order; none means the space of most workloads, which must be a single one.

    Raises:
        InputError: there is no such space, or several might be meant; the message lists them.
    """
    names_listed = listed(recording.names, " + ")
    if workloads:
        requested = _spaceless(workloads)
        for names in recording.names:
            if _spaceless(names) == requested:
                return names
        raise InputError(
            f"{recording.path}: {' + '.join(workloads)} was not recorded; there are {names_listed}"
        )
    most = max(map(len, recording.names))
    largest = [names for names in recording.names if len(names) == most]
    if len(largest) > 1:
        raise InputError(f"{recording.path}: name one of its workloads: {names_listed}")
    return largest[0]


def listed(spaces: Iterable[Sequence[str]], together: str) -> str:
    """Spaces as a message names them: the sizes of a kernel side by side, as there may be dozens.

    Args:
        spaces: names of the workloads of each.
        together: what stands between workloads that run together.
    """
    alone: dict[str, list[str]] = {}
    joint = []
    for names in spaces:
        if len(names) == 1:
            name = WorkloadName.parse(names[0])
            alone.setdefault(name.kernel, []).append(name.sizes_text)
        else:
            joint.append(together.join(names))
    single = [f"{kernel}:{', '.join(sizes)}" if any(sizes) else kernel for kernel, sizes in alone.items()]
    return "; ".join([*single, *joint])


def _spaceless(names: Sequence[str]) -> list[str]:
    """Names as they are compared: in any order, whatever spaces are in them."""
    return sorted(name.replace(" ", "") for name in names)


def _is_zip(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(2) == b"PK"
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _is_npz(path: Path) -> bool:
    try:
        with open_zip(path) as archive:
            return path.suffix == ".npz" or _NPZ_MEMBER in archive.namelist()
    except (OSError, zipfile.BadZipFile, ValueError):
        return False  # the reader of own archives says what is wrong with it
