"""Occupancy: the resident blocks of a kernel on a multiprocessor, and how launches fill a device.

Equations (1)-(5) of "Multi-Kernel Auto-Tuning on GPUs: Performance and Energy-Aware Optimization", section
III-A, with the hardware's allocation units: the shared memory of a block is rounded *up* to its unit (the
paper says "divided by"), registers are given to whole warps in their unit, the warps that fit are rounded
*down* to the number of schedulers (Fig. 3(a) of "Performance Tuning for GPU-Embedded Systems" needs that: 40
registers give 24 blocks of 2 warps, equation (4) as printed gives 25), and the outer division of (4) is
floored. The result equals ``cudaOccupancyMaxActiveBlocksPerMultiprocessor`` for kernels with one barrier.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tuner.model.errors import InputError
from tuner.model.jobs import DeviceLimits
from tuner.model.plan import Configuration, Plan, Resources, Stage, TensorMap, Work
from tuner.space.search_view import Candidate, StageLaunch

KIB = 1024

LIMITS = ("blocks", "warps", "registers", "shared-memory")
"""Limits of occupancy, the first named in a tie; ``block-size`` is for a block that no device runs."""


@dataclass(frozen=True)
class Occupancy:
    """Occupancy of a multiprocessor.

    Attributes:
        blocks_per_sm: resident blocks, maxTBSM of equation (1).
        warps_per_sm: resident warps, W_SM of the embedded paper.
        occupancy: resident warps per warp slot, 0 to 1, equation (5).
        limited_by: what binds, the first of ``binding``: ``blocks``, ``warps`` (equation (2)),
            ``shared-memory`` (3), ``registers`` (4), or ``block-size`` for more threads than a block holds.
        binding: everything that binds at this number of blocks, in the order of ``LIMITS``.
    """

    blocks_per_sm: int
    warps_per_sm: int
    occupancy: float
    limited_by: str
    binding: tuple[str, ...]


@dataclass(frozen=True)
class _Capability:
    """Limits that NVIDIA states for a compute capability; sizes of shared memory in KiB."""

    warps: int
    blocks: int
    shared_per_sm: int
    shared_per_block: int
    registers_per_sm: int = 65536
    registers_per_block: int = 65536
    registers_per_thread: int = 255
    register_unit: int = 256
    schedulers: int = 4
    shared_unit: int = 256
    shared_reserved: int = 0


def _ampere(warps: int, blocks: int, shared_per_sm: int) -> _Capability:
    """From 8.0 on every block loses 1 KiB to the system and may opt in to the rest."""
    return _Capability(warps, blocks, shared_per_sm, shared_per_sm - 1, shared_unit=128, shared_reserved=1)


# Sources: table "Technical Specifications per Compute Capability" of the CUDA C++ Programming Guide, the CUDA
# Occupancy Calculator (2.x, 3.0) and the rules of the toolkit's occupancy header (3.x on).
_CAPABILITIES = {
    **dict.fromkeys([(2, 0), (2, 1)], _Capability(48, 8, 48, 48, 32768, 32768, 63, 64, 2, 128)),
    (3, 0): _Capability(64, 16, 48, 48, registers_per_thread=63),
    (3, 2): _Capability(64, 16, 48, 48, registers_per_block=32768),
    (3, 5): _Capability(64, 16, 48, 48),
    (3, 7): _Capability(64, 16, 112, 48, registers_per_sm=131072),
    (5, 0): _Capability(64, 32, 64, 48),
    (5, 2): _Capability(64, 32, 96, 48),
    (5, 3): _Capability(64, 32, 64, 48, registers_per_block=32768),
    (6, 0): _Capability(64, 32, 64, 48, schedulers=2),
    (6, 1): _Capability(64, 32, 96, 48),
    (6, 2): _Capability(64, 32, 64, 48, registers_per_block=32768),
    (7, 0): _Capability(64, 32, 96, 96),
    (7, 2): _Capability(64, 32, 96, 96),
    (7, 5): _Capability(32, 16, 64, 64),
    (8, 0): _ampere(64, 32, 164),
    (8, 6): _ampere(48, 16, 100),
    (8, 7): _ampere(48, 16, 164),
    (8, 8): _ampere(48, 16, 100),
    (8, 9): _ampere(48, 24, 100),
    (9, 0): _ampere(64, 32, 228),
    (10, 0): _ampere(64, 32, 228),
    (10, 1): _ampere(48, 24, 228),
    (10, 3): _ampere(64, 32, 228),
    (11, 0): _ampere(48, 24, 228),
    (12, 0): _ampere(48, 24, 100),
    (12, 1): _ampere(48, 24, 100),
}


def device_limits(
    compute_capability: tuple[int, int], *, multiprocessors: int, memory_bytes: int, l2_bytes: int
) -> DeviceLimits:
    """Occupancy inputs of a GPU from its compute capability and what differs between its products.

    A minor version this table does not hold yet takes the numbers of the nearest lower one of its family.

    Args:
        compute_capability: (major, minor).
        multiprocessors: SMs of the GPU.
        memory_bytes: device memory.
        l2_bytes: second-level cache.

    Raises:
        InputError: the family is unknown.
    """
    major, minor = compute_capability
    family = [key for key in _CAPABILITIES if key[0] == major and key[1] <= minor]
    if not family:
        raise InputError(
            f"compute capability {major}.{minor} is unknown; known are "
            + ", ".join(f"{known_major}.{known_minor}" for known_major, known_minor in _CAPABILITIES)
        )
    numbers = _CAPABILITIES[max(family)]
    return DeviceLimits(
        compute_capability=compute_capability,
        multiprocessors=multiprocessors,
        warp_size=32,
        max_threads_per_block=1024,
        max_threads_per_sm=32 * numbers.warps,
        max_warps_per_sm=numbers.warps,
        max_blocks_per_sm=numbers.blocks,
        registers_per_sm=numbers.registers_per_sm,
        registers_per_block=numbers.registers_per_block,
        max_registers_per_thread=numbers.registers_per_thread,
        register_alloc_unit=numbers.register_unit,
        warp_alloc_granularity=numbers.schedulers,
        shared_bytes_per_sm=KIB * numbers.shared_per_sm,
        shared_bytes_per_block=KIB * numbers.shared_per_block,
        shared_alloc_unit=numbers.shared_unit,
        shared_reserved_bytes=KIB * numbers.shared_reserved,
        memory_bytes=memory_bytes,
        l2_bytes=l2_bytes,
    )


@lru_cache(maxsize=4096)  # neighbours mostly launch the same blocks
def occupancy(
    limits: DeviceLimits, threads_per_block: int, registers_per_thread: int, shared_bytes: int
) -> Occupancy:
    """Resident blocks and warps of a kernel, and what binds (equations (1)-(5)).

    Args:
        limits: the device.
        threads_per_block: threads of a block.
        registers_per_thread: compiled registers; 0 leaves registers out.
        shared_bytes: static and dynamic shared memory of a block.

    Raises:
        InputError: no threads, or a negative number.
    """
    _validate(threads_per_block, registers_per_thread, shared_bytes)
    warps = _ceil_div(threads_per_block, limits.warp_size)
    if threads_per_block > limits.max_threads_per_block:
        return Occupancy(0, 0, 0.0, "block-size", ("block-size",))
    ceilings = {
        "blocks": limits.max_blocks_per_sm,
        "warps": limits.max_warps_per_sm // warps,  # with the line above: equation (2)
        "registers": _blocks_by_registers(limits, warps, registers_per_thread),
        "shared-memory": _blocks_by_shared_memory(limits, shared_bytes),
    }
    blocks = min(ceiling for ceiling in ceilings.values() if ceiling is not None)  # equation (1)
    binding = tuple(name for name in LIMITS if ceilings[name] == blocks)
    resident = blocks * warps
    share = resident * limits.warp_size / limits.max_threads_per_sm  # equation (5)
    return Occupancy(blocks, resident, share, binding[0], binding)


def upper_bound(limits: DeviceLimits, threads_per_block: int, dynamic_shared_bytes: int) -> Occupancy:
    """Occupancy before compiling: with no registers and no static shared memory; the kernel's is not higher.

    Raises:
        InputError: no threads, or a negative number.
    """
    return occupancy(limits, threads_per_block, 0, dynamic_shared_bytes)


def warps_and_blocks(
    limits: DeviceLimits, threads_per_block: int, registers_per_thread: int, shared_bytes: int
) -> tuple[int, int]:
    """(W_SM, B_a) of "Performance Tuning for GPU-Embedded Systems", section IV-A.

    B_a = min(B^r, B^s, B^max) leaves the warp slots out, and W_SM = min(W^max, W_B * B_a) puts them in; so
    B_a may be more than fits, where ``Occupancy.blocks_per_sm`` is what fits.

    Raises:
        InputError: no threads, or a negative number.
    """
    _validate(threads_per_block, registers_per_thread, shared_bytes)
    if threads_per_block > limits.max_threads_per_block:
        return 0, 0
    W_B = _ceil_div(threads_per_block, limits.warp_size)
    by_resources = (
        _blocks_by_registers(limits, W_B, registers_per_thread),
        _blocks_by_shared_memory(limits, shared_bytes),
    )
    B_a = min([limits.max_blocks_per_sm, *(ceiling for ceiling in by_resources if ceiling is not None)])
    return min(limits.max_warps_per_sm, W_B * B_a), B_a


def _blocks_by_registers(limits: DeviceLimits, warps: int, registers_per_thread: int) -> int | None:
    """Equation (4): blocks that registers allow; None where the kernel takes none."""
    if registers_per_thread == 0:
        return None
    per_warp = _round_up(registers_per_thread * limits.warp_size, limits.register_alloc_unit)
    # A launch is refused as if all schedulers took the warps of the fullest one. 6.0 has two schedulers, but
    # refuses what the four of its family would.
    schedulers = max(limits.warp_alloc_granularity, 4 if limits.compute_capability[0] == 6 else 1)  # noqa: PLR2004
    if (
        registers_per_thread > limits.max_registers_per_thread
        or per_warp * _round_up(warps, schedulers) > limits.registers_per_block
    ):
        return 0
    fitting = limits.registers_per_sm // per_warp
    return (fitting - fitting % limits.warp_alloc_granularity) // warps


def _blocks_by_shared_memory(limits: DeviceLimits, shared_bytes: int) -> int | None:
    """Equation (3): blocks that shared memory allows; None where a block takes none."""
    used = _round_up(shared_bytes + limits.shared_reserved_bytes, limits.shared_alloc_unit)
    if used == 0:
        return None
    if shared_bytes > limits.shared_bytes_per_block:
        return 0
    return limits.shared_bytes_per_sm // used


def _validate(threads_per_block: int, registers_per_thread: int, shared_bytes: int) -> None:
    if threads_per_block < 1:
        raise InputError(f"threads per block is {threads_per_block}; a block has at least 1")
    if registers_per_thread < 0:
        raise InputError(f"registers per thread is {registers_per_thread}; it cannot be negative")
    if shared_bytes < 0:
        raise InputError(f"shared memory is {shared_bytes} bytes; it cannot be negative")


def _ceil_div(value: int, unit: int) -> int:
    return -(-value // unit)


def _round_up(value: int, unit: int) -> int:
    return _ceil_div(value, unit) * unit


# --- Candidates from declared bounds or compiled resources: how each stage fills the device.

_MAX_GRID = (2**31 - 1, 65535, 65535)
_CLUSTER_ARCHITECTURE = 90  # clusters and tensor maps came with it

ELEMENTS_PER_THREAD = "elements_per_thread"
_LIBRARY = StageLaunch(1, 1, 0, 0, 1.0, 1, 1)  # stands for a plan that libraries run: nothing keeps it out


def refusal(stage: Stage, limits: DeviceLimits) -> str:
    """Return the reason why a device cannot launch a stage, whatever its code; empty if it may.

    A driver would only call it an invalid value; a grid too large is even cut silently.
    """
    needed = stage.min_architecture
    if stage.cluster > 1 or any(isinstance(item, TensorMap) for item in stage.arguments):
        needed = max(needed, _CLUSTER_ARCHITECTURE)
    if not limits.reaches(needed):
        major, minor = limits.compute_capability
        return f"needs compute capability {needed // 10}.{needed % 10}; the device has {major}.{minor}"
    if any(not 1 <= blocks <= most for blocks, most in zip(stage.grid, _MAX_GRID, strict=True)):
        return f"grid {stage.grid} is not within 1 … {_MAX_GRID}"
    if stage.grid[0] % stage.cluster:
        return f"a grid of {stage.grid[0]} blocks is not made of clusters of {stage.cluster}"
    if not 1 <= stage.threads_per_block <= limits.max_threads_per_block:
        most = limits.max_threads_per_block
        return f"{stage.threads_per_block} threads per block; the device takes 1 … {most}"
    return ""


def holds_whole(stage: Stage, blocks_per_sm: int, limits: DeviceLimits) -> bool:
    """Return True if all blocks of a stage fit on the device at once, or need not wait for each other."""
    return not stage.cooperative or stage.resident or stage.blocks <= blocks_per_sm * limits.multiprocessors


# --- Multiprocessors shared out among workloads that run together, in units that a driver can split by.


def sm_unit(limits: DeviceLimits) -> int:
    """The multiprocessors that shares are multiples of (CUDA Driver API, "Green Contexts")."""
    major, _ = limits.compute_capability
    return {6: 1, 7: 2, 8: 4}.get(major, 8)


def shared_out(shares: Sequence[int], unit: int, units: int) -> list[tuple[int, ...]]:
    """Units of multiprocessors that workloads run on.

    Shares are laid one behind another, and begin again at the first unit where they are more than there are:
    some units are then in several. A workload without a share has what no other has.

    Args:
        shares: multiprocessors of each workload, 0 for no share.
        unit: multiprocessors of a unit.
        units: how many there are.

    Returns:
        Per workload the numbers of its units, ``units`` standing for what is left over by the division; none
        where it runs on all multiprocessors: of a share that is as large as that, and without one where
        nothing is left, or where nobody has one.
    """
    counts = [-(-share // unit) for share in shares]
    begins = [sum(counts[:place]) for place in range(len(counts))]
    rest = tuple(range(sum(counts), units + 1)) if 0 < sum(counts) < units else ()
    return [
        rest if not count else () if count >= units else tuple((begin + i) % units for i in range(count))
        for begin, count in zip(begins, counts, strict=True)
    ]


def own_stages(plan: Plan) -> tuple[int, ...]:
    """Indices of the stages that stand for a plan: one of each kernel, without libraries and set-up.

    Of a stage that a loop repeats, it is the one with the most blocks; without loops it is every stage.
    """
    largest: dict[tuple[object, ...], int] = {}
    for index, stage in enumerate(plan.stages):
        if stage.library is not None or stage.setup:
            continue
        key = (stage.name, stage.entry, stage.block, stage.shared_bytes)
        if key not in largest or stage.blocks > plan.stages[largest[key]].blocks:
            largest[key] = index
    return tuple(largest.values())


def own_resources(plan: Plan, resources: Sequence[Resources]) -> tuple[Resources, ...]:
    """The resources of ``own_stages``, of those of all stages."""
    if len(resources) != len(plan.stages):  # recorded: of those that stand for the plan
        return tuple(resources)
    return tuple(resources[index] for index in own_stages(plan))


def launches(limits: DeviceLimits, plan: Plan, resources: Sequence[Resources]) -> tuple[StageLaunch, ...]:
    """The stages that stand for a plan on a device, by their compiled resources."""
    compiled = [
        (plan.stages[index].as_compiled(own), own)
        for index, own in zip(own_stages(plan), own_resources(plan, resources), strict=True)
    ]
    return tuple(
        launch(
            limits,
            blocks=stage.blocks,
            threads_per_block=stage.threads_per_block,
            shared_bytes=own.static_shared_bytes + stage.shared_bytes,
            registers_per_thread=own.registers_per_thread,
            resident=stage.resident,
        )
        for stage, own in compiled
    ) or (_LIBRARY,)


def bounds(limits: DeviceLimits, plan: Plan) -> tuple[StageLaunch, ...]:
    """The stages that stand for a plan before compiling: no registers, and dynamic shared memory only.

    Compiled, no stage has more resident blocks or warps.
    """
    return tuple(
        launch(
            limits,
            blocks=stage.blocks,
            threads_per_block=stage.threads_per_block,
            shared_bytes=stage.shared_bytes,
            registers_per_thread=0,
            resident=stage.resident,
        )
        for stage in (plan.stages[index] for index in own_stages(plan))
    ) or (_LIBRARY,)


def launch(
    limits: DeviceLimits,
    *,
    blocks: int,
    threads_per_block: int,
    shared_bytes: int,
    registers_per_thread: int,
    resident: bool = False,
) -> StageLaunch:
    """One stage on a device: equations (1)-(5)."""
    fitting = occupancy(limits, threads_per_block, registers_per_thread, shared_bytes)
    return StageLaunch(
        blocks,
        threads_per_block,
        shared_bytes,
        registers_per_thread,
        fitting.occupancy,
        fitting.blocks_per_sm,
        fitting.warps_per_sm,
        resident,
    )


def candidate(
    configuration: Configuration,
    stages: Sequence[StageLaunch],
    roles: Mapping[str, str],
    *,
    resources: Sequence[Resources] = (),
    work: Work | None = None,
    declared: bool = False,
    stated: int = 0,
) -> Candidate:
    """A configuration with what is known of it; its occupancy is that of the stage with the lowest."""
    least = min(stages, key=lambda stage: stage.occupancy, default=StageLaunch(0, 0, 0, 0, 0.0, 0, 0))
    role = roles.get(ELEMENTS_PER_THREAD)
    per_thread = configuration.get(role, 0) if role is not None else 0
    return Candidate(
        configuration=configuration,
        occupancy=least.occupancy,
        threads_per_block=least.threads_per_block,
        blocks_per_sm=least.blocks_per_sm,
        warps_per_sm=least.warps_per_sm,
        elements_per_thread=per_thread if isinstance(per_thread, int) else 0,
        resources=tuple(resources),
        launches=tuple(stages),
        work=work,
        declared=declared,
        stated=stated,
    )
