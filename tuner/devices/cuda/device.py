"""A CUDA GPU as a device: compiles, checks and runs plans in this process, through CuPy.

A candidate may kill the context it runs in, so outside of tests this lives in a worker process
(``tuner.devices.worker``), which is replaced when a result says ``crashed``.
"""

import logging
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import numpy as np

from tuner.compiler.compiler import Compiler
from tuner.compiler.contract import plan_resources
from tuner.devices.base import Check, RunRecord, SystemClock
from tuner.devices.cuda import probe
from tuner.devices.cuda.answer_check import AnswerCheck, CheckedRuns
from tuner.devices.cuda.answer_kernels import AnswerKernels
from tuner.devices.cuda.arrays import (
    BufferPool,
    Inputs,
    flushing_bytes,
    is_cold,
    original_bytes,
    rotation_sets,
    set_bytes,
)
from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.driver import Array, CudaEvent, DriverCallError, DriverCalls, Stream
from tuner.devices.cuda.lanes import SmShares, StreamPlace
from tuner.devices.cuda.launches import LaunchRefusedError, Restoring, Step
from tuner.devices.cuda.rounds import RoundRunner, Rounds, most_sets
from tuner.model.errors import CompileError, DeviceError, InputError, TunerError, UncheckableError
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.plan import (
    Configuration,
    Plan,
    ProblemSpec,
    Progress,
    Resources,
    Scalar,
    Source,
    Stage,
    Work,
    Workload,
)
from tuner.model.trial import Flag, FlagKind, Status, WorkloadResult
from tuner.problems.base import to_host
from tuner.space.occupancy import sm_unit

_THREADS = 256
_MORE_THAN_FIT = 2**20  # blocks; the resident grid is cut to what the GPU holds at a time
_LONGEST_S = 1.0  # of one launch: a GPU with a display kills kernels that run for seconds


