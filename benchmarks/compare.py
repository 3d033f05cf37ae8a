"""Every policy against the recorded spaces of an H200.

Runs `tuner compare`, keeps its document in short form, and prints the table of docs/lab/methodologies.md as
Markdown. With `--again` it prints the table of a result that is there.

    python benchmarks/compare.py --out benchmarks/results/compare-h200.json --plot docs/compare-h200.png
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
DIGITS = 6  # kept of a number: more than any of them is known to


def main() -> None:
    """Compare, keep the document, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("workloads", nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot")
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--again", type=Path)
    options = parser.parse_args()
    if options.again is None and options.out is None:
        parser.error("name --out FILE for a new comparison, or --again FILE for one that is there")
    if options.again is None:
        options.out.write_text(shortened(compared(options)))
    document = json.loads((options.again or options.out).read_text())
    print("\n".join(by_policy(document)))


def compared(options: argparse.Namespace) -> dict[str, Any]:
    """The document of `tuner compare`, with its command."""
    words = ["compare", *options.workloads, "--device", "replay:h200", "--policies", options.policies]
    words += ["--plot", options.plot] if options.plot else []
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


if __name__ == "__main__":
    main()
