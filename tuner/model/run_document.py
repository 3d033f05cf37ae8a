"""The document of a run: what the database keeps, ``--json`` writes, and every report reads.

One definition says what its keys hold: mypy reads it at every access, and ``run_document`` checks what comes
from outside against it, once, where it comes in. ``docs/run-json.md`` describes the keys. Keys that are not
here, such as those of a newer version, are left as they are. Times are seconds, energies joules of a round.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import TunableValue
from tuner.model.typed import LARGEST, UnfitError, typed
from tuner.model.units import Amount, Count, Number, Positive

Part = Literal["best", "fastest", "least_energy", "default", "solo_bests"]
PARTS: tuple[Part, ...] = ("best", "fastest", "least_energy", "default", "solo_bests")
"""Trials that a document names."""

Configurations = dict[str, dict[str, TunableValue]]
"""Workload -> values of its tunables."""


class _Device(TypedDict):
    name: str


class Device(_Device, total=False):
    """The GPU, as ``DeviceIdentity`` has it; that of conditions is whole."""

    spec: str
    uuid: str
    driver: str
    runtime: str
    modelled: bool
    recorded: str


class _Program(TypedDict):
    command: list[str]
    tunables: dict[str, list[bool | int | float | str]]
    environment: list[str]
    conditions: dict[str, str]
    rules: list[str]
    metrics: list[str]
    keep: list[str]
    per: str


class ProgramDocument(_Program, total=False):
    """A program that was tuned: see ``tuner.programs.program.Program``; no phase of whole runs."""

    phase: str


class RunSettings(TypedDict, total=False):
    """Further settings that decide which trials are made, and how."""

    min_occupancy: Number | None
    window_s: Amount | None
    energy_precision: Number | None
    timing: str
    joules: bool
    power_limits_w: list[Count]
    stream_priorities: Count
    sm_shares: list[Count]
    patience: Count | None
    runs: Number | None
    sensor: str | None
    program: ProgramDocument


def program_of(document: "RunDocument") -> ProgramDocument | None:
    """The program that a run tuned; None of kernels."""
    return (document.get("settings") or {}).get("program")


def placing(settings: Mapping[str, Any]) -> str:
    """Places beside each other that a run searched, in a word or three."""
    words = {"stream_priorities": "priorities", "sm_shares": "SM shares"}
    return " and ".join(word for key, word in words.items() if key in settings) or "priorities"


class _Conditions(TypedDict):
    workloads: list[tuple[str, Count]]
    sources: dict[str, str]
    device: Device
    objective: str
    policy: str
    seed: int
    clocks: str
    settings: RunSettings


class RunConditions(_Conditions, total=False):
    """Conditions that a run is bound to: see ``tuner.model.records.Conditions``."""

    asked: dict[str, Count]
    protocol: int | None
    content: str


class _WorkloadResult(TypedDict):
    status: str
    time_s: Positive | None
    detail: str


class WorkloadResultDocument(_WorkloadResult, total=False):
    """Result of one workload of a trial."""

    restore_s: Amount | None
    metrics: dict[str, Number]


class SearchedTrial(TypedDict, total=False):
    """Numbers that the search had for a trial that was measured again."""

    time_s: Positive | None
    time_s_uncertainty: Amount | None
    energy_j: Amount | None
    energy_j_uncertainty: Amount | None
    power_w: Amount | None
    clock_seen_mhz: Amount | None
    bursts: Count
    window_s: Amount | None
    flags: list[str]


class PowerSeriesDocument(TypedDict):
    """Power over time in one window."""

    times_s: list[Number]
    watts: list[Number]


class PoolGpuDocument(TypedDict, total=False):
    """The GPU of a pool that measured a trial."""

    host: str
    uuid: str
    driver: str


class TrialSeries(TypedDict, total=False):
    """Further keys of a trial in a list: see ``tuner.search.document``."""

    searched: SearchedTrial | None
    ended_s: Number | None
    ended_at: str | None
    check_s: Amount
    spent_j: Number | None
    repeats_spent_j: Number
    time_spreads_s: dict[str, Amount]
    power_series: list[PowerSeriesDocument]


class _TrialRecord(TypedDict):
    configurations: Configurations
    clock_mhz: Count | None


class TrialRecord(_TrialRecord, total=False):
    """Configurations and GPU setting of a trial."""

    power_limit_w: Count | None


class _Trial(TrialRecord, TrialSeries):
    status: str
    time_s: Positive | None
    energy_j: Amount | None


class TrialDocument(_Trial, total=False):
    """A trial with its measurement."""

    time_spread_s: Amount | None
    time_s_uncertainty: Amount | None
    energy_j_uncertainty: Amount | None
    energy_j_window_uncertainty: Amount | None
    energy_net_j: Number | None
    energy_net_j_uncertainty: Amount | None
    power_w: Amount | None
    idle_w: Amount | None
    idle_w_uncertainty: Amount | None
    sensor: str | None
    scope: str | None
    clock_seen_mhz: Amount | None
    temperature_c: Number | None
    bursts: Count
    confirmed: bool
    rounds: Count
    window_s: Amount | None
    flags: list[str]
    gpu: PoolGpuDocument | None
    workloads: dict[str, WorkloadResultDocument]
    number: Count


class WorkloadSpace(TypedDict, total=False):
    """Numbers of configurations of a workload, by outcome; empty if unknown."""

    cartesian: Count
    size: Count
    listed: Count
    pruned: Count
    dropped: dict[str, Count]
    uncompiled: Count
    min_occupancy: Number | None


class _Part(TypedDict):
    configuration: dict[str, TunableValue]
    time_s: Positive | None
    energy_share_j: Amount | None
    energy_share_j_uncertainty: Amount | None
    rate: Amount | None


class WorkloadPart(_Part, total=False):
    """One workload's part of a trial; its share of the joules is modelled."""

    spills: bool
    status: str
    time_spread_s: Amount | None
    restore_s: Amount | None
    rate_per_watt: Amount | None


