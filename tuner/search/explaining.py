"""Analytical model of workloads, as a document: candidates in its order, with the reasons for it."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from tuner.devices.base import Device
from tuner.devices.choice import open_device
from tuner.devices.kinds import replayed
from tuner.kernel_files.catalog import Catalog, load_kernel_file
from tuner.model.errors import InputError
from tuner.model.jobs import DeviceLimits
from tuner.model.plan import Progress
from tuner.model.records import WorkloadName
from tuner.model.run_document import AnalyticalDocument
from tuner.policies.analytical import Choice, choose, missing
from tuner.search.candidates import PreparedWorkload
from tuner.search.compilation import Compilation
from tuner.search.plan import prepared_workloads, resolve
from tuner.space.occupancy import occupancy

_LOWEST_PRIORITY = 19  # the machine's own work goes first
SHOWN = 10  # candidates of a workload, unless all are asked for
_TUPLE = {  # the embedded paper's letters, by role
    "S": "shared_elements",
    "P": "elements_per_thread",
    "L": "threads_per_block",
    "r": "radix",
    "shuffle": "shuffle",
}


def explain(
    specs: Sequence[str],
    device_spec: str | None = None,
    kernel_files: Sequence[Path] = (),
    *,
    rule: str | None = None,
    shown: int | None = SHOWN,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Choose a configuration of each workload by the analytical model; nothing runs.

    Compiled are those candidates that may be the best; all of them where all are to be shown.

    Args:
        specs: workloads, each explained as if it ran alone.
        device_spec: as `worker.open_device` takes it.
        kernel_files: kernel files beside the catalogue.
        rule: ``embedded`` or ``server``; None goes by the device.
        shown: candidates listed of each workload; None for all.
        progress: told how many of the configurations looked at are compiled.

    Raises:
        TunerError: an unknown workload, device or rule; nothing left of a space.
    """
    catalog = Catalog.load(kernel_files)
    documents, notices = [], []
    with ExitStack() as stack:
        device: Device | None = None
        for spec in specs:
            if device is None or replayed(device) is not None:  # a recording opens one space at a time
                opened = open_device(device_spec, workloads=(spec,))
                device = stack.enter_context(closing(opened.device))
                notices += [opened.notice] if opened.notice else []
            document, messages = _workload(spec, catalog, device, rule=rule, shown=shown, progress=progress)
            documents.append(document)
            notices += messages
        limits = None if device is None else device.limits
        described = (
            None
            if device is None
            else {
                "spec": device.identity.spec,
                "name": device.identity.name,
                "compute_capability": None if limits is None else list(limits.compute_capability),
                "multiprocessors": None if limits is None else limits.multiprocessors,
                "max_warps_per_sm": None if limits is None else limits.max_warps_per_sm,
                "max_blocks_per_sm": None if limits is None else limits.max_blocks_per_sm,
            }
        )
        return {"device": described, "workloads": documents, "notices": notices}


def _workload(
    spec: str,
    catalog: Catalog,
    device: Device,
    *,
    rule: str | None,
    shown: int | None,
    progress: Progress | None,
) -> tuple[dict[str, Any], list[str]]:
    begun_s = time.perf_counter()
    workloads, notices = resolve(catalog, (spec,), device)
    (declared,) = prepared_workloads(workloads, device)
    prepared_s = time.perf_counter()
    choice, prepared = analytical_choice(
        declared, device, rule=rule, progress=progress, everything=shown is None
    )
    chosen_s = time.perf_counter()
    document = {
        "workload": str(prepared.workload),
        "batch": prepared.workload.batch,
        "considered": len(prepared.candidates),
        "uncompiled": prepared.uncompiled,
        "pruned": dict(prepared.pruned),
        "architecture": _architecture(prepared),
        "resources": _origin(prepared, device),
        "prepare_s": prepared_s - begun_s,
        "choose_s": chosen_s - prepared_s,
    }
    if choice is None or device.limits is None:
        why = missing(prepared.candidates, device.limits, prepared.kernel.rule_roles)
        return document | {
            "rule": None,
            "reasons": [f"no analytical answer: {why or 'compiling rules out what its kernel file states'}"],
            "candidates": [],
        }, notices
    rows = [_row(rated, device.limits, prepared.kernel.roles) for rated in choice.shortlist.compared[:shown]]
    return (
        document
        | {
            "rule": choice.rule,
            "configuration": dict(choice.configuration),
            "reasons": list(choice.reasons),
            "candidates": rows,
        },
        notices,
    )


