"""Power readings of NVML, and how each follows power on each generation of GPUs.

A reading is there if it answers a read: energy counter, ring of samples, polled power.

Sources: for the K20 and K40 what stands below equation (6) of "Multi-Kernel Auto-Tuning on GPUs: Performance
and Energy-Aware Optimization"; for windows and periods from Kepler to Hopper "Part-time Power Measurements:
nvidia-smi's Lack of Attention" (2023); for which readings are means over a second NVML's reference. Ring and
instant power of Hopper are as two H200s showed them. A calibration of the very board replaces all of it.

A read of the energy counter of an H200 takes 2.4 to 4.5 ms, and all of it is work of a CPU. Its ticks, once
dated by polling, lie on a straight line within 1 ms, so that afterwards one read between two ticks tells what
the counter was at the earlier one. The rhythm plans these reads. A sample states the interval in which its
tick came; ``energy.counters`` dates the ticks of a recording from these intervals.
"""

import itertools
import logging
import math
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tuner.model.errors import PowerError, SensorUnavailableError

from ..base import Reading, Response, Sample, SensorInfo
from ..sensors.changes import ChangeSource, DatedReads, SampleGaps, StallDetector, check_answers, sound
from ..sensors.rails import unavailable
from .library import MILLI, CheckedRead, NvmlGpu, RingSource, power_field, translated

# --- Samples of a regularly ticking counter, with few reads.

_UNDATED_S = 0.25  # a change first seen after a longer pause has no time
_PAUSE_S = 1.0  # over a longer one no ticks are counted while the rhythm is not known
_TICKS = 32  # dated ticks that are kept
_LEARNT = 8  # of fewer dated ticks no rhythm is taken
_REGULAR = 0.04  # of the period: ticks that scatter more have no rhythm; dating alone makes 1.8 % on an H200
_CERTAIN = 0.03  # of the period: where the next tick is less certain, it is to be dated
_USABLE = 0.04  # of the period: a read already made for a tick that is less certain tells nothing
_LOST = 0.25  # of the period: a tick less certain might be its neighbour
_USEFUL = 0.05  # of the period: a tick dated worse says nothing of a rhythm
_CLEAR = 0.1  # of the period: so far from a tick a read is surely after it
_SIGMAS = 4.0  # and so many standard uncertainties
_TAILS = 6.0  # over the degrees of freedom: how much wider the tails of Student's distribution are
_LEAST_S = 1e-6  # no tick is dated better
_DRIFT = 5e-5  # of the time since a tick was dated: two clocks of two crystals, one of them disciplined
_AWAKE = 0.15  # before the end of the shortest gap a tick is looked out for,
_AWAKE_READS = 4.0  # or as many reads before it
_SQRT_12 = math.sqrt(12.0)


