"""The results of linalg_large.py and linalg_energy.py as tables and a picture for linear-algebra.md.

    python benchmarks/kernels/show_linalg_large.py RESULTS.json [MORE.json ...] [--brief]
        [--docs docs/lab/kernels/linear-algebra.md] [--plot docs/lab/kernels/linalg-large.svg]

A row of a later file replaces that of an earlier one. ``--brief`` prints one table of times from n = 1024 on,
and one of joules by the most thrifty configuration. ``--docs`` replaces what stands between the lines
``<!-- linalg large -->`` and ``<!-- end of linalg large -->``, and ``<!-- linalg energy -->`` and
``<!-- end of linalg energy -->``; brief tables stand between ``<!-- brief linalg large -->`` and so on.
``--plot`` draws TFlop/s over the order: the kernel of the GPU alone, the hybrid scheme, cuSOLVER, and
cuBLAS's product of matrices; it needs matplotlib (extra ``plot``).
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linalg_large_operations import DTYPES, OPERATIONS
from show_linalg import UNMEASURED, origin, placed

Document = dict[str, Any]
Row = dict[str, Any]

LARGE = ("<!-- linalg large -->\n", "<!-- end of linalg large -->\n")
ENERGY = ("<!-- linalg energy -->\n", "<!-- end of linalg energy -->\n")
BRIEF_LARGE = ("<!-- brief linalg large -->\n", "<!-- end of brief linalg large -->\n")
BRIEF_ENERGY = ("<!-- brief linalg energy -->\n", "<!-- end of brief linalg energy -->\n")
BRIEF_FROM = 1024  # the least order of a brief table
_TIMES = (
    *("n", "form of cuSOLVER", "cuSOLVER, ms", "TF/s", "gemm, TF/s", "default, ms", "analytical, ms"),
    *("best, ms", "TF/s", "× cuSOLVER", "error, of cuSOLVER's", "configuration", "target", "met"),
)
_HYBRID = ("n", "hybrid, ms", "TF/s", "× cuSOLVER", "× GPU-only", "error", "configuration")
_JOULES = (
    *("kernel", "n", "type", "of", "µs", "J", "net J", "W", "Gflop/s/W", "net"),
    *("× the library's Gflop/s/W", "× net", "configuration"),
)
_BRIEF_TIMES = (
    *("kernel, type", "n", "cuSOLVER, ms", "default, ms", "analytical, ms", "best, ms", "× cuSOLVER"),
    *("target", "met", "hybrid, × cuSOLVER"),
)
_BRIEF_JOULES = (
    *("kernel, type", "n", "library, J", "default, J", "most thrifty, J", "hybrid, J"),
    *("× the library's Gflop/s/W", "× net"),
)
_NAMES = {
    "peer": "library",
    "default": "default",
    "fastest": "fastest",
    "thriftiest": "most thrifty",
    "hybrid": "hybrid",
}
_LINES = (
    ("best", "GPU-only", "#1f77b4"),
    ("hybrid", "hybrid", "#e08e0b"),
    ("peer", "cuSOLVER", "#c0392b"),
    ("gemm", "gemm", "#9aa5b1"),
)


def main(words: Sequence[str] | None = None) -> int:
    """Print the tables; write docs and picture where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--brief", action="store_true", help="the large orders, fewer columns")
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    options = parser.parse_args(words)
    documents = [json.loads(path.read_text()) for path in options.results]
    ended = 0
    full = ((LARGE, times_table), (ENERGY, energy_table))
    short = ((BRIEF_LARGE, brief_times), (BRIEF_ENERGY, brief_joules))
    for lines, table in short if options.brief else full:
        text = table(documents)
        print(text)
        if options.docs is not None:
            ended = max(ended, placed(options.docs, *lines, text))
    if options.plot is not None and not picture(documents, options.plot):
        print("no row of linalg_large.py to draw", file=sys.stderr)
        return 2
    return ended


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
    """One Markdown table for each factorisation and type."""
    chosen, rows = _of(documents, energy=False)
    if not rows:
        return UNMEASURED
    asked = [row for row in rows if row["met"] is not None]
    met = sum(row["met"] for row in asked)
    parts = [f"\n{_origins(chosen)}{met} of {len(asked)} targets are met.\n"]
    for operation in OPERATIONS:
        for dtype in DTYPES:
            some = [row for row in rows if (row["operation"], row["dtype"]) == (operation, dtype)]
            if some:
                parts.append(f"\n**{operation}, {dtype}**\n\n{_table(_TIMES, [_times(row) for row in some])}")
            beside = [_hybrid(row) for row in some if row.get("hybrid") is not None]
            if beside:
                parts.append(f"\n{_table(_HYBRID, beside)}")
    return "".join(parts) + "\n"


