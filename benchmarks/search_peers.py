"""Kernel Tuner's strategies, played through its own simulation runner.

Needs the extra ``search`` (``pip install '.[search]'``); nothing of it is imported before a play starts.
"""

import contextlib
import io
import json
import random
import warnings
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from search_plays import Play, Record, guarded
from search_spaces import Game, kernel_tuner_cache, key

from tuner.model.errors import InputError
from tuner.model.plan import TunableValue

DISTRIBUTION = "kernel_tuner"
MAIN = (
    *("random_sample", "simulated_annealing", "pso", "genetic_algorithm"),
    *("greedy_mls", "greedy_ils", "mls", "adaptive_tabu_greywolf", "hybrid_vndx", "bayes_opt"),
)
OTHERS = (
    *("ordered_greedy_mls", "diff_evo", "firefly_algorithm", "dual_annealing"),
    *("basinhopping", "minimize", "pyatf_strategies", "skopt", "nsga2", "nsga3"),
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


def version() -> str:
    """Of the installed Kernel Tuner.

    Raises:
        InputError: it is not installed.
    """
    try:
        return metadata.version(DISTRIBUTION)
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
