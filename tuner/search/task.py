"""A run with every choice made, and what earlier runs tell a policy about it."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from tuner.database.ranking import distance, size_point, sizes_named
from tuner.database.runs import TrialStore
from tuner.devices.gpus import limits_of
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.objective import Objective
from tuner.model.options import SearchOptions
from tuner.model.plan import Configuration, Workload
from tuner.model.records import PROTOCOL, StoredRun
from tuner.model.trial import Measurement, Trial
from tuner.recordings.values import RecordedKernel
from tuner.search.candidates import PreparedWorkload
from tuner.search.compilation import Compilation
from tuner.search.option_checks import SearchLimits
from tuner.space.search_view import Criterion, Payback, Policy, PriorRun, Search

RUNS = 8  # nearest runs per workload: as many as a kernel has problem sizes in the papers
POINTS = 64  # of a run; a surrogate's time grows with the cube of all

Points = tuple[tuple[Configuration, float], ...]


def knowledge(
    store: TrialStore,
    run_id: int,
    prepared: Sequence[PreparedWorkload],
    device: DeviceIdentity,
    objective: str,
) -> tuple[PriorRun, ...]:
    """Return the earlier finished runs of the same kernels, with their measurements, nearest first.

    Taken are runs of one workload, for the same objective, with clocks as found, made by the same sources: at
    other sizes on a GPU of this name, or of the same workload on another GPU of this name, or of a model with
    the same compute capability. Where several workloads run together, those of the same workload alone on a
    GPU of this name are taken, too. A modelled run tells nothing of a real GPU, nor the other way round; nor
    does a replay: a recording that was made of runs of this database would be searched with its own answers
    at hand. This GPU's runs come first, then those of near sizes at near batches
    (``tuner.database.ranking``), then the nearest size, then the newest. Of a long run, points are taken
    evenly from the cheapest to the last.

    A finished run never changes, so that a resumed run knows what it knew when it began.

    Args:
        store: the database.
        run_id: the run that wants to know; only runs that ended before it began are read.
        prepared: its workloads.
        device: where it runs.
        objective: name of the objective; costs are in its unit.
    """
    return tuple(
        known
        for place, item in enumerate(prepared)
        for known in islice(
            (
                PriorRun(place, sizes, name, points)
                for sizes, name, points in _told(
                    store, run_id, item, device, objective, together=len(prepared) > 1
                )
            ),
            RUNS,
        )
    )


def _told(
    store: TrialStore,
    run_id: int,
    item: PreparedWorkload,
    device: DeviceIdentity,
    objective: str,
    *,
    together: bool,
) -> Iterator[tuple[dict[str, int | str], str, Points]]:
    """Sizes, GPU and points of every run that tells something of a workload, nearest first."""
    kernel, batch = item.kernel, item.workload.batch
    here = kernel.workload(sizes_named(str(item.workload)))  # as runs are read: names leave some sizes out
    own = size_point(here, here.batch)
    found: list[tuple[tuple[object, ...], StoredRun, str, Workload]] = []
    for run in store.finished_before(run_id, kernel.name, objective):
        conditions = run.conditions
        ((name, measured),) = conditions["workloads"]
        alone = together and not device.recorded and _here(conditions["device"], device)
        tells = _elsewhere if name == str(item.workload) else _here
        if not (alone or tells(conditions["device"], device)) or not _comparable(conditions, kernel, device):
            continue
        try:
            there = kernel.workload(sizes_named(name))
        except InputError:  # of a merged file that says what no run of this kernel can have said
            continue
        asked = conditions.get("asked", {}).get(name, measured)
        apart = distance(own, batch, size_point(there, there.batch), measured, asked)
        elsewhere = bool(conditions["device"]["name"] != device.name)
        found.append(((elsewhere, apart, -run.id), run, name, there))
    for _, run, name, there in sorted(found, key=lambda one: one[0]):
        points = _points(store, run, name, Objective(objective))
        if points:
            yield dict(there.sizes), run.conditions["device"]["name"], points


def _elsewhere(measured_on: Mapping[str, Any], device: DeviceIdentity) -> bool:
    """Another GPU of this model, or one of another model of the same compute capability.

    Recordings of one model may hold the same measurements. What a GPU of another compute capability has
    measured can make a search twice as long (``benchmarks/knowledge_across_kinds.py``).
    """
    if _here(measured_on, device):
        return not device.recorded and bool(measured_on["uuid"] != device.uuid)
    own, other = limits_of(device), limits_of(replace(device, name=str(measured_on["name"])))
    return own is not None and other is not None and own.compute_capability == other.compute_capability


def _here(measured_on: Mapping[str, Any], device: DeviceIdentity) -> bool:
    return bool(measured_on["name"] == device.name)


def _comparable(
    conditions: Mapping[str, Any], kernel: KernelFile | RecordedKernel, device: DeviceIdentity
) -> bool:
    """True where costs of a run were measured of this kernel, in the present way."""
    return bool(
        conditions["sources"].get(kernel.name) == kernel.fingerprint
        and conditions["clocks"] == "off"
        and conditions["protocol"] == PROTOCOL
        and conditions["device"]["modelled"] == device.modelled
        and bool(conditions["device"].get("recorded")) == bool(device.recorded)
    )


def _points(store: TrialStore, run: StoredRun, name: str, objective: Objective) -> Points:
    """Configurations and costs of a run, cheapest first, failed ones last; none where none was valid."""
    costs = [
        (trial.configurations[0], objective.cost(measurement))
        for trial, measurement in store.trials(run.id, [name])
        if not (objective.needs_energy and measurement.estimated_j is not None)
    ]
    costs.sort(key=lambda point: point[1])
    if not costs or math.isinf(costs[0][1]):
        return ()
    count = min(POINTS, len(costs))
    return tuple(costs[i * len(costs) // count] for i in range(count))


@dataclass(frozen=True)
class SearchContext:
    """Context of a search, beside its task.

    Attributes:
        identity: the device.
        limits: of the device; None where a recording lacks them.
        prior_runs: what earlier runs measured, by the name of an objective.
        tell: takes a sentence for the user.
    """

    identity: DeviceIdentity
    limits: DeviceLimits | None
    prior_runs: Callable[[str], tuple[PriorRun, ...]]
    tell: Callable[[str], None]


@dataclass(frozen=True)
class Task:
    """Task of one run, with every choice made.

    Attributes:
        prepared: the workloads with their candidates, as declared.
        compilation: compiles the candidates that are looked at; ended by the run.
        objective: name of the objective.
        max_slowdown: allowed slowdown against the fastest trial, e.g. 0.05; None for no limit.
        policy: name of the policy.
        clocks_mhz: clocks to choose from, highest first; empty for "as found".
        steers_clocks: a model of time and power says which of them are measured.
        power_limits_w: power limits to choose from, highest first; empty for "as found".
        seed: of the policy.
        limits: when to stop early.
        precision: wanted half-width of the 95 % interval of a contender's cost, relative to it.
        options: of the policy, by name; those left out are the policy's own.
        runs_per_day: rounds the answer will be used for every day; None where nobody said.
        pay_back_days: days within which the tuning is to pay for itself.
        strategy: a search strategy that no policy's name stands for, as while a model is trained.
        parallel: trials that can be measured at once.
        kept: trials of a strategy that were named before anything was measured: they are measured again at
            the end whatever they cost, and neither clocks nor power limits are searched beside them.
    """

    prepared: Sequence[PreparedWorkload]
    compilation: Compilation
    objective: str
    max_slowdown: float | None
    policy: str
    clocks_mhz: tuple[int, ...]
    seed: int
    limits: SearchLimits
    precision: float = SearchOptions.energy_precision
    options: Mapping[str, int] = field(default_factory=dict)
    runs_per_day: float | None = None
    pay_back_days: float = SearchOptions.pay_back_days
    steers_clocks: bool = False
    power_limits_w: tuple[int, ...] = ()
    strategy: Policy | None = None
    parallel: int = 1
    kept: tuple[Trial, ...] = ()

    def search(
        self, objective: Objective, prior: Mapping[Trial, Measurement], context: SearchContext
    ) -> Search:
        """The task as a policy sees it under an objective."""
        return Search(
            workloads=tuple(str(item.workload) for item in self.prepared),
            candidates=tuple(item.candidates for item in self.prepared),
            defaults=tuple(default_configuration(item) for item in self.prepared),
            clocks_mhz=self.clocks_mhz,
            power_limits_w=self.power_limits_w,
            cost=objective.cost,
            seed=self.seed,
            prior=prior,
            tunables=tuple(item.space.tunables for item in self.prepared),
            roles=tuple(item.kernel.rule_roles for item in self.prepared),
            sizes=tuple(dict(item.workload.sizes) for item in self.prepared),
            limits=context.limits,
            device=context.identity.name,
            label=context.identity.label,
            noise=objective.relative_uncertainty,
            prior_runs=context.prior_runs(objective.name),
            payback=self._payback(objective),
            tell=context.tell,
            resolve=self.compilation.resolve,
            expect=self.compilation.expect,
            parallel=self.parallel,
            criteria=_criteria(context) if objective.is_front else (),
            large_spaces=tuple(
                None if item.source is None else item.source.as_told() for item in self.prepared
            ),
        )

    def _payback(self, objective: Objective) -> Payback | None:
        """For the answer's own search: the one before it, under --max-slowdown, serves as its reference."""
        if self.runs_per_day is None or objective.name != self.objective:
            return None
        return Payback(
            self.runs_per_day * self.pay_back_days, _spent_j if objective.needs_energy else _spent_s
        )


def _criteria(context: SearchContext) -> tuple[Criterion, ...]:
    """Return the criteria of a front: time and joules."""
    both = (Objective("time"), Objective("energy"))
    return tuple(Criterion(one.known, one.relative_uncertainty, context.prior_runs(one.name)) for one in both)


def _spent_j(measurement: Measurement) -> float:
    """Joules of all that a trial made the GPU do."""
    return measurement.energy_total_j


def _spent_s(measurement: Measurement) -> float:
    """Seconds of a trial: its window, and the check of its answers."""
    return measurement.window_s + measurement.check_s


def default_configuration(item: PreparedWorkload) -> Configuration:
    """The kernel file's default, or the first candidate where the default cannot be launched here."""
    return item.default if item.default in item.plans else item.candidates[0].configuration
