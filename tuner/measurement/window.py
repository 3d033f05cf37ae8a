"""Measurement windows: how long one must be, and running plans in one while power and clock are recorded."""

import math
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from tuner.devices.base import Device, RunRecord
from tuner.measurement.settle import SettingLock
from tuner.model.errors import ClockError, PowerError
from tuner.model.objective import COVERAGE
from tuner.model.options import BACK_TO_BACK, SINGLE, SearchOptions
from tuner.model.plan import Plan
from tuner.model.trial import (
    Energy,
    Flag,
    FlagKind,
    Measurement,
    Status,
    mean_powers,
    series_of,
)
from tuner.power.base import ClockReading, Meter, PowerReading, Recording, SensorInfo

MOST_S = 10.0
"""The longest window that is chosen, however precise joules are to be."""

AT_LIMIT = 0.98
"""Of the power limit: a trial that draws as much may be held back in a longer window."""

_LEAST_S = 0.5  # a warm-up is a sixth of its window, and shorter ones would not let power settle
_TIME_S = 0.015  # without a sensor: on an H200 twelve contenders scattered no more than in 30 ms
_TICK_SIGMA = 0.025  # of a counter's period: how well a tick is dated by polling, an H200's to 0.019
_SAMPLE_SIGMA = 0.01  # of power: noise of one sample, more than any board known here shows
_TICKS = 3.4  # periods of a counter: with the warm-up before them they hold four ticks, and so a rhythm
_SAMPLES = 8  # of fewer a scatter is hardly known
_SPARE = 1.25  # of a window's length: the next may be a little less sure
_RECENT = 4  # windows that tell how long the next must be

_BRIEF_PRECISION = 0.05  # of joules that only have to tell a trial that is clearly worse
_BRIEF_LEAST_S = 0.2

_TWO_SAMPLES = 2.5  # periods: windows end up to a tenth short, and samples come late
_SYNC_S = 1e-4  # begin and end of a window are seen by the host so late, together
_UNEVEN = 0.01  # joules are of the mean round, times are medians: where these differ by more, it is told
_ABSURD_W = 1e6  # no board draws as much
_MUTE = 3  # windows in a row that a sensor did not answer for, before it counts as lost


def least_window_s(info: SensorInfo) -> float:
    """The shortest window that always holds the two samples without which it has no joules; 0 for a counter.

    A counter's ticks may come more often than is expected of them.
    """
    if info.kind == "counter":
        return 0.0
    return _TWO_SAMPLES * info.period_s


def suggested_window_s(
    info: SensorInfo | None,
    precision: float = SearchOptions.energy_precision,
    least_s: float = _LEAST_S,
) -> float:
    """The shortest window whose joules this sensor should give to ``precision``; 15 ms without a sensor.

    For an uncertainty u of precision / 1.96, a sample noise r and a time dt between samples:

    - counter: two ticks dated to s make ``u = sqrt(2) s / T``, and one period is lost at the ends; any window
      holds three ticks;
    - lag: ``u^2 = r^2 (dt / T + 2 (C / T)^2)``;
    - means: ``u = r sqrt(dt / T)``. Of running means only those inside count, and no window is shorter than
      two of theirs.

    Args:
        info: the reading in use; None where only time is measured.
        precision: half-width of the 95 % interval, relative to the joules.
        least_s: no window for joules is shorter.
    """
    if info is None:
        return _TIME_S
    sigma = precision / COVERAGE
    period_s, response = info.period_s, info.response
    if info.kind == "counter":
        needed_s = period_s * max(_TICKS, 1.0 + math.sqrt(2.0) * _TICK_SIGMA / sigma)
    else:
        ratio = (_SAMPLE_SIGMA / sigma) ** 2
        half = ratio * period_s / 2.0
        needed_s = half + math.sqrt(half**2 + 2.0 * ratio * response.capacitance_s**2)
        needed_s = max(needed_s, _SAMPLES * period_s) + response.window_s
        needed_s = max(needed_s, 2.0 * response.window_s)
    return min(max(needed_s, least_s), MOST_S)


