"""Functions of ``kernel_tuner.file_utils``: results and the machine as files of the T4 format."""

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.kernel_tuner.trial_results import plain
from tuner.recordings.exchange.t1_t4 import SCHEMA_VERSION
from tuner.system.ownership import open_result

_TIMES = {
    "compilation": "compile_time",
    "benchmark": "benchmark_time",
    "framework": "framework_time",
    "search_algorithm": "strategy_time",
    "validation": "verification_time",
}
_INVALIDITY = {
    "CompilationFailedConfig": "compile",
    "RuntimeFailedConfig": "runtime",
    "InvalidConfig": "constraints",
    "ErrorConfig": "correctness",
}
_UNITS = {"energy": "J", "energy_uncertainty": "J", "power": "W", "edp": "J s", "ed2p": "J s^2"}
_UNITS |= {"clock_mhz": "MHz", "temperature_c": "°C"}
_OTHER = ("timestamp", "times", "__error__", "error_detail")


def store_output_file(
    output_filename: str | Path,
    results: Sequence[Mapping[str, Any]],
    tune_params: Mapping[str, Any],
    objective: str = "time",
) -> None:
    """Write results of ``tune_kernel`` as a T4 file.

    Args:
        output_filename: ``.json`` is appended where it is missing.
        results: of ``tune_kernel``.
        tune_params: as given to it.
        objective: as given to it.
    """
    document = {
        "results": [_t4_result(result, tune_params, objective) for result in results],
        "schema_version": SCHEMA_VERSION,
        "metadata": {"timeunit": "milliseconds"},
    }
    _write(output_filename, document)


def store_metadata_file(metadata_filename: str | Path) -> None:
    """Write what Python tells of the machine as a T4 metadata file.

    Args:
        metadata_filename: ``.json`` is appended where it is missing.
    """
    machine = {"processor": platform.machine(), "node": platform.node()}
    document = {
        "metadata": {"operating_system": platform.system(), "hardware": {"hardware_description": machine}},
        "schema_version": SCHEMA_VERSION,
    }
    _write(metadata_filename, document)


def _t4_result(row: Mapping[str, Any], tune_params: Mapping[str, Any], objective: str) -> dict[str, Any]:
    left_out = {*tune_params, *_TIMES.values(), *_OTHER}
    invalidity = _INVALIDITY.get(row.get("__error__", ""), "correct")
    result = {
        "configuration": {name: value for name, value in row.items() if name in tune_params},
        "times": {
            **{name: row.get(key, 0.0) for name, key in _TIMES.items()},
            "runtimes": row.get("times", []),
        },
        "invalidity": invalidity,
        "correctness": int(invalidity != "correctness"),
        "measurements": [
            {"name": key, "value": value, "unit": "ms" if key.startswith("time") else _UNITS.get(key, "")}
            for key, value in row.items()
            if key not in left_out
        ],
        "objectives": [objective],
    }
    return result | ({"timestamp": row["timestamp"]} if "timestamp" in row else {})


def _write(name: str | Path, document: Mapping[str, Any]) -> None:
    path = Path(name)
    path = path if path.suffix == ".json" else path.with_name(f"{path.name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_result(path, "w") as file:
        file.write(json.dumps(document, default=plain))
