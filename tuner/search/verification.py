"""Answers of other GPUs of a kind: verified here, measured again, and compared across a fleet."""

import math
import statistics
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.database.answers import StoredAnswer, stored_answer
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.measurement.paired import ASSUMED_REPEATABILITY as ENERGY_REPEATABILITY
from tuner.measurement.paired import LEAST_REPEATS, join
from tuner.measurement.race import ASSUMED_REPEATABILITY as TIME_REPEATABILITY
from tuner.model.errors import InputError, suggestion
from tuner.model.objective import COVERAGE, Objective
from tuner.model.plan import Configuration, Plan, TunableValue
from tuner.model.records import Conditions, RunStatus, StoredRun, trial_from
from tuner.model.run_document import RunDocument, TrialDocument, Verdict
from tuner.model.trial import Measurement, Trial
from tuner.search.answer import Outcome
from tuner.search.plan import plan_search
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup
from tuner.space.search_view import Search

MOST_REPEATS = 5
"""Of a trial that is not known to the wanted precision by then: a drift that matters shows in fewer."""


def measure_again(
    setup: MeasurementSetup,
    request: SearchRequest,
    catalog: Catalog,
    record: Mapping[str, Any],
) -> Measurement:
    """Measure a trial in several repeats, with idle power, and join them.

    Args:
        setup: opened for the request.
        request: its workloads, objective, precision and clocks.
        catalog: where its kernels are.
        record: the trial, as ``tuner.model.records.trial_record`` writes it.

    Raises:
        InputError: the trial is not of the request's workloads, or at a clock or power limit that may not
            be set.
        ClockError: clocks were asked for that cannot be set.
    """
    plan = plan_search(request, catalog, setup)
    trial = trial_from(record, plan.conditions.names)
    if trial.clock_mhz is not None and trial.clock_mhz not in plan.clocks_mhz:
        raise InputError(
            f"the sample is of {trial.clock_mhz} MHz, which may not be set under clocks {request.clocks!r}"
        )
    if trial.power_limit_w is not None:
        raise InputError(f"the sample is at a power limit of {trial.power_limit_w} W, which no job sets")
    plans = [
        kernel.plan(workload, configuration)
        for (kernel, workload), configuration in zip(plan.workloads, trial.configurations, strict=True)
        if isinstance(kernel, KernelFile)
    ]
    if len(plans) < len(plan.workloads):
        raise InputError(f"{setup.device.identity.spec}: a recording cannot be measured again")
    return _joined(setup, request, trial, plans)


def _joined(setup: MeasurementSetup, request: SearchRequest, trial: Trial, plans: list[Plan]) -> Measurement:
    objective = Objective(request.objective)

    def is_known(measurement: Measurement) -> bool:
        """True where half of the cost's 95 % interval is within the precision; or where it has no cost."""
        cost = objective.cost(measurement)
        unsure = COVERAGE * objective.uncertainty(measurement)
        return not math.isfinite(cost) or unsure <= request.energy_precision * cost

    repeats: list[Measurement] = []
    while len(repeats) < LEAST_REPEATS or (len(repeats) < MOST_REPEATS and not is_known(join(repeats))):
        repeats.append(setup.measurer.measure(trial, plans))
        if not repeats[-1].ok:
            return repeats[-1]
    setup.measurer.measure_idle(trial.clock_mhz)
    joined = setup.measurer.with_idle(join(repeats), trial.clock_mhz)
    return replace(joined, ended_s=setup.device.now_s())


# --- How the GPUs of a kind differ: the answers of stored runs, held against each other.
#
# Costs are compared that were measured on different days, so that a difference has both intervals and twice
# the repeatability of a trial in its own. A spread is the difference between the two extremes: of many equal
# GPUs these lie apart by chance, further than its interval tells. The gain of a GPU's power sensor, which may
# be some percent off, is in no interval: a GPU that seems to need more joules may have a sensor that shows
# more.

OUTLIER = 0.05
"""More joules than the other GPUs of its kind, from which a GPU is named."""


