"""A recorded trace as a power sensor, at the pace of the recording."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from tuner.interfaces.power import Reading, Response, Sample, SensorInfo
from tuner.model.errors import PowerError, SensorUnavailableError

from .recorded import TraceFile

NAME = "replay"
_LATE = 4.0  # periods without a sample, after which a trace that has no more is at its end
_LOOKS = 4.0  # per period, where nobody knows when the next sample is due


def readings(
    gpu: str | int,  # noqa: ARG001 - a trace has its own
    *,
    responses: Callable[[str], Response | None],
    now: Callable[[], float] = time.monotonic,
    file: str | Path | None = None,
) -> list[Reading]:
    """The reading of a trace file, opened when it is read.

    Args:
        gpu: not used.
        responses: response to use instead of the recorded one, by the name ``replay``.
        now: clock of the samples, in seconds.
        file: the trace; None where nobody named one. Opening a file that is none raises an InputError.
    """
    return [Reading(NAME, partial(_open, file, responses, now))]


class ReplaySampler:
    """Implements ``tuner.interfaces.power.PowerSampler``: a trace whose first sample is due now.

    Args:
        trace: what was recorded.
        now: clock of the samples, in seconds.
        response: instead of the recorded one.

    Raises:
        SensorUnavailableError: the trace holds no samples.
    """

    def __init__(self, trace: TraceFile, now: Callable[[], float], response: Response | None = None) -> None:
        if not trace.samples:
            raise SensorUnavailableError(f"the trace of {trace.info.name} holds no samples")
        self._samples = trace.samples
        self._now = now
        self._shift_s = now() - trace.samples[0].time_s
        self._next = 0
        period_s = trace.info.period_s
        self._end_s = max(sample.time_s for sample in trace.samples) + self._shift_s + _LATE * period_s
        self._info = replace(
            trace.info,
            name=f"{NAME}:{trace.info.name}",
            poll_interval_s=period_s / _LOOKS,
            response=response or trace.info.response,
        )

    @property
    def info(self) -> SensorInfo:
        """What was known of the recorded reading, under a name that says that it is a recorded one."""
        return self._info

    @property
    def due_s(self) -> float:
        """When the next sample comes, or when the end of the trace will be told."""
        if self._next < len(self._samples):
            return self._samples[self._next].time_s + self._shift_s
        return self._end_s

    def poll(self) -> list[Sample]:
        """The samples whose time has come since the last call, in the order they were recorded.

        Raises:
            PowerError: the trace has ended, and its last samples were told before.
        """
        now_s = self._now()
        first = self._next
        while self._next < len(self._samples) and self.due_s <= now_s:
            self._next += 1
        if first == len(self._samples) and now_s > self._end_s:
            raise PowerError(f"{self._info.name}: the trace has ended")
        return [replace(s, time_s=s.time_s + self._shift_s) for s in self._samples[first : self._next]]

    def close(self) -> None:
        """Nothing to release."""


def _open(
    file: str | Path | None, responses: Callable[[str], Response | None], now: Callable[[], float]
) -> ReplaySampler:
    if file is None:
        raise SensorUnavailableError("no trace file was named: --sensor replay:FILE")
    trace = TraceFile.read(file)
    try:
        return ReplaySampler(trace, now, responses(NAME))
    except SensorUnavailableError as error:
        raise SensorUnavailableError(f"{file}: {error}") from error
