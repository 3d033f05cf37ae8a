"""The results of peers.py as tables for docs/lab/kernels/kernels.md and as a plot.

    python benchmarks/kernels/show_peers.py RESULTS.json [--brief] [--plot FILE.svg]
        [--docs docs/lab/kernels/kernels.md]

``--brief`` prints the fastest kernel of every N alone. ``--docs`` replaces what stands between the lines
``<!-- peers -->`` and ``<!-- end of peers -->``, of brief tables ``<!-- brief peers -->``. The plot needs
matplotlib.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile

MARKS = ("<!-- {}peers -->\n", "<!-- end of {}peers -->\n")
COLUMNS = (
    *("N", "kernel", "configuration", "ms", "rate", "of bare"),
    *("best correct peer", "× peer", "error", "target met"),
)
TITLES = {
    "scan": "Inclusive scan, float32",
    "tridiagonal": "Tridiagonal systems, float32",
    "fft": "Complex FFT, complex64, one kernel",
    "fft-large": "Complex FFT, complex64, large",
}
_COLOURS = ("#0b6e4f", "#1f77b4", "#9467bd", "#d6a100")


def main() -> None:
    """Print the tables; write plot and docs where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--brief", action="store_true", help="a row for each N")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    document = json.loads(options.results.read_text())
    text = brief(document) if options.brief else tables(document)
    print(text)
    if options.docs is not None:
        begin, end = (mark.format("brief " if options.brief else "") for mark in MARKS)
        page = options.docs.read_text()
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        options.docs.write_text(f"{before}{begin}{text}{end}{after}")
    if options.plot is not None:
        plot(document, options.plot)


def tables(document: dict[str, Any]) -> str:
    """One Markdown table for each family; every figure with its target."""
    parts = []
    catalog = Catalog.load()
    for family, title in TITLES.items():
        rows = sorted(
            (row for row in document["rows"] if row["family"] == family),
            key=lambda row: (row["n"], row["kernel"]),
        )
        if not rows:
            continue
        lines = [
            f"\n**{title}** – target {_targets(rows)}\n",
            "| " + " | ".join(COLUMNS) + " |",
            "| --- " * len(COLUMNS) + "|",
        ]
        lines += [_cells(row, catalog.kernel(row["kernel"])) for row in rows]
        parts.append("\n".join(lines) + "\n")
        parts.append(_peers_table(document, family))
    return "".join(parts)


def brief(document: dict[str, Any]) -> str:
    """The fastest kernel of every N of every family, and its ratio to the best correct peer."""
    lines = ["", "| family | N | kernel | ms | of bare | best correct peer | × peer |", "| --- " * 7 + "|"]
    for family, title in TITLES.items():
        rows = [row for row in document["rows"] if row["family"] == family]
        for n in sorted({row["n"] for row in rows}):
            row = min((row for row in rows if row["n"] == n), key=lambda row: row["ms"])
            lines.append(
                f"| {title} | {n} | {row['kernel']} | {row['ms']:.4f} ± {row['spread_ms']:.4f}"
                f" | {100 * row['of_bare']:.1f} % | {row['best_peer']}, {row['best_peer_ms']:.4f} ms"
                f" | {row['ratio']:.3f} |"
            )
    return "\n".join([*lines, "", ""])


def _peers_table(document: dict[str, Any], family: str) -> str:
    """Milliseconds of every peer's fastest form, and how many forms were tried."""
    rows = [row for row in document["peers"] if row["family"] == family]
    names = list(dict.fromkeys(row["peer"] for row in rows if row["peer"] != "bare"))
    cells = {(row["n"], row["peer"]): _peer_cell(row) for row in rows}
    lines = [
        "\nThe fastest form of each peer in ms, of how many that were tried:\n",
        "| N | bare | " + " | ".join(names) + " |",
        "| --- " * (len(names) + 2) + "|",
    ]
    lines += [
        f"| {n} | " + " | ".join(cells.get((n, name), "–") for name in ("bare", *names)) + " |"
        for n in sorted({row["n"] for row in rows})
    ]
    return "\n".join(lines) + "\n"


def _peer_cell(row: dict[str, Any]) -> str:
    tried = f" of {len(row['tried'])}" if "tried" in row else ""
    wrong = "" if row["correct"] else f", error {row['error']:.1e}"
    return f"{row['ms']:.4f}{tried}{wrong}"


def _targets(rows: list[dict[str, Any]]) -> str:
    """The target of a table's rows; where it depends on N, with the N."""
    sizes: dict[str, list[int]] = {}
    for row in rows:
        sizes.setdefault(row["target"].replace(">= ", "≥ ").replace(" x ", " × "), []).append(row["n"])
    if len(sizes) == 1:
        return next(iter(sizes))
    return "; ".join(f"{target} at N = {', '.join(map(str, ns))}" for target, ns in sizes.items())


def _cells(row: dict[str, Any], kernel: KernelFile) -> str:
    configuration = kernel.configuration(kernel.workload({"N": row["n"]}), row["configuration"])
    rate = f"{row['rate']:,.0f} {row['rate_name']}"
    met = "yes" if row["met"] else "**no**"
    return (
        f"| {row['n']} | {row['kernel']} | {configuration}"
        f" | {row['ms']:.4f} ± {row['spread_ms']:.4f} | {rate} | {100 * row['of_bare']:.1f} %"
        f" | {row['best_peer']} ({row['best_peer_form']}), {row['best_peer_ms']:.4f} ms"
        f" | {row['ratio']:.3f} | {row['error']:.1e} | {met} |"
    )


def plot(document: dict[str, Any], path: Path) -> None:
    """Speed of every kernel and of the best peer, as a fraction of the bare kernel of the same run."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - only the plot needs it

    figure, axes = plt.subplots(1, len(TITLES), figsize=(16, 4.2), layout="constrained")
    for axis, (family, title) in zip(axes, TITLES.items(), strict=True):
        rows = [row for row in document["rows"] if row["family"] == family]
        for colour, kernel in zip(_COLOURS, sorted({row["kernel"] for row in rows}), strict=False):
            own = sorted((row["n"], 100 * row["of_bare"]) for row in rows if row["kernel"] == kernel)
            axis.plot(*zip(*own, strict=True), "o-", color=colour, label=kernel)
        peers = sorted({(row["n"], 100 * row["bare_ms"] / row["best_peer_ms"]) for row in rows})
        if peers:
            axis.plot(*zip(*peers, strict=True), "s--", color="#888888", label="best correct peer")
        axis.set_xscale("log", base=2)
        axis.set_ylim(0, 105)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("N")
        axis.set_ylabel("% of a bare kernel that moves the same bytes")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.savefig(path)


if __name__ == "__main__":
    main()
