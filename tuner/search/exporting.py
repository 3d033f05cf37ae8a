"""Runs as recorded spaces: from a session's trials, or from the database with what was not measured."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

from tuner.config.stream_priority import with_stream_priorities
from tuner.database.runs import Store
from tuner.devices.base import Device
from tuner.devices.choice import open_device
from tuner.devices.gpus import gpu_model, gpu_names
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.device import DeviceIdentity, DeviceLimits
from tuner.model.errors import CompilerUnavailableError, DeviceUnavailableError, InputError, UnknownNameError
from tuner.model.plan import Configuration, Plan, Resources, tunable_names
from tuner.model.records import StoredRun
from tuner.model.trial import Measurement, Trial
from tuner.model.workload_name import WorkloadName
from tuner.recordings.values import RecordedKernel, RecordedSpace, RecordedWorkload
from tuner.search.candidates import PreparedWorkload
from tuner.search.replaying import space_of
from tuner.space.launches import candidate, launches
from tuner.space.search_view import Candidate

Trials = Mapping[Trial, Measurement] | Iterable[tuple[Trial, Measurement]]
_MEASURED_ALIKE = ("window_s", "sensor", "stream_priorities")  # settings of trials that stand side by side


def recorded_space(  # noqa: PLR0917 - what a recording is made of
    prepared: Sequence[PreparedWorkload],
    identity: DeviceIdentity,
    limits: DeviceLimits | None,
    trials: Trials,
    sensor: str = "",
    provenance: Mapping[str, Any] | None = None,
) -> RecordedSpace:
    """What trials of prepared workloads gave, as a recorded space.

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
    return RecordedSpace(
        workloads=tuple(
            _workload(item, {trial.configurations[lane] for trial in measured})
            for lane, item in enumerate(prepared)
        ),
        identity=identity,
        limits=limits,
        trials=measured,
        sensor=sensor,
        provenance=dict(provenance or {}),
    )


def _workload(item: PreparedWorkload, tried: set[Configuration]) -> RecordedWorkload:
    return RecordedWorkload(
        name=str(item.workload),
        kernel=item.kernel.name,
        family=item.kernel.family,
        sizes=dict(item.workload.sizes),
        batch=item.workload.batch,
        fingerprint=item.kernel.fingerprint,
        tunables=item.space.tunables,
        roles=item.kernel.rule_roles,
        default=item.default,
        candidates=tuple(_candidates(item, tried)),
    )


def _candidates(item: PreparedWorkload, tried: set[Configuration]) -> list[Candidate]:
    """Candidates that were tried; a default that pruning dropped was tried, too, without being one."""
    known = {c.configuration: c for c in item.candidates}
    found = [known.get(c) or candidate(c, (), item.kernel.roles, work=item.plans[c].work) for c in tried]
    return sorted(found, key=lambda one: item.space.order(one.configuration))


