"""From the words of ``tuner run`` to a ready task: workloads resolved, spaces compiled, clocks chosen."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner import registry
from tuner.database.ranking import AnswerQuery
from tuner.devices.base import Device
from tuner.devices.choice import identify
from tuner.devices.gpus import limits_of
from tuner.devices.replay import PREFIX, ReplayDevice, replayed
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile, with_stream_priorities
from tuner.kernel_files.package_build import own_build
from tuner.kernel_files.source_checks import overridden_macros
from tuner.model.errors import ClockError, InputError
from tuner.model.objective import PARETO, described, normalised_scope
from tuner.model.options import OPTIONS, SearchOptions
from tuner.model.plan import Progress, Workload
from tuner.model.records import Conditions
from tuner.power.base import SettableClocks, SettableLimits
from tuner.recordings.values import RecordedKernel
from tuner.search import replaying
from tuner.search.candidates import PreparedWorkload, fit_batches, prepare
from tuner.search.compilation import Compilation
from tuner.search.option_checks import (
    AUTO_CLOCKS,
    SearchLimits,
    check_options,
    choose_clocks,
    choose_power_limits,
)
from tuner.search.task import Task
from tuner.space.sampling import LISTED


@dataclass(frozen=True)
class Request(SearchOptions):
    """Workloads and options that the user requested.

    Attributes:
        workloads: e.g. ``("scan-lf:N=256", "fft:N=256")``; empty for those of the kernel files,
            else for ``DEFAULT_WORKLOADS`` of the catalogue.
        kernel_files: kernel files beside the catalogue.
    """

    workloads: Sequence[str] = ()
    kernel_files: Sequence[Path] = field(default=())

    def check(self) -> None:
        """Refuse what is wrong on every device, before one is opened.

        Raises:
            InputError: an option that cannot be; the message names it.
        """
        check_options({name: getattr(self, name) for name in OPTIONS}, lambda name: OPTIONS[name].flag)
        if self.patience is not None and not _takes(self.policy, "patience"):
            patient = ", ".join(name for name in registry.names("policy") if _takes(name, "patience"))
            raise InputError(f"--patience is no option of the policy {self.policy}; it is one of {patient}")
        if self.runs_per_day is None and self.pay_back_days != SearchOptions.pay_back_days:
            raise InputError(
                f"--pay-back-days {self.pay_back_days:g}: needs --runs-per-day; give both, or neither"
            )
        if self.runs_per_day is not None and self.runs_per_day * self.pay_back_days == 0.0:
            raise InputError(
                f"--runs-per-day {self.runs_per_day:g} for --pay-back-days {self.pay_back_days:g}:"
                " the product is too small for a number; choose more runs, such as 1000"
            )

    @property
    def policy_options(self) -> dict[str, int]:
        """Options that are handed to the policy."""
        return {} if self.patience is None else {"patience": self.patience}

    @property
    def search_settings(self) -> dict[str, float]:
        """Settings that limit the length of a policy's search, as far as they were chosen."""
        if self.runs_per_day is None:
            return dict(self.policy_options)
        return self.policy_options | {"runs": self.runs_per_day * self.pay_back_days}


def _takes(policy: str, option: str) -> bool:
    return option in inspect.signature(registry.load("policy", policy)).parameters


def resolve(
    catalog: Catalog, specs: Sequence[str], device: Device
) -> tuple[Sequence[tuple[KernelFile | RecordedKernel, Workload]], list[str]]:
    """Kernel files and workloads of the specs, with batches that fit the device, and notices.

    Those of a recording are what was recorded.

    Raises:
        UnknownNameError: an unknown kernel or size.
        InputError: a workload named twice, or one that does not fit.
    """
    replay = replayed(device)
    if replay is not None:
        return replaying.pairs(replay.space), replaying.changed(replay.space, catalog)
    workloads = catalog.workloads(specs)
    names = [str(workload) for workload in workloads]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{', '.join(twice)}: named more than once; a co-run holds a workload once")
    kernels = [catalog.kernel(workload.kernel) for workload in workloads]
    fitted, notices = fit_batches(list(zip(kernels, workloads, strict=True)), device.free_memory_bytes())
    named = {kernel.name: kernel for kernel in kernels}
    notices += [f"{name}: {text}" for name, one in named.items() for text in overridden_macros(one.recipe)]
    notices += [
        f'{name}: states no default: "default" is the first configuration of its space'
        for name, kernel in named.items()
        if not kernel.recipe.default
    ]
    if device.identity.modelled:
        notices += [
            f"{name}: has no [work]: its time is a lower bound, by the arithmetic of the compiled code"
            " and every array moved once"
            for name, kernel in named.items()
            if kernel.recipe.work is None
        ]
    return list(zip(kernels, fitted, strict=True)), notices


