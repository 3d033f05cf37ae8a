"""The document of a run: what ``--json`` writes, the database keeps and the tables show."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import cast

from tuner.kernel_files.build_record import build_record
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.objective import COVERAGE
from tuner.model.records import Conditions, Record, trial_record
from tuner.model.run_document import (
    Comparisons,
    Confirmation,
    Expanded,
    FrontPoint,
    PoolGpuDocument,
    RepeatabilityDocument,
    RunDocument,
    RunSettings,
    ScatterDocument,
    SpaceDocument,
    TrialDocument,
    TuningEnergy,
    WallDocument,
    WorkloadDocument,
    WorkloadPart,
    device_document,
)
from tuner.model.trial import Energy, Measurement, Trial
from tuner.search.answer import SearchOutcome
from tuner.search.break_even import break_even
from tuner.search.candidates import PreparedWorkload
from tuner.search.clock_curve import clock_curve
from tuner.search.comparison import against
from tuner.search.power_limit_curve import power_limit_curve
from tuner.search.solo import record_of
from tuner.search.task import Task
from tuner.space.search_view import Candidate


@dataclass(frozen=True)
class WallTime:
    """Where the wall-clock time of a run went.

    Attributes:
        prepare_s: enumerating, and compiling what a search begins with.
        search_s: from the first trial to the answer, with what is compiled meanwhile.
    """

    prepare_s: float
    search_s: float


def document(
    task: Task, conditions: Conditions, outcome: SearchOutcome, timing: WallTime, *, with_trials: bool = True
) -> RunDocument:
    """The run as a JSON object.

    Its keys are described in ``docs/run.md``. Times are seconds and energies joules of one round; +- 1.96
    uncertainties cover 95 %. Numbers that were not measured are null.
    """
    names = conditions.names
    prepared = task.compilation.known()
    least = _least_energy(outcome)

    def named(number: int | None) -> TrialDocument | None:
        return None if number is None else trial_document(outcome.trials[number], names)

    record: RunDocument = {
        "run": outcome.run,
        "status": outcome.status.value,
        "device": device_document(conditions.device),
        "modelled": conditions.device.modelled,
        "recorded": conditions.device.recorded or None,
        "objective": conditions.objective,
        "max_slowdown": task.max_slowdown,
        "energy_precision": task.precision,
        "policy": conditions.policy,
        "seed": conditions.seed,
        "clocks": conditions.clocks,
        "sources": dict(conditions.sources),
        "settings": cast("RunSettings", dict(conditions.settings)),
        "workloads": [_workload(item, outcome, i, with_trials) for i, item in enumerate(prepared)],
        "space": _space(task, prepared, outcome),
        "best": named(outcome.answer),
        "default": named(outcome.default),
        "fastest": named(outcome.fastest),
        "least_energy": named(least),
        "solo_bests": named(outcome.solo_bests),
        **_comparisons(outcome, outcome.answer, least),
        "front": [_front_point(prepared, outcome, place, names) for place in outcome.front],
        "solo_best_runs": dict(zip(names, outcome.solo_best_runs, strict=False)),
        "limited_solo_bests": list(outcome.limited_solo_bests),
        "no_solo_bests": outcome.no_solo_bests or None,
        **clock_curve(outcome, task.clocks_mhz, names),
        "power_limit_curve": power_limit_curve(outcome),
        "one_after_another": record_of(outcome.co_run, names, outcome.scatter),
        "repeatability": _repeatability(outcome),
        **_confirmation(outcome),
        "window_scatter": _scatter(outcome),
        **_tuning_energy(outcome),  # type: ignore[typeddict-item]  # to mypy it may have any further key
        "resumed": outcome.resumed,
        "wall_s": timing.prepare_s + timing.search_s,
        "wall": _wall(outcome, timing),
        "notices": outcome.notices,
    }
    record["break_even"] = break_even(record, task.objective, task.runs_per_day)
    if with_trials:
        record["trials"] = [trial_document(pair, names) for pair in outcome.trials]
    return record


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
        "idle_w_uncertainty": _idle_uncertainty(energy),
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
        "workloads": {
            name: {
                "status": result.status.value,
                "time_s": result.time_s,
                "restore_s": result.restore_s,
                "detail": result.detail,
            }
            for name, result in zip(names, measurement.results, strict=True)
        },
    }


def is_confirmed(measurement: Measurement) -> bool:
    """True for paired repeats after the search, which measures a trial once."""
    return measurement.repeats > 1


def _idle_uncertainty(energy: Energy | None) -> float | None:
    return None if energy is None or energy.idle_watts is None else energy.idle_uncertainty_w


def _workload(
    item: PreparedWorkload, outcome: SearchOutcome, position: int, with_candidates: bool
) -> WorkloadDocument:
    work = item.plans[next(iter(item.plans))].work
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
        "rate_name": work.rate_name,
        "work_assumed": work.assumed,
        "default": _part(item, outcome, outcome.default, position),
        "best": _part(item, outcome, outcome.answer, position),
        "expanded": _expanded(item, outcome, outcome.answer, position),
        "compile_errors": list(item.compile_errors),
    }
    if with_candidates:
        record["candidates"] = [_candidate(candidate) for candidate in item.candidates]
    return record


def _comparisons(outcome: SearchOutcome, one: int | None, least: int | None) -> Comparisons:
    """A trial, the answer or a point of the front, against the trials that it is held against."""
    return {
        "against_default": against(outcome, one, outcome.default),
        "trade_off": against(outcome, one, outcome.fastest),
        "against_solo_bests": against(outcome, one, outcome.solo_bests),
        "energy_trade_off": against(outcome, least, one),
    }


def _front_point(
    prepared: Sequence[PreparedWorkload], outcome: SearchOutcome, place: int, names: Sequence[str]
) -> FrontPoint:
    """A point of the front, with all that a document says of its answer: either may take that place."""
    return {
        "number": place + 1,
        "trial": trial_document(outcome.trials[place], names),
        "parts": [_part(item, outcome, place, i) for i, item in enumerate(prepared)],
        "expanded": [_expanded(item, outcome, place, i) for i, item in enumerate(prepared)],
        **_comparisons(outcome, place, _least_energy(outcome)),
    }


def _expanded(
    item: PreparedWorkload, outcome: SearchOutcome, index: int | None, position: int
) -> Expanded | None:
    """See ``build_record``; None of kernels without a file."""
    if index is None or not isinstance(item.kernel, KernelFile):
        return None
    trial, _ = outcome.trials[index]
    return build_record(item.kernel, item.workload, trial.configurations[position])


def _candidate(candidate: Candidate) -> Record:
    return {
        "configuration": dict(candidate.configuration),
        "occupancy": candidate.occupancy,
        "threads_per_block": candidate.threads_per_block,
        "resources": [vars(resources) for resources in candidate.resources],
    }


def _part(
    item: PreparedWorkload, outcome: SearchOutcome, index: int | None, position: int
) -> WorkloadPart | None:
    """One workload's part of a trial: its own time, its share of the joules (modelled), its rate."""
    if index is None:
        return None
    trial, measurement = outcome.trials[index]
    result = measurement.results[position]
    work = item.plans[trial.configurations[position]].work
    share_j = energy_share(measurement, position)
    rate = work.rate_units / work.rate_scale / result.time_s if result.time_s and work.rate_units else None
    watts = share_j / result.time_s if share_j is not None and result.time_s else None
    return {
        "configuration": dict(trial.configurations[position]),
        "spills": trial.configurations[position] in item.spilling,
        "status": result.status.value,
        "time_s": result.time_s,
        "time_spread_s": result.spread_s,
        "restore_s": result.restore_s,
        "energy_share_j": share_j,
        "energy_share_j_uncertainty": _share_uncertainty(measurement, share_j),
        "rate": rate,
        "rate_per_watt": rate / watts if rate is not None and watts else None,
    }


