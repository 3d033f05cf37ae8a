"""Finds what users choose by name, policies and power readings, importing only what was chosen."""

import importlib
from typing import Any

from tuner.model.errors import UnknownNameError

TABLE: dict[str, dict[str, str]] = {
    "policy": {
        "exhaustive": "tuner.policies.independent:exhaustive",
        "random": "tuner.policies.independent:random_sampling",
        "greedy": "tuner.policies.greedy:greedy",
        "auto": "tuner.policies.auto:auto",
        "analytical": "tuner.policies.analytical:analytical",
        "bayesian": "tuner.policies.bayesian:bayesian",
        "hill-climbing": "tuner.policies.local:hill_climbing",
        "local": "tuner.policies.local:local",
    },
    "front": {
        "auto": "tuner.policies.pareto:pareto",
        "bayesian": "tuner.policies.pareto:pareto",
        "exhaustive": "tuner.policies.independent:exhaustive",
        "random": "tuner.policies.independent:random_sampling",
    },
    "readings": {
        "nvml": "tuner.power.nvml.power_readings:readings",
        "ina3221": "tuner.power.sensors.jetson:monitor_readings",
        "tegrastats": "tuner.power.sensors.jetson:tegrastats_readings",
        "jtop": "tuner.power.sensors.jtop:readings",
        "hwmon": "tuner.power.sensors.hwmon:readings",
        "powercap": "tuner.power.sensors.powercap:readings",
    },
}


def names(kind: str) -> tuple[str, ...]:
    """Names known for a kind of implementation."""
    return tuple(TABLE[kind])


def load(kind: str, name: str) -> Any:  # noqa: ANN401 - the caller knows the interface of the kind
    """Import and return the implementation called ``name``.

    Raises:
        UnknownNameError: the kind has no such name; the message lists those it has.
        ImportError: a package the implementation needs is not installed.
    """
    try:
        target = TABLE[kind][name]
    except KeyError:
        raise UnknownNameError(f"unknown {kind} {name!r}; choose from {', '.join(names(kind))}") from None
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
