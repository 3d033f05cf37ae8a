"""Long tridiagonal systems, periodic or with several right sides, against cuSPARSE in one run on one GPU.

As ``tridiag_large.py`` does it. The peer of periodic systems is an open system with two right sides and a
correction (``cusparse_sides.py``). Bare kernels move as many bytes as are read and written once.

    python benchmarks/kernels/tridiag_sides.py --out benchmarks/results/tridiag-sides-h200.json \
        [--seconds 400]
"""

import argparse
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

import numpy as np
from bare import bare
from cold_timing import copy_bandwidth
from cusparse_sides import SidedPeers
from provenance import provenance
from sweep import Bench, opened
from tridiag_large import Contenders, Systems, compared, line

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Buffer, Configuration, ProblemSpec, Workload
from tuner.problems.lookup import problem_for

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
