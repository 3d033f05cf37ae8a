"""Runs, their trials and the history of answers as JSON has them."""

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.daemon.archive import saving_document
from tuner.database.storage import Repositories
from tuner.model.records import StoredRun, StoredTrial
from tuner.model.run_document import RunDocument, RunRow, SearchedTrial, TrialDocument
from tuner.search.document import trial_document
from tuner.search.stored import run_document, run_row


def run_rows(runs: Sequence[StoredRun]) -> list[RunRow]:
    """Runs in a list."""
    return [run_row(run) for run in runs]


def whole_run(run: StoredRun, db: Repositories) -> RunDocument:
    """The document of a run without its trials."""
    return run_document(run, db.store.failed_trials(run.id))


def history_document(run: StoredRun, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The answer of a run, with what it was bound to and what measuring it again has given."""
    answer, device = run.answer, run.conditions["device"]
    return {
        **run_row(run),
        "driver": device["driver"],
        "runtime": device["runtime"],
        "uuid": device["uuid"],
        "name": device["name"],
        "against_default": None if answer is None else answer.get("against_default"),
        "saving": saving_document(answer),
        "samples": list(samples),
    }


def trial_page(run: StoredRun, trials: Sequence[StoredTrial], following: int | None) -> dict[str, Any]:
    """A page of trials; ``next`` is the number after which the next one begins."""
    names = [name for name, _ in run.conditions["workloads"]]
    return {
        "run": run.id,
        "modelled": run.conditions["device"]["modelled"],
        "count": run.trials,
        "trials": [_trial(one, names) for one in trials],
        "next": following,
    }


def _trial(stored: StoredTrial, names: Sequence[str]) -> TrialDocument:
    """A trial as it is known; of a contender also what the search saw of it."""
    confirmed = stored.known.repeats > 1
    return {
        **trial_document((stored.trial, stored.known), names),
        "number": stored.number,
        "ended_at": stored.ended_at,
        "confirmed": confirmed,
        "searched": _searched(trial_document((stored.trial, stored.searched), names)) if confirmed else None,
    }


def _searched(trial: TrialDocument) -> SearchedTrial:
    """The numbers of a trial."""
    return {
        "time_s": trial["time_s"],
        "time_s_uncertainty": trial.get("time_s_uncertainty"),
        "energy_j": trial["energy_j"],
        "energy_j_uncertainty": trial.get("energy_j_uncertainty"),
        "power_w": trial.get("power_w"),
        "clock_seen_mhz": trial.get("clock_seen_mhz"),
        "bursts": trial.get("bursts", 1),
        "window_s": trial.get("window_s"),
        "flags": trial.get("flags", []),
    }
