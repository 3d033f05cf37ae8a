"""The answer's workloads each alone, in turn with the co-run: what running them together brings."""

from collections.abc import Mapping, Sequence

from tuner.measurement.co_run import CoRunComparison, compared
from tuner.measurement.paired import PairedRepeats
from tuner.model.long_run import ASSUMED, WindowScatter, stated
from tuner.model.objective import Objective
from tuner.model.records import RunStatus
from tuner.model.run_document import CoRunDocument, CoRunTotals
from tuner.model.trial import Measurement, Trial
from tuner.search.answer import outcome_of
from tuner.search.driver import Driver
from tuner.search.task import Task

_REPEATS, _REPEATS_WITH_JOULES = 3, 2  # windows for joules are long


def compare_answer(
    task: Task, driver: Driver, paired: PairedRepeats, confirmed: Mapping[Trial, Measurement]
) -> CoRunComparison | None:
    """The answer's co-run against its configurations one after another, measured now.

    Every other repeat goes in reverse order, so that a steady drift cancels. It ends early, with the repeats
    that are complete, when the time limit of the run is reached.

    Args:
        task: what was searched.
        driver: measures; its device runs things, it does not replay them.
        paired: repeats of the contenders.
        confirmed: the contenders, joined.

    Returns:
        The comparison; None for a lone workload, without an answer or where something failed.
    """
    found = outcome_of(RunStatus.FINISHED, task, driver, paired, confirmed)
    if found.answer is None or len(task.prepared) == 1:
        return None
    trial = found.trials[found.answer][0]
    repeats: list[tuple[Measurement, Sequence[Measurement]]] = []
    places: list[int | None] = [None, *range(len(task.prepared))]  # None is the co-run
    most = _REPEATS
    while len(repeats) < most:
        measured: dict[int | None, Measurement] = {}
        for place in places:
            if driver.out_of_time:
                return compared(trial, repeats)
            measured[place] = driver.measure_beside(trial, place)
            if not measured[place].ok:
                return None
        repeats.append((measured[None], [measured[place] for place in range(len(task.prepared))]))
        places.reverse()
        if measured[None].energy is not None:
            most = _REPEATS_WITH_JOULES
    return compared(trial, repeats)


def record_of(
    comparison: CoRunComparison | None, names: Sequence[str], scatter: WindowScatter = ASSUMED
) -> CoRunDocument | None:
    """The comparison in the document of a run; its keys are described in ``docs/run.md``.

    Args:
        comparison: None where there is none.
        names: of the workloads.
        scatter: of joules from window to window.
    """
    if comparison is None:
        return None
    time, energy = comparison.time, comparison.energy
    return {
        "repeats": comparison.together.repeats,
        "together": _totals(comparison.together, scatter),
        "in_turn": _totals(comparison.in_turn, scatter),
        "workloads": {name: _totals(one, scatter) for name, one in zip(names, comparison.alone, strict=True)},
        "time_change": time.value - 1.0,
        "time_change_interval": time.interval,
        "energy_change": None if energy is None else energy.value - 1.0,
        "energy_change_interval": None if energy is None else energy.interval,
    }


def _totals(measurement: Measurement, scatter: WindowScatter) -> CoRunTotals:
    energy = stated(measurement, scatter).energy
    return {
        "time_s": Objective("time").cost(measurement),
        "time_s_uncertainty": measurement.makespan_uncertainty_s,
        "energy_j": None if energy is None else energy.joules,
        "energy_j_uncertainty": None if energy is None else energy.uncertainty_j,
    }
