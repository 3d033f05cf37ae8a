"""Runs, trials and measurements as JSON values and back, and workloads as text."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any, cast

from tuner.model.errors import StoreError
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Configuration
from tuner.model.run_document import RunConditions, RunDocument, RunSettings, TrialRecord, device_document
from tuner.model.trial import Measurement, Status, Trial
from tuner.model.typed import UnfitError, digest, typed

PROTOCOL = 4
"""Of measuring; raised when numbers made before and after cannot be compared.

2: a round of a lone workload has no fork and join; the time of each workload of a co-run is a part of the
makespan.

3: graphs are on the device before they are timed; before, first windows of kernels of some microseconds were
up to three times too long. Of small sets that stay within the L2, 64 go round.
"""

Record = dict[str, Any]


class RunStatus(str, Enum):
    """Status of a run of the database."""

    RUNNING = "running"  # or killed: its process says which
    FINISHED = "finished"
    LIMITED = "limited"  # a budget or a time limit ended it
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Conditions:
    """Conditions under which a run's answer is true.

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
        content: of the package that measures (``source_folder.own_build``); not part of the fingerprint.
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
    """Origin of a run that was merged from another database.

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
        owner: the process that measures or measured it (``tuner.system.ownership``).
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


def trial_from(record: object, workloads: Sequence[str]) -> Trial:
    """The trial of a record.

    Raises:
        StoreError: the record was not made by ``trial_record``, or lacks one of the workloads.
    """
    try:
        typed(TrialRecord, record, "the trial")
    except UnfitError as error:
        raise StoreError(f"a stored trial is not understood: {error}") from error
    checked = cast("TrialRecord", record)
    if unknown := checked.keys() - TrialRecord.__annotations__.keys():
        raise StoreError(f"a stored trial is not understood: the trial.{min(unknown):.40} is not known")
    configurations = checked["configurations"]
    missing = [name for name in workloads if name not in configurations]
    if missing:
        raise StoreError(f"a stored trial is not understood: it has no configuration of {missing[0]}")
    chosen = tuple(Configuration(configurations[name]) for name in workloads)
    return Trial(chosen, checked["clock_mhz"], checked.get("power_limit_w"))


def measurement_record(measurement: Measurement) -> Record:
    """A measurement as a JSON object, complete: ``measurement_from`` gives an equal one."""
    record = asdict(measurement)
    for result in record["results"]:
        result["status"] = Status(result["status"]).value
        if not result["metrics"]:
            del result["metrics"]  # as below
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
        measurement: Measurement = typed(Measurement, fields, "the measurement")
    except UnfitError as error:
        raise StoreError(f"a stored measurement is not understood: {error}") from error
    return measurement


_BATCH = "batch"


@dataclass(frozen=True)
class WorkloadName:
    """The parts of ``kernel[:size=value[,size=value]...][,batch=n]``.

    The kernel file says which sizes there are; see ``Catalog.workload``.

    Attributes:
        kernel: name of the kernel.
        sizes: (name, value) as written, without the batch; what is no pair is a name without a value.
        batch: as written; None where none is named.
    """

    kernel: str
    sizes: tuple[tuple[str, str], ...] = ()
    batch: str | None = None

    @classmethod
    def parse(cls, text: str) -> "WorkloadName":
        """The parts of a text; spaces around them do not count."""
        kernel, _, rest = text.partition(":")
        pairs = [_pair(part) for part in rest.split(",") if part.strip()]
        batches = [value for name, value in pairs if name == _BATCH and value]
        if len(batches) != 1:  # none; or several, which are refused as a size that is given twice
            return cls(kernel.strip(), tuple(pairs))
        return cls(kernel.strip(), tuple(pair for pair in pairs if pair[0] != _BATCH), batches[0])

    def with_batch(self, batch: int) -> "WorkloadName":
        """The same with a batch."""
        return replace(self, batch=str(batch))

    def without_batch(self) -> "WorkloadName":
        """The same without its batch, as answers name it."""
        return replace(self, batch=None)

    @property
    def sizes_text(self) -> str:
        """Part of the name behind the colon, without the batch."""
        return ",".join(f"{name}={value}" if value else name for name, value in self.sizes)

    def __str__(self) -> str:
        sizes = [self.sizes_text] if self.sizes else []
        rest = ",".join([*sizes, *([] if self.batch is None else [f"{_BATCH}={self.batch}"])])
        return f"{self.kernel}:{rest}" if rest else self.kernel


def _pair(part: str) -> tuple[str, str]:
    name, _, value = (word.strip() for word in part.partition("="))
    return (name, value) if name and value else (part.strip(), "")
