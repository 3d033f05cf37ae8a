"""Hypervolume per evaluation of the search for a Pareto front of time and energy.

`pareto` is one search whose two surrogates share their trials. It is held against random trials, and against
two separate searches by `bayesian`, one for time and one for energy, each of which gets half of the
evaluations. Every search is played to the same number of evaluations, from the same start.

The hypervolume is that of the logarithms of time and joules, as a share of that of the whole space. Its
reference point lies beyond the worst of the true front by a tenth of the front's extent, and by 5 % at least.
Trials are judged by their costs without noise: by the model's; of recordings by what was recorded.

The *ceiling* is the hypervolume of the true front by that of two separate searches: no search can be better
against two. What is gained of it is the ratio of the logarithms.

    python benchmarks/pareto.py --out benchmarks/results/pareto.json
    python benchmarks/pareto.py --show benchmarks/results/pareto.json

Each space has the command and the date that it was played by, also where `--add` joins results.
"""

import argparse
import itertools
import json
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from joint_spaces import SHIPPED, JointSpace, Modelled, Recorded
from numpy.typing import NDArray
from provenance import provenance
from tuner.policies.surrogate.cost_pair import reference_of
from tuner.policies.surrogate.outlook import front_of, hypervolume

import tuner
from tuner.kernel_files.catalog import Catalog
from tuner.model import registry
from tuner.model.objective import Objective
from tuner.model.trial import Trial
from tuner.space.search_view import Criterion, Policy, Search
from tuner.studies.comparison import play

TIME, ENERGY = Objective("time"), Objective("energy")
SEARCHES = ("pareto", "two searches", "random")
BUDGETS = (10, 20, 40)
_OF_A_RUN = ("command", "date")
LEAST_BOTH = 12  # evaluations of each search beyond half: the start is the same
SEEDS = 31
WITH_CLOCKS = (
    ("sim:jetson-orin", "scan-ks:N=512"),
    ("sim:v100", "tridiag-pcr:N=512"),
    ("sim:a100", "fft:N=1024"),
    ("sim:h100", "scan-lf:N=1024"),
    ("sim:h200", "tridiag-wm:N=256"),
    ("sim:jetson-tx1", "fft:N=256"),
    ("sim:k40c", "scan-lf:N=1024"),
)
RECORDED = (
    ("scan-ks:N=1024",),
    *((f"tridiag-{kernel}:N=1024",) for kernel in ("cr", "pcr", "lf")),
    ("scan-lf:N=1024", "tridiag-wm:N=512", "fft:N=1024", "scan-ks:N=256"),
    ("scan-lf:N=1024",),
    ("tridiag-wm:N=1024",),
    ("fft:N=1024",),
)
SEEN = {4, 5, 6, 12, 13, 14}  # places of the spaces that were looked at while the search was made
APPLICATIONS = Path(tuner.__file__).parent / "recordings" / "h200-applications.zip"
FOUR = (
    "streamcluster:N=262144,DIM=256,K=10",
    "particle-filter:N=8388608,H=1024,W=1024",
    "lud:N=1536",
    "hotspot:ROWS=6144,COLUMNS=6144",
)
PLACES = range(len(WITH_CLOCKS) + len(RECORDED) + 1)

Logs = Mapping[Trial, NDArray[np.float64]]


