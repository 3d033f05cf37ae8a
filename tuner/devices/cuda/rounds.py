"""Rounds on the device: all workloads forked from one event, joined at the end, again and again.

A *round* starts every workload together on its own stream and ends when all have ended. Short rounds are
replayed from a CUDA graph of whole rotations (one round per set of arrays), long ones launched one by one.
Warm-up, window and the single rounds that tell the workloads apart follow each other without a gap: after
idling, power and clocks of a GPU take some tenths of a second to settle, and the first milliseconds draw a
few percent more.

The mean round of the replays is the makespan. A graph cannot hold events that are timed, and a single round
from streams lasts some microseconds longer than one of a graph. So the single rounds only tell a workload's
*share*: its end by the end of the last, both from the fork. Share times makespan is its own time.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, pairwise
from types import ModuleType

from tuner.devices.cuda.launches import LaunchRefusedError, Step
from tuner.devices.cuda.types import CudaEvent, Graph, Stream
from tuner.model import Flag, FlagKind, Status

Rotation = Sequence[Sequence[tuple[Step, ...]]]
"""For every set of arrays, for every workload, its launches in order."""

WARM_S = 0.2
"""Rounds back to back before a window: a GPU that idled for milliseconds needs this long to settle."""

_WARM_PART = 1 / 6  # of the window at most, so that a run spends its time in windows
_LONG_ROUND_S = 0.1  # a first round this long is not made of loading code
_SHARE_S = 0.03  # single rounds behind the window: so long, within these counts
_SHARE_ROUNDS = (3, 10)
_LEAD_S = 0.01  # replays between window and single rounds, for the host to get ahead of the device
_REPLAY_S = 3e-3  # long against the few microseconds between two replays
_REPLAY_ROUNDS = 512  # unrolled in one graph, unless one rotation is longer
_LEAST_REPLAYS = 3
_IN_FLIGHT = 4


@dataclass(frozen=True)
class Rounds:
    """What was timed.

    Attributes:
        shares: per workload, the part of a round until it had ended, 0 to 1, of several rounds.
        makespan_s: mean round of each replay, in the order of time.
        rounds: rounds of the window.
        start_s: begin of the window on the monotonic clock, under load.
        end_s: end of the window.
        flag: what was not as it should be; None for nothing.
    """

    shares: list[list[float]]
    makespan_s: list[float]
    rounds: int
    start_s: float
    end_s: float
    flag: Flag | None = None


@dataclass(frozen=True)
class _TimedRound:
    begin: CudaEvent
    ends: list[CudaEvent]


@dataclass(frozen=True)
class _Replay:
    """Something that puts whole rotations into the main stream.

    Where it puts single rounds, ``timed`` keeps the latest of them; a graph cannot.
    """

    enqueue: Callable[[], None]
    rounds: int
    seconds: float
    flag: Flag | None = None
    timed: deque[_TimedRound] | None = None


class RoundRunner:
    """The streams of a device and the rounds in them.

    Args:
        cp: CuPy.
        now_s: the clock of windows.
    """

    def __init__(self, cp: ModuleType, now_s: Callable[[], float] = time.monotonic) -> None:
        self._cp = cp
        self._now_s = now_s
        self._open(0)

    def once(self, launches: Sequence[Step]) -> None:
        """Run launches in order and wait for them.

        Raises:
            LaunchRefusedError: a launch was refused.
        """
        self._enqueue(launches, self._main, 0)
        self._main.synchronize()

    def measure(self, rotation: Rotation, window_s: float) -> Rounds:
        """Warm up, fill a window with replays, and time single rounds behind it.

        Args:
            rotation: the launches, by set and workload.
            window_s: length of the window; at least three replays are made.

        Raises:
            LaunchRefusedError: a launch was refused.
        """
        lanes = len(rotation[0])
        if len(self._lanes) < lanes:
            self._open(lanes)
        begun_s = self._now_s()
        replay = self._prepare(rotation, self._trial_s(rotation))
        if replay.timed is None:
            begun_s = self._now_s()  # the device idled while the graph was made
        warm_s = min(WARM_S, _WARM_PART * window_s)
        self._pump(replay, lambda queued: queued > 0 and self._past(begun_s, queued, replay) >= warm_s)
        edges, start_s, end_s, timed = self._fill(replay, window_s, rotation)
        makespans = [self._elapsed_s(a, b) / replay.rounds for a, b in pairwise(edges)]
        shares = [self._shares(one) for one in timed] or [[1.0]]
        return Rounds(
            [[one[lane] for one in shares] for lane in range(lanes)],
            makespans,
            replay.rounds * len(makespans),
            start_s,
            end_s,
            replay.flag,
        )

    # --- one round -------------------------------------------------------------------------------

    def _round(self, parts: Sequence[tuple[Step, ...]], ends: Sequence[CudaEvent] = ()) -> None:
        self._fork.record(self._main)
        for index, launches in enumerate(parts):
            lane = self._lanes[index]
            lane.wait_event(self._fork)
            self._enqueue(launches, lane, index)
            if ends:
                ends[index].record(lane)
            self._joins[index].record(lane)
        for join in self._joins[: len(parts)]:
            self._main.wait_event(join)

    def _enqueue(self, launches: Sequence[Step], stream: Stream, workload: int) -> None:
        cuda = self._cp.cuda
        try:
            for launch in launches:
                launch.enqueue(stream)
        except (cuda.driver.CUDADriverError, cuda.runtime.CUDARuntimeError) as error:
            raise LaunchRefusedError(Status.LAUNCH_ERROR, str(error), workload) from error

    def _timed_round(self, parts: Sequence[tuple[Step, ...]]) -> _TimedRound:
        timed = _TimedRound(self._event(), [self._event() for _ in parts])
        timed.begin.record(self._main)
        self._round(parts, timed.ends)
        return timed

    def _lane_times_s(self, one: _TimedRound) -> list[float]:
        for end in one.ends:
            end.synchronize()
        return [self._elapsed_s(one.begin, end) for end in one.ends]

    def _shares(self, one: _TimedRound) -> list[float]:
        times_s = self._lane_times_s(one)
        return [time_s / max(*times_s, 1e-9) for time_s in times_s]

    def _trial_s(self, rotation: Rotation) -> float:
        """Time of a round. The first also loads code and tells of faults; it counts if it is long."""
        elapsed_s = 0.0
        for index in range(2):
            elapsed_s = max(self._lane_times_s(self._timed_round(rotation[index % len(rotation)])))
            if elapsed_s >= _LONG_ROUND_S:
                break
        return max(elapsed_s, 1e-6)

    # --- many rounds -----------------------------------------------------------------------------

    def _prepare(self, rotation: Rotation, round_s: float) -> _Replay:
        """A replay of a few milliseconds; built anew when single rounds were a bad guide to its time.

        Rounds that long by themselves take turns, launched one by one: the host is far ahead of the device
        then, and a graph would gain nothing.
        """
        if round_s >= _REPLAY_S:
            turns, timed = cycle(rotation), deque[_TimedRound](maxlen=_SHARE_ROUNDS[1])
            return _Replay(lambda: timed.append(self._timed_round(next(turns))), 1, round_s, timed=timed)
        replay = self._build(rotation, round_s)
        begin, end = self._event(), self._event()
        begin.record(self._main)
        replay.enqueue()
        end.record(self._main)
        end.synchronize()
        seconds = max(self._elapsed_s(begin, end), 1e-6)
        if seconds < _REPLAY_S / 2:
            return self._build(rotation, seconds / replay.rounds)
        return replace(replay, seconds=seconds)

    def _build(self, rotation: Rotation, round_s: float) -> _Replay:
        turns = _within(_REPLAY_S / (round_s * len(rotation)), 1, max(1, _REPLAY_ROUNDS // len(rotation)))
        rounds = turns * len(rotation)

        def enqueue() -> None:
            for _ in range(turns):
                for parts in rotation:
                    self._round(parts)

        try:
            graph = self._capture(enqueue)
        except (self._cp.cuda.runtime.CUDARuntimeError, LaunchRefusedError) as error:
            self._open(len(self._lanes))  # the old streams may still be in a broken capture
            return _Replay(
                enqueue,
                rounds,
                rounds * round_s,
                Flag(FlagKind.NO_GRAPH, f"rounds launched one by one ({error})"),
            )
        return _Replay(lambda: graph.launch(self._main), rounds, rounds * round_s)

    def _capture(self, enqueue: Callable[[], None]) -> Graph:
        self._main.begin_capture()
        try:
            enqueue()
        finally:
            graph = self._main.end_capture()
        return graph

    def _fill(
        self, replay: _Replay, window_s: float, rotation: Rotation
    ) -> tuple[list[CudaEvent], float, float, list[_TimedRound]]:
        """Replay until the window is full: the events between replays, begin and end, and timed rounds."""
        first = self._event()
        first.record(self._main)
        started: list[float] = []

        def full(queued: int) -> bool:
            if queued == 0:
                return False  # something must lie behind the edge before the edge is waited for
            if not started:
                first.synchronize()
                started.append(self._now_s())
            return queued >= _LEAST_REPLAYS and self._past(started[0], queued, replay) >= window_s

        edges = [first, *self._pump(replay, full)]
        single = replay.timed is None and len(rotation[0]) > 1
        for _ in range(max(1, round(_LEAD_S / replay.seconds)) if single else 0):
            replay.enqueue()  # keeps the device busy while the host sees the end and launches what follows
        edges[-1].synchronize()
        end_s = self._now_s()
        return edges, started[0], end_s, self._timed(replay, rotation, len(edges) - 1, single)

    def _timed(self, replay: _Replay, rotation: Rotation, replays: int, single: bool) -> list[_TimedRound]:
        """Rounds that tell workloads apart: of the window where they were timed there, else behind it."""
        if replay.timed is not None:
            return list(replay.timed)[-replays:]
        if not single:
            return []  # a lone workload is its round
        count = _within(_SHARE_S * replay.rounds / replay.seconds, *_SHARE_ROUNDS)
        return [self._timed_round(rotation[i % len(rotation)]) for i in range(count)]

    def _past(self, begun_s: float, queued: int, replay: _Replay) -> float:
        """Seconds from ``begun_s`` until what is queued now will have ended."""
        return self._now_s() - begun_s + min(queued, _IN_FLIGHT) * replay.seconds

    def _pump(self, replay: _Replay, enough: Callable[[int], bool]) -> list[CudaEvent]:
        """Replay until ``enough(replays queued)``, a few in flight; returns the event behind each."""
        edges: list[CudaEvent] = []
        in_flight: deque[CudaEvent] = deque()
        while not enough(len(edges)):
            replay.enqueue()
            edge = self._event()
            edge.record(self._main)
            edges.append(edge)
            in_flight.append(edge)
            if len(in_flight) >= _IN_FLIGHT:
                in_flight.popleft().synchronize()
        return edges

    # --- streams and events ----------------------------------------------------------------------

    def _open(self, lanes: int) -> None:
        cuda = self._cp.cuda
        self._main: Stream = cuda.Stream(non_blocking=True)
        self._fork: CudaEvent = cuda.Event(disable_timing=True)
        self._lanes: list[Stream] = [cuda.Stream(non_blocking=True) for _ in range(lanes)]
        self._joins: list[CudaEvent] = [cuda.Event(disable_timing=True) for _ in range(lanes)]

    def _event(self) -> CudaEvent:
        """A timing event that is waited for asleep: a spinning host would take power and a core."""
        event: CudaEvent = self._cp.cuda.Event(block=True)
        return event

    def _elapsed_s(self, begin: CudaEvent, end: CudaEvent) -> float:
        return float(self._cp.cuda.get_elapsed_time(begin, end)) * 1e-3


def _within(count: float, least: int, most: int) -> int:
    return max(least, min(most, round(count)))
