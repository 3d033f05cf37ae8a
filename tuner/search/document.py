"""The document of a run: what ``--json`` writes, the database keeps and the tables show."""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Literal, cast

from tuner.kernel_files.build_record import NVRTC, build_record, compilers_of, fixed_options, kernel_record
from tuner.kernel_files.kernel_file import KernelFile
from tuner.measurement.race import ASSUMED_REPEATABILITY as TIME_REPEATABILITY
from tuner.model.objective import COVERAGE, Objective
from tuner.model.plan import Configuration
from tuner.model.records import Record, trial_record
from tuner.model.run_document import (
    BreakEven,
    ClockCurve,
    ClockPointDocument,
    Comparisons,
    Expanded,
    PoolGpuDocument,
    PowerLimitPoint,
    PriorityDocument,
    RepeatabilityDocument,
    RunDocument,
    RunSettings,
    ScatterDocument,
    SpaceDocument,
    TrialDocument,
    TrialSeries,
    TuningEnergy,
    WallDocument,
    WorkloadDocument,
    WorkloadPart,
    WorkloadResultDocument,
    device_document,
)
from tuner.model.trial import Measurement, Trial, WorkloadResult, of_window, unpacked
from tuner.search.answer import Outcome, against
from tuner.search.candidates import PreparedWorkload
from tuner.search.plan import SearchPlan
from tuner.search.together import record_of
from tuner.space.search_view import Candidate, ClockPoint


def break_even(document: RunDocument, objective: str, runs_per_day: float | None) -> BreakEven | None:
    """Return the cost of tuning, the saving per run against the default, and the runs to break even.

    In joules where the objective has joules in it, else in seconds. The seconds are the wall time of the
    run; of a simulated device those of preparing, and the modelled ones of windows and checks; of a recording
    the recorded ones of these. The interval of the runs goes from the least cost and the largest saving to
    the most and the smallest.

    Args:
        document: of the run, up to here.
        objective: its name.
        runs_per_day: how often the answer will be run; None where nobody said.

    Returns:
        None where there is no answer, or no default to compare it with.
    """
    against, default = document.get("against_default"), document["default"]
    energy = Objective(objective).needs_energy
    if against is None or default is None or (energy and "energy_saving" not in against):
        return None
    unit: Literal["J", "s"] = "J" if energy else "s"
    if energy:
        cost, uncertainty = document.get("tuning_energy_j"), document.get("tuning_energy_j_uncertainty")
        saving, half = against["energy_saving"], against["energy_saving_interval"]
        per_run = default["energy_j"]
    else:
        cost, uncertainty = _seconds(document), 0.0
        saving, half = -against["slowdown"], against.get("slowdown_interval") or 0.0
        per_run = default["time_s"]
    if cost is None or per_run is None:
        return None
    cost_half = COVERAGE * (uncertainty or 0.0)
    saved, saved_half = per_run * saving, per_run * half
    runs = cost / saved if saved > 0 else None
    return {
        "unit": unit,
        "cost": cost,
        "cost_interval": cost_half,
        "saving_per_run": saved,
        "saving_interval": saved_half,
        "runs": runs,
        "runs_least": max(0.0, cost - cost_half) / (saved + saved_half) if saved + saved_half > 0 else None,
        "runs_most": (cost + cost_half) / (saved - saved_half) if saved > saved_half else None,
        "runs_per_day": runs_per_day,
        "days": runs / runs_per_day if runs is not None and runs_per_day is not None else None,
    }


def _seconds(document: RunDocument) -> float | None:
    wall = document.get("wall")
    if not (document["modelled"] or document.get("recorded")):  # old documents lack the latter
        return document.get("wall_s")
    if wall is None:
        return None
    prepare_s = 0.0 if document.get("recorded") else wall["prepare_s"]  # that is of the replay
    return math.fsum((prepare_s, wall["windows_s"], wall["checks_s"]))


# --- What other clocks would bring: the answer's configurations over the clock, and its neighbours there.

_ENOUGH = 3  # clocks of a curve, from which on the others are modelled


