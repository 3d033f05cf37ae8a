"""How long one kernel launch takes on a modelled GPU, alone.

A launch is bound by whichever is slowest: device memory, what passes L2 and crossbar, instruction issue, the
single-precision lanes, the shared memory of the SMs, the rate at which blocks are started, or the life of its
blocks (Little's law: so many bytes or instructions are in flight, and each block lives so long). Bounds near
each other add up a little: they are joined by a p-norm. The model sees only what a plan states (bytes,
operations, steps, launch geometry) and what the compiler reports (registers, shared memory, spills); bank
conflicts, coalescing and scheduling luck are beyond it. Caches are cold: buffers rotate past the L2. Only
what blocks of one launch hand to each other stays there.

The constants of a block's life, of shared memory and of bytes in flight were fitted to recorded times of an
H200 at half of the recorded sizes; `docs/simulated-devices.md` tells how the others compare.
"""

import math
from dataclasses import dataclass

import numpy as np

from tuner.devices.gpu_values import GpuModel
from tuner.model import Buffer, Plan, Resources, Scalar, Stage, TensorMap
from tuner.occupancy import Occupancy, occupancy

# Instructions: fitted to the energies of one scan on an H200, which follow (8 + 36/P) per element.
_PER_OPERATION = 1.0
_PER_WORD = 3.5  # address, load or store, and moves for each four bytes of device memory
_PER_THREAD = 18.0  # indices, bounds, exit
_PER_STEP = 2.0  # a shuffle and its use
_PER_BARRIER_STEP = 6.0  # store, barrier, load and use
# Cycles of a block's life beside its loads.
_START_CYCLES = 530.0  # start, first addresses, last stores
_SHUFFLE_CYCLES = 28.0
_BARRIER_CYCLES = 150.0
_BARRIER_CYCLES_PER_WARP = 5.0
_EXCHANGE_CYCLES_PER_WORD = 0.7  # a warp's words through shared memory, one warp after the other
_STRAGGLER_CYCLES_PER_WARP = 90.0  # a block holds its place until its slowest warp has ended
_ILP = 3.0
_BASE_REGISTERS = 5.0  # addresses and counters; the others can wait for loads
_WORD = 4  # bytes
_SHARED_LANES = 32  # words an SM stores, loads or shuffles per clock
_SHUFFLED = 0.7  # such words for each word of an element and step
_STAGED = 4.8  # for each word that is loaded and passes shared memory: stored, loaded, some banks twice
_TILE_BYTES = 4096  # of a block; larger ones scatter the traffic over more DRAM pages
_TILE_LOSS = 0.005  # of the bandwidth for each doubling past it
_CROWD = 9.0  # bytes in flight by those that hide the latency; more only open more DRAM pages
_CROWD_LOSS = 0.02  # of the bandwidth for each doubling past it
_CLUSTER_MOVES = 2.1  # bytes between blocks of a cluster, by the bytes read: data and its notices
_HANDED_LOSS = 0.45  # of a launch whose blocks wait for what others hand to them
_NORM = 8.0
_ROLE_MOVES = {
    "in": (1.0, 0.0),
    "out": (0.0, 1.0),
    "inout": (1.0, 1.0),
    "scratch": (0.5, 0.5),
    "zeroed": (0.5, 0.5),
}


