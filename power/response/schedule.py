"""The load that calibrates sensors: steps, pulses of random lengths, and square waves.

Steps show time constants and windows of many periods, pulses around a reading's own period show delays and
windows shorter than it, and square waves of exactly its period show whether it aliases. No two pulses but
those of a square wave are alike, so that edges fall everywhere between two samples.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

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
class Burst:
    """Pulses that are played in one call, as (busy, idle) seconds; ``square`` if they are one square wave."""

    pulses: tuple[tuple[float, float], ...]
    square: bool = False

    @property
    def duration_s(self) -> float:
        """Nominal length."""
        return sum(busy_s + idle_s for busy_s, idle_s in self.pulses)


def rhythm(seconds: float, rng: np.random.Generator) -> list[Burst]:
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


def schedule(periods_s: Sequence[float], seconds: float, rng: np.random.Generator) -> list[Burst]:
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


def _squares(period_s: float, seconds: float, rng: np.random.Generator) -> list[Burst]:
    """Square waves of a period, busy for half of it; none where they would take too long."""
    fewest, most = _SQUARE_PERIODS
    count = min(most, int(seconds / _SQUARE_BLOCKS / period_s) - 1)
    if count < fewest:
        return []
    half_s = period_s / 2.0
    bursts = []
    for pause in rng.uniform(0.5, 1.5, _SQUARE_BLOCKS):
        wave = [(half_s, half_s)] * count
        bursts += [Burst(tuple(wave), square=True), Burst(((_LEAST_S, float(pause) * period_s),))]
    return bursts


def _chunked(pulses: Iterable[tuple[float, float]]) -> Iterable[Burst]:
    """Bursts of at least about a second."""
    chunk: list[tuple[float, float]] = []
    for pulse in pulses:
        chunk.append(pulse)
        if sum(map(sum, chunk)) >= _CHUNK_S:
            yield Burst(tuple(chunk))
            chunk = []
    if chunk:
        yield Burst(tuple(chunk))
