"""What `auto` should go on with: by the size of a space, by the noise of its measurements, by a trial's cost.

Recorded spaces of one workload are searched by every policy that `auto` could choose.

*Size.* Spaces are cut to so many configurations, drawn at random; `bayesian` ends by itself. Where it
measures nearly all, or misses the best, measuring all is the better choice.

*Noise.* Every trial is measured once, with a relative error of the given standard deviation, which the policy
is told. The answer is the fastest of the twelve that measured lowest, as a run confirms these in repeats.

*Cost.* With c the seconds of a trial, a search takes N (c + s) for N evaluations with s seconds of computing
each: the policy of fewer evaluations pays where c is above (N s - N' s') / (N' - N).

    python benchmarks/auto_choice.py FILES... --jobs 16 --out benchmarks/results/auto-choice.json
"""

import argparse
import inspect
import json
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance
from search import SETTINGS
from search_games import OBJECTIVE, Game, games_of, kernel_of

from tuner.model import registry
from tuner.model.trial import Measurement, Trial
from tuner.recordings.values import search_of
from tuner.studies.comparison import Lookup, play

SIZES = (16, 24, 32, 48, 64, 96, 128, 192)
NOISES = (0.0, 0.01, 0.05, 0.2)
POLICIES = ("bayesian", "local", "hill-climbing", "greedy", "random")
AFTER = (20, 50, 100)  # evaluations
CONFIRMED = 12  # as tuner.search.answer confirms for the objective time
GOOD = 0.98  # of the best
FEWEST = 24  # configurations of a space


@dataclass(frozen=True)
class Job:
    """A search to be played: a subspace of ``size`` to its own end, or a policy with noise."""

    where: str
    place: int
    seed: int
    size: int = 0
    policy: str = "bayesian"
    noise: float = 0.0


@lru_cache
def games(where: str) -> list[Game]:
    """The spaces of a place that have one workload."""
    return [
        game
        for game in games_of(where)
        if len(game.space.workloads) == 1 and len(game.times_s) >= FEWEST and math.isfinite(game.optimum_s)
    ]


def by_size(job: Job) -> dict[str, Any]:
    """A search of a subspace by `bayesian` to its own end."""
    game = games(job.where)[job.place]
    search = search_of(game.space, OBJECTIVE.cost, seed=job.seed, noise=lambda _: 0.0)
    candidates = search.candidates[0]
    draw = np.random.default_rng(job.seed)
    chosen = [candidates[i] for i in draw.choice(len(candidates), job.size, replace=False)]
    search = replace(search, candidates=(tuple(chosen),), defaults=(chosen[0].configuration,))
    costs = [OBJECTIVE.cost(game.space.look(Trial((one.configuration,)))) for one in chosen]
    asked = play(registry.load("policy", "bayesian"), search, game.space.look)
    found = min((OBJECTIVE.cost(measurement) for _, measurement in asked), default=math.inf)
    best = min(costs)
    return {
        "kernel": kernel_of(game),
        "size": job.size,
        "evaluations": len(asked),
        "efficiency": 1.0 if best == found else best / found,
    }


def by_noise(job: Job) -> dict[str, Any]:
    """A search by a policy whose measurements are noisy."""
    game = games(job.where)[job.place]
    look = noisy(game.space.look, job.noise, job.seed)
    search = search_of(game.space, OBJECTIVE.cost, seed=job.seed, noise=lambda _: job.noise)
    policy = registry.load("policy", job.policy)
    if "patience" in inspect.signature(policy).parameters:
        policy = partial(policy, patience=math.inf)
    begun_s = time.thread_time()
    asked = play(policy, search, look, max(AFTER))
    spent_s = time.thread_time() - begun_s
    true = [OBJECTIVE.cost(game.space.look(trial)) for trial, _ in asked]
    seen = [OBJECTIVE.cost(measurement) for _, measurement in asked]
    good = [count for count in range(1, len(true) + 1) if game.optimum_s >= GOOD * answer(true, seen, count)]
    return {
        "kernel": kernel_of(game),
        "policy": job.policy,
        "noise": job.noise,
        "efficiency": [game.optimum_s / answer(true, seen, count) for count in AFTER],
        "evaluations_to_good": good[0] if good else None,
        "search_s": spent_s / len(asked),
    }


def noisy(look: Lookup, deviation: float, seed: int) -> Lookup:
    """Measurements with a relative error, the same for a trial whenever it is asked for."""
    draw, known = np.random.default_rng(10_000 + seed), dict[Trial, Measurement]()

    def measured(trial: Trial) -> Measurement:
        if trial not in known:
            one, factor = look(trial), math.exp(deviation * draw.standard_normal())
            known[trial] = one if one.makespan_s is None else replace(one, makespan_s=factor * one.makespan_s)
        return known[trial]

    return measured


