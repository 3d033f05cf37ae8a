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
from tuner.database.storage import Repositories, Storage
from tuner.model.errors import InputError
from tuner.model.jobs import DeviceIdentity
from tuner.model.records import StoredRun
from tuner.model.run_document import AnswerDocument, RunDocument

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
    """Return joules saved per use against the default, with half of the 95 % interval; None if unknown."""
    saving = measured_saving(answer)
    return None if saving is None else {"energy_j": saving.joules, "energy_j_interval": saving.uncertainty_j}


# --- Runs, trials, samples and answers, read from the database and from memory.

T = TypeVar("T")


class Archive:
    """Stored runs and answers; documents are as JSON has them, and described in ``docs/daemon-api.md``.

    Args:
        storage: the database.
        answerer: has the answers in memory.

    Raises:
        InputError: a workload is wrong.
        NoSuchRunError: no such run, or it is not understood.
        StoreError: the database cannot be used just now.
    """

    def __init__(self, storage: Storage, answerer: Answerer) -> None:
        self._storage = storage
        self._answerer = answerer

    async def runs(
        self, workloads: Sequence[str], limit: int, before: int | None = None
    ) -> list[Mapping[str, Any]]:
        """Runs, newest first; of any workloads if none are named."""
        names = self._names(workloads)
        return await self._storage.read(lambda db: _documents().run_rows(db.store.page(limit, before, names)))

    async def run(self, number: int) -> Mapping[str, Any]:
        """One run without its trials."""
        return await self._of_run(number, lambda run, db: _documents().whole_run(run, db))

    async def trials(self, number: int, limit: int, after: int = 0) -> Mapping[str, Any]:
        """Trials of a run in their order."""

        def read(run: StoredRun, db: Repositories) -> Mapping[str, Any]:
            names = [name for name, _ in run.conditions["workloads"]]
            found, following = db.store.trials_page(number, names, after=after, limit=limit)
            page: Mapping[str, Any] = _documents().trial_page(run, found, following)
            return page

        return await self._of_run(number, read)

    async def samples(self, number: int) -> list[Mapping[str, Any]]:
        """Return the results of measuring the answer of a run again, oldest first."""
        return await self._of_run(number, lambda _, db: [*db.ledger.samples(number)])

    async def history(
        self, workloads: Sequence[str], limit: int, before: int | None = None
    ) -> list[Mapping[str, Any]]:
        """Answers over time, newest first, with their samples."""
        names = self._names(workloads)

        def read(db: Repositories) -> list[Mapping[str, Any]]:
            runs = db.store.page(limit, before, names, answered=True)
            return [_documents().history_document(run, db.ledger.samples(run.id)) for run in runs]

        return await self._storage.read(read)

    def answers(self, *, stale: bool | None = None) -> list[Mapping[str, Any]]:
        """Answers that are served now; with ``stale``, only those that are, or are not."""
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
    """Return the module that makes documents of runs: an idle daemon does not hold the search."""
    return importlib.import_module("tuner.daemon.run_documents")


def _of_run(number: int, read: Callable[[StoredRun, Repositories], T], db: Repositories) -> T:
    try:
        run = db.store.run(number)
    except InputError as error:
        raise NoSuchRunError(str(error)) from error
    if run is None:
        raise NoSuchRunError(f"there is no run {number}")
    return read(run, db)
