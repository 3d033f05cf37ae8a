"""Joint spaces of which every trial's cost is known, for `joint_search.py`."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from application_sets import FOUR, catalog_of, spec_of

import tuner
from tuner.devices.gpu_models import gpu_model
from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.simulated.time_model import RoundModel
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import CompileError, InputError
from tuner.model.objective import Objective
from tuner.model.plan import Configuration, Plan, Resources, without_priority
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult
from tuner.recordings.files import open_recording
from tuner.recordings.values import RecordedSpace, search_of
from tuner.search.candidates import fit_batches, prepare
from tuner.space.occupancy import candidate, launches
from tuner.space.search_view import Candidate, PriorRun, Search

# --- joint spaces that were recorded on a GPU ----------------------------------------------------

SHIPPED = Path(tuner.__file__).parent / "recordings" / "h200.zip"


@dataclass(frozen=True)
class Recorded:
    """Several workloads of a recording.

    Attributes:
        path: of the recording.
        workloads: that were measured together.
        kept_out: it was not looked at while constants were chosen.
    """

    path: Path
    workloads: tuple[str, ...]
    kept_out: bool = False

    @property
    def label(self) -> str:
        """It was measured."""
        return "recorded"

    @property
    def name(self) -> str:
        """Kernels and GPU."""
        return f"{kernels_of(self.workloads)}, {self.space.identity.name}"

    @cached_property
    def space(self) -> RecordedSpace:
        """All trials."""
        return open_recording(self.path).space(self.workloads)

    def search(self, objective: Objective, seed: int) -> Search:
        """What a policy is told."""
        return search_of(self.space, objective.known, seed=seed, noise=objective.relative_uncertainty)

    def look(self, trial: Trial, seed: int) -> Measurement:  # noqa: ARG002 - it was measured once
        """What was recorded."""
        return self.space.look(trial)

    def costs(self, objective: Objective) -> Mapping[Trial, float]:
        """As recorded."""
        known = {trial: objective.known(one) for trial, one in self.space.trials.items()}
        return {trial: cost for trial, cost in known.items() if math.isfinite(cost)}

    def solo_bests(self, objective: Objective) -> Trial | None:
        """Of the spaces of single workloads in the same file."""
        known = [self._costs_alone(objective, place) for place in range(len(self.workloads))]
        if not all(known):
            return None
        trial = Trial(tuple(min(costs, key=costs.__getitem__) for costs in known))
        return trial if trial in self.space.trials else None

    def alone(self, objective: Objective, search: Search, seed: int) -> tuple[PriorRun, ...]:  # noqa: ARG002
        """Of the spaces of single workloads in the same file."""
        known = [self._costs_alone(objective, place) for place in range(len(self.workloads))]
        return prior_runs(search, known) if all(known) else ()

    def _costs_alone(self, objective: Objective, place: int) -> dict[Configuration, float]:
        """Of the configurations that run together; empty where one was not measured alone."""
        recording, name = open_recording(self.path), self.workloads[place]
        if (name,) not in recording.names:
            return {}
        trials = recording.space((name,)).trials
        costs = {trial.configurations[0]: objective.known(one) for trial, one in trials.items()}
        wanted = [one.configuration for one in self.space.workloads[place].candidates]
        found = {one: costs.get(without_priority(one), math.inf) for one in wanted}
        return found if all(map(math.isfinite, found.values())) else {}


def recorded_spaces(path: Path, *, kept_out: bool = False) -> list[Recorded]:
    """Every set of several workloads in a recording."""
    return [Recorded(path, names, kept_out) for names in open_recording(path).names if len(names) > 1]


def prior_runs(search: Search, known: Sequence[Mapping[Configuration, float]]) -> tuple[PriorRun, ...]:
    """Costs of every workload alone as a policy is told them; streams have no priorities there."""
    alone = [{without_priority(one): cost for one, cost in costs.items()} for costs in known]
    return tuple(
        PriorRun(place, search.sizes[place], search.device, tuple(costs.items()))
        for place, costs in enumerate(alone)
    )


def kernels_of(specs: Sequence[str]) -> str:
    """Names of workloads for tables, with one size at most."""
    return " + ".join(one.partition(",")[0] if ":N=" in one else one.partition(":")[0] for one in specs)


# --- block sizes of workloads that run together on a simulated GPU ---------------------------------

BLOCK_SIZE_NOISE = 0.003  # relative standard deviation of modelled measurements
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
            energy=Energy(joules, BLOCK_SIZE_NOISE * joules, modelled.watts, "modelled", "gpu"),
            modelled=True,
        )

    def noisy(self, seed: int) -> Callable[[Trial], Measurement]:
        """Measurements with noise that depends on the seed and the trial only."""
        place = {trial: i for i, trial in enumerate(self.trials)}
        draws = np.random.default_rng(seed).standard_normal(len(place))
        return lambda trial: self.look(trial, float(1.0 + BLOCK_SIZE_NOISE * draws[place[trial]]))


# --- joint spaces with the costs of a simulated GPU ----------------------------------------------

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


# --- all of them -----------------------------------------------------------------------------------

OBJECTIVES = ("time", "energy")
OTHER_FOUR = ("Lud", "MatrixMul", "HotSpot", "ParticleFilter")
THIRD_FOUR = ("StreamCluster", "MatrixMul", "HotSpot", "ParticleFilter")
BLOCK_SIZES = ("scan-ks:N=512", "fft:N=2048", "tridiag-lf:N=512", "scan-lf:N=4096")
OTHER_BLOCK_SIZES = ("tridiag-cr:N=256", "tridiag-pcr:N=128", "fft:N=128", "scan-lf:N=128")


class JointSpace(Protocol):
    """Several workloads whose trials can all be looked up."""

    @property
    def name(self) -> str:
        """For tables: workloads and device."""

    @property
    def label(self) -> str:
        """``modelled`` or ``recorded``."""

    def search(self, objective: Objective, seed: int) -> Search:
        """What a policy is told."""

    def look(self, trial: Trial, seed: int) -> Measurement:
        """What a trial gives; noise by the seed where the space is modelled."""

    def costs(self, objective: Objective) -> Mapping[Trial, float]:
        """The cost of every valid trial, without noise where that is known."""

    @property
    def kept_out(self) -> bool:
        """It was not looked at while constants were chosen."""

    def solo_bests(self, objective: Objective) -> Trial | None:
        """Every workload at its best alone; None where nobody measured that."""

    def alone(self, objective: Objective, search: Search, seed: int) -> tuple[PriorRun, ...]:
        """What configurations cost alone; none where nobody measured that."""


def spaces_of(recordings: Sequence[Path]) -> list[JointSpace]:
    """All spaces: constants were chosen on the first four, the others are kept out, one of every kind.

    Args:
        recordings: of applications that run together. Pairs are left out: they have a few trials only.

    Raises:
        InputError: one of them has no workloads together.
    """
    found: list[JointSpace] = [
        *recorded_spaces(SHIPPED),
        applications("sim:k40c", FOUR, clocks=True),
        applications("sim:h200", OTHER_FOUR),
        ModelledBlockSizes("h200", BLOCK_SIZES),
        Modelled("sim:k40c", ("scan-ks:N=4096", "tridiag-lf:N=1024"), Catalog.load(), kept_out=True),
        applications("sim:k20c", FOUR, kept_out=True),
        applications("sim:a100", THIRD_FOUR, kept_out=True),
        ModelledBlockSizes("k40c", OTHER_BLOCK_SIZES, kept_out=True),
    ]
    for path in recordings:
        together = [one for one in recorded_spaces(path, kept_out=True) if len(one.workloads) > 2]
        if not together:
            raise InputError(f"--recording {path}: it has no three or more workloads that ran together")
        found += together
    return found
