"""Stored rows as values: the one border that content of the database passes.

A row whose checksum is sound is what this program wrote, but which version of it? What another version wrote,
or what makes no sense, is ``NotUnderstood``: it stays as it is, is left out, and is named.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar, cast

from tuner.model.errors import StoreError, UnknownNameError
from tuner.model.jobs import Event, Job, JobSpec, JobState
from tuner.model.objective import Objective
from tuner.model.records import RunOrigin, RunStatus, StoredRun, measurement_from, trial_from
from tuner.model.run_document import AnalyticalDocument, SampleDocument, run_conditions, run_document
from tuner.model.trial import Measurement, Trial, unpacked
from tuner.model.typed import UnfitError, document, typed

T = TypeVar("T")
Row = Sequence[Any]
_LOG = logging.getLogger(__name__)

_LARGEST_NAMED = 3  # rows that are named one by one


@dataclass(frozen=True)
class NotUnderstood:
    """A row that was read soundly, and is not what this version writes.

    Attributes:
        what: it is: ``job``, ``run``, ``trial`` ...
        key: its number, or what it is found by.
        why: what is not understood, for people.
    """

    what: str
    key: int | str
    why: str

    def __str__(self) -> str:
        return f"{self.what} {self.key} is not understood and is left as it is ({self.why})"


def named(rows: Sequence[NotUnderstood]) -> list[str]:
    """Sentences that name rows which are not understood; of many, the first and how many more."""
    if not rows:
        return []
    more = len(rows) - _LARGEST_NAMED
    also = [f"{more} more {rows[0].what}s are not understood"] if more > 1 else []
    named_rows = rows[:_LARGEST_NAMED] if also else rows
    return [*map(str, named_rows), *also, "a newer version of tuner may understand what is left"]


class UnderstoodRows:
    """Leaves out decoded rows that are not understood, and logs each of those once."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, int | str]] = set()

    def of(self, rows: Iterable[T | NotUnderstood]) -> list[T]:
        """Return the other rows."""
        values = []
        for row in rows:
            if not isinstance(row, NotUnderstood):
                values.append(row)
            elif (row.what, row.key) not in self._logged:
                self._logged.add((row.what, row.key))
                _LOG.warning("%s", row)
        return values


def understood(what: str, key: object, decode: Callable[[], T]) -> T | NotUnderstood:
    """Return the decoded row; NotUnderstood for UnfitError, StoreError or UnknownNameError of ``decode``."""
    try:
        return decode()
    except (UnfitError, StoreError, UnknownNameError) as error:
        return NotUnderstood(what, key if isinstance(key, int | str) else repr(key), str(error))


# --- jobs --------------------------------------------------------------------------------------------


_JOB_COLUMNS = (
    *("id", "origin", "priority", "state", "reason", "run", "attempts", "trials", "submitter"),
    *("created_at", "started_at", "ended_at"),
)


def job(row: Row) -> Job | NotUnderstood:
    """A job: its number, its spec as JSON, then the further columns as ``Job`` has them.

    The last two are of its run, where it has one: UUID of the GPU, and conditions.
    """
    number, ordered, *rest, gpu, conditions = row

    def decode() -> Job:
        spec: JobSpec = typed(JobSpec, document(ordered))
        if not spec.workloads:
            raise UnfitError("it has no workloads")
        Objective(spec.objective)
        columns = dict(zip(_JOB_COLUMNS, (number, *rest), strict=True))
        device = _measured_on(conditions) or spec.device
        order = {**vars(spec), "device": device, "wanted_device": spec.device, "gpu": str(gpu or "")}
        decoded: Job = typed(Job, {**order, **columns})
        return decoded

    return understood("job", number, decode)


def _measured_on(conditions: object) -> str:
    """Name of the device of a run; empty without one, and where its conditions are not understood."""
    try:
        return str(json.loads(str(conditions))["device"]["spec"])
    except (ValueError, LookupError, TypeError):
        return ""


def event(row: Row) -> Event | NotUnderstood:
    """An event: number, job, kind, time, data as JSON."""

    def decode() -> Event:
        number, of, kind, at, data = row
        columns = {"id": number, "job": of, "kind": kind, "at": at, "data": document(data)}
        decoded: Event = typed(Event, columns)
        _check_time(decoded.at)
        if decoded.kind == "state":
            typed(JobState, decoded.data.get("state"), "state")
        return decoded

    return understood("event", row[0], decode)


def _check_time(text: str) -> None:
    """Raise UnfitError where a text is no time with its zone."""
    try:
        zone = datetime.fromisoformat(text).tzinfo
    except ValueError:
        zone = None
    if zone is None:
        raise UnfitError(f"{text!r:.40} is no time")


# --- runs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _RunColumns:
    id: int
    status: RunStatus
    owner: str
    objective: str
    started_at: str
    ended_at: str | None
    trials: int


