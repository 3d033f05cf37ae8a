"""How concurrent workloads share a modelled GPU: a fluid model.

Alone, a workload runs at speed 1 and keeps each resource (memory, issue, lanes, block dispatch, and the SMs'
places for warps, registers, shared memory and blocks) busy for some fraction of its time. Together, all run
at one common speed, the largest at which no resource is asked for more than it has; when a stage or a
workload ends, the speed is found anew. Several streams of memory traffic cost the memory a little more than
one (``CONTENTION``: rows of DRAM banks are opened for each other).

It follows that a round lasts at least as long as its slowest workload alone and at least as long as all bytes
at full bandwidth, and (contention apart) at most as long as all workloads one after the other at the same
clock. A power limit that binds for one workload lowers the clock of all.
"""

from collections.abc import Sequence

from tuner.devices.simulated.time_model import Demand

CONTENTION = 0.02
_MEMORY = 0  # place of device memory among a demand's shares


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
