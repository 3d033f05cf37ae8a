"""What it costs to verify an answer on a further GPU of the kind, against a search there.

For every workload: a search on GPU A; then, on GPU B with A's run in the database, a search, which knows A's
trials, and a verification, each with an empty cache of compiled kernels. Seconds are those of the run, and
those in which the GPU worked; joules are all that the sensor saw. Then both answers take turns on B, so that
their costs are compared free of drift.

    python benchmarks/verification.py --device cuda:0 --device cuda:1 \
        --out benchmarks/results/verification-h100.json
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from provenance import provenance, save

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.objective import Objective
from tuner.model.plan import Configuration
from tuner.model.trial import Trial
from tuner.search.plan import plan_search
from tuner.search.request import SearchRequest
from tuner.search.session import Session
from tuner.search.setup import open_setup
from tuner.search.verification import VerifiableAnswer

_ANSWER = ("configurations", "clock_mhz", "time_s", "energy_j")
WORKLOADS = ("scan-lf:N=1024", "fft:N=1024", "tridiag-wm:N=512")


class Silent:
    """Hears nothing."""

    def compiled(self, done: int, total: int) -> None:
        """See ``SearchListener``."""

    def measured(self, event: object) -> None:
        """See ``SearchListener``."""

    def told(self, sentence: str) -> None:
        """See ``SearchListener``."""


def tuned(folder: Path, database: Path, workload: str, device: str, *words: str) -> dict[str, Any]:
    """The document of a run in a process of its own, with an empty cache of compiled kernels."""
    out = folder / "run.json"
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        subprocess.run(
            [
                *(sys.executable, "-m", "tuner", "run", workload, "--device", device),
                *("--database", str(database), "--json", str(out), *words),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "XDG_CACHE_HOME": cache},
        )
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def cost_of(document: dict[str, Any]) -> dict[str, Any]:
    """Seconds and joules of a run, and its answer."""
    wall = document["wall"]
    return {
        "policy": document["policy"],
        "trials": document["space"]["measured"],
        "wall_s": document["wall_s"],
        "gpu_s": wall["windows_s"] + wall["checks_s"],
        "energy_j": document["tuning_energy_j"],
        "energy_j_uncertainty": document["tuning_energy_j_uncertainty"],
        "answer": {key: document["best"][key] for key in _ANSWER},
        "verification": document.get("verification"),
    }


def trial_of(document: dict[str, Any]) -> Trial:
    """The answer of a run."""
    best = document["best"]
    configurations = tuple(Configuration(values) for values in best["configurations"].values())
    return Trial(configurations, best["clock_mhz"], best.get("power_limit_w"))


def contest(folder: Path, device: str, request: SearchRequest, answers: Sequence[Trial]) -> dict[str, Any]:
    """Cost of the second of two answers by that of the first, turn by turn on a device."""
    first, second = answers
    if first == second:
        return {"same": True, "ratio": 1.0, "interval": 0.0}
    named = VerifiableAnswer(0, "", first, (second,))
    with Store(folder / "contest.db") as store, open_setup(device, request) as setup:
        plan = plan_search(request, Catalog.load(), setup)
        plan = plan.following("contest", {}, named.trials, (first, second))
        outcome = Session(plan, setup, store, Silent()).run()
    ratio = outcome.paired.ratio(second, first, Objective(request.objective))
    if ratio is None:
        raise SystemExit("one of the answers does not run on the second GPU")
    return {"same": False, "ratio": ratio.value, "interval": ratio.interval}


def compared(
    folder: Path, workload: str, devices: Sequence[str], options: argparse.Namespace
) -> dict[str, Any]:
    """Both ways for one workload."""
    first, second = devices
    words = ["--objective", options.objective, "--policy", options.policy]
    if options.window is not None:
        words += ["--window", f"{options.window:g}"]
    known = folder / "known.db"
    there = tuned(folder, known, workload, first, *words)
    again = folder / "again.db"
    for ending in ("", ".mirror"):
        shutil.copy(f"{known}{ending}", f"{again}{ending}")
    searched = tuned(folder, again, workload, second, *words)
    verified = tuned(folder, known, workload, second, *words, "--verify")
    if verified["policy"] != "verify":
        raise SystemExit(f"{first} and {second} are not two GPUs of a kind: there is nothing to verify")
    request = SearchRequest(
        workloads=(workload,),
        objective=options.objective,
        joules=options.objective == "time",
        window_s=options.window,
    )
    turns = contest(folder, second, request, (trial_of(searched), trial_of(verified)))
    costs = {"search_there": cost_of(there), "search": cost_of(searched), "verify": cost_of(verified)}
    factors = {
        name: costs["search"][name] / costs["verify"][name]
        for name in ("wall_s", "gpu_s", "energy_j")
        if costs["search"][name] and costs["verify"][name]
    }
    return {
        "workload": workload,
        "modelled": searched["modelled"],
        **costs,
        "times_less": factors,
        "verified_by_searched": turns,
    }


def told(row: dict[str, Any]) -> str:
    """A row in a sentence."""
    less, turns = row["times_less"], row["verified_by_searched"]
    marked = " (modelled)" if row["modelled"] else ""
    parts = [f"{less[name]:.1f} x fewer {unit}" for name, unit in _UNITS.items() if name in less]
    apart = f"{100 * (turns['ratio'] - 1):+.2f} ± {100 * turns['interval']:.2f} %"
    same = "the same answer" if turns["same"] else f"its answer costs {apart} against that of the search"
    return f"{row['workload']}: {', '.join(parts)}; {same}{marked}"


_UNITS = {"energy_j": "joules", "gpu_s": "seconds of the GPU", "wall_s": "seconds in all"}


def main() -> None:
    """Compare, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--device", action="append", help="two of a kind: the first is known, then the second"
    )
    parser.add_argument("--workload", action="append")
    parser.add_argument("--objective", default="energy")
    parser.add_argument("--policy", default="auto")
    parser.add_argument(
        "--window", type=float, help="seconds of every window; the search's own choice if left out"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    devices = options.device or ["cuda:0", "cuda:1"]
    if len(devices) != 2 or devices[0] == devices[1]:
        parser.error(f"--device {' --device '.join(devices)}: name two different GPUs of a kind")
    rows = []
    for workload in options.workload or WORKLOADS:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(compared(Path(folder), workload, devices, options))
        print(told(rows[-1]))
    if options.out is not None:
        settings = {"devices": devices, "objective": options.objective, "policy": options.policy}
        settings["window_s"] = options.window
        whole = {"provenance": provenance(), "settings": settings, "rows": rows}
        save(options.out, whole)


if __name__ == "__main__":
    main()
