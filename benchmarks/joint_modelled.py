"""Joint spaces with the costs of a simulated GPU, for `joint_spaces.py`.

Noise depends on the seed and the trial only: trials scatter as much as those of the recordings.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from application_sets import catalog_of, spec_of
from block_sizes import BlockSizes
from joint_recorded import kernels_of, prior_runs

from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.simulated.time_model import RoundModel
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import CompileError
from tuner.model.objective import Objective
from tuner.model.plan import Configuration, Plan
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult
from tuner.search.candidates import fit_batches, prepare
from tuner.space.occupancy import candidate, launches
from tuner.space.search_view import Candidate, PriorRun, Search

NOISE = {"time": 0.001, "energy": 0.005}  # relative standard deviations, about those of the recordings
ALONE = 40  # trials of a workload alone, as of a short search


class Modelled:
    """Workloads on a simulated GPU, with the compiled resources of all configurations.

    Args:
        device: as a command takes it.
        specs: workloads.
        catalog: with their spaces.
        clocks: every clock of the GPU under the objective energy, not only the highest.
        kept_out: it was not looked at while constants were chosen.
    """

    label = "modelled"

    def __init__(
        self,
        device: str,
        specs: Sequence[str],
        catalog: Catalog,
        *,
        clocks: bool = False,
        kept_out: bool = False,
    ) -> None:
        self.kept_out = kept_out
        with_clocks = " with clocks" if clocks else ""
        self.name = f"{kernels_of(specs)}, {device.removeprefix('sim:')}{with_clocks}"
        self._simulated = SimulatedDevice(device)
        self._model = RoundModel(self._simulated.gpu)
        self._clocks = clocks
        pairs = [(catalog.kernel(one.kernel), one) for one in catalog.workloads(list(specs))]
        fitted, _ = fit_batches(pairs, self._simulated.free_memory_bytes())
        self._items = prepare(
            [(kernel, one) for (kernel, _), one in zip(pairs, fitted, strict=True)], self._simulated
        )
        compiled = [self._compiled(place) for place in range(len(self._items))]
        self._plans = [{one.configuration: plan for one, plan in found} for found in compiled]
        self._candidates = [tuple(one for one, _ in found) for found in compiled]

    def _compiled(self, place: int) -> list[tuple[Candidate, Plan]]:
        item, found = self._items[place], []
        plans = [item.plans[one.configuration] for one in item.candidates]
        for plan, resources in zip(plans, self._simulated.resources(plans), strict=True):
            if isinstance(resources, CompileError) or self._model.misfit(plan, resources):
                continue
            stages = launches(self._simulated.gpu.limits, plan, resources)
            roles = item.kernel.roles
            one = candidate(plan.configuration, stages, roles, resources=resources, work=plan.work)
            found.append((one, plan))
        return found

    def clocks_mhz(self, objective: Objective) -> tuple[int, ...]:
        """What a search for the objective may choose from; empty for "as found"."""
        return self._simulated.gpu.clocks_mhz if self._clocks and objective.name != "time" else ()

    def search(self, objective: Objective, seed: int) -> Search:
        """What a policy is told."""
        values = [
            {
                name: tuple(dict.fromkeys(one.configuration[name] for one in found))
                for name in found[0].configuration
            }
            for found in self._candidates
        ]
        return Search(
            workloads=tuple(str(item.workload) for item in self._items),
            candidates=tuple(self._candidates),
            defaults=tuple(item.default for item in self._items),
            clocks_mhz=self.clocks_mhz(objective),
            cost=objective.cost,
            seed=seed,
            tunables=tuple(values),
            roles=tuple(item.kernel.roles for item in self._items),
            sizes=tuple(dict(item.workload.sizes) for item in self._items),
            limits=self._simulated.gpu.limits,
            device=self._simulated.identity.name,
            label="modelled",
            noise=objective.relative_uncertainty,
        )

    def trials(self, objective: Objective) -> Iterator[Trial]:
        """Every trial, the clock changing slowest."""
        for clock_mhz in self.clocks_mhz(objective) or (None,):
            for chosen in itertools.product(*self._plans):
                yield Trial(chosen, clock_mhz)

    def look(self, trial: Trial, seed: int) -> Measurement:
        """What the model says, with noise."""
        draw = np.random.default_rng([seed, *self._places(trial)])
        return self._measured(trial, *(1.0 + NOISE[name] * draw.standard_normal() for name in NOISE))

    def _places(self, trial: Trial) -> list[int]:
        rows = [list(plans).index(c) for plans, c in zip(self._plans, trial.configurations, strict=True)]
        return [*rows, trial.clock_mhz or 0]

    def _measured(self, trial: Trial, slower: float = 1.0, dearer: float = 1.0) -> Measurement:
        plans = [found[c] for found, c in zip(self._plans, trial.configurations, strict=True)]
        one = self._model.round(plans, trial.clock_mhz or self._simulated.gpu.clocks_mhz[0])
        makespan_s = max(one.ends_s)
        joules = one.watts * makespan_s * dearer
        return Measurement(
            tuple(WorkloadResult(Status.OK, slower * end_s) for end_s in one.ends_s),
            slower * makespan_s,
            makespan_uncertainty_s=NOISE["time"] * makespan_s,
            energy=Energy(joules, NOISE["energy"] * joules, one.watts, "modelled", "gpu"),
            modelled=True,
        )

    def exact(self, trial: Trial) -> Measurement:
        """What the model says, without noise."""
        return self._measured(trial)

    def costs(self, objective: Objective) -> Mapping[Trial, float]:
        """By the model, without noise."""
        return {trial: objective.cost(self._measured(trial)) for trial in self.trials(objective)}

    def solo_bests(self, objective: Objective) -> Trial | None:
        """By the model, without noise; at the highest clock of those that are best alone."""
        chosen: list[Configuration] = []
        clocks: list[int] = []
        for place in range(len(self._plans)):
            alone = {
                (configuration, clock_mhz): cost
                for clock_mhz in self.clocks_mhz(objective) or self._simulated.gpu.clocks_mhz[:1]
                for configuration, cost in self._costs_alone(objective, place, clock_mhz).items()
            }
            configuration, clock_mhz = min(alone, key=alone.__getitem__)
            chosen.append(configuration)
            clocks.append(clock_mhz)
        return Trial(tuple(chosen), max(clocks) if self.clocks_mhz(objective) else None)

    def alone(self, objective: Objective, search: Search, seed: int) -> tuple[PriorRun, ...]:
        """By the model, with noise, at the highest clock; ``ALONE`` at random of many configurations."""
        draw = np.random.default_rng([seed, ALONE])
        known = []
        for place in range(len(self._plans)):
            costs = self._costs_alone(objective, place, self._simulated.gpu.clocks_mhz[0])
            some = list(costs)
            if len(some) > ALONE:
                some = [some[i] for i in sorted(draw.choice(len(some), ALONE, replace=False).tolist())]
            noise = NOISE[objective.name] * draw.standard_normal(len(some))
            known.append(
                {one: costs[one] * (1.0 + off) for one, off in zip(some, noise.tolist(), strict=True)}
            )
        return prior_runs(search, known)

    def _costs_alone(self, objective: Objective, place: int, clock_mhz: int) -> dict[Configuration, float]:
        found = {}
        for configuration, plan in self._plans[place].items():
            one = self._model.round([plan], clock_mhz)
            watts = 1.0 if objective.name == "time" else one.watts
            found[configuration] = watts * max(one.ends_s)
        return found


class ModelledBlockSizes:
    """Workloads on a simulated GPU, one candidate for each block size.

    Args:
        gpu: name of the model.
        specs: workloads.
        kept_out: it was not looked at while constants were chosen.
    """

    label = "modelled"

    def __init__(self, gpu: str, specs: Sequence[str], *, kept_out: bool = False) -> None:
        self.kept_out = kept_out
        self.name = f"{kernels_of(specs)}, {gpu}, block sizes"
        self._sizes = BlockSizes(gpu, specs, Catalog.load())
        self._places = {trial: place for place, trial in enumerate(self._sizes.trials)}

    def search(self, objective: Objective, seed: int) -> Search:
        """What a policy is told."""
        search = self._sizes.search(objective)
        return replace(search, seed=seed, noise=objective.relative_uncertainty)

    def look(self, trial: Trial, seed: int) -> Measurement:
        """What the model says, with noise."""
        draw = np.random.default_rng([seed, self._places[trial]])
        slower, dearer = (1.0 + NOISE[name] * draw.standard_normal() for name in NOISE)
        one = self._sizes.look(trial)
        if one.energy is None or one.makespan_s is None:
            raise TypeError("modelled rounds have times and joules")
        joules = one.energy.joules * dearer
        return replace(
            one,
            makespan_s=slower * one.makespan_s,
            makespan_uncertainty_s=NOISE["time"] * one.makespan_s,
            energy=replace(one.energy, joules=joules, uncertainty_j=NOISE["energy"] * joules),
        )

    def costs(self, objective: Objective) -> Mapping[Trial, float]:
        """By the model, without noise."""
        return {trial: objective.cost(self._sizes.look(trial)) for trial in self._sizes.trials}

    def solo_bests(self, objective: Objective) -> Trial | None:  # noqa: ARG002 - nobody looks
        """Nobody measured that."""
        return None

    def alone(self, objective: Objective, search: Search, seed: int) -> tuple[PriorRun, ...]:  # noqa: ARG002
        """Nobody measured that."""
        return ()


def applications(
    device: str, names: Sequence[str], *, clocks: bool = False, kept_out: bool = False
) -> Modelled:
    """Applications together in the reduced space, at sizes that balance them on the modelled GPU."""
    specs = [spec_of(name, "modelled") for name in names]
    return Modelled(device, specs, catalog_of("reduced"), clocks=clocks, kept_out=kept_out)