def clock_curve(outcome: Outcome, clocks_mhz: Sequence[int], names: Sequence[str]) -> ClockCurve:
    """Time and joules of the answer's configurations over the clock, highest clock first.

    Where they were measured at too few clocks, as when they tie with others whose clocks were searched, it
    is the curve of the cheapest ones that were measured at enough. Ratios are against the highest clock at
    which they were measured, for joules where any were. ``kind`` says whether a point was measured, or
    comes from the model of time and power that is fitted to the measured ones.

    Args:
        outcome: with its answer.
        clocks_mhz: that the run could set.
        names: of the workloads.

    Returns:
        ``clock_curve`` and ``clock_curve_of`` as ``docs/run-json.md`` describes them; an empty list and null
        where the clock was not searched.
    """
    nothing: ClockCurve = {"clock_curve": [], "clock_curve_of": None}
    if outcome.answer is None:
        return nothing
    trials = dict(outcome.trials)
    answer = _shown(outcome, trials)
    line = clock_line(trials, answer)
    points = _points(line, clocks_mhz) if len(line) > 1 else []
    measured = [point for point in points if point.measured]
    if len(measured) < 2:  # noqa: PLR2004 - one has no slope
        return nothing
    reference = next((point for point in measured if point.joules), measured[0])
    return {
        "clock_curve": [_record(outcome, answer, point, reference) for point in points],
        "clock_curve_of": trial_record(answer, names)["configurations"],
    }


def _points(line: Mapping[int, Measurement], clocks_mhz: Sequence[int]) -> list[ClockPoint]:
    """Points of a line, highest clock first; joules of the measured ones with the uncertainty that is stated.

    The model is fitted to the windows: it knows of the scatter between them.
    """
    from tuner.policies.steering import curve  # noqa: PLC0415 - most runs have no curve

    windows = {mhz: of_window(measurement) for mhz, measurement in line.items()}
    return [
        replace(point, joules_uncertainty=energy.uncertainty_j)
        if point.measured and (energy := line[point.clock_mhz].energy) is not None
        else point
        for point in curve(windows, clocks_mhz)
    ]


def _shown(outcome: Outcome, trials: Mapping[Trial, Measurement]) -> Trial:
    """The answer, or the cheapest trial whose configurations were measured at enough clocks."""
    answer = outcome.trials[outcome.answer or 0][0]
    cost = outcome.objective.known
    costs = sorted(
        (trial for trial in trials if math.isfinite(cost(trials[trial]))), key=lambda t: cost(trials[t])
    )
    clocks = Counter(_but_clock(trial) for trial in trials if trial.clock_mhz is not None)
    wide = (trial for trial in (answer, *costs) if clocks[_but_clock(trial)] >= _ENOUGH)
    return next(wide, answer)


def clock_line(trials: Mapping[Trial, Measurement], reference: Trial) -> dict[int, Measurement]:
    """Trials that differ from one in the clock only, itself among them, by their clocks."""
    sought = _but_clock(reference)
    return {
        trial.clock_mhz: measurement
        for trial, measurement in trials.items()
        if trial.clock_mhz is not None and _but_clock(trial) == sought
    }


def _but_clock(trial: Trial) -> tuple[tuple[Configuration, ...], int | None]:
    """All of a trial but its clock."""
    return trial.configurations, trial.power_limit_w


def _record(outcome: Outcome, answer: Trial, point: ClockPoint, reference: ClockPoint) -> ClockPointDocument:
    time_ratio, time_interval = _time_ratio(outcome, answer, point, reference)
    joules_ratio, joules_interval = _joules_ratio(outcome, answer, point, reference)
    slower = time_ratio - 1.0
    saving = None
    if joules_ratio is not None and slower > time_interval:
        saving = (1.0 - joules_ratio) / slower
    return {
        "clock_mhz": point.clock_mhz,
        "power_limit_w": answer.power_limit_w,
        "time_s": point.time_s,
        "time_s_uncertainty": point.time_uncertainty_s,
        "time_ratio": time_ratio,
        "time_ratio_interval": time_interval,
        "joules": point.joules,
        "joules_uncertainty": point.joules_uncertainty,
        "joules_ratio": joules_ratio,
        "joules_ratio_interval": joules_interval,
        "saving_per_slowdown": saving,
        "kind": "measured" if point.measured else "modelled",
    }


