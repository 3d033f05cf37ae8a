"""The documents of the daemon: it makes them, and clients check them when they are read."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from typing import Any, TypedDict, TypeVar, get_type_hints

from tuner.model.jobs import Event, Job
from tuner.model.plan import TunableValue
from tuner.model.run_document import (
    AnswerTrial,
    Changes,
    Configurations,
    RunRow,
    SampleDocument,
    TrialDocument,
    WorkloadAnswer,
)
from tuner.model.typed import document as parsed
from tuner.model.typed import typed
from tuner.model.units import Amount, Count, Number, Positive

_Value = TypeVar("_Value")


class DeviceStatus(TypedDict, total=False):
    """A GPU of the daemon, its job, and what measuring on it has cost today; no budget is null."""

    spec: str
    name: str
    uuid: str
    driver: str
    runtime: str
    modelled: bool
    job: int | None
    holds: str
    spent_today_s: Number
    spent_today_j: Number
    budget_s: Number | None
    budget_j: Number | None


class Windows(TypedDict, total=False):
    """When tuning is allowed; ``summary`` is for people."""

    open: bool
    changes_at: str | None
    count: int
    summary: str


class UserDocument(TypedDict):
    """Jobs of a user, and seconds on devices lately, decayed."""

    name: str
    waiting: int
    running: int
    used_lately_s: Number


class HostDocument(TypedDict):
    """Cost of measuring on all devices together today; no budget is null."""

    spent_today_s: Number
    spent_today_j: Number
    budget_s: Number | None
    budget_j: Number | None


class Status(TypedDict, total=False):
    """State of the daemon."""

    version: str
    pid: int
    begun_at: str
    uptime_s: Number
    socket: str
    state_directory: str
    settings: str
    TCP: str
    followers: int
    host: HostDocument
    notices: list[str]
    troubles: list[str]
    not_understood: list[str]
    queue: dict[str, int]
    users: list[UserDocument]
    windows: Windows
    devices: list[DeviceStatus]


class PowerSample(TypedDict, total=False):
    """Power, clock and users of a device at one moment."""

    device: str
    at: str
    watts: Number | None
    clock_mhz: Number | None
    temperature_c: Number | None
    load_percent: Number | None
    processes: int | None
    others: int | None
    throttle_reasons: list[str]
    reading: str | None
    scope: str
    failure: str | None
    modelled: bool


class DevicePower(TypedDict):
    """The newest samples of a device, oldest first."""

    device: str
    samples: list[PowerSample]


class PowerDocument(TypedDict):
    """The newest samples of all devices."""

    interval_s: Number
    devices: list[DevicePower]


class TrialData(TypedDict, total=False):
    """A trial, or a contender's repeat, that has ended."""

    run: int | None
    number: int
    trial: int
    repeat: int
    confirming: bool
    cost: Number | None
    best: Number | None
    unit: str
    joules: Number | None
    expected: int | None
    status: str
    detail: str
    configurations: Configurations
    clock_set_mhz: Number | None
    power_limit_w: Number | None
    time_s: Positive | None
    time_s_uncertainty: Amount | None
    energy_j: Amount | None
    energy_j_uncertainty: Amount | None
    watts: Number | None
    clock_mhz: Number | None
    modelled: bool
    flags: list[str]


class _StateData(TypedDict, total=False):
    state: str
    reason: str


class _BeginData(TypedDict, total=False):
    instance: str
    resumed: bool


class _RunData(TypedDict, total=False):
    run: int | None
    resumed: Count


class _CompiledData(TypedDict, total=False):
    done: int
    total: int


class _ToldData(TypedDict, total=False):
    sentence: str


class _TroubleData(TypedDict, total=False):
    message: str


