"""Power readings of NVML: energy counter, ring of samples, polled power: those that answer a read."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from tuner.errors import PowerError, SensorUnavailableError
from tuner.interfaces import PowerSampler, Reading, Response, Sample, SensorInfo

from ..sensors.changes import ChangeSource, Gaps
from ..sensors.rhythm import RhythmSource
from .library import NvmlGpu, translated
from .reads import MILLI, Checked, Silence, power_field
from .responses import AVERAGE, COUNTER, INSTANT, RING, USAGE, expected, expected_period_s
from .ring import RingSource

_ABSURD_W = 20e3  # no board draws as much; a driver in trouble answers with all ones
_SILENT_S = {"counter": 5.0, "ring": 5.0, "stream": 60.0}  # power may well stay at one number
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
        interval_s: time between wanted samples; 0 for all.
    """

    def __init__(
        self,
        gpu: NvmlGpu,
        info: SensorInfo,
        source: _Source,
        *,
        interval_s: float = 0.0,
    ) -> None:
        self._gpu = gpu
        self._info = info
        self._source = source
        self._interval_s = interval_s

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
        if self._info.kind == "counter":
            return fresh
        sound = [sample for sample in fresh if sample.value < _ABSURD_W]
        if len(sound) < len(fresh):
            _LOG.warning("%s of %s shows absurd power, left out", self._info.name, self._gpu.uuid)
        return sound

    def close(self) -> None:
        """Release NVML; again is harmless."""
        self._gpu.close()


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
            source, scope = _start(info, gpu, ways)
    except BaseException:
        gpu.close()
        raise
    interval_s = ways.interval_s if info.kind == "counter" else 0.0
    return NvmlSampler(gpu, replace(info, scope=scope), source, interval_s=interval_s)


def _start(info: SensorInfo, gpu: NvmlGpu, ways: _Ways) -> tuple[_Source, str]:
    """The source of a reading, and the scope it sees."""
    nvml, handle, name = gpu.nvml, gpu.handle, info.name
    silence = Silence(f"{name} of {gpu.uuid}", _SILENT_S[info.kind], ways.now)
    if name == COUNTER:
        total = partial(nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        counter = Checked(total, name, gpu, silence, forward=True)
        return RhythmSource(counter, MILLI, ways.now, interval_s=ways.interval_s), "gpu"
    if name == RING:
        ring = RingSource(gpu, ways.now, ways.wall, silence)
        if not ring.poll():
            raise SensorUnavailableError(f"{name}: holds no samples")
        return ring, "gpu"
    scope = "gpu"
    read: Callable[[], float] = partial(nvml.nvmlDeviceGetPowerUsage, handle)
    if name != USAGE:
        instant = name == INSTANT
        field = nvml.NVML_FI_DEV_POWER_INSTANT if instant else nvml.NVML_FI_DEV_POWER_AVERAGE
        read, scope = power_field(gpu, field)
    return ChangeSource(Checked(read, name, gpu, silence), MILLI, ways.now), scope
