"""What knowledge of other problem sizes is worth: evaluations to 98 % of the optimum of a new size.

Every recorded size of a kernel is searched with the runs of its four nearest other sizes known, and without.
Known of each is what a search leaves behind, a random sample, or all that was recorded. "Seeded" searches
start from the analytical answer; the others show what knowledge alone does.

    python benchmarks/knowledge.py --out benchmarks/results/knowledge.json [--seeds 10]
"""

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance

from tuner.model import registry
from tuner.model.trial import Measurement
from tuner.recordings.files import open_recording
from tuner.recordings.values import RecordedSpace, search_of
from tuner.space.search_view import PriorRun, Search

KERNELS = ("fft-large", "fft", "scan-lf", "tridiag-wm")
GOAL = 0.98  # of the optimum
OTHERS = 4  # nearest sizes that are known
SAMPLE = 60  # configurations known of each, drawn at random, where not all are
BUDGET = 150  # evaluations; a search that does not get there counts as this


def main() -> None:
    """Search, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recording", default="h200")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--kernels", nargs="*", default=list(KERNELS))
    options = parser.parse_args()
    rows = list(measured(options))
    document = {
        "provenance": provenance(),
        "protocol": {
            "goal": GOAL,
            "others": OTHERS,
            "sample": SAMPLE,
            "budget": BUDGET,
            "seeds": options.seeds,
            "recording": options.recording,
        },
        "rows": rows,
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n")


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row per kernel, start and knowledge; printed as it comes."""
    recording = open_recording(options.recording)
    print(f"{'kernel':12s}{'start':>12s}{'known':>10s}{'evaluations':>13s}  of each size")
    for kernel in options.kernels:
        spaces = [
            recording.space(n) for n in recording.names if len(n) == 1 and n[0].startswith(f"{kernel}:")
        ]
        for seeded in (True, False):
            for known in ("nothing", "sample", "all"):
                row = row_of(kernel, spaces, options.seeds, seeded=seeded, known=known)
                start = "analytical" if seeded else "default"
                print(
                    f"{kernel:12s}{start:>12s}{known:>10s}{row['median']:13g}  {row['medians']}", flush=True
                )
                yield row


def row_of(
    kernel: str, spaces: Sequence[RecordedSpace], seeds: int, *, seeded: bool, known: str
) -> dict[str, Any]:
    """Evaluations to the goal of every size and seed."""
    needed = {
        space.names[0]: [
            evaluations(space, [s for s in spaces if s is not space], seed, seeded=seeded, known=known)
            for seed in range(seeds)
        ]
        for space in spaces
    }
    medians = {name: statistics.median(counts) for name, counts in needed.items()}
    return {
        "kernel": kernel,
        "seeded": seeded,
        "known": known,
        "evaluations": needed,
        "medians": list(medians.values()),
        "median": statistics.median(count for counts in needed.values() for count in counts),
    }


def evaluations(
    space: RecordedSpace, others: Sequence[RecordedSpace], seed: int, *, seeded: bool, known: str
) -> int:
    """Evaluations until the goal is reached."""
    search = search_of(space, cost, seed=seed, noise=noise)
    if not seeded:
        search = replace(search, limits=None)  # no limits, no analytical answer
    if known != "nothing":
        search = replace(search, prior_runs=tuple(knowledge(search, others, seed, known)))
    goal = min(map(cost, space.trials.values())) / GOAL
    generator = registry.load("policy", "bayesian")(search, patience=math.inf)
    batch, count = next(generator), 0
    while True:
        measurements = [space.look(trial) for trial in batch]
        for measurement in measurements:
            count += 1
            if count >= BUDGET or cost(measurement) <= goal:
                return count
        batch = generator.send(measurements)


def knowledge(search: Search, others: Sequence[RecordedSpace], seed: int, amount: str) -> Iterator[PriorRun]:
    """Runs of the nearest other sizes."""
    size = float(search.sizes[0]["N"])
    apart = {id(s): abs(math.log2(float(s.workloads[0].sizes["N"]) / size)) for s in others}
    for space in sorted(others, key=lambda s: apart[id(s)])[:OTHERS]:
        points = [(trial.configurations[0], cost(m)) for trial, m in space.trials.items()]
        if amount == "sample":
            draw = np.random.default_rng(seed)
            drawn = draw.choice(len(points), min(SAMPLE, len(points)), replace=False)
            points = [points[i] for i in drawn]
        yield PriorRun(0, space.workloads[0].sizes, space.identity.name, tuple(points))


def cost(measurement: Measurement) -> float:
    """Time of a round, in seconds."""
    return measurement.makespan_s if measurement.ok and measurement.makespan_s else math.inf


def noise(measurement: Measurement) -> float:
    """Relative standard uncertainty of that time."""
    return measurement.makespan_uncertainty_s / cost(measurement)


if __name__ == "__main__":
    main()
