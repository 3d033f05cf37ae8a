"""The daemon's process, from start to end."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import time
from collections.abc import Mapping
from typing import Any

from tuner import __version__
from tuner.daemon.answers.analysis import Analyst
from tuner.daemon.answers.answerer import Answerer
from tuner.daemon.attempts.runner import start
from tuner.daemon.metrics import Metrics
from tuner.daemon.process.listening import FrontEnd, ListeningSocket, listener
from tuner.daemon.process.machine import ContentionMonitor, GpuInventory, GpuSurvey, restore_and_find
from tuner.daemon.service import Service
from tuner.daemon.settings.tables import Settings
from tuner.daemon.state import LoadedConfig, StartOptions, State, load_config, load_kernels
from tuner.database.storage import Storage
from tuner.devices.gpu_users import Contention
from tuner.errors import DeviceError, InputError, TunerError
from tuner.system import logs
from tuner.system.owner import StateLock
from tuner.system.service_manager import ServiceManager
from tuner.system.signals import STOP_SIGNALS, ignore_signals, startup_signals

_TICK_S = 5.0  # a lost socket is noticed after so long
_WATCH_S = 60.0  # changes of kernels and drivers are noticed after so long
_DATABASE_S = 60.0  # for one action, which may read damaged files whole; after it, a disk or a lock hangs
_ROUND_S = 180.0  # for a round of the main loop: twice as long as drivers that hang are waited for
_PINGS = 2  # per interval, so that none is late
_EXIT_RESTART = 75  # EX_TEMPFAIL: the service manager starts the daemon again
_STOP_S = 9.0  # a service has ten seconds
_INIT = 1  # of a container without an init, to which orphans fall
_SERVER_TABLES = ("limits", "tcp", "tuning")  # a change of these replaces the server
_LOG = logging.getLogger(__name__)


def run(options: StartOptions, log_format: logs.Format = "auto") -> int:
    """Run the daemon until it is told to end; returns the exit code.

    Args:
        options: of the command line.
        log_format: see ``logs.configure``.

    Raises:
        InputError: a file is wrong, or another daemon is there already.
    """
    logs.configure(log_format)
    if os.getpid() == _INIT:
        _LOG.warning("process 1: what killed jobs leave is not reaped; start the container with --init")
    manager = ServiceManager()
    config = load_config(options)
    service = config.settings.service
    directory = options.state_directory(config.settings)
    with startup_signals() as received, contextlib.ExitStack() as stack:
        stack.callback(StateLock(directory).close)
        listening = listener(options.socket or service.socket, service.group)
        stack.callback(listening.close)
        manager.say("STATUS=looking for GPUs, and for clocks to give back")
        survey = restore_and_find(options.devices or service.devices)
        storage = Storage(directory / "tuner.db")
        daemon = Daemon(options, config, survey, storage=storage, listening=listening, manager=manager)
        if received.reload:
            daemon.reload()
        code = asyncio.run(_run_daemon(daemon))
        if not storage.closed:  # its thread hangs, and the interpreter would wait for it
            logging.shutdown()
            os._exit(code)
    return code


async def _run_daemon(daemon: "Daemon") -> int:
    code = await daemon.run()
    ignore_signals(asyncio.get_running_loop())
    return code


class Daemon:
    """Connects the service with files, GPUs, the socket, signals and the service manager.

    Args:
        options: of the command line.
        config: settings and kernels.
        survey: the devices.
        storage: the database.
        listening: the socket.
        manager: of services.
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
            {"devices": [] if survey.simulated else list(survey.missing), **config.troubles},
            survey.missing if survey.simulated else (),
            {
                "socket": listening.name,
                "state_directory": str(storage.path.parent),
                "settings": options.settings_name,
            },
        )
        self._monitor = self._new_contention_monitor()
        self._watch = config.watch
        self._gpus = GpuInventory(survey, options.devices or config.settings.service.devices)
        self._storage_check: asyncio.Task[None] | None = None
        self._analyst = Analyst(lambda: self._state.catalog, self._remember, may_open=self._may_open)
        self._answerer = Answerer(self._state, analyse=self._analyst.ask)
        self._metrics = metrics = Metrics(__version__)
        self._count_clocks(survey)
        self._service = Service(
            self._state,
            storage=storage,
            start_attempt=start,
            check_users=self._check_users,
            answerer=self._answerer,
            metrics=metrics,
        )
        self._front_end = FrontEnd(self._service, listening, metrics.request)
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._reported_status = ""
        self._watched_s = self._ticked_s = time.monotonic()
        self._code = 0

    async def run(self) -> int:
        """Work until a signal ends it; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        await self._service.begin()
        self._analysing = asyncio.create_task(self._analyst.run(), name="analyst")
        try:
            await self._front_end.start(self._state.settings)
        except InputError as error:
            self._note("tcp", error)
        self._show_port()
        _spare_the_collector()
        self._manager.say("READY=1", self._status())
        _LOG.info(
            "ready: %s; listening at %s, state in %s",
            ", ".join(self._state.devices) or "no device",
            self._listening.name,
            self._storage.path.parent,
        )
        others = [asyncio.create_task(self._work(), name="main"), asyncio.create_task(self._ping())]
        stopped = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait({stopped, *others}, return_when=asyncio.FIRST_COMPLETED)
        for task in (stopped, *others, self._analysing):
            task.cancel()
        self._analyst.close()
        await self._end()
        for task in done:
            task.result()  # raises what ended the main loop
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
            await self._reload_files()
        if self._listening.lost or not self._front_end.alive:
            await self._renew_front_end()
        if time.monotonic() - self._watched_s >= _WATCH_S:
            self._watched_s = time.monotonic()
            await self._handle_changes()
        self._tell_manager()
        if self._storage.trouble and (self._storage_check is None or self._storage_check.done()):
            self._storage_check = asyncio.create_task(self._storage.retry())
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._reload.wait(), _TICK_S)

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

    def _show_port(self) -> None:
        port = self._front_end.port
        self._state.places["TCP"] = "off" if port is None else f"port {port} of the loopback"

    async def _reload_files(self) -> None:
        """Adopt settings and kernels as they are now; wrong ones change nothing."""
        self._manager.say("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        before = self._state.settings
        try:
            config = await asyncio.to_thread(load_config, self._options)
        except TunerError as error:
            self._note("daemon.toml", error, "what was read before is in force")
        else:
            self._state.troubles["daemon.toml"] = _needs_restart(before, config.settings)
            self._watch = config.watch
            await self._ask_devices()
            await self._adopt(config)
            if any(getattr(before, table) != getattr(config.settings, table) for table in _SERVER_TABLES):
                await self._renew_front_end()
            _LOG.info("settings and kernels are read again")
        self._manager.say("READY=1", self._status())

    async def _handle_changes(self) -> None:
        """Adopt changes of kernels and drivers, on which stored answers depend."""
        changes = await asyncio.to_thread(self._watch.look)
        config = await self._reload_kernels() if changes.sources else None
        devices = changes.devices
        if config is not None:
            devices = devices or (await asyncio.to_thread(self._watch.look)).devices
            self._watch = config.watch
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

    async def _reload_kernels(self) -> LoadedConfig | None:
        """Read the kernels again; None where they cannot be used."""
        _LOG.info("kernel files have changed")
        try:
            return await asyncio.to_thread(load_kernels, self._state.settings)
        except TunerError as error:
            self._note("kernels", error, "those read before are known")
            return None

    async def _ask_devices(self) -> None:
        """Identify devices again, except those on which a job runs."""
        known = self._state.devices
        survey = await self._gpus.ask(known, [device for device in known if self._service.runs(device)])
        self._count_clocks(survey)
        identities = self._state.identities
        self._state.troubles["devices"] = list(survey.missing)
        identities.update({spec: one for spec, one in survey.identities.items() if spec in identities})
        new = [spec for spec in survey.identities if spec not in identities]
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
            self._metrics.clock_not_restored(gpu)

    async def _adopt(self, config: LoadedConfig) -> None:
        self._state.adopt(config)
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

    async def _check_users(self, device: str, ours: int, *, our_load: bool = False) -> Contention:
        if not ours:
            self._analyst.leave(device)
        # not bound once: new settings replace it
        return await self._monitor.look(device, ours, our_load=our_load)

    def _may_open(self, device: str) -> bool:
        return self._service.idle(device)

    async def _remember(self, key: str, document: Mapping[str, Any]) -> None:
        """Use and store an analytical answer."""
        self._answerer.remember({key: document})
        await self._storage.insist(lambda db: db.ledger.remember_analytical(key, document))

    def _new_contention_monitor(self) -> ContentionMonitor:
        idle, identities = self._state.settings.idle, self._state.identities
        uuids = {device: identity.uuid for device, identity in identities.items()}
        return ContentionMonitor(uuids, others_allowed=idle.others_allowed, busy_percent=idle.busy_percent)

    def _tell_manager(self) -> None:
        status = self._status()
        if status != self._reported_status:
            self._reported_status = status
            self._manager.say(status)

    def _status(self) -> str:
        return f"STATUS={self._service.summary()}"


def _needs_restart(before: Settings, after: Settings) -> list[str]:
    """What is in the file and not in force."""
    return ["[service] is in force after a restart"] if before.service != after.service else []


def _spare_the_collector() -> None:
    """Keep what exists at the start out of garbage collections.

    A full collection takes 70 ms with it, in which nobody is answered, and every few thousand connections
    bring one about.
    """
    gc.collect()
    gc.freeze()
