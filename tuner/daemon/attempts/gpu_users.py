"""Whether others compute on a GPU: what NVML, a Jetson's kernel or the simulated GPUs tell.

Who else is on a GPU, asked so that a driver that hangs costs the daemon nothing.

Threads for what may hang: nobody waits for them when the process ends, as for those of a pool.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from tuner.devices import occupants, power
from tuner.errors import ChildError, SensorUnavailableError
from tuner.interfaces.gpu_state import GpuUsage
from tuner.system.process import Child

DEVFREQ = Path("/sys/class/devfreq")
_LOG = logging.getLogger(__name__)
_WATCHER = "tuner.daemon.attempts.gpu_users:Watcher"
_ANSWER_S = 5.0  # a driver that was asleep wakes within two; the first answer includes the child's start
_UNUSED_S = 60.0  # then the child goes: an idle daemon holds no driver open, and the GPU may sleep
T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True)
class Presence:
    """What a look at a GPU gave.

    Attributes:
        busy: others compute on it.
        why: who or what; of a free GPU, why nobody can tell (empty where somebody can). The same as long as
            it is the same: whoever tells it on tells it once.
        figure: how much of it now; empty where that is not measured.
    """

    busy: bool
    why: str = ""
    figure: str = ""


FREE = Presence(busy=False)


class Watcher:
    """Looks at GPUs; holds what it needs for that open.

    Args:
        others_allowed: processes of others on a GPU that do not count.
        busy_percent: load that counts, on a GPU on which nothing of ours runs.
        library: path of libnvidia-ml.so.1, or None for the one the system loader finds.
        devfreq: the kernel's class of devices with a scalable clock.
    """

    def __init__(
        self,
        others_allowed: int = 0,
        busy_percent: float = 10.0,
        library: str | None = None,
        devfreq: Path = DEVFREQ,
    ) -> None:
        self._allowed = others_allowed
        self._busy_percent = busy_percent
        self._library = library
        self._devfreq = devfreq
        self._opened: dict[str, GpuUsage] = {}

    def look(self, device: str, uuid: str, ours: int, our_load: bool = False) -> Presence:
        """Who else is on a GPU now.

        Processes are counted, not named: in a container they have other numbers than the driver knows.

        Args:
            device: as named, e.g. ``cuda:0``.
            uuid: as NVML has it.
            ours: how many of our own processes compute on it; while there are any, its load is ours too.
            our_load: so it is where our process has just left: it is told as a mean over the past.
        """
        our_load = our_load or ours > 0
        if device.startswith("sim:"):
            return self._counted(len(occupants.present(device)), ours)
        if not device.startswith("cuda"):
            return FREE  # a recording
        try:
            users = self._users(uuid)
        except SensorUnavailableError as error:
            return self._on_a_jetson(str(error), our_load=our_load)
        count, percent = users.processes(), users.load_percent()
        if count is None and percent is None:
            self._opened.pop(uuid).close()  # of a driver that was replaced, only a new one answers
            return self._on_a_jetson("NVML tells neither its processes nor its load", our_load=our_load)
        seen = FREE if count is None else self._counted(count, ours)
        if seen.busy or percent is None or our_load:
            return seen
        return self._loaded(percent)

    def close(self) -> None:
        """Close what is open."""
        for users in self._opened.values():
            users.close()
        self._opened.clear()

    def _users(self, uuid: str) -> GpuUsage:
        if uuid not in self._opened:
            self._opened[uuid] = power.gpu_users(uuid, self._library)
        return self._opened[uuid]

    def _counted(self, count: int, ours: int) -> Presence:
        others = count - ours - self._allowed
        if others <= 0:
            return FREE
        who = "processes" if others > 1 else "process"
        return Presence(busy=True, why=f"{others} {who} of others on the GPU")

    def _loaded(self, percent: float) -> Presence:
        if percent < self._busy_percent:
            return FREE
        return Presence(busy=True, why="it is loaded, and not by us", figure=f"{percent:.0f} %")

    def _on_a_jetson(self, why: str, *, our_load: bool) -> Presence:
        """By the kernel's own figure, where the board has one."""
        percent = power.jetson_load_percent(self._devfreq)
        if percent is None:
            return Presence(busy=False, why=why)
        return FREE if our_load else self._loaded(percent)


