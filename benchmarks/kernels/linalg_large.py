"""Factorisations of one large matrix against cuSOLVER, side by side in one run on one GPU.

A row is potrf, getrf or geqrf at one order and in one type: milliseconds and TFlop/s of cuSOLVER (the better
of its classic and its 64-bit form), of cuBLAS's product of two matrices of that order as the ceiling, of the
kernel by default, and of the best of a short search. Whole factorisations are one CUDA graph where they can
be captured. The matrix is restored before each, outside of what is timed; workspaces are allocated before.
Contenders go by turns, in an order drawn anew in every round. The first half of the rounds chooses form and
configuration, the second half is reported: medians, the ratio with its 95 % interval. Answers of both are
judged by the law of the kernel file. Rows are printed and written as they come; Ctrl-C keeps them.

    python benchmarks/kernels/linalg_large.py --n 256 512 1024 2048 4096 8192 --limit 360 --out large.json
    python benchmarks/kernels/linalg_large.py --only getrf --n 16384 --dtype float64 --budget 20
"""

import argparse
import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks


import numpy as np
from linalg_contest import (
    Contender,
    Machine,
    Run,
    Searcher,
    Space,
    compared,
    end_words,
    field_of,
    options_of,
    peer_words,
    row_of,
    summary,
    timed,
)
from linalg_libraries import (
    LETTERS,
    LOWER,
    PLAIN,
    REALS,
    Arrays,
    Case,
    Form,
    HostArrays,
    LinalgLibraries,
)
from peer_libraries import address
from provenance import provenance

from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.answer_check import sizes_of
from tuner.devices.cuda.code import CodeCache
from tuner.kernel_files.catalog import Catalog
from tuner.model.elements import element_dtype
from tuner.model.errors import TunerError
from tuner.model.plan import Configuration, Plan
from tuner.problems.base import Deviation, stated_values
from tuner.problems.lookup import problem_for

# --- factorisations, and their targets ------------------------------------------------------------


SIZES = (256, 512, 1024, 2048, 4096, 8192, 16384)
OPERATIONS = ("potrf", "getrf", "geqrf")


_SMALL, _LARGE = 1024, 16384  # orders


class LargeCase(Case):
    """One row: a factorisation at one order and in one type."""

    @property
    def target(self) -> float | None:
        """Least ratio of cuSOLVER's time to that of an untuned call; None where it is only reported."""
        if self.operation == "potrf":
            return 1.0
        if self.n < _SMALL:
            return None
        if self.operation == "getrf":
            return 1.05 if self.n >= _LARGE else 1.2
        return 1.35 if self.n >= _LARGE else 1.05

    @property
    def flops(self) -> int:
        """LAPACK's count without its lower terms: of n^3 a third, two thirds, four thirds."""
        return {"potrf": 1, "getrf": 2, "geqrf": 4}[self.operation] * self.n**3 // 3


def large_cases(operations: Sequence[str], sizes: Sequence[int], dtypes: Sequence[str]) -> list[LargeCase]:
    """The rows; small orders come first, so that a run that is cut short has some of each factorisation."""
    return [
        LargeCase(operation, n, dtype) for n in sorted(sizes) for operation in operations for dtype in dtypes
    ]


# --- arrays: one set, with scratch arrays for each configuration ----------------------------------


DeviceArrays = dict[str, Any]


def drawn(plan: Plan) -> HostArrays:
    """Inputs of a plan, as its kernel file states them, on the host."""
    rng = np.random.default_rng(20)
    return {b.name: stated_values(b, rng) for b in plan.buffers if b.role in {"in", "inout"}}