class JouleWindows:
    """Length of windows for joules: as short as the sensor has shown to be enough in this run.

    The kind of a sensor tells which window surely reaches a precision. Most sensors are better than that: by
    what a window states of itself the next ones are as long as it would have had to be. One that states less
    is followed by one of full length.

    Args:
        info: the reading in use; None where only time is measured.
        precision: wanted half-width of the 95 % interval, relative to the joules.
        full_s: length of a full window.
    """

    def __init__(self, info: SensorInfo | None, precision: float, full_s: float) -> None:
        self._precision = precision
        self._full_s = full_s
        self._least_s = full_s
        if info is not None:
            self._least_s = min(full_s, suggested_window_s(info, _BRIEF_PRECISION, _BRIEF_LEAST_S))
        self._needed_s: deque[float] = deque(maxlen=_RECENT)

    @property
    def short_s(self) -> float:
        """Length of a window that should be enough; that of a full one where no shorter one is."""
        return min(max(self._least_s, *self._needed_s, 0.0), self._full_s)

    @property
    def brief_s(self) -> float:
        """Length of a window before a full one: where none is enough, it tells who is clearly worse."""
        return self.short_s if self.short_s < self._full_s else self._least_s

    def learn(self, measurement: Measurement) -> None:
        """Take in the last window of a trial.

        One at the power limit scatters by what the GPU does there, and where sensors differ none is sure.
        """
        tells = not measurement.at_power_limit and FlagKind.SENSORS_DIFFER not in measurement.flag_kinds
        if tells and math.isfinite(share := self._share(measurement.energy)):
            self._needed_s.append(_SPARE * measurement.window_s * share)

    def suffices(self, measurement: Measurement) -> bool:
        """True for joules that no full window need follow; at the power limit only long windows tell.

        They are as sure as wanted, or of rounds so long that their window was a full one.
        """
        share = self._share(measurement.energy)
        if FlagKind.SENSORS_DIFFER in measurement.flag_kinds:
            share = 0.0  # a longer one is no surer
        full = measurement.window_s >= self._full_s and math.isfinite(share)
        return not measurement.at_power_limit and (share <= 1.0 or full)

    def _share(self, energy: Energy | None) -> float:
        """The relative interval that a window states, by the wanted one; infinity where it has no joules."""
        if energy is None or energy.joules <= 0:
            return math.inf
        return COVERAGE * energy.uncertainty_j / energy.joules / self._precision


def recording_of(meter: Meter | None) -> AbstractContextManager[Recording | None]:
    """A recording of the meter; None where there is none."""
    return nullcontext() if meter is None else meter.recording()


