"""Records a co-run space of the applications, and plays searches on the recording."""

import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from application_sets import FOUR, KERNELS, PRIORITIES, catalog_of, recorded_space, spec_of

from tuner.database.runs import Store
from tuner.measurement.paired import PairedRepeats, compared
from tuner.model import registry
from tuner.model.errors import InputError
from tuner.model.objective import COVERAGE, Objective
from tuner.model.plan import STREAM_PRIORITY, with_priority, without_priority
from tuner.model.records import RunStatus, StoredRun
from tuner.model.trial import Trial
from tuner.recordings.files import RecordedSpaces, open_recording, write
from tuner.recordings.values import RecordedSpace, search_of
from tuner.report.progress import RunProgress
from tuner.search.plan import plan_search
from tuner.search.replaying import covered, stored_space
from tuner.search.request import SearchRequest
from tuner.search.session import Session
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.together import record_of
from tuner.studies.comparison import play

LEAST_WINDOW_S = 0.5
POLICIES = ("greedy", "auto", "bayesian", "random")
DRAWING = ("bayesian", "auto", "random")
BUDGETS = (10, 20, 30, 50)


def record(
    device: str,
    sets: Sequence[tuple[str, ...]],
    sizes: str,
    path: Path,
    *,
    budget_s: float,
    window_s: float,
) -> None:
    """Measure every trial of the sets in random order, and write a recording.

    Singles come first, then the largest set.
    What was measured is in a database beside the file: the same call goes on from there. The budget, Ctrl-C
    and a crash keep what is there.

    Args:
        device: a GPU, or a simulated one.
        sets: what runs together.
        sizes: name of the sizes.
        path: the archive; replaced.
        budget_s: seconds of this call on the clock of the device; of a simulated one they pass at once.
        window_s: of every trial.

    Raises:
        InputError: a device that is a recording, or a window that is too short.
    """
    if device.startswith("replay:"):
        raise InputError(f"--record: {device} was measured already; name a GPU, as cuda:0")
    if window_s < LEAST_WINDOW_S:
        raise InputError(f"--window {window_s:g}: joules need {LEAST_WINDOW_S:g} s or more")
    until = time.monotonic() + budget_s
    with Store(path.with_suffix(".db")) as store, ExitStack() as stack:
        recorder = _Recorder(device, store, stack, window_s)
        spaces: list[RecordedSpace] = []
        for names in sorted(sets, key=lambda names: (len(names) > 1, -len(names))):
            levels = PRIORITIES[recorded_space(device)] if len(names) > 1 else 1
            request = _request([spec_of(name, sizes) for name in names], window_s, levels)
            run = recorder.measured(request, until)
            if run is None:
                continue
            export = stored_space(store, recorder.catalog, run)
            spaces.append(export.space)
            print(f"{' + '.join(names)}: {covered(export)}", flush=True)
            for notice in export.notices:
                print(f"  {notice}", file=sys.stderr)
            write(path, spaces)
            if recorder.interrupted:
                break
    if not spaces:
        raise InputError(f"--budget {budget_s:g}: not one trial was measured in it")
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


def _request(specs: Sequence[str], window_s: float, priorities: int) -> SearchRequest:
    return SearchRequest(
        workloads=tuple(specs),
        objective="energy",
        joules=True,
        policy="random",
        window_s=window_s,
        stream_priorities=priorities,
    )


