"""Transforms of any length against cuFFT, side by side in one run on one GPU.

Complex lengths of 2, 3, 5 and 7, in both precisions; real rows, there and back; lengths with large primes.
Every row is about 2^29 bytes of input. Of each length the default and other configurations of the kernel are
timed until the row's seconds are over, and cuFFT's planned forms: out of place, in place, and with kernels
compiled for the plan. The best few go with a copy into interleaved rounds. The first half of those rounds
chooses configuration and form, the second half is reported. Times are medians with a cold L2 (160 MB are set
to zero before every repeat); plans and tables are made before. The JSON is written after every length.

    python benchmarks/kernels/fft_lengths.py --out benchmarks/results/fft-lengths-h200.json [--kinds primes]

Forms of a kernel take turns among the other configurations; ``--form whole`` leaves only those of one form.
"""

import ctypes
import itertools
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from cold_timing import copy_bandwidth, median, spread
from peer_libraries import VendorLibrary, address
from provenance import command_line, provenance, save
from sweep import Bench, opened

from tuner.compiler.compiler import CompiledStage
from tuner.model.errors import TunerError
from tuner.model.plan import Configuration, Plan, TunableValue
from tuner.problems.lookup import problem_for

# --- lengths, arrays, and cuFFT's planned forms ---------------------------------------------------


SAMPLE = 64  # rows that are held to NumPy's answer,
SAMPLE_NUMBERS = 2**24  # fewer where rows are this long
INPUT_BYTES = 2**29
PATIENT_JIT = 1  # NVFFT_PLAN_PROPERTY_INT64_PATIENT_JIT
FORWARD, INVERSE = -1, 1

# fmt: off
SMOOTH = (
    6, 10, 15, 24, 30, 36, 60, 72, 96, 100, 105, 120, 144, 192, 210, 243, 320, 343, 360, 500, 600, 625, 720,
    768, 840, 1000, 1200, 1260, 1440, 1536, 1875, 2000, 2187, 2401, 2520, 3000, 3072, 3125, 3600, 4000,
    4200, 4800, 5000, 5040, 6000, 6144, 6561, 7000, 7200, 7776, 8000,
)
# fmt: on
FEWER = (30, 60, 64, 100, 210, 256, 360, 720, 1000, 1024, 1260, 2048, 2187, 3000, 4000, 4096, 5000, 6000)
PRIMES = (17, 31, 61, 97, 127, 211, 251, 509, 1009, 1021, 2039, 3001, 4093)
ONE_PASS = (8748, 9216, 10000, 12288, 12500, 14406, 5**6, 7**5, 3**9, 20000, 20736)  # rows that a block holds
LONG = (*ONE_PASS, 44100, 48000, 100000, 3 * 2**18, 7**7, 10**6, 2**24)
LONG_PRIMES = (10007, 65537, 1048573, 2**24 - 3)
LONG_FEWER = (8748, 9216, 10000, 44100, 65537, 3 * 2**18, 10**6, 2**24)


LONG_REAL = (8748, 10000, 16384, 3**9, 20020, 44100, 65536, 3 * 2**18, 10**6, 2**20, 2**24)
LONG_REAL_DOUBLE = (10000, 16384, 44100, 65536, 10**6)


@dataclass(frozen=True)
class Kind:
    """One table: a kernel at some lengths, and cuFFT's type and function for the same."""

    kernel: str
    dtype: str
    direction: str
    lengths: tuple[int, ...]
    number: int
    function: str


