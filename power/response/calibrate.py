"""Calibration: plays a known load on a GPU, records its readings side by side, identifies their models.

The load consists of steps, pulses of random lengths, and square waves.
Steps show time constants and windows of many periods, pulses around a reading's own period show delays and
windows shorter than it, and square waves of exactly its period show whether it aliases. No two pulses but
those of a square wave are alike, so that edges fall everywhere between two samples.
"""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from tuner.devices.base import LoadSource
from tuner.interfaces.power import ClockControl, PowerSampler, Sample

from ..energy.meter import SampledRecording, SamplingMeter
from ..energy.samples import SampleSeries
from .identify import Identification, identify

SECONDS = 60.0
_FEW = 8  # samples that give a period
_LOG = logging.getLogger(__name__)

Played = list[tuple[float, float]]
Progress = Callable[[float, float], None]
"""Called with (seconds done, seconds in all)."""
_RHYTHM, _STEPS, _DITHERED, _SQUARES = 0.05, 0.5, 0.25, 0.2  # shares of the time
_SETTLE_S = 0.5  # idle at the start, for what ran before
_RHYTHM_PULSE_S = (0.005, 0.015)  # short: a reading must change at each of its updates
_STEP_CYCLES = 4
_STEP_JITTER = 0.2
_SHORTEST, _LONGEST = 0.3, 3.0  # dithered pulses, in periods
_MOST = 400  # dithered pulses per period: more add nothing to a short one
_LEAST_S = 0.002  # shorter pulses are not what was asked for
_SAME = 1.05  # periods within this factor share their pulses
_SQUARE_BLOCKS = 4  # at random phases: one may be at a lucky one
_SQUARE_PERIODS = (6, 16)  # per block: fewer say little, of more a period known to 1 % drifts through
_CHUNK_S = 1.0  # played in one call, for progress and interruption


@dataclass(frozen=True)
class PulseTrain:
    """Pulses that are played in one call, as (busy, idle) seconds; ``square`` if they are one square wave."""

    pulses: tuple[tuple[float, float], ...]
    square: bool = False

    @property
    def duration_s(self) -> float:
        """Nominal length."""
        return sum(busy_s + idle_s for busy_s, idle_s in self.pulses)


def calibrate(
    load: LoadSource,
    samplers: Sequence[PowerSampler],
    *,
    clocks: ClockControl | None = None,
    seconds: float = SECONDS,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Identification]:
    """Identify the response model of each reading, in the order of the samplers.

    The GPU must have nothing else to do. Its clocks are left as they are; if they are held back meanwhile,
    which changes the power of the load, a warning says so. The first part of the load measures how often each
    reading is updated, the rest is made for the periods found.

    Args:
        load: the device whose power the samplers read; its clock stamps the samples.
        samplers: opened readings; they stay open.
        clocks: read for throttle reasons while the load is played, never set; None where there are none.
        seconds: about how long the load is played.
        seed: of the random lengths of pulses.
        progress: called after each part of the load.

    Raises:
        DeviceError: the load could not be run.
    """
    rng = np.random.default_rng(seed)
    player = _Player(load, seconds, progress)
    first = rhythm(seconds, rng)
    heard = _recorded(load, samplers, None, lambda: player.play(first))
    periods_s = [_period_s(sampler, one.samples()) for sampler, one in zip(samplers, heard, strict=True)]
    rest = schedule(periods_s, seconds, rng)
    shown = _recorded(load, samplers, clocks, lambda: player.play(rest))
    for reason in shown[0].clock(-math.inf, math.inf).throttle_reasons if shown else ():
        _LOG.warning("the GPU was held back under the load (%s), so that its power was not steady", reason)
    return [
        _told(identify(one.samples(), sampler.info, player.busy, player.squares), one.failure)
        for sampler, one in zip(samplers, shown, strict=True)
    ]


class _Player:
    """Plays bursts and remembers when the load was on, and when it was a square wave."""

    def __init__(self, load: LoadSource, seconds: float, progress: Progress | None) -> None:
        self.busy: Played = []
        self.squares: Played = []
        self._load = load
        self._seconds = seconds
        self._progress = progress
        self._done_s = 0.0

    def play(self, bursts: Sequence[PulseTrain]) -> None:
        """Play bursts one after the other."""
        for burst in bursts:
            played = self._load.pulse(burst.pulses)
            self.busy += played
            if burst.square:
                self.squares.append((played[0][0], played[-1][1] + burst.pulses[-1][1]))
            self._done_s += burst.duration_s
            if self._progress is not None:
                self._progress(self._done_s, max(self._seconds, self._done_s))