class LargeSets:
    """One set of arrays; inputs stay on the device, and are copied from there.

    Args:
        cp: CuPy.
        plan: of a configuration.
        given: inputs, on the device.
        shared: inputs and outputs of another configuration, which this one takes too.

    Attributes:
        arrays: the set, by the names of the buffers.
        count: 1.
        batch: 1.
    """

    count = 1
    batch = 1

    def __init__(self, cp: Any, plan: Plan, given: DeviceArrays, shared: Arrays | None = None) -> None:
        self._cp, self._plan, self._given = cp, plan, given
        judged = {b.name for b in plan.buffers if b.role in {"in", "inout", "out"}}
        known = {name: array for name, array in (shared or {}).items() if name in judged}
        self.arrays: list[Arrays] = [{b.name: known.get(b.name) for b in plan.buffers}]
        for buffer in plan.buffers:
            if buffer.name not in known:
                self.arrays[0][buffer.name] = cp.empty(buffer.shape, element_dtype(buffer.dtype))
        self._outputs = [b.name for b in plan.buffers if b.role in {"inout", "out"}]
        self.restore()

    def of(self, plan: Plan) -> "LargeSets":
        """The same inputs and outputs, with the scratch arrays of another configuration."""
        return LargeSets(self._cp, plan, self._given, self.arrays[0])

    def restore(self) -> None:
        """Undo what runs do to their inputs."""
        for name, given in self._given.items():
            self._cp.copyto(self.arrays[0][name], given)

    def begin_check(self) -> None:
        """Restore the inputs; outputs hold NaN, or -1."""
        for name in self._outputs:
            array = self.arrays[0][name]
            if name not in self._given:
                array.data.memset_async(0xFF, array.nbytes)
        self.restore()

    def given(self) -> DeviceArrays:
        """The inputs, on the device."""
        return self._given

    def made(self) -> DeviceArrays:
        """The outputs, on the device."""
        return {name: self.arrays[0][name] for name in self._outputs}

    def judge(self, outputs: DeviceArrays) -> Deviation:
        """What the law of the kernel file says."""
        problem = problem_for(self._plan.problem)
        return problem.residual(self._cp, self._given, outputs, sizes_of(self._plan))


# --- cuSOLVER, and products by cuBLAS; arguments as in their headers ------------------------------


_TYPES = {"float32": 0, "float64": 1}  # cudaDataType: CUDA_R_32F, CUDA_R_64F


