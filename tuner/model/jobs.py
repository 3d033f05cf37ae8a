"""Jobs: their specs, states and events."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any


class JobKind(Enum):
    """What a job does."""

    TUNE = "tune"  # searches, and stores an answer
    SAMPLE = "sample"  # measures a served configuration again


class Origin(Enum):
    """Who wants a job; among jobs of equal priority, earlier members go first."""

    CLIENT = "client"  # a client submitted it
    SET = "set"  # daemon.toml names it
    STALE = "stale"  # an answer lost what it was bound to
    DRIFT = "drift"  # a sample fell out of its interval
    REQUEST = "request"  # a client asked for the best of what was never tuned
    CHECK = "check"  # a served configuration is measured now and then


OWN = frozenset({Origin.STALE, Origin.DRIFT, Origin.REQUEST, Origin.CHECK})
"""Origins of the daemon's own work: it gives way to what clients and daemon.toml ask for."""

FOR_AN_ANSWER = OWN - {Origin.CHECK}
"""Origins of searches that only want a fresh answer, from whatever run it comes."""


class JobState(Enum):
    """Where a job stands."""

    QUEUED = "queued"  # waits; ``JobRecord.reason`` says for what, where it is not just its turn
    RUNNING = "running"
    PAUSED = "paused"  # by a client; only a client resumes it
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True where nothing will happen any more."""
        return self in (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED)


NEXT: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset(
        {JobState.RUNNING, JobState.PAUSED, JobState.CANCELLED, JobState.FAILED, JobState.FINISHED}
    ),
    JobState.RUNNING: frozenset(
        {JobState.QUEUED, JobState.PAUSED, JobState.FINISHED, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.PAUSED: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    JobState.FINISHED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}
"""The states that may follow one. Queued to finished: a crash followed the end of the run."""


@dataclass(frozen=True)
class JobSpec:
    """What is to be done; the fields are those of ``tuner.search.request.Request``, and mean the same.

    Attributes:
        workloads: that run together, e.g. ``("scan-lf:N=1024",)``.
        device: where it may run (``tuner.model.device_choice``): ``cuda:0``, ``sim:jetson-tx1``, GPUs of a
            kind, ``kind:NVIDIA H200``; empty for any device of the daemon.
        kind: what the job does.
        options: those of ``tuner.model.options.JOB_OPTIONS`` by name, as far as they were chosen.
    """

    workloads: tuple[str, ...]
    objective: str = "energy"
    policy: str = "auto"
    clocks: str = "off"
    device: str = ""
    kind: JobKind = JobKind.TUNE
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class JobRecord:
    """A row of the queue.

    Attributes:
        id: counts up from 1.
        priority: of one user's jobs that may run, the highest goes first; between users see
            ``tuner.daemon.jobs.shares``.
        reason: why it is in its state, for people; empty where there is nothing to say.
        run: its run in the database; None before the first trial.
        attempts: how often it was started.
        trials: trials stored for it.
        submitter: user id of the client; None for the daemon itself.
        created_at: UTC, ISO 8601, as are the others.
        gpu: UUID of the GPU that its run is measured on; empty before it has one.
        placed: device on which it runs or has run; empty before.
    """

    id: int
    spec: JobSpec
    origin: Origin
    priority: float
    state: JobState
    reason: str
    run: int | None
    attempts: int
    trials: int
    submitter: int | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    gpu: str = ""
    placed: str = ""

    @property
    def device(self) -> str:
        """Where it runs or has run, else where it may run."""
        return self.placed or self.spec.device

    @property
    def placed_spec(self) -> JobSpec:
        """Its spec with the device on which it runs."""
        return replace(self.spec, device=self.device)


@dataclass(frozen=True)
class JobEvent:
    """Something that happened to a job.

    Attributes:
        id: counts up over all jobs; None for progress, which goes to subscribers and is not stored.
        kind: ``state`` (state, reason), ``run`` (run, resumed), ``told`` (sentence), ``trial``
            (``tuner.daemon.attempts.trial_data``), ``compiled`` (done, total), ``answer`` (summary).
        data: what JSON has.
    """

    id: int | None
    job: int
    kind: str
    at: str
    data: Mapping[str, Any]
