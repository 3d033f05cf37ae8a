"""Our policies side by side with Kernel Tuner's strategies and pyATF's techniques, on recorded spaces.

Every space was measured completely, so a search can be replayed without a GPU. One evaluation is one
configuration not tried before; one that failed counts. The score is the median over seeds of
100 x optimum / best found after some numbers of evaluations; their mean and worst tenth are told, too. Kernel
Tuner plays through its own simulation runner, pyATF through its own tuner, both with the defaults of their
strategies.

    pip install '.[search]'
    python benchmarks/search.py FOLDER_OR_FILES... [--h200] --out benchmarks/results/search.json --jobs 2
"""

import argparse
import contextlib
import inspect
import io
import json
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from provenance import command_line, provenance
from search_games import (
    FAILING,
    Game,
    Play,
    Record,
    games_of,
    guarded,
    kernel_tuner_cache,
    key,
    play_policy,
    with_failures,
)
from search_scores import (
    Result,
    against_random,
    brief,
    expected_of_random,
    marks,
    plot,
    result_of,
    row_of,
    scored,
    tables,
)
from trait_beliefs import believed, family_of
from tuner.policies.surrogate import features, joint, learner

from tuner.model import registry
from tuner.model.errors import InputError, TunerError
from tuner.model.plan import TunableValue

# --- Kernel Tuner's strategies, played through its own simulation runner --------------------------

KERNEL_TUNER = "kernel_tuner"
STRATEGIES = (
    *("random_sample", "simulated_annealing", "pso", "genetic_algorithm"),
    *("greedy_mls", "greedy_ils", "mls", "adaptive_tabu_greywolf", "hybrid_vndx", "bayes_opt"),
)


class Legal:
    """The configurations a space holds, and which partial ones lead to any of them.

    Args:
        names: the tunables, in the order of a configuration's values.
        configurations: the legal ones.
    """

    def __init__(self, names: Iterable[str], configurations: Iterable[tuple[TunableValue, ...]]) -> None:
        self._names = tuple(names)
        self._all = frozenset(configurations)
        self._parts: dict[tuple[str, ...], frozenset[tuple[TunableValue, ...]]] = {}

    def __call__(self, *values: TunableValue) -> bool:
        """Whether this is a configuration of the space."""
        return values in self._all

    def leads_on(self, assigned: dict[str, TunableValue]) -> bool:
        """Whether a configuration has these values."""
        names = tuple(name for name in self._names if name in assigned)
        if names not in self._parts:
            places = [self._names.index(name) for name in names]
            self._parts[names] = frozenset(tuple(one[p] for p in places) for one in self._all)
        return tuple(assigned[name] for name in names) in self._parts[names]


def kernel_tuner_version() -> str:
    """Of the installed Kernel Tuner.

    Raises:
        InputError: it is not installed.
    """
    try:
        return metadata.version(KERNEL_TUNER)
    except metadata.PackageNotFoundError as error:
        raise InputError(
            "Kernel Tuner is not installed: pip install '.[search]', or give --strategies none"
        ) from error


def write_cache(game: Game, folder: Path) -> Path:
    """Write a space as a cache file, once."""
    path = folder / f"{game.digest}.json"
    if not path.exists():
        draft = path.with_suffix(".part")
        draft.write_text(json.dumps(kernel_tuner_cache(game), separators=(",", ":")))
        draft.replace(path)
    return path


def legal_of(game: Game) -> Legal:
    """The configurations of a space."""
    return Legal(game.tunables, (game.values(trial) for trial in game.space.trials))


def play_strategy(game: Game, strategy: str, *, cache: Path, legal: Legal, seed: int, budget: int) -> Play:
    """Play a strategy with its default options, in simulation mode over a cache file.

    Args:
        game: the space.
        strategy: Kernel Tuner's name.
        cache: the space's cache file.
        legal: its configurations.
        seed: of Python's and numpy's random numbers, which the strategies draw from.
        budget: ``max_fevals``: configurations not tried before, failed ones counted.
    """
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the strategies draw from numpy's global generator
    record = Record(game.times_s, budget)
    options = {
        "restrictions": [_constraint(legal)],
        "strategy": strategy,
        "strategy_options": {"max_fevals": budget},
        "cache": str(cache),
        "seed": seed,
    }
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return guarded(record, seed, lambda: _tune(game, record, options))


