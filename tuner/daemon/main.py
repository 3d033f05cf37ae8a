"""``tunerd`` from start to end: settings, state, clocks, socket, signals, the service manager."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import platformdirs

from tuner.catalog import Catalog, kernels_root
from tuner.daemon import logs, settings_file
from tuner.daemon.answering.analysis import Analyst
from tuner.daemon.answering.answerer import Answerer
from tuner.daemon.errands import Places
from tuner.daemon.front import Front
from tuner.daemon.listening import Listener, Lock, listener
from tuner.daemon.machine import Found, restore_and_find
from tuner.daemon.metrics import Metrics
from tuner.daemon.running.company import Company
from tuner.daemon.running.presence import Presence
from tuner.daemon.running.runner import start
from tuner.daemon.service import Service
from tuner.daemon.settings import Settings
from tuner.daemon.storage import Storage
from tuner.daemon.trust import kernel_directories
from tuner.errors import InputError, TunerError
from tuner.service_manager import ServiceManager

_TICK_S = 5.0  # a socket that was taken away is noticed after so long
_DATABASE_S = 20.0  # its thread may wait for another process, and not for ever
_STOP_S = 9.0  # a service has ten seconds
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choices:
    """What the command line says; it goes before daemon.toml.

    Attributes:
        config: the file; None for the system's where there is one.
        devices: that are tuned on.
        state: directory of the database.
        socket: where to listen.
    """

    config: Path | None = None
    devices: tuple[str, ...] = ()
    state: Path | None = None
    socket: Path | None = None


@dataclass(frozen=True)
class Ground:
    """Everything that files say.

    Attributes:
        settings: of daemon.toml.
        directories: trusted folders of kernel files.
        catalog: of all kernels.
    """

    settings: Settings
    directories: tuple[Path, ...]
    catalog: Catalog


def read_ground(choices: Choices) -> Ground:
    """Read and check all files.

    Raises:
        InputError: one is wrong, or can be changed by others; the message names file and key.
    """
    settings = settings_file.load(choices.config)
    directories = kernel_directories(settings.kernels.directories)
    return Ground(settings, directories, Catalog.load(search_path=(kernels_root(), *directories)))


def state_directory(choices: Choices, settings: Settings) -> Path:
    """Where the database is: as named, else the service's of systemd, else the user's."""
    named = choices.state or settings.service.state
    if named is not None:
        return named.absolute()
    given = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    return Path(given) if given else platformdirs.user_state_path("tuner")


def run(choices: Choices) -> int:
    """Be the daemon until it is told to end; returns the exit code.

    Raises:
        InputError: a file is wrong, or another daemon is there already.
    """
    logs.configure()
    manager = ServiceManager()
    ground = read_ground(choices)
    state = state_directory(choices, ground.settings)
    with contextlib.ExitStack() as stack:
        stack.callback(Lock(state).close)
        listening = listener(choices.socket or ground.settings.service.socket, ground.settings.service.group)
        stack.callback(listening.close)
        manager.say("STATUS=looking for GPUs, and for clocks to give back")
        found = restore_and_find(choices.devices or ground.settings.service.devices)
        for trouble in found.missing:
            _LOG.warning("%s", trouble)
        storage = Storage(state / "tuner.db")
        daemon = Daemon(choices, ground, found, storage=storage, listening=listening, manager=manager)
        asyncio.run(daemon.live())
        if not storage.closed:  # its thread hangs, and would be waited for
            logging.shutdown()
            os._exit(0)
    return 0


class Daemon:
    """The daemon's process.

    Args:
        choices: of the command line.
        ground: what files say.
        found: the devices.
        storage: the database.
        listening: the socket.
        manager: of services.
    """

    def __init__(
        self,
        choices: Choices,
        ground: Ground,
        found: Found,
        *,
        storage: Storage,
        listening: Listener,
        manager: ServiceManager,
    ) -> None:
        self.storage = storage
        self._choices = choices
        self._ground = ground
        self._listening = listening
        self._manager = manager
        self._uuids = {device: identity.uuid for device, identity in found.identities.items()}
        self._company = self._watch()
        self._analyst = Analyst(lambda: self._answerer.catalog, self._remember)
        self._answerer = Answerer(
            ground.catalog, found.identities, ground.settings, analyse=self._analyst.ask
        )
        self._service = Service(
            ground.settings,
            storage=self.storage,
            catalog=ground.catalog,
            identities=found.identities,
            places=Places(self.storage.path, ground.directories),
            launch=start,
            look=self._look,
            answerer=self._answerer,
            metrics=Metrics(version("tuner")),
        )
        self._service.troubles["devices"] = list(found.missing)
        self._service.troubles["kernels"] = [str(error) for error in ground.catalog.broken]
        self._front = Front(self._service, listening)
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._said = ""

    async def live(self) -> None:
        """Work until a signal ends it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        await self._service.begin()
        analysing = asyncio.create_task(self._analyst.run(), name="analyst")
        try:
            await self._front.start(self._ground.settings)
        except InputError as error:
            self._service.troubles["tcp"] = [str(error)]
            _LOG.error("%s", error)
        self._manager.say("READY=1", self._status())
        _LOG.info("ready: %s", ", ".join(self._uuids) or "no device")
        while not self._stop.is_set():
            await self._tick()
        analysing.cancel()
        self._analyst.close()
        await self._end()

    async def _tick(self) -> None:
        """One round of the main loop; the service manager hears of it if all is well."""
        if self._reload.is_set():
            self._reload.clear()
            await self._read_again()
        if self._listening.lost or not self._front.alive:
            await self._renew_front()
        status = self._status()
        if status != self._said:
            self._said = status
            self._manager.say(status)
        if self._manager.ping_interval_s is not None and self._service.alive:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._service.database_answers(), _DATABASE_S)
                self._manager.ping()
        waits = [asyncio.create_task(event.wait()) for event in (self._stop, self._reload)]
        timeout_s = min(_TICK_S, self._manager.ping_interval_s or _TICK_S)
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _renew_front(self) -> None:
        try:
            await self._front.renew(self._ground.settings)
        except InputError as error:  # tried again with the next tick
            self._service.troubles["socket"] = [str(error)]
            _LOG.error("%s", error)
        else:
            self._service.troubles.pop("socket", None)

    async def _read_again(self) -> None:
        """Take over settings and kernels as they are now; wrong ones change nothing."""
        self._manager.say("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            ground = await asyncio.to_thread(read_ground, self._choices)
        except TunerError as error:
            self._service.troubles["daemon.toml"] = [f"{error} (what was read before is in force)"]
            _LOG.error("nothing is changed: %s", error)
        else:
            before, self._ground = self._ground.settings, ground
            self._service.troubles["daemon.toml"] = _needs_restart(before, ground.settings)
            self._service.troubles["kernels"] = [str(error) for error in ground.catalog.broken]
            self._company.close()
            self._company = self._watch()
            await self._service.adopt(
                ground.settings, ground.catalog, Places(self.storage.path, ground.directories)
            )
            faces = ("limits", "tcp", "tuning")
            if any(getattr(before, face) != getattr(ground.settings, face) for face in faces):
                await self._renew_front()
            _LOG.info("settings and kernels are read again")
        self._manager.say("READY=1", self._status())

    async def _end(self) -> None:
        """Stop everything, in some seconds."""
        self._manager.say("STOPPING=1", "STATUS=stopping")
        _LOG.info("stopping")
        ends = asyncio.gather(self._front.stop(), self._service.end(), return_exceptions=True)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(ends, _STOP_S)
            await asyncio.wait_for(self.storage.close(), 1.0)
        self._company.close()

    async def _look(self, device: str, ours: int) -> Presence:
        return await self._company.look(device, ours)  # which is another one after new settings

    async def _remember(self, key: str, document: Mapping[str, Any]) -> None:
        """Answer with an analytical answer from now on, also after a restart."""
        self._answerer.remember({key: document})
        await self.storage.insist(lambda books: books.ledger.remember_analytical(key, document))

    def _watch(self) -> Company:
        idle = self._ground.settings.idle
        return Company(self._uuids, others_allowed=idle.others_allowed, busy_percent=idle.busy_percent)

    def _status(self) -> str:
        return f"STATUS={self._service.sentence()}"


def _needs_restart(before: Settings, after: Settings) -> list[str]:
    """What is in the file and not in force."""
    return ["[service] is in force after a restart"] if before.service != after.service else []
