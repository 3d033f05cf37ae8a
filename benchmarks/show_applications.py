"""The results of applications.py as tables, beside the rows of the paper.

    python benchmarks/show_applications.py RESULTS.json [...] [--docs PAGE.md] [--marker NAME]

docs/lab/applications.md has some of their rows and columns. Several results are tables one below the other.
``--docs`` replaces what stands between the lines ``<!-- NAME -->`` and ``<!-- end of NAME -->``. Results of
``--analyse`` become a table of searches.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Row = Mapping[str, Any]


class Printed(NamedTuple):
    """A row of Table IV of the paper.

    Attributes:
        device: the modelled counterpart of its GPU.
        set: applications, as it orders them.
        time: block sizes for time.
        time_trials: tried, of so many.
        energy: block sizes for energy.
        clock_mhz: for energy.
        energy_trials: tried, of so many.
        slowdown: of the answer for energy.
        saving: in energy.
    """

    device: str
    set: tuple[str, ...]
    time: str
    time_trials: str
    energy: str
    clock_mhz: int
    energy_trials: str
    slowdown: str
    saving: str


SC, PF, LU, HS, MM = "StreamCluster", "ParticleFilter", "Lud", "HotSpot", "MatrixMul"
PRINTED = (
    Printed("sim:k20c", (SC,), "128", "4 (10)", "128", 705, "7 (50)", "2 %", "2 %"),
    Printed("sim:k40c", (SC,), "128", "4 (10)", "128", 875, "7 (40)", "0 %", "0 %"),
    Printed("sim:k20c", (PF,), "128", "3 (9)", "512", 758, "3 (45)", "< 1 %", "1 %"),
    Printed("sim:k40c", (PF,), "128", "3 (9)", "128", 810, "7 (36)", "8 %", "1 %"),
    Printed("sim:k20c", (LU,), "16×16", "2 (5)", "32×32", 705, "4 (25)", "19 %", "13 %"),
    Printed("sim:k40c", (LU,), "16×16", "2 (5)", "32×32", 810, "4 (20)", "18 %", "12 %"),
    Printed("sim:k20c", (HS,), "16×16", "1 (5)", "16×16", 758, "2 (25)", "0 %", "0 %"),
    Printed("sim:k40c", (HS,), "16×16", "1 (5)", "16×16", 875, "2 (20)", "0 %", "0 %"),
    Printed("sim:k20c", (LU, PF), "16×16, 256", "5 (45)", "32×32, 512", 758, "6 (225)", "13 %", "5 %"),
    Printed("sim:k20c", (LU, MM), "16×16, 32×32", "3 (25)", "16×16, 32×32", 705, "5 (125)", "6 %", "5 %"),
    Printed("sim:k40c", (SC, HS), "128, 16×16", "4 (50)", "512, 16×16", 810, "6 (200)", "< 1 %", "< 1 %"),
    Printed(
        *("sim:k40c", (SC, PF, LU, HS), "128, 128, 16×16, 32×32", "8 (2,250)"),
        *("1024, 512, 32×32, 32×32", 745, "8 (9,000)", "7 %", "4 %"),
    ),
)
NAMES = {"sim:k20c": "K20c", "sim:k40c": "K40c", "replay:h200-applications": "H200, recorded"}
GPUS = {"NVIDIA H200": "H200"}


def main() -> None:
    """Print the tables; write the docs where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--marker", default="applications")
    options = parser.parse_args()
    text = "\n\n".join(shown(json.loads(path.read_text())) for path in options.results)
    print(text)
    if options.docs is not None:
        options.docs.write_text(marked(options.docs.read_text(), options.marker, text, options.docs))


def marked(page: str, marker: str, text: str, path: Path) -> str:
    """A page with the text between its two marks.

    Raises:
        SystemExit: it has no such marks.
    """
    begin, end = f"<!-- {marker} -->\n", f"<!-- end of {marker} -->\n"
    if begin not in page or end not in page:
        raise SystemExit(f"{path}: has no lines {begin.strip()} and {end.strip()}")
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n\n{end}{after}"


def shown(document: Row) -> str:
    """The tables of one result."""
    if "recording" in document:
        return searches(document)
    return f"{table_iv(document)}\n\n{co_running(document)}"


def table_iv(document: Row) -> str:
    """Table IV: what was chosen, and below each set what the paper prints for the same GPU."""
    device, lines = document["device"], []
    by = {(tuple(row["set"]), row["objective"]): row for row in document["rows"]}
    gpus = [GPUS.get(gpu["name"], gpu["name"]) for gpu in document["provenance"]["gpus"]]
    name = NAMES.get(device, gpus[0] if gpus else device) + (", modelled" if document["modelled"] else "")
    for names in dict.fromkeys(names for names, _ in by):
        lines.append(_own(name, names, by.get((names, "time")), by.get((names, "energy"))))
        if document["space"] != "paper":
            continue
        lines += [
            (
                *(
                    "",
                    f"{NAMES[device]}, paper",
                    one.time,
                    one.time_trials,
                    one.energy,
                    f"{one.clock_mhz} MHz",
                ),
                *(one.energy_trials, one.slowdown, one.saving),
            )
            for one in PRINTED
            if one.device == device and one.set == names
        ]
    head = (
        *("applications", "device", "for time", "trials (of)", "for energy", "clock", "trials (of)"),
        *("slowdown", "saving"),
    )
    return table(head, lines)


