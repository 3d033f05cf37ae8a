"""What the Bayesian search itself takes per evaluation, at many candidates, on one core.

A made-up space: tunables like those of the catalogue, a smooth cost, a tenth of the configurations failing.
Timed is what passes between being sent a measurement and yielding the next trial: of a search that also tells
which trials are likely to come next, to be compiled ahead, and of one that nobody hears. Searches that are
timed at once slow each other down by what they share of a processor's memory and caches.

    python benchmarks/search_time.py --out benchmarks/results/search-time.json
"""

import argparse
import json
import math
import multiprocessing
import os
import statistics
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from provenance import provenance
from search import SETTINGS

from tuner.model import registry
from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.space.search_view import Candidate, Search

CANDIDATES = (1_000, 10_000)
EVALUATIONS = (20, 50, 100, 200)
TUNABLES: dict[str, tuple[bool | int | str, ...]] = {
    "P": (1, 2, 4, 8, 16, 32),
    "L": (32, 64, 96, 128, 192, 256, 512, 1024),
    "S": (0, 1, 2, 3, 4),
    "shuffle": (False, True),
    "form": ("tree", "chain", "ring"),
    "r": (2, 4, 8),
    "blocks": (1, 2, 4, 8, 16),
}


def main() -> None:
    """Time the search, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="processes (%(default)s)")
    options = parser.parse_args()
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs must be above zero")
    os.environ.update(SETTINGS)  # read by the children when they start
    searches = list(product(CANDIDATES, (False, True), range(options.seeds)))
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        times = dict(zip(searches, pool.starmap(timed, searches, chunksize=1), strict=True))
    rows = [
        row(count, announces, [times[count, announces, seed] for seed in range(options.seeds)])
        for count, announces in product(CANDIDATES, (False, True))
    ]
    options.out.write_text(json.dumps({"provenance": provenance(), "rows": rows}, indent=1) + "\n")
    heads = f"{'candidates':>10s}{'announces':>11s}{'evaluations':>13s}"
    print(f"{heads}{'median ms':>11s}{'mean ms':>9s}{'longest ms':>12s}")
    for one in rows:
        for until, found in one["until"].items():
            print(
                f"{one['candidates']:10d}{'yes' if one['announces'] else 'no':>11s}{until:>13s}"
                f"{found['median_ms']:11.1f}{found['mean_ms']:9.1f}{found['longest_ms']:12.1f}"
            )


def row(candidates: int, announces: bool, times: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Times per evaluation over the first evaluations, in milliseconds of processor time.

    Args:
        candidates: of the space.
        announces: the searches tell what is likely to come next.
        times: of every search, in seconds.
    """
    until = {}
    for count in EVALUATIONS:
        some = [1e3 * one for run in times for one in run[:count]]
        until[str(count)] = {
            "median_ms": round(statistics.median(some), 2),
            "mean_ms": round(statistics.mean(some), 2),
            "longest_ms": round(max(some), 2),
        }
    return {"candidates": candidates, "announces": announces, "seeds": len(times), "until": until}


def timed(candidates: int, announces: bool, seed: int) -> list[float]:
    """Seconds of processor time before each trial after the start design."""
    every = [Configuration(zip(TUNABLES, values, strict=True)) for values in product(*TUNABLES.values())]
    stride = len(every) / candidates
    chosen = [every[int(i * stride)] for i in range(candidates)]
    search = Search(
        workloads=("made-up",),
        candidates=(tuple(Candidate(c, 1.0, 128, 1, 4) for c in chosen),),
        defaults=(chosen[0],),
        clocks_mhz=(),
        cost=lambda m: m.makespan_s if m.ok and m.makespan_s else math.inf,
        seed=seed,
    )
    if announces:
        search = replace(search, expect=deque(maxlen=1).append)
    generator = registry.load("policy", "bayesian")(search, patience=math.inf)
    batch, times = next(generator), []
    while len(times) < max(EVALUATIONS):
        measurements = [measure(trial) for trial in batch]
        before_s = time.process_time()
        batch = generator.send(measurements)
        times.append(time.process_time() - before_s)
    return times


def measure(trial: Trial) -> Measurement:
    """A valley; the largest blocks fail unless they are alone, a tenth of all configurations."""
    c = trial.configurations[0]
    values = [list(TUNABLES[name]).index(c[name]) / len(TUNABLES[name]) for name in TUNABLES]
    if c["L"] == max(TUNABLES["L"]) and c["blocks"] != 1:  # type: ignore[type-var] # numbers
        return Measurement((WorkloadResult(Status.LAUNCH_ERROR),))
    cost_s = 1e-3 * math.exp(
        sum(abs(value - 0.4) for value in values) + 0.3 * math.sin(9 * values[0] * values[1])
    )
    return Measurement((WorkloadResult(Status.OK, cost_s),), cost_s)


if __name__ == "__main__":
    main()
