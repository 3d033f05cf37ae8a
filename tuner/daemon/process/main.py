"""``tunerd`` from start to end: state, clocks, socket, signals, the service manager."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Mapping
from typing import Any

from tuner import __version__
from tuner.daemon.answers.analysis import Analyst
from tuner.daemon.answers.answerer import Answerer
from tuner.daemon.attempts.gpu_users import Company, Presence
from tuner.daemon.attempts.runner import start
from tuner.daemon.metrics import Metrics
from tuner.daemon.process import configuration as ground
from tuner.daemon.process.configuration import Choices, Ground
from tuner.daemon.process.front import ENDING, Front, deaf, early
from tuner.daemon.process.listening import Listener, Lock, listener
from tuner.daemon.process.machine import Found, Gpus, restore_and_find
from tuner.daemon.queue.storage import Storage
from tuner.daemon.service import Service
from tuner.daemon.settings.tables import Settings
from tuner.daemon.state import Situation
from tuner.errors import DeviceError, InputError, TunerError
from tuner.system import logs
from tuner.system.service_manager import ServiceManager

_TICK_S = 5.0  # a socket that was taken away is noticed after so long
_WATCH_S = 60.0  # kernels and drivers that have changed are noticed after so long
_DATABASE_S = 60.0  # of one action: files that are healed are read whole; beyond it, its disk or a lock hangs
_ROUND_S = 180.0  # of the main loop: drivers that hang are asked for half as long
_PINGS = 2  # per interval: one that comes a moment too early is not said
_START_AGAIN = 75  # EX_TEMPFAIL: the service manager starts the daemon again
_STOP_S = 9.0  # a service has ten seconds
_INIT = 1  # of a container without an init, to which orphans fall
_FACES = ("limits", "tcp", "tuning")  # tables that the server knows from its start
_LOG = logging.getLogger(__name__)


def run(choices: Choices, log_format: logs.Format = "auto") -> int:
    """Be the daemon until it is told to end; returns the exit code.

    Args:
        choices: of the command line.
        log_format: see ``logs.configure``.

    Raises:
        InputError: a file is wrong, or another daemon is there already.
    """
    logs.configure(log_format)
    if os.getpid() == _INIT:
        _LOG.warning("process 1: what killed jobs leave is not reaped; start the container with --init")
    manager = ServiceManager()
    found_in_files = ground.read(choices)
    service = found_in_files.settings.service
    state = ground.state_directory(choices, found_in_files.settings)
    with early() as heard, contextlib.ExitStack() as stack:
        stack.callback(Lock(state).close)
        listening = listener(choices.socket or service.socket, service.group)
        stack.callback(listening.close)
        manager.say("STATUS=looking for GPUs, and for clocks to give back")
        found = restore_and_find(choices.devices or service.devices)
        storage = Storage(state / "tuner.db")
        daemon = Daemon(choices, found_in_files, found, storage=storage, listening=listening, manager=manager)
        if heard.reload:
            daemon.reload()
        code = asyncio.run(_to_the_end(daemon))
        if not storage.closed:  # its thread hangs, and would be waited for
            logging.shutdown()
            os._exit(code)
    return code


async def _to_the_end(daemon: "Daemon") -> int:
    code = await daemon.live()
    deaf(asyncio.get_running_loop())
    return code


class Daemon:
    """The daemon's process.

    Args:
        choices: of the command line.
        files: what they say.
        found: the devices.
        storage: the database.
        listening: the socket.
        manager: of services.
    """

    def __init__(
        self,
        choices: Choices,
        files: Ground,
        found: Found,
        *,
        storage: Storage,
        listening: Listener,
        manager: ServiceManager,
    ) -> None:
        self._choices = choices
        self._storage = storage
        self._listening = listening
        self._manager = manager
        self._situation = Situation(
            files.settings,
            files.catalog,
            dict(found.identities),
            files.directories,
            {"devices": [] if found.stands_in else list(found.missing), **files.troubles},
            found.missing if found.stands_in else (),
            {
                "socket": listening.name,
                "state_directory": str(storage.path.parent),
                "settings": ground.settings_name(choices),
            },
        )
        self._company = self._new_company()
        self._watch = files.watch
        self._gpus = Gpus(found, choices.devices or files.settings.service.devices)
        self._looking: asyncio.Task[None] | None = None
        self._analyst = Analyst(lambda: self._situation.catalog, self._remember, may_open=self._may_open)
        self._answerer = Answerer(self._situation, analyse=self._analyst.ask)
        self._metrics = metrics = Metrics(__version__)
        self._tell_clocks(found)
        self._service = Service(
            self._situation,
            storage=storage,
            launch=start,
            look=self._look,
            answerer=self._answerer,
            metrics=metrics,
        )
        self._front = Front(self._service, listening, metrics.request)
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._said = ""
        self._watched_s = self._ticked_s = time.monotonic()
        self._code = 0

    async def live(self) -> int:
        """Work until a signal ends it; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in ENDING:
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        await self._service.begin()
        self._analysing = asyncio.create_task(self._analyst.run(), name="analyst")
        try:
            await self._front.start(self._situation.settings)
        except InputError as error:
            self._note("tcp", error)
        self._tell_port()
        self._manager.say("READY=1", self._status())
        _LOG.info(
            "ready: %s; listening at %s, state in %s",
            ", ".join(self._situation.devices) or "no device",
            self._listening.name,
            self._storage.path.parent,
        )
        others = [asyncio.create_task(self._work(), name="main"), asyncio.create_task(self._ping())]
        stopping = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait({stopping, *others}, return_when=asyncio.FIRST_COMPLETED)
        for task in (stopping, *others, self._analysing):
            task.cancel()
        self._analyst.close()
        await self._end()
        for task in done:
            task.result()  # what broke the main loop
        return self._code

    def reload(self) -> None:
        """Read settings and kernels again, and ask the GPUs."""
        self._reload.set()

    # --- the main loop -------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            await self._tick()
            self._ticked_s = time.monotonic()

    async def _tick(self) -> None:
        """One round of the main loop."""
        if self._reload.is_set():
            self._reload.clear()
            await self._read_again()
        if self._listening.lost or not self._front.alive:
            await self._renew_front()
        if time.monotonic() - self._watched_s >= _WATCH_S:
            self._watched_s = time.monotonic()
            await self._notice_changes()
        self._tell_manager()
        if self._storage.trouble and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._storage.look())
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._reload.wait(), _TICK_S)

    async def _ping(self) -> None:
        """Tell the service manager as long as all goes on, whatever is waited for."""
        interval_s = self._manager.ping_interval_s
        while True:
            if self.alive:
                self._manager.ping()
            await asyncio.sleep((interval_s or _TICK_S) / _PINGS)

    @property
    def alive(self) -> bool:
        """True while everything goes on that must: lanes, analyst, main loop and database."""
        return (
            self._service.alive
            and not self._analysing.done()
            and self._storage.silent_s < _DATABASE_S
            and time.monotonic() - self._ticked_s < _ROUND_S
        )

    async def _renew_front(self) -> None:
        try:
            await self._front.renew(self._situation.settings)
        except InputError as error:  # tried again with the next tick
            self._note("socket", error)
        else:
            self._situation.troubles.pop("socket", None)
        self._tell_port()

    def _tell_port(self) -> None:
        port = self._front.port
        self._situation.places["TCP"] = "off" if port is None else f"port {port} of the loopback"

    async def _read_again(self) -> None:
        """Take over settings and kernels as they are now; wrong ones change nothing."""
        self._manager.say("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        before = self._situation.settings
        try:
            files = await asyncio.to_thread(ground.read, self._choices)
        except TunerError as error:
            self._note("daemon.toml", error, "what was read before is in force")
        else:
            self._situation.troubles["daemon.toml"] = _needs_restart(before, files.settings)
            self._watch = files.watch
            await self._ask_devices()
            await self._adopt(files)
            if any(getattr(before, face) != getattr(files.settings, face) for face in _FACES):
                await self._renew_front()
            _LOG.info("settings and kernels are read again")
        self._manager.say("READY=1", self._status())

    async def _notice_changes(self) -> None:
        """See whether kernels or drivers are no longer those that answers are bound to."""
        changes = await asyncio.to_thread(self._watch.look)
        files = await self._read_kernels() if changes.sources else None
        others = changes.devices
        if files is not None:
            others = others or (await asyncio.to_thread(self._watch.look)).devices
            self._watch = files.watch
        came = self._gpus.driver_came(self._situation.devices)
        if others or came:
            _LOG.info("the driver or the GPUs have changed")
            await self._ask_devices()
            if came and self._manager.there and not self._stop.is_set():
                self._start_again("more of a driver is there than at the start")
        if files is not None:
            await self._adopt(files)
        elif others or came:
            await self._service.adopt()

    async def _read_kernels(self) -> Ground | None:
        """Read the kernels again; None where they cannot be used."""
        _LOG.info("kernel files have changed")
        try:
            return await asyncio.to_thread(ground.with_kernels, self._situation.settings)
        except TunerError as error:
            self._note("kernels", error, "those read before are known")
            return None

    async def _ask_devices(self) -> None:
        """Ask devices again who they are, but those on which a job runs."""
        known = self._situation.devices
        found = await self._gpus.ask(known, [device for device in known if self._service.runs(device)])
        self._tell_clocks(found)
        identities = self._situation.identities
        self._situation.troubles["devices"] = list(found.missing)
        identities.update({spec: one for spec, one in found.identities.items() if spec in identities})
        new = [spec for spec in found.identities if spec not in identities]
        if new:
            self._start_again(f"{', '.join(new)}: found after the start")

    def _start_again(self, why: str) -> None:
        """End, where somebody starts the daemon again: lanes are made at the start."""
        if self._manager.there:
            _LOG.warning("%s: the daemon is started again", why)
            self._code = _START_AGAIN
            self._stop.set()
        else:
            self._note("GPUs", DeviceError(f"{why}: start the daemon again to tune there"))

    def _tell_clocks(self, found: Found) -> None:
        for gpu in found.left_set:
            self._metrics.clock_not_restored(gpu)

    async def _adopt(self, files: Ground) -> None:
        situation = self._situation
        situation.settings, situation.catalog = files.settings, files.catalog
        situation.directories = files.directories
        situation.troubles.update(files.troubles)
        self._company.close()
        self._company = self._new_company()
        await self._service.adopt()

    async def _end(self) -> None:
        """Stop everything, in some seconds."""
        self._manager.say("STOPPING=1", "STATUS=stopping")
        _LOG.info("stopping")
        ends = asyncio.gather(self._front.stop(), self._service.end(), return_exceptions=True)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(ends, _STOP_S)
            await asyncio.wait_for(self._storage.close(), 1.0)
        self._company.close()

    # --- its parts -----------------------------------------------------------------------------------

    def _note(self, what: str, error: TunerError, so: str = "") -> None:
        """Log and show what is wrong; once, as long as it is the same."""
        told = [f"{error} ({so})" if so else str(error)]
        if self._situation.troubles.get(what) != told:
            _LOG.error("%s", told[0])
        self._situation.troubles[what] = told

    async def _look(self, device: str, ours: int, *, our_load: bool = False) -> Presence:
        if not ours:
            self._analyst.leave(device)
        # which is another one after new settings
        return await self._company.look(device, ours, our_load=our_load)

    def _may_open(self, device: str) -> bool:
        return self._service.idle(device)

    async def _remember(self, key: str, document: Mapping[str, Any]) -> None:
        """Answer with an analytical answer from now on, also after a restart."""
        self._answerer.remember({key: document})
        await self._storage.insist(lambda books: books.ledger.remember_analytical(key, document))

    def _new_company(self) -> Company:
        idle, identities = self._situation.settings.idle, self._situation.identities
        uuids = {device: identity.uuid for device, identity in identities.items()}
        return Company(uuids, others_allowed=idle.others_allowed, busy_percent=idle.busy_percent)

    def _tell_manager(self) -> None:
        if self._status() != self._said:
            self._said = self._status()
            self._manager.say(self._said)

    def _status(self) -> str:
        return f"STATUS={self._service.sentence()}"


def _needs_restart(before: Settings, after: Settings) -> list[str]:
    """What is in the file and not in force."""
    return ["[service] is in force after a restart"] if before.service != after.service else []
