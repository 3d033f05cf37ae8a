"""One configuration before it is compiled: its plan, and what rules it out whatever the compiler does."""

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.device import DeviceLimits
from tuner.model.plan import Configuration, Plan, Workload
from tuner.space.launches import bounds, candidate, own_stages, refusal
from tuner.space.occupancy import upper_bound
from tuner.space.search_view import Candidate

BEFORE_COMPILING = "occupancy, before compiling"


@dataclass(frozen=True)
class DeclaredTraits:
    """What a kernel file tells of a configuration.

    Attributes:
        plan: with all expressions evaluated.
        candidate: with bounds of its occupancy; None where it is dropped.
        dropped: why it is no candidate; empty where it is one.
        occupancy: bound of its occupancy, 0 to 1.
    """

    plan: Plan
    candidate: Candidate | None
    dropped: str
    occupancy: float


def place_of(configuration: Configuration, stated: Sequence[Configuration]) -> int:
    """Place of a configuration among the answers that a kernel file states, from 1; 0 of no answer."""
    return stated.index(configuration) + 1 if configuration in stated else 0


@dataclass(frozen=True)
class TraitReader:
    """Looks at the configurations of one workload.

    Attributes:
        kernel: its kernel file.
        workload: the workload.
        limits: of the device.
        min_occupancy: threshold in force.
        stated: the analytical answers that the kernel file states, the preferred one first.
    """

    kernel: KernelFile
    workload: Workload
    limits: DeviceLimits
    min_occupancy: float
    stated: tuple[Configuration, ...]

    def of(self, configuration: Configuration) -> DeclaredTraits:
        """What is declared of a configuration.

        Raises:
            KernelFileError: an expression has no result.
        """
        plan = self.kernel.plan(self.workload, configuration)
        needed = max(stage.min_architecture for stage in plan.stages)
        if not self.limits.reaches(needed):
            return DeclaredTraits(plan, None, f"needs compute capability {needed // 10}.{needed % 10}", 0.0)
        found = candidate(
            *(configuration, bounds(self.limits, plan), self.kernel.roles),
            work=plan.work,
            declared=True,
            stated=place_of(configuration, self.stated),
        )
        if found.blocks_per_sm == 0:
            return DeclaredTraits(plan, None, f"cannot be launched ({self._limited_by(plan)})", 0.0)
        if any(refusal(plan.stages[place], self.limits) for place in own_stages(plan)):
            return DeclaredTraits(plan, None, "cannot be launched (grid)", 0.0)
        if found.occupancy < self.min_occupancy:
            return DeclaredTraits(plan, None, BEFORE_COMPILING, found.occupancy)
        return DeclaredTraits(plan, found, "", found.occupancy)

    def _limited_by(self, plan: Plan) -> str:
        """What keeps a plan from being launched, whatever it compiles to."""
        stages = (plan.stages[place] for place in own_stages(plan))
        filled = (upper_bound(self.limits, one.threads_per_block, one.shared_bytes) for one in stages)
        return next(one.limited_by for one in filled if one.blocks_per_sm == 0)
