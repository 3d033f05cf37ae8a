"""Calls of tuner.linalg on matrices that are not square, beside cuBLAS and cuSOLVER, in one run on one GPU.

A row is a call, untuned, at one shape and in one type, waited for: QR with the first columns of Q, LU, and
systems with as many right sides as rows. Peers have their arrays and workspaces before, take their own
layout, and are one CUDA graph where that can be captured: geqrf and orgqr, getrf, getrf and getrs, and
CholeskyQR2 of gemm, potrf, trsm and trmm, which is only right where the matrix is well conditioned. Singular
values of rows with a condition fall evenly by decades. Contenders go by turns in an order drawn anew in every
round: medians, half of the range from 16 to 84 %. Errors are in units of roundoff times the root of the
columns, of A by its columns and of Q'Q - I by its largest element. Rows are written as they come; Ctrl-C
keeps them.

    python benchmarks/kernels/linalg_tall.py --out linalg-tall.json [--seconds 110] [--only qr]
"""

import ctypes
import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

import numpy as np
from linalg_libraries import (
    LETTERS,
    NON_UNIT,
    PLAIN,
    REALS,
    RIGHT,
    TRANSPOSED,
    UPPER,
    LinalgLibraries,
    address,
)
from provenance import command_line, provenance, save

from tuner import linalg
from tuner.devices.cuda import probe
from tuner.model.errors import TunerError

ROUNDS, SECONDS_A_ROW = 41, 1.5
LEFT = 0  # cublasSideMode_t


class Case(NamedTuple):
    """A call at a shape; the condition is that of a matrix of uniform numbers where it is 1."""

    operation: str
    m: int
    n: int
    condition: float = 1.0


