"""The modelled time of launches, library calls and rounds of concurrent plans.

A launch is bound by whichever is slowest: device memory, what passes L2 and crossbar, instruction issue, the
single-precision lanes, the shared memory of the SMs, the rate at which blocks are started, or the life of its
blocks (Little's law: so many bytes or instructions are in flight, and each block lives so long). Bounds near
each other add up a little: they are joined by a p-norm. Caches are cold: buffers rotate past the L2. Only
what blocks of one launch hand to each other stays there. What a launch asks for is told by ``LaunchModel``.

The constants of a block's life, of shared memory and of bytes in flight were fitted to recorded times of an
H200 at half of the recorded sizes; `docs/simulated-devices.md` tells how the others compare.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.devices.gpu_models import GpuModel
from tuner.devices.simulated.resources import StageArithmetic, per_clock
from tuner.model.elements import element_dtype
from tuner.model.plan import Buffer, Configuration, LibraryCall, Plan, Resources, Stage, Workload
from tuner.space.occupancy import Occupancy, holds_whole, occupancy, refusal, shared_out, sm_unit

# --- What calls of libraries ask of a modelled GPU: bytes and operations by their dimensions.
#
# The tile, its registers and shared memory, and the efficiency are those of no library in particular; the
# numbers are modelled like all of a simulated device.

EFFICIENCY = 0.8
"""Of the arithmetic lanes, at best: a large product of matrices."""

_TILE = 64  # elements of the result along each axis
_THREADS = 128
_REGISTERS = 128
_SHARED_BYTES = 16 * 1024
_WORD = 4


@dataclass(frozen=True)
class LibraryWork:
    """The work of one call.

    Attributes:
        operations: floating-point operations, as papers count them.
        issued: fused operations of lanes of its precision, at the efficiency of a library.
        instructions: thread instructions.
        bytes: device memory moved.
        read_bytes: of which loads.
        tiles: blocks.
        threads: threads of a block.
        registers: of a thread.
        shared_bytes: of a block.
        doubles: its precision is double.
    """

    operations: float
    issued: float
    instructions: float
    bytes: float
    read_bytes: float
    tiles: int
    threads: int = _THREADS
    registers: int = _REGISTERS
    shared_bytes: int = _SHARED_BYTES
    doubles: bool = False


def library_work(call: LibraryCall) -> LibraryWork:
    """The work of a call, by its dimensions."""
    operations, read, written = _counted(call)
    dtype = np.dtype(call.dtype)
    item, is_complex = dtype.itemsize, dtype.kind == "c"
    doubles = item == (16 if is_complex else 8)
    products = 4 if is_complex and call.routine != "fft" else 1  # of real numbers, for one of its own
    words = min(1.0, item / _WORD)  # of a half a half
    issued = operations / 2 * products * words / EFFICIENCY
    tiles = math.ceil(call.m / _TILE) * math.ceil(call.n / _TILE)
    moved, loaded = item * (read + written), float(item * read)
    return LibraryWork(operations, issued, 1.25 * issued, moved, loaded, tiles, doubles=doubles)


def _counted(call: LibraryCall) -> tuple[float, int, int]:
    """Operations, and the elements that are read and written."""
    m, n, k = call.m, call.n, call.k
    if call.routine == "gemm":
        return 2.0 * m * n * k, m * k + k * n + (m * n if call.beta else 0), m * n
    if call.routine == "syrk":
        half = n * (n + 1) // 2
        return 2.0 * half * k, n * k + (half if call.beta else 0), half
    if call.routine == "trsm":
        order = m if call.side == "left" else n
        return float(m * n * order), order * (order + 1) // 2 + m * n, m * n
    return 5.0 * m * n * math.log2(max(2, n)), m * n, m * n


# --- The demands of a launch in the units of the time model: bytes, instructions, steps, words, blocks.
#
# The model sees only what a plan states (bytes, operations, steps, launch geometry) and what the compiler
# reports (registers, shared memory, spills); bank conflicts, coalescing and scheduling luck are beyond it.

WORD = 4  # bytes
# Instructions: fitted to the energies of one scan on an H200, which follow (8 + 36/P) per element.
_PER_OPERATION = 1.0
_PER_WORD = 3.5  # address, load or store, and moves for each four bytes of device memory
_PER_THREAD = 18.0  # indices, bounds, exit
_PER_STEP = 2.0  # a shuffle and its use
_PER_BARRIER_STEP = 6.0  # store, barrier, load and use
_SHUFFLED = 0.7  # such words for each word of an element and step
_STAGED = 4.8  # for each word that is loaded and passes shared memory: stored, loaded, some banks twice
_CLUSTER_MOVES = 2.1  # bytes between blocks of a cluster, by the bytes read: data and its notices
_LANES_ONLY = StageArithmetic()
_ROLE_MOVES = {
    "in": (1.0, 0.0),
    "out": (0.0, 1.0),
    "inout": (1.0, 1.0),
    "scratch": (0.5, 0.5),
    "zeroed": (0.5, 0.5),
    "table": (1.0, 0.0),
}


@dataclass(frozen=True)
class LaunchModel:
    """One stage of a plan in the units of the model; independent of the clock.

    Attributes:
        bytes: device memory moved, spills included.
        read_bytes: of which loads.
        instructions: thread instructions.
        operations: arithmetic, in operations of single-precision lanes.
        units: blocks' worth of work: what the grid counts.
        blocks: blocks launched: as many, or those that are resident at a time.
        threads: threads of a block.
        warps: warps of a block.
        occupancy: resident blocks and warps of an SM.
        registers: of a thread.
        shared_bytes: of a block.
        warp_steps: dependent steps within a warp, for one unit of work.
        block_steps: dependent steps across the block, each with a barrier, for one unit of work.
        exchanged_words: words a thread exchanges in each of these.
        shared_words: words of a thread that pass shared memory and first cache, or shuffles, for one unit of
            work.
        handed_bytes: through L2 from block to block within the launch.
        waits: blocks wait for what others hand to them.
        launches: of the kernel, and of what sets arrays to zero, or restores them, around the run.
    """

    bytes: float
    read_bytes: float
    instructions: float
    operations: float
    units: int
    blocks: int
    threads: int
    warps: int
    occupancy: Occupancy
    registers: int
    shared_bytes: int
    warp_steps: float
    block_steps: float
    exchanged_words: float = 0.0
    shared_words: float = 0.0
    handed_bytes: float = 0.0
    waits: bool = False
    launches: int = 1


@dataclass(frozen=True)
class StageShare:
    """A stage's part in the work of its plan.

    Attributes:
        bytes: device memory it moves.
        read_bytes: of which loads.
        operations: arithmetic.
    """

    bytes: float
    read_bytes: float
    operations: float


def described(
    plan: Plan, resources: Sequence[Resources], gpu: GpuModel, arithmetic: Sequence[StageArithmetic] = ()
) -> tuple[LaunchModel, ...]:
    """The stages of a run, without set-up; those that are alike in all that matters are one object."""
    plan = plan.as_compiled(resources)
    resources = [replace(resources[index], demands=None) for index in plan.timed]
    computed = [arithmetic[index] if arithmetic else _LANES_ONLY for index in plan.timed]
    plan = replace(plan, stages=tuple(plan.stages[index] for index in plan.timed))
    shares = stage_shares(plan)
    by_stage: dict[tuple[object, ...], LaunchModel] = {}
    launches = []
    for index, (stage, used) in enumerate(zip(plan.stages, resources, strict=True)):
        geometry = (stage.grid, stage.block, stage.shared_bytes, stage.resident, stage.cluster)
        key = (index == 0, stage.buffers, stage.library, geometry, used, shares[index], computed[index])
        if key not in by_stage:
            by_stage[key] = describe(plan, index, used, gpu, shares=shares, arithmetic=computed[index])
        launches.append(by_stage[key])
    return tuple(launches)


def describe(
    plan: Plan,
    index: int,
    resources: Resources,
    gpu: GpuModel,
    *,
    shares: Sequence[StageShare] = (),
    arithmetic: StageArithmetic = _LANES_ONLY,
) -> LaunchModel:
    """A stage of a plan in the units of the model.

    Args:
        plan: the plan.
        index: which of its stages.
        resources: registers, shared memory and spills of that stage.
        gpu: the GPU, for its occupancy limits.
        shares: of all stages, where they are known.
        arithmetic: what units of the GPU do for its operations.
    """
    stage = plan.stages[index]
    share = (shares or stage_shares(plan))[index]
    prelude = (_zeroed(plan) + [2 * size for size in restored_bytes(plan)]) if index == 0 else []
    if stage.library is not None:
        return _of_library(library_work(stage.library), prelude, gpu)
    moved, read = share.bytes, share.read_bytes
    shared = resources.static_shared_bytes + stage.shared_bytes
    filled = occupancy(gpu.limits, stage.threads_per_block, resources.registers_per_thread, shared)
    blocks = _blocks(stage, filled, gpu)
    worked = stage.blocks * stage.threads_per_block
    spilled = float(worked * max(resources.spill_bytes, 2 * resources.local_bytes))
    warps = -(-stage.threads_per_block // gpu.limits.warp_size)
    exchange = resources.static_shared_bytes or shared  # where there are both, the dynamic is a tile
    warp_steps, block_steps = _steps(plan, stage, exchange, warps)
    read_bytes = read + spilled / 2
    read_words = read_bytes / worked / WORD  # of a thread, for one unit of work
    shared_words = min(shared / stage.threads_per_block / WORD, read_words)
    handed = 2 * read_bytes if len(plan.stages) == 1 and _keeps_scratch(plan, stage) else 0.0
    operations = share.operations * arithmetic.weight + arithmetic.operations
    per_unit = _PER_STEP * warp_steps + _PER_BARRIER_STEP * block_steps
    instructions = (
        _PER_OPERATION * share.operations * min(1.0, arithmetic.weight)
        + _PER_WORD * (moved + spilled) / WORD
        + per_unit * worked
        + _PER_THREAD * blocks * stage.threads_per_block
    )
    return LaunchModel(
        bytes=moved + spilled + sum(prelude),
        read_bytes=read_bytes,
        instructions=max(instructions, arithmetic.issued),
        operations=operations,
        units=stage.blocks,
        blocks=blocks,
        threads=stage.threads_per_block,
        warps=warps,
        occupancy=filled,
        registers=resources.registers_per_thread,
        shared_bytes=shared,
        warp_steps=warp_steps,
        block_steps=block_steps,
        exchanged_words=min(exchange / stage.threads_per_block / WORD, read_words),
        shared_words=max(
            _STAGED * shared_words + _SHUFFLED * _element_words(plan) * warp_steps,
            arithmetic.requests / worked,
        ),
        handed_bytes=handed + (_CLUSTER_MOVES * 2 * read_bytes if stage.cluster > 1 else 0.0),
        waits=handed > 0,
        launches=1 + len(prelude),
    )


def _blocks(stage: Stage, filled: Occupancy, gpu: GpuModel) -> int:
    """Blocks of a launch; a resident grid is cut to whole clusters of those the GPU holds at a time."""
    if not stage.resident:
        return stage.blocks
    resident = filled.blocks_per_sm * gpu.limits.multiprocessors
    return min(stage.blocks, max(stage.cluster, resident - resident % stage.cluster))


def _zeroed(plan: Plan) -> list[float]:
    """Bytes of the arrays set to zero before a run."""
    return [_size(buffer) for buffer in plan.buffers if buffer.zeroed]


def _size(buffer: Buffer) -> float:
    return float(buffer.elements * element_dtype(buffer.dtype).itemsize)


def restored_bytes(plan: Plan) -> list[float]:
    """Bytes of the arrays that are restored behind a run."""
    return [_size(buffer) for buffer in plan.buffers if buffer.restored]


def _of_library(work: LibraryWork, prelude: Sequence[float], gpu: GpuModel) -> LaunchModel:
    """A call of a library as a kernel of tiles."""
    registers = min(work.registers, gpu.limits.max_registers_per_thread)
    shared = min(work.shared_bytes, gpu.limits.shared_bytes_per_block)
    return LaunchModel(
        bytes=work.bytes + sum(prelude),
        read_bytes=work.read_bytes,
        instructions=work.instructions,
        operations=work.issued * (gpu.fp32_lanes / per_clock(gpu, "fp64") if work.doubles else 1.0),
        units=work.tiles,
        blocks=work.tiles,
        threads=work.threads,
        warps=work.threads // gpu.limits.warp_size,
        occupancy=occupancy(gpu.limits, work.threads, registers, shared),
        registers=registers,
        shared_bytes=shared,
        warp_steps=0.0,
        block_steps=0.0,
        launches=1 + len(prelude),
    )


def stage_shares(plan: Plan) -> tuple[StageShare, ...]:
    """Return the share of each stage in the work of a plan, by the buffers that it touches.

    A single stage moves the plan's ``work.bytes``. Several pass intermediate results through device memory,
    so together they move at least what their buffers hold. Of a stage that a loop repeats, a launch with
    fewer blocks touches and computes as much less, unless the kernel file says what it moves. What libraries
    do is known by its dimensions, and is no part of this.
    """
    most: dict[str, int] = {}
    for stage in plan.stages:
        most[stage.name] = max(most.get(stage.name, 0), stage.blocks)
    called = [library_work(stage.library) for stage in plan.stages if stage.library is not None]
    work_bytes = max(0.0, plan.work.bytes - sum(work.bytes for work in called))
    # The operations that the rate of a kernel file counts, where it counts operations: no unit does more.
    counted = plan.work.rate_units if "flop" in plan.work.rate_name.lower() else 0.0
    stated = max(plan.work.operations, counted)
    operations = max(0.0, stated - sum(work.operations for work in called))
    sizes = {buffer.name: buffer for buffer in plan.buffers}
    parts = [
        0.0 if stage.library is not None else stage.blocks / max(1, most[stage.name]) for stage in plan.stages
    ]
    touched = [
        (part * reads, part * writes) if stage.moved_bytes is None else (stage.moved_bytes / 2,) * 2
        for stage, part in zip(plan.stages, parts, strict=True)
        for reads, writes in [_touched(sizes, stage)]
    ]
    total, count = sum(r + w for r, w in touched), sum(parts)
    if len(plan.stages) > 1:
        work_bytes = max(work_bytes, total)
    return tuple(
        _share(work_bytes, operations, (reads, writes), total, part / count if count else 0.0)
        for (reads, writes), part in zip(touched, parts, strict=True)
    )


def _share(
    work_bytes: float, operations: float, touched: tuple[float, float], total: float, part: float
) -> StageShare:
    reads, writes = touched
    moved = work_bytes * ((reads + writes) / total if total > 0 else part)
    return StageShare(moved, moved * (reads / (reads + writes) if reads + writes else 0.5), operations * part)


def _touched(buffers: Mapping[str, Buffer], stage: Stage) -> tuple[float, float]:
    """Bytes of the buffers a stage reads and of those it writes, each once."""
    reads = writes = 0.0
    for name in sorted(stage.buffers):
        size = _size(buffers[name])
        read, written = _ROLE_MOVES[buffers[name].role]
        reads += read * size
        writes += written * size
    return reads, writes


def _keeps_scratch(plan: Plan, stage: Stage) -> bool:
    """True if a stage uses a scratch buffer, which its own blocks write and read again."""
    return any(buffer.role == "scratch" and buffer.name in stage.buffers for buffer in plan.buffers)


def _element_words(plan: Plan) -> float:
    """Words that are read for one element of the problem: 1 for a scan, 4 for a tridiagonal row."""
    inputs = [buffer for buffer in plan.buffers if buffer.role in ("in", "inout")]
    if not inputs:
        return 1.0
    return sum(map(_size, inputs)) / WORD / max(1, min(buffer.elements for buffer in inputs))


def _steps(plan: Plan, stage: Stage, shared_bytes: int, warps: int) -> tuple[float, float]:
    """Dependent steps of a stage that are shuffles, and those through shared memory with a barrier each.

    With a word of shared memory per thread or more, every step goes through it; less holds the totals of
    warps, passed on at one barrier; none leaves shuffles. One warp needs no barrier.
    """
    steps = plan.work.steps / len(plan.stages)
    if warps == 1 or shared_bytes == 0:
        return steps, 0.0
    if shared_bytes < WORD * stage.threads_per_block:
        return steps, 1.0
    return 0.0, steps


# --- The time of a launch from its demands, and the heat of the GPU.

_PIECES = 16384
_WARM_STEP_S = 0.25  # of a piece of time in which the temperature is taken to be steady
# Cycles of a block's life beside its loads.
_START_CYCLES = 530.0  # start, first addresses, last stores
_SHUFFLE_CYCLES = 28.0
_BARRIER_CYCLES = 150.0
_BARRIER_CYCLES_PER_WARP = 5.0
_EXCHANGE_CYCLES_PER_WORD = 0.7  # a warp's words through shared memory, one warp after the other
_STRAGGLER_CYCLES_PER_WARP = 90.0  # a block holds its place until its slowest warp has ended
_ILP = 3.0
_BASE_REGISTERS = 5.0  # addresses and counters; the others can wait for loads
_SHARED_LANES = 32  # words an SM stores, loads or shuffles per clock
_TILE_BYTES = 4096  # of a block; larger ones scatter the traffic over more DRAM pages
_TILE_LOSS = 0.005  # of the bandwidth for each doubling past it
_CROWD = 9.0  # bytes in flight by those that hide the latency; more only open more DRAM pages
_CROWD_LOSS = 0.02  # of the bandwidth for each doubling past it
_HANDED_LOSS = 0.45  # of a launch whose blocks wait for what others hand to them
_NORM = 8.0


@dataclass(frozen=True)
class Warming:
    """Warming of a modelled GPU under load, and the rise of its power with temperature.

    Attributes:
        idle_c: its temperature while nothing has run, in degrees Celsius.
        kelvin_per_watt: how much warmer it is in the end for each watt above idle power.
        time_s: time constant.
        per_kelvin: relative rise of its power.
    """

    idle_c: float
    kelvin_per_watt: float
    time_s: float
    per_kelvin: float


class Timeline:
    """A clock that moves only when told, and the power of each piece of time that passed.

    The last 16384 pieces are kept, far more than one recording spans.

    Args:
        idle_w: power at which a GPU that warms stays at ``Warming.idle_c``.
        warming: how the GPU warms; None for one whose power does not depend on its temperature.
    """

    def __init__(self, idle_w: float = 0.0, warming: Warming | None = None) -> None:
        self.now_s = 0.0
        self._idle_w = idle_w
        self._warming = warming
        self._kelvin = 0.0  # above the idle GPU
        self._pieces: deque[tuple[float, float, float]] = deque(maxlen=_PIECES)

    @property
    def temperature_c(self) -> float | None:
        """Temperature of the GPU; None where none is modelled."""
        return None if self._warming is None else self._warming.idle_c + self._kelvin

    def pass_time(self, seconds: float, watts: float) -> None:
        """Let virtual time pass at constant power, that of a GPU at its idle temperature."""
        warming = self._warming
        if warming is None:
            self._append(seconds, watts)
            return
        steps = max(1, math.ceil(seconds / _WARM_STEP_S))
        decay = math.exp(-seconds / steps / warming.time_s)
        end = warming.kelvin_per_watt * (watts - self._idle_w)
        for _ in range(steps):
            self._append(seconds / steps, watts * (1.0 + warming.per_kelvin * self._kelvin))
            self._kelvin = end + (self._kelvin - end) * decay

    def _append(self, seconds: float, watts: float) -> None:
        if seconds <= 0:
            return
        start, self.now_s = self.now_s, self.now_s + seconds
        if self._pieces and self._pieces[-1][2] == watts:
            start = self._pieces.pop()[0]
        self._pieces.append((start, self.now_s, watts))

    def since(self, since_s: float, before_w: float) -> list[tuple[float, float, float]]:
        """(start, end, watts) pieces from ``since_s`` to now, in order, without gaps.

        Args:
            since_s: where the first piece starts.
            before_w: power before the oldest piece that is kept.
        """
        pieces: list[tuple[float, float, float]] = []
        for start, end, watts in reversed(self._pieces):
            if end <= since_s:
                break
            pieces.append((max(start, since_s), end, watts))
        pieces.reverse()
        oldest = pieces[0][0] if pieces else self.now_s
        if since_s < oldest:
            pieces.insert(0, (since_s, oldest, before_w))
        return pieces


@dataclass(frozen=True)
class Demand:
    """Demand of one launch on the GPU at one clock, running alone.

    Attributes:
        seconds: time of the launch.
        shares: busy fraction, in [0, 1], of memory, issue, lanes, block dispatch, and the SMs' places for
            warps, registers, shared memory and blocks.
    """

    seconds: float
    shares: tuple[float, ...]


def demand(launch: LaunchModel, gpu: GpuModel, clock_mhz: float) -> Demand:
    """Time and busy fractions of one launch alone on the GPU at an SM clock.

    The launch must fit: ``launch.occupancy.blocks_per_sm`` is at least 1.
    """
    hertz = clock_mhz * 1e6
    sms = gpu.limits.multiprocessors
    # the SM with the most blocks ends last; it matters while there are few of them
    imbalance = math.ceil(launch.blocks / sms) * sms / launch.blocks
    slots = gpu.issue_per_clock * gpu.limits.warp_size * sms * hertz
    lanes = gpu.fp32_lanes * sms * hertz
    latency = gpu.memory_latency_s + gpu.memory_latency_cycles / hertz
    memory = launch.bytes / bandwidth(gpu, clock_mhz) * _scatter(launch, gpu)
    handed = (
        (launch.bytes + launch.handed_bytes) / (gpu.crossbar_bytes * hertz) if launch.handed_bytes else 0.0
    )
    shared = launch.shared_words * launch.units * launch.threads / (_SHARED_LANES * sms * hertz) * imbalance
    issue = launch.instructions / slots * imbalance
    arithmetic = launch.operations / lanes * imbalance
    dispatch = launch.blocks * gpu.dispatch_cycles / hertz
    lives = _block_life(launch, gpu, hertz, latency) * _waves(launch, sms)
    parts = (memory, handed, issue, arithmetic, shared, dispatch, lives)
    norm = sum(part**_NORM for part in parts) ** (1 / _NORM)
    seconds = gpu.launch_s * launch.launches + latency + norm * (1.0 + _HANDED_LOSS * launch.waits)
    filled = min(1.0, launch.blocks / (launch.occupancy.blocks_per_sm * sms))
    return Demand(
        seconds=seconds,
        shares=(
            memory / seconds,
            issue / seconds,
            arithmetic / seconds,
            dispatch / seconds,
            *(filled * share for share in _footprint(launch, gpu)),
        ),
    )


def on_multiprocessors(launch: LaunchModel, gpu: GpuModel, clock_mhz: float, sms: int) -> Demand:
    """Time of one launch on so many SMs alone, and the fractions of the whole GPU that it keeps busy."""
    part = sms / gpu.limits.multiprocessors
    if part == 1.0:
        return demand(launch, gpu, clock_mhz)
    limits = replace(gpu.limits, multiprocessors=sms)
    if launch.blocks < launch.units:  # a grid that stays has the blocks that these SMs hold
        launch = replace(launch, blocks=max(1, math.floor(launch.blocks * part)))
    own = demand(launch, replace(gpu, limits=limits, crossbar_bytes=gpu.crossbar_bytes * part), clock_mhz)
    shares = [share if place == _DISPATCH else share * part for place, share in enumerate(own.shares)]
    shares[_MEMORY] = launch.bytes / bandwidth(gpu, clock_mhz) * _scatter(launch, gpu) / own.seconds
    return replace(own, shares=tuple(shares))


def bandwidth(gpu: GpuModel, clock_mhz: float) -> float:
    """Bytes/s of device memory at an SM clock: the memory's own, and what L2 and crossbar carry, joined."""
    crossbar = gpu.crossbar_bytes * clock_mhz * 1e6
    return float((gpu.bandwidth**-_NORM + crossbar**-_NORM) ** (-1 / _NORM))


