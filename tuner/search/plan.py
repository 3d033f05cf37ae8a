"""A search with every choice made, and what earlier runs tell its policy."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from tuner.database.ranking import distance, size_point, sizes_named
from tuner.database.runs import Store
from tuner.devices.base import Device
from tuner.devices.gpu_models import limits_of
from tuner.devices.kinds import PREFIX, replayed
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile, with_places
from tuner.kernel_files.source_checks import overridden_macros
from tuner.kernel_files.source_folder import kernels_root, own_build
from tuner.model import registry
from tuner.model.errors import ClockError, DeviceError, InputError
from tuner.model.jobs import DeviceIdentity
from tuner.model.objective import PARETO, Objective, described
from tuner.model.options import BACK_TO_BACK
from tuner.model.plan import SM_SHARE, STREAM_PRIORITY, Configuration, Workload
from tuner.model.records import PROTOCOL, Conditions, StoredRun
from tuner.model.run_document import Device as DeviceRecord
from tuner.model.run_document import RunConditions
from tuner.model.trial import Measurement, Trial
from tuner.power.base import SettableClocks, SettableLimits
from tuner.search.candidates import PreparedWorkload, fit_batches, prepare
from tuner.search.option_checks import AUTO_CLOCKS, choose_clocks, choose_power_limits
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup
from tuner.space.large_spaces import LISTED
from tuner.space.search_view import Payback, Policy, PriorRun

if TYPE_CHECKING:
    from tuner.recordings.values import RecordedKernel

_WHOLE_SPACE = ("exhaustive", "random")  # policies that end when every trial is measured

PlannedWorkload: TypeAlias = "tuple[KernelFile | RecordedKernel, Workload]"


@dataclass(frozen=True)
class SearchPlan:
    """One search, every choice made.

    Attributes:
        request: workloads and options that the user requested.
        workloads: with their kernels, in batches that fit the device.
        clocks_mhz: clocks to choose from, highest first; empty for "as found".
        power_limits_w: power limits to choose from, highest first; empty for "as found".
        conditions: of the answer; its policy is the request's, or the name of the strategy.
        notices: of the workloads, for the user.
        strategy: a search strategy that no policy's name stands for, as while a model is trained.
        named: trials of a strategy that were named before anything was measured: they are measured again at
            the end whatever they cost, and neither clocks nor power limits are searched beside them.
        programs: workloads of whole programs, prepared; none for kernels. A trial is then a run that takes
            long: the best is run in turn with the default alone, and what a slowdown is of is the default.
    """

    request: SearchRequest
    workloads: tuple[PlannedWorkload, ...]
    clocks_mhz: tuple[int, ...]
    power_limits_w: tuple[int, ...]
    conditions: Conditions
    notices: tuple[str, ...] = ()
    strategy: Policy | None = None
    named: tuple[Trial, ...] = ()
    programs: tuple[PreparedWorkload, ...] = ()

    @property
    def steers_clocks(self) -> bool:
        """True where a model of time and power says which clocks are measured."""
        return self.request.clocks == AUTO_CLOCKS and self.request.objective != PARETO  # a search of its own

    @property
    def covers_space(self) -> bool:
        """True where the policy ends only when every trial is measured."""
        return self.conditions.policy in _WHOLE_SPACE and not self.steers_clocks

    @property
    def policy(self) -> Policy:
        """The search strategy, within those that choose clocks and power limits by models."""
        kind = "front" if Objective(self.request.objective).is_front else "policy"
        policy = self.strategy or partial(
            registry.load(kind, self.conditions.policy), **self.request.policy_options
        )
        if self.steers_clocks and not self.named:
            from tuner.policies.steering import steered  # noqa: PLC0415 - most searches set no clock

            policy = partial(steered, inner=policy)
        if self.power_limits_w and not self.covers_space and not self.named and kind == "policy":
            from tuner.policies.steering import limited  # noqa: PLC0415 - most searches set no power limit

            policy = partial(limited, inner=policy)
        return policy

    def following(
        self, name: str, settings: Mapping[str, str | int], strategy: Policy, named: tuple[Trial, ...] = ()
    ) -> "SearchPlan":
        """The same search by a strategy of the caller's.

        Args:
            name: in the place of a policy's.
            settings: what a run that is gone on with must have the same.
            strategy: in the place of the policy.
            named: see the class.
        """
        conditions = replace(self.conditions, policy=name, settings={**self.conditions.settings, **settings})
        return replace(self, conditions=conditions, strategy=strategy, named=named)

    def spaces(self, device: Device) -> list[PreparedWorkload]:
        """Enumerate the spaces of the workloads, pruned by what is declared; nothing is compiled.

        Raises:
            EmptySpaceError: nothing is left of a workload's space.
            InputError: all of a space that is too large is to be measured.
        """
        if self.programs:
            return list(self.programs)
        spaces = prepared_workloads(self.workloads, device, self.request.min_occupancy)
        large = next((item for item in spaces if item.space.is_sample), None)
        if large is not None and self.request.policy == "exhaustive":
            path = large.kernel.path if isinstance(large.kernel, KernelFile) else large.kernel.name
            raise InputError(
                f"--policy exhaustive: {large.workload} has about {large.space.size:,} configurations, and at"
                f" most {LISTED:,} are listed; choose auto, bayesian, greedy, local or random, or add rules"
                f" to [constraints] in {path}"
            )
        return spaces

    def default_trial(self, spaces: Sequence[PreparedWorkload]) -> Trial:
        """The default configurations, at the highest clock and power limit to choose from."""
        return Trial(
            tuple(default_configuration(item) for item in spaces),
            next(iter(self.clocks_mhz), None),
            next(iter(self.power_limits_w), None),
        )

    def payback(self, objective: Objective) -> Payback | None:
        """For the answer's own search: the one before it, under --max-slowdown, serves as its reference."""
        runs_per_day = self.request.runs_per_day
        if runs_per_day is None or objective.name != self.request.objective:
            return None

        def spent(measurement: Measurement) -> float:
            """Joules of all that a trial made the GPU do; or its seconds, with the check of its answers."""
            if objective.needs_energy:
                return measurement.energy_total_j
            return measurement.window_s + measurement.check_s

        return Payback(runs_per_day * self.request.pay_back_days, spent)


