"""What a search gains by counting the seconds of trials, on recorded spaces that tell them.

Files of Kernel Tuner, and archives of these, tell what compiling and running each configuration took. A
search is played with a clock that goes forward by that for every trial, one after another, and with a clock
that stands still, so that nothing is known of seconds. Efficiencies are those when so many times the mean
seconds of a trial of the space are over; seconds are told by the same unit.

    python benchmarks/trial_prices.py FILES... --jobs 16 --out benchmarks/results/trial-prices.json
"""

import argparse
import gzip
import json
import math
import multiprocessing
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance
from search import SETTINGS
from search_plays import noise
from search_spaces import OBJECTIVE, Game, games_of

from tuner import registry
from tuner.comparing.evaluations import play
from tuner.model import Measurement, Trial, TunableValue
from tuner.recordings.values import search_of

AFTER = (10, 20, 35, 50, 75)  # mean seconds of a trial
BUDGET = 120  # evaluations
GOOD = 0.98  # of the best
PARTS = ("compile_time", "benchmark_time", "verification_time")  # of a file of Kernel Tuner, in ms
Seconds = dict[Trial, float]


def seconds_of(path: Path, game: Game) -> Seconds:
    """Seconds of every trial: compiling, running, verifying."""
    told = _of_archive(path) if path.suffix == ".npz" else _of_cache(path)
    names = list(told.pop("names"))
    found = {}
    for trial in game.space.trials:
        values = tuple(trial.configurations[0].get(name) for name in names)
        found[trial] = max(told["seconds"][values], 1e-3)
    return found


def _of_archive(path: Path) -> dict[str, Any]:
    archive = np.load(path)
    about = json.loads(str(archive["meta"]))
    spent_ms = np.nan_to_num(archive["compile_ms"]) + np.nan_to_num(archive["bench_ms"])
    seconds = {
        tuple(values[place] for values, place in zip(about["values"], row, strict=True)): 1e-3 * float(one_ms)
        for row, one_ms in zip(archive["idx"], spent_ms, strict=True)
    }
    return {"names": about["names"], "seconds": seconds}


def _of_cache(path: Path) -> dict[str, Any]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    document = json.loads(text)
    names = list(document["tune_params"])
    seconds: dict[tuple[TunableValue, ...], float] = {}
    for entry in document["cache"].values():
        parts = [entry.get(part, 0.0) for part in PARTS]
        told = [part for part in parts if isinstance(part, (int, float)) and math.isfinite(part)]
        seconds[tuple(entry[name] for name in names)] = 1e-3 * math.fsum(told)
    return {"names": names, "seconds": seconds}


@lru_cache
def loaded(where: str) -> tuple[Game, Seconds]:
    """The space of a file, and what its trials take."""
    (game,) = games_of(where)
    return game, seconds_of(Path(where), game)


def played(where: str, seed: int, counted: bool) -> dict[str, Any]:
    """One search; ``counted``: its clock goes forward."""
    game, seconds = loaded(where)
    clock_s = 1.0

    def look(trial: Trial) -> Measurement:
        nonlocal clock_s
        clock_s += seconds[trial]
        return replace(game.space.look(trial), ended_s=clock_s if counted else 0.0)

    search = search_of(game.space, OBJECTIVE.cost, seed=seed, noise=noise)
    asked = play(partial(registry.load("policy", "bayesian"), patience=math.inf), search, look, BUDGET)
    unit_s = statistics.fmean(seconds.values())
    ended = np.cumsum([seconds[trial] for trial, _ in asked]) / unit_s
    efficiency = game.optimum_s / np.minimum.accumulate([OBJECTIVE.cost(one) for _, one in asked])
    good = ended[efficiency >= GOOD]
    return {
        "space": game.name,
        "counted": counted,
        "spread": statistics.pstdev(seconds.values()) / unit_s,
        "efficiency": [100 * float(efficiency[max(0, np.searchsorted(ended, n) - 1)]) for n in AFTER],
        "to_good": float(good[0]) if len(good) else None,
        "trial": float(ended[-1] / len(ended)),
    }


def rows_of(plays: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By space, with and without seconds: means over seeds."""
    rows = []
    for space, counted in dict.fromkeys((one["space"], one["counted"]) for one in plays):
        mine = [one for one in plays if (one["space"], one["counted"]) == (space, counted)]
        to_good = sorted(one["to_good"] if one["to_good"] is not None else math.inf for one in mine)
        middle = statistics.median(to_good)
        rows.append(
            {
                "space": space,
                "counted": counted,
                "seeds": len(mine),
                "seconds_deviation_by_mean": round(mine[0]["spread"], 2),
                "after_mean_trials": list(AFTER),
                "mean": np.mean([one["efficiency"] for one in mine], axis=0).round(2).tolist(),
                "median_to_98_percent": round(middle, 1) if math.isfinite(middle) else None,
                "seconds_of_a_trial_by_mean": round(statistics.fmean(one["trial"] for one in mine), 2),
            }
        )
    return rows


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """The table as Markdown."""
    print(f"| space | deviation by mean | seconds | mean after {'/'.join(map(str, AFTER))}, % | to 98 % |")
    print("|---|---:|---|---|---:|")
    for row in rows:
        good = row["median_to_98_percent"]
        print(
            f"| {row['space']} | {row['seconds_deviation_by_mean']:.2f}"
            f" | {'counted' if row['counted'] else 'not'} | {'/'.join(f'{one:.1f}' for one in row['mean'])}"
            f" | {'more' if good is None else f'{good:.0f}'} |"
        )


def main() -> None:
    """Play, write JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("spaces", nargs="+", help="recorded spaces of one workload, with seconds of trials")
    parser.add_argument("--seeds", type=int, default=11, help="searches per space (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="JSON to write")
    options = parser.parse_args()
    os.environ.update(SETTINGS)  # read by the children when they start
    searches = [
        (where, seed, counted)
        for where in options.spaces
        for seed in range(options.seeds)
        for counted in (False, True)
    ]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        rows = rows_of(pool.starmap(played, searches, chunksize=2))
    origin = provenance()
    words = [Path(word).name if os.sep in word else word for word in sys.argv[1:]]
    origin["command"] = " ".join(["python benchmarks/trial_prices.py", *words])
    options.out.write_text(json.dumps({"provenance": origin, "spaces": rows}, indent=1) + "\n")
    show(rows)


if __name__ == "__main__":
    main()
