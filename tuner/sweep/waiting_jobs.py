"""Jobs of a sweep that wait for a lane of this machine, and the devices that jobs which run hold."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from tuner.model.options import LIMITS
from tuner.sweep.jobs import SweepJob

_AGAIN_S = 2.0  # until a job is tried again whose run another process is measuring
_LOOKED_AT = 64  # jobs of each choice of devices, for one that may run


@dataclass(frozen=True)
class PlacedJob:
    """A job with the device that it runs on.

    Attributes:
        job: of the sweep.
        device: its own, or a GPU that was free.
    """

    job: SweepJob
    device: str

    @property
    def to_run(self) -> SweepJob:
        """The job as a lane runs it."""
        return replace(self.job, device=self.device)

    @cached_property
    def held(self) -> frozenset[str]:
        """What only one job at a time may hold; simulated GPUs and recordings take any number."""
        chosen = {name: value for name, value in self.job.options.items() if name not in LIMITS}
        search = replace(self.job, options=chosen).key
        if self.device == self.job.device and self.device.startswith(("sim:", "replay:")):
            return frozenset({search})
        return frozenset({search, self.device if ":" in self.device else "cuda:0"})


def own_device(job: SweepJob) -> Sequence[str]:
    """The device that a job names."""
    return (job.device,)


class WaitingJobs:
    """Jobs that wait, and what jobs that run hold; for several threads.

    A job holds its GPU, and its search: jobs that differ in limits alone go on with each other's runs. One
    whose run another process is measuring is put back, and comes after all others. Jobs that name a device
    come first, as the others may take any.

    Args:
        jobs: of the sweep.
        devices: those that a job may run on.
    """

    def __init__(
        self, jobs: Sequence[SweepJob], devices: Callable[[SweepJob], Sequence[str]] = own_device
    ) -> None:
        self._devices = devices
        self._by_choice: dict[str, deque[SweepJob]] = {}
        for job in sorted(jobs, key=lambda job: len(devices(job))):
            self._by_choice.setdefault(job.device, deque()).append(job)
        self._busy: frozenset[str] = frozenset()
        self._stays: dict[str, str] = {}  # devices of jobs that have begun there, by their keys
        self._failed_on: dict[str, str] = {}  # devices where jobs could not begin, by their keys
        self._put_back: list[tuple[float, PlacedJob]] = []  # with the time from which each may be taken
        self._were_put_back: set[str] = set()  # keys
        self._changed = threading.Condition()

    def take(self) -> PlacedJob | None:
        """The next job that may run, waited for; None where no job is left."""
        with self._changed:
            while any(self._by_choice.values()) or self._put_back:
                placed = self._free() or self._due()
                if placed is not None:
                    self._busy |= placed.held
                    return placed
                now_s = time.monotonic()
                self._changed.wait(
                    min((at_s - now_s for at_s, _ in self._put_back if at_s > now_s), default=None)
                )
            return None

    def put_back(self, placed: PlacedJob) -> None:
        """Another process measures the run of a job, which waits for it."""
        with self._changed:
            self._put_back.append((time.monotonic() + _AGAIN_S, placed))
            self._were_put_back.add(placed.job.key)
            self._free_again(placed)

    def was_put_back(self, job: SweepJob) -> bool:
        """True for a job that has been put back before."""
        return job.key in self._were_put_back

    def move(self, placed: PlacedJob, device: str) -> bool:
        """Have a job wait for the device on which it has begun; False where it could not go on there."""
        with self._changed:
            if self._failed_on.get(placed.job.key) == device:
                return False
            self._stays[placed.job.key] = device
            self._wait_first(placed)
            return True

    def try_elsewhere(self, placed: PlacedJob) -> bool:
        """Have a job that could not begin wait for another device, once; False where there is none."""
        key = placed.job.key
        with self._changed:
            if key in self._failed_on or len(self._devices(placed.job)) == 1:
                return False
            self._failed_on[key] = placed.device
            self._stays.pop(key, None)
            self._wait_first(placed)
            return True

    def release(self, placed: PlacedJob) -> None:
        """A job has ended."""
        with self._changed:
            self._free_again(placed)

    def close(self) -> None:
        """No job waits any more."""
        with self._changed:
            self._by_choice.clear()
            self._put_back.clear()
            self._changed.notify_all()

    def _wait_first(self, placed: PlacedJob) -> None:
        self._by_choice.setdefault(placed.job.device, deque()).appendleft(placed.job)
        self._free_again(placed)

    def _free_again(self, placed: PlacedJob) -> None:
        self._busy -= placed.held
        self._changed.notify_all()

    def _free(self) -> PlacedJob | None:
        first = (job for jobs in self._by_choice.values() for job in islice(jobs, _LOOKED_AT))
        choices = (placed for job in first for placed in self._places(job))
        found = next((placed for placed in choices if self._busy.isdisjoint(placed.held)), None)
        if found is not None:
            self._by_choice[found.job.device].remove(found.job)
        return found

    def _places(self, job: SweepJob) -> Iterator[PlacedJob]:
        """A job on each device that it may run on now."""
        stays, failed_on = self._stays.get(job.key), self._failed_on.get(job.key)
        for device in self._devices(job) if stays is None else (stays,):
            if device != failed_on:
                yield PlacedJob(job, device)

    def _due(self) -> PlacedJob | None:
        now_s = time.monotonic()
        due = (one for one in self._put_back if one[0] <= now_s and self._busy.isdisjoint(one[1].held))
        found = next(due, None)
        if found is None:
            return None
        self._put_back.remove(found)
        return found[1]
