"""What a worker of a pool holds: one open measurement setup, kept from trial to trial. Runs in the worker."""

import platform
import threading
from collections.abc import Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from tuner.kernel_files.package_build import PackageBuild, own_build
from tuner.model.device import DeviceIdentity, DeviceLimits
from tuner.model.errors import PoolError
from tuner.pool.worker_process import own_device
from tuner.power.base import SpentEnergy
from tuner.search.request import Request
from tuner.search.setup import MeasurementSetup, open_setup

IDLE_S = 120.0
"""Time without a call after which the GPU and its clocks are given back: the driver may be gone."""

_GIVE_UP_S = 10.0  # until a trial that was aborted has ended
_MARGIN_S = 900.0  # beyond the trial's time-out: opening a GPU, compiling, making what is right


@dataclass(frozen=True)
class SetupOrder:
    """What a worker opens.

    Attributes:
        run: the driver's name at the scheduler.
        request: whose objective, sensor and window the measuring follows.
        device: what is opened; empty for the worker's own.
        clock_s: where a virtual clock goes on, of the process that was lost in whose place this one is.
        build: of the driver.
    """

    run: str
    request: Request
    device: str = ""
    clock_s: float = 0.0
    build: PackageBuild = field(default_factory=own_build)

    @property
    def lease_s(self) -> float:
        """How long a call may take: the worker ends what hangs by itself, unless it hangs too."""
        return max(1, len(self.request.workloads)) * (self.request.trial_timeout_s + _MARGIN_S)


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker is, and what it has opened.

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
    """What a worker has done since it opened its setup.

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
    """What a call gave, and the worker's totals behind it.

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
                return Answer(_facts(setup), self._totals(setup), self._count)
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


_HELD = _HeldSetup()  # a worker process is there to hold it


def describe_setup(order: SetupOrder, living: Collection[str]) -> Answer:
    """Open the setup of a run in this process; the value is a `WorkerFacts`.

    Args:
        order: of the run.
        living: the runs that the scheduler knows; that of any other is closed.

    Raises:
        PoolError: another run has the worker.
        TunerError: as ``open_setup``.
    """
    return _HELD.facts(order, living)


def call_setup(order: SetupOrder, owner: str, method: str, *args: object) -> Answer:
    """Call a method of the open device or measurer, opened again where it was given back.

    Args:
        order: of the run.
        owner: ``device`` or ``measurer``.
        method: of it.
        args: of the method.
    """
    return _HELD.call(order, owner, method, args)


def release_setup(living: Collection[str]) -> None:
    """Close the setup in this process, for work that opens the GPU itself.

    Args:
        living: the runs that the scheduler knows.

    Raises:
        PoolError: one of them has the worker.
    """
    _HELD.release(living)


def stop_setup(run: str) -> None:
    """Close the setup of a run in this process, whatever it does."""
    _HELD.stop(run)


def close_setup() -> None:
    """Close the setup in this process, whatever run it is of and whatever it does."""
    _HELD.stop()


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


def _facts(setup: MeasurementSetup) -> WorkerFacts:
    return WorkerFacts(
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
