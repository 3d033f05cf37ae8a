"""Jobs with their specs, states, events and devices."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from typing import Any

# --- What a device is: its limits and its identity.

OLDEST_ARCHITECTURE = 50  # NVRTC compiles for none below; older GPUs are only modelled, with its code


@dataclass(frozen=True)
class DeviceLimits:
    """The occupancy inputs of one GPU (Table I of the multi-kernel paper, with the allocation units).

    Attributes:
        compute_capability: (major, minor).
        multiprocessors: SMs of the GPU.
        warp_size: devWarpSize.
        max_threads_per_block: largest block.
        max_threads_per_sm: devMaxThreadsSM.
        max_warps_per_sm: devMaxWSM.
        max_blocks_per_sm: devMaxTBSM.
        registers_per_sm: devRegsLimitSM.
        registers_per_block: most registers one block may hold.
        max_registers_per_thread: compiler limit.
        register_alloc_unit: devRegAllocUnit; registers are allocated per warp in this unit.
        warp_alloc_granularity: warps that hold registers are rounded to a multiple of this.
        shared_bytes_per_sm: devMaxSharedMemSM.
        shared_bytes_per_block: most shared memory one block may ask for (opt-in limit where there is one).
        shared_alloc_unit: devSharedMemAllocUnit.
        shared_reserved_bytes: shared memory the system takes of every block (1 KiB from 8.0 on).
        memory_bytes: device memory.
        l2_bytes: second-level cache.
    """

    compute_capability: tuple[int, int]
    multiprocessors: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    registers_per_block: int
    max_registers_per_thread: int
    register_alloc_unit: int
    warp_alloc_granularity: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    shared_alloc_unit: int
    shared_reserved_bytes: int
    memory_bytes: int
    l2_bytes: int

    @property
    def architecture(self) -> str:
        """NVRTC's name of the compute capability, e.g. ``sm_90``."""
        return f"sm_{self.compute_capability[0]}{self.compute_capability[1]}"

    def reaches(self, min_architecture: int) -> bool:
        """Return True if code for a compute capability (times ten) runs here; below 5.0, that of 5.0 runs."""
        major, minor = self.compute_capability
        return max(10 * major + minor, OLDEST_ARCHITECTURE) >= min_architecture


@dataclass(frozen=True)
class DeviceIdentity:
    """Identity of the device that a stored result is bound to.

    Attributes:
        spec: how the user names it: ``cuda:0``, ``sim:jetson-tx1``.
        name: product name.
        uuid: GPU UUID; for a simulated device its spec.
        driver: driver version, or the version of the model.
        runtime: CUDA (NVRTC) version that made the code, or empty.
        modelled: True for a simulated device.
        recorded: day of the recording that is replayed, or ``undated``; empty where trials run.
    """

    spec: str
    name: str
    uuid: str
    driver: str
    runtime: str
    modelled: bool
    recorded: str = ""

    @property
    def label(self) -> str:
        """Provenance of its numbers: ``modelled``, ``recorded``, both, or empty if they are measured."""
        words = ("recorded" if self.recorded else "", "modelled" if self.modelled else "")
        return ", ".join(filter(None, words))


# --- Which devices a job may run on: one by name, those of a kind, or any.

ANY = "any"
"""In a file, where an empty text would say the same less clearly."""

_KIND = "kind:"


@dataclass(frozen=True)
class DeviceChoice:
    """A choice of devices, as ``--device`` of ``tuner submit`` takes it.

    Attributes:
        device: by its name, e.g. ``cuda:0``; empty for any of the kind.
        model: product name of the GPU; empty for any.
        driver: version of the driver; empty for any.
    """

    device: str = ""
    model: str = ""
    driver: str = ""

    @classmethod
    @functools.lru_cache(maxsize=1024)
    def parse(cls, text: str) -> "DeviceChoice":
        """The choice of a text: ``cuda:0``, ``kind:NVIDIA H200``, ``kind:NVIDIA H200@580.159`` or ``any``."""
        if text in ("", ANY):
            return cls()
        if not text.startswith(_KIND):
            return cls(device=text)
        model, _, driver = text.removeprefix(_KIND).partition("@")
        return cls(model=model.strip(), driver=driver.strip())

    @property
    def one(self) -> bool:
        """True where it names one device."""
        return bool(self.device)

    def allows(self, identity: DeviceIdentity) -> bool:
        """True for a device that it means."""
        if self.device:
            return self.device == identity.spec
        return self.model in ("", identity.name) and self.driver in ("", identity.driver)

    def __str__(self) -> str:
        if self.one or not self.model:
            return self.device
        return f"{_KIND}{self.model}{f'@{self.driver}' if self.driver else ''}"

    @property
    def words(self) -> str:
        """For people."""
        if self.device:
            return f"device {self.device}"
        driver = f" with driver {self.driver}" if self.driver else ""
        return f"GPU of the kind {self.model}{driver}" if self.model else "device"


def wrong_choice(text: str) -> str:
    """Return the error message for a choice that names a kind; empty if right, and for other choices."""
    if not text.startswith(_KIND):
        return ""
    choice = DeviceChoice.parse(text)
    if choice.model and (choice.driver or "@" not in text):
        return ""
    return f"{text!r} names no kind; write kind:MODEL or kind:MODEL@DRIVER, e.g. 'kind:NVIDIA H200'"


