"""The process of a job: it opens the GPU, searches, stores, and reports its result.

Daemon, sweep and pool hand it specs. A spec comes on standard input; events and the result go into a pipe.
"""

import logging
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NoReturn

from tuner.database.connection import holds_something
from tuner.database.jobs import Jobs
from tuner.database.runs import RetryingStore, Store
from tuner.devices.gpu_users import ContentionProbe
from tuner.devices.sensors import restore_stale_clocks
from tuner.kernel_files.catalog import Catalog, ReadFolder
from tuner.kernel_files.source_folder import kernels_root
from tuner.kernel_files.trust import kernel_directories
from tuner.measurement.base import ContentionGate
from tuner.model.errors import (
    CompilerUnavailableError,
    InputError,
    RunBusyError,
    RunInterrupted,
    StoreError,
    TunerError,
)
from tuner.model.jobs import JobKind
from tuner.model.records import RunStatus, measurement_record
from tuner.search.job_messages import AttemptResult, AttemptSpec, AttemptStatus, EventWriter, parse_spec
from tuner.search.option_checks import job_options
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.tuning import tune
from tuner.search.verification import measure_again
from tuner.system import logs
from tuner.system.ownership import BoardTurns, owned_gpu
from tuner.system.processes import die_with_parent
from tuner.system.signals import StopRequest
from tuner.system.threads import is_shortage

_LOG = logging.getLogger(__name__)
_ALIVE_S = 1.0  # between signs of life while it waits for its turn
_LONGEST_REASON = 500  # characters: what a person reads in a list of jobs; the daemon's log has all of it
_REFUSED = (InputError, CompilerUnavailableError)  # the same again would be refused again


