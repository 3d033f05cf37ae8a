"""The store of a job's process: a measured trial is not thrown away because the disk is full just now."""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tuner.daemon.attempts.guard import Stopping
from tuner.database import Store
from tuner.database.conditions import Conditions
from tuner.errors import InputError, StoreBusyError, StoreError, StoreFullError
from tuner.model import Measurement, RunStatus, Trial

T = TypeVar("T")
PATIENCE_S = 60.0  # a log is rotated, a backup ends; what lasts longer is for people, and the job comes again
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 5.0
_DYING_S = 5.0  # an earlier attempt at the job that was killed is gone by then
_LOG = logging.getLogger(__name__)


class PatientStore(Store):
    """A store that tries again while the file is locked or the disk full; SIGTERM ends that.

    Args:
        path: the database.
        job: runs are bound to it.
        stopping: an order to stop waits until a change is durable.
        begun: hears of the run: its number, and the trials it has already.
        ending: called before a run is ended, which may have to wait.
        patience_s: longest wait in seconds.
    """

    def __init__(
        self,
        path: Path,
        *,
        job: int,
        stopping: Stopping,
        begun: Callable[[int, int], None],
        ending: Callable[[], None],
        patience_s: float = PATIENCE_S,
    ) -> None:
        super().__init__(path, job=job)
        self._stopping = stopping
        self._begun = begun
        self._ending = ending
        self._patience_s = patience_s

    def begin(self, conditions: Conditions) -> int:
        """See ``Store.begin``."""
        number = self._patiently(lambda: super(PatientStore, self).begin(conditions))
        self._begun(number, 0)
        return number

    def resume(self, conditions: Conditions) -> int | None:
        """See ``Store.resume``; an earlier attempt that is just dying is waited for.

        Raises:
            StoreError: it has not died.
        """
        deadline_s = time.monotonic() + _DYING_S
        while True:
            try:
                number = self._patiently(lambda: super(PatientStore, self).resume(conditions))
                break
            except InputError as error:
                if time.monotonic() > deadline_s:
                    raise StoreError(str(error)) from error
            self._stopping.sleep(_FIRST_WAIT_S)
        if number is not None:
            self._begun(number, len(self.trials(number, conditions.names)))
        return number

    def add(
        self, run_id: int, number: int, trial: Trial, measurement: Measurement, names: Sequence[str]
    ) -> None:
        """See ``Store.add``."""
        self._patiently(lambda: super(PatientStore, self).add(run_id, number, trial, measurement, names))

    def confirm(self, run_id: int, measurements: Mapping[int, Measurement]) -> None:
        """See ``Store.confirm``."""
        self._patiently(lambda: super(PatientStore, self).confirm(run_id, measurements))

    def end(self, run_id: int, status: RunStatus, answer: Mapping[str, Any] | None) -> None:
        """See ``Store.end``; the GPU is given back before."""
        self._stopping.done()
        self._ending()
        self._patiently(lambda: super(PatientStore, self).end(run_id, status, answer))

    def _patiently(self, change: Callable[[], T]) -> T:
        wait_s, waited_s = _FIRST_WAIT_S, 0.0
        while True:
            try:
                with self._stopping.held():
                    return change()
            except (StoreBusyError, StoreFullError) as error:
                if self._stopping.asked or waited_s >= self._patience_s:
                    raise
                _LOG.warning("not stored yet, tried again in %g s: %s", wait_s, error)
            try:
                self._stopping.sleep(wait_s)
            except KeyboardInterrupt:
                with contextlib.suppress(StoreBusyError, StoreFullError):
                    change()  # the last chance
                raise
            waited_s += wait_s
            wait_s = min(2.0 * wait_s, _LONGEST_WAIT_S)
