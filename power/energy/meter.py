"""Meters: samplers polled while something runs, asked for windows, sums, pauses and whole recordings."""

import contextlib
import logging
import math
import statistics
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

from tuner.model.errors import ClockError, PowerError
from tuner.model.trial import contracted, expanded

from ..base import (
    LEAST_W,
    MOST_W,
    ClockControl,
    ClockReading,
    Meter,
    PowerReading,
    PowerSampler,
    Recording,
    Sample,
    SensorInfo,
    SpentEnergy,
)
from ..response.models import energy_j
from .counters import SensorHistory
from .mean_power import mean_power
from .samples import ROUNDING, SampleSeries, screened

# --- Joules of a whole recording: while it goes on, in constant memory, or once it has ended.

_PAIR = 2
_RAMP_GUESS = 1.0 / math.sqrt(3.0)  # power within a running mean's window may be anywhere in it


class RunningEnergy:
    """Adds up the samples of one reading while it goes on, in constant memory.

    Power is integrated by the trapezoid rule. Equation (6) of the multi-kernel paper telescopes to C times
    the difference of last and first sample, and a mean over a window W stands for power W/2 earlier.
    Standard uncertainties: of a counter the times and the step of its ends; of power the samples' noise, from
    their second differences, which also hold what the power does between samples.
    """

    def __init__(self) -> None:
        self.first: Sample | None = None
        self.last: Sample | None = None
        self.count = 0
        self._integral_j = 0.0
        self._steps_s2 = 0.0
        self._bends_w2 = 0.0
        self._bends = 0
        self._before: Sample | None = None

    def add(self, samples: Iterable[Sample]) -> None:
        """Take in samples, oldest first; one that is not later than the last is left out."""
        for sample in samples:
            last, before = self.last, self._before
            if last is not None and sample.time_s <= last.time_s:
                continue
            self.count += 1
            self.first = self.first or sample
            if last is not None:
                step_s = sample.time_s - last.time_s
                self._integral_j += step_s * (sample.value + last.value) / 2.0
                self._steps_s2 += step_s**2
                if before is not None:
                    self._bends_w2 += (sample.value - 2.0 * last.value + before.value) ** 2
                    self._bends += 1
            self._before, self.last = last, sample

    @property
    def duration_s(self) -> float:
        """Time from the first sample to the last."""
        return self.last.time_s - self.first.time_s if self.first and self.last else 0.0

    def joules(self, info: SensorInfo) -> tuple[float, float] | None:
        """Energy from the first sample to the last and its standard uncertainty; None of fewer than two."""
        if self.first is None or self.last is None or self.duration_s <= 0:
            return None
        difference = self.last.value - self.first.value
        if info.kind == "counter":
            times_s = math.hypot(self.first.time_sigma_s, self.last.time_sigma_s)
            timing_j = difference / self.duration_s * times_s
            return difference, math.hypot(timing_j, info.resolution / math.sqrt(6.0))
        response = info.response
        noise_w2 = self._bends_w2 / (6.0 * self._bends) if self._bends else difference**2 / ROUNDING
        noise_w2 += info.resolution**2 / ROUNDING
        guess_s = response.window_s / 2.0 * _RAMP_GUESS if response.kind == "ramp" else 0.0
        sigma_j = math.sqrt(
            noise_w2 * (self._steps_s2 + 2.0 * response.mean_age_s**2)
            + (difference * math.hypot(response.capacitance_sigma_s, guess_s)) ** 2
        )
        return self._integral_j + response.mean_age_s * difference, sigma_j


def total_joules(series: SampleSeries, duration_s: float, info: SensorInfo) -> float:
    """Energy of a recording of ``duration_s``: that between its samples, scaled to the whole; 0.0 without."""
    if len(series) < _PAIR:
        return float(series.values[0]) * duration_s if len(series) and info.kind != "counter" else 0.0
    if info.kind == "counter":
        joules = float(series.values[-1] - series.values[0])
    else:
        joules = energy_j(series.times_s, series.values, info.response)
    return joules * duration_s / series.duration_s


# --- Joules of all that a meter sees while it is open, pauses included.