class _Recorder:
    """Measures sets on one device, which is opened when the first of them is not complete yet."""

    def __init__(self, device: str, store: Store, stack: ExitStack, window_s: float) -> None:
        self.catalog = catalog_of(recorded_space(device))
        self.interrupted = False
        self._device = device
        self._store = store
        self._stack = stack
        self._window_s = window_s
        self._setup: MeasurementSetup | None = None

    def measured(self, request: SearchRequest, until: float) -> int | None:
        """The number of the run that has the trials of a set; None where there is not one."""
        names = [str(one) for one in self.catalog.workloads(request.workloads)]
        runs = [run for run in self._store.history() if _names(run) == names]
        complete = next((run.id for run in runs if run.status is RunStatus.FINISHED), None)
        left_s = until - time.monotonic()
        if complete is not None or left_s <= 0.0 or self.interrupted:
            return complete or next((run.id for run in runs if run.trials), None)
        with RunProgress(request.objective) as progress:
            if self._setup is None:
                opened = open_setup(self._device, request, progress.warming)
                self._setup = self._stack.enter_context(opened)
            limited = replace(request, time_limit_s=left_s)
            plan = plan_search(limited, self.catalog, self._setup)
            session = Session(plan, self._setup, self._store, progress)
            outcome = session.run(resume=True, confirm=False)
        self.interrupted = outcome.status is RunStatus.INTERRUPTED
        return outcome.run if outcome.trials else None


def _names(run: StoredRun) -> list[str]:
    return [name for name, _ in run.conditions["workloads"]]


# --- searches on a recording ---------------------------------------------------------------------


