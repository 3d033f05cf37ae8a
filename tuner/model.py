"""The words of the project as values: workload, configuration, plan, trial, measurement.

All values are frozen, hashable where a policy may want them as keys, and plain enough to cross a pipe to
a worker process. Times are seconds, energies joules, powers watts, clocks megahertz, sizes bytes.
"""

import functools
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

TunableValue = bool | int | float | str


class Configuration(Mapping[str, TunableValue]):
    """Values for the tunables of one workload; hashable.

    Iterates in the order of declaration; equality, as of any mapping, does not depend on that order.
    """

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, TunableValue] | Iterable[tuple[str, TunableValue]]) -> None:
        pairs = items.items() if isinstance(items, Mapping) else items
        self._items: tuple[tuple[str, TunableValue], ...] = tuple(pairs)
        self._hash = hash(frozenset(self._items))

    def __getitem__(self, name: str) -> TunableValue:
        for key, value in self._items:
            if key == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Configuration):
            return self._items == other._items or dict(self._items) == dict(other._items)
        return NotImplemented

    def __reduce__(self) -> tuple[type, tuple[tuple[tuple[str, TunableValue], ...]]]:
        return Configuration, (self._items,)  # string hashes differ between processes: hash anew there

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._items)

    def __repr__(self) -> str:
        return f"Configuration({dict(self._items)!r})"


@dataclass(frozen=True)
class Workload:
    """A kernel of the catalogue at one problem size.

    Attributes:
        kernel: name of the kernel.
        sizes: problem sizes as (name, value), in the order of the kernel file, e.g. ``(("N", 1024),)``.
        batch: independent problems solved by one run.
    """

    kernel: str
    sizes: tuple[tuple[str, int | str], ...]
    batch: int

    def __str__(self) -> str:
        return f"{self.kernel}:{','.join(f'{name}={value}' for name, value in self.sizes)}"


