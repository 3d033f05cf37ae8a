"""Finds implementations by name, importing only what was chosen.

No file of ``tuner/`` imports ``tuner.power`` or ``tuner.policies``; they are reached through this table.
"""

import importlib
from typing import Any

from tuner.errors import UnknownNameError

TABLE: dict[str, dict[str, str]] = {
    "policy": {
        "exhaustive": "tuner.policies.exhaustive:exhaustive",
        "random": "tuner.policies.random_sampling:random_sampling",
        "greedy": "tuner.policies.greedy:greedy",
    },
    "sampler": {
        "simulated": "tuner.power.simulated:SimulatedSampler",
    },
    "readings": {
        "nvml": "tuner.power.nvml:readings",
        "ina3221": "tuner.power.ina3221:readings",
        "tegrastats": "tuner.power.tegrastats:readings",
        "jtop": "tuner.power.jtop:readings",
    },
    "clocks": {
        "automatic": "tuner.power.controls:open_control",
        "simulated": "tuner.power.simulated:SimulatedClocks",
    },
    "clock-care": {
        "restore-stale": "tuner.power.controls:restore_stale",
        "restore-all": "tuner.power.controls:restore_all",
        "reset": "tuner.power.controls:reset",
        "survey": "tuner.power.survey:survey",
        "actuators": "tuner.power.controls:actuators",
        "where": "tuner.power.actuator:Where",
        "directories": "tuner.power.journal:directories",
        "helper-answers": "tuner.power.clockd_client:helper_answers",
    },
    "nvml": {
        "health": "tuner.power.nvml_health:health",
    },
    "thermometer": {
        "automatic": "tuner.power.temperature:Thermometer",
    },
    "calibration": {
        "calibrate": "tuner.power.calibrate:calibrate",
        "load": "tuner.power.calibrations:load",
        "prepare": "tuner.power.calibrations:prepare",
        "store": "tuner.power.calibrations:store",
    },
    "trace": {
        "recorded": "tuner.power.recorded:Recorded",
        "replay": "tuner.power.replay:readings",
        "corrected": "tuner.power.response:corrected",
        "weights": "tuner.power.response:energy_weights_s",
        "age": "tuner.power.response:age_s",
    },
    "meter": {
        "sampling": "tuner.power.meter:SamplingMeter",
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
