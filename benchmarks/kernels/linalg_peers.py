"""Batched dense linear algebra of the catalogue against cuBLAS and cuSOLVER, side by side in one run.

A row is an operation at one order and in one type, for 10,000 problems: microseconds of the library's fastest
right form, of the kernel by default, by the analytical choice, and of the best of a short search. Every
contender works on sets of arrays that are more than the L2 holds, in one CUDA graph where that can be
captured, by turns in an order drawn anew in every round. The first half of the rounds chooses form and
configuration, the second half is reported: medians, the ratio with its 95 % interval. Answers of both are
judged by the law of the kernel file. Rows are printed and written as they come; Ctrl-C keeps them.

    python benchmarks/kernels/linalg_peers.py --out benchmarks/results/linalg-peers-h200.json
    python benchmarks/kernels/linalg_peers.py --only potrf-batched --n 4 32 --dtype float32 --budget 20

``--show FILE ...`` prints tables of such results, and measures nothing; a row of a later file replaces that
of an earlier one. ``--brief`` prints the weakest order of every operation and type alone. ``--docs PAGE``
replaces what stands between the lines ``<!-- linalg peers -->`` and ``<!-- end of linalg peers -->``, of
brief tables ``<!-- brief linalg peers -->``.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from cold_timing import copy_bandwidth
from linalg_contest import Machine, Run, Searcher, Space, contest, order, seconds, summary
from linalg_libraries import BATCH, DTYPES, OPERATIONS, SIZES, LinalgLibraries, cases
from provenance import provenance

from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import TunerError
from tuner.model.plan import Configuration

# --- tables ---------------------------------------------------------------------------------------


BEGIN, END = "<!-- linalg peers -->\n", "<!-- end of linalg peers -->\n"
COLUMNS = (
    *("n", "fastest form of the library", "µs", "default", "analytical", "best", "× the library"),
    *("× in one layout", "of copy", "error, of the library's", "configuration", "target met"),
)
BRIEF = ("<!-- brief linalg peers -->\n", "<!-- end of brief linalg peers -->\n")
BRIEF_COLUMNS = (
    *("operation, type", "weakest n", "fastest form of the library", "µs", "best, µs", "× the library"),
    *("of copy", "most, × the library", "targets missed at n"),
)
UNMEASURED = "\nNot measured yet.\n\n"


def placed(page: Path, begin: str, end: str, text: str) -> int:
    """Replace what stands between two lines of a page; the exit code."""
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        print(f"{page}: needs the lines {begin.strip()} and {end.strip()}", file=sys.stderr)
        return 2
    page.write_text(before + begin + text + end + after)
    return 0


def tables(documents: Sequence[dict[str, Any]]) -> str:
    """For each GPU what was measured on, and one Markdown table for each operation and type."""
    return "".join(_of_gpu(gpu, some) for gpu, some in _by_gpu(documents).items()) or UNMEASURED


def brief(documents: Sequence[dict[str, Any]]) -> str:
    """For each GPU one table: the order of the least ratio to the library, of every operation and type."""
    parts = []
    for gpu, some in _by_gpu(documents).items():
        rows = _rows(some)
        head = f"\n### {gpu}\n\n{_conditions(some, list(rows.values()))}\n\n"
        lines = [f"| {' | '.join(BRIEF_COLUMNS)} |", "| --- " * len(BRIEF_COLUMNS) + "|"]
        for operation in OPERATIONS:
            for dtype in DTYPES:
                alike = [row for key, row in rows.items() if key[:2] == (operation, dtype)]
                told = [row for row in alike if row["best"] is not None and row["peer"] is not None]
                if told:
                    lines.append(_weakest(f"{operation}, {dtype}", sorted(told, key=_order)))
        parts.append(head + "\n".join(lines) + "\n")
    return "".join(parts) or UNMEASURED


def _weakest(title: str, rows: Sequence[dict[str, Any]]) -> str:
    """A line for one operation and type."""
    cells = {row["n"]: _cells(row).strip("| ").split(" | ") for row in rows}
    ratios = {row["n"]: row["best"]["ratio"]["median"] for row in rows}
    least, most = min(ratios, key=lambda n: ratios[n]), max(ratios, key=lambda n: ratios[n])
    n, form, us, _, _, best, ratio, _, copied = cells[least][:9]
    missed = ", ".join(str(row["n"]) for row in rows if row["met"] is False) or "–"
    best_case = f"{ratios[most]:.2f} (n = {most})"
    return f"| {title} | {n} | {form} | {us} | {best} | {ratio} | {copied} | {best_case} | {missed} |"


def _by_gpu(documents: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The documents of each GPU."""
    of_gpus: dict[str, list[dict[str, Any]]] = {}
    for document in documents:
        of_gpus.setdefault(_gpu(document), []).append(document)
    return of_gpus


def _rows(documents: Sequence[dict[str, Any]]) -> dict[tuple[str, str, int], dict[str, Any]]:
    """The rows of one GPU; the later of two counts."""
    return {(r["operation"], r["dtype"], r["n"]): r for document in documents for r in document["rows"]}


def _of_gpu(gpu: str, documents: Sequence[dict[str, Any]]) -> str:
    """The tables of one GPU."""
    rows = _rows(documents)
    if not rows:
        return UNMEASURED
    parts = [f"\n### {gpu}\n\n{_conditions(documents, list(rows.values()))}\n"]
    for operation in OPERATIONS:
        for dtype in DTYPES:
            some = sorted((row for key, row in rows.items() if key[:2] == (operation, dtype)), key=_order)
            if some:
                parts.append(_table(f"{operation}, {dtype}", some))
    return "".join(parts) + "\n"


