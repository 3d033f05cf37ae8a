"""The trials of a kernel that the database has, as a training set."""

from collections.abc import Iterator

from tuner.config import KernelFile
from tuner.database import Store
from tuner.database.neighbours import sizes_named
from tuner.errors import InputError
from tuner.model import Configuration, DeviceIdentity, Workload
from tuner.model.objective import Objective
from tuner.model.records import PROTOCOL, StoredRun
from tuner.prediction.training_set import Sizes, TrainingSet


def stored_trials(
    store: Store, kernel: KernelFile, device: DeviceIdentity, objective: str
) -> TrainingSet | None:
    """All trials of a kernel alone on a GPU, with clocks and power limit as found; None without any.

    Taken are runs by the present sources, driver and CUDA, of the kernel file's own batch at each input, for
    whatever objective, as far as their trials have the cost that is asked for.

    Args:
        store: the database.
        kernel: the kernel.
        device: the GPU.
        objective: name; costs are in its unit.
    """
    runs = [run for run in store.answered_alone(kernel.name) if _is_comparable(run, kernel, device)]
    try:
        return TrainingSet.of(
            trial for run in reversed(runs) for trial in _trials(store, kernel, run, Objective(objective))
        )
    except InputError:
        return None


def _is_comparable(run: StoredRun, kernel: KernelFile, device: DeviceIdentity) -> bool:
    conditions = run.conditions
    measured_on = conditions["device"]
    return bool(
        conditions["sources"].get(kernel.name) == kernel.fingerprint
        and conditions["clocks"] == "off"
        and not conditions["settings"].get("power_limits_w")
        and conditions["protocol"] == PROTOCOL
        and all(measured_on[name] == getattr(device, name) for name in ("uuid", "driver", "runtime"))
    )


def _trials(
    store: Store, kernel: KernelFile, run: StoredRun, objective: Objective
) -> Iterator[tuple[Sizes, Configuration, float, float]]:
    ((name, batch),) = run.conditions["workloads"]
    workload = _workload(kernel, name)
    if workload is None or workload.batch != batch:
        return
    for trial, measurement in store.best_known(run.id, [name]):
        if objective.needs_energy and measurement.ok and measurement.energy is None:
            continue  # an estimate
        configuration = kernel.allowed(workload, trial.configurations[0])
        if configuration is not None:
            cost, sigma = objective.cost(measurement), objective.relative_uncertainty(measurement)
            yield dict(workload.sizes), configuration, cost, sigma


def _workload(kernel: KernelFile, name: str) -> Workload | None:
    try:
        return kernel.workload(sizes_named(name))
    except (InputError, ValueError):
        return None
