"""The worker: a child process with the CUDA context, and its proxy device in this process.

A candidate that hangs, crashes or corrupts its context costs one result: the child is killed and the next
call starts another. Everything that crosses is a plain value.
"""

import contextlib
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, NamedTuple

from tuner.compiler import Compiler
from tuner.compiler.compiler import plan_resources
from tuner.devices.cuda.probe import driver_problem
from tuner.devices.gpus import gpu_names
from tuner.devices.replay import PREFIX, ReplayDevice
from tuner.devices.sensors import open_clocks, open_meter
from tuner.devices.simulated import SimulatedDevice
from tuner.errors import (
    ChildCrashedError,
    ChildError,
    ChildTimeoutError,
    CompileError,
    CompilerUnavailableError,
    DeviceError,
    DeviceUnavailableError,
    UncheckableError,
    UnknownNameError,
)
from tuner.interfaces import Check, Device, Progress, RunRecord
from tuner.model import DeviceIdentity, DeviceLimits, Plan, Resources, Status, Workload, WorkloadResult
from tuner.recordings.opening import SHIPPED
from tuner.system.process import Child

_LOG = logging.getLogger(__name__)
_CUDA = re.compile(r"cuda(?::(\d+))?")
_FALLBACK = "jetson-tx1"
_START_S = 180.0  # opening a context, and CuPy's first compilations
_ASK_S = 30.0
_REFERENCE_S = 600.0  # a reference is made once, by whatever the user has written
_STATED = ("expression", "function", "entry")


