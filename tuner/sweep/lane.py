"""What the process of a lane does: one run after another, in an interpreter that has imported the search."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.database.connection import default_path
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import RunBusyError, RunInterrupted, TunerError
from tuner.model.records import RunStatus
from tuner.search.running import run
from tuner.search.trial_event import TrialEvent
from tuner.search.tuning import no_answer
from tuner.studies.sweep import known_results, request_of
from tuner.sweep.jobs import SweepJob
from tuner.sweep.results import answer_of
from tuner.system.interrupts import raised_as_interrupts

INTERRUPTED = "interrupted"
"""The end of a job that was told to stop; what it measured is stored."""

BUSY = "busy"
"""The end of a job whose run another process is measuring."""


class Lane:
    """Runs jobs of a sweep; the server of a child process.

    Args:
        kernel_files: beside the catalogue.
        database: where runs are stored; None for the user's own.

    Attributes:
        catalog: where kernels are.
    """

    def __init__(self, kernel_files: Sequence[Path], database: Path | None) -> None:
        self.catalog = Catalog.load(kernel_files)
        self._kernel_files = kernel_files
        self._database = database

    def run_again(self, job: SweepJob) -> Mapping[str, Any]:
        """Take the answer of another process that measured the run of a job; without one, run it.

        Returns:
            As ``run``; ``end`` is ``known`` where there was an answer.
        """
        with Store(self._database or default_path()) as store:
            known = known_results([job], store, self.catalog).get(job.key)
        return (
            self.run(job) if known is None else {"end": known.end, "run": known.run, "answer": known.answer}
        )

    def run(self, job: SweepJob, database: Path | None = None) -> Mapping[str, Any]:
        """Run a job, or go on with its unfinished run.

        Args:
            job: of a sweep.
            database: in the place of the lane's; None for that.

        Returns:
            ``end``: ``finished``, ``failed``, ``busy`` or ``interrupted``, with ``reason``, ``run`` and
            ``answer``.
        """
        try:
            with raised_as_interrupts([signal.SIGTERM]):  # clocks are restored, ended trials stored
                tuned = run(
                    request_of(job, self._kernel_files),
                    self.catalog,
                    _Silent(),
                    device=job.device or None,
                    database=database or self._database,
                    resume=True,
                    insisted=False,
                )
        except (KeyboardInterrupt, RunInterrupted):
            return {"end": INTERRUPTED}
        except RunBusyError as error:
            return {"end": BUSY, "reason": str(error)}
        except TunerError as error:
            return {"end": "failed", "reason": str(error)}
        if tuned.outcome.status is RunStatus.INTERRUPTED:
            return {"end": INTERRUPTED}
        found = {"run": tuned.document["run"], "answer": answer_of(tuned.document)}
        why = no_answer(tuned)
        return {"end": "failed", "reason": why, **found} if why else {"end": "finished", **found}


class _Silent:
    """Hears how a run comes on, and says nothing: many run at once."""

    def compiled(self, done: int, total: int) -> None:
        """Configurations are compiled."""

    def warming(self, watts: float, seconds: float) -> None:
        """A window of the warm-up has ended."""

    def measured(self, event: TrialEvent) -> None:
        """A trial has ended."""

    def told(self, sentence: str) -> None:
        """The policy says something."""
