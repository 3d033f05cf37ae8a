"""The GPUs of this machine, their other users and their power, asked in child processes.

A driver may hang, crash or take memory: that must not happen in the daemon.
"""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from tuner.client.answer_values import PowerDocument, PowerSample, TrialData
from tuner.devices import gpu_users
from tuner.devices.gpu_users import FREE, Contention, ContentionProbe
from tuner.kernel_files.catalog import DRIVER_FILES
from tuner.model.errors import ChildError, ResourceError
from tuner.model.jobs import DeviceIdentity
from tuner.system.processes import Child
from tuner.system.threads import StartedThreads, is_shortage

_RESTORE_S = 30.0  # a driver that hangs must not keep the daemon from answering
_FIND_S = 60.0  # a first CUDA context on a machine of several GPUs
_SURVEY = "tuner.devices.choice"
_DRIVERS = Path("/proc/devices")  # kinds of devices: a sandbox opens those that were there when it was made
_DEVICES = Path("/dev")
_PROBE = "tuner.devices.gpu_users:ContentionProbe"
_ANSWER_S = 5.0  # a driver that was asleep wakes within two; the first answer includes the child's start
_UNUSED_S = 60.0  # then the child ends: an idle daemon keeps no driver open, and the GPU may sleep
_LOG = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True)
class GpuSurvey:
    """The devices that can be tuned on.

    Attributes:
        identities: device -> identity, the default device first.
        missing: why others cannot be used.
        clocks_not_restored: GPUs whose clocks could not be restored.
        absent: devices that were named and cannot be used.
        simulated: True where a simulated device replaces a GPU, as none answers and none was named.
        driver_signs: what was there of a driver before it was asked.
        unasked: why nobody could be asked: the system gives no process just now. Empty where that is not so.
    """

    identities: dict[str, DeviceIdentity]
    missing: tuple[str, ...]
    clocks_not_restored: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    simulated: bool = False
    driver_signs: frozenset[str] = frozenset()
    unasked: str = ""


def restore_clocks() -> None:
    """Restore clocks that a killed tuner left set, and nothing else.

    Raises:
        ChildError: that cannot be done now.
    """
    with Child("importlib:import_module", _SURVEY, name="survey of the GPUs") as child:
        child.call("restore_clocks", timeout_s=_RESTORE_S)


def driver_signs(drivers: Path = _DRIVERS, devices: Path = _DEVICES) -> frozenset[str]:
    """Signs that a GPU's driver is loaded, found without asking it.

    Args:
        drivers: lists the kinds of devices.
        devices: folder of the devices.
    """
    signs = {str(path) for path in DRIVER_FILES if path.exists()}
    with contextlib.suppress(OSError):
        signs |= {line.strip() for line in drivers.read_text().splitlines() if "nvidia" in line}
    return frozenset(signs | {path.name for path in devices.glob("nvidia*")})


def restore_and_find(specs: Sequence[str], without: Collection[str] = (), *, may_simulate: bool) -> GpuSurvey:
    """Restore clocks that a killed tuner left set, then find the devices.

    Args:
        specs: devices to find; empty for every GPU.
        without: those that are left alone.
        may_simulate: a simulated device replaces a GPU where none answers.
    """
    signs = driver_signs()
    try:
        with Child("importlib:import_module", _SURVEY, name="survey of the GPUs") as child:
            not_restored = tuple(child.call("restore_clocks", timeout_s=_RESTORE_S))
            identities, absent = child.call("find", tuple(specs), tuple(without), timeout_s=_FIND_S)
            missing = [f"{spec}: {reason}" for spec, reason in absent.items()]
            simulated = may_simulate and not identities
            if simulated:
                identity, notice = child.call("stand_in", timeout_s=_FIND_S)
                identities = {identity.spec: identity}
                missing.append(notice)
    except ChildError as error:
        _LOG.error("%s", error)
        short = error.__cause__ is not None and is_shortage(error.__cause__)
        unasked = str(error) if short else ""
        return GpuSurvey({}, (str(error),), absent=tuple(specs), driver_signs=signs, unasked=unasked)
    return GpuSurvey(identities, tuple(missing), not_restored, tuple(absent), simulated, signs)


class GpuInventory:
    """Asks the devices of this machine again when they may have changed.

    Args:
        survey: of the start.
        named: devices that the user named; empty for every GPU.
    """

    def __init__(self, survey: GpuSurvey, named: Sequence[str]) -> None:
        self._latest = survey
        self._named = tuple(named)

    async def ask(self, tuned: Sequence[str], running: Sequence[str]) -> GpuSurvey:
        """Restore clocks and identify devices again; no simulated device replaces a GPU now.

        Args:
            tuned: those that are tuned on.
            running: those on which a job runs, which are left alone: nobody takes their driver away.
        """
        specs = [*tuned, *self._latest.absent] if self._named else []
        survey = await in_daemon_thread(restore_and_find, specs, running, may_simulate=False)
        signs = self._latest.driver_signs | survey.driver_signs
        self._latest = replace(self._latest, driver_signs=signs)
        return survey

    def driver_came(self, tuned: Sequence[str]) -> bool:
        """True, once, where a GPU is missing and more of a driver is loaded than at the start.

        A sandbox opens only what was there when it was made: that it finds no GPU may mean nothing.
        """
        lacking = self._latest.simulated or self._latest.absent or not tuned
        signs = driver_signs()
        if not lacking or not signs - self._latest.driver_signs:
            return False
        self._latest = replace(self._latest, driver_signs=self._latest.driver_signs | signs)
        return True


