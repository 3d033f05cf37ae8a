"""Candidates from declared bounds or compiled resources: how each stage fills the device."""

from collections.abc import Mapping, Sequence

from tuner.interfaces import Candidate, StageLaunch
from tuner.model import Configuration, DeviceLimits, Plan, Resources, Work
from tuner.space.occupancy import occupancy

ELEMENTS_PER_THREAD = "elements_per_thread"


def launches(limits: DeviceLimits, plan: Plan, resources: Sequence[Resources]) -> tuple[StageLaunch, ...]:
    """The stages of a plan on a device, by their compiled resources."""
    return tuple(
        launch(
            limits,
            blocks=stage.blocks,
            threads_per_block=stage.threads_per_block,
            shared_bytes=taken.static_shared_bytes + stage.shared_bytes,
            registers_per_thread=taken.registers_per_thread,
            resident=stage.resident,
        )
        for stage, taken in zip(plan.stages, resources, strict=True)
    )


def bounds(limits: DeviceLimits, plan: Plan) -> tuple[StageLaunch, ...]:
    """The stages of a plan before compiling: no registers, and dynamic shared memory only.

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
        for stage in plan.stages
    )


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
    )