class WindowRunner:
    """Runs plans for one window after another.

    Args:
        device: where they run.
        meter: for joules; None measures time only.
        setting: the clock that it holds is what the clock seen is held against.
        needs_energy: see ``TrialMeasurer``.
        timing: see ``TrialMeasurer``.

    Attributes:
        total_s: length of all windows so far.
    """

    def __init__(
        self,
        device: Device,
        meter: Meter | None,
        setting: SettingLock,
        *,
        needs_energy: bool = False,
        timing: str = BACK_TO_BACK,
    ) -> None:
        self._device = device
        self._meter = meter
        self._setting = setting
        self._needs_energy = needs_energy
        self._timing = timing
        self._mute = 0
        self.total_s = 0.0

    def run(
        self, plans: Sequence[Plan], window_s: float, *, joules: bool = True, timing: str = ""
    ) -> Measurement:
        """Measure plans together in a window of about ``window_s`` seconds.

        Args:
            plans: what is run.
            window_s: length of the window.
            joules: False to measure time only, though there is a meter.
            timing: another one than that of all windows; empty for that.

        Raises:
            PowerError: joules are needed, and the sensor has not answered several times in a row.
        """
        with recording_of(self._meter if joules else None) as recording:
            single = (timing or self._timing) == SINGLE
            record = (self._device.run_single if single else self._device.run)(plans, window_s)
            if recording is None:
                try:
                    clock = self._setting.read()  # right behind a window that no meter has watched
                except ClockError:
                    clock = ClockReading(None)
            elif self._meter is not None and self._meter.info.response.delay_s > 0:
                # a sensor that is late has not shown the end of the window yet
                self._device.sleep(self._meter.info.response.delay_s)
        length_s = record.end_s - record.start_s
        self.total_s += length_s
        results = record.results
        if len(results) > 1 and all(result.status is not Status.OK for result in results):
            alone = "each workload passed its check alone"
            results = tuple(replace(result, detail=f"{result.detail} ({alone})") for result in results)
        measurement = Measurement(
            results=results,
            makespan_s=record.makespan_s,
            makespan_spread_s=record.makespan_spread_s,
            makespan_uncertainty_s=record.makespan_uncertainty_s,
            rounds=record.rounds,
            window_s=length_s,
            flags=(*record.flags, *(() if single else _unsteady(record))),
            modelled=self._device.identity.modelled,
        )
        if recording is None:
            flags = (*measurement.flags, *self._setting.flags(clock)) if measurement.ok else measurement.flags
            return replace(measurement, clock_mhz=clock.mhz, temperature_c=clock.temperature_c, flags=flags)
        measurement = replace(measurement, energy_total_j=recording.joules())
        return self._with_power(measurement, record, recording) if measurement.ok else measurement

    def _with_power(self, measurement: Measurement, record: RunRecord, recording: Recording) -> Measurement:
        clock = recording.clock(record.start_s, record.end_s)
        round_s = measurement.window_s / record.rounds if record.rounds else 0.0
        reading, why = self._read(recording, record, round_s)
        notes = [Flag(FlagKind.NO_ENERGY, why)] if reading is None else map(Flag.parse, reading.notes)
        energy = None
        if reading is not None and record.rounds:
            energy = Energy(
                joules=reading.watts * round_s,
                uncertainty_j=reading.uncertainty_w * round_s,
                watts=reading.watts,
                sensor=reading.sensor,
                scope=reading.scope,
                degrees=reading.degrees,
            )
        flags = (*measurement.flags, *self._setting.flags(clock), *notes, *_at_limit(reading, clock))
        return replace(
            measurement,
            energy=energy,
            clock_mhz=clock.mhz,
            temperature_c=clock.temperature_c,
            flags=flags,
            power=self._series(recording, record),
        )

    def _series(self, recording: Recording, record: RunRecord) -> tuple[str, ...]:
        """Power over the window as text; empty without samples."""
        points = [(sample.time_s, sample.value) for sample in recording.samples()]
        if self._meter is not None and self._meter.info.kind == "counter":
            points = mean_powers(points)
        length_s = record.end_s - record.start_s
        near = [(time_s - record.start_s, watts) for time_s, watts in points if 0 <= watts < _ABSURD_W]
        packed = series_of([point for point in near if abs(point[0]) <= 2 * length_s]).packed()
        return (packed,) if packed else ()

    def _read(
        self, recording: Recording, record: RunRecord, round_s: float
    ) -> tuple[PowerReading | None, str]:
        """Mean power of the window, or why there is none."""
        try:
            reading = recording.reading(record.start_s, record.end_s, round_s)
        except PowerError as error:
            self._mute += 1
            if self._needs_energy and self._mute >= _MUTE:
                raise PowerError(f"no energy for {_MUTE} windows in a row: {error}") from error
            return None, str(error)
        self._mute = 0
        return reading, recording.problem


def _at_limit(reading: PowerReading | None, clock: ClockReading) -> tuple[Flag, ...]:
    """A flag where mean power is at the limit, or above it: a GPU may be over it for a while, unthrottled."""
    limit_w = clock.power_limit_w
    if reading is None or limit_w is None:
        return ()
    limited = [part for part in reading.parts or (reading,) if part.scope == clock.limit_scope]
    if not limited or limited[0].watts < AT_LIMIT * limit_w:
        return ()
    return (Flag(FlagKind.POWER_LIMIT, f"{limited[0].watts:.0f} W of {limit_w:.0f} W"),)


def _unsteady(record: RunRecord) -> tuple[Flag, ...]:
    if not record.rounds or not record.makespan_s:
        return ()
    excess = (record.end_s - record.start_s) / record.rounds / record.makespan_s - 1
    if abs(excess) <= max(_UNEVEN, _SYNC_S / (record.end_s - record.start_s)):
        return ()
    return (Flag(FlagKind.UNSTEADY, f"mean round {excess:+.1%} from the median"),)
