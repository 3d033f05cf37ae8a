"""Workbench of the other scripts: inputs and answers, bare kernels, configurations timed cold and checked."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from cold_timing import Timer, median

from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import CompileError, TunerError
from tuner.model.plan import Configuration, Plan, Workload

# --- inputs, answers in float64, and errors -------------------------------------------------------
#
# Tridiagonal systems have a dominance margin of at least 0.05: ``|b| = |a| + |c| + 0.05 + u``, u uniform in
# [0, 1), random signs. Scans are of uniform numbers in [-1, 1), transforms of complex normal numbers.


MARGIN = 0.05

_THOMAS = r"""
extern "C" __global__ void thomas(const float* a, const float* b, const float* c, const float* d, double* x,
                                  double* upper, int n, long long batch) {
    const long long system = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (system >= batch) return;
    const long long first = system * n;
    double c_before = 0, d_before = 0;
    for (int i = 0; i < n; ++i) {
        const double below = i ? a[first + i] : 0, pivot = b[first + i] - below * c_before;
        upper[i * batch + system] = c_before = (i + 1 < n ? c[first + i] : 0) / pivot;
        x[first + i] = d_before = (d[first + i] - below * d_before) / pivot;
    }
    for (int i = n - 2; i >= 0; --i) x[first + i] -= upper[i * batch + system] * x[first + i + 1];
}
"""


@dataclass(frozen=True)
class Data:
    """One problem on the device.

    Attributes:
        family: ``scan``, ``tridiagonal`` or ``fft``.
        n: length of a row.
        inputs: arrays of shape (batch, n), in the order of the kernels' arguments.
        output: where every contender leaves its answer.
        reference: the answer in float64 or complex128.
        scale: of each row, what its error is divided by.
    """

    family: str
    n: int
    inputs: tuple[Any, ...]
    output: Any
    reference: Any
    scale: Any

    @property
    def batch(self) -> int:
        """Rows."""
        return int(self.output.shape[0])

    def poison(self, cp: Any) -> None:
        """Fill the output with NaN."""
        self.output.view(cp.uint8).fill(0xFF)

    def error(self, cp: Any, answer: Any = None) -> float:
        """Worst error of a row; infinity where one is not finite.

        Scan and tridiagonal: largest error by the row's largest value. FFT: relative L2.
        """
        given = self.output if answer is None else answer
        if self.family == "fft":
            errors = cp.sqrt(_kernel(cp, _SQUARES)(given, self.reference, axis=1)) / self.scale
        else:
            errors = _kernel(cp, _LARGEST)(given, self.reference, axis=1) / self.scale
        return float(cp.where(cp.isfinite(errors), errors, cp.inf).max())


_SQUARES = ("complex64 y, complex128 right", "norm(complex<double>(y) - right)", "a + b", "0")
_LARGEST = ("float32 y, float64 right", "deviation(y, right)", "max(a, b)", "0")
_PREAMBLE = r"""
__device__ double deviation(float y, double right) {
    const double d = fabs(double(y) - right);
    return d <= 1e300 ? d : __longlong_as_double(0x7ff0000000000000);  // max() drops NaN
}
"""


@cache
def _kernel(cp: Any, parts: tuple[str, str, str, str]) -> Any:
    """One pass over answer and reference, a result for each row."""
    parameters, value, joined, identity = parts
    return cp.ReductionKernel(
        parameters, "float64 z", value, joined, "z = a", identity, "row_error", preamble=_PREAMBLE
    )


def allowed_error(family: str, n: int) -> float:
    """Largest error that the kernels' targets allow."""
    return 1e-7 * max(1, n.bit_length() - 1) if family == "fft" else 1e-6


