"""Live readings: power, joules so far, and the state of the GPU."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tuner.devices import power
from tuner.devices.gpu_state import TemperatureReader
from tuner.interfaces.power import ClockControl, ClockReading, PowerSampler, SensorInfo
from tuner.joules.watching import REPLAY
from tuner.model.errors import ClockError, PowerError
from tuner.tracing.recorder import pause_s


@dataclass(frozen=True)
class ReadingRow:
    """One reading at one time.

    Attributes:
        info: the reading.
        watts: mean corrected power since the last row; None where no sample came since.
        shown_w: what the sensor showed last; None for a counter.
        mean_w: mean corrected power since the start.
        joules: energy since the start.
        joules_sigma: its standard uncertainty (noise and timing).
        seconds: how long that is.
        failure: why there will be no more; empty while there may be.
    """

    info: SensorInfo
    watts: float | None
    shown_w: float | None
    mean_w: float | None
    joules: float | None
    joules_sigma: float | None
    seconds: float
    failure: str

    @property
    def ended(self) -> bool:
        """True for a recorded trace at its end, which is no fault."""
        return bool(self.failure) and self.info.name.startswith(REPLAY)


@dataclass(frozen=True)
class PowerSnapshot:
    """All readings at one time, and the state of the GPU.

    Attributes:
        time_s: since the start.
        rows: the readings.
        clock: clock and throttle reasons now.
        temperature_c: of the GPU's chip; None where nobody tells.
        throttled: all throttle reasons that were seen since the start.
    """

    time_s: float
    rows: tuple[ReadingRow, ...]
    clock: ClockReading
    temperature_c: float | None
    throttled: tuple[str, ...]


class WatchedReading:
    """A sampler that is polled when it is due, and its energy.

    Args:
        sampler: closed by whoever opened it.
        now: the clock of the samples, in seconds.
    """

    def __init__(self, sampler: PowerSampler, now: Callable[[], float] = time.monotonic) -> None:
        self._sampler = sampler
        self._now = now
        self._energy = power.running_energy()
        self._told = (0.0, 0.0)  # seconds and joules of the last row
        self._failure = ""
        self._begin_s = now()
        self.due_s = 0.0

    def poll(self, *, at_once: bool = False) -> None:
        """Take in what is there, if it is due or wanted at once; what is older than the start is left out."""
        if self._failure or self._now() < (self._sampler.due_s if at_once else self.due_s):
            return
        try:
            fresh = self._sampler.poll()
        except PowerError as error:
            self._failure, self.due_s = _reason(error, self._sampler.info.name), math.inf
            return
        self._energy.add(sample for sample in fresh if sample.time_s >= self._begin_s)
        info = self._sampler.info
        pause = info.poll_interval_s if info.kind == "counter" else pause_s(info)
        self.due_s = max(self._now() + pause, self._sampler.due_s)

    @property
    def over(self) -> bool:
        """True when there will be no more."""
        return bool(self._failure)

    def row(self) -> ReadingRow:
        """The reading as it stands."""
        info, energy = self._sampler.info, self._energy
        found, seconds = energy.joules(info), energy.duration_s
        last_s, last_j = self._told
        watts = None
        if found is not None and seconds > last_s:
            watts = (found[0] - last_j) / (seconds - last_s)
            self._told = seconds, found[0]
        return ReadingRow(
            info=info,
            watts=watts,
            shown_w=energy.last.value if energy.last and info.kind != "counter" else None,
            mean_w=None if found is None else found[0] / seconds,
            joules=None if found is None else found[0],
            joules_sigma=None if found is None else found[1],
            seconds=seconds,
            failure=self._failure,
        )


def snapshots(
    watched: Sequence[WatchedReading],
    clocks: ClockControl | None,
    thermometer: TemperatureReader | None,
    *,
    pause: Callable[[float], bool],
    interval_s: float,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[PowerSnapshot]:
    """A snapshot every interval, until a pause is told to be the last or no reading is left.

    Args:
        watched: the readings.
        clocks: read with every snapshot; None for no clock.
        thermometer: likewise; None for no temperature.
        pause: waits so many seconds; False when it was interrupted.
        interval_s: time between snapshots.
        now: the clock of the samples.
    """
    begin_s = next_s = now()
    throttled: set[str] = set()
    goes_on = True
    while goes_on:
        next_s += interval_s
        while goes_on and _left(watched) and now() < next_s:
            due_s = min((reading.due_s for reading in watched), default=math.inf)
            goes_on = pause(max(0.0, min(due_s, next_s) - now()))
            for reading in watched:
                reading.poll()
        next_s = max(next_s, now() - interval_s)  # after a stop, no burst of rows
        for reading in watched:
            reading.poll(at_once=True)
        rows = tuple(reading.row() for reading in watched)
        clock = _clock(clocks)
        throttled |= set(clock.throttle_reasons)
        celsius = thermometer.read() if thermometer is not None else None
        yield PowerSnapshot(now() - begin_s, rows, clock, celsius, tuple(sorted(throttled)))
        goes_on = goes_on and _left(watched)


def _reason(error: PowerError, name: str) -> str:
    """An error's words without the name of the reading (and its GPU), which rows give anyway."""
    head, _, reason = str(error).partition(": ")
    return reason if reason and head.startswith(name) else str(error)


def _left(watched: Sequence[WatchedReading]) -> bool:
    return not all(reading.over for reading in watched)


def _clock(clocks: ClockControl | None) -> ClockReading:
    try:
        return clocks.read() if clocks is not None else ClockReading(None)
    except ClockError:  # lost; the readings say so themselves
        return ClockReading(None)
