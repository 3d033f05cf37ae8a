"""The driver's ring of power samples."""

from collections.abc import Callable

from tuner.interfaces import Sample

from .changes import Gaps
from .nvml_library import NvmlGpu
from .nvml_reads import MILLI, UNION, Silence

_MICRO = 1e-6  # samples are stamped in microseconds
_ORIGIN_S = 10.0  # no other origin comes so near the present time by chance
_SILENT_S = 1.0  # without a sample: the clock of the stamps may have been set back
_SLACK_S = 0.05  # a stamp may be so far ahead of the clocks that were read after it


class RingSource:
    """Fresh samples out of the driver's ring of power samples, on the meter's clock.

    The driver stamps with the host's real-time clock, which is mapped anew at every call, so that a clock
    that is stepped moves no later sample; what a step puts before the last sample or after the present time
    is left out. Stamps of another origin are mapped once, by the newest sample's being young; that shifts
    windows by less than a sample or two.

    Args:
        gpu: an opened GPU.
        now: clock of the samples, in seconds.
        wall: the host's real-time clock, in seconds.
        silence: told of every poll.
    """

    def __init__(
        self, gpu: NvmlGpu, now: Callable[[], float], wall: Callable[[], float], silence: Silence
    ) -> None:
        self._gpu = gpu
        self._now = now
        self._wall = wall
        self._silence = silence
        self._stamp = 0  # of the newest sample seen
        self._origin_s: float | None = None
        self._by_wall = False
        self._reported_s = float("-inf")
        self._heard_s = now()
        self.due_s = 0.0
        self.gaps = Gaps()

    def poll(self) -> list[Sample]:
        """Samples that entered the ring since the last call.

        Raises:
            PowerError: none has for too long.
        """
        fresh = self._fresh()
        self._silence.note(moved=bool(fresh))
        return fresh

    def _fresh(self) -> list[Sample]:
        found = self._since(self._stamp)
        if not found and self._now() > self._heard_s + _SILENT_S:
            found = self._since(0)
        if not found:
            return []
        self._stamp = found[-1][0]
        origin_s = self._map(self._stamp * _MICRO)
        latest_s = self._now() + _SLACK_S
        samples = [Sample(stamp * _MICRO + origin_s, watts) for stamp, watts in found]
        fresh = [sample for sample in samples if self._reported_s < sample.time_s <= latest_s]
        for sample in fresh:
            self.gaps.add(sample.time_s)
        if fresh:
            self._heard_s, self._reported_s = self._now(), fresh[-1].time_s
        return fresh

    def _since(self, stamp: int) -> list[tuple[int, float]]:
        """(stamp, watts) of the samples after a stamp, oldest first."""
        nvml = self._gpu.nvml
        try:
            kind, found = nvml.nvmlDeviceGetSamples(self._gpu.handle, nvml.NVML_TOTAL_POWER_SAMPLES, stamp)
        except nvml.NVMLError_NotFound:  # nothing newer
            return []
        latest = (self._wall() + _SLACK_S) / _MICRO if self._by_wall else float("inf")
        rows = {s.timeStamp: getattr(s.sampleValue, UNION[kind]) * MILLI for s in found}
        return sorted((int(at), watts) for at, watts in rows.items() if stamp < at <= latest)

    def _map(self, newest_s: float) -> float:
        """Seconds to add to a stamp."""
        now_s, wall_s = self._now(), self._wall()
        if abs(wall_s - newest_s) < _ORIGIN_S:
            self._by_wall = True
            return now_s - wall_s
        if self._origin_s is None:
            self._origin_s = now_s - newest_s
        return self._origin_s
