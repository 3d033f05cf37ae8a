"""The results of apply_calls.py as tables for docs/python.md.

    python benchmarks/show_apply_calls.py RESULTS.json [--docs docs/python.md]

``--docs`` replaces what stands between ``<!-- apply-calls -->`` and ``<!-- end of apply-calls -->``.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- apply-calls -->\n", "<!-- end of apply-calls -->\n"
PLAN, APPLY = "tuner.plan", "tuner.apply"


def main() -> None:
    """Print the tables, and put them into the page where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    document = json.loads(options.results.read_text())
    text = f"{host_table(document['host'])}\n{end_table(document['end'])}"
    print(text)
    if options.docs is not None:
        before, _, rest = options.docs.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        options.docs.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def host_table(rows: Sequence[dict[str, Any]]) -> str:
    """Microseconds of the host: a row for each call, a column for each kernel."""
    problems = list(dict.fromkeys(_problem(row) for row in rows))
    by_call: dict[str, dict[str, str]] = {}
    for row in rows:
        figures = by_call.setdefault(row["contender"], {})
        figures[_problem(row)] = f"{row['host_us']:.1f} ± {row['host_spread_us']:.1f}"
    ordered = sorted(by_call, key=lambda name: not name.startswith("tuner."))
    lines = ([f"`{name}`" if "." in name else name, *_cells(by_call[name], problems)] for name in ordered)
    return _table(["call, µs of the host", *problems], lines)


def end_table(rows: Sequence[dict[str, Any]]) -> str:
    """Microseconds until the result is there, beside the fastest call of the libraries."""
    lines = []
    for _, group in groupby(sorted(rows, key=_place), key=_place):
        found = list(group)
        ours = [row for row in found if row["contender"] == PLAN]
        (plan,) = ours
        peers = [row for row in found if not row["ours"]]
        cells = [_n(plan["n"]), str(plan["batch"]), plan["kernel"], _origin(plan)]
        for figure in ("wall", "events"):
            peer = min(peers, key=lambda row: row[f"{figure}_us"])
            ratio = peer[f"{figure}_us"] / plan[f"{figure}_us"]
            cells += [_figure(plan, figure), _figure(peer, figure), peer["contender"], _ratio(ratio)]
        lines.append(cells)
    heads = ["N", "batch", "kernel", "configuration"]
    for title in ("one call, waited for", "a call of many in a row"):
        heads += [f"plan, {title}, µs", "fastest library, µs", "which", "× library"]
    return _table(heads, lines)


def _origin(row: dict[str, Any]) -> str:
    return row["note"].rpartition("(")[2].partition(":")[0].rstrip(")")


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 1 else f"**{ratio:.2f}**"


def _figure(row: dict[str, Any], figure: str) -> str:
    return f"{row[f'{figure}_us']:.1f} ± {row[f'{figure}_spread_us']:.1f}"


def _place(row: dict[str, Any]) -> tuple[str, int, int, str, bool]:
    chosen = row["configuration"] != "default"
    return row["kernel"].split("-")[0], row["n"], row["batch"], row["kernel"], chosen


def _problem(row: dict[str, Any]) -> str:
    return f"{row['kernel']} {row['batch']} × {_n(row['n'])}"


def _n(number: int) -> str:
    power = number.bit_length() - 1
    return f"2^{power}" if number >= 2**14 and number == 2**power else str(number)


def _cells(figures: dict[str, str], names: Iterable[str]) -> list[str]:
    return [figures.get(name, "–") for name in names]


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    main()
