"""One attempt at a job, from its errand to its ending.

The process of one attempt at a job: it opens the GPU, measures, stores, and says how it ended.
"""

import logging
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import NoReturn

from tuner.config.catalog import Catalog, kernels_root
from tuner.config.trust import kernel_directories
from tuner.daemon.attempts.event_writer import Teller
from tuner.daemon.attempts.gpu_lock import owned
from tuner.daemon.attempts.gpu_users import Watcher
from tuner.daemon.attempts.guard import GuardedMeasurer, Stopping
from tuner.daemon.attempts.messages import Ending, Errand, Status, errand_from
from tuner.daemon.attempts.repetition import measure_again
from tuner.daemon.attempts.retry import RetryingStore
from tuner.database import Jobs, Store
from tuner.devices.sensors import restore_stale_clocks
from tuner.errors import CompilerUnavailableError, InputError, Interrupted, StoreError, TunerError
from tuner.model import RunStatus
from tuner.model.jobs import JobKind, JobSpec
from tuner.model.records import measurement_record
from tuner.search.option_checks import job_options
from tuner.search.request import Request
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.tuning import no_answer, tune
from tuner.system import logs
from tuner.system.process import die_with_parent

_LOG = logging.getLogger(__name__)
_LONGEST_REASON = 500  # characters: what a person reads in a list of jobs; the log has all of it
_REFUSED = (InputError, CompilerUnavailableError)  # the same again would be refused again


class Attempt:
    """One attempt at a job.

    Args:
        errand: what to do.
        teller: tells how it comes on.
        stopping: whether the process is to stop.
    """

    def __init__(self, errand: Errand, teller: Teller, stopping: Stopping) -> None:
        self._errand = errand
        self._teller = teller
        self._stopping = stopping
        self._guard: GuardedMeasurer | None = None
        self._run: int | None = None

    def go(self) -> Ending:
        """Do it; whatever comes, it ends with an ending."""
        try:
            self._stopping.listen()
            ending = self._go()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the daemon is told
            self._stopping.done()
            ending = Ending(self._status(error), self._reason(error))
        ending = replace(ending, clocks_left=self._clocks_left())
        if self._guard is None:
            return replace(ending, run=self._run)
        return replace(ending, run=self._run, seconds=self._guard.windows_s, joules=self._guard.joules)

    def _clocks_left(self) -> tuple[str, ...]:
        """GPUs whose clocks are still to be given back; the attempt's guardian or helper has gone by now."""
        order = self._errand.order
        if order.clocks == "off" or not order.device.startswith("cuda"):
            return ()
        return tuple(restore_stale_clocks())

    def _go(self) -> Ending:
        errand = self._errand
        request = request_of(errand.order)
        request.check()
        own = kernel_directories(errand.kernel_directories, below=errand.below)
        catalog = Catalog.load(search_path=(kernels_root(), *own))
        with ExitStack() as ownership, ExitStack() as stack:  # the GPU is others' when all is closed
            store = stack.enter_context(Store(errand.database, job=errand.job))
            setup = stack.enter_context(open_setup(errand.order.device or None, request))
            identity = setup.device.identity
            ownership.enter_context(owned(errand.database.parent, identity.uuid, sleep=self._stopping.sleep))
            guarded = self._guarded(setup)
            stack.callback(self._stopping.done)  # no order to stop comes between clocks and their restoring
            if errand.order.kind is JobKind.SAMPLE:
                return self._sample(guarded, request, catalog)
            return self._tune(guarded, request, catalog, store)

    def _guarded(self, setup: MeasurementSetup) -> MeasurementSetup:
        """The setup with a measurer that gives way; SIGTERM frees its GPU at once."""
        self._guard = GuardedMeasurer(
            setup.measurer,
            setup.device,
            self._stopping,
            Watcher(self._errand.others_allowed) if self._errand.idle_test else None,
            self._teller.spent,
        )
        self._stopping.at_once = setup.device.abort
        return replace(setup, measurer=self._guard)

    def _tune(self, setup: MeasurementSetup, request: Request, catalog: Catalog, store: Store) -> Ending:
        job = Jobs(store.database).job(self._errand.job)
        begun = job is not None and job.run is not None
        retrying = RetryingStore(store, stopping=self._stopping, begun=self._begun, ending=self._leave)
        tuned = tune(setup, request, catalog, retrying, self._teller, resume=begun)
        if tuned.outcome.status is RunStatus.INTERRUPTED:
            return self._interrupted()
        self._teller.answer(tuned.document)
        ended: Status = "limited" if tuned.outcome.status is RunStatus.LIMITED else "finished"
        return Ending(ended, no_answer(tuned))

    def _sample(self, setup: MeasurementSetup, request: Request, catalog: Catalog) -> Ending:
        if self._errand.sample is None:
            raise InputError(f"job {self._errand.job}: nothing is named to be measured again")
        measured = measure_again(setup, request, catalog, self._errand.sample)
        return Ending("finished", sample=measurement_record(measured))

    def _begun(self, run: int, resumed: int) -> None:
        self._run = run
        self._teller.run(run, resumed)

    def _leave(self) -> None:
        if self._guard is not None:
            self._guard.leave()

    # --- how it ended --------------------------------------------------------------------------------

    def _interrupted(self) -> Ending:
        if self._guard is not None and self._guard.others:
            return Ending("busy", self._guard.others)
        return Ending("interrupted", "told to stop")

    def _status(self, error: BaseException) -> Status:
        """What an error means for the job."""
        if isinstance(error, KeyboardInterrupt | Interrupted):
            return self._interrupted().status
        if isinstance(error, StoreError) and self._stopping.asked:
            return "interrupted"  # it would have been tried again
        if isinstance(error, _REFUSED):
            return "refused"
        return "unavailable" if isinstance(error, TunerError) else "crashed"

    def _reason(self, error: BaseException) -> str:
        """An error for people; what nobody expected is logged with its trace."""
        if isinstance(error, KeyboardInterrupt | Interrupted):
            return self._interrupted().message
        if isinstance(error, TunerError):
            _LOG.warning("the attempt has ended: %s", error)
            return str(error)[:_LONGEST_REASON]
        _LOG.error("the attempt has crashed", exc_info=error)
        return f"{type(error).__name__}: {error}"[:_LONGEST_REASON]


def request_of(order: JobSpec) -> Request:
    """An order as a request.

    Raises:
        InputError: an option that there is none of.
    """
    return Request(workloads=order.workloads, **job_options(order))


def main(telling: int, lifeline: int) -> NoReturn:
    """Be the process: the errand comes on standard input, events and the ending go into a pipe.

    Args:
        telling: descriptor of that pipe.
        lifeline: descriptor of a pipe whose other end only the daemon holds.
    """
    stopping = Stopping()
    with stopping.noted():
        die_with_parent(lifeline)
        for descriptor in (telling, lifeline):
            os.set_inheritable(descriptor, False)
        logs.configure()
        errand = errand_from(sys.stdin.read())
        with logs.about(job=errand.job, gpu=errand.order.device):
            teller = Teller(telling, errand.order.objective)
            teller.end(Attempt(errand, teller, stopping).go())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # at once, and still deaf: nothing of the interpreter is worth an orderly end
