"""The sets of daemon.toml: their job specs, those never queued, and those not named any more."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.config.catalog import Catalog
from tuner.daemon.queue.job_specs import checked, spec_key, with_defaults
from tuner.daemon.settings.tables import SetTable, Settings
from tuner.errors import InputError
from tuner.model import WorkloadName
from tuner.model.jobs import JobRecord, JobSpec, JobState, Origin

WITHDRAWN = "daemon.toml does not name it any more"
"""Why the daemon cancels a job of a set; a set that is named again is queued again."""


@dataclass(frozen=True)
class SetSpecs:
    """The job specs of sets on one device.

    Attributes:
        specs: by ``spec_key``.
        priorities: likewise.
        unresolved: sets that cannot be read just now, and why: a kernel file is broken or half saved.
    """

    specs: Mapping[str, JobSpec]
    priorities: Mapping[str, float]
    unresolved: Sequence[tuple[SetTable, str]]

    def may_name(self, spec: JobSpec) -> bool:
        """False where no set names a job; one that cannot be read now may, by its kernels."""
        kernels = _kernels(spec.workloads)
        unclear = any(_kernels(group.workloads) == kernels for group, _ in self.unresolved)
        return unclear or spec_key(spec) in self.specs


def sets_on(device: str, settings: Settings, catalog: Catalog) -> SetSpecs:
    """What sets ask for on a device, whether or not it answers now."""
    specs: dict[str, JobSpec] = {}
    priorities: dict[str, float] = {}
    unresolved = []
    for group in settings.set:
        if group.devices and device not in group.devices:
            continue
        try:
            spec = checked(replace(_spec(group, settings), device=device), catalog, (device,))
        except InputError as error:
            unresolved.append((group, str(error)))
            continue
        key = spec_key(spec)
        specs[key] = spec
        priorities[key] = max(group.priority, priorities.get(key, group.priority))
    return SetSpecs(specs, priorities, unresolved)


def specs_of(group: SetTable, settings: Settings, catalog: Catalog, devices: Sequence[str]) -> list[JobSpec]:
    """The job specs of a set, one per device.

    Args:
        group: of daemon.toml.
        settings: for what the set leaves open.
        catalog: of the kernels.
        devices: that the daemon tunes on.

    Raises:
        InputError: it names what is not there.
    """
    spec = _spec(group, settings)
    return [checked(replace(spec, device=device), catalog, devices) for device in group.devices or devices]


def missing(
    settings: Settings, catalog: Catalog, devices: Sequence[str], known: Iterable[JobRecord]
) -> tuple[list[tuple[JobSpec, float]], list[str]]:
    """Job specs of sets that were never queued, with their priority; and what is wrong with sets.

    Args:
        settings: with the sets.
        catalog: of the kernels.
        devices: that the daemon tunes on.
        known: jobs that are listed, ended ones too: a set that failed or that a client cancelled is not
            tried again until it is another one; one that the daemon had withdrawn is.
    """
    queued = {
        spec_key(job.spec)
        for job in known
        if job.origin is Origin.SET and (job.state, job.reason) != (JobState.CANCELLED, WITHDRAWN)
    }
    wrong = [
        f"set {group.name}: device {device!r} is not there; the daemon tunes on {', '.join(devices)}"
        for group in settings.set
        for device in group.devices
        if device not in devices
    ]
    specs: list[tuple[JobSpec, float]] = []
    for device in devices:
        sets = sets_on(device, settings, catalog)
        wrong += [f"set {group.name}: {why}" for group, why in sets.unresolved]
        specs += [(spec, sets.priorities[key]) for key, spec in sets.specs.items() if key not in queued]
    return specs, list(dict.fromkeys(wrong))


def unwanted(
    settings: Settings, catalog: Catalog, devices: Sequence[str], active: Iterable[JobRecord]
) -> list[int]:
    """Numbers of jobs of sets that daemon.toml names no more; what cannot be read just now is still named.

    Args:
        settings: with the sets.
        catalog: of the kernels.
        devices: that the daemon tunes on; another may only be missing for a while.
        active: jobs that have not ended.
    """
    named = settings.service.devices
    numbers = []
    for job, sets in _with_sets(settings, catalog, active):
        device = job.spec.device
        taken_out = bool(named) and device not in named and device not in devices
        if taken_out or not sets.may_name(job.spec):
            numbers.append(job.id)
    return numbers


def reprioritised(settings: Settings, catalog: Catalog, active: Iterable[JobRecord]) -> dict[int, float]:
    """Jobs of sets whose priority in daemon.toml is another now, with it."""
    found = {}
    for job, sets in _with_sets(settings, catalog, active):
        priority = sets.priorities.get(spec_key(job.spec), job.priority)
        if priority != job.priority:
            found[job.id] = priority
    return found


def _with_sets(
    settings: Settings, catalog: Catalog, active: Iterable[JobRecord]
) -> list[tuple[JobRecord, SetSpecs]]:
    jobs = [job for job in active if job.origin is Origin.SET]
    sets = {device: sets_on(device, settings, catalog) for device in {job.spec.device for job in jobs}}
    return [(job, sets[job.spec.device]) for job in jobs]


def _spec(group: SetTable, settings: Settings) -> JobSpec:
    """The job spec of a set, with what it leaves open as ``[tuning]`` has it; for no device yet."""
    tuning = settings.tuning
    return JobSpec(
        workloads=group.workloads,
        objective=group.objective or tuning.objective,
        policy=group.policy or tuning.policy,
        clocks=group.clocks or tuning.clocks,
        options=with_defaults(group.options, tuning),
    )


def _kernels(workloads: Sequence[str]) -> list[str]:
    return sorted(WorkloadName.parse(spec).kernel for spec in workloads)
