"""What earlier runs know about the workloads of a new one: Search.prior_runs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from tuner.database.neighbours import distance, size_point, sizes_named
from tuner.devices.gpus import limits_of
from tuner.kernel_files.kernel_file import KernelFile
from tuner.measurement.base import TrialStore
from tuner.model.device import DeviceIdentity
from tuner.model.errors import InputError
from tuner.model.objective import Objective
from tuner.model.plan import Configuration, Workload
from tuner.model.records import PROTOCOL, StoredRun
from tuner.recordings.values import RecordedKernel
from tuner.search.candidates import PreparedWorkload
from tuner.space.search_view import PriorRun

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
    """What runs that had finished before this one began measured of the same kernels, nearest first.

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