class PulsePlayer:
    """Plays pulses of full load; see ``tuner.power.base.LoadSource``."""

    def __init__(
        self,
        cp: ModuleType,
        code: CodeCache,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cp = cp
        self._code = code
        self._now = now
        self._sleep = sleep
        self._source = _source()
        self._stream: Stream = cp.cuda.Stream(non_blocking=True)
        # waited for asleep: a spinning host would draw power that a module's sensor sees
        self._ended: CudaEvent = cp.cuda.Event(block=True)

    def play(self, pulses: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Play (busy, idle) durations and return the busy times as the host saw them, to some 50 us.

        Raises:
            DeviceError: the load cannot be compiled or launched.
        """
        self._run(1e-6)  # what loading the kernel takes is no part of a pulse
        played = []
        for busy_s, idle_s in pulses:
            begin_s = self._now()
            self._run(busy_s)
            end_s = self._now()
            played.append((begin_s, end_s))
            self._sleep(max(0.0, end_s + idle_s - self._now()))
        return played

    def _run(self, busy_s: float) -> None:
        left_s = busy_s
        try:
            while left_s > 0.0:
                for step in self._launch(min(left_s, _LONGEST_S)):
                    step.enqueue(self._stream)
                left_s -= _LONGEST_S
            self._ended.record(self._stream)
            self._ended.synchronize()
        except (
            LaunchRefusedError,
            self._cp.cuda.driver.CUDADriverError,
            self._cp.cuda.runtime.CUDARuntimeError,
        ) as error:
            raise DeviceError(f"the GPU cannot be loaded for a calibration: {error}") from error

    def _launch(self, busy_s: float) -> tuple[Step, ...]:
        stage = Stage(
            name="load",
            source=self._source,
            entry="load",
            options=(),
            grid=(_MORE_THAN_FIT, 1, 1),
            block=(_THREADS, 1, 1),
            shared_bytes=0,
            arguments=(Scalar("uint64", round(busy_s * 1e9)),),
            resident=True,
        )
        plan = Plan(
            Workload("load", (), 1),
            Configuration(()),
            (stage,),
            (),
            ProblemSpec("consistent"),
            Work(0.0, 0.0),
        )
        return self._code.launches(plan, {})


def _source() -> Source:
    from tuner.kernel_files.source_folder import kernels_root  # noqa: PLC0415 - reading kernel files takes long to import

    path = kernels_root() / "common" / "load.cu"
    return Source(str(path), path.read_text(encoding="utf-8"))


_BLOCKS = 8
_LEAST = 2  # a scatter needs two values
_ONE_SIGMA = (1.8373, 1.3213, 1.1969, 1.1416, 1.1105, 1.0906, 1.0767)
"""Half widths that hold 68.27 % of Student's distributions of 1 to 7 degrees of freedom.

Two decimals of them are in table G.2 of JCGM 100:2008.
"""

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_RUN_SEED = 1  # inputs of a run that no check has provided with inputs


def median_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Median, and half the range from the 16th to the 84th percentile."""
    ordered = sorted(values)  # NumPy's percentile takes a thousand times as long for a few values
    low, middle, high = (_quantile(ordered, fraction) for fraction in (0.16, 0.5, 0.84))
    return middle, (high - low) / 2


def _quantile(ordered: Sequence[float], fraction: float) -> float:
    """Interpolate linearly between two values, as NumPy does."""
    place = fraction * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def uncertainty(values: Sequence[float]) -> float:
    """Standard uncertainty of the middle of values in the order of time, 0 for fewer than two.

    Neighbours resemble each other, since clock and temperature wander, so the scatter of single values by
    the root of their number would be far too small. The values are cut into at most eight blocks instead: the
    standard error of the blocks' means, widened by the one-sigma (68.3 %) width of Student's distribution.
    """
    blocks = np.array_split(np.asarray(values, dtype=np.float64), min(_BLOCKS, max(len(values), 1)))
    if len(blocks) < _LEAST:
        return 0.0
    means = [float(block.mean()) for block in blocks]
    return _ONE_SIGMA[len(means) - 2] * float(np.std(means, ddof=1)) / math.sqrt(len(means))


class CudaDevice(SystemClock):
    """GPU ``index`` of CUDA's numbering; implements ``tuner.devices.base.Device``.

    Args:
        index: as CUDA counts, which ``CUDA_VISIBLE_DEVICES`` may change.
        compiler: compiles for this GPU; made here if not given.

    Raises:
        DeviceUnavailableError: the GPU cannot be opened; the message says what is missing.
        CompilerUnavailableError: no NVRTC compiles for this GPU.
    """

    def __init__(self, index: int = 0, compiler: Compiler | None = None) -> None:
        self._cp = probe.open_cupy(index)
        self.limits = probe.gpu_limits(self._cp, index)
        self._own_compiler = compiler is None
        self._compiler = compiler or Compiler(self.limits.architecture)
        self.identity = DeviceIdentity(
            spec=f"cuda:{index}",
            name=probe.gpu_name(self._cp, index),
            uuid=probe.gpu_uuid(index),
            driver=probe.driver_version(self._cp),
            runtime=self._compiler.nvrtc_version,
            modelled=False,
        )
        kernels = AnswerKernels(self._cp, self._compiler)
        self._pool = BufferPool(self._cp)
        self._inputs = Inputs(self._cp, self._pool, kernels)
        driver = DriverCalls()
        self._code = CodeCache(self._cp, self._compiler, self.limits, driver)
        self._shares = SmShares(self._cp, driver, sm_unit(self.limits))
        self._runner = RoundRunner(self._cp, driver=driver, shares=self._shares)
        runs = CheckedRuns(self._cp, self._pool, self._code, self._runner, kernels, self._inputs)
        self._answers = AnswerCheck(self._cp, runs)
        self._flushed: Array | None = None  # as large as it takes to leave nothing of other arrays in the L2
        self._dead = ""

    def describe(self) -> tuple[DeviceIdentity, DeviceLimits]:
        """Return identity and limits, which a process that hosts the device tells first."""
        return self.identity, self.limits

    def resources(
        self, plans: Sequence[Plan], progress: Progress | None = None
    ) -> list[tuple[Resources, ...] | CompileError]:
        """Compile plans in parallel, with the cache on disk; nothing is loaded."""
        return plan_resources(self._compiler, plans, progress)

    def check(self, plan: Plan, seed: int) -> Check:
        """Run a plan once and compare; whatever goes wrong is a status."""
        begun = self.now_s()
        answer = self._guarded([plan], lambda: self._answers.check(plan, seed))
        status, detail = (answer.status, answer.detail) if isinstance(answer, _Failure) else answer
        return Check(status, detail, self.now_s() - begun)

    def prepare(self, plan: Plan, seed: int) -> None:
        """Make what the plan's answers are held against, where the user states it.

        Raises:
            UncheckableError: it cannot be made; no configuration is to blame.
        """
        answer = self._guarded([plan], lambda: self._answers.prepare(plan, seed))
        if isinstance(answer, _Failure):
            raise UncheckableError(f"{plan.workload}: the reference cannot be made: {answer.detail}")

    def outputs(self, plan: Plan, seed: int, names: Sequence[str], folder: str) -> Check:
        """Run a plan once on its inputs, and write arrays of it to ``folder/NAME.npy``.

        The check is ok where it ran; nothing is compared.
        """
        begun = self.now_s()

        def save() -> Check:
            for name, array in self._answers.outputs(plan, seed, names).items():
                np.save(Path(folder) / f"{name}.npy", to_host(array), allow_pickle=False)
            return Check(Status.OK, "", self.now_s() - begun)

        answer = self._guarded([plan], save)
        if isinstance(answer, _Failure):
            return Check(answer.status, answer.detail, self.now_s() - begun)
        return answer

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        """Run rounds of the plans; whatever goes wrong is the status of one of them, or of all."""
        return self._record(plans, lambda: self._rounds(plans, window_s))

    def run_single(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        """Run single rounds of the plans, each behind a flush of the L2; failures as in ``run``."""
        return self._record(plans, lambda: self._single_rounds(plans, window_s))

    def _record(
        self, plans: Sequence[Plan], rounds_of: Callable[[], tuple[Rounds, tuple[Flag, ...]]]
    ) -> RunRecord:
        answer = self._guarded(plans, rounds_of)
        if isinstance(answer, _Failure):
            return RunRecord(tuple(answer.result(lane) for lane in range(len(plans))))
        rounds, flags = answer
        makespan_s, spread_s = median_and_spread(rounds.makespan_s)
        results = []
        for shares, restore_s in zip(rounds.shares, rounds.restore_s, strict=True):
            share, share_spread = median_and_spread(shares)  # of the makespan
            own_spread_s = math.hypot(share * spread_s, share_spread * makespan_s)
            results.append(WorkloadResult(Status.OK, share * makespan_s, own_spread_s, restore_s=restore_s))
        return RunRecord(
            results=tuple(results),
            makespan_s=makespan_s,
            makespan_spread_s=spread_s,
            makespan_uncertainty_s=math.hypot(uncertainty(rounds.makespan_s), rounds.resolution_s),
            rounds=rounds.rounds,
            start_s=rounds.start_s,
            end_s=rounds.end_s,
            flags=flags,
        )

    def sm_units(self) -> tuple[int, int]:
        """Units of multiprocessors, of which one was given to a stream to see that the driver does it.

        Raises:
            DeviceError: it does not.
        """
        units = self._shares.units
        self._shares.stream(StreamPlace(units=(0,)))
        return sm_unit(self.limits), units

    def pulse(self, pulses: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Play pulses of load; returns when each was busy."""
        return PulsePlayer(self._cp, self._code).play(pulses)

    def free_memory_bytes(self) -> int:
        """Device memory that is free now, CuPy's pool included."""
        free, _ = self._cp.cuda.runtime.memGetInfo()
        return int(free) + int(self._cp.get_default_memory_pool().free_bytes())

    def close(self) -> None:
        """Release arrays and code."""
        if not self._dead:
            self._answers.forget()
            self._flushed = None
            self._runner.close()
            self._pool.keep_only((), 0)
        if self._own_compiler:
            self._compiler.close()

    # --- inside ----------------------------------------------------------------------------------

    def _rounds(self, plans: Sequence[Plan], window_s: float) -> tuple[Rounds, tuple[Flag, ...]]:
        self._pool.evict(plans)
        one_set = set_bytes(plans)
        rotated = self._sets_to_go_round(plans, one_set)
        count = min(rotated, most_sets(sum(len(plan.stages) for plan in plans)))
        places, multiprocessors = self._placed(plans)
        rotation = self._rotation(plans, count, multiprocessors)
        rounds = self._runner.measure(rotation, window_s, places)
        flags = self._flags(plans, rounds)
        if not is_cold(rotated, one_set, self.limits.l2_bytes):
            detail = f"{rotated} sets of {one_set} bytes do not reach past the L2"
            flags.append(Flag(FlagKind.WARM_L2, detail))
        return rounds, tuple(flags)

    def _single_rounds(self, plans: Sequence[Plan], window_s: float) -> tuple[Rounds, tuple[Flag, ...]]:
        """Rounds on one set of arrays, each behind a flush of the L2."""
        self._pool.evict(plans)
        if self._flushed is None:
            self._flushed = self._cp.empty(flushing_bytes(self.limits.l2_bytes), dtype="uint8")
        flushed = self._flushed
        places, multiprocessors = self._placed(plans)
        (parts,) = self._rotation(plans, 1, multiprocessors)
        rounds = self._runner.measure_cold(
            parts,
            window_s,
            lambda stream: flushed.data.memset_async(0, flushed.nbytes, stream),
            places,
        )
        return rounds, tuple(self._flags(plans, rounds))

    def _placed(self, plans: Sequence[Plan]) -> tuple[list[StreamPlace], list[int | None]]:
        """Places of the workloads' streams, and the multiprocessors that each runs on; None for all."""
        shares = [plan.sm_share if len(plans) > 1 else 0 for plan in plans]  # alone, nothing is shared out
        try:
            laid = self._shares.shared_out(shares)
        except DriverCallError as error:
            raise LaunchRefusedError(Status.LAUNCH_ERROR, f"sm_share: {error}") from error
        places = [
            StreamPlace(plan.stream_priority, units) for plan, (units, _) in zip(plans, laid, strict=True)
        ]
        return places, [multiprocessors for _, multiprocessors in laid]

    def _rotation(
        self, plans: Sequence[Plan], count: int, multiprocessors: Sequence[int | None]
    ) -> list[tuple[tuple[Step, ...], ...]]:
        """Rounds on as many sets of arrays, which are ready for them."""
        sets = [self._sets(plan, count) for plan in plans]
        runs = [self._runs(plan, lane, sets[lane], multiprocessors[lane]) for lane, plan in enumerate(plans)]
        self._cp.cuda.runtime.deviceSynchronize()
        for plan, of_plan in zip(plans, sets, strict=True):
            steps = [step for arrays in of_plan for step in self._code.preparation(plan, arrays)]
            if steps:
                self._runner.once(steps)
        return list(zip(*runs, strict=True))

    def _flags(self, plans: Sequence[Plan], rounds: Rounds) -> list[Flag]:
        flags = [rounds.flag] if rounds.flag else []
        return [*flags, *dict.fromkeys(flag for plan in plans for flag in self._code.flags(plan))]

    def _sets_to_go_round(self, plans: Sequence[Plan], one_set: int) -> int:
        """As many sets as are wanted, or as there is memory for, that of right answers included."""
        l2_bytes = self.limits.l2_bytes
        sets = rotation_sets(one_set, l2_bytes, sys.maxsize)
        if self._pool.held_sets(plans) >= sets:
            return sets
        count = rotation_sets(one_set, l2_bytes, self._available_bytes(plans))
        if count < sets:
            self._answers.forget()
            count = rotation_sets(one_set, l2_bytes, self._available_bytes(plans))
        return count

    def _available_bytes(self, plans: Sequence[Plan]) -> int:
        return self.free_memory_bytes() + self._pool.held_bytes(plans) - original_bytes(plans)

    def _sets(self, plan: Plan, count: int) -> list[dict[str, Array]]:
        """Sets of arrays with inputs in them; what a run overwrites begins anew."""
        fresh = not self._pool.holds(plan)
        sets = self._pool.sets(plan, count)
        if fresh or any(buffer.role == "inout" for buffer in plan.buffers):
            seed = self._pool.seed(plan)
            self._inputs.load(plan, _RUN_SEED if seed is None else seed, count)
        return sets

    def _runs(
        self, plan: Plan, lane: int, sets: Sequence[Mapping[str, Array]], multiprocessors: int | None
    ) -> list[tuple[Step, ...]]:
        """A run on each of its sets of arrays, and behind it what brings the inputs back.

        Before the run, that would put them into the L2.
        """
        originals = self._pool.originals(plan)
        try:
            program = self._code.program(plan, multiprocessors)
            return [
                (
                    *program.bound(arrays),
                    *(Restoring(arrays[name], original) for name, original in originals.items()),
                )
                for arrays in sets
            ]
        except LaunchRefusedError as error:
            error.lane = lane
            raise

    def _guarded(self, plans: Sequence[Plan], action: Callable[[], _T]) -> "_T | _Failure":
        """The action's answer, or what its failure means for the plans."""
        if self._dead:
            return _Failure(Status.CRASHED, self._dead)
        try:
            with suppress(self._cp.cuda.memory.OutOfMemoryError):  # holds temporaries until the block is left
                return action()
            self._answers.forget()
            self._pool.keep_only(plans, 1)
            return action()
        except Exception as error:  # noqa: BLE001 - inputs and reference of a user's kernel may raise anything
            return self._failure(error)

    def _failure(self, error: Exception) -> "_Failure":
        """Return the failure of the plans for an exception; one that says nothing of them is raised again."""
        cuda = self._cp.cuda
        if isinstance(error, LaunchRefusedError):
            return self._verdict(_Failure(error.status, str(error), error.lane))
        if isinstance(error, TunerError) and (
            not isinstance(error, InputError) or isinstance(error, UncheckableError)
        ):
            raise error
        if isinstance(error, cuda.memory.OutOfMemoryError):
            detail = f"arrays and temporaries do not fit into {self.free_memory_bytes()} free bytes: {error}"
        elif isinstance(error, InputError | cuda.runtime.CUDARuntimeError | cuda.driver.CUDADriverError):
            detail = str(error)
        else:
            _LOG.info("unexpected exception", exc_info=error)
            detail = f"{type(error).__name__}: {error}"
        return self._verdict(_Failure(Status.LAUNCH_ERROR, detail))

    def _verdict(self, failure: "_Failure") -> "_Failure":
        """The failure, or ``crashed`` when it has taken the CUDA context with it."""
        try:
            self._cp.cuda.runtime.deviceSynchronize()
        except self._cp.cuda.runtime.CUDARuntimeError as error:
            self._dead = f"the CUDA context is lost: {error}"
            return _Failure(Status.CRASHED, self._dead)
        return failure


@dataclass(frozen=True)
class _Failure:
    """Failure of plans; ``lane`` is the one that failed, None when that is unknown."""

    status: Status
    detail: str
    lane: int | None = None

    def result(self, lane: int) -> WorkloadResult:
        if self.lane in (None, lane):
            return WorkloadResult(self.status, detail=self.detail)
        return WorkloadResult(Status.OK)
