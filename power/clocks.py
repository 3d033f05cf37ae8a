"""Clocks set by this process itself: read freely, set only when asked, restored on every way out."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner.errors import ClockError, ClockRefusedError
from tuner.interfaces import ClockReading

from .actuator import Actuator, demand
from .guard import ClockGuard
from .journal import Place, runtime_directory

_LOG = logging.getLogger(__name__)


class GuardedClocks:
    """Implements ``tuner.interfaces.ClockControl`` over an actuator; opening and reading change nothing.

    What was there before is in the journal before a clock is set, and is restored at the end of ``locked``;
    should this process die inside it, by SIGKILL even, the guardian process does it (see ``guard``).

    Args:
        actuator: sets and restores; closed with this control.
        runtime_dir: directory of journal and lock; None for the default of ``runtime_directory``.
        options: of the guardian, where it must look elsewhere than on this system (``guardian.options``).
    """

    def __init__(
        self, actuator: Actuator, *, runtime_dir: Path | None = None, options: tuple[str, ...] = ()
    ) -> None:
        self._actuator = actuator
        self._runtime_dir = runtime_dir
        self._options = options
        self._guard: ClockGuard | None = None
        self._held: tuple[Mapping[str, Any], int] | None = None  # what was there before, and what is held

    def supported_mhz(self) -> tuple[int, ...]:
        """See ``ClockControl.supported_mhz``; without those that the administrator does not allow."""
        return self._actuator.supported_mhz()

    def read(self) -> ClockReading:
        """See ``ClockControl.read``."""
        return self._actuator.read()

    @contextmanager
    def locked(self, mhz: int) -> Iterator[None]:
        """Hold the GPU at ``mhz`` while the block runs and restore what was there on every way out.

        Whether the GPU follows is for the measurer to see, under load.

        Raises:
            ClockPermissionError: this process may not set clocks.
            ClockError: the clock is not supported, another process holds this GPU's clocks, or they could
                not be set or restored.
        """
        if self._held is not None:
            raise ClockError(f"{self._actuator.gpu} is locked at {self._held[1]} MHz already")
        demand(self._actuator, mhz)
        old = self._guarded().prepare(self._actuator.before, mhz)
        self._held = old, mhz
        try:
            self._set(mhz)
            yield
        except BaseException:
            self._release(quietly=True)
            raise
        self._release(quietly=False)

    def close(self) -> None:
        """Restore the clock if it is still held and release everything."""
        self._release(quietly=True)
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        self._actuator.close()

    def _guarded(self) -> ClockGuard:
        if self._guard is None:
            actuator = self._actuator
            place = Place(self._runtime_dir or runtime_directory(), actuator.control, actuator.gpu)
            self._guard = ClockGuard(
                place, lambda entry: actuator.restore(entry.old, entry.new_mhz), self._options
            )
        return self._guard

    def _set(self, mhz: int) -> None:
        try:
            self._actuator.set(mhz)
        except ClockRefusedError:
            self._forget()  # what was refused is to be undone by nobody
            raise

    def _forget(self) -> None:
        self._held = None
        if self._guard is not None:
            self._guard.clear()

    def _release(self, *, quietly: bool) -> None:
        """Restore what was there; a failure keeps the journal, so that the guardian tries again."""
        if self._held is None:
            return
        try:
            left = self._actuator.restore(*self._held)
        except ClockError as error:
            _LOG.error("%s; it is tried again when this process ends", error)
            if not quietly:
                raise
            return
        for what in left:
            _LOG.warning("%s: %s", self._actuator.gpu, what)
        self._forget()
