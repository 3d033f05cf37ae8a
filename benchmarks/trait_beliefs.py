"""What traits of configurations cost, by families of kernels: what `bayesian` believes in the beginning.

The response of every recorded space (`surrogate.joint`) is regressed on its traits (`surrogate.features`).
Spaces of one family of kernels are averaged. What is believed of a kernel never seen is the mean of a
coefficient over families, and doubted its deviation; both are drawn to what stands for one more family,
0 ± 0.5.

    python benchmarks/trait_beliefs.py FILES... --h200 --out policies/surrogate/beliefs.json
"""

import argparse
import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from search_games import OBJECTIVE, Game, games_of
from tuner.policies.surrogate.features import NAMES, Floats, TraitScale
from tuner.policies.surrogate.joint import respond

VERSION = 1
RIDGE = 0.01  # of standardised responses
UNKNOWN = 0.5  # deviation of a coefficient of which nothing is known
FAMILIES = {  # pattern of a kernel's name -> family
    "conv": "convolution",
    "dedisp": "dedispersion",
    "gemm|matmul": "matrix product",
    "pnpoly": "point in polygon",
    "fft": "fft",
    "scan": "scan",
    "tridiag": "tridiagonal",
}


def family_of(game: Game) -> str:
    """The family of a space's kernel: its own name where it has no relatives."""
    kernel = game.space.workloads[0].kernel
    for pattern, family in FAMILIES.items():
        if re.search(pattern, f"{game.name} {kernel}", re.IGNORECASE):
            return family
    return kernel


def coefficients(game: Game) -> Floats:
    """What each trait costs in a space; NaN where it is the same everywhere."""
    workload = game.space.workloads[0]
    found = {t.configurations[0]: OBJECTIVE.cost(m) for t, m in game.space.trials.items()}
    chosen = [one.configuration for one in workload.candidates]
    costs = np.array([found.get(one, math.inf) for one in chosen])
    x = TraitScale(workload.candidates, chosen, game.space.limits).table
    varied = x.any(axis=0)
    works = np.isfinite(costs)
    x, y = x[works], respond(costs[works]).of(costs[works])
    ridge = RIDGE * np.eye(x.shape[1])
    return np.where(varied, np.linalg.solve(x.T @ x / len(y) + ridge, x.T @ y / len(y)), np.nan)


def believed(families: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean and deviation of every coefficient over families."""
    rows = {}
    for name in NAMES:
        seen = [one["coefficients"][name] for one in families.values() if name in one["coefficients"]]
        mean = math.fsum(seen) / (len(seen) + 1)
        spread = UNKNOWN**2 + math.fsum((value - mean) ** 2 for value in seen)
        rows[name] = {"mean": round(mean, 3), "deviation": round(math.sqrt(spread / (len(seen) + 1)), 3)}
    return rows


def learnt(games: Sequence[Game]) -> dict[str, Any]:
    """The document of beliefs."""
    by_family: dict[str, list[tuple[str, Floats, float]]] = {}
    for game in games:
        costs = np.array([cost for cost in game.times_s.values() if math.isfinite(cost)])
        entry = game.name, coefficients(game), respond(costs).scale
        by_family.setdefault(family_of(game), []).append(entry)
    families = {family: _summary(entries) for family, entries in sorted(by_family.items())}
    scale = statistics.median(one["scale"] for one in families.values())
    return {"version": VERSION, "scale": round(scale, 3), "traits": believed(families), "families": families}


def _summary(entries: Sequence[tuple[str, Floats, float]]) -> dict[str, Any]:
    """What a family's spaces have in common: means over those where a trait varies."""
    table = np.array([found for _, found, _ in entries])
    means = {
        name: round(float(np.nanmean(column)), 3)
        for name, column in zip(NAMES, table.T, strict=True)
        if np.isfinite(column).any()
    }
    scale = statistics.fmean(one for _, _, one in entries)
    return {"spaces": [name for name, _, _ in entries], "coefficients": means, "scale": round(scale, 3)}


def main() -> None:
    """Learn, write the beliefs, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("spaces", nargs="+", help="folders and files of recorded spaces")
    parser.add_argument("--h200", action="store_true", help="the spaces that are shipped, too")
    parser.add_argument("--out", type=Path, required=True, help="beliefs to write")
    options = parser.parse_args()
    places = [*options.spaces, *(["h200"] if options.h200 else [])]
    games = [game for where in places for game in games_of(where) if len(game.space.workloads) == 1]
    document = learnt(games)
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print("| trait | " + " | ".join(document["families"]) + " | believed |")
    for name in NAMES:
        row = document["traits"][name]
        cells = [f"{one['coefficients'].get(name, ''):}" for one in document["families"].values()]
        print(f"| {name} | {' | '.join(cells)} | {row['mean']} ± {row['deviation']} |")


if __name__ == "__main__":
    main()