def _order(row: dict[str, Any]) -> int:
    return int(row["n"])


def _conditions(documents: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> str:
    """GPU, driver and libraries of the runs."""
    copies: dict[str, list[float]] = {}
    for document in documents:
        copies.setdefault(origin(document), []).append(document["copy_gb_s"])
    asked = [row for row in rows if row["met"] is not None]
    met = sum(row["met"] for row in asked)
    lines = [f"{run}; a copy moves {_range(rates)} GB/s." for run, rates in copies.items()]
    return "\n".join(lines) + f"\n{met} of {len(asked)} targets are met."


def _range(rates: Sequence[float]) -> str:
    least, most = f"{min(rates):.0f}", f"{max(rates):.0f}"
    return least if least == most else f"{least} to {most}"


def origin(document: dict[str, Any]) -> str:
    """GPU, driver, libraries and day of a run."""
    gpus = document["provenance"]["gpus"]
    gpu = f"{gpus[0]['name']}, driver {gpus[0]['driver_version']}" if gpus else _gpu(document)
    libraries = ", ".join(f"{name} {version}" for name, version in document["libraries"].items())
    day = document["provenance"]["date"][:10]
    return f"{gpu}, {libraries or 'no library'}, {day}"


def _gpu(document: dict[str, Any]) -> str:
    gpus = document["provenance"]["gpus"]
    return str(gpus[0]["name"]) if gpus else "GPU not named"


def _table(title: str, rows: Sequence[dict[str, Any]]) -> str:
    targets: dict[str, list[int]] = {}
    for row in rows:
        targets.setdefault(_target(row), []).append(row["n"])
    words = "; ".join(f"{target} at n = {', '.join(map(str, orders))}" for target, orders in targets.items())
    head = [f"\n**{title}**, target {words}\n", "| " + " | ".join(COLUMNS) + " |"]
    return "\n".join([*head, "| --- " * len(COLUMNS) + "|", *map(_cells, rows)]) + "\n"


def _target(row: dict[str, Any]) -> str:
    return "none, reported" if row["least"] is None else f"≥ {row['least']:g} ×"


def _cells(row: dict[str, Any]) -> str:
    peer, best = row["peer"], row["best"]
    form = "–" if peer is None else ", ".join(filter(None, (peer["name"], peer["form"])))
    if peer is not None and not peer["graph"]:
        form += ", no graph"
    times = [_us(peer), *(_us(row[name]) for name in ("default", "analytical", "best"))]
    ratio = alike = copied = error = configuration = "–"
    if best is not None:
        copied = f"{100 * best['roofline']:.0f} %"
        error = f"{best['error']:.2g}, {'–' if peer is None else format(peer['error'], '.2g')}"
        configuration = ", ".join(f"{name}={value}" for name, value in best["configuration"].items())
        if peer is not None:
            found = best["ratio"]
            ratio = f"{found['median']:.2f} ({found['low']:.2f}–{found['high']:.2f})"
        if "ratio_same_layout" in best:
            alike = f"{best['ratio_same_layout']['median']:.2f}"
    met = {True: "yes", False: "**no**", None: "–"}[row["met"]]
    cells = (str(row["n"]), form, *times, ratio, alike, copied, error, configuration, met)
    return f"| {' | '.join(cells)} |"


def _us(one: dict[str, Any] | None) -> str:
    return "–" if one is None else f"{one['us']:.1f} ± {one['spread_us']:.1f}"


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=OPERATIONS, default=list(OPERATIONS), metavar="KERNEL")
    parser.add_argument("--n", nargs="+", type=order(1, 128), default=list(SIZES), help="orders, 1 to 128")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--batch", type=_count, default=BATCH, help="problems; targets are for 10,000")
    parser.add_argument(
        "--budget", type=seconds, default=5.0, metavar="SECONDS", help="for a row, with the search; 5"
    )
    parser.add_argument(
        "--limit", type=seconds, default=540.0, metavar="SECONDS", help="for all; later rows are left out"
    )
    parser.add_argument("--out", type=Path, help="JSON, written after every row")
    parser.add_argument("--show", type=Path, nargs="+", metavar="FILE", help="print tables of results")
    parser.add_argument("--brief", action="store_true", help="of --show: a row for each operation and type")
    parser.add_argument("--docs", type=Path, metavar="PAGE", help="of --show: a page to write them into")
    return parser.parse_args(words)


def show(options: argparse.Namespace) -> int:
    """Print the tables of results; write the page where asked to."""
    documents = [json.loads(path.read_text()) for path in options.show]
    text = brief(documents) if options.brief else tables(documents)
    print(text)
    if options.docs is None:
        return 0
    return placed(options.docs, *(BRIEF if options.brief else (BEGIN, END)), text)


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
    if peer is None:
        tried = "; ".join(one.get("trouble", "wrong") for one in row["peers_tried"]) or "no library"
        parts.append(f"no peer ({tried})")
    else:
        words = [peer["name"], peer["form"], "" if peer["graph"] else "without a graph"]
        parts.append(f"{', '.join(word for word in words if word)} {peer['us']:.2f} us")
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
    met = {True: "met", False: "MISSED", None: "-"}[row["met"]]
    measured = row["configurations"]
    parts.append(f"{met} ({row['target']})")
    parts.append(f"{measured['measured']} of {measured['candidates']} in {row['seconds']:.1f} s")
    if row["wrong"]:
        parts.append(f"WRONG: {', '.join(one['name'] for one in row['wrong'])}")
    return "  ".join(parts)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no batch; it must be 1 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