@dataclass(frozen=True)
class Launch:
    """One stage of a plan in the units of the model; independent of the clock.

    Attributes:
        bytes: device memory moved, spills included.
        read_bytes: of which loads.
        instructions: thread instructions.
        operations: arithmetic among them.
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
        shared_words: words of a thread that pass the shared memory, or shuffles, for one unit of work.
        handed_bytes: through L2 from block to block within the launch.
        waits: blocks wait for what others hand to them.
        launches: of the kernel, and of what sets arrays to zero before it.
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
class Demand:
    """What one launch asks of the GPU at one clock, running alone.

    Attributes:
        seconds: time of the launch.
        shares: busy fraction, in [0, 1], of memory, issue, lanes, block dispatch, and the SMs' places for
            warps, registers, shared memory and blocks.
    """

    seconds: float
    shares: tuple[float, ...]


def describe(plan: Plan, index: int, resources: Resources, gpu: GpuModel) -> Launch:
    """A stage of a plan in the units of the model.

    Args:
        plan: the plan.
        index: which of its stages.
        resources: registers, shared memory and spills of that stage.
        gpu: the GPU, for its occupancy limits.
    """
    stage = plan.stages[index]
    moved, read = _traffic(plan, index)
    shared = resources.static_shared_bytes + stage.shared_bytes
    filled = occupancy(gpu.limits, stage.threads_per_block, resources.registers_per_thread, shared)
    blocks = _blocks(stage, filled, gpu)
    worked = stage.blocks * stage.threads_per_block
    spilled = float(worked * max(resources.spill_bytes, 2 * resources.local_bytes))
    warps = -(-stage.threads_per_block // gpu.limits.warp_size)
    exchange = resources.static_shared_bytes or shared  # where there are both, the dynamic is a tile
    warp_steps, block_steps = _steps(plan, stage, exchange, warps)
    read_bytes = read + spilled / 2
    read_words = read_bytes / worked / _WORD  # of a thread, for one unit of work
    shared_words = min(shared / stage.threads_per_block / _WORD, read_words)
    handed = 2 * read_bytes if len(plan.stages) == 1 and _keeps_scratch(plan, stage) else 0.0
    operations = plan.work.operations / len(plan.stages)
    per_unit = _PER_STEP * warp_steps + _PER_BARRIER_STEP * block_steps
    instructions = (
        _PER_OPERATION * operations
        + _PER_WORD * (moved + spilled) / _WORD
        + per_unit * worked
        + _PER_THREAD * blocks * stage.threads_per_block
    )
    zeroed = _zeroed(plan) if index == 0 else []
    return Launch(
        bytes=moved + spilled + sum(zeroed),
        read_bytes=read_bytes,
        instructions=instructions,
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
        exchanged_words=min(exchange / stage.threads_per_block / _WORD, read_words),
        shared_words=_STAGED * shared_words + _SHUFFLED * _element_words(plan) * warp_steps,
        handed_bytes=handed + (_CLUSTER_MOVES * 2 * read_bytes if stage.cluster > 1 else 0.0),
        waits=handed > 0,
        launches=1 + len(zeroed),
    )


def _blocks(stage: Stage, filled: Occupancy, gpu: GpuModel) -> int:
    """Blocks of a launch; a resident grid is cut to whole clusters of those the GPU holds at a time."""
    if not stage.resident:
        return stage.blocks
    held = filled.blocks_per_sm * gpu.limits.multiprocessors
    return min(stage.blocks, max(stage.cluster, held - held % stage.cluster))


def _zeroed(plan: Plan) -> list[float]:
    """Bytes of the arrays set to zero before a run."""
    return [_size(buffer) for buffer in plan.buffers if buffer.role == "zeroed"]


def _size(buffer: Buffer) -> float:
    return float(buffer.elements * np.dtype(buffer.dtype).itemsize)


def _traffic(plan: Plan, index: int) -> tuple[float, float]:
    """Bytes a stage moves and those it reads, in the proportions of the buffers the stages touch.

    A single stage moves the plan's ``work.bytes``. Several pass intermediate results through device memory,
    so together they move at least what their buffers hold.
    """
    touched = [_touched(plan, stage) for stage in plan.stages]
    reads, writes = touched[index]
    total = sum(r + w for r, w in touched)
    if len(plan.stages) == 1:
        moved = plan.work.bytes
    elif total > 0:
        moved = max(plan.work.bytes, total) * (reads + writes) / total
    else:
        moved = plan.work.bytes / len(plan.stages)
    return moved, moved * (reads / (reads + writes) if reads + writes else 0.5)


def _touched(plan: Plan, stage: Stage) -> tuple[float, float]:
    """Bytes of the buffers a stage reads and of those it writes, each once."""
    reads = writes = 0.0
    taken = {
        a.buffer if isinstance(a, TensorMap) else a for a in stage.arguments if not isinstance(a, Scalar)
    }
    for buffer in plan.buffers:
        if buffer.name in taken:
            size = _size(buffer)
            read, written = _ROLE_MOVES[buffer.role]
            reads += read * size
            writes += written * size
    return reads, writes


def _keeps_scratch(plan: Plan, stage: Stage) -> bool:
    """Whether a stage writes to scratch memory what its own blocks read again."""
    return any(buffer.role == "scratch" and buffer.name in stage.arguments for buffer in plan.buffers)


def _element_words(plan: Plan) -> float:
    """Words that are read for one element of the problem: 1 for a scan, 4 for a tridiagonal row."""
    inputs = [buffer for buffer in plan.buffers if buffer.role in ("in", "inout")]
    if not inputs:
        return 1.0
    return sum(map(_size, inputs)) / _WORD / max(1, min(buffer.elements for buffer in inputs))


def _steps(plan: Plan, stage: Stage, shared_bytes: int, warps: int) -> tuple[float, float]:
    """Dependent steps of a stage that are shuffles, and those through shared memory with a barrier each.

    With a word of shared memory per thread or more, every step goes through it; less holds the totals of
    warps, passed on at one barrier; none leaves shuffles. One warp needs no barrier.
    """
    steps = plan.work.steps / len(plan.stages)
    if warps == 1 or shared_bytes == 0:
        return steps, 0.0
    if shared_bytes < _WORD * stage.threads_per_block:
        return steps, 1.0
    return 0.0, steps


def demand(launch: Launch, gpu: GpuModel, clock_mhz: float) -> Demand:
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
    held = min(1.0, launch.blocks / (launch.occupancy.blocks_per_sm * sms))
    return Demand(
        seconds=seconds,
        shares=(
            memory / seconds,
            issue / seconds,
            arithmetic / seconds,
            dispatch / seconds,
            *(held * share for share in _footprint(launch, gpu)),
        ),
    )


def bandwidth(gpu: GpuModel, clock_mhz: float) -> float:
    """Bytes/s of device memory at an SM clock: the memory's own, and what L2 and crossbar carry, joined."""
    crossbar = gpu.crossbar_bytes * clock_mhz * 1e6
    return float((gpu.bandwidth**-_NORM + crossbar**-_NORM) ** (-1 / _NORM))


