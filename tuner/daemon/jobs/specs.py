"""Job specs of clients and of the sets of daemon.toml: checks without a device, and keys to compare by."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.daemon.interface import MOST_LETTERS, MOST_WORKLOADS
from tuner.daemon.settings import SetTable, Settings, TuningTable
from tuner.kernel_files.catalog import DEFAULT_WORKLOADS, Catalog
from tuner.model.errors import DeviceUnavailableError, InputError, UnknownNameError, suggestion
from tuner.model.jobs import DeviceChoice, DeviceIdentity, Job, JobSpec, JobState, Origin, wrong_choice
from tuner.model.options import METHODS, SINGLE
from tuner.model.records import WorkloadName
from tuner.model.typed import canonical
from tuner.search.option_checks import check_options, job_options

WITHDRAWN = "daemon.toml does not name it any more"
"""Reason to cancel a job of a set; a set that is named again is queued again."""


Devices = Mapping[str, DeviceIdentity] | Sequence[str]
"""Devices that the daemon tunes on, with their identities where these are known."""


def checked(spec: JobSpec, catalog: Catalog, devices: Devices) -> JobSpec:
    """The spec with its workloads filled in, and its choice of devices in the one way of writing it.

    Raises:
        InputError: the spec names something unknown, or is wrong; the message says what would be right.
        DeviceUnavailableError: the daemon has no device now.
    """
    check_options(job_options(spec))
    specs = spec.workloads or DEFAULT_WORKLOADS
    if len(specs) > MOST_WORKLOADS:
        raise InputError(f"{len(specs)} workloads: at most {MOST_WORKLOADS} run together")
    for name in specs:
        if len(name) > MOST_LETTERS:
            raise InputError(f"workload {name[:40]!r}...: {len(name)} letters, at most {MOST_LETTERS}")
    return replace(spec, workloads=catalog.exact(specs), device=checked_device(spec.device, devices))


def checked_device(device: str, devices: Devices) -> str:
    """A choice of devices (``tuner.model.jobs``) of which the daemon has one; empty for any.

    Raises:
        InputError: it names no kind.
        UnknownNameError: the daemon tunes on no such device; the message says on which it does.
        DeviceUnavailableError: it has none now.
    """
    if not devices:
        raise DeviceUnavailableError("no device of the daemon answers now; `tuner status` says why of each")
    if wrong := wrong_choice(device[:MOST_LETTERS]):
        raise InputError(f"device: {wrong}")
    choice = DeviceChoice.parse(device)
    if choice.one and device not in devices:
        raise UnknownNameError(
            f"device {device[:MOST_LETTERS]!r}: the daemon tunes on {', '.join(devices)}"
            f"{suggestion(device[:MOST_LETTERS], list(devices))}"
        )
    if not choice.one and isinstance(devices, Mapping) and not any(map(choice.allows, devices.values())):
        kinds = dict.fromkeys(f"kind:{identity.name}@{identity.driver}" for identity in devices.values())
        raise UnknownNameError(f"device {device[:MOST_LETTERS]!r}: the daemon tunes on {', '.join(kinds)}")
    return str(choice)


def without_batch(spec: str) -> str:
    """A workload without its batch, as answers name it."""
    return str(WorkloadName.parse(spec).without_batch())


def spec_key(spec: JobSpec) -> str:
    """The same text for specs that differ at most in the order of their workloads, and in verifying first."""
    return canonical(
        {
            **vars(spec),
            "workloads": sorted(spec.workloads),
            "kind": spec.kind.value,
            "options": {name: value for name, value in spec.options.items() if name != "verify"},
        }
    )


def verifies(spec: JobSpec) -> bool:
    """True for a job that verifies the answer of another GPU of the kind."""
    return bool(spec.options.get("verify"))


def verifying(spec: JobSpec) -> JobSpec:
    """The job that verifies what a search would find."""
    return replace(spec, options={**spec.options, "verify": True})


def topic(spec: JobSpec) -> str:
    """The same text for specs that lead to the same answer, however they measure.

    Limits are part of it: a search of one trial does not replace a longer one.
    """
    options = {
        name: float(value) if isinstance(value, int) else value  # 5 is 5.0
        for name, value in spec.options.items()
        if name not in METHODS
    }
    return spec_key(replace(spec, options=options))


def answer_key(spec: JobSpec) -> str:
    """The same text for specs that answer the same question, however they search."""
    limit, singles = spec.options.get("max_slowdown"), spec.options.get("timing") == SINGLE
    return canonical([spec.device, sorted(spec.workloads), spec.objective, limit, singles])


def with_site_rules(spec: JobSpec, tuning: TuningTable) -> JobSpec:
    """A client's spec under the rules of daemon.toml, with its precision and time-out where none are chosen.

    Raises:
        InputError: it asks for clocks, and clients may not.
    """
    if spec.clocks not in ("off", tuning.clocks) and not tuning.client_clocks:
        raise InputError(
            f"clocks {spec.clocks}: clients may not choose clocks here"
            " ([tuning] client_clocks of daemon.toml says so); use off"
            + ("" if tuning.clocks == "off" else f" or {tuning.clocks}")
        )
    return replace(spec, options=with_defaults(spec.options, tuning))


def with_defaults(options: Mapping[str, Any], tuning: TuningTable) -> dict[str, Any]:
    """Options with those of daemon.toml where none are chosen."""
    return tuning.options | dict(options)


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
    """Return the jobs that sets request on a device, or by a choice of several, present or not."""
    specs: dict[str, JobSpec] = {}
    priorities: dict[str, float] = {}
    unresolved = []
    for group in settings.set:
        if device not in (_choices(group) or [device]):
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


def choices_of(identity: DeviceIdentity, settings: Settings) -> list[str]:
    """A device, and the choices of sets that allow it, as job specs have them."""
    choices = (choice for group in settings.set for choice in _choices(group, several=True))
    allowed = [choice for choice in choices if DeviceChoice.parse(choice).allows(identity)]
    return list(dict.fromkeys([identity.spec, *allowed]))


def specs_of(group: SetTable, settings: Settings, catalog: Catalog, devices: Devices) -> list[JobSpec]:
    """The job specs of a set, one for each device or choice of devices that it names.

    Raises:
        InputError: it names what is not there.
    """
    spec = _spec(group, settings)
    return [checked(replace(spec, device=device), catalog, devices) for device in group.devices or devices]


def missing(
    settings: Settings, catalog: Catalog, devices: Devices, listed: Iterable[Job]
) -> tuple[list[tuple[JobSpec, float]], list[str]]:
    """Job specs of sets that were never queued, with their priority; and what is wrong with sets.

    Args:
        settings: with the sets.
        catalog: of the kernels.
        devices: that the daemon tunes on.
        listed: jobs that are listed, ended ones too: a set that failed or that a client cancelled is not
            tried again until it is another one; one that the daemon had withdrawn is.
    """
    queued = {
        spec_key(job.spec)
        for job in listed
        if job.origin is Origin.SET and (job.state, job.reason) != (JobState.CANCELLED, WITHDRAWN)
    }
    wrong = [
        f"set {group.name}: device {device!r} is not there; the daemon tunes on {', '.join(devices)}"
        for group in settings.set
        for device in group.devices
        if not _is_there(device, devices)
    ]
    specs: list[tuple[JobSpec, float]] = []
    several = dict.fromkeys(choice for group in settings.set for choice in _choices(group, several=True))
    for device in [*devices, *(choice for choice in several if _is_there(choice, devices))]:
        sets = sets_on(device, settings, catalog)
        wrong += [f"set {group.name}: {why}" for group, why in sets.unresolved]
        specs += [(spec, sets.priorities[key]) for key, spec in sets.specs.items() if key not in queued]
    return specs, list(dict.fromkeys(wrong))


def unwanted(settings: Settings, catalog: Catalog, devices: Devices, active: Iterable[Job]) -> list[int]:
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
        device = job.wanted_device
        single = DeviceChoice.parse(device).one
        taken_out = single and bool(named) and device not in named and device not in devices
        if taken_out or not sets.may_name(job.spec):
            numbers.append(job.id)
    return numbers


def reprioritised(settings: Settings, catalog: Catalog, active: Iterable[Job]) -> dict[int, float]:
    """Jobs of sets whose priority in daemon.toml is another now, with it."""
    priorities = {}
    for job, sets in _with_sets(settings, catalog, active):
        priority = sets.priorities.get(spec_key(job.spec), job.priority)
        if priority != job.priority:
            priorities[job.id] = priority
    return priorities


def _choices(group: SetTable, *, several: bool = False) -> list[str]:
    """The devices that a set names, and its choices of several, as job specs have them."""
    choices = [DeviceChoice.parse(device) for device in group.devices]
    return [str(choice) for choice in choices if not (several and choice.one)]


def _is_there(device: str, devices: Devices) -> bool:
    """True where the daemon tunes on a device, or on one that a choice allows."""
    choice = DeviceChoice.parse(device)
    if choice.one or not isinstance(devices, Mapping):
        return device in devices or not choice.one
    return any(map(choice.allows, devices.values()))


def _with_sets(settings: Settings, catalog: Catalog, active: Iterable[Job]) -> list[tuple[Job, SetSpecs]]:
    jobs = [job for job in active if job.origin is Origin.SET]
    sets = {device: sets_on(device, settings, catalog) for device in {job.wanted_device for job in jobs}}
    return [(job, sets[job.wanted_device]) for job in jobs]


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
