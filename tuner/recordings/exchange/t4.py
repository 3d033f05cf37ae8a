"""T4, the results format of the autotuning community (schema 1.0.0), and files of other tools told apart."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from tuner.model.errors import InputError
from tuner.model.plan import TunableValue
from tuner.model.trial import Measurement, Status, WorkloadResult
from tuner.recordings import checking
from tuner.recordings.checking import Fields
from tuner.recordings.exchange.exported_run import ExportedRun, ExportedTrial, milliseconds
from tuner.recordings.exchange.t1 import is_t1
from tuner.recordings.other_tuners import (
    axis_sizes,
    closed_json,
    measurement,
    one_workload,
    packed_text,
    read_cache,
)
from tuner.recordings.values import RecordedSpace
from tuner.system.untrusted.reading import load_json

SCHEMA_VERSION = "1.0.0"
INVALIDITY = {
    Status.OK: "correct",
    Status.COMPILE_ERROR: "compile",
    Status.LAUNCH_ERROR: "runtime",
    Status.CRASHED: "runtime",
    Status.WRONG_ANSWER: "correctness",
    Status.TIMEOUT: "timeout",
    Status.PRUNED: "constraints",
}
_STATUS = {
    "correct": Status.OK,
    "compile": Status.COMPILE_ERROR,
    "runtime": Status.LAUNCH_ERROR,
    "correctness": Status.WRONG_ANSWER,
    "timeout": Status.TIMEOUT,
    "constraints": Status.LAUNCH_ERROR,
}
_UNITS_S = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "microseconds": 1e-6} | {
    "miliseconds": 1e-3,  # so spelt in public files
    "ns": 1e-9,
    "nanoseconds": 1e-9,
}
_MS_S = 1e-3
_CONSTRAINTS = "constraints"


def is_t4(document: object) -> bool:
    """Return True if a JSON value looks like T4 results."""
    results = document.get("results") if isinstance(document, Mapping) else None
    return isinstance(results, list) and all(
        isinstance(result, Mapping) and "configuration" in result for result in results
    )


class _Measured(TypedDict):
    name: str
    value: float
    unit: str


class _Result(TypedDict):
    configuration: dict[str, TunableValue]
    objectives: list[str]
    times: dict[str, list[float]]
    invalidity: str
    correctness: int
    measurements: list[_Measured]


class _Metadata(TypedDict):
    timeunit: str
    device_name: str
    kernel_name: str
    problem_size: list[int]


class Results(TypedDict):
    """A T4 document as it is written."""

    schema_version: str
    metadata: _Metadata
    results: list[_Result]


def results_of(run: ExportedRun) -> Results:
    """A run as a T4 document. Joules, their uncertainty and clocks are measurements."""
    return {
        "schema_version": SCHEMA_VERSION,
        "metadata": {
            "timeunit": "milliseconds",
            "device_name": run.device,
            "kernel_name": " + ".join(run.kernels),
            "problem_size": list(run.problem_size),
        },
        "results": [_result(run, trial) for trial in run.trials],
    }


def _result(run: ExportedRun, trial: ExportedTrial) -> _Result:
    measured = [] if trial.time_s is None else [_measured("time", milliseconds(trial.time_s), "ms")]
    if trial.energy_j is not None:
        measured.append(_measured("energy", trial.energy_j, "J"))
        measured.append(_measured("energy_uncertainty", trial.energy_uncertainty_j, "J"))
    if trial.clock_mhz is not None:
        measured.append(_measured("gpu_clock", trial.clock_mhz, "MHz"))
    if trial.power_limit_w is not None:
        measured.append(_measured("power_limit", trial.power_limit_w, "W"))
    limited = trial.status is Status.LAUNCH_ERROR and trial.detail == _CONSTRAINTS
    return {
        "configuration": run.parameters(trial),
        "objectives": ["time" if len(run.workloads) > 1 else run.objective],
        "times": {} if trial.time_s is None else {"runtimes": [milliseconds(trial.time_s)]},
        "invalidity": _CONSTRAINTS if limited else INVALIDITY[trial.status],
        "correctness": 1 if trial.status is Status.OK else 0,
        "measurements": measured,
    }


def _measured(name: str, value: float, unit: str) -> _Measured:
    return {"name": name, "value": value, "unit": unit}


def space_of_t4(document: object, name: str) -> RecordedSpace:
    """A T4 document as a recorded space. Joules are not read: their uncertainty has no place in the format.

    Args:
        document: the JSON value.
        name: of the kernel, where the document has none.

    Raises:
        ValueError: something in it is wrong; the message names the result and the key.
    """
    fields = Fields(document, "T4 file")
    metadata = fields.get("metadata") or {}
    unit = metadata.get("timeunit", "milliseconds") if isinstance(metadata, Mapping) else ""
    if not isinstance(unit, str) or unit not in _UNITS_S:
        raise ValueError(
            f"metadata.timeunit is {checking.shown(unit)}; expected one of {', '.join(_UNITS_S)}"
        )
    results = [Fields(each, f"results[{i}]") for i, each in enumerate(fields.entries("results"))]
    read = [_read(result, _UNITS_S[unit]) for result in results]
    names = list(dict.fromkeys(key for values, _ in read for key in values))
    for i, (values, _) in enumerate(read):
        if set(values) != set(names):
            raise ValueError(f"results[{i}].configuration has no {', '.join(set(names) - set(values))}")
    tunables = {key: tuple(dict.fromkeys(values[key] for values, _ in read)) for key in names}
    kernel = str(metadata.get("kernel_name") or name)
    return one_workload(
        name=kernel,
        kernel=kernel,
        device=str(metadata.get("device_name") or "unknown GPU"),
        sizes=axis_sizes(metadata.get("problem_size")),
        tunables=tunables,
        rows=[(tuple(values[key] for key in names), gave) for values, gave in read],
        provenance={"tuner": "T4 results", "file": name},
    )


def _read(result: Fields, unit_s: float) -> tuple[dict[str, TunableValue], Measurement]:
    configuration = result.fields("configuration")
    values = {name: configuration.value(name, checking.VALUE) for name in configuration}
    invalidity = result.value("invalidity", checking.one_of(list(_STATUS)))
    status = _STATUS[invalidity]
    if status is not Status.OK:
        return values, Measurement((WorkloadResult(status, detail=invalidity),))
    times = result.fields("times")
    runtimes = times.get("runtimes") or []
    if not isinstance(runtimes, list) or not all(map(checking.POSITIVE.accepts, runtimes)):
        raise ValueError(f"{times.where}: runtimes is {checking.shown(runtimes)}; expected times above zero")
    time_s = _time_measured(result, unit_s)
    if time_s is None and not runtimes:
        raise ValueError(
            f"{result.where}: a correct result needs times.runtimes, or a measurement called time"
        )
    mean = math.fsum(runtimes) / max(1, len(runtimes))
    spread = math.dist(runtimes, [mean] * len(runtimes)) / math.sqrt(max(1, len(runtimes) - 1))
    time_ms = (mean * unit_s if time_s is None else time_s) / _MS_S
    window_ms = math.fsum(runtimes) * unit_s / _MS_S
    return values, measurement("ok", time_ms, spread * unit_s / _MS_S, len(runtimes), window_ms=window_ms)


def _time_measured(result: Fields, unit_s: float) -> float | None:
    """The measurement called ``time`` in seconds; None where there is none."""
    for each in [] if result.get("measurements") is None else result.entries("measurements"):
        if (
            isinstance(each, Mapping)
            and each.get("name") == "time"
            and checking.NUMBER.accepts(each.get("value"))
        ):
            value = Fields(each, f"{result.where}.measurements").value("value", checking.POSITIVE)
            return float(value) * _UNITS_S.get(str(each.get("unit") or ""), unit_s)
    return None


# --- Files of other tools, told by what is in them.

_KNOWN = "a T1 input, T4 results, or a cache of Kernel Tuner"


class ForeignFile(NamedTuple):
    """A file of another tool.

    Attributes:
        kind: ``t1``, or what it is a recording of, in words.
        document: the JSON value.
        space: what it recorded; None of a T1 file.
        cut_off: whether its end was missing and has been added.
    """

    kind: str
    document: Any
    space: RecordedSpace | None
    cut_off: bool = False


def read_foreign(path: Path) -> ForeignFile:
    """Read a file of another tool.

    Raises:
        InputError: it cannot be read, or is none that is known; the message names the key.
    """
    try:
        path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        text = packed_text(path)
        document = closed_json(text)
        if is_t1(document):
            return ForeignFile("t1", load_json(text), None)
        if is_t4(document):
            return ForeignFile("T4 results", document, space_of_t4(document, path.name.partition(".")[0]))
    except (ValueError, RecursionError, OverflowError) as error:
        raise InputError(f"{path}: {_KNOWN} is expected: {error}") from error
    if isinstance(document, dict) and "cache" in document:
        return ForeignFile("cache of Kernel Tuner", document, read_cache(path), _is_cut_off(text))
    if isinstance(document, dict) and any(
        "BLOCK_SIZE_M" in one for one in document.values() if isinstance(one, dict)
    ):
        raise InputError(
            f"{path}: is a fused-MoE file of vLLM or SGLang, which has no times to import; a kernel file"
            " takes one of its configurations as [default]"
        )
    raise InputError(f"{path}: neither {_KNOWN.replace('a T1', 'T1')}; what it holds is not known")


def _is_cut_off(text: str) -> bool:
    try:
        load_json(text)
    except ValueError:
        return True
    return False
