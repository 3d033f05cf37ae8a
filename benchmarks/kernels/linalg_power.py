"""Power over time of a factorisation by several schemes, in one picture, with joules of each.

Schemes are ``hybrid`` (panels by the CPU), ``gpu-only`` (the kernel of the catalogue), ``cusolver``, and
``gemm``, cuBLAS's product of two matrices of that order. Each is searched for a short time, then runs again
and again for some seconds, its matrix restored before every run. A child process runs them while this one
records power, as ``tuner power trace`` does. Joules are those of a run, its copy of the matrix included, with
95 % intervals; net joules are without those of the idle GPU with the child on it. ``--scope gpu+cpu`` adds
the host's rails where they can be read; the curves are those of the GPU in any case.

    python benchmarks/kernels/linalg_power.py --only potrf --n 16384 --dtype float64 \
        --out power.json --plot power.svg
    python benchmarks/kernels/linalg_power.py --n 16384 --dtype float32 --schemes gemm \
        --out gemm.json --plot gemm.svg
    python benchmarks/kernels/show_linalg_power.py power.json --plot power.svg
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from linalg_contest import Machine, field_of
from linalg_energy_windows import loop_of, repeat, run_s
from linalg_hybrid import cpu_facts, hybrid_found
from linalg_large_contest import Opened, opened, product
from linalg_large_libraries import LargeLibraries
from linalg_large_operations import DTYPES, OPERATIONS, LargeCase
from linalg_large_sets import LargeSets
from linalg_power_trace import figures, traced
from linalg_rows import Contender
from linalg_runs import order, seconds
from linalg_search import Searcher, as_json
from provenance import provenance
from show_linalg_power import line, picture
from tuner.power.base import Span

from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import TunerError
from tuner.report.power_tables import need_matplotlib

SCHEMES = ("hybrid", "gpu-only", "cusolver", "gemm")
_PAUSE_S = 0.5  # before a scheme, and behind it
_IDLE_S = 1.0
now_s = time.monotonic


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", choices=OPERATIONS, default="potrf", metavar="KERNEL", help="potrf, getrf or geqrf; potrf")
    add("--n", type=order(2, 32768), default=16384, help="order, 2 to 32768; 16384")
    add("--dtype", choices=DTYPES, default="float64")
    add("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES[:3]), metavar="SCHEME")
    add("--seconds", type=seconds, default=2.0, help="of each scheme, at least one run; 2")
    add("--budget", type=seconds, default=10.0, metavar="SECONDS", help="for the search of each scheme; 10")
    add("--scope", default="gpu", help="what joules are counted of, as tuner power trace takes it; gpu")
    add("--sensor", help="the GPU's reading by its name; the best that answers")
    add("--out", type=Path, help="JSON")
    add("--plot", type=Path, metavar="FILE.svg", help="the picture; needs the extra plot")
    add("--child", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, write, draw; the exit code."""
    options = parsed(words)
    if options.child is not None:
        return run_schemes(options)
    given = list(sys.argv[1:] if words is None else words)
    try:
        if options.plot is not None:
            need_matplotlib()
        document = measured(options, given)
    except TunerError as error:
        print(f"{error}\nThis benchmark needs a CUDA GPU whose power can be read.", file=sys.stderr)
        return 2
    if isinstance(document, int):
        return document
    for name, scheme in document["schemes"].items():
        print(line(name, scheme))
    if options.out is not None:
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    if options.plot is not None:
        picture(document, options.plot)
    return 0


def measured(options: argparse.Namespace, given: Sequence[str]) -> dict[str, Any] | int:
    """What is stored; the exit code of a child that failed, which has said why.

    Raises:
        TunerError: power cannot be read, or shows nothing of a scheme.
    """
    with tempfile.TemporaryDirectory(prefix="tuner-linalg-power-") as folder:
        told = Path(folder, "schemes.json")
        command = [sys.executable, __file__, *given, "--child", str(told)]
        found = traced(command, options.scope, options.sensor)
        if found.code:
            return found.code
        document: dict[str, Any] = json.loads(told.read_text())
    idle = Span(*document["idle_s"])
    document["schemes"] = {
        name: scheme | figures(found, Span(*scheme["span_s"]), idle, scheme["runs"], scheme["flops"])
        for name, scheme in document["schemes"].items()
    }
    return document | {"provenance": provenance(), "scope": options.scope}


