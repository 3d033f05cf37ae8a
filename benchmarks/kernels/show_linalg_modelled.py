"""The results of linalg_modelled.py as a table and a picture, beside a recorded GPU.

    python benchmarks/kernels/show_linalg_modelled.py MODELLED.json [--recorded LARGE.json ...]
        [--docs docs/lab/kernels/linear-algebra.md] [--plot FILE.svg]

``--recorded`` takes results of linalg_large.py. ``--docs`` replaces what stands between the lines
``<!-- linalg modelled -->`` and ``<!-- end of linalg modelled -->``. ``--plot`` draws Gflop/s over the order,
a panel for each device; it needs matplotlib (extra ``plot``).
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linalg_large_operations import OPERATIONS
from show_linalg import origin, placed

LINES = ("<!-- linalg modelled -->\n", "<!-- end of linalg modelled -->\n")
COLOURS = {"gemm": "#9aa5b1", "potrf": "#1f77b4", "getrf": "#c0392b", "geqrf": "#2e8b57"}

Document = dict[str, Any]
Series = dict[str, dict[int, float]]
"""Gflop/s by operation and order."""


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; write docs and picture where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("modelled", type=Path)
    parser.add_argument("--recorded", type=Path, nargs="+", default=[])
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    options = parser.parse_args(words)
    document = json.loads(options.modelled.read_text())
    if not document.get("modelled"):
        print(f"{options.modelled}: no result of linalg_modelled.py", file=sys.stderr)
        return 2
    devices = modelled_devices(document)
    devices |= recorded_devices(
        [json.loads(path.read_text()) for path in options.recorded], document["dtype"]
    )
    text = table(devices)
    print(text)
    if options.plot is not None:
        picture(devices, options.plot, document["dtype"])
    return 0 if options.docs is None else placed(options.docs, *LINES, text)


def modelled_devices(document: Document) -> dict[str, Series]:
    """The series of each modelled device, whose name says that it is one."""
    devices: dict[str, Series] = {}
    for row in document["rows"]:
        if row["gflops"] is not None:
            series = devices.setdefault(row["name"], {})
            series.setdefault(row["operation"], {})[row["n"]] = row["gflops"]
    return devices


def recorded_devices(documents: Sequence[Document], dtype: str) -> dict[str, Series]:
    """The series of the GPUs that results of linalg_large.py were measured on."""
    devices: dict[str, Series] = {}
    for document in documents:
        series = devices.setdefault(f"{origin(document)}, recorded", {})
        for row in document["rows"]:
            if row["dtype"] != dtype:
                continue
            for name, key in ((row["operation"], "best"), ("gemm", "gemm")):
                if row[key] is not None:
                    series.setdefault(name, {})[row["n"]] = 1e3 * row[key]["tflops"]
    return devices


def table(devices: dict[str, Series]) -> str:
    """Gflop/s as Markdown, a row for each device and order."""
    names = ("gemm", *OPERATIONS)
    lines = [f"| GPU | n | {', Gflop/s | '.join(names)}, Gflop/s |", "| --- " * (len(names) + 2) + "|"]
    for device, series in devices.items():
        for n in sorted({n for values in series.values() for n in values}):
            rates = (series.get(name, {}).get(n) for name in names)
            cells = (
                "–" if rate is None else f"{rate:.3g}" if rate < 1e3 else f"{rate:.0f}" for rate in rates
            )
            lines.append(f"| {device} | {n} | {' | '.join(cells)} |")
    return "\n" + "\n".join(lines) + "\n\n"


def picture(devices: dict[str, Series], path: Path, dtype: str) -> None:
    """Draw Gflop/s over the order."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "linalg"  # the same result gives the same file
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the back end is chosen

    size = (3.8 * len(devices), 3.2)
    figure, panels = plt.subplots(1, len(devices), figsize=size, layout="constrained", squeeze=False)
    for axes, (device, series) in zip(panels[0], devices.items(), strict=True):
        for name, colour in COLOURS.items():
            points = sorted(series.get(name, {}).items())
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", markersize=3, color=colour, label=name)
        axes.set(xlabel="n", ylabel=f"Gflop/s, {dtype}", xscale="log")
        axes.set_title(device, fontsize="small", wrap=True)
        axes.set_ylim(bottom=0)
    panels[0][0].legend(fontsize="small")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
