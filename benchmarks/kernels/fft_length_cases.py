"""Lengths that fft_lengths.py compares, their arrays, and cuFFT's planned forms."""

import ctypes
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from sweep import Bench
from vendor_library import VendorLibrary, address

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Plan, Workload
from tuner.problems.lookup import problem_for

SAMPLE = 64  # rows that are held to NumPy's answer,
SAMPLE_NUMBERS = 2**24  # fewer where rows are this long
INPUT_BYTES = 2**29
PATIENT_JIT = 1  # NVFFT_PLAN_PROPERTY_INT64_PATIENT_JIT
FORWARD, INVERSE = -1, 1

SMOOTH = (
    *(
        6,
        10,
        15,
        24,
        30,
        36,
        60,
        72,
        96,
        100,
        105,
        120,
        144,
        192,
        210,
        243,
        320,
        343,
        360,
        500,
        600,
        625,
        720,
    ),
    *(768, 840, 1000, 1200, 1260, 1440, 1536, 1875, 2000, 2187, 2401, 2520, 3000, 3072, 3125, 3600, 4000),
    *(4200, 4800, 5000, 5040, 6000, 6144, 6561, 7000, 7200, 7776, 8000),
)
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


class Contested(Protocol):
    """What a contest needs of its problem: arrays, kernel, and the check of an answer."""

    bench: Bench
    n: int
    kernel: KernelFile
    workload: Workload
    default: Plan
    x: Any
    y: Any

    @property
    def inputs(self) -> dict[str, Any]:
        """Arrays that the kernel is given, by name."""

    def check(self, y: Any, *, whole: bool) -> str:
        """What is wrong with an answer; empty where nothing is."""


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
