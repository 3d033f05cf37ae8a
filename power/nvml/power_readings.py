"""Power readings of NVML, and how each follows power on each generation of GPUs.

A reading is there if it answers a read: energy counter, ring of samples, polled power.

Sources: for the K20 and K40 what stands below equation (6) of "Multi-Kernel Auto-Tuning on GPUs: Performance
and Energy-Aware Optimization"; for windows and periods from Kepler to Hopper "Part-time Power Measurements:
nvidia-smi's Lack of Attention" (2023); for which readings are means over a second NVML's reference. Ring and
instant power of Hopper are as two H200s showed them. A calibration of the very board replaces all of it.
"""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tuner.model.errors import PowerError, SensorUnavailableError

from ..base import Reading, Response, Sample, SensorInfo
from ..sensors.changes import ChangeSource, StallDetector, check_answers, sound
from ..sensors.rails import unavailable
from ..sensors.rhythm import RhythmSource
from .library import MILLI, CheckedRead, NvmlGpu, RingSource, power_field, translated

_SILENT_S = {"counter": 5.0, "ring": 5.0, "stream": 60.0}  # power may well stay at one number
_LOG = logging.getLogger(__name__)
USAGE, INSTANT, AVERAGE, RING, COUNTER = (
    *("nvml-power-usage", "nvml-power-instant", "nvml-power-average"),
    *("nvml-power-ring", "nvml-energy-counter"),
)
_MAXWELL, _PASCAL, _TURING, _AMPERE, _ADA, _HOPPER = 3, 4, 6, 7, 8, 9  # NVML's numbers of architectures
_GA100 = ("A100", "A30", "A800")  # the Ampere chips whose power reading is no mean over a second
_LAGS = (("K20", 0.833), ("K40", 0.79))  # seconds
_LAG_SIGMA_S = 0.01  # values published for the K20 differ by 0.007 s, and boards of a model by as much
_M40 = "M40"  # the one Maxwell board that is no lag
_SECOND = Response("ramp", window_s=1.0, origin="published")
_QUARTER = Response("boxcar", window_s=0.025, origin="published", averages=False)  # of every 100 ms
_HALF = Response("boxcar", window_s=0.01, origin="published", averages=False)  # of every 20 ms
_M40_PART = Response("boxcar", window_s=0.014, origin="published", averages=False)  # of every 31 ms
_WHOLE = Response("boxcar", window_s=0.1, origin="published")  # every 100 ms
# Two H200s (driver 580.159) under a known load: C of 13.1 and 13.3 ms, and a delay of 3.5 and 3.1 ms; that
# boards differ by no more is a guess.
_HOPPER_RING = Response(
    "lag", capacitance_s=0.013, capacitance_sigma_s=0.001, delay_s=0.0033, delay_sigma_s=0.001
)
# The same two: one look every 100 ms at power through a lag of 13.8 and 15.3 ms, 18 and 11 ms late. As a
# boxcar, which is what is published of the H100 (21 to 25 ms), it would be of 31 and 39 ms, and fits worse.
_HOPPER_INSTANT = replace(_HOPPER_RING, delay_s=0.015, delay_sigma_s=0.005, averages=False)


_SampleSource = ChangeSource | RhythmSource | RingSource


