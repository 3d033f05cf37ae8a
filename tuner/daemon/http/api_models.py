"""Models of requests and responses. Every request is bounded in length, number and range."""

from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from tuner.daemon.interface import MOST_LETTERS, MOST_WORKLOADS, Question
from tuner.model.jobs import Job, JobSpec
from tuner.model.options import option_field, with_options

_LARGEST = 2**63 - 1  # of an id in the database
_USES = 256  # reports of use in one request
_PRIORITY = 1e6
_COUNT = 1e12  # uses of one answer between two requests
_PAGE = 100
_LARGEST_PAGE = 500

Workload = Annotated[str, Field(min_length=1, max_length=MOST_LETTERS, pattern="^[!-~]+$")]
Workloads = Annotated[list[Workload], Field(min_length=1, max_length=MOST_WORKLOADS)]
Device = Annotated[
    str,
    Field(
        max_length=80,
        # No replay:FILE: a client names no file of the daemon's machine.
        pattern="^((cuda:[0-9]{1,4})|(sim:[A-Za-z0-9._-]{1,64}))?$",
        description="cuda:N or sim:NAME; empty for the daemon's first.",
    ),
]
JobDevice = Annotated[
    str,
    Field(
        max_length=MOST_LETTERS,
        pattern="^(any|(cuda:[0-9]{1,4})|(sim:[A-Za-z0-9._-]{1,64})|(kind:[ -~]{1,160}))?$",
        description="cuda:N, sim:NAME, or one GPU of a kind: 'kind:MODEL' or 'kind:MODEL@DRIVER'; empty or"
        " 'any' for any device of the daemon.",
    ),
]
Objective = Literal["time", "energy", "edp", "ed2p", "pareto"]
Count = Annotated[float, Field(ge=0, le=_COUNT, allow_inf_nan=False)]
Id = Annotated[int, Field(ge=1, le=_LARGEST)]
After = Annotated[int, Field(ge=0, le=_LARGEST)]
StateName = Literal["queued", "running", "paused", "finished", "failed", "cancelled"]
Source = Literal["stored", "predicted", "analytical", "nearest", "default"]


