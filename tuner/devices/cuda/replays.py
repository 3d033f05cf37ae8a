"""Rounds that are put into the main stream with one call, and how they are timed there.

Events between replays tell the mean round of each. When the workloads of a round had ended is told by events
within it. Those make a graph of several rounds slow, and without a graph it is chance which workload's blocks
are dispatched first; so single rounds are *samples*: graphs with events in them, now and then in between.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType

from tuner.devices.cuda.driver import DriverCallError
from tuner.devices.cuda.lanes import Lanes, RoundStamps
from tuner.devices.cuda.launches import LaunchRefusedError, Step, has_host_stage
from tuner.devices.cuda.types import CudaEvent
from tuner.model.trial import Flag, FlagKind

RoundParts = Sequence[tuple[Step, ...]]
"""For every workload of a round, its launches in order."""

Rotation = Sequence[RoundParts]
"""A round for every set of arrays."""

_SAMPLES = 3  # that take turns: one is read while others run
_FORKED_ROUNDS = 16  # in a graph: of more, each takes longer, to capture and to run
_FLYING_S = 1.5e-3  # so much is pushed ahead of the device
_FLYING = (3, 16)  # replays, at least and at most


@dataclass(frozen=True, eq=False)
class Replay:
    """Some rounds in the main stream, put there with one call.

    Attributes:
        put: puts them there.
        rounds: how many.
        stamps: times the only round; None where the workloads are not told apart.
    """

    put: Callable[[], None]
    rounds: int
    stamps: RoundStamps | None = None


@dataclass(frozen=True)
class ReplayCycle:
    """Replays that take turns.

    Attributes:
        replays: whole rotations, in order.
        samples: single rounds that tell the workloads apart, where the replays do not.
        round_s: about the time of a round.
        graphs: they are graphs, which hold no arrays; else launches, which do.
        flag: what is not as it should be; None for nothing.
    """

    replays: tuple[Replay, ...]
    samples: tuple[Replay, ...]
    round_s: float
    graphs: bool = True
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

    def cycle(self, rotation: Rotation, round_s: float, replay_s: float, most_launches: int) -> ReplayCycle:
        """Graphs of about ``replay_s`` each, together one or more whole rotations.

        Rounds that are longer by themselves are replays of their own. Where nothing can be captured,
        launches are put into the streams one by one; so are those of workloads with host stages.

        Args:
            rotation: the rounds.
            round_s: time of one.
            replay_s: wanted time of a replay.
            most_launches: in a graph, unless one round has more; and in all graphs together, unless one
                rotation has more.
        """
        lone = len(rotation[0]) == 1
        single = round_s >= replay_s
        most = most_launches / sum(len(steps) for steps in rotation[0])
        forked = max(1, min(_FORKED_ROUNDS, math.floor(most)))
        turns = -(-_SAMPLES // len(rotation)) if single else 1
        if not single:
            turns = max(1, math.ceil(min(replay_s / round_s, most if lone else forked) / len(rotation)))
        rounds = [*rotation] * turns
        length = 1 if single else math.ceil(min(replay_s / round_s, max(most, 1)))
        parts = _cut(rounds, length if lone else min(length, forked))
        samples = [] if lone or single else [rotation[len(rotation) // 2]] * _SAMPLES
        flag = None
        if not any(has_host_stage(steps) for steps in rotation[0]):
            try:
                return ReplayCycle(
                    tuple(self._captured(part, stamped=single and not lone) for part in parts),
                    tuple(self._captured([part], stamped=True) for part in samples),
                    round_s,
                )
            except (self._cp.cuda.runtime.CUDARuntimeError, DriverCallError, LaunchRefusedError) as error:
                self._lanes.open(self._lanes.count)
                flag = Flag(FlagKind.NO_GRAPH, f"rounds launched one by one ({error})")
        return ReplayCycle(
            tuple(self._launched(part, stamped=single and not lone) for part in parts),
            tuple(self._launched([part], stamped=True) for part in samples),
            *(round_s, False, flag),
        )

    def _captured(self, rounds: Sequence[RoundParts], *, stamped: bool) -> Replay:
        lanes = self._lanes
        stamps = lanes.stamps(len(rounds[0])) if stamped else None
        graph = lanes.capture(lambda: self._put(rounds, stamps))
        return Replay(lambda: graph.launch(lanes.main), len(rounds), stamps)

    def _launched(self, rounds: Sequence[RoundParts], *, stamped: bool) -> Replay:
        stamps = self._lanes.stamps(len(rounds[0])) if stamped else None
        return Replay(lambda: self._put(rounds, stamps), len(rounds), stamps)

    def _put(self, rounds: Sequence[RoundParts], stamps: RoundStamps | None) -> None:
        for index, parts in enumerate(rounds):
            self._lanes.round(parts, stamps, behind_another=index > 0)


def _cut(rounds: Sequence[RoundParts], length: int) -> list[Sequence[RoundParts]]:
    """About equal parts of at least so many rounds, in order."""
    count = max(len(rounds) // length, 1)
    return [rounds[begin:end] for begin, end in pairwise(len(rounds) * i // count for i in range(count + 1))]


@dataclass(frozen=True)
class ReplayTime:
    """What a replay told.

    Attributes:
        rounds: how many it was.
        seconds: from the end of the replay before to its own.
        shares: per workload, the part of the round until it had ended, 0 to 1; None of several rounds.
        sample: True for one that is not of the cycle's own replays.
    """

    rounds: int
    seconds: float
    shares: tuple[float, ...] | None
    sample: bool


class ReplayQueue:
    """Replays on their way through the main stream, a few in flight.

    Args:
        lanes: the streams.
        cycle: what is replayed, again and again.
        every: a sample follows so many replays.

    Attributes:
        pushed: replays put into the stream so far, samples apart.
        sampled: samples put into it.
        readings: of what was seen to have ended, in order.
    """

    def __init__(self, lanes: Lanes, cycle: ReplayCycle, every: int = 1) -> None:
        self._lanes = lanes
        self._cycle = cycle
        self._every = every
        least, most = _FLYING
        self._depth = max(least, min(most, round(_FLYING_S / cycle.replay_s)))
        self._flying: deque[tuple[Replay, CudaEvent]] = deque()
        self._edge = self._recorded()  # behind what was seen to have ended
        self.pushed = 0
        self.sampled = 0
        self.readings: list[ReplayTime] = []

    @property
    def ahead_s(self) -> float:
        """About the time of what was pushed and was not seen to have ended."""
        return sum(replay.rounds for replay, _ in self._flying) * self._cycle.round_s

    @property
    def queued(self) -> int:
        """Readings there will be when all that was pushed has ended."""
        return len(self.readings) + len(self._flying)

    def push(self) -> None:
        """Put the next replay into the stream, with a sample behind it when it is time for one."""
        replays = self._cycle.replays
        self._put(replays[self.pushed % len(replays)])
        self.pushed += 1
        if self.pushed % self._every == 0:
            self.sample()

    def sample(self) -> None:
        """Put a sample into the stream, where the cycle has some."""
        if self._cycle.samples:
            self._put(self._cycle.samples[self.sampled % len(self._cycle.samples)])
            self.sampled += 1

    def land(self, count: int | None = None) -> None:
        """Wait until there are so many readings; for all that was pushed if no number is given."""
        wanted = self.queued if count is None else count
        while len(self.readings) < wanted:
            self._land()

    def _put(self, replay: Replay) -> None:
        while len(self._flying) >= self._depth or self._is_read_first(replay):
            self._land()
        replay.put()
        self._flying.append((replay, self._recorded()))

    def _is_read_first(self, replay: Replay) -> bool:
        """True for one whose stamps are yet to be read."""
        return replay.stamps is not None and any(replay is other for other, _ in self._flying)

    def _land(self) -> None:
        replay, edge = self._flying.popleft()
        edge.synchronize()
        seconds = self._lanes.elapsed_s(self._edge, edge)
        self._edge = edge
        shares = None
        if replay.stamps is not None:
            begin, ends = replay.stamps.begin, replay.stamps.ends
            ends_s = [self._lanes.elapsed_s(begin, end) for end in ends]
            shares = tuple(end_s / max(*ends_s, 1e-9) for end_s in ends_s)
        sample = any(replay is one for one in self._cycle.samples)
        self.readings.append(ReplayTime(replay.rounds, seconds, shares, sample))

    def _recorded(self) -> CudaEvent:
        event = self._lanes.event()
        event.record(self._lanes.main)
        return event
