"""Retries of storing: a measured trial is not thrown away because the disk is full just now."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tuner.measurement.base import TrialStore
from tuner.model.errors import InputError, StoreBusyError, StoreError, StoreFullError
from tuner.model.records import Conditions, RunStatus, StoredRun
from tuner.model.trial import Measurement, Trial
from tuner.system.signals import StopRequest

T = TypeVar("T")
RETRY_S = 60.0  # a log is rotated, a backup ends; what lasts longer is for people, and the job comes again
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 5.0
_DYING_S = 5.0  # an earlier attempt at the job that was killed is gone by then
_LOG = logging.getLogger(__name__)


class RetryingStore:
    """Wraps a store: tries again while the file is locked or the disk full; SIGTERM ends that.

    Args:
        store: keeps the trials; stays the caller's.
        stop: a request to stop waits until a change is durable.
        begun: is told the number of the run, and the trials that it has already.
        ending: called before a run is ended, which may have to wait.
        retry_s: longest wait in seconds.
    """

    def __init__(
        self,
        store: TrialStore,
        *,
        stop: StopRequest,
        begun: Callable[[int, int], None],
        ending: Callable[[], None],
        retry_s: float = RETRY_S,
    ) -> None:
        self._store = store
        self._stop = stop
        self._begun = begun
        self._ending = ending
        self._retry_s = retry_s

    def begin(self, conditions: Conditions, taken: Callable[[int], None] = lambda _: None) -> int:
        """See ``TrialStore.begin``."""
        number = self._retried(lambda: self._store.begin(conditions, taken))
        self._begun(number, 0)
        return number

    def resume(self, conditions: Conditions, taken: Callable[[int], None] = lambda _: None) -> int | None:
        """See ``TrialStore.resume``; an earlier attempt that is just dying is waited for.

        Raises:
            StoreError: it has not died.
        """
        deadline_s = time.monotonic() + _DYING_S
        while True:
            try:
                number = self._retried(lambda: self._store.resume(conditions, taken))
                break
            except InputError as error:
                if time.monotonic() > deadline_s:
                    raise StoreError(str(error)) from error
            self._stop.sleep(_FIRST_WAIT_S)
        if number is not None:
            self._begun(number, len(self._store.trials(number, conditions.names)))
        return number

    def add(
        self, run_id: int, number: int, trial: Trial, measurement: Measurement, names: Sequence[str]
    ) -> None:
        """See ``TrialStore.add``."""
        self._retried(lambda: self._store.add(run_id, number, trial, measurement, names))

    def confirm(self, run_id: int, measurements: Mapping[int, Measurement]) -> None:
        """See ``TrialStore.confirm``."""
        self._retried(lambda: self._store.confirm(run_id, measurements))

    def end(self, run_id: int, status: RunStatus, answer: Mapping[str, Any] | None) -> None:
        """See ``TrialStore.end``; the GPU is given back before."""
        self._stop.disable()
        self._ending()
        self._retried(lambda: self._store.end(run_id, status, answer))

    def trials(self, run_id: int, names: Sequence[str]) -> list[tuple[Trial, Measurement]]:
        """See ``TrialStore.trials``."""
        return self._store.trials(run_id, names)

    def answered(
        self, names: Sequence[str], objective: str | None, device_uuid: str | None = None
    ) -> Iterator[StoredRun]:
        """See ``TrialStore.answered``."""
        return self._store.answered(names, objective, device_uuid)

    def finished_before(self, run_id: int, kernel: str, objective: str) -> Iterator[StoredRun]:
        """See ``TrialStore.finished_before``."""
        return self._store.finished_before(run_id, kernel, objective)

    def _retried(self, change: Callable[[], T]) -> T:
        wait_s, waited_s = _FIRST_WAIT_S, 0.0
        while True:
            try:
                with self._stop.deferred():
                    return change()
            except (StoreBusyError, StoreFullError) as error:
                if self._stop.received or waited_s >= self._retry_s:
                    raise
                _LOG.warning("not stored yet, tried again in %g s: %s", wait_s, error)
            try:
                self._stop.sleep(wait_s)
            except KeyboardInterrupt:
                with contextlib.suppress(StoreBusyError, StoreFullError):
                    change()  # the last chance
                raise
            waited_s += wait_s
            wait_s = min(2.0 * wait_s, _LONGEST_WAIT_S)
