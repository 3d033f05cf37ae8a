"""The workers of a pool as a sweep sees them: which are met, and which of its jobs each may take."""

import logging
import math
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, Protocol

from tuner.model.device import DeviceIdentity
from tuner.model.device_choice import DeviceChoice
from tuner.model.errors import InputError, PoolError, TunerError, WorkerLostError
from tuner.pool.worker_child import ChildOrder, call_child, stop_child
from tuner.pool.workers import PoolWorker
from tuner.sweep.jobs import SweepJob
from tuner.sweep.pool_lane import SERVER, LaneFacts, asked_device

_LOG = logging.getLogger(__name__)
_POLL_S = 0.5


class Workers(Protocol):
    """What a sweep needs of ``tuner.pool.workers.Workers``."""

    @property
    def present(self) -> Mapping[str, PoolWorker]:
        """The workers by address."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Workers that are not of the pool, by address, and why."""

    @property
    def name(self) -> str:
        """What the scheduler calls this process."""

    def refresh(self) -> None:
        """Ask who is there."""

    def living(self) -> tuple[str, ...]:
        """Names of all processes that have work done by the scheduler."""

    def submit(
        self,
        function: Callable[..., Any],
        *args: object,
        worker: str | None = None,
    ) -> Future[Any]:
        """Call a function in a worker."""

    def run_everywhere(self, function: Callable[..., Any], *args: object) -> None:
        """Call a function in all workers at once."""


class SweepWorkers:
    """The workers that may run jobs of a sweep: same package, same sources, a device that opens.

    Args:
        workers: of the pool.
        kernel_files: of the sweep, beside the catalogue.
        sources: fingerprints of its kernels here, by their names.
        devices: what workers are asked to open for its jobs.
    """

    def __init__(
        self,
        workers: Workers,
        kernel_files: Sequence[Path],
        sources: Mapping[str, str],
        devices: Collection[str],
    ) -> None:
        self._workers = workers
        self._sources = sources
        self._devices = tuple(devices)
        self._run = f"{workers.name}/{uuid.uuid4().hex}"
        self._order = ChildOrder(self._run, SERVER, (tuple(kernel_files),))
        self._asked: dict[str, Future[LaneFacts]] = {}
        self._facts: dict[str, LaneFacts] = {}
        self._told: dict[str, str] = {}
        self.left_out: dict[str, str] = {}

    @property
    def present(self) -> Mapping[str, LaneFacts]:
        """Workers that may run jobs, by address."""
        return {address: one for address, one in self._facts.items() if address in self._workers.present}

    def meet(self) -> None:
        """Wait until every worker that is there has told what it is.

        Raises:
            InputError: a worker has another source of a kernel, or has no such kernel or kernel file.
            PoolError: none may run jobs.
            PoolLostError: the scheduler does not answer.
        """
        self.look()
        while self._asked:
            wait(self._asked.values(), timeout=_POLL_S)
            self.look()
        for facts in self._facts.values():
            if why := self._other_sources(facts):
                raise InputError(why)
        if not self.present:
            reasons = "; ".join((*self.left_out.values(), *self._told.values()))
            raise PoolError(f"no worker of the pool can run jobs{reasons and f': {reasons}'}")

    def look(self) -> None:
        """Ask new workers what they are, and hear those that have said so; does not wait.

        Raises:
            PoolLostError: the scheduler does not answer.
        """
        self._workers.refresh()
        for address, why in self._workers.left_out.items():
            if self._told.get(address) != why:
                self._told[address] = why
                _LOG.warning("pool: a worker is left out: %s: %s", address, why)
        for address in self._workers.present:
            if not ({address} & (self._asked.keys() | self._facts.keys() | self.left_out.keys())):
                self._asked[address] = self.submit(address, "facts", tuple(self._sources), self._devices)
        for address, answer in list(self._asked.items()):
            if answer.done():
                del self._asked[address]
                self._hear(address, answer)

    def fitting(self) -> list[str]:
        """Addresses of the workers that may run jobs now."""
        return [address for address, facts in self.present.items() if not self._other_sources(facts)]

    def identity(self, address: str, job: SweepJob) -> DeviceIdentity:
        """Who the device is that a worker has for a job."""
        return self._facts[address].identities[asked_device(job.device)]

    def allows(self, address: str, job: SweepJob) -> bool:
        """Whether a worker may take a job."""
        return bool(asked_device(job.device)) or DeviceChoice.parse(job.device).allows(
            self.identity(address, job)
        )

    def host(self, address: str) -> str:
        """The host of a worker."""
        return self._facts[address].host

    def submit(self, address: str, method: str, *args: object) -> Future[Any]:
        """Call a method of the ``PoolLane`` in a worker's child.

        Raises:
            PoolLostError: the scheduler does not answer.
        """
        living = self._workers.living()
        return self._workers.submit(call_child, self._order, living, method, *args, worker=address)

    def gather(self, calls: Collection[Future[Any]], timeout_s: float = math.inf) -> None:
        """Wait until calls have ended, or the time is over.

        Raises:
            PoolLostError: the scheduler does not answer.
        """
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and not all(call.done() for call in calls):
            wait(calls, timeout=_POLL_S)
            self._workers.refresh()

    def stop(self) -> None:
        """Have all workers end what they do for this sweep, in order; does not wait."""
        self._workers.run_everywhere(stop_child, self._run)

    def _hear(self, address: str, answer: Future[LaneFacts]) -> None:
        try:
            facts = answer.result()
        except WorkerLostError:
            return
        except TunerError as error:
            self._leave_out(address, f"{address}: {error}")
            return
        if why := self._same_gpu(facts):
            self._leave_out(address, f"{facts.host} ({address}): {why}")
            return
        self._facts[address] = facts
        if why := self._other_sources(facts):
            _LOG.warning("pool: a worker takes no jobs: %s", why)

    def _same_gpu(self, facts: LaneFacts) -> str:
        """Which worker has the same GPU; empty where none has."""
        own = facts.identities.get("")
        if own is None or own.modelled:
            return ""
        for address, other in self.present.items():
            if other.identities[""].uuid == own.uuid:
                return f"its GPU {own.uuid} is that of {address} too"
        return ""

    def _leave_out(self, address: str, why: str) -> None:
        self.left_out[address] = why
        _LOG.warning("pool: a worker is left out: %s", why)

    def _other_sources(self, facts: LaneFacts) -> str:
        """Why a worker's kernels are not those here; empty where they are."""
        if facts.missing:
            return (
                f"host {facts.host} has no kernel file {facts.missing[0]};"
                " kernel files do not travel: put it there under the same path"
            )
        if facts.unusable:
            return (
                f"host {facts.host} cannot use a kernel file: {facts.unusable[0]};"
                " files do not travel: put them there under the same paths"
            )
        for name, source in self._sources.items():
            there = facts.sources.get(name)
            if there is None:
                return f"host {facts.host} has no kernel {name}; put its files there too"
            if there != source:
                return (
                    f"host {facts.host} has another source of kernel {name}"
                    f" ({there[:12]} there, {source[:12]} here); make its files the same"
                )
        return ""
