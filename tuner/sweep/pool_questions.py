"""What is asked before jobs run on a pool: whether they can be, and what answers are bound to there."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from tuner.devices.choice import identify
from tuner.devices.replay import PREFIX
from tuner.kernel_files.catalog import Catalog
from tuner.model.device_choice import DeviceChoice
from tuner.model.errors import InputError
from tuner.model.records import Conditions
from tuner.model.workload_name import WorkloadName
from tuner.studies.sweep import RefusedJobsError, ToldConditions, request_of
from tuner.sweep.jobs import SweepJob
from tuner.sweep.pool_lane import asked_device
from tuner.sweep.pool_workers import SweepWorkers


def check_jobs(jobs: Iterable[SweepJob]) -> None:
    """Refuse what no pool runs.

    Raises:
        RefusedJobsError: options or devices that cannot be.
    """
    jobs = list(jobs)
    devices = {device: _misfit(device) for device in {job.device for job in jobs}}
    _refuse((job, why) for job in jobs for why in (devices[job.device], _check(job)) if why)


def sources_of(jobs: Iterable[SweepJob], catalog: Catalog) -> dict[str, str]:
    """Fingerprints of the kernels of jobs, by their names.

    Raises:
        RefusedJobsError: kernels that are not there.
    """
    first = {text: job for job in jobs for text in job.workloads}
    found: dict[str, str] = {}
    _refuse((job, why) for text, job in first.items() if (why := _add_source(text, catalog, found)))
    return found


def _add_source(workload: str, catalog: Catalog, found: dict[str, str]) -> str:
    """Add the fingerprint of a workload's kernel; why there is none, else empty."""
    try:
        name = WorkloadName.parse(workload).kernel
        if name not in found:
            found[name] = catalog.kernel(name).fingerprint
    except InputError as error:
        return str(error)
    return ""


def told_by_workers(
    crew: SweepWorkers, jobs: Sequence[SweepJob], on: str
) -> list[tuple[SweepJob, Conditions]]:
    """The conditions of jobs, as one worker of each kind that may run them tells.

    Args:
        crew: met.
        jobs: of the sweep.
        on: what messages call the pool.

    Raises:
        RefusedJobsError: jobs that no worker has a device for, or workloads or options that cannot be there.
        PoolError: a worker was lost.
    """
    of_device: dict[str, list[SweepJob]] = defaultdict(list)
    for job in jobs:
        of_device[job.device].append(job)
    asked: dict[str, list[SweepJob]] = defaultdict(list)
    for device, alike in of_device.items():
        chosen = _one_of_each_kind(crew, alike[0])
        if not chosen:
            _refuse((job, f"no worker of {on} is a {DeviceChoice.parse(device)}") for job in alike)
        for address in chosen:
            asked[address] += alike
    answers = [crew.submit(address, "conditions", some) for address, some in asked.items()]
    crew.gather(answers)
    told: list[ToldConditions] = [answer.result() for answer in answers]
    refused = dict.fromkeys(one for some in told for one in some.refused)
    if refused:
        raise RefusedJobsError(list(refused))
    return [one for some in told for one in some.conditions]


def _one_of_each_kind(crew: SweepWorkers, job: SweepJob) -> list[str]:
    """A worker of each kind that may take a job."""
    found: dict[tuple[str, str, str], str] = {}
    for address in crew.fitting():
        if crew.allows(address, job):
            identity = crew.identity(address, job)
            found.setdefault((identity.name, identity.driver, identity.runtime), address)
    return list(found.values())


def _misfit(device: str) -> str:
    """Why a device is none of a pool's; empty where it may be."""
    if device.startswith(PREFIX):
        return f"{device} was measured already; leave it out, or use --on local"
    if asked_device(device):
        try:
            identify(device)
        except InputError as error:
            return str(error)
        return ""
    if DeviceChoice.parse(device).one:
        return f"device {device}: each worker has its own GPU; leave devices out, or write kind:MODEL"
    return ""


def _check(job: SweepJob) -> str:
    try:
        request_of(job).check()
    except InputError as error:
        return str(error)
    return ""


def _refuse(refused: Iterable[tuple[SweepJob, str]]) -> None:
    """Raise with the reasons, each once for a group; nothing where there is none."""
    found = dict.fromkeys((job.place, why) for job, why in refused)
    if found:
        raise RefusedJobsError(list(found))