def _time_ratio(
    outcome: Outcome, answer: Trial, point: ClockPoint, reference: ClockPoint
) -> tuple[float, float]:
    """A point's time by the reference's, and half of its 95 % interval."""
    if point == reference:
        return 1.0, 0.0
    paired = _paired(outcome, answer, point, reference, "time")
    if paired is not None:
        return paired
    ratio = point.time_s / reference.time_s
    own = [each.time_uncertainty_s / each.time_s for each in (point, reference)]
    again = [TIME_REPEATABILITY for each in (point, reference) if each.measured]
    return ratio, COVERAGE * ratio * math.hypot(*own, *again)


def _joules_ratio(
    outcome: Outcome, answer: Trial, point: ClockPoint, reference: ClockPoint
) -> tuple[float | None, float | None]:
    """The same of joules; None where they are not known."""
    if point.joules is None or not reference.joules:
        return None, None
    if point == reference:
        return 1.0, 0.0
    paired = _paired(outcome, answer, point, reference, "energy")
    if paired is not None:
        return paired
    ratio = point.joules / reference.joules
    own = [(each.joules_uncertainty or 0.0) / (each.joules or 1.0) for each in (point, reference)]
    return ratio, COVERAGE * ratio * math.hypot(*own)


def _paired(
    outcome: Outcome, answer: Trial, point: ClockPoint, reference: ClockPoint, objective: str
) -> tuple[float, float] | None:
    """A ratio of paired repeats; None where the two were not repeated in turn."""
    if not (point.measured and reference.measured):
        return None
    trial, reference_trial = (replace(answer, clock_mhz=at.clock_mhz) for at in (point, reference))
    ratio = outcome.paired.ratio(trial, reference_trial, Objective(objective))
    return None if ratio is None else (ratio.value, ratio.interval)


# --- What other power limits would bring; then the document itself.

_LEAST = 2  # points: one has no slope


def power_limit_curve(outcome: Outcome) -> list[PowerLimitPoint]:
    """Trials that differ from the answer in the power limit alone, the highest limit first.

    Ratios are against the highest limit, with halves of their 95 % intervals.

    Returns:
        Points as ``docs/run-json.md`` describes them; none where the answer was measured at one limit.
    """
    if outcome.answer is None:
        return []
    answer = outcome.trials[outcome.answer][0]
    line = {
        trial.power_limit_w: index
        for index, (trial, measurement) in enumerate(outcome.trials)
        if trial.power_limit_w is not None
        and replace(trial, power_limit_w=answer.power_limit_w) == answer
        and measurement.ok
    }
    limits_w = sorted(line, reverse=True)
    if len(limits_w) < _LEAST:
        return []
    points = (_point(outcome, line[limit_w], line[limits_w[0]]) for limit_w in limits_w)
    return [point for point in points if point is not None]


def _point(outcome: Outcome, index: int, reference: int) -> PowerLimitPoint | None:
    """A point; None of a trial without a time or a limit."""
    trial, measurement = outcome.trials[index]
    ratios = against(outcome, index, reference)
    if ratios is None or measurement.makespan_s is None or trial.power_limit_w is None:
        return None
    slowdown, half = ratios["slowdown"], ratios.get("slowdown_interval") or 0.0
    saving, energy = ratios.get("energy_saving"), measurement.energy
    return {
        "power_limit_w": trial.power_limit_w,
        "clock_mhz": trial.clock_mhz,
        "clock_seen_mhz": measurement.clock_mhz,
        "time_s": measurement.makespan_s,
        "time_s_uncertainty": measurement.makespan_uncertainty_s,
        "time_ratio": 1.0 + slowdown,
        "time_ratio_interval": half,
        "joules": None if energy is None else energy.joules,
        "joules_uncertainty": None if energy is None else energy.uncertainty_j,
        "joules_ratio": None if saving is None else 1.0 - saving,
        "joules_ratio_interval": ratios.get("energy_saving_interval"),
        "saving_per_slowdown": saving / slowdown if saving is not None and slowdown > half else None,
        "kind": "measured",
    }