def brief_times(documents: Sequence[Document]) -> str:
    """One Markdown table of all factorisations and types, of large orders."""
    chosen, rows = _of(documents, energy=False)
    if not rows:
        return UNMEASURED
    asked = [row for row in rows if row["met"] is not None]
    head = f"\n{_origins(chosen)}{sum(row['met'] for row in asked)} of {len(asked)} targets are met.\n\n"
    lines = []
    for row in rows:
        if row["n"] >= BRIEF_FROM:
            n, _, peer, _, _, default, analytical, best, _, ratio, _, _, target, met = _times(row)
            hybrid = "–" if row.get("hybrid") is None else _hybrid(row)[3]
            title = f"{row['operation']}, {row['dtype']}"
            lines.append([title, n, peer, default, analytical, best, ratio, target, met, hybrid])
    return head + _table(_BRIEF_TIMES, lines) + "\n"


def _times(row: Row) -> list[str]:
    peer, best, gemm = row["peer"], row["best"], row["gemm"]
    form = (
        "–"
        if peer is None
        else ", ".join(filter(None, (peer["form"] or "classic", "" if peer["graph"] else "no graph")))
    )
    ratio = error = configuration = "–"
    if best is not None:
        error = f"{best['error']:.2g}, {'–' if peer is None else format(peer['error'], '.2g')}"
        configuration = _configuration(best)
        if peer is not None:
            found = best["ratio"]
            ratio = f"{found['median']:.2f} ({found['low']:.2f}–{found['high']:.2f})"
    return [
        *(str(row["n"]), form, _ms(peer), _rate(peer), _rate(gemm)),
        *(_ms(row["default"]), _ms(row["analytical"]), _ms(best), _rate(best), ratio, error, configuration),
        "–" if row["least"] is None else f"≥ {row['least']:g} ×",
        {True: "yes", False: "**no**", None: "–"}[row["met"]],
    ]


def _hybrid(row: Row) -> list[str]:
    one = row["hybrid"]
    ratios = ["–" if one[name] is None else f"{one[name]:.2f}" for name in ("of_peer", "of_gpu_only")]
    return [str(row["n"]), _ms(one), _rate(one), *ratios, f"{one['error']:.2g}", _configuration(one)]


def _configuration(one: Row) -> str:
    return ", ".join(f"{name}={value}" for name, value in (one["configuration"] or {}).items()) or "–"


def _ms(one: Row | None) -> str:
    return "–" if one is None else f"{one['us'] / 1e3:.3f} ± {one['spread_us'] / 1e3:.3f}"


def _rate(one: Row | None) -> str:
    return "–" if one is None else f"{one['tflops']:.2f}"


def energy_table(documents: Sequence[Document]) -> str:
    """A Markdown table of joules; above it what was counted, and by which sensors."""
    chosen, rows = _of(documents, energy=True)
    if not rows:
        return UNMEASURED
    cells = [line for row in rows for line in _joules(row)]
    return _counted(chosen, rows) + "\n" + _table(_JOULES, cells) + "\n"


def brief_joules(documents: Sequence[Document]) -> str:
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
    return _counted(chosen, rows) + "\n" + _table(_BRIEF_JOULES, lines) + "\n"


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


def _joules(row: Row) -> list[list[str]]:
    """A line for the library and each configuration."""
    lines = []
    for name, word in _NAMES.items():
        one = row.get(name)
        if one is None or (name == "thriftiest" and row["same"]):
            continue
        shown = "fastest, most thrifty" if name == "fastest" and row["same"] else word
        thriftiest = name == "thriftiest" or shown != word
        gain = _figure(row["gain"]) if thriftiest else "–"
        net = _figure(_ratio(one["net_gflops_per_w"], row["peer"]["net_gflops_per_w"])) if thriftiest else "–"
        figures = [_figure(one[key]) for key in ("gross_j", "net_j", "w", "gflops_per_w", "net_gflops_per_w")]
        lines.append(
            [
                *(row["operation"], str(row["n"]), row["dtype"], shown, f"{one['us']:.1f}"),
                *(*figures, gain, net),
                one["name"] if name == "peer" else _configuration(one),
            ]
        )
    return lines


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


if __name__ == "__main__":
    sys.exit(main())
