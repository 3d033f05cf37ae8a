"""Which device a job may run on: what it asks for, and the GPU on which it has begun."""

import time
from collections.abc import Callable, Mapping

from tuner.model.device import DeviceIdentity
from tuner.model.device_choice import DeviceChoice, same_kind
from tuner.model.jobs import JobRecord

ABSENT = " is not here"
"""How the reason of a job ends that has no device here."""

GONE_AFTER_S = 86_400.0
"""A GPU that the daemon has missed for so long is gone for good: its jobs begin anew elsewhere."""


def _no_identities() -> Mapping[str, DeviceIdentity]:
    return {}


class Placement:
    """Which of the devices here may run a job.

    A job with a run stays with that run's GPU, under whatever name: its trials are of no other GPU.

    Args:
        identities: device -> identity of those that are tuned on; asked each time.
        now: monotonic clock in seconds.
    """

    def __init__(
        self,
        identities: Callable[[], Mapping[str, DeviceIdentity]] = _no_identities,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._identities = identities
        self._now = now
        self._since_s = now()

    def may_run(self, job: JobRecord, device: str) -> bool:
        """True where a job may run on a device."""
        choice = DeviceChoice.parse(job.spec.device)
        identity = self._identities().get(device)
        if identity is None:
            return choice.device in ("", device)
        own = self.device_of(job)
        if own and (choice.one or choice.allows(self._identities()[own])):
            return device == own
        return choice.allows(identity) and not self._waits_for_its_gpu(job, choice)

    def devices(self, job: JobRecord) -> list[str]:
        """The devices here that may run a job."""
        return [device for device in self._identities() if self.may_run(job, device)]

    def device_of(self, job: JobRecord) -> str:
        """The device here on whose GPU a job has begun; empty where it has not begun, or that is not here."""
        if not job.gpu:
            return ""
        return next((name for name, one in self._identities().items() if one.uuid == job.gpu), "")

    def alike(self, device: str) -> list[str]:
        """The devices here of the same kind as one of them, that one included."""
        identities = self._identities()
        if device not in identities:
            return [device]
        return [name for name, one in identities.items() if same_kind(one, identities[device])]

    def absence(self, job: JobRecord) -> str:
        """Why a job has no device here; empty where it has one."""
        if self.devices(job):
            return ""
        return self.missing(job)

    def missing(self, job: JobRecord) -> str:
        """What a job would miss if no device here may run it."""
        choice = DeviceChoice.parse(job.spec.device)
        if choice.one or not job.gpu or not self._waits_for_its_gpu(job, choice):
            return f"{'' if choice.one else 'a '}{choice.words}{ABSENT}"
        return f"the GPU {job.gpu}, on which it has begun,{ABSENT}"

    def _waits_for_its_gpu(self, job: JobRecord, choice: DeviceChoice) -> bool:
        """True while the GPU of a job that could begin anew elsewhere may come back."""
        gone = self._now() - self._since_s >= GONE_AFTER_S
        return bool(job.gpu) and not choice.one and not self.device_of(job) and not gone
