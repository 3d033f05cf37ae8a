"""Power sensor of a simulated device."""

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from tuner.model.errors import InputError

from ..base import PowerSource, Response, Sample, SensorInfo
from ..response.models import Array

_HISTORY = 8192  # samples a sensor keeps between two polls, more than one recording spans
_SETTLED = 20.0  # a first-order lag has forgotten (e**-20) what was so many time constants ago
_COUNTER_STEP_J = 0.001  # NVML counts millijoules
_FORGOTTEN = 1e-3  # of a correlated noise: what is left of older samples does not count
_SEES = 0.9  # of a period: a mean over less leaves out enough for a periodic load to read wrong


class SimulatedSampler:
    """Implements ``tuner.power.base.PowerSampler`` by looking at a ``PowerSource`` as a sensor would.

    Samples appear at multiples of the period on the source's clock. Their noise depends on seed and sample
    number alone, so that a resumed run sees what the interrupted one would have seen.

    Args:
        source: the truth.
        kind: ``counter`` counts joules, ``ring`` and ``stream`` show watts.
        name: of the reading, after ``simulated-``; the kind if not given.
        period_s: time between samples in seconds.
        capacitance_s: time constant of a first-order lag in seconds, 0 for none.
        window_s: length of the mean a sample is taken over in seconds, 0 for the present power; what it shows
            a counter takes for the power of all of its period.
        noise: relative standard deviation of a sample (of a counter: of one period's joules).
        seed: of the noise.
        correlation: of the noise of neighbouring samples, an AR(1) process; not for a counter.
        jitter_s: standard deviation of the time at which a sample is taken from the time it is dated to.
        scope: what the sensor sees.
        known_capacitance_s: the C to correct with, where it is not the true ``capacitance_s``.
        delay_s: age of the power that is shown, beyond lag and mean.
        response: what is known of it from a calibration; None for what one without error would find.

    Raises:
        InputError: the period is not positive, the delay is negative, the correlation is none, or a sensor is
            to have both a lag and a mean.
    """

    def __init__(
        self,
        source: PowerSource,
        kind: Literal["counter", "ring", "stream"] = "counter",
        *,
        name: str = "",
        period_s: float = 0.1,
        capacitance_s: float = 0.0,
        window_s: float = 0.0,
        noise: float = 0.0,
        seed: int = 0,
        correlation: float = 0.0,
        jitter_s: float = 0.0,
        scope: str = "gpu",
        known_capacitance_s: float | None = None,
        delay_s: float = 0.0,
        response: Response | None = None,
    ) -> None:
        if period_s <= 0:
            raise InputError(f"a sensor's period_s must be positive, not {period_s}")
        if capacitance_s > 0 and window_s > 0:
            raise InputError("a simulated sensor has a capacitance_s or a window_s, not both")
        if delay_s < 0:
            raise InputError(f"a sensor's delay_s cannot be negative: {delay_s}")
        if not 0.0 <= correlation < 1.0:
            raise InputError(f"the correlation of a sensor's noise is from 0 to below 1, not {correlation}")
        self._source = DelayedPower(source, delay_s) if delay_s else source
        self._kind = kind
        self._lag_s, self._window_s = capacitance_s, window_s
        self._noise, self._seed, self._correlation, self._jitter_s = noise, seed, correlation, jitter_s
        watts = kind != "counter"
        correction_s = capacitance_s if known_capacitance_s is None else known_capacitance_s
        self.info = SensorInfo(
            name=f"simulated-{name or kind}",
            kind=kind,
            scope=scope,
            period_s=period_s,
            resolution=0.0 if watts else _COUNTER_STEP_J,
            response=response
            or replace(_response(correction_s, window_s, period_s) if watts else Response(), delay_s=delay_s),
        )
        self._time_s = source.now_s()
        self._next = int(np.floor(self._time_s / period_s)) + 1
        self._joules = 0.0
        self._lagged_w = self._settle()

    @property
    def due_s(self) -> float:
        """Time before which ``poll`` finds nothing: a look costs nothing here."""
        return 0.0

    def poll(self) -> list[Sample]:
        """Samples since the last call, oldest first; of a long pause the last 8192."""
        now_s = self._source.now_s()
        pieces = np.array(self._source.power_segments(self._time_s - self._window_s), dtype=np.float64)
        pieces = pieces.reshape(-1, 3)
        last = int(np.floor(now_s / self.info.period_s))
        first = max(self._next, last - _HISTORY + 1)
        numbers = np.arange(first, last + 1)
        times = np.asarray(numbers * self.info.period_s, dtype=np.float64)
        numbers, times = numbers[times <= now_s], times[times <= now_s]
        values = self._values(pieces, self._taken_s(numbers, times, now_s), now_s)
        values += self._deviation(numbers, values)
        self._time_s = now_s
        self._next = first + len(numbers)
        return [Sample(float(t), float(v)) for t, v in zip(times, values, strict=True)]

    def close(self) -> None:
        """Nothing to release."""

    def _values(self, pieces: Array, times: Array, now_s: float) -> Array:
        """Noiseless readings at ``times``; moves the state of lag and counter on to ``now_s``."""
        if self._kind == "counter" and self._window_s == 0:
            knots, joules = _cumulated(pieces, self._time_s, now_s)
            values = self._joules + np.interp(times, knots, joules)
            self._joules += float(joules[-1])
            return np.round(values / _COUNTER_STEP_J) * _COUNTER_STEP_J
        if self._lag_s > 0:
            values, self._lagged_w = _lagged(pieces, times, self._lag_s, self._lagged_w)
            return values
        if self._window_s > 0:
            knots, joules = _cumulated(pieces, self._time_s - self._window_s, now_s)
            ends, starts = (np.interp(t, knots, joules) for t in (times, times - self._window_s))
            watts = (ends - starts) / self._window_s
            return watts if self._kind != "counter" else self._counted(watts)
        index = np.searchsorted(pieces[:, 1], times)  # a sample on an edge shows what was up to it
        return pieces[np.minimum(index, len(pieces) - 1), 2] if len(times) else np.empty(0)

    def _counted(self, watts: Array) -> Array:
        """Joules of a counter that takes what a window shows for the power of all of the period."""
        joules = self._joules + np.cumsum(watts * self.info.period_s)
        self._joules = float(joules[-1]) if len(joules) else self._joules
        return np.round(joules / _COUNTER_STEP_J) * _COUNTER_STEP_J

    def _taken_s(self, numbers: npt.NDArray[np.int_], times: Array, now_s: float) -> Array:
        """When the samples dated to ``times`` were taken; none later than now, none before the last poll."""
        if self._jitter_s == 0 or len(numbers) == 0:
            return times
        off_s = self._jitter_s * standard_normals(self._seed + 1, int(numbers[0]), len(numbers))
        return np.clip(times + off_s, self._time_s, now_s)

    def _deviation(self, numbers: npt.NDArray[np.int_], values: Array) -> Array:
        """Noise of the samples with these numbers, in the unit of the reading."""
        if self._noise == 0 or len(numbers) == 0:
            return np.zeros(len(values))
        if self._kind != "counter":
            return self._noise * values * self._normals(int(numbers[0]), len(numbers))
        step = np.diff(values, prepend=values[:1]) if len(values) > 1 else np.zeros(len(values))
        step[0] = step[1] if len(step) > 1 else 0.0
        noise = self._noise * step * standard_normals(self._seed, int(numbers[0]), len(numbers))
        return np.asarray(np.round(noise / _COUNTER_STEP_J) * _COUNTER_STEP_J)

    def _normals(self, first: int, count: int) -> Array:
        """Standard normal numbers, of an AR(1) process where the noise is correlated."""
        if self._correlation == 0:
            return standard_normals(self._seed, first, count)
        reach = math.ceil(math.log(_FORGOTTEN) / math.log(self._correlation))
        fresh = standard_normals(self._seed, first, count + reach)
        weights = self._correlation ** np.arange(reach + 1.0)
        return np.asarray(np.convolve(fresh, weights, "valid") / math.sqrt(float(weights @ weights)))

    def _settle(self) -> float:
        """Return the present output of a lagging sensor, from the power before now."""
        pieces = np.array(
            self._source.power_segments(self._time_s - _SETTLED * self._lag_s), dtype=np.float64
        ).reshape(-1, 3)
        if self._lag_s == 0 or len(pieces) == 0:
            return 0.0
        return _lagged(pieces, np.empty(0), self._lag_s, float(pieces[0, 2]))[1]


