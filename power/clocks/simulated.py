"""Clock and power limit of a simulated device, set as those of a GPU are."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from tuner.model.errors import ClockError

from ..base import ClockReading


class ClockedDevice(Protocol):
    """A device with a clock to set, as the simulated one."""

    clock_mhz: int
    throttle_reasons: tuple[str, ...]

    @property
    def power_limit_w(self) -> float:
        """The power limit in force."""

    @property
    def limit_scope(self) -> str:
        """The scope of the sensors that see what is limited."""

    @property
    def temperature_c(self) -> float | None:
        """Temperature of the chip; None where it is not modelled."""

    @property
    def supported_mhz(self) -> Sequence[int]:
        """Clocks that can be set, highest first."""

    def set_clock_mhz(self, mhz: int | None) -> None:
        """Set the clock; None sets the default."""


class SimulatedClocks:
    """Implements ``tuner.power.base.ClockControl`` over a simulated device."""

    def __init__(self, device: ClockedDevice) -> None:
        self._device = device

    def supported_mhz(self) -> tuple[int, ...]:
        """Clocks that can be locked, highest first."""
        return tuple(self._device.supported_mhz)

    def read(self) -> ClockReading:
        """Present clock, throttle reasons, power limit and temperature."""
        device = self._device
        return ClockReading(
            float(device.clock_mhz),
            tuple(device.throttle_reasons),
            device.power_limit_w,
            device.limit_scope,
            device.temperature_c,
        )

    @contextmanager
    def locked(self, mhz: int) -> Iterator[None]:
        """Hold the device at ``mhz`` while the block runs; the default returns on every way out.

        Raises:
            ClockError: the device has no such clock.
        """
        if mhz not in self._device.supported_mhz:
            choices = ", ".join(map(str, self._device.supported_mhz)) or "none"
            raise ClockError(f"no clock of {mhz} MHz; choose from {choices}")
        try:
            self._device.set_clock_mhz(mhz)
            yield
        finally:
            self._device.set_clock_mhz(None)

    def close(self) -> None:
        """Nothing to release: ``locked`` restores."""


class LimitedDevice(Protocol):
    """A device with a power limit to set, as the simulated one."""

    @property
    def power_limit_w(self) -> float:
        """The power limit in force."""

    @property
    def supported_limits_w(self) -> Sequence[int]:
        """Power limits that can be set, in watts, highest first."""

    def set_power_limit_w(self, watts: int | None) -> None:
        """Set the power limit; None sets the default."""


class SimulatedPowerLimits:
    """Implements ``tuner.power.base.PowerLimitControl`` over a simulated device.

    Raises:
        ClockError: it has no power limit that can be set.
    """

    def __init__(self, device: LimitedDevice) -> None:
        if not device.supported_limits_w:
            raise ClockError("the power limit of this GPU cannot be set")
        self._device = device

    def supported_w(self) -> tuple[int, ...]:
        """Power limits that can be set, highest first."""
        return tuple(self._device.supported_limits_w)

    def read_w(self) -> float:
        """The limit in force."""
        return self._device.power_limit_w

    @contextmanager
    def locked(self, watts: int) -> Iterator[None]:
        """Hold the device at a limit while the block runs; the default returns on every way out.

        Raises:
            ClockError: the device has no such limit.
        """
        try:
            self._device.set_power_limit_w(watts)
            yield
        finally:
            self._device.set_power_limit_w(None)

    def close(self) -> None:
        """Nothing is held."""
