"""The results of rodinia_peers.py as a table, of which docs/lab/kernels/kernels.md has most rows.

    python benchmarks/kernels/show_rodinia.py benchmarks/results/rodinia-h200.json [--docs PAGE.md]

``--docs`` replaces what stands between the lines ``<!-- rodinia -->`` and ``<!-- end of rodinia -->``.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from show_applications import marked, table

Row = Mapping[str, Any]
HEAD = ("contest", "Rodinia's fastest", "ms", "ours", "ms", "× Rodinia's")


def main() -> None:
    """Print the table; write the docs where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    text = shown(json.loads(options.result.read_text()))
    print(text)
    if options.docs is not None:
        options.docs.write_text(marked(options.docs.read_text(), "rodinia", text, options.docs))


def shown(document: Row) -> str:
    """Where it was measured, and a line for each configuration of ours."""
    gpu, made = document["provenance"]["gpus"][0], document["provenance"]["date"][:10]
    origin = f"{gpu['name']}, driver {gpu['driver_version']}, clocks as found, {made}"
    nvcc = "; ".join(document["nvcc"])
    rows = [line for row in document["contests"] for line in lines(row)]
    return f"{origin}. nvcc: {nvcc}.\n\n{table(HEAD, rows)}"


def lines(row: Row) -> list[tuple[str, ...]]:
    """Each configuration of ours beside Rodinia's fastest right form."""
    chosen = next((one for one in row["rodinia"] if one["name"] == row["fastest"]), None)
    theirs = ("none is right", "–") if chosen is None else (chosen["name"], _ms(chosen))
    found = []
    for place, one in enumerate(row["ours"]):
        head = (f"{row['contest']}: `{row['workload']}`", *theirs) if place == 0 else ("", "", "")
        values = " ".join(f"{name}={value}" for name, value in one["configuration"].items())
        found.append((*head, f"{one['name']}: {values}", _ms(one), _ratio(one)))
    return found


def _ms(one: Row) -> str:
    return f"{one['ms']:.4f} ± {one['spread_ms']:.4f}" if "ms" in one else "wrong"


def _ratio(one: Row) -> str:
    ratio = one.get("ratio")
    return "–" if ratio is None else f"{ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"


if __name__ == "__main__":
    main()