def _own(device: str, names: Sequence[str], time: Row | None, energy: Row | None) -> tuple[str, ...]:
    against = (energy or {}).get("against_time")
    return (
        " + ".join(names),
        device,
        *_chosen(time),
        *_chosen(energy, clock=True),
        "–" if against is None else _percent(against["slowdown"], against["slowdown_interval"]),
        "–" if against is None else _percent(against["saving"], against["saving_interval"]),
    )


def _chosen(row: Row | None, *, clock: bool = False) -> tuple[str, ...]:
    if row is None or "error" in row:
        return ("–", "–", "–") if clock else ("–", "–")
    trials = f"{row['trials']} ({row['whole']:,})"
    blocks = ", ".join(row["blocks"]) if _is_short(row) else "; ".join(row["blocks"])
    if not clock:
        return blocks, trials
    return blocks, "as found" if row["clock_mhz"] is None else f"{row['clock_mhz']} MHz", trials


def _is_short(row: Row) -> bool:
    return all(" " not in one for one in row["blocks"])


def co_running(document: Row) -> str:
    """Costs of the answers, against solo bests together and one after another, and against the least."""
    lines = []
    for row in document["rows"]:
        if "error" in row:
            lines.append((" + ".join(row["set"]), row["objective"], row["error"], *["–"] * 7))
            continue
        solo, after = row["solo_bests"] or {}, row["one_after_another"] or {}
        optimum = row["optimum"]
        lines.append(
            (
                " + ".join(row["set"]),
                row["objective"],
                f"{_digits(row['time_s'] * 1e3)} ± {_digits(row['time_s_interval'] * 1e3, 2)} ms",
                "–"
                if row["energy_j"] is None
                else f"{_digits(row['energy_j'])} ± {_digits(row['energy_j_interval'], 2)} J",
                _change(solo, "slowdown"),
                _change(solo, "energy_saving", sign=-1),
                _change(after, "time_change"),
                _change(after, "energy_change"),
                "–" if optimum is None else f"{100 * optimum['above']:.2f} %",
                "–" if row["policy_above"] is None else f"{100 * row['policy_above']:.2f} %",
            )
        )
    head = (
        *("applications", "for", "time", "energy", "time against solo bests together", "energy"),
        *("time against one after another", "energy", "answer above the least", "lowest trial"),
    )
    return table(head, lines)


def searches(document: Row) -> str:
    """Searches of the four on a recording."""
    lines = []
    for row in document["rows"]:
        solo = row["solo_bests"]
        if solo is not None:
            lines.append(
                (*_space(row), "solo bests together", "–", f"{100 * solo['above']:.2f} %", *["–"] * 5)
            )
        for place, one in enumerate(row["searches"]):
            lines.append(
                (
                    *(_space(row) if place == 0 and solo is None else ("",) * 5),
                    f"`{one['policy']}`",
                    f"{one['trials']:g} ({one['most_trials']})",
                    f"{100 * one['above']:.2f} %",
                    f"{100 * one['worst_above']:.2f} %",
                    *(f"{100 * above:.2f} %" for above in one["after"].values()),
                )
            )
    counts = list(document["rows"][0]["searches"][0]["after"])
    head_row = (
        *(
            "for",
            "trials",
            "known to",
            "median above the least",
            "within 2 %",
            "search",
            "asked for: median (most)",
        ),
        *("above the least: median", "at most"),
        *(f"after {count}" for count in counts),
    )
    return table(head_row, lines)


def _space(row: Row) -> tuple[str, ...]:
    """What a recorded space is like."""
    median = f"{100 * row['median_above']:.1f} %"
    known = f"± {100 * row['cost_interval']:.1f} %"
    trials = f"{row['trials']:,} of {row['whole']:,}"
    return row["objective"], trials, known, median, str(row["within_2_percent"])


def _change(record: Row, key: str, sign: int = 1) -> str:
    if record.get(key) is None:
        return "–"
    return _percent(sign * record[key], record[f"{key}_interval"], signed=True)


def _percent(share: float, interval: float, *, signed: bool = False) -> str:
    value = 100 * share
    number = f"{value:+.1f}" if signed else f"{value:.1f}"
    return f"{'0.0' if float(number) == 0.0 else number} ± {100 * interval:.1f} %"


def _digits(value: float, count: int = 4) -> str:
    return f"{float(f'{value:.{count}g}'):,g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of cells as a table of Markdown."""
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


if __name__ == "__main__":
    main()
