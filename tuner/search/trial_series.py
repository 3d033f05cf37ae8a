"""What ``--with-series`` adds to the trials of a document: the search's own numbers, and power over time."""

from collections.abc import Sequence

from tuner.model.power_series import unpacked
from tuner.model.run_document import PowerSeriesDocument, RunDocument, TrialSeries
from tuner.model.trial import Measurement
from tuner.search.answer import SearchOutcome
from tuner.search.document import is_confirmed


def series_record(
    searched: Measurement, known: Measurement, names: Sequence[str], ended_at: str | None = None
) -> TrialSeries:
    """The further keys of a trial; ``docs/run.md`` describes them.

    Args:
        searched: what the search saw.
        known: what is known at the end.
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
        "repeats_spent_j": known.energy_total_j if is_confirmed(known) else 0.0,
        "time_spreads_s": {name: result.spread_s for name, result in zip(names, known.results, strict=True)},
        "power_series": [_power(packed) for packed in known.power],
    }


def with_series(document: RunDocument, outcome: SearchOutcome) -> RunDocument:
    """The document of a run that has just ended, its trials with their series."""
    names = [workload["name"] for workload in document["workloads"]]
    pairs = zip(document["trials"], outcome.searched, outcome.trials, strict=True)
    return {
        **document,
        "trials": [{**trial, **series_record(seen, known, names)} for trial, seen, (_, known) in pairs],
    }


def _power(packed: str) -> PowerSeriesDocument:
    series = unpacked(packed)
    return {"times_s": list(series.times_s), "watts": list(series.watts)}
