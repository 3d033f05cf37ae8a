"""Times of all blocks of potrf, getrf and geqrf on a GPU.

A space is one factorisation at one order and in one type. Spaces are gone through in random order, and so are
the configurations of each: medians of three runs with the L2 flushed, each run one CUDA graph. The fastest
then go by turns, with the default. The panels alone are timed once in every form. The answers of those that
went by turns are judged by the law of the kernel file. Spaces are written as they are measured. Those already
in the file are not measured again, so that a run that was cut short goes on.

    python benchmarks/kernels/linalg_blocks.py --limit 560 --out blocks.json
    python benchmarks/kernels/linalg_blocks.py --judge blocks.json   # how good are unmeasured choices?
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from linalg_block_choices import judged, shown, spaces_of
from linalg_block_spaces import BlockSpaces
from linalg_contest import Machine
from linalg_large_libraries import LargeLibraries
from linalg_large_operations import DTYPES, OPERATIONS, large_cases
from linalg_operations import Case
from linalg_runs import Document, Run, order, seconds
from linalg_search import Searcher
from provenance import provenance

from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import TunerError

SIZES = (512, 1024, 2048, 4096, 8192, 16384)


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--judge", nargs="+", type=Path, metavar="FILE", help="measure nothing, judge choices"
    )
    parser.add_argument("--only", nargs="+", choices=OPERATIONS, default=list(OPERATIONS), metavar="KERNEL")
    parser.add_argument("--n", nargs="+", type=order(2, 32768), default=list(SIZES), help="orders")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--limit", type=seconds, default=560.0, metavar="SECONDS", help="for all")
    parser.add_argument("--seed", type=int, default=20, help="of the order")
    parser.add_argument("--out", type=Path, help="JSON, written after every space")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code."""
    options = parsed(words)
    if options.judge:
        documents = [json.loads(path.read_text()) for path in options.judge]
        print(shown(judged(spaces_of(documents, Catalog.load()))))
        return 0
    ends_s = time.monotonic() + options.limit
    try:
        cp = probe.open_cupy(0)
        limits = probe.gpu_limits(cp, 0)
        compiler = Compiler(limits.architecture)
    except TunerError as error:
        print(f"{error}\nThis benchmark needs a CUDA GPU.", file=sys.stderr)
        return 2
    document = begun(options.out)
    document["runs"].append(provenance())
    document |= {"limits": asdict(limits), "failed": [], "left_out": []}
    rng = random.Random(options.seed)  # noqa: S311 - an order
    cases = missing(document, large_cases(options.only, options.n, options.dtype))
    rng.shuffle(cases)
    with compiler:
        searcher = Searcher(limits, compiler, Catalog.load(), batch=1)
        machine = Machine(cp, CodeCache(cp, compiler, limits), LargeLibraries(cp), searcher)
        spaces = BlockSpaces(machine, rng, ends_s)
        run = Run(cp, spaces.opened, spaces.measured, line, options.limit, ends_s, options.out, ahead=False)
        ended = run.rows(cases, document)
    print(f"{len(document['rows'])} spaces; {len(document['left_out'])} left out for want of time")
    return ended


def begun(path: Path | None) -> Document:
    """What is in the file already, or a new document."""
    if path is None or not path.exists():
        return {"runs": [], "rows": []}
    found: Document = json.loads(path.read_text())
    return found


def missing(document: Document, cases: Sequence[Case]) -> list[Case]:
    """The spaces that were not measured yet."""
    known = {(row["operation"], row["n"], row["dtype"]) for row in document["rows"]}
    return [one for one in cases if (one.operation, one.n, one.dtype) not in known]


def line(row: dict[str, Any]) -> str:
    """A space for the terminal."""
    words = [f"{row['operation']} {row['dtype']} n={row['n']:<5}", f"{len(row['measured'])} configurations"]
    for name in ("default", "best"):
        one = row[name]
        if one is not None:
            values = " ".join(f"{key}={value}" for key, value in one["configuration"].items())
            words.append(f"{name} {one['us'] / 1e3:.3f} ms ({values})")
    if row["wrong"]:
        words.append(f"WRONG: {', '.join(one['name'] for one in row['wrong'])}")
    return "  ".join([*words, f"{row['seconds']:.0f} s"])


if __name__ == "__main__":
    sys.exit(main())
