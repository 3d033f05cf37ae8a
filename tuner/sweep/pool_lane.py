"""What a pool worker's child does for a sweep: whole jobs, each into a database file of its own."""

import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.config.loading import load_kernel_file
from tuner.devices.choice import identify
from tuner.kernel_files.catalog import Catalog
from tuner.model.device import DeviceIdentity
from tuner.model.errors import InputError
from tuner.pool.worker_process import own_device
from tuner.studies.sweep import ToldConditions, told_conditions
from tuner.sweep.jobs import SweepJob
from tuner.sweep.lane import Lane
from tuner.untrusted.files import shown_bytes
from tuner.untrusted.limits import RUN_BYTES

_FILE_BYTES = 2 * RUN_BYTES  # indices and empty pages beside the run

SERVER = "tuner.sweep.pool_lane:PoolLane"
"""For ``ChildOrder``."""


_SIMULATED = "sim:"


def asked_device(device: str) -> str:
    """What a worker is asked to open for a job's device; empty for its own GPU."""
    return device if device.startswith(_SIMULATED) else ""


@dataclass(frozen=True)
class LaneFacts:
    """What a worker is, as a sweep needs to know it.

    Attributes:
        host: its name.
        missing: kernel files of the sweep that it does not have.
        unusable: why it cannot use others, such as for a file of data that it does not have.
        sources: fingerprints of the sweep's kernels that it has, by their names.
        identities: who the devices are that were asked for.
    """

    host: str
    missing: Sequence[Path]
    sources: Mapping[str, str]
    identities: Mapping[str, DeviceIdentity]
    unusable: Sequence[str] = ()


@dataclass(frozen=True)
class LaneAnswer:
    """What a job has given.

    Attributes:
        found: see ``Lane.run``.
        database: content of the file with its run; empty where there is none.
    """

    found: Mapping[str, Any]
    database: bytes = b""


class PoolLane:
    """Runs jobs of a sweep in a pool worker; the server of a child process.

    Args:
        kernel_files: beside the catalogue.
        bytes_limit: of a job's database file.
    """

    def __init__(self, kernel_files: Sequence[Path], bytes_limit: int = _FILE_BYTES) -> None:
        self._missing = [path for path in kernel_files if not path.is_file()]
        there = [path for path in kernel_files if path not in self._missing]
        reasons = {path: _unusable(path) for path in there}
        self._unusable = [reason for reason in reasons.values() if reason]
        self._lane = Lane([path for path in there if not reasons[path]], None)
        self._bytes_limit = bytes_limit

    @property
    def _catalog(self) -> Catalog:
        return self._lane.catalog

    def facts(self, kernels: Collection[str], devices: Collection[str], folder: Path) -> LaneFacts:
        """What this worker is.

        Args:
            kernels: whose sources are told.
            devices: that are opened, to tell who they are.
            folder: not used.

        Raises:
            TunerError: a device cannot be opened.
        """
        del folder
        here = {name: self._catalog.kernels[name] for name in kernels if name in self._catalog.kernels}
        return LaneFacts(
            host=platform.node(),
            missing=self._missing,
            sources={name: kernel.fingerprint for name, kernel in here.items()},
            identities={device: identify(own_device(device)) for device in devices},
            unusable=self._unusable,
        )

    def conditions(self, jobs: Sequence[SweepJob], folder: Path) -> ToldConditions:
        """What answers of jobs are bound to here.

        Args:
            jobs: of the sweep.
            folder: not used.
        """
        del folder
        told = told_conditions(map(_own, jobs), self._catalog)
        bound = {job.key: conditions for job, conditions in told.conditions}
        found = [(job, bound[_own(job).key]) for job in jobs if _own(job).key in bound]
        return ToldConditions(found, told.refused)

    def run(self, job: SweepJob, folder: Path) -> LaneAnswer:
        """Run a job.

        Args:
            job: of the sweep.
            folder: where its database is written.

        Raises:
            InputError: the database file is larger than what is sent.
        """
        path = folder / "job.db"
        found = self._lane.run(_own(job), path)
        if found.get("run") is None:
            return LaneAnswer(found)
        size = path.stat().st_size
        if size > self._bytes_limit:
            raise InputError(
                f"its database file has {shown_bytes(size)}, and at most {shown_bytes(self._bytes_limit)}"
                " are sent; use --on local, or a smaller budget"
            )
        return LaneAnswer(found, path.read_bytes())


def _unusable(kernel_file: Path) -> str:
    """Why a kernel file cannot be used here; empty where it can."""
    try:
        load_kernel_file(kernel_file)
    except InputError as error:
        return str(error)
    return ""


def _own(job: SweepJob) -> SweepJob:
    """The job on the device that this worker has for it."""
    return replace(job, device=own_device(asked_device(job.device)))
