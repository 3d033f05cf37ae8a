"""One recording in the background that all open regions of a device share."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol
from weakref import ref

from tuner.devices import power
from tuner.interfaces.power import PowerSampler, SensorInfo
from tuner.power.base import Span
from tuner.regions.channel import Channel, Signal
from tuner.regions.span import Readings, RecordedSpan
from tuner.tracing.recorder import RING_S

KEEP_S = 60.0
"""Samples of so long are kept; what regions spent before is one number for each of them."""

_LINGER_S = 0.5  # so long the recording goes on, that loops need not begin it anew; then it looks once more
_CROWD = 1000  # regions that have ended: of more, those that nobody holds are looked for
_PATIENCE_S = 2.0  # beyond what a sensor is known to be late by


class Load(Protocol):
    """Something that draws power while regions are open, as a simulated GPU does."""

    def begin(self, time_s: float) -> None:
        """A region begins."""

    def end(self, time_s: float) -> None:
        """A region ends."""


class BackgroundRecording:
    """Samples of one device, polled by a thread while a region is open.

    A region costs its thread two short calls, ``begin`` and ``end``. The polling ends half a second after the
    last region, and not before the sensors have shown its end, so that it is known whenever somebody asks;
    the thread then waits without doing anything. Memory is constant: after a minute the joules of open
    regions are added up and samples dropped.

    Args:
        samplers: of one device and scope: a reading of power, a counter or both. Whoever opened
            them closes them, after the recording.
        now: the clock of samples and regions, in seconds.
        load: told of regions; None for a real device.
        background: False where the caller polls by ``step``.
    """

    def __init__(
        self,
        samplers: Sequence[PowerSampler],
        now: Callable[[], float] = time.monotonic,
        *,
        load: Load | None = None,
        background: bool = True,
    ) -> None:
        self.now = now
        self._channels = tuple(Channel(sampler, alone=len(samplers) == 1) for sampler in samplers)
        self._load = load
        self._background = background
        self._lock = threading.Lock()  # held for moments only: regions wait for it
        self._adding = threading.Lock()  # of joules to regions
        self._open: dict[int, ref[RecordedSpan]] = {}  # by ``id``: who comes next to a dead one's replaces it
        self._ended: dict[int, ref[RecordedSpan]] = {}
        self._crowd = _CROWD
        self._last_end_s = -math.inf
        self._given_up_s = math.inf
        self._parked = True
        self._stopped = False
        self._wake = Signal()
        self._polled = threading.Condition()
        self._thread: threading.Thread | None = None
        power.span_energy([], Span(0.0, 1.0))  # imports now, not in the thread: a fork would cut that short

    @property
    def info(self) -> SensorInfo:
        """The first reading, whose scope is that of all."""
        return self._channels[0].info

    def begin(self, span: RecordedSpan) -> None:
        """A region begins."""
        with self._lock:
            self._open[id(span)] = ref(span)
            parked, self._parked = self._parked, False
            if self._load is not None:
                self._load.begin(span.start_s)
        if parked and self._background:
            self._resume()

    def end(self, span: RecordedSpan, end_s: float) -> None:
        """A region has ended."""
        with self._lock:
            span.end_s = end_s
            self._open.pop(id(span), None)
            self._ended[id(span)] = ref(span)
            self._last_end_s = max(self._last_end_s, end_s)
            self._given_up_s = math.inf
            if self._load is not None:
                self._load.end(end_s)

    def shown(self, span: RecordedSpan) -> bool:
        """True when a region that has ended need not be waited for: all of it is shown, or nobody polls."""
        return span.end_s is not None and (
            span.energy is not None or self._parked or self._has_shown(span.end_s)
        )

    def wait(self, span: RecordedSpan, timeout_s: float | None = None) -> None:
        """Wait until a region that has ended is known.

        A sensor that shows nothing in time is not waited for, nor one that nobody polls any more: what it
        showed before counts.

        Args:
            span: of this recording.
            timeout_s: the longest wait; None for two seconds more than the sensors are known to be late.

        Raises:
            PowerError: the sensors show nothing of it.
        """
        if span.energy is not None or span.end_s is None:
            return
        late_s = self._late_s
        until_s = max(self.now(), span.end_s) + (late_s + _PATIENCE_S if timeout_s is None else timeout_s)
        while not self.shown(span) and self.now() < until_s and self._thread:
            self._hasten(span.end_s)
            self._wake.set()
            with self._polled:
                self._polled.wait(max(0.001, min(late_s, until_s - self.now())))
        with self._adding:
            span.settle(self._readings(), self._failures(), self._not_shown(span.end_s))

    def step(self) -> float:
        """Poll what is due, and drop what is not needed; the time of the next poll, infinite for none."""
        with self._lock:
            self._open = _alive(self._open)
            if len(self._ended) > self._crowd:
                self._ended = _alive(self._ended)
                self._crowd = max(_CROWD, 2 * len(self._ended))
            if self._parked:
                return math.inf
            linger_s = math.inf if self._open else self._last_end_s + _LINGER_S
        if self.now() >= linger_s:
            self._hasten(self._last_end_s)
            self._given_up_s = min(self._given_up_s, self.now() + self._late_s + _PATIENCE_S)
        for channel in self._channels:
            channel.poll(self.now)
        with self._lock:
            self._parked = not self._open and self.now() >= linger_s and self._is_known()
        with self._polled:
            self._polled.notify_all()
        self._trim()
        due_s = min(channel.due_s for channel in self._channels)
        return math.inf if self._parked else due_s if self.now() >= linger_s else min(due_s, linger_s)

    def close(self) -> bool:
        """End the recording; False where a sensor does not return, so that it must not be released."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)
        self._parked = True
        return self._thread is None or not self._thread.is_alive()

    def _resume(self) -> None:
        """Let the thread go on, and start it the first time."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tuner-energy", daemon=True)
                self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped:
            due_s = self.step()
            if due_s == math.inf and not self._parked:
                due_s = self.now() + RING_S  # all sensors have failed
            self._wake.wait(None if due_s == math.inf else max(0.0, due_s - self.now()))

    def _has_shown(self, end_s: float) -> bool:
        return all(channel.has_shown(end_s) for channel in self._channels)

    def _is_known(self) -> bool:
        """True when the sensors have shown the last end, or are not waited for any longer."""
        return self._has_shown(self._last_end_s) or self.now() >= self._given_up_s

    @property
    def _late_s(self) -> float:
        return max(channel.late_s for channel in self._channels)

    def _hasten(self, end_s: float) -> None:
        """Poll sensors that keep a history when they have shown a time, not when it is convenient."""
        for channel in self._channels:
            if not channel.has_shown(end_s):
                channel.hasten(end_s)

    def _readings(self) -> Readings:
        return [(channel.info, channel.snapshot()) for channel in self._channels]

    def _failures(self) -> tuple[str, ...]:
        return tuple(channel.failure for channel in self._channels if channel.failure)

    def _not_shown(self, end_s: float) -> tuple[str, ...]:
        names = [channel.info.name for channel in self._channels if not channel.has_shown(end_s)]
        return tuple(
            f"not-shown: {name} had not shown the end of the region when it was asked" for name in names
        )

    def _trim(self) -> None:
        """Add up what open regions have spent until half a minute ago, and drop older samples."""
        oldest_s = min(channel.oldest_s for channel in self._channels)
        if self.now() - oldest_s < KEEP_S:
            return
        half_s = self.now() - KEEP_S / 2.0
        mark_s = next(
            (mark for mark in (c.mark_s(half_s) for c in self._channels) if mark is not None), half_s
        )
        with self._lock:
            spans = [span for one in (*self._open.values(), *self._ended.values()) if (span := one())]
        readings = self._readings()
        for span in spans:
            with self._adding:
                if span.end_s is None or span.end_s > mark_s:
                    span.carry(readings, mark_s)
                else:
                    span.settle(readings, self._failures(), self._not_shown(span.end_s))
        with self._lock:
            self._ended = {key: one for key, one in self._ended.items() if (s := one()) and s.energy is None}
        for channel in self._channels:
            channel.drop(mark_s)


def _alive(spans: "dict[int, ref[RecordedSpan]]") -> "dict[int, ref[RecordedSpan]]":
    """Those that somebody holds."""
    return {key: one for key, one in spans.items() if one() is not None}
