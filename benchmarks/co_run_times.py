"""How well a co-run's makespan and its workloads' own times repeat, from process to process.

The default configurations of the default set run together, in a fresh worker every time: streams, memory and
graphs are new. Short windows are held against the long ones: how far off they are, and how far off they say.

    python benchmarks/co_run_times.py --out benchmarks/results/co-run-times-h200.json [--device cuda:0]
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from provenance import provenance

from tuner.devices.base import Device, RunRecord
from tuner.devices.choice import open_device
from tuner.kernel_files.catalog import Catalog
from tuner.model.plan import Plan
from tuner.model.trial import Status
from tuner.search.plan import resolve

SHORT_S = (0.003, 0.012)
SHORT_WINDOWS = 12
PAUSE_S = 1.0  # in which the GPU cools down: at its power limit it would lower its clock within a window
FRESH = 6


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--window", type=float, default=0.3)
    parser.add_argument("--workloads", nargs="*", default=[])
    options = parser.parse_args()
    runs, names = [], []
    short: dict[str, list[dict[str, float]]] = {}
    fresh: dict[str, list[float]] = {}
    for process in range(options.processes):
        device, _ = open_device(options.device)
        plans = default_plans(options.workloads, device)
        names = [str(plan.workload) for plan in plans]
        device.resources(plans)
        device.run(plans, options.window)
        for _ in range(options.windows):
            device.sleep(PAUSE_S)
            runs.append(times(device.run(plans, options.window)))
            told = "  ".join(f"{1e6 * t:8.1f} ± {1e6 * s:6.1f}" for t, s in runs[-1]["own"])
            print(f"process {process}: {1e6 * runs[-1]['makespan_s']:8.2f} us: {told}", flush=True)
        if process == options.processes - 1:
            for chosen in (plans, plans[:1]):
                for window_s in SHORT_S:
                    key = f"{len(chosen)} workloads, {1e3 * window_s:g} ms"
                    short[key] = short_windows(device, chosen, window_s, options.window)
            for count in (1, len(plans)):
                fresh[f"{count} workloads"] = fresh_windows(device, options.workloads, count)
        device.close()
    result = {"provenance": provenance(), "workloads": names, "runs": runs, "summary": summary(runs)}
    result |= {"short_windows": short, "outside_of_fresh_short_windows_s": fresh}
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["summary"], indent=1))


def default_plans(specs: Sequence[str], device: Device) -> list[Plan]:
    """The default configuration of each workload."""
    pairs, _ = resolve(Catalog.load(), specs, device)
    return [kernel.plan(workload, kernel.default(workload)) for kernel, workload in pairs]


def times(record: RunRecord) -> dict[str, Any]:
    """Makespan and own times of a window."""
    if record.makespan_s is None:
        raise SystemExit(f"a window failed: {record.results}")
    return {
        "makespan_s": record.makespan_s,
        "makespan_uncertainty_s": record.makespan_uncertainty_s,
        "own": [(result.time_s, result.spread_s) for result in record.results],
        "flags": [str(flag) for flag in record.flags],
    }


def short_windows(
    device: Device, plans: Sequence[Plan], window_s: float, long_s: float
) -> list[dict[str, float]]:
    """Short windows in turn with long ones: how far off, how far off they say they are, what they cost."""
    found = []
    for _ in range(SHORT_WINDOWS):
        whole = device.run(plans, long_s).makespan_s or 0.0
        begun = time.monotonic()
        record = device.run(plans, window_s)
        wall_s = time.monotonic() - begun
        begun = time.monotonic()
        device.run(plans, window_s)
        again_s = time.monotonic() - begun
        found.append(
            {
                "against_long": (record.makespan_s or 0.0) / whole - 1.0,
                "stated": record.makespan_uncertainty_s / whole,
                "rounds": record.rounds,
                "window_s": record.end_s - record.start_s,
                "outside_s": wall_s - (record.end_s - record.start_s),
                "again_s": again_s,
            }
        )
    middle = {key: statistics.median(one[key] for one in found) for key in found[0]}
    scatter = statistics.stdev(one["against_long"] for one in found)
    print(
        f"{len(plans)} workloads, {1e3 * window_s:g} ms: scatter {scatter:.3%}, medians {middle}", flush=True
    )
    return found


def fresh_windows(device: Device, specs: Sequence[str], count: int) -> list[float]:
    """Seconds beside the short window of configurations that were checked and never measured."""
    pairs, _ = resolve(Catalog.load(), specs, device)
    plans = [
        [kernel.plan(workload, one) for one in itertools.islice(kernel.space(workload), 7, 7 + FRESH)]
        for kernel, workload in pairs[:count]
    ]
    outside = []
    device.resources([plan for same in plans for plan in same])
    for chosen in zip(*plans, strict=True):
        if any(device.check(plan, 1).status is not Status.OK for plan in chosen):
            continue
        begun = time.monotonic()
        record = device.run(chosen, SHORT_S[0])
        outside.append(time.monotonic() - begun - (record.end_s - record.start_s))
    print(
        f"{count} workloads, outside of fresh windows: {[round(1e3 * s, 1) for s in outside]} ms", flush=True
    )
    return outside


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Median and range over the runs, in relative terms; at its power limit a GPU changes its clock."""
    series = {"makespan": [run["makespan_s"] for run in runs]}
    for place in range(len(runs[0]["own"])):
        series[f"workload {place + 1}"] = [run["own"][place][0] for run in runs]
        series[f"workload {place + 1} by makespan"] = [
            run["own"][place][0] / run["makespan_s"] for run in runs
        ]
    return {
        name: {
            "median": statistics.median(values),
            "lowest": min(values) / statistics.median(values) - 1.0,
            "highest": max(values) / statistics.median(values) - 1.0,
        }
        for name, values in series.items()
    }


if __name__ == "__main__":
    main()
