"""Recordings in the background that all open regions of a device share."""

import atexit
import bisect
import contextlib
import math
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from weakref import ref

import numpy.random  # noqa: F401 - now, not first in a recording's thread: a fork would cut that short

from tuner.devices.gpu_models import gpu_model
from tuner.devices.sensors import host_samplers
from tuner.devices.simulated.time_model import idle_watts, load_watts
from tuner.joules.traces import RING_S, pause_s
from tuner.joules.watching import find_gpu, opened
from tuner.model.errors import InputError, PowerError, UnknownNameError
from tuner.model.objective import GPU, scope_parts
from tuner.power.base import PowerSampler, Sample, SensorInfo, Span, SpanEnergy
from tuner.power.energy.spans import joined_power, span_energy
from tuner.power.sensors.simulated import SimulatedSampler

# --- A sampler that a recording polls, its latest samples, and how a thread is woken.

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
        """Delay in s after which samples cover a given time, by the period estimated so far."""
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
        index = bisect.bisect_left(samples, time_s, key=lambda sample: sample.time_s)
        age_s = self.info.response.delay_s + self.info.response.mean_age_s
        return samples[index].time_s - age_s if index < len(samples) else None

    def drop(self, mark_s: float) -> None:
        """Forget samples that no time after a mark needs."""
        info = self.info
        needed_s = max(
            _CONTEXT_S, _CONTEXT_PERIODS * info.period_s, _CONTEXT_WINDOWS * info.response.window_s
        )
        with self._lock:
            while self._samples and self._samples[0].time_s < mark_s - needed_s:
                self._samples.popleft()


# --- A span of a recording.

Readings = Sequence[tuple[SensorInfo, Sequence[Sample]]]

MOST_STEPS = 4096
"""Steps of power that a region keeps at most: of longer ones neighbours are joined, two by two."""


class RecordedSpan:
    """A region as one recording sees it; the recording lets one thread at a time add to it.

    Args:
        start_s: when it began.

    Attributes:
        start_s: see above.
        end_s: when it ended; None while it has not.
        energy: once it is known.
        problem: why it cannot be known; empty otherwise.
    """

    __slots__ = ("__weakref__", "_parts", "_since_s", "end_s", "energy", "problem", "start_s")

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s
        self.end_s: float | None = None
        self.energy: SpanEnergy | None = None
        self.problem = ""
        self._parts: SpanEnergy | None = None  # until ``_since_s``
        self._since_s = start_s

    def carry(self, readings: Readings, mark_s: float) -> None:
        """Add what was spent until a time whose samples are about to be dropped."""
        if mark_s <= self._since_s or self.energy is not None:
            return
        span = Span(self._since_s, mark_s, starts=self._since_s == self.start_s, ends=False)
        if self._add(readings, span):
            self._since_s = mark_s

    def settle(self, readings: Readings, failures: Sequence[str], notes: Sequence[str] = ()) -> None:
        """Find the energy of a region that has ended.

        Args:
            readings: with samples until after its end.
            failures: why readings show nothing more.
            notes: on the readings.
        """
        if self.energy is not None or self.end_s is None:
            return
        starts = self._since_s == self.start_s
        shown = self._add(readings, Span(self._since_s, self.end_s, starts=starts))
        if not shown or self._parts is None:
            names = ", ".join(info.name for info, _ in readings)
            self.problem = "; ".join(failures) or f"{names} showed nothing of the region"
            return
        self.energy = replace(self._parts, notes=(*self._parts.notes, *failures, *notes))

    def known(self) -> SpanEnergy:
        """The energy.

        Raises:
            PowerError: it cannot be known.
        """
        if self.energy is None:
            raise PowerError(self.problem or "the region has not ended")
        return self.energy

    def _add(self, readings: Readings, span: Span) -> bool:
        """Add the joules of a span; False where the readings show nothing of it."""
        part = span_energy(readings, span)
        if part is None:
            return False
        before = self._parts
        if before is None:
            self._parts = part
            return True
        highest = max((before, part), key=lambda part: -math.inf if part.peak_w is None else part.peak_w)
        edges_s, watts = joined_power(before, part, MOST_STEPS)
        self._parts = replace(
            part,
            edges_s=edges_s,
            watts=watts,
            joules=before.joules + part.joules,
            sigma_j=math.hypot(before.sigma_j, part.sigma_j),
            peak_w=highest.peak_w,
            peak_window_s=highest.peak_window_s,
            notes=tuple(dict.fromkeys((*before.notes, *part.notes))),
        )
        return True


# --- The recording of a device, which all open regions share.

KEEP_S = 60.0
"""Samples of so long are kept; what regions spent before is one number for each of them."""