def document(
    plan: SearchPlan, outcome: Outcome, spaces: Sequence[PreparedWorkload], *, with_trials: bool = True
) -> RunDocument:
    """The run as a JSON object.

    Its keys are described in ``docs/run-json.md``. Times are seconds, energies joules of one round; +- 1.96
    uncertainties cover 95 %. Numbers that were not measured are null.

    Args:
        plan: of the search.
        outcome: of it.
        spaces: of the workloads, with what compiling told of their candidates.
        with_trials: list all trials and candidates, too.
    """
    request, conditions = plan.request, plan.conditions
    names = conditions.names
    least = _least_energy(outcome)
    numbers = {trial: number for number, (trial, _) in enumerate(outcome.trials, start=1)}

    def named(number: int | None) -> TrialDocument | None:
        return None if number is None else trial_document(outcome.trials[number], names)

    record: RunDocument = {
        "run": outcome.run,
        "status": outcome.status.value,
        "device": device_document(conditions.device),
        "modelled": conditions.device.modelled,
        "recorded": conditions.device.recorded or None,
        "objective": conditions.objective,
        "timing": request.timing,
        "max_slowdown": request.max_slowdown,
        "energy_precision": request.energy_precision,
        "policy": conditions.policy,
        "seed": conditions.seed,
        "clocks": conditions.clocks,
        "sources": dict(conditions.sources),
        "settings": cast("RunSettings", dict(conditions.settings)),
        "workloads": [_workload(item, outcome, i, with_trials) for i, item in enumerate(spaces)],
        "space": _space(plan, spaces, outcome),
        "best": named(outcome.answer),
        "default": named(outcome.default),
        "fastest": named(outcome.fastest),
        "least_energy": named(least),
        "solo_bests": named(outcome.solo_bests),
        **_comparisons(outcome, outcome.answer, least),
        "front": [
            {
                "number": index + 1,
                "trial": trial_document(outcome.trials[index], names),
                "parts": [_part(item, outcome, index, i) for i, item in enumerate(spaces)],
                "expanded": [_expanded(item, outcome, index, i) for i, item in enumerate(spaces)],
                **_comparisons(outcome, index, least),  # any point may take the place of the answer
            }
            for index in outcome.front
        ],
        "solo_best_priorities": _priorities(outcome, named(outcome.equal_solo_bests)),
        "solo_best_runs": dict(zip(names, outcome.solo_best_runs, strict=False)),
        "limited_solo_bests": list(outcome.limited_solo_bests),
        "no_solo_bests": outcome.no_solo_bests or None,
        **clock_curve(outcome, plan.clocks_mhz, names),
        "power_limit_curve": power_limit_curve(outcome),
        "one_after_another": record_of(outcome.co_run, names, outcome.scatter),
        "repeatability": _repeatability(outcome),
        "contenders": sorted(numbers[trial] for trial in outcome.paired.joined()),
        "tied": sorted(index + 1 for index in outcome.tied),
        "window_scatter": _scatter(outcome),
        **_tuning_energy(outcome),  # type: ignore[typeddict-item]  # to mypy it may have any further key
        "resumed": outcome.resumed,
        "wall_s": outcome.prepare_s + outcome.wall_s,
        "wall": _wall(outcome),
        "notices": outcome.notices,
    }
    record["break_even"] = break_even(record, request.objective, request.runs_per_day)
    if with_trials:
        record["trials"] = [trial_document(pair, names) for pair in outcome.trials]
    return record


def _priorities(outcome: Outcome, equal: TrialDocument | None) -> PriorityDocument | None:
    """The solo bests at equal priorities, and what leads from them to the answer; None without others."""
    if equal is None:
        return None
    return {"tried": outcome.priorities_tried, "equal": equal, "against_equal": outcome.priorities}


