"""What the process of a lane does: one run after another, in an interpreter that has imported the search."""

import contextlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from tuner.config.catalog import Catalog
from tuner.errors import RunInterrupted, TunerError
from tuner.model import RunStatus
from tuner.search.request import Request
from tuner.search.running import run
from tuner.search.trial_event import TrialEvent
from tuner.search.tuning import no_answer
from tuner.sweep.jobs import SweepJob
from tuner.sweep.results import answer_of

INTERRUPTED = "interrupted"
"""The end of a job that was told to stop; what it measured is stored."""


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

    def run(self, job: SweepJob, database: Path | None = None) -> Mapping[str, Any]:
        """Run a job, or go on with its unfinished run.

        Args:
            job: of a sweep.
            database: in the place of the lane's; None for that.

        Returns:
            ``end``: ``finished``, ``failed`` or ``interrupted``, with ``reason``, ``run`` and ``answer``.
        """
        try:
            with _stopped_by_sigterm():
                tuned = run(
                    request_of(job, self._kernel_files),
                    self.catalog,
                    _Silent(),
                    device=job.device or None,
                    database=database or self._database,
                    resume=True,
                    may_begin=True,
                )
        except (KeyboardInterrupt, RunInterrupted):
            return {"end": INTERRUPTED}
        except TunerError as error:
            return {"end": "failed", "reason": str(error)}
        if tuned.outcome.status is RunStatus.INTERRUPTED:
            return {"end": INTERRUPTED}
        found = {"run": tuned.document["run"], "answer": answer_of(tuned.document)}
        why = no_answer(tuned)
        return {"end": "failed", "reason": why, **found} if why else {"end": "finished", **found}


def request_of(job: SweepJob, kernel_files: Sequence[Path] = ()) -> Request:
    """The request of a job."""
    return Request(workloads=job.workloads, kernel_files=kernel_files, objective=job.objective, **job.options)


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


@contextlib.contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM ends a run in order: clocks are restored, and trials that have ended are stored."""

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
