"""What pruning by occupancy loses: exhaustive runs over unpruned spaces, one workload at a time.

For every workload and occupancy threshold, the best of the configurations that reach the threshold is held
against the best of all, in time and in energy. The catalogue's ``[occupancy] min`` is the highest threshold
that loses at most 2 % in every workload of a kernel.

    python benchmarks/pruning.py --out benchmarks/results/pruning-h200.json [--device cuda:0] [--window 0.5]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from provenance import provenance

WORKLOADS = [f"{kernel}:N={n}" for kernel in ("scan-lf", "tridiag-wm", "fft") for n in (64, 512, 4096)]
THRESHOLDS = [round(0.05 * step, 2) for step in range(17)]
ALLOWED_LOSS = 0.02


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--window", default="0.5")
    parser.add_argument("--workloads", nargs="*", default=WORKLOADS)
    options = parser.parse_args()
    rows = [losses(run(workload, options)) for workload in options.workloads]
    kernels = sorted({row["workload"].partition(":")[0] for row in rows})
    allowed = {kernel: highest([r for r in rows if r["workload"].startswith(kernel)]) for kernel in kernels}
    document = {
        "provenance": provenance(),
        "protocol": {"window_s": float(options.window), "allowed_loss": ALLOWED_LOSS},
        "highest_threshold": allowed,
        "rows": rows,
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    show(rows, allowed)


def run(workload: str, options: argparse.Namespace) -> dict[str, Any]:
    """One exhaustive run without pruning."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "run.json"
        words = [workload, "--policy", "exhaustive", "--min-occupancy", "0", "--objective", "energy"]
        subprocess.run(
            [
                *(sys.executable, "-c", "from tuner.cli.main import main; main()", "run", *words),
                *("--device", options.device, "--window", options.window),
                *("--database", Path(folder) / "tuner.db", "--json", result),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        document: dict[str, Any] = json.loads(result.read_text())
        return document


def losses(document: dict[str, Any]) -> dict[str, Any]:
    """The loss at every threshold, and the points it was made from."""
    workload = document["workloads"][0]
    occupancies = {key(c["configuration"]): c["occupancy"] for c in workload["candidates"]}
    points = [
        {
            "configuration": trial["configurations"][workload["name"]],
            "occupancy": round(occupancies[key(trial["configurations"][workload["name"]])], 4),
            "time_s": trial["time_s"],
            "energy_j": trial["energy_j"],
            "energy_j_uncertainty": trial["energy_j_uncertainty"],
        }
        for trial in document["trials"]
        if trial["status"] == "ok"
    ]
    row = {"workload": workload["name"], "batch": workload["batch"], "loss": {}, "points": points}
    for measure in ("time_s", "energy_j"):
        best = min(point[measure] for point in points)
        row["loss"][measure] = {
            str(threshold): min(reach) / best - 1
            for threshold in THRESHOLDS
            if (reach := [p[measure] for p in points if p["occupancy"] >= threshold])
        }
    return row


def key(configuration: dict[str, Any]) -> str:
    """A configuration as a dictionary key."""
    return json.dumps(configuration, sort_keys=True)


def highest(rows: list[dict[str, Any]]) -> float:
    """The highest threshold at which no row loses more than allowed, in time or energy."""
    good = [
        threshold
        for threshold in THRESHOLDS
        if all(row["loss"][m].get(str(threshold), 1.0) <= ALLOWED_LOSS for row in rows for m in row["loss"])
    ]
    return max(good)


def show(rows: list[dict[str, Any]], allowed: dict[str, float]) -> None:
    """The table: loss in time and energy at some thresholds."""
    shown = ("0.2", "0.3", "0.4", "0.5", "0.6", "0.8")
    print("loss against the unpruned space, time / energy, %")
    print(f"{'workload':22s}{'points':>7s}" + "".join(f"{'≥ ' + t:>14s}" for t in shown))
    for row in rows:
        cells = [
            " / ".join(
                f"{100 * row['loss'][m][t]:.1f}" if t in row["loss"][m] else "–"
                for m in ("time_s", "energy_j")
            )
            for t in shown
        ]
        print(f"{row['workload']:22s}{len(row['points']):7d}" + "".join(f"{cell:>14s}" for cell in cells))
    for kernel, threshold in allowed.items():
        print(f"{kernel}: highest threshold that loses at most {ALLOWED_LOSS:.0%}: {threshold}")


if __name__ == "__main__":
    main()
