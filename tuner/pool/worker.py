"""The worker's side of a pool: its process, its measurement setup, and the jobs that it runs whole."""

import asyncio
import contextlib
import logging
import os
import platform
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner.kernel_files.source_folder import PackageBuild, own_build
from tuner.model.errors import InputError, PoolError
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.pool.places import require_certificates
from tuner.power.base import SpentEnergy
from tuner.search.job_launcher import BlockingLauncher
from tuner.search.job_messages import AttemptResult, AttemptSpec
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.system.ownership import owned_folder
from tuner.system.processes import Child
from tuner.system.untrusted.reading import RUN_BYTES, shown_bytes

# --- A worker process of a pool: how it is started, whoever starts it.

DEVICE_VARIABLE = "TUNER_WORKER_DEVICE"
"""Environment variable of a worker process: the device that it owns; unset for the first GPU that it sees."""

SETTINGS: dict[str, Any] = {
    "distributed.nanny.pre-spawn-environ": {},  # Dask's own would give stages on the CPU one thread
    "distributed.worker.memory.terminate": False,  # a worker is not killed for a workload's arrays
    "distributed.worker.memory.pause": False,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Configuration of Dask while a pool's processes are started."""

_GONE_S = 20.0  # without a scheduler, until a worker ends
_AGAIN_S = 0.5
START_S = 180.0
"""Time limit for the start of a worker process on a busy host, in s."""

_MOST_FAILURES = 3  # in a row
_SECRETS = "DASK_DISTRIBUTED__COMM__TLS__"
_ROLES = ("WORKER", "SCHEDULER", "CLIENT")


def own_device(asked: str = "") -> str:
    """The device that this worker process owns.

    Args:
        asked: by the run, for simulated devices; empty where it asks for none.
    """
    return asked or os.environ.get(DEVICE_VARIABLE) or "cuda:0"


def worker_options(folder: str, device: str, common: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a worker's guard process (Dask's nanny), which starts it anew when it dies.

    Args:
        folder: for files of Dask.
        device: that it owns; empty for the first GPU that it sees.
        common: options that schedulers have too: addresses, and TLS.
    """
    import dask  # noqa: PLC0415 - only where a pool is used

    return {
        **common,
        "nthreads": 1,
        "resources": {"GPU": 1},
        "memory_limit": 0,
        "local_directory": folder,
        "silence_logs": logging.CRITICAL,
        "preload": [*dask.config.get("distributed.worker.preload", []), "tuner.pool.worker"],
        "env": {DEVICE_VARIABLE: device} if device else {},
    }


def certificates_in_environment(security: Any) -> dict[str, str]:  # noqa: ANN401 - Dask's
    """Environment variables by which Dask's processes get certificates; other users cannot read them.

    Args:
        security: ``Security.temporary()``.
    """
    cert, key = security.tls_worker_cert, security.tls_worker_key
    of_roles = {f"{role}__{what}": text for role in _ROLES for what, text in (("CERT", cert), ("KEY", key))}
    return {f"{_SECRETS}{name}": text for name, text in {"CA_FILE": security.tls_ca_file, **of_roles}.items()}


def serve(address: str, device: str = "") -> None:
    """Be a worker of a scheduler until that has gone; a broken connection is made again.

    Args:
        address: ``tls://HOST:PORT``. Certificates are those of Dask's configuration.
        device: see ``worker_options``.

    Raises:
        InputError: there are no certificates.
        PoolError: no worker can be started.
    """
    import dask  # noqa: PLC0415 - only where a pool is used
    from distributed import Security  # noqa: PLC0415 - as above

    require_certificates("tuner worker", "worker")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    security = Security()
    for name in [name for name in os.environ if name.startswith(_SECRETS)]:
        del os.environ[name]  # programs that are tuned need no keys
    with dask.config.set(SETTINGS), owned_folder("tuner-worker-") as folder:
        asyncio.run(_serve(address, worker_options(folder, device, _listening(address, security))))


def _listening(address: str, security: Any) -> dict[str, Any]:  # noqa: ANN401 - Dask's
    """Return the listening options of a worker, on the interface that leads to its scheduler."""
    from distributed.comm.addressing import get_address_host  # noqa: PLC0415 - only where a pool is used
    from distributed.utils import get_ip  # noqa: PLC0415 - as above

    host = get_ip(get_address_host(address))
    return {
        "host": host,
        "protocol": "tls",
        "security": security,
        "dashboard": False,
        "dashboard_address": f"{host}:0",
    }


async def _serve(address: str, options: dict[str, Any]) -> None:
    """Keep a worker process alive as long as the scheduler answers, or until a signal comes."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    failures = 0
    while await _answers(address, stopped):
        problem = await _worker(address, options, stopped)
        failures = 0 if problem is None else failures + 1
        if failures == _MOST_FAILURES:
            raise PoolError(f"no worker of {address} can be started: {problem!r}") from problem


async def _worker(address: str, options: dict[str, Any], stopped: asyncio.Event) -> Exception | None:
    """One worker process, started anew when it dies, until it loses its scheduler or is stopped.

    Returns:
        Why it could not be started; None where it was.
    """
    from distributed import Nanny  # noqa: PLC0415 - only where a pool is used

    try:
        async with Nanny(address, death_timeout=START_S, **options) as nanny:
            ends = [asyncio.ensure_future(nanny.finished()), asyncio.ensure_future(stopped.wait())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
    except Exception as error:  # noqa: BLE001 - Dask's way out of a start that failed has many forms
        return error
    return None


async def _answers(address: str, stopped: asyncio.Event) -> bool:
    """Return True if an address accepts a connection within some seconds; give up when it is stopped."""
    host, _, port = address.partition("://")[2].rpartition(":")
    until = time.monotonic() + _GONE_S
    while not stopped.is_set() and (left_s := until - time.monotonic()) > 0:
        with suppress(OSError, asyncio.TimeoutError):
            connecting = asyncio.open_connection(host.strip("[]"), int(port))
            _, writer = await asyncio.wait_for(connecting, left_s)
            writer.close()
            return True
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(stopped.wait(), _AGAIN_S)
    return False


# --- The measurement setup that a worker holds open for a run.

IDLE_S = 120.0
"""Time without a call after which the GPU and its clocks are given back: the driver may be gone."""

_GIVE_UP_S = 10.0  # until a trial that was aborted has ended
_MARGIN_S = 900.0  # beyond the trial's time-out: opening a GPU, compiling, making what is right


@dataclass(frozen=True)
class SetupOrder:
    """Order to a worker to open a setup.

    Attributes:
        run: the driver's name at the scheduler.
        request: whose objective, sensor and window the measuring follows.
        device: what is opened; empty for the worker's own.
        clock_s: where a virtual clock goes on, of the process that was lost in whose place this one is.
        build: of the driver.
    """

    run: str
    request: SearchRequest
    device: str = ""
    clock_s: float = 0.0
    build: PackageBuild = field(default_factory=own_build)

    @property
    def lease_s(self) -> float:
        """Time limit of a call, in s: the worker itself ends a call that hangs, unless it hangs too."""
        return max(1, len(self.request.workloads)) * (self.request.trial_timeout_s + _MARGIN_S)


@dataclass(frozen=True)
class WorkerFacts:
    """Properties of a worker and of its open setup.

    Attributes:
        host: its name.
        identity: of its GPU.
        limits: of its GPU.
        free_memory_bytes: of its GPU.
        clocks_mhz: clocks that can be set; None where there is no clock control.
        no_clocks: why there is none.
        power_limits_w: power limits that can be set; None where there is no control, or none was asked for.
        no_power_limits: why there is none.
        window_s: measuring window of a trial.
        sensor: power reading; None where no energy is measured.
        notices: what the user should know.
    """

    host: str
    identity: DeviceIdentity
    limits: DeviceLimits | None
    free_memory_bytes: int
    clocks_mhz: tuple[int, ...] | None
    no_clocks: str
    power_limits_w: tuple[int, ...] | None
    no_power_limits: str
    window_s: float
    sensor: str | None
    notices: tuple[str, ...]


@dataclass(frozen=True)
class WorkerTotals:
    """Totals of a worker since it opened its setup.

    Attributes:
        now_s: on its device's clock.
        windows_s: length of all windows.
        spent: joules; None where nobody tells.
        notices: what its measurer says.
    """

    now_s: float = 0.0
    windows_s: float = 0.0
    spent: SpentEnergy | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """Result of a call, and the worker's totals after it.

    Attributes:
        value: what the method returned.
        totals: of the setup that it was called in.
        setup: counts the setups of this process: another one begins its totals anew.
    """

    value: Any
    totals: WorkerTotals
    setup: int


class _HeldSetup:
    """The setup of this process, opened when it is needed and closed when it is not."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._stack = ExitStack()
        self._setup: MeasurementSetup | None = None
        self._run = ""
        self._count = 0
        self._clock_s = 0.0
        self._timer: threading.Timer | None = None

    def call(self, order: SetupOrder, owner: str, method: str, args: tuple[object, ...]) -> Answer:
        """Call a method of the setup's device or measurer."""
        with self._lock:
            try:
                setup = self._opened(order)
                value = getattr(getattr(setup, owner), method)(*args)
                return Answer(value, self._totals(setup), self._count)
            finally:
                self._watch()

    def facts(self, order: SetupOrder, living: Collection[str]) -> Answer:
        """Open the setup, in the place of that of a run that lives no more, and say what it is."""
        with self._lock:
            try:
                if self._run != order.run and self._run not in living:
                    self._close()
                setup = self._opened(order)
                facts = WorkerFacts(
                    host=platform.node(),
                    identity=setup.device.identity,
                    limits=setup.device.limits,
                    free_memory_bytes=setup.device.free_memory_bytes(),
                    clocks_mhz=None if setup.clocks is None else setup.clocks.supported_mhz(),
                    no_clocks=setup.no_clocks,
                    power_limits_w=None if setup.power_limits is None else setup.power_limits.supported_w(),
                    no_power_limits=setup.no_power_limits,
                    window_s=setup.window_s,
                    sensor=setup.sensor,
                    notices=setup.notices,
                )
                return Answer(facts, self._totals(setup), self._count)
            finally:
                self._watch()

    def release(self, living: Collection[str]) -> None:
        """Close the setup, unless it is of a run that lives."""
        with self._lock:
            if self._setup is not None and self._run in living:
                raise _taken()
            self._close()

    def stop(self, run: str = "") -> None:
        """Close the setup of a run, or of any, at once; a trial that is being measured is aborted."""
        setup = self._setup
        if setup is None or (run and self._run != run):
            return
        with suppress(Exception):  # it is closed in any case
            setup.device.abort()
        if self._lock.acquire(timeout=_GIVE_UP_S):
            try:
                self._close()
            finally:
                self._lock.release()

    def _opened(self, order: SetupOrder) -> MeasurementSetup:
        check_driver(vars(order).get("build"))
        if self._setup is not None and self._run != order.run:
            raise _taken()
        if self._setup is None:
            if self._run != order.run:
                self._run, self._clock_s = order.run, order.clock_s
            with ExitStack() as stack:
                setup = stack.enter_context(open_setup(own_device(order.device), order.request))
                setup.device.resume_at(self._clock_s)  # of this run before it was given back
                self._stack = stack.pop_all()
            self._setup, self._count = setup, self._count + 1
        return self._setup

    def _totals(self, setup: MeasurementSetup) -> WorkerTotals:
        self._clock_s = setup.device.now_s()
        measurer = setup.measurer
        return WorkerTotals(self._clock_s, measurer.windows_s, measurer.spent(), measurer.notices)

    def _watch(self) -> None:
        """Close the setup when no call comes for some time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(IDLE_S, self._expire)
        self._timer.daemon = True
        self._timer.start()

    def _expire(self) -> None:
        with self._lock:
            if self._timer is threading.current_thread():  # else a call came meanwhile
                self._close()

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._setup = None
        self._stack.close()


_HELD_SETUP = _HeldSetup()  # a worker process is there to hold it


def describe_setup(order: SetupOrder, living: Collection[str]) -> Answer:
    """Open the setup of a run in this process; the value is a `WorkerFacts`.

    Args:
        order: of the run.
        living: the runs that the scheduler knows; that of any other is closed.

    Raises:
        PoolError: another run has the worker.
        TunerError: as ``open_setup``.
    """
    return _HELD_SETUP.facts(order, living)


def call_setup(order: SetupOrder, owner: str, method: str, *args: object) -> Answer:
    """Call a method of the open device or measurer, opened again where it was given back.

    Args:
        order: of the run.
        owner: ``device`` or ``measurer``.
        method: of it.
        args: of the method.
    """
    return _HELD_SETUP.call(order, owner, method, args)


def release_setup(living: Collection[str]) -> None:
    """Close the setup in this process, for work that opens the GPU itself.

    Args:
        living: the runs that the scheduler knows.

    Raises:
        PoolError: one of them has the worker.
    """
    _HELD_SETUP.release(living)


def stop_setup(run: str) -> None:
    """Close the setup of a run in this process, whatever it does."""
    _HELD_SETUP.stop(run)


def check_driver(build: PackageBuild | None) -> None:
    """Refuse to measure for a driver whose package is another one.

    Args:
        build: of the driver; None where it told none.

    Raises:
        PoolError: it is another.
    """
    if why := own_build().misfit(build):
        raise PoolError(f"the worker on {platform.node()} does not measure for this driver: {why}")


def _taken() -> PoolError:
    return PoolError("it measures for another run; wait until that has ended")


# --- What Dask runs in a worker process of a pool when it begins and when it ends.


def dask_setup(_worker: Any) -> None:  # noqa: ANN401 - Dask's
    """Leave Ctrl-C to the driver, whose terminal tells all its processes; note which package this is."""
    own_build()  # as it is on the disk while it is imported
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def dask_teardown(_worker: Any) -> None:  # noqa: ANN401 - Dask's
    """Give back GPU and clocks, whatever run has them and whatever it does."""
    _HELD_SETUP.stop()


# --- Work of a worker that is a whole and not a trial, in processes of its own. Runs in the worker.
#
# What may hang or crash ends with its process, and the worker lives on.

_GRACE_S = 30.0  # for work to end in order: clocks are restored by then
_FILE_BYTES = 2 * RUN_BYTES  # indices and empty pages beside the run


@dataclass(frozen=True)
class WorkOrder:
    """Order to a worker for work in a process of its own.

    Attributes:
        run: what the work is part of; it can be stopped as a whole.
        silence_s: work without an answer or a sign of life for so long is killed.
        bytes_limit: of a job's database file, which is sent.
        build: of the driver.
    """

    run: str
    silence_s: float = 3600.0
    bytes_limit: int = _FILE_BYTES
    build: PackageBuild = field(default_factory=own_build)


@dataclass(frozen=True)
class EndedJob:
    """A job that has ended on a worker.

    Attributes:
        result: how it ended.
        database: content of the file with its run; empty where it has none to show.
    """

    result: AttemptResult
    database: bytes = b""


class _Work:
    """The work of this process: one thing at a time, which can be stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._launcher: BlockingLauncher | None = None
        self._run = ""
        self._stopped = ""
        self._end: Callable[[], None] = lambda: None

    def ask(self, order: WorkOrder, server: tuple[object, ...], method: str, args: tuple[object, ...]) -> Any:  # noqa: ANN401 - the server's
        """See ``ask_child``."""
        with self._begun(order):
            name, *arguments = server
            with Child(str(name), *arguments, name="a job of the pool") as child:
                self._may_end(order, lambda: os.kill(child.pid, signal.SIGTERM))
                return child.call(method, *args, timeout_s=order.silence_s)

    def job(self, order: WorkOrder, spec: AttemptSpec) -> EndedJob:
        """See ``run_job``."""
        with (
            self._begun(order),
            tempfile.TemporaryDirectory(prefix="job-", dir=_scratch(), ignore_cleanup_errors=True) as folder,
        ):
            database = Path(folder) / "job.db"
            placed = replace(spec.job_spec, device=own_device(spec.job_spec.device))
            launcher = self._launcher = self._launcher or BlockingLauncher()
            process = launcher.start(replace(spec, job_spec=placed, database=database), order.silence_s)
            self._may_end(order, lambda: launcher.stop(process, _GRACE_S))
            result = launcher.result(process)
            if not result.whole or result.run is None:
                return EndedJob(result)
            size = database.stat().st_size
            if size > order.bytes_limit:
                raise InputError(
                    f"its database file has {shown_bytes(size)}, and at most {shown_bytes(order.bytes_limit)}"
                    " are sent; use --on local, or a smaller budget"
                )
            return EndedJob(result, database.read_bytes())

    def stop(self, run: str) -> None:
        """See ``stop_work``."""
        self._stopped = run
        if self._run == run:
            with contextlib.suppress(ProcessLookupError):
                self._end()

    @contextlib.contextmanager
    def _begun(self, order: WorkOrder) -> Iterator[None]:
        """Do nothing else meanwhile, and nothing for a run that was stopped."""
        with self._lock:
            if self._stopped == order.run:
                raise PoolError("the run was stopped")
            try:
                yield
            finally:
                self._run = ""

    def _may_end(self, order: WorkOrder, end: Callable[[], None]) -> None:
        """Have ``stop`` end what runs now."""
        self._end, self._run = end, order.run
        if self._stopped == order.run:  # while it was started
            end()


def _scratch() -> str | None:
    """Return the folder for files of this worker, deleted when the pool ends; None outside of a worker."""
    from distributed import get_worker  # noqa: PLC0415 - only where a pool is used

    try:
        return str(get_worker().local_directory)
    except ValueError:
        return None


_WORK = _Work()  # a worker process is there to do it


def ask_child(
    order: WorkOrder, living: Collection[str], server: tuple[object, ...], method: str, *args: object
) -> Any:  # noqa: ANN401 - of the method
    """Call a method of a server in a child of this process.

    Args:
        order: whose work it is.
        living: the runs that the scheduler knows; none of them may have this worker's setup open.
        server: ``module:callable`` that builds it in the child, and the callable's arguments.
        method: of the server.
        args: of the method, picklable.

    Raises:
        PoolError: a run has the worker, this one was stopped, or the driver has another package.
        ChildError: the child crashed, or was killed as it hung.
        TunerError: what the method raised.
    """
    check_driver(vars(order).get("build"))
    release_setup(living)
    return _WORK.ask(order, server, method, args)


def run_job(order: WorkOrder, living: Collection[str], spec: AttemptSpec) -> EndedJob:
    """Run a job in a process of its own, on this worker's GPU and into a database of its own.

    Args:
        order: whose work it is.
        living: see ``ask_child``.
        spec: its device is what the run asks for, see ``own_device``.

    Raises:
        PoolError: as of ``ask_child``.
        ChildError: no process can be started.
        InputError: the database file is larger than what is sent.
    """
    check_driver(vars(order).get("build"))
    release_setup(living)
    return _WORK.job(order, spec)


def stop_work(run: str) -> None:
    """End what this process does for a run in processes of its own, in order; does not wait for it."""
    _WORK.stop(run)
