"""What traits of configurations cost, by families of kernels: what `bayesian` believes in the beginning.

The response of every recorded space (see `surrogate.response`) is regressed on its traits (see
`surrogate.traits`). Spaces of one family of kernels are averaged. What is believed of a kernel never seen is
the mean of a coefficient over families, and doubted its deviation; both are drawn to what stands for one more
family, 0 ± 0.5.

    python benchmarks/trait_beliefs.py FILES... --h200 --out policies/surrogate/beliefs.json
    python benchmarks/trait_beliefs.py FILES... --judge benchmarks/results/trait-beliefs.json

Beliefs are judged by searches of `bayesian` with those of all other families, against none, and against ones
that are wrong by design: the same with their signs turned.
"""

import argparse
import json
import math
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance
from search_games import OBJECTIVE, Game, games_of, noise
from tuner.policies.surrogate import joint, learner
from tuner.policies.surrogate.features import FILE, NAMES, Beliefs, Floats, beliefs_of, traits
from tuner.policies.surrogate.joint import Joint, respond

from tuner.model import registry
from tuner.recordings.values import search_of
from tuner.studies.comparison import play

VERSION = 1
RIDGE = 0.01  # of standardised responses
AFTER = (5, 10, 20, 50)  # evaluations
BELIEVED = ("nothing", "others", "wrong")
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
    x = traits(workload.candidates, chosen, game.space.limits)
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


def without(document: Mapping[str, Any], family: str) -> dict[str, Any]:
    """The beliefs of all other families."""
    kept = {name: one for name, one in document["families"].items() if name != family}
    return {**document, "traits": believed(kept), "families": kept}


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


def judged(game: Game, document: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Mean efficiency in percent after `AFTER` evaluations, by what is believed."""
    others = beliefs_of(without(document, family_of(game)))
    believed_by = {"nothing": None, "others": others, "wrong": replace(others, mean=-others.mean)}
    row: dict[str, Any] = {"space": game.name, "family": family_of(game), "seeds": seeds}
    for name, chosen in believed_by.items():
        with believing(chosen):
            efficiencies = np.array([efficiency(game, seed) for seed in range(seeds)])
        row[name] = {
            "mean": np.mean(efficiencies, axis=0).round(2).tolist(),
            "worst": np.min(efficiencies, axis=0).round(2).tolist(),
        }
    return row


@contextmanager
def believing(chosen: Beliefs | None) -> Iterator[None]:
    """Searches inside believe that; nothing where it is None."""
    before, has = joint.beliefs, Joint.has_traits
    if chosen is None:
        Joint.has_traits = property(lambda _: False)  # type: ignore[method-assign, assignment]
    else:
        joint.beliefs = learner.beliefs = lambda: chosen
    try:
        yield
    finally:
        joint.beliefs = learner.beliefs = before
        Joint.has_traits = has  # type: ignore[method-assign]


def efficiency(game: Game, seed: int) -> list[float]:
    """Of one search, in percent."""
    search = search_of(game.space, OBJECTIVE.cost, seed=seed, noise=noise)
    policy = partial(registry.load("policy", "bayesian"), patience=math.inf)
    costs = [OBJECTIVE.cost(one) for _, one in play(policy, search, game.space.look, max(AFTER))]
    return [100 * game.optimum_s / min(costs[:count]) for count in AFTER]


def judge(games: Sequence[Game], options: argparse.Namespace) -> None:
    """Play, write the JSON, print the table."""
    document = json.loads(FILE.read_text())
    rows = []
    print("| space | nothing believed | other families | wrong by design |\n|---|---|---|---|")
    for game in games:
        rows.append(judged(game, document, options.seeds))
        cells = ["/".join(f"{one:.1f}" for one in rows[-1][name]["mean"]) for name in BELIEVED]
        print(f"| {game.name} | {' | '.join(cells)} |", flush=True)
    origin = provenance()
    words = [Path(word).name if Path(word).exists() else word for word in sys.argv[1:]]
    origin["command"] = " ".join(["python benchmarks/trait_beliefs.py", *words])
    options.judge.write_text(
        json.dumps(
            {"provenance": origin, "after": AFTER, "version": document["version"], "rows": rows}, indent=1
        )
        + "\n"
    )


def main() -> None:
    """Learn or judge, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("spaces", nargs="+", help="folders and files of recorded spaces")
    parser.add_argument("--h200", action="store_true", help="the spaces that are shipped, too")
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--out", type=Path, help="beliefs to write")
    wanted.add_argument("--judge", type=Path, help="judge those that are shipped instead; JSON to write")
    parser.add_argument("--only", default="", help="spaces whose names match, by a regular expression")
    parser.add_argument("--seeds", type=int, default=5, help="searches per space and belief (%(default)s)")
    options = parser.parse_args()
    places = [*options.spaces, *(["h200"] if options.h200 else [])]
    games = [game for where in places for game in games_of(where) if len(game.space.workloads) == 1]
    games = [game for game in games if re.search(options.only, game.name)]
    if options.judge:
        judge(games, options)
        return
    document = learnt(games)
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print("| trait | " + " | ".join(document["families"]) + " | believed |")
    for name in NAMES:
        row = document["traits"][name]
        cells = [f"{one['coefficients'].get(name, ''):}" for one in document["families"].values()]
        print(f"| {name} | {' | '.join(cells)} | {row['mean']} ± {row['deviation']} |")


if __name__ == "__main__":
    main()