def main() -> None:
    """Play, print and write the comparison; or print one that was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--spaces", type=int, nargs="*", choices=PLACES, help="places of some; default: all")
    parser.add_argument("--add", type=Path, metavar="FILE.json", help="an earlier result, whose spaces stay")
    parser.add_argument("--show", type=Path, metavar="FILE.json", help="print a result; no play")
    options = parser.parse_args()
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs must be above zero")
    if options.show is not None:
        show(json.loads(options.show.read_text()))
        return
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    origin = provenance()
    rows = [] if options.add is None else earlier_rows(options.add, options.seeds)
    document: dict[str, Any] = {"provenance": origin, "seeds": options.seeds, "budgets": BUDGETS}
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for one in pool.imap(partial(row, seeds=options.seeds), options.spaces or PLACES):
            rows = [each for each in rows if each["space"] != one["space"]]
            rows.append({**one, "run": {key: origin[key] for key in _OF_A_RUN}})
            document |= {"summary": summary(rows), "rows": rows}
            if options.out is not None:
                options.out.write_text(json.dumps(document, indent=1) + "\n")
    show(document)


def earlier_rows(path: Path, seeds: int) -> list[dict[str, Any]]:
    """The spaces of an earlier result, each with the command and the date of its run.

    Args:
        path: of the result.
        seeds: searches of each kind; a mean over spaces is one of equal numbers of searches.

    Raises:
        SystemExit: it has other seeds or evaluations.
    """
    document = json.loads(path.read_text())
    if (document["seeds"], tuple(document["budgets"])) != (seeds, BUDGETS):
        raise SystemExit(f"{path}: has {document['seeds']} seeds and {document['budgets']} evaluations")
    run = {key: document["provenance"][key] for key in _OF_A_RUN}
    return [{"run": run, **one} for one in document["rows"]]


@lru_cache(maxsize=1)
def space_at(place: int) -> JointSpace:
    """One of the spaces."""
    if place < len(WITH_CLOCKS):
        device, spec = WITH_CLOCKS[place]
        return Modelled(device, (spec,), Catalog.load(), clocks=True)
    place -= len(WITH_CLOCKS)
    return Recorded(SHIPPED, RECORDED[place]) if place < len(RECORDED) else Recorded(APPLICATIONS, FOUR)


def row(place: int, seeds: int) -> dict[str, Any]:
    """All searches of a space.

    Args:
        place: of the space.
        seeds: searches of each kind.
    """
    space = space_at(place)
    logs = true_logs(space)
    front = front_of(np.array(list(logs.values())))
    reference = reference_of(front)
    whole = hypervolume(front, reference)
    found: dict[str, Any] = {}
    for name in SEARCHES:
        begun_s = time.process_time()
        shares = [
            [hypervolume(np.array(points[:n]), reference) / whole for n in BUDGETS]
            for points in (points_of(space, name, seed, logs) for seed in range(seeds))
        ]
        found[name] = {"shares": shares, "cpu_s": (time.process_time() - begun_s) / seeds}
    return {
        "space": space.name,
        "label": space.label,
        "clocks": place < len(WITH_CLOCKS),
        "kept_out": place not in SEEN,
        "size": len(logs),
        "front": len(front),
        "extent": {"time": float(np.exp(np.ptp(front[:, 0]))), "energy": float(np.exp(np.ptp(front[:, 1])))},
        "searches": found,
        "against_two": [_ratio(found, "two searches", i) for i in range(len(BUDGETS))],
        "against_random": [_ratio(found, "random", i) for i in range(len(BUDGETS))],
        "ceiling": [1.0 / _mean(found, "two searches", i) for i in range(len(BUDGETS))],
    }


def true_logs(space: JointSpace) -> Logs:
    """Logarithms of time and joules of every valid trial, without noise where that is known."""
    if isinstance(space, Modelled):
        costs = {
            trial: (TIME.cost(one), ENERGY.cost(one))
            for trial in space.trials(ENERGY)
            for one in (space.exact(trial),)
        }
    else:
        times, joules = space.costs(TIME), space.costs(ENERGY)
        costs = {trial: (times[trial], joules[trial]) for trial in joules}
    return {trial: np.log(both) for trial, both in costs.items()}


def points_of(space: JointSpace, name: str, seed: int, logs: Logs) -> list[NDArray[np.float64]]:
    """What a search met, in the order of its evaluations; a trial without a point is an evaluation, too."""
    search = replace(space.search(ENERGY, seed), criteria=tuple(map(_criterion, (TIME, ENERGY))))
    most = BUDGETS[-1]
    if name == "two searches":
        enough = most // 2 + LEAST_BOTH  # as trials that both ask for count once
        time_search, energy_search = (
            _played(_bayesian, replace(search, cost=one.known, noise=one.relative_uncertainty), space, enough)
            for one in (TIME, ENERGY)
        )
        both = itertools.chain.from_iterable(itertools.zip_longest(time_search, energy_search))
        trials = list(dict.fromkeys(trial for trial in both if trial is not None))
    else:
        policy = _pareto if name == "pareto" else registry.load("policy", "random")
        trials = _played(policy, search, space, most)
    beyond = np.full(2, math.inf)
    return [logs.get(trial, beyond) for trial in trials[:most]]


def _played(policy: Policy, search: Search, space: JointSpace, most: int) -> list[Trial]:
    return [trial for trial, _ in play(policy, search, lambda trial: space.look(trial, search.seed), most)]


def _bayesian(search: Search) -> Any:
    return registry.load("policy", "bayesian")(search, patience=math.inf)


def _pareto(search: Search) -> Any:
    return registry.load("front", "bayesian")(search, patience=math.inf)


def _criterion(objective: Objective) -> Criterion:
    return Criterion(objective.known, objective.relative_uncertainty)


def _mean(found: Mapping[str, Any], name: str, place: int) -> float:
    return statistics.mean(shares[place] for shares in found[name]["shares"])


def _ratio(found: Mapping[str, Any], other: str, place: int) -> float:
    return _mean(found, "pareto", place) / _mean(found, other, place)


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the spaces, with clocks, as found, and all; ratios are geometric means."""
    groups = {
        "with clocks": [one for one in rows if one["clocks"]],
        "clocks as found": [one for one in rows if not one["clocks"]],
        "kept out": [one for one in rows if one["kept_out"]],
        "all": list(rows),
    }
    return {group: _summary_of(chosen) for group, chosen in groups.items() if chosen}


