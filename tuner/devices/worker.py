"""The worker: a child process with the CUDA context, and its proxy device in this process.

A candidate that hangs, crashes or corrupts its context costs one result: the child is killed and the next
call starts another. Everything that crosses is a plain value.
"""

import contextlib
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.compiler.compiler import Compiler
from tuner.compiler.contract import plan_resources
from tuner.devices import early
from tuner.devices.base import Check, RunRecord, SystemClock
from tuner.devices.gpu_models import gpu_names
from tuner.model.errors import (
    ChildCrashedError,
    ChildError,
    ChildTimeoutError,
    CompileError,
    DeviceError,
    DeviceUnavailableError,
    UncheckableError,
    UnknownNameError,
    suggestion,
)
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.plan import Plan, ProblemSpec, Progress, Resources, Source, Workload
from tuner.model.trial import Status, WorkloadResult
from tuner.system.processes import Child

_LOG = logging.getLogger(__name__)
_START_S = 180.0  # opening a context, and CuPy's first compilations
_ASK_S = 30.0
REFERENCE_S = 600.0  # a reference is made once, by whatever the user has written
_STATED = ("expression", "function", "entry")


class WorkerDevice(SystemClock):
    """A device in a worker process; implements ``tuner.devices.base.Device``.

    Its methods call those of the hosted device by name. That one must keep the system's monotonic clock,
    which all processes share.

    Attributes:
        verifier: judges in this process, by a run of its own, what a check found right; None for no such
            judgement.

    Args:
        spec: ``cuda:N``; what messages call the device.
        target: ``module:callable`` that builds the hosted device, which answers ``describe`` and what else
            is asked here; that of ``tuner.devices.cuda.opening`` for the spec if not given.
        args: of the callable.
        run_timeout_s: longest wait for a check, and for a run beyond its window (the multi-kernel paper:
            one minute).
        reference_s: longest wait for a reference.

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
        reference_s: float = REFERENCE_S,
    ) -> None:
        self._spec = spec
        self._reference_s = reference_s
        self._target = target or early.TARGET
        self._args = args if target else (cuda_index(spec),)
        self._run_timeout_s = run_timeout_s
        self._compiler: Compiler | None = None  # opened when first needed
        self._opening = threading.Lock()
        self._child: Child | None = None
        self._closed = False
        self._prepared: set[tuple[Workload, ProblemSpec, int]] = set()
        self.verifier: Callable[[Plan, int], Check] | None = None
        self.identity, self.limits = self._start()

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None while there is none."""
        return self._child.pid if self._child is not None and self._child.alive else None

    def resources(
        self, plans: Sequence[Plan], progress: Progress | None = None
    ) -> list[tuple[Resources, ...] | CompileError]:
        """Compile from this process; the worker finds the code in the cache on disk.

        Raises:
            DeviceError: the device is closed.
        """
        with self._opening:
            if self._closed:
                raise DeviceError(f"{self._spec}: the device is closed")
            if self._compiler is None:
                self._compiler = Compiler(self.limits.architecture)
        return plan_resources(self._compiler, plans, progress)

    def check(self, plan: Plan, seed: int) -> Check:
        """Check in the worker; a time-out or a crash is a status, and the worker is replaced.

        Raises:
            UncheckableError: what the user states to be right cannot be made.
        """
        if plan.problem.name in _STATED:
            self._prepare(plan, seed)
        begun = self.now_s()
        check: Check = self._attempt("check", plan, seed, timeout_s=self._run_timeout_s)
        if check.status is Status.CRASHED:
            self._drop()
        if check.status is Status.OK and self.verifier is not None:
            verdict = self.verifier(plan, seed)
            return Check(verdict.status, verdict.detail or check.detail, self.now_s() - begun)
        return check

    def _prepare(self, plan: Plan, seed: int) -> None:
        """Let the worker make a reference, once; a function of the user's may take longer than a check."""
        child, key = self._running(), (plan.workload, plan.problem, seed)
        if key in self._prepared:
            return
        try:
            child.call("prepare", plan, seed, timeout_s=self._reference_s)
        except ChildTimeoutError as error:
            self._drop()
            raise UncheckableError(
                f"{plan.workload}: the reference was not made within {self._reference_s:g} s"
            ) from error
        except ChildCrashedError as error:
            self._drop()
            raise UncheckableError(f"{plan.workload}: the reference cannot be made: {error}") from error
        self._prepared.add(key)

    def outputs(self, plan: Plan, seed: int, names: Sequence[str]) -> tuple[Check, dict[str, NDArray[Any]]]:
        """Run a plan once on its inputs; the check is ok where it ran, as nothing is compared.

        Returns:
            How it ended, and the buffers as the run left them; none of them where it failed.
        """
        timeout_s = self._run_timeout_s
        with tempfile.TemporaryDirectory(prefix="tuner-outputs-") as folder:
            check: Check = self._attempt("outputs", plan, seed, tuple(names), folder, timeout_s=timeout_s)
            if check.status is Status.CRASHED:
                self._drop()
            if check.status is not Status.OK:
                return check, {}
            return check, {name: np.load(f"{folder}/{name}.npy", allow_pickle=False) for name in names}

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        """Run in the worker; a time-out or a crash is the status of all, and the worker is replaced."""
        return self._run("run", plans, window_s)

    def run_single(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        """Run single rounds in the worker; failures as in ``run``."""
        return self._run("run_single", plans, window_s)

    def _run(self, method: str, plans: Sequence[Plan], window_s: float) -> RunRecord:
        begun = self.now_s()
        timeout_s = self._run_timeout_s + window_s
        answer = self._attempt(method, tuple(plans), window_s, timeout_s=timeout_s)
        if isinstance(answer, Check):
            results = tuple(WorkloadResult(answer.status, detail=answer.detail) for _ in plans)
            return RunRecord(results, start_s=begun, end_s=self.now_s())
        record: RunRecord = answer
        if any(result.status is Status.CRASHED for result in record.results):
            self._drop()
        return record

    def sm_units(self) -> tuple[int, int]:
        """Units of multiprocessors, asked of the worker.

        Raises:
            DeviceError: none can be shared out, or the worker does not answer.
        """
        units: tuple[int, int] = self._ask("sm_units", timeout_s=self._run_timeout_s)
        return units

    def pulse(self, pulses: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Play pulses of load in the worker; returns when each was busy.

        Raises:
            DeviceError: the worker does not answer.
        """
        timeout_s = self._run_timeout_s + sum(busy_s + idle_s for busy_s, idle_s in pulses)
        played: list[tuple[float, float]] = self._ask("pulse", tuple(pulses), timeout_s=timeout_s)
        return played

    def free_memory_bytes(self) -> int:
        """Device memory that is free now, asked of the worker.

        Raises:
            DeviceError: the worker does not answer.
        """
        free_bytes: int = self._ask("free_memory_bytes", timeout_s=_ASK_S)
        return free_bytes

    def own_processes(self) -> int:
        """One, the worker, while it lives."""
        return int(self.pid is not None)

    def abort(self) -> None:
        """Kill the worker, as a candidate in it may hang."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the worker; may be called again."""
        with self._opening:
            self._closed = True
        self._drop()
        if self._compiler is not None:
            self._compiler.close()

    def _ask(self, method: str, *args: object, timeout_s: float) -> Any:  # noqa: ANN401 - the method's answer
        """Call the worker for what it must be able to answer."""
        try:
            return self._running().call(method, *args, timeout_s=timeout_s)
        except ChildError as error:
            self._drop()
            raise DeviceError(f"{self._spec}: {error}") from error

    def _attempt(self, method: str, *args: object, timeout_s: float) -> Any:  # noqa: ANN401
        """The method's answer; a failed check where the call takes the worker down."""
        begun, child = self.now_s(), self._running()
        try:
            return child.call(method, *args, timeout_s=timeout_s)
        except ChildTimeoutError:
            status, detail = Status.TIMEOUT, f"no answer within {timeout_s:g} s; the worker was killed"
        except ChildCrashedError as error:
            status, detail = Status.CRASHED, str(error)
        _LOG.debug("%s: %s: %s", self._spec, method, detail)
        self._drop()
        return Check(status, detail, self.now_s() - begun)

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
        child = early.taken(self._target, *self._args)
        if child is None:
            child = Child(self._target, *self._args, name=f"worker of {self._spec}")
        child.keep(Plan, Source)
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


# --- choosing a device ---------------------------------------------------------------------------


def cuda_index(spec: str) -> int:
    """N of ``cuda:N``.

    Raises:
        UnknownNameError: the text names no GPU.
    """
    match = early.CUDA.fullmatch(spec)
    if match is None and spec.startswith("kind:"):
        raise UnknownNameError(f"{spec!r}: a kind is for jobs of the daemon; name a GPU, as cuda:0")
    if match is None:
        simulated = [f"sim:{name}" for name in gpu_names()]
        raise UnknownNameError(
            f"unknown device {spec!r}; choose cuda:N or one of {', '.join(simulated)}, or replay:h200, or"
            f" replay:FILE{suggestion(spec, ['cuda:0', *simulated])}"
        )
    return int(match[1] or 0)
