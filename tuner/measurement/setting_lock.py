"""Clock and power limit of trials: held from one trial to the next, and seen to be there."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from tuner.interfaces.power import ClockControl, ClockReading, PowerLimitControl
from tuner.model.errors import ClockError, ClockLostError
from tuner.model.trial import Flag, FlagKind, GpuSetting

SETTLE_S = 5.0
"""A clock that is not there by then is flagged; a lock takes milliseconds."""

_LOG = logging.getLogger(__name__)


class SettingLock:
    """Holds at most one clock and one power limit; their controls stay the caller's.

    Args:
        clocks: sets clocks; None where there is nothing to set them with.
        limits: sets power limits; None where there is nothing to set them with.
    """

    def __init__(self, clocks: ClockControl | None, limits: PowerLimitControl | None = None) -> None:
        self._clocks = clocks
        self._limits = limits
        self._clock_lock = ExitStack()
        self._limit_lock = ExitStack()
        self._settled = True
        self._held = GpuSetting()

    @property
    def mhz(self) -> int | None:
        """The clock that is held; None for none."""
        return self._held.clock_mhz

    def hold(self, setting: GpuSetting) -> None:
        """Hold a clock, a power limit, both or none.

        Raises:
            ClockError: one could not be set, or the one before not be given back.
        """
        if setting.clock_mhz != self._held.clock_mhz:
            self._hold_clock(setting.clock_mhz)
        if setting.power_limit_w != self._held.power_limit_w:
            self._hold_limit(setting.power_limit_w)

    def _hold_clock(self, mhz: int | None) -> None:
        self._held = replace(self._held, clock_mhz=None)
        self._clock_lock.close()
        if mhz is None:
            return
        if self._clocks is None:
            raise ClockError(f"a trial asks for {mhz} MHz, and the clocks of this device cannot be set here")
        self._clock_lock.enter_context(self._clocks.locked(mhz))
        self._held = replace(self._held, clock_mhz=mhz)
        self._settled = False

    def _hold_limit(self, watts: int | None) -> None:
        self._held = replace(self._held, power_limit_w=None)
        self._limit_lock.close()
        if watts is None:
            return
        if self._limits is None:
            raise ClockError(
                f"a trial asks for a power limit of {watts} W, and that of this device cannot be set here"
            )
        self._limit_lock.enter_context(self._limits.locked(watts))
        self._held = replace(self._held, power_limit_w=watts)

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
        """Give clock and power limit back."""
        self._held = GpuSetting()
        try:
            self._clock_lock.close()
        finally:
            self._limit_lock.close()

    def read(self) -> ClockReading:
        """The present clock.

        Raises:
            ClockError: the GPU stopped answering.
        """
        return ClockReading(None) if self._clocks is None else self._clocks.read()

    def confirm(self) -> None:
        """See that clock and power limit are still held, after a trial at them.

        Raises:
            ClockLostError: one is not, and may not have been during the trial.
        """
        if self._held.clock_mhz is not None:
            _confirm(self.read)
        if self._limits is not None and self._held.power_limit_w is not None:
            _confirm(self._limits.read_w)

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


def _confirm(read: Callable[[], object]) -> None:
    """Read what is held, only to hear that it is not any more."""
    try:
        read()
    except ClockLostError:
        raise
    except ClockError:  # a GPU that does not tell it: its windows have none either
        return
