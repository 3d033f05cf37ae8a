"""Greedy on workloads that run together: trials used, and distance from exhaustive search.

The first rows are played against recorded measurements of an H200: four workloads with six block sizes each,
1296 trials, in every order of naming the workloads. The lowest of so many measured costs is low by luck, more
so where a measurement scatters (joules: several percent). So beside the distance from the lowest recorded
cost stands the one from what exhaustive search would be worth if its answer were measured again: every trial
is predicted from all others, by a fit of the logarithm with the effects of each block size and of each pair
of them (171 numbers), and greedy's answer is compared with exhaustive's in these predictions.

The other rows are modelled: spaces of the same kind on simulated devices, where the distance is that of the
noise-free costs.

    python benchmarks/greedy_recorded.py --out benchmarks/results/greedy-recorded-h200.json
"""

import argparse
import itertools
import json
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from joint_spaces import BlockSizes
from provenance import provenance

import tuner
from tuner.kernel_files.catalog import Catalog
from tuner.model import registry
from tuner.model.objective import Objective
from tuner.model.trial import Measurement, Trial
from tuner.recordings.files import RecordingFile
from tuner.recordings.values import RecordedSpace, search_of
from tuner.space.search_view import Search
from tuner.studies.comparison import play

RECORDINGS = Path(tuner.__file__).parent / "recordings" / "h200.zip"
JOINT = ("scan-lf:N=1024", "tridiag-wm:N=512", "fft:N=1024", "scan-ks:N=256")
OBJECTIVES = ("time", "energy")
DEVICES = ("h200", "k40c", "jetson-tx1")
SETS = (
    ("scan-lf:N=256", "fft:N=512"),
    ("tridiag-pcr:N=256", "scan-ks:N=2048"),
    ("scan-lf:N=2048", "tridiag-wm:N=128", "fft:N=256"),
    ("scan-ks:N=512", "fft:N=2048", "tridiag-lf:N=512", "scan-lf:N=4096"),
    ("tridiag-cr:N=256", "tridiag-pcr:N=128", "fft:N=128", "scan-lf:N=128"),
)
STARTS = 100  # default trials drawn at random
SEEDS = 3  # of the noise of modelled measurements

Costs = Mapping[Trial, float]


@dataclass(frozen=True)
class GreedyOutcome:
    """What one search used, the default trial included, and how far its answer is from exhaustive's."""

    trials: int
    above_lowest: float
    above_again: float