def prioritised(
    request: Request, pairs: Sequence[tuple[KernelFile | RecordedKernel, Workload]], device: Device
) -> Sequence[tuple[KernelFile | RecordedKernel, Workload]]:
    """The same workloads, with the stream priorities that were asked for in their spaces.

    Raises:
        InputError: there is one workload, or the device runs nothing in streams.
        KernelFileError: a kernel file has something else of the tunable's name.
    """
    levels = request.stream_priorities
    if levels == 1:
        return pairs
    option = f"--stream-priorities {levels}"
    if len(pairs) == 1:
        raise InputError(f"{option}: {pairs[0][1]} is alone; name the workloads that run with it")
    if device.identity.recorded:
        raise InputError(f"{option}: {device.identity.spec} has what was recorded; leave the option out")
    if device.identity.modelled:
        raise InputError(f"{option}: simulated devices know no priorities; leave the option out")
    return [
        (with_stream_priorities(kernel, levels) if isinstance(kernel, KernelFile) else kernel, workload)
        for kernel, workload in pairs
    ]


def asked_batches(catalog: Catalog, specs: Sequence[str], device: Device | None = None) -> dict[str, int]:
    """Batches as asked for, before any is capped: named in the spec, the kernel file's, or as recorded."""
    replay = None if device is None else replayed(device)
    if replay is not None:
        return {workload.name: workload.batch for workload in replay.space.workloads}
    workloads = catalog.workloads(specs)
    return {str(workload): workload.batch for workload in workloads}


def answer_query(
    catalog: Catalog,
    specs: Sequence[str],
    device_spec: str | None,
    *,
    objective: str = "",
    clocks_as_found: bool = False,
) -> AnswerQuery:
    """Return the query for stored answers to workloads, with the present kernels and device.

    Args:
        catalog: the kernels.
        specs: the workloads.
        device_spec: as `worker.open_device` takes it.
        objective: as stored; empty for any.
        clocks_as_found: no clock and no power limit may be set.

    Raises:
        InputError: an unknown kernel, size or device, or a recording that cannot be used.
        DeviceUnavailableError: the device cannot be opened.
    """
    kernels: dict[str, KernelFile] = {}
    if device_spec is not None and device_spec.startswith(PREFIX):
        device = ReplayDevice(device_spec, specs)
        recorded = replaying.pairs(device.space)
        sources = {kernel.name: kernel.fingerprint for kernel, _ in recorded}
        workloads, identity = [workload for _, workload in recorded], device.identity
    else:
        workloads = catalog.workloads(specs)
        kernels = {workload.kernel: catalog.kernel(workload.kernel) for workload in workloads}
        sources = {name: kernel.fingerprint for name, kernel in kernels.items()}
        identity = identify(device_spec)
    return AnswerQuery(
        workloads=tuple({str(workload): workload for workload in workloads}.values()),
        kernels=kernels,
        sources=sources,
        objective=objective,
        device=identity,
        limits=limits_of(identity),
        clocks_as_found=clocks_as_found,
    )