def _summary_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    places = range(len(BUDGETS))
    shares = {
        name: [statistics.mean(_mean(one["searches"], name, i) for one in rows) for i in places]
        for name in SEARCHES
    }
    ratios = {
        key: [statistics.geometric_mean(one[key][i] for one in rows) for i in places]
        for key in ("against_two", "against_random", "ceiling")
    }
    gained = [math.log(ratios["against_two"][i]) / math.log(ratios["ceiling"][i]) for i in places]
    return {"shares": shares, **ratios, "gained_of_ceiling": gained}


def show(document: Mapping[str, Any]) -> None:
    """Print the table, as Markdown; ratios are after the last of the evaluations."""
    print(f"| space | trials, front | {' | '.join(SEARCHES)} | against two | ceiling | against random |")
    print("| --- " * (len(SEARCHES) + 5) + "|")
    for one in document["rows"]:
        shares = [_shares(_mean(one["searches"], name, i) for i in range(len(BUDGETS))) for name in SEARCHES]
        kind = f"{one['space']} ({one['label']})"
        print(f"| {kind} | {one['size']:,}, {one['front']} | {' | '.join((*shares, *_ratios(one)))} |")
    for group, one in document["summary"].items():
        shares = [_shares(one["shares"][name]) for name in SEARCHES]
        print(f"| mean, {group} | | {' | '.join((*shares, *_ratios(one)))} |")
    print()
    for group, one in document["summary"].items():
        print(f"gained of what could be gained, {group}: {_shares(one['gained_of_ceiling'])} %")


def _ratios(one: Mapping[str, Any]) -> list[str]:
    return [f"{one[key][-1]:.2f}" for key in ("against_two", "ceiling", "against_random")]


def _shares(values: Any) -> str:
    return " / ".join(f"{100 * value:.0f}" for value in values)


if __name__ == "__main__":
    main()
