"""Rounds on the device: all workloads forked from one event, joined at the end, again and again.

A *round* starts every workload together, each in its own stream, and ends when all have ended; a lone
workload is one stream of launches. Rounds are replayed from CUDA graphs (``replays``). Warm-up and window
follow each other without a gap: after idling, power and clocks of a GPU take some tenths of a second to
settle, and the first milliseconds draw a few percent more.

The mean round of the replays is the makespan. Among them are samples: single rounds that tell which *share*
of a round had passed when each workload ended. Share times makespan is its own time.
"""

import math
import statistics
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from types import ModuleType

from tuner.devices.cuda.driver import CudaEvent, CudaFunction, DriverCallError, DriverCalls, Stream
from tuner.devices.cuda.lanes import Lanes, RoundStamps, SmShares, StreamPlace
from tuner.devices.cuda.launches import (
    Launch,
    LaunchRefusedError,
    LibraryLaunch,
    Restoring,
    Step,
    has_host_stage,
)
from tuner.model.trial import Flag, FlagKind

# --- Rounds that are put into the main stream with one call, and how they are timed there.
#
# Events between replays tell the mean round of each. When the workloads of a round had ended is told by
# events within it. Those make a graph of several rounds slow, and without a graph it is chance which
# workload's blocks are dispatched first; so single rounds are *samples*: graphs with events in them, now and
# then in between.

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
    """Makes replays."""

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
        graphs = not any(map(has_host_stage, rotation[0]))
        wanted = [(part, single and not lone) for part in parts] + [([part], True) for part in samples]
        replays, graphs, flag = self._replays(wanted, graphs=graphs)
        return ReplayCycle(replays[: len(parts)], replays[len(parts) :], round_s, graphs, flag)

    def singles(self, parts: RoundParts, before: Callable[[], None]) -> ReplayCycle:
        """Rounds by themselves, each stamped, with something before it that its stamps leave out.

        A lone launch is put into the stream as a program does it. Of several the host would be what takes
        long: they are a graph, unless the host computes some of them.

        Args:
            parts: the round.
            before: puts into the main stream what comes before each.
        """
        graphs = sum(map(len, parts)) > 1 and not any(map(has_host_stage, parts))
        replays, _, flag = self._replays([([parts], True)] * _SAMPLES, graphs=graphs)

        def behind(replay: Replay) -> Replay:
            def put() -> None:
                before()
                replay.put()

            return replace(replay, put=put)

        return ReplayCycle(tuple(map(behind, replays)), (), _FLYING_S, flag=flag)

    def _replays(
        self, wanted: Sequence[tuple[Sequence[RoundParts], bool]], *, graphs: bool
    ) -> tuple[tuple[Replay, ...], bool, Flag | None]:
        """Replays of rounds, stamped or not: graphs where those can be had; whether they are, and why not."""
        flag = None
        if graphs:
            try:
                return tuple(self._replay(*one, graph=True) for one in wanted), True, None
            except (self._cp.cuda.runtime.CUDARuntimeError, DriverCallError, LaunchRefusedError) as error:
                self._lanes.open(self._lanes.count)
                flag = Flag(FlagKind.NO_GRAPH, f"rounds launched one by one ({error})")
        return tuple(self._replay(*one, graph=False) for one in wanted), False, flag

    def _replay(self, rounds: Sequence[RoundParts], stamped: bool, *, graph: bool) -> Replay:
        lanes = self._lanes
        stamps = lanes.stamps(len(rounds[0])) if stamped else None
        put = partial(self._put, rounds, stamps)
        return Replay(partial(lanes.capture(put).launch, lanes.main) if graph else put, len(rounds), stamps)

    def _put(self, rounds: Sequence[RoundParts], stamps: RoundStamps | None) -> None:
        for index, parts in enumerate(rounds):
            self._lanes.round(parts, stamps, behind_another=index > 0)


