"""Runs, their trials and the history of answers as JSON has them."""

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.daemon.archive.answers import saving_document
from tuner.database.storage import Repositories
from tuner.database.trial_pages import failed_trials
from tuner.model.records import StoredRun, StoredTrial
from tuner.search.document import trial_document
from tuner.search.run_rows import run_row
from tuner.search.stored import run_document

_SEARCHED = (
    *("time_s", "time_s_uncertainty", "energy_j", "energy_j_uncertainty", "power_w"),
    *("clock_seen_mhz", "bursts", "window_s", "flags"),
)
_BOUND = ("driver", "runtime", "uuid", "name")


def run_rows(runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """Runs in a list."""
    return [run_row(run) for run in runs]


def whole_run(run: StoredRun, db: Repositories) -> dict[str, Any]:
    """The document of a run without its trials."""
    return run_document(run, failed_trials(db.database, run.id))


def history_document(run: StoredRun, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The answer of a run, with what it was bound to and what measuring it again has given."""
    answer = run.answer or {}
    return {
        **run_row(run),
        **{name: run.conditions["device"].get(name) for name in _BOUND},
        "against_default": answer.get("against_default"),
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


def _trial(stored: StoredTrial, names: Sequence[str]) -> dict[str, Any]:
    """A trial as it is known; of a contender also what the search saw of it."""
    confirmed = stored.known.repeats > 1
    searched = trial_document((stored.trial, stored.searched), names)
    return {
        **trial_document((stored.trial, stored.known), names),
        "number": stored.number,
        "ended_at": stored.ended_at,
        "confirmed": confirmed,
        "searched": {name: searched[name] for name in _SEARCHED} if confirmed else None,
    }