_PAUSE_PERIODS = 3.0  # without a sample; single updates come late on every sensor
_CALM_S = 1.0  # into a pause: by then what nobody recorded has ended
_IDLE_SIGMA = 0.05  # of idle power, which follows clock and temperature


class SpentTotal:
    """Adds up the samples of a reading, whoever asked for them.

    A counter has counted in a pause too, so its growth is all there is to know. Of a reading of power the
    pauses are taken from what is around them: idle power, which is the lowest that was seen, and in the first
    second anything from there to the power before. The same holds for what is before the first sample and
    behind the last one.

    Args:
        start_s: from when on joules count; older samples are left out.
    """

    def __init__(self, start_s: float) -> None:
        self._start_s = start_s
        self._part = RunningEnergy()
        self._joules = self._variance_j2 = 0.0
        self._last: Sample | None = None
        self._pauses: list[tuple[float, float]] = []
        self._watts = 0.0
        self._lowest_w = math.inf

    def add(self, samples: Iterable[Sample], info: SensorInfo) -> None:
        """Take in samples, oldest first; those that cannot be are left out."""
        for sample in samples:
            last = self._last
            if sample.time_s < self._start_s or (last is not None and sample.time_s <= last.time_s):
                continue
            if info.is_reading(sample.value):
                add = self._count if info.kind == "counter" else self._see
                add(sample, info)

    def spent(self, now_s: float, info: SensorInfo) -> SpentEnergy | None:
        """Joules up to now; None before two samples."""
        latest = self._part.joules(info)
        if self._last is None or (latest is None and self._joules == 0.0):
            return None
        joules, sigma_j = latest or (0.0, 0.0)
        unseen = [*self._pauses, (max(0.0, now_s - self._last.time_s), self._watts)]
        parts = [self._pause(seconds, before_w) for seconds, before_w in unseen]
        unseen_j = math.fsum(part[0] for part in parts)
        unseen_sigma_j = math.fsum(part[1] for part in parts)  # they err together
        return SpentEnergy(
            joules=self._joules + joules + unseen_j,
            sigma_j=math.hypot(math.sqrt(self._variance_j2), sigma_j, unseen_sigma_j),
            unseen_j=unseen_j,
            unseen_sigma_j=unseen_sigma_j,
            unseen_s=math.fsum(seconds for seconds, _ in unseen),
        )

    def _count(self, sample: Sample, info: SensorInfo) -> None:
        last = self._last
        if last is None:
            self._pauses.append((sample.time_s - self._start_s, 0.0))
        else:
            passed_s = sample.time_s - last.time_s
            watts = (sample.value - last.value) / passed_s
            if last is self._part.first and len(self._pauses) == 1:
                self._begin(self._pauses[0][0], watts, info)
            if (
                not LEAST_W * passed_s - info.resolution
                <= sample.value - last.value
                <= MOST_W * (passed_s + info.period_s)
            ):
                self._close(info)  # it was reset
                self._pauses.append((passed_s, self._watts))
            else:
                self._watts, self._lowest_w = watts, min(self._lowest_w, watts)
        self._part.add([sample])
        self._last = sample

    def _see(self, sample: Sample, info: SensorInfo) -> None:
        last = self._last
        if last is None:
            self._begin(sample.time_s - self._start_s, sample.value, info)
        elif sample.time_s - last.time_s > _PAUSE_PERIODS * info.period_s:
            self._close(info)
            self._pauses.append((sample.time_s - last.time_s, last.value))
        self._part.add([sample])
        self._watts, self._lowest_w = sample.value, min(self._lowest_w, sample.value)
        self._last = sample

    def _begin(self, seconds: float, watts: float, info: SensorInfo) -> None:
        """Take in the time before the first sample: what it shows may have been going on for a period."""
        near_s = min(seconds, info.period_s)
        self._pauses = [(seconds - near_s, 0.0), (near_s, watts)]

    def _close(self, info: SensorInfo) -> None:
        """End a part without pauses."""
        joules, sigma_j = self._part.joules(info) or (0.0, 0.0)
        self._joules += joules
        self._variance_j2 += sigma_j**2
        self._part = RunningEnergy()

    def _pause(self, seconds: float, before_w: float) -> tuple[float, float]:
        """Joules of a pause and their standard uncertainty."""
        idle_w = max(0.0, self._lowest_w) if math.isfinite(self._lowest_w) else before_w
        above_w, busy_s = max(0.0, before_w - idle_w), min(seconds, _CALM_S)
        joules = idle_w * seconds + above_w * busy_s / 2.0
        return joules, _IDLE_SIGMA * idle_w * seconds + above_w * busy_s / math.sqrt(12.0)