class SpaceExport(NamedTuple):
    """What was found in the database.

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
            if trial not in trials or _weight(measurement) >= _weight(trials[trial]):
                trials[trial] = measurement
    identity = DeviceIdentity(**chosen.conditions["device"])
    device = _device(identity)
    if device is None:
        prepared, notices = _prepared(chosen.conditions, catalog, trials, None)
    else:
        with closing(device):
            prepared, notices = _prepared(chosen.conditions, catalog, trials, device)
    spared = sum(measurement.estimated_j is not None for measurement in trials.values())
    if spared:
        notices.append(
            f"{spared} of {len(trials)} trials have no joules: tuner run --joules measures them too"
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
    return SpaceExport(space, tuple(run.id for run in alike), _size(alike), tuple(notices))


def _weight(measurement: Measurement) -> tuple[bool, int]:
    """Of a measurement among those of one trial."""
    return measurement.estimated_j is None, measurement.repeats


def _chosen(history: Sequence[StoredRun], run_id: int | None) -> StoredRun:
    """The run of that number, or the newest that measured something."""
    if run_id is None:
        found = next((run for run in history if run.trials and not _replayed(run)), None)
        if found is None:
            what = "only replays of recordings are" if any(map(_replayed, history)) else "nothing is"
            raise InputError(f"{what} stored, so there is nothing to export: tuner run measures and stores")
        return found
    found = next((run for run in history if run.id == run_id), None)
    if found is None:
        raise InputError(f"--run {run_id}: there is no such run; tuner history lists them")
    if not found.trials:
        raise InputError(f"--run {run_id}: no trial of it was measured")
    if _replayed(found):
        raise InputError(f"--run {run_id}: it replayed a recording, which is the file to give away")
    return found


def _replayed(run: StoredRun) -> bool:
    return bool(run.conditions["device"].get("recorded"))


def _key(conditions: Mapping[str, Any]) -> tuple[Any, ...]:
    """What runs share whose trials can stand side by side."""
    device = {name: value for name, value in conditions["device"].items() if name != "spec"}
    settings = conditions["settings"]
    return (
        conditions["workloads"],
        conditions["sources"],
        device,
        conditions.get("protocol"),
        [settings.get(name) for name in _MEASURED_ALIKE],
    )


def _size(runs: Sequence[StoredRun]) -> int | None:
    """Trials of the largest of the runs' spaces."""
    sizes = [run.answer["space"].get("pruned") for run in runs if run.answer is not None]
    return max((size for size in sizes if size is not None), default=None)


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


def _prepared(
    conditions: Mapping[str, Any],
    catalog: Catalog,
    trials: Mapping[Trial, Measurement],
    device: Device | None,
) -> tuple[list[PreparedWorkload], list[str]]:
    """The workloads with the configurations that were tried, and what is not known of them."""
    prepared, notices = [], []
    for lane, (name, batch) in enumerate(conditions["workloads"]):
        tried = list(dict.fromkeys(trial.configurations[lane] for trial in trials))
        kernel = _kernel(catalog, name, conditions["sources"])
        if kernel is None:
            prepared.append(_forgotten(name, batch, conditions["sources"], tried))
            notices.append(f"{name}: its kernel has changed or is gone: without launches, work and roles")
            continue
        levels = conditions["settings"].get("stream_priorities", 1)
        kernel = kernel if levels == 1 else with_stream_priorities(kernel, levels)
        workload = replace(catalog.workload(name), batch=batch)
        plans = {configuration: kernel.plan(workload, configuration) for configuration in tried}
        candidates = tuple(_compiled_candidates(kernel, list(plans.values()), device))
        if not any(one.launches for one in candidates):
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


def _kernel(catalog: Catalog, name: str, sources: Mapping[str, str]) -> KernelFile | None:
    """The kernel of a workload, if it is what was measured."""
    kernel = catalog.kernels.get(WorkloadName.parse(name).kernel)
    if kernel is None or sources.get(kernel.name) != kernel.fingerprint:
        return None
    return kernel


def _compiled_candidates(
    kernel: KernelFile, plans: Sequence[Plan], device: Device | None
) -> Iterator[Candidate]:
    """What is known of the plans, with their launches where they compile for the device."""
    limits = None if device is None else device.limits
    reports: Sequence[object] = [None] * len(plans)
    if device is not None and limits is not None:
        reports = device.resources(plans)
    for plan, report in zip(plans, reports, strict=True):
        known: tuple[Resources, ...] = report if isinstance(report, tuple) else ()
        stages = launches(limits, plan, known) if known and limits is not None else ()
        yield candidate(plan.configuration, stages, kernel.roles, resources=known, work=plan.work)


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
    """How much of its space was measured, in words."""
    count = len(stored.space.trials)
    if stored.size is None:
        return f"{count:,} trials, of a space that no finished run tells the size of"
    share = math.floor(100 * min(count, stored.size) / stored.size)
    return f"{count:,} trials, {share} % of {stored.size:,} after pruning"
