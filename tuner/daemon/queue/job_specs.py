"""Checks of job specs before they are queued, without opening a device, and keys to compare them by."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.config.catalog import DEFAULT_WORKLOADS, Catalog
from tuner.daemon.interface import MOST_LETTERS, MOST_WORKLOADS
from tuner.daemon.settings.tables import TuningTable
from tuner.errors import DeviceUnavailableError, InputError, UnknownNameError
from tuner.model import Workload, WorkloadName
from tuner.model.jobs import JobSpec
from tuner.model.records import canonical
from tuner.options import METHODS
from tuner.search.option_checks import check_options, job_options
from tuner.system.names import suggestion


def checked(spec: JobSpec, catalog: Catalog, devices: Sequence[str]) -> JobSpec:
    """The spec with workloads and device filled in.

    Args:
        spec: as a client or daemon.toml has it.
        catalog: of the kernels that may be named.
        devices: that the daemon tunes on, its first first.

    Raises:
        InputError: the spec names something unknown, or is wrong; the message says what would be right.
        DeviceUnavailableError: the daemon has no device now.
    """
    check_options(job_options(spec))
    workloads = checked_workloads(spec.workloads or DEFAULT_WORKLOADS, catalog)
    return replace(spec, workloads=workloads, device=checked_device(spec.device, devices))


def checked_device(device: str, devices: Sequence[str]) -> str:
    """The device, or the first for none.

    Raises:
        UnknownNameError: the daemon does not tune on it; the message says on which it does.
        DeviceUnavailableError: it has none now.
    """
    if not devices:
        raise DeviceUnavailableError("no device of the daemon answers now; `tuner status` says why of each")
    if device and device not in devices:
        raise UnknownNameError(
            f"device {device[:MOST_LETTERS]!r}: the daemon tunes on {', '.join(devices)}"
            f"{suggestion(device[:MOST_LETTERS], devices)}"
        )
    return device or devices[0]


def checked_workloads(specs: Sequence[str], catalog: Catalog) -> tuple[str, ...]:
    """Workloads that run together, each written as it is in answers.

    Raises:
        InputError: one is unknown, or named twice, or there are too many.
    """
    if len(specs) > MOST_WORKLOADS:
        raise InputError(f"{len(specs)} workloads: at most {MOST_WORKLOADS} run together")
    named, specified = [], []
    for spec in specs:
        if len(spec) > MOST_LETTERS:
            raise InputError(f"workload {spec[:40]!r}...: {len(spec)} letters, at most {MOST_LETTERS}")
        workload = catalog.workload(spec)
        named.append(str(workload))
        specified.append(exact(spec, workload, catalog))
    twice = sorted({name for name in named if named.count(name) > 1})
    if twice:
        raise InputError(f"{', '.join(twice)}: named more than once; a co-run holds a workload once")
    return tuple(specified)


def exact(spec: str, workload: Workload, catalog: Catalog) -> str:
    """A workload as text, with its batch where that is not the kernel file's.

    Args:
        spec: as the client wrote it.
        workload: that it means.
        catalog: with its kernel.
    """
    name = str(workload)
    if WorkloadName.parse(spec).batch is None or catalog.workload(name).batch == workload.batch:
        return name
    return with_batch(name, workload.batch)


def with_batch(name: str, batch: int) -> str:
    """A workload's name together with a batch."""
    return str(WorkloadName.parse(name).with_batch(batch))


def without_batch(spec: str) -> str:
    """A workload without its batch, as answers name it."""
    return str(WorkloadName.parse(spec).without_batch())


def spec_key(spec: JobSpec) -> str:
    """The same text for specs that differ at most in the order of their workloads."""
    return canonical(
        {
            **vars(spec),
            "workloads": sorted(spec.workloads),
            "kind": spec.kind.value,
            "options": dict(spec.options),
        }
    )


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
    return canonical([spec.device, sorted(spec.workloads), spec.objective, spec.options.get("max_slowdown")])


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