def read_ahead(request: SearchRequest, catalog: Catalog, device_spec: str | None) -> None:
    """Read the kernels while the GPU is still being opened, so that what is wrong there is told at once.

    Args:
        request: what is asked for.
        catalog: where its kernels are.
        device_spec: see ``open_device``; a recording has workloads of its own.

    Raises:
        InputError: no such kernels or sizes.
    """
    own_build()
    if not (device_spec or "").startswith(PREFIX):
        catalog.workload_set(request.workloads)


def plan_search(request: SearchRequest, catalog: Catalog, setup: MeasurementSetup) -> SearchPlan:
    """Resolve a request on an open device: workloads, clocks, power limits, and the conditions of its answer.

    Raises:
        InputError: kernels, sizes or options that cannot be.
        ClockError: clocks or power limits were asked for that cannot be set.
    """
    device = setup.device
    workloads, notices = resolve(catalog, request.workloads, device)
    places = searched_places(request, workloads, device)
    workloads = with_searched_places(workloads, places)
    clocks_mhz = choose_run_clocks(request, setup.clocks, setup.no_clocks)
    power_limits_w = choose_run_limits(request, setup.power_limits, setup.no_power_limits)
    requested: dict[str, int] = {}  # batches before any was capped
    if replayed(device) is None:
        requested = {str(workload): workload.batch for workload in catalog.workload_set(request.workloads)}
    conditions = Conditions(
        workloads=tuple((str(workload), workload.batch) for _, workload in workloads),
        sources={kernel.name: kernel.fingerprint for kernel, _ in workloads},
        device=device.identity,
        objective=request.stored_objective,
        policy=request.policy,
        seed=request.seed,
        clocks=AUTO_CLOCKS if request.clocks == AUTO_CLOCKS else ",".join(map(str, clocks_mhz)) or "off",
        settings={
            "min_occupancy": request.min_occupancy,
            "window_s": request.window_s,
            "energy_precision": request.energy_precision,
            **({} if request.timing == BACK_TO_BACK else {"timing": request.timing}),  # as the next
            **({"joules": True} if request.joules else {}),  # absent in runs of before there was the option
            **({"power_limits_w": list(power_limits_w)} if power_limits_w else {}),
            **({"stream_priorities": request.stream_priorities} if STREAM_PRIORITY in places else {}),
            **({"sm_shares": list(places[SM_SHARE])} if SM_SHARE in places else {}),
            **request.search_settings,
            **setup.measuring,
        },
        asked={
            name: batch
            for _, workload in workloads
            if (batch := requested.get(name := str(workload), workload.batch)) != workload.batch
        },
        content=own_build().content,
    )
    return SearchPlan(request, tuple(workloads), clocks_mhz, power_limits_w, conditions, tuple(notices))