def _scatter(launch: LaunchModel, gpu: GpuModel) -> float:
    """Return the factor on memory time for scattered traffic: large tiles, and too much in flight.

    Little's law says how many bytes in flight hide the latency; what is beyond gains nothing.
    """
    sms = gpu.limits.multiprocessors
    latency = gpu.memory_latency_s + gpu.memory_latency_cycles / (gpu.clocks_mhz[0] * 1e6)
    blocks = min(launch.occupancy.blocks_per_sm, launch.blocks / sms)
    in_flight = blocks * launch.threads * min(_thread_bytes(launch), _room(launch))
    needed = gpu.bandwidth * latency / sms
    crowding = max(0.0, math.log2(max(in_flight, 1.0) / (_CROWD * needed)))
    doublings = max(0.0, math.log2(max(launch.bytes / launch.units, 1.0) / _TILE_BYTES))
    return (1.0 + _TILE_LOSS * doublings) * (1.0 + _CROWD_LOSS * crowding)


def _thread_bytes(launch: LaunchModel) -> float:
    """Bytes a thread reads for one unit of work."""
    return launch.read_bytes / (launch.units * launch.threads)


def _room(launch: LaunchModel) -> float:
    """Bytes of a thread that can wait for loads: its registers, without addresses and counters."""
    return float(WORD) * max(2.0, launch.registers - _BASE_REGISTERS)


