"""Searches of several workloads that run together, on spaces of which every trial's cost is known.

Every search is played from the kernels' own defaults and from defaults drawn at random. Stated are the trials
(the default is the first; those of workloads alone are not counted), how far the best trial met lies above
the least of the space after some trials, and how many trials it takes to come within 2 % and 1 %. A trial is
judged by its cost without noise: by the model's; of recorded joules by what all other trials predict of it,
as the least of many recorded joules is low by luck.

``solo bests`` is one trial: every workload at its best alone. ``bayesian, alone`` knows what configurations
cost alone: all of a workload's, or 40 drawn at random where there are more. Spaces that were not looked at
while constants were chosen are marked as kept out.

    python benchmarks/joint_search.py --recording four.zip --out benchmarks/results/joint-search.json
    python benchmarks/joint_search.py --show benchmarks/results/joint-search.json
        --docs docs/lab/applications.md
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from greedy_recorded import predicted
from joint_recorded import Recorded
from joint_spaces import OBJECTIVES, JointSpace, spaces_of
from joint_table import table
from provenance import provenance

from tuner.model import registry
from tuner.model.errors import InputError, TunerError
from tuner.model.objective import Objective
from tuner.model.trial import Trial
from tuner.space.search_view import Search
from tuner.studies.comparison import play

SEARCHES = ("solo bests", "random", "hill-climbing", "greedy", "auto", "bayesian", "bayesian, alone")
STARTS = ("kernel defaults", "drawn at random")
BUDGETS = (10, 20, 30)
MOST = 60  # trials of a search
CLOSE = (0.02, 0.01)
SEEDS = 11


class Task(NamedTuple):
    """One row: all seeds of a search on a space.

    Attributes:
        space: its place among all.
        objective: ``time`` or ``energy``.
        start: one of ``STARTS``.
        search: one of ``SEARCHES``.
    """

    space: int
    objective: str
    start: str
    search: str


class Played(NamedTuple):
    """One search.

    Attributes:
        trials: asked for.
        above: distance of the best trial met so far from the least, after 1, 2 ... trials.
    """

    trials: int
    above: list[float]


def main(words: Sequence[str] | None = None) -> int:
    """Play, write the JSON, or put the table of one into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--recording", type=Path, action="append", default=[], metavar="FILE.zip", help="of the applications"
    )
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--show", type=Path, metavar="FILE.json", help="print the table of a result; no play")
    parser.add_argument("--docs", type=Path, help="page to put that table into, between its marks")
    options = parser.parse_args(words)
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs must be above zero")
    try:
        if options.show is not None:
            table(json.loads(options.show.read_text())["rows"], options.docs)
            return 0
        rows = played_rows(options.recording, options.seeds, options.jobs)
    except TunerError as error:
        print(f"joint_search.py: {error}", file=sys.stderr)
        return error.exit_code
    if options.out is not None:
        document = {"provenance": provenance(), "seeds": options.seeds, "most": MOST, "rows": rows}
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    table(rows, None)
    return 0


def played_rows(recordings: Sequence[Path], seeds: int, jobs: int) -> list[dict[str, Any]]:
    """All rows, space by space.

    Args:
        recordings: of applications that run together.
        seeds: searches of a row.
        jobs: processes.

    Raises:
        InputError: a recording is missing or has no workloads together.
    """
    for path in recordings:
        if not path.exists():
            raise InputError(f"--recording {path}: there is no such file")
    texts = tuple(map(str, recordings))
    tasks = [
        Task(place, objective, start, search)
        for place in range(len(_spaces(texts)))
        for objective in OBJECTIVES
        for start in STARTS
        for search in SEARCHES
    ]
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        found = pool.starmap(row, [(texts, task, seeds) for task in tasks], chunksize=len(SEARCHES))
    return [one for one in found if one is not None]


@lru_cache
def _spaces(recordings: tuple[str, ...]) -> list[JointSpace]:
    return spaces_of([Path(text) for text in recordings])


@lru_cache
def _costs(recordings: tuple[str, ...], place: int, objective: str) -> Mapping[Trial, float]:
    """What trials are judged by."""
    space = _spaces(recordings)[place]
    costs = space.costs(Objective(objective))
    if isinstance(space, Recorded) and objective == "energy":
        found = predicted(space.space, costs)
        return {trial: found[trial] for trial in costs}
    return costs


def row(recordings: tuple[str, ...], task: Task, seeds: int) -> dict[str, Any] | None:
    """One row of the result; None where there is nothing to play.

    Args:
        recordings: as given.
        task: what is played.
        seeds: searches.
    """
    space = _spaces(recordings)[task.space]
    costs = _costs(recordings, task.space, task.objective)
    found = [one for one in (_played(space, task, costs, seed) for seed in range(seeds)) if one is not None]
    if not found:
        return None
    ordered = sorted(costs.values())
    return {
        "space": space.name,
        "label": space.label,
        "kept_out": space.kept_out,
        "size": len(costs),
        "within_2_percent": sum(cost <= (1 + CLOSE[0]) * ordered[0] for cost in ordered),
        **task._asdict() | {"space": space.name},
        "searches": len(found),
        "trials": _spread([one.trials for one in found]),
        "above": {
            str(budget): _spread([one.above[min(budget, len(one.above)) - 1] for one in found])
            for budget in (*BUDGETS, MOST)
        },
        "to": {str(close): _reached(found, close) for close in CLOSE},
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "mean": statistics.mean(values),
        "deviation": statistics.pstdev(values),
        "median": statistics.median(values),
        "most": max(values),
    }


def _reached(found: Sequence[Played], close: float) -> dict[str, float | None]:
    """The median of trials until a distance is reached, and the share of searches that do in 30."""
    counts = [
        next((n for n, above in enumerate(one.above, start=1) if above <= close), math.inf) for one in found
    ]
    middle = statistics.median_low(counts)
    return {
        "trials": None if math.isinf(middle) else middle,
        "within_30": statistics.mean(count <= BUDGETS[-1] for count in counts),
    }


def _played(space: JointSpace, task: Task, costs: Mapping[Trial, float], seed: int) -> Played | None:
    objective = Objective(task.objective)
    search = space.search(objective, seed)
    if task.start == STARTS[1]:
        search = _drawn(search, seed)
    if task.search == "solo bests":
        trial = space.solo_bests(objective)
        steps = [] if trial is None else [trial]
        if trial is None or task.start == STARTS[1]:
            return None
    else:
        policy, _, alone = task.search.partition(", ")
        if alone:
            search = replace(search, prior_runs=space.alone(objective, search, seed))
            if not search.prior_runs:
                return None
        begin = Trial(search.defaults, search.clocks[0])
        played = play(registry.load("policy", policy), search, lambda trial: space.look(trial, seed), MOST)
        steps = list(dict.fromkeys([begin, *(trial for trial, _ in played)]))
    least, lowest, above = min(costs.values()), math.inf, list[float]()
    for trial in steps:
        measured = objective.known(space.look(trial, seed))
        if measured < lowest:
            lowest, best = measured, costs[trial] / least - 1
        above.append(best if above or measured < math.inf else math.inf)
    return Played(len(steps), above)


def _drawn(search: Search, seed: int) -> Search:
    """The search with default configurations drawn at random."""
    rng = random.Random(seed)  # noqa: S311 - reproducible
    return replace(search, defaults=tuple(rng.choice(found).configuration for found in search.candidates))


if __name__ == "__main__":
    sys.exit(main())
