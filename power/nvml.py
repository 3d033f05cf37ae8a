"""Power readings of NVML: energy counter, ring of samples, polled power: those that answer a read."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from tuner.errors import PowerError, SensorUnavailableError
from tuner.interfaces import PowerSampler, Reading, Response, Sample, SensorInfo

from .changes import ChangeSource, Gaps
from .nvml_library import NvmlGpu, translated
from .nvml_responses import AVERAGE, COUNTER, INSTANT, RING, USAGE, expected, expected_period_s
from .nvml_ring import MILLI, UNION, RingSource
from .rhythm import RhythmSource

_ABSURD_W = 20e3  # no board draws as much; a driver in trouble answers with all ones
_LOOKED_S = 1.0  # of the time between two polls as much counts as watched
_SILENT_S = {"counter": 5.0, "ring": 5.0, "stream": 60.0}  # watched; power may well stay at one number
_LOG = logging.getLogger(__name__)


class _Source(Protocol):
    """Where fresh samples of one reading come from."""

    gaps: Gaps
    due_s: float

    def poll(self) -> list[Sample]:
        """Samples since the last call."""


class NvmlSampler:
    """Implements ``tuner.interfaces.PowerSampler`` over NVML; made by what ``readings`` lists.

    Args:
        gpu: an opened GPU; closed with the sampler.
        info: what is known of the reading.
        source: where its samples come from.
        now: clock of the samples, in seconds.
        interval_s: time between wanted samples; 0 for all.
    """

    def __init__(
        self,
        gpu: NvmlGpu,
        info: SensorInfo,
        source: _Source,
        now: Callable[[], float],
        *,
        interval_s: float = 0.0,
    ) -> None:
        self._gpu = gpu
        self._info = info
        self._source = source
        self._now = now
        self._interval_s = interval_s
        self._polled_s = now()
        self._silent_s = 0.0

    @property
    def info(self) -> SensorInfo:
        """What is known of this reading; the period is measured as soon as samples have come."""
        period_s = self._source.gaps.median_s or self._info.period_s
        return replace(self._info, period_s=max(period_s, self._interval_s))

    @property
    def due_s(self) -> float:
        """Time before which ``poll`` finds nothing."""
        return self._source.due_s

    def poll(self) -> list[Sample]:
        """Samples that appeared since the last call, oldest first.

        Raises:
            PowerError: the GPU stopped answering, or its reading stopped changing.
        """
        with translated(PowerError, f"{self._info.name} of {self._gpu.uuid}"):
            fresh = self._source.poll()
        self._watch(fresh)
        if self._info.kind == "counter":
            return fresh
        sound = [sample for sample in fresh if sample.value < _ABSURD_W]
        if len(sound) < len(fresh):
            _LOG.warning("%s of %s shows absurd power, left out", self._info.name, self._gpu.uuid)
        return sound

    def close(self) -> None:
        """Release NVML; again is harmless."""
        self._gpu.close()

    def _watch(self, fresh: list[Sample]) -> None:
        """Tell a sensor that has stopped from one that nobody looked at."""
        looked_s, self._polled_s = self._now() - self._polled_s, self._now()
        self._silent_s = 0.0 if fresh else self._silent_s + min(looked_s, _LOOKED_S)
        if self._silent_s > _SILENT_S[self._info.kind]:
            raise PowerError(
                f"{self._info.name} of {self._gpu.uuid} stopped updating: no change in {self._silent_s:.0f} s"
            )


@dataclass(frozen=True)
class _Ways:
    """How the readings of a GPU are opened: the arguments of ``readings``."""

    gpu: str | int
    library: str | None
    now: Callable[[], float]
    wall: Callable[[], float]
    interval_s: float

    def opened(self) -> NvmlGpu:
        """The GPU, to be closed."""
        return NvmlGpu.open(self.gpu, self.library, error=SensorUnavailableError)


def readings(
    gpu: str | int,
    *,
    responses: Callable[[str], Response | None],
    library: str | None = None,
    now: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
    interval_s: float = 0.0,
) -> list[Reading]:
    """The power readings of NVML, best first.

    NVML initialises on boards where no power reading answers, so that each is found by a successful read when
    it is opened. The energy counter is a true integral; the ring of samples sees all of the time; a single
    number may be a mean over a second. What may miss part of the time (not ``Response.averages``) is last.

    Args:
        gpu: UUID (as CUDA names it) or NVML's index.
        responses: calibrated response of a reading by its name; None where there is none.
        library: path of libnvidia-ml.so.1, or None for the one the system loader finds.
        now: clock the samples are stamped with, in seconds.
        wall: the host's real-time clock, in seconds.
        interval_s: wanted time between samples of the counter, a read of which costs milliseconds; 0 for
            every tick.

    Returns:
        One reading called ``nvml``, which tells the reason when opened, where there is no driver or GPU.
    """
    ways = _Ways(gpu, library, now, wall, interval_s)
    try:
        opened = ways.opened()
    except SensorUnavailableError as error:
        return [_missing(str(error))]
    product, architecture = opened.name, opened.architecture()
    opened.close()
    infos = []
    for name in (COUNTER, RING, INSTANT, AVERAGE, USAGE):
        response = responses(name) or expected(name, product, architecture)
        period_s = expected_period_s(name, product, architecture)
        infos.append(replace(_INFOS[name], response=response, period_s=period_s))
    infos.sort(key=lambda info: not info.response.averages)
    return [Reading(info.name, partial(_open, info, ways)) for info in infos]


def _missing(why: str) -> Reading:
    def open_none() -> PowerSampler:
        raise SensorUnavailableError(why)

    return Reading("nvml", open_none)


def _info(name: str, kind: Any, poll_interval_s: float) -> SensorInfo:  # noqa: ANN401 - a literal of SensorInfo
    return SensorInfo(name, kind, "gpu", 0.1, poll_interval_s=poll_interval_s, resolution=MILLI)


_INFOS = {
    info.name: info
    for info in (
        _info(COUNTER, "counter", 0.001),
        _info(RING, "ring", 0.25),  # it holds more than two seconds
        _info(INSTANT, "stream", 0.002),
        _info(AVERAGE, "stream", 0.002),
        _info(USAGE, "stream", 0.002),
    )
}


def _open(info: SensorInfo, ways: _Ways) -> NvmlSampler:
    """The sampler of a reading that answers a read."""
    gpu = ways.opened()
    try:
        with translated(SensorUnavailableError, info.name):
            source, scope = _start(info.name, gpu, ways)
    except BaseException:
        gpu.close()
        raise
    interval_s = ways.interval_s if info.kind == "counter" else 0.0
    return NvmlSampler(gpu, replace(info, scope=scope), source, ways.now, interval_s=interval_s)


def _start(name: str, gpu: NvmlGpu, ways: _Ways) -> tuple[_Source, str]:
    """The source of a reading, and the scope it sees."""
    nvml, handle = gpu.nvml, gpu.handle
    if name == COUNTER:
        read = _forward(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle), gpu)
        return RhythmSource(_positive(name, read), MILLI, ways.now, interval_s=ways.interval_s), "gpu"
    if name == RING:
        ring = RingSource(gpu, ways.now, ways.wall)
        if not ring.poll():
            raise SensorUnavailableError(f"{name}: holds no samples")
        return ring, "gpu"
    if name == USAGE:
        return ChangeSource(
            _positive(name, lambda: nvml.nvmlDeviceGetPowerUsage(handle)), MILLI, ways.now
        ), "gpu"
    field = nvml.NVML_FI_DEV_POWER_INSTANT if name == INSTANT else nvml.NVML_FI_DEV_POWER_AVERAGE
    scope = _scope(gpu, field)
    whole = nvml.NVML_POWER_SCOPE_MODULE if scope == "module" else nvml.NVML_POWER_SCOPE_GPU
    return ChangeSource(_positive(name, lambda: _field(gpu, field, whole)), MILLI, ways.now), scope


def _scope(gpu: NvmlGpu, field: int) -> str:
    """What a power field sees: the GPU, or, where that fails as on a GH200, the module with its CPU."""
    try:
        if _field(gpu, field, gpu.nvml.NVML_POWER_SCOPE_GPU):
            return "gpu"
    except gpu.nvml.NVMLError as error:
        try:
            _field(gpu, field, gpu.nvml.NVML_POWER_SCOPE_MODULE)
        except gpu.nvml.NVMLError:
            raise error from None
        return "module"
    return "gpu"


def _field(gpu: NvmlGpu, field: int, scope: int) -> float:
    """One field value of NVML, as a number."""
    value: Any = gpu.nvml.nvmlDeviceGetFieldValues(gpu.handle, [(field, scope)])[0]
    if value.nvmlReturn:
        raise gpu.nvml.NVMLError(value.nvmlReturn)
    return float(getattr(value.value, UNION[value.valueType]))


def _positive(name: str, read: Callable[[], float]) -> Callable[[], float]:
    """The same reading, once it is known not to be one of those that answer with a constant zero."""
    if not read():
        raise SensorUnavailableError(f"{name}: reads 0")
    return read


def _forward(read: Callable[[], float], gpu: NvmlGpu) -> Callable[[], float]:
    """A counter that must not go back: one that does was set to zero under us."""
    last = [0.0]

    def checked() -> float:
        value = read()
        if value < last[0]:
            raise PowerError(
                f"{COUNTER} of {gpu.uuid} went back from {last[0] * MILLI:.3f} J to {value * MILLI:.3f} J:"
                " the driver was loaded anew"
            )
        last[0] = value
        return value

    return checked
