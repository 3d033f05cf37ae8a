"""Transforms of planes and columns, and convolutions, against cuFFT, side by side in one run on one GPU.

About 2^26 complex64 numbers: planes of 512^2 to 8192^2, columns that lie side by side, rows with one filter.
The protocol is that of fft_lengths.py: of each case the default, the stated answer and other
configurations are timed until its seconds are over, and cuFFT's planned forms (rank 2, or strided); the best
few go into interleaved rounds, of which the first half chooses and the second half is reported. Every answer
is held to CuPy's in double precision. The JSON is written after every case.

    python benchmarks/kernels/fft_planes.py --out benchmarks/results/fft-planes-h100.json [--only fft-2d]
"""

import argparse
import ctypes
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from cold_timing import copy_bandwidth
from fft_lengths import FORWARD, INVERSE, PATIENT_JIT, Contender, contest, line, summary
from peer_libraries import VendorLibrary, address
from provenance import provenance
from sweep import Bench, opened

from tuner.model.errors import TunerError
from tuner.problems.lookup import problem_for

# --- planes, columns, convolutions, and cuFFT's planned forms -------------------------------------


C2C = 0x29
POINTS = 2**26
ALLOWED = 1e-7  # relative L2 error of a plane or a row, for each radix-2 level


@dataclass(frozen=True)
class Case:
    """A kernel at some sizes; ``lengths`` are those along which it transforms."""

    kernel: str
    sizes: tuple[tuple[str, int | str], ...]
    lengths: tuple[int, ...]

    @property
    def name(self) -> str:
        """For the terminal."""
        return f"{self.kernel} {' x '.join(str(value) for _, value in self.sizes)}"

    @property
    def inverse(self) -> bool:
        """Whether it transforms back."""
        return ("direction", "inverse") in self.sizes


def plane(rows: int, columns: int, direction: str = "forward") -> Case:
    """A two-dimensional transform."""
    return Case("fft-2d", (("M", rows), ("N", columns), ("direction", direction)), (rows, columns))


def columns(length: int, width: int) -> Case:
    """Columns of one plane."""
    return Case("fft-columns", (("N", length), ("W", width)), (length,))


def convolution(length: int) -> Case:
    """Rows with one filter."""
    return Case("fft-convolution", (("N", length),), (length,))


