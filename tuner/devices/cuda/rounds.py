"""Rounds on the device: all workloads forked from one event, joined at the end, again and again.

A *round* starts every workload together on its own stream and ends when all have ended. Rounds are timed
twice: single rounds with events around every workload, and whole rotations (one round per set of arrays)
replayed back to back from a CUDA graph, whose mean round is the makespan and whose window is what a power
meter integrates. The device never runs dry between the two, so the window begins and ends under load.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, pairwise
from types import ModuleType

import numpy as np

from tuner.devices.cuda.code import Launch, RefusedError
from tuner.devices.cuda.types import Event, Graph, Stream
from tuner.model import Status

Rotation = Sequence[Sequence[tuple[Launch, ...]]]
"""For every set of arrays, for every workload, its launches in order."""

_WARM_S = 0.03
_WARM_ROUNDS = 3
_LONG_ROUND_S = 0.1  # a round this long has warmed the device by itself
_BURST_S = 0.03
_BURST_ROUNDS = (3, 30)
_REPLAY_S = 3e-3  # long against the few microseconds between two replays
_REPLAY_ROUNDS = 512  # unrolled in one graph, unless one rotation is longer
_LONG_REPLAY_S = 0.03
_IN_FLIGHT = 4


@dataclass(frozen=True)
class Rounds:
    """What was timed.

    Attributes:
        workload_s: per workload, the times of single rounds.
        makespan_s: mean round of each replay (and single rounds where replays are too few for a median).
        rounds: rounds of the window.
        start_s: begin of the window on the monotonic clock, under load.
        end_s: end of the window.
        note: what was not as it should be, or empty.
    """

    workload_s: list[list[float]]
    makespan_s: list[float]
    rounds: int
    start_s: float
    end_s: float
    note: str = ""


@dataclass(frozen=True)
class _TimedRound:
    begin: Event
    lanes: list[tuple[Event, Event]]
    end: Event


@dataclass(frozen=True)
class _Replay:
    """Something that puts whole rotations into the main stream."""

    enqueue: Callable[[], None]
    rounds: int
    seconds: float
    note: str = ""


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

    def once(self, launches: Sequence[Launch]) -> None:
        """Run launches in order and wait for them.

        Raises:
            RefusedError: a launch was refused.
        """
        self._enqueue(launches, self._main, 0)
        self._main.synchronize()

    def measure(self, rotation: Rotation, window_s: float) -> Rounds:
        """Warm up, time single rounds, then fill a window with replays.

        Args:
            rotation: the launches, by set and workload.
            window_s: length of the window; at least one replay is made.

        Raises:
            RefusedError: a launch was refused.
        """
        lanes = len(rotation[0])
        if len(self._lanes) < lanes:
            self._open(lanes)
        round_s = self._trial_s(rotation)
        replay = self._prepare(rotation, round_s)
        if round_s < _LONG_ROUND_S:
            warm = max(-(-_WARM_ROUNDS // replay.rounds), round(_WARM_S / replay.seconds))
            self._pump(replay, lambda queued: queued >= warm)
        burst = [
            self._timed_round(rotation[i % len(rotation)])
            for i in range(_within(_BURST_S / round_s, *_BURST_ROUNDS))
        ]
        edges, start_s, end_s = self._fill(replay, window_s)
        makespans = [self._elapsed_s(a, b) / replay.rounds for a, b in pairwise(edges)]
        rounds = replay.rounds * len(makespans)
        if len(makespans) < _BURST_ROUNDS[0]:
            makespans += [self._elapsed_s(one.begin, one.end) for one in burst]
        workload_s = [[self._elapsed_s(*one.lanes[lane]) for one in burst] for lane in range(lanes)]
        return Rounds(workload_s, makespans, rounds, start_s, end_s, replay.note)

    # --- one round -------------------------------------------------------------------------------

    def _round(self, parts: Sequence[tuple[Launch, ...]], timing: Sequence[tuple[Event, Event]] = ()) -> None:
        self._fork.record(self._main)
        for index, launches in enumerate(parts):
            lane = self._lanes[index]
            lane.wait_event(self._fork)
            if timing:
                timing[index][0].record(lane)
            self._enqueue(launches, lane, index)
            if timing:
                timing[index][1].record(lane)
            self._joins[index].record(lane)
        for join in self._joins[: len(parts)]:
            self._main.wait_event(join)

    def _enqueue(self, launches: Sequence[Launch], stream: Stream, workload: int) -> None:
        cuda = self._cp.cuda
        try:
            for launch in launches:
                launch.enqueue(stream)
        except (cuda.driver.CUDADriverError, cuda.runtime.CUDARuntimeError) as error:
            raise RefusedError(Status.LAUNCH_ERROR, str(error), workload) from error

    def _timed_round(self, parts: Sequence[tuple[Launch, ...]]) -> _TimedRound:
        timed = _TimedRound(self._event(), [(self._event(), self._event()) for _ in parts], self._event())
        timed.begin.record(self._main)
        self._round(parts, timed.lanes)
        timed.end.record(self._main)
        return timed

    def _trial_s(self, rotation: Rotation) -> float:
        """Time of a round. The first also loads code and tells of faults; it counts if it is long."""
        elapsed_s = 0.0
        for index in range(2):
            one = self._timed_round(rotation[index % len(rotation)])
            one.end.synchronize()
            elapsed_s = self._elapsed_s(one.begin, one.end)
            if elapsed_s >= _LONG_ROUND_S:
                break
        return max(elapsed_s, 1e-6)

    # --- many rounds -----------------------------------------------------------------------------

    def _prepare(self, rotation: Rotation, round_s: float) -> _Replay:
        """A replay of a few milliseconds; built anew when single rounds were a bad guide to its time.

        Where a rotation of long rounds would outlast that by far, single rounds take turns, launched one by
        one: the host is far ahead of the device then, and a graph would gain nothing.
        """
        if round_s >= _REPLAY_S and round_s * len(rotation) >= _LONG_REPLAY_S:
            turns = cycle(rotation)
            return _Replay(lambda: self._round(next(turns)), 1, round_s)
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
        except (self._cp.cuda.runtime.CUDARuntimeError, RefusedError) as error:
            self._open(len(self._lanes))  # the old streams may still be in a broken capture
            return _Replay(
                enqueue, rounds, rounds * round_s, f"no-graph: rounds launched one by one ({error})"
            )
        return _Replay(lambda: graph.launch(self._main), rounds, rounds * round_s)

    def _capture(self, enqueue: Callable[[], None]) -> Graph:
        self._main.begin_capture()
        try:
            enqueue()
        finally:
            graph = self._main.end_capture()
        return graph

    def _fill(self, replay: _Replay, window_s: float) -> tuple[list[Event], float, float]:
        """Replay until the window is full; returns the events between replays, and begin and end."""
        first = self._event()
        first.record(self._main)
        started: list[float] = []

        def full(queued: int) -> bool:
            if queued == 0:
                return False  # something must lie behind the edge before the edge is waited for
            if not started:
                first.synchronize()
                started.append(self._now_s())
            ahead_s = min(queued, _IN_FLIGHT) * replay.seconds
            return self._now_s() - started[0] + ahead_s >= window_s

        edges = [first, *self._pump(replay, full)]
        edges[-1].synchronize()
        return edges, started[0], self._now_s()

    def _pump(self, replay: _Replay, enough: Callable[[int], bool]) -> list[Event]:
        """Replay until ``enough(replays queued)``, a few in flight; returns the event behind each."""
        edges: list[Event] = []
        in_flight: deque[Event] = deque()
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
        self._fork: Event = cuda.Event(disable_timing=True)
        self._lanes: list[Stream] = [cuda.Stream(non_blocking=True) for _ in range(lanes)]
        self._joins: list[Event] = [cuda.Event(disable_timing=True) for _ in range(lanes)]

    def _event(self) -> Event:
        """A timing event that is waited for asleep: a spinning host would take power and a core."""
        event: Event = self._cp.cuda.Event(block=True)
        return event

    def _elapsed_s(self, begin: Event, end: Event) -> float:
        return float(self._cp.cuda.get_elapsed_time(begin, end)) * 1e-3


def median_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Median, and half the range from the 16th to the 84th percentile."""
    low, middle, high = np.percentile(values, (16, 50, 84))
    return float(middle), float(high - low) / 2


def _within(count: float, least: int, most: int) -> int:
    return max(least, min(most, round(count)))