# --- in the child --------------------------------------------------------------------------------


def run_schemes(options: argparse.Namespace) -> int:
    """Search, then run each scheme by itself, and nothing; write to a file what was run when."""
    case = LargeCase(options.only, options.n, options.dtype)
    try:
        cp = probe.open_cupy(0)
        limits = probe.gpu_limits(cp, 0)
        with Compiler(limits.architecture) as compiler:
            libraries = LargeLibraries(cp)
            searcher = Searcher(limits, compiler, Catalog.load(), batch=1)
            machine = Machine(cp, CodeCache(cp, compiler, limits), libraries, searcher)
            begin = opened(searcher, case, hybrid="hybrid" in options.schemes)
            sets = begin.on(cp)
            schemes = found_schemes(machine, libraries, begin, sets, options)
            rows = {
                name: _row(case, name, one, *timed(machine, one, sets, options.seconds))
                for name, one in schemes.items()
            }
    except TunerError as error:
        print(f"{error}\nThis benchmark needs a CUDA GPU.", file=sys.stderr)
        return 2
    begin_s = now_s()
    time.sleep(_IDLE_S)
    idle_s = (begin_s, now_s())
    time.sleep(_PAUSE_S)
    facts = {**vars(case), "libraries": libraries.versions(), "schemes": rows, "idle_s": idle_s}
    facts["cpu"] = cpu_facts() if "hybrid" in rows else None
    facts["missing"] = [name for name in options.schemes if name not in rows]
    options.child.write_text(json.dumps(facts))
    if facts["missing"]:
        print(f"nothing answers right: {', '.join(facts['missing'])}", file=sys.stderr)
    return 0 if rows else 2


def found_schemes(
    machine: Machine, libraries: LargeLibraries, begin: Opened, sets: LargeSets, options: argparse.Namespace
) -> Mapping[str, Contender]:
    """The fastest right form of every scheme that is asked for; those that do not run are left out."""
    wanted, found = options.schemes, dict[str, Contender | None]()
    case = begin.space.case
    if "gpu-only" in wanted or "cusolver" in wanted:
        forms = libraries.factorizations(case, sets)
        ends_s = time.monotonic() + options.budget
        field = field_of(machine, begin.space, begin.first, sets, forms=forms, ends_s=ends_s)
        found["gpu-only"] = min(field.right_own, key=lambda one: one.quick_ms, default=None)
        found["cusolver"] = next(iter(field.right_peers), None)
    if begin.hybrid is not None:
        found["hybrid"] = hybrid_found(machine, begin.hybrid, sets, options.budget).best
    if "gemm" in wanted:
        found["gemm"] = product(machine, libraries.gemm(case, sets), sets)
    known = {name: found.get(name) for name in SCHEMES if name in wanted}
    return {name: one for name, one in known.items() if one is not None}


def timed(
    machine: Machine, scheme: Contender, sets: LargeSets, least_s: float
) -> tuple[int, tuple[float, float]]:
    """Run a scheme again and again; how often, and when it began and ended."""
    loop = loop_of(machine, sets, scheme)
    runs = max(1, math.ceil(least_s / run_s(machine, loop)))
    synchronize = machine.cp.cuda.runtime.deviceSynchronize
    synchronize()
    time.sleep(_PAUSE_S)
    begin_s = now_s()
    repeat(loop, runs)
    synchronize()
    end_s = now_s()
    time.sleep(_PAUSE_S)
    return runs, (begin_s, end_s)


def _row(
    case: LargeCase, name: str, scheme: Contender, runs: int, span_s: tuple[float, float]
) -> dict[str, Any]:
    form = scheme.form
    return {
        "runs": runs,
        "span_s": span_s,
        "flops": 2 * case.n**3 if name == "gemm" else case.flops,
        "configuration": as_json(scheme.configuration),
        "form": None if form is None else form.key,
        "graph": scheme.graph,
    }


if __name__ == "__main__":
    sys.exit(main())