def _tune(game: Game, record: Record, options: dict[str, Any]) -> None:
    import kernel_tuner  # noqa: PLC0415 - an extra
    from kernel_tuner.runners import simulation  # noqa: PLC0415 - an extra

    with mock.patch.object(simulation, "SimulationRunner", _recording(simulation.SimulationRunner, record)):
        kernel_tuner.tune_kernel(
            game.name,
            "",
            (1,),
            [],
            game.tunables,
            lang="CUDA",
            simulation_mode=True,
            quiet=True,
            **options,
        )


def _recording(base: Any, record: Record) -> type:
    """The simulation runner, with what it is asked for put on record."""

    class Recording(base):  # type: ignore[misc]
        def run(self, parameter_space: Any, tuning_options: Any) -> Any:
            elements = list(parameter_space)
            record.asked([key(tuple(element)) for element in elements])
            try:
                return super().run(elements, tuning_options)
            finally:
                record.answered()

    return Recording


def _constraint(legal: Legal) -> Any:
    """The legal configurations as a constraint that Kernel Tuner's solver can prune by.

    A plain function is asked only when all values are chosen: hopeless where the product of the value lists
    is 10^10.
    """
    from constraint import FunctionConstraint  # noqa: PLC0415 - comes with Kernel Tuner

    class Allowed(FunctionConstraint):  # type: ignore[misc]
        def __call__(self, _variables: Any, _domains: Any, assignments: Any, *_: Any) -> bool:
            return legal.leads_on(assignments)

        def __deepcopy__(self, _: Any) -> "Allowed":
            return self  # Kernel Tuner copies restrictions four times per run

    return Allowed(legal)


# --- pyATF's search techniques, played on recorded spaces through its own tuner -------------------

PYATF = "pyatf"
# Name in tables -> class. `PatternSearch` and `Torczon` are not played alone: they close in on one point and
# ask for nothing new after some evaluations (4 to 14). `RoundRobin` and `AUCBandit` take turns with them.
TECHNIQUES = {
    "pyatf:random": "Random",
    "pyatf:simulated_annealing": "SimulatedAnnealing",
    "pyatf:differential_evolution": "DifferentialEvolution",
    "pyatf:round_robin": "RoundRobin",
    "pyatf:auc_bandit": "AUCBandit",
}


def pyatf_version() -> str:
    """Of the installed pyATF.

    Raises:
        InputError: it is not installed.
    """
    try:
        return metadata.version(PYATF)
    except metadata.PackageNotFoundError as error:
        raise InputError(
            "pyATF is not installed: pip install '.[search]', or leave pyatf out of --strategies"
        ) from error


def play_technique(game: Game, name: str, *, space: Any, seed: int, budget: int) -> Play:
    """Play a technique with its default options.

    Args:
        game: the space.
        name: one of ``TECHNIQUES``.
        space: the same as pyATF has it.
        seed: of Python's random numbers, which the techniques draw from.
        budget: configurations not tried before, failed ones counted.
    """
    record = Record(game.times_s, min(budget, len(game.times_s)))
    random.seed(seed)
    with contextlib.redirect_stdout(io.StringIO()):
        return guarded(record, seed, lambda: _tuned_by_pyatf(game, record, space, TECHNIQUES[name]))


def _tuned_by_pyatf(game: Game, record: Record, space: Any, technique: str) -> None:
    from pyatf import Tuner, search_techniques  # noqa: PLC0415 - an extra
    from pyatf.tuning_data import CostFunctionError  # noqa: PLC0415 - an extra

    def cost_ms(configuration: dict[str, TunableValue]) -> float:
        chosen = key([configuration[name] for name in game.tunables])
        record.asked([chosen])
        time_s = game.times_s[chosen]
        record.answered()
        if math.isinf(time_s):
            raise CostFunctionError("failed when it was recorded")
        return 1e3 * time_s

    tuner = Tuner().search_space(space).search_technique(getattr(search_techniques, technique)()).verbosity(0)
    while not record.full:
        tuner.make_step(cost_ms)


