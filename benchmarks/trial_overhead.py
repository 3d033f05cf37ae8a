"""What a trial costs beside its window: the start of the worker, answer checks, and the rest of a run.

Configurations are compiled before, so that compiling is no part of the figures. Caches are as found: for cold
ones set XDG_CACHE_HOME and CUPY_CACHE_DIR to empty folders.

    python benchmarks/trial_overhead.py --out benchmarks/results/trial-overhead-h100.json [--device cuda:0]
"""

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

from provenance import provenance

from tuner.devices.base import RunRecord
from tuner.devices.worker import WorkerDevice
from tuner.kernel_files.catalog import Catalog
from tuner.model.plan import Plan
from tuner.model.trial import Status

WORKLOADS = ("scan-lf:N=1024", "fft:N=1024", "tridiag-wm:N=1024", "fft-large:N=65536")
CONFIGURATIONS = 12
WINDOWS_S = (0.003, 0.05)
SEED = 1


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--workloads", nargs="*", default=WORKLOADS)
    options = parser.parse_args()
    begun = time.perf_counter()
    worker = WorkerDevice(options.device)
    start_s = time.perf_counter() - begun
    started_bytes = memory_bytes(worker)
    rows = []
    try:
        for workload in options.workloads:
            rows.append(measured(worker, workload))
            show(rows[-1])
        document = {
            "provenance": provenance(),
            "worker": {"start_s": start_s, "pss_bytes": started_bytes, "pss_end_bytes": memory_bytes(worker)},
            "rows": rows,
        }
    finally:
        worker.close()
    print(f"worker started in {start_s:.2f} s; PSS {started_bytes / 2**20:.0f} MiB,", end=" ")
    print(f"{document['worker']['pss_end_bytes'] / 2**20:.0f} MiB at the end")
    options.out.write_text(json.dumps(document, indent=1) + "\n")


def measured(worker: WorkerDevice, spec: str) -> dict[str, Any]:
    """Checks of random configurations of a workload, the default first, and runs of the right ones."""
    catalog = Catalog.load()
    workload = catalog.workload(spec)
    kernel = catalog.kernel(workload.kernel)
    space = kernel.space(workload)
    drawn = random.Random(SEED).sample(range(len(space)), min(CONFIGURATIONS, len(space)))  # noqa: S311 - a sample
    plans = [kernel.plan(workload, c) for c in [kernel.default(workload), *(space[i] for i in drawn)]]
    begun = time.perf_counter()
    worker.resources(plans)
    compile_s = time.perf_counter() - begun
    checks_s, statuses, good = [], [], []
    for plan in plans:
        begun = time.perf_counter()
        check = worker.check(plan, SEED)
        checks_s.append(time.perf_counter() - begun)
        statuses.append(check.status.value)
        if check.status is Status.OK:
            good.append(plan)
    return {
        "workload": str(workload),
        "batch": workload.batch,
        "compile_s": compile_s,
        "first_check_s": checks_s[0],
        "later_checks_s": checks_s[1:],
        "statuses": statuses,
        "outside_windows_s": {str(window_s): outside(worker, good, window_s) for window_s in WINDOWS_S},
    }


def outside(worker: WorkerDevice, plans: list[Plan], window_s: float) -> list[float]:
    """For each plan, what a run takes beyond the window that was measured."""
    beyond_s = []
    for plan in plans:
        begun = time.perf_counter()
        record: RunRecord = worker.run([plan], window_s)
        beyond_s.append(time.perf_counter() - begun - (record.end_s - record.start_s))
    return beyond_s


def memory_bytes(worker: WorkerDevice) -> int:
    """Proportional set size of the worker process."""
    for line in Path(f"/proc/{worker.pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def show(row: dict[str, Any]) -> None:
    """One line of the table."""
    later_ms = [1e3 * value for value in row["later_checks_s"]]
    print(
        f"{row['workload']}: first check {1e3 * row['first_check_s']:.1f} ms, later ones median"
        f" {statistics.median(later_ms):.1f} ms, most {max(later_ms):.1f} ms; outside of windows"
        + ",".join(
            f" {1e3 * statistics.median(values):.1f} ms of {window} s"
            for window, values in row["outside_windows_s"].items()
            if values
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
