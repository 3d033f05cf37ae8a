"""Stored runs, their trials and samples, and the answers that are served, as JSON has them."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any, TypeVar

from tuner.daemon.answers.answerer import Answerer
from tuner.daemon.interface import NoSuchRunError, measured_saving
from tuner.daemon.jobs.specs import without_batch
from tuner.database.answers import StoredAnswer
from tuner.database.decoding import failed_trials, trials_page
from tuner.database.ledger import Repositories, Storage
from tuner.model.errors import InputError
from tuner.model.jobs import DeviceIdentity
from tuner.model.records import StoredRun, StoredTrial
from tuner.model.run_document import AnswerDocument, RunDocument, RunRow, SearchedTrial, TrialDocument
from tuner.search.document import trial_document
from tuner.search.stored import run_document, run_row

# --- Answers that are served, as JSON has them.


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
        "saving": saving_document(answer.answer),
        "sampled_at": answer.samples.at or None,
        "sample": answer.samples.verdict or None,
    }


def saving_document(answer: RunDocument | AnswerDocument | None) -> dict[str, float] | None:
    """What one use saves against the default, with half of its 95 % interval; None where it is not known."""
    saving = measured_saving(answer)
    return None if saving is None else {"energy_j": saving.joules, "energy_j_interval": saving.uncertainty_j}


T = TypeVar("T")


class Archive:
    """Implements ``ArchiveInterface``.

    Args:
        storage: the database.
        answerer: has the answers in memory.
    """

    def __init__(self, storage: Storage, answerer: Answerer) -> None:
        self._storage = storage
        self._answerer = answerer

    async def runs(
        self, workloads: Sequence[str], limit: int, before: int | None = None
    ) -> list[Mapping[str, Any]]:
        """See ``ArchiveInterface.runs``."""
        names = self._names(workloads)
        return await self._storage.read(lambda db: _documents().run_rows(db.store.page(limit, before, names)))

    async def run(self, number: int) -> Mapping[str, Any]:
        """See ``ArchiveInterface.run``."""
        return await self._of_run(number, lambda run, db: _documents().whole_run(run, db))

    async def trials(self, number: int, limit: int, after: int = 0) -> Mapping[str, Any]:
        """See ``ArchiveInterface.trials``."""

        def read(run: StoredRun, db: Repositories) -> Mapping[str, Any]:
            names = [name for name, _ in run.conditions["workloads"]]
            found, following = trials_page(db.database, number, names, after=after, limit=limit)
            page: Mapping[str, Any] = _documents().trial_page(run, found, following)
            return page

        return await self._of_run(number, read)

    async def samples(self, number: int) -> list[Mapping[str, Any]]:
        """See ``ArchiveInterface.samples``."""
        return await self._of_run(number, lambda _, db: [*db.ledger.samples(number)])

    async def history(
        self, workloads: Sequence[str], limit: int, before: int | None = None
    ) -> list[Mapping[str, Any]]:
        """See ``ArchiveInterface.history``."""
        names = self._names(workloads)

        def read(db: Repositories) -> list[Mapping[str, Any]]:
            runs = db.store.page(limit, before, names, answered=True)
            return [_documents().history_document(run, db.ledger.samples(run.id)) for run in runs]

        return await self._storage.read(read)

    def answers(self, *, stale: bool | None = None) -> list[Mapping[str, Any]]:
        """See ``ArchiveInterface.answers``."""
        snapshot = self._answerer.snapshot
        found = ((answer, snapshot.stale(answer)) for answer in snapshot.index.answers)
        return [
            answer_document(answer, reasons, snapshot.device(answer))
            for answer, reasons in sorted(found, key=lambda pair: -pair[0].run)
            if stale is None or bool(reasons) == stale
        ]

    def _names(self, workloads: Sequence[str]) -> list[str]:
        """Workloads as runs name them.

        Raises:
            InputError: one is unknown.
        """
        catalog = self._answerer.snapshot.catalog
        return [without_batch(str(catalog.workload(spec))) for spec in workloads]

    async def _of_run(self, number: int, read: Callable[[StoredRun, Repositories], T]) -> T:
        """Something of a run, read in one go."""
        return await self._storage.read(partial(_of_run, number, read))


def _documents() -> ModuleType:
    """What makes documents of runs; it brings in the search, which an idle daemon has no memory for."""
    return importlib.import_module("tuner.daemon.archive")


def _of_run(number: int, read: Callable[[StoredRun, Repositories], T], db: Repositories) -> T:
    try:
        run = db.store.run(number)
    except InputError as error:
        raise NoSuchRunError(str(error)) from error
    if run is None:
        raise NoSuchRunError(f"there is no run {number}")
    return read(run, db)


# --- Runs, their trials and the history of answers as JSON has them.


def run_rows(runs: Sequence[StoredRun]) -> list[RunRow]:
    """Runs in a list."""
    return [run_row(run) for run in runs]


def whole_run(run: StoredRun, db: Repositories) -> RunDocument:
    """The document of a run without its trials."""
    return run_document(run, failed_trials(db.database, run.id))


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
