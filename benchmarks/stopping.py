"""Where searches end by themselves, and what their predictions of further gain are worth, on recorded spaces.

Every space was measured completely, so a search can be replayed without a GPU. `auto` is played to its own
end. The predictions are looked at in searches that do not end: at each evaluation, what the surrogate expects
to gain (`Outlook.expected_gain`) and what the latest evaluations gained, against what as many evaluations
again did gain.

    python benchmarks/stopping.py FOLDER_OR_FILES... [--h200] --out benchmarks/results/stopping.json
    python benchmarks/stopping.py --show benchmarks/results/stopping.json
"""

import argparse
import itertools
import json
import math
import multiprocessing
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance
from search import SETTINGS
from search_games import OBJECTIVE, Game, games_of, noise
from tuner.policies import bayesian as bayesian_module
from tuner.policies.stopping import GAIN, LEAST_EVALUATIONS, SHARE, StopRule
from tuner.policies.surrogate.learner import SearchRun

from tuner.model import registry
from tuner.recordings.values import search_of
from tuner.studies.comparison import play

MOST = 200  # evaluations of a search whose predictions are looked at
BINS = (0.0, 0.0005, 0.002, 0.005, 0.02, 0.1, math.inf)  # of predicted gains
AGAIN = 20  # evaluations at least, of what going on gained


@dataclass(frozen=True)
class Job:
    """A search to be played."""

    where: str
    place: int
    seed: int


@lru_cache
def games(where: str) -> list[Game]:
    """The spaces of a place that have one workload."""
    return [game for game in games_of(where) if len(game.space.workloads) == 1]


class Watched(StopRule):
    """Never ends a search, and takes notes: evaluations, predicted gain, what the latest `SHARE` gained."""

    def __init__(self, run: SearchRun, notes: list[tuple[int, float, float]]) -> None:
        super().__init__(run)
        self._notes = notes

    def _is_enough(self) -> bool:
        run = self._run
        outlook, count = run.learner.outlook(), len(run.lowest)
        before = min(count - LEAST_EVALUATIONS, int(count * (1 - SHARE)))
        if outlook is not None and before > 0:
            latest = 1 - run.lowest[-1] / run.lowest[before - 1]
            self._notes.append((count, outlook.expected_gain, latest))
        return False


def judged(job: Job) -> dict[str, Any]:
    """A search of `auto` to its own end, and the notes of one that does not end."""
    game = games(job.where)[job.place]
    search = search_of(game.space, OBJECTIVE.cost, seed=job.seed, noise=noise)
    ended = play(registry.load("policy", "auto"), search, game.space.look)
    notes: list[tuple[int, float, float]] = []
    bayesian_module.stop_rule = lambda run, _: Watched(run, notes)
    try:
        whole = play(partial(bayesian_module.bayesian), search, game.space.look, MOST)
    finally:
        bayesian_module.stop_rule = stop_rule
    costs = [OBJECTIVE.cost(measurement) for _, measurement in whole]
    lowest = np.minimum.accumulate(costs)
    points = [
        (expected, latest, further_gain(lowest, count))
        for count, expected, latest in notes
        if count <= len(lowest) and (count + max(count, AGAIN) <= MOST or len(costs) == len(game.times_s))
    ]
    best_s = min((OBJECTIVE.cost(measurement) for _, measurement in ended), default=math.inf)
    return {
        "space": game.name,
        "group": game.group,
        "size": len(game.times_s),
        "optimum_ms": 1e3 * game.optimum_s,
        "seed": job.seed,
        "evaluations": len(ended),
        "efficiency": game.optimum_s / best_s,
        "points": points,
    }


def further_gain(lowest: Sequence[float], count: int) -> float:
    """What as many evaluations again gained, as a fraction of the lowest cost."""
    return 1 - float(lowest[min(count + max(count, AGAIN), len(lowest)) - 1]) / float(lowest[count - 1])


stop_rule = bayesian_module.stop_rule


