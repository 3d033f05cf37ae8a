"""Checks the scores of benchmarks/search.py by a replay loop of its own.

It reads times from the NumPy archive itself and counts configurations itself; it shares with the benchmark
only the policy and what that is told. Scores of the JSON are those of the replay, or it ends with 1.

    python benchmarks/search_replay.py benchmarks/results/search-public.json convolution_A4000.npz bayesian
"""

import argparse
import contextlib
import inspect
import json
import math
import statistics
import sys
from pathlib import Path

import numpy as np

from tuner.model import registry
from tuner.model.objective import Objective
from tuner.recordings.files import open_recording
from tuner.recordings.values import search_of

TOLERANCE = 1e-4  # of an efficiency: the JSON holds four decimals


def replayed(path: Path, policy: str, seed: int, budget: int) -> list[float]:
    """Optimum / best found after every evaluation, until the budget or the policy ends."""
    archive = np.load(path, allow_pickle=False)
    meta = json.loads(str(archive["meta"]))
    times_ms = {
        tuple(values[i] for values, i in zip(meta["values"], row, strict=True)): time_ms
        if ok == 0
        else math.inf
        for row, time_ms, ok in zip(archive["idx"], archive["time_ms"], archive["status"], strict=True)
    }
    recording, objective = open_recording(path), Objective("time")
    space = recording.space(recording.names[0])
    search = search_of(space, objective.cost, seed=seed, noise=objective.relative_uncertainty)
    chosen = registry.load("policy", policy)
    endless = {"patience": math.inf} if "patience" in inspect.signature(chosen).parameters else {}
    generator = chosen(search, **endless)
    seen: dict[tuple[object, ...], float] = {}
    with contextlib.suppress(StopIteration):  # the policy ended by itself
        asked = next(generator)
        while len(seen) < min(budget, len(times_ms)):
            for trial in asked:
                values = tuple(trial.configurations[0][name] for name in meta["names"])
                seen.setdefault(values, times_ms[values])
            asked = generator.send([space.look(trial) for trial in asked])
    lowest = np.minimum.accumulate(list(seen.values())[:budget])
    return [float(one) for one in np.nanmin(list(times_ms.values())) / lowest]


def main() -> int:
    """Replay the seeds of a row, and print the largest difference of their medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("result", type=Path, help="of benchmarks/search.py")
    parser.add_argument("space", type=Path, help="the archive that it was played on")
    parser.add_argument("policy")
    options = parser.parse_args()
    document, path, policy = json.loads(options.result.read_text()), options.space, options.policy
    name = path.stem.replace("_", " ")
    (row,) = (r for r in document["rows"] if (r["space"], r["search"], r["ours"]) == (name, policy, True))
    curves = [replayed(path, policy, seed, max(row["budgets"])) for seed in range(row["seeds"])]
    worst = 0.0
    for n, stored in zip(row["budgets"], row["efficiency"], strict=True):
        median = statistics.median(curve[min(n, len(curve)) - 1] for curve in curves)
        worst = max(worst, abs(median - stored))
    print(f"{name}, {policy}: largest difference of an efficiency {worst:.2g}")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