def _block_life(launch: LaunchModel, gpu: GpuModel, hertz: float, latency: float) -> float:
    """Seconds one block holds its place on an SM: start, loads, dependent steps, slowest warp, stores."""
    turns = max(1.0, _thread_bytes(launch) / _room(launch))  # loads beyond its registers wait for a turn
    walked = math.ceil(launch.units / launch.blocks)  # units of work, one after the other
    step_cycles = _BARRIER_CYCLES_PER_WARP + _EXCHANGE_CYCLES_PER_WORD * launch.exchanged_words
    cycles = (
        _START_CYCLES
        + launch.instructions / (launch.blocks * launch.threads) * gpu.alu_cycles / _ILP
        + walked * launch.warp_steps * _SHUFFLE_CYCLES
        + walked * launch.block_steps * (_BARRIER_CYCLES + step_cycles * launch.warps)
        + (launch.warps - 1) * _STRAGGLER_CYCLES_PER_WARP
    )
    return latency * turns * walked + cycles / hertz


def _waves(launch: LaunchModel, sms: int) -> float:
    """Generations of resident blocks: whole while few, half a one of tail once they drift apart."""
    waves = launch.blocks / (launch.occupancy.blocks_per_sm * sms)
    return min(float(math.ceil(waves)), waves + 0.5)


