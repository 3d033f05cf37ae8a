"""Stored runs, their trials and samples, and the answers that are served, as JSON has them."""

from collections.abc import Sequence

from tuner.client.answer_values import HistoryRow, Saving, ServedAnswer, TrialPage
from tuner.daemon.answers.answerer import Answerer
from tuner.daemon.interface import NoSuchRunError, measured_saving
from tuner.daemon.jobs.specs import without_batch
from tuner.database.answers import StoredAnswer
from tuner.database.storage import Repositories, Storage
from tuner.model.errors import InputError
from tuner.model.jobs import DeviceIdentity
from tuner.model.records import StoredRun, StoredTrial
from tuner.model.run_document import (
    AnswerDocument,
    RunDocument,
    RunRow,
    SampleDocument,
    SearchedTrial,
    TrialDocument,
)

# --- Answers, history and trials, as JSON has them.


def answer_document(
    answer: StoredAnswer, stale: Sequence[str], device: DeviceIdentity | None
) -> ServedAnswer:
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


def _saving(answer: RunDocument | AnswerDocument | None) -> Saving | None:
    saving = measured_saving(answer)
    return None if saving is None else {"energy_j": saving.joules, "energy_j_interval": saving.uncertainty_j}


def _history_row(run: StoredRun, samples: Sequence[SampleDocument]) -> HistoryRow:
    """The answer of a run, with what it was bound to and what measuring it again has given."""
    from tuner.search.stored import run_row  # noqa: PLC0415 - an idle daemon does not hold the search

    answer, device = run.answer, run.conditions["device"]
    return {
        **run_row(run),
        "driver": device["driver"],
        "runtime": device["runtime"],
        "uuid": device["uuid"],
        "name": device["name"],
        "against_default": None if answer is None else answer.get("against_default"),
        "saving": _saving(answer),
        "samples": list(samples),
    }


def _listed_trial(stored: StoredTrial, names: Sequence[str]) -> TrialDocument:
    """A trial as it is known; of a contender also what the search saw of it."""
    from tuner.search.document import trial_document  # noqa: PLC0415 - as above

    searched: SearchedTrial | None = None
    confirmed = stored.known.repeats > 1
    if confirmed:
        before = trial_document((stored.trial, stored.searched), names)
        searched = {
            "time_s": before["time_s"],
            "time_s_uncertainty": before.get("time_s_uncertainty"),
            "energy_j": before["energy_j"],
            "energy_j_uncertainty": before.get("energy_j_uncertainty"),
            "power_w": before.get("power_w"),
            "clock_seen_mhz": before.get("clock_seen_mhz"),
            "bursts": before.get("bursts", 1),
            "window_s": before.get("window_s"),
            "flags": before.get("flags", []),
        }
    return {
        **trial_document((stored.trial, stored.known), names),
        "number": stored.number,
        "ended_at": stored.ended_at,
        "confirmed": confirmed,
        "searched": searched,
    }


# --- Runs, trials, samples and answers, read from the database and from memory.


class Archive:
    """Stored runs and answers; documents are as JSON has them, and described in ``docs/daemon-api.md``.

    Raises:
        InputError: a workload is wrong.
        NoSuchRunError: no such run, or it is not understood.
        StoreError: the database cannot be used just now.
    """

    def __init__(self, storage: Storage, answerer: Answerer) -> None:
        self._storage = storage
        self._answerer = answerer

    async def runs(self, workloads: Sequence[str], limit: int, before: int | None = None) -> list[RunRow]:
        """Runs, newest first; of any workloads if none are named."""
        from tuner.search.stored import run_row  # noqa: PLC0415 - as above

        names = self._names(workloads)
        return await self._storage.read(lambda db: [*map(run_row, db.store.page(limit, before, names))])

    async def run(self, number: int) -> RunDocument:
        """One run without its trials."""
        from tuner.search.stored import run_document  # noqa: PLC0415 - as above

        return await self._storage.read(
            lambda db: run_document(_run(number, db), db.store.failed_trials(number))
        )

    async def trials(self, number: int, limit: int, after: int = 0) -> TrialPage:
        """Trials of a run in their order."""

        def read(db: Repositories) -> TrialPage:
            run = _run(number, db)
            names = [name for name, _ in run.conditions["workloads"]]
            trials, following = db.store.trials_page(number, names, after=after, limit=limit)
            return {
                "run": number,
                "modelled": run.conditions["device"]["modelled"],
                "count": run.trials,
                "trials": [_listed_trial(trial, names) for trial in trials],
                "next": following,
            }

        return await self._storage.read(read)

    async def samples(self, number: int) -> list[SampleDocument]:
        """Return the results of measuring the answer of a run again, oldest first."""

        def read(db: Repositories) -> list[SampleDocument]:
            return db.ledger.samples(_run(number, db).id)

        return await self._storage.read(read)

    async def history(
        self, workloads: Sequence[str], limit: int, before: int | None = None
    ) -> list[HistoryRow]:
        """Answers over time, newest first, with their samples."""
        names = self._names(workloads)

        def read(db: Repositories) -> list[HistoryRow]:
            runs = db.store.page(limit, before, names, answered=True)
            return [_history_row(run, db.ledger.samples(run.id)) for run in runs]

        return await self._storage.read(read)

    def answers(self, *, stale: bool | None = None) -> list[ServedAnswer]:
        """Answers that are served now; with ``stale``, only those that are, or are not."""
        snapshot = self._answerer.snapshot
        judged = ((answer, snapshot.stale(answer)) for answer in snapshot.index.answers)
        return [
            answer_document(answer, reasons, snapshot.device(answer))
            for answer, reasons in sorted(judged, key=lambda pair: -pair[0].run)
            if stale is None or bool(reasons) == stale
        ]

    def _names(self, workloads: Sequence[str]) -> list[str]:
        """Workloads as runs name them.

        Raises:
            InputError: one is unknown.
        """
        catalog = self._answerer.snapshot.catalog
        return [without_batch(str(catalog.workload(spec))) for spec in workloads]


def _run(number: int, db: Repositories) -> StoredRun:
    try:
        run = db.store.run(number)
    except InputError as error:
        raise NoSuchRunError(str(error)) from error
    if run is None:
        raise NoSuchRunError(f"there is no run {number}")
    return run