@dataclass(frozen=True)
class Amount:
    """A value with its uncertainty.

    Attributes:
        value: in seconds or joules of a round; of a difference of two costs, as a fraction of the lower.
        interval: half of its 95 % interval.
    """

    value: float
    interval: float


@dataclass(frozen=True)
class GpuAnswer:
    """The answer on one GPU.

    Attributes:
        uuid: of the GPU.
        device: as it was named where it was measured.
        host: of the GPU, or where its run was merged from; empty for this host.
        run: number of the run.
        at: when that ended, UTC, ISO 8601.
        verified: True where the answer of another GPU was verified; False where it was searched.
        refuted: a verification has found that it is not the best here.
        configurations: workload -> values.
        time: of a round.
        energy: of a round; None where it was not measured.
        default_energy: of the default; None where it was not measured.
    """

    uuid: str
    device: str
    host: str
    run: int
    at: str
    verified: bool
    refuted: bool
    configurations: Mapping[str, Mapping[str, TunableValue]]
    time: Amount | None
    energy: Amount | None
    default_energy: Amount | None


@dataclass(frozen=True)
class Outlier:
    """A GPU that needs more joules than the others of its kind.

    Attributes:
        uuid: of the GPU.
        excess: over the median of the others, as a fraction.
        interval: half of its 95 % interval.
    """

    uuid: str
    excess: float
    interval: float


@dataclass(frozen=True)
class FleetGroup:
    """Answers of the GPUs of one kind for workloads that run together.

    Attributes:
        workloads: with their batches.
        objective: as stored.
        clocks: that could be chosen from.
        model: product name of the GPUs.
        driver: of them.
        modelled: no GPU ran.
        gpus: their answers, by UUID.
    """

    workloads: Mapping[str, int]
    objective: str
    clocks: str
    model: str
    driver: str
    modelled: bool
    gpus: tuple[GpuAnswer, ...]

    @property
    def time_spread(self) -> Amount | None:
        """The longest time above the shortest; None of fewer than two."""
        return _spread([gpu.time for gpu in self.gpus], TIME_REPEATABILITY)

    @property
    def energy_spread(self) -> Amount | None:
        """The most joules above the least; None of fewer than two."""
        return _spread([gpu.energy for gpu in self.gpus], ENERGY_REPEATABILITY)

    @property
    def outliers(self) -> tuple[Outlier, ...]:
        """GPUs that need at least ``OUTLIER`` more joules than the median of the others, beyond chance."""
        outliers = []
        for gpu in self.gpus:
            others = [one.energy for one in self.gpus if one.uuid != gpu.uuid and one.energy is not None]
            if gpu.energy is None or not others:
                continue
            excess = _difference(gpu.energy, _median(others), ENERGY_REPEATABILITY)
            if excess.value >= OUTLIER and excess.value - excess.interval > 0.0:
                outliers.append(Outlier(gpu.uuid, excess.value, excess.interval))
        return tuple(outliers)

    def document(self) -> dict[str, Any]:
        """As JSON has it; seconds and joules of a round, intervals half of 95 %."""
        return {
            "workloads": dict(self.workloads),
            "objective": self.objective,
            "clocks": self.clocks,
            "kind": {"model": self.model, "driver": self.driver},
            "modelled": self.modelled,
            "gpus": [
                {
                    "uuid": gpu.uuid,
                    "device": gpu.device,
                    "host": gpu.host,
                    "run": gpu.run,
                    "at": gpu.at,
                    "verified": gpu.verified,
                    "refuted": gpu.refuted,
                    "configurations": {name: dict(values) for name, values in gpu.configurations.items()},
                    **_numbers(gpu.time, "time_s", "time_interval_s"),
                    **_numbers(gpu.energy, "energy_j", "energy_interval_j"),
                    **_numbers(gpu.default_energy, "default_energy_j", "default_energy_interval_j"),
                }
                for gpu in self.gpus
            ],
            **_numbers(self.time_spread, "time_spread", "time_spread_interval"),
            **_numbers(self.energy_spread, "energy_spread", "energy_spread_interval"),
            "outliers": [vars(outlier) for outlier in self.outliers],
        }