def analytical_choice(
    declared: PreparedWorkload,
    device: Device,
    *,
    rule: str | None = None,
    progress: Progress | None = None,
    everything: bool = False,
) -> tuple[Choice | None, PreparedWorkload]:
    """The analytical answer of a workload; its front-runners are compiled, and nothing runs.

    Args:
        declared: the workload, as ``prepare`` has it.
        device: compiles, and its limits count.
        rule: ``embedded`` or ``server``; None goes by the device.
        progress: told how many of the configurations looked at are compiled.
        everything: compile all candidates.

    Returns:
        The choice, None without one, and the workload with what
        compiling told.

    Raises:
        EmptySpaceError: compiling rules out all candidates.
        InputError: an unknown rule.
    """
    compilation = Compilation([declared], device, progress=progress)
    try:
        if everything:
            compilation.resolve_all()
        choice = choose(
            declared.candidates,
            device.limits,
            declared.kernel.rule_roles,
            rule=rule,
            resolve=partial(compilation.resolve, 0),
        )
        if choice is None and not missing(declared.candidates, device.limits, declared.kernel.rule_roles):
            compilation.resolve_all()  # says why nothing is left, where that is so
        (compiled,) = compilation.known()
        return choice, compiled
    finally:
        compilation.close()


def _architecture(prepared: PreparedWorkload) -> str:
    """Return the architecture of compiled candidates; empty if their resources were recorded."""
    architectures = (resources.architecture for each in prepared.candidates for resources in each.resources)
    return next(architectures, "")


def _origin(prepared: PreparedWorkload, device: Device) -> str:
    """Return the origin of the registers and shared memory of the candidates, for people."""
    if device.identity.recorded:
        return "as recorded"
    if not any(each.resources for each in prepared.candidates):
        return "none compiled"
    architecture = _architecture(prepared)
    return f"compiled for {architecture}" if architecture else "as their kernel file declares"


def _row(rated: Any, limits: DeviceLimits, roles: Mapping[str, str]) -> dict[str, Any]:  # noqa: ANN401 - of a policy
    configuration = rated.candidate.configuration
    return {
        "configuration": dict(configuration),
        **{letter: configuration.get(roles.get(role, "")) for letter, role in _TUPLE.items()},
        "launches": [
            {
                "blocks": launch.blocks,
                "threads_per_block": launch.threads_per_block,
                "registers_per_thread": launch.registers_per_thread,
                "shared_bytes": launch.shared_bytes,
                "resident": launch.resident,
                "blocks_per_sm": launch.blocks_per_sm,
                "occupancy": launch.occupancy,
                "binding": list(
                    occupancy(
                        limits, launch.threads_per_block, launch.registers_per_thread, launch.shared_bytes
                    ).binding
                ),
                "W_SM": W_SM,
                "B_a": B_a,
            }
            for launch, W_SM, B_a in zip(rated.launches, rated.W_SM, rated.B_a, strict=True)
        ],
        "occupancy": rated.candidate.occupancy,
        "bytes_in_flight": rated.bytes_in_flight,
        "steps": rated.steps,
    }


class Explainer:
    """Explains workloads in a child process of low priority, which the compilers inherit."""

    def __init__(self) -> None:
        os.nice(_LOWEST_PRIORITY)

    def explain(self, workload: str, device: str, kernel_file: Path) -> AnalyticalDocument:
        """The analytical answer of a workload, as it is stored.

        Args:
            workload: e.g. ``scan-lf:N=1024``.
            device: whose limits count; a simulated one opens no GPU.
            kernel_file: of the workload.

        Returns:
            ``configuration`` (None where the model has no answer), ``rule``, ``considered`` candidates,
            ``reasons``, the ``default`` configuration, the ``source`` hash it is true for, ``seconds`` taken.

        Raises:
            TunerError: nothing is left of the space, or its files changed meanwhile.
        """
        kernel = load_kernel_file(kernel_file)
        (document,) = explain([workload], device, [kernel_file], shown=0)["workloads"]
        if load_kernel_file(kernel_file).fingerprint != kernel.fingerprint:
            raise InputError(f"{kernel_file}: changed while it was compiled")
        sizes = dict(WorkloadName.parse(workload).sizes)
        return {
            "configuration": document.get("configuration"),
            "rule": document["rule"],
            "considered": document["considered"],
            "reasons": list(document["reasons"]),
            "default": dict(kernel.default(kernel.workload(sizes))),
            "source": kernel.fingerprint,
            "seconds": document["prepare_s"] + document["choose_s"],
        }