def choose_run_clocks(
    request: Request, clocks: SettableClocks | None, no_clocks: str = ""
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
    request: Request, limits: SettableLimits | None, no_limits: str = ""
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


def make_task(
    request: Request,
    pairs: Sequence[tuple[KernelFile | RecordedKernel, Workload]],
    device: Device,
    clocks_mhz: tuple[int, ...],
    progress: Progress | None = None,
    *,
    power_limits_w: tuple[int, ...] = (),
) -> Task:
    """Prune the spaces of the workloads, and compile what a search begins with: the defaults.

    Args:
        request: what the user asked for.
        pairs: its workloads with the batches that fit.
        device: where they run.
        clocks_mhz: clocks to choose from.
        progress: told how many of the configurations asked for are compiled, also during the search.
        power_limits_w: power limits to choose from.

    Raises:
        EmptySpaceError: nothing is left of a workload's space.
        InputError: all of a space that is too large is to be measured.
    """
    limits = SearchLimits(request.budget, request.time_limit_s)  # its time begins here
    prepared = prepared_workloads(request, pairs, device)
    _refuse_exhaustive(request, prepared)
    compilation = Compilation(prepared, device, progress=progress)
    return Task(
        prepared=compilation.begin(limits),
        compilation=compilation,
        objective=request.objective,
        max_slowdown=request.max_slowdown,
        policy=request.policy,
        clocks_mhz=clocks_mhz,
        seed=request.seed,
        limits=limits,
        precision=request.energy_precision,
        options=request.policy_options,
        runs_per_day=request.runs_per_day,
        pay_back_days=request.pay_back_days,
        steers_clocks=request.clocks == AUTO_CLOCKS and request.objective != PARETO,  # a search of its own
        power_limits_w=power_limits_w,
    )


def _refuse_exhaustive(request: Request, prepared: Sequence[PreparedWorkload]) -> None:
    """Refuse to measure all of a space of which only a sample is listed."""
    large = next((item for item in prepared if item.space.is_sample), None)
    if large is not None and request.policy == "exhaustive":
        raise InputError(
            f"--policy exhaustive: {large.workload} has about {large.space.size:,} configurations, and at"
            f" most {LISTED:,} are listed; choose auto, bayesian, greedy, local or random, or add rules to"
            f" [constraints] in {_path_of(large)}"
        )


def _path_of(item: PreparedWorkload) -> str:
    return str(item.kernel.path) if isinstance(item.kernel, KernelFile) else item.kernel.name


def prepared_workloads(
    request: Request, pairs: Sequence[tuple[KernelFile | RecordedKernel, Workload]], device: Device
) -> list[PreparedWorkload]:
    """The spaces of the workloads, pruned by what is declared; nothing is compiled.

    Raises:
        EmptySpaceError: nothing is left of a workload's space.
    """
    replay = replayed(device)
    if replay is not None:
        return replaying.prepared(replay.space, request.min_occupancy)
    files = [(kernel, workload) for kernel, workload in pairs if isinstance(kernel, KernelFile)]
    return prepare(files, device, request.min_occupancy)


def conditions_of(
    request: Request,
    pairs: Sequence[tuple[KernelFile | RecordedKernel, Workload]],
    device: Device,
    clocks_mhz: tuple[int, ...] = (),
    *,
    asked: Mapping[str, int] | None = None,
    measuring: Mapping[str, Any] | None = None,
    power_limits_w: tuple[int, ...] = (),
) -> Conditions:
    """Return the conditions that the answer of this request is bound to.

    Args:
        request: what the user asked for.
        pairs: its workloads with the batches that fit.
        device: where they run.
        clocks_mhz: clocks to choose from.
        asked: batches before they were capped.
        measuring: how trials are measured (sensor, window), where that is known already.
        power_limits_w: power limits to choose from.
    """
    capped = {str(w): (asked or {}).get(str(w), w.batch) for _, w in pairs}
    workloads = tuple((str(workload), workload.batch) for _, workload in pairs)
    return Conditions(
        workloads=workloads,
        sources={kernel.name: kernel.fingerprint for kernel, _ in pairs},
        device=device.identity,
        objective=described(request.objective, request.max_slowdown, normalised_scope(request.scope)),
        policy=request.policy,
        seed=request.seed,
        clocks=AUTO_CLOCKS if request.clocks == AUTO_CLOCKS else ",".join(map(str, clocks_mhz)) or "off",
        settings={
            "min_occupancy": request.min_occupancy,
            "window_s": request.window_s,
            "energy_precision": request.energy_precision,
            **({"joules": True} if request.joules else {}),  # absent in runs of before there was the option
            **({"power_limits_w": list(power_limits_w)} if power_limits_w else {}),
            **({"stream_priorities": request.stream_priorities} if request.stream_priorities > 1 else {}),
            **request.search_settings,
            **(measuring or {}),
        },
        asked={name: batch for name, batch in capped.items() if batch != dict(workloads)[name]},
        content=own_build().content,
    )
