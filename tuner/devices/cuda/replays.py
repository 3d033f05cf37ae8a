"""Rounds that are put into the streams with one call: graphs of them, timed by events that are part of it.

A rotation (one round per set of arrays) is cut into a few graphs that take turns, so that the events of one
can be read while the next one runs. Each times itself from the fork of its first round to the join of its
last: what lies between two graphs, and how fast the host is, are not in it. The first round of each also
tells when each of its workloads had ended.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType

from tuner.devices.cuda.driver import DriverCallError
from tuner.devices.cuda.lanes import Lanes, RoundStamps
from tuner.devices.cuda.launches import LaunchRefusedError, Step
from tuner.devices.cuda.types import CudaEvent
from tuner.model import Flag, FlagKind

RoundParts = Sequence[tuple[Step, ...]]
"""For every workload of a round, its launches in order."""

Rotation = Sequence[RoundParts]
"""A round for every set of arrays."""

_TURNS = 3  # replays in flight, so at least as many take turns


@dataclass(frozen=True)
class Replay:
    """Some rounds in the main stream, put there with one call.

    Attributes:
        put: puts them there.
        rounds: how many.
        first: times the first of them.
        end: behind the last; of a lone round its only workload's end.
        edge: behind all of it, outside of the graph: what the host waits for.
    """

    put: Callable[[], None]
    rounds: int
    first: RoundStamps
    end: CudaEvent
    edge: CudaEvent


@dataclass(frozen=True)
class Reading:
    """What a replay told.

    Attributes:
        rounds: how many it was.
        makespan_s: its mean round.
        shares: per workload, the part of its first round until it had ended, 0 to 1.
    """

    rounds: int
    makespan_s: float
    shares: tuple[float, ...]


@dataclass(frozen=True)
class ReplayCycle:
    """Replays that take turns.

    Attributes:
        replays: in order, as many as are in flight or more.
        round_s: about the time of a round.
        flag: what is not as it should be with them; None for nothing.
    """

    replays: tuple[Replay, ...]
    round_s: float
    flag: Flag | None = None

    @property
    def replay_s(self) -> float:
        """About the time of a replay."""
        return self.round_s * sum(replay.rounds for replay in self.replays) / len(self.replays)


class ReplayBuilder:
    """Makes replays.

    Args:
        cp: CuPy.
        lanes: the streams.
    """

    def __init__(self, cp: ModuleType, lanes: Lanes) -> None:
        self._cp = cp
        self._lanes = lanes

    def graphs(self, rotation: Rotation, round_s: float, replay_s: float, most_launches: int) -> ReplayCycle:
        """Graphs of about ``replay_s`` each, together one or more whole rotations.

        Rounds are launched one by one where nothing can be captured.

        Args:
            rotation: the rounds.
            round_s: time of one.
            replay_s: wanted time of a replay.
            most_launches: in all graphs together, unless one rotation has more.
        """
        sets = len(rotation)
        launches = sum(len(steps) for steps in rotation[0])
        wanted = min(_TURNS * replay_s / round_s, most_launches / launches)
        turns = max(round(wanted / sets), -(-_TURNS // sets), 1)
        rounds = [rotation[index % sets] for index in range(turns * sets)]
        count = min(max(round(len(rounds) * round_s / replay_s), _TURNS), len(rounds))
        edges = [len(rounds) * place // count for place in range(count + 1)]
        parts = [rounds[begin:end] for begin, end in pairwise(edges)]
        try:
            return ReplayCycle(tuple(self._captured(part) for part in parts), round_s)
        except (self._cp.cuda.runtime.CUDARuntimeError, DriverCallError, LaunchRefusedError) as error:
            self._lanes.open(self._lanes.count)
            flag = Flag(FlagKind.NO_GRAPH, f"rounds launched one by one ({error})")
            return ReplayCycle(tuple(self._launched(part) for part in parts), round_s, flag)

    def single_rounds(self, rotation: Rotation, round_s: float) -> ReplayCycle:
        """A replay per round of the rotation, launched as it is: of long rounds the host is far ahead."""
        turns = -(-_TURNS // len(rotation))
        rounds = [*rotation] * turns
        return ReplayCycle(tuple(self._launched([parts]) for parts in rounds), round_s)

    def _captured(self, rounds: Sequence[RoundParts]) -> Replay:
        lanes, stamps = self._lanes, self._lanes.stamps(len(rounds[0]))
        end = lanes.event()
        graph = lanes.capture(lambda: self._put(rounds, stamps, end))
        return Replay(lambda: graph.launch(lanes.main), len(rounds), stamps, end, lanes.event())

    def _launched(self, rounds: Sequence[RoundParts]) -> Replay:
        lanes, stamps = self._lanes, self._lanes.stamps(len(rounds[0]))
        end = lanes.event()
        return Replay(lambda: self._put(rounds, stamps, end), len(rounds), stamps, end, lanes.event())

    def _put(self, rounds: Sequence[RoundParts], stamps: RoundStamps, end: CudaEvent) -> None:
        lone = len(rounds[0]) == 1
        if lone:
            self._lanes.stamp(stamps.begin)
        for index, parts in enumerate(rounds):
            self._lanes.round(parts, stamps if index == 0 and not lone else None)
        self._lanes.stamp(end)


class ReplayQueue:
    """Replays on their way through the main stream.

    Args:
        lanes: the streams.
        cycle: what is replayed, again and again.

    Attributes:
        pushed: replays put into the stream so far.
        readings: of those that were seen to have ended, in order.
    """

    def __init__(self, lanes: Lanes, cycle: ReplayCycle) -> None:
        self._lanes = lanes
        self._cycle = cycle
        self._flying: deque[Replay] = deque()
        self.pushed = 0
        self.readings: list[Reading] = []

    @property
    def ahead_s(self) -> float:
        """About the time of what was pushed and was not seen to have ended."""
        return len(self._flying) * self._cycle.replay_s

    def push(self) -> None:
        """Put the next replay into the stream, once the last but some has ended."""
        replays = self._cycle.replays
        if len(self._flying) == _TURNS:
            self._land()
        replay = replays[self.pushed % len(replays)]
        replay.put()
        replay.edge.record(self._lanes.main)
        self._flying.append(replay)
        self.pushed += 1

    def drain(self) -> CudaEvent:
        """Wait for all that is in the stream; the event behind it."""
        last = self._flying[-1].edge
        while self._flying:
            self._land()
        return last

    def _land(self) -> None:
        replay = self._flying.popleft()
        replay.edge.synchronize()
        lanes, first = self._lanes, replay.first
        makespan_s = lanes.elapsed_s(first.begin, replay.end) / replay.rounds
        shares: tuple[float, ...] = (1.0,)
        if len(first.ends) > 1:
            ends_s = [lanes.elapsed_s(first.begin, end) for end in first.ends]
            shares = tuple(end_s / max(*ends_s, 1e-9) for end_s in ends_s)
        self.readings.append(Reading(replay.rounds, makespan_s, shares))
