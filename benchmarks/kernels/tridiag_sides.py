"""Long tridiagonal systems, periodic or with several right sides, against cuSPARSE in one run on one GPU.

As ``tridiag_large.py`` does it. cuSPARSE has no routine for periodic systems: their peer is the open system
with two right sides, and one pass over both solutions by the formula of Sherman and Morrison. What prepares
that matrix and the second right side is not timed. Bare kernels move as many bytes as are read and written
once.

    python benchmarks/kernels/tridiag_sides.py --out benchmarks/results/tridiag-sides-h200.json \
        [--seconds 400]
"""

import argparse
import ctypes
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from cold_timing import copy_bandwidth
from peer_libraries import LETTERS, ONE_SYSTEM, STRIDED, CusparsePeers, Peer, Room, address
from provenance import provenance
from sweep import Bench, Data, bare, opened
from tridiag_large import Contenders, Systems, compared, line

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Buffer, Configuration, ProblemSpec, Workload
from tuner.problems.lookup import problem_for

# --- cuSPARSE -------------------------------------------------------------------------------------


_TYPES = {"float32": "float", "float64": "double", "complex64": "complex<float>"}
_CORRECTION = r"""
#include <cupy/complex.cuh>
template <class T>
__global__ void correct(const T* a, const T* b, const T* y, const T* q, T* x, long long n, long long count) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    const long long first = i / n * n, last = first + n - 1;
    const T corner = -a[first] / b[first];
    x[i] = y[i] - (y[first] + corner * y[last]) / (T(1) + q[first] + corner * q[last]) * q[i];
}
"""
_THREADS = 256


