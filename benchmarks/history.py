"""How long ``tuner best`` looks for its answer in a history of 100,000 trials.

python benchmarks/history.py --out benchmarks/results/history.json
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from provenance import provenance

from tuner.database.best_known import DatabaseSource
from tuner.database.ranking import AnswerQuery, served_answer
from tuner.database.runs import Store
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Configuration, Workload
from tuner.model.records import Conditions, RunStatus
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult

RUNS, TRIALS = 1000, 100
LOOKS = 200
DEVICE = DeviceIdentity("cuda:0", "GPU", "GPU-1", "580", "13.0", modelled=False)
MEASUREMENT = Measurement(
    (WorkloadResult(Status.OK, 1e-3),), 1e-3, energy=Energy(0.5, 0.001, 500.0, "nvml-energy-counter", "gpu")
)


def conditions(number: int) -> Conditions:
    """Runs of 50 different workloads, a few of them for each."""
    name = f"scan-lf:N={number % 50}"
    return Conditions(((name, 1),), {"scan-lf": "hash"}, DEVICE, "energy", "greedy", number, "off", {})


def main() -> None:
    """Fill a database, look, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "tuner.db") as store:
        fill(store)
        times_s = [look(store, number) for number in range(LOOKS)]
        size = store.path.stat().st_size
    row = {
        "trials": RUNS * TRIALS,
        "database_bytes": size,
        "median_s": statistics.median(times_s),
        "p99_s": statistics.quantiles(times_s, n=100)[98],
        "max_s": max(times_s),
    }
    options.out.write_text(json.dumps({"provenance": provenance(), "rows": [row]}, indent=1) + "\n")
    print(
        f"best of {row['trials']:,} trials: median {1e3 * row['median_s']:.2f} ms,"
        f" 99 % {1e3 * row['p99_s']:.2f} ms, worst {1e3 * row['max_s']:.2f} ms"
    )


def fill(store: Store) -> None:
    """100,000 trials in 1000 runs, each with an answer."""
    for number in range(RUNS):
        bound = conditions(number)
        run = store.begin(bound)
        for count in range(TRIALS):
            trial = Trial((Configuration({"P": count, "L": 64}),))
            store.add(run, count, trial, MEASUREMENT, bound.names)
        store.end(run, RunStatus.FINISHED, {"best": {"configurations": {bound.names[0]: {"P": number}}}})


def look(store: Store, number: int) -> float:
    """Seconds of one look-up, from question to answer."""
    bound = conditions(number)
    begun = time.perf_counter()
    workload = Workload("scan-lf", (("N", number % 50),), 1)
    query = AnswerQuery((workload,), {}, {"scan-lf": "hash"}, "energy", DEVICE)
    answer = served_answer(query, DatabaseSource(store).of_set(bound.names))
    elapsed_s = time.perf_counter() - begun
    if answer is None or answer.stale:
        raise SystemExit(f"no fresh answer for {bound.names}")
    return elapsed_s


if __name__ == "__main__":
    main()