class DelayedPower:
    """A source as it was ``delay_s`` ago; implements ``PowerSource``."""

    def __init__(self, source: PowerSource, delay_s: float) -> None:
        self._source = source
        self._delay_s = delay_s

    def now_s(self) -> float:
        """Present time."""
        return self._source.now_s()

    def power_segments(self, since_s: float) -> list[tuple[float, float, float]]:
        """(start, end, watts) pieces from ``since_s`` to now, each ``delay_s`` after it was drawn."""
        now_s = self.now_s()
        late = [
            (start + self._delay_s, min(end + self._delay_s, now_s), watts)
            for start, end, watts in self._source.power_segments(since_s - self._delay_s)
        ]
        return [piece for piece in late if piece[0] < piece[1]]


def _response(capacitance_s: float, window_s: float, period_s: float) -> Response:
    """Return the response that a calibration without error would identify."""
    if capacitance_s > 0:
        return Response("lag", capacitance_s=capacitance_s)
    if window_s > period_s:
        return Response("ramp", window_s=window_s)
    if window_s > 0:
        return Response("boxcar", window_s=window_s, averages=window_s >= _SEES * period_s)
    return Response()


def standard_normals(seed: int, first: int, count: int) -> Array:
    """Independent standard normal numbers number ``first`` to ``first + count - 1`` of a seed's sequence.

    Each number takes one counter of a Philox generator (Box and Muller), so that any part of the sequence is
    had without what comes before.
    """
    generator = np.random.Philox(key=seed % 2**64)
    generator.advance(first)
    words = generator.random_raw(4 * count).reshape(count, 4)
    uniform = ((words[:, :2] >> np.uint64(11)) + np.uint64(1)) * 2.0**-53  # in (0, 1]
    normals = np.sqrt(-2.0 * np.log(uniform[:, 0])) * np.cos(2.0 * np.pi * uniform[:, 1])
    return np.asarray(normals, dtype=np.float64)