def _footprint(launch: LaunchModel, gpu: GpuModel) -> tuple[float, float, float, float]:
    """Fractions of an SM's warps, registers, shared memory and block places the launch holds alone."""
    limits = gpu.limits
    blocks = launch.occupancy.blocks_per_sm
    return (
        min(1.0, blocks * launch.warps / limits.max_warps_per_sm),
        min(1.0, blocks * launch.threads * launch.registers / limits.registers_per_sm),
        min(1.0, blocks * launch.shared_bytes / limits.shared_bytes_per_sm),
        min(1.0, blocks / limits.max_blocks_per_sm),
    )


# --- One round of concurrent plans on a modelled GPU: when each ends, at what power and clock.
#
# Concurrent workloads share the GPU by a fluid model. Alone, a workload runs at speed 1 and keeps each
# resource (memory, issue, lanes, block dispatch, and the SMs' places for warps, registers, shared memory and
# blocks) busy for some fraction of its time. Together, all run at one common speed, the largest at which no
# resource is asked for more than it has; when a stage or a workload ends, the speed is found anew. Several
# streams of memory traffic cost the memory a little more than one (``CONTENTION``: rows of DRAM banks are
# opened for each other).
#
# On a share of the SMs a workload is alone on a GPU of so many, whose memory the SMs reach by as much of the
# crossbar. Of all SMs it keeps its share busy: shares that lie apart only share memory and dispatch.
#
# It follows that a round lasts at least as long as its slowest workload alone and at least as long as all
# bytes at full bandwidth, and (contention apart) at most as long as all workloads one after the other at the
# same clock. A power limit that binds for one workload lowers the clock of all.
#
# Power is idle power plus activity times V(f)^2 f, plus joules per byte of device memory (which does not see
# the SM voltage) and per byte through L2 and crossbar and per instruction (which do, by V(f)^2). Work costs
# joules however fast it is done; only idle and clock power cost by the second. So fewer instructions for the
# same bytes draw less power at the same bandwidth, and for memory-bound work the joules have a minimum
# between the lowest clock (which lasts long) and the highest (which wastes voltage).

