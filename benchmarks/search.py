"""Our policies side by side with Kernel Tuner's strategies and pyATF's techniques, on recorded spaces.

Every space was measured completely, so a search can be replayed without a GPU. One evaluation is one
configuration not tried before; one that failed counts. The score is the median over seeds of
100 x optimum / best found after some numbers of evaluations; their mean and worst tenth are told, too. Kernel
Tuner plays through its own simulation runner, pyATF through its own tuner, both with the defaults of their
strategies. Searches that were played are kept and not played again. search_replay.py checks the scores by a
loop of its own.

    pip install '.[search]'
    python benchmarks/search.py FOLDER_OR_FILES... [--h200] --out benchmarks/results/search.json --jobs 2
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import search_peers
import search_pyatf
from platformdirs import user_cache_path
from provenance import provenance
from search_plays import Play, play_policy
from search_scores import Result, brief, marks, plot, result_of, row_of, tables
from search_spaces import Game, games_of
from search_store import Store, Task, peer_version, policy_version

from tuner.model import registry
from tuner.model.errors import InputError, TunerError

POLICIES = ("random", "local", "hill-climbing", "bayesian", "auto")
BUDGETS = (20, 50, 100, 200)
SEEDS = 31
OTHER_SEEDS = 11  # of Kernel Tuner's strategies beyond those of the main table
SETTINGS = {  # of the processes that play: one thread, and the same order of sets in every one
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "PYTHONHASHSEED": "0",
}
TOLD_EVERY_S = 20.0
PACKAGES = ("kernel_tuner", "pyatf", "scikit-learn", "pymoo", "python-constraint2")


def main() -> int:
    """Play what was not played yet, print the tables, write JSON and picture."""
    options = _options()
    try:
        return _run(options)
    except TunerError as error:
        print(f"search.py: {error}", file=sys.stderr)
        return 2


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("spaces", nargs="*", help="folders and files of recorded spaces")
    parser.add_argument("--h200", action="store_true", help="the spaces that are shipped, too")
    parser.add_argument("--policies", default=",".join(POLICIES), help="ours, or none (%(default)s)")
    parser.add_argument(
        "--strategies",
        default="main",
        help="main or all of Kernel Tuner's, pyatf, none, or names; several with commas (%(default)s)",
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="searches per space (%(default)s)")
    parser.add_argument(
        "--seeds-of",
        type=_fewer,
        action="append",
        default=[],
        metavar="GROUP/SEARCH=N",
        help="fewer where a pattern such as 'h200*/*' fits; more than once",
    )
    parser.add_argument(
        "--budgets", type=_counts, default=BUDGETS, help="evaluations, e.g. 20,50 (20,50,100,200)"
    )
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--over", type=Path, help="JSON written before: rows not played now are kept from it")
    parser.add_argument("--plot", type=Path, help="picture to write (needs the extra plot)")
    parser.add_argument("--show", type=Path, help="print the tables of a JSON written before; nothing else")
    parser.add_argument(
        "--docs", type=Path, help="page to put the brief tables into, between the marks of the JSON"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes (%(default)s)")
    parser.add_argument(
        "--kept",
        type=Path,
        default=user_cache_path("tuner") / "searches",
        help="folder of plays (%(default)s)",
    )
    return parser.parse_args()


def _counts(text: str) -> tuple[int, ...]:
    """``20,50`` as numbers above 0."""
    found = tuple(map(int, text.split(",")))
    if min(found) < 1:
        raise ValueError(text)
    return found


def _fewer(text: str) -> tuple[str, int]:
    """``PATTERN=N`` as both."""
    pattern, _, count = text.rpartition("=")
    return pattern, int(count)


def _run(options: argparse.Namespace) -> int:
    if options.show:
        _show(json.loads(options.show.read_text())["rows"], options.plot, options.docs, options.show.stem)
        return 0
    games = {
        (where, place): game
        for where in [*options.spaces, *(["h200"] if options.h200 else [])]
        for place, game in enumerate(games_of(where))
    }
    searchers = _searchers(options)
    if not games:
        raise InputError("no spaces: name a folder or files of recorded spaces, or give --h200")
    with tempfile.TemporaryDirectory() as folder:
        wanted = {
            Task(*at, name, ours, seed, max(options.budgets), folder): game
            for at, game in games.items()
            for name, ours in searchers
            for seed in range(_seeds(name, ours, game, options.seeds, options.seeds_of))
        }
        store = Store(options.kept)
        missing = [task for task, game in wanted.items() if store.get(game, task) is None]
        for task, play in _played(missing, options.jobs):
            store.put(wanted[task], task, play)
    rows = [row_of(result) for result in _results(wanted, store, options.budgets)]
    before = json.loads(options.over.read_text()) if options.over else {"rows": [], "provenance": {}}
    versions = {row["search"]: policy_version(row["search"]) for row in rows if row["ours"]}
    rows = _over(before["rows"], rows)
    if options.out:
        options.out.write_text(_document(rows, versions, before["provenance"]))
    _show(rows, options.plot, options.docs, options.out.stem if options.out else "")
    return 0


def _over(before: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of before, with those played now in their places, and new ones after them."""

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["space"], row["search"], row["ours"]

    played = {key(row): row for row in rows}
    kept = [played.pop(key(row), row) for row in before]
    return [*kept, *played.values()]


