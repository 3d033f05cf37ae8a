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
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from linalg_contest import Machine, Run, Searcher, order, seconds, summary
from linalg_large_contest import (
    OPERATIONS,
    SIZES,
    LargeLibraries,
    Opened,
    large_cases,
    large_contest,
    opened,
)
from linalg_libraries import DTYPES, Case
from provenance import provenance

from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import TunerError


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=OPERATIONS, default=list(OPERATIONS), metavar="KERNEL")
    parser.add_argument(
        "--n", nargs="+", type=order(2, 32768), default=list(SIZES), help="orders, 2 to 32768"
    )
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument(
        "--budget", type=seconds, default=5.0, metavar="SECONDS", help="for a row, with the search; 5"
    )
    parser.add_argument(
        "--limit", type=seconds, default=540.0, metavar="SECONDS", help="for all; later rows are left out"
    )
    parser.add_argument("--out", type=Path, help="JSON, written after every row")
    return parser.parse_args(words)


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
    if peer is None:
        tried = "; ".join(one.get("trouble", "wrong") for one in row["peers_tried"]) or "no library"
        parts.append(f"no peer ({tried})")
    else:
        words = [peer["name"], peer["form"], "" if peer["graph"] else "without a graph"]
        parts.append(f"{', '.join(word for word in words if word)} {_figures(peer)}")
    parts += [f"{name} {_figures(row[name])}" for name in ("gemm", "default", "best")]
    if best is not None:
        if peer is not None:
            ratio = best["ratio"]
            parts.append(f"{ratio['median']:.2f} x [{ratio['low']:.2f}, {ratio['high']:.2f}]")
        parts.append(f"error {best['error']:.2g}")
        parts.append(" ".join(f"{name}={value}" for name, value in best["configuration"].items()))
    met = {True: "met", False: "MISSED", None: "-"}[row["met"]]
    measured = row["configurations"]
    parts.append(f"{met} ({row['target']})")
    parts.append(f"{measured['measured']} of {measured['candidates']} in {row['seconds']:.1f} s")
    if row["wrong"]:
        parts.append(f"WRONG: {', '.join(one['name'] for one in row['wrong'])}")
    return "  ".join(parts)


def _figures(one: dict[str, Any] | None) -> str:
    return "-" if one is None else f"{one['us'] / 1e3:.3f} ms ({one['tflops']:.2f} TF/s)"


if __name__ == "__main__":
    sys.exit(main())