def analysed(path: Path, seeds: int) -> dict[str, Any]:
    """Searches of the four on a recording: trials used and distance from the least recorded cost.

    Args:
        path: a recording.
        seeds: searches of each policy that draws.

    Raises:
        InputError: the four are not in the recording.
    """
    recording = open_recording(path)
    space = recording.space(recorded_order(recording, FOUR)[1])
    rows = []
    for name in ("time", "energy"):
        objective = Objective(name)
        costs = {trial: objective.known(one) for trial, one in space.trials.items()}
        finite = sorted(cost for cost in costs.values() if math.isfinite(cost))
        if not finite:
            continue
        row: dict[str, Any] = {
            "objective": name,
            "workloads": list(space.names),
            "trials": len(costs),
            "whole": math.prod(len(workload.candidates) for workload in space.workloads),
            "least": finite[0],
            "cost_interval": _usual_interval(space, objective),
            "median_above": finite[len(finite) // 2] / finite[0] - 1,
            "worst_above": finite[-1] / finite[0] - 1,
            "within_2_percent": sum(cost <= 1.02 * finite[0] for cost in finite),
            "within_5_percent": sum(cost <= 1.05 * finite[0] for cost in finite),
            "solo_bests": _solo_record(recording, space, objective, finite[0]),
            "searches": [_searches(policy, space, objective, seeds) for policy in POLICIES],
        }
        rows.append(row)
    return {
        "recording": path.name,
        "device": space.identity.name,
        "modelled": space.identity.modelled,
        "rows": rows,
    }


def _usual_interval(space: RecordedSpace, objective: Objective) -> float:
    """Half of the 95 % interval of a recorded cost by the cost: the median of the trials."""
    known = (one for one in space.trials.values() if math.isfinite(objective.known(one)))
    return COVERAGE * statistics.median(map(objective.relative_uncertainty, known))


def recorded_order(
    recording: RecordedSpaces, names: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A set and its workloads in the order of a recording, at whatever sizes.

    Raises:
        InputError: it is not in the recording.
    """
    of_kernel = {KERNELS[name]: name for name in names}
    for workloads in recording.names:
        kernels = [workload.partition(":")[0] for workload in workloads]
        if sorted(kernels) == sorted(of_kernel):
            return tuple(of_kernel[kernel] for kernel in kernels), workloads
    raise InputError(f"{recording.path}: {' + '.join(names)} was not recorded")


def _solo_bests(recording: RecordedSpaces, space: RecordedSpace, objective: Objective) -> Trial | None:
    """The trial with each workload at its recorded solo best; None where one was not recorded alone."""
    chosen = []
    for workload in space.workloads:
        if (workload.name,) not in recording.names:
            return None
        alone = recording.space((workload.name,)).trials
        best = min(alone, key=lambda trial: objective.known(alone[trial])).configurations[0]
        chosen.append(with_priority(best, 0) if STREAM_PRIORITY in workload.tunables else best)
    trial = Trial(tuple(chosen))
    return trial if math.isfinite(objective.known(space.look(trial))) else None


def recorded_solo(
    recording: RecordedSpaces, names: Sequence[str], answer: Trial, objective: str
) -> dict[str, Any]:
    """An answer against solo bests together and against one after another, each as recorded once.

    Args:
        recording: with the workloads together and alone.
        names: of the workloads.
        answer: a trial of them together.
        objective: ``time`` or ``energy``.

    Returns:
        The keys ``solo_bests`` and ``one_after_another`` of a row; null where something was not recorded.
    """
    space = recording.space(tuple(names))
    solo = _solo_bests(recording, space, Objective(objective))
    if solo is None:
        return {"solo_bests": None, "no_solo_bests": "not recorded", "one_after_another": None}
    paired = PairedRepeats(({answer: space.look(answer), solo: space.look(solo)},))
    slower = paired.ratio(answer, solo, Objective("time"))
    dearer = paired.ratio(answer, solo, Objective("energy"))
    against = None if slower is None else {"slowdown": slower.value - 1, "slowdown_interval": slower.interval}
    if against is not None and dearer is not None:
        against |= {"energy_saving": 1 - dearer.value, "energy_saving_interval": dearer.interval}
    alone = [
        recording.space((name,)).look(Trial((without_priority(one),)))
        for name, one in zip(names, answer.configurations, strict=True)
    ]
    after = record_of(compared(answer, [(space.look(answer), alone)]), names)
    return {
        "solo_bests": against,
        "no_solo_bests": None,
        "answer_is_solo_bests": solo == answer,
        "one_after_another": after,
    }


def _solo_record(
    recording: RecordedSpaces, space: RecordedSpace, objective: Objective, least: float
) -> dict[str, Any] | None:
    trial = _solo_bests(recording, space, objective)
    if trial is None:
        return None
    cost = objective.known(space.look(trial))
    chosen = [dict(one) for one in trial.configurations]
    return {"configurations": chosen, "cost": cost, "above": cost / least - 1}


def _searches(policy: str, space: RecordedSpace, objective: Objective, seeds: int) -> dict[str, Any]:
    """All searches of one policy: trials, and the distance at their end and after some trials."""
    least = min(map(objective.known, space.trials.values()))
    played = []
    for seed in range(seeds if policy in DRAWING else 1):
        search = search_of(space, objective.known, seed=seed, noise=objective.relative_uncertainty)
        budget = max(BUDGETS) if policy == "random" else None
        steps = play(registry.load("policy", policy), search, space.look, budget)
        default = Trial(search.defaults)
        known = [(trial, one) for trial, one in steps if trial != default]
        played.append([objective.known(space.look(default)), *(objective.known(one) for _, one in known)])
    return {
        "policy": policy,
        "searches": len(played),
        "trials": statistics.median(map(len, played)),
        "most_trials": max(map(len, played)),
        "above": statistics.median(min(costs) / least - 1 for costs in played),
        "worst_above": max(min(costs) / least - 1 for costs in played),
        "after": {
            str(count): statistics.median(min(costs[:count]) / least - 1 for costs in played)
            for count in BUDGETS
        },
    }


def show_analysis(found: Mapping[str, Any]) -> None:
    """The analysis as text."""
    label = "modelled" if found["modelled"] else "recorded"
    for row in found["rows"]:
        if row["trials"] < row["whole"]:
            print(f"{row['trials']:,} of {row['whole']:,} trials: the others fail in these searches")
        print(
            f"{row['objective']}, {row['trials']:,} trials ({label}), each known to"
            f" ± {row['cost_interval']:.1%} (95 %), median {row['median_above']:.1%} above"
            f" the least, {row['within_2_percent']} within 2 %, {row['within_5_percent']} within 5 %"
        )
        if row["solo_bests"] is not None:
            print(f"  solo bests together: {row['solo_bests']['above']:.2%} above the least")
        for one in row["searches"]:
            after = ", ".join(f"{count}: {above:.2%}" for count, above in one["after"].items())
            print(
                f"  {one['policy']:10} {one['trials']:g} trials (at most {one['most_trials']}),"
                f" {one['above']:.2%} above the least (at most {one['worst_above']:.2%}); after {after}"
            )