def trial_document(pair: tuple[Trial, Measurement], names: Sequence[str]) -> TrialDocument:
    """A trial with its measurement as the list ``trials`` of a document has it."""
    trial, measurement = pair
    energy = measurement.energy
    return {
        "configurations": trial_record(trial, names)["configurations"],
        "clock_mhz": trial.clock_mhz,
        "power_limit_w": trial.power_limit_w,
        "status": measurement.status.value,
        "time_s": measurement.makespan_s,
        "time_spread_s": measurement.makespan_spread_s,
        "time_s_uncertainty": measurement.makespan_uncertainty_s,
        "energy_j": None if energy is None else energy.joules,
        "energy_j_uncertainty": None if energy is None else energy.uncertainty_j,
        "energy_j_window_uncertainty": None if energy is None else energy.window_uncertainty_j,
        "energy_net_j": None if energy is None else energy.net_joules,
        "energy_net_j_uncertainty": None if energy is None else energy.net_uncertainty_j,
        "power_w": None if energy is None else energy.watts,
        "idle_w": None if energy is None else energy.idle_watts,
        "idle_w_uncertainty": None
        if energy is None or energy.idle_watts is None
        else energy.idle_uncertainty_w,
        "sensor": None if energy is None else energy.sensor,
        "scope": None if energy is None else energy.scope,
        "clock_seen_mhz": measurement.clock_mhz,
        "temperature_c": measurement.temperature_c,
        "bursts": measurement.repeats,
        "confirmed": is_confirmed(measurement),
        "rounds": measurement.rounds,
        "window_s": measurement.window_s,
        "flags": [str(flag) for flag in measurement.flags],
        "gpu": None if measurement.gpu is None else cast("PoolGpuDocument", asdict(measurement.gpu)),
        "workloads": {name: _result(result) for name, result in zip(names, measurement.results, strict=True)},
    }


def _result(result: WorkloadResult) -> WorkloadResultDocument:
    record: WorkloadResultDocument = {
        "status": result.status.value,
        "time_s": result.time_s,
        "restore_s": result.restore_s,
        "detail": result.detail,
    }
    if result.metrics:
        record["metrics"] = dict(result.metrics)
    return record


def is_confirmed(measurement: Measurement) -> bool:
    """True for paired repeats after the search, which measures a trial once."""
    return measurement.repeats > 1


def _workload(
    item: PreparedWorkload, outcome: Outcome, position: int, with_candidates: bool
) -> WorkloadDocument:
    plan = next(iter(item.plans.values()))
    record: WorkloadDocument = {
        "name": str(item.workload),
        "batch": item.workload.batch,
        "space": {
            "cartesian": item.space.cartesian_size,
            "size": item.space.size,
            **({"listed": len(item.space)} if item.space.is_sample else {}),
            "pruned": item.size_after_pruning,
            "dropped": dict(item.pruned),
            "uncompiled": item.uncompiled,
            "min_occupancy": item.min_occupancy,
        },
        "inputs": {
            buffer.name: "random" if buffer.input is None else str(buffer.input)
            for buffer in plan.buffers
            if buffer.role in {"in", "inout"}
        },
        "rate_name": plan.work.rate_name,
        "work_assumed": plan.work.assumed,
        "default": _part(item, outcome, outcome.default, position),
        "best": _part(item, outcome, outcome.answer, position),
        "expanded": _expanded(item, outcome, outcome.answer, position),
        "flags": _flags(item, outcome, position),
        "compile_errors": list(item.compile_errors),
    }
    kept = kernel_record(item.kernel) if isinstance(item.kernel, KernelFile) else None
    if kept is not None:
        record["kernel_file"] = kept
    compilers = compilers_of(item.kernel) if isinstance(item.kernel, KernelFile) else [NVRTC]
    if compilers != [NVRTC]:
        record["compilers"] = compilers
    if with_candidates:
        record["candidates"] = [_candidate(candidate) for candidate in item.candidates]
    return record


def _comparisons(outcome: Outcome, index: int | None, least: int | None) -> Comparisons:
    """A trial, the answer or a point of the front, against the trials that it is held against."""
    return {
        "against_default": against(outcome, index, outcome.default),
        "trade_off": against(outcome, index, outcome.fastest),
        "against_solo_bests": against(outcome, index, outcome.solo_bests),
        "energy_trade_off": against(outcome, least, index),
    }