def main() -> None:
    """Play all spaces, print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--policy", default="greedy")
    options = parser.parse_args()
    policy = registry.load("policy", options.policy)
    rows = [*recorded_rows(policy), *modelled_rows(policy)]
    document = {"provenance": provenance(), "policy": options.policy, "rows": rows}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    for row in rows:
        print(
            f"{row['space']:12} {row['objective']:6} {row['start']:28} {row['searches']:4} searches:"
            f" trials {row['trials']['median']:g}, at most {row['trials']['largest']}"
            f" ({row['within_12']:.0%} within 12); above the lowest cost {row['above_lowest']['median']:.2%},"
            f" at most {row['above_lowest']['largest']:.2%}; measured again"
            f" {row['above_again']['median']:+.2%}, at most {row['above_again']['largest']:+.2%}"
            f" ({row['again_within_2_percent']:.0%} within 2 %)"
        )


# --- recorded ------------------------------------------------------------------------------------


def recorded_rows(policy: Any) -> list[dict[str, Any]]:
    """The recorded joint space: every order of the workloads, and default trials drawn at random."""
    space = RecordingFile(RECORDINGS).space(JOINT)
    rows = []
    for name in OBJECTIVES:
        objective = Objective(name)
        costs = {trial: objective.cost(measurement) for trial, measurement in space.trials.items()}
        again = predicted(space, costs)
        search = search_of(space, objective.cost, noise=objective.relative_uncertainty)
        orders = [
            judged(policy, reordered(search, order), reorder(space.look, order), order, (costs, again))
            for order in itertools.permutations(range(len(JOINT)))
        ]
        drawn = [
            judged(policy, started(search, seed), space.look, range(len(JOINT)), (costs, again))
            for seed in range(STARTS)
        ]
        rows += [
            row(("recorded", JOINT, len(costs)), name, "kernel defaults, all orders", orders),
            row(("recorded", JOINT, len(costs)), name, "drawn at random", drawn),
        ]
    return rows


def predicted(space: RecordedSpace, costs: Costs) -> dict[Trial, float]:
    """The cost of every trial as all others predict it, by the effects of block sizes and pairs of them.

    Leaving the trial itself out makes the prediction free of the luck of its own measurement.
    """
    places = [{c.configuration: i for i, c in enumerate(w.candidates)} for w in space.workloads]
    valid = [trial for trial in costs if math.isfinite(costs[trial])]
    level = np.array([[p[c] for p, c in zip(places, t.configurations, strict=True)] for t in valid])
    columns = [np.ones(len(valid))]
    for count in (1, 2):
        for lanes in itertools.combinations(range(len(places)), count):
            for values in itertools.product(*(range(1, len(places[lane])) for lane in lanes)):
                columns += [np.all(level[:, lanes] == values, axis=1).astype(float)]
    logs = np.log([costs[trial] for trial in valid])
    basis, _ = np.linalg.qr(np.array(columns).T)
    leverage = (basis**2).sum(axis=1)
    left_out = logs - (logs - basis @ (basis.T @ logs)) / (1.0 - leverage)
    return dict.fromkeys(costs, math.inf) | dict(zip(valid, np.exp(left_out).tolist(), strict=True))


def reordered(search: Search, order: Sequence[int]) -> Search:
    """The search with its workloads named in another order."""

    def sort(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(values[i] for i in order)

    return replace(
        search,
        workloads=sort(search.workloads),
        candidates=sort(search.candidates),
        defaults=sort(search.defaults),
        tunables=sort(search.tunables),
        roles=sort(search.roles),
        sizes=sort(search.sizes),
    )


def reorder(look: Callable[[Trial], Measurement], order: Sequence[int]) -> Callable[[Trial], Measurement]:
    """Measurements of the trials of a reordered search."""

    def lookup(trial: Trial) -> Measurement:
        measurement = look(restored(trial, order))
        return replace(measurement, results=tuple(measurement.results[i] for i in order))

    return lookup


def restored(trial: Trial, order: Sequence[int]) -> Trial:
    """A trial of a reordered search in the order of the space."""
    return replace(
        trial, configurations=tuple(trial.configurations[list(order).index(i)] for i in range(len(order)))
    )


def started(search: Search, seed: int) -> Search:
    """The search with default configurations drawn at random."""
    rng = random.Random(seed)  # noqa: S311 - reproducible
    return replace(search, defaults=tuple(rng.choice(c).configuration for c in search.candidates))


def judged(
    policy: Any,
    search: Search,
    look: Callable[[Trial], Measurement],
    order: Sequence[int],
    known: tuple[Costs, Costs],
) -> GreedyOutcome:
    """Play a search and compare its answer, the cheapest it measured, with exhaustive's.

    Args:
        policy: plays.
        search: what it is told.
        look: answers it.
        order: of the search's workloads.
        known: the cost of every trial in the order of the space, as measured and as measured again.
    """
    costs, again = known
    played = play(policy, search, look)
    asked = {trial for trial, _ in played} | {Trial(search.defaults)}
    cheapest, _ = min(played, key=lambda pair: search.cost(pair[1]))
    answer, exhaustive = restored(cheapest, order), min(costs, key=costs.__getitem__)
    return GreedyOutcome(
        len(asked), costs[answer] / costs[exhaustive] - 1, again[answer] / again[exhaustive] - 1
    )


# --- modelled ------------------------------------------------------------------------------------


def modelled_rows(policy: Any) -> list[dict[str, Any]]:
    """Two to four other workloads on simulated devices, one candidate for each block size."""
    catalog = Catalog.load()
    rows = []
    for gpu, names in itertools.product(DEVICES, SETS):
        space = BlockSizes(gpu, names, catalog)
        for name in OBJECTIVES:
            objective = Objective(name)
            costs = {trial: objective.cost(space.look(trial)) for trial in space.trials}
            search = space.search(objective)
            lanes = range(len(names))
            found = [
                judged(policy, search, space.noisy(seed), lanes, (costs, costs)) for seed in range(SEEDS)
            ]
            rows.append(row((gpu, names, len(costs)), name, "kernel defaults", found))
    return rows


# --- rows ----------------------------------------------------------------------------------------


def row(
    space: tuple[str, Sequence[str], int], objective: str, start: str, found: Sequence[GreedyOutcome]
) -> dict[str, Any]:
    """What searches of one kind used and found."""
    return {
        "space": space[0],
        "workloads": list(space[1]),
        "size": space[2],
        "objective": objective,
        "start": start,
        "searches": len(found),
        "within_12": statistics.mean(one.trials <= 12 for one in found),
        "again_within_2_percent": statistics.mean(one.above_again <= 0.02 for one in found),
        **{
            key: {"median": statistics.median(values), "largest": max(values)}
            for key in asdict(found[0])
            for values in [[asdict(one)[key] for one in found]]
        },
    }


if __name__ == "__main__":
    main()