class ContentionMonitor:
    """Finds out whether others compute on a GPU.

    A child process asks real GPUs; simulated ones are files, read here.

    Args:
        uuids: UUIDs of devices, by how they are named, e.g. ``{"cuda:0": "GPU-..."}``.
        others_allowed: processes of others on a GPU that do not count.
        busy_percent: load that counts, on a GPU on which nothing of ours runs.
        answer_s: longest wait for an answer, in seconds.
        probe: ``module:callable`` of the child.
        unused_s: so long after a look the child ends.
    """

    def __init__(
        self,
        uuids: Mapping[str, str],
        *,
        others_allowed: int = 0,
        busy_percent: float = 10.0,
        answer_s: float = _ANSWER_S,
        probe: str = _PROBE,
        unused_s: float = _UNUSED_S,
    ) -> None:
        self._uuids = dict(uuids)
        self._rules = (others_allowed, busy_percent)
        self._answer_s = answer_s
        self._probe = probe
        self._unused_s = unused_s
        self._local = ContentionProbe(*self._rules)
        self._child: Child | None = None
        self._thread: StartedThreads | None = None  # of its own: a driver that hangs blocks no other
        self._pending: dict[str, asyncio.Future[Contention]] = {}
        self._release: asyncio.TimerHandle | None = None
        self._logged: set[tuple[str, str]] = set()

    async def look(self, device: str, ours: int, *, our_load: bool = False) -> Contention:
        """Look now.

        A GPU that cannot be asked counts as free, which is logged once. A driver that does not answer counts
        as busy: nothing could be measured there.

        Args:
            device: as named, e.g. ``cuda:0``.
            ours: how many of our own processes compute on it.
            our_load: its load is our own, also where our process has just left.
        """
        uuid = self._uuids.get(device, device)
        if not device.startswith("cuda"):
            return self._noted(device, self._local.look(device, uuid, ours, our_load))
        try:
            self._thread = self._thread or StartedThreads(1, "gpu-users")
        except ResourceError as error:
            return Contention(busy=True, reason=f"it cannot be asked: {error}")
        pending = self._pending.get(device)
        if pending is None or pending.done():  # else an earlier caller gave up on an answer that still comes
            loop = asyncio.get_running_loop()
            pending = loop.run_in_executor(self._thread, self._ask, device, uuid, ours, our_load)
            self._pending[device] = pending
        self._keep_child()
        try:
            return self._noted(device, await asyncio.shield(pending))
        finally:
            self._keep_child()
            self._release = asyncio.get_running_loop().call_later(self._unused_s, self._end_child)

    def close(self) -> None:
        """End the child if there is one, whatever it waits for; nobody looks any more."""
        self._end_child()
        if self._thread is not None:
            self._thread.shutdown(wait=False)

    def _ask(self, device: str, uuid: str, ours: int, our_load: bool) -> Contention:
        child = self._child
        try:
            if child is None or not child.alive:
                child = self._child = Child(self._probe, *self._rules, name="gpu users")
            contention: Contention = child.call(
                "look", device, uuid, ours, our_load, timeout_s=self._answer_s
            )
        except ChildError as error:
            reason = str(error).strip().splitlines()[-1]
            if self._child is not child:
                return FREE  # closed meanwhile: whoever asked has gone
            if child is not None and child.alive:
                return Contention(busy=False, reason=f"it cannot be asked: {reason}")
            return Contention(busy=True, reason=f"the driver does not answer: {reason}")
        return contention

    def _keep_child(self) -> None:
        if self._release is not None:
            self._release.cancel()
            self._release = None

    def _end_child(self) -> None:
        """End the child; the next look starts another."""
        self._keep_child()
        child, self._child = self._child, None
        if child is None:
            return
        try:
            in_daemon_thread(child.close, grace_s=0.0)  # one that waits for a driver may take seconds to die
        except ResourceError:
            child.kill()  # reaped when it is collected

    def _noted(self, device: str, contention: Contention) -> Contention:
        if not contention.busy and contention.reason and (device, contention.reason) not in self._logged:
            self._logged.add((device, contention.reason))
            _LOG.warning("%s: counts as free of others: %s", device, contention.reason)
        return contention


def in_daemon_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """Call a function that may hang in a thread of its own.

    The end of the process does not wait for this thread, as it would for those of a pool.

    Returns:
        A future of what the function returns or raises.

    Raises:
        ResourceError: no thread can be made just now.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[], None]) -> None:
        if not future.done():  # nobody awaits it any more
            set_it()

    def work() -> None:
        try:
            outcome = partial(future.set_result, function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it concerns whoever awaits the future
            outcome = partial(future.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, outcome)

    thread = threading.Thread(target=work, name=getattr(function, "__name__", "daemon"), daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise ResourceError(f"no thread can be made: {error}") from error
    return future


# --- The power of the devices, sampled only while somebody watches.

INTERVAL_S = 1.0
"""Between two samples of a device."""

KEPT_SAMPLES = 300
"""Of each device."""

_LEASE_S = 5.0  # a client who asks once may ask again
_FIRST_S = 3.0  # for the first sample, with the start of the child
_SAMPLE_S = 10.0  # a driver that was asleep wakes within two; the first answer includes the child's start
_POWER_PROBE = "tuner.daemon.power_probe:PowerProbe"
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

    def __init__(self, probe: str = _POWER_PROBE) -> None:
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
            samples: Mapping[str, PowerSample] = self._child.call("read", gpus, timeout_s=_SAMPLE_S)
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
