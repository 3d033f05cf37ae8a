"""Runs, trials and measurements as JSON values and back: the form of the database and of ``--json``."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, cast

from tuner.model.device import DeviceIdentity
from tuner.model.errors import StoreError
from tuner.model.plan import Configuration, TunableValue
from tuner.model.run_document import RunConditions, RunDocument, RunSettings, TrialRecord, device_document
from tuner.model.trial import Measurement, Status, Trial
from tuner.model.typed import UnfitError, typed

PROTOCOL = 4
"""Of measuring; raised when numbers made before and after cannot be compared.

2: a round of a lone workload has no fork and join; the time of each workload of a co-run is a part of the
makespan.

3: graphs are on the device before they are timed; before, first windows of kernels of some microseconds were
up to three times too long. Of small sets that stay within the L2, 64 go round.
"""

Record = dict[str, Any]


class RunStatus(str, Enum):
    """Where a run of the database stands."""

    RUNNING = "running"  # or killed: its process says which
    FINISHED = "finished"
    LIMITED = "limited"  # a budget or a time limit ended it
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Conditions:
    """What a run's answer is true for.

    Attributes:
        workloads: the co-running workloads as the user names them, with their batches.
        sources: kernel name -> hash of its sources, kernel file and options.
        device: the GPU.
        objective: name, with the slowdown limit if there is one.
        policy: search strategy.
        seed: of the strategy.
        clocks: ``off`` or the list of clocks that could be chosen.
        settings: everything else that decides which trials are made, or how.
        asked: workload -> batch before it was capped to fit the memory; empty where none was capped.
        content: of the package that measures (``config.package_build``); it is not part of the fingerprint.
    """

    workloads: tuple[tuple[str, int], ...]
    sources: Mapping[str, str]
    device: DeviceIdentity
    objective: str
    policy: str
    seed: int
    clocks: str
    settings: Mapping[str, Any]
    asked: Mapping[str, int] = field(default_factory=dict)
    content: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The workloads without their batches."""
        return tuple(name for name, _ in self.workloads)

    def record(self) -> RunConditions:
        """As a JSON object."""
        return {
            "workloads": list(self.workloads),
            "sources": dict(self.sources),
            "device": device_document(self.device),
            "objective": self.objective,
            "policy": self.policy,
            "seed": self.seed,
            "clocks": self.clocks,
            "settings": cast("RunSettings", dict(self.settings)),
            "asked": dict(self.asked),
            "protocol": PROTOCOL,
            "content": self.content,
        }


@dataclass(frozen=True)
class RunOrigin:
    """Where a run comes from that another database was merged with.

    Attributes:
        source: the file, address or host that it was read from.
        identity: of the database that it was measured for; empty where that is not known.
        number: of the run in that database.
        at: when it was taken over, UTC, ISO 8601.
    """

    source: str
    identity: str
    number: int
    at: str


@dataclass(frozen=True)
class StoredRun:
    """A row of the history.

    Attributes:
        owner: the process that measures or measured it (``tuner.system.owner``).
        answer: the document of its answer; None while nothing valid was measured.
        origin: where it comes from; None where it was measured for this database.
    """

    id: int
    status: RunStatus
    owner: str
    objective: str
    started_at: str
    ended_at: str | None
    conditions: RunConditions
    answer: RunDocument | None
    trials: int
    origin: RunOrigin | None = None


@dataclass(frozen=True)
class StoredTrial:
    """A trial of a run as the database has it.

    Attributes:
        number: in the order of measuring, from 1.
        trial: what was run.
        searched: what the search saw.
        known: what is known at the end: of contenders the joined repeats.
        ended_at: when it was stored, UTC, ISO 8601.
    """

    number: int
    trial: Trial
    searched: Measurement
    known: Measurement
    ended_at: str


_encoded = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode  # made once


def canonical(document: object) -> str:
    """JSON text that is the same for equal documents."""
    return _encoded(document)


def digest(document: object) -> str:
    """SHA-256 of the canonical JSON text."""
    return hashlib.sha256(canonical(document).encode()).hexdigest()


def binding(conditions: Mapping[str, Any]) -> Record:
    """Conditions without the content of the package, which binds nothing: the protocol says what compares."""
    return {name: value for name, value in conditions.items() if name != "content"}


def fingerprint(conditions: Mapping[str, Any]) -> str:
    """SHA-256 of what binds.

    Args:
        conditions: see ``Conditions.record``.
    """
    return digest(binding(conditions))


def trial_record(trial: Trial, workloads: Sequence[str]) -> TrialRecord:
    """A trial as ``{"configurations": {workload: {...}}, "clock_mhz": int | None}``.

    Where a power limit is set, it is there as ``power_limit_w``.
    """
    record: TrialRecord = {
        "configurations": {
            name: dict(configuration)
            for name, configuration in zip(workloads, trial.configurations, strict=True)
        },
        "clock_mhz": trial.clock_mhz,
    }
    if trial.power_limit_w is not None:
        record["power_limit_w"] = trial.power_limit_w
    return record


@dataclass(frozen=True)
class _TrialRecord:
    configurations: Mapping[str, Mapping[str, TunableValue]]
    clock_mhz: int | None
    power_limit_w: int | None = None


def trial_from(record: Mapping[str, Any], workloads: Sequence[str]) -> Trial:
    """The trial of a record.

    Raises:
        StoreError: the record was not made by ``trial_record``, or lacks one of the workloads.
    """
    try:
        found: _TrialRecord = typed(_TrialRecord, record, "the trial")
    except UnfitError as error:
        raise StoreError(f"a stored trial is not understood: {error}") from error
    missing = [name for name in workloads if name not in found.configurations]
    if missing:
        raise StoreError(f"a stored trial is not understood: it has no configuration of {missing[0]}")
    chosen = tuple(Configuration(found.configurations[name]) for name in workloads)
    return Trial(chosen, found.clock_mhz, found.power_limit_w)


def measurement_record(measurement: Measurement) -> Record:
    """A measurement as a JSON object, complete: ``measurement_from`` gives an equal one."""
    record = asdict(measurement)
    for result in record["results"]:
        result["status"] = Status(result["status"]).value
    record["results"] = list(record["results"])
    record["bursts"] = record.pop("repeats")
    record["flags"] = [str(flag) for flag in measurement.flags]
    if not measurement.power:
        del record["power"]  # earlier versions do not know it
    for name in ("temperature_c", "gpu"):
        if record[name] is None:
            del record[name]  # as above
    return record


def measurement_from(record: Mapping[str, Any]) -> Measurement:
    """The measurement of a record.

    Raises:
        StoreError: the record was not made by ``measurement_record``.
    """
    fields = dict(record)
    fields["repeats"] = fields.pop("bursts", 1)
    try:
        found: Measurement = typed(Measurement, fields, "the measurement")
    except UnfitError as error:
        raise StoreError(f"a stored measurement is not understood: {error}") from error
    return found