CONTENTION = 0.02
_FLUSHED, _LEAST_FLUSHED = 3, 2**25  # sizes of the L2, and bytes at least, as on a real GPU
_MEMORY, _DISPATCH = 0, 3  # places of what no SM has for itself among a demand's shares
_Key = tuple[Workload, Configuration]  # a plan's own hash would hash its source text every time


def finish_times(workloads: Sequence[Sequence[Demand]]) -> list[float]:
    """When each workload of a round ends, all having started together at 0.

    Args:
        workloads: per workload, the demands of its stages, run in order; at least one each.

    Returns:
        Seconds, one per workload.
    """
    if len(workloads) == 1:
        return [sum(demand.seconds for demand in workloads[0])]
    stage = [0] * len(workloads)
    remaining_s = [demands[0].seconds for demands in workloads]
    ends = [0.0] * len(workloads)
    active = list(range(len(workloads)))
    now = 0.0
    while active:
        speed = _common_speed([workloads[i][stage[i]] for i in active])
        step = min(remaining_s[i] for i in active)
        now += step / speed
        ended = []
        for i in active:
            remaining_s[i] -= step
            if remaining_s[i] > 0.0:
                continue
            stage[i] += 1
            if stage[i] < len(workloads[i]):
                remaining_s[i] = workloads[i][stage[i]].seconds
            else:
                ends[i] = now
                ended.append(i)
        active = [i for i in active if i not in ended]
    return ends