@dataclass(frozen=True)
class Rhythm:
    """Ticks at ``origin_s + number * period_s``: a straight line through dated ones.

    Attributes:
        origin_s: time of tick 0, in the middle of the dated ones.
        period_s: time between ticks.
        origin_sigma_s: standard uncertainty of the origin.
        period_sigma_s: standard uncertainty of the period.
        newest_s: time of the last tick that was dated.
    """

    origin_s: float
    period_s: float
    origin_sigma_s: float
    period_sigma_s: float
    newest_s: float

    def number(self, time_s: float) -> int:
        """Number of the last tick before a time."""
        return int((time_s - self.origin_s) // self.period_s)

    def tick_s(self, number: int) -> float:
        """Time of a tick."""
        return self.origin_s + number * self.period_s

    def uncertainty_s(self, time_s: float) -> float:
        """Standard uncertainty of a tick near a time: that of the line, and the drift since its end."""
        number = (time_s - self.origin_s) / self.period_s
        line_s = math.hypot(self.origin_sigma_s, self.period_sigma_s * number)
        return line_s + _DRIFT * max(0.0, time_s - self.newest_s)


def fitted(ticks: Sequence[tuple[float, float]], period_s: float) -> Rhythm | None:
    """The rhythm of ticks, or None where there are too few or they have none.

    Args:
        ticks: (time, standard uncertainty) of ticks in seconds, oldest first; some between may be missing.
        period_s: about the time between two neighbours, to number them by.
    """
    steps = [round((b - a) / period_s) for (a, _), (b, _) in itertools.pairwise(ticks)]
    if len(ticks) < _LEARNT or min(steps) < 1:
        return None
    times_s, sigmas_s = (np.array(column) for column in zip(*ticks, strict=True))
    numbers = np.concatenate(([0], np.cumsum(steps)))
    weights = np.maximum(sigmas_s, _LEAST_S) ** -2.0
    mean, mean_s = np.average(numbers, weights=weights), np.average(times_s, weights=weights)
    lever = np.sum(weights * (numbers - mean) ** 2)
    slope_s = np.sum(weights * (numbers - mean) * (times_s - mean_s)) / lever
    off_s = times_s - mean_s - slope_s * (numbers - mean)
    freedom = len(ticks) - 2
    # few ticks may lie on a line by chance, so that they are no better than each was dated
    excess = max(1.0, math.sqrt(np.sum(weights * off_s**2) / freedom))
    if excess * np.median(sigmas_s) > _REGULAR * slope_s:
        return None
    excess *= 1.0 + _TAILS / freedom
    return Rhythm(
        origin_s=float(mean_s + slope_s * (np.round(mean) - mean)),
        period_s=float(slope_s),
        origin_sigma_s=excess / math.sqrt(np.sum(weights)),
        period_sigma_s=excess / math.sqrt(lever),
        newest_s=float(times_s[-1]),
    )


class RhythmSource:
    """Fresh samples of a regularly ticking counter, one read each.

    Until the rhythm is known, and where there is none, a tick is dated between two polls that saw different
    numbers, as by ``changes.ChangeSource``. With a rhythm each wanted tick is read once, shortly after it,
    and one tick is dated by polling again whenever its time has become uncertain by 3 % of the period, which
    drift lets happen once a minute. A tick that did not come at its time ends the rhythm.

    Args:
        read: reads the counter; its errors pass through.
        scale: of the number to joules.
        now: clock of the samples, in seconds.
        interval_s: time between wanted samples; 0 for every tick.

    Attributes:
        rhythm: the rhythm found; None while there is none.
    """

    def __init__(
        self, read: Callable[[], float], scale: float, now: Callable[[], float], *, interval_s: float = 0.0
    ) -> None:
        self._reads = DatedReads(read, now)
        self._scale = scale
        self._now = now
        self._interval_s = interval_s
        self._ticks: deque[tuple[float, float]] = deque(maxlen=_TICKS)
        self.rhythm: Rhythm | None = None
        self._dating = False
        self._reported: tuple[float, float] | None = None
        self._last, self._seen_s, _ = self._reads.look()
        self.due_s = self._seen_s
        self.gaps = SampleGaps()

    def poll(self) -> list[Sample]:
        """The latest tick, if there was a wanted one since the last call and its time is known."""
        if self._now() < self.due_s:
            return []
        value, earliest_s, latest_s = self._reads.look()
        since_s, self._seen_s = self._seen_s, earliest_s
        changed, self._last = value != self._last, value
        rhythm = self.rhythm
        if rhythm is not None and rhythm.uncertainty_s(latest_s) > _LOST * rhythm.period_s:
            self._forget()
            rhythm = None
        usable = rhythm is not None and rhythm.uncertainty_s(latest_s) <= _USABLE * rhythm.period_s
        if rhythm is not None and usable and not self._dating:
            tick = self._placed(rhythm, value, earliest_s, latest_s)
        else:
            tick = self._dated(since_s, latest_s, changed=changed)
        if tick is None or (self._reported is not None and tick[0] <= self._reported[0]):
            return []
        self._reported = tick[0], value
        return [Sample(tick[0], value * self._scale, tick[1])]

    def _forget(self) -> None:
        self.rhythm = None
        self._ticks.clear()

    def _placed(
        self, rhythm: Rhythm, value: float, earliest_s: float, latest_s: float
    ) -> tuple[float, float] | None:
        """Time and uncertainty of the tick a read came after; None where that is not clear."""
        number = rhythm.number(earliest_s)
        tick_s = rhythm.tick_s(number)
        clear_s = _clear_s(rhythm, latest_s)
        if earliest_s < tick_s + clear_s or latest_s > tick_s + rhythm.period_s - clear_s:
            self.due_s = rhythm.tick_s(rhythm.number(latest_s - clear_s) + 1) + clear_s
            return None
        before = self._reported
        if before is not None and value == before[1] and tick_s > before[0] + rhythm.period_s / 2.0:
            self._forget()
            return None
        self._plan(rhythm, tick_s)
        return tick_s, rhythm.uncertainty_s(tick_s)

    def _dated(self, since_s: float, latest_s: float, *, changed: bool) -> tuple[float, float] | None:
        """Time and uncertainty of a change seen between two reads; None where there was none."""
        width_s = latest_s - since_s
        tick = (since_s + width_s / 2.0, width_s / _SQRT_12)
        if not changed or width_s > _UNDATED_S:
            self._await(latest_s)
            return None
        period_s = self.rhythm.period_s if self.rhythm else self.gaps.median_s
        if self.rhythm is None and self._ticks and tick[0] - self._ticks[-1][0] > _PAUSE_S:
            self._ticks.clear()
        if period_s is None or tick[1] < _USEFUL * period_s:
            if self.rhythm is None:  # with one, ticks are dated now and then, and their gaps say nothing
                self.gaps.add(tick[0])
            self._ticks.append(tick)
            period_s = period_s or self.gaps.median_s
            self.rhythm = fitted(tuple(self._ticks), period_s) if period_s else None
        elif self.rhythm is not None:
            self._await(latest_s)
            return None
        if self.rhythm is None:
            gap_s = self.gaps.shortest_s
            wait_s = max(gap_s, self._interval_s if len(self._ticks) >= _TICKS else 0.0)
            self.due_s = since_s + wait_s - max(_AWAKE * gap_s, _AWAKE_READS * self._reads.usual_s)
        else:
            self._plan(self.rhythm, tick[0])
        return tick

    def _plan(self, rhythm: Rhythm, tick_s: float) -> None:
        """Look again at the next wanted tick after one."""
        step = max(1, round(self._interval_s / rhythm.period_s))
        next_s = rhythm.tick_s(rhythm.number(tick_s + rhythm.period_s / 2.0) + step)
        self.due_s = next_s + _clear_s(rhythm, next_s)
        self._dating = rhythm.uncertainty_s(self.due_s) > _CERTAIN * rhythm.period_s
        if self._dating:
            self._await(next_s - rhythm.period_s / 2.0)

    def _await(self, time_s: float) -> None:
        """Start to date a rhythm anew: schedule reads from before the first tick after a time."""
        rhythm = self.rhythm
        if rhythm is None:
            return
        self._dating = True
        next_s = rhythm.tick_s(rhythm.number(time_s) + 1)
        before_s = max(_SIGMAS * rhythm.uncertainty_s(next_s), _AWAKE_READS * self._reads.usual_s)
        late_s = rhythm.tick_s(rhythm.number(time_s)) + before_s  # the last tick may still be to come
        self.due_s = time_s if time_s < late_s else next_s - before_s


def _clear_s(rhythm: Rhythm, time_s: float) -> float:
    """Return the distance from a tick, in s, at which a read is surely after it and before the next."""
    return max(_CLEAR * rhythm.period_s, _SIGMAS * rhythm.uncertainty_s(time_s))


# --- The readings of a GPU, and how each follows power.

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
