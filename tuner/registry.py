"""Finds implementations by name, importing only what was chosen.

No file of ``tuner/`` imports ``tuner.power`` or ``tuner.policies``; they are reached through this table.
"""

import importlib
from typing import Any

from tuner.errors import UnknownNameError

TABLE: dict[str, dict[str, str]] = {
    "policy": {
        "exhaustive": "tuner.policies.sampling:exhaustive",
        "random": "tuner.policies.sampling:random_sampling",
        "greedy": "tuner.policies.greedy:greedy",
        "auto": "tuner.policies.auto:auto",
        "analytical": "tuner.policies.analytical:analytical",
        "bayesian": "tuner.policies.bayesian:bayesian",
        "hill-climbing": "tuner.policies.hill_climbing:hill_climbing",
        "local": "tuner.policies.local:local",
    },
    "explain": {
        "choose": "tuner.policies.analytical:choose",
        "missing": "tuner.policies.analytical:missing",
    },
    "sampler": {
        "simulated": "tuner.power.sensors.simulated:SimulatedSampler",
    },
    "readings": {
        "nvml": "tuner.power.nvml.readings:readings",
        "ina3221": "tuner.power.sensors.ina3221:readings",
        "tegrastats": "tuner.power.sensors.tegrastats:readings",
        "jtop": "tuner.power.sensors.jtop:readings",
    },
    "clocks": {
        "automatic": "tuner.power.clocks.controls:open_control",
        "simulated": "tuner.power.sensors.simulated:SimulatedClocks",
    },
    "clock-care": {
        "restore-stale": "tuner.power.clocks.controls:restore_stale",
        "restore-all": "tuner.power.clocks.controls:restore_all",
        "reset": "tuner.power.clocks.controls:reset",
        "survey": "tuner.power.clocks.survey:survey",
        "actuators": "tuner.power.clocks.controls:actuators",
        "where": "tuner.power.clocks.actuator:ClockPaths",
        "directories": "tuner.power.clocks.journal:directories",
        "helper-answers": "tuner.power.clocks.clockd_client:helper_answers",
    },
    "nvml": {
        "health": "tuner.power.nvml.health:health",
        "users": "tuner.power.nvml.health:GpuUsers",
    },
    "load": {
        "jetson": "tuner.power.clocks.devfreq:load_percent",
    },
    "thermometer": {
        "automatic": "tuner.power.nvml.health:Thermometer",
    },
    "calibration": {
        "calibrate": "tuner.power.response.calibrate:calibrate",
        "load": "tuner.power.response.calibrations:load",
        "prepare": "tuner.power.response.calibrations:prepare",
        "store": "tuner.power.response.calibrations:store",
    },
    "trace": {
        "recorded": "tuner.power.sensors.recorded:TraceFile",
        "replay": "tuner.power.sensors.replay:readings",
        "energies": "tuner.power.energy.programs:program_energies",
        "corrected": "tuner.power.energy.programs:corrected_power",
        "running": "tuner.power.energy.totals:RunningEnergy",
    },
    "meter": {
        "sampling": "tuner.power.energy.meter:SamplingMeter",
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
