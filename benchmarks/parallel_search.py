"""What searches gain where several trials are measured at once, on recorded spaces.

Every space was measured completely, so a search can be replayed without a GPU. A *round* is as many trials as
are measured at once: a list of more takes several rounds, a list of fewer leaves a GPU idle. `auto` is played
to its own end; `bayesian` goes on to `BUDGET` trials.

    python benchmarks/parallel_search.py FOLDER_OR_FILES... [--h200] \
        --out benchmarks/results/parallel-search.json
    python benchmarks/parallel_search.py --show benchmarks/results/parallel-search.json \
        --docs docs/lab/methodologies.md
"""

import argparse
import json
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance
from search import SETTINGS
from search_games import OBJECTIVE, Game, games_of, noise
from search_scores import marks
from tuner.policies.auto import SMALL

from tuner.model import registry
from tuner.model.trial import Measurement, Trial
from tuner.recordings.values import search_of
from tuner.space.search_view import Policy, Search
from tuner.studies.comparison import play

PARALLEL = (1, 2, 4)
ROUNDS = (10, 20, 40)
CLOSE = 0.98  # of the optimum
NAME = "parallel-search"


@dataclass(frozen=True)
class Job:
    """A search to be played."""

    where: str
    place: int
    policy: str
    parallel: int
    seed: int


games = lru_cache(games_of)


@dataclass(frozen=True)
class Curve:
    """A search, round by round.

    Attributes:
        trials: measured after each round.
        best_s: shortest time after each round; infinity while nothing has worked.
    """

    trials: tuple[int, ...]
    best_s: tuple[float, ...]

    def efficiency(self, optimum_s: float, rounds: int) -> float:
        """Optimum / best found after so many rounds, or at the end."""
        return optimum_s / self.best_s[min(rounds, len(self.best_s)) - 1]

    def reached(self, optimum_s: float) -> int | None:
        """The round that came to `CLOSE` of the optimum."""
        close = (place for place, best in enumerate(self.best_s, 1) if optimum_s / best >= CLOSE)
        return next(close, None)


def curve_of(lists: Sequence[Sequence[float]], parallel: int) -> Curve:
    """The rounds that lists of trials take.

    Args:
        lists: times of the trials that were asked for together and are new, in s.
        parallel: trials that are measured at once.
    """
    trials, best_s, best, count = [], [], math.inf, 0
    for times_s in lists:
        for begin in range(0, len(times_s), parallel):
            some = times_s[begin : begin + parallel]
            count, best = count + len(some), min(best, *some)
            trials.append(count)
            best_s.append(best)
    return Curve(tuple(trials), tuple(best_s))


def played(game: Game, job: Job) -> tuple[Curve, float]:
    """One search, and its CPU time per trial in ms."""
    policy = registry.load("policy", job.policy)
    budget = None
    if job.policy == "bayesian":
        policy, budget = partial(policy, patience=math.inf), max(ROUNDS) * job.parallel
    search = replace(search_of(game.space, OBJECTIVE.cost, seed=job.seed, noise=noise), parallel=job.parallel)
    lists: list[list[Trial]] = []
    begun_s = time.thread_time()
    found = dict(play(partial(_listed, policy, lists), search, game.space.look, budget))
    taken_s = time.thread_time() - begun_s
    seen: set[Trial] = set()
    fresh = []
    for asked in lists:
        new = [trial for trial in dict.fromkeys(asked) if trial not in seen and trial in found]
        seen.update(new)
        fresh.append([OBJECTIVE.cost(found[trial]) for trial in new])
    return curve_of(fresh, job.parallel), 1e3 * taken_s / max(1, len(found))


def _listed(
    policy: Policy, lists: list[list[Trial]], search: Search
) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """The policy, with every list it asks for kept."""
    generator = policy(search)
    batch = next(generator)
    while True:
        lists.append(list(batch))
        found = yield batch
        try:
            batch = generator.send(found)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def judged(job: Job) -> dict[str, Any]:
    """One search, as numbers."""
    game = games(job.where)[job.place]
    curve, search_ms = played(game, job)
    place = curve.reached(game.optimum_s)
    return {
        "space": game.name,
        "group": game.group,
        "configurations": len(game.times_s),
        "policy": job.policy,
        "parallel": job.parallel,
        "rounds": len(curve.trials),
        "trials": curve.trials[-1],
        "efficiency": 100 * curve.efficiency(game.optimum_s, len(curve.trials)),
        "after": [100 * curve.efficiency(game.optimum_s, rounds) for rounds in ROUNDS],
        "rounds_to_98": place,
        "trials_to_98": None if place is None else curve.trials[place - 1],
        "search_ms": search_ms,
    }


