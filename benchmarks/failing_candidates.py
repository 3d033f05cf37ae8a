"""How many failing configurations `bayesian` asks for where about a third of a recorded space fails.

Failures are laid over recorded spaces whose times stay: configurations fail by the largest values of one
tunable (the one of most values), or by the largest products of three (as shared memory or registers do). The
goal is the best that works.

    python benchmarks/failing_candidates.py FILES... --jobs 2 --out benchmarks/results/failing-candidates.json
"""

import argparse
import json
import math
import multiprocessing
import os
import statistics
import sys
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance
from search import SETTINGS
from search_games import OBJECTIVE, Game, games_of, noise

from tuner.model import registry
from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.recordings.values import search_of
from tuner.studies.comparison import play

TUNABLES = {"one tunable": 1, "product of three": 3}
SHARE = 1 / 3  # of a space that fails at least; ties fail together
BEGUN = 20  # evaluations after which failures could be known
BUDGET = 80
FAILED = Measurement((WorkloadResult(Status.LAUNCH_ERROR),))


def failing(game: Game, count: int) -> set[Trial]:
    """The trials that fail, by the product of so many tunables: numbers, those of most values."""
    trials = list(game.space.trials)
    chosen = [trial.configurations[0] for trial in trials]
    values = {name: {one.get(name) for one in chosen} for name in game.tunables}
    numbers = [
        n for n, found in values.items() if len(found) > 1 and all(type(v) in (int, float) for v in found)
    ]
    by = sorted(numbers, key=lambda name: -len(values[name]))[:count]
    sizes = np.array([size(one, by) for one in chosen])
    limit = np.quantile(sizes, 1 - SHARE)
    return {trial for trial, found in zip(trials, sizes, strict=True) if found >= limit}


def size(configuration: Configuration, names: list[str]) -> float:
    """Logarithm of the product of some tunables, each one larger so that 0 is a number like others."""
    return math.fsum(math.log(1 + float(configuration[name])) for name in names)


games = lru_cache(games_of)


def row(job: tuple[str, int, str], seeds: int) -> dict[str, Any]:
    """Searches of a space: shares of failures, and how good the best is that works.

    Args:
        job: a file or folder, the place of a space in it, and what configurations fail by.
        seeds: searches.
    """
    where, place, by = job
    game = games(where)[place]
    bad = failing(game, TUNABLES[by])
    optimum_s = min(OBJECTIVE.cost(found) for trial, found in game.space.trials.items() if trial not in bad)
    early, late, efficiencies = [], [], []
    for seed in range(seeds):
        search = search_of(game.space, OBJECTIVE.cost, seed=seed, noise=noise)
        policy = partial(registry.load("policy", "bayesian"), patience=math.inf)
        asked = play(policy, search, lambda trial: FAILED if trial in bad else game.space.look(trial), BUDGET)
        costs = [OBJECTIVE.cost(found) for _, found in asked]
        early.append(100 * statistics.fmean(map(math.isinf, costs[:BEGUN])))
        late.append(100 * statistics.fmean(map(math.isinf, costs[BEGUN:])))
        efficiencies.append(100 * optimum_s / min(costs))
    return {
        "space": game.name,
        "configurations": len(game.space.trials),
        "by": by,
        "failing_percent": round(100 * len(bad) / len(game.space.trials), 1),
        "seeds": seeds,
        f"failed_percent_to_{BEGUN}": round(statistics.fmean(early), 1),
        f"failed_percent_from_{BEGUN + 1}_to_{BUDGET}": round(statistics.fmean(late), 1),
        "efficiency_mean": round(statistics.fmean(efficiencies), 2),
        "efficiency_worst": round(min(efficiencies), 2),
    }


def main() -> None:
    """Play, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("spaces", nargs="+", help="folders and files of recorded spaces")
    parser.add_argument("--seeds", type=int, default=7, help="searches per row (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="JSON to write")
    options = parser.parse_args()
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs must be above zero")
    places = [(where, place) for where in options.spaces for place in range(len(games(where)))]
    jobs = [(where, place, by) for by in TUNABLES for where, place in places]
    os.environ.update(SETTINGS)  # read by the children when they start
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        rows = pool.map(partial(row, seeds=options.seeds), jobs, chunksize=1)
    origin = provenance()
    words = [Path(word).name if os.sep in word else word for word in sys.argv[1:]]
    origin["command"] = " ".join(["python benchmarks/failing_candidates.py", *words])
    options.out.write_text(json.dumps({"provenance": origin, "rows": rows}, indent=1) + "\n")
    print(
        "| space | fails by | failing, % | of evaluations 1–20, % | 21–80, % | efficiency, mean (worst), % |"
    )
    print("|---|---|---:|---:|---:|---:|")
    for one in rows:
        early, late = (value for name, value in one.items() if name.startswith("failed_"))
        print(
            f"| {one['space']} | {one['by']} | {one['failing_percent']} | {early} | {late}"
            f" | {one['efficiency_mean']} ({one['efficiency_worst']}) |"
        )


if __name__ == "__main__":
    main()
