"""Jobs of a sweep on the workers of a pool: each a whole run there, taken over when it has ended."""

import contextlib
import logging
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path

from tuner.database.connection import default_path, holds_something
from tuner.database.merging import merge_file
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import ChildError, InputError, PoolError, PoolLostError, TunerError, WorkerLostError
from tuner.pool.workers import open_workers
from tuner.studies.sweep import answers_under
from tuner.sweep.jobs import SweepJob
from tuner.sweep.lane import INTERRUPTED
from tuner.sweep.pool_lane import LaneAnswer, asked_device
from tuner.sweep.pool_questions import check_jobs, sources_of, told_by_workers
from tuner.sweep.pool_workers import SweepWorkers, Workers
from tuner.sweep.results import JobResult
from tuner.sweep.running import JobStarted

_LOG = logging.getLogger(__name__)
_LOOK_S = 0.5
_ABSENT_S = 120.0  # without a worker that takes a job, until a sweep gives up
_GRACE_S = 40.0  # for jobs to end in order, more than workers give them
_MOST_LOST = 3  # workers that one job may take with it


@contextlib.contextmanager
def open_pool_lanes(
    on: str, database: Path | None, kernel_files: Sequence[Path] = ()
) -> Iterator["PoolLanes"]:
    """Open the workers of a pool for a sweep.

    Args:
        on: ``dask://HOST:PORT`` or ``slurm``.
        database: where runs are taken over to; None for the user's own.
        kernel_files: beside the catalogue.

    Raises:
        InputError: as of ``open_workers``.
        PoolError: no worker came in time.
    """
    with open_workers(on) as workers:
        yield PoolLanes(workers, on, database, kernel_files)


@dataclass
class _Task:
    """A job that waits for a worker or runs on one.

    Attributes:
        worker: address, while it runs.
        begun_s: when it was first handed to a worker; None before.
        lost: workers that were lost with it.
        crashed_on: the worker where it crashed; empty while it did not.
    """

    job: SweepJob
    worker: str = ""
    begun_s: float | None = None
    lost: int = 0
    crashed_on: str = ""

    @property
    def seconds(self) -> float:
        """Time since it was first handed to a worker."""
        return 0.0 if self.begun_s is None else time.monotonic() - self.begun_s

    def failed(self, reason: str) -> JobResult:
        """It has no answer."""
        return JobResult(self.job, "failed", reason=reason, seconds=self.seconds)


