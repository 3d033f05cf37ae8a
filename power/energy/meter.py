"""Meter: polls a sampler while something runs, then answers for time windows."""

import contextlib
import logging
import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tuner.interfaces.power import ClockControl, ClockReading, PowerSampler, Sample, SensorInfo
from tuner.model.errors import ClockError, PowerError

from ..base import PowerReading, SpentEnergy
from .counters import SensorHistory
from .samples import screened
from .spent import SpentTotal
from .totals import total_joules
from .windows import mean_power

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
    """

    def __init__(
        self,
        sampler: PowerSampler,
        clocks: ClockControl | None,
        now: Callable[[], float],
        *,
        clock_interval_s: float = 0.05,
    ) -> None:
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
        recording = SampledRecording(self._sampler, self._clocks, self._now, self._history, self._spent)
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

    def _halt(self) -> None:
        """End the collecting of the latest recording: it must not outlive the sensor."""
        if self._collecting is not None:
            stop, thread = self._collecting
            stop.set()
            if thread.is_alive():
                thread.join()


class SampledRecording:
    """Implements ``tuner.power.base.Recording``; made by ``SamplingMeter.recording``."""

    def __init__(
        self,
        sampler: PowerSampler,
        clocks: ClockControl | None,
        now: Callable[[], float],
        history: SensorHistory | None = None,
        spent: SpentTotal | None = None,
    ) -> None:
        self._sampler = sampler
        self._history = history or SensorHistory()
        self._clocks = clocks
        self._now = now
        self._spent = spent
        self._samples: list[Sample] = []
        self._clock_readings: list[tuple[float, ClockReading]] = []
        self._failure = ""
        self._problem = ""
        self._start_s = self._end_s = now()

    @property
    def problem(self) -> str:
        """Why the latest ``reading`` was None; empty where it was not."""
        return self._problem

    @property
    def failure(self) -> str:
        """Why the sensor stopped answering; empty where it did not."""
        return self._failure

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
        while not self._failure:
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
        """Mean power between two times; None when the sensor gave too little, see ``problem``.

        Args:
            start_s: begin of the window.
            end_s: its end.
            round_s: period with which the load repeats in it; 0 where that is not known.

        Raises:
            PowerError: the sensor stopped answering while the recording was made.
        """
        info = self._sampler.info
        if self._failure:
            raise PowerError(f"{info.name} stopped answering: {self._failure}")
        trace, notes = screened(self._samples, info)
        try:
            mean = mean_power(trace, start_s, end_s, info, self._history, round_s=round_s)
        except PowerError as error:
            self._problem = "; ".join([str(error), *notes])
            return None
        self._problem = ""
        return PowerReading(
            watts=mean.watts,
            uncertainty_w=mean.uncertainty_w,
            sensor=f"{info.name} ({mean.method})" if mean.method else info.name,
            scope=info.scope,
            notes=(*mean.notes, *notes),
            degrees=mean.degrees,
        )

    def clock(self, start_s: float, end_s: float) -> ClockReading:
        """Median clock, all throttle reasons, lowest power limit and mean temperature between two times."""
        seen = [reading for time_s, reading in self._clock_readings if start_s <= time_s <= end_s]
        rates = [reading.mhz for reading in seen if reading.mhz is not None]
        reasons = sorted({reason for reading in seen for reason in reading.throttle_reasons})
        limits_w = [(one.power_limit_w, one.limit_scope) for one in seen if one.power_limit_w is not None]
        limit_w, limit_scope = min(limits_w, default=(None, "gpu"))
        warm = [reading.temperature_c for reading in seen if reading.temperature_c is not None]
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
        if self._failure:
            return False
        try:
            fresh = self._sampler.poll()
        except PowerError as error:
            self._failure = str(error)
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
