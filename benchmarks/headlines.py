"""The figures of README and of the first table of docs/results.md, each computed from a stored result.

    python benchmarks/headlines.py [--docs docs/results.md]

With ``--docs`` the table is written into the page, between its marks.
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).resolve().parent / "results"

Document = Mapping[str, Any]


class Headline(NamedTuple):
    """A claim with its figures.

    Attributes:
        about: what was compared.
        figure: numbers with units, as they are printed.
        results: names of the files of benchmarks/results.
        page: of the documentation, with an anchor where one helps.
    """

    about: str
    figure: str
    results: tuple[str, ...]
    page: str


def stored(name: str) -> Any:
    """A stored result."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def change(mean: float, half: float, digits: int = 1) -> str:
    """A relative change with half of its 95 % interval, without its sign: ``3.2 ± 0.2 %``."""
    return f"{100 * abs(mean):.{digits}f} ± {100 * half:.{digits}f} %"


def _scan() -> str:
    found = stored("scan-512-h200")["comparison"]["difference"]
    energy = found["energy_j of the energy answer against the time answer"]
    time = found["time_s of the energy answer against the time answer"]
    saved = change(energy["mean"], energy["half_interval_95"])
    return f"{saved} less energy for {change(time['mean'], time['half_interval_95'], 2)} more time"


def _against_default(name: str, digits: int) -> str:
    found = stored(name)["against_default"]
    time = change(found["slowdown"], found["slowdown_interval"], digits)
    how = "more" if found["slowdown"] > 0 else "less"
    return f"{change(found['energy_saving'], found['energy_saving_interval'])} less energy, {time} {how} time"


def _together() -> str:
    solo = stored("auto-four-applications-h200")["against_solo_bests"]
    return f"{change(solo['slowdown'], solo['slowdown_interval'])} less time"


def _pays() -> str:
    rows = stored("co-run-pays-h200")["rows"]
    more = [-row["change"] - row["change_interval"] > 0.02 for row in rows]
    return f"{sum(more)} of {len(rows)} take more than 2 % less time"


def _ratios(family: str, digits: int) -> str:
    ratios = [row["ratio"] for row in stored("peers-h200")["rows"] if row["family"] == family]
    return f"{min(ratios):.{digits}f} to {max(ratios):.{digits}f} times as fast"


def _long_scans() -> str:
    rows = {row["name"]: row for row in stored("long-scan-peers-h200")["rows"]}
    ratios = [rows[f"inclusive sum, float32, N = 2^{k}"]["ratio"] for k in LONG_SCANS]
    return f"{min(ratios):.2f} to {max(ratios):.2f} times as fast"


def _random_lengths() -> str:
    rows = [
        row
        for row in stored("fft-random-lengths-h200")["summary"]
        if (row["lengths"], row["batches"]) == ("short", "full")
    ]
    means, least = [row["mean"] for row in rows], min(row["least"] for row in rows)
    return f"{min(means):.2f} to {max(means):.2f} times as fast in the mean of a type, {least:.2f} at least"


def _long_systems() -> str:
    ratios = [row["ratio"] for row in stored("tridiag-large-h200")["rows"]]
    return f"{min(ratios):.1f} to {max(ratios):.1f} times as fast"


def _two_gpus() -> str:
    (row,) = (
        row
        for row in stored("pool-gpus-h200")["rows"]
        if (row["policy"], row["workers"]) == ("exhaustive", 2)
    )
    return f"efficiency {row['efficiency']:.2f}"


LONG_SCANS = range(24, 31)  # powers of two


def _batched() -> str:
    """Of what an untuned call takes: the analytical answer where there is one, else the default."""
    rows = stored("linalg-batched-h200")["rows"]
    ratios = [(row["analytical"] or row["default"])["ratio"]["median"] for row in rows]
    mean = statistics.geometric_mean(ratios)
    return f"{mean:.1f} times as fast in the mean, {min(ratios):.2f} at least"


def _large_factorisations() -> str:
    rows = stored("linalg-large-h100")["rows"]
    some = [row for row in rows if row["operation"] in {"getrf", "geqrf"} and row["n"] >= 1024]
    ratios = [row["best"]["ratio"]["median"] for row in some]
    return f"{min(ratios):.1f} to {max(ratios):.1f} times as fast"


