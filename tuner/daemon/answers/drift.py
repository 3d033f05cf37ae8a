"""A served answer is measured again now and then: does it still hold?

The cost of the sample is held against the stored one. Their difference has three parts: what the answer's
cost is not known to, what the sample's is not known to, and how far trials scatter when they are repeated
later, which the run has learnt of its contenders. Each is half of a 95 % interval, and they are independent,
so that the joint one is the root of the sum of their squares. A sample outside it happens by chance, so that
a second one is made at once; only two in a row, outside on the same side, mean that the answer has drifted.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tuner.model import FlagKind, Measurement
from tuner.model.objective import COVERAGE, Objective
from tuner.model.records import measurement_from

LEAST_REPEATABILITY = 0.005
"""Relative standard deviation of a cost that is measured again on another day, at least.

What a run learns of its contenders are minutes of one day; windows of the same work on an H200, spread over
two minutes, had 0.36 to 0.49 %.
"""

_UNITS = {"time": "s", "energy": "J", "edp": "J·s", "ed2p": "J·s²"}
_EXPONENT = {"time": 1, "energy": 0, "edp": 1, "ed2p": 2}
_VOID = frozenset({FlagKind.THROTTLED, FlagKind.OFF_CLOCK})  # it was not the answer that was measured


def sample_document(
    objective: str, answer: Mapping[str, Any], record: Mapping[str, Any], at: datetime
) -> dict[str, Any]:
    """What is kept of a sample.

    Args:
        objective: the answer's, as stored.
        answer: times, joules and intervals of the answer, as the run's document has them.
        record: what was measured now, as ``tuner.model.records.measurement_record`` writes it.
        at: when.

    Returns:
        ``at``, ``verdict``, ``cost``, ``expected``, ``interval`` (half of the joint 95 % interval of their
        difference) in ``unit``, and ``told`` in words; numbers that are not there are None.

    Raises:
        StoreError: the record is no measurement.
    """
    name = objective.split(" ", 1)[0]
    measurement = measurement_from(record)
    document: dict[str, Any] = {
        "at": at.isoformat(timespec="milliseconds"),
        "unit": _UNITS[name],
        "cost": None,
        "expected": None,
        "interval": None,
    }
    if _VOID & measurement.flag_kinds:
        return document | {
            "verdict": "void",
            "told": f"not counted: {', '.join(map(str, measurement.flags))}",
        }
    if not measurement.ok:
        return document | {"verdict": "failed", "told": f"it ends with {_failures(measurement)} now"}
    expected, unsure, repeats = _stored(name, answer)
    cost = Objective(name).cost(measurement)
    if not math.isfinite(cost) or expected is None:
        return document | {"verdict": "void", "told": "not counted: a cost is missing"}
    own = COVERAGE * Objective(name).uncertainty(measurement)
    joint = math.hypot(COVERAGE * unsure, own, repeats * expected)
    verdict = "inside" if abs(cost - expected) <= joint else "above" if cost > expected else "below"
    told = (
        f"{cost:.4g} ± {own:.2g} {_UNITS[name]} on {at.date().isoformat()}, was {expected:.4g} ±"
        f" {COVERAGE * unsure:.2g} {_UNITS[name]}, a difference of up to {joint:.2g} {_UNITS[name]} is chance"
        f"{' (modelled)' if measurement.modelled else ''}"
    )
    numbers = {"cost": cost, "expected": expected, "interval": joint}
    return document | numbers | {"verdict": verdict, "told": told}


def _failures(measurement: Measurement) -> str:
    parts = {result.status.value for result in measurement.results if result.status.value != "ok"}
    return ", ".join(sorted(parts)) or "nothing measured"


def _stored(name: str, answer: Mapping[str, Any]) -> tuple[float | None, float, float]:
    """Cost of an answer, its standard uncertainty, and half the relative 95 % interval of repeating it."""
    best = answer["best"]
    exponent = _EXPONENT[name]
    time_s, time_unsure_s = best.get("time_s"), best.get("time_s_uncertainty") or 0.0
    repeatability = answer.get("repeatability") or {}
    assumed = COVERAGE * LEAST_REPEATABILITY
    time_repeats = max(repeatability.get("time_interval") or 0.0, assumed)
    if not time_s:
        return None, 0.0, 0.0
    if name == "time":
        return time_s, time_unsure_s, time_repeats
    joules, unsure_j = best.get("energy_j"), best.get("energy_j_uncertainty") or 0.0
    if not joules:
        return None, 0.0, 0.0
    repeats = math.hypot(max(repeatability.get("energy_interval") or 0.0, assumed), exponent * time_repeats)
    cost = joules * time_s**exponent
    unsure = cost * math.hypot(unsure_j / joules, exponent * time_unsure_s / time_s)
    return cost, unsure, repeats
