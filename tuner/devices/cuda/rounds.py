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
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType

from tuner.devices.cuda.driver import DriverCallError, DriverCalls
from tuner.devices.cuda.lanes import Lanes
from tuner.devices.cuda.launches import Launch, LaunchRefusedError, LibraryLaunch, Restoring, Step
from tuner.devices.cuda.replays import ReplayBuilder, ReplayCycle, ReplayQueue, Rotation
from tuner.devices.cuda.types import CudaFunction
from tuner.model.trial import Flag, FlagKind

WARM_S = 0.2
"""Rounds back to back before a window: a GPU that idled for milliseconds needs this long to settle."""

_WARM_PART = 1 / 6  # of the window at most, so that a run spends its time in windows
_LONG_ROUND_S = 0.1  # a first round this long is not made of loading code
_SHORT_WINDOW_S = 0.03
_REPLAY_S, _SHORT_REPLAY_S = 3e-3, 5e-4  # long against the few microseconds between two; in a short window
_LAUNCHES, _FEW_LAUNCHES = 1024, 512  # captured for a window, and for one too short to make up for more
_SETS = 64
"""Sets of a long round: of more, one is below a sixtieth of what is cold, and read in a microsecond."""
_LEAST_REPLAYS, _LEAST_LONG_ROUNDS = 5, 3
_SAMPLE_S = 0.01  # between two samples, which take some microseconds more than other rounds
_LEAST_SAMPLES = 5
_FORK_S = 0.4e-6  # per workload of a co-run, to start and join it: on an H200 (benchmarks/round_overhead.py)
_NOTABLE = 0.01  # of a round
_KEPT = 20  # rotations whose graphs are kept: contenders take turns
_KEPT_LAUNCHES = 2**15  # in all of them: a node of a graph takes about a kilobyte
_ROTATED_LAUNCHES = 2048  # in a rotation: of a long chain, little is read for the first time in a round
_RESTORED = 16  # times that copies are made to time them


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
        restore_s: per workload, the time in which the arrays of a round are restored, measured alone.
    """

    shares: list[list[float]]
    makespan_s: list[float]
    rounds: int
    start_s: float
    end_s: float
    flag: Flag | None = None
    restore_s: tuple[float, ...] = ()


@dataclass
class _RotationState:
    """What is kept of a rotation.

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
    """

    def __init__(
        self,
        cp: ModuleType,
        now_s: Callable[[], float] = time.monotonic,
        driver: DriverCalls | None = None,
    ) -> None:
        self._cp = cp
        self._now_s = now_s
        self._lanes = Lanes(cp, driver or DriverCalls())
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

    def measure(self, rotation: Rotation, window_s: float, priorities: Sequence[int] = ()) -> Rounds:
        """Warm up, and fill a window with replays.

        At least five replays of one or more rounds are made, three of rounds above 0.1 s. The graphs of
        the last few rotations are kept, so that another window of the same is had for little. Of a window too
        short for five samples the others follow behind it.

        Args:
            rotation: the launches, by set and workload.
            window_s: length of the window.
            priorities: of the workloads' streams, the highest the most urgent; all alike if not given.

        Raises:
            LaunchRefusedError: a launch was refused.
        """
        workloads = len(rotation[0])
        if self._lanes.count < workloads:
            self._lanes.open(workloads)
        self._lanes.prioritise(priorities)
        known = self._of(rotation, tuple(priorities))
        cycle = self._cycle(known, rotation, window_s)
        queue = ReplayQueue(self._lanes, cycle, max(1, round(_SAMPLE_S / cycle.replay_s)))
        begun_s = self._now_s()  # the device idled while graphs were made
        warm_s = min(WARM_S, _WARM_PART * window_s)
        while queue.pushed == 0 or self._now_s() - begun_s + queue.ahead_s < warm_s:
            queue.push()
        before, sampled = queue.queued, queue.sampled
        start_s = self._fill(queue, cycle, window_s)
        after = queue.queued
        for _ in range(_LEAST_SAMPLES - (queue.sampled - sampled)):
            queue.sample()  # behind the window
        queue.land()
        window = queue.readings[before:after]
        makespans = [one.seconds / one.rounds for one in window if not one.sample]
        told = [one.shares for one in queue.readings[before:] if one.shares is not None] or [(1.0,)]
        return Rounds(
            [list(shares) for shares in zip(*told, strict=True)],
            makespans,
            sum(one.rounds for one in window),
            start_s,
            start_s + math.fsum(one.seconds for one in window),
            cycle.flag or _too_short(workloads, statistics.median(makespans)),
            known.restore_s,
        )

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

    def _of(self, rotation: Rotation, priorities: tuple[int, ...]) -> _RotationState:
        """What is known of a rotation; one that is new is timed."""
        steps_of = [tuple(tuple(step.identity for step in steps) for steps in parts) for parts in rotation]
        key = (priorities, *steps_of)
        known = self._known.get(key)
        if known is None:
            functions = [step.function for steps in rotation[0] for step in steps if isinstance(step, Launch)]
            known = self._known[key] = _RotationState(
                functions,
                self._round_s(rotation),
                self._restore_s(rotation),
                sum(len(steps) for parts in rotation for steps in parts),
            )
            while len(self._known) > 1 and (
                len(self._known) > _KEPT or sum(one.launches for one in self._known.values()) > _KEPT_LAUNCHES
            ):
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return known

    def _round_s(self, rotation: Rotation) -> float:
        """Time of a round. The first of new code also loads it; it counts if it is long."""
        code = _code_of([step for steps in rotation[0] for step in steps])
        elapsed_s = 0.0
        for index in range(1 if code <= self._launched else 2):
            stamps = self._lanes.stamps(len(rotation[0]))
            self._lanes.round(rotation[index % len(rotation)], stamps)
            for end in stamps.ends:
                end.synchronize()
            elapsed_s = max(self._lanes.elapsed_s(stamps.begin, end) for end in stamps.ends)
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

    def _cycle(self, known: _RotationState, rotation: Rotation, window_s: float) -> ReplayCycle:
        """Replays for a window: those of a window before, or new ones."""
        if known.round_s >= _SHORT_REPLAY_S:
            rotation = rotation[:_SETS]
        short = window_s < _SHORT_WINDOW_S
        wanted_s, most = (_SHORT_REPLAY_S, _FEW_LAUNCHES) if short else (_REPLAY_S, _LAUNCHES)
        cycle = known.cycles.get(wanted_s)
        if cycle is not None:
            return cycle
        cycle = self._played(self._builder.cycle(rotation, known.round_s, wanted_s, most), wanted_s)
        if cycle.round_s < known.round_s / 2:  # a single round was a bad guide
            cycle = self._played(self._builder.cycle(rotation, cycle.round_s, wanted_s, most), wanted_s)
        known.round_s = cycle.round_s
        if cycle.graphs:
            known.cycles[wanted_s] = cycle
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
        round_s = min(one.seconds / one.rounds for one in queue.readings if not one.sample)
        return replace(cycle, round_s=max(round_s, 1e-6))


def _code_of(steps: Sequence[Step]) -> set[Hashable]:
    """What is loaded onto the device when it runs for the first time."""
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