class SidedPeers(CusparsePeers):
    """The routines that take several right sides, or that are called once for each."""

    def several(self, data: Data) -> list[Peer]:
        """For K right sides, which lie as the routines want them: all first ones, then all second ones."""
        cp, (*matrix, d) = self._cp, data.inputs
        batch, n = matrix[0].shape
        right = cp.empty((d.shape[1] // n, batch, n), d.dtype)

        def prepare() -> None:
            cp.copyto(right, d.reshape(batch, -1, n).transpose(1, 0, 2))

        def answer() -> Any:
            return right.transpose(1, 0, 2).reshape(batch, -1)

        def peer(name: str, form: str, solve: Callable[[], None]) -> Peer:
            return Peer(name, form, solve, answer, prepare, keep=right)

        return self._forms(matrix, right, peer)

    def periodic(self, data: Data) -> list[Peer]:
        """For systems whose ends meet."""
        cp, (a, b, c, d), x = self._cp, data.inputs, data.output
        batch, n = d.shape
        open_a, open_b, open_c = a.copy(), b.copy(), c.copy()
        open_b[:, 0] *= 2
        open_b[:, -1] += a[:, 0] / b[:, 0] * c[:, -1]
        open_a[:, 0] = open_c[:, -1] = 0
        right = cp.empty((2, batch, n), d.dtype)
        name = f"correct<{_TYPES[d.dtype.name]}>"
        module = cp.RawModule(code=_CORRECTION, options=("--std=c++17",), name_expressions=(name,))
        correct, count = module.get_function(name), cp.int64(d.size)
        grid = (-(-d.size // _THREADS),)

        def prepare() -> None:
            cp.copyto(right[0], d)
            right[1] = 0
            right[1, :, 0], right[1, :, -1] = -b[:, 0], c[:, -1]

        def peer(name: str, form: str, solve: Callable[[], None]) -> Peer:
            def run() -> None:
                solve()
                correct(grid, (_THREADS,), (a, b, right[0], right[1], x, cp.int64(n), count))

            return Peer(f"{name} + Sherman-Morrison", form, run, lambda: x, prepare, keep=matrix)

        matrix = (open_a, open_b, open_c)
        return self._forms(matrix, right, peer)

    def _forms(
        self, matrix: Sequence[Any], right: Any, peer: Callable[[str, str, Callable[[], None]], Peer]
    ) -> list[Peer]:
        """Peers by name, form and call of what solves in place for right sides of shape (sides, batch, n)."""
        room, together = Room(self._cp), right.reshape(len(right), -1)
        found: list[Peer] = []
        for name in ONE_SYSTEM:
            named, form = f"cuSPARSE {name}", "the batch as one system"
            found += self._tried(
                f"{named}, {form}",
                lambda n=name, m=named, f=form: peer(m, f, self.solver(room, n, matrix, together)),
            )
        form = "a call for each right side"
        found += self._tried(
            f"{STRIDED}, {form}", lambda: peer(STRIDED, form, self._strided_solver(room, matrix, right))
        )
        return found

    def _strided_solver(self, room: Room, matrix: Sequence[Any], right: Any) -> Callable[[], None]:
        _, batch, n = right.shape
        size = ctypes.c_size_t()
        routine = f"cusparse{LETTERS[right.dtype.name]}gtsv2StridedBatch"
        calls = [(self._handle(0), n, *map(address, (*matrix, one)), batch, n) for one in right]
        self._library.call(f"{routine}_bufferSizeExt", *calls[0], ctypes.byref(size))
        (work,) = room.pieces(size.value, 1)

        def run() -> None:
            for arguments in calls:
                self._library.call(routine, *arguments, work)

        return run


ROWS = {"float32": 2**26, "float64": 2**25, "complex64": 2**25}
PERIODIC, SEVERAL = "tridiag-periodic-large", "tridiag-several-large"
BARE_ARRAYS = 5


@dataclass(frozen=True)
class Case:
    """Systems of one type and length, periodic if they have one right side."""

    dtype: str
    n: int
    batch: int
    sides: int = 1

    @property
    def kernel(self) -> str:
        """Name of ours."""
        return PERIODIC if self.sides == 1 else SEVERAL

    @property
    def sizes(self) -> dict[str, int | str]:
        """Of the workload."""
        sides = {"boundary": "periodic"} if self.sides == 1 else {"K": self.sides}
        return {"N": self.n, "dtype": self.dtype, **sides}

    @property
    def name(self) -> str:
        """For tables."""
        sides = "" if self.sides == 1 else f", K = {self.sides}"
        return f"{self.kernel}, {self.dtype}, N = {self.n}{sides}, batch {self.batch}"


def _cases() -> list[Case]:
    """The most telling ones first, as time may be short."""
    found = []
    for n in (2**16, 2**20, 2**13, 2**22):
        for dtype, rows in ROWS.items():
            if dtype == "complex64" and n != 2**16:
                continue
            found += [Case(dtype, n, rows // n), Case(dtype, n, rows // n // 4, 4)]
            found += [Case(dtype, n, rows // n // 2, 2)] if n <= 2**16 else [Case(dtype, n, 1)]
    return found


def make(cp: Any, case: Case) -> Systems:
    """Random systems, dominant by a margin of 0.5."""
    problem = problem_for(ProblemSpec("tridiagonal"))
    matrix, sides = (case.batch, case.n), (case.batch, case.n * case.sides)
    buffers = [Buffer(name, case.dtype, sides if name == "d" else matrix, "in") for name in "abcd"]
    buffers.append(Buffer("x", case.dtype, sides, "out"))
    rng = cp.random.Generator(cp.random.Philox4x3210(1))
    inputs = tuple(problem.inputs(cp, rng, buffers, case.sizes).values())
    x = cp.empty_like(inputs[3])
    return Systems("tridiagonal", case.n, inputs, x, None, None, problem, case.sizes)


def shortlist(kernel: KernelFile, workload: Workload) -> list[Configuration]:
    """The default, the stated answer, and those of 16 to 64 bytes of each array a thread."""
    width = np.dtype(str(dict(workload.sizes)["dtype"])).itemsize
    wanted = [c for c in kernel.space(workload) if int(c["L"]) >= 128 and 16 <= int(c["P"]) * width <= 64]
    stated = kernel.stated(workload)
    chosen = [kernel.default(workload), *wanted]
    return list(dict.fromkeys(chosen if stated is None else [stated, *chosen]))


def contest(bench: Bench, case: Case, peers: SidedPeers) -> dict[str, Any]:
    """Our best configuration, the fastest right form of cuSPARSE and the fastest bare kernel."""
    cp, kernel = bench.cp, bench.catalog.kernel(case.kernel)
    data = make(cp, case)
    workload = kernel.workload(case.sizes, batch=case.batch)

    def moves() -> dict[str, Any]:
        total_bytes = sum(array.nbytes for array in (*data.inputs, data.output))
        count = total_bytes // BARE_ARRAYS // np.dtype(case.dtype).itemsize
        *sources, target = (cp.zeros(count, case.dtype) for _ in range(BARE_ARRAYS))
        return bare(cp, "tridiagonal", tuple(sources), target)

    def rivals() -> list[Any]:
        return peers.periodic(data) if case.sides == 1 else peers.several(data)

    contenders = Contenders(kernel, workload, shortlist(kernel, workload), rivals, moves)
    return compared(bench, case.name, data, contenders)


def main() -> None:
    """Measure, print a line for each case, write the JSON after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="cases whose name contains this, e.g. 'periodic'")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no case is begun after these")
    options = parser.parse_args()
    bench, begin = opened(), time.monotonic()
    peers = SidedPeers(bench.cp)
    origin = {
        **provenance(),
        "copy_gb_s": copy_bandwidth(bench.cp, bench.timer),
        "cusparse": peers.version,
    }
    document: dict[str, Any] = {"provenance": origin, "rows": []}
    for case in (case for case in _cases() if options.only in case.name):
        if time.monotonic() - begin > options.seconds:
            print(f"left out: {case.name}")
            continue
        row = contest(bench, case, peers)
        document["rows"].append(row)
        document["failed"] = peers.failed
        options.out.write_text(json.dumps(document, indent=1) + "\n")
        print(line(row), flush=True)
        bench.cp.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()