CASES = (
    *(Case("lu", times * n, n) for times in (16, 32) for n in (256, 512, 1024)),
    *(Case("qr", 4096, 512, condition) for condition in (1e2, 1e5, 1e12)),
    *(Case("qr", m, m // 8) for m in (2048, 4096, 8192)),
    *(Case("qr", 20000, 100), Case("qr", 4096, 2048), Case("qr", 512, 4096)),
    *(Case("lu", 4096, 512), Case("lu", 512, 4096), Case("solve", 2048, 2048)),
)


@dataclass
class Contender:
    """What is timed: a call, and what its result is, (Q, R), (factors, pivots from 0) or (x,).

    ``captured`` has the arrays of a graph.
    """

    name: str
    call: Callable[[], Any]
    result: Callable[[], Sequence[Any]]
    captured: Callable[[], Any] | None = None


class Peers:
    """Calls of the libraries on column-major copies of a matrix.

    Args:
        cp: CuPy.
        libraries: the libraries.
        a: (m, n).
        b: right-hand sides; None where there are none.
    """

    def __init__(self, cp: Any, libraries: LinalgLibraries, a: Any, b: Any) -> None:
        self._cp, self._libraries = cp, libraries
        self._m, self._n = m, n = a.shape
        self._dtype, self._letter = a.dtype, LETTERS[a.dtype.name]
        self._given = cp.ascontiguousarray(a.T)
        self._right = None if b is None else cp.ascontiguousarray(b.T)
        self._work, self._info = cp.empty_like(self._given), cp.empty(1, "int32")
        self._tau = cp.empty(min(m, n), a.dtype)
        self._lend = [cp.empty((min(m, n), n), a.dtype) for _ in range(3)]

    def of(self, operation: str) -> list[Contender]:
        """Those that do an operation."""
        ways = {"qr": [self._householder, self._cholesky], "lu": [self._lu], "solve": [self._solve]}
        if self._m < 2 * self._n:
            ways["qr"].pop()
        return [self._captured(way()) for way in ways[operation]]

    def _captured(self, one: Contender) -> Contender:
        stream = self._cp.cuda.get_current_stream()
        one.call()
        stream.synchronize()
        try:
            stream.begin_capture()
            try:
                one.call()
            finally:
                graph = stream.end_capture()
        except (RuntimeError, self._cp.cuda.runtime.CUDARuntimeError):
            return one
        return Contender(one.name, partial(graph.launch, stream), one.result, one.call)

    def _solver(self, routine: str, *arguments: Any) -> None:
        stream = self._cp.cuda.get_current_stream().ptr
        self._libraries.solver(f"cusolverDn{self._letter}{routine}", stream, *arguments)

    def _blas(self, routine: str, *arguments: Any) -> None:
        stream = self._cp.cuda.get_current_stream().ptr
        self._libraries.blas(f"cublas{self._letter}{routine}", stream, *arguments)

    def _room(self, routine: str, *arguments: Any) -> tuple[Any, int]:
        length = ctypes.c_int()
        self._solver(f"{routine}_bufferSize", *arguments, ctypes.byref(length))
        return self._cp.empty(max(1, length.value), self._dtype), length.value

    def _householder(self) -> Contender:
        work, (m, n), least = self._work, (self._m, self._n), min(self._m, self._n)
        matrix = (address(work), m)
        room, size = self._room("geqrf", m, n, *matrix)
        form = (m, least, least, *matrix, address(self._tau))
        other, other_size = self._room("orgqr", *form)
        r = self._cp.empty((n, least), self._dtype)

        def call() -> None:
            self._cp.copyto(work, self._given)
            ends = (address(room), size, address(self._info))
            self._solver("geqrf", m, n, *matrix, address(self._tau), *ends)
            self._cp.copyto(r, work[:, :least])
            self._solver("orgqr", *form, address(other), other_size, address(self._info))

        return Contender("geqrf, orgqr", call, lambda: (work[:least].T, self._cp.triu(r.T)))

    def _cholesky(self) -> Contender:
        cp, q, (m, n) = self._cp, self._work, (self._m, self._n)
        one, zero = (ctypes.byref(REALS[self._dtype.name](value)) for value in (1, 0))
        first, second, r = self._lend
        room, size = self._room("potrf", UPPER, n, address(first), n)
        triangle = cp.tril(cp.ones((n, n), self._dtype))  # column-major: the upper one

        def divide(gram: Any) -> None:
            factors = (address(q), m, address(q), m)
            self._blas("gemm_v2", TRANSPOSED, PLAIN, n, n, m, one, *factors, zero, address(gram), n)
            ends = (address(room), size, address(self._info))
            self._solver("potrf", UPPER, n, address(gram), n, *ends)
            way = (RIGHT, UPPER, PLAIN, NON_UNIT, m, n, one)
            self._blas("trsm_v2", *way, address(gram), n, address(q), m)

        def call() -> None:
            cp.copyto(q, self._given)
            divide(first)
            divide(second)
            cp.multiply(first, triangle, out=first)
            way = (LEFT, UPPER, PLAIN, NON_UNIT, n, n, one)
            self._blas("trmm_v2", *way, address(second), n, address(first), n, address(r), n)

        return Contender("CholeskyQR2 of cuBLAS and cuSOLVER", call, lambda: (q.T, cp.triu(r.T)))

    def _lu(self) -> Contender:
        work, (m, n) = self._work, (self._m, self._n)
        pivots = self._cp.empty(min(m, n), "int32")
        room, _ = self._room("getrf", m, n, address(work), m)

        def call() -> None:
            self._cp.copyto(work, self._given)
            ends = (address(pivots), address(self._info))
            self._solver("getrf", m, n, address(work), m, address(room), *ends)

        self._pivots = pivots
        return Contender("getrf", call, lambda: (work.T, pivots - 1))

    def _solve(self) -> Contender:
        factored, x, (n, k) = self._lu(), self._cp.empty_like(self._right), self._right.shape[::-1]

        def call() -> None:
            factored.call()
            self._cp.copyto(x, self._right)
            way = (PLAIN, n, k, address(self._work), n, address(self._pivots))
            self._solver("getrs", *way, address(x), n, address(self._info))

        return Contender("getrf, getrs", call, lambda: (x.T,))


def matrix_of(cp: Any, case: Case, dtype: str) -> Any:
    """A matrix of a case, row-major."""
    rng = cp.random.default_rng(case.m + case.n)
    a = rng.uniform(-1, 1, (case.m, case.n))
    if case.condition > 1:
        left, _ = cp.linalg.qr(a)
        right, _ = cp.linalg.qr(rng.uniform(-1, 1, (case.n, case.n)))
        a = (left * cp.logspace(0, -math.log10(case.condition), case.n)) @ right
    return cp.ascontiguousarray(a.astype(dtype))


def errors_of(cp: Any, case: Case, a: Any, b: Any, result: Sequence[Any]) -> dict[str, float]:
    """Errors of a result in units of roundoff times the root of the columns."""
    unit = float(np.finfo(a.dtype).eps) / 2 * math.sqrt(case.n)
    wide, found = a.astype("float64"), [one.astype("float64") for one in result]
    if case.operation == "solve":
        size = abs(wide).sum(axis=1).max() * abs(found[0]).max()
        return {"backward": float(abs(wide @ found[0] - b).max() / size) / unit}
    if case.operation == "lu":
        order, least = np.arange(case.m), min(case.m, case.n)
        for row, other in enumerate(result[1].get()):
            order[[row, other]] = order[[other, row]]
        low = cp.tril(found[0][:, :least], -1) + cp.eye(case.m, least)
        defect = wide[cp.asarray(order)] - low @ cp.triu(found[0][:least])
    else:
        q, r = found
        defect = wide - q @ r
    norms = cp.linalg.norm(defect, axis=0) / cp.linalg.norm(wide, axis=0)
    errors = {"backward": float(norms.max()) / unit}
    if case.operation == "qr":
        errors["orthogonality"] = float(abs(q.T @ q - cp.eye(q.shape[1])).max()) / unit
    return errors


def contest(cp: Any, libraries: LinalgLibraries, case: Case, dtype: str) -> dict[str, Any]:
    """A row."""
    a = matrix_of(cp, case, dtype)
    b = a[:, ::-1].copy() if case.operation == "solve" else None
    ours = {
        "qr": partial(linalg.qr, a, "economic"),
        "lu": partial(linalg.lu_factor, a, check=False),
        "solve": partial(linalg.solve, a, b, check=False),
    }[case.operation]

    def result() -> Sequence[Any]:
        made = ours()
        return made if isinstance(made, tuple) else (made,)

    contenders = [
        Contender(f"tuner.linalg.{case.operation}", ours, result),
        *Peers(cp, libraries, a, b).of(case.operation),
    ]
    stream = cp.cuda.get_current_stream()

    def timed(one: Contender) -> float:
        stream.synchronize()
        begun = time.perf_counter()
        one.call()
        stream.synchronize()
        return 1e3 * (time.perf_counter() - begun)

    for one in 3 * contenders:
        timed(one)
    round_s = sum(map(timed, contenders)) / 1e3
    rounds = max(5, min(ROUNDS, int(SECONDS_A_ROW / round_s)))
    times: list[list[float]] = [[] for _ in contenders]
    order, rng = list(range(len(contenders))), random.Random(0)  # noqa: S311 - an order of turns
    for place in (one for _ in range(rounds) for one in rng.sample(order, len(order))):
        times[place].append(timed(contenders[place]))
    rows = []
    for one, sample in zip(contenders, times, strict=True):
        low, middle, high = np.percentile(sample, (16, 50, 84))
        one.call()
        errors = errors_of(cp, case, a, b, one.result())
        row = {"name": one.name, "ms": float(middle), "spread_ms": float(high - low) / 2}
        rows.append({**row, "graph": one.captured is not None, "errors": errors})
    peers = [row for row in rows[1:] if max(row["errors"].values()) < 30]  # LAPACK's tests
    ratio = min((row["ms"] for row in peers), default=math.nan) / rows[0]["ms"]
    ratios = {"ratio": ratio, "solver": rows[1]["ms"] / rows[0]["ms"]}
    return {**case._asdict(), "dtype": dtype, "rounds": rounds, "rows": rows, **ratios}


def shown(row: dict[str, Any]) -> str:
    """A row for the terminal."""
    names = [
        f"{one['name']} {one['ms']:.3f} ± {one['spread_ms']:.3f} ms (errors "
        + ", ".join(f"{value:.2g}" for value in one["errors"].values())
        + f"{', graph' if one['graph'] else ''})"
        for one in row["rows"]
    ]
    place = f"{row['operation']} {row['m']} x {row['n']} {row['dtype']} condition {row['condition']:.0e}"
    return f"{place}: {row['solver']:.2f} x cuSOLVER, {row['ratio']:.2f} x the best right; {'; '.join(names)}"


def main() -> int:
    """Measure, print, write; the exit code."""
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=110, help="after which no row is begun; 110")
    parser.add_argument("--only", choices=("qr", "lu", "solve"), help="rows of one call")
    parser.add_argument("--dtype", nargs="+", choices=tuple(LETTERS), default=list(LETTERS))
    options = parser.parse_args()
    ends_s = time.monotonic() + options.seconds
    try:
        cp = probe.open_cupy(0)
    except TunerError as error:
        print(f"{error}\nThis benchmark needs a CUDA GPU.", file=sys.stderr)
        return 2
    libraries = LinalgLibraries(cp)
    document: dict[str, Any] = {"provenance": provenance(), "libraries": libraries.versions()}
    document |= {"rows": [], "left_out": []}
    cases = [(case, dtype) for case in CASES for dtype in options.dtype]
    try:
        with cp.cuda.Stream(non_blocking=True):
            for case, dtype in cases:
                if options.only not in {None, case.operation}:
                    continue
                why = "no time was left"
                if time.monotonic() < ends_s:
                    try:
                        document["rows"].append(contest(cp, libraries, case, dtype))
                        print(shown(document["rows"][-1]), flush=True)
                        why = ""
                    except (TunerError, RuntimeError, MemoryError) as error:
                        why = f"{type(error).__name__}: {error}"
                if why:
                    document["left_out"].append({**case._asdict(), "dtype": dtype, "why": why})
                    print(f"{case} {dtype}: left out: {why}", flush=True)
                cp.get_default_memory_pool().free_all_blocks()
                save(options.out, document)
    except KeyboardInterrupt:
        print("interrupted; the rows so far are kept", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