def _share_uncertainty(measurement: Measurement, share_j: float | None) -> float | None:
    """The measured joules' part in a share's uncertainty; that of sharing by time is not known."""
    if measurement.energy is None or share_j is None:
        return None
    return share_j * measurement.energy.uncertainty_j / measurement.energy.joules


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


def _tuning_energy(outcome: SearchOutcome) -> TuningEnergy:
    """What the tuning cost: all that the sensor saw from begin to end.

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
        one.energy.uncertainty_j / one.energy.joules
        for one in outcome.measurements
        if one.energy is not None and one.energy.joules > 0
    ]
    if not relative:
        return {**unseen, "tuning_energy_j": outcome.joules or None, "tuning_energy_j_uncertainty": None}
    uncertainty_j = outcome.joules * statistics.fmean(relative)
    return {**unseen, "tuning_energy_j": outcome.joules, "tuning_energy_j_uncertainty": uncertainty_j}


def _space(task: Task, prepared: Sequence[PreparedWorkload], outcome: SearchOutcome) -> SpaceDocument:
    settings = max(1, len(task.clocks_mhz)) * max(1, len(task.power_limits_w))
    return {
        "size": math.prod(item.space.size for item in prepared) * settings,
        "pruned": math.prod(item.size_after_pruning for item in prepared) * settings,
        "measured": len(outcome.trials),
        "failed": sum(not measurement.ok for _, measurement in outcome.trials),
        "spared": sum(measurement.estimated_j is not None for _, measurement in outcome.trials),
        "clocks_mhz": list(task.clocks_mhz),
        "power_limits_w": list(task.power_limits_w),
    }


def _least_energy(outcome: SearchOutcome) -> int | None:
    """The trial with the least joules; None where none were measured."""
    measured = enumerate(measurement for _, measurement in outcome.trials)
    joules = {number: one.energy.joules for number, one in measured if one.ok and one.energy is not None}
    return min(joules, key=joules.__getitem__, default=None)


def _scatter(outcome: SearchOutcome) -> ScatterDocument | None:
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


def _confirmation(outcome: SearchOutcome) -> Confirmation:
    """Numbers of the trials that were measured again, and of those that tie with the lowest of them."""
    numbers = {trial: number for number, (trial, _) in enumerate(outcome.trials, start=1)}
    return {
        "contenders": sorted(numbers[trial] for trial in outcome.paired.joined()),
        "tied": sorted(place + 1 for place in outcome.tied),
    }


def _repeatability(outcome: SearchOutcome) -> RepeatabilityDocument | None:
    """How well trials repeat, in energy and in time; None where too few were measured again."""
    if not outcome.repeatability:
        return None
    energy, time = outcome.repeatability.get("energy"), outcome.repeatability.get("time")
    return {
        "trials": max(one.trials for one in outcome.repeatability.values()),
        "energy_interval": None if energy is None else energy.interval,
        "time_interval": None if time is None else time.interval,
    }


def _wall(outcome: SearchOutcome, timing: WallTime) -> WallDocument:
    """Wall time split into what is wanted (windows and checks, on the device's clock) and the rest."""
    checks_s = math.fsum(one.check_s for one in outcome.measurements)
    return {
        "prepare_s": timing.prepare_s,
        "search_s": timing.search_s,
        "windows_s": outcome.windows_s,
        "checks_s": checks_s,
    }