def _show(rows: Sequence[dict[str, Any]], picture: Path | None, page: Path | None, name: str) -> None:
    """Print the tables, put brief ones into a page, draw the picture: all of what the JSON holds."""
    results = [result_of(row) for row in rows]
    print(tables(results))
    if page:
        begin, end = marks(name)
        before, _, rest = page.read_text().partition(begin)
        page.write_text(f"{before}{begin}{brief(results)}{end}{rest.partition(end)[2]}")
    if picture:
        plot(results, picture)


def _searchers(options: argparse.Namespace) -> list[tuple[str, bool]]:
    """Names, and whether they are ours."""
    words = {
        "main": search_peers.MAIN,
        "all": (*search_peers.MAIN, *search_peers.OTHERS),
        "pyatf": tuple(search_pyatf.TECHNIQUES),
        "none": (),
    }
    theirs = [name for word in options.strategies.split(",") for name in words.get(word, (word,))]
    for name in theirs:
        peer_version(name)
    ours = () if options.policies == "none" else tuple(options.policies.split(","))
    for name in ours:
        registry.load("policy", name)
    return [*((name, True) for name in ours), *((name, False) for name in theirs)]


def _seeds(searcher: str, ours: bool, game: Game, seeds: int, fewer: list[tuple[str, int]]) -> int:
    beyond = OTHER_SEEDS if not ours and searcher in search_peers.OTHERS else seeds
    fitting = [count for pattern, count in fewer if fnmatch(f"{game.group}/{searcher}", pattern)]
    return min(seeds, beyond, *fitting)


def _played(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, Play]]:
    """Play in processes of their own, one thread each, with a line of progress."""
    if not tasks:
        return
    os.environ.update(SETTINGS)  # read by the children when they start
    started_s = told_s = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for number, found in enumerate(pool.imap_unordered(_solved, tasks), start=1):
            yield found
            now_s = time.monotonic()
            if now_s - told_s > TOLD_EVERY_S or number == len(tasks):
                told_s = now_s
                left_s = (now_s - started_s) / number * (len(tasks) - number)
                print(f"{number} of {len(tasks)} searches, {left_s / 60:.0f} min left", file=sys.stderr)


def _solved(task: Task) -> tuple[Task, Play]:
    """In a child: one search."""
    game = _games(task.where)[task.place]
    if task.ours:
        return task, play_policy(game, task.searcher, task.seed, task.budget)
    if task.searcher in search_pyatf.TECHNIQUES:
        space = _pyatf_space(task.where, task.place)
        return task, search_pyatf.play_technique(
            game, task.searcher, space=space, seed=task.seed, budget=task.budget
        )
    cache = search_peers.write_cache(game, Path(task.folder))
    legal = _legal(task.where, task.place)
    return task, search_peers.play_strategy(
        game, task.searcher, cache=cache, legal=legal, seed=task.seed, budget=task.budget
    )


_games = lru_cache(games_of)


@lru_cache
def _legal(where: str, place: int) -> search_peers.Legal:
    return search_peers.legal_of(_games(where)[place])


@lru_cache
def _pyatf_space(where: str, place: int) -> Any:
    return search_pyatf.search_space(_games(where)[place], _legal(where, place))


def _results(wanted: dict[Task, Game], store: Store, budgets: Sequence[int]) -> list[Result]:
    """Plays gathered by space and searcher, in the order they were asked for."""
    found: dict[tuple[str, int, str, bool], Result] = {}
    for task, game in wanted.items():
        play = store.get(game, task)
        at = (task.where, task.place, task.searcher, task.ours)
        if play is None:
            continue
        if at not in found:
            size = len(game.times_s)
            found[at] = Result(
                space=game.name,
                group=game.group,
                size=size,
                optimum_s=game.optimum_s,
                searcher=task.searcher,
                ours=task.ours,
                plays=(),
                budgets=tuple(budgets),
            )
        found[at] = replace(found[at], plays=(*found[at].plays, play))
    return list(found.values())


def _document(rows: Sequence[dict[str, Any]], versions: dict[str, str], before: dict[str, Any]) -> str:
    """The JSON, a line per space and search.

    Args:
        rows: of all searches.
        versions: of the policies played now.
        before: origin of the rows that were not; empty where all were.
    """
    origin = provenance()
    origin["command"] = " ".join(["python benchmarks/search.py", *map(_nameless, sys.argv[1:])])
    origin["packages"] |= {name: found for name in PACKAGES if (found := _version(name))}
    origin["policies"] = versions
    if before:
        origin["rows_kept"] = before
    head = {"provenance": origin, "score": "median over seeds of optimum / best found (mean, worst tenth)"}
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    return f'{json.dumps(head, indent=1)[:-2]},\n "rows": [\n{lines}\n]}}\n'


def _nameless(word: str) -> str:
    """An argument without the directories of the machine it was given on."""
    return Path(word).name if Path(word).exists() else word


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