def _cut(rounds: Sequence[RoundParts], length: int) -> list[Sequence[RoundParts]]:
    """About equal parts of at least so many rounds, in order."""
    count = max(len(rounds) // length, 1)
    return [rounds[begin:end] for begin, end in pairwise(len(rounds) * i // count for i in range(count + 1))]


@dataclass(frozen=True)
class ReplayTime:
    """Time of a replay.

    Attributes:
        rounds: how many it was.
        seconds: from the end of the replay before to its own.
        shares: per workload, the part of the round until it had ended, 0 to 1; None of several rounds.
        sample: True for one that is not of the cycle's own replays.
        stamped_s: from the begin of the round to its end, by its stamps; 0 without them.
    """

    rounds: int
    seconds: float
    shares: tuple[float, ...] | None
    sample: bool
    stamped_s: float = 0.0


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

    def land(self, number: int | None = None) -> None:
        """Wait until there are so many readings; for all that was pushed if no number is given."""
        count = self.queued if number is None else number
        while len(self.readings) < count:
            self._land()

    def _put(self, replay: Replay) -> None:
        # Stamps are written anew by each replay: those of the one before have to be read first.
        while len(self._flying) >= self._depth or (
            replay.stamps is not None and any(replay is other for other, _ in self._flying)
        ):
            self._land()
        replay.put()
        self._flying.append((replay, self._recorded()))

    def _land(self) -> None:
        replay, edge = self._flying.popleft()
        edge.synchronize()
        seconds = self._lanes.elapsed_s(self._edge, edge)
        self._edge = edge
        shares, stamped_s = None, 0.0
        if replay.stamps is not None:
            begin, ends = replay.stamps.begin, replay.stamps.ends
            ends_s = [self._lanes.elapsed_s(begin, end) for end in ends]
            stamped_s = max(*ends_s, 1e-9)
            shares = tuple(end_s / stamped_s for end_s in ends_s)
        sample = any(replay is other for other in self._cycle.samples)
        self.readings.append(ReplayTime(replay.rounds, seconds, shares, sample, stamped_s))

    def _recorded(self) -> CudaEvent:
        event = self._lanes.event()
        event.record(self._lanes.main)
        return event


# --- Rounds of plans in a window: warm-up, rotation of buffers, and timing.

WARM_S = 0.2
"""Rounds back to back before a window: a GPU that idled for milliseconds needs this long to settle."""

SINGLES = 3
"""Rounds of a window of no length."""

_WARM_PART = 1 / 6  # of the window at most, so that a run spends its time in windows
_WARM_JOULES_PART, _JOULES_S = 1 / 3, 0.1  # of windows for joules, which are this long at least
_LONG_ROUND_S = 0.1  # a first round this long is not made of loading code
_SHORT_WINDOW_S = 0.015
_REPLAY_S, _SHORT_REPLAY_S = 3e-3, 5e-4  # long against the few microseconds between two; in a short window
_REPLAY_PART = 1 / 6  # of a window that is not short, at most
_LAUNCHES, _FEW_LAUNCHES = 1024, 512  # captured for a window, and for one too short to make up for more
_SETS = 64
"""Sets of a long round: of more, one is below a sixtieth of what is cold, and read in a microsecond."""
_LEAST_REPLAYS, _LEAST_LONG_ROUNDS = 5, 3
_SAMPLE_S = 0.01  # between two samples, which take some microseconds more than other rounds
_LEAST_SAMPLES = 5
_FORK_S = 0.4e-6  # per workload of a co-run, to start and join it: on an H200 (docs/measuring.md)
_NOTABLE = 0.01  # of a round
_KEPT = 20  # rotations whose graphs are kept: contenders take turns
_MOST_CONTEXTS = 48  # green contexts kept; each takes some megabytes
_KEPT_LAUNCHES = 2**15  # in all of them: a node of a graph takes about a kilobyte
_ROTATED_LAUNCHES = 2048  # in a rotation: of a long chain, little is read for the first time in a round
_STEP_S = 1.024e-6  # in which events tell times, at worst
_RESTORED = 16  # times that copies are made to time them


@dataclass(frozen=True)
class Rounds:
    """Timed rounds of a window.

    Attributes:
        shares: per workload, the part of a round until it had ended, 0 to 1, of several rounds.
        makespan_s: mean round of each replay, in the order of time.
        rounds: rounds of the window.
        start_s: begin of the window on the monotonic clock, under load.
        end_s: end of the window.
        flag: what was not as it should be; None for nothing.
        restore_s: per workload, the time in which the arrays of a round are restored, measured alone.
        resolution_s: standard uncertainty of one time by the steps in which events tell it.
    """

    shares: list[list[float]]
    makespan_s: list[float]
    rounds: int
    start_s: float
    end_s: float
    flag: Flag | None = None
    restore_s: tuple[float, ...] = ()
    resolution_s: float = 0.0


@dataclass
class _RotationState:
    """Stored state of a rotation.

    Attributes:
        functions: keeps them loaded, so that no other code gets their addresses.
        round_s: time of a round.
        restore_s: per workload, of it, that of restoring arrays.
        launches: in a rotation.
        cycles: its graphs by the time of a replay that they were made for; they hold no arrays.
    """

    functions: list[CudaFunction]
    round_s: float
    restore_s: tuple[float, ...]
    launches: int
    cycles: dict[float, ReplayCycle] = field(default_factory=dict)


class RoundRunner:
    """The rounds of a device.

    Args:
        cp: CuPy.
        now_s: the clock of windows.
        driver: the calls of the driver that CuPy lacks; those of the system if not given.
        shares: streams on a part of the multiprocessors; none can be had if not given.
    """

    def __init__(
        self,
        cp: ModuleType,
        now_s: Callable[[], float] = time.monotonic,
        driver: DriverCalls | None = None,
        shares: SmShares | None = None,
    ) -> None:
        self._cp = cp
        self._now_s = now_s
        self._shares = shares
        self._lanes = Lanes(cp, driver or DriverCalls(), shares)
        self._builder = ReplayBuilder(cp, self._lanes)
        self._launched: set[Hashable] = set()  # functions and library calls whose code is on the device
        self._known: OrderedDict[Hashable, _RotationState] = OrderedDict()

    def once(self, launches: Sequence[Step]) -> None:
        """Run launches in order and wait for them.

        Raises:
            LaunchRefusedError: a launch was refused.
        """
        self._lanes.enqueue(launches, self._lanes.main, 0)
        self._lanes.main.synchronize()
        self._launched |= _code_of(launches)

    def measure(self, rotation: Rotation, window_s: float, places: Sequence[StreamPlace] = ()) -> Rounds:
        """Warm up, and fill a window with replays; for a window of no length, time a few single rounds.

        At least five replays of one or more rounds are made, three of rounds above 0.1 s. The graphs of
        the last few rotations are kept, so that another window of the same is had for little. Of a window too
        short for five samples the others follow behind it.

        Args:
            rotation: the launches, by set and workload.
            window_s: length of the window.
            places: of the workloads' streams; all alike if not given.

        Raises:
            LaunchRefusedError: a launch was refused.
        """
        workloads = self._opened(rotation[0], places)
        if not window_s:
            return self._singles(rotation)
        state = self._of(rotation, tuple(places))
        cycle = self._cycle(state, rotation, window_s)
        queue = ReplayQueue(self._lanes, cycle, max(1, round(_SAMPLE_S / cycle.replay_s)))
        begun_s = self._now_s()  # the device idled while graphs were made
        warm_s = min(WARM_S, window_s * (_WARM_PART if window_s < _JOULES_S else _WARM_JOULES_PART))
        while queue.pushed == 0 or self._now_s() - begun_s + queue.ahead_s < warm_s:
            queue.push()
        before, sampled = queue.queued, queue.sampled
        start_s = self._fill(queue, cycle, window_s)
        after = queue.queued
        for _ in range(_LEAST_SAMPLES - (queue.sampled - sampled)):
            queue.sample()  # behind the window
        queue.land()
        window = queue.readings[before:after]
        window_s = math.fsum(reading.seconds for reading in window)
        start_s = min(start_s, self._now_s() - window_s)  # the host may have woken up late for its begin
        makespans = [reading.seconds / reading.rounds for reading in window if not reading.sample]
        shares_read = [
            reading.shares for reading in queue.readings[before:] if reading.shares is not None
        ] or [(1.0,)]
        return Rounds(
            [list(shares) for shares in zip(*shares_read, strict=True)],
            makespans,
            sum(reading.rounds for reading in window),
            start_s,
            start_s + window_s,
            cycle.flag or _too_short(workloads, statistics.median(makespans)),
            state.restore_s,
        )

    def measure_cold(
        self,
        parts: RoundParts,
        window_s: float,
        flush: Callable[[Stream], None],
        places: Sequence[StreamPlace] = (),
    ) -> Rounds:
        """Time single rounds, each behind a flush of the L2; for a window of no length, a few.

        The flush hides how long the host takes to launch. What a round restores is restored before the flush,
        and its time is no part of the round's.

        Args:
            parts: per workload, its launches in order.
            window_s: length of the window, flushes included.
            flush: puts into a stream what leaves nothing of the arrays in the L2.
            places: see ``measure``.

        Raises:
            LaunchRefusedError: a launch was refused.
        """
        workloads = self._opened(parts, places)
        timed = [tuple(step for step in steps if not isinstance(step, Restoring)) for steps in parts]
        restored = [step for steps in parts for step in steps if isinstance(step, Restoring)]

        def before() -> None:
            for step in restored:
                step.enqueue(self._lanes.main)
            flush(self._lanes.main)

        cycle = self._builder.singles(timed, before)
        queue = ReplayQueue(self._lanes, cycle)
        for _ in cycle.replays:  # the first time of each may take some milliseconds more
            queue.push()
            queue.land()
            if queue.readings[-1].stamped_s >= _LONG_ROUND_S:
                break
        self._launched |= _code_of([step for steps in timed for step in steps])
        warmed, first = queue.queued, queue.pushed
        least = _LEAST_LONG_ROUNDS if queue.readings[-1].stamped_s >= _LONG_ROUND_S else _LEAST_REPLAYS
        start_s = self._now_s()
        while queue.pushed < first + (least if window_s else SINGLES) or self._now_s() - start_s < window_s:
            queue.push()
        queue.land()
        window = queue.readings[warmed:]
        times_s = [reading.stamped_s for reading in window]
        return Rounds(
            [list(shares) for shares in zip(*(reading.shares or () for reading in window), strict=True)],
            times_s,
            len(window),
            start_s,
            self._now_s(),
            cycle.flag,
            (0.0,) * workloads,
            resolution_s(times_s),
        )

    def close(self) -> None:
        """Release graphs, and what streams run on."""
        self._known.clear()
        self._lanes.open(self._lanes.count)
        if self._shares is not None:
            self._shares.close()

    def _opened(self, parts: RoundParts, places: Sequence[StreamPlace]) -> int:
        """Have a stream for each workload, at its place; returns how many there are."""
        if self._shares is not None and self._shares.made > _MOST_CONTEXTS:
            self.close()
        if self._lanes.count < len(parts):
            self._lanes.open(len(parts))
        self._lanes.arrange(places)
        return len(parts)

    def _singles(self, rotation: Rotation) -> Rounds:
        """Time single rounds, behind one that loads code and hides how long the host takes to launch."""
        workloads = len(rotation[0])
        each = [self._lanes.stamps(workloads) for _ in range(1 + SINGLES)]
        start_s = self._now_s()
        for index, stamps in enumerate(each):
            self._lanes.round(rotation[index % len(rotation)], stamps)
        ends_s = [self._ended_s(stamps) for stamps in each][1:]
        self._launched |= _code_of([step for steps in rotation[0] for step in steps])
        makespans = [max(*ends, 1e-9) for ends in ends_s]
        shares = [[end / makespan for end in ends] for ends, makespan in zip(ends_s, makespans, strict=True)]
        return Rounds(
            [list(lane) for lane in zip(*shares, strict=True)],
            makespans,
            SINGLES,
            start_s,
            start_s + math.fsum(makespans),
            restore_s=(0.0,) * workloads,
        )

    def _ended_s(self, stamps: RoundStamps) -> list[float]:
        """Wait for a round; when each workload had ended, in s from its begin."""
        for end in stamps.ends:
            end.synchronize()
        return [self._lanes.elapsed_s(stamps.begin, end) for end in stamps.ends]

    def _fill(self, queue: ReplayQueue, cycle: ReplayCycle, window_s: float) -> float:
        """Push until a window is full that begins behind what was pushed before; its begin."""
        before, first = queue.queued, queue.pushed
        queue.push()  # something must lie behind the warm-up before its end is waited for
        queue.land(before)
        start_s = self._now_s()
        least = _LEAST_LONG_ROUNDS if cycle.round_s >= _LONG_ROUND_S else _LEAST_REPLAYS
        enough_s = window_s - cycle.replay_s / 2  # another replay would bring it farther from what was asked
        while queue.pushed < first + least or self._now_s() - start_s + queue.ahead_s < enough_s:
            queue.push()
        return start_s

    # --- preparing -------------------------------------------------------------------------------

    def _of(self, rotation: Rotation, places: tuple[StreamPlace, ...]) -> _RotationState:
        """Return the state of a rotation; one that is new is timed."""
        steps_of = [tuple(tuple(step.identity for step in steps) for steps in parts) for parts in rotation]
        key = (places, *steps_of)
        state = self._known.get(key)
        if state is None:
            functions = [step.function for steps in rotation[0] for step in steps if isinstance(step, Launch)]
            state = self._known[key] = _RotationState(
                functions,
                self._round_s(rotation),
                self._restore_s(rotation),
                sum(len(steps) for parts in rotation for steps in parts),
            )
            while len(self._known) > 1 and (
                len(self._known) > _KEPT
                or sum(other.launches for other in self._known.values()) > _KEPT_LAUNCHES
            ):
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return state

    def _round_s(self, rotation: Rotation) -> float:
        """Time of a round. The first of new code also loads it; it counts if it is long."""
        code = _code_of([step for steps in rotation[0] for step in steps])
        elapsed_s = 0.0
        for index in range(1 if code <= self._launched else 2):
            stamps = self._lanes.stamps(len(rotation[0]))
            self._lanes.round(rotation[index % len(rotation)], stamps)
            elapsed_s = max(self._ended_s(stamps))
            if elapsed_s >= _LONG_ROUND_S:
                break
        self._launched |= code
        return max(elapsed_s, 1e-6)

    def _restore_s(self, rotation: Rotation) -> tuple[float, ...]:
        """Per workload, the time in which its arrays are restored behind a round, by nothing but that."""
        return tuple(
            self._copies_s(
                [[step for step in parts[lane] if isinstance(step, Restoring)] for parts in rotation]
            )
            for lane in range(len(rotation[0]))
        )

    def _copies_s(self, sets: Sequence[Sequence[Step]]) -> float:
        """Mean time of the copies of one of the sets, of a graph that goes round them."""
        if not sets[0]:
            return 0.0
        turns = [sets[index % len(sets)] for index in range(max(_RESTORED, len(sets)))]
        lanes = self._lanes

        def put() -> None:
            for steps in turns:
                lanes.enqueue(steps, lanes.main, 0)

        try:
            graph = lanes.capture(put)
        except (self._cp.cuda.runtime.CUDARuntimeError, DriverCallError, LaunchRefusedError):
            lanes.open(lanes.count)
            play = put
        else:
            play = partial(graph.launch, lanes.main)
        for _ in range(2):  # the first loads code
            begin, end = lanes.event(), lanes.event()
            lanes.stamp(begin)
            play()
            lanes.stamp(end)
            end.synchronize()
        return lanes.elapsed_s(begin, end) / len(turns)

    def _cycle(self, state: _RotationState, rotation: Rotation, window_s: float) -> ReplayCycle:
        """Replays for a window: those of a window before, or new ones."""
        if state.round_s >= _SHORT_REPLAY_S:
            rotation = rotation[:_SETS]
        wanted_s, most = min(_REPLAY_S, _REPLAY_PART * window_s), _LAUNCHES
        if window_s < _SHORT_WINDOW_S:
            wanted_s, most = _SHORT_REPLAY_S, _FEW_LAUNCHES
        cycle = state.cycles.get(wanted_s)
        if cycle is not None:
            return cycle
        cycle = self._played(self._builder.cycle(rotation, state.round_s, wanted_s, most), wanted_s)
        if cycle.round_s < state.round_s / 2:  # a single round was a bad guide
            cycle = self._played(self._builder.cycle(rotation, cycle.round_s, wanted_s, most), wanted_s)
        state.round_s = cycle.round_s
        if cycle.graphs:
            state.cycles[wanted_s] = cycle
        return cycle

    def _played(self, cycle: ReplayCycle, wanted_s: float) -> ReplayCycle:
        """Replays with the time that a round takes in them; long rounds are known already.

        Each is played once: the first time takes up to some milliseconds more, on an H200.
        """
        if cycle.round_s >= wanted_s:
            return cycle
        queue = ReplayQueue(self._lanes, cycle)
        for _ in cycle.replays:
            queue.push()
        queue.land()
        round_s = min(reading.seconds / reading.rounds for reading in queue.readings if not reading.sample)
        return replace(cycle, round_s=max(round_s, 1e-6))


def resolution_s(times_s: Sequence[float]) -> float:
    """Standard uncertainty of a time that events tell in steps, by the least difference between times.

    Some GPUs tell them in steps of a microsecond, which is much of a short launch; so it is taken to be where
    all times are the same.
    """
    steps = [after - before for before, after in pairwise(sorted(set(times_s)))]
    return min(steps, default=_STEP_S) / math.sqrt(12)  # of a uniform distribution as wide as a step


def _code_of(steps: Sequence[Step]) -> set[Hashable]:
    """Return the code that the first run of steps loads onto the device."""
    code: set[Hashable] = {step.function.ptr for step in steps if isinstance(step, Launch)}
    return code | {step.call for step in steps if isinstance(step, LibraryLaunch)}


def most_sets(stages: int) -> int:
    """Sets of arrays that rounds of so many stages go round at most; of long chains two.

    What is in the L2 when a chain begins matters to its first stages only.
    """
    return max(2, _ROTATED_LAUNCHES // max(1, stages))


def _too_short(workloads: int, makespan_s: float) -> Flag | None:
    """A flag where starting and joining the workloads takes more than a hundredth of a round."""
    forked_s = _FORK_S * workloads
    if workloads == 1 or forked_s <= _NOTABLE * makespan_s:
        return None
    part = f"about {1e6 * forked_s:.1f} us of {1e6 * makespan_s:.1f} us"
    return Flag(FlagKind.SHORT_ROUND, f"{part} a round start and join the workloads")