KINDS = {
    "complex": Kind("fft-any", "complex64", "forward", SMOOTH, 0x29, "cufftExecC2C"),
    "primes": Kind("fft-any", "complex64", "forward", PRIMES, 0x29, "cufftExecC2C"),
    "real": Kind("fft-real", "float32", "forward", FEWER, 0x2A, "cufftExecR2C"),
    "real-back": Kind("fft-real", "float32", "inverse", FEWER, 0x2C, "cufftExecC2R"),
    "double": Kind("fft-any", "complex128", "forward", FEWER, 0x69, "cufftExecZ2Z"),
    "double-real": Kind("fft-real", "float64", "forward", FEWER[::3], 0x6A, "cufftExecD2Z"),
    "double-primes": Kind("fft-any", "complex128", "forward", PRIMES[::3], 0x69, "cufftExecZ2Z"),
    "long": Kind("fft-long", "complex64", "forward", LONG, 0x29, "cufftExecC2C"),
    "long-primes": Kind("fft-long", "complex64", "forward", LONG_PRIMES, 0x29, "cufftExecC2C"),
    "real-long": Kind("fft-real-long", "float32", "forward", LONG_REAL, 0x2A, "cufftExecR2C"),
    "real-long-back": Kind("fft-real-long", "float32", "inverse", LONG_REAL, 0x2C, "cufftExecC2R"),
    "double-real-long": Kind("fft-real-long", "float64", "forward", LONG_REAL_DOUBLE, 0x6A, "cufftExecD2Z"),
    "double-real-long-back": Kind(
        "fft-real-long", "float64", "inverse", LONG_REAL_DOUBLE, 0x6C, "cufftExecZ2D"
    ),
    "real-long-primes": Kind("fft-real-long", "float32", "forward", LONG_PRIMES[:2], 0x2A, "cufftExecR2C"),
    "double-long": Kind("fft-long", "complex128", "forward", LONG_FEWER, 0x69, "cufftExecZ2Z"),
}