_LINGER_S = 0.5  # so long the recording goes on, that loops need not begin it anew; then it looks once more
_CROWD = 1000  # regions that have ended: of more, those that nobody holds are looked for
_PATIENCE_S = 2.0  # beyond what a sensor is known to be late by


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
        load: "SimulatedLoad | None" = None,
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

    def cancel(self, span: RecordedSpan) -> None:
        """Forget a region that has not ended."""
        with self._lock:
            self._open.pop(id(span), None)
            self._last_end_s = max(self._last_end_s, self.now())
            if self._load is not None:
                self._load.end(self._last_end_s)

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
            regions = (*self._open.values(), *self._ended.values())
            spans = [span for span_ref in regions if (span := span_ref())]
        readings = self._readings()
        for span in spans:
            with self._adding:
                if span.end_s is None or span.end_s > mark_s:
                    span.carry(readings, mark_s)
                else:
                    span.settle(readings, self._failures(), self._not_shown(span.end_s))
        with self._lock:
            self._ended = {
                key: span_ref
                for key, span_ref in self._ended.items()
                if (s := span_ref()) and s.energy is None
            }
        for channel in self._channels:
            channel.drop(mark_s)


def _alive(spans: "dict[int, ref[RecordedSpan]]") -> "dict[int, ref[RecordedSpan]]":
    """Those that somebody holds."""
    return {key: span_ref for key, span_ref in spans.items() if span_ref() is not None}


# --- A simulated GPU in real time: it computes while a region is open, and is idle otherwise.

_LEAST_S = 0.001  # shorter pieces are joined to one at their mean power
_HISTORY_S = 3.0  # of idle power before the first region
_PIECES = 8192  # that are kept: more than sensors look back


class SimulatedLoad:
    """Power over real time: that of the model's load while regions are open, else idle power.

    Implements ``tuner.power.base.PowerSource`` and what a recording tells of regions.

    Args:
        name: of a simulated GPU, with or without ``sim:``.

    Raises:
        UnknownNameError: no such GPU.
    """

    def __init__(self, name: str) -> None:
        self.gpu = gpu_model(name)
        mhz = self.gpu.clocks_mhz[0]
        self.idle_w, self.load_w = idle_watts(self.gpu, mhz), load_watts(self.gpu, mhz)
        self._lock = threading.Lock()
        self._pieces: deque[tuple[float, float, float]] = deque(maxlen=_PIECES)
        self._since_s = time.monotonic() - _HISTORY_S
        self._open = 0
        self._seen = False

    def begin(self, time_s: float) -> None:
        """A region begins."""
        with self._lock:
            self._pass(time_s)
            self._open += 1

    def end(self, time_s: float) -> None:
        """A region ends."""
        with self._lock:
            self._pass(time_s)
            self._open -= 1

    def now_s(self) -> float:
        """Present time; three seconds ago until ``seen``, so that sensors opened then have a history."""
        return time.monotonic() if self._seen else self._since_s

    def seen(self) -> None:
        """All sensors are opened."""
        self._seen = True

    def power_segments(self, since_s: float) -> list[tuple[float, float, float]]:
        """(start, end, watts) pieces from ``since_s`` to now; before what is kept the GPU was idle."""
        with self._lock:
            self._pass(time.monotonic())
            pieces = [(max(start, since_s), end, w) for start, end, w in self._pieces if end > since_s]
        first_s = pieces[0][0] if pieces else self._since_s
        return [(since_s, first_s, self.idle_w), *pieces] if since_s < first_s else pieces

    def _pass(self, time_s: float) -> None:
        """Let time pass at the present power."""
        begin_s, self._since_s = self._since_s, max(self._since_s, time_s)
        watts = self.load_w if self._open > 0 else self.idle_w
        if self._since_s <= begin_s:
            return
        if self._pieces and self._since_s - self._pieces[-1][0] < _LEAST_S:
            start, end, before_w = self._pieces.pop()
            joules = before_w * (end - start) + watts * (self._since_s - begin_s)
            self._pieces.append((start, self._since_s, joules / (self._since_s - start)))
        else:
            self._pieces.append((begin_s, self._since_s, watts))


def simulated_samplers(load: SimulatedLoad, sensor: str | None = None) -> list[PowerSampler]:
    """The samplers of a simulated GPU: its best reading of power, and its counter.

    Args:
        load: the GPU's power.
        sensor: a reading by its name, instead.

    Raises:
        InputError: it has no such reading, or none at all.
    """
    models = {f"simulated-{model.name}": model for model in load.gpu.sensors}
    if not models:
        raise InputError(f"device='sim:{load.gpu.name}' has no power sensor")
    if sensor is not None and sensor not in models:
        raise UnknownNameError(f"sensor={sensor!r}: choose from {', '.join(models)}")
    if sensor is not None:
        chosen = [models[sensor]]
    else:
        counters = [model for model in models.values() if model.kind == "counter"]
        chosen = [*counters[:1], *[model for model in models.values() if model.kind != "counter"][:1]]
    samplers: list[PowerSampler] = [SimulatedSampler(load, **asdict(model)) for model in chosen]
    load.seen()
    return samplers


# --- The recordings of this process: one for each GPU and each part of the host, opened once.

_SIMULATED = "sim:"
_CUDA = re.compile(r"cuda(?::([0-9]{1,4}))?")


