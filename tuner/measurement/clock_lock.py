"""The clock of trials: locked from one trial to the next at the same clock, and seen to be there."""

import logging
from collections.abc import Callable
from contextlib import ExitStack

from tuner.errors import ClockError, ClockLostError
from tuner.interfaces import ClockControl, ClockReading
from tuner.model import Flag, FlagKind

SETTLE_S = 5.0
"""A clock that is not there by then is flagged; a lock takes milliseconds."""

_LOG = logging.getLogger(__name__)


class ClockLock:
    """Holds at most one clock of a control; the control stays the caller's.

    Args:
        clocks: sets clocks; None where there is nothing to set them with.

    Attributes:
        mhz: the clock that is held; None for none.
    """

    def __init__(self, clocks: ClockControl | None) -> None:
        self._clocks = clocks
        self._lock = ExitStack()
        self._settled = True
        self.mhz: int | None = None

    def hold(self, mhz: int | None) -> None:
        """Hold a clock, or none.

        Raises:
            ClockError: it could not be set, or the one before not be given back.
        """
        if mhz == self.mhz:
            return
        self.release()
        if mhz is None:
            return
        if self._clocks is None:
            raise ClockError(f"a trial asks for {mhz} MHz, and the clocks of this device cannot be set here")
        self._lock.enter_context(self._clocks.locked(mhz))
        self.mhz = mhz
        self._settled = False

    def settle(self, look: Callable[[], ClockReading | None], now_s: Callable[[], float]) -> None:
        """After a clock was set, keep the GPU busy until it has it.

        A throttled GPU will not get there, and one that does not within five seconds is not waited for: what
        is measured then is flagged.

        Args:
            look: runs a load for a moment and says which clock it saw; None where the load failed.
            now_s: the device's time.
        """
        if self._settled:
            return
        self._settled = True
        begun_s = now_s()
        try:
            seen: ClockReading | None = self.read()
        except ClockError:
            return  # whoever reads the clock in the window that follows tells of it
        while seen is not None and self.is_off(seen) and not seen.throttle_reasons:
            if now_s() - begun_s > SETTLE_S:
                _LOG.warning("the clock is at %s MHz after %g s, %s MHz set", seen.mhz, SETTLE_S, self.mhz)
                return
            seen = look()

    def release(self) -> None:
        """Give the clock back."""
        self.mhz = None
        self._lock.close()

    def read(self) -> ClockReading:
        """The present clock.

        Raises:
            ClockError: the GPU stopped answering.
        """
        return ClockReading(None) if self._clocks is None else self._clocks.read()

    def confirm(self) -> None:
        """See that the clock is still held, after a trial at it.

        Raises:
            ClockLostError: it is not, and may not have been during the trial.
        """
        if self.mhz is None:
            return
        try:
            self.read()
        except ClockLostError:
            raise
        except ClockError:  # a GPU that tells no clock: its windows have none either
            return

    def flags(self, seen: ClockReading) -> list[Flag]:
        """What a reader must know of the clock seen in a window."""
        flags = []
        if seen.throttle_reasons:
            flags.append(Flag(FlagKind.THROTTLED, ", ".join(seen.throttle_reasons)))
        if self.is_off(seen):
            flags.append(Flag(FlagKind.OFF_CLOCK, f"{seen.mhz:g} MHz seen, {self.mhz} MHz set"))
        return flags

    def is_off(self, seen: ClockReading) -> bool:
        """True where a clock is held and the one seen is more than one supported step from it."""
        if self.mhz is None or seen.mhz is None:
            return False
        return abs(seen.mhz - self.mhz) > self._step_mhz(self.mhz)

    def _step_mhz(self, mhz: int) -> float:
        """Distance to the farther of the neighbouring supported clocks: what a median may be off."""
        supported = sorted(self._clocks.supported_mhz()) if self._clocks is not None else []
        if mhz not in supported:
            return 0.0
        place = supported.index(mhz)
        return max(abs(mhz - other) for other in supported[max(place - 1, 0) : place + 2])