def fleet(answers: Iterable[StoredAnswer], names: Sequence[str] = (), *, least: int = 2) -> list[FleetGroup]:
    """The answers of GPUs of one kind, by workloads and kind.

    Of a GPU's answers the newest finished one counts. Of several versions of a kernel's sources, and of
    ways of measuring, those of the newest run are taken.

    Args:
        answers: stored, in any order.
        names: workloads of which one at least must be among those that run together; empty for all.
        least: GPUs that a group must have.
    """
    groups: dict[tuple[object, ...], list[StoredAnswer]] = {}
    for answer in answers:
        named = not names or not set(names).isdisjoint(answer.names)
        if named and not answer.conditions["device"].get("recorded"):
            groups.setdefault(_kind(answer), []).append(answer)
    built = [_group(sorted(members, key=lambda answer: -answer.run)) for members in groups.values()]
    large = [group for group in built if len(group.gpus) >= least]
    return sorted(
        large, key=lambda group: (tuple(group.workloads), group.model, group.driver, group.objective)
    )


def check_names(answers: Sequence[StoredAnswer], names: Sequence[str]) -> None:
    """Refuse a workload that no answer is of.

    Raises:
        InputError: names the first such workload, and the nearest that is stored.
    """
    stored = sorted({name for answer in answers for name in answer.names})
    for name in names:
        if name not in stored:
            near = suggestion(name, stored)
            raise InputError(f"{name}: no answer of it is stored{near} (`tuner history` lists runs)")


def _kind(answer: StoredAnswer) -> tuple[object, ...]:
    device = answer.conditions["device"]
    return (
        tuple(sorted(answer.batches.items())),
        answer.objective,
        answer.conditions["clocks"],
        *(device.get(name) for name in ("name", "driver", "runtime", "modelled")),
    )


def _group(answers: Sequence[StoredAnswer]) -> FleetGroup:
    """The group of answers, the newest first."""
    newest = answers[0]
    alike = [answer for answer in answers if _measured(answer) == _measured(newest)]
    chosen: dict[str, StoredAnswer] = {}
    for answer in sorted(alike, key=lambda answer: not answer.finished):  # stable: the newest of each first
        chosen.setdefault(answer.uuid, answer)
    device = newest.conditions["device"]
    return FleetGroup(
        dict(sorted(newest.batches.items())),
        newest.objective,
        str(newest.conditions["clocks"]),
        str(device["name"]),
        str(device.get("driver", "")),
        bool(device["modelled"]),
        tuple(_gpu_answer(chosen[uuid]) for uuid in sorted(chosen)),
    )


def _measured(answer: StoredAnswer) -> tuple[Mapping[str, str], int | None]:
    """Sources, and the way of measuring."""
    return answer.conditions["sources"], answer.conditions.get("protocol")


def _gpu_answer(answer: StoredAnswer) -> GpuAnswer:
    best, default = answer.answer["best"], answer.answer.get("default")
    return GpuAnswer(
        answer.uuid,
        str(answer.conditions["device"].get("spec", "")),
        answer.host or answer.merged_from,
        answer.run,
        answer.at,
        bool(answer.answer.get("verification")),
        bool(answer.refuted),
        answer.configurations,
        _amount(best["time_s"], best.get("time_s_uncertainty")),
        _amount(best.get("energy_j"), best.get("energy_j_uncertainty")),
        None if default is None else _amount(default.get("energy_j"), default.get("energy_j_uncertainty")),
    )


def _amount(value: float | None, uncertainty: float | None) -> Amount | None:
    return Amount(float(value), COVERAGE * float(uncertainty or 0.0)) if value else None


def _median(amounts: Sequence[Amount]) -> Amount:
    """The median, with the interval of the mean of the one or two values in the middle."""
    ordered = sorted(amounts, key=lambda amount: amount.value)
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    interval = math.hypot(*(amount.interval for amount in middle)) / len(middle)
    return Amount(statistics.fmean(amount.value for amount in middle), interval)