class PoolLanes:
    """Runs jobs of a sweep on the workers of a pool, one at a time on each.

    Args:
        workers: of the pool.
        on: what messages call it.
        database: where runs are taken over to; None for the user's own.
        kernel_files: beside the catalogue; every worker has them under the same paths.
    """

    def __init__(
        self, workers: Workers, on: str, database: Path | None, kernel_files: Sequence[Path] = ()
    ) -> None:
        count = len(workers.present)
        self.where = f"{on}, {count} worker{'s' if count > 1 else ''}"
        self._workers = workers
        self._on = on
        self._database = database
        self._kernel_files = [path.absolute() for path in kernel_files]
        self._crew: SweepWorkers | None = None

    def known(self, jobs: Sequence[SweepJob]) -> Mapping[str, JobResult]:
        """See ``Backend.known``; a run on any GPU of a kind that the pool has counts.

        Raises:
            RefusedJobsError: workloads, devices or options that cannot be.
            InputError: a worker has other sources of kernels.
            PoolError: no worker may run jobs.
        """
        told = told_by_workers(self._met(jobs), jobs, self._on)
        path = self._database or default_path()
        if not holds_something(path):
            return {}
        with Store(path) as store:
            return answers_under(told, store, same_kind=True)

    def run(self, jobs: Sequence[SweepJob]) -> Iterator[JobStarted | JobResult]:
        """See ``Backend.run``."""
        crew = self._met(jobs)
        tasks = _Tasks(jobs, crew)
        with Store(self._database) as store:
            try:
                yield from self._run(tasks, crew, store)
            except PoolLostError as error:
                raise PoolError(str(error)) from error
            finally:
                crew.stop()
                tasks.wait(_GRACE_S)

    def _met(self, jobs: Sequence[SweepJob]) -> SweepWorkers:
        """The workers, once they have told what they are."""
        if self._crew is None:
            check_jobs(jobs)
            sources = sources_of(jobs, Catalog.load(self._kernel_files))
            devices = sorted({asked_device(job.device) for job in jobs})
            crew = SweepWorkers(self._workers, self._kernel_files, sources, devices)
            crew.meet()
            self._crew = crew
        return self._crew

    def _run(self, tasks: "_Tasks", crew: SweepWorkers, store: Store) -> Iterator[JobStarted | JobResult]:
        useful_s = time.monotonic()
        while tasks.left:
            crew.look()
            for job in tasks.start():
                yield JobStarted(job)
            if tasks.running:
                useful_s = time.monotonic()
                done, _ = wait(tasks.running, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
                for answer in done:
                    result = tasks.ended(answer, store)
                    if result is not None:
                        yield result
            elif time.monotonic() - useful_s > _ABSENT_S:
                raise PoolError(
                    f"--on {self._on}: for {_ABSENT_S:g} s no worker took one of the jobs that are left"
                )
            else:
                time.sleep(_LOOK_S)


class _Tasks:
    """Jobs that wait for a worker or run on one; a job that is lost with its worker waits again."""

    def __init__(self, jobs: Sequence[SweepJob], crew: SweepWorkers) -> None:
        self._waiting = deque(map(_Task, jobs))
        self._crew = crew
        self.running: dict[Future[LaneAnswer], _Task] = {}

    @property
    def left(self) -> bool:
        """Whether any job has not ended."""
        return bool(self._waiting or self.running)

    def start(self) -> Iterator[SweepJob]:
        """Give jobs to idle workers; yields those that begin for the first time."""
        busy = {task.worker for task in self.running.values()}
        fitting = self._crew.fitting()
        for address in fitting:
            if address in busy:
                continue
            task = next((one for one in self._waiting if self._may_take(address, one, fitting)), None)
            if task is None:
                continue
            self._waiting.remove(task)
            self.running[self._crew.submit(address, "run", task.job)] = task
            task.worker = address
            if task.begun_s is None:
                task.begun_s = time.monotonic()
                yield task.job

    def ended(self, answer: Future[LaneAnswer], store: Store) -> JobResult | None:
        """The result of a job whose call has ended; None where it waits again.

        Raises:
            PoolLostError: the scheduler does not answer.
            StoreError: the run cannot be stored.
        """
        task = self.running.pop(answer)
        try:
            given = _given(answer)
        except WorkerLostError as error:
            task.lost += 1
            return self._again(task, error, may=task.lost < _MOST_LOST)
        except (ChildError, PoolError) as error:
            may = not task.crashed_on
            task.crashed_on = task.worker
            return self._again(task, error, may=may)
        except PoolLostError:
            raise
        except TunerError as error:
            return task.failed(str(error))
        return _taken_over(task, given, store, self._crew.host(task.worker))

    def wait(self, seconds: float) -> None:
        """Wait until what runs has ended, some time at most."""
        with contextlib.suppress(PoolLostError):  # then nobody answers
            self._crew.gather(self.running, seconds)

    def _again(self, task: _Task, error: TunerError, *, may: bool) -> JobResult | None:
        if not may:
            return task.failed(str(error))
        _LOG.warning("pool: %s runs again: %s", task.job.title, error)
        self._waiting.appendleft(task)
        return None

    def _may_take(self, address: str, task: _Task, fitting: Sequence[str]) -> bool:
        """Whether a worker may take a job: not the one where it crashed, unless there is no other."""
        if not self._crew.allows(address, task.job):
            return False
        others = (other for other in fitting if other != address)
        return address != task.crashed_on or not any(self._crew.allows(one, task.job) for one in others)


def _given(answer: Future[LaneAnswer]) -> LaneAnswer:
    """What a job gave.

    Raises:
        PoolError: it has no run: it could not begin, or was told to stop, and not by this sweep.
        TunerError: as of the call.
    """
    given = answer.result()
    if given.found["end"] == INTERRUPTED:
        raise PoolError("it was stopped on its worker")
    if given.found.get("run") is None:  # such as of a GPU that fell off: all jobs of its worker would fail
        raise PoolError(given.found["reason"])
    return given


def _taken_over(task: _Task, given: LaneAnswer, store: Store, host: str) -> JobResult:
    """The result of a job whose run is stored here now."""
    with tempfile.TemporaryDirectory(prefix="tuner-sweep-") as folder:
        path = Path(folder) / "job.db"
        path.write_bytes(given.database)
        try:
            report = merge_file(store.database, path, source=f"a sweep's job on {host}", limited=True)
        except InputError as error:
            return task.failed(f"the database file that {host} sent cannot be read: {error}")
    if report.newest_run is None and given.found["end"] == "finished":
        why = report.refused[0] if report.refused else "it has no run that is not here already"
        return task.failed(f"the database file that {host} sent is of no use: {why}")
    return JobResult(task.job, seconds=task.seconds, **{**given.found, "run": report.newest_run})
