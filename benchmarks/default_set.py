"""The main job on a real GPU: the default set tuned for energy and for time, and the two answers compared.

After both runs, each answer is measured again, the two interleaved, so that the difference between them has
an interval of its own that owes nothing to drift.

    python benchmarks/default_set.py --out benchmarks/results/default-set-h200.json [--device cuda:0]
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from provenance import command_line, provenance, save

from tuner.kernel_files.catalog import Catalog
from tuner.model.plan import Configuration
from tuner.model.trial import Trial
from tuner.search.plan import resolve
from tuner.search.request import SearchRequest
from tuner.search.setup import open_setup

OBJECTIVES = ("energy", "time")
STUDENT_95 = {8: 2.365, 12: 2.201, 16: 2.131}  # two-sided, for that many repeats


def main() -> None:
    """Tune twice, compare, write the JSON."""
    parser = command_line(__doc__, must_save=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--repeats", type=int, choices=sorted(STUDENT_95), default=12)
    parser.add_argument("--workloads", nargs="*", default=[])
    parser.add_argument("--policy", default="greedy")
    parser.add_argument("--window", default="2.0")
    options = parser.parse_args()
    runs = {objective: tune(objective, options) for objective in OBJECTIVES}
    document = {
        "provenance": provenance(),
        "workloads": options.workloads or "the default set",
        "comparison": compare({name: run["best"] for name, run in runs.items()}, options),
        "runs": runs,
    }
    save(options.out, document)
    print(json.dumps(document["comparison"]["difference"], indent=1))


def tune(objective: str, options: argparse.Namespace) -> dict[str, Any]:
    """One run of ``tuner run``; its tables go to standard output."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "run.json"
        subprocess.run(
            [
                *(sys.executable, "-c", "from tuner.cli.main import main; main()", "run", *options.workloads),
                *("--objective", objective, "--device", options.device),
                *("--policy", options.policy, "--window", options.window),
                *("--database", Path(folder) / "tuner.db", "--json", result),
            ],
            check=True,
        )
        document: dict[str, Any] = json.loads(result.read_text())
        for workload in document["workloads"]:
            del workload["candidates"]
        # ru_maxrss is that of the largest process so far, the worker with its CUDA context included
        document["largest_process_rss_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        return document


def compare(answers: dict[str, dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """Measure the answers again, interleaved, and state the differences with 95 % intervals."""
    request = SearchRequest(options.workloads, objective="energy", window_s=float(options.window))
    catalog = Catalog.load()
    repeats: dict[str, list[tuple[float, float]]] = {name: [] for name in answers}
    with open_setup(options.device, request) as setup:
        pairs, _ = resolve(catalog, request.workloads, setup.device)
        for _ in range(options.repeats):
            for name, answer in answers.items():
                configurations = [Configuration(answer["configurations"][str(w)]) for _, w in pairs]
                plans = [k.plan(w, c) for (k, w), c in zip(pairs, configurations, strict=True)]
                measured = setup.measurer.measure(Trial(tuple(configurations)), plans)
                if measured.makespan_s is None or measured.energy is None:
                    raise SystemExit(f"the {name} answer failed when measured again: {measured}")
                repeats[name].append((measured.makespan_s, measured.energy.joules))
    differences = {
        quantity: relative([e[i] for e in repeats["energy"]], [t[i] for t in repeats["time"]])
        for i, quantity in enumerate(("time_s", "energy_j"))
    }
    return {
        "protocol": f"{options.repeats} repeats of each answer in turn, windows of {request.window_s} s",
        "repeats": {name: [list(pair) for pair in pairs_] for name, pairs_ in repeats.items()},
        "difference": {
            f"{q} of the energy answer against the time answer": d for q, d in differences.items()
        },
    }


def relative(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Mean relative difference of pairs, with half its 95 % interval."""
    ratios = [a / b - 1 for a, b in zip(ours, theirs, strict=True)]
    half = STUDENT_95[len(ratios)] * statistics.stdev(ratios) / len(ratios) ** 0.5
    return {"mean": statistics.fmean(ratios), "half_interval_95": half}


if __name__ == "__main__":
    main()
