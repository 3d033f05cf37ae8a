"""Who else is on a GPU, asked so that a driver that hangs costs the daemon nothing."""

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from tuner.daemon.apart import apart
from tuner.daemon.running.presence import FREE, Presence, Watcher
from tuner.errors import ChildError
from tuner.system.process import Child

_LOG = logging.getLogger(__name__)
_WATCHER = "tuner.daemon.running.presence:Watcher"
_ANSWER_S = 5.0  # a driver that was asleep wakes within two; the first answer includes the child's start
_UNUSED_S = 60.0  # then the child goes: an idle daemon holds no driver open, and the GPU may sleep


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
