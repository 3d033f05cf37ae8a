"""Runs the jobs of a sweep where there is no fresh answer, and gathers what became of them."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from tuner.model.errors import RunInterrupted, TunerError
from tuner.sweep.jobs import SweepJob
from tuner.sweep.results import JobResult, SweepReport


@dataclass(frozen=True)
class JobStarted:
    """A job has got a lane."""

    job: SweepJob


class Backend(Protocol):
    """Where jobs run.

    Attributes:
        where: for people, such as ``local, 4 lanes``.
    """

    where: str

    def known(self, jobs: Sequence[SweepJob]) -> Mapping[str, JobResult]:
        """Results that are there already, by the keys of their jobs.

        Raises:
            InputError: a job names a workload or device that is not there, or an option that cannot be.
        """

    def run(self, jobs: Sequence[SweepJob]) -> Iterator[JobStarted | JobResult]:
        """Run jobs, and yield what happens; closing the iterator stops in order."""


class SweepObserver(Protocol):
    """Hears how a sweep comes on."""

    def begun(self, report: SweepReport) -> None:
        """Results that were there are in the report; the others run now."""

    def started(self, job: SweepJob) -> None:
        """A job has got a lane."""

    def ended(self, result: JobResult) -> None:
        """A job has ended."""


def run_sweep(jobs: Sequence[SweepJob], backend: Backend, observer: SweepObserver, path: str) -> SweepReport:
    """Run all jobs that have no fresh answer; a job that fails does not stop the others.

    Args:
        jobs: of the sweep.
        backend: where they run.
        observer: hears how it comes on.
        path: of the file, for the report.

    Returns:
        The report, also where the user interrupted the sweep, or nothing can run any more.

    Raises:
        InputError: as of ``Backend.known``; nothing has run then.
    """
    known = backend.known(jobs)
    report = SweepReport(path, backend.where, jobs, [known[job.key] for job in jobs if job.key in known])
    observer.begun(report)
    missing = [job for job in jobs if job.key not in known]
    begun_s = time.monotonic()
    try:
        with closing(backend.run(missing)) as happening:  # type: ignore[type-var]  # a generator
            for event in happening:
                if isinstance(event, JobStarted):
                    observer.started(event.job)
                else:
                    report.results.append(event)
                    observer.ended(event)
    except (KeyboardInterrupt, RunInterrupted):
        report.interrupted = True
    except TunerError as error:
        report.trouble = str(error)
    report.wall_s = time.monotonic() - begun_s
    return report