def search_space(game: Game, legal: Legal) -> Any:
    """A space as pyATF has it: a tree, in which values hang below those that they are legal with.

    Args:
        game: the space.
        legal: its configurations.
    """
    from pyatf import TP, Set  # noqa: PLC0415 - an extra
    from pyatf.search_space import SearchSpace  # noqa: PLC0415 - an extra

    names = list(game.tunables)
    parameters = [
        TP(name, Set(*game.tunables[name]), constraint(legal, names[: place + 1]))
        for place, name in enumerate(names)
    ]
    return SearchSpace(*parameters, verbosity=0)


def constraint(legal: Legal, names: Sequence[str]) -> Callable[..., bool]:
    """Whether some legal configuration has given values.

    Args:
        legal: the configurations.
        names: tunables that have values; pyATF reads them from the signature.
    """

    def leads_on(**values: TunableValue) -> bool:
        return legal.leads_on(values)

    kind = inspect.Parameter.KEYWORD_ONLY
    leads_on.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    return leads_on


# --- searches to play -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """One search to play: a space (by where it was read and its place there), a searcher, a seed."""

    where: str
    place: int
    searcher: str
    ours: bool
    seed: int
    budgets: tuple[int, ...]
    folder: str
    ends: bool
    family_out: bool
    failing: str


def peer_version(name: str) -> str:
    """Version of the package that a search of others is from.

    Raises:
        InputError: it is not installed.
    """
    return pyatf_version() if name in TECHNIQUES else kernel_tuner_version()


# --- the command -----------------------------------------------------------------------------------

POLICIES = ("random", "local", "hill-climbing", "bayesian", "auto")
BUDGETS = (20, 50, 100, 200)
SEEDS = 31
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
    parser = command_line(__doc__)
    parser.add_argument("spaces", nargs="*", help="folders and files of recorded spaces")
    parser.add_argument("--h200", action="store_true", help="the spaces that are shipped, too")
    parser.add_argument("--policies", default=",".join(POLICIES), help="ours, or none (%(default)s)")
    parser.add_argument(
        "--strategies",
        default="main",
        help="main of Kernel Tuner's, pyatf, none, or names; several with commas (%(default)s)",
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="searches per space (%(default)s)")
    parser.add_argument(
        "--budgets",
        type=lambda text: tuple(map(int, text.split(","))),
        default=BUDGETS,
        help="evaluations after which searches are scored, the largest last (20,50,100,200)",
    )
    parser.add_argument("--ends", action="store_true", help="let ours end by themselves, before the budget")
    parser.add_argument(
        "--family-out",
        action="store_true",
        help="group spaces by families of kernels, believe of traits what other families tell, and compare"
        " with what random draws are expected to reach",
    )
    parser.add_argument(
        "--failing", choices=FAILING, default="", help="let a third of every space fail: ours only"
    )
    parser.add_argument("--plot", type=Path, help="picture to write (needs the extra plot)")
    parser.add_argument("--show", type=Path, help="print the tables of a JSON written before; nothing else")
    parser.add_argument(
        "--docs", type=Path, help="page to put the brief tables into, between the marks of the JSON"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes (%(default)s)")
    return parser.parse_args()


def _run(options: argparse.Namespace) -> int:
    if options.show:
        _show(json.loads(options.show.read_text())["rows"], options.plot, options.docs, options.show.stem)
        return 0
    games = {
        (where, place): game
        for where in [*options.spaces, *(["h200"] if options.h200 else [])]
        for place, game in enumerate(games_of(where))
        if not options.family_out or len(game.space.workloads) == 1
    }
    if options.family_out:
        games = {at: replace(game, group=family_of(game)) for at, game in games.items()}
    if options.failing:
        games = {at: with_failures(game, options.failing) for at, game in games.items()}
    searchers = _searchers(options)
    if not games:
        raise InputError("no spaces: name a folder or files of recorded spaces, or give --h200")
    altered = options.ends, options.family_out, options.failing
    with tempfile.TemporaryDirectory() as folder:
        wanted = {
            Task(*at, name, ours, seed, options.budgets, folder, *altered): game
            for at, game in games.items()
            for name, ours in searchers
            for seed in range(options.seeds)
        }
        plays = dict(_played(list(wanted), options.jobs))
    rows = [row_of(result) for result in _results(wanted, plays)]
    if options.family_out:
        times_s = {game.name: [*game.times_s.values()] for game in games.values()}
        for row in rows:
            expected = [expected_of_random(times_s[row["space"]], n) for n in row["budgets"]]
            row["random"] = [round(each, 5) for each in expected]
    if options.out:
        options.out.write_text(_document(rows))
    _show(rows, options.plot, options.docs, options.out.stem if options.out else "")
    if options.family_out:
        print(against_random(rows))
    return 0


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
        "main": STRATEGIES,
        "pyatf": tuple(TECHNIQUES),
        "none": (),
    }
    theirs = [name for word in options.strategies.split(",") for name in words.get(word, (word,))]
    for name in theirs:
        peer_version(name)
    ours = () if options.policies == "none" else tuple(options.policies.split(","))
    for name in ours:
        registry.load("policy", name)
    return [*((name, True) for name in ours), *((name, False) for name in theirs)]


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
    if task.failing:
        game = with_failures(game, task.failing)
    budget = max(task.budgets)
    if task.ours:
        with _other_families(game) if task.family_out else contextlib.nullcontext():
            return task, play_policy(game, task.searcher, task.seed, budget, ends=task.ends)
    if task.searcher in TECHNIQUES:
        space = _pyatf_space(task.where, task.place)
        return task, play_technique(game, task.searcher, space=space, seed=task.seed, budget=budget)
    cache = write_cache(game, Path(task.folder))
    legal = _legal(task.where, task.place)
    return task, play_strategy(game, task.searcher, cache=cache, legal=legal, seed=task.seed, budget=budget)


