"""One round of concurrent plans on a modelled GPU: when each ends, at what power and clock.

Concurrent workloads share the GPU by a fluid model. Alone, a workload runs at speed 1 and keeps each
resource (memory, issue, lanes, block dispatch, and the SMs' places for warps, registers, shared memory and
blocks) busy for some fraction of its time. Together, all run at one common speed, the largest at which no
resource is asked for more than it has; when a stage or a workload ends, the speed is found anew. Several
streams of memory traffic cost the memory a little more than one (``CONTENTION``: rows of DRAM banks are
opened for each other).

It follows that a round lasts at least as long as its slowest workload alone and at least as long as all
bytes at full bandwidth, and (contention apart) at most as long as all workloads one after the other at the
same clock. A power limit that binds for one workload lowers the clock of all.

Power is idle power plus activity times V(f)^2 f, plus joules per byte of device memory (which does not see
the SM voltage) and per byte through L2 and crossbar and per instruction (which do, by V(f)^2). Work costs
joules however fast it is done; only idle and clock power cost by the second. So fewer instructions for the
same bytes draw less power at the same bandwidth, and for memory-bound work the joules have a minimum
between the lowest clock (which lasts long) and the highest (which wastes voltage).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.devices.gpu_values import GpuModel
from tuner.devices.simulated.arithmetic import StageArithmetic
from tuner.devices.simulated.launch_model import LaunchModel, described, restored_bytes
from tuner.devices.simulated.time_model import Demand, bandwidth, demand
from tuner.model.plan import Configuration, Plan, Resources, Workload
from tuner.space.launches import holds_whole, refusal

CONTENTION = 0.02
_MEMORY = 0  # place of device memory among a demand's shares
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
    left = [demands[0].seconds for demands in workloads]
    ends = [0.0] * len(workloads)
    active = list(range(len(workloads)))
    now = 0.0
    while active:
        speed = _common_speed([workloads[i][stage[i]] for i in active])
        step = min(left[i] for i in active)
        now += step / speed
        ended = []
        for i in active:
            left[i] -= step
            if left[i] > 0.0:
                continue
            stage[i] += 1
            if stage[i] < len(workloads[i]):
                left[i] = workloads[i][stage[i]].seconds
            else:
                ends[i] = now
                ended.append(i)
        active = [i for i in active if i not in ended]
    return ends


def _common_speed(demands: Sequence[Demand]) -> float:
    """Largest common speed at which no resource is asked for more than it has."""
    columns = zip(*(demand.shares for demand in demands), strict=True)
    asked: list[float] = [sum(shares) for shares in columns]
    asked[_MEMORY] *= 1.0 + CONTENTION * (len(demands) - 1)
    return 1.0 / max(1.0, *asked)


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
        self._terms: dict[tuple[_Key, int], tuple[tuple[Demand, ...], float]] = {}

    def misfit(
        self, plan: Plan, resources: Sequence[Resources], arithmetic: Sequence[StageArithmetic] = ()
    ) -> str:
        """Why the GPU cannot launch a plan, or an empty string; ``round`` wants plans that passed this."""
        limits = self._gpu.limits
        for stage in plan.stages:
            reason = "" if stage.library is not None else refusal(stage, limits)
            if reason:
                return f"stage {stage.name!r}: {reason}"
        timed = [plan.stages[place] for place in plan.timed]
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
        found = self.round_at(plans, clock_mhz)
        while found.watts > self.limit_w and lower:
            found = self.round_at(plans, lower.pop(0))
        return found

    def round_at(self, plans: Sequence[Plan], clock_mhz: int) -> Round:
        """A round of the plans at a clock, whatever power that takes."""
        terms = [self._term(plan, clock_mhz) for plan in plans]
        ends = finish_times([demands for demands, _ in terms])
        joules = sum(work for _, work in terms)
        return Round(tuple(ends), active_watts(self._gpu, clock_mhz) + joules / max(ends), clock_mhz)

    def _described(
        self, plan: Plan, resources: Sequence[Resources], arithmetic: Sequence[StageArithmetic]
    ) -> tuple[LaunchModel, ...]:
        key = plan.workload, plan.configuration
        known = self._launches.get(key)
        if known is not None and (known[0] is plan or known[0] == plan):
            return known[1]
        launches = described(plan, resources, self._gpu, arithmetic)
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
            distinct = {id(launch): launch for launch in launches}  # those of a chain come again and again
            alike = {key: demand(one, self._gpu, clock_mhz) for key, one in distinct.items()}
            demands = tuple(alike[id(launch)] for launch in launches)
            known = demands, sum(work_joules(launch, self._gpu, clock_mhz) for launch in launches)
            self._terms[key, clock_mhz] = known
        return known
