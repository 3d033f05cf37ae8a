"""Samples as a sensor gave them, without those that cannot be, and what a reader should know of that."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from tuner.interfaces import Sample, SensorInfo

from .ticks import Trace

LEAST_W = -2.0  # an INA238 without load has shown -0.4 W by its offset; no rail gives back more
MOST_W = 5000.0  # more than any module draws
_MOST_J = 1e15  # more than any counter has counted; its origin may be anything
_MOST_S = 1e12  # no clock of a host shows more
_GAP_PERIODS = 3.0  # a pause this long is told; single updates come late on every sensor
_DATES = 4.0  # standard uncertainties that a date may be off by


def screened(samples: Sequence[Sample], info: SensorInfo) -> tuple[Trace, tuple[str, ...]]:
    """The samples that can be, as a trace, and notes on the others.

    Left out are numbers that are none, samples that are not later than all before them, and power that no
    board draws or gives back. Of a counter that went back, or jumped, as when a driver was loaded anew, the
    longest part without that is kept.
    """
    notes = []
    least, most = (-_MOST_J, _MOST_J) if info.kind == "counter" else (LEAST_W, MOST_W)
    whole = [
        s
        for s in samples
        if least <= s.value <= most and abs(s.time_s) <= _MOST_S and 0.0 <= s.time_sigma_s <= _MOST_S
    ]
    if len(whole) < len(samples):
        notes.append(f"sensor-values: {len(samples) - len(whole)} of {len(samples)} samples cannot be")
    trace = Trace.of(whole)
    if len(trace) < len(whole):
        late = len(whole) - len(trace)
        notes.append(f"sensor-time: {late} of {len(whole)} samples are not later than the one before")
    if info.kind == "counter" and len(trace) > 1:
        kept = _unbroken(trace, info)
        if len(kept) < len(trace):
            notes.append("sensor-reset: the counter went back or jumped; only one side of that is used")
            trace = kept
    return trace, tuple(notes)


def gaps(trace: Trace, start_s: float, end_s: float, info: SensorInfo) -> Iterator[tuple[float, float]]:
    """(start, end) of each pause of more than three periods in a window, its ends included.

    Args:
        trace: samples, dated by the power they show.
        start_s: begin of the window.
        end_s: its end.
        info: the reading.
    """
    period_s = max(info.period_s, float(np.median(np.diff(trace.times_s))) if len(trace) > 1 else 0.0)
    inside = trace.between(start_s, end_s).times_s
    edges = np.concatenate(([start_s], inside, [end_s]))
    for begin, end in itertools.pairwise(edges):
        if end - begin > _GAP_PERIODS * period_s:
            yield float(begin), float(end)


def _unbroken(ticks: Trace, info: SensorInfo) -> Trace:
    """The longest part of a counter's ticks between which power was possible.

    A tick that was seen late leaves little time to the next, so a period and what the dates may be off by
    are allowed on top.
    """
    passed_s = np.diff(ticks.times_s)
    grown_j = np.diff(ticks.values)
    room_s = passed_s + info.period_s + _DATES * (ticks.time_sigmas_s[1:] + ticks.time_sigmas_s[:-1])
    impossible = (grown_j < LEAST_W * passed_s - info.resolution) | (grown_j > MOST_W * room_s)
    edges = [0, *(np.flatnonzero(impossible) + 1).tolist(), len(ticks)]
    begin, end = max(itertools.pairwise(edges), key=lambda part: part[1] - part[0])
    return ticks.at(list(range(begin, end)))