def resolve(
    catalog: Catalog, specs: Sequence[str], device: Device
) -> tuple[Sequence[PlannedWorkload], list[str]]:
    """Kernel files and workloads of the specs, with batches that fit the device, and notices.

    Those of a recording are what was recorded.

    Raises:
        UnknownNameError: an unknown kernel or size.
        InputError: a workload named twice, or one that does not fit.
    """
    replay = replayed(device)
    if replay is not None:
        from tuner.search import replaying  # noqa: PLC0415 - most runs replay nothing

        return replaying.pairs(replay.space), replaying.changed(replay.space, catalog)
    workloads = catalog.workload_set(specs)
    kernels = [catalog.kernel(workload.kernel) for workload in workloads]
    fitted, notices = fit_batches(list(zip(kernels, workloads, strict=True)), device.free_memory_bytes())
    named = {kernel.name: kernel for kernel in kernels}
    notices += [
        f"{name}: {text}" for name, kernel in named.items() for text in overridden_macros(kernel.recipe)
    ]
    notices += [
        f"{name}: its file states no default; its first configuration stands for it"
        for name, kernel in named.items()
        if not kernel.recipe.default
    ]
    if device.identity.modelled:
        notices += [
            f"{name}: its file states no [work]; modelled times are lower bounds"
            if kernel.recipe.work is None
            else f"{name}: modelled by the [work] of its file; without it, another answer may be best"
            for name, kernel in named.items()
            if kernel.recipe.work is None or not kernel.path.is_relative_to(kernels_root())
        ]
    return list(zip(kernels, fitted, strict=True)), notices


def searched_places(
    request: SearchRequest, pairs: Sequence[PlannedWorkload], device: Device
) -> dict[str, tuple[int, ...]]:
    """The stream priorities and the shares of multiprocessors that are searched, by the tunable's name.

    Raises:
        InputError: there is one workload, or the device runs nothing in streams, or shares nothing out.
    """
    places: dict[str, tuple[int, ...]] = {}
    for name, option, levels in (
        (STREAM_PRIORITY, "--stream-priorities", request.stream_priorities),
        (SM_SHARE, "--sm-shares", request.sm_shares),
    ):
        if levels == 1:
            continue
        given = f"{option} {levels}"
        if len(pairs) == 1:
            raise InputError(f"{given}: {pairs[0][1]} is alone; name the workloads that run with it")
        if device.identity.recorded:
            raise InputError(f"{given}: {device.identity.spec} has what was recorded; leave the option out")
        if name == STREAM_PRIORITY and device.identity.modelled:
            raise InputError(f"{given}: simulated devices know no priorities; leave the option out")
        places[name] = tuple(range(levels)) if name == STREAM_PRIORITY else _shares(given, levels, device)
    return places


