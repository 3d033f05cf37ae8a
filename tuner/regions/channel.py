"""A sampler that a recording polls, its latest samples, and how a thread is woken."""

import bisect
import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable

from tuner.interfaces.power import PowerSampler, Sample, SensorInfo
from tuner.model.errors import PowerError
from tuner.tracing.recorder import RING_S, pause_s

_LATER = 3.0  # periods of a reading of power after a region's end that tell the power after it
_TICKS = 2.0  # the same of a counter alone; beside a reading of power one tick does
_CONTEXT_S = 3.0  # of samples before the oldest time that is asked for
_CONTEXT_PERIODS, _CONTEXT_WINDOWS = 20.0, 3.0  # likewise


class Signal:
    """Wakes one thread, at a third of the cost of an ``Event``: regions pay for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Let the thread go on, or not wait the next time."""
        with contextlib.suppress(RuntimeError):  # it is set already
            self._lock.release()

    def wait(self, timeout_s: float | None) -> None:
        """Wait until it is set, for so long at most."""
        self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s)


class Channel:
    """A sampler and its latest samples.

    Attributes:
        failure: why it shows nothing more; empty otherwise.
        due_s: when it is to be polled.
    """

    def __init__(self, sampler: PowerSampler, *, alone: bool) -> None:
        self.sampler = sampler
        self.failure = ""
        self.due_s = 0.0
        self._alone = alone
        self._polled_s = -math.inf
        self._samples: deque[Sample] = deque()
        self._lock = threading.Lock()

    @property
    def info(self) -> SensorInfo:
        """The reading."""
        return self.sampler.info

    @property
    def late_s(self) -> float:
        """How long after a time a sample is due that tells what was after it, by the period learnt so far."""
        info = self.info
        counts = info.kind == "counter"
        periods = _LATER if not counts else _TICKS if self._alone else 1.0
        age_s = info.response.delay_s + (info.response.mean_age_s if counts else 0.0)
        return max(0.0, age_s) + (periods + 1.0) * info.period_s

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

    def hasten(self, end_s: float) -> None:
        """Be polled when a time can be known, not when it is convenient."""
        wanted_s = max(end_s + self.late_s, self._polled_s + self.info.period_s / 2.0)
        self.due_s = min(self.due_s, max(wanted_s, self.sampler.due_s))

    def poll(self, now: Callable[[], float]) -> None:
        """Take fresh samples, if they are due."""
        if self.failure or now() < self.due_s:
            return
        self._polled_s = now()
        try:
            fresh = self.sampler.poll()
        except PowerError as error:
            name = self.info.name
            self.failure = f"{name} stopped answering: {str(error).removeprefix(f'{name}: ')}"
            self.due_s = math.inf
            return
        with self._lock:
            self._samples.extend(fresh)
        info = self.info
        counts = info.kind == "counter" and info.poll_interval_s > 0
        self.due_s = max(
            now() + (info.poll_interval_s if counts else min(pause_s(info), RING_S)), self.sampler.due_s
        )

    def snapshot(self) -> tuple[Sample, ...]:
        """The samples that are kept, oldest first."""
        with self._lock:
            return tuple(self._samples)

    def mark_s(self, time_s: float) -> float | None:
        """The time of a counter's tick from a time on, where joules are known best; None without."""
        if self.info.kind != "counter":
            return None
        samples = self.snapshot()
        place = bisect.bisect_left(samples, time_s, key=lambda sample: sample.time_s)
        age_s = self.info.response.delay_s + self.info.response.mean_age_s
        return samples[place].time_s - age_s if place < len(samples) else None

    def drop(self, mark_s: float) -> None:
        """Forget samples that no time after a mark needs."""
        info = self.info
        needed_s = max(
            _CONTEXT_S, _CONTEXT_PERIODS * info.period_s, _CONTEXT_WINDOWS * info.response.window_s
        )
        with self._lock:
            while self._samples and self._samples[0].time_s < mark_s - needed_s:
                self._samples.popleft()
