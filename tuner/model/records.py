"""Trials and measurements as JSON values and back: the form of the database and of ``--json``."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tuner.errors import StoreError
from tuner.model import Configuration, Energy, Flag, Measurement, Status, Trial, WorkloadResult

Record = dict[str, Any]


def canonical(document: object) -> str:
    """JSON text that is the same for equal documents."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(document: object) -> str:
    """SHA-256 of the canonical JSON text."""
    return hashlib.sha256(canonical(document).encode()).hexdigest()


def trial_record(trial: Trial, workloads: Sequence[str]) -> Record:
    """A trial as ``{"configurations": {workload: {...}}, "clock_mhz": int | None}``."""
    return {
        "configurations": {
            name: dict(configuration)
            for name, configuration in zip(workloads, trial.configurations, strict=True)
        },
        "clock_mhz": trial.clock_mhz,
    }


def trial_from(record: Mapping[str, Any], workloads: Sequence[str]) -> Trial:
    """The trial of a record.

    Raises:
        StoreError: the record lacks one of the workloads.
    """
    try:
        configurations = tuple(Configuration(record["configurations"][name]) for name in workloads)
        return Trial(configurations, record["clock_mhz"])
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"a stored trial is not readable: {error!r}") from error


def measurement_record(measurement: Measurement) -> Record:
    """A measurement as a JSON object, complete: ``measurement_from`` gives an equal one."""
    record = asdict(measurement)
    for result in record["results"]:
        result["status"] = Status(result["status"]).value
    record["results"] = list(record["results"])
    record["bursts"] = record.pop("repeats")
    record["flags"] = [str(flag) for flag in measurement.flags]
    return record


def measurement_from(record: Mapping[str, Any]) -> Measurement:
    """The measurement of a record.

    Raises:
        StoreError: the record was not made by ``measurement_record``.
    """
    try:
        fields = dict(record)
        fields["results"] = tuple(
            WorkloadResult(**{**result, "status": Status(result["status"])}) for result in fields["results"]
        )
        fields["energy"] = None if fields["energy"] is None else Energy(**fields["energy"])
        fields["flags"] = tuple(map(Flag.parse, fields["flags"]))
        fields["repeats"] = fields.pop("bursts", 1)
        return Measurement(**fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"a stored measurement is not readable: {error!r}") from error