@dataclass
class Problem:
    """The arrays of one length, and what its kernel's plans say of it."""

    bench: Bench
    kind: Kind
    n: int
    input_bytes: int = INPUT_BYTES

    def __post_init__(self) -> None:
        kernel = self.bench.catalog.kernel(self.kind.kernel)
        number_bytes = int("".join(filter(str.isdigit, self.kind.dtype))) // 8
        sizes = {"N": self.n, "dtype": self.kind.dtype, "direction": self.kind.direction}
        self.kernel = kernel
        self.workload = kernel.workload(sizes, max(1, self.input_bytes // (number_bytes * self.n)))
        self.default = kernel.plan(self.workload, kernel.default(self.workload))
        cp, rng = self.bench.cp, self.bench.cp.random.Generator(self.bench.cp.random.Philox4x3210(self.n))
        shapes = {buffer.name: buffer for buffer in self.default.buffers}
        self.x, self.y = (cp.empty(shapes[name].shape, shapes[name].dtype) for name in "xy")
        real = self.x.view("float32" if self.kind.dtype in ("complex64", "float32") else "float64")
        for rows in (
            real[part : part + len(real) // 8 + 1] for part in range(0, len(real), len(real) // 8 + 1)
        ):
            rows[...] = rng.standard_normal(rows.shape, dtype=cp.float32)
        if self.x.dtype != self.y.dtype and self.x.dtype.kind == "c":  # as frequencies of real rows are
            self.x.imag[:, :: self.n // 2 if self.n % 2 == 0 else self.n] = 0

    @property
    def inputs(self) -> dict[str, Any]:
        """Arrays that the kernel is given, by name."""
        return {"x": self.x}

    def check(self, y: Any, *, whole: bool) -> str:
        """What is wrong with an answer: some rows, or all by a law; empty where nothing is."""
        cp, problem, sizes = self.bench.cp, problem_for(self.default.problem), dict(self.workload.sizes)
        sample = max(1, min(SAMPLE, SAMPLE_NUMBERS // self.n))
        rows = slice(0, len(y), max(1, len(y) // sample))
        found = problem.compare({"x": self.x[rows].get()}, {"y": y[rows].get()}, sizes)
        if found.ok and whole:
            found = problem.residual(cp, {"x": self.x}, {"y": y}, sizes)
        return "" if found.ok else str(found)


@dataclass
class Contender:
    """Something that transforms all rows once: ``run``, after what ``prepare`` does untimed."""

    name: str
    run: Callable[[], None]
    answer: Callable[[], Any]
    prepare: Callable[[], None] | None = None
    ms: float = math.inf
    wrong: str = ""
    keep: Any = None


class CufftPlan:
    """Rows side by side, ``x`` to ``y`` or over each other; it lives as long as the object."""

    def __init__(self, library: VendorLibrary, problem: Problem, *, in_place: bool, patient: bool) -> None:
        self._library, self._handle, kind, n = library, ctypes.c_int(), problem.kind, problem.n
        library.call("cufftCreate", ctypes.byref(self._handle))
        if patient:
            library.call("cufftSetPlanPropertyInt64", self._handle, PATIENT_JIT, ctypes.c_longlong(1))
        lengths, size = (ctypes.c_longlong * 1)(n), ctypes.c_size_t()
        sides: list[Any] = [None, ctypes.c_longlong(1), ctypes.c_longlong(0)] * 2
        if in_place:  # real rows leave room for their frequencies
            widths = [row_width(n, array) for array in (problem.x, problem.y)]
            each = [((ctypes.c_longlong * 1)(w), ctypes.c_longlong(1), ctypes.c_longlong(w)) for w in widths]
            sides = [part for side in each for part in side]
        last = (kind.number, ctypes.c_longlong(problem.workload.batch), ctypes.byref(size))
        library.call("cufftMakePlanMany64", self._handle, 1, lengths, *sides, *last)
        complex_both = problem.x.dtype == problem.y.dtype
        way = FORWARD if kind.direction == "forward" else INVERSE
        self._function, self._way = kind.function, (way,) if complex_both else ()

    def __del__(self) -> None:
        self._library.call("cufftDestroy", self._handle)

    def run(self, x: Any, y: Any) -> None:
        """Transform all rows."""
        self._library.call(self._function, self._handle, address(x), address(y), *self._way)


def row_width(n: int, array: Any) -> int:
    """Numbers from row to row where real rows and their frequencies take turns in one place."""
    return 2 * (n // 2 + 1) if array.dtype.kind == "f" else int(array.shape[1])


def cufft(problem: Problem, library: VendorLibrary) -> Iterator[Contender]:
    """Planned forms of cuFFT; those that it refuses are left out. Inputs that it may destroy are copies."""
    cp, x, y = problem.bench.cp, problem.x, problem.y
    width = row_width(problem.n, x)
    room = cp.empty((len(x), width), x.dtype)
    given = room[:, : x.shape[1]]

    def answer_in_place() -> Any:
        return cp.ascontiguousarray(room.view(y.dtype)[:, : y.shape[1]])

    for in_place in (False, True):
        for patient in (False, True):
            name = f"cuFFT {'in place' if in_place else 'out of place'}{', patient JIT' if patient else ''}"
            try:
                plan = CufftPlan(library, problem, in_place=in_place, patient=patient)
            except RuntimeError as trouble:
                print(f"  {name}: {trouble}", flush=True)
                continue
            copied = in_place or (x.dtype.kind == "c" and x.dtype != y.dtype)
            run = partial(plan.run, room if copied else x, room if in_place else y)
            prepare = partial(cp.copyto, given, x) if copied else None
            yield Contender(name, run, answer_in_place if in_place else lambda: y, prepare, keep=plan)


ROUNDS = 22
FINALISTS = 4
TOGETHER = 32  # configurations that are compiled at a time


def in_turns(space: list[Configuration], seed: int) -> list[Configuration]:
    """A space in random order, forms of the kernel in turn; last comes what but bounds registers."""
    random.Random(seed).shuffle(space)  # noqa: S311 - an order, not a secret
    forms: dict[TunableValue | None, list[Configuration]] = {}
    for one in sorted(space, key=lambda c: "form" not in dict(c) and bool(dict(c).get("blocks"))):
        forms.setdefault(dict(one).get("form"), []).append(one)
    rounds = itertools.zip_longest(*forms.values())
    return [one for turn in rounds for one in turn if one is not None]


def ours(problem: Problem, seconds: float, form: str | None = None) -> Iterator[Contender]:
    """The default and the stated answers; others that compile without spills, as far as time allows."""
    bench, kernel, begin = problem.bench, problem.kernel, time.monotonic()
    space = [one for one in kernel.space(problem.workload) if form in (None, dict(one).get("form"))]
    stated = kernel.stated_answers(problem.workload, bench.gpu_name)
    named = dict.fromkeys([problem.default.configuration, *stated])
    left = [one for one in in_turns(space, problem.n) if one not in named]
    turns = [list(named), *(left[i : i + TOGETHER] for i in range(0, len(left), TOGETHER))]
    for number, turn in enumerate(turns):
        if number > 0 and time.monotonic() - begin >= seconds:
            return
        plans = [kernel.plan(problem.workload, c) for c in turn]
        compiled = iter(bench.compiler.compile([stage for plan in plans for stage in plan.stages]))
        for plan in plans:
            made = [next(compiled) for _ in plan.stages]
            spills = any(not isinstance(m, CompiledStage) or m.resources.local_bytes for m in made)
            if spills and plan.configuration != problem.default.configuration:
                continue
            try:
                yield contender(problem, plan)
            except (TunerError, bench.cp.cuda.driver.CUDADriverError) as trouble:
                print(f"  {plan.configuration}: {trouble}", flush=True)


def contender(problem: Problem, plan: Plan) -> Contender:
    """A plan on the arrays of a problem, its table made."""
    bench = problem.bench
    stream = bench.cp.cuda.get_current_stream()
    given = {**problem.inputs, "y": problem.y}
    arrays = {b.name: bench.cp.zeros(b.shape, b.dtype) for b in plan.buffers if b.name not in given} | given
    for step in bench.code.preparation(plan, arrays):
        step.enqueue(stream)
    launches = bench.code.launches(plan, arrays)

    def run() -> None:
        for launch in launches:
            launch.enqueue(stream)

    return Contender(str(plan.configuration), run, lambda: problem.y, keep=arrays)


def timed(problem: Problem, contenders: Iterator[Contender], scale: float = 0.0) -> list[Contender]:
    """Those that answer right, fastest first.

    Of a peer, ``scale`` is what its answers must be multiplied by. It may be less exact than kernels must be.
    """
    found = []
    for one in contenders:
        problem.y.view(problem.bench.cp.uint8).fill(0xFF)
        if one.prepare is not None:
            one.prepare()
        one.run()
        one.wrong = problem.check(one.answer() * scale if scale else one.answer(), whole=False)
        if one.wrong:
            print(f"  {one.name}: {one.wrong}", flush=True)
        if one.wrong and not scale:
            continue
        one.ms = median([problem.bench.timer.once(one.run, one.prepare) for _ in range(5)])
        found.append(one)
    return sorted(found, key=lambda one: one.ms)


def contest(
    problem: Problem,
    rivals: Iterator[Contender],
    scale: float,
    seconds: float,
    form: str | None = None,
) -> dict[str, Any]:
    """One problem: our best configuration and our default, the best rival, and a copy of the bytes."""
    bench = problem.bench
    tried = timed(problem, ours(problem, seconds, form))
    peers = timed(problem, rivals, scale)
    default = next((one for one in tried if one.name == str(problem.default.configuration)), tried[0])
    answers = map(str, problem.kernel.stated_answers(problem.workload, bench.gpu_name))
    stated = next((one for name in answers for one in tried if one.name == name), default)
    finals = {one.name: one for one in (*tried[:FINALISTS], default, *peers)}
    runs = {name: one.run for name, one in finals.items()}
    prepare = {name: one.prepare for name, one in finals.items() if one.prepare is not None}
    half_bytes = (problem.x.nbytes + problem.y.nbytes) // 2
    source, target = (bench.cp.empty(half_bytes, bench.cp.uint8) for _ in range(2))
    runs["copy"] = lambda: bench.cp.copyto(target, source)
    times = bench.timer.interleaved(runs, ROUNDS, prepare, seed=problem.n)
    half = ROUNDS // 2

    def best(names: list[str]) -> str:
        return min(names, key=lambda name: median(times[name][:half]))

    mine, peer = best([one.name for one in tried[:FINALISTS]]), best([one.name for one in peers])
    finals[mine].run()
    ms, default_ms, peer_ms, copy_ms = (
        median(times[name][half:]) for name in (mine, default.name, peer, "copy")
    )
    return {
        **dict(problem.workload.sizes),
        "kernel": problem.kernel.name,
        "batch": problem.workload.batch,
        "configuration": mine,
        "ms": ms,
        "spread_ms": spread(times[mine][half:]),
        "default": default.name,
        "default_ms": default_ms,
        "stated": stated.name,
        "stated_ms": stated.ms,
        "peer": peer,
        "peer_ms": peer_ms,
        "copy_ms": copy_ms,
        "ratio": peer_ms / ms,
        "wrong": problem.check(problem.y, whole=True),
        "tried": [{"configuration": one.name, "ms": one.ms} for one in tried],
        "peers": [{"form": one.name, "ms": one.ms, "wrong": one.wrong} for one in peers],
    }


def line(name: str, row: dict[str, Any]) -> str:
    """One length, for the terminal."""
    ours = f"{row['ms']:.4f} ± {row['spread_ms']:.4f} ms, {100 * row['copy_ms'] / row['ms']:5.1f} % of a copy"
    peer = f"{row['ratio']:.3f} x {row['peer']} ({row['peer_ms']:.4f} ms)"
    default = f"default {row['peer_ms'] / row['default_ms']:.3f} x"
    wrong = f"  WRONG {row['wrong']}" if row["wrong"] else ""
    tried = f"{row['configuration']}  of {len(row['tried'])}"
    return f"{name:13} {row['N']:8}  {ours}  {peer}  {default}  {tried}{wrong}"


def summary(name: str, rows: list[dict[str, Any]]) -> str:
    """Share of lengths that are no slower than cuFFT, and the geometric mean of the ratios."""
    ratios = [row["ratio"] for row in rows]
    defaults = [row["peer_ms"] / row["default_ms"] for row in rows]
    at_least = 100 * sum(ratio >= 1 for ratio in ratios) / len(ratios)
    mean, by_default = (math.exp(sum(map(math.log, some)) / len(some)) for some in (ratios, defaults))
    return (
        f"{name}: {at_least:.0f} % of {len(rows)} lengths >= 1.0 x cuFFT, geometric mean {mean:.3f} x, least"
        f" {min(ratios):.3f} x; defaults {by_default:.3f} x"
    )


def main() -> None:
    """Measure, print a line for each length and a summary of each kind, write the JSON after each length."""
    parser = command_line(__doc__, must_save=True)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--lengths", nargs="*", type=int, help="these instead of those of the kind")
    parser.add_argument("--seconds", type=float, default=15, help="for the configurations of a length")
    parser.add_argument("--form", help="of the kernel, beside the default and the stated answer")
    options = parser.parse_args()
    bench = opened()
    from cupy.cuda import cufft as loaded  # noqa: PLC0415 - loads the library that goes with CuPy's CUDA

    library, version = VendorLibrary("libcufft", (12, 11)), loaded.getVersion()
    facts = {**provenance(), "cufft": version, "copy_gb_s": copy_bandwidth(bench.cp, bench.timer)}
    document: dict[str, Any] = {"provenance": facts, "rows": {}}
    print(f"cuFFT {version}, copy {facts['copy_gb_s']:.0f} GB/s", flush=True)
    for name in options.kinds:
        rows = document["rows"].setdefault(name, [])
        for n in options.lengths or KINDS[name].lengths:
            try:
                problem = Problem(bench, KINDS[name], n)
                scale = 1 / n if KINDS[name].direction == "inverse" else 1.0
                rivals = cufft(problem, library)
                rows.append(contest(problem, rivals, scale, options.seconds, options.form))
            except TunerError as trouble:
                print(f"{name:13} {n:5}  left out: {trouble}", flush=True)
                continue
            save(options.out, document)
            print(line(name, rows[-1]), flush=True)
            bench.cp.get_default_memory_pool().free_all_blocks()
        if rows:
            print(summary(name, rows), flush=True)


if __name__ == "__main__":
    main()
