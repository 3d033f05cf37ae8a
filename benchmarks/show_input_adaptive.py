"""The results of input_adaptive.py as tables, in the forms of the G-ADAPT paper.

    python benchmarks/show_input_adaptive.py RESULTS.json [--docs PAGE.md] [--marker NAME]

docs/lab/input-adaptive.md has some of their rows and columns. ``--docs`` replaces what stands between the
lines ``<!-- NAME -->`` and ``<!-- end of NAME -->``.
"""

import argparse
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

METHODS = ("forest", "versions", "g-adapt", "one for all")
Row = Mapping[str, Any]


def main() -> None:
    """Print the tables; write the docs where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--marker", default="input-adaptive")
    options = parser.parse_args()
    text = tables(json.loads(options.results.read_text())["kernels"])
    print(text)
    if options.docs is not None:
        begin, end = f"<!-- {options.marker} -->\n", f"<!-- end of {options.marker} -->\n"
        page = options.docs.read_text()
        if begin not in page or end not in page:
            raise SystemExit(f"{options.docs}: has no lines {begin.strip()} and {end.strip()}")
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        options.docs.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def tables(kernels: Mapping[str, Row]) -> str:
    """All tables, in Markdown."""
    return "\n\n".join(
        (
            "Each input predicted from the others (Table I):\n\n" + _accuracy(kernels),
            "What the choice costs, by the best of each input (Fig. 2, 3, 5 and 6):\n\n" + _costs(kernels),
            "With the block size alone as tunable, as in the paper:\n\n" + _block_size(kernels),
            "A training that measures a part of the sweeps, judged by the complete ones:\n\n"
            + _guided(kernels),
        )
    )


def _accuracy(kernels: Mapping[str, Row]) -> str:
    head = (
        *("kernel", "inputs", "method", "exact", "within 2 %", "5 %", "10 %", "mean", "worst"),
        *("best of 4 within 5 %", "mean"),
    )
    rows = []
    for name, kernel in kernels.items():
        for method in METHODS:
            found = kernel["accuracy"][method]
            rows.append(
                (
                    f"`{name}`" if method == METHODS[0] else "",
                    str(found["inputs"]),
                    method,
                    _percent(found["exact"]),
                    *map(_percent, found["within"]),
                    f"{found['mean']:.3f}",
                    f"{found['worst']:.2f}",
                    _percent(found["within_of_first"][1]),
                    f"{found['mean_of_first']:.3f}",
                )
            )
    return _table(head, rows)


def _costs(kernels: Mapping[str, Row]) -> str:
    head = (
        *("kernel", "configurations", "different bests", "worst: median", "at most", "default: mean"),
        *("at most", "one for all: mean", "at most", "versions: mean", "at most", "one for all by versions"),
        *("runs of hill climbing", "learning"),
    )
    rows = []
    for name, kernel in kernels.items():
        figures = kernel["figures"]
        worst, default, single, versions = (
            [row[column] for row in figures["rows"] if row[column] is not None]
            for column in ("worst", "default", "single", "versions")
        )
        rows.append(
            (
                f"`{name}`",
                str(kernel["configurations"]),
                f"{figures['best_configurations']} of {kernel['inputs']}",
                f"{statistics.median(worst):.2f}",
                f"{max(worst):.1f}",
                *_mean_and_most(default),
                *_mean_and_most(single),
                *_mean_and_most(versions),
                f"{figures['against_single']['versions']:.2f} ×",
                f"{kernel['hill_climbing_runs']:,}",
                f"{kernel['learning_s']:.0f} s",
            )
        )
    return _table(head, rows)


def _mean_and_most(values: Sequence[float]) -> tuple[str, str]:
    return f"{statistics.fmean(values):.2f}", f"{max(values):.1f}"


def _block_size(kernels: Mapping[str, Row]) -> str:
    rows = [
        (
            f"`{name}`",
            str(small["configurations"]),
            str(small["accuracy"]["forest"]["inputs"]),
            *map(_percent, small["accuracy"]["forest"]["within"]),
            f"{small['accuracy']['forest']['mean']:.3f}",
            _percent(small["accuracy"]["g-adapt"]["within"][1]),
            f"{small['accuracy']['g-adapt']['mean']:.3f}",
        )
        for name, kernel in kernels.items()
        if (small := kernel["block_size_only"]) is not None
    ]
    head = (
        *("kernel", "configurations", "inputs", "forest within 2 %", "5 %", "10 %", "mean"),
        *("g-adapt within 5 %", "mean"),
    )
    return _table(head, rows)


def _guided(kernels: Mapping[str, Row]) -> str:
    rows = []
    for name, kernel in kernels.items():
        complete = kernel["accuracy"]["forest"]["mean"]
        shown = {round(one["share"], 3): one for one in kernel["guided"]}
        rows += [
            (
                f"`{name}`",
                _percent(one["share"]),
                f"{one['mean']:.3f}",
                f"{complete:.3f}",
                f"{100 * (one['mean'] / complete - 1):+.1f} %",
                f"{one['best_found']:.3f}",
            )
            for one in shown.values()
        ]
    head = ("kernel", "trials", "mean", "of complete sweeps", "loss", "best trial by the best")
    return _table(head, rows)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


if __name__ == "__main__":
    main()