@dataclass(frozen=True)
class Source:
    """Source of the power readings of one part of a scope.

    Attributes:
        device: as the user names it; ``host`` for packages and DRAM.
        recording: shared by all regions.
        cuda: CUDA's number of the GPU; None where it has none, or nobody tells.
        modelled: True for a simulated GPU.
        gpu: what its thermometer knows it by; empty for a host or a simulated GPU.
    """

    device: str
    recording: BackgroundRecording
    cuda: int | None = None
    modelled: bool = False
    gpu: str | int = ""

    @property
    def is_gpu(self) -> bool:
        """True for a real GPU, whose work runs on when a call has returned."""
        return self.device != HOST and not self.modelled


HOST = "host"
"""The device of packages and DRAM."""


class SourceRegistry:
    """The sources that are open; they stay so until the process ends."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sources: dict[tuple[str, str], tuple[Source, ...]] = {}
        self._recordings: dict[str, BackgroundRecording] = {}
        self._opened = ExitStack()

    def sources(self, scope: str, devices: Sequence[str], sensor: str | None) -> tuple[Source, ...]:
        """The sources of a scope, the GPUs first.

        Args:
            scope: see ``scope_parts``.
            devices: the GPUs.
            sensor: the GPUs' reading; None for the best.

        Raises:
            InputError: what is asked for is not there; a part of it would be counted twice.
            SensorUnavailableError: no reading of a GPU answers.
            DeviceUnavailableError: there is no such GPU.
        """
        parts = scope_parts(scope)
        sources: list[Source] = []
        with self._lock:
            if GPU in parts:
                sources += [self._gpu(device, sensor) for device in devices]
            _check_apart(scope, parts, sources)
            for part in parts:
                if part != GPU:
                    sources += self._host(scope, part)
        return tuple(sources)

    def close(self) -> None:
        """End all recordings, and release the sensors unless one of them does not return."""
        with self._lock:
            ended = [recording.close() for recording in self._recordings.values()]
            if all(ended):
                self._opened.close()
            self._recordings.clear()
            self._sources.clear()

    def _gpu(self, device: str, sensor: str | None) -> Source:
        sources = self._sources.get((device, sensor or ""))
        if sources is None:
            opener = self._simulated if device.startswith(_SIMULATED) else self._real
            sources = self._sources[device, sensor or ""] = (opener(device, sensor),)
        return sources[0]

    def _simulated(self, device: str, sensor: str | None) -> Source:
        load = SimulatedLoad(device)
        recording = BackgroundRecording(simulated_samplers(load, sensor), load=load)
        self._recordings[f"{device} {sensor or ''}"] = recording
        return Source(device, recording, modelled=True)

    def _real(self, device: str, sensor: str | None) -> Source:
        gpu = find_gpu(device or None, "tuner.energy", "sim:NAME of a simulated GPU")
        key = f"{gpu.gpu} {sensor or ''}"
        if key not in self._recordings:
            samplers = self._opened.enter_context(opened(gpu, [sensor] if sensor else []))
            self._recordings[key] = BackgroundRecording(samplers)
        cuda = _CUDA.fullmatch(device or "cuda:0")
        number = int(cuda[1] or 0) if cuda else None
        return Source(device or gpu.name, self._recordings[key], number, gpu=gpu.gpu)

    def _host(self, scope: str, part: str) -> tuple[Source, ...]:
        sources = self._sources.get((HOST, part))
        if sources is None:
            opened_sources = []
            for sampler in host_samplers(scope, (part,)):
                self._opened.callback(sampler.close)
                name = sampler.info.name
                if name not in self._recordings:
                    self._recordings[name] = BackgroundRecording([sampler])
                opened_sources.append(Source(HOST, self._recordings[name]))
            sources = self._sources[HOST, part] = tuple(opened_sources)
        return sources


def _check_apart(scope: str, parts: Sequence[str], gpus: Sequence[Source]) -> None:
    """Refuse to count a host twice, or one that is not there."""
    if len(parts) == 1 or GPU not in parts:
        return
    for source in gpus:
        info = source.recording.info
        if source.modelled:
            raise InputError(
                f"scope={scope!r}: {source.device} is simulated and has no host; scope='gpu' counts it"
            )
        if info.scope != GPU:
            raise InputError(
                f"scope={scope!r}: {info.name} sees {info.scope}, more than the GPU, and the host would be"
                " counted twice; scope='gpu' counts it once"
            )


REGISTRY = SourceRegistry()
"""The sources of this process."""

_INHERITED: list[SourceRegistry] = []  # of the processes that forked this one: not released here


def _forget() -> None:
    """Begin anew in a forked child: threads and locks were not forked with it."""
    global REGISTRY  # noqa: PLW0603 - the one of the process
    _INHERITED.append(REGISTRY)
    REGISTRY = SourceRegistry()


def _close() -> None:
    REGISTRY.close()


os.register_at_fork(after_in_child=_forget)
atexit.register(_close)