def _scatter(launch: Launch, gpu: GpuModel) -> float:
    """How much longer device memory takes for traffic that is scattered: large tiles, and too much in flight.

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


def _thread_bytes(launch: Launch) -> float:
    """Bytes a thread reads for one unit of work."""
    return launch.read_bytes / (launch.units * launch.threads)


def _room(launch: Launch) -> float:
    """Bytes of a thread that can wait for loads: its registers, without addresses and counters."""
    return float(_WORD) * max(2.0, launch.registers - _BASE_REGISTERS)


def _block_life(launch: Launch, gpu: GpuModel, hertz: float, latency: float) -> float:
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


def _waves(launch: Launch, sms: int) -> float:
    """Generations of resident blocks: whole while few, half a one of tail once they drift apart."""
    waves = launch.blocks / (launch.occupancy.blocks_per_sm * sms)
    return min(float(math.ceil(waves)), waves + 0.5)


def _footprint(launch: Launch, gpu: GpuModel) -> tuple[float, float, float, float]:
    """Fractions of an SM's warps, registers, shared memory and block places the launch holds alone."""
    limits = gpu.limits
    blocks = launch.occupancy.blocks_per_sm
    return (
        min(1.0, blocks * launch.warps / limits.max_warps_per_sm),
        min(1.0, blocks * launch.threads * launch.registers / limits.registers_per_sm),
        min(1.0, blocks * launch.shared_bytes / limits.shared_bytes_per_sm),
        min(1.0, blocks / limits.max_blocks_per_sm),
    )