def _spread(amounts: Sequence[Amount | None], repeatability: float) -> Amount | None:
    """The highest against the lowest; None of fewer than two."""
    ordered = sorted((amount for amount in amounts if amount is not None), key=lambda amount: amount.value)
    return _difference(ordered[-1], ordered[0], repeatability) if len(ordered) > 1 else None


def _difference(more: Amount, less: Amount, repeatability: float) -> Amount:
    """One cost against another; each was measured once, with that relative standard deviation of repeats."""
    ratio = more.value / less.value
    parts = [amount.interval / amount.value for amount in (more, less)]
    return Amount(ratio - 1.0, ratio * math.hypot(*parts, COVERAGE * math.sqrt(2.0) * repeatability))


def _numbers(amount: Amount | None, name: str, interval: str) -> dict[str, float | None]:
    """An amount under its two names in a document."""
    return {
        name: None if amount is None else amount.value,
        interval: None if amount is None else amount.interval,
    }


# --- A search that only verifies the answer of another GPU of the kind.

POLICY = "verify"
"""In the place of a policy's name, in runs that verify."""

NOTHING_TO_VERIFY = (
    "no finished run on another GPU of this kind is stored that could be verified: this is a search"
)

_VERDICTS = {True: "verified", False: "refuted", None: "not verified"}

RIVALS = 1
"""Contenders that tied with the answer there, of which so many are measured here too.

Each costs as much as the answer. What lost to the answer turn by turn there is no rival.
"""


@dataclass(frozen=True)
class VerifiableAnswer:
    """An answer of another GPU of the kind, under the conditions of a run.

    Attributes:
        run: its number.
        gpu: UUID of the GPU that it is of.
        answer: configurations and setting.
        rivals: further trials that may cost as little.
    """

    run: int
    gpu: str
    answer: Trial
    rivals: tuple[Trial, ...] = ()

    @property
    def settings(self) -> dict[str, str | int]:
        """Settings that a verifying run is bound to."""
        return {"verified_run": self.run, "verified_gpu": self.gpu}

    def trials(self, search: Search) -> Generator[list[Trial], list[Measurement], Trial | None]:
        """The policy: the answer, then its rivals, as far as they are in the space of this run."""
        spaces = [
            {
                configuration: configuration
                for configuration in (default, *(each.configuration for each in candidates))
            }
            for candidates, default in zip(search.candidates, search.defaults, strict=True)
        ]
        limits_w = search.power_limits_w or (None,)
        trials = [  # with the tunables in the order of this run, which a stored answer has lost
            replace(trial, configurations=tuple(map(dict.__getitem__, spaces, trial.configurations)))
            for trial in (self.answer, *self.rivals)
            if trial.clock_mhz in search.clocks
            and trial.power_limit_w in limits_w
            and all(
                configuration in space
                for configuration, space in zip(trial.configurations, spaces, strict=True)
            )
        ]
        measured = yield trials
        costs = dict(zip(trials, map(search.cost, measured), strict=True))
        return min(costs, key=costs.__getitem__, default=None)


def verifiable_answer(store: Store, conditions: Conditions) -> VerifiableAnswer | None:
    """The answer of another GPU of the kind that a run may verify; None without one.

    It is of a finished run of the same workloads, batches, objective, clocks and power limits, on a GPU of
    the same model, driver and CUDA, with the present sources. That of a search goes before one that was
    verified itself, as it knows more rivals; then the newest.
    """
    verifiable_runs = [
        (run.conditions["policy"] == POLICY, -run.id, run, document, best)
        for run in store.answered(conditions.names, conditions.objective)
        if (answer := stored_answer(run)) is not None
        and (document := run.answer) is not None
        and (best := document["best"]) is not None
        and verifiable(answer, run, conditions)
    ]
    if not verifiable_runs:
        return None
    _, _, run, document, best = min(verifiable_runs, key=lambda entry: entry[:2])
    trials = [trial for trial, _ in store.trials(run.id, conditions.names)]
    trial, rivals = _answer_and_rivals(document, best, trials, conditions.names)
    return VerifiableAnswer(run.id, run.conditions["device"]["uuid"], trial, rivals)


