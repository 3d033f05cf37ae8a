"""Power of the idle GPU, its context alive and its clock as for the trials: what net joules are net of."""

import logging

from tuner.errors import PowerError
from tuner.interfaces import Device, Meter, PowerLevel, PowerReading

_CALM_S = 0.3  # after work: power of an H200 has fallen within a tenth of a second
_LOG = logging.getLogger(__name__)


class IdlePower:
    """Idle power by clock, as read so far: usually once before the trials at a clock and once after them.

    Args:
        device: is left alone for the time of a reading.
        meter: reads.
        window_s: length of a reading.
    """

    def __init__(self, device: Device, meter: Meter, window_s: float) -> None:
        self._device = device
        self._meter = meter
        self._window_s = window_s
        self._seen: dict[int | None, list[PowerLevel]] = {}

    def measure(self, clock_mhz: int | None) -> float:
        """Read idle power at a clock that is set already; returns the joules that took."""
        with self._meter.recording() as recording:
            self._device.sleep(_CALM_S)
            start_s = self._device.now_s()
            self._device.sleep(self._window_s)
            end_s = self._device.now_s()
            self._device.sleep(max(0.0, self._meter.info.response.delay_s))  # negative where dated too early
        try:
            reading: PowerReading | None = recording.reading(start_s, end_s)
            why = recording.problem
        except PowerError as error:
            reading, why = None, str(error)
        if reading is None:
            _LOG.warning("no idle power: %s", why)
        else:
            self._seen.setdefault(clock_mhz, []).append(PowerLevel(reading.watts, reading.uncertainty_w))
        return recording.joules()

    def recall(self, clock_mhz: int | None, watts: float, uncertainty_w: float) -> None:
        """Take over what a killed run read, unless this one has."""
        self._seen.setdefault(clock_mhz, [PowerLevel(watts, uncertainty_w)])

    def of(self, clock_mhz: int | None) -> tuple[float, float] | None:
        """Watts and standard uncertainty at a clock; None where it was not read."""
        seen = self._seen.get(clock_mhz)
        if not seen:
            return None
        level = PowerLevel.between(seen)
        return level.watts, level.sigma_w