def same_kind(first: DeviceIdentity, other: DeviceIdentity) -> bool:
    """True for GPUs of one model with one driver and one compiler, both real or both modelled."""
    return (first.name, first.driver, first.runtime, first.modelled) == (
        other.name,
        other.driver,
        other.runtime,
        other.modelled,
    )


class _Text(str, Enum):
    """An enumeration whose members are their texts, in JSON and in messages too."""

    __str__ = str.__str__
    __repr__ = str.__repr__


class JobKind(_Text):
    """Purpose of a job."""

    TUNE = "tune"  # searches, and stores an answer
    SAMPLE = "sample"  # measures a served configuration again


class Origin(_Text):
    """Origin of a job; among jobs of equal priority, earlier members go first."""

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


class JobState(_Text):
    """State of a job."""

    QUEUED = "queued"  # waits; ``Job.reason`` says for what, where it is not just its turn
    RUNNING = "running"
    PAUSED = "paused"  # by a client; only a client resumes it
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True where nothing will happen any more."""
        return self in ENDED


ACTIVE = (JobState.QUEUED, JobState.RUNNING, JobState.PAUSED)
ENDED = (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED)
"""States after which nothing happens any more; the others are active."""

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
    """Specification of a job; the fields mean the same as those of ``tuner.search.request.SearchRequest``.

    Attributes:
        workloads: that run together, e.g. ``("scan-lf:N=1024",)``.
        device: where it may run (``tuner.model.jobs``): ``cuda:0``, ``sim:jetson-tx1``, GPUs of a
            kind, ``kind:NVIDIA H200``; empty for any device of the daemon.
        kind: what the job does.
        options: those of ``tuner.model.options.JOB_OPTIONS`` by name, as far as they were chosen.
    """

    workloads: tuple[str, ...]
    objective: str = "time"
    policy: str = "auto"
    clocks: str = "off"
    device: str = ""
    kind: JobKind = JobKind.TUNE
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chosen(self) -> dict[str, Any]:
        """All options that it has chosen, by name."""
        return {"objective": self.objective, "policy": self.policy, "clocks": self.clocks, **self.options}


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of the daemon as it stands: in its memory, in JSON and for its clients.

    Attributes:
        id: counts up from 1.
        kind: ``tune``, or ``sample`` for measuring a served configuration again.
        device: where it runs or has run; before, what it asks for.
        wanted_device: where it may run, as it was asked for; empty for any device.
        gpu: UUID of the GPU that its run is measured on; empty before it has one.
        workloads: that run together.
        options: further choices, by name.
        origin: who asked for it.
        priority: of one user's jobs that may run, the highest goes first; between users see
            ``tuner.daemon.jobs.shares``.
        reason: why it is in its state, for people; empty where there is nothing to say.
        run: its run in the database; None before the first trial.
        attempts: how often it was started.
        trials: trials stored for it.
        submitter: user id of the client, or ``token:NAME``; None for the daemon itself.
        created_at: UTC, ISO 8601, as are the others.
    """

    id: int
    kind: JobKind
    device: str
    wanted_device: str = ""
    gpu: str = ""
    workloads: tuple[str, ...]
    objective: str
    policy: str
    clocks: str
    options: Mapping[str, Any]
    origin: Origin
    priority: float
    state: JobState
    reason: str
    run: int | None
    attempts: int
    trials: int
    submitter: int | str | None
    created_at: str
    started_at: str | None
    ended_at: str | None

    @property
    def ended(self) -> bool:
        """True where nothing will happen any more."""
        return self.state in ENDED

    @property
    def spec(self) -> JobSpec:
        """Its spec, with the device that was asked for."""
        return JobSpec(
            workloads=self.workloads,
            objective=self.objective,
            policy=self.policy,
            clocks=self.clocks,
            device=self.wanted_device,
            kind=self.kind,
            options=self.options,
        )

    @property
    def placed_spec(self) -> JobSpec:
        """Its spec, with the device on which it runs."""
        return replace(self.spec, device=self.device)


@dataclass(frozen=True)
class Event:
    """Something that happened to a job, or to the daemon.

    Attributes:
        kind: of a job ``state`` (state, reason), ``run`` (run, resumed), ``told`` (sentence), ``trial``
            (``tuner.search.job_messages``), ``compiled`` (done, total), ``answer`` (summary); of the
            stream of everything see docs/daemon-api.md.
        at: UTC, ISO 8601.
        job: number of the job; None for what concerns no job.
        data: what JSON has.
        id: counts up over all jobs; None for progress, which goes to subscribers and is not stored.
    """

    kind: str
    at: str
    job: int | None
    data: Mapping[str, Any]
    id: int | None = None

    @classmethod
    def now(cls, kind: str, data: Mapping[str, Any], job: int | None = None) -> "Event":
        """Something that happens now and is not stored."""
        return cls(kind, datetime.now(timezone.utc).isoformat(timespec="milliseconds"), job, data)
