"""Records samplers and clocks at the lowest rate that loses nothing."""

import math
import time
from collections.abc import Callable, Sequence

from tuner.interfaces.power import ClockControl, ClockReading, PowerSampler, Sample, SensorInfo
from tuner.model.errors import ClockError, PowerError

RING_S = 1.0
"""Time between polls of a driver's ring: an H200's holds 2.4 s."""

CLOCK_S = 1.0
"""Time between readings of the clock."""

EDGE_S = 0.35
"""How long a counter's tick is waited for; those known come every 10 to 100 ms."""

_EDGE_POLL_S = 0.002  # a tick is dated as well as it is polled
_HALF = 0.5  # a number that is shown for a period is not missed at two looks a period


def pause_s(info: SensorInfo) -> float:
    """Time between polls of a reading; of a counter, which is read at the edges, what its wraps ask for."""
    if info.kind == "counter":
        return _HALF * info.longest_pause_s or math.inf
    if info.kind == "ring" or info.poll_interval_s == 0:
        return RING_S
    return max(info.poll_interval_s, _HALF * info.period_s)


class SensorChannel:
    """One sampler and what it gave; should it fail, the others go on.

    Args:
        sampler: closed by whoever opened it.
        now: the clock of the samples, in seconds.
    """

    def __init__(self, sampler: PowerSampler, now: Callable[[], float]) -> None:
        self.sampler = sampler
        self.samples: list[Sample] = []
        self.failure = ""
        self._now = now
        self.due_s = 0.0

    @property
    def info(self) -> SensorInfo:
        """The reading."""
        return self.sampler.info

    def poll(self) -> bool:
        """Take fresh samples; False when there were none."""
        if self.failure:
            return False
        try:
            fresh = self.sampler.poll()
        except PowerError as error:
            why = str(error).removeprefix(f"{self.info.name}: ")
            self.failure = f"{self.info.name} stopped answering: {why}"
            self.due_s = math.inf
            return False
        self.samples += fresh
        self.due_s = max(self._now() + pause_s(self.info), self.sampler.due_s)
        return bool(fresh)


class Recorder:
    """Channels and the GPU's clock, polled when they are due.

    Args:
        samplers: what is recorded.
        clocks: read beside them, never asked to set anything; None for no clock.
        now: the clock of the samples, in seconds.
    """

    def __init__(
        self,
        samplers: Sequence[PowerSampler],
        clocks: ClockControl | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.channels = tuple(SensorChannel(sampler, now) for sampler in samplers)
        self.clocks: list[tuple[float, ClockReading]] = []
        self._control = clocks
        self._clock_due_s = 0.0 if clocks is not None else math.inf
        self.now = now

    @property
    def due_s(self) -> float:
        """When the next poll is due."""
        return min((self._clock_due_s, *(channel.due_s for channel in self.channels)))

    def poll(self) -> None:
        """Poll what is due."""
        for channel in self.channels:
            if self.now() >= channel.due_s:
                channel.poll()
        if self.now() >= self._clock_due_s:
            self._read_clock()

    def edge(self, pause: Callable[[float], object], ticks: int = 1) -> None:
        """Poll all, and counters until each has ticked: a difference of dated ticks is exact.

        Args:
            pause: waits so many seconds.
            ticks: that are waited for; two of them tell the power between them.
        """
        for channel in self.channels:
            channel.poll()
        missing = {channel: ticks for channel in self.channels if channel.info.kind == "counter"}
        until_s = self.now() + ticks * EDGE_S
        while any(missing.values()) and self.now() < until_s:
            pause(_EDGE_POLL_S)
            self.poll()
            for channel, count in missing.items():
                if count and (channel.failure or channel.poll()):
                    missing[channel] = 0 if channel.failure else count - 1

    def _read_clock(self) -> None:
        self._clock_due_s = self.now() + CLOCK_S
        if self._control is None:
            return
        try:
            self.clocks.append((self.now(), self._control.read()))
        except ClockError:  # there is none to be had any more; power goes on
            self._clock_due_s = math.inf
