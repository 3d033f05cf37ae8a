"""The sets of daemon.toml: what they order, what of that was never queued, and what they name no more."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.config.catalog import Catalog
from tuner.daemon.queue.job_specs import checked, same_order, with_defaults
from tuner.daemon.settings.tables import SetTable, Settings
from tuner.errors import InputError
from tuner.model import WorkloadName
from tuner.model.jobs import JobRecord, JobSpec, JobState, Origin

WITHDRAWN = "daemon.toml does not name it any more"
"""Why the daemon cancels a job of a set; a set that is named again is queued again."""


@dataclass(frozen=True)
class Sets:
    """What sets ask for on one device.

    Attributes:
        orders: by ``same_order``.
        priorities: likewise.
        unresolved: sets that cannot be read just now, and why: a kernel file is broken or half saved.
    """

    orders: Mapping[str, JobSpec]
    priorities: Mapping[str, float]
    unresolved: Sequence[tuple[SetTable, str]]

    def may_name(self, order: JobSpec) -> bool:
        """False where no set asks for an order; one that cannot be read just now may, by its kernels."""
        kernels = _kernels(order.workloads)
        unclear = any(_kernels(group.workloads) == kernels for group, _ in self.unresolved)
        return unclear or same_order(order) in self.orders


def sets_on(device: str, settings: Settings, catalog: Catalog) -> Sets:
    """What sets ask for on a device, whether or not it answers now."""
    orders: dict[str, JobSpec] = {}
    priorities: dict[str, float] = {}
    unresolved = []
    for group in settings.set:
        if group.devices and device not in group.devices:
            continue
        try:
            order = checked(replace(_order(group, settings), device=device), catalog, (device,))
        except InputError as error:
            unresolved.append((group, str(error)))
            continue
        key = same_order(order)
        orders[key] = order
        priorities[key] = max(group.priority, priorities.get(key, group.priority))
    return Sets(orders, priorities, unresolved)


def orders_of(group: SetTable, settings: Settings, catalog: Catalog, devices: Sequence[str]) -> list[JobSpec]:
    """The orders of a set, one per device.

    Args:
        group: of daemon.toml.
        settings: for what the set leaves open.
        catalog: of the kernels.
        devices: that the daemon tunes on.

    Raises:
        InputError: it names what is not there.
    """
    order = _order(group, settings)
    return [checked(replace(order, device=device), catalog, devices) for device in group.devices or devices]


def missing(
    settings: Settings, catalog: Catalog, devices: Sequence[str], known: Iterable[JobRecord]
) -> tuple[list[tuple[JobSpec, float]], list[str]]:
    """Orders of sets that were never queued, with their priority; and what is wrong with sets.

    Args:
        settings: with the sets.
        catalog: of the kernels.
        devices: that the daemon tunes on.
        known: jobs that are listed, ended ones too: a set that failed or that a client cancelled is not
            tried again until it is another one; one that the daemon had withdrawn is.
    """
    queued = {
        same_order(job.spec)
        for job in known
        if job.origin is Origin.SET and (job.state, job.reason) != (JobState.CANCELLED, WITHDRAWN)
    }
    wrong = [
        f"set {group.name}: device {device!r} is not there; the daemon tunes on {', '.join(devices)}"
        for group in settings.set
        for device in group.devices
        if device not in devices
    ]
    orders: list[tuple[JobSpec, float]] = []
    for device in devices:
        sets = sets_on(device, settings, catalog)
        wrong += [f"set {group.name}: {why}" for group, why in sets.unresolved]
        orders += [(order, sets.priorities[key]) for key, order in sets.orders.items() if key not in queued]
    return orders, list(dict.fromkeys(wrong))


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


def reordered(settings: Settings, catalog: Catalog, active: Iterable[JobRecord]) -> dict[int, float]:
    """Jobs of sets whose priority in daemon.toml is another now, with it."""
    found = {}
    for job, sets in _with_sets(settings, catalog, active):
        priority = sets.priorities.get(same_order(job.spec), job.priority)
        if priority != job.priority:
            found[job.id] = priority
    return found


def _with_sets(
    settings: Settings, catalog: Catalog, active: Iterable[JobRecord]
) -> list[tuple[JobRecord, Sets]]:
    jobs = [job for job in active if job.origin is Origin.SET]
    sets = {device: sets_on(device, settings, catalog) for device in {job.spec.device for job in jobs}}
    return [(job, sets[job.spec.device]) for job in jobs]


def _order(group: SetTable, settings: Settings) -> JobSpec:
    """A set's order, with what it leaves open as ``[tuning]`` has it; for no device yet."""
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