def _few_trials() -> str:
    (row,) = (one for one in stored("compare-h200")["operations"] if one["operation"] == "all")
    auto = row["policies"]["auto"]
    return f"{100 * auto['phi']:.1f} % of the best speed after a median of {auto['evaluations']:.0f} trials"


def _examples() -> str:
    rows = stored("examples-h200")["rows"]
    return f"within {100 * max(row['loss'] for row in rows):.1f} %"


def _calls() -> str:
    rows = stored("apply-calls-h200")["host"]
    return f"{min(row['host_us'] for row in rows if row['contender'] == 'tuner.plan'):.1f} µs of the host"


def _wall() -> str:
    rows = stored("kernel-tuner-users-h200")["kernels"]["scan"]["rows"]
    wall = {(row["column"], row["cache"]): statistics.median(row["wall_s"]) for row in rows}
    parts = []
    for cache in ("cold", "warm"):
        ours, *peers = (wall[column, cache] for column in ("exhaustive", "brute-force", "loop"))
        parts.append(f"{ours:.1f} s against {' and '.join(f'{peer:.1f} s' for peer in peers)}")
    return " with cold caches, ".join(parts) + " with warm ones"


def _users() -> str:
    kernels = stored("kernel-tuner-users-h200")["kernels"]
    ratios = []
    for kernel in kernels.values():
        wall = {row["column"]: row["wall_s"] for row in kernel["rows"] if row["cache"] == "cold"}
        if "adaptive_tabu_greywolf" not in wall:
            continue
        ratios.append(statistics.median(wall["auto"]) / statistics.median(wall["adaptive_tabu_greywolf"]))
    middle = statistics.median(ratios)
    return f"{min(ratios):.2f} to {max(ratios):.2f} times its wall, {middle:.2f} in the median"


def _sum(rows: Iterable[Document], key: str) -> int:
    """A column without its row of totals."""
    return sum(int(row[key]) for row in rows if "all" not in row.values())


def _faults() -> str:
    rows = [row for name in ("daemon-faults", "daemon-faults-second") for row in stored(name)["rows"]]
    harms = ("trials lost", "measured twice", "jobs stuck", "clocks left", "unanswered", "daemon died")
    harm = sum(_sum(rows, key) for key in harms)
    return f"{_sum(rows, 'tried')} faults, {harm} trials lost, requests unanswered or clocks left"


def _kills() -> str:
    rows = stored("clock-kills")["rows"]
    left = _sum(rows, "changed after it")
    return f"{_sum(rows, 'kills'):,} kills, {left} clocks or power limits left set"


