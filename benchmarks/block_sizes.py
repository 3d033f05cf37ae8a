"""Block sizes of workloads that run together on a simulated GPU, for `greedy_recorded.py`."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tuner.devices.gpu_models import gpu_model
from tuner.devices.simulated.time_model import RoundModel
from tuner.kernel_files.catalog import Catalog
from tuner.model.objective import Objective
from tuner.model.plan import Configuration, Plan, Resources
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult
from tuner.space.occupancy import candidate, launches
from tuner.space.search_view import Candidate, Search

NOISE = 0.003  # relative standard deviation of modelled measurements
JETSON_SHARE = 8  # a GPU with little memory takes so many times fewer problems


class BlockSizes:
    """One candidate for each block size, by declared resources: nothing is compiled."""

    def __init__(self, gpu: str, names: Sequence[str], catalog: Catalog) -> None:
        self._gpu = gpu_model(gpu)
        self._model = RoundModel(self._gpu)
        self._plans: list[dict[Configuration, tuple[Plan, tuple[Resources, ...]]]] = []
        self._names = tuple(names)
        self._defaults: list[Configuration] = []
        self.candidates = [self._block_sizes(name, catalog) for name in names]
        self.trials = [
            Trial(chosen)
            for chosen in itertools.product(*([c.configuration for c in one] for one in self.candidates))
        ]

    def _block_sizes(self, name: str, catalog: Catalog) -> tuple[Candidate, ...]:
        workload = catalog.workload(name)
        kernel = catalog.kernel(workload.kernel)
        if self._gpu.name.startswith("jetson"):
            workload = replace(workload, batch=workload.batch // JETSON_SHARE)
        default, plans = kernel.default(workload), {}
        chosen: dict[int, tuple[int, Candidate]] = {}
        for configuration in kernel.space(workload):
            plan = kernel.plan(workload, configuration)
            declared = tuple(stage.declared for stage in plan.stages if stage.declared is not None)
            if not all(self._gpu.limits.reaches(stage.min_architecture) for stage in plan.stages):
                continue
            found = candidate(
                configuration, launches(self._gpu.limits, plan, declared), kernel.roles, resources=declared
            )
            if self._model.misfit(plan, declared):
                continue
            plans[configuration] = plan, declared
            near = sum(default.get(key) == value for key, value in configuration.items())
            if near > chosen.get(found.threads_per_block, (-1, found))[0]:
                chosen[found.threads_per_block] = near, found
        self._plans.append(plans)
        self._defaults.append(default)
        return tuple(found for _, found in chosen.values())

    def search(self, objective: Objective) -> Search:
        """What a policy is told."""
        return Search(self._names, tuple(self.candidates), tuple(self._defaults), (), objective.cost)

    def look(self, trial: Trial, scale: float = 1.0) -> Measurement:
        """The model's own numbers, all of them times ``scale``."""
        pairs = [plans[c] for plans, c in zip(self._plans, trial.configurations, strict=True)]
        modelled = self._model.round([plan for plan, _ in pairs], self._gpu.clocks_mhz[0])
        makespan_s = scale * max(modelled.ends_s)
        joules = modelled.watts * makespan_s
        return Measurement(
            tuple(WorkloadResult(Status.OK, end_s) for end_s in modelled.ends_s),
            makespan_s,
            energy=Energy(joules, NOISE * joules, modelled.watts, "modelled", "gpu"),
            modelled=True,
        )

    def noisy(self, seed: int) -> Callable[[Trial], Measurement]:
        """Measurements with noise that depends on the seed and the trial only."""
        place = {trial: i for i, trial in enumerate(self.trials)}
        draws = np.random.default_rng(seed).standard_normal(len(place))
        return lambda trial: self.look(trial, float(1.0 + NOISE * draws[place[trial]]))
