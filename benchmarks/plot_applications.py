"""Figures 2, 3 and 4 of the multi-kernel paper in form, from a result of applications.py.

    python benchmarks/plot_applications.py RESULT.json --folder docs --prefix applications-k40c

Three pictures: time of every block size of one application, with what was tried (Fig. 2); energy over block
size and clock, with the path of Algorithm 2 (Fig. 3); the paths of Algorithms 3 and 4 with four applications
(Fig. 4a and b). A picture whose row is not in the result is left out. Needs matplotlib (extra ``plot``).
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from application_sets import FOUR, block_of

Row = Mapping[str, Any]
INK, TRIED, BEST = "#9aa5b1", "#1f77b4", "#c0392b"


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--prefix", default="applications")
    parser.add_argument("--application", default="StreamCluster", help="of Figures 2 and 3")
    options = parser.parse_args()
    for path in pictures(json.loads(options.result.read_text()), options):
        print(path)


def pictures(document: Row, options: argparse.Namespace) -> list[Path]:
    """Draw what the document has rows for; returns the files."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "applications"  # the same result gives the same file
    by = {(tuple(row["set"]), row["objective"]): row for row in document["rows"] if "error" not in row}
    label = f"{document['device']}{' (modelled)' if document['modelled'] else ''}"
    alone = (options.application,)
    wanted = (
        ("times", _times, [by.get((alone, "time"))]),
        ("energies", _energies, [by.get((alone, "energy"))]),
        ("paths", _paths, [by.get((FOUR, "time")), by.get((FOUR, "energy"))]),
    )
    written = []
    for name, draw, rows in wanted:
        if any(row is None or (draw is not _paths and "every" not in row) for row in rows):
            continue
        path = options.folder / f"{options.prefix}-{name}.svg"
        draw([row for row in rows if row is not None], document["space"], label, path)
        written.append(path)
    return written


def _blocks(row: Row, space: str, configurations: Sequence[Row]) -> str:
    return ", ".join(block_of(name, space, one) for name, one in zip(row["set"], configurations, strict=True))


def _at(row: Row, space: str, one: Row) -> str:
    blocks = _blocks(row, space, one["configurations"])
    return blocks if one["clock_mhz"] is None else f"{blocks} @ {one['clock_mhz']} MHz"


def _times(rows: Sequence[Row], space: str, label: str, path: Path) -> None:
    """Fig. 2: bars of all block sizes; those tried are numbered."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the back end is chosen

    (row,) = rows
    tried = [_blocks(row, space, one["configurations"]) for one in row["tried"]]
    names = [_blocks(row, space, one["configurations"]) for one in row["every"]]
    chosen = ", ".join(row["blocks"])
    figure, axes = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
    colours = [BEST if name == chosen else TRIED if name in tried else INK for name in names]
    heights = [1e3 * one["time_s"] for one in row["every"]]
    bars = axes.bar(names, heights, color=colours)
    numbers = [str(tried.index(name) + 1) if name in tried else "" for name in names]
    axes.bar_label(bars, numbers, padding=2)
    axes.set(
        title=f"{row['set'][0]}, {label}; numbers: order of trials",
        xlabel="block size, threads",
        ylabel="time of a round, ms",
        ylim=(0, 1.12 * max(heights)),
    )
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _energies(rows: Sequence[Row], space: str, label: str, path: Path) -> None:
    """Fig. 3: energy over block size, a line per clock, with the path of the search."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the back end is chosen

    (row,) = rows
    blocks = list(dict.fromkeys(_blocks(row, space, one["configurations"]) for one in row["every"]))
    clocks = sorted({one["clock_mhz"] or 0 for one in row["every"]}, reverse=True)
    figure, axes = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
    for place, mhz in enumerate(clocks):
        joules = {
            _blocks(row, space, one["configurations"]): one["energy_j"]
            for one in row["every"]
            if (one["clock_mhz"] or 0) == mhz
        }
        shade = str(0.25 + 0.5 * place / max(1, len(clocks) - 1))
        name = f"{mhz} MHz" if mhz else "clock as found"
        axes.plot(blocks, [joules.get(block) for block in blocks], marker="o", color=shade, label=name)
    path_x = [_blocks(row, space, one["configurations"]) for one in row["tried"]]
    path_y = [one["energy_j"] for one in row["tried"]]
    axes.plot(path_x, path_y, color=TRIED, linewidth=1.0, linestyle="--", label="path of the search")
    for number, (x, y) in enumerate(zip(path_x, path_y, strict=True), 1):
        axes.annotate(str(number), (x, y), textcoords="offset points", xytext=(4, 4), color=TRIED)
    axes.scatter(", ".join(row["blocks"]), row["energy_j"], s=90, facecolor="none", edgecolor=BEST, zorder=3)
    axes.set(title=f"{row['set'][0]}, {label}", xlabel="block size, threads", ylabel="energy of a round, J")
    axes.legend(fontsize="small")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _paths(rows: Sequence[Row], space: str, label: str, path: Path) -> None:
    """Fig. 4: cost of one trial after another, for time and for energy."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the back end is chosen

    figure, panels = plt.subplots(len(rows), 1, figsize=(7.5, 4.4 * len(rows)), layout="constrained")
    for axes, row in zip(panels, rows, strict=True):
        key, scale, unit = ("time_s", 1e3, "ms") if row["objective"] == "time" else ("energy_j", 1.0, "J")
        tried = [one for one in row["tried"] if one[key] is not None]
        costs = [scale * one[key] for one in tried]
        solo = row["tried"][1] if row["measured"] > row["trials"] else None
        solo = row.get("solo_bests_trial")
        labels = [
            f"{number}{' (solo bests)' if number - 1 == solo else ''}: {_at(row, space, one)}"
            for number, one in enumerate(tried, 1)
        ]
        chosen = row["configurations"], row["clock_mhz"]
        colours = [BEST if (one["configurations"], one["clock_mhz"]) == chosen else TRIED for one in tried]
        axes.barh(labels, costs, color=colours)
        axes.invert_yaxis()
        what = "time" if row["objective"] == "time" else "energy"
        axes.set(title=f"the four for {what}, {label}", xlabel=f"{what} of a round, {unit}")
        axes.tick_params(axis="y", labelsize="small")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