# --- A meter of one sampler, and its recordings.

_HISTORY_WINDOWS = 2.0  # averaging windows of samples that are kept from before a recording
_SILENT = 4.0  # clock intervals without a sample, after which the clock is read all the same
_LOG = logging.getLogger(__name__)


class SamplingMeter:
    """Implements ``tuner.power.base.Meter`` over any power sampler, on the clock of the device.

    A sensor that must be polled is polled by a thread of the recording; one that keeps its own history is
    asked once when the recording ends, which is also how a simulated device's virtual time is served.

    Args:
        sampler: source of fresh samples; closed with the meter.
        clocks: where clock and throttle reasons are read, or None; never asked to set anything.
        now: the clock samples are stamped with, in seconds.
        clock_interval_s: time between clock readings of a polling recording.
        beside: a meter over another reading of the same power, which that of a window is held against; closed
            with this one. None where there is none.
    """

    def __init__(
        self,
        sampler: PowerSampler,
        clocks: ClockControl | None,
        now: Callable[[], float],
        *,
        clock_interval_s: float = 0.05,
        beside: "SamplingMeter | None" = None,
    ) -> None:
        self._beside = beside
        self._sampler = sampler
        self._clocks = clocks
        self._now = now
        self._clock_interval_s = clock_interval_s
        self._collecting: tuple[threading.Event, threading.Thread] | None = None
        self._history = SensorHistory()
        self._spent = SpentTotal(now())

    @property
    def info(self) -> SensorInfo:
        """The reading in use."""
        return self._sampler.info

    @contextmanager
    def recording(self) -> Iterator["SampledRecording"]:
        """Collect samples while the block runs; a sensor that fails ends the collecting, not the block."""
        with nullcontext() if self._beside is None else self._beside.recording() as beside:
            yield from self._recorded(beside)

    def _recorded(self, beside: "SampledRecording | None") -> Iterator["SampledRecording"]:
        recording = SampledRecording(
            self._sampler, self._clocks, self._now, self._history, self._spent, beside=beside
        )
        recording.begin()
        stop = threading.Event()
        thread = threading.Thread(
            target=recording.collect, args=(stop, self._clock_interval_s), name="tuner-meter", daemon=True
        )
        self._collecting = stop, thread
        try:
            if self.info.poll_interval_s > 0:
                thread.start()
            yield recording
        finally:
            self._halt()
            recording.end()

    def spent(self) -> SpentEnergy | None:
        """See ``Meter.spent``: at the end, as it takes the samples that a recording would begin with."""
        with contextlib.suppress(PowerError):
            self._spent.add(self._sampler.poll(), self.info)
        return self._spent.spent(self._now(), self.info)

    def close(self) -> None:
        """Release the sensor."""
        self._halt()  # a signal may have come between
        self._sampler.close()
        if self._beside is not None:
            self._beside.close()

    def _halt(self) -> None:
        """End the collecting of the latest recording: it must not outlive the sensor."""
        if self._collecting is not None:
            stop, thread = self._collecting
            stop.set()
            if thread.is_alive():
                thread.join()