def _common_speed(demands: Sequence[Demand]) -> float:
    """Largest common speed at which no resource is asked for more than it has."""
    columns = zip(*(demand.shares for demand in demands), strict=True)
    demanded: list[float] = [sum(shares) for shares in columns]
    demanded[_MEMORY] *= 1.0 + CONTENTION * (len(demands) - 1)
    return 1.0 / max(1.0, *demanded)


def idle_watts(gpu: GpuModel, clock_mhz: float) -> float:
    """Power with a context alive and nothing running, at an SM clock."""
    return gpu.power.idle_w + gpu.power.clock_w * _switching(gpu, clock_mhz)


def active_watts(gpu: GpuModel, clock_mhz: float) -> float:
    """Power while blocks are resident, before any work is counted."""
    return idle_watts(gpu, clock_mhz) + gpu.power.active_w * _switching(gpu, clock_mhz)


def load_watts(gpu: GpuModel, clock_mhz: float, limit_w: float = math.inf) -> float:
    """Power with every multiprocessor issuing arithmetic at full rate, under a power limit in watts."""
    issue_w = gpu.power.issue_w * _switching(gpu, clock_mhz)
    return min(gpu.power.limit_w, limit_w, active_watts(gpu, clock_mhz) + issue_w)


def work_joules(launch: LaunchModel, gpu: GpuModel, clock_mhz: float) -> float:
    """Joules of the bytes and instructions of one launch, beside ``active_watts``."""
    power = gpu.power
    square = gpu.voltage.squared(clock_mhz)
    top_hz = gpu.clocks_mhz[0] * 1e6
    issue_rate = gpu.issue_per_clock * gpu.limits.warp_size * gpu.limits.multiprocessors * top_hz
    per_byte = (power.memory_w + power.transport_w * square) / gpu.bandwidth
    per_instruction = power.issue_w * square / issue_rate
    return launch.bytes * per_byte + launch.instructions * per_instruction


