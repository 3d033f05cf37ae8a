"""Joules of dense linear algebra against cuBLAS and cuSOLVER, side by side in one run on one GPU.

A row is a factorisation at one order and in one type, batched (10,000 problems) or of one large matrix:
joules of a run and Gflop/s/W, with 95 % intervals, of the library's fastest right form, of the kernel by
default, and of two of its configurations: the fastest and the most thrifty of the few fastest of a short
search. They are chosen in the first half of the rounds; the second half is reported. Rows of one large matrix
also have the hybrid scheme, whose panels the CPU factors: the fastest of a search of its own.

Joules are those of ``tuner.energy``. Windows of all contenders go by turns. Inputs are restored before every
run, and what that takes is measured in windows of its own and taken off. Net joules are without those of the
idle GPU, measured in the same rounds. ``--scope`` says what is counted: ``gpu`` is the board as its sensor
sees it, and neither the host's processors nor its memory, which a note says beside the hybrid scheme;
``gpu+cpu`` adds those where they can be read.
Clocks are as found. Where ten minutes are all there is, --dtype measures one type at a time.

    python benchmarks/kernels/linalg_energy.py --out benchmarks/results/linalg-energy-h200.json
    python benchmarks/kernels/linalg_energy.py --only getrf --n 4096 --dtype float64 --windows 10
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from linalg_contest import Machine
from linalg_energy_contest import EnergyBegin, begin_of, energy_contest
from linalg_energy_windows import Meter
from linalg_hybrid import cpu_facts
from linalg_large_libraries import LargeLibraries
from linalg_large_operations import OPERATIONS as LARGE
from linalg_large_operations import LargeCase
from linalg_operations import BATCH, DTYPES, Case
from linalg_operations import OPERATIONS as BATCHED
from linalg_runs import Run, order, seconds
from linalg_search import Searcher
from provenance import provenance

import tuner
from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import TunerError

FACTORIZATIONS = tuple(name for name in BATCHED if name.partition("-")[0] in LARGE)
SIZES = {**dict.fromkeys(BATCHED, (16, 64)), **dict.fromkeys(LARGE, (1024, 4096, 16384))}
_MOST_BATCHED = 128  # order
_COUNTED = (("rows", "rows"), ("failed", "failed"), ("left_out", "left out"))


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    default = [*FACTORIZATIONS, *LARGE]
    add("--only", nargs="+", choices=(*BATCHED, *LARGE), default=default, metavar="KERNEL")
    add(
        "--n",
        nargs="+",
        type=order(2, 32768),
        help="orders; batched kernels take those up to 128, others all",
    )
    add("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    add("--scope", default="gpu", help="what is counted, as tuner.energy takes it; gpu")
    add("--sensor", help="the GPU's reading by its name; the best that answers")
    add("--windows", type=_even, default=6, help="of each contender, even; half choose, half are reported; 6")
    add("--window", type=seconds, default=0.4, metavar="SECONDS", help="length of a window; 0.4")
    add("--budget", type=seconds, default=4.0, metavar="SECONDS", help="for a row's search; 4")
    add("--hybrid", type=seconds, default=2.0, metavar="SECONDS", help="for a row's hybrid search; 2")
    add("--no-hybrid", action="store_true", help="leave the hybrid scheme out")
    add("--limit", type=seconds, default=540.0, metavar="SECONDS", help="for all; later rows are left out")
    add("--out", type=Path, help="JSON, written after every row")
    return parser.parse_args(words)


def cases(options: argparse.Namespace) -> list[Case]:
    """The rows: small orders first."""
    found: list[Case] = []
    for operation in options.only:
        sizes = options.n or SIZES[operation]
        large = operation in LARGE
        for n in sizes:
            if large or n <= _MOST_BATCHED:
                found += [(LargeCase if large else Case)(operation, n, dtype) for dtype in options.dtype]
    return sorted(found, key=lambda case: case.n)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, write; the exit code."""
    options = parsed(words)
    ends_s = time.monotonic() + options.limit
    rows = cases(options)
    if not rows:
        print(f"--n {' '.join(map(str, options.n))}: batched kernels take orders up to 128", file=sys.stderr)
        return 2
    try:
        cp = probe.open_cupy(0)
        limits = probe.gpu_limits(cp, 0)
        compiler = Compiler(limits.architecture)
        meter = meter_of(options.scope, options.sensor)
    except TunerError as error:
        print(f"{error}\nThis benchmark needs a CUDA GPU whose energy can be read.", file=sys.stderr)
        return 2
    with compiler:
        catalog = Catalog.load()
        libraries = LargeLibraries(cp)
        searchers = [Searcher(limits, compiler, catalog, batch) for batch in (BATCH, 1)]
        machine = Machine(cp, CodeCache(cp, compiler, limits), libraries, searchers[0])
        facts = {"libraries": libraries.versions(), "missing": libraries.missing, "scope": options.scope}
        facts["cpu"] = None if options.no_hybrid else cpu_facts()
        print(f"{facts['libraries']}; not found: {facts['missing']}", flush=True)
        document = {"provenance": provenance(), **facts, "rows": [], "failed": [], "left_out": []}

        def begun(case: Case) -> EnergyBegin:
            return begin_of(searchers[isinstance(case, LargeCase)], case, hybrid=not options.no_hybrid)

        def measured(begin: EnergyBegin, budget_s: float) -> dict[str, Any]:
            machine.searcher = searchers[isinstance(begin.space.case, LargeCase)]
            return energy_contest(
                *(machine, libraries, begin, meter),
                budget_s=budget_s,
                hybrid_s=options.hybrid,
                count=options.windows,
                window_s=options.window,
            )

        run = Run(cp, begun, measured, line, options.budget, ends_s, options.out, ahead=False)
        ended = run.rows(rows, document)
    counts = [f"{len(document[key])} {word}" for key, word in _COUNTED]
    print("; ".join(counts))
    return ended


def meter_of(scope: str, sensor: str | None) -> Meter:
    """The project's own meter of the GPU.

    Raises:
        TunerError: no reading answers.
    """
    return tuner.energy(scope, device="cuda:0", sensor=sensor)


def line(row: dict[str, Any]) -> str:
    """A row for the terminal."""
    parts = [f"{row['operation']} {row['dtype']} n={row['n']:<5} idle {row['idle_w']['value']:.0f} W"]
    for name in ("peer", "default", "fastest", "thriftiest", "hybrid"):
        one = row[name]
        if one is None:
            parts.append(f"{name} -")
            continue
        parts.append(
            f"{name} {one['us']:.1f} us {_shown(one['gross_j'])} J {_shown(one['gflops_per_w'])} GF/s/W"
        )
    parts.append(f"gain {_shown(row['gain'])}")
    parts += [f"{part['device']} {part['scope']} by {part['sensor']}" for part in row["counted"]]
    return "  ".join([*parts, *row["notes"]])


def _shown(figure: dict[str, float] | None) -> str:
    return "-" if figure is None else f"{figure['value']:.4g} ± {figure['half']:.2g}"


def _even(text: str) -> int:
    if not text.isdecimal() or int(text) < 2 or int(text) % 2:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of windows; they must be even, 2 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
