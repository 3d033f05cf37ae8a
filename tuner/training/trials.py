"""The trials of a kernel that the database has, as a training set."""

from collections.abc import Iterator

from tuner.database.neighbours import sizes_named
from tuner.database.runs import Store
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.size_condition import written_out
from tuner.model.device import DeviceIdentity
from tuner.model.errors import InputError
from tuner.model.objective import Objective
from tuner.model.plan import Configuration, Workload
from tuner.model.records import PROTOCOL, RunStatus, StoredRun
from tuner.prediction.training_set import Sizes, TrainingSet

_DONE = (RunStatus.FINISHED, RunStatus.LIMITED)
_Trial = tuple[Sizes, Configuration, float, float]


class StoredTrials:
    """All trials of a kernel alone on a GPU, with clocks and power limit as found.

    Taken are runs by the present sources, driver and CUDA, of the kernel file's own batch at each input, for
    whatever objective, as far as their trials have the cost that is asked for. A run that is done is read
    once, so that a training may ask again after every input. Configurations are written out.

    Args:
        store: the database.
        kernel: the kernel.
        device: the GPU.
        objective: name; costs are in its unit.
    """

    def __init__(self, store: Store, kernel: KernelFile, device: DeviceIdentity, objective: str) -> None:
        self._store = store
        self._kernel = kernel
        self._device = device
        self._objective = Objective(objective)
        self._read: dict[int, list[_Trial]] = {}

    def all(self) -> TrainingSet | None:
        """The trials, the newest runs last; None without any."""
        runs = self._store.answered_alone(self._kernel.name)
        comparable = [run for run in runs if _is_comparable(run, self._kernel, self._device)]
        try:
            return TrainingSet.of(trial for run in reversed(comparable) for trial in self._trials_of(run))
        except InputError:
            return None

    def is_done(self, sizes: Sizes) -> bool:
        """Whether a run of an input that ``all`` has seen went to its end, and was not interrupted."""
        return any(trials and trials[0][0] == sizes for trials in self._read.values())

    def _trials_of(self, run: StoredRun) -> list[_Trial]:
        if run.id in self._read:
            return self._read[run.id]
        trials = list(_trials(self._store, self._kernel, run, self._objective))
        if run.status in _DONE:
            self._read[run.id] = trials
        return trials


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


def _trials(store: Store, kernel: KernelFile, run: StoredRun, objective: Objective) -> Iterator[_Trial]:
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
            yield dict(workload.sizes), written_out(kernel.recipe, configuration), cost, sigma


def _workload(kernel: KernelFile, name: str) -> Workload | None:
    try:
        return kernel.workload(sizes_named(name))
    except (InputError, ValueError):
        return None
