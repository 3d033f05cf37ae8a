"""Calibration: play a known load on a GPU, watch its power readings side by side, identify their models."""

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from tuner.interfaces import ClockControl, LoadSource, PowerSampler, Sample

from ..energy.meter import SampledRecording, SamplingMeter
from ..energy.samples import SampleSeries
from .identify import Identified, identify
from .schedule import Burst, rhythm, schedule

SECONDS = 60.0
_FEW = 8  # samples that give a period
_LOG = logging.getLogger(__name__)

Played = list[tuple[float, float]]
Progress = Callable[[float, float], None]
"""Called with (seconds done, seconds in all)."""


def calibrate(
    load: LoadSource,
    samplers: Sequence[PowerSampler],
    *,
    clocks: ClockControl | None = None,
    seconds: float = SECONDS,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Identified]:
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

    def play(self, bursts: Sequence[Burst]) -> None:
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


def _told(found: Identified, failure: str) -> Identified:
    """The same, with why the reading stopped answering."""
    return replace(found, reason="; ".join(filter(None, (found.reason, failure))))
