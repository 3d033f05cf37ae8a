"""Trials as the results of Kernel Tuner: one dict per configuration, times in milliseconds."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from tuner.kernel_tuner.objectives import Aim, Metrics, with_metrics
from tuner.kernel_tuner.parameters import PLACEHOLDER
from tuner.model.device import DeviceIdentity
from tuner.model.plan import Configuration, TunableValue
from tuner.model.trial import Measurement, Status

MS = 1e3  # milliseconds of a second

ERROR_OF: Mapping[Status, str] = {
    Status.COMPILE_ERROR: "CompilationFailedConfig",
    Status.LAUNCH_ERROR: "RuntimeFailedConfig",
    Status.TIMEOUT: "RuntimeFailedConfig",
    Status.CRASHED: "RuntimeFailedConfig",
    Status.WRONG_ANSWER: "ErrorConfig",
    Status.PRUNED: "InvalidConfig",
}
"""How a trial failed -> Kernel Tuner's text for it; it has none for wrong answers, which end its runs."""

Row = dict[str, Any]


def row_of(
    configuration: Mapping[str, TunableValue], measurement: Measurement, metrics: Metrics | None
) -> Row:
    """The result of a trial.

    ``time`` is the median time of a run in ms, and the only one of ``times``; ``time_uncertainty`` is its
    standard uncertainty in ms; ``energy`` joules of a run and ``power`` watts, where they were measured.

    Raises:
        InputError: a metric has no value.
    """
    row = params_of(configuration)
    if not measurement.ok or measurement.makespan_s is None:
        result = measurement.results[0]
        return failed_row(configuration, ERROR_OF.get(result.status, "RuntimeFailedConfig"), result.detail)
    time_ms = measurement.makespan_s * MS
    row |= {
        "time": time_ms,
        "times": [time_ms],
        "time_uncertainty": measurement.makespan_uncertainty_s * MS,
    }
    energy = measurement.energy
    if energy is not None:
        seconds = measurement.makespan_s
        row |= {
            "energy": energy.joules,
            "energy_uncertainty": energy.uncertainty_j,
            "power": energy.watts,
            "edp": energy.joules * seconds,
            "ed2p": energy.joules * seconds**2,
        }
    with_metrics(row, metrics)
    return row | _spent(measurement)


def failed_row(configuration: Mapping[str, TunableValue], error: str, detail: str = "") -> Row:
    """The result of a configuration that failed: no ``time``, Kernel Tuner's text under ``__error__``."""
    row = params_of(configuration) | {"__error__": error}
    if detail:
        row["error_detail"] = detail
    return row | _spent(None)


def params_of(configuration: Mapping[str, TunableValue]) -> Row:
    """The parameters of a configuration, without what stands for none."""
    return {name: value for name, value in configuration.items() if name != PLACEHOLDER}


def dropped_rows(
    space: Iterable[Configuration], known: Iterable[Mapping[str, Any]], errors: Sequence[str]
) -> list[Row]:
    """Results of the configurations that were ruled out before they ran.

    Args:
        space: all that the restrictions allow.
        known: configurations that are no such: those measured, and candidates.
        errors: messages of the compiler, which name the configuration they are of.
    """
    seen = {frozenset(params_of(one).items()) for one in known}
    rows = []
    for configuration in space:
        if frozenset(params_of(configuration).items()) not in seen:
            message = next((text for text in errors if f"[{configuration}]" in text), "")
            rows.append(
                failed_row(configuration, "CompilationFailedConfig" if message else "InvalidConfig", message)
            )
    return rows


def best_of(rows: Sequence[Row], aim: Aim) -> Row | None:
    """The result that is best in the objective; None where all failed."""
    row = min(rows, key=aim.cost, default=None)
    return None if row is None or aim.cost(row) == float("inf") else row


def environment(device: DeviceIdentity, options: Sequence[str], wall_s: float) -> dict[str, Any]:
    """What was tuned on: names, versions, and the wall-clock time of the run in ms."""
    return {
        "device_name": device.name,
        "device": device.spec,
        "uuid": device.uuid,
        "driver_version": device.driver,
        "nvrtc_version": device.runtime,
        "modelled": device.modelled,
        "compiler_options": list(options),
        "wall_time": wall_s * MS,
    }


def _spent(measurement: Measurement | None) -> Row:
    """Milliseconds spent on one configuration. Compiling goes on beside the measuring: none is its own."""
    return {
        "compile_time": 0.0,
        "verification_time": 0.0 if measurement is None else measurement.check_s * MS,
        "benchmark_time": 0.0 if measurement is None else measurement.window_s * MS,
        "strategy_time": 0.0,
        "framework_time": 0.0,
        "timestamp": str(datetime.now(timezone.utc)),
    }