_DATA: dict[str, Any] = {
    "begin": _BeginData,
    "compiled": _CompiledData,
    "device": DeviceStatus,
    "power": PowerSample,
    "run": _RunData,
    "state": _StateData,
    "status": Status,
    "told": _ToldData,
    "trial": TrialData,
    "trouble": _TroubleData,
}
"""Kinds of events whose data is read, and what it holds."""


class Saving(TypedDict):
    """Joules that one use of an answer saves, with half of their 95 % interval."""

    energy_j: Number
    energy_j_interval: Amount


class ServedWorkload(TypedDict):
    """A workload of an answer that is served."""

    batch: int
    configuration: dict[str, TunableValue]


class _ServedAnswer(TypedDict):
    run: int
    at: str
    device: str
    modelled: bool
    objective: str
    workloads: dict[str, ServedWorkload]
    clock_mhz: int | None
    power_limit_w: int | None
    stale: list[str]
    best: AnswerTrial
    against_default: Changes | None
    saving: Saving | None


class ServedAnswer(_ServedAnswer, total=False):
    """An answer that is served, as ``/v1/answers`` has it."""

    status: str
    device_name: str
    default: AnswerTrial | None
    sampled_at: str | None
    sample: str | None


class HistoryRow(RunRow):
    """An answer at a time: its run, what it was bound to, and its samples."""

    driver: str | None
    runtime: str | None
    uuid: str | None
    name: str | None
    against_default: Changes | None
    saving: Saving | None
    samples: list[SampleDocument]


class _TrialPage(TypedDict):
    trials: list[TrialDocument]
    next: int | None


class TrialPage(_TrialPage, total=False):
    """A page of trials; ``next`` is the number after which the next one begins."""

    run: int
    modelled: bool
    count: int


class _JobOptions(TypedDict, total=False):
    max_slowdown: Number | None


@dataclass(frozen=True)
class Use:
    """Uses of an answer, reported to the daemon, which tunes the most used first.

    Attributes:
        workloads: what was asked for, as are the next four.
        device: empty for the daemon's first.
        count: how often it was used since the last telling.
    """

    workloads: tuple[str, ...]
    objective: str = "time"
    device: str = ""
    max_slowdown: float | None = None
    clocks_as_found: bool = False
    count: float = 1.0


def read(kind: type[_Value], document: object) -> _Value:
    """A value of the class from a JSON object; keys that the class lacks are those of a newer daemon.

    Raises:
        ValueError: a field is missing or has another type; the message names it.
    """
    if not isinstance(document, dict):
        raise ValueError(f"{kind.__name__} is an object, not {document!r:.60}")  # noqa: TRY004 - garbage
    hints = get_type_hints(kind, include_extras=True)
    values = {}
    for field in fields(kind):  # type: ignore[arg-type]  # the classes of this module
        if field.name in document:
            values[field.name] = _field(field.name, hints[field.name], document[field.name])
        elif field.default is MISSING:
            raise ValueError(f"{kind.__name__} without {field.name}")
    return kind(**values)


def _field(name: str, hint: Any, value: object) -> object:  # noqa: ANN401 - what annotations are
    """The value as the annotation has it."""
    if hint == Mapping[str, WorkloadAnswer] and isinstance(value, dict):
        return {workload: read(WorkloadAnswer, placed) for workload, placed in value.items()}
    if isinstance(hint, type) and issubclass(hint, Enum):
        hint |= str  # a newer daemon may have further states and origins, which are shown as they are
    checked = typed(hint, value, name)
    return float(checked) if hint is float else checked


def read_job(document: object) -> Job:
    """A job of the daemon.

    Raises:
        ValueError: as ``read``.
    """
    job = read(Job, document)
    typed(_JobOptions, job.options, "options")
    return job


def read_event(text: str) -> Event:
    """An event of a stream.

    Raises:
        ValueError: as ``read``; the data of a kind that is not known here is left alone.
    """
    event = read(Event, parsed(text))
    typed(_DATA.get(event.kind, Mapping[str, Any]), event.data, event.kind)
    return event
