"""Kernel Tuner's strategies, and the policy of this tuner that stands for each.

``kernel_tuner.strategies.NAME`` of scripts works too: the attribute is the name itself.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.kernel_tuner.call_arguments import UserValue
from tuner.model.errors import InputError, UnsupportedError, suggestion

POLICIES: Mapping[str, str] = {
    "brute_force": "exhaustive",
    "random_sample": "random",
    "bayes_opt": "bayesian",
    "skopt": "bayesian",
    "greedy_ils": "local",
    "greedy_mls": "local",
    "ordered_greedy_mls": "local",
    "mls": "local",
    "hybrid_vndx": "local",
    "minimize": "hill-climbing",
    "basinhopping": "hill-climbing",
    "dual_annealing": "auto",
    "simulated_annealing": "auto",
    "diff_evo": "auto",
    "genetic_algorithm": "auto",
    "pso": "auto",
    "firefly_algorithm": "auto",
    "pyatf_strategies": "auto",
    "adaptive_tabu_greywolf": "auto",
}
"""Strategy of Kernel Tuner 1.5 -> policy."""

SEVERAL_OBJECTIVES = ("nsga2", "nsga3")
_SAMPLE = 0.1  # of the space: what Kernel Tuner's random_sample takes where nothing is said
_KNOWN = ("max_fevals", "time_limit", "seed", "fraction")


@dataclass(frozen=True)
class MappedSearch:
    """Search policy with its budget and seed.

    Attributes:
        policy: of this tuner.
        budget: trials at most; None for no limit.
        fraction: of the space, where the budget follows from its size; None otherwise.
        time_limit_s: seconds at most; None for no limit.
        seed: of the policy.
    """

    policy: str
    budget: int | None = None
    fraction: float | None = None
    time_limit_s: float | None = None
    seed: int = 0

    def budget_of(self, size: int) -> int | None:
        """Trials at most in a space of so many configurations."""
        if self.budget is None and self.fraction is not None:
            return max(1, math.ceil(self.fraction * size))
        return self.budget


def search_of(strategy: UserValue, options: Mapping[str, UserValue] | None, seed: int | None) -> MappedSearch:
    """The search that stands for a strategy.

    Args:
        strategy: the name of one, or None for ``brute_force``.
        options: ``strategy_options``.
        seed: the argument ``seed``, which counts before that of the options.

    Raises:
        InputError: no such strategy, or an option that cannot be.
        UnsupportedError: a strategy of the caller's own, one for several objectives, or an option that only
            Kernel Tuner's implementation has.
    """
    name = "brute_force" if strategy is None else strategy
    if not isinstance(name, str):
        raise UnsupportedError(
            f"strategy: {type(name).__name__} objects are not supported; choose from {', '.join(POLICIES)}"
        )
    if name in SEVERAL_OBJECTIVES:
        raise UnsupportedError(f"strategy: {name!r} is not supported, as a run has one objective here")
    if name not in POLICIES:
        hint = suggestion(name, POLICIES)
        raise InputError(f"strategy: unknown strategy {name!r}; choose from {', '.join(POLICIES)}{hint}")
    given = dict(options or {})
    for option in given:
        if option not in _KNOWN or (option == "fraction" and name != "random_sample"):
            raise UnsupportedError(
                f"strategy_options[{option!r}] is not supported: {name} is searched by the policy"
                f" {POLICIES[name]} here; known are {', '.join(_KNOWN)}"
            )
    fraction = given.get("fraction", _SAMPLE if name == "random_sample" else None)
    return MappedSearch(
        policy=POLICIES[name],
        budget=_whole(given.get("max_fevals"), "max_fevals"),
        fraction=_above(fraction, "fraction"),
        time_limit_s=_above(given.get("time_limit"), "time_limit"),
        seed=_seed(given.get("seed") if seed is None else seed),
    )


def _whole(value: UserValue, name: str) -> int | None:
    if value is not None and (not isinstance(value, int) or value < 1):
        raise InputError(f"strategy_options[{name!r}]: {value!r} is not a whole number above 0")
    return value


def _above(value: UserValue, name: str) -> float | None:
    if value is not None and (not isinstance(value, int | float) or not value > 0):
        raise InputError(f"strategy_options[{name!r}]: {value!r} is not a number above 0")
    return None if value is None else float(value)


def _seed(value: UserValue) -> int:
    if value is not None and (not isinstance(value, int) or value < 0):
        raise InputError(f"seed: {value!r} is not a whole number of at least 0")
    return value or 0


def __getattr__(name: str) -> str:
    """``strategies.greedy_ils`` is ``"greedy_ils"``."""
    if name in POLICIES or name in SEVERAL_OBJECTIVES:
        return name
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