def _expanded(item: PreparedWorkload, outcome: Outcome, index: int | None, position: int) -> Expanded | None:
    """Record of a build with a trial's configuration; None of kernels without a file."""
    if index is None or not isinstance(item.kernel, KernelFile):
        return None
    trial, _ = outcome.trials[index]
    return build_record(item.kernel, item.workload, trial.configurations[position])


def _flags(item: PreparedWorkload, outcome: Outcome, position: int) -> list[str]:
    """Options of the compiler beside those that tunables decide; none without an answer or a file."""
    if outcome.answer is None or not isinstance(item.kernel, KernelFile):
        return []
    trial, _ = outcome.trials[outcome.answer]
    return fixed_options(item.kernel, item.workload, trial.configurations[position])


def _candidate(candidate: Candidate) -> Record:
    return {
        "configuration": dict(candidate.configuration),
        "occupancy": candidate.occupancy,
        "threads_per_block": candidate.threads_per_block,
        "resources": [
            vars(resources) | {"demands": resources.demands and asdict(resources.demands)}
            for resources in candidate.resources
        ],
    }


def _part(item: PreparedWorkload, outcome: Outcome, index: int | None, position: int) -> WorkloadPart | None:
    """One workload's part of a trial: its own time, its share of the joules (modelled), its rate."""
    if index is None:
        return None
    trial, measurement = outcome.trials[index]
    result = measurement.results[position]
    work = item.plans[trial.configurations[position]].work
    share_j = energy_share(measurement, position)
    rate = work.rate_units / work.rate_scale / result.time_s if result.time_s and work.rate_units else None
    watts = share_j / result.time_s if share_j is not None and result.time_s else None
    share_unsure_j = None  # the measured joules' part; that of sharing by time is not known
    if measurement.energy is not None and share_j is not None:
        share_unsure_j = share_j * measurement.energy.uncertainty_j / measurement.energy.joules
    return {
        "configuration": dict(trial.configurations[position]),
        "spills": trial.configurations[position] in item.spilling,
        "status": result.status.value,
        "time_s": result.time_s,
        "time_spread_s": result.spread_s,
        "restore_s": result.restore_s,
        "energy_share_j": share_j,
        "energy_share_j_uncertainty": share_unsure_j,
        "rate": rate,
        "rate_per_watt": rate / watts if rate is not None and watts else None,
    }


def energy_share(measurement: Measurement, position: int) -> float | None:
    """A workload's share of a round's joules, by its share of the workloads' own times: modelled.

    No sensor separates kernels that run at the same time (Algorithm 4 of the multi-kernel paper orders
    kernels by such a number; this is the proxy in use).
    """
    times = [result.time_s for result in measurement.results]
    own = times[position]
    if measurement.energy is None or own is None or any(time is None for time in times):
        return None
    return measurement.energy.joules * own / math.fsum(time for time in times if time is not None)


def _tuning_energy(outcome: Outcome) -> TuningEnergy:
    """Return the energy of tuning: all that the sensor saw from begin to end.

    Where nobody tells that, the joules of the trials; their uncertainty is the relative one of the windows,
    taken as common to all.
    """
    spent = outcome.spent
    if spent is not None:
        return {
            "tuning_energy_j": spent.joules,
            "tuning_energy_j_uncertainty": spent.sigma_j,
            "tuning_energy_unseen": {
                "energy_j": spent.unseen_j,
                "energy_j_uncertainty": spent.unseen_sigma_j,
                "time_s": spent.unseen_s,
            },
        }
    unseen: TuningEnergy = {"tuning_energy_unseen": None}
    relative = [
        measurement.energy.uncertainty_j / measurement.energy.joules
        for measurement in outcome.measurements
        if measurement.energy is not None and measurement.energy.joules > 0
    ]
    if not relative:
        return {**unseen, "tuning_energy_j": outcome.joules or None, "tuning_energy_j_uncertainty": None}
    uncertainty_j = outcome.joules * statistics.fmean(relative)
    return {**unseen, "tuning_energy_j": outcome.joules, "tuning_energy_j_uncertainty": uncertainty_j}


