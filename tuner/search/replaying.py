"""Recorded spaces: searched without a GPU, and made of runs."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tuner.database.runs import Store
from tuner.devices.base import Device
from tuner.devices.choice import open_device
from tuner.devices.gpu_models import gpu_model, gpu_names
from tuner.devices.replay import ReplayDevice
from tuner.kernel_files.build_record import with_kernels_of
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile, with_places
from tuner.measurement.base import ComparisonTarget, TrialGate, passed
from tuner.model.errors import (
    CompilerUnavailableError,
    DeviceUnavailableError,
    EmptySpaceError,
    InputError,
    UnknownNameError,
)
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.objective import TIMED
from tuner.model.options import BACK_TO_BACK
from tuner.model.plan import (
    SM_SHARE,
    STREAM_PRIORITY,
    Configuration,
    Plan,
    ProblemSpec,
    Resources,
    TunableValue,
    Work,
    Workload,
    tunable_names,
)
from tuner.model.records import StoredRun, WorkloadName
from tuner.model.run_document import RunConditions, RunSettings
from tuner.model.trial import Measurement, Trial
from tuner.recordings.checking import AMOUNT
from tuner.recordings.files import RecordedSpaces
from tuner.recordings.values import RecordedKernel, RecordedSpace, RecordedWorkload
from tuner.search.candidates import PreparedWorkload
from tuner.space.occupancy import candidate, launches
from tuner.space.search_view import Candidate
from tuner.space.space import Space

_NO_WORK = Work(bytes=0.0, operations=0.0)
_RECORDED = ProblemSpec("recorded")


class ReplayMeasurer:
    """Implements ``Measurer`` by a recording: no window is repeated, and nothing warms up."""

    def __init__(self, device: ReplayDevice, gates: Sequence[TrialGate] = ()) -> None:
        self._replay = device
        self._gates = gates
        self._replayed_s = 0.0

    @property
    def windows_s(self) -> float:
        """Length of all recorded windows so far."""
        return self._replayed_s

    @property
    def notices(self) -> tuple[str, ...]:
        """There are none."""
        return ()

    def measure(
        self,
        trial: Trial,
        plans: Sequence[Plan],  # noqa: ARG002 - nothing runs
        target: ComparisonTarget | None = None,  # noqa: ARG002 - a recorded window is as long as it is
    ) -> Measurement:
        """Return the measurement of the trial."""

        def replayed() -> Measurement:
            measurement = self._replay.measurement(trial)
            self._replayed_s += measurement.window_s
            return measurement

        return passed(self._gates, trial, replayed)

    def measure_otherwise(self, trial: Trial, plans: Sequence[Plan]) -> Measurement:
        """Return the measurement of the trial: a recording is of one timing."""
        return self.measure(trial, plans)

    def measure_idle(self, clock_mhz: int | None) -> float:  # noqa: ARG002 - idle power is part of a recording
        """Nothing is measured."""
        return passed(self._gates, None, lambda: Measurement(())).energy_total_j

    def with_idle(
        self,
        measurement: Measurement,
        clock_mhz: int | None,  # noqa: ARG002 - as recorded at any clock
    ) -> Measurement:
        """The measurement as it was recorded."""
        return measurement

    def spent(self) -> None:
        """Joules are those of the recorded trials."""

    def recall(self, trials: Sequence[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """Nothing need be known of what a killed run looked up."""

    def close(self) -> None:
        """Nothing is held."""


def pairs(space: RecordedSpace) -> list[tuple[RecordedKernel, Workload]]:
    """Kernels and workloads of a space, as ``tuner.search.plan.resolve`` gives them of the catalogue."""
    return [(kernel_of(workload), workload_of(workload)) for workload in space.workloads]


def kernel_of(recorded: RecordedWorkload) -> RecordedKernel:
    """Return the kernel of a recorded workload."""
    return RecordedKernel(
        name=workload_of(recorded).kernel,
        family=recorded.family,
        roles=recorded.roles or {},
        rule_roles=recorded.roles,
        fingerprint=recorded.fingerprint,
    )


def workload_of(recorded: RecordedWorkload) -> Workload:
    """The workload, whose text is the name it was recorded under; sizes that are not in it are implied."""
    sizes = tuple(recorded.sizes.items())
    named_sizes = WorkloadName.parse(recorded.name).sizes
    implied = tuple(name for name, value in sizes if (name, str(value)) not in named_sizes)
    named = Workload(recorded.kernel, sizes, recorded.batch, implied)
    if str(named) == recorded.name:
        return named
    return Workload(recorded.name, sizes, recorded.batch, tuple(recorded.sizes))


def prepared(space: RecordedSpace, min_occupancy: float | None = None) -> list[PreparedWorkload]:
    """The workloads of a space, ready to be tuned: their candidates are the configurations recorded.

    Args:
        space: what was recorded.
        min_occupancy: threshold of equation (5), 0 to 1; None for all that was recorded.

    Raises:
        EmptySpaceError: no configuration reaches the threshold.
    """
    return [_prepared(workload, min_occupancy or 0.0) for workload in space.workloads]


def _prepared(recorded: RecordedWorkload, min_occupancy: float) -> PreparedWorkload:
    candidates = tuple(c for c in recorded.candidates if c.occupancy >= min_occupancy)
    if not candidates:
        raise EmptySpaceError(
            f"{recorded.name}: no recorded configuration reaches an occupancy of {min_occupancy:.0%};"
            " lower --min-occupancy, or leave it out"
        )
    workload = workload_of(recorded)
    left_out = len(recorded.candidates) - len(candidates)
    return PreparedWorkload(
        workload=workload,
        kernel=kernel_of(recorded),
        space=space_of([c.configuration for c in recorded.candidates], recorded.tunables),
        plans={
            c.configuration: Plan(workload, c.configuration, (), (), _RECORDED, c.work or _NO_WORK)
            for c in recorded.candidates
        },
        candidates=candidates,
        default=recorded.default,
        min_occupancy=min_occupancy,
        pruned={"occupancy, as recorded": left_out} if left_out else {},
        compile_errors=(),
    )


def space_of(
    configurations: Sequence[Configuration], tunables: Mapping[str, tuple[TunableValue, ...]]
) -> Space:
    """The configurations as a space, in the order of the value lists."""
    columns = {name: {value: i for i, value in enumerate(values)} for name, values in tunables.items()}
    rows = sorted(
        tuple(
            indices[configuration[name]] if name in configuration else -1 for name, indices in columns.items()
        )
        for configuration in configurations
    )
    return Space(tunables, [np.array(column) for column in zip(*rows, strict=True)])


def changed(space: RecordedSpace, catalog: Catalog) -> list[str]:
    """A notice for every kernel whose file or sources are not those recorded."""
    notices = []
    for recorded in space.workloads:
        present = catalog.kernels.get(recorded.kernel)
        if present is not None and recorded.fingerprint not in ("", present.fingerprint):
            notices.append(
                f"{recorded.name}: {recorded.kernel} has changed since it was recorded:"
                " these are times of the code as it was then"
            )
    return notices


def measured_as(space: RecordedSpace) -> RunSettings:
    """Return the window (the longest, in seconds) and the sensor of the trials of a space."""
    longest_s = max((measurement.window_s for measurement in space.trials.values()), default=0.0)
    wanted_s = space.provenance.get("window_s")  # by its maker's words; anything may stand there
    return {
        "window_s": float(wanted_s or 0) if AMOUNT.accepts(wanted_s) else longest_s,
        "sensor": space.sensor or None,
    }


def require_clocks(space: RecordedSpace, clocks: str) -> None:
    """Refuse clocks as found where every trial was recorded at a clock that was set.

    Raises:
        InputError: the message names the clocks.
    """
    if clocks == "off" and all(trial.clock_mhz is not None for trial in space.trials):
        recorded = ", ".join(map(str, space.clocks_mhz))
        raise InputError(f"--clocks off: trials were recorded at {recorded} MHz only; use --clocks all")


def require_power_limits(space: RecordedSpace, power_limits: str) -> None:
    """Refuse power limits as found where every trial was recorded at one that was set.

    Raises:
        InputError: the message names the limits.
    """
    if power_limits == "off" and all(trial.power_limit_w is not None for trial in space.trials):
        recorded = ", ".join(map(str, space.power_limits_w))
        raise InputError(
            f"--power-limits off: trials were recorded at {recorded} W only; use --power-limits all"
        )


def require_timing(space: RecordedSpace, timing: str) -> None:
    """Refuse a timing that trials were not recorded by.

    Raises:
        InputError: the message says which they were.
    """
    settings = space.provenance.get("settings")
    held = settings.get("timing", BACK_TO_BACK) if isinstance(settings, Mapping) else BACK_TO_BACK
    if timing != held:
        raise InputError(f"--timing {timing}: {TIMED.get(held, held)} were recorded; use --timing {held}")


def require_joules(space: RecordedSpace, recording: RecordedSpaces, objective: str) -> None:
    """Refuse an objective that needs joules where none were recorded.

    Raises:
        InputError: the message names the spaces of the file that have joules.
    """
    if any(measurement.energy is not None for measurement in space.trials.values()):
        return
    others = [" ".join(names) for names in recording.names if recording.sensor(names)]
    have = f"; joules were recorded of: {'; '.join(others)}" if others else ", nor of any space of the file"
    raise InputError(
        f"--objective {objective}: no joules were recorded of {' + '.join(space.names)}{have};"
        " use --objective time"
    )


# --- Runs as recorded spaces: from a session's trials, or from the database with what was not measured.

Trials = Mapping[Trial, Measurement] | Iterable[tuple[Trial, Measurement]]
_MEASURED_ALIKE = (
    "window_s",
    "sensor",
    "stream_priorities",
    "sm_shares",
    "timing",
)  # settings of trials that stand side by side


def recorded_space(  # noqa: PLR0917 - what a recording is made of
    prepared: Sequence[PreparedWorkload],
    identity: DeviceIdentity,
    limits: DeviceLimits | None,
    trials: Trials,
    sensor: str = "",
    provenance: Mapping[str, Any] | None = None,
) -> RecordedSpace:
    """Return the trials of prepared workloads as a recorded space.

    Its candidates are the configurations that a trial had, in the order of the spaces, with what compiling
    told of them.

    Args:
        prepared: the workloads, in the order of the trials' configurations.
        identity: the GPU.
        limits: its occupancy inputs; None where they are not known.
        trials: what each gave; of a trial that is there twice, the last counts.
        sensor: reading the joules came from; empty where none were measured.
        provenance: date, command, versions.

    Raises:
        InputError: there is no trial.
    """
    measured = dict(trials.items() if isinstance(trials, Mapping) else trials)
    if not measured:
        raise InputError(f"{' + '.join(str(item.workload) for item in prepared)}: no trial was measured")
    workloads = (
        RecordedWorkload(
            name=str(item.workload),
            kernel=item.kernel.name,
            family=item.kernel.family,
            sizes=dict(item.workload.sizes),
            batch=item.workload.batch,
            fingerprint=item.kernel.fingerprint,
            tunables=item.space.tunables,
            roles=item.kernel.rule_roles,
            default=item.default,
            candidates=tuple(_candidates(item, {trial.configurations[lane] for trial in measured})),
        )
        for lane, item in enumerate(prepared)
    )
    return RecordedSpace(
        workloads=tuple(workloads),
        identity=identity,
        limits=limits,
        trials=measured,
        sensor=sensor,
        provenance=dict(provenance or {}),
    )


def _candidates(item: PreparedWorkload, tried: set[Configuration]) -> list[Candidate]:
    """Candidates that were tried; a default that pruning dropped was tried, too, without being one."""
    compiled = {c.configuration: c for c in item.candidates}
    candidates = [
        compiled.get(c) or candidate(c, (), item.kernel.roles, work=item.plans[c].work) for c in tried
    ]
    return sorted(candidates, key=lambda each: item.space.order(each.configuration))


class SpaceExport(NamedTuple):
    """Recorded space of runs in the database.

    Attributes:
        space: the trials of the runs.
        runs: numbers of the runs, newest first.
        size: trials of the whole space after pruning, clocks included; None where no run tells.
        notices: what the user should know.
    """

    space: RecordedSpace
    runs: tuple[int, ...]
    size: int | None
    notices: tuple[str, ...]


def stored_space(store: Store, catalog: Catalog, run_id: int | None = None) -> SpaceExport:
    """The trials of a run, and of all runs that measured the same workloads in the same way, as one space.

    Objective, policy and seed may differ between them. Contenders for an answer count with their fresh
    repeats: the best of many single windows is too good to be true. Of a trial that several runs measured,
    the one of most repeats counts, and the newest of those; one that was spared its joules only if there is
    no other.

    Args:
        store: the database.
        catalog: knows the kernels; their launches are told where their sources are still those measured.
        run_id: number of the run; None for the newest that has trials.

    Raises:
        InputError: there is no such run, it has no trial, or it was a replay.
    """
    history = store.history()
    chosen = _chosen(history, run_id)
    alike = [run for run in history if run.trials and _key(run.conditions) == _key(chosen.conditions)]
    names = [name for name, _ in chosen.conditions["workloads"]]
    trials: dict[Trial, Measurement] = {}
    for run in reversed(alike):
        for trial, measurement in store.best_known(run.id, names):
            before = trials.get(trial)
            if before is None or (measurement.estimated_j is None, measurement.repeats) >= (
                before.estimated_j is None,
                before.repeats,
            ):
                trials[trial] = measurement
    identity = DeviceIdentity(**chosen.conditions["device"])
    device = _device(identity)
    catalog, why = with_kernels_of(catalog, None if chosen.origin else chosen.answer, chosen.id)
    with nullcontext() if device is None else closing(device):
        prepared, notices = _prepared_workloads(chosen.conditions, catalog, trials, device, why)
    without_joules = sum(measurement.estimated_j is not None for measurement in trials.values())
    if without_joules:
        notices.append(
            f"{without_joules} of {len(trials)} trials have no joules: tuner run --joules measures them too"
        )
    settings = chosen.conditions["settings"]
    provenance: dict[str, Any] = {
        "date": alike[0].started_at,
        "command": "tuner db export",
        "runs": [run.id for run in alike],
        "policies": sorted({run.conditions["policy"] for run in alike}),
        "settings": settings,
    }
    if settings.get("window_s") is not None:
        provenance["window_s"] = settings["window_s"]
    limits = None if device is None else device.limits
    space = recorded_space(prepared, identity, limits, trials, settings.get("sensor") or "", provenance)
    sizes = [run.answer["space"].get("pruned") for run in alike if run.answer is not None]
    size = max((size for size in sizes if size is not None), default=None)  # of the largest of their spaces
    return SpaceExport(space, tuple(run.id for run in alike), size, tuple(notices))


def _chosen(history: Sequence[StoredRun], run_id: int | None) -> StoredRun:
    """The run of that number, or the newest that measured something."""
    if run_id is None:
        run = next((run for run in history if run.trials and not _replayed(run)), None)
        if run is None:
            what = "only replays of recordings are" if any(map(_replayed, history)) else "nothing is"
            raise InputError(f"{what} stored, so there is nothing to export: tuner run measures and stores")
        return run
    run = next((run for run in history if run.id == run_id), None)
    if run is None:
        raise InputError(f"--run {run_id}: there is no such run; tuner history lists them")
    if not run.trials:
        raise InputError(f"--run {run_id}: no trial of it was measured")
    if _replayed(run):
        raise InputError(f"--run {run_id}: it replayed a recording, which is the file to give away")
    return run


def _replayed(run: StoredRun) -> bool:
    return bool(run.conditions["device"].get("recorded"))


def _key(conditions: RunConditions) -> tuple[object, ...]:
    """Return the key that runs share if their trials can be compared."""
    device = {name: value for name, value in conditions["device"].items() if name != "spec"}
    settings = conditions["settings"]
    return (
        conditions["workloads"],
        conditions["sources"],
        device,
        conditions.get("protocol"),
        [settings.get(name) for name in _MEASURED_ALIKE],
    )


def _device(identity: DeviceIdentity) -> Device | None:
    """The device itself where it is here, else the model of that GPU, which has its limits; or None."""
    model = next((name for name in gpu_names() if gpu_model(name).product == identity.name), None)
    for spec in filter(None, (identity.spec, None if model is None else f"sim:{model}")):
        try:
            device = open_device(spec).device
        except (DeviceUnavailableError, CompilerUnavailableError, UnknownNameError):
            continue
        if device.identity.uuid == identity.uuid or device.identity.modelled:
            return device
        device.close()
    return None


def _prepared_workloads(
    conditions: RunConditions,
    catalog: Catalog,
    trials: Mapping[Trial, Measurement],
    device: Device | None,
    why: Mapping[str, str],
) -> tuple[list[PreparedWorkload], list[str]]:
    """The workloads with the configurations that were tried, and what is not known of them.

    ``why`` has the reasons for which kernels are not in the catalogue, as far as these are known.
    """
    prepared, notices = [], []
    for lane, (name, batch) in enumerate(conditions["workloads"]):
        tried = list(dict.fromkeys(trial.configurations[lane] for trial in trials))
        kernel = catalog.kernels.get(WorkloadName.parse(name).kernel)
        if kernel is None or conditions["sources"].get(kernel.name) != kernel.fingerprint:
            prepared.append(_forgotten(name, batch, conditions["sources"], tried))
            reason = why.get(WorkloadName.parse(name).kernel, "unknown here; --kernel names its file")
            reason = reason if kernel is None else f"its kernel has changed since ({kernel.path})"
            notices.append(f"{name}: {reason}: without launches, work and roles")
            continue
        settings = conditions["settings"]
        places: dict[str, Sequence[int]] = {}
        if "stream_priorities" in settings:
            places[STREAM_PRIORITY] = range(settings["stream_priorities"])
        if "sm_shares" in settings:
            places[SM_SHARE] = settings["sm_shares"]
        kernel = with_places(kernel, places) if places else kernel
        workload = replace(catalog.workload(name), batch=batch)
        plans = {configuration: kernel.plan(workload, configuration) for configuration in tried}
        candidates = tuple(_compiled_candidates(kernel, list(plans.values()), device))
        if not any(each.launches for each in candidates):
            notices.append(f"{name}: without launches: the GPU, or a compiler for it, is not here")
        prepared.append(
            PreparedWorkload(
                *(workload, kernel, kernel.space(workload), plans, candidates, kernel.default(workload)),
                min_occupancy=0.0,
                pruned={},
                compile_errors=(),
            )
        )
    return prepared, notices


def _compiled_candidates(
    kernel: KernelFile, plans: Sequence[Plan], device: Device | None
) -> Iterator[Candidate]:
    """Yield the candidates of the plans, with their launches if they compile for the device."""
    limits = None if device is None else device.limits
    reports: Sequence[object] = [None] * len(plans)
    if device is not None and limits is not None:
        reports = device.resources(plans)
    for plan, report in zip(plans, reports, strict=True):
        resources: tuple[Resources, ...] = report if isinstance(report, tuple) else ()
        stages = launches(limits, plan, resources) if resources and limits is not None else ()
        yield candidate(plan.configuration, stages, kernel.roles, resources=resources, work=plan.work)


def _forgotten(
    name: str, batch: int, sources: Mapping[str, str], tried: Sequence[Configuration]
) -> PreparedWorkload:
    """A workload of which the database alone tells."""
    parts = WorkloadName.parse(name)
    recorded = RecordedKernel(parts.kernel, "", {}, {}, sources.get(parts.kernel, ""))
    workload = recorded.workload(dict(parts.sizes), batch)
    tunables = {
        tunable: tuple(dict.fromkeys(each[tunable] for each in tried if tunable in each))
        for tunable in tunable_names(tried)
    }
    return PreparedWorkload(
        workload=workload,
        kernel=recorded,
        space=space_of(tried, tunables),
        plans={},
        candidates=tuple(candidate(configuration, (), {}) for configuration in tried),
        default=tried[0],
        min_occupancy=0.0,
        pruned={},
        compile_errors=(),
    )


def covered(stored: SpaceExport) -> str:
    """Return the measured share of a space, in words."""
    count = len(stored.space.trials)
    if stored.size is None:
        return f"{count:,} trials, of a space that no finished run tells the size of"
    share = math.floor(100 * min(count, stored.size) / stored.size)
    return f"{count:,} trials, {share} % of {stored.size:,} after pruning"