class SampledRecording:
    """Implements ``tuner.power.base.Recording``; made by ``SamplingMeter.recording``.

    Attributes:
        problem: see ``Recording.problem``.
        failure: reason that the sensor stopped answering; empty if it did not.
    """

    def __init__(
        self,
        sampler: PowerSampler,
        clocks: ClockControl | None,
        now: Callable[[], float],
        history: SensorHistory | None = None,
        spent: SpentTotal | None = None,
        *,
        beside: "SampledRecording | None" = None,
    ) -> None:
        self._beside = beside
        self._sampler = sampler
        self._history = history or SensorHistory()
        self._clocks = clocks
        self._now = now
        self._spent = spent
        self._samples: list[Sample] = []
        self._clock_readings: list[tuple[float, ClockReading]] = []
        self.failure = ""
        self.problem = ""
        self._start_s = self._end_s = now()

    def begin(self) -> None:
        """Take what the sensor held before.

        Its last sample stays, as the edge the recording starts from, and of running means two windows, from
        which the power before is known.
        """
        self._poll()
        self._start_s = self._now()
        kept_s = self._start_s - _HISTORY_WINDOWS * self._sampler.info.response.window_s
        older = next((i for i, s in enumerate(self._samples) if s.time_s >= kept_s), len(self._samples))
        del self._samples[: min(older, max(len(self._samples) - 1, 0))]

    def collect(self, stop: threading.Event, clock_interval_s: float) -> None:
        """Poll sensor and clock until told to stop, or until the sensor fails."""
        pause_s = min(self._sampler.info.poll_interval_s, clock_interval_s)
        clock_due_s = self._now()
        while not self.failure:
            fresh = self._poll()
            late_s = self._now() - clock_due_s
            # Right after a sample no other is near, so that reading the clock then delays none; a sensor that
            # has fallen silent is not waited for.
            if (fresh and late_s >= 0) or late_s > _SILENT * clock_interval_s:
                self._read_clock()
                clock_due_s = self._now() + clock_interval_s
            if stop.wait(max(pause_s, self._sampler.due_s - self._now())):
                return

    def end(self) -> None:
        """Take what came last."""
        self._poll()
        self._read_clock()
        self._end_s = self._now()

    def reading(self, start_s: float, end_s: float, round_s: float = 0.0) -> PowerReading | None:
        """See ``Recording.reading``."""
        info = self._sampler.info
        if self.failure:
            raise PowerError(f"{info.name} stopped answering: {self.failure}")
        trace, notes = screened(self._samples, info)
        try:
            mean = mean_power(
                trace,
                start_s,
                end_s,
                info,
                self._history,
                round_s=round_s,
                beside=lambda begin_s, finish_s: self._shown_beside(begin_s, finish_s, round_s),
            )
        except PowerError as error:
            self.problem = "; ".join([str(error), *notes])
            return None
        self.problem = ""
        return replace(mean, notes=(*mean.notes, *notes))

    def _shown_beside(self, start_s: float, end_s: float, round_s: float) -> PowerReading | None:
        """Mean power by the reading beside; None where there is none, or where it shows too little."""
        with contextlib.suppress(PowerError):  # one that has failed tells nothing against this one
            return None if self._beside is None else self._beside.reading(start_s, end_s, round_s)
        return None

    def clock(self, start_s: float, end_s: float) -> ClockReading:
        """Median clock, all throttle reasons, lowest power limit and mean temperature between two times."""
        readings = [reading for time_s, reading in self._clock_readings if start_s <= time_s <= end_s]
        rates = [reading.mhz for reading in readings if reading.mhz is not None]
        reasons = sorted({reason for reading in readings for reason in reading.throttle_reasons})
        limits_w = [(r.power_limit_w, r.limit_scope) for r in readings if r.power_limit_w is not None]
        limit_w, limit_scope = min(limits_w, default=(None, "gpu"))
        warm = [reading.temperature_c for reading in readings if reading.temperature_c is not None]
        return ClockReading(
            statistics.median(rates) if rates else None,
            tuple(reasons),
            limit_w,
            limit_scope,
            temperature_c=statistics.fmean(warm) if warm else None,
        )

    def joules(self) -> float:
        """Energy of the whole recording, best estimate; 0.0 without samples."""
        info = self._sampler.info
        return total_joules(screened(self._samples, info)[0], self._end_s - self._start_s, info)

    def samples(self) -> list[Sample]:
        """Every fresh sample of the recording as the sensor gave it, oldest first."""
        return list(self._samples)

    def _poll(self) -> bool:
        """Add fresh samples; False when there were none."""
        if self.failure:
            return False
        try:
            fresh = self._sampler.poll()
        except PowerError as error:
            self.failure = str(error)
            return False
        self._samples += fresh
        if self._spent is not None:
            self._spent.add(fresh, self._sampler.info)
        return bool(fresh)

    def _read_clock(self) -> None:
        if self._clocks is None:
            return
        try:
            reading = self._clocks.read()
        except ClockError as error:
            self._clocks = None
            _LOG.warning("the GPU clock cannot be read any more: %s", error)
            return
        self._clock_readings.append((self._now(), reading))


