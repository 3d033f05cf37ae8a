"""The power of the devices now, sampled only while somebody watches."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone

from tuner.client.answer_values import PowerDocument, PowerSample, TrialData
from tuner.devices import gpu_users
from tuner.model.errors import ChildError, ResourceError
from tuner.model.jobs import DeviceIdentity
from tuner.system.processes import Child
from tuner.system.threads import StartedThreads

INTERVAL_S = 1.0
"""Between two samples of a device."""

KEPT_SAMPLES = 300
"""Of each device."""

_LEASE_S = 5.0  # a client who asks once may ask again
_FIRST_S = 3.0  # for the first sample, with the start of the child
_ANSWER_S = 10.0  # a driver that was asleep wakes within two; the first answer includes the child's start
_PROBE = "tuner.daemon.power_probe:PowerProbe"
_NOTHING: PowerSample = {
    "watts": None,
    "clock_mhz": None,
    "throttle_reasons": [],
    "temperature_c": None,
    "processes": None,
    "load_percent": None,
    "reading": "",
    "scope": "",
    "failure": "",
}

Gpus = Mapping[str, tuple[str, str, str]]
"""Device -> UUID, driver and name."""


class PowerChild:
    """Reads GPUs in a child process, which is there only while it is asked.

    Args:
        probe: ``module:callable`` of the child.
    """

    def __init__(self, probe: str = _PROBE) -> None:
        self._probe = probe
        self._child: Child | None = None
        self._thread: StartedThreads | None = None

    async def read(self, gpus: Gpus) -> Mapping[str, PowerSample]:
        """One sample of each GPU."""
        try:
            self._thread = self._thread or StartedThreads(1, "power")
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, gpus)
        except ResourceError as error:
            return {device: {"failure": str(error)} for device in gpus}

    def _ask(self, gpus: Gpus) -> Mapping[str, PowerSample]:
        try:
            if self._child is None or not self._child.alive:
                self._child = Child(self._probe, name="power of the GPUs")
            samples: Mapping[str, PowerSample] = self._child.call("read", gpus, timeout_s=_ANSWER_S)
        except ChildError as error:
            reason = str(error).strip().splitlines()[-1]
            return {device: {"failure": f"it cannot be read: {reason}"} for device in gpus}
        return samples

    def close(self) -> None:
        """End the child; nothing is read any more."""
        if self._child is not None:
            self._child.kill()  # whatever it waits for
        if self._thread is not None:
            self._thread.submit(self._reap)
            self._thread.shutdown(wait=False)

    def _reap(self) -> None:
        if self._child is not None:
            self._child.close()


class PowerWatch:
    """Samples all devices once a second while somebody watches.

    A simulated device has power in its own time only: it shows that of the last trial while a job runs.

    Args:
        identities: of the devices.
        running: whether a job of ours runs on a device.
        tell: called with every sample.
        gpus: made to read those that are no simulated ones, and closed when nobody watches.
    """

    def __init__(
        self,
        identities: Callable[[], Mapping[str, DeviceIdentity]],
        running: Callable[[str], bool],
        tell: Callable[[PowerSample], None],
        gpus: Callable[[], PowerChild] = PowerChild,
    ) -> None:
        self._identities = identities
        self._running = running
        self._tell = tell
        self._new_gpus = gpus
        self._watchers = 0
        self._task: asyncio.Task[None] | None = None
        self._sampled = asyncio.Event()
        self._samples: dict[str, deque[PowerSample]] = {}
        self._trials: dict[str, TrialData] = {}

    @property
    def watched(self) -> bool:
        """True while somebody watches."""
        return self._watchers > 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Sample until the block ends, and until all others' have."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    async def now(self) -> PowerDocument:
        """The newest samples of each device; the first waits until there is one."""
        self._enter()
        asyncio.get_running_loop().call_later(_LEASE_S, self._leave)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._sampled.wait(), _FIRST_S)
        return {
            "interval_s": INTERVAL_S,
            "devices": [
                {"device": device, "samples": list(newest)} for device, newest in self._samples.items()
            ],
        }

    def trial(self, device: str, data: TrialData) -> None:
        """Note the data of a trial on a device."""
        self._trials[device] = data

    def close(self) -> None:
        """Stop to sample, whoever watches."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _enter(self) -> None:
        self._watchers += 1
        if self._task is None or self._task.done():
            self._sampled.clear()
            self._task = asyncio.get_running_loop().create_task(self._sample(), name="power for watchers")

    def _leave(self) -> None:
        self._watchers -= 1

    async def _sample(self) -> None:
        gpus = self._new_gpus()
        try:
            while self.watched:
                begun_s = asyncio.get_running_loop().time()
                await self._sample_once(gpus)
                self._sampled.set()
                spent_s = asyncio.get_running_loop().time() - begun_s
                await asyncio.sleep(max(0.0, INTERVAL_S - spent_s))
        finally:
            gpus.close()
            self._samples.clear()

    async def _sample_once(self, gpus: PowerChild) -> None:
        identities = self._identities()
        real = {
            device: (identity.uuid, identity.driver, identity.name)
            for device, identity in identities.items()
            if device.startswith("cuda")
        }
        samples = await gpus.read(real) if real else {}
        at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        for device, identity in identities.items():
            ours = int(self._running(device))
            read = samples.get(device) or self._of_last_trial(device)
            processes = read.get("processes")
            sample: PowerSample = {
                "device": device,
                "at": at,
                **_NOTHING,
                **read,
                "others": None if processes is None else max(0, processes - ours),
                "modelled": identity.modelled,
            }
            self._samples.setdefault(device, deque(maxlen=KEPT_SAMPLES)).append(sample)
            self._tell(sample)

    def _of_last_trial(self, device: str) -> PowerSample:
        """Return values of the last trial of the running job, for a device without a sensor of its own."""
        users: PowerSample = {}
        if device.startswith("sim:"):
            users = {"processes": len(gpu_users.present(device))}
        if not self._running(device):
            self._trials.pop(device, None)
        trial = self._trials.get(device)
        if trial is None:
            return users
        return {**users, "watts": trial.get("watts"), "clock_mhz": trial.get("clock_mhz"), "reading": "trial"}