@dataclass(frozen=True)
class Source:
    """CUDA C++ source with the headers it may include, as text.

    Attributes:
        path: where the text came from; shown in messages, never opened again.
        text: the translation unit.
        headers: (include name, text) of every header beside it.
    """

    path: str
    text: str
    headers: tuple[tuple[str, str], ...] = ()

    @functools.cached_property
    def sha256(self) -> str:
        """Hex digest of the text and its headers (not of the path); asked for at every launch."""
        digest = hashlib.sha256(self.text.encode())
        for name, text in self.headers:
            digest.update(f"\0{name}\0".encode())
            digest.update(text.encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Buffer:
    """One device array of a workload.

    Attributes:
        name: name in the kernel file.
        dtype: NumPy dtype name.
        shape: elements per axis, the batch first.
        role: ``in`` is read, ``out`` is written completely, ``inout`` is both, ``scratch`` is neither
            checked nor initialised.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Literal["in", "out", "inout", "scratch"]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Scalar:
    """A kernel argument passed by value; ``dtype`` is a NumPy dtype name."""

    dtype: str
    value: int | float


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel takes of a multiprocessor.

    Attributes:
        registers_per_thread: registers of a thread.
        static_shared_bytes: shared memory declared in the source.
        spill_bytes: bytes of spill stores and loads of a thread.
        local_bytes: local memory (stack frame) of a thread.
        architecture: what it was compiled for, e.g. ``sm_90``.
        compiled: False where the kernel file's declared numbers stand in for a compiler.
    """

    registers_per_thread: int
    static_shared_bytes: int = 0
    spill_bytes: int = 0
    local_bytes: int = 0
    architecture: str = ""
    compiled: bool = True


@dataclass(frozen=True)
class Stage:
    """One kernel launch of a workload, ready to compile and run.

    Attributes:
        name: name of the stage in the kernel file.
        source: the code.
        entry: NVRTC name expression of the ``__global__`` function, e.g. ``scan_lf<1024, 4, 256>``.
        options: NVRTC options beside the architecture.
        grid: blocks in x, y, z.
        block: threads in x, y, z.
        shared_bytes: dynamic shared memory.
        arguments: names of the plan's buffers, or scalars, in the order of the function's parameters.
        declared: resources for a machine without NVRTC, from the kernel file; None if it states none.
    """

    name: str
    source: Source
    entry: str
    options: tuple[str, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[str | Scalar, ...]
    declared: Resources | None = None

    @property
    def threads_per_block(self) -> int:
        """Threads of one block."""
        return math.prod(self.block)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return math.prod(self.grid)


@dataclass(frozen=True)
class Work:
    """What one run of a workload must do, by the formulas of its kernel file.

    Attributes:
        bytes: device memory that must move once.
        operations: arithmetic operations.
        steps: dependent communication steps (barriers or shuffles) of one block, for the model.
        rate_units: units of the papers' rate, e.g. rows, data or floating-point operations of a run.
        rate_name: e.g. ``MRows/s``; the number shown is ``rate_units / time / rate_scale``.
        rate_scale: e.g. 1e6 for ``MRows/s``.
    """

    bytes: float
    operations: float
    steps: float = 0.0
    rate_units: float = 0.0
    rate_name: str = ""
    rate_scale: float = 1e6


@dataclass(frozen=True)
class ProblemSpec:
    """How the answer of a workload is made and checked.

    Attributes:
        name: a built-in problem (``scan``, ``tridiagonal``, ``fft``), ``expression`` or ``consistent``.
        tolerance: allowed error, or None for the problem's own.
        reference: for ``expression``: (output buffer, expression over the input buffers) pairs.
    """

    name: str
    tolerance: float | None = None
    reference: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Plan:
    """One workload at one configuration with every expression of its kernel file evaluated.

    ``baseline`` is the default configuration's plan, for a problem that only another run can judge
    (``consistent``); None for every other problem, and for the default configuration itself.
    """

    workload: Workload
    configuration: Configuration
    stages: tuple[Stage, ...]
    buffers: tuple[Buffer, ...]
    problem: ProblemSpec
    work: Work
    baseline: "Plan | None" = None

    def label(self) -> str:
        """The words of a message: workload and configuration."""
        return f"{self.workload} [{self.configuration}]"


@dataclass(frozen=True)
class Trial:
    """What is run and measured together.

    Attributes:
        configurations: one per workload, in the order of the run's workloads.
        clock_mhz: GPU clock to set, or None for "as found".
    """

    configurations: tuple[Configuration, ...]
    clock_mhz: int | None = None


class Status(str, Enum):
    """How a workload of a trial ended. Anything but ``ok`` costs infinity and stops no search."""

    OK = "ok"
    COMPILE_ERROR = "compile-error"
    LAUNCH_ERROR = "launch-error"
    WRONG_ANSWER = "wrong-answer"
    TIMEOUT = "timeout"
    CRASHED = "crashed"


@dataclass(frozen=True)
class WorkloadResult:
    """One workload's part in a measurement.

    Attributes:
        status: how it ended.
        time_s: median time of one run within a round (None unless ok).
        spread_s: half the 16-84 % range of that time.
        detail: what went wrong, for people.
    """

    status: Status
    time_s: float | None = None
    spread_s: float = 0.0
    detail: str = ""


@dataclass(frozen=True)
class Energy:
    """Joules of one round with their standard uncertainty (one sigma).

    Attributes:
        joules: energy of one round.
        uncertainty_j: standard uncertainty.
        watts: mean power of the measuring window.
        sensor: which reading it came from, e.g. ``nvml-energy-counter``.
        scope: what the sensor sees, e.g. ``gpu``, ``module``, ``VDD_GPU_SOC``.
    """

    joules: float
    uncertainty_j: float
    watts: float
    sensor: str
    scope: str


@dataclass(frozen=True)
class Measurement:
    """What one trial gave.

    Attributes:
        results: one per workload, in the order of the trial.
        makespan_s: median time of a round, all workloads started together until the last has ended.
        makespan_spread_s: half the 16-84 % range of the makespan.
        makespan_uncertainty_s: standard uncertainty of the makespan.
        bursts: measuring windows these numbers were joined from (contenders for the answer get several).
        energy: energy of a round; None where no sensor answers or the trial failed.
        rounds: rounds of the measuring window.
        window_s: length of the measuring window.
        clock_mhz: median GPU clock seen during the window, if it can be read.
        flags: what a reader must know: ``throttled: ...``, ``off-clock: ...``.
        modelled: True when a simulated device made these numbers.
        check_s: time spent on answer checks for this trial.
        energy_total_j: joules of everything this trial made the GPU do (checks, warm-up, window).
        ended_s: the device's clock when the trial had ended (a simulated device resumes from there).
    """

    results: tuple[WorkloadResult, ...]
    makespan_s: float | None = None
    makespan_spread_s: float = 0.0
    makespan_uncertainty_s: float = 0.0
    bursts: int = 1
    energy: Energy | None = None
    rounds: int = 0
    window_s: float = 0.0
    clock_mhz: float | None = None
    flags: tuple[str, ...] = ()
    modelled: bool = False
    check_s: float = 0.0
    energy_total_j: float = 0.0
    ended_s: float = 0.0

    @property
    def ok(self) -> bool:
        """True when every workload is ok."""
        return all(result.status is Status.OK for result in self.results)

    @property
    def status(self) -> Status:
        """The first status that is not ok, else ok."""
        return next((r.status for r in self.results if r.status is not Status.OK), Status.OK)


@dataclass(frozen=True)
class DeviceLimits:
    """The occupancy inputs of one GPU (Table I of the multi-kernel paper, with the allocation units).

    Attributes:
        compute_capability: (major, minor).
        multiprocessors: SMs of the GPU.
        warp_size: devWarpSize.
        max_threads_per_block: largest block.
        max_threads_per_sm: devMaxThreadsSM.
        max_warps_per_sm: devMaxWSM.
        max_blocks_per_sm: devMaxTBSM.
        registers_per_sm: devRegsLimitSM.
        registers_per_block: most registers one block may hold.
        max_registers_per_thread: compiler limit.
        register_alloc_unit: devRegAllocUnit; registers are allocated per warp in this unit.
        warp_alloc_granularity: warps that hold registers are rounded to a multiple of this.
        shared_bytes_per_sm: devMaxSharedMemSM.
        shared_bytes_per_block: most shared memory one block may ask for (opt-in limit where there is one).
        shared_alloc_unit: devSharedMemAllocUnit.
        shared_reserved_bytes: shared memory the system takes of every block (1 KiB from 8.0 on).
        memory_bytes: device memory.
        l2_bytes: second-level cache.
    """

    compute_capability: tuple[int, int]
    multiprocessors: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    registers_per_block: int
    max_registers_per_thread: int
    register_alloc_unit: int
    warp_alloc_granularity: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    shared_alloc_unit: int
    shared_reserved_bytes: int
    memory_bytes: int
    l2_bytes: int

    @property
    def architecture(self) -> str:
        """NVRTC's name of the compute capability, e.g. ``sm_90``."""
        return f"sm_{self.compute_capability[0]}{self.compute_capability[1]}"


@dataclass(frozen=True)
class DeviceIdentity:
    """What a stored result is bound to.

    Attributes:
        spec: how the user names it: ``cuda:0``, ``sim:jetson-tx1``.
        name: product name.
        uuid: GPU UUID; for a simulated device its spec.
        driver: driver version, or the version of the model.
        runtime: CUDA (NVRTC) version that made the code, or empty.
        modelled: True for a simulated device.
    """

    spec: str
    name: str
    uuid: str
    driver: str
    runtime: str
    modelled: bool