class _Expanded(TypedDict):
    source: str | None
    macros: dict[str, str]
    entries: list[str]


class Expanded(_Expanded, total=False):
    """Build settings of a workload whose tunables are not only macros of its source."""

    options: list[str]
    parameters: list[str]
    config: dict[str, TunableValue]


class KernelRecord(TypedDict):
    """A kernel that does not come with the package: its file and what that and its sources said.

    ``path`` is empty for a kernel of a Python program; ``files`` holds no files that are too large.
    """

    path: str
    files: dict[str, str]


class _Workload(TypedDict):
    name: str
    batch: Count
    space: WorkloadSpace
    default: WorkloadPart | None
    best: WorkloadPart | None


class WorkloadDocument(_Workload, total=False):
    """A workload of a run."""

    inputs: dict[str, str]
    rate_name: str
    work_assumed: bool
    expanded: Expanded | None
    flags: list[str]
    compilers: list[str]
    kernel_file: KernelRecord
    compile_errors: list[str]
    candidates: list[Any]


class _Space(TypedDict):
    measured: Count


class SpaceDocument(_Space, total=False):
    """The trials of a run, and of which space they are."""

    size: Count | None
    pruned: Count | None
    failed: Count
    spared: Count
    clocks_mhz: list[Count]
    power_limits_w: list[Count]


class _Changes(TypedDict):
    slowdown: Number


class Changes(_Changes, total=False):
    """A trial against another one; no joules where none were measured, intervals are half of 95 %."""

    slowdown_interval: Amount | None
    energy_saving: Number
    energy_saving_interval: Amount
    turn_by_turn: bool | None


class Comparisons(TypedDict, total=False):
    """The answer, or a point of a front, against other trials."""

    against_default: Changes | None
    trade_off: Changes | None
    against_solo_bests: Changes | None
    energy_trade_off: Changes | None


class _FrontPoint(TypedDict):
    number: Count
    trial: TrialDocument
    parts: list[WorkloadPart | None]
    expanded: list[Expanded | None]


class FrontPoint(_FrontPoint, Comparisons):
    """A point of the Pareto front, with all that a document says of its answer."""