# --- A sum of meters: the power of what several sensors see apart, such as a GPU and its host's processors.


class SummedMeter:
    """Implements ``tuner.power.base.Meter`` over several meters that record at the same time.

    Args:
        meters: of different things; the first one's rhythm and clock count. They are closed with the sum.
    """

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = tuple(meters)

    @property
    def info(self) -> SensorInfo:
        """The first reading, under the names and scopes of all, as late as the latest of them."""
        infos = [meter.info for meter in self._meters]
        first = infos[0]
        delay_s = max(info.response.delay_s for info in infos)
        return replace(
            first,
            name="+".join(info.name for info in infos),
            scope="+".join(info.scope for info in infos),
            period_s=max(info.period_s for info in infos),
            response=replace(first.response, delay_s=delay_s),
        )

    @contextmanager
    def recording(self) -> Iterator["SummedRecording"]:
        """Collect the samples of all while the block runs."""
        with ExitStack() as stack:
            yield SummedRecording([stack.enter_context(meter.recording()) for meter in self._meters])

    def spent(self) -> SpentEnergy | None:
        """The sum of what all have spent since they were opened; None where one does not tell."""
        parts = [meter.spent() for meter in self._meters]
        answered = [part for part in parts if part is not None]
        if len(answered) < len(parts):
            return None
        return SpentEnergy(
            joules=math.fsum(part.joules for part in answered),
            sigma_j=math.hypot(*(part.sigma_j for part in answered)),
            unseen_j=math.fsum(part.unseen_j for part in answered),
            unseen_sigma_j=math.hypot(*(part.unseen_sigma_j for part in answered)),
            unseen_s=max(part.unseen_s for part in answered),
        )

    def close(self) -> None:
        """Release all sensors."""
        with ExitStack() as stack:
            for meter in self._meters:
                stack.callback(meter.close)


class SummedRecording:
    """Implements ``tuner.power.base.Recording``; made by ``SummedMeter.recording``."""

    def __init__(self, recordings: Sequence[Recording]) -> None:
        self._recordings = tuple(recordings)

    @property
    def problem(self) -> str:
        """Reasons that the latest ``reading`` was None; empty if it was not."""
        return "; ".join(recording.problem for recording in self._recordings if recording.problem)

    def reading(self, start_s: float, end_s: float, round_s: float = 0.0) -> PowerReading | None:
        """The sum of the mean powers between two times; None when one sensor gave too little.

        Sensors err independently: variances add, and degrees of freedom are those of Welch and Satterthwaite.
        See ``Recording.reading``.
        """
        parts = [recording.reading(start_s, end_s, round_s) for recording in self._recordings]
        answered = tuple(part for part in parts if part is not None)
        if len(answered) < len(parts):
            return None
        uncertainty_w, degrees = expanded(contracted(part.uncertainty_w, part.degrees) for part in answered)
        return PowerReading(
            watts=math.fsum(part.watts for part in answered),
            uncertainty_w=uncertainty_w,
            sensor="+".join(part.sensor for part in answered),
            scope="+".join(part.scope for part in answered),
            notes=tuple(note for part in answered for note in part.notes),
            degrees=degrees,
            parts=answered,
        )

    def clock(self, start_s: float, end_s: float) -> ClockReading:
        """Of the first recording: median clock and all throttle reasons between two times."""
        return self._recordings[0].clock(start_s, end_s)

    def joules(self) -> float:
        """Energy of the whole recording, of all sensors; 0.0 without samples."""
        return math.fsum(recording.joules() for recording in self._recordings)

    def samples(self) -> Sequence[Sample]:
        """Every fresh sample of the first sensor; those of the others are their own."""
        return self._recordings[0].samples()