class Attempt:
    """One attempt at a job.

    Args:
        spec: what to do.
        events: go to whoever started the process.
        stop: the request to stop.
        read_folders: folders of kernel files that were read before.
    """

    def __init__(
        self,
        spec: AttemptSpec,
        events: EventWriter,
        stop: StopRequest,
        read_folders: Sequence[ReadFolder] = (),
    ) -> None:
        self._spec = spec
        self._events = events
        self._stop = stop
        self._read_folders = read_folders
        probe = ContentionProbe(spec.others_allowed) if spec.idle_test else None
        self._guard = ContentionGate(stop, probe, events.spent)
        self._run: int | None = None
        self._alive_s = 0.0

    def run(self) -> AttemptResult:
        """Make the attempt; every error ends in a result."""
        try:
            self._stop.enable()
            result = self._run_attempt()
        except BaseException as error:  # noqa: BLE001 - whoever started it is told of any error
            self._stop.disable()
            result = AttemptResult(self._status(error), self._reason(error))
        result = replace(result, clocks_left=self._clocks_left())
        return replace(result, run=self._run, seconds=self._guard.windows_s, joules=self._guard.joules)

    def _clocks_left(self) -> tuple[str, ...]:
        """GPUs whose clocks are not restored; the attempt's guardian or helper has ended by now."""
        job_spec = self._spec.job_spec
        if job_spec.clocks == "off" or not job_spec.device.startswith("cuda"):
            return ()
        return tuple(restore_stale_clocks())

    def _run_attempt(self) -> AttemptResult:
        spec = self._spec
        of_daemon = spec.job is not None
        request = request_of(spec)
        request.check()
        # What a daemon reads was checked to be nobody else's; a sweep reads what its user's commands read.
        own = kernel_directories(spec.kernel_directories, below=spec.below)
        folders = (kernels_root(), *own) if of_daemon else None
        catalog = Catalog.load(spec.kernel_files, folders, self._read_folders)
        with ExitStack() as ownership, ExitStack() as stack:  # the GPU is released last
            if of_daemon and not holds_something(spec.database):  # it has this job: opened, it would be new
                raise StoreError(f"{spec.database} is gone, and with it job {spec.job}")
            store = stack.enter_context(Store(spec.database, job=spec.job))
            turns = BoardTurns(spec.database.parent, self._wait_for_turn) if spec.exclusive_board else None
            if turns is not None:
                ownership.enter_context(turns)
            setup = stack.enter_context(
                open_setup(spec.job_spec.device or None, request, turns=turns, gates=[self._guard])
            )
            identity = setup.device.identity
            if of_daemon:  # a sweep gives each GPU one job at a time by itself
                ownership.enter_context(
                    owned_gpu(spec.database.parent, identity.uuid, sleep=self._stop.sleep)
                )
            self._guard.watch(setup.device, setup.measurer)
            self._stop.on_signal = setup.device.abort  # SIGTERM frees the GPU at once
            stack.callback(self._stop.disable)  # a request to stop must not interrupt the restoring of clocks
            if spec.job_spec.kind is JobKind.SAMPLE:
                return self._sample(setup, request, catalog)
            return self._tune(setup, request, catalog, store)

    def _wait_for_turn(self, seconds: float) -> None:
        """Wait for the turn of this GPU, with a sign of life now and then."""
        self._stop.sleep(seconds)
        if time.monotonic() - self._alive_s >= _ALIVE_S:
            self._alive_s = time.monotonic()
            self._events.spent(self._guard.windows_s, self._guard.joules)

    def _tune(
        self, setup: MeasurementSetup, request: SearchRequest, catalog: Catalog, store: Store
    ) -> AttemptResult:
        number = self._spec.job
        job = None if number is None else Jobs(store.database).job(number)
        retrying = RetryingStore(
            store.database,
            job=number,
            stop=self._stop,
            workloads=len(request.workloads),
            begun=self._begun,
            ending=self._guard.leave,
        )
        # A job of the daemon owns its run; a sweep goes on with whatever run asks for the same.
        resume = number is None or (job is not None and job.run is not None)
        outcome = tune(setup, request, catalog, retrying, self._events, resume=resume)
        if outcome.status is RunStatus.INTERRUPTED:
            return self._interrupted()
        self._events.answer(outcome.document)
        ended: AttemptStatus = "limited" if outcome.status is RunStatus.LIMITED else "finished"
        return AttemptResult(ended, outcome.no_answer)

    def _sample(self, setup: MeasurementSetup, request: SearchRequest, catalog: Catalog) -> AttemptResult:
        if self._spec.sample is None:
            raise InputError(f"job {self._spec.job}: nothing is named to be measured again")
        measured = measure_again(setup, request, catalog, self._spec.sample)
        return AttemptResult("finished", sample=measurement_record(measured))

    def _begun(self, run: int, resumed: int) -> None:
        self._run = run
        self._events.run(run, resumed)

    # --- how it ended --------------------------------------------------------------------------------

    def _interrupted(self) -> AttemptResult:
        if self._guard.others:
            return AttemptResult("busy", self._guard.others)
        return AttemptResult("interrupted", "told to stop")

    def _status(self, error: BaseException) -> AttemptStatus:
        """Return the status of an attempt that ended with an error."""
        if isinstance(error, KeyboardInterrupt | RunInterrupted):
            return self._interrupted().status
        if isinstance(error, StoreError) and self._stop.received:
            return "interrupted"  # the store stopped to retry because of the request
        if isinstance(error, RunBusyError):
            return "busy"
        if isinstance(error, _REFUSED):
            return "refused"
        return "unavailable" if isinstance(error, TunerError) or is_shortage(error) else "crashed"

    def _reason(self, error: BaseException) -> str:
        """An error for people; an unexpected exception is logged with its trace."""
        if isinstance(error, KeyboardInterrupt | RunInterrupted):
            return self._interrupted().message
        longest = None if self._spec.job is None else _LONGEST_REASON
        if isinstance(error, TunerError):
            _LOG.warning("the attempt has ended: %s", error)
            return str(error)[:longest]
        if is_shortage(error):
            _LOG.warning("the attempt has ended: %r", error)
            return f"the system is short of threads, processes or memory: {error}"[:longest]
        _LOG.error("the attempt has crashed", exc_info=error)
        return f"{type(error).__name__}: {error}"[:longest]


def request_of(spec: AttemptSpec) -> SearchRequest:
    """The request of an attempt.

    Raises:
        InputError: an option that the daemon's jobs do not have.
    """
    chosen = spec.job_spec.chosen if spec.job is None else job_options(spec.job_spec)
    return SearchRequest(workloads=spec.job_spec.workloads, kernel_files=spec.kernel_files, **chosen)


def main(pipe: int, lifeline: int, read_folders: Sequence[ReadFolder] = ()) -> NoReturn:
    """Run the process.

    Args:
        pipe: descriptor that events and the result go to.
        lifeline: descriptor of a pipe whose other end only the starting process holds.
        read_folders: folders of kernel files that were read before.
    """
    stop = StopRequest()
    with stop.handler_installed():
        die_with_parent(lifeline)
        for descriptor in (pipe, lifeline):
            os.set_inheritable(descriptor, False)
        spec = parse_spec(sys.stdin.read())
        if spec.job is None:
            _LOG.setLevel(logging.ERROR)  # a sweep tells by itself how its jobs end
        else:
            logs.configure()
        with logs.about(job=spec.job, gpu=spec.job_spec.device):
            events = EventWriter(pipe, spec.job_spec.objective)
            events.end(Attempt(spec, events, stop, read_folders).run())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # at once, with signals disabled: the interpreter has nothing to clean up
