"""Answers, their history and trials as JSON has them."""

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.daemon.interface import measured_saving
from tuner.database.answers import StoredAnswer
from tuner.model import DeviceIdentity
from tuner.model.records import StoredRun, StoredTrial
from tuner.search.document import trial_document
from tuner.search.run_rows import run_row

_SEARCHED = (
    *("time_s", "time_s_uncertainty", "energy_j", "energy_j_uncertainty", "power_w"),
    *("clock_seen_mhz", "bursts", "window_s", "flags"),
)
_BOUND = ("driver", "runtime", "uuid", "name")


def answer_document(
    answer: StoredAnswer, stale: Sequence[str], device: DeviceIdentity | None
) -> dict[str, Any]:
    """An answer that is served.

    Args:
        answer: as it is in memory.
        stale: why it need not be true any more; empty where it is fresh.
        device: for which it is served; None where its GPU is not here.
    """
    measured = answer.conditions["device"]
    return {
        "run": answer.run,
        "at": answer.at,
        "status": answer.status.value,
        "device": measured["spec"] if device is None else device.spec,
        "device_name": measured["name"],
        "modelled": measured["modelled"],
        "objective": answer.objective,
        "workloads": {
            name: {"batch": batch, "configuration": dict(answer.configurations[name])}
            for name, batch in answer.batches.items()
        },
        "clock_mhz": answer.clock_mhz,
        "power_limit_w": answer.power_limit_w,
        "stale": list(stale),
        "best": answer.answer["best"],
        "default": answer.answer["default"],
        "against_default": answer.answer["against_default"],
        "saving": _saving(answer.answer),
        "sampled_at": answer.samples.at or None,
        "sample": answer.samples.verdict or None,
    }


def history_document(run: StoredRun, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The answer of a run, with what it was bound to and what measuring it again has given."""
    answer = run.answer or {}
    return {
        **run_row(run),
        **{name: run.conditions["device"].get(name) for name in _BOUND},
        "against_default": answer.get("against_default"),
        "saving": _saving(answer),
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


def _saving(answer: Mapping[str, Any]) -> dict[str, float] | None:
    """What one use saves against the default, with half of its 95 % interval; None where it is not known."""
    saving = measured_saving(answer)
    return None if saving is None else {"energy_j": saving.joules, "energy_j_interval": saving.uncertainty_j}