_HEADLINES: tuple[tuple[str, Callable[[], str], tuple[str, ...], str], ...] = (
    (
        "`scan-lf:N=512` on an H200: the answer for energy against the answer for time",
        _scan,
        ("scan-512-h200",),
        "measuring.md",
    ),
    (
        "scan, tridiagonal system and FFT at once on an H100: the answer for energy against the defaults",
        lambda: _against_default("auto-energy-h100", 1),
        ("auto-energy-h100",),
        "run.md",
    ),
    (
        "vector addition on an H200: the answer against the first configuration of its space",
        lambda: _against_default("vector-add-h200", 2),
        ("vector-add-h200",),
        "kernel-files.md#an-example",
    ),
    (
        "four applications on an H200, for time, against solo bests at their best priorities",
        _together,
        ("auto-four-applications-h200",),
        "lab/applications.md#searched-on-a-gpu",
    ),
    (
        "30 pairs and 10 triples of unlike kernels on an H200, against solo bests at their best priorities",
        _pays,
        ("co-run-pays-h200",),
        "lab/applications.md#when-tuning-together-pays",
    ),
    (
        "policy `auto` on 63 spaces recorded on H200s",
        _few_trials,
        ("compare-h200",),
        "lab/methodologies.md#on-an-h200-recorded",
    ),
    (
        "ten example kernels on an H200: answers against the best of all configurations",
        _examples,
        ("examples-h200",),
        "examples.md",
    ),
    (
        "exhaustive search of 160 scans on an H200, whole process, against Kernel Tuner and a user's loop",
        _wall,
        ("kernel-tuner-users-h200",),
        "results.md#against-kernel-tuner",
    ),
    (
        "ten users' kernels on an H200, cold caches, policy `auto` against a strategy of Kernel Tuner",
        _users,
        ("kernel-tuner-users-h200",),
        "results.md#against-kernel-tuner",
    ),
    (
        "tridiagonal systems on an H200 against cuSPARSE",
        lambda: _ratios("tridiagonal", 1),
        ("peers-h200",),
        "lab/kernels/kernels.md",
    ),
    (
        "tridiagonal systems of float64 and complex64, or of up to 2^22 rows, on an H200 against cuSPARSE",
        _long_systems,
        ("tridiag-large-h200",),
        "lab/kernels/kernels.md#long-tridiagonal-systems",
    ),
    (
        "sums of one row of 2^24 to 2^30 floats on an H200 against CUB",
        _long_scans,
        ("long-scan-peers-h200",),
        "lab/kernels/kernels.md#against-cub",
    ),
    (
        "untuned transforms of 200 random lengths up to 8192 on an H200 against cuFFT's best call",
        _random_lengths,
        ("fft-random-lengths-h200",),
        "lab/kernels/kernels.md#fft-of-any-length",
    ),
    (
        "exhaustive search on two H200s of a host against one",
        _two_gpus,
        ("pool-gpus-h200",),
        "howto/several-gpus.md",
    ),
    (
        "transforms of 2^14 points or more on an H200 against cuFFT at its best",
        lambda: _ratios("fft-large", 2),
        ("peers-h200",),
        "lab/kernels/kernels.md",
    ),
    (
        "untuned batched gemm, trsm, LU, QR, Cholesky, n = 5 to 100, on an H200 against cuBLAS and cuSOLVER",
        _batched,
        ("linalg-batched-h200",),
        "lab/kernels/linear-algebra.md#against-cublas-and-cusolver",
    ),
    (
        "LU and QR of one matrix of order 1024 to 8192 on an H100 against cuSOLVER",
        _large_factorisations,
        ("linalg-large-h100",),
        "lab/kernels/linear-algebra.md#one-large-matrix",
    ),
    ("a call of a plan from Python", _calls, ("apply-calls-h200",), "python.md#plans"),
    (
        "random faults of the daemon: kills, full disks, damaged files, jumping clocks",
        _faults,
        ("daemon-faults", "daemon-faults-second"),
        "lab/daemon-proofs.md#scripts",
    ),
    (
        "random kills of those who set clocks and power limits on a fake driver, after the next start",
        _kills,
        ("clock-kills",),
        "clocks.md#what-is-restored-and-when",
    ),
)


def headlines() -> list[Headline]:
    """All claims, with figures as the results have them now."""
    return [Headline(about, figure(), results, page) for about, figure, results, page in _HEADLINES]


def table() -> str:
    """The claims in Markdown, linked as from a page of ``docs``."""
    rows = ["| what | figure | page | JSON |", "| --- | --- | --- | --- |"]
    for one in headlines():
        links = ", ".join(f"[{name}](../benchmarks/results/{name}.json)" for name in one.results)
        name = one.page.partition(".md")[0]
        rows.append(f"| {one.about} | **{one.figure}** | [{name}]({one.page}) | {links} |")
    return "\n".join(rows)


def marked(name: str, text: str) -> str:
    """A table between its marks, as pages have it."""
    return f"<!-- {name} -->\n\n{text}\n\n<!-- end of {name} -->"


def write_table(page: Path, name: str, text: str) -> None:
    """Put a table in the place of the one that a page has between the marks of its name; else exit with 2."""
    old = re.compile(rf"(?s)<!-- {name} -->\n.*\n<!-- end of {name} -->")
    page_text = page.read_text("utf-8") if page.is_file() else ""
    if not old.search(page_text):
        print(f"{page} has no <!-- {name} --> with an <!-- end of {name} --> after it", file=sys.stderr)
        sys.exit(2)
    page.write_text(old.sub(lambda _: marked(name, text), page_text), "utf-8")


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--docs", type=Path, help="the page to write the table into")
    page = parser.parse_args().docs
    if page is None:
        print(table())
    else:
        write_table(page, "headlines", table())


if __name__ == "__main__":
    main()