def run(row: Row, origin: Row | None = None) -> StoredRun | NotUnderstood:
    """A run: number, status, owner, objective, start, end, conditions and answer (JSON), count of trials.

    Args:
        row: these columns.
        origin: of a merged run: source, identity of its database, number in it, when it was merged.
    """
    number, status, owner, objective, started_at, ended_at, conditions, answer, trials = row

    def decode() -> StoredRun:
        values = (number, status, owner, objective, started_at, ended_at, trials)
        columns: _RunColumns = typed(
            _RunColumns, dict(zip(_RunColumns.__dataclass_fields__, values, strict=True))
        )
        Objective(columns.objective.split(" ", 1)[0])
        bound = run_conditions(document(conditions))
        answer_document = None if answer is None else run_document(document(answer), "answer")
        named_workloads = () if answer_document is None else answer_document["workloads"]
        names = {workload["name"] for workload in named_workloads}
        if answer_document is not None and names != set(dict(bound["workloads"])):
            raise UnfitError("answer.workloads are not those of the conditions")
        return StoredRun(
            columns.id,
            columns.status,
            columns.owner,
            columns.objective,
            columns.started_at,
            columns.ended_at,
            bound,
            answer_document,
            columns.trials,
            None if origin is None else RunOrigin(*origin),
        )

    return understood("run", number, decode)


def run_status(text: object) -> RunStatus | None:
    """The status of a run; None for one that is not known."""
    return RunStatus(text) if text in {status.value for status in RunStatus} else None


def trial(
    run_id: int, number: object, texts: tuple[object, object], names: Sequence[str]
) -> tuple[Trial, Measurement] | NotUnderstood:
    """A trial of a run with its measurement, both as JSON."""

    def decode() -> tuple[Trial, Measurement]:
        settings, measured = trial_from(document(texts[0]), names), measurement_from(document(texts[1]))
        if len(measured.results) != len(names):
            raise UnfitError(f"it has {len(measured.results)} results of {len(names)} workloads")
        for packed in measured.power:
            try:
                unpacked(packed)
            except ValueError as error:  # noqa: PERF203 - three repeats at most
                raise UnfitError(str(error)) from error
        return settings, measured

    return understood("trial", f"{number} of run {run_id}", decode)


# --- what the daemon counts and remembers ------------------------------------------------------------


def analytical(key: object, text: object) -> AnalyticalDocument | NotUnderstood:
    """An analytical answer."""

    def decode() -> AnalyticalDocument:
        record = document(text)
        typed(AnalyticalDocument, {**record, "considered": record.get("considered") or 0})
        return cast("AnalyticalDocument", record)

    return understood("analytical answer", str(key), decode)


def model(kernel: object, text: object) -> dict[str, Any] | NotUnderstood:
    """A trained model; what it says is checked where it is read (``tuner.prediction.model``)."""
    return understood("trained model", str(kernel), lambda: document(text))


def sample(number: object, at: object, text: object) -> SampleDocument | NotUnderstood:
    """A sample of an answer, with when it was stored (UTC)."""

    def decode() -> SampleDocument:
        decoded = {**document(text), "at": typed(str, at, "at")}
        verdict = decoded.get("verdict", "void")
        if verdict not in ("inside", "above", "below", "failed", "void"):
            raise UnfitError(f"its verdict is {verdict!r:.40}")
        typed(str, decoded.get("told", ""), "told")
        for name in ("cost", "expected", "interval"):
            typed(float | None, decoded.get(name), name)
        return cast("SampleDocument", decoded)

    return understood("sample", typed_key(number), decode)


def amount(what: str, key: object, *values: object) -> tuple[float, ...] | NotUnderstood:
    """Counts, seconds or joules: finite numbers that are not negative."""

    def decode() -> tuple[float, ...]:
        typed(str, key, "key")
        amounts: tuple[float, ...] = typed(tuple[float, ...], values, "amounts")
        if min(amounts) < 0.0:
            raise UnfitError(f"it is {min(amounts)}, less than 0")
        return amounts

    return understood(what, typed_key(key), decode)


def typed_key(key: object) -> int | str:
    """A key for people."""
    return key if isinstance(key, int) else str(key)[:80]


# --- The content key of a run: equal wherever the run is stored, and whatever its number is there.

RUN_COLUMNS = ("objective", "status", "started_at", "ended_at", "conditions", "answer")
TRIAL_COLUMNS = (
    *("number", "trial", "measurement", "confirmed", "status"),
    *("makespan_s", "energy_j", "ended_at"),
)


def content_key(run: Sequence[object], trials: Iterable[str]) -> str:
    """SHA-256 over all that a run says: conditions with the GPU, times, answer and every trial.

    Args:
        run: its ``RUN_COLUMNS``, as stored.
        trials: the literal of each, in the order of their numbers.
    """
    digest = hashlib.sha256(ascii(tuple(run)).encode())
    for trial in trials:
        digest.update(b"\n" + trial.encode())
    return digest.hexdigest()


def literal(trial: Sequence[object]) -> str:
    """A trial's ``TRIAL_COLUMNS`` as literals of Python in ASCII, with commas between them.

    Its checksum is that of this text between the number of its run and its version, in brackets.
    """
    return ascii(tuple(trial))[1:-1]