class NvmlSampler:
    """Implements ``tuner.power.base.PowerSampler`` over NVML; made by what ``readings`` lists.

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
        source: _SampleSource,
        *,
        interval_s: float = 0.0,
    ) -> None:
        self._gpu = gpu
        self._info = info
        self._source = source
        self._interval_s = interval_s
        self._warned = False

    @property
    def info(self) -> SensorInfo:
        """Properties of this reading; the period is measured as soon as samples have come."""
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
        samples = sound(self._info, fresh)
        if len(samples) < len(fresh) and not self._warned:
            self._warned = True
            _LOG.warning("%s of %s shows what no GPU draws; left out", self._info.name, self._gpu.uuid)
        return samples

    def close(self) -> None:
        """Release NVML; again is harmless."""
        self._gpu.close()


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
    number may be a mean over a second. What may miss part of the time (not ``Response.averages``) is last,
    but for the counter: that of a board which nobody has calibrated is only not known to see all of it.

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
    open_gpu = partial(NvmlGpu.open, gpu, library, error=SensorUnavailableError)
    try:
        opened = open_gpu()
    except SensorUnavailableError as error:
        return [unavailable("nvml", str(error))]
    product, architecture = opened.name, opened.architecture()
    opened.close()
    infos = []
    for name in (COUNTER, RING, INSTANT, AVERAGE, USAGE):
        response = responses(name) or expected(name, product, architecture)
        period_s = expected_period_s(name, product, architecture)
        infos.append(replace(_INFOS[name], response=response, period_s=period_s))
    infos.sort(key=lambda info: info.kind != "counter" and not info.response.averages)
    return [Reading(info.name, partial(_open, info, open_gpu, now, wall, interval_s)) for info in infos]


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


def _open(
    info: SensorInfo,
    open_gpu: Callable[[], NvmlGpu],
    now: Callable[[], float],
    wall: Callable[[], float],
    interval_s: float,
) -> NvmlSampler:
    """The sampler of a reading that answers a read."""
    gpu = open_gpu()
    try:
        with translated(SensorUnavailableError, info.name):
            source, scope = _start(info, gpu, now, wall, interval_s)
    except BaseException:
        gpu.close()
        raise
    counter_s = interval_s if info.kind == "counter" else 0.0
    return NvmlSampler(gpu, replace(info, scope=scope), source, interval_s=counter_s)


def _start(
    info: SensorInfo,
    gpu: NvmlGpu,
    now: Callable[[], float],
    wall: Callable[[], float],
    interval_s: float,
) -> tuple[_SampleSource, str]:
    """The source of a reading, and the scope it sees."""
    nvml, handle, name = gpu.nvml, gpu.handle, info.name
    silence = StallDetector(f"{name} of {gpu.uuid}", _SILENT_S[info.kind], now)
    if name == COUNTER:
        total = partial(nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        counter = CheckedRead(total, info, gpu, silence)
        return RhythmSource(counter, MILLI, now, interval_s=interval_s), "gpu"
    if name == RING:
        ring = RingSource(gpu, now, wall, silence)
        samples = ring.poll()
        if not samples:
            raise SensorUnavailableError(f"{name}: holds no samples")
        check_answers(info, [sample.value for sample in samples])
        return ring, "gpu"
    scope = "gpu"
    read: Callable[[], float] = partial(nvml.nvmlDeviceGetPowerUsage, handle)
    if name != USAGE:
        instant = name == INSTANT
        field = nvml.NVML_FI_DEV_POWER_INSTANT if instant else nvml.NVML_FI_DEV_POWER_AVERAGE
        read, scope = power_field(gpu, field)
    return ChangeSource(CheckedRead(read, info, gpu, silence), MILLI, now), scope


def expected(name: str, product: str, architecture: int) -> Response:
    """The response of a reading before anyone has calibrated it.

    Args:
        name: of the reading.
        product: name of the GPU.
        architecture: NVML's number of it; 0 where it is unknown.
    """
    if name == COUNTER:  # H200s were found to count all of the time; of others their calibration tells
        return Response(averages=architecture == _HOPPER)
    lag_s = next((lag_s for board, lag_s in _LAGS if _is(product, board)), None)
    if lag_s is not None:
        sigma_s = _LAG_SIGMA_S
        return Response("lag", capacitance_s=lag_s, capacitance_sigma_s=sigma_s, origin="published")
    if name == RING:
        return _HOPPER_RING if architecture >= _HOPPER else Response()
    polled = _polled(name, product, architecture)
    return polled if architecture <= _HOPPER else replace(polled, origin="assumed")


def _polled(name: str, product: str, architecture: int) -> Response:
    """The response of a reading that is one number: what nvidia-smi shows, or a field."""
    if architecture < _PASCAL:  # K80, Maxwell: a lag nobody has published, except of the M40
        return _M40_PART if _is(product, _M40) else Response()
    if architecture < _TURING:
        return _HALF
    if architecture == _TURING:
        return _WHOLE
    if architecture == _AMPERE and any(_is(product, board) for board in _GA100):
        return _QUARTER
    if name != INSTANT:
        return _SECOND
    return _WHOLE if architecture in (_AMPERE, _ADA) else _HOPPER_INSTANT


def expected_period_s(name: str, product: str, architecture: int) -> float:
    """Expected time between two updates of a reading."""
    if name == RING:
        return 0.02
    if name == COUNTER:
        return 0.1
    if any(_is(product, board) for board, _ in _LAGS):
        return 0.015
    if _is(product, _M40):
        return 0.031
    return 0.02 if _PASCAL <= architecture < _TURING else 0.1


def _is(product: str, board: str) -> bool:
    """True for a board and its variants: K20 is in ``Tesla K20Xm``, but not in ``Quadro K2000``."""
    return re.search(rf"\b{board}[A-Za-z]*\b", product) is not None