class SettingPoint(TypedDict):
    """Time and joules of one configuration at one clock or power limit; ratios are against the highest."""

    time_s: Positive
    time_s_uncertainty: Amount
    time_ratio: Positive
    time_ratio_interval: Amount
    joules: Number | None
    joules_uncertainty: Number | None
    joules_ratio: Number | None
    joules_ratio_interval: Number | None
    saving_per_slowdown: Number | None
    kind: Literal["measured", "modelled"]


class ClockPointDocument(SettingPoint):
    """A point over the clock."""

    clock_mhz: Count
    power_limit_w: Count | None


class PowerLimitPoint(SettingPoint):
    """A point over the power limit."""

    clock_mhz: Count | None
    power_limit_w: Count
    clock_seen_mhz: Amount | None


class CoRunTotals(TypedDict):
    """Time and joules of a co-run, or of one of its workloads alone."""

    time_s: Positive
    time_s_uncertainty: Amount | None
    energy_j: Amount | None
    energy_j_uncertainty: Amount | None


class CoRunDocument(TypedDict):
    """The answer against its workloads one after another; changes are relative."""

    repeats: Count
    together: CoRunTotals
    in_turn: CoRunTotals
    workloads: dict[str, CoRunTotals]
    time_change: Number
    time_change_interval: Amount
    energy_change: Number | None
    energy_change_interval: Amount | None


class PriorityChanges(TypedDict):
    """Changes against the solo bests at equal priorities and without shares, turn by turn."""

    repeats: Count
    priorities: Changes
    configurations: Changes
    both: Changes


class PriorityDocument(TypedDict):
    """The solo bests at equal priorities and without shares, where ``solo_bests`` has the best ones."""

    tried: Count
    equal: TrialDocument
    against_equal: PriorityChanges | None


class RepeatabilityDocument(TypedDict, total=False):
    """Repeatability of trials; halves of 95 % intervals, relative."""

    trials: Count
    energy_interval: Amount | None
    time_interval: Amount | None


class _Scatter(TypedDict):
    energy_interval: Amount
    assumed: bool


class ScatterDocument(_Scatter, total=False):
    """Scatter of joules from window to window, relative."""

    energy_deviation: Amount
    degrees: Number | None
    drift_interval: Amount | None


class Confirmation(TypedDict, total=False):
    """Numbers of the trials that were measured again, and of those that tie with the lowest of them."""

    contenders: list[Count]
    tied: list[Count]


class UnseenEnergy(TypedDict):
    """Joules of the tuning that no sample saw."""

    energy_j: Number
    energy_j_uncertainty: Amount
    time_s: Number


class TuningEnergy(TypedDict, total=False):
    """Joules that the tuning cost."""

    tuning_energy_j: Number | None
    tuning_energy_j_uncertainty: Amount | None
    tuning_energy_unseen: UnseenEnergy | None


class WallDocument(TypedDict):
    """Wall time of a run by phase, in s."""

    prepare_s: Amount
    search_s: Amount
    windows_s: Amount
    checks_s: Amount


class BreakEven(TypedDict):
    """After how many runs the tuning has paid for itself, in joules or in seconds."""

    unit: Literal["J", "s"]
    cost: Number
    cost_interval: Amount
    saving_per_run: Number
    saving_interval: Amount
    runs: Number | None
    runs_least: Number | None
    runs_most: Number | None
    runs_per_day: Number | None
    days: Number | None


class _Verdict(TypedDict):
    held: bool | None
    told: str


class Verdict(_Verdict, total=False):
    """Result of verifying the answer of another GPU."""

    run: int
    gpu: str
    ratio: Number | None
    ratio_interval: Number | None


class SampleDocument(TypedDict, total=False):
    """Result of measuring a served answer again; ``interval`` is half of the joint 95 % interval.

    Of one that does not count, cost, expected and interval are null.
    """

    at: str
    verdict: str
    cost: Number | None
    expected: Number | None
    interval: Amount | None
    unit: str
    told: str


class AnalyticalDocument(TypedDict, total=False):
    """An analytical answer of a workload that was never tuned; the reasons say why there is none."""

    configuration: dict[str, TunableValue] | None
    rule: str | None
    considered: Count
    default: dict[str, TunableValue] | None
    reasons: list[str]
    source: str
    seconds: Amount


