"""Seconds of whole energy runs by one checkout and another, in turn: walls, windows, and what they found.

Each checkout has its own `.venv`; caches of compiled kernels are warm from a first run for time of each,
byte code is kept. Of each work the median wall, the seconds of windows and of the rest, the joules of the
answer with their ±, and the saving against the default.

    git worktree add ../before 32c38f76 && make -C ../before .venv/.run-ready
    python benchmarks/energy_walls.py ../before . --runs 3 --out benchmarks/results/energy-walls-h100.json
    python benchmarks/energy_walls.py ../before . --device sim:h200     # windows are modelled
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from provenance import provenance, save

WORKS = {"the default set": (), "softmax": ("{users}/softmax.toml:N=16384,C=2048",)}
USERS = Path(__file__).parent / "users"  # kernels of users


def main() -> None:
    """Run all in turn, print a table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--users", type=Path, default=USERS, help="folder of softmax.toml")
    parser.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for work in options.only:
        command = [word.format(users=options.users.resolve()) for word in WORKS[work]]
        found: dict[Path, list[dict[str, Any]]] = {checkout: [] for checkout in options.checkouts}
        for checkout in found:
            timed(checkout, command, options.device, "time")
        for _ in range(options.runs):
            for checkout, runs in found.items():
                runs.append(timed(checkout, command, options.device, "energy"))
        rows += [summary(work, checkout.resolve().name, runs) for checkout, runs in found.items()]
    print("| work | checkout | wall | windows | rest | joules | against the default |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(
            f"| {row['work']} | {row['checkout']} | {row['wall_s']:.1f} s | {row['windows_s']:.1f} s"
            f" | {row['rest_s']:.1f} s | {row['energy_j']:.4g} ± {row['interval_j']:.2g} J"
            f" | {-row['saving']:+.1%} ± {row['saving_interval']:.1%} |"
        )
    save(options.out, {"provenance": provenance(), "device": options.device, "rows": rows})


def timed(checkout: Path, words: list[str], device: str, objective: str) -> dict[str, Any]:
    """One run as a whole process; of one for time only its wall."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "run.json"
        command = ["run", *words, "--objective", objective, "--device", device]
        files = ["--database", f"{folder}/tuner.db", "--json", str(result)]
        begun_s = time.monotonic()
        subprocess.run(
            [str(checkout.absolute() / ".venv/bin/tuner"), *command, *files],
            check=True,
            env=kept,
            stdout=subprocess.DEVNULL,
        )
        wall_s = time.monotonic() - begun_s
        document = json.loads(result.read_text())
    if objective == "time":
        return {"wall_s": wall_s}
    return {"wall_s": wall_s, "modelled": document["modelled"], **document["wall"], **told(document)}


def told(document: dict[str, Any]) -> dict[str, Any]:
    """Joules of the answer and its saving, each with half of its 95 % interval."""
    best, against = document["best"], document["against_default"]
    return {
        "trials": document["space"]["measured"],
        "energy_j": best["energy_j"],
        "interval_j": 1.96 * best["energy_j_uncertainty"],
        "saving": against["energy_saving"],
        "saving_interval": against["energy_saving_interval"],
    }


def summary(work: str, checkout: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The run of median wall, with all walls."""
    middle = sorted(runs, key=lambda run: float(run["wall_s"]))[(len(runs) - 1) // 2]
    walls = [run["wall_s"] for run in runs]
    rest_s = statistics.median(walls) - middle["windows_s"]
    return {"work": work, "checkout": checkout, **middle, "rest_s": rest_s, "walls_s": walls}


if __name__ == "__main__":
    main()
