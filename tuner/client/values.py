"""The daemon's answers as plain values, checked when they are read."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from tuner.model import TunableValue
from tuner.model.jobs import JobState

_Value = TypeVar("_Value")
_ENDED = frozenset(state.value for state in JobState if state.ended)


def is_ended(state: object) -> bool:
    """True for the name of a state after which nothing happens any more."""
    return isinstance(state, str) and state in _ENDED


@dataclass(frozen=True)
class Job:
    """A job of the daemon.

    Attributes:
        id: counts up from 1.
        kind: ``tune``, or ``sample`` for measuring a served configuration again.
        device: where it runs or has run; before, what it asks for.
        workloads: that run together.
        options: further choices, by name.
        origin: who asked: ``client``, ``set``, ``stale``, ``drift``, ``request``, ``check``.
        priority: of one user's jobs that may run, the highest goes first.
        state: ``queued``, ``running``, ``paused``, ``finished``, ``failed`` or ``cancelled``.
        reason: why it is in its state, for people.
        run: its run in the database; None before the first trial.
        attempts: how often it was started.
        trials: trials stored for it.
        submitter: user id of the client; None for the daemon itself.
        created_at: UTC, ISO 8601, as are the others.
        wanted_device: where it may run, as it was asked for; empty for any device.
        gpu: UUID of the GPU that its run is measured on; empty before it has one.
    """

    id: int
    kind: str
    device: str
    workloads: tuple[str, ...]
    objective: str
    policy: str
    clocks: str
    options: Mapping[str, Any]
    origin: str
    priority: float
    state: str
    reason: str
    run: int | None
    attempts: int
    trials: int
    submitter: int | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    wanted_device: str = ""
    gpu: str = ""

    @property
    def ended(self) -> bool:
        """True where nothing will happen any more."""
        return is_ended(self.state)


@dataclass(frozen=True)
class Event:
    """Something that happened to a job; see ``tuner.model.jobs.JobEvent`` for the kinds.

    Attributes:
        id: of a stored event; None for progress.
        at: UTC, ISO 8601.
        data: what happened.
    """

    id: int | None
    job: int
    kind: str
    at: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class WorkloadAnswer:
    """The configuration of one workload of an answer.

    Attributes:
        configuration: values of its tunables.
        origin: ``stored``, ``predicted``, ``analytical``, ``nearest`` or ``default``.
        details: where it comes from, for people.
        fresh: of a stored one: it is of this very GPU, driver, CUDA and source, if perhaps of another batch.
        source: hash of the kernel's source that the daemon has; empty where it says none.
    """

    configuration: Mapping[str, TunableValue]
    origin: str
    details: str
    fresh: bool = False
    source: str = ""


@dataclass(frozen=True)
class Best:
    """The best configurations that the daemon knows now.

    Attributes:
        origin: the least of those of the workloads.
        device: the GPU as the database has it.
        objective: with its slowdown limit.
        workloads: configuration of each.
        clock_mhz: GPU clock of a stored answer; None for as found.
        stale: why a stored answer need not be true any more; empty when it is fresh.
        answer: time, joules and intervals of a stored answer as the run's document has them.
        run: number of the run that a stored answer is of.
        refinement: number of the job that refines the answer; None where there is none.
        notices: what to know beside.
        power_limit_w: power limit of a stored answer; None for as found.
    """

    origin: str
    device: Mapping[str, Any]
    objective: str
    workloads: Mapping[str, WorkloadAnswer]
    clock_mhz: int | None
    stale: tuple[str, ...]
    answer: Mapping[str, Any] | None
    run: int | None
    refinement: int | None
    notices: tuple[str, ...]
    power_limit_w: int | None = None


@dataclass(frozen=True)
class LiveEvent:
    """An event of the stream of everything; docs/daemon-api.md has the data of each kind.

    Attributes:
        kind: what it is about.
        at: UTC, ISO 8601.
        job: number of the job; None for what concerns no job.
        data: what JSON has.
    """

    kind: str
    at: str
    job: int | None
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Use:
    """Uses of an answer, reported to the daemon, which tunes the most used first.

    Attributes:
        workloads: what was asked for, as are the next four.
        device: empty for the daemon's first.
        count: how often it was used since the last telling.
    """

    workloads: tuple[str, ...]
    objective: str = "energy"
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
    hints = get_type_hints(kind)
    values = {}
    for field in fields(kind):  # type: ignore[arg-type]  # the classes of this module
        if field.name not in document:
            if field.default is not MISSING:
                continue
            raise ValueError(f"{kind.__name__} without {field.name}")
        values[field.name] = _field(field.name, hints[field.name], document[field.name])
    return kind(**values)


def _field(name: str, hint: Any, value: object) -> object:  # noqa: ANN401 - what annotations are
    """The value as the annotation has it."""
    if get_origin(hint) is tuple and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if hint == Mapping[str, WorkloadAnswer] and isinstance(value, dict):
        return {workload: read(WorkloadAnswer, placed) for workload, placed in value.items()}
    if hint is float and isinstance(value, int):
        return float(value)
    allowed = get_args(hint) if type(None) in get_args(hint) else (hint,)
    if any(isinstance(value, get_origin(one) or one) for one in allowed):
        return value
    raise ValueError(f"{name} is {value!r:.60}")
