"""Candidates from declared bounds or compiled resources: how each stage fills the device."""

from collections.abc import Mapping, Sequence

from tuner.model.arguments import TensorMap
from tuner.model.device import DeviceLimits
from tuner.model.plan import Configuration, Plan, Resources, Stage, Work
from tuner.space.occupancy import occupancy
from tuner.space.search_view import Candidate, StageLaunch

_MAX_GRID = (2**31 - 1, 65535, 65535)
_CLUSTER_ARCHITECTURE = 90  # clusters and tensor maps came with it

ELEMENTS_PER_THREAD = "elements_per_thread"
_LIBRARY = StageLaunch(1, 1, 0, 0, 1.0, 1, 1)  # stands for a plan that libraries run: nothing keeps it out


def refusal(stage: Stage, limits: DeviceLimits) -> str:
    """Why a device launches a stage on no account, whatever it compiles to; empty where it may.

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
    """Whether the device holds all blocks of a stage at a time, if they may wait for each other."""
    return not stage.cooperative or stage.resident or stage.blocks <= blocks_per_sm * limits.multiprocessors


def own_stages(plan: Plan) -> tuple[int, ...]:
    """Places of the stages that stand for a plan: one of each kernel, without libraries and set-up.

    Of a stage that a loop repeats, it is the one with the most blocks; without loops it is every stage.
    """
    found: dict[tuple[object, ...], int] = {}
    for place, stage in enumerate(plan.stages):
        if stage.library is not None or stage.setup:
            continue
        key = (stage.name, stage.entry, stage.block, stage.shared_bytes)
        if key not in found or stage.blocks > plan.stages[found[key]].blocks:
            found[key] = place
    return tuple(found.values())


def own_resources(plan: Plan, resources: Sequence[Resources]) -> tuple[Resources, ...]:
    """The resources of ``own_stages``, of those of all stages."""
    if len(resources) != len(plan.stages):  # recorded: of those that stand for the plan
        return tuple(resources)
    return tuple(resources[place] for place in own_stages(plan))


def launches(limits: DeviceLimits, plan: Plan, resources: Sequence[Resources]) -> tuple[StageLaunch, ...]:
    """The stages that stand for a plan on a device, by their compiled resources."""
    stages = (plan.stages[place] for place in own_stages(plan))
    return tuple(
        launch(
            limits,
            blocks=stage.blocks,
            threads_per_block=stage.threads_per_block,
            shared_bytes=taken.static_shared_bytes + stage.shared_bytes,
            registers_per_thread=taken.registers_per_thread,
            resident=stage.resident,
        )
        for stage, taken in zip(stages, own_resources(plan, resources), strict=True)
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
        for stage in (plan.stages[place] for place in own_stages(plan))
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
    held = occupancy(limits, threads_per_block, registers_per_thread, shared_bytes)
    return StageLaunch(
        blocks,
        threads_per_block,
        shared_bytes,
        registers_per_thread,
        held.occupancy,
        held.blocks_per_sm,
        held.warps_per_sm,
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
