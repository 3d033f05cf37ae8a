"""Functions of ``kernel_tuner.util``: the best of some results, and a result in one line."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuner.kernel_tuner.call_arguments import UserValue
from tuner.model.errors import InputError


def get_best_config(
    results: Sequence[Mapping[str, Any]],
    objective: str,
    objective_higher_is_better: bool = False,
) -> Mapping[str, Any]:
    """The result that is best in an objective.

    Args:
        results: of ``tune_kernel``; those that failed do not count.
        objective: a key of results.
        objective_higher_is_better: whether more is better.

    Raises:
        InputError: no result has the objective.
    """
    valid = [
        result
        for result in results
        if "__error__" not in result and isinstance(result.get(objective), int | float)
    ]
    if not valid:
        raise InputError(f"objective: no result has {objective!r}")
    return (max if objective_higher_is_better else min)(valid, key=lambda one: one[objective])


def get_config_string(
    params: Mapping[str, Any], keys: Iterable[str] | None = None, units: Mapping[str, str] | None = None
) -> str:
    """A result in one line, numbers with three decimals.

    Args:
        params: the result.
        keys: those to show; None for all.
        units: by key.
    """
    shown = params.keys() if keys is None else set(keys)
    return ", ".join(
        f"{key}={_short(value)}{(units or {}).get(key, '')}" for key, value in params.items() if key in shown
    )


def _short(value: UserValue) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