def make(cp: Any, family: str, n: int, elements: int, seed: int = 1) -> Data:
    """Random inputs of ``elements`` elements in rows of ``n``, and their answer."""
    shape = (elements // n, n)
    rng = cp.random.Generator(cp.random.Philox4x3210(seed))

    def uniform() -> Any:
        values = rng.random(shape, dtype=cp.float32)
        values *= 2
        values -= 1
        return values

    if family == "scan":
        x = uniform()
        sums = cp.cumsum(x, axis=1, dtype=cp.float64)
        return Data(family, n, (x,), cp.empty_like(x), sums, abs(sums).max(axis=1))
    if family == "fft":
        z = cp.empty(shape, dtype=cp.complex64)
        z.real = rng.standard_normal(shape, dtype=cp.float32)
        z.imag = rng.standard_normal(shape, dtype=cp.float32)
        transform = cp.fft.fft(z.astype(cp.complex128), axis=1)
        return Data(family, n, (z,), cp.empty_like(z), transform, cp.linalg.norm(transform, axis=1))
    a, c, d = uniform(), uniform(), uniform()
    a[:, 0] = 0
    c[:, -1] = 0
    b = (abs(a) + abs(c) + cp.float32(MARGIN) + rng.random(shape, dtype=cp.float32)) * cp.where(
        rng.random(shape, dtype=cp.float32) < 0.5, cp.float32(-1), cp.float32(1)
    )
    solution = _solution(cp, (a, b, c, d))
    return Data(family, n, (a, b, c, d), cp.empty_like(a), solution, abs(solution).max(axis=1))


def _solution(cp: Any, rows: tuple[Any, ...]) -> Any:
    """Tridiagonal systems by the Thomas algorithm in float64, a thread for each."""
    batch, n = rows[0].shape
    x, upper = cp.empty((batch, n), cp.float64), cp.empty((n, batch), cp.float64)
    thomas = cp.RawKernel(_THOMAS, "thomas")
    thomas((-(-batch // 128),), (128,), (*rows, x, upper, cp.int32(n), cp.int64(batch)))
    return x


# --- bare kernels: they move the bytes of a family, and do nothing else ---------------------------


_SOURCE = r"""
template <int reads, int V>
__global__ void __launch_bounds__(1024)
    move(const float4* a, const float4* b, const float4* c, const float4* d, float4* x, long long count) {
    const long long first = blockIdx.x * (long long)(blockDim.x * V) + threadIdx.x;
    float4 sum[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
        const long long at = first + v * blockDim.x;
        if (at >= count) continue;
        sum[v] = a[at];
        if (reads > 1) {
            const float4 p = b[at], q = c[at], r = d[at];
            sum[v].x += p.x + q.x + r.x, sum[v].y += p.y + q.y + r.y;
            sum[v].z += p.z + q.z + r.z, sum[v].w += p.w + q.w + r.w;
        }
    }
#pragma unroll
    for (int v = 0; v < V; ++v)
        if (first + v * blockDim.x < count) x[first + v * blockDim.x] = sum[v];
}
"""
_VECTORS = (1, 2, 4)
_THREADS = (128, 256, 512, 1024)


def bare(cp: Any, family: str, inputs: tuple[Any, ...], output: Any) -> dict[str, Callable[[], None]]:
    """Launches of every shape by name, e.g. ``bare L=256 V=2``, for the arrays of one problem."""
    reads = 4 if family == "tridiagonal" else 1
    names = {V: f"move<{reads}, {V}>" for V in _VECTORS}
    module = cp.RawModule(code=_SOURCE, options=("--std=c++17",), name_expressions=tuple(names.values()))
    count = output.nbytes // 16
    arrays = (*inputs, *[inputs[0]] * (4 - len(inputs)))
    launches: dict[str, Callable[[], None]] = {}
    for V, name in names.items():
        function = module.get_function(name)
        for L in _THREADS:
            grid = (-(-count // (L * V)),)
            launches[f"bare L={L} V={V}"] = partial(function, grid, (L,), (*arrays, output, cp.int64(count)))
    return launches


@dataclass
class Result:
    """One configuration, timed and checked; ``run`` launches it again on the arrays of its problem."""

    configuration: Configuration
    ms: float
    error: float
    run: Callable[[], None]
    trouble: str = ""
    resources: list[str] = field(default_factory=list)


class Bench:
    """The GPU, the compiler and the arrays of one problem after another."""

    def __init__(self) -> None:
        self.cp = probe.open_cupy(0)
        self.gpu_name = probe.gpu_name(self.cp, 0)
        self.limits = probe.gpu_limits(self.cp, 0)
        self.compiler = Compiler(self.limits.architecture)
        self.code = CodeCache(self.cp, self.compiler, self.limits)
        self.timer = Timer(self.cp)
        self.catalog = Catalog.load()
        self._scratches: dict[tuple[str, tuple[int, ...]], Any] = {}

    def sweep(
        self,
        kernel: KernelFile,
        workload: Workload,
        data: Data,
        repeats: int,
        configurations: Sequence[Configuration] | None = None,
    ) -> list[Result]:
        """Every configuration that compiles without spills, fastest first; wrong answers at the end.

        ``configurations`` limits them to some of the kernel's space.
        """
        architecture = 10 * self.limits.compute_capability[0] + self.limits.compute_capability[1]
        chosen = kernel.space(workload) if configurations is None else configurations
        plans = [kernel.plan(workload, configuration) for configuration in chosen]
        plans = [p for p in plans if all(s.min_architecture <= architecture for s in p.stages)]
        compiled = iter(self.compiler.compile([stage for plan in plans for stage in plan.stages]))
        results = []
        for plan in plans:
            found = [next(compiled) for _ in plan.stages]
            if any(isinstance(item, CompileError) for item in found):
                first = next(item for item in found if isinstance(item, CompileError))
                results.append(_failed(plan, f"does not compile: {str(first)[:300]}"))
                continue
            taken = [item.resources for item in found if not isinstance(item, CompileError)]
            words = [f"{r.registers_per_thread} registers" for r in taken]
            if any(r.spill_bytes or r.local_bytes for r in taken):
                results.append(_failed(plan, "spills"))
                continue
            results.append(self._timed(plan, data, repeats, words))
        return sorted(results, key=lambda r: r.ms)

    def _timed(self, plan: Plan, data: Data, repeats: int, words: list[str]) -> Result:
        try:
            run = self.launcher(plan, data)
            data.poison(self.cp)
            run()
            self.cp.cuda.runtime.deviceSynchronize()
        except (TunerError, self.cp.cuda.driver.CUDADriverError) as trouble:
            return _failed(plan, str(trouble))
        error = data.error(self.cp)
        if not error <= allowed_error(data.family, data.n):
            return _failed(plan, f"wrong: error {error:.1e}", error)
        ms = median([self.timer.once(run) for _ in range(repeats)])
        return Result(plan.configuration, ms, error, run, resources=words)

    def launcher(self, plan: Plan, data: Data) -> Callable[[], None]:
        """What runs a plan once on the arrays of ``data``, on the current stream."""
        names = iter(data.inputs)
        arrays: dict[str, Any] = {}
        for buffer in plan.buffers:
            if buffer.role == "in":
                arrays[buffer.name] = next(names)
            elif buffer.role == "out":
                arrays[buffer.name] = data.output
            else:
                arrays[buffer.name] = self._scratch(buffer.dtype, buffer.shape)
        launches = self.code.launches(plan, arrays)
        stream = self.cp.cuda.get_current_stream()

        def run(_kept: dict[str, Any] = arrays) -> None:  # launches hold addresses
            for launch in launches:
                launch.enqueue(stream)

        return run

    def _scratch(self, dtype: str, shape: tuple[int, ...]) -> Any:
        """Scratch arrays are shared by all configurations: one of each kind is alive at a time."""
        key = (dtype, shape)
        if key not in self._scratches:
            if len(self._scratches) > 4:
                self._scratches.clear()
            self._scratches[key] = self.cp.zeros(shape, dtype)
        return self._scratches[key]


def _failed(plan: Plan, trouble: str, error: float = float("inf")) -> Result:
    return Result(plan.configuration, float("inf"), error, lambda: None, trouble)


def opened() -> Bench:
    """The GPU, or a message and exit code 2 where there is none."""
    try:
        return Bench()
    except TunerError as error:
        print(f"{error}\nThis benchmark needs a CUDA GPU.", file=sys.stderr)
        sys.exit(2)
