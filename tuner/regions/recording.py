"""One recording in the background that all open regions of a device share."""

import bisect
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol
from weakref import WeakSet

from tuner.errors import PowerError
from tuner.interfaces import PowerSampler, Sample, SensorInfo
from tuner.regions.span import Readings, RecordedSpan
from tuner.tracing.recorder import RING_S, pause_s

KEEP_S = 60.0
"""Samples of so long are kept; what regions spent before is one number for each of them."""

_LATER = 3.0  # periods of a reading of power after a region's end that tell the power after it
_TICKS = 2.0  # the same of a counter alone; beside a reading of power one tick does
_LINGER_S = 0.5  # so long the recording goes on, or as long as a sensor is late: loops need not begin it anew
_PATIENCE_S = 2.0  # beyond what a sensor is known to be late by
_CONTEXT_S = 3.0  # of samples before the oldest time that is asked for
_CONTEXT_PERIODS, _CONTEXT_WINDOWS = 20.0, 3.0  # likewise


class Load(Protocol):
    """Something that draws power while regions are open, as a simulated GPU does."""

    def begin(self, time_s: float) -> None:
        """A region begins."""

    def end(self, time_s: float) -> None:
        """A region ends."""


class BackgroundRecording:
    """Samples of one device, polled by a thread while a region is open.

    A region costs its thread two short calls, ``begin`` and ``end``. The polling ends when the last region
    has, as soon as the sensors have shown it; the thread then waits without doing anything. Memory is
    constant: after a minute the joules of open regions are added up and samples dropped.

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
        self._channels = tuple(_Channel(sampler, alone=len(samplers) == 1) for sampler in samplers)
        self._load = load
        self._background = background
        self._lock = threading.Lock()  # held for moments only: regions wait for it
        self._open: WeakSet[RecordedSpan] = WeakSet()
        self._ended: WeakSet[RecordedSpan] = WeakSet()
        self._until_s = -math.inf
        self._parked = True
        self._stopped = False
        self._wake = threading.Event()
        self._polled = threading.Condition()
        self._thread: threading.Thread | None = None
        self._late_s = max(channel.late_s for channel in self._channels)

    @property
    def info(self) -> SensorInfo:
        """The first reading, whose scope is that of all."""
        return self._channels[0].info

    def begin(self, span: RecordedSpan) -> None:
        """A region begins."""
        with self._lock:
            self._open.add(span)
            parked, self._parked = self._parked, False
            if self._load is not None:
                self._load.begin(span.start_s)
        if parked and self._background:
            self._resume()

    def end(self, span: RecordedSpan, end_s: float) -> None:
        """A region has ended."""
        with self._lock:
            span.end_s = end_s
            self._open.discard(span)
            self._ended.add(span)
            self._until_s = end_s + max(_LINGER_S, self._late_s)
            if self._load is not None:
                self._load.end(end_s)

    def shown(self, span: RecordedSpan) -> bool:
        """True when the sensors have shown all of a region that has ended."""
        return span.end_s is not None and (span.energy is not None or self._has_shown(span.end_s))

    def wait(self, span: RecordedSpan, timeout_s: float | None = None) -> None:
        """Wait until a region that has ended is known.

        A sensor that shows nothing in time is not waited for: what it showed before counts.

        Args:
            span: of this recording.
            timeout_s: the longest wait; None for two seconds more than the sensors are known to be late.

        Raises:
            PowerError: the sensors show nothing of it.
        """
        if span.energy is not None or span.end_s is None:
            return
        patience_s = self._late_s + _PATIENCE_S if timeout_s is None else timeout_s
        until_s = max(self.now(), span.end_s) + patience_s
        while not self._has_shown(span.end_s) and self.now() < until_s and self._thread is not None:
            self._hasten(span.end_s)
            with self._polled:
                self._polled.wait(max(0.001, min(self._late_s, until_s - self.now())))
        span.settle(self._readings(), self._failures())

    def step(self) -> float:
        """Poll what is due, and drop what is not needed; the time of the next poll, infinite for none."""
        with self._lock:
            self._parked = not self._open and self.now() > self._until_s
            if self._parked:
                return math.inf
        for channel in self._channels:
            channel.poll(self.now)
        with self._polled:
            self._polled.notify_all()
        self._trim()
        return min(channel.due_s for channel in self._channels)

    def close(self) -> bool:
        """End the recording; False where a sensor does not return, so that it must not be released."""
        self._stopped = True
        self._wake.set()
        if self._thread is None:
            return True
        self._thread.join(_PATIENCE_S)
        return not self._thread.is_alive()

    def _resume(self) -> None:
        """Let the thread go on, and start it the first time."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tuner-energy", daemon=True)
                self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped:
            self._wake.clear()
            due_s = self.step()
            if due_s == math.inf and not self._parked:
                due_s = self.now() + RING_S  # all sensors have failed
            self._wake.wait(None if due_s == math.inf else max(0.0, due_s - self.now()))

    def _has_shown(self, end_s: float) -> bool:
        return all(channel.has_shown(end_s) for channel in self._channels)

    def _hasten(self, end_s: float) -> None:
        """Poll sensors that keep a history when they have shown a time, not when it is convenient."""
        for channel in self._channels:
            if not channel.has_shown(end_s):
                channel.hasten(end_s, self.now())
        self._wake.set()

    def _readings(self) -> Readings:
        return [(channel.info, channel.snapshot()) for channel in self._channels]

    def _failures(self) -> tuple[str, ...]:
        return tuple(channel.failure for channel in self._channels if channel.failure)

    def _trim(self) -> None:
        """Add up what open regions have spent until half a minute ago, and drop older samples."""
        oldest_s = min(channel.oldest_s for channel in self._channels)
        if self.now() - oldest_s < KEEP_S:
            return
        mark_s = max(channel.mark_s(self.now() - KEEP_S / 2.0) for channel in self._channels)
        with self._lock:
            spans = [*self._open, *self._ended]
        readings = self._readings()
        for span in spans:
            if span.end_s is None or span.end_s > mark_s:
                span.carry(readings, mark_s)
            else:
                span.settle(readings, self._failures())
        with self._lock:
            for span in spans:
                if span.energy is not None:
                    self._ended.discard(span)
        for channel in self._channels:
            channel.drop(mark_s)