def _cumulated(pieces: Array, start_s: float, end_s: float) -> tuple[Array, Array]:
    """Times from ``start_s`` to ``end_s`` where power changes, and joules drawn since ``start_s`` there."""
    if len(pieces) == 0:
        return np.array([start_s, end_s]), np.zeros(2)
    knots = np.concatenate((pieces[:1, 0], pieces[:, 1]))
    joules = np.concatenate(([0.0], np.cumsum((pieces[:, 1] - pieces[:, 0]) * pieces[:, 2])))
    return knots, joules - np.interp(start_s, knots, joules)


def _lagged(pieces: Array, times: Array, lag_s: float, shown_w: float) -> tuple[Array, float]:
    """Readings of a first-order lag at ``times`` and at the end; exact for power constant in pieces."""
    starts, ends, watts = pieces.T
    before_w = [shown_w]  # each piece, and after the last one
    for to_w, decay in zip(watts.tolist(), np.exp((starts - ends) / lag_s).tolist(), strict=True):
        before_w.append(to_w + (before_w[-1] - to_w) * decay)
    # A sample on an edge shows what was up to it.
    at = np.minimum(np.searchsorted(ends, times), len(pieces) - 1)
    above_w = np.array(before_w)[at] - watts[at]
    return watts[at] + above_w * np.exp((starts[at] - times) / lag_s), before_w[-1]