CASES = (
    *(plane(n, n) for n in (512, 1024, 2048, 4096, 8192)),
    plane(2048, 2048, "inverse"),
    plane(1000, 1000),
    plane(3000, 3000),
    *(columns(n, POINTS // n) for n in (512, 1024, 2048, 4096, 8192)),
    columns(1000, 65536),
    *(convolution(n) for n in (256, 1024, 4096, 1000)),
)


class PlaneProblem:
    """The arrays of a case, its kernel, and the right answer by CuPy in double precision."""

    def __init__(self, bench: Bench, case: Case) -> None:
        self.bench, self.case, self.n = bench, case, sum(case.lengths)
        self.kernel = bench.catalog.kernel(case.kernel)
        self.workload = self.kernel.workload(dict(case.sizes))
        self.default = self.kernel.plan(self.workload, self.kernel.default(self.workload))
        cp, rng = bench.cp, bench.cp.random.Generator(bench.cp.random.Philox4x3210(self.n))
        self.inputs: dict[str, Any] = {}
        for buffer in self.default.buffers:
            if buffer.role == "in":
                array = cp.empty(buffer.shape, buffer.dtype)
                parts = array.view(cp.float32)
                parts[...] = rng.standard_normal(parts.shape, dtype=cp.float32)
                self.inputs[buffer.name] = array
        self.x = self.inputs["x"]
        self.y = cp.empty_like(self.x)

    @cached_property
    def reference(self) -> Any:
        """In complex128."""
        fft, x = self.bench.cp.fft, self.x.astype("complex128")
        if "spectrum" in self.inputs:
            return fft.ifft(fft.fft(x, axis=1) * self.inputs["spectrum"], axis=1)
        axes = (1, 2) if self.case.kernel == "fft-2d" else (1,)
        return (fft.ifftn if self.case.inverse else fft.fftn)(x, axes=axes)

    def check(self, y: Any, *, whole: bool) -> str:
        """What is wrong with an answer; empty where nothing is. ``whole``: also by the law of its problem."""
        cp, right = self.bench.cp, self.reference
        worst = 0.0
        for one in range(0, len(y), max(1, len(y) // 8)):
            part = slice(one, one + max(1, len(y) // 8))
            difference, exact = y[part] - right[part], right[part]
            axes = tuple(range(1, y.ndim))
            squares = [(z.real**2 + z.imag**2).sum(axis=axes) for z in (difference, exact)]
            error = float(cp.sqrt(squares[0] / squares[1]).max())
            worst = max(worst, error) if error == error else float("inf")  # noqa: PLR0124 - NaN
        levels = sum(n.bit_length() for n in self.case.lengths) * (2 if "spectrum" in self.inputs else 1)
        if not worst <= ALLOWED * levels:
            return f"relative L2 error {worst:.1e}, allowed {ALLOWED * levels:.1e}"
        if not whole:
            return ""
        problem = problem_for(self.default.problem)
        found = problem.residual(cp, self.inputs, {"y": y}, dict(self.workload.sizes))
        return "" if found.ok else str(found)


class TransformPlan:
    """A plan of cuFFT for complex64, of any rank and stride; it lives as long as the object."""

    def __init__(
        self, library: VendorLibrary, lengths: tuple[int, ...], batch: int, width: int, *, patient: bool
    ) -> None:
        """``width`` above 1: neighbouring columns, so many numbers from point to point."""
        self._library, self._handle = library, ctypes.c_int()
        library.call("cufftCreate", ctypes.byref(self._handle))
        if patient:
            library.call("cufftSetPlanPropertyInt64", self._handle, PATIENT_JIT, ctypes.c_longlong(1))
        wanted, size = (ctypes.c_longlong * len(lengths))(*lengths), ctypes.c_size_t()
        side = (
            (None, ctypes.c_longlong(1), ctypes.c_longlong(0))
            if width == 1
            else (wanted, ctypes.c_longlong(width), ctypes.c_longlong(1))
        )
        last = (C2C, ctypes.c_longlong(batch), ctypes.byref(size))
        library.call("cufftMakePlanMany64", self._handle, len(lengths), wanted, *side, *side, *last)

    def __del__(self) -> None:
        self._library.call("cufftDestroy", self._handle)

    def run(self, x: Any, y: Any, way: int) -> None:
        """Transform everything."""
        self._library.call("cufftExecC2C", self._handle, address(x), address(y), way)


def rivals(problem: PlaneProblem, library: VendorLibrary) -> Iterator[Contender]:
    """Forms of cuFFT: out of place, in place, each with and without kernels compiled for the plan.

    Of a convolution, with the product as a kernel between; 1 / N is part of its spectrum.
    """
    cp, x, y, case = problem.bench.cp, problem.x, problem.y, problem.case
    width = x.shape[2] if case.kernel == "fft-columns" else 1
    batch = x.shape[0] * max(1, width)
    room = cp.empty_like(x)
    product = cp.ElementwiseKernel("complex64 s", "complex64 z", "z *= s", "product_with_spectrum")
    spectrum = problem.inputs["spectrum"] / problem.n if "spectrum" in problem.inputs else None
    for in_place in (False, True):
        for patient in (False, True):
            form = f"cuFFT {'in place' if in_place else 'out of place'}{', patient JIT' if patient else ''}"
            try:
                plan = TransformPlan(library, case.lengths, batch, width, patient=patient)
            except RuntimeError as trouble:
                print(f"  {form}: {trouble}", flush=True)
                continue
            source, target = (room, room) if in_place else (x, y)
            run: Callable[[], None] = partial(plan.run, source, target, INVERSE if case.inverse else FORWARD)
            if spectrum is not None:
                run = partial(_convolve, plan, product, spectrum, source, target)
                form += ", product by a kernel"
            prepare = partial(cp.copyto, room, x) if in_place else None
            yield Contender(form, run, partial(_same, target), prepare, keep=plan)


def _convolve(plan: TransformPlan, product: Any, spectrum: Any, source: Any, target: Any) -> None:
    plan.run(source, target, FORWARD)
    product(spectrum, target)
    plan.run(target, target, INVERSE)


def _same(array: Any) -> Any:
    return array


def main() -> None:
    """Measure, print a line for each case and a summary of each kernel, write the JSON after each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="cases whose name contains this, e.g. 'fft-2d'")
    parser.add_argument("--seconds", type=float, default=5, help="for the configurations of a case")
    options = parser.parse_args()
    bench = opened()
    from cupy.cuda import cufft as loaded  # noqa: PLC0415 - loads the library that goes with CuPy's CUDA

    library, version = VendorLibrary("libcufft", (12, 11)), loaded.getVersion()
    facts = {**provenance(), "cufft": version, "copy_gb_s": copy_bandwidth(bench.cp, bench.timer)}
    document: dict[str, Any] = {"provenance": facts, "rows": {}}
    print(f"cuFFT {version}, copy {facts['copy_gb_s']:.0f} GB/s", flush=True)
    for case in (case for case in CASES if options.only in case.name):
        try:
            problem = PlaneProblem(bench, case)
            scale = 1 / problem.x[0].size if case.inverse else 1.0
            row = contest(problem, rivals(problem, library), scale, options.seconds)
        except TunerError as trouble:
            print(f"{case.name}: left out: {trouble}", flush=True)
            continue
        document["rows"].setdefault(case.kernel, []).append(row)
        options.out.write_text(json.dumps(document, indent=1) + "\n")
        print(line(case.name, row), flush=True)
        del problem
        bench.cp.get_default_memory_pool().free_all_blocks()
    for name, rows in document["rows"].items():
        print(summary(name, rows), flush=True)


if __name__ == "__main__":
    main()
