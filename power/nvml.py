"""Power readings of NVML: energy counter, ring of samples, or polled power, whichever answers a read."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tuner.errors import PowerError, SensorUnavailableError
from tuner.interfaces import Response, Sample, SensorInfo

from .changes import ChangeSource, Gaps
from .nvml_library import NvmlGpu, translated

MILLI = 1e-3  # NVML counts milliwatts and millijoules
MICRO = 1e-6  # and stamps samples in microseconds

_AMPERE = 7  # NVML's number of the architecture
_GA100 = ("A100", "A30")  # the Ampere chips whose power reading is no mean over a second
_LAGS = (("K20", 0.833), ("K40", 0.79))  # below equation (6) of the multi-kernel paper, in seconds
_POLLED_S = 0.1  # update period of polled power
_LAG_SIGMA_S = 0.01  # published values for the K20 differ by 0.007 s, and boards of a model by as much
_UNION = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t


class _Source(Protocol):
    """Where fresh samples of one reading come from."""

    gaps: Gaps
    due_s: float

    def poll(self) -> list[Sample]:
        """Samples since the last call."""


class RingSource:
    """Fresh samples out of the driver's ring of power samples, on the meter's clock.

    The driver stamps with the host's real-time clock, which is mapped anew at every call, so that a clock
    that is stepped moves no later sample. Stamps of another origin are mapped once, by the newest sample's
    being young; that shifts windows by less than a sample or two.

    Args:
        gpu: an opened GPU.
        now: clock of the samples, in seconds.
        wall: the host's real-time clock, in seconds.
    """

    def __init__(self, gpu: NvmlGpu, now: Callable[[], float], wall: Callable[[], float]) -> None:
        self._gpu = gpu
        self._now = now
        self._wall = wall
        self._stamp = 0  # of the newest sample reported
        self._origin_s: float | None = None
        self.due_s = 0.0
        self.gaps = Gaps()

    def poll(self) -> list[Sample]:
        """Samples that entered the ring since the last call."""
        nvml = self._gpu.nvml
        try:
            kind, found = nvml.nvmlDeviceGetSamples(
                self._gpu.handle, nvml.NVML_TOTAL_POWER_SAMPLES, self._stamp
            )
        except nvml.NVMLError_NotFound:  # nothing newer
            return []
        fresh = sorted((int(s.timeStamp), s.sampleValue) for s in found if s.timeStamp > self._stamp)
        if not fresh:
            return []
        self._stamp = fresh[-1][0]
        origin_s = self._map(self._stamp * MICRO)
        field = _UNION[kind]
        for stamp, _ in fresh:
            self.gaps.add(stamp * MICRO)
        return [Sample(stamp * MICRO + origin_s, getattr(value, field) * MILLI) for stamp, value in fresh]

    def _map(self, newest_s: float) -> float:
        """Seconds to add to a stamp."""
        now_s, wall_s = self._now(), self._wall()
        if abs(wall_s - newest_s) < 10.0:  # noqa: PLR2004 - no other origin comes so near by chance
            return now_s - wall_s
        if self._origin_s is None:
            self._origin_s = now_s - newest_s
        return self._origin_s


@dataclass(frozen=True)
class _Choice:
    """One kind of reading: what is known of it, and how it is opened."""

    info: SensorInfo
    start: Callable[[], _Source]


class NvmlSampler:
    """Implements ``tuner.interfaces.PowerSampler`` over NVML; made by ``open``."""

    def __init__(self, gpu: NvmlGpu, info: SensorInfo, source: _Source) -> None:
        self._gpu = gpu
        self._info = info
        self._source = source

    @classmethod
    def open(
        cls,
        gpu: str | int,
        library: str | None = None,
        *,
        capacitance_s: float | None = None,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> "NvmlSampler":
        """Open the best power reading of a GPU that answers.

        NVML initialises on boards where no power reading answers, so a reading is chosen by a successful
        read, never by being declared: the energy counter is a true integral; the ring of samples, one every
        20 ms on an H200, sees all of the time; polled power may see a quarter of it or a mean over a second.

        Args:
            gpu: UUID (as CUDA names it) or NVML's index.
            library: path of libnvidia-ml.so.1, or None for the one the system loader finds.
            capacitance_s: C fitted for this board's ring and polled power; None for what is published.
            now: clock the samples are stamped with, in seconds.
            wall: the host's real-time clock, in seconds.

        Raises:
            SensorUnavailableError: no driver, no such GPU, or no power reading answers; names what was tried.
        """
        opened = NvmlGpu.open(gpu, library, error=SensorUnavailableError)
        tried = []
        for choice in _choices(opened, capacitance_s, now, wall):
            try:
                return cls(opened, choice.info, choice.start())
            except (opened.nvml.NVMLError, SensorUnavailableError) as error:  # noqa: PERF203 - four at most
                tried.append(f"{choice.info.name}: {error}")
        opened.close()
        raise SensorUnavailableError(f"no power reading of {opened.name} answers: {'; '.join(tried)}")

    @property
    def info(self) -> SensorInfo:
        """What is known of this reading; the period is measured as soon as samples have come."""
        return replace(self._info, period_s=self._source.gaps.median_s or self._info.period_s)

    @property
    def due_s(self) -> float:
        """Time before which ``poll`` finds nothing."""
        return self._source.due_s

    def poll(self) -> list[Sample]:
        """Samples that appeared since the last call, oldest first.

        Raises:
            PowerError: the GPU stopped answering.
        """
        with translated(PowerError, f"{self._info.name} of {self._gpu.uuid}"):
            return self._source.poll()

    def close(self) -> None:
        """Release NVML."""
        self._gpu.close()


def _choices(
    gpu: NvmlGpu, capacitance_s: float | None, now: Callable[[], float], wall: Callable[[], float]
) -> Sequence[_Choice]:
    """The readings of NVML, best first."""
    nvml, handle = gpu.nvml, gpu.handle
    published = next((c for word, c in _LAGS if word in gpu.name), 0.0)
    lag = Response()
    if capacitance_s:
        lag = Response("lag", capacitance_s=capacitance_s, origin="calibrated")
    elif published and capacitance_s is None:
        lag = Response("lag", capacitance_s=published, capacitance_sigma_s=_LAG_SIGMA_S, origin="published")

    def watch(read: Callable[[], float]) -> Callable[[], _Source]:
        return lambda: ChangeSource(_positive(read), MILLI, now)

    def ring() -> _Source:
        source = RingSource(gpu, now, wall)
        if not source.poll():
            raise SensorUnavailableError("holds no samples")
        return source

    counter = SensorInfo(
        "nvml-energy-counter", "counter", "gpu", 0.1, poll_interval_s=0.001, resolution=MILLI
    )
    samples = SensorInfo(
        "nvml-power-ring", "ring", "gpu", 0.02, poll_interval_s=0.25, resolution=MILLI, response=lag
    )
    polled = SensorInfo("", "stream", "gpu", _POLLED_S, poll_interval_s=0.002, resolution=MILLI, response=lag)
    return (
        _Choice(counter, watch(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))),
        _Choice(samples, ring),
        _Choice(
            # 25 ms on an A100 and an H100, 100 ms on other chips: the longer loses a sample, no truth
            replace(polled, name="nvml-power-instant", response=_mean(lag, 0.1)),
            watch(lambda: _field(gpu, nvml.NVML_FI_DEV_POWER_INSTANT)),
        ),
        _Choice(
            replace(polled, name="nvml-power-usage", response=_mean(lag, _usage_window_s(gpu))),
            watch(lambda: nvml.nvmlDeviceGetPowerUsage(handle)),
        ),
    )


def _mean(lag: Response, window_s: float) -> Response:
    """A mean over a window where no lag is known, else the lag."""
    if lag.kind == "lag" or window_s == 0:
        return lag
    return Response("boxcar" if window_s <= _POLLED_S else "ramp", window_s=window_s)


def _positive(read: Callable[[], float]) -> Callable[[], float]:
    """The same reading, once it is known not to be one of those that answer with a constant zero."""
    if not read():
        raise SensorUnavailableError("reads 0")
    return read


def _field(gpu: NvmlGpu, field: int) -> float:
    """One field value of NVML, as a number."""
    value: Any = gpu.nvml.nvmlDeviceGetFieldValues(gpu.handle, [field])[0]
    if value.nvmlReturn:
        raise gpu.nvml.NVMLError(value.nvmlReturn)
    return float(getattr(value.value, _UNION[value.valueType]))


def _usage_window_s(gpu: NvmlGpu) -> float:
    """Length of the mean nvmlDeviceGetPowerUsage shows: a second since Ampere, except on GA100."""
    if any(word in gpu.name for word in ("K20", "K40")):
        return 0.0  # a lag, which equation (6) takes care of
    mean_over_a_second = gpu.architecture() >= _AMPERE and not any(word in gpu.name for word in _GA100)
    return 1.0 if mean_over_a_second else 0.1
