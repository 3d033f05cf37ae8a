"""Objectives and metrics: what is searched for, and what is computed from every result."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.kernel_tuner.parameters import UserValue, called, evaluated, number, parsed
from tuner.model.errors import ExpressionError, InputError, UnsupportedError

HIGHER_IS_BETTER: Mapping[str, bool] = {
    "time": False,
    "energy": False,
    "fitness": True,
    "cost": False,
    "loss": False,
    "GFLOP/s": True,
    "TFLOP/s": True,
    "GB/s": True,
    "TB/s": True,
    "GFLOPS/W": True,
    "TFLOPS/W": True,
    "GFLOP/J": True,
    "TFLOP/J": True,
}
"""What Kernel Tuner assumes where ``objective_higher_is_better`` is not given."""

_NATIVE = ("time", "energy", "edp", "ed2p")  # what this tuner minimises by itself
_JOULES = ("energy", "power", "edp", "ed2p")  # of a result, beside the time

Metrics = Mapping[str, Any]


@dataclass(frozen=True)
class Aim:
    """What the best configuration is best in.

    Attributes:
        key: of a result.
        higher: whether more is better.
        objective: of the search: time or energy where the key is a metric.
        joules: whether joules are measured.
    """

    key: str
    higher: bool
    objective: str
    joules: bool

    @property
    def is_metric(self) -> bool:
        """True where the search cannot minimise the key itself: every trial is then measured to its end."""
        return self.key != self.objective

    def cost(self, row: Mapping[str, Any]) -> float:
        """What a result costs, infinity for one that failed."""
        value = row.get(self.key)
        if "__error__" in row or not isinstance(value, int | float) or not math.isfinite(value):
            return math.inf
        return -value if self.higher else value


def aim_of(
    objective: UserValue,
    higher_is_better: UserValue,
    objectives: UserValue,
    metrics: Metrics | None,
) -> Aim:
    """The aim of ``objective``, ``objective_higher_is_better`` and ``objectives``.

    Raises:
        InputError: it is neither measured nor a metric, or nobody says whether more is better.
        UnsupportedError: there are several.
    """
    check_metrics(metrics)
    if objectives is not None:
        if not isinstance(objectives, Mapping):
            raise InputError("objectives: must be a dict of objective -> whether higher is better")
        objective, higher_is_better = list(objectives), list(objectives.values())
    key = _only(objective or "time", "objectives" if objectives is not None else "objective")
    higher = _only(higher_is_better, "objective_higher_is_better")
    joules = key in _JOULES or any(map(_needs_joules, (metrics or {}).values()))
    if key in _NATIVE:
        if higher:
            raise InputError(f"objective_higher_is_better: less {key} is better")
        return Aim(key, higher=False, objective=key, joules=joules)
    if key not in (metrics or {}):
        raise InputError(
            f"objective: {key!r} is not measured; choose from {', '.join(_NATIVE)} or one of metrics"
            " (observers are not supported)"
        )
    if higher is None and key not in HIGHER_IS_BETTER:
        raise InputError(f"objective_higher_is_better: say whether more is better for the objective {key!r}")
    better = HIGHER_IS_BETTER[key] if higher is None else bool(higher)
    return Aim(key, better, "energy" if joules else "time", joules)


def check_metrics(metrics: Metrics | None) -> None:
    """See that metrics are texts or functions by name.

    Raises:
        InputError: they are not.
    """
    if metrics is None:
        return
    if not isinstance(metrics, Mapping):
        raise InputError("metrics: must be a dict, whose order is that of computing them")
    for name, metric in metrics.items():
        if not isinstance(metric, str) and not callable(metric):
            raise InputError(f"metrics[{name!r}]: must be a text or a function, not {metric!r}")
        if isinstance(metric, str):
            try:
                parsed(metric)
            except ExpressionError as error:
                raise InputError(
                    f"metrics[{name!r}]: {error}; a function of the result may stand there"
                ) from error


def with_metrics(row: dict[str, Any], metrics: Metrics | None) -> dict[str, Any]:
    """A result with its metrics, each of which may use those before it.

    Raises:
        InputError: one has no value; the message names it.
    """
    for name, metric in (metrics or {}).items():
        argument = f"metrics[{name!r}]"
        value = called(metric, argument, row) if callable(metric) else evaluated(metric, row, argument)
        row[name] = number(value, argument)
    return row


def _only(given: UserValue, argument: str) -> UserValue:
    if not isinstance(given, list | tuple):
        return given
    if len(given) != 1:
        raise UnsupportedError(f"{argument}: {len(given)} objectives are not supported; a run has one here")
    return given[0]


def _needs_joules(metric: UserValue) -> bool:
    if isinstance(metric, str):
        return not parsed(metric).names.isdisjoint(_JOULES)
    return not set(_JOULES).isdisjoint(getattr(getattr(metric, "__code__", None), "co_consts", ()))