def table_of(plays: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per space: where its searches ended."""
    rows = []
    for name in dict.fromkeys(one["space"] for one in plays):
        mine = [one for one in plays if one["space"] == name]
        evaluations = [one["evaluations"] for one in mine]
        efficiencies = [100 * one["efficiency"] for one in mine]
        rows.append(
            {
                "space": name,
                "group": mine[0]["group"],
                "configurations": mine[0]["size"],
                "optimum_ms": mine[0]["optimum_ms"],
                "seeds": len(mine),
                "evaluations": rounded(np.quantile(evaluations, [0.1, 0.5, 0.9])),
                "median": round(float(np.median(efficiencies)), 2),
                "mean": round(float(np.mean(efficiencies)), 2),
                "worst_tenth": round(float(np.quantile(efficiencies, 0.1)), 2),
                "worst": round(min(efficiencies), 2),
                "efficiencies": rounded(efficiencies),
            }
        )
    return rows


def calibration_of(plays: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Predicted against realised gain; every group of spaces counts the same."""
    groups = list(dict.fromkeys(one["group"] for one in plays))
    points = np.array(
        [
            (groups.index(one["group"]), *point)
            for one in plays
            for point in one["points"]
            if all(map(math.isfinite, point))
        ]
    )
    share = 1.0 / np.bincount(points[:, 0].astype(int), minlength=len(groups))
    weights = share[points[:, 0].astype(int)]
    rows = []
    for quiet in (False, True):
        for low, high in itertools.pairwise(BINS):
            inside = (points[:, 1] >= low) & (points[:, 1] < high) & ((points[:, 2] < GAIN) == quiet)
            if not inside.any():
                continue
            weight = weights[inside] / weights[inside].sum()
            rows.append(
                {
                    "latest_gained_little": quiet,
                    "predicted_percent": [100 * low, 100 * high if math.isfinite(high) else None],
                    "cases": int(inside.sum()),
                    "predicted_mean_percent": round(100 * float(weight @ points[inside, 1]), 4),
                    "realised_mean_percent": round(100 * float(weight @ points[inside, 3]), 4),
                    "chance_of_more": round(float(weight @ (points[inside, 3] > GAIN)), 4),
                }
            )
    return rows


def rounded(values: Iterable[float]) -> list[float]:
    """Values with two decimals."""
    return [round(float(value), 2) for value in values]


def show(document: dict[str, Any]) -> None:
    """The tables as Markdown."""
    print("| space | configurations | optimum, ms | evaluations | median, % | worst tenth, % | worst, % |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for row in document["spaces"]:
        low, middle, high = row["evaluations"]
        print(
            f"| {row['space']} | {row['configurations']:,} | {row['optimum_ms']:.4g}"
            f" | {middle:.0f} ({low:.0f}–{high:.0f}) | {row['median']:.1f} | {row['worst_tenth']:.1f}"
            f" | {row['worst']:.1f} |"
        )
    print(
        "\n| latest evaluations | predicted, % | cases | mean predicted | mean realised | chance of > 0.5 % |"
    )
    print("|---|---|---:|---:|---:|---:|")
    for row in document["calibration"]:
        low, high = row["predicted_percent"]
        latest = "gained < 0.5 %" if row["latest_gained_little"] else "gained more"
        predicted = f"{low:g} and more" if high is None else f"{low:g}–{high:g}"
        print(
            f"| {latest} | {predicted} | {row['cases']:,} | {row['predicted_mean_percent']:.2g} %"
            f" | {row['realised_mean_percent']:.2g} % | {100 * row['chance_of_more']:.1f} % |"
        )


def main() -> None:
    """Play, write JSON, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("spaces", nargs="*", help="folders and files of recorded spaces")
    parser.add_argument("--h200", action="store_true", help="the spaces that are shipped, too")
    parser.add_argument("--seeds", type=int, default=20, help="searches per space (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--show", type=Path, help="print the tables of a JSON written before; nothing else")
    options = parser.parse_args()
    if options.show:
        show(json.loads(options.show.read_text()))
        return
    places = [*options.spaces, *(["h200"] if options.h200 else [])]
    jobs = [
        Job(where, place, seed)
        for where in places
        for place in range(len(games(where)))
        for seed in range(options.seeds)
    ]
    os.environ.update(SETTINGS)  # read by the children when they start
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        plays = pool.map(judged, jobs, chunksize=4)
    origin = provenance()
    words = [Path(word).name if Path(word).exists() else word for word in sys.argv[1:]]
    origin["command"] = " ".join(["python benchmarks/stopping.py", *words])
    document = {"provenance": origin, "spaces": table_of(plays), "calibration": calibration_of(plays)}
    if options.out:
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    show(document)


if __name__ == "__main__":
    main()