class LargeLibraries(LinalgLibraries):
    """cuBLAS and cuSOLVER for one matrix; the arguments are those of ``LinalgLibraries``."""

    def factorizations(self, case: Case, sets: LargeSets) -> list[Form]:
        """The forms of cuSOLVER that this version has: the classic one and the 64-bit one.

        ``missing`` says which are not there.
        """
        if self._cusolver is None:
            return []
        makers: tuple[Callable[[Case, LargeSets], Form], ...] = (self._classic, self._generic)
        return [form for form in (self._tried(make, case, sets) for make in makers) if form is not None]

    def _tried(self, make: Callable[[Case, LargeSets], Form], case: Case, sets: LargeSets) -> Form | None:
        try:
            return make(case, sets)
        except RuntimeError as error:
            self.missing[f"cuSOLVER, {case}"] = str(error)
            return None

    def gemm(self, case: Case, sets: LargeSets) -> Form | None:
        """The product of the matrix with itself, n x n x n, in the default math mode: without TF32."""
        if self._cublas is None:
            return None
        name, n = f"cublas{LETTERS[case.dtype]}gemm_v2", case.n
        one, zero = REALS[case.dtype](1), REALS[case.dtype](0)
        given, made = sets.given()["A"], self.cp.empty((n, n), case.dtype)

        def call(place: int, stream: int) -> None:
            del place
            factors = (ctypes.byref(one), address(given), n, address(given), n)
            self.blas(name, stream, PLAIN, PLAIN, n, n, n, *factors, ctypes.byref(zero), address(made), n)

        return Form("cuBLAS gemm", "", call, keep=(one, zero, given, made))

    def _classic(self, case: Case, sets: LargeSets) -> Form:
        """By ``cusolverDn<t>potrf`` and its like, whose sizes are int."""
        name, n = f"cusolverDn{LETTERS[case.dtype]}{case.operation}", case.n
        arrays = sets.arrays[0]
        shape = (LOWER, n) if case.operation == "potrf" else (n, n)
        length = ctypes.c_int()
        matrix = (*shape, address(arrays["A"]), n)
        self._cusolver.call(f"{name}_bufferSize", self._solver, *matrix, ctypes.byref(length))
        work = self.cp.empty(max(1, length.value), case.dtype)
        info = arrays["info"] if "info" in arrays else self.cp.empty(1, "int32")
        rest: tuple[Any, ...] = (address(work), length.value, address(info))
        if case.operation == "getrf":
            rest = (address(work), address(arrays["ipiv"]), address(info))
        elif case.operation == "geqrf":
            rest = (address(arrays["tau"]), *rest)

        def call(place: int, stream: int) -> None:
            del place
            self.solver(name, stream, *matrix, *rest)

        return Form(f"cuSOLVER {case.operation}", "", call, _judged(self.cp, case), keep=(work, info))

    def _generic(self, case: Case, sets: LargeSets) -> Form:
        """By ``cusolverDnXpotrf`` and its like, whose sizes are int64_t, and pivots of getrf too."""
        name, arrays = f"cusolverDnX{case.operation}", sets.arrays[0]
        n, kind = ctypes.c_int64(case.n), _TYPES[case.dtype]
        parameters = ctypes.c_void_p()
        self._cusolver.call("cusolverDnCreateParams", ctypes.byref(parameters))
        pivots = self.cp.empty(case.n, "int64")
        matrix = (kind, address(arrays["A"]), n)
        before: tuple[Any, ...] = (parameters, LOWER, n) if case.operation == "potrf" else (parameters, n, n)
        tau = (kind, address(arrays["tau"])) if case.operation == "geqrf" else ()
        device_bytes, host_bytes = ctypes.c_size_t(), ctypes.c_size_t()
        sizes = (ctypes.byref(device_bytes), ctypes.byref(host_bytes))
        self._cusolver.call(f"{name}_bufferSize", self._solver, *before, *matrix, *tau, kind, *sizes)
        work = self.cp.empty(max(1, device_bytes.value), "uint8")
        host = ctypes.create_string_buffer(max(1, host_bytes.value))
        info = arrays["info"] if "info" in arrays else self.cp.empty(1, "int32")
        made = (address(pivots),) if case.operation == "getrf" else tau
        works = (address(work), device_bytes, host, host_bytes, address(info))

        def call(place: int, stream: int) -> None:
            del place
            self.solver(name, stream, *before, *matrix, *made, kind, *works)

        keep = (parameters, work, host, info, pivots)
        convert = _judged(self.cp, case, pivots)
        return Form(f"cuSOLVER {case.operation}", "64-bit", call, convert, keep=keep)


def _judged(cp: Any, case: Case, pivots: Any = None) -> Callable[[DeviceArrays, DeviceArrays], DeviceArrays]:
    """Makes of a library's outputs those of the kernel.

    Of potrf, what stands above the diagonal is no part of the answer, and the library may use it.
    """

    def converted(given: DeviceArrays, made: DeviceArrays) -> DeviceArrays:
        if case.operation == "potrf":
            return {**made, "A": cp.triu(made["A"]) + cp.tril(given["A"], -1)}
        if pivots is not None and case.operation == "getrf":
            return {**made, "ipiv": pivots.astype("int32")}
        return made

    return converted


@dataclass(frozen=True)
class Opened:
    """What a row begins with.

    Attributes:
        space: of the kernel.
        first: configurations that are measured first.
        inputs: on the host.
    """

    space: Space
    first: Sequence[Configuration]
    inputs: HostArrays

    def on(self, cp: Any) -> LargeSets:
        """The arrays of the default configuration on the device."""
        given = {name: cp.asarray(host) for name, host in self.inputs.items()}
        return LargeSets(cp, self.space.plans[self.space.item.default], given)


def opened(searcher: Searcher, case: Case) -> Opened:
    """Compile what a row begins with, and draw its matrix.

    Raises:
        TunerError: nothing is left of the space.
    """
    space, first = searcher.opened(case)
    return Opened(space, first, drawn(space.plans[space.item.default]))