def _space(plan: SearchPlan, spaces: Sequence[PreparedWorkload], outcome: Outcome) -> SpaceDocument:
    settings = max(1, len(plan.clocks_mhz)) * max(1, len(plan.power_limits_w))
    return {
        "size": math.prod(item.space.size for item in spaces) * settings,
        "pruned": math.prod(item.size_after_pruning for item in spaces) * settings,
        "measured": len(outcome.trials),
        "failed": sum(not measurement.ok for _, measurement in outcome.trials),
        "spared": sum(measurement.estimated_j is not None for _, measurement in outcome.trials),
        "clocks_mhz": list(plan.clocks_mhz),
        "power_limits_w": list(plan.power_limits_w),
    }


def _least_energy(outcome: Outcome) -> int | None:
    """The trial with the least joules; None where none were measured."""
    measured = enumerate(measurement for _, measurement in outcome.trials)
    joules = {
        number: measurement.energy.joules
        for number, measurement in measured
        if measurement.ok and measurement.energy is not None
    }
    return min(joules, key=joules.__getitem__, default=None)


def _scatter(outcome: Outcome) -> ScatterDocument | None:
    """Scatter and drift of joules over minutes, relative; None where no joules were measured."""
    if all(measurement.energy is None for _, measurement in outcome.trials):
        return None
    scatter = outcome.scatter
    return {
        "energy_deviation": scatter.deviation,
        "degrees": scatter.degrees,
        "energy_interval": scatter.interval,
        "assumed": not scatter.learnt,
        "drift_interval": COVERAGE * scatter.drift,
    }


def _repeatability(outcome: Outcome) -> RepeatabilityDocument | None:
    """Return the repeatability of trials in energy and time; None if too few were measured again."""
    if not outcome.repeatability:
        return None
    energy, time = outcome.repeatability.get("energy"), outcome.repeatability.get("time")
    return {
        "trials": max(each.trials for each in outcome.repeatability.values()),
        "energy_interval": None if energy is None else energy.interval,
        "time_interval": None if time is None else time.interval,
    }


def _wall(outcome: Outcome) -> WallDocument:
    """Wall time split into what is wanted (windows and checks, on the device's clock) and the rest."""
    checks_s = math.fsum(measurement.check_s for measurement in outcome.measurements)
    return {
        "prepare_s": outcome.prepare_s,
        "search_s": outcome.wall_s,
        "windows_s": outcome.windows_s,
        "checks_s": checks_s,
    }


# --- What ``--with-series`` adds to the trials of a document: the search's own numbers, and power over time.


def series_record(
    searched: Measurement, final: Measurement, names: Sequence[str], ended_at: str | None = None
) -> TrialSeries:
    """The further keys of a trial; ``docs/run-json.md`` describes them.

    Args:
        searched: what the search saw.
        final: what is known at the end.
        names: of the workloads.
        ended_at: when the trial was stored, UTC; None where it is not.
    """
    energy = searched.energy
    return {
        "searched": {
            "time_s": searched.makespan_s,
            "time_s_uncertainty": searched.makespan_uncertainty_s,
            "energy_j": None if energy is None else energy.joules,
            "energy_j_uncertainty": None if energy is None else energy.uncertainty_j,
            "power_w": None if energy is None else energy.watts,
            "window_s": searched.window_s,
        },
        "ended_s": searched.ended_s,
        "ended_at": ended_at,
        "check_s": searched.check_s,
        "spent_j": searched.energy_total_j,
        "repeats_spent_j": final.energy_total_j if is_confirmed(final) else 0.0,
        "time_spreads_s": {name: result.spread_s for name, result in zip(names, final.results, strict=True)},
        "power_series": [
            {"times_s": list(series.times_s), "watts": list(series.watts)}
            for series in map(unpacked, final.power)
        ],
    }


def with_series(outcome: Outcome) -> RunDocument:
    """The document of a run that has just ended, its trials with their series."""
    document = outcome.document
    names = [workload["name"] for workload in document["workloads"]]
    pairs = zip(document["trials"], outcome.searched, outcome.trials, strict=True)
    return {
        **document,
        "trials": [{**trial, **series_record(seen, final, names)} for trial, seen, (_, final) in pairs],
    }
