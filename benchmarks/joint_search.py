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
from joint_spaces import OBJECTIVES, JointSpace, Recorded, spaces_of
from provenance import provenance
from show_applications import marked

from tuner.model import registry
from tuner.model.errors import InputError, TunerError
from tuner.model.objective import Objective
from tuner.model.trial import Trial
from tuner.space.search_view import Search
from tuner.studies.comparison import play

# --- the table, put into a page without modelled spaces --------------------------------------------

MARKER = "joint"
RECORDED = "recorded"  # the label of what a GPU has run
_SHOWN_STARTS = ("kernel defaults", "drawn at random")
_SHOWN_AFTER = ("10", "20", "30")
HEAD = (
    *("space", "for", "search", "trials: median (most)", "to 2 %", "to 1 %"),
    *("% above the least after 10", "20", "30", "from drawn defaults: after 10", "20", "30"),
    "within 2 % in 30",
)
Row = Mapping[str, Any]


def table(rows: Sequence[Row], page: Path | None) -> None:
    """Print the table, and put its recorded spaces between the marks of a page where one is given.

    Args:
        rows: of the result.
        page: Markdown, with the lines of ``MARKER``.

    Raises:
        SystemExit: the page has no such lines.
    """
    print("\n".join(_lines(rows)))
    if page is not None:
        text = "\n".join(_lines([row for row in rows if row["label"] == RECORDED]))
        page.write_text(marked(page.read_text(), MARKER, text, page))


def _lines(rows: Sequence[Row]) -> list[str]:
    """A line for every space, objective and search; columns for both starts."""
    lines = [_line(HEAD), _line(["---"] * len(HEAD))]
    found: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        kept_out = ", kept out" if row["kept_out"] else ""
        space = f"{row['space']} ({row['label']}{kept_out})"
        found.setdefault((space, row["objective"], row["search"]), {})[row["start"]] = row
    before = ("", "")
    for (space, objective, search), by_start in found.items():
        shown = ["" if space == before[0] else space, "" if (space, objective) == before else objective]
        before = space, objective
        name = search if search == "solo bests" else f"`{search}`"
        lines.append(_line([*shown, name, *_cells(*map(by_start.get, _SHOWN_STARTS))]))
    return lines


def _cells(defaults: Row | None, drawn: Row | None) -> list[str]:
    """The numbers of a search from both starts; solo bests have no drawn ones."""
    first = drawn if defaults is None else defaults
    if first is None:
        raise ValueError("a search without a row")
    shares = [f"{100 * row['to']['0.02']['within_30']:.0f} %" for row in (defaults, drawn) if row is not None]
    return [
        f"{first['trials']['median']:g} ({first['trials']['most']:g})",
        *(
            "–" if first["to"][close]["trials"] is None else f"{first['to'][close]['trials']:g}"
            for close in ("0.02", "0.01")
        ),
        *(_above(defaults, budget) for budget in _SHOWN_AFTER),
        *(_above(drawn, budget) for budget in _SHOWN_AFTER),
        ", ".join(shares),
    ]


def _above(row: Row | None, budget: str) -> str:
    if row is None:
        return "–"
    spread = row["above"][budget]
    return f"{100 * spread['mean']:.2f} ± {100 * spread['deviation']:.2f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


# --- the command -----------------------------------------------------------------------------------

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