class RequestModel(BaseModel):
    """Request of a client; an unknown name is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BestQuery(RequestModel):
    """Which configurations are asked for."""

    workload: Workloads = Field(description="e.g. scan-lf:N=1024; repeated for workloads that run together.")
    objective: Objective = "time"
    device: Device = ""
    max_slowdown: float | None = option_field("max_slowdown")
    clocks_as_found: bool = Field(default=False, description="Only answers that set no GPU clock.")
    timing: str | None = option_field("timing")
    count: Count | None = Field(
        default=None,
        description="Uses of the answer that are told of. Without it, being asked counts as one for what is"
        " tuned first, and as none for what is saved.",
    )

    def question(self) -> Question:
        """Return the question for the service."""
        return Question(
            workloads=tuple(self.workload),
            objective=self.objective,
            device=self.device,
            max_slowdown=self.max_slowdown,
            clocks_as_found=self.clocks_as_found,
            timing=self.timing or "",
            count=self.count,
        )


class UseReport(RequestModel):
    """Report of the uses of an answer."""

    model_config = ConfigDict(strict=True)

    workloads: Workloads
    objective: Objective = "time"
    device: Device = ""
    max_slowdown: float | None = option_field("max_slowdown")
    clocks_as_found: bool = False
    count: Count = Field(default=1.0, description="Uses of the answer since they were told last.")

    def question(self) -> Question:
        """The question whose answer was used."""
        return Question(**self.model_dump(exclude={"workloads"}), workloads=tuple(self.workloads))


class UseReports(RequestModel):
    """Uses of several answers."""

    model_config = ConfigDict(strict=True)

    uses: Annotated[list[UseReport], Field(max_length=_USES)]


@with_options()
class Options(RequestModel):
    """Further choices for a search, as ``tuner run`` has them."""

    model_config = ConfigDict(strict=True)


class Submission(RequestModel):
    """A job to be queued; what is left out is as ``daemon.toml`` has it."""

    model_config = ConfigDict(strict=True)

    workloads: Workloads
    objective: Objective | None = None
    policy: str | None = option_field("policy")
    clocks: str | None = option_field("clocks")
    device: JobDevice = ""
    priority: Annotated[float, Field(ge=-_PRIORITY, le=_PRIORITY, allow_inf_nan=False)] = Field(
        default=0.0,
        description="Of one user's jobs, the highest goes first; between users it counts up to"
        " [limits] highest_priority of daemon.toml.",
    )
    options: Options = Options()

    def order(self, *, objective: str, policy: str, clocks: str) -> JobSpec:
        """Return the specification of the job.

        Args:
            objective: where the client names none; so with the others.
            policy: name of the search strategy.
            clocks: which GPU clocks may be searched.
        """
        return JobSpec(
            workloads=tuple(self.workloads),
            objective=self.objective or objective,
            policy=self.policy or policy,
            clocks=self.clocks or clocks,
            device=self.device,
            options=self.options.model_dump(exclude_none=True),
        )


class JobsQuery(RequestModel):
    """Which jobs are listed, newest first."""

    state: Annotated[list[StateName], Field(max_length=6)] = Field(default=[], description="Of these states.")
    limit: Annotated[int, Field(ge=1, le=_LARGEST_PAGE)] = Field(
        default=_PAGE, description="At most so many."
    )
    before: Id | None = Field(default=None, description="With a lower number than this.")


class EventsQuery(RequestModel):
    """From where on events are told."""

    after: After | None = Field(default=None, description="Stored events with a higher number than this.")


_JOB_WORDS = {
    "device": "Where it runs or has run; before, what it asks for.",
    "wanted_device": "Where it may run, as it was asked for; empty for any device.",
    "gpu": "UUID of the GPU that its run is measured on; empty before it has one.",
    "reason": "Why it is in its state; empty where there is nothing to say.",
    "run": "Its run in the database; null before the first trial.",
    "trials": "Trials stored for it.",
    "submitter": "User id of the client, or `token:NAME` of its token; null for the daemon itself.",
    "created_at": "UTC, ISO 8601.",
}
_Model = TypeVar("_Model", bound=BaseModel)


def _with_fields_of_a_job(model: type[_Model]) -> type[_Model]:
    """Class decorator: give a model the fields of ``Job``, all of which are always there."""
    added: dict[str, Any] = {}
    for name, hint in get_type_hints(Job).items():
        texts = isinstance(hint, type) and issubclass(hint, Enum)
        kind = Literal[tuple(member.value for member in hint)] if texts else Id if name == "id" else hint
        added[name] = kind, Field(description=_JOB_WORDS.get(name))
    return create_model(
        model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **added
    )


@_with_fields_of_a_job
class JobAnswer(BaseModel):
    """A job as it stands."""


class JobsAnswer(BaseModel):
    """A list of jobs, newest first."""

    jobs: list[JobAnswer]


class BestAnswer(BaseModel):
    """The best configurations known now, and where they come from."""

    origin: Source = Field(description="The least of those of the workloads.")
    device: dict[str, Any]
    objective: str
    workloads: dict[str, dict[str, Any]] = Field(
        description="Name to configuration, and where it comes from (origin, details)."
    )
    clock_mhz: int | None = Field(description="GPU clock of a stored answer in MHz; null for as found.")
    power_limit_w: int | None = Field(description="Power limit of a stored answer in W; null for as found.")
    stale: list[str] = Field(description="Why a stored answer need not be true any more; empty when fresh.")
    answer: dict[str, Any] | None = Field(description="Times in s and energies in J of a stored answer.")
    run: int | None
    refinement: int | None = Field(description="Number of the job that refines the answer.")
    notices: list[str]


class ErrorDetail(BaseModel):
    """Kind and message of an error."""

    kind: Literal[
        "input",
        "unauthorised",
        "not-yours",
        "unknown-job",
        "unknown-run",
        "unknown-path",
        "wrong-method",
        "not-now",
        "too-large",
        "too-many",
        "store",
        "busy",
        "internal",
    ]
    message: str = Field(description="For people: names what is wrong and what would be right.")


class ErrorAnswer(BaseModel):
    """The body of every answer that is an error."""

    error: ErrorDetail


# --- Models of what is stored: runs, trials, answers and samples. Times are in s, energies in J, power in W.

_INTERVAL = "Half of a 95 % interval."
_UNCERTAINTY = "Standard uncertainty (1 sigma)."

Limit = Annotated[int, Field(ge=1, le=_LARGEST_PAGE, description="At most so many.")]
Together = Annotated[
    list[Workload],
    Field(
        max_length=MOST_WORKLOADS,
        description="Of exactly these workloads together; repeated; of any without.",
    ),
]


class RunsQuery(RequestModel):
    """Which runs are listed, newest first."""

    workload: Together = Field(default=[])
    limit: Limit = _PAGE
    before: Id | None = Field(default=None, description="With a lower number than this.")


class TrialsQuery(RequestModel):
    """Which trials of a run are listed, in their order."""

    limit: Limit = _PAGE
    after: After = Field(default=0, description="With a higher number than this: `next` of the page before.")


class AnswersQuery(RequestModel):
    """Which answers are listed."""

    stale: bool | None = Field(default=None, description="Only stale ones, or only fresh ones; all without.")


class MergedFrom(BaseModel):
    """Origin of a run that was measured for another database."""

    source: str = Field(description="The file, address or host that it was read from.")
    identity: str = Field(description="Of the database that it was measured for; empty where not known.")
    number: int = Field(description="Of the run in that database.")
    at: str = Field(description="When it was merged: UTC, ISO 8601.")


class RunRow(BaseModel):
    """A run in a list."""

    run: Id
    started_at: str = Field(description="UTC, ISO 8601.")
    ended_at: str | None
    status: Literal["running", "finished", "limited", "interrupted", "failed", "killed"]
    workloads: list[str]
    device: str
    modelled: bool = Field(description="A simulated device made the numbers.")
    recorded: str | None = Field(description="The recording that the numbers are of.")
    objective: str = Field(description="With its slowdown limit.")
    policy: str
    clocks: str
    trials: int
    merged_from: MergedFrom | None = Field(description="Where a merged run comes from; null of runs of here.")
    best: dict[str, Any] | None = Field(description="Its best trial; null without an answer.")


class RunsAnswer(BaseModel):
    """Runs, newest first."""

    runs: list[RunRow]


class TrialRow(BaseModel):
    """A trial as it is known at the end; `docs/run-json.md` describes further fields."""

    number: Id
    ended_at: str = Field(description="UTC, ISO 8601.")
    status: str = Field(description="ok, or what failed.")
    configurations: dict[str, dict[str, Any]] = Field(description="Workload to values of its tunables.")
    clock_mhz: int | None = Field(description="GPU clock that was set; null for as found.")
    power_limit_w: int | None = Field(description="Power limit that was set; null for as found.")
    time_s: float | None = Field(description="Of a round.")
    time_s_uncertainty: float | None = Field(description=_UNCERTAINTY)
    energy_j: float | None = Field(description="Of a round.")
    energy_j_uncertainty: float | None = Field(description=_UNCERTAINTY)
    power_w: float | None
    confirmed: bool = Field(description="Measured again in paired repeats, as a contender for the answer.")
    searched: dict[str, Any] | None = Field(
        description="What the search saw of a contender, before it was measured again; null of others."
    )


class TrialsAnswer(BaseModel):
    """A page of trials."""

    run: Id
    modelled: bool = Field(description="A simulated device made the numbers.")
    count: int = Field(description="Trials of the run in all.")
    trials: list[TrialRow]
    next: int | None = Field(description="`after` of the next page; null after the last.")


class SampleRow(BaseModel):
    """Result of measuring an answer again."""

    at: str = Field(description="UTC, ISO 8601.")
    verdict: Literal["inside", "above", "below", "failed", "void"] = Field(
        description="Of its cost against the stored one; void does not count."
    )
    cost: float | None = Field(description="In `unit`.")
    expected: float | None = Field(description="The stored one, in `unit`.")
    interval: float | None = Field(description="Half of the 95 % interval of their difference.")
    unit: str
    told: str = Field(description="The same in words.")


class SamplesAnswer(BaseModel):
    """Samples of an answer, oldest first; two in a row outside on one side mean that it has drifted."""

    run: Id
    samples: list[SampleRow]


class Saving(BaseModel):
    """Energy in J that one use of an answer saves against the default."""

    energy_j: float
    energy_j_interval: float = Field(description=_INTERVAL)


class AnswerRow(BaseModel):
    """An answer that is served."""

    run: Id
    at: str = Field(description="When its run ended: UTC, ISO 8601.")
    status: str = Field(description="Of the run; `finished` where its search came to its end.")
    device: str
    device_name: str
    modelled: bool
    objective: str
    workloads: dict[str, dict[str, Any]] = Field(description="Name to batch and configuration.")
    clock_mhz: int | None
    power_limit_w: int | None
    stale: list[str] = Field(description="Why it need not be true any more; empty when fresh.")
    best: dict[str, Any] = Field(description="Times and energies with uncertainties.")
    default: dict[str, Any] | None
    against_default: dict[str, Any] | None = Field(
        description="Slowdown and saving as fractions, with intervals."
    )
    saving: Saving | None = Field(description="Null where joules of both were not measured.")
    sampled_at: str | None = Field(description="When it was measured again last.")
    sample: Literal["inside", "above", "below", "failed"] | None = Field(description="Verdict of that.")


class AnswersAnswer(BaseModel):
    """Answers that are served, newest first."""

    answers: list[AnswerRow]


class HistoryRow(RunRow):
    """An answer at a time: its run, what it was bound to, and its samples."""

    driver: str | None
    runtime: str | None = Field(description="Version of CUDA.")
    uuid: str | None = Field(description="Of the GPU.")
    name: str | None = Field(description="Of the GPU.")
    against_default: dict[str, Any] | None
    saving: Saving | None
    samples: list[SampleRow]


class HistoryAnswer(BaseModel):
    """Answers over time, newest first."""

    history: list[HistoryRow]