class AnswerTrial(TypedDict, total=False):
    """A trial of an answer without its configurations."""

    time_s: Positive | None
    time_s_uncertainty: Amount | None
    energy_j: Amount | None
    energy_j_uncertainty: Amount | None
    power_w: Amount | None
    sensor: str | None
    scope: str | None
    clock_seen_mhz: Amount | None
    temperature_c: Number | None
    bursts: Count | None
    window_s: Amount | None
    flags: list[str] | None


class _Answer(TypedDict):
    best: AnswerTrial


class AnswerDocument(_Answer, Comparisons, total=False):
    """Content of a stored answer beside its configurations, as the daemon answers."""

    status: str
    modelled: bool
    timing: str
    repeatability: RepeatabilityDocument | None
    verification: Verdict | None
    default: AnswerTrial | None


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


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best configurations known now: what the daemon serves, its clients read and ``tuner best`` shows.

    Attributes:
        origin: the least of those of the workloads.
        device: the GPU as the database has it.
        objective: with its slowdown limit.
        workloads: configuration of each.
        clock_mhz: GPU clock of a stored answer; None for as found.
        power_limit_w: power limit of a stored answer; None for as found.
        stale: why a stored answer need not be true any more; empty when it is fresh.
        answer: time, joules and intervals of a stored answer as the run's document has them.
        run: number of the run that a stored answer is of.
        refinement: number of the job that refines the answer; None where there is none.
        notices: what to know beside.
    """

    origin: str
    device: Device
    objective: str
    workloads: Mapping[str, WorkloadAnswer]
    clock_mhz: int | None
    power_limit_w: int | None = None
    stale: tuple[str, ...]
    answer: AnswerDocument | None
    run: int | None
    refinement: int | None
    notices: tuple[str, ...]


HasEnergy = TrialDocument | AnswerTrial | CoRunTotals | UnseenEnergy
"""Objects with ``energy_j`` and ``energy_j_uncertainty``."""


class MergedFrom(TypedDict):
    """Origin of a merged run."""

    source: str
    identity: str
    number: Count
    at: str


class ClockCurve(TypedDict, total=False):
    """The answer's configurations over the clock, highest clock first."""

    clock_curve: list[ClockPointDocument]
    clock_curve_of: Configurations | None


class _Run(Comparisons, ClockCurve, Confirmation, TuningEnergy):
    status: str
    device: Device
    modelled: bool
    objective: str
    workloads: list[WorkloadDocument]
    space: SpaceDocument
    best: TrialDocument | None
    default: TrialDocument | None


class RunRow(TypedDict):
    """A run in a list; ``trials`` is how many it has."""

    run: Count
    started_at: str
    ended_at: str | None
    status: str
    workloads: list[str]
    device: str
    modelled: bool
    recorded: str | None
    objective: str
    policy: str
    clocks: str
    trials: Count
    merged_from: MergedFrom | None
    best: TrialDocument | None


class RunDocument(_Run, total=False):
    """The document of a run. Of one without an answer ``best`` is null, and much is missing."""

    run: int | None
    recorded: str | None
    timing: str
    max_slowdown: Amount | None
    energy_precision: Number | None
    policy: str
    seed: int
    clocks: str
    sources: dict[str, str]
    settings: RunSettings
    fastest: TrialDocument | None
    least_energy: TrialDocument | None
    solo_bests: TrialDocument | None
    front: list[FrontPoint]
    solo_best_priorities: PriorityDocument | None
    solo_best_runs: dict[str, int]
    limited_solo_bests: list[str]
    no_solo_bests: str | None
    power_limit_curve: list[PowerLimitPoint]
    one_after_another: CoRunDocument | None
    repeatability: RepeatabilityDocument | None
    window_scatter: ScatterDocument | None
    resumed: Count
    wall_s: Amount
    wall: WallDocument | None
    notices: list[str]
    break_even: BreakEven | None
    verification: Verdict | None
    trials: list[TrialDocument]
    merged_from: MergedFrom | None
    started_at: str | None
    ended_at: str | None
    front_slowdown: Amount


