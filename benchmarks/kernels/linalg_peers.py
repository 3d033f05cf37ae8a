"""Batched linear algebra of the catalogue against cuBLAS and cuSOLVER, side by side in one run on one GPU.

A row is an operation at one order and in one type, for 10,000 problems: microseconds of the library's fastest
right form, of the kernel by default, by the analytical choice, and of the best of a short search. Every
contender works on sets of arrays that are more than the L2 holds, in one CUDA graph where that can be
captured, by turns in an order drawn anew in every round. The first half of the rounds chooses form and
configuration, the second half is reported: medians, the ratio with its 95 % interval. Answers of both are
judged by the law of the kernel file. Rows are printed and written as they come; Ctrl-C keeps them.

    python benchmarks/kernels/linalg_peers.py --out benchmarks/results/linalg-peers-h200.json
    python benchmarks/kernels/linalg_peers.py --only potrf-batched --n 4 32 --dtype float32 --budget 20

"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from cold_timing import copy_bandwidth
from linalg_contest import Machine, Run, Searcher, Space, contest, end_words, options_of, peer_words, summary
from linalg_libraries import BATCH, OPERATIONS, SIZES, LinalgLibraries, cases
from provenance import provenance

from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import TunerError
from tuner.model.plan import Configuration


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = options_of(__doc__, OPERATIONS, SIZES, 1, 128)
    parser.add_argument("--batch", type=_count, default=BATCH, help="problems; targets are for 10,000")
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
        libraries = LinalgLibraries(cp)
        searcher = Searcher(limits, compiler, Catalog.load(), options.batch)
        machine = Machine(cp, CodeCache(cp, compiler, limits), libraries, searcher)
        copy_gb_s = copy_bandwidth(cp, machine.timer)
        facts = {"copy_gb_s": copy_gb_s, "libraries": libraries.versions(), "missing": libraries.missing}
        print(f"copy {copy_gb_s:.0f} GB/s; {facts['libraries']}; not found: {facts['missing']}", flush=True)
        document = {"provenance": provenance(), **facts, "rows": [], "failed": [], "left_out": []}

        def measured(opened: tuple[Space, list[Configuration]], budget_s: float) -> dict[str, Any]:
            return contest(machine, *opened, budget_s, copy_gb_s)

        run = Run(cp, searcher.opened, measured, line, options.budget, ends_s, options.out)
        ended = run.rows(cases(options.only, options.n, options.dtype), document)
    print(summary(document))
    return ended


def line(row: dict[str, Any]) -> str:
    """A row for the terminal."""
    peer, parts = row["peer"], [f"{row['operation']:13} {row['dtype']} n={row['n']:<3}"]
    parts.append(peer_words(row) + ("" if peer is None else f" {peer['us']:.2f} us"))
    for name in ("default", "analytical", "best"):
        one = row[name]
        ratio = "" if one is None or peer is None else f" ({one['ratio']['median']:.2f} x)"
        parts.append(f"{name} {'-' if one is None else format(one['us'], '.2f')}{ratio}")
    best = row["best"]
    if best is not None:
        if peer is not None:
            parts.append(f"[{best['ratio']['low']:.2f}, {best['ratio']['high']:.2f}]")
        parts.append(f"{100 * best['roofline']:.0f} % of copy, error {best['error']:.2g}")
        parts.append(" ".join(f"{name}={value}" for name, value in best["configuration"].items()))
    return "  ".join([*parts, *end_words(row)])


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no batch; it must be 1 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