def _switching(gpu: GpuModel, clock_mhz: float) -> float:
    """V(f)^2 f against its value at the top clock."""
    return gpu.voltage.squared(clock_mhz) * clock_mhz / gpu.clocks_mhz[0]


@dataclass(frozen=True)
class Round:
    """A round without noise.

    Attributes:
        ends_s: when each plan ends, all having started at 0.
        watts: mean power of the round.
        clock_mhz: SM clock: the one asked for, or less where the power limit binds.
    """

    ends_s: tuple[float, ...]
    watts: float
    clock_mhz: int


class RoundModel:
    """The model's terms of every plan seen, kept so that a joint search does not compute them anew.

    Attributes:
        limit_w: the power limit in force.
    """

    def __init__(self, gpu: GpuModel) -> None:
        self.limit_w = gpu.power.limit_w
        self._gpu = gpu
        self._launches: dict[_Key, tuple[Plan, tuple[LaunchModel, ...]]] = {}
        self._terms: dict[_Key, dict[tuple[int, int], tuple[tuple[Demand, ...], float]]] = {}

    def multiprocessors(self, plans: Sequence[Plan]) -> list[int]:
        """The SMs that plans run on together, by their shares; alone, nothing is shared out."""
        unit, total = sm_unit(self._gpu.limits), self._gpu.limits.multiprocessors
        shares = [plan.sm_share if len(plans) > 1 else 0 for plan in plans]
        units = total // unit
        left = total - units * unit
        return [
            sum(left if number == units else unit for number in own) or total
            for own in shared_out(shares, unit, units)
        ]

    def misfit(
        self,
        plan: Plan,
        resources: Sequence[Resources],
        arithmetic: Sequence[StageArithmetic] = (),
        multiprocessors: int | None = None,
    ) -> str:
        """Return the reason that the GPU cannot launch a plan, or an empty string, as ``round`` requires.

        Args:
            plan: the plan.
            resources: of its stages.
            arithmetic: of its stages.
            multiprocessors: that it runs on; all if not given.
        """
        limits = self._gpu.limits
        limits = replace(limits, multiprocessors=multiprocessors or limits.multiprocessors)
        for stage in plan.stages:
            reason = "" if stage.library is not None else refusal(stage, limits)
            if reason:
                return f"stage {stage.name!r}: {reason}"
        timed = [plan.stages[index] for index in plan.timed]
        for stage, launch in zip(timed, self._described(plan, resources, arithmetic), strict=True):
            if launch.shared_bytes > limits.shared_bytes_per_block:
                return (
                    f"stage {stage.name!r}: {launch.shared_bytes} bytes of shared memory,"
                    f" at most {limits.shared_bytes_per_block}"
                )
            if launch.occupancy.blocks_per_sm < 1:
                return f"stage {stage.name!r}: too many resources requested ({launch.occupancy.limited_by})"
            if not holds_whole(stage, launch.occupancy.blocks_per_sm, limits):
                return (
                    f"stage {stage.name!r}: a cooperative grid of {stage.blocks} blocks is more than the"
                    f" {launch.occupancy.blocks_per_sm * limits.multiprocessors} that the device holds at a"
                    " time; resident = true cuts it"
                )
        return ""

    def restore_s(self, plan: Plan, clock_mhz: int) -> float:
        """Part of a plan's time in which arrays are restored behind it."""
        moved = restored_bytes(plan)
        return sum(self._gpu.launch_s + 2 * size / bandwidth(self._gpu, clock_mhz) for size in moved)

    def round(self, plans: Sequence[Plan], clock_mhz: int) -> Round:
        """A round of the plans at a clock, or at the highest below it that respects the power limit."""
        lower = [mhz for mhz in self._gpu.clocks_mhz if mhz < clock_mhz]
        result = self.round_at(plans, clock_mhz)
        while result.watts > self.limit_w and lower:
            result = self.round_at(plans, lower.pop(0))
        return result

    def round_at(self, plans: Sequence[Plan], clock_mhz: int) -> Round:
        """A round of the plans at a clock, whatever power that takes."""
        on = zip(plans, self.multiprocessors(plans), strict=True)
        terms = [self._term(plan, clock_mhz, sms) for plan, sms in on]
        ends = finish_times([demands for demands, _ in terms])
        joules = sum(work for _, work in terms)
        return Round(tuple(ends), active_watts(self._gpu, clock_mhz) + joules / max(ends), clock_mhz)

    def single(self, plans: Sequence[Plan], clock_mhz: int) -> tuple[float, ...]:
        """Ends of plans in a round by itself, behind a flush of the L2 and without what restores arrays.

        Its start is hidden behind no other round. The flush has left the L2 full of lines that were written:
        what is read or written takes their places, and they go to device memory first.
        """
        written = self._gpu.limits.l2_bytes / len(plans)
        on = zip(plans, self.multiprocessors(plans), strict=True)
        ends = finish_times([self._behind_flush(plan, clock_mhz, written, sms) for plan, sms in on])
        return tuple(
            self._gpu.launch_s + end_s - self.restore_s(plan, clock_mhz)
            for plan, end_s in zip(plans, ends, strict=True)
        )

    def flush_s(self, clock_mhz: int) -> float:
        """Time in which the L2 is flushed, by writing a few times as much."""
        written = max(_FLUSHED * self._gpu.limits.l2_bytes, _LEAST_FLUSHED)
        return self._gpu.launch_s + written / bandwidth(self._gpu, clock_mhz)

    def _behind_flush(self, plan: Plan, clock_mhz: int, written: float, sms: int) -> list[Demand]:
        """Demands of a plan's stages; the first of them drive so many written bytes out of the L2."""
        demands = list(self._term(plan, clock_mhz, sms)[0])
        for index, launch in enumerate(self._launches[plan.workload, plan.configuration][1]):
            driven_out = min(launch.bytes, written)
            if not driven_out:
                break
            more = replace(launch, bytes=launch.bytes + driven_out)
            demands[index] = on_multiprocessors(more, self._gpu, clock_mhz, sms)
            written -= driven_out
        return demands

    def _described(
        self, plan: Plan, resources: Sequence[Resources], arithmetic: Sequence[StageArithmetic]
    ) -> tuple[LaunchModel, ...]:
        key = plan.workload, plan.configuration
        stored = self._launches.get(key)
        if stored is not None and (stored[0] is plan or stored[0] == plan):
            return stored[1]
        launches = described(plan, resources, self._gpu, arithmetic)
        self._launches[key] = plan, launches
        self._terms.pop(key, None)  # the same names with other code or work: forget the old terms
        return launches

    def _term(self, plan: Plan, clock_mhz: int, sms: int) -> tuple[tuple[Demand, ...], float]:
        """Demands of a plan's stages at a clock on so many SMs, and the joules of its work."""
        key = plan.workload, plan.configuration
        terms = self._terms.setdefault(key, {})
        term = terms.get((clock_mhz, sms))
        if term is None:
            launches = self._launches[key][1]
            distinct = {id(launch): launch for launch in launches}  # those of a chain come again and again
            alike = {
                number: on_multiprocessors(launch, self._gpu, clock_mhz, sms)
                for number, launch in distinct.items()
            }
            demands = tuple(alike[id(launch)] for launch in launches)
            term = demands, sum(work_joules(launch, self._gpu, clock_mhz) for launch in launches)
            terms[clock_mhz, sms] = term
        return term