def rows_of(plays: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per space, policy and number of trials at once."""
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for one in plays:
        groups.setdefault((one["space"], one["policy"], one["parallel"]), []).append(one)
    return [
        {
            "space": space,
            "group": mine[0]["group"],
            "configurations": mine[0]["configurations"],
            "policy": policy,
            "parallel": parallel,
            "seeds": len(mine),
            "rounds": statistics.median(one["rounds"] for one in mine),
            "trials": statistics.median(one["trials"] for one in mine),
            **spread("efficiency", [one["efficiency"] for one in mine]),
            "after_rounds": {
                str(rounds): {
                    "median": round(float(np.median([one["after"][i] for one in mine])), 2),
                    "mean": round(float(np.mean([one["after"][i] for one in mine])), 2),
                    "worst_tenth": round(float(np.quantile([one["after"][i] for one in mine], 0.1)), 2),
                }
                for i, rounds in enumerate(ROUNDS)
            },
            "rounds_to_98": middle([one["rounds_to_98"] for one in mine]),
            "trials_to_98": middle([one["trials_to_98"] for one in mine]),
            "search_ms": round(statistics.median(one["search_ms"] for one in mine), 2),
        }
        for (space, policy, parallel), mine in groups.items()
    ]


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """Median, mean and worst tenth."""
    return {
        f"{name}_median": round(float(np.median(values)), 2),
        f"{name}_mean": round(float(np.mean(values)), 2),
        f"{name}_worst_tenth": round(float(np.quantile(values, 0.1)), 2),
    }


def middle(counts: Sequence[int | None]) -> int | None:
    """The median of counts, of which None is more than any."""
    found = statistics.median_low([math.inf if count is None else count for count in counts])
    return int(found) if math.isfinite(found) else None


def tables(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: groups of spaces, `auto` to its own end, and `bayesian` after some rounds."""
    at_once = sorted({row["parallel"] for row in rows} - {1})
    head = "".join(f" rounds × | trials × | median, % | worst tenth, % ({q} at once) |" for q in at_once)
    lines = [
        "| `auto`, to its own end | spaces | rounds | median, % | worst tenth, % |" + head,
        "|---|" + "---:|" * (4 + 4 * len(at_once)),
    ]
    for group in groups_of(rows, "auto"):
        alone = group[1]
        cells = [alone[0]["group"], str(len(alone)), f"{mean(alone, 'rounds'):.0f}", *ends(alone)]
        for q in at_once:
            less = math.exp(statistics.fmean(math.log(factor(one, group[q], "rounds")) for one in alone))
            more = math.exp(-statistics.fmean(math.log(factor(one, group[q], "trials")) for one in alone))
            cells += [f"{less:.2f} fewer", f"{more:.2f}", *ends(group[q])]
        lines.append(f"| {' | '.join(cells)} |")
    after = "/".join(map(str, ROUNDS))
    lines += [
        "",
        "| `bayesian` after "
        + after
        + " rounds | "
        + " | ".join(f"{q} at once" for q in (1, *at_once))
        + " |",
        "|---|" + "---|" * (1 + len(at_once)),
    ]
    for group in groups_of(rows, "bayesian"):
        cells = [group[1][0]["group"]]
        cells += [
            "mean "
            + "/".join(f"{mean_after(group[q], rounds, 'mean'):.1f}" for rounds in ROUNDS)
            + ", worst tenth "
            + "/".join(f"{mean_after(group[q], rounds, 'worst_tenth'):.1f}" for rounds in ROUNDS)
            for q in (1, *at_once)
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def groups_of(rows: Sequence[dict[str, Any]], policy: str) -> list[dict[int, list[dict[str, Any]]]]:
    """Rows of a policy: per group of spaces, by the number of trials at once, in the order of the spaces."""
    found: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for row in rows:
        if row["policy"] == policy:
            found.setdefault(row["group"], {}).setdefault(row["parallel"], []).append(row)
    return list(found.values())


def factor(alone: dict[str, Any], together: Sequence[dict[str, Any]], what: str) -> float:
    """How many times less a search of the same space took."""
    (same,) = (row for row in together if row["space"] == alone["space"])
    return float(alone[what] / same[what])


def ends(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Efficiency where searches ended: the median's mean over spaces, and the worst tenth's least."""
    return [
        f"{mean(rows, 'efficiency_median'):.1f}",
        f"{min(row['efficiency_worst_tenth'] for row in rows):.1f}",
    ]


def mean(rows: Sequence[dict[str, Any]], what: str) -> float:
    """Over spaces."""
    return statistics.fmean(row[what] for row in rows)


def mean_after(rows: Sequence[dict[str, Any]], rounds: int, what: str) -> float:
    """Over spaces, of the efficiency after some rounds."""
    return statistics.fmean(row["after_rounds"][str(rounds)][what] for row in rows)


def main() -> None:
    """Play, write JSON, print the tables, put them into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("spaces", nargs="*", help="folders and files of recorded spaces")
    parser.add_argument("--h200", action="store_true", help="the spaces that are shipped, too")
    parser.add_argument(
        "--groups", default="*", help="patterns of the groups of spaces that are played (all)"
    )
    parser.add_argument("--policies", default="auto,bayesian", help="searches (%(default)s)")
    parser.add_argument("--seeds", type=int, default=11, help="searches per space (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (%(default)s)")
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--show", type=Path, help="print the tables of a JSON written before; nothing else")
    parser.add_argument("--docs", type=Path, help="page to put the tables into, between the marks")
    options = parser.parse_args()
    document = json.loads(options.show.read_text()) if options.show else measured(options)
    if options.out:
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    text = tables(document["rows"])
    print(text)
    if options.docs:
        begin, end = marks(NAME)
        before, _, rest = options.docs.read_text().partition(begin)
        options.docs.write_text(f"{before}{begin}{text}{end}{rest.partition(end)[2]}")


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """All searches."""
    jobs = [
        Job(where, place, policy, parallel, seed)
        for where in [*options.spaces, *(["h200"] if options.h200 else [])]
        for place, game in enumerate(games(where))
        if len(game.times_s) > SMALL and any(fnmatch(game.group, one) for one in options.groups.split(","))
        for policy in options.policies.split(",")
        for parallel in PARALLEL
        for seed in range(options.seeds)
    ]
    os.environ.update(SETTINGS)  # read by the children when they start
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        plays = pool.map(judged, jobs, chunksize=4)
    origin = provenance()
    words = [Path(word).name if os.sep in word else word for word in sys.argv[1:]]
    origin["command"] = " ".join(["python benchmarks/parallel_search.py", *words])
    return {"provenance": origin, "rows": rows_of(plays)}


if __name__ == "__main__":
    main()
