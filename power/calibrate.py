"""Calibration: play a known load on a GPU, watch its power readings side by side, identify their models."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from tuner.interfaces import LoadSource, PowerSampler, Sample

from .fitting import Evidence
from .identify import Identified, identify
from .meter import SamplingMeter
from .schedule import Burst, rhythm, schedule

SECONDS = 60.0
_FEW = 8  # samples that give a period

Played = list[tuple[float, float]]
Progress = Callable[[float, float], None]
"""Called with (seconds done, seconds in all)."""


def calibrate(
    load: LoadSource,
    samplers: Sequence[PowerSampler],
    *,
    seconds: float = SECONDS,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Identified]:
    """Identify the response model of each reading, in the order of the samplers.

    The GPU must have nothing else to do. Its clocks are left as they are. The first part of the load measures
    how often each reading is updated, the rest is made for the periods found.

    Args:
        load: the device whose power the samplers read; its clock stamps the samples.
        samplers: opened readings; they stay open.
        seconds: about how long the load is played.
        seed: of the random lengths of pulses.
        progress: called after each part of the load.

    Raises:
        DeviceError: the load could not be run.
    """
    rng = np.random.default_rng(seed)
    player = _Player(load, seconds, progress)
    first = rhythm(seconds, rng)
    heard = _recorded(load, samplers, lambda: player.play(first))
    periods_s = [_period_s(sampler, samples) for sampler, samples in zip(samplers, heard, strict=True)]
    rest = schedule(periods_s, seconds, rng)
    shown = _recorded(load, samplers, lambda: player.play(rest))
    return [
        identify(samples, sampler.info, player.busy, player.squares)
        for sampler, samples in zip(samplers, shown, strict=True)
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
    load: LoadSource, samplers: Sequence[PowerSampler], play: Callable[[], None]
) -> list[list[Sample]]:
    """Samples of all readings while the load is played."""
    with ExitStack() as stack:
        recordings = [
            stack.enter_context(SamplingMeter(sampler, None, load.now_s).recording()) for sampler in samplers
        ]
        play()
    return [list(recording.samples()) for recording in recordings]


def _period_s(sampler: PowerSampler, samples: Sequence[Sample]) -> float:
    """Median time between samples; of a reading too slow for the rhythm what it says itself."""
    if len(samples) < _FEW:
        return sampler.info.period_s
    return Evidence.of(samples, counter=False, busy=[(0.0, 0.0)]).period_s
