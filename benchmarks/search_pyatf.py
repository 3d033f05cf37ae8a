"""pyATF's search techniques, played on recorded spaces through its own tuner.

Needs the extra ``search`` (``pip install '.[search]'``); nothing of it is imported before a play starts.
"""

import contextlib
import inspect
import io
import math
import random
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

from search_peers import Legal
from search_plays import Play, Record, guarded
from search_spaces import Game, key

from tuner.model.errors import InputError
from tuner.model.plan import TunableValue

DISTRIBUTION = "pyatf"
# Name in tables -> class. `PatternSearch` and `Torczon` are not played alone: they close in on one point and
# ask for nothing new after some evaluations (4 to 14). `RoundRobin` and `AUCBandit` take turns with them.
TECHNIQUES = {
    "pyatf:random": "Random",
    "pyatf:simulated_annealing": "SimulatedAnnealing",
    "pyatf:differential_evolution": "DifferentialEvolution",
    "pyatf:round_robin": "RoundRobin",
    "pyatf:auc_bandit": "AUCBandit",
}


def version() -> str:
    """Of the installed pyATF.

    Raises:
        InputError: it is not installed.
    """
    try:
        return metadata.version(DISTRIBUTION)
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
        return guarded(record, seed, lambda: _tune(game, record, space, TECHNIQUES[name]))


def _tune(game: Game, record: Record, space: Any, technique: str) -> None:
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
