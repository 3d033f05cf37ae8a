"""What constants of `bayesian` other kernels would choose, and what that costs the kernel left out.

Every value of a constant is played on recorded spaces, the others as they are. Scored is the mean over seeds,
spaces of a kernel and `AFTER` of optimum / best found. For every kernel the value is stated that all other
kernels together would choose, and what the kernel loses by it against its own choice.

    python benchmarks/search_constants.py FILES... --groups '*' --out benchmarks/results/search-constants.json
"""

import argparse
import importlib
import json
import math
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

from provenance import provenance
from search_plays import noise
from search_spaces import OBJECTIVE, Game, games_of

from tuner.model import registry
from tuner.recordings.values import search_of
from tuner.studies.comparison import play

AFTER = (20, 50)
SEEDS = 5
# Constant -> module below `tuner.policies` and the values; the first is the present one.
CONSTANTS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "NUGGET": ("surrogate.gaussian", ((-3.5, 1.5), (-5.0, 1.5), (-6.9, 1.5))),
    "SQUASH": ("surrogate.joint", (0.3, 0.15, 0.6)),
    "LENGTH": ("surrogate.gaussian", ((0.0, 1.0), (-0.5, 1.0), (0.5, 1.0))),
    "SLOWER": ("surrogate.joint", (0.2, 0.0, 0.4)),
    "STALL": ("bayesian", (3, 2, 5)),
}


def kernel_of(game: Game) -> str:
    """The kernel of a space, the same for every GPU and size."""
    name = game.space.workloads[0].kernel.partition("_")[0]
    return "convolution" if "convolution" in game.name else name


def score(game: Game, seeds: int) -> float:
    """Mean efficiency in percent over seeds and numbers of evaluations."""
    found = []
    for seed in range(seeds):
        search = search_of(game.space, OBJECTIVE.cost, seed=seed, noise=noise)
        policy = partial(registry.load("policy", "bayesian"), patience=math.inf)
        costs = [OBJECTIVE.cost(one) for _, one in play(policy, search, game.space.look, max(AFTER))]
        found += [game.optimum_s / min(costs[:count]) for count in AFTER]
    return 100 * statistics.fmean(found)


def scores(games: Sequence[Game], constant: str, value: Any, seeds: int) -> dict[str, float]:
    """Scores by kernel where a constant has a value."""
    module = importlib.import_module(f"tuner.policies.{CONSTANTS[constant][0]}")
    before = getattr(module, constant)
    setattr(module, constant, value)
    try:
        by_kernel: dict[str, list[float]] = {}
        for game in games:
            by_kernel.setdefault(kernel_of(game), []).append(score(game, seeds))
    finally:
        setattr(module, constant, before)
    return {kernel: round(statistics.fmean(found), 2) for kernel, found in by_kernel.items()}


def left_out(by_value: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Per kernel: what the others would choose; what it scores with that, its own and the present value."""
    first = next(iter(by_value))
    rows = []
    for kernel in by_value[first]:
        others = {
            value: statistics.fmean(found for name, found in of.items() if name != kernel)
            for value, of in by_value.items()
        }
        chosen = max(others, key=others.__getitem__)
        rows.append(
            {
                "kernel": kernel,
                "others_choose": chosen,
                "with_that": by_value[chosen][kernel],
                "with_present": by_value[first][kernel],
                "with_its_own": max(of[kernel] for of in by_value.values()),
            }
        )
    return rows


def main() -> None:
    """Play, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("spaces", nargs="+", help="folders and files of recorded spaces, or h200")
    parser.add_argument("--groups", default="*", help="patterns of the groups of spaces (all)")
    parser.add_argument("--names", default="*", help="patterns of the names of spaces (all)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="searches per space (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="JSON to write")
    options = parser.parse_args()
    games = [
        game
        for where in options.spaces
        for game in games_of(where)
        if any(fnmatch(game.group, one) for one in options.groups.split(","))
        and any(fnmatch(game.name, one) for one in options.names.split(","))
    ]
    origin = provenance()
    words = [Path(word).name if os.sep in word else word for word in sys.argv[1:]]
    origin["command"] = " ".join(["python benchmarks/search_constants.py", *words])
    document: dict[str, Any] = {"provenance": origin, "seeds": options.seeds, "after": AFTER}
    document["spaces"] = [game.name for game in games]
    present = scores(games, "STALL", CONSTANTS["STALL"][1][0], options.seeds)
    print("| constant | value | mean of kernels, % | " + " | ".join(present) + " |")
    for constant, (_, values) in CONSTANTS.items():
        by_value = {str(values[0]): present}
        by_value |= {str(value): scores(games, constant, value, options.seeds) for value in values[1:]}
        document[constant] = {"scores": by_value, "left_out": left_out(by_value)}
        for value, of in by_value.items():
            cells = " | ".join(f"{one:.1f}" for one in of.values())
            print(f"| {constant} | {value} | {statistics.fmean(of.values()):.2f} | {cells} |", flush=True)
        options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