def device_document(identity: DeviceIdentity) -> Device:
    """A GPU as documents have it."""
    return cast("Device", dict(vars(identity)))


def run_document(value: object, where: str = "") -> RunDocument:
    """A document of a run that comes from outside, as it is.

    Args:
        value: what JSON has.
        where: what messages call it.

    Raises:
        UnfitError: a key is missing or holds what no run has written; the message names the key and what
            would be right.
    """
    typed(RunDocument, value, where)
    document = cast("RunDocument", value)
    before = f"{where}." if where else ""
    names = [workload["name"] for workload in document["workloads"]]
    if not names or len(set(names)) < len(names):
        raise UnfitError(f"{before}workloads is empty, or has a name twice")
    for key, trial in _trials(document):
        if missing := set(names) - trial["configurations"].keys():
            raise UnfitError(f"{before}{key}.configurations lacks {min(missing)}")
        if "workloads" in trial and (missing := set(names) - trial["workloads"].keys()):
            raise UnfitError(f"{before}{key}.workloads lacks {min(missing)}")
    if document["best"] is not None:
        _check_answer(document, before)
    return document


def run_conditions(value: object) -> RunConditions:
    """The conditions of a run that come from outside, as they are.

    Raises:
        UnfitError: they are not as ``Conditions.record`` makes them; a key that is not known may change what
            they mean.
    """
    typed(RunConditions, value, "conditions")
    conditions = cast("RunConditions", value)
    if unknown := conditions.keys() - RunConditions.__annotations__.keys():
        raise UnfitError(f"conditions.{min(unknown):.40} is not known")
    typed(DeviceIdentity, conditions["device"], "conditions.device")
    batches = [*conditions["workloads"], *conditions.get("asked", {}).items()]
    if not conditions["workloads"]:
        raise UnfitError("conditions.workloads is empty")
    for name, batch in batches:
        if not 1 <= batch < LARGEST:
            raise UnfitError(f"conditions: the batch of {name} is {batch}")
    return conditions


def _trials(document: RunDocument) -> Iterator[tuple[str, TrialDocument]]:
    """All trials of a document, with their places."""
    for key in PARTS:
        trial = document.get(key)
        if trial is not None:
            yield key, trial
    priorities = document.get("solo_best_priorities")
    if priorities is not None:
        yield "solo_best_priorities.equal", priorities["equal"]
    for i, point in enumerate(document.get("front", ())):
        yield f"front[{i}].trial", point["trial"]
    for i, trial in enumerate(document.get("trials", ())):
        yield f"trials[{i}]", trial


def _check_answer(document: RunDocument, before: str) -> None:
    """Raise UnfitError where an answer lacks what every answer has."""
    answers = [("best", document["best"], [one.get("expanded") for one in document["workloads"]])]
    for i, point in enumerate(document.get("front", ())):
        answers.append((f"front[{i}].trial", point["trial"], point["expanded"]))
    for key, trial, builds in answers:
        for one, build in zip(document["workloads"], builds, strict=False):
            values = {} if trial is None else trial["configurations"][one["name"]]
            if build is not None and (missing := set(build.get("parameters", ())) - values.keys()):
                raise UnfitError(f"{before}{key}.configurations.{one['name']} lacks {min(missing)}")
    best, workloads = document["best"], document["workloads"]
    if best is None or best["time_s"] is None:
        raise UnfitError(f"{before}best.time_s is missing")
    for i, workload in enumerate(workloads):
        if workload["best"] is None:
            raise UnfitError(f"{before}workloads[{i}].best is missing")
    for i, point in enumerate(document.get("front", ())):
        costs = point["trial"]["time_s"], point["trial"]["energy_j"]
        if None in costs or None in point["parts"]:
            raise UnfitError(f"{before}front[{i}] lacks its time, its joules or a part")
        if not len(workloads) == len(point["parts"]) == len(point["expanded"]):
            raise UnfitError(f"{before}front[{i}] has not a part for each workload")
    curve = document.get("clock_curve")
    if curve and not any(each["kind"] == "measured" and each["time_ratio_interval"] == 0.0 for each in curve):
        raise UnfitError(f"{before}clock_curve has no point that ratios are against")
