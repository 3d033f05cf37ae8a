"""The streams of a device: a round put into them, work captured from them, events stamped in them.

A workload has one stream, and a few beside it where its stages ask for them: these begin behind what the
run sets to zero, wait for the stages they name, and end before the run does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType

from tuner.devices.cuda.driver import CudaEvent, DriverCallError, DriverCalls, Graph, SmResource, Stream
from tuner.devices.cuda.launches import LaunchRefusedError, StageLaunch, Step, has_host_stage
from tuner.model.trial import Status
from tuner.space.occupancy import shared_out

_BEGIN = -1  # number of the event at the beginning of a run; those of the ends are below


@dataclass(frozen=True)
class StreamPlace:
    """Place of a workload's stream among those of others.

    Attributes:
        priority: the highest is the most urgent.
        units: of multiprocessors that its kernels run on (``shared_out``); none for all.
    """

    priority: int = 0
    units: tuple[int, ...] = ()


ANYWHERE = StreamPlace()

MAIN = 1
"""Priority of the stream of a lone workload: those beside it have what does not hold it up."""


@dataclass(frozen=True)
class RoundStamps:
    """Timing events of a round.

    Attributes:
        begin: its fork; all workloads start behind it.
        ends: per workload, behind its last launch.
    """

    begin: CudaEvent
    ends: tuple[CudaEvent, ...]


class Lanes:
    """The main stream of a device, and one more for every workload of a co-run.

    Args:
        cp: CuPy.
        driver: records events in a graph, which CuPy does not offer.
        shares: streams on a part of the multiprocessors; none can be had if not given.
    """

    def __init__(self, cp: ModuleType, driver: DriverCalls, shares: "SmShares | None" = None) -> None:
        self._cp = cp
        self._driver = driver
        self._shares = shares
        self._capturing = False
        self._places: tuple[StreamPlace, ...] = ()
        self.open(0)

    def open(self, count: int) -> None:
        """Streams for so many workloads, all new: after a capture that broke, the old ones are of no use.

        Places stay.
        """
        cuda = self._cp.cuda
        self.main: Stream = new_stream(self._cp, MAIN)
        self._fork: CudaEvent = cuda.Event(disable_timing=True)
        self._joins: list[CudaEvent] = [cuda.Event(disable_timing=True) for _ in range(count)]
        self._lanes: dict[tuple[int, StreamPlace], Stream] = {}
        self._sides: dict[tuple[int, StreamPlace], SideStreams] = {}

    @property
    def count(self) -> int:
        """Workloads there are streams for."""
        return len(self._joins)

    def arrange(self, places: Sequence[StreamPlace]) -> None:
        """Give the workloads' streams places, for what is put into them and captured from now on.

        Args:
            places: of each; all are alike if there are none.
        """
        self._places = tuple(places)

    def _place(self, workload: int) -> StreamPlace:
        return self._places[workload] if workload < len(self._places) else ANYWHERE

    def _lane(self, workload: int) -> Stream:
        """The stream of a workload at its place."""
        key = (workload, self._place(workload))
        if key not in self._lanes:
            self._lanes[key] = self._new_stream(key[1])
        return self._lanes[key]

    def _new_stream(self, place: StreamPlace) -> Stream:
        if place.units and self._shares is not None:
            return self._shares.stream(place)
        return new_stream(self._cp, place.priority)

    def round(
        self,
        parts: Sequence[Sequence[Step]],
        stamps: RoundStamps | None = None,
        *,
        behind_another: bool = False,
    ) -> None:
        """Put a round into the streams; it begins and ends in the main one.

        A lone workload stays in the main stream: a fork and a join would take longer than a short kernel.

        The workload that starts first gets the multiprocessors first. A graph starts the branches of its
        first fork as they were captured, and those of a fork that follows a join in reverse (seen with driver
        580). So the latter are captured in reverse, and all rounds start alike.

        Workloads with host stages come last, as this thread computes them while the others run.

        Args:
            parts: per workload, its launches in order.
            stamps: times the round.
            behind_another: the round follows another in the same graph.

        Raises:
            LaunchRefusedError: a launch was refused.
        """
        if stamps is not None:
            self.stamp(stamps.begin)
        if len(parts) == 1:
            self.enqueue(parts[0], self.main, 0)
            if stamps is not None:
                self.stamp(stamps.ends[0])
            return
        self._fork.record(self.main)
        order = sorted(range(len(parts)), key=lambda index: has_host_stage(parts[index]))
        for index in reversed(order) if behind_another and self._capturing else order:
            lane = self._lane(index)
            lane.wait_event(self._fork)
            self.enqueue(parts[index], lane, index)
            if stamps is not None:
                self.stamp(stamps.ends[index], lane)
            self._joins[index].record(lane)
        for join in self._joins[: len(parts)]:
            self.main.wait_event(join)

    def enqueue(self, steps: Sequence[Step], stream: Stream, workload: int) -> None:
        """Put launches into a stream.

        Raises:
            LaunchRefusedError: a launch was refused; it names the workload.
        """
        cuda = self._cp.cuda
        try:
            if any(isinstance(step, StageLaunch) and step.side for step in steps):
                key = (workload, self._place(workload))
                if key not in self._sides:
                    self._sides[key] = SideStreams(self._cp, partial(self._new_stream, key[1]))
                self._sides[key].enqueue(steps, stream)
            else:
                for step in steps:
                    step.enqueue(stream)
        except (cuda.driver.CUDADriverError, cuda.runtime.CUDARuntimeError) as error:
            raise LaunchRefusedError(Status.LAUNCH_ERROR, str(error), workload) from error

    def stamp(self, event: CudaEvent, stream: Stream | None = None) -> None:
        """Record a timing event in a stream, the main one if none is named; in a graph as a node of it.

        Raises:
            DriverCallError: the driver records no events in graphs.
        """
        chosen = self.main if stream is None else stream
        if self._capturing:
            self._driver.record_in_graph(event.ptr, chosen.ptr)
        else:
            event.record(chosen)

    def capture(self, action: Callable[[], None]) -> Graph:
        """Record an action in the streams as a graph; after an error, ``open`` them anew.

        The graph is on the device when this has ended in the stream: the first launch of one that is not
        takes some microseconds for each of its nodes, while the device waits.
        """
        self.main.begin_capture()
        self._capturing = True
        try:
            action()
        finally:
            self._capturing = False
            graph = self.main.end_capture()
        if self._sides or any(place.priority for place in self._places):
            graph = PrioritisedGraph(graph, self._driver)
        graph.upload(self.main)
        return graph

    def event(self) -> CudaEvent:
        """A timing event that is waited for asleep: a spinning host would take power and a core."""
        event: CudaEvent = self._cp.cuda.Event(block=True)
        return event

    def stamps(self, workloads: int) -> RoundStamps:
        """Events for a round."""
        return RoundStamps(self.event(), tuple(self.event() for _ in range(workloads)))

    def elapsed_s(self, begin: CudaEvent, end: CudaEvent) -> float:
        """Time between two events that the device has passed."""
        return float(self._cp.cuda.get_elapsed_time(begin, end)) * 1e-3


def new_stream(cp: ModuleType, priority: int) -> Stream:
    """A stream that waits for no default stream; CUDA counts priorities downwards, from 0."""
    stream: Stream = cp.cuda.Stream(non_blocking=True, priority=-priority)
    return stream


class _Handle:
    """A stream of somebody else's, as CUDA's stream protocol has it."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """Version of the protocol, and the handle."""
        return 0, self._handle


def stream_of(cp: ModuleType, handle: int) -> Stream:
    """A stream of the current GPU by its handle; CuPy does not destroy it.

    CuPy before 14 has another call for it, which 14 advises against.
    """
    foreign = getattr(cp.cuda.Stream, "from_external", None)
    stream: Stream = cp.cuda.ExternalStream(handle) if foreign is None else foreign(_Handle(handle))
    return stream


class SmShares:
    """Streams on parts of the multiprocessors: those of green contexts, made when they are first asked for.

    What is captured from such a stream runs on its multiprocessors in a graph too, and one graph may hold
    launches of several contexts (CUDA Programming Guide, "Green Contexts"): rounds are replayed as ever.

    Args:
        cp: CuPy.
        driver: makes green contexts, which CuPy does not offer.
        unit: multiprocessors that shares are multiples of.
    """

    def __init__(self, cp: ModuleType, driver: DriverCalls, unit: int) -> None:
        self._cp = cp
        self._driver = driver
        self._unit = unit
        self._split: tuple[SmResource, ...] = ()
        self._contexts: dict[tuple[int, ...], int] = {}
        self._streams: dict[tuple[int, ...], list[int]] = {}

    @property
    def made(self) -> int:
        """Green contexts there are."""
        return len(self._contexts)

    @property
    def units(self) -> int:
        """Units of multiprocessors there are.

        Raises:
            DriverCallError: the driver shares none out, or by another unit.
        """
        if not self._split:
            split = self._driver.split_sms(self._unit)
            of = {group.multiprocessors for group in split[:-1]}
            if of != {self._unit}:
                found = ", ".join(map(str, sorted(of))) or "nothing"
                raise DriverCallError(f"the driver splits multiprocessors by {found}, not by {self._unit}")
            self._split = split
        return len(self._split) - 1

    def shared_out(self, shares: Sequence[int]) -> list[tuple[tuple[int, ...], int | None]]:
        """Per workload its units, and the multiprocessors in them; none, and None, for all.

        Args:
            shares: multiprocessors of each workload, 0 for no share.

        Raises:
            DriverCallError: as ``units``.
        """
        if not any(shares):
            return [((), None)] * len(shares)
        laid = shared_out(shares, self._unit, self.units)
        return [
            (units, sum(self._split[unit].multiprocessors for unit in units) if units else None)
            for units in laid
        ]

    def stream(self, place: StreamPlace) -> Stream:
        """A new stream.

        Raises:
            LaunchRefusedError: the driver makes no green context of these multiprocessors.
        """
        try:
            if place.units not in self._contexts:
                parts = [self._split[unit] for unit in place.units if self._split[unit].multiprocessors]
                self._contexts[place.units] = self._driver.green_context(parts)
            stream = self._driver.green_stream(self._contexts[place.units], -place.priority)
        except DriverCallError as error:
            raise LaunchRefusedError(Status.LAUNCH_ERROR, f"sm_share: {error}") from error
        self._streams.setdefault(place.units, []).append(stream)
        return stream_of(self._cp, stream)

    def close(self) -> None:
        """Free the streams and their contexts; nothing that was captured from them is launched again."""
        for units, context in self._contexts.items():
            self._driver.destroy_green(context, self._streams.pop(units, []))
        self._contexts.clear()


class SideStreams:
    """The streams beside that of one workload.

    Args:
        cp: CuPy.
        new: makes a stream; one that runs anywhere if not given.
    """

    def __init__(self, cp: ModuleType, new: Callable[[], Stream] | None = None) -> None:
        self._cp = cp
        self._new = new or partial(new_stream, cp, 0)
        self._streams: dict[int, Stream] = {}
        self._events: dict[int, CudaEvent] = {}

    @property
    def used(self) -> bool:
        """True where something was put beside a workload's own stream."""
        return bool(self._streams)

    def enqueue(self, steps: Sequence[Step], main: Stream) -> None:
        """Put a run into its stream and those beside it; it begins and ends in its own.

        What is no stage stays in the workload's own stream: the streams beside it begin with the first stage,
        and have ended behind the last.

        Args:
            steps: what is prepared, stages, what is restored, in this order.
            main: the workload's own stream.
        """
        at = [number for number, step in enumerate(steps) if isinstance(step, StageLaunch)]
        first, last = at[0], at[-1]
        for step in steps[:first]:
            step.enqueue(main)
        self._put(steps[first : last + 1], main)
        for step in steps[last + 1 :]:
            step.enqueue(main)

    def _put(self, steps: Sequence[Step], main: Stream) -> None:
        """Fork, put the stages into their streams with events where they wait for each other, join."""
        stages = {step.place: step for step in steps if isinstance(step, StageLaunch)}
        begin = self._event(_BEGIN)
        begin.record(main)
        streams = {0: main}
        for side in sorted({stage.side for stage in stages.values()} - {0}):
            streams[side] = self._stream(side)
            streams[side].wait_event(begin)
        awaited = {earlier for stage in stages.values() for earlier in _others(stage, stages)}
        for step in steps:
            if not isinstance(step, StageLaunch):
                step.enqueue(main)
                continue
            stream = streams[step.side]
            for earlier in _others(step, stages):
                stream.wait_event(self._event(earlier))
            step.enqueue(stream)
            if step.place in awaited:
                self._event(step.place).record(stream)
        for side in streams.keys() - {0}:
            end = self._event(_BEGIN - side)
            end.record(streams[side])
            main.wait_event(end)

    def _stream(self, side: int) -> Stream:
        if side not in self._streams:
            self._streams[side] = self._new()
        return self._streams[side]

    def _event(self, number: int) -> CudaEvent:
        """The event behind a stage; negative numbers are those of the beginning and the ends."""
        if number not in self._events:
            self._events[number] = self._cp.cuda.Event(disable_timing=True)
        return self._events[number]


def _others(stage: StageLaunch, stages: Mapping[int, StageLaunch]) -> list[int]:
    """Places of the stages in other streams that a stage waits for."""
    return [earlier for earlier in stage.after if earlier in stages and stages[earlier].side != stage.side]


class PrioritisedGraph:
    """A graph that CuPy captured, made ready anew: CuPy's own runs all of it at one priority.

    Args:
        captured: the graph; kept, as its nodes hold what is launched.
        driver: makes it ready and launches it.

    Raises:
        DriverCallError: the driver cannot.
    """

    def __init__(self, captured: Graph, driver: DriverCalls) -> None:
        self._captured = captured
        self._driver = driver
        self.graph = captured.graph
        self.graphExec = driver.ready_graph(captured.graph)  # CuPy's name

    def launch(self, stream: Stream) -> None:
        """Replay into a stream."""
        self._driver.launch_graph(self.graphExec, stream.ptr)

    def upload(self, stream: Stream) -> None:
        """Bring it to the device."""
        self._driver.upload_graph(self.graphExec, stream.ptr)

    def __del__(self) -> None:
        if hasattr(self, "graphExec"):
            self._driver.destroy_graph(self.graphExec)