def answer(true: Sequence[float], seen: Sequence[float], count: int) -> float:
    """The lowest true cost of those that measured lowest among the first evaluations."""
    lowest = sorted(range(min(count, len(seen))), key=seen.__getitem__)[:CONFIRMED]
    return min(true[place] for place in lowest)


def size_rows(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By size: evaluations as a share of it, and efficiencies; every kernel counts the same."""
    rows, kept = [], list(found)
    for size in dict.fromkeys(one["size"] for one in kept):
        mine = [one for one in kept if one["size"] == size]
        efficiencies = [100 * one["efficiency"] for one in mine]
        rows.append(
            {
                "size": size,
                "searches": len(mine),
                "evaluations": round(by_kernel(mine, lambda one: one["evaluations"]), 1),
                "mean": round(by_kernel(mine, lambda one: 100 * one["efficiency"]), 2),
                "worst_tenth": round(float(np.quantile(efficiencies, 0.1)), 2),
                "worst_hundredth": round(float(np.quantile(efficiencies, 0.01)), 2),
            }
        )
    return rows


def noise_rows(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By noise and policy: mean efficiencies, evaluations to a good answer; every kernel counts the same."""
    rows, kept = [], list(found)
    for noise, policy in dict.fromkeys((one["noise"], one["policy"]) for one in kept):
        mine = [one for one in kept if (one["noise"], one["policy"]) == (noise, policy)]
        to_good = [one["evaluations_to_good"] or math.inf for one in mine]
        middle = statistics.median(to_good)
        rows.append(
            {
                "noise": noise,
                "policy": policy,
                "searches": len(mine),
                "after": list(AFTER),
                "mean": [
                    round(by_kernel(mine, lambda one, place=place: 100 * one["efficiency"][place]), 2)
                    for place in range(len(AFTER))
                ],
                "median_evaluations_to_98_percent": middle if math.isfinite(middle) else None,
                "search_ms_per_evaluation": round(1e3 * statistics.fmean(one["search_s"] for one in mine), 2),
            }
        )
    return rows


def by_kernel(found: Sequence[Mapping[str, Any]], value: Callable[[Mapping[str, Any]], float]) -> float:
    """The mean over kernels of the mean over their searches."""
    kernels = dict.fromkeys(one["kernel"] for one in found)
    return statistics.fmean(
        statistics.fmean(value(one) for one in found if one["kernel"] == kernel) for kernel in kernels
    )


def show(document: Mapping[str, Any]) -> None:
    """The tables as Markdown."""
    print("| configurations | searches | evaluations | mean, % | worst tenth, % | worst hundredth, % |")
    print("|---:|---:|---:|---:|---:|---:|")
    for row in document["sizes"]:
        print(
            f"| {row['size']} | {row['searches']} | {row['evaluations']:.0f} | {row['mean']:.2f}"
            f" | {row['worst_tenth']:.1f} | {row['worst_hundredth']:.1f} |"
        )
    print(f"\n| noise | policy | mean after {'/'.join(map(str, AFTER))}, % | to 98 % | ms per evaluation |")
    print("|---:|---|---|---:|---:|")
    for row in document["noises"]:
        good = row["median_evaluations_to_98_percent"]
        print(
            f"| {100 * row['noise']:g} % | {row['policy']} | {'/'.join(f'{one:.1f}' for one in row['mean'])}"
            f" | {'more' if good is None else f'{good:.0f}'} | {row['search_ms_per_evaluation']:.1f} |"
        )


def jobs_of(places: Sequence[str], seeds: int) -> tuple[list[Job], list[Job]]:
    """What is played: by size, and by noise."""
    sizes, noises = [], []
    for where in places:
        for place, game in enumerate(games(where)):
            for seed in range(seeds):
                whole = len(game.times_s)
                sizes += [Job(where, place, seed, size=size) for size in SIZES if size <= whole]
                noises += [
                    Job(where, place, seed, policy=policy, noise=noise)
                    for noise in NOISES
                    for policy in POLICIES
                ]
    return sizes, noises


def main() -> None:
    """Play, write JSON, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("spaces", nargs="+", help="folders and files of recorded spaces")
    parser.add_argument("--seeds", type=int, default=5, help="searches per space (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="JSON to write")
    options = parser.parse_args()
    os.environ.update(SETTINGS)  # read by the children when they start
    sizes, noises = jobs_of(options.spaces, options.seeds)
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        found = {
            "sizes": size_rows(pool.map(by_size, sizes, chunksize=4)),
            "noises": noise_rows(pool.map(by_noise, noises, chunksize=4)),
        }
    origin = provenance()
    words = [Path(word).name if Path(word).exists() or os.sep in word else word for word in sys.argv[1:]]
    origin["command"] = " ".join(["python benchmarks/auto_choice.py", *words])
    document = {"provenance": origin, **found}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    show(document)


if __name__ == "__main__":
    main()
