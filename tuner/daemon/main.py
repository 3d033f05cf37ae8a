"""The daemon, from the moment that it has all it needs to its end."""

import asyncio
import contextlib
import gc
import logging
import signal
import time
from functools import partial

from tuner.daemon.answers.answerer import Analyst, Answerer
from tuner.daemon.devices.queue import GRACE_S
from tuner.daemon.http.server import FrontEnd, ListeningSocket
from tuner.daemon.machine import ContentionMonitor, GpuInventory, GpuSurvey
from tuner.daemon.metrics import Metrics
from tuner.daemon.service import Service
from tuner.daemon.settings_file import keep
from tuner.daemon.state import (
    LoadedConfig,
    StartOptions,
    State,
    in_force,
    named_directories,
    new_config,
    usable_kernels,
)
from tuner.daemon.tokens import NAME as TOKENS
from tuner.daemon.tokens import Tokens
from tuner.database.storage import Storage
from tuner.devices.gpu_users import Contention
from tuner.kernel_files.trust import usable_directories
from tuner.model.errors import DeviceError, InputError, ResourceError, TunerError
from tuner.model.run_document import AnalyticalDocument
from tuner.model.version import VERSION
from tuner.search.job_launcher import Launcher, start
from tuner.system.ownership import StateLock, signature
from tuner.system.service_manager import ServiceManager
from tuner.system.signals import STOP_SIGNALS
from tuner.system.threads import is_shortage

_SURE = 3  # looks in a row at another directory, before the daemon begins anew with it
_SUBJECT = "state directory"
_LOG = logging.getLogger(__name__)


class StateWatch:
    """Halts all jobs while the state directory is not what it was; answers are served from memory.

    Args:
        lock: of the directory; None to watch over nothing.
        state: of the daemon, which is told.
    """

    def __init__(self, lock: StateLock | None, state: State) -> None:
        self._lock = lock
        self._state = state
        self._others = 0

    def look(self) -> bool:
        """Look now; True where something has changed."""
        if self._lock is None:
            return False
        trouble = self._lock.trouble()
        self._others = self._others + 1 if self._lock.replaced or self.hidden else 0
        if trouble == self._state.halted:
            return False
        if trouble:
            _LOG.error("%s; jobs wait, and answers are served from memory", trouble)
            self._state.troubles[_SUBJECT] = [f"{trouble}; jobs wait, and answers are served from memory"]
        else:
            _LOG.warning("%s can be used again", self._lock.directory)
            self._state.troubles.pop(_SUBJECT, None)
        self._state.halted = trouble
        return True

    @property
    def another(self) -> bool:
        """True where another directory has taken the place of the one that is gone, and stays."""
        return self._others >= _SURE

    @property
    def hidden(self) -> bool:
        """True where only a new process could use the directory that is there now."""
        return self._lock is not None and self._lock.hidden


BEGIN_ANEW = -1
"""Result of ``Daemon.run`` if another daemon is to begin in this process with the present directory."""

_TICK_S = 2.0  # a lost socket, a state directory that is gone and a mended file are noticed after so long
_SOON_S = 0.5  # what is wrong and may be mended is looked at as often
_WATCH_S = 60.0  # changes of kernels and drivers are noticed after so long
_DATABASE_S = 60.0  # for one action, which may read damaged files whole; after it, a disk or a lock hangs
_ROUND_S = 180.0  # for a round of the main loop: twice as long as drivers that hang are waited for
_PINGS = 2  # per interval, so that none is late
_EXIT_RESTART = 75  # EX_TEMPFAIL: the service manager starts the daemon again
# Who stops waits longer than what it waits for, so that nobody is cut off who would have ended by himself: an
# attempt has GRACE_S = 5 s before it is killed, queues 7 + 1 s (service), all parts these 9 s, the database
# one more. With that the unit's TimeoutStopSec=20 is far from coming into play.
_STOP_S = GRACE_S + 4.0
_SERVER_TABLES = ("limits", "tcp", "tuning")  # a change of these replaces the server


