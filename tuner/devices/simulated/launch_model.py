"""The demands of a launch in the units of the time model: bytes, instructions, steps, words, blocks.

The model sees only what a plan states (bytes, operations, steps, launch geometry) and what the compiler
reports (registers, shared memory, spills); bank conflicts, coalescing and scheduling luck are beyond it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.devices.gpu_values import GpuModel
from tuner.devices.simulated.arithmetic import StageArithmetic, per_clock
from tuner.devices.simulated.library_model import LibraryWork, library_work
from tuner.model.elements import element_dtype
from tuner.model.plan import Buffer, Plan, Resources, Stage, Work
from tuner.space.occupancy import Occupancy, occupancy

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
    resources = [resources[place] for place in plan.timed]
    computed = [arithmetic[place] if arithmetic else _LANES_ONLY for place in plan.timed]
    plan = replace(plan, stages=tuple(plan.stages[place] for place in plan.timed))
    shares = stage_shares(plan)
    known: dict[tuple[object, ...], LaunchModel] = {}
    found = []
    for index, (stage, used) in enumerate(zip(plan.stages, resources, strict=True)):
        geometry = (stage.grid, stage.block, stage.shared_bytes, stage.resident, stage.cluster)
        key = (index == 0, stage.buffers, stage.library, geometry, used, shares[index], computed[index])
        if key not in known:
            known[key] = describe(plan, index, used, gpu, shares=shares, arithmetic=computed[index])
        found.append(known[key])
    return tuple(found)


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
    held = filled.blocks_per_sm * gpu.limits.multiprocessors
    return min(stage.blocks, max(stage.cluster, held - held % stage.cluster))


def _zeroed(plan: Plan) -> list[float]:
    """Bytes of the arrays set to zero before a run."""
    return [_size(buffer) for buffer in plan.buffers if buffer.role == "zeroed"]


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
    """How the work of a plan is shared by its stages: by the buffers they touch.

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
    stated = max(plan.work.operations, _floating_point(plan.work))
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


def _floating_point(work: Work) -> float:
    """The operations that the rate of a kernel file counts, where it counts operations: no unit does more."""
    return work.rate_units if "flop" in work.rate_name.lower() else 0.0


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
    """Whether a stage writes to scratch memory what its own blocks read again."""
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
