"""Factorisations of one large matrix against cuSOLVER, side by side in one run on one GPU.

A row is potrf, getrf or geqrf at one order and in one type: milliseconds and TFlop/s of cuSOLVER (the better
of its classic and its 64-bit form), of cuBLAS's product of two matrices of that order as the ceiling, of the
kernel by default, and of the best of a short search; and of the hybrid scheme, whose panels the CPU factors,
the best of a search of its own. Whole factorisations are one CUDA graph where they can
be captured. The matrix is restored before each, outside of what is timed; workspaces are allocated before.
Contenders go by turns, in an order drawn anew in every round. The first half of the rounds chooses form and
configuration, the second half is reported: medians, the ratio with its 95 % interval. Answers of both are
judged by the law of the kernel file. Rows are printed and written as they come; Ctrl-C keeps them.

    python benchmarks/kernels/linalg_large.py --n 256 512 1024 2048 4096 8192 --limit 360 --out large.json
    python benchmarks/kernels/linalg_large.py --only getrf --n 16384 --dtype float64 --budget 20 --hybrid 10

``--show FILE ...`` prints tables of such results and of linalg_energy.py, and measures nothing: times from
n = 1024 on, and joules by the most thrifty configuration. A row of a later file replaces that of an earlier
one. ``--docs PAGE`` replaces what stands between the lines ``<!-- brief linalg large -->`` and ``<!-- end of
brief linalg large -->``, and of joules ``linalg energy``. ``--plot`` draws TFlop/s over the order: the kernel
of the GPU alone, the hybrid scheme, cuSOLVER, and cuBLAS's product of matrices (needs the extra ``plot``).
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from linalg_contest import Machine, Run, Searcher, order, seconds, summary
from linalg_large_contest import (
    DTYPES,
    OPERATIONS,
    SIZES,
    LargeLibraries,
    Opened,
    cpu_facts,
    large_cases,
    large_contest,
    opened,
)
from linalg_libraries import Case
from linalg_peers import UNMEASURED, origin, placed
from provenance import provenance

from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import TunerError

# --- tables and picture ---------------------------------------------------------------------------


Document = dict[str, Any]
Row = dict[str, Any]

LARGE = ("<!-- brief linalg large -->\n", "<!-- end of brief linalg large -->\n")
ENERGY = ("<!-- brief linalg energy -->\n", "<!-- end of brief linalg energy -->\n")
SHOWN_FROM = 1024  # the least order of the table
_TIMES = (
    *("kernel, type", "n", "cuSOLVER, ms", "default, ms", "analytical, ms", "best, ms", "× cuSOLVER"),
    *("target", "met", "hybrid, × cuSOLVER"),
)
_JOULES = (
    *("kernel, type", "n", "library, J", "default, J", "most thrifty, J", "hybrid, J"),
    *("× the library's Gflop/s/W", "× net"),
)
_LINES = (
    ("best", "GPU-only", "#1f77b4"),
    ("hybrid", "hybrid", "#e08e0b"),
    ("peer", "cuSOLVER", "#c0392b"),
    ("gemm", "gemm", "#9aa5b1"),
)


def _of(documents: Sequence[Document], *, energy: bool) -> tuple[list[Document], list[Row]]:
    """The runs of one of the scripts, and their rows; the later of two counts."""
    chosen = [one for one in documents if ("scope" in one) == energy]
    rows = {(row["operation"], row["dtype"], row["n"]): row for one in chosen for row in one["rows"]}
    return chosen, [rows[key] for key in sorted(rows)]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _origins(documents: Sequence[Document]) -> str:
    lines = dict.fromkeys(map(origin, documents))
    return "".join(f"{line}.\n" for line in dict.fromkeys([*lines, *map(_cpu, documents)]) if line)


def _cpu(document: Document) -> str:
    """What computed the panels of the hybrid scheme; empty where nothing did."""
    cpu = document.get("cpu")
    if not cpu:
        return ""
    threads = cpu.get("threads")
    told = "an unknown number of threads" if threads is None else f"{threads} thread{'s'[: threads != 1]}"
    return (
        f"Hybrid: {document['provenance'].get('cpus', 'CPU')}, {cpu.get('blas', cpu.get('trouble'))}, {told}"
    )


def times_table(documents: Sequence[Document]) -> str:
    """One Markdown table of all factorisations and types, of large orders."""
    chosen, rows = _of(documents, energy=False)
    if not rows:
        return UNMEASURED
    asked = [row for row in rows if row["met"] is not None]
    head = f"\n{_origins(chosen)}{sum(row['met'] for row in asked)} of {len(asked)} targets are met.\n\n"
    return head + _table(_TIMES, [_times(row) for row in rows if row["n"] >= SHOWN_FROM]) + "\n"


def _times(row: Row) -> list[str]:
    peer, best, hybrid = row["peer"], row["best"], row.get("hybrid")
    ratio = "–"
    if best is not None and peer is not None:
        found = best["ratio"]
        ratio = f"{found['median']:.2f} ({found['low']:.2f}–{found['high']:.2f})"
    return [
        *(f"{row['operation']}, {row['dtype']}", str(row["n"]), _ms(peer)),
        *(_ms(row["default"]), _ms(row["analytical"]), _ms(best), ratio),
        "–" if row["least"] is None else f"≥ {row['least']:g} ×",
        {True: "yes", False: "**no**", None: "–"}[row["met"]],
        "–" if hybrid is None or hybrid["of_peer"] is None else f"{hybrid['of_peer']:.2f}",
    ]


def _ms(one: Row | None) -> str:
    return "–" if one is None else f"{one['us'] / 1e3:.3f} ± {one['spread_us'] / 1e3:.3f}"


def joules_table(documents: Sequence[Document]) -> str:
    """A Markdown table of gross joules, a row for each factorisation, type and order."""
    chosen, rows = _of(documents, energy=True)
    if not rows:
        return UNMEASURED
    lines = []
    for row in rows:
        thriftiest = row["fastest"] if row["same"] else row["thriftiest"]
        known = (row.get("peer"), row.get("default"), thriftiest, row.get("hybrid"))
        joules = ("–" if one is None else _figure(one["gross_j"]) for one in known)
        net = _ratio(thriftiest["net_gflops_per_w"], row["peer"]["net_gflops_per_w"])
        title = f"{row['operation']}, {row['dtype']}"
        lines.append([title, str(row["n"]), *joules, _figure(row["gain"]), _figure(net)])
    return _counted(chosen, rows) + "\n" + _table(_JOULES, lines) + "\n"


def _counted(chosen: Sequence[Document], rows: Sequence[Row]) -> str:
    """What was counted, and by which sensors."""
    counted = dict.fromkeys(
        f"{part['device']}, {part['scope']}, by {part['sensor']}" for row in rows for part in row["counted"]
    )
    idle = sorted(row["idle_w"]["value"] for row in rows)
    notes = dict.fromkeys(note for row in rows for note in row["notes"])
    head = [
        f"\n{_origins(chosen)}",
        f"Counted: {'; '.join(counted)}. The idle GPU took {idle[0]:.0f} to {idle[-1]:.0f} W.\n",
        *(f"{note}.\n" for note in notes),
    ]
    return "".join(head)


def _ratio(one: dict[str, float] | None, other: dict[str, float] | None) -> dict[str, float] | None:
    """One figure by another, with the half-widths of both as those of independent figures."""
    if one is None or other is None:
        return None
    value = one["value"] / other["value"]
    half = value * math.hypot(one["half"] / one["value"], other["half"] / other["value"])
    return {"value": value, "half": half}


def _figure(found: dict[str, float] | None) -> str:
    if found is None:
        return "–"
    half = found["half"]
    digits = 1 - len(str(int(half))) if half >= 1 else None
    return f"{found['value']:.3g} ± {f'{half:.1g}' if digits is None else f'{round(half, digits):g}'}"


def picture(documents: Sequence[Document], path: Path) -> bool:
    """Draw TFlop/s over the order, a panel for each factorisation and type; False without rows."""
    chosen, rows = _of(documents, energy=False)
    if not rows:
        return False
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "linalg"  # the same result gives the same file
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the back end is chosen

    size = (3.6 * len(OPERATIONS), 2.9 * len(DTYPES))
    figure, panels = plt.subplots(
        len(DTYPES), len(OPERATIONS), figsize=size, layout="constrained", squeeze=False
    )
    for dtype, across in zip(DTYPES, panels, strict=True):
        for operation, axes in zip(OPERATIONS, across, strict=True):
            some = [row for row in rows if (row["operation"], row["dtype"]) == (operation, dtype)]
            axes.set(title=f"{operation}, {dtype}", xlabel="n", ylabel="TFlop/s", xscale="log")
            _lines(axes, some)
    panels[0][0].legend(fontsize="small")
    figure.suptitle("; ".join(dict.fromkeys(map(origin, chosen))), fontsize="small")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return True


def _lines(axes: Any, rows: Sequence[Row]) -> None:
    for name, word, colour in _LINES:
        known = [row for row in rows if row.get(name) is not None]
        rates = [row[name]["tflops"] for row in known]
        axes.plot([row["n"] for row in known], rates, marker="o", markersize=3, color=colour, label=word)
    orders = [row["n"] for row in rows]
    axes.set_xticks(orders, [str(n) for n in orders], fontsize="x-small", rotation=45)
    axes.minorticks_off()
    axes.set_ylim(bottom=0)


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
        "--hybrid", type=seconds, default=2.0, metavar="SECONDS", help="for a row's hybrid search; 2"
    )
    parser.add_argument("--no-hybrid", action="store_true", help="leave the hybrid scheme out")
    parser.add_argument(
        "--limit", type=seconds, default=540.0, metavar="SECONDS", help="for all; later rows are left out"
    )
    parser.add_argument("--out", type=Path, help="JSON, written after every row")
    parser.add_argument("--show", type=Path, nargs="+", metavar="FILE", help="print tables of results")
    parser.add_argument("--docs", type=Path, metavar="PAGE", help="of --show: a page to write them into")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="of --show: a picture")
    return parser.parse_args(words)


def show(options: argparse.Namespace) -> int:
    """Print the tables of results; write page and picture where asked to."""
    documents = [json.loads(path.read_text()) for path in options.show]
    ended = 0
    for lines, table in ((LARGE, times_table), (ENERGY, joules_table)):
        text = table(documents)
        print(text)
        if options.docs is not None:
            ended = max(ended, placed(options.docs, *lines, text))
    if options.plot is not None and not picture(documents, options.plot):
        print("no row of linalg_large.py to draw", file=sys.stderr)
        return 2
    return ended


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, write; the exit code."""
    options = parsed(words)
    if options.show:
        return show(options)
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
        facts["cpu"] = None if options.no_hybrid else cpu_facts()
        print(f"{facts['libraries']}; not found: {facts['missing']}; CPU: {facts['cpu']}", flush=True)
        document = {"provenance": provenance(), **facts, "rows": [], "failed": [], "left_out": []}

        def begun(case: Case) -> Opened:
            return opened(searcher, case, hybrid=not options.no_hybrid)

        def measured(begin: Opened, budget_s: float) -> dict[str, Any]:
            return large_contest(machine, libraries, begin, budget_s, options.hybrid)

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
    if row["hybrid"] is not None:
        words = [f"{name}={value}" for name, value in row["hybrid"]["configuration"].items()]
        parts.append(f"hybrid {_figures(row['hybrid'])} {' '.join(words)}")
    elif "hybrid_tried" in row:
        parts.append(f"hybrid - ({'; '.join(row['hybrid_tried']['troubles']) or 'WRONG'})")
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
