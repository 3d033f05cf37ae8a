"""Greedy against exhaustive search on a simulated device: trials used and distance from the optimum.

Both search the same pruned space with the same noise; the distance is that of the true (noise-free) energies
of their answers, as the exhaustive run measured them.

    python benchmarks/greedy_simulated.py --out benchmarks/results/greedy-sim-k40c.json
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from provenance import provenance

DEVICE = "sim:k40c"
WORKLOADS = ("scan-lf:N=2048", "fft:N=256")
MIN_OCCUPANCY = "80%"  # the paper's: some thousand trials are left


def main() -> None:
    """Run both policies, print and write the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default=DEVICE)
    parser.add_argument("--workloads", nargs="*", default=WORKLOADS)
    parser.add_argument("--clocks", default="all")
    options = parser.parse_args()
    runs = {policy: tune(policy, options) for policy in ("greedy", "exhaustive")}
    every = {key(trial): trial for trial in runs["exhaustive"]["trials"]}
    greedy, optimum = (
        every[key(runs["greedy"]["best"])],
        min(every.values(), key=lambda trial: trial["energy_j"] if trial["status"] == "ok" else float("inf")),
    )
    row = {
        "device": options.device,
        "workloads": list(options.workloads),
        "space": runs["exhaustive"]["space"],
        "greedy_trials": runs["greedy"]["space"]["measured"],
        "share_of_trials": runs["greedy"]["space"]["measured"] / runs["exhaustive"]["space"]["measured"],
        "above_optimum": greedy["energy_j"] / optimum["energy_j"] - 1,
        "greedy": runs["greedy"]["best"],
        "optimum": optimum,
    }
    options.out.write_text(json.dumps({"provenance": provenance(), "rows": [row]}, indent=1) + "\n")
    print(
        f"{options.device} (modelled): greedy {row['greedy_trials']} of {len(every)} trials"
        f" ({row['share_of_trials']:.1%}), {row['above_optimum']:.2%} above the exhaustive optimum"
    )


def tune(policy: str, options: argparse.Namespace) -> dict[str, Any]:
    """One run of ``tuner run --objective energy``."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "run.json"
        subprocess.run(
            [
                *(sys.executable, "-c", "from tuner.cli.main import main; main()", "run", *options.workloads),
                *("--objective", "energy", "--joules", "--clocks", options.clocks),
                *("--device", options.device, "--min-occupancy", MIN_OCCUPANCY),
                *("--policy", policy, "--database", Path(folder) / "tuner.db", "--json", result),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        document: dict[str, Any] = json.loads(result.read_text())
        return document


def key(trial: dict[str, Any]) -> str:
    """A trial as a dictionary key."""
    return json.dumps([trial["configurations"], trial["clock_mhz"]], sort_keys=True)


if __name__ == "__main__":
    main()