class Daemon:
    """Connects the service with files, GPUs, the socket, signals and the service manager.

    Attributes:
        why_anew: why ``run`` has returned ``BEGIN_ANEW``.
    """

    def __init__(
        self,
        options: StartOptions,
        config: LoadedConfig,
        survey: GpuSurvey,
        *,
        storage: Storage,
        listening: ListeningSocket,
        manager: ServiceManager,
        lock: StateLock | None = None,
        notice: str = "",
    ) -> None:
        self._options = options
        self._storage = storage
        self._listening = listening
        self._manager = manager
        self._state = State(
            config.settings,
            config.catalog,
            dict(survey.identities),
            config.directories,
            config.left_out,
            {"devices": [] if survey.simulated else list(survey.missing), **config.troubles},
            (*(survey.missing if survey.simulated else ()), *filter(None, (notice,))),
            {
                "socket": listening.name,
                "state_directory": str(storage.path.parent),
                "settings": options.settings_name,
            },
            tokens=Tokens(storage.path.parent / TOKENS),
        )
        self._monitor = self._new_contention_monitor()
        self._watch = config.watch
        self._text = config.text
        # none at the start: the file may have been mended since it was read
        self._wrong_file: tuple[int, ...] | None = (0,) if config.wrong else None
        self._state_watch = StateWatch(lock, self._state)
        self._gpus = GpuInventory(survey, options.devices or config.settings.service.devices)
        self._storage_check: asyncio.Task[None] | None = None
        self._analyst = Analyst(lambda: self._state.catalog, self._remember, may_open=self._may_open)
        self._answerer = Answerer(self._state, analyse=self._analyst.ask)
        self._metrics = metrics = Metrics(VERSION)
        self._count_clocks(survey)
        self._launcher = Launcher()
        self._service = Service(
            self._state,
            storage=storage,
            start_attempt=partial(start, launch=self._launcher.launch),
            check_users=self._check_users,
            answerer=self._answerer,
            metrics=metrics,
        )
        self._front_end = FrontEnd(self._service, listening, self._state.tokens, metrics.request)
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._reported_status = ""
        self._survived = ""
        self.why_anew = ""
        self._watched_s = self._ticked_s = time.monotonic()
        self._code = 0

    async def run(self) -> int:
        """Work until a signal ends it; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        self._look_at_tokens()
        await self._service.begin()
        self._analysing = asyncio.create_task(self._analyst.run(), name="analyst")
        try:
            await self._front_end.start(self._state.settings)
        except InputError as error:
            self._note("socket", error)  # as `_renew_front_end`, which ends it
        self._show_port()
        _spare_the_collector()
        self._manager.say("READY=1", self._status())
        _LOG.info(
            "ready: %s; listening at %s, state in %s",
            ", ".join(self._state.devices) or "no device",
            self._listening.name,
            self._storage.path.parent,
        )
        await self._keep_settings()
        others = [asyncio.create_task(self._work(), name="main"), asyncio.create_task(self._ping())]
        stopped = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait({stopped, *others}, return_when=asyncio.FIRST_COMPLETED)
        for task in (stopped, *others, self._analysing):
            task.cancel()
        self._analyst.close()
        await self._end()
        await self._launcher.close()
        for task in done:
            task.result()  # raises what ended the main loop
        return self._code

    def reload(self) -> None:
        """Read settings and kernels again, and ask the GPUs."""
        self._reload.set()

    # --- the main loop -------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            try:
                await self._tick()
                self._state.troubles.pop("main loop", None)
                self._survived = ""
            except Exception as error:  # noqa: BLE001 - no exception must end the daemon
                self._survive(error)
                await asyncio.sleep(_TICK_S)
            self._ticked_s = time.monotonic()

    def _survive(self, error: Exception) -> None:
        """Tell of an exception that would have ended the main loop: once, as long as it is the same."""
        short = is_shortage(error)
        words = "the system is short of threads, processes, descriptors or memory" if short else "unexpected"
        message = f"{words}: {error!r}"
        if message != self._survived:
            _LOG.error("main loop: %s", message, exc_info=None if short else error)
        self._survived = message
        self._state.troubles["main loop"] = [message]

    async def _tick(self) -> None:
        """One round of the main loop."""
        if self._reload.is_set():
            self._reload.clear()
            await self._reload_files()
        if self._state_watch.look():
            self._service.wake()
        if not self._state.halted:  # tokens are kept in memory as answers are
            self._look_at_tokens()
        if self._state_watch.another and (self._manager.there or not self._state_watch.hidden):
            self._leave_directory()
        await self._mend()
        if self._listening.lost or not self._front_end.alive:
            await self._renew_front_end()
        if time.monotonic() - self._watched_s >= _WATCH_S:
            self._watched_s = time.monotonic()
            await self._handle_changes()
        status = self._status()
        if status != self._reported_status:
            self._reported_status = status
            self._manager.say(status)
        checked = self._storage_check is None or self._storage_check.done()
        if self._storage.trouble and checked and not self._state.halted:
            self._storage_check = asyncio.create_task(self._storage.retry())
        wrong = self._state.halted or self._state.left_out or self._wrong_file is not None
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._reload.wait(), _SOON_S if wrong else _TICK_S)

    async def _ping(self) -> None:
        """Ping the service manager while the daemon is alive."""
        interval_s = self._manager.ping_interval_s
        while True:
            if self.alive:
                self._manager.ping()
            await asyncio.sleep((interval_s or _TICK_S) / _PINGS)

    @property
    def alive(self) -> bool:
        """True while device queues, analyst, main loop and database all make progress."""
        return (
            self._service.alive
            and not self._analysing.done()
            and self._storage.silent_s < _DATABASE_S
            and time.monotonic() - self._ticked_s < _ROUND_S
        )

    async def _renew_front_end(self) -> None:
        try:
            await self._front_end.renew(self._state.settings)
        except InputError as error:  # tried again with the next tick
            self._note("socket", error)
        else:
            self._state.troubles.pop("socket", None)
        self._show_port()

    def _look_at_tokens(self) -> None:
        """Adopt a change of the tokens; what is wrong in their file changes nothing."""
        try:
            self._state.tokens.look(self._state.settings.tcp.token_file)
        except InputError as error:
            self._note("tokens", error, "in force: those that were read before")
        else:
            self._state.troubles.pop("tokens", None)

    def _show_port(self) -> None:
        port = self._front_end.port
        self._state.places["TCP"] = "off" if port is None else f"port {port} of the loopback"

    async def _mend(self) -> None:
        """Read again what was wrong, where it has changed since."""
        if self._wrong_file is not None and signature(self._options.file) != self._wrong_file:
            _LOG.info("%s has changed since it was found to be wrong", self._options.file)
            await self._reload_files()
        elif self._state.left_out:
            named = named_directories(self._state.settings)
            _, left_out = await asyncio.to_thread(usable_directories, named)
            if left_out != self._state.left_out:
                await self._adopt(await asyncio.to_thread(usable_kernels, self._state.settings))

    async def _reload_files(self) -> None:
        """Adopt settings and kernels as they are now; a wrong file changes nothing."""
        self._manager.say("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        before, seen = self._state.settings, signature(self._options.file)
        try:
            config = await asyncio.to_thread(new_config, self._options)
        except TunerError as error:
            self._wrong_file = seen
            self._note("daemon.toml", error, in_force("what was read before"))
        else:
            self._wrong_file, self._text = None, config.text
            await self._ask_devices()
            await self._adopt(config)
            same = before.service == config.settings.service
            waiting = [] if same else ["a change of [service] takes effect at the next restart"]
            self._state.troubles["daemon.toml"] = waiting
            await self._keep_settings()
            if any(getattr(before, table) != getattr(config.settings, table) for table in _SERVER_TABLES):
                await self._renew_front_end()
            _LOG.info("settings and kernels are read again")
            for sentence in waiting:
                _LOG.warning("%s", sentence)
        self._manager.say("READY=1", self._status())

    async def _keep_settings(self) -> None:
        """Keep what is in force, for a start that finds the file wrong."""
        file = self._options.file
        if file is not None and self._text and not self._state.halted:
            await asyncio.to_thread(keep, self._storage.path.parent, file, self._text)

    def _leave_directory(self) -> None:
        """Begin anew with the directory that has taken the place of the one that is gone."""
        directory = self._storage.path.parent
        self.why_anew = f"{self._state.halted}; begun anew with what is in {directory} now"
        _LOG.warning("%s", self.why_anew)
        self._code = _EXIT_RESTART if self._state_watch.hidden else BEGIN_ANEW
        self._stop.set()

    async def _handle_changes(self) -> None:
        """Adopt changes of kernels and drivers, on which stored answers depend."""
        changes = await asyncio.to_thread(self._watch.look)
        config, devices = None, changes.devices
        if changes.sources:
            _LOG.info("kernel files have changed")
            config = await asyncio.to_thread(usable_kernels, self._state.settings)
            devices = devices or (await asyncio.to_thread(self._watch.look)).devices
        came = self._gpus.driver_came(self._state.devices)
        if devices or came:
            _LOG.info("the driver or the GPUs have changed")
            await self._ask_devices()
            if came and self._manager.there and not self._stop.is_set():
                self._restart("more of a driver is there than at the start")
        if config is not None:
            await self._adopt(config)
        elif devices or came:
            await self._service.adopt()

    async def _ask_devices(self) -> None:
        """Identify devices again, except those on which a job runs."""
        devices = self._state.devices
        try:
            survey = await self._gpus.ask(
                devices, [device for device in devices if self._service.runs(device)]
            )
        except ResourceError as error:
            self._note("devices", error, "they are taken to be as they were")
            return
        self._count_clocks(survey)
        identities = self._state.identities
        self._state.troubles["devices"] = list(survey.missing)
        identities.update(
            {spec: identity for spec, identity in survey.identities.items() if spec in identities}
        )
        known_uuids = {identity.uuid for identity in identities.values()}  # a GPU may answer to a second name
        new = [spec for spec, identity in survey.identities.items() if identity.uuid not in known_uuids]
        if new:
            self._restart(f"{', '.join(new)}: found after the start")

    def _restart(self, reason: str) -> None:
        """End, where a service manager starts the daemon again: device queues are made at the start."""
        if self._manager.there:
            _LOG.warning("%s: the daemon is started again", reason)
            self._code = _EXIT_RESTART
            self._stop.set()
        else:
            self._note("GPUs", DeviceError(f"{reason}: start the daemon again to tune there"))

    def _count_clocks(self, survey: GpuSurvey) -> None:
        for gpu in survey.clocks_not_restored:
            self._metrics.not_restored.labels(gpu).inc()

    async def _adopt(self, config: LoadedConfig) -> None:
        """Take what was read; what is wrong in the file in force stays told."""
        for reason in set(config.left_out.values()) - set(self._state.left_out.values()):
            _LOG.error("kernels are left out: %s", reason)
        file_troubles = self._state.troubles.get("daemon.toml", [])
        self._watch = config.watch
        self._state.adopt(config)
        self._state.troubles["daemon.toml"] = file_troubles
        self._monitor.close()
        self._monitor = self._new_contention_monitor()
        await self._service.adopt()

    async def _end(self) -> None:
        """Stop everything, in some seconds."""
        self._manager.say("STOPPING=1", "STATUS=stopping")
        _LOG.info("stopping")
        ends = asyncio.gather(self._front_end.stop(), self._service.end(), return_exceptions=True)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(ends, _STOP_S)
            await asyncio.wait_for(self._storage.close(), 1.0)
        self._monitor.close()

    # --- its parts -----------------------------------------------------------------------------------

    def _note(self, subject: str, error: TunerError, consequence: str = "") -> None:
        """Log and show what is wrong; once, as long as it is the same."""
        trouble = [f"{error} ({consequence})" if consequence else str(error)]
        if self._state.troubles.get(subject) != trouble:
            _LOG.error("%s", trouble[0])
        self._state.troubles[subject] = trouble

    async def _check_users(self, device: str, ours: int, our_load: bool) -> Contention:
        if not ours:
            self._analyst.leave(device)
        # not bound once: new settings replace it
        return await self._monitor.look(device, ours, our_load=our_load)

    def _may_open(self, device: str) -> bool:
        return self._service.idle(device)

    async def _remember(self, key: str, document: AnalyticalDocument) -> None:
        """Use and store an analytical answer."""
        self._answerer.remember({key: document})
        await self._storage.insist(lambda db: db.ledger.remember_analytical(key, document))

    def _new_contention_monitor(self) -> ContentionMonitor:
        idle, identities = self._state.settings.idle, self._state.identities
        uuids = {device: identity.uuid for device, identity in identities.items()}
        return ContentionMonitor(uuids, others_allowed=idle.others_allowed, busy_percent=idle.busy_percent)

    def _status(self) -> str:
        return f"STATUS={self._service.summary()}"


_NEW_OBJECTS = 1000  # between two searches for garbage: a transport of asyncio refers to itself


def _spare_the_collector() -> None:
    """Keep what exists at the start out of garbage collections, and what is thrown away later from piling up.

    A full collection takes 70 ms with it, in which nobody is answered, and every few thousand connections
    bring one about.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
