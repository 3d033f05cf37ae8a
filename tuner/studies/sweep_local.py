"""Devices of this machine for jobs of a sweep, and what stored runs say of jobs there."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from tuner.database.connection import holds_something
from tuner.database.runs import RESUMABLE, Store
from tuner.devices.choice import AUTO, why_nothing_stands_in
from tuner.devices.cuda.probe import driver_problem
from tuner.devices.listing import list_gpus
from tuner.kernel_files.catalog import Catalog
from tuner.model.device import DeviceIdentity
from tuner.model.device_choice import DeviceChoice, wrong_choice
from tuner.model.errors import TunerError
from tuner.model.records import Conditions
from tuner.studies.sweep import RefusedJobsError, answers_under, check_options, of_kind, told_conditions
from tuner.sweep.jobs import SweepJob
from tuner.sweep.results import JobResult

_LOOKED_AT = 64  # newest runs of a job's workloads, for one that it goes on with
_NO_GPU = ("sim:", "replay:")  # devices that take any number of jobs at once


class LocalDevices:
    """Which devices of this machine a job may run on: the one it names, those of a kind, or any GPU.

    Args:
        listed: tells who the GPUs are; asked once, where a job names none.
    """

    def __init__(self, listed: Callable[[], Sequence[DeviceIdentity]] = list_gpus) -> None:
        self._listed = listed
        self._conditions: dict[str, list[Conditions]] = {}  # by the keys of jobs that name no device

    @property
    def gpus(self) -> Sequence[DeviceIdentity]:
        """The GPUs, by index; none where no driver answers."""
        return self._found[0]

    @cached_property
    def _found(self) -> tuple[Sequence[DeviceIdentity], str]:
        """The GPUs, and why there are none."""
        try:
            gpus = self._listed()
        except TunerError as error:
            return (), str(error)
        return gpus, "" if gpus else driver_problem() or "CUDA shows none"

    def check(self, jobs: Sequence[SweepJob]) -> None:
        """Refuse jobs that name a GPU or a kind which is not here.

        Raises:
            RefusedJobsError: says which there are.
        """
        refused = dict.fromkeys((job.place, why) for job in jobs if (why := self._misfit(job)))
        if refused:
            raise RefusedJobsError(list(refused))

    def check_all(self, jobs: Sequence[SweepJob], catalog: Catalog) -> None:
        """Refuse jobs as ``known`` does, as far as that can be told without opening a GPU.

        Raises:
            RefusedJobsError: devices or options that cannot be, or what a simulated or recorded device says.
        """
        self.check(jobs)
        check_options(jobs)
        refused = told_conditions([job for job in jobs if job.device.startswith(_NO_GPU)], catalog).refused
        if refused:
            raise RefusedJobsError(refused)

    def of(self, job: SweepJob) -> tuple[str, ...]:
        """The devices that a job may run on; where none is to choose from, what opening it says why."""
        choice = _choice(job)
        if choice.one:
            return (job.device,)
        found = tuple(gpu.spec for gpu in self.gpus if choice.allows(gpu))
        return found or (str(choice),)

    def gpus_for(self, jobs: Iterable[SweepJob]) -> tuple[str, ...]:
        """The GPUs that jobs may run on; none of jobs whose devices are simulated or recorded."""
        by_device = {job.device: job for job in jobs if not job.device.startswith(_NO_GPU)}
        return tuple(dict.fromkeys(gpu for job in by_device.values() for gpu in self.of(job)))

    def known(self, jobs: Sequence[SweepJob], catalog: Catalog, database: Path) -> Mapping[str, JobResult]:
        """Results of jobs that a finished run has answered, by their keys.

        A run on another GPU of a kind that is here answers a job that names no device.

        Raises:
            RefusedJobsError: workloads, devices or options that cannot be.
        """
        told = self._told(jobs, catalog)
        named = [(job, bound) for job, bound in told if _choice(job).one]
        free = [(job, bound) for job, bound in told if not _choice(job).one]
        self._conditions = defaultdict(list)
        for job, bound in free:
            self._conditions[job.key].append(bound)
        if not holds_something(database):
            return {}
        with Store(database) as store:
            found = answers_under(named, store) | answers_under(free, store, same_kind=True)
        return {key: replace(one, device=self._where(one)) for key, one in found.items()}

    def begun_on(self, job: SweepJob, database: Path) -> str:
        """The GPU here on which a job that may run on several has begun; empty where it has not."""
        conditions = self._conditions.get(job.key, ())
        if len(self.of(job)) < 2 or not conditions or not holds_something(database):  # noqa: PLR2004 - several
            return ""
        kinds = {of_kind(bound.record()) for bound in conditions}
        here = {(gpu.spec, gpu.uuid) for gpu in self.gpus}
        with Store(database) as store:
            for run in store.page(_LOOKED_AT, names=conditions[0].names):
                device = run.conditions["device"]
                own = run.origin is None and (device["spec"], device["uuid"]) in here
                if own and run.status in RESUMABLE and of_kind(run.conditions) in kinds:
                    return str(device["spec"])
        return ""

    def _told(self, jobs: Sequence[SweepJob], catalog: Catalog) -> list[tuple[SweepJob, Conditions]]:
        """What answers of jobs are bound to, on a GPU of each kind that they may run on."""
        self.check(jobs)
        asked: dict[str, SweepJob] = {}
        meant: dict[str, list[SweepJob]] = defaultdict(list)
        for job in jobs:
            for device in self._one_of_each_kind(job):
                one = replace(job, device=device)
                asked.setdefault(one.key, one)
                meant[one.key].append(job)
        told = told_conditions(asked.values(), catalog)
        if told.refused:
            raise RefusedJobsError(told.refused)
        return [(job, bound) for one, bound in told.conditions for job in meant[one.key]]

    def _one_of_each_kind(self, job: SweepJob) -> list[str]:
        """Devices for a job, the first of each kind; GPUs of a machine have one driver."""
        names = {gpu.spec: gpu.name for gpu in self.gpus} if not _choice(job).one else {}
        first: dict[str, str] = {}
        for device in self.of(job):
            first.setdefault(names.get(device, device), device)
        return list(first.values())

    def _misfit(self, job: SweepJob) -> str:
        """Why a choice of devices means none here; empty where it means one."""
        wrong, choice = wrong_choice(job.device), _choice(job)
        if wrong or job.device.startswith(_NO_GPU):
            return wrong
        if choice.model:
            known = any(choice.allows(gpu) for gpu in self.gpus)
            return "" if known else self._none_of(choice.words, [f"kind:{gpu.name}" for gpu in self.gpus])
        if choice.device.startswith("cuda"):
            here = [gpu.spec for gpu in self.gpus]
            return "" if _indexed(choice.device) in here else self._none_of(choice.device, here)
        return "" if choice.one or self.gpus else why_nothing_stands_in(self._found[1])

    def _none_of(self, wanted: str, here: Sequence[str]) -> str:
        """That a device is not here, and what is."""
        if here:
            return f"no {wanted} is here; choose from {', '.join(dict.fromkeys(here))}"
        return f"no {wanted} is here: {self._found[1]}; for modelled numbers name a device such as sim:h200"

    def _where(self, result: JobResult) -> str:
        """The device of a stored answer: by its name here, or the model of a GPU that is not here."""
        if _choice(result.job).one:
            return result.job.device
        measured = (result.answer or {}).get("device") or {"uuid": "", "name": ""}
        here = {gpu.uuid: gpu.spec for gpu in self.gpus}
        return here.get(measured["uuid"]) or str(measured["name"])


def _choice(job: SweepJob) -> DeviceChoice:
    return DeviceChoice() if job.device == AUTO else DeviceChoice.parse(job.device)


def _indexed(device: str) -> str:
    """A GPU with its number: ``cuda`` is the first."""
    return "cuda:0" if device == "cuda" else device
