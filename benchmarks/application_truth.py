"""What every trial of a set of applications costs: by the model without noise, or as it was recorded."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.devices.replay import ReplayDevice
from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.simulated.time_model import RoundModel
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import CompileError
from tuner.model.objective import Objective
from tuner.model.plan import Configuration, Plan, Resources
from tuner.model.trial import Trial
from tuner.search.candidates import fit_batches, prepare

Costs = Mapping[Trial, tuple[float, float]]
"""Seconds and joules of a round; not a number where no joules are known."""


def truth(device: str, specs: Sequence[str], catalog: Catalog, *, clocks: bool) -> Costs:
    """The costs of all trials; none on a GPU, where nobody knows them.

    Args:
        device: as a command takes it.
        specs: workloads that run together.
        catalog: with the spaces.
        clocks: at every clock of a modelled device, not only at the highest.
    """
    if device.startswith("replay:"):
        return _recorded(ReplayDevice(device, specs))
    if device.startswith("sim:"):
        return _modelled(SimulatedDevice(device), specs, catalog, clocks=clocks)
    return {}


def _recorded(device: ReplayDevice) -> Costs:
    time, energy = Objective("time"), Objective("energy")
    found = {trial: (time.cost(one), energy.known(one)) for trial, one in device.space.trials.items()}
    return {trial: costs for trial, costs in found.items() if math.isfinite(costs[0])}


def _modelled(device: SimulatedDevice, specs: Sequence[str], catalog: Catalog, *, clocks: bool) -> Costs:
    model = RoundModel(device.gpu)
    pairs = [(catalog.kernel(workload.kernel), workload) for workload in catalog.workloads(list(specs))]
    fitted, _ = fit_batches(pairs, device.free_memory_bytes())
    lists = []
    for item in prepare([(kernel, one) for (kernel, _), one in zip(pairs, fitted, strict=True)], device):
        plans = [item.plans[one.configuration] for one in item.candidates]
        known = zip(plans, device.resources(plans), strict=True)
        lists.append([plan for plan, resources in known if _runs(model, plan, resources)])
    every: dict[Trial, tuple[float, float]] = {}
    for clock_mhz in device.gpu.clocks_mhz if clocks else device.gpu.clocks_mhz[:1]:
        for plans in itertools.product(*lists):
            one = model.round(plans, clock_mhz)
            time_s = max(one.ends_s)
            trial = Trial(tuple(plan.configuration for plan in plans), clock_mhz if clocks else None)
            every[trial] = time_s, one.watts * time_s
    return every


def _runs(model: RoundModel, plan: Plan, resources: tuple[Resources, ...] | CompileError) -> bool:
    return not isinstance(resources, CompileError) and not model.misfit(plan, resources)


def judged(costs: Costs, answer: Trial, objective: str, workloads: int) -> dict[str, Any] | None:
    """How far an answer is from the least cost; None where that is not known.

    Args:
        costs: of all trials.
        answer: one of them.
        objective: ``time`` or ``energy``.
        workloads: so many run together.
    """
    place = 0 if objective == "time" else 1
    known = {trial: both for trial, both in costs.items() if math.isfinite(both[place])}
    if answer not in known:
        return None
    least = min(known, key=lambda trial: known[trial][place])
    return {
        "trials": len(known),
        "above": known[answer][place] / known[least][place] - 1,
        "configurations": [dict(least.configurations[lane]) for lane in range(workloads)],
        "clock_mhz": least.clock_mhz,
        "time_s": known[least][0],
        "energy_j": known[least][1] if math.isfinite(known[least][1]) else None,
        "median_above": sorted(both[place] for both in known.values())[len(known) // 2] / known[least][place]
        - 1,
    }


def every_row(costs: Costs) -> list[dict[str, Any]]:
    """All costs as JSON has them, for pictures of a small space."""
    return [
        {
            "configurations": [dict(one) for one in trial.configurations],
            "clock_mhz": trial.clock_mhz,
            "time_s": time_s,
            "energy_j": joules if math.isfinite(joules) else None,
        }
        for trial, (time_s, joules) in costs.items()
    ]


def trial_of(record: Mapping[str, Any], names: Sequence[str]) -> Trial:
    """The trial of a document, its configurations by the names of the workloads."""
    chosen = tuple(Configuration(record["configurations"][name]) for name in names)
    return Trial(chosen, record["clock_mhz"], record.get("power_limit_w"))