def _recorded(
    load: LoadSource,
    samplers: Sequence[PowerSampler],
    clocks: ClockControl | None,
    play: Callable[[], None],
) -> list[SampledRecording]:
    """What all readings showed while the load was played, and the first of them beside it of the clocks."""
    with ExitStack() as stack:
        recordings = []
        for number, sampler in enumerate(samplers):
            meter = SamplingMeter(sampler, None if number else clocks, load.now_s)
            recordings.append(stack.enter_context(meter.recording()))
        play()
    return recordings


def _period_s(sampler: PowerSampler, samples: Sequence[Sample]) -> float:
    """Median time between samples; of a reading too slow for the rhythm what it says itself."""
    times_s = SampleSeries.of(samples).times_s
    return float(np.median(np.diff(times_s))) if len(times_s) >= _FEW else sampler.info.period_s


def _told(found: Identification, failure: str) -> Identification:
    """The same, with why the reading stopped answering."""
    return replace(found, reason="; ".join(filter(None, (found.reason, failure))))


def rhythm(seconds: float, rng: np.random.Generator) -> list[PulseTrain]:
    """Short pulses under which every update of a reading shows, for finding its period.

    Args:
        seconds: length of the whole calibration.
        rng: draws the lengths of pulses.
    """
    pulses = [(_LEAST_S, _SETTLE_S)]
    left_s = _RHYTHM * seconds
    while left_s > 0:
        pulses.append((rng.uniform(*_RHYTHM_PULSE_S), rng.uniform(*_RHYTHM_PULSE_S)))
        left_s -= sum(pulses[-1])
    return list(_chunked(pulses))


def schedule(periods_s: Sequence[float], seconds: float, rng: np.random.Generator) -> list[PulseTrain]:
    """The load for readings of these periods; it takes about 95 % of ``seconds``, the rhythm took the rest.

    Args:
        periods_s: time between samples of each reading.
        seconds: length of the whole calibration.
        rng: draws the lengths of pulses.
    """
    groups = grouped(periods_s)
    step_s = _STEPS * seconds / (2 * _STEP_CYCLES)
    steps = rng.uniform(1.0 - _STEP_JITTER, 1.0 + _STEP_JITTER, (_STEP_CYCLES, 2)) * step_s
    bursts = list(_chunked((float(busy_s), float(idle_s)) for busy_s, idle_s in steps))
    for period_s in groups:
        bursts += _chunked(_dithered(period_s, _DITHERED * seconds / len(groups), rng))
    for period_s in groups:
        bursts += _squares(period_s, _SQUARES * seconds / len(groups), rng)
    return bursts


def grouped(periods_s: Sequence[float]) -> list[float]:
    """One period for each group of similar ones, shortest first."""
    groups: list[list[float]] = []
    for period_s in sorted(periods_s):
        if groups and period_s <= _SAME * groups[-1][0]:
            groups[-1].append(period_s)
        else:
            groups.append([period_s])
    return [float(np.median(group)) for group in groups]


def _dithered(period_s: float, seconds: float, rng: np.random.Generator) -> list[tuple[float, float]]:
    """Pulses of random lengths around a period."""
    pulses: list[tuple[float, float]] = []
    while seconds > 0 and len(pulses) < _MOST:
        lengths = np.exp(rng.uniform(np.log(_SHORTEST), np.log(_LONGEST), 2)) * period_s
        busy_s, idle_s = np.maximum(lengths, _LEAST_S).tolist()
        pulses.append((busy_s, idle_s))
        seconds -= busy_s + idle_s
    return pulses


def _squares(period_s: float, seconds: float, rng: np.random.Generator) -> list[PulseTrain]:
    """Square waves of a period, busy for half of it; none where they would take too long."""
    fewest, most = _SQUARE_PERIODS
    count = min(most, int(seconds / _SQUARE_BLOCKS / period_s) - 1)
    if count < fewest:
        return []
    half_s = period_s / 2.0
    bursts = []
    for pause in rng.uniform(0.5, 1.5, _SQUARE_BLOCKS):
        wave = [(half_s, half_s)] * count
        bursts += [PulseTrain(tuple(wave), square=True), PulseTrain(((_LEAST_S, float(pause) * period_s),))]
    return bursts


def _chunked(pulses: Iterable[tuple[float, float]]) -> Iterable[PulseTrain]:
    """Bursts of at least about a second."""
    chunk: list[tuple[float, float]] = []
    for pulse in pulses:
        chunk.append(pulse)
        if sum(map(sum, chunk)) >= _CHUNK_S:
            yield PulseTrain(tuple(chunk))
            chunk = []
    if chunk:
        yield PulseTrain(tuple(chunk))