class _Channel:
    """A sampler and its latest samples.

    Attributes:
        failure: why it shows nothing more; empty otherwise.
        due_s: when it is to be polled.
        late_s: how long after a time a sample is due that tells what was after it.
    """

    def __init__(self, sampler: PowerSampler, *, alone: bool) -> None:
        self.sampler = sampler
        self.failure = ""
        self.due_s = 0.0
        info = sampler.info
        counts = info.kind == "counter"
        periods = _LATER if not counts else _TICKS if alone else 1.0
        age_s = info.response.delay_s + (info.response.mean_age_s if counts else 0.0)
        self.late_s = max(0.0, age_s) + (periods + 1.0) * info.period_s
        self._samples: deque[Sample] = deque()
        self._lock = threading.Lock()

    @property
    def info(self) -> SensorInfo:
        return self.sampler.info

    @property
    def oldest_s(self) -> float:
        """Time of the oldest sample that is kept; infinite without."""
        with self._lock:
            return self._samples[0].time_s if self._samples else math.inf

    def has_shown(self, end_s: float) -> bool:
        """True when the sensor has shown a time, or shows nothing any more."""
        with self._lock:
            newest_s = self._samples[-1].time_s if self._samples else -math.inf
        return bool(self.failure) or newest_s >= end_s + self.late_s - self.info.period_s

    def hasten(self, end_s: float, now_s: float) -> None:
        """Be polled when a time can be known, not when it is convenient."""
        wanted_s = max(end_s + self.late_s, now_s + self.info.period_s / 2.0)
        self.due_s = min(self.due_s, max(wanted_s, self.sampler.due_s))

    def poll(self, now: Callable[[], float]) -> None:
        """Take fresh samples, if they are due."""
        if self.failure or now() < self.due_s:
            return
        info = self.info
        try:
            fresh = self.sampler.poll()
        except PowerError as error:
            self.failure = f"{info.name} stopped answering: {str(error).removeprefix(f'{info.name}: ')}"
            self.due_s = math.inf
            return
        with self._lock:
            self._samples.extend(fresh)
        counts = info.kind == "counter" and info.poll_interval_s > 0
        self.due_s = max(
            now() + (info.poll_interval_s if counts else min(pause_s(info), RING_S)), self.sampler.due_s
        )

    def snapshot(self) -> tuple[Sample, ...]:
        with self._lock:
            return tuple(self._samples)

    def mark_s(self, time_s: float) -> float:
        """The time of a sample at or after another time; of a reading of power the other time."""
        if self.info.kind != "counter":
            return -math.inf
        samples = self.snapshot()
        place = bisect.bisect_left(samples, time_s, key=lambda sample: sample.time_s)
        age_s = self.info.response.delay_s + self.info.response.mean_age_s
        return samples[place].time_s - age_s if place < len(samples) else -math.inf

    def drop(self, mark_s: float) -> None:
        """Forget samples that no time after a mark needs."""
        info = self.info
        needed_s = max(
            _CONTEXT_S, _CONTEXT_PERIODS * info.period_s, _CONTEXT_WINDOWS * info.response.window_s
        )
        with self._lock:
            while self._samples and self._samples[0].time_s < mark_s - needed_s:
                self._samples.popleft()