def verifiable(answer: StoredAnswer, run: StoredRun, conditions: Conditions) -> bool:
    """True for an answer that is stale under some conditions for its GPU alone."""
    if answer.status is not RunStatus.FINISHED or answer.uuid == conditions.device.uuid:
        return False
    device = replace(conditions.device, uuid=answer.uuid)
    settings = run.conditions.get("settings", {})
    return (
        answer.on(device)
        and not answer.reasons(device, conditions.sources, dict(conditions.workloads))
        and answer.conditions["clocks"] == conditions.clocks
        and settings.get("power_limits_w") == conditions.settings.get("power_limits_w")
        and not conditions.device.recorded
    )


def _answer_and_rivals(
    document: RunDocument, best: TrialDocument, trials: Sequence[Trial], names: tuple[str, ...]
) -> tuple[Trial, tuple[Trial, ...]]:
    """The answer of a run, and the trials that may cost as little."""
    others = [trials[number - 1] for number in document.get("tied", ()) if 0 < number <= len(trials)]
    fastest, default = document.get("fastest"), document["default"]
    if document.get("max_slowdown") is not None and fastest is not None:
        others.insert(0, _trial(fastest, names))  # what the slowdown is held against
    answer = _trial(best, names)
    named = {answer} if default is None else {answer, _trial(default, names)}
    rivals = [trial for trial in dict.fromkeys(others) if trial not in named]
    return answer, tuple(rivals[:RIVALS])


def _trial(record: TrialDocument, names: tuple[str, ...]) -> Trial:
    configurations = tuple(Configuration(record["configurations"][name]) for name in names)
    return Trial(configurations, record.get("clock_mhz"), record.get("power_limit_w"))


def verdict(verified: VerifiableAnswer, outcome: Outcome, precision: float) -> Verdict:
    """Return the verdict on an answer on this GPU, as the document of the run has it.

    Args:
        verified: the answer.
        outcome: of the run that has verified it.
        precision: within which costs are the same.

    Returns:
        ``run`` and ``gpu`` of the answer, ``held`` (None where the run was ended before it was known), its
        ``ratio`` to the lowest cost here with ``ratio_interval`` (half of the 95 % interval), and ``told``.
    """
    held, ratio, message = _judged(verified, outcome, precision)
    value, interval = (None, None) if ratio is None else ratio
    return {
        "run": verified.run,
        "gpu": verified.gpu,
        "held": held,
        "ratio": value,
        "ratio_interval": interval,
        "told": f"{_VERDICTS[held]}: the answer of {verified.gpu} (run {verified.run}) {message}",
    }


def _judged(
    verified: VerifiableAnswer, outcome: Outcome, precision: float
) -> tuple[bool | None, tuple[float, float] | None, str]:
    if outcome.status is not RunStatus.FINISHED:
        return None, None, "is not judged: the run was ended before"
    cost = Objective(outcome.objective.name)
    joined = outcome.paired.joined()
    if verified.answer not in joined:
        return False, None, "does not run here as it did there: a search is needed"
    lowest = next(iter(outcome.paired.rivals(outcome.objective)), verified.answer)
    ratio = outcome.paired.ratio(verified.answer, lowest, cost)
    judged_ratio = (1.0, 0.0) if lowest == verified.answer or ratio is None else (ratio.value, ratio.interval)
    if verified.answer in outcome.paired.tied(outcome.objective, precision):
        return True, judged_ratio, "holds on this GPU, turn by turn with the default and its rivals"
    default = None if outcome.default is None else outcome.trials[outcome.default][0]
    winner = "the default" if lowest == default else "a rival"
    more = f"{100 * (judged_ratio[0] - 1):.2g} ± {100 * judged_ratio[1]:.2g} %"
    return (
        False,
        judged_ratio,
        f"is not the best here: it costs {more} more than {winner}; a search is needed",
    )
