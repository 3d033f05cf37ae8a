"""Leases of ``tuner-clockd``: at most one setting of one GPU per client, journalled and restored."""

import logging
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

from tuner.model.errors import ClockError, ClockRefusedError

from .actuator import Actuator, demand
from .clockd_protocol import ClockRefusal, ClockRequest
from .journal import JournalPlace
from .ownership import GLANCE_S, Ownership, Undo, restore_stale
from .settings import kind_of

_ATTEMPTS = 3
_PAUSE_S = 0.1  # short: the other clients wait meanwhile
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0  # a GPU that is lost stays so until somebody acts
_LOG = logging.getLogger(__name__)

OpenActuator = Callable[[str, str], Actuator]
"""Opens the actuator of a control for a GPU, by their names; raises a ClockError if there is none."""


class _ClientLease:
    """A setting of one GPU in the hands of one client; the helper owns it as long as this is open."""

    def __init__(self, actuator: Actuator, ownership: Ownership) -> None:
        self.actuator = actuator
        self._ownership = ownership
        self._old: dict[str, Any] | None = None
        self._new = 0

    def set(self, value: int) -> None:
        """Set a value, from what was there before any other that this lease has set.

        Going back first costs one more call and keeps the journal simple: at every moment one entry tells
        the whole way back.
        """
        demand(self.actuator, value)
        self.restore()
        old = self.actuator.before()
        self._ownership.announce(old, value)
        self._old, self._new = old, value
        try:
            self.actuator.set(value)
        except ClockRefusedError:  # nothing was changed
            self._forget()
            raise
        except BaseException:
            self.restore()
            raise

    def restore(self) -> list[str]:
        """Undo what is set, trying a few times; tells what was left alone. The journal stays if it fails."""
        if self._old is None:
            return []
        for attempt in range(_ATTEMPTS):
            try:
                left = self.actuator.restore(self._old, self._new)
                break
            except ClockError:
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(_PAUSE_S)
        self._forget()
        return left

    def close(self) -> None:
        """Give the GPU up; what could not be restored stays in the journal."""
        self._ownership.give_up()
        self.actuator.close()

    def _forget(self) -> None:
        self._ownership.clear()
        self._old = None


class Leases:
    """The settings of GPUs that clients hold.

    Args:
        directory: of journals and locks.
        open_actuator: opens a GPU for a client.
        undo: undoes what a dead owner left in the journal.
        now: monotonic clock in seconds.
        owner: identity of the process that others are told of; this one if empty.
        patience_s: how long a client, and all others with it, may wait for the guardian of a dead owner.
    """

    def __init__(
        self,
        directory: Path,
        open_actuator: OpenActuator,
        undo: Undo,
        now: Callable[[], float] = time.monotonic,
        *,
        owner: str = "",
        patience_s: float = GLANCE_S,
    ) -> None:
        self._owner = owner
        self._patience_s = patience_s
        self._directory = directory
        self._open_actuator = open_actuator
        self._undo = undo
        self._now = now
        self._held: dict[Hashable, _ClientLease] = {}
        self._retry_s = _FIRST_RETRY_S
        self._retry_at_s: float | None = None

    def __len__(self) -> int:
        return len(self._held)

    def set(self, holder: Hashable, request: ClockRequest) -> None:
        """Hold a setting of a GPU for ``holder``; a client's first success makes it the owner.

        Raises:
            Refused: another client holds it, or this one holds another.
            ClockError: the value is not supported or not allowed, or setting it failed; then nothing is set.
        """
        kind = kind_of(request.control)
        lease = self._held.get(holder)
        if lease is not None:
            if (lease.actuator.control, lease.actuator.gpu) != (request.control, request.gpu):
                held = f"the {kind_of(lease.actuator.control).name} of {lease.actuator.gpu}"
                raise ClockRefusal("busy", f"this connection holds {held}: open another for {request.gpu}")
            lease.set(request.value)
        else:
            lease = self._held[holder] = self._opened(request)
            try:
                lease.set(request.value)
            except BaseException:
                self.drop(holder)
                raise
            _LOG.info("%s holds the %s of %s", holder, kind.name, request.gpu)
        _LOG.debug("%s set %s to %d %s", holder, request.gpu, request.value, kind.unit)

    def reset(self, holder: Hashable) -> list[str]:
        """Restore the setting of a holder, who stays its owner; tells what was left alone.

        Raises:
            ClockError: it could not be restored; the journal stays.
        """
        lease = self._held.get(holder)
        return lease.restore() if lease else []

    def drop(self, holder: Hashable) -> None:
        """Restore and give up what a holder has; what fails is logged, kept in the journal and retried."""
        lease = self._held.pop(holder, None)
        if lease is None:
            return
        kind = kind_of(lease.actuator.control)
        try:
            for left in lease.restore():
                _LOG.warning("%s: %s", lease.actuator.gpu, left)
        except Exception:  # noqa: BLE001 - the others must be restored, whatever this one met
            _LOG.exception("the %s of %s is not restored yet", kind.value, lease.actuator.gpu)
            self._retry_s = _FIRST_RETRY_S
            self._retry_at_s = self._now() + self._retry_s
        finally:
            lease.close()
        _LOG.info("%s gave up the %s of %s", holder, kind.name, lease.actuator.gpu)

    def restore_stale(self) -> bool:
        """Undo what dead owners left, and what could not be restored before; False if something is left."""
        outcomes = restore_stale(self._directory, self._undo)  # which logs what it does
        done = all(outcome.state != "failed" for outcome in outcomes)
        self._retry_at_s = None if done else self._now() + self._retry_s
        return done

    @property
    def retry_at_s(self) -> float | None:
        """When ``retry`` has something to do; None while nothing is left to restore."""
        return self._retry_at_s

    def retry(self) -> None:
        """Try again to restore what could not be, ever more rarely."""
        if self._retry_at_s is not None and self._now() >= self._retry_at_s:
            self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)
            self.restore_stale()

    def close(self) -> None:
        """Restore everything."""
        for holder in list(self._held):
            self.drop(holder)

    def _opened(self, request: ClockRequest) -> _ClientLease:
        kind = kind_of(request.control)
        for holder, lease in self._held.items():
            if (lease.actuator.control, lease.actuator.gpu) == (request.control, request.gpu):
                raise ClockRefusal(
                    "busy", f"the {kind.name} of {request.gpu} {kind.held} by {holder}: wait for it or end it"
                )
        actuator = self._open_actuator(request.control, request.gpu)
        if (actuator.control, actuator.gpu) != (request.control, request.gpu):
            actuator.close()
            raise ClockRefusal("clock", f"{request.gpu} is no name of a GPU, but {actuator.gpu} is")
        place = JournalPlace(self._directory, request.control, request.gpu)
        ownership = Ownership(place, self._undo, owner=self._owner, patience_s=self._patience_s)
        try:
            ownership.take()
        except BaseException:
            actuator.close()
            raise
        return _ClientLease(actuator, ownership)