class Company:
    """Tells whether others compute on a GPU.

    Real GPUs are asked in a child process; simulated ones are files, read here.

    Args:
        uuids: UUIDs of devices, by how they are named, e.g. ``{"cuda:0": "GPU-..."}``.
        others_allowed: processes of others on a GPU that do not count.
        busy_percent: load that counts, on a GPU on which nothing of ours runs.
        answer_s: longest wait for an answer, in seconds.
    """

    def __init__(
        self,
        uuids: Mapping[str, str],
        *,
        others_allowed: int = 0,
        busy_percent: float = 10.0,
        answer_s: float = _ANSWER_S,
    ) -> None:
        self._uuids = dict(uuids)
        self._rules = (others_allowed, busy_percent)
        self._answer_s = answer_s
        self._here = Watcher(*self._rules)
        self._child: Child | None = None
        self._thread = ThreadPoolExecutor(1, "company")  # a driver that hangs takes no other's thread
        self._asking: dict[str, asyncio.Future[Presence]] = {}
        self._leave: asyncio.TimerHandle | None = None
        self._told: set[tuple[str, str]] = set()

    async def look(self, device: str, ours: int, *, our_load: bool = False) -> Presence:
        """Look now.

        What cannot be asked counts as free; that is logged once. A driver that does not answer counts as
        busy: nothing could be measured there.

        Args:
            device: as named, e.g. ``cuda:0``.
            ours: how many of our own processes compute on it.
            our_load: its load is our own, also where our process has just left.
        """
        uuid = self._uuids.get(device, device)
        if not device.startswith("cuda"):
            return self._heard(device, self._here.look(device, uuid, ours, our_load))
        asking = self._asking.get(device)
        if asking is None or asking.done():  # else it is the answer that whoever asked before did not await
            loop = asyncio.get_running_loop()
            asking = loop.run_in_executor(self._thread, self._ask, device, uuid, ours, our_load)
            self._asking[device] = asking
        self._stay()
        try:
            return self._heard(device, await asyncio.shield(asking))
        finally:
            self._leave_later()

    def close(self) -> None:
        """End the child if there is one, whatever it waits for; nobody looks any more."""
        self._let_go()
        self._thread.shutdown(wait=False)

    def _let_go(self) -> None:
        """End the child; the next look starts another."""
        self._stay()
        child, self._child = self._child, None
        if child is not None:
            apart(child.close, grace_s=0.0)  # who waits for a driver may take seconds to die

    def _ask(self, device: str, uuid: str, ours: int, our_load: bool) -> Presence:
        child = self._child
        try:
            if child is None or not child.alive:
                child = self._child = Child(_WATCHER, *self._rules, name="company")
            presence: Presence = child.call("look", device, uuid, ours, our_load, timeout_s=self._answer_s)
        except ChildError as error:
            why = str(error).strip().splitlines()[-1]
            if self._child is not child:
                return FREE  # closed meanwhile: whoever asked has gone
            if child is not None and child.alive:
                return Presence(busy=False, why=f"it cannot be asked: {why}")
            return Presence(busy=True, why=f"the driver does not answer: {why}")
        return presence

    def _stay(self) -> None:
        if self._leave is not None:
            self._leave.cancel()
            self._leave = None

    def _leave_later(self) -> None:
        self._stay()
        self._leave = asyncio.get_running_loop().call_later(_UNUSED_S, self._let_go)

    def _heard(self, device: str, presence: Presence) -> Presence:
        if not presence.busy and presence.why and (device, presence.why) not in self._told:
            self._told.add((device, presence.why))
            _LOG.warning("%s: counts as free of others: %s", device, presence.why)
        return presence


def apart(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """Call a function in a thread of its own; what it returns or raises is that of the future."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[], None]) -> None:
        if not future.done():  # nobody awaits it any more
            set_it()

    def work() -> None:
        try:
            outcome = partial(future.set_result, function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is whoever awaits the future whom it concerns
            outcome = partial(future.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=work, name=getattr(function, "__name__", "apart"), daemon=True).start()
    return future
