"""One round of concurrent plans on a modelled GPU: when each ends, at what power and clock."""

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.devices.gpu_values import GpuModel
from tuner.devices.simulated.launch_model import Launch, describe
from tuner.devices.simulated.power_model import active_watts, work_joules
from tuner.devices.simulated.sharing import finish_times
from tuner.devices.simulated.time_model import Demand, demand
from tuner.model import Configuration, Plan, Resources, Workload

_Key = tuple[Workload, Configuration]  # a plan's own hash would hash its source text every time


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
    """The model's terms of every plan seen, kept so that a joint search does not compute them anew."""

    def __init__(self, gpu: GpuModel) -> None:
        self._gpu = gpu
        self._launches: dict[_Key, tuple[Plan, tuple[Launch, ...]]] = {}
        self._terms: dict[tuple[_Key, int], tuple[tuple[Demand, ...], float]] = {}

    def misfit(self, plan: Plan, resources: Sequence[Resources]) -> str:
        """Why the GPU cannot launch a plan, or an empty string; ``round`` wants plans that passed this."""
        limits = self._gpu.limits
        for stage in plan.stages:
            if stage.blocks < 1 or stage.threads_per_block < 1:
                return f"stage {stage.name!r}: grid {stage.grid} of blocks {stage.block} is empty"
            if not limits.reaches(stage.min_architecture):
                return f"stage {stage.name!r}: needs sm_{stage.min_architecture}"
        for stage, launch in zip(plan.stages, self._described(plan, resources), strict=True):
            if launch.threads > limits.max_threads_per_block:
                return (
                    f"stage {stage.name!r}: {launch.threads} threads, at most {limits.max_threads_per_block}"
                )
            if launch.shared_bytes > limits.shared_bytes_per_block:
                return (
                    f"stage {stage.name!r}: {launch.shared_bytes} bytes of shared memory,"
                    f" at most {limits.shared_bytes_per_block}"
                )
            if launch.occupancy.blocks_per_sm < 1:
                return f"stage {stage.name!r}: too many resources requested ({launch.occupancy.limited_by})"
        return ""

    def round(self, plans: Sequence[Plan], clock_mhz: int) -> Round:
        """A round of the plans at a clock, or at the highest below it that respects the power limit."""
        limit_w = self._gpu.power.limit_w
        lower = [mhz for mhz in self._gpu.clocks_mhz if mhz < clock_mhz]
        found = self._at(plans, clock_mhz)
        while found.watts > limit_w and lower:
            found = self._at(plans, lower.pop(0))
        return found

    def _at(self, plans: Sequence[Plan], clock_mhz: int) -> Round:
        terms = [self._term(plan, clock_mhz) for plan in plans]
        ends = finish_times([demands for demands, _ in terms])
        joules = sum(work for _, work in terms)
        return Round(tuple(ends), active_watts(self._gpu, clock_mhz) + joules / max(ends), clock_mhz)

    def _described(self, plan: Plan, resources: Sequence[Resources]) -> tuple[Launch, ...]:
        key = plan.workload, plan.configuration
        known = self._launches.get(key)
        if known is not None and (known[0] is plan or known[0] == plan):
            return known[1]
        launches = tuple(describe(plan, i, used, self._gpu) for i, used in enumerate(resources))
        self._launches[key] = plan, launches
        for clock in self._gpu.clocks_mhz:  # the same names with other code or work: forget the old terms
            self._terms.pop((key, clock), None)
        return launches

    def _term(self, plan: Plan, clock_mhz: int) -> tuple[tuple[Demand, ...], float]:
        """Demands of a plan's stages at a clock, and the joules of its work."""
        key = plan.workload, plan.configuration
        known = self._terms.get((key, clock_mhz))
        if known is None:
            launches = self._launches[key][1]
            demands = tuple(demand(launch, self._gpu, clock_mhz) for launch in launches)
            known = demands, sum(work_joules(launch, self._gpu, clock_mhz) for launch in launches)
            self._terms[key, clock_mhz] = known
        return known
