"""Every policy against the recorded spaces of an H200, as in Table II of the embedded paper.

Runs `tuner compare`, keeps its document in short form, and prints the tables of docs/lab/methodologies.md as
Markdown, with the paper's figures beside. With `--again` it prints the tables of a result that is there.

    python benchmarks/compare.py --out benchmarks/results/compare-h200.json --plot docs/compare-h200.png
    python benchmarks/compare.py --modelled --out benchmarks/results/compare-tx1-modelled.json
    python benchmarks/compare.py --again benchmarks/results/compare-h200.json
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

POLICIES = "analytical,analytical:rule=embedded,bayesian,greedy,hill-climbing,local,random,auto"
# Table II of "Performance Tuning for GPU-Embedded Systems" (Jetson TX1): performance and Φ of the analytical
# model, then of the learnt search; in our names and the paper's order.
PAPER = {
    "tridiag-wm": ("670 MRows/s", 0.9895, "677 MRows/s", 1.0),
    "tridiag-cr": ("640 MRows/s", 0.9941, "635 MRows/s", 0.9855),
    "tridiag-pcr": ("547 MRows/s", 0.9985, "545 MRows/s", 0.9941),
    "tridiag-lf": ("668 MRows/s", 0.9951, "669 MRows/s", 0.9968),
    "scan-lf": ("18.27 MData/s", 0.9699, "18.72 MData/s", 1.0),
    "scan-ks": ("17.9 MData/s", 1.0, "17.63 MData/s", 0.9819),
    "fft": ("39 GFlop/s", 0.9718, "39.09 GFlop/s", 0.9813),
    "fft-large": ("57.28 GFlop/s", 0.8739, "63.37 GFlop/s", 0.9761),
}
# Small, middle and large: the exhaustive runs of all sizes would take an hour of compiling.
MODELLED = [f"{kernel}:N={n}" for kernel in list(PAPER)[:-1] for n in (64, 512, 4096)]
MODELLED += [f"fft-large:N={2**exponent}" for exponent in (14, 18)]
DIGITS = 6  # kept of a number: more than any of them is known to


def main() -> None:
    """Compare, keep the document, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("workloads", nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot")
    parser.add_argument("--device", default="replay:h200")
    parser.add_argument("--modelled", action="store_true", help="some workloads on sim:jetson-tx1")
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--database", help="where ground truths of sim: and cuda: devices are kept")
    parser.add_argument("--again", type=Path)
    options = parser.parse_args()
    if options.modelled:
        options.device, options.workloads = "sim:jetson-tx1", MODELLED
        options.policies = POLICIES.replace("analytical:rule=embedded,", "")  # it is that device's rule
    if options.again is None and options.out is None:
        parser.error("name --out FILE for a new comparison, or --again FILE for one that is there")
    if options.again is None:
        options.out.write_text(shortened(compared(options)))
    document = json.loads((options.again or options.out).read_text())
    for table in (as_in_the_paper(document), by_policy(document)):
        print("\n".join(table), end="\n\n")


def compared(options: argparse.Namespace) -> dict[str, Any]:
    """The document of `tuner compare`, with its command."""
    words = ["compare", *options.workloads, "--device", options.device, "--policies", options.policies]
    for name in ("plot", "database"):
        value = getattr(options, name)
        words += [f"--{name}", value] if value else []
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "compare.json"
        subprocess.run(
            [sys.executable, "-c", "from tuner.cli.main import main; main()", *words, "--json", result],
            check=True,
        )
        document: dict[str, Any] = json.loads(result.read_text())
    return document


def shortened(document: dict[str, Any]) -> str:
    """The document as JSON text, a line per operation and workload, numbers to a few digits."""
    lines = []
    for key, value in document.items():
        if key in {"operations", "workloads"}:
            rows = ",\n  ".join(compact(entry) for entry in value)
            lines.append(f'"{key}": [\n  {rows}\n ]')
        else:
            lines.append(f'"{key}": {compact(value)}')
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def compact(value: Any) -> str:
    """A value on one line."""
    return json.dumps(rounded(value), separators=(",", ":"))


def rounded(value: Any) -> Any:
    """Numbers to a few digits, at any depth."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [rounded(one) for one in value]
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return value


def as_in_the_paper(document: dict[str, Any]) -> list[str]:
    """Table II: performance and Φ of the analytical model and of the learnt search."""
    shown = [
        name
        for name in ("analytical", "analytical:rule=embedded", "bayesian")
        if name in document["policies"]
    ]
    heads = ["operation", "TX1, analytical", "Φ", "TX1, learnt", "Φ", "best"]
    heads += [head for name in shown for head in (f"`{name}`", "Φ")]
    lines = header(heads)
    operations = {operation["operation"]: operation for operation in document["operations"]}
    for name, (analytical, phi, learnt, learnt_phi) in PAPER.items():
        if name not in operations:
            continue
        cells = [f"`{name}`", analytical, f"{phi:.4f}", learnt, f"{learnt_phi:.4f}"]
        cells.append(rate(operations[name]["best"]))
        for policy in shown:
            row = operations[name]["policies"][policy]
            cells += [rate(row), f"{row['phi']:.4f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def by_policy(document: dict[str, Any]) -> list[str]:
    """Φ of every policy, and the evaluations it took: median, most, and median to 98 % of the best."""
    lines = header(["operation (trials)", *(f"`{name}`" for name in document["policies"])])
    for operation in document["operations"]:
        cells = [f"`{operation['operation']}` ({operation['trials']:,})"]
        for policy in document["policies"]:
            row = operation["policies"][policy]
            close = row["evaluations_to_close"]
            reached = "never" if close is None else close
            cells.append(f"{row['phi']:.4f}<br>{row['evaluations']}, {row['evaluations_most']}, {reached}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def header(heads: list[str]) -> list[str]:
    """The first two lines of a table, numbers to the right."""
    return [f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) - 1)]


def rate(row: dict[str, Any]) -> str:
    """Average performance with its unit."""
    if row["rate"] is None:
        return "–"
    digits = 1 if row["rate"] < 1e4 else 0
    return f"{row['rate']:,.{digits}f} {row['rate_name']}"


if __name__ == "__main__":
    main()