def large_contest(
    machine: Machine, libraries: LargeLibraries, begin: Opened, budget_s: float
) -> dict[str, Any]:
    """A row: times and rates of all, the ratio to the library, and whether the target is met.

    Args:
        machine: the GPU.
        libraries: the peers.
        begin: what is compiled.
        budget_s: for the row.
    """
    begun_s = time.monotonic()
    space = begin.space
    sets = begin.on(machine.cp)
    gemm = product(machine, libraries.gemm(space.case, sets), sets)
    forms = libraries.factorizations(space.case, sets)
    field = field_of(machine, space, begin.first, sets, forms=forms, ends_s=begun_s + budget_s)
    ceiling = [] if gemm is None else [gemm]
    machine.rounds([*field.right_own, *field.right_peers, *ceiling], seed=space.case.n)
    row = row_of(space, field, sets)
    row |= compared(space, field.finalists, field.right_peers, 1, None)
    row["gemm"] = None if gemm is None else timed(gemm, 1)
    row["correct"] = row["correct"] and bool(field.right_peers)
    return {**rated(row), "seconds": round(time.monotonic() - begun_s, 2)}


def product(machine: Machine, form: Form | None, sets: LargeSets) -> Contender | None:
    """The product of matrices as a contender; None where it does not run."""
    if form is None:
        return None

    def multiply(stream: Any, places: Sequence[int]) -> None:
        for place in places:
            form.call(place, stream.ptr)

    made = machine.timed(form.key, multiply, sets)
    made.form = form
    return None if made.trouble else made


def rated(row: dict[str, Any]) -> dict[str, Any]:
    """The row with TFlop/s beside its times; flops are LAPACK's leading terms, of gemm 2 n^3."""
    flops = LargeCase(row["operation"], row["n"], row["dtype"]).flops
    for name in ("peer", "default", "analytical", "best", "gemm"):
        if row[name] is not None:
            of = 2 * row["n"] ** 3 if name == "gemm" else flops
            row[name]["tflops"] = of / row[name]["us"] / 1e6
    return row


# --- the command -----------------------------------------------------------------------------------


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    return options_of(__doc__, OPERATIONS, SIZES, 2, 32768).parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, write; the exit code."""
    options = parsed(words)
    ends_s = time.monotonic() + options.limit
    try:
        cp = probe.open_cupy(0)
        limits = probe.gpu_limits(cp, 0)
        compiler = Compiler(limits.architecture)
    except TunerError as error:
        print(f"{error}\nThis benchmark needs a CUDA GPU.", file=sys.stderr)
        return 2
    with compiler:
        libraries = LargeLibraries(cp)
        searcher = Searcher(limits, compiler, Catalog.load(), batch=1)
        machine = Machine(cp, CodeCache(cp, compiler, limits), libraries, searcher)
        facts = {"libraries": libraries.versions(), "missing": libraries.missing}
        print(f"{facts['libraries']}; not found: {facts['missing']}", flush=True)
        document = {"provenance": provenance(), **facts, "rows": [], "failed": [], "left_out": []}

        def begun(case: Case) -> Opened:
            return opened(searcher, case)

        def measured(begin: Opened, budget_s: float) -> dict[str, Any]:
            return large_contest(machine, libraries, begin, budget_s)

        run = Run(cp, begun, measured, line, options.budget, ends_s, options.out, ahead=False)
        ended = run.rows(large_cases(options.only, options.n, options.dtype), document)
    print(summary(document))
    return ended


def line(row: dict[str, Any]) -> str:
    """A row for the terminal."""
    parts = [f"{row['operation']} {row['dtype']} n={row['n']:<5}"]
    peer, best = row["peer"], row["best"]
    parts.append(peer_words(row) + ("" if peer is None else f" {_figures(peer)}"))
    parts += [f"{name} {_figures(row[name])}" for name in ("gemm", "default", "best")]
    if best is not None:
        if peer is not None:
            ratio = best["ratio"]
            parts.append(f"{ratio['median']:.2f} x [{ratio['low']:.2f}, {ratio['high']:.2f}]")
        parts.append(f"error {best['error']:.2g}")
        parts.append(" ".join(f"{name}={value}" for name, value in best["configuration"].items()))
    return "  ".join([*parts, *end_words(row)])


def _figures(one: dict[str, Any] | None) -> str:
    return "-" if one is None else f"{one['us'] / 1e3:.3f} ms ({one['tflops']:.2f} TF/s)"


if __name__ == "__main__":
    sys.exit(main())