def _shares(given: str, levels: int, device: Device) -> tuple[int, ...]:
    """No share, then one to all of so many parts of the multiprocessors, in whole units."""
    try:
        unit, units = device.sm_units()
    except DeviceError as error:
        raise InputError(f"{given}: {error}; leave the option out") from error
    if units == 1:
        raise InputError(
            f"{given}: the SMs of {device.identity.spec} are split by {unit}, which leaves a single part"
        )
    most = unit * units if device.limits is None else device.limits.multiprocessors
    parts = (max(1, units * part // levels) for part in range(1, levels))  # those of a whole lie apart
    return tuple(dict.fromkeys((0, *(unit * part for part in parts), most)))


def with_searched_places(
    pairs: Sequence[PlannedWorkload], places: Mapping[str, Sequence[int]]
) -> Sequence[PlannedWorkload]:
    """The same workloads, with places beside each other in their spaces.

    Raises:
        KernelFileError: a kernel file has something else of a tunable's name.
    """
    if not places:
        return pairs
    return [
        (with_places(kernel, places) if isinstance(kernel, KernelFile) else kernel, workload)
        for kernel, workload in pairs
    ]


def choose_run_clocks(
    request: SearchRequest, clocks: SettableClocks | None, no_clocks: str = ""
) -> tuple[int, ...]:
    """The clocks the run may set, highest first; empty for "as found".

    Args:
        request: whose choice of clocks.
        clocks: those of the device; None where none can be set.
        no_clocks: why there is none.

    Raises:
        ClockError: clocks were asked for and this GPU or this user has none to set.
    """
    if request.clocks == "off":
        return ()
    if clocks is None:
        reason = no_clocks or "the clocks of this device cannot be set here"
        raise ClockError(f"--clocks {request.clocks}: {reason}; use --clocks off")
    return choose_clocks(request.clocks, clocks.supported_mhz())


def choose_run_limits(
    request: SearchRequest, limits: SettableLimits | None, no_limits: str = ""
) -> tuple[int, ...]:
    """The power limits the run may set, highest first; empty for "as found".

    Without joules the highest alone: a lower one makes no trial faster, and as windows for time alone end
    before a limit acts, it would seem to cost no time and might win a tie.

    Args:
        request: whose choice of power limits.
        limits: those of the device; None where none can be set.
        no_limits: why there is none.

    Raises:
        ClockError: power limits were asked for and this GPU or this user has none to set.
    """
    if request.power_limits == "off":
        return ()
    if limits is None:
        reason = no_limits or "the power limit of this device cannot be set here"
        raise ClockError(f"--power-limits {request.power_limits}: {reason}; use --power-limits off")
    chosen = choose_power_limits(request.power_limits, limits.supported_w())
    timed = request.objective == "time" and not request.joules
    return chosen[:1] if timed else chosen


def prepared_workloads(
    workloads: Sequence[PlannedWorkload], device: Device, min_occupancy: float | None = None
) -> list[PreparedWorkload]:
    """The spaces of workloads, pruned by what is declared; nothing is compiled.

    Raises:
        EmptySpaceError: nothing is left of a workload's space.
    """
    replay = replayed(device)
    if replay is not None:
        from tuner.search import replaying  # noqa: PLC0415 - most runs replay nothing

        return replaying.prepared(replay.space, min_occupancy)
    files = [(kernel, workload) for kernel, workload in workloads if isinstance(kernel, KernelFile)]
    return prepare(files, device, min_occupancy)


def default_configuration(item: PreparedWorkload) -> Configuration:
    """The kernel file's default, or the first candidate where the default cannot be launched here."""
    return item.default if item.default in item.plans else item.candidates[0].configuration


# --- What earlier runs tell a policy.

RUNS = 8  # nearest runs per workload: as many as a kernel has problem sizes in the papers
POINTS = 64  # of a run; a surrogate's time grows with the cube of all

Points = tuple[tuple[Configuration, float], ...]


def knowledge(plan: SearchPlan, store: Store, run_id: int, objective: str) -> tuple[PriorRun, ...]:
    """Return the earlier finished runs of the same kernels, with their measurements, nearest first.

    Taken are runs of one workload, for the same objective, by the same timing, with clocks as found, made by
    the same sources: at other sizes on a GPU of this name, or of the same workload on another GPU of this
    name, or of a model with the same compute capability. Where several workloads run together, those of the
    same workload alone on a GPU of this name are taken, too. A modelled run tells nothing of a real GPU, nor
    the other way round; nor does a replay: a recording that was made of runs of this database would be
    searched with its own answers at hand. This GPU's runs come first, then those of near sizes at near
    batches (``tuner.database.ranking``), then the nearest size, then the newest. Of a long run, points are
    taken evenly from the cheapest to the last.

    Args:
        plan: of the run that wants to know.
        store: the database.
        run_id: of the run; only runs that ended before it began are read.
        objective: name of the objective; costs are in its unit.
    """
    return tuple(
        PriorRun(index, sizes, name, points)
        for index in range(len(plan.workloads))
        for sizes, name, points in islice(_told(plan, index, store, run_id, objective), RUNS)
    )


def _told(
    plan: SearchPlan, index: int, store: Store, run_id: int, objective: str
) -> Iterator[tuple[dict[str, int | str], str, Points]]:
    """Sizes, GPU and points of every run that tells something of a workload, nearest first."""
    kernel, workload = plan.workloads[index]
    device, together = plan.conditions.device, len(plan.workloads) > 1
    here = kernel.workload(sizes_named(str(workload)))  # as runs are read: names leave some sizes out
    own = size_point(here, here.batch)
    runs: list[tuple[tuple[object, ...], StoredRun, str, Workload]] = []
    stored = described(objective, None, timing=plan.request.timing)
    for run in store.finished_before(run_id, kernel.name, stored):
        conditions = run.conditions
        ((name, measured),) = conditions["workloads"]
        same_model = conditions["device"]["name"] == device.name
        alone = together and not device.recorded and same_model
        tells = _elsewhere(conditions["device"], device) if name == str(workload) else same_model
        if not (alone or tells) or not _comparable(conditions, kernel, device):
            continue
        try:
            there = kernel.workload(sizes_named(name))
        except InputError:  # of a merged file that says what no run of this kernel can have said
            continue
        requested = conditions.get("asked", {}).get(name, measured)
        apart = distance(own, workload.batch, size_point(there, there.batch), measured, requested)
        runs.append(((not same_model, apart, -run.id), run, name, there))
    for _, run, name, there in sorted(runs, key=lambda entry: entry[0]):
        points = _points(store, run, name, Objective(objective))
        if points:
            yield dict(there.sizes), run.conditions["device"]["name"], points


def _elsewhere(measured_on: DeviceRecord, device: DeviceIdentity) -> bool:
    """Another GPU of this model, or one of another model of the same compute capability.

    Recordings of one model may hold the same measurements. What a GPU of another compute capability has
    measured can make a search twice as long (docs/lab/methodologies.md).
    """
    if measured_on["name"] == device.name:
        return not device.recorded and bool(measured_on["uuid"] != device.uuid)
    own, other = limits_of(device), limits_of(replace(device, name=str(measured_on["name"])))
    return own is not None and other is not None and own.compute_capability == other.compute_capability


def _comparable(
    conditions: RunConditions, kernel: "KernelFile | RecordedKernel", device: DeviceIdentity
) -> bool:
    """True where costs of a run were measured of this kernel, in the present way."""
    return (
        conditions["sources"].get(kernel.name) == kernel.fingerprint
        and conditions["clocks"] == "off"
        and conditions.get("protocol") == PROTOCOL
        and conditions["device"]["modelled"] == device.modelled
        and bool(conditions["device"].get("recorded")) == bool(device.recorded)
    )


def _points(store: Store, run: StoredRun, name: str, objective: Objective) -> Points:
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