class WorkerDevice:
    """A device in a worker process; implements ``tuner.interfaces.Device``.

    The hosted device must keep the system's monotonic clock, which all processes share.

    Args:
        spec: ``cuda:N``; what messages call the device.
        target: ``module:callable`` that builds the hosted device; the CUDA device of the spec if not given.
        args: of the callable.
        run_timeout_s: longest wait for a check, and for a run beyond its window (the multi-kernel paper:
            one minute).
        compiler: compiles for the device; opened when first needed if None.

    Raises:
        DeviceUnavailableError: the device cannot be opened; the message says what is missing.
        CompilerUnavailableError: no NVRTC compiles for it.
    """

    def __init__(
        self,
        spec: str,
        *,
        target: str = "",
        args: tuple[object, ...] = (),
        run_timeout_s: float = 60.0,
        compiler: Compiler | None = None,
    ) -> None:
        self._spec = spec
        self._server = (
            (target, *args) if target else ("tuner.devices.cuda.device:CudaDevice", _cuda_index(spec))
        )
        self._run_timeout_s = run_timeout_s
        self._compiler = compiler
        self._opening = threading.Lock()
        self._own_compiler = compiler is None
        self._child: Child | None = None
        self._closed = False
        self._prepared: set[tuple[Workload, int]] = set()
        self._identity, self._limits = self._start()

    @property
    def identity(self) -> DeviceIdentity:
        """See ``Device.identity``."""
        return self._identity

    @property
    def limits(self) -> DeviceLimits:
        """See ``Device.limits``."""
        return self._limits

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None while there is none."""
        return self._child.pid if self._child is not None and self._child.alive else None

    def resources(
        self, plans: Sequence[Plan], progress: Progress | None = None
    ) -> list[tuple[Resources, ...] | CompileError]:
        """See ``Device.resources``; compiled from this process, found by the worker in the cache on disk.

        Raises:
            DeviceError: the device is closed.
        """
        with self._opening:
            if self._closed:
                raise DeviceError(f"{self._spec}: the device is closed")
            if self._compiler is None:
                self._compiler = Compiler(self._limits.architecture)
        return plan_resources(self._compiler, plans, progress)

    def check(self, plan: Plan, seed: int) -> Check:
        """See ``Device.check``; a time-out or a crash is a status, and the worker is replaced.

        Raises:
            UncheckableError: what the user states to be right cannot be made.
        """
        if plan.problem.name in _STATED:
            self._prepare(plan, seed)
        begun = self.now_s()
        answer = self._attempt("check", plan, seed, timeout_s=self._run_timeout_s)
        if isinstance(answer, _LostProcess):
            return Check(answer.status, answer.detail, self.now_s() - begun)
        check: Check = answer
        if check.status is Status.CRASHED:
            self._drop()
        return check

    def _prepare(self, plan: Plan, seed: int) -> None:
        """Let the worker make a reference, once; a function of the user's may take longer than a check."""
        child, key = self._running(), (plan.workload, seed)
        if key in self._prepared:
            return
        try:
            child.call("prepare", plan, seed, timeout_s=_REFERENCE_S)
        except ChildTimeoutError as error:
            self._drop()
            raise UncheckableError(
                f"{plan.workload}: the reference was not made within {_REFERENCE_S:g} s"
            ) from error
        except ChildCrashedError as error:
            self._drop()
            raise UncheckableError(f"{plan.workload}: the reference cannot be made: {error}") from error
        self._prepared.add(key)

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        """See ``Device.run``; a time-out or a crash is the status of all, and the worker is replaced."""
        begun = self.now_s()
        timeout_s = self._run_timeout_s + window_s
        answer = self._attempt("run", tuple(plans), window_s, timeout_s=timeout_s)
        if isinstance(answer, _LostProcess):
            results = tuple(WorkloadResult(answer.status, detail=answer.detail) for _ in plans)
            return RunRecord(results, start_s=begun, end_s=self.now_s())
        record: RunRecord = answer
        if any(result.status is Status.CRASHED for result in record.results):
            self._drop()
        return record

    def pulse(self, pulses: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """See ``LoadSource.pulse``.

        Raises:
            DeviceError: the worker does not answer.
        """
        timeout_s = self._run_timeout_s + sum(busy_s + idle_s for busy_s, idle_s in pulses)
        played: list[tuple[float, float]] = self._ask("pulse", tuple(pulses), timeout_s=timeout_s)
        return played

    def free_memory_bytes(self) -> int:
        """See ``Device.free_memory_bytes``.

        Raises:
            DeviceError: the worker does not answer.
        """
        free_bytes: int = self._ask("free_memory_bytes", timeout_s=_ASK_S)
        return free_bytes

    def now_s(self) -> float:
        """The system's monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See ``Device.sleep``."""
        time.sleep(seconds)

    def resume_at(self, ended_s: float) -> None:
        """See ``Device.resume_at``: the monotonic clock goes its own way."""

    def own_processes(self) -> int:
        """See ``Device.own_processes``: the worker, while there is one."""
        return int(self.pid is not None)

    def abort(self) -> None:
        """See ``Device.abort``: the worker is killed, as a candidate in it may hang."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the worker; may be called again."""
        with self._opening:
            self._closed = True
        self._drop()
        if self._own_compiler and self._compiler is not None:
            self._compiler.close()

    def _ask(self, method: str, *args: object, timeout_s: float) -> Any:  # noqa: ANN401 - the method's answer
        """Call the worker for what it must be able to answer."""
        try:
            return self._running().call(method, *args, timeout_s=timeout_s)
        except ChildError as error:
            self._drop()
            raise DeviceError(f"{self._spec}: {error}") from error

    def _attempt(self, method: str, *args: object, timeout_s: float) -> "Any | _LostProcess":  # noqa: ANN401
        """Call the worker; what takes it down is told, not raised."""
        child = self._running()
        try:
            return child.call(method, *args, timeout_s=timeout_s)
        except ChildTimeoutError:
            lost = _LostProcess(Status.TIMEOUT, f"no answer within {timeout_s:g} s; the worker was killed")
        except ChildCrashedError as error:
            lost = _LostProcess(Status.CRASHED, str(error))
        _LOG.debug("%s: %s: %s", self._spec, method, lost.detail)
        self._drop()
        return lost

    def _running(self) -> Child:
        if self._child is None or not self._child.alive:
            self._start()
        if self._child is None:
            raise DeviceError(f"{self._spec}: the worker did not start")
        return self._child

    def _start(self) -> tuple[DeviceIdentity, DeviceLimits]:
        if self._closed:
            raise DeviceError(f"{self._spec}: the device is closed")
        self._drop()
        child = Child(
            "tuner.devices.device_server:DeviceServer", *self._server, name=f"worker of {self._spec}"
        )
        try:
            described: tuple[DeviceIdentity, DeviceLimits] = child.call("describe", timeout_s=_START_S)
        except ChildError as error:
            child.close(grace_s=0.0)
            raise DeviceUnavailableError(f"{self._spec}: the worker cannot be started: {error}") from error
        except BaseException:
            child.close(grace_s=0.0)
            raise
        self._child = child
        return described

    def _drop(self) -> None:
        child, self._child = self._child, None
        self._prepared.clear()
        if child is not None:
            child.close()


@dataclass(frozen=True)
class _LostProcess:
    """A call that took the worker down."""

    status: Status
    detail: str


# --- choosing a device ---------------------------------------------------------------------------


class OpenedDevice(NamedTuple):
    """A device, and what the user should know of how it was chosen (empty when there is nothing)."""

    device: Device
    notice: str


def open_device(
    spec: str | None = None, seed: int = 0, *, run_timeout_s: float = 60.0, workloads: Sequence[str] = ()
) -> OpenedDevice:
    """Open a device by name; without one, a GPU that answers, else ``sim:jetson-tx1`` with a notice.

    Args:
        spec: ``cuda:N``, ``sim:NAME``, ``replay:NAME``, ``replay:FILE`` or None.
        seed: of a simulated device's noise.
        run_timeout_s: see ``WorkerDevice``.
        workloads: that will run together: a recording has their space, and no other.

    Raises:
        InputError: a recording cannot be used, or is of other workloads.
        UnknownNameError: no such kind of device or no such simulated GPU.
        DeviceUnavailableError: the GPU named cannot be opened.
        CompilerUnavailableError: no NVRTC compiles for the GPU named.
    """
    if spec is None:
        return _open_any(seed, run_timeout_s)
    if spec.startswith("sim:"):
        return OpenedDevice(SimulatedDevice(spec, seed), "")
    if spec.startswith(PREFIX):
        return OpenedDevice(ReplayDevice(spec, workloads), "")
    return OpenedDevice(WorkerDevice(f"cuda:{_cuda_index(spec)}", run_timeout_s=run_timeout_s), "")


def _open_any(seed: int, run_timeout_s: float) -> OpenedDevice:
    why = driver_problem()
    if why is None:
        try:
            return OpenedDevice(WorkerDevice("cuda:0", run_timeout_s=run_timeout_s), "")
        except (DeviceUnavailableError, CompilerUnavailableError) as error:
            why = str(error)
    notice = f"no GPU answers ({why}): sim:{_FALLBACK} stands in, and every number is modelled"
    return OpenedDevice(SimulatedDevice(_FALLBACK, seed), notice)


def _cuda_index(spec: str) -> int:
    match = _CUDA.fullmatch(spec)
    if match is None:
        simulated = ", ".join(f"sim:{name}" for name in gpu_names())
        raise UnknownNameError(
            f"unknown device {spec!r}; choose cuda:N or one of {simulated}, or replay:h200, or replay:FILE"
        )
    return int(match[1] or 0)


@dataclass(frozen=True)
class DeviceReport:
    """One line of ``tuner devices``.

    Attributes:
        spec: how the user names it; ``cuda`` where no GPU can be told from another.
        identity: who it is; None where it cannot be opened.
        limits: its limits; None where it cannot be opened.
        clocks_mhz: GPU clocks that can be locked, highest first.
        sensor: its power reading and what that sees; empty where there is none.
        missing: what is missing, and why; empty where nothing is.
    """

    spec: str
    identity: DeviceIdentity | None = None
    limits: DeviceLimits | None = None
    clocks_mhz: tuple[int, ...] = ()
    sensor: str = ""
    missing: tuple[str, ...] = ()


def describe_devices() -> list[DeviceReport]:
    """All GPUs of this machine, or what is missing to use one, all simulated GPUs, shipped recordings."""
    simulated = (_report(f"sim:{name}") for name in gpu_names())
    return [*_cuda_reports(), *simulated, *(_recorded(f"{PREFIX}{name}") for name in SHIPPED)]


def _cuda_reports() -> list[DeviceReport]:
    why = driver_problem()
    count = 0
    if why is None:
        try:
            with Child("importlib:import_module", "tuner.devices.cuda.probe", name="cuda") as child:
                count = child.call("gpu_count", timeout_s=_START_S)
        except ChildError as error:
            why = str(error)
    if why is not None:
        return [DeviceReport("cuda", missing=(why,))]
    return [_report(f"cuda:{index}") for index in range(max(count, 1))]  # opening one says why there is none


def _report(spec: str) -> DeviceReport:
    with ExitStack() as stack:
        try:
            device = stack.enter_context(closing(open_device(spec).device))
        except (DeviceUnavailableError, CompilerUnavailableError) as error:
            return DeviceReport(spec, missing=(str(error),))
        clocks, no_clocks = open_clocks(device)
        if clocks is not None:
            stack.callback(clocks.close)
        meter, no_meter = open_meter(device, clocks)
        if meter is not None:
            stack.callback(meter.close)
        return DeviceReport(
            spec,
            device.identity,
            device.limits,
            () if clocks is None else clocks.supported_mhz(),
            "" if meter is None else f"{meter.info.name} ({meter.info.scope})",
            tuple(reason for reason in (no_clocks, no_meter) if reason),
        )


def _recorded(spec: str) -> DeviceReport:
    device = ReplayDevice(spec)
    return DeviceReport(spec, device.identity, device.limits, device.space.clocks_mhz, device.space.sensor)


def identify(spec: str | None = None) -> DeviceIdentity:
    """Who a device is, as ``open_device`` would choose it; it is closed again.

    Raises:
        InputError: a recording cannot be used.
        UnknownNameError: no such device.
        DeviceUnavailableError: it cannot be opened.
    """
    device = open_device(spec).device
    try:
        return device.identity
    finally:
        device.close()