@contextlib.contextmanager
def _other_families(game: Game) -> Iterator[None]:
    """Beliefs about traits by all families of kernels but that of a space."""
    document = json.loads(features.FILE.read_text())
    others = {name: one for name, one in document["families"].items() if name != family_of(game)}
    found = features.beliefs_of(document | {"traits": believed(others)})
    with contextlib.ExitStack() as stack:
        for module in (joint, learner):
            stack.enter_context(mock.patch.object(module, "beliefs", return_value=found))
        yield


_games = lru_cache(games_of)


@lru_cache
def _legal(where: str, place: int) -> Legal:
    return legal_of(_games(where)[place])


@lru_cache
def _pyatf_space(where: str, place: int) -> Any:
    return search_space(_games(where)[place], _legal(where, place))


def _results(wanted: dict[Task, Game], plays: dict[Task, Play]) -> list[Result]:
    """Plays gathered by space and searcher, in the order they were asked for."""
    found: dict[tuple[str, int, str, bool], tuple[Game, list[Play]]] = {}
    for task, game in wanted.items():
        at = (task.where, task.place, task.searcher, task.ours)
        found.setdefault(at, (game, []))[1].append(plays[task])
    return [
        scored(game, searcher, played, next(iter(plays)).budgets, ours=ours)
        for (_, _, searcher, ours), (game, played) in found.items()
    ]


def _document(rows: Sequence[dict[str, Any]]) -> str:
    """The JSON, a line per space and search."""
    origin = provenance()
    origin["command"] = " ".join(["python benchmarks/search.py", *map(_nameless, sys.argv[1:])])
    origin["packages"] |= {name: found for name in PACKAGES if (found := _version(name))}
    head = {"provenance": origin, "score": "median over seeds of optimum / best found (mean, worst tenth)"}
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    return f'{json.dumps(head, indent=1)[:-2]},\n "rows": [\n{lines}\n]}}\n'


def _nameless(word: str) -> str:
    """An argument without the directories of the machine it was given on."""
    return Path(word).name if os.sep in word else word


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
