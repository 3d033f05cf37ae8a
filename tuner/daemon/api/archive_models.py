"""Models of what is stored: runs, trials, answers and samples. Times are in s, energies in J, power in W."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from tuner.daemon.http.models import After, Id, RequestModel, Workload
from tuner.daemon.interface import MOST_WORKLOADS

_PAGE = 100
_LARGEST_PAGE = 500
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
    """Where a run comes from that was measured for another database."""

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
    """A trial as it is known at the end; `docs/run.md` describes further fields."""

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
    """What measuring an answer again has given."""

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
    """What one use of an answer saves against the default."""

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
