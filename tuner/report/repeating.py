"""The command that repeats a run, from the conditions that are stored with it."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.errors import TunerError
from tuner.model import WorkloadName
from tuner.options import OPTIONS
from tuner.report.ranked_trials import objective_name

_SCOPE = re.compile(r"^\w+ of (\S+)")


def repeating_command(document: Mapping[str, Any]) -> str:
    """``tuner run`` with the workloads and the options that decide which trials are made.

    Limits of the search, the power reading and the window are left to the machine: they are those of its
    sensor, or of the moment.
    """
    specs = [_spec(workload) for workload in document["workloads"]]
    device = document["device"].get("spec")
    where = ["--device", device] if device else []
    return shlex.join(["tuner", "run", *specs, *where, *_options(document)])


def clocks_command(document: Mapping[str, Any]) -> str:
    """``tuner run`` with the same workloads that also searches the clock, for joules as only these need it.

    A recording has no clocks but its own, so that the command is for a GPU.
    """
    device = dict(document["device"])
    if document.get("recorded"):
        device["spec"] = None
    objective = objective_name(document)
    changed = {"device": device, "clocks": "auto", "policy": None, "seed": None}
    changed["objective"] = "energy" if objective == "time" else objective
    return repeating_command({**document, **changed})


def _spec(workload: Mapping[str, Any]) -> str:
    name, batch = str(workload["name"]), workload.get("batch")
    if batch in (None, 1):
        return name
    try:
        return str(WorkloadName.parse(name).with_batch(batch))
    except TunerError:  # the name of another version, or of another program's file
        return f"{name},batch={batch}"


def _options(document: Mapping[str, Any]) -> Iterator[str]:
    settings: Mapping[str, Any] = document.get("settings") or {}
    yield from ("--objective", objective_name(document))
    scope = _SCOPE.search(str(document["objective"]))
    if scope is not None:
        yield from ("--scope", scope.group(1))
    if document.get("max_slowdown") is not None:
        yield from ("--max-slowdown", f"{document['max_slowdown']:g}")
    for name in ("policy", "seed"):
        if document.get(name) not in (None, OPTIONS[name].default):
            yield from (OPTIONS[name].flag, str(document[name]))
    if document.get("clocks") not in (None, "off"):
        yield from ("--clocks", str(document["clocks"]))
    if settings.get("power_limits_w"):
        yield from ("--power-limits", ",".join(f"{watts:g}" for watts in settings["power_limits_w"]))
    for name in ("min_occupancy", "energy_precision", "patience"):
        if settings.get(name) not in (None, OPTIONS[name].default):
            yield from (OPTIONS[name].flag, f"{settings[name]:g}")
    if settings.get("joules"):
        yield "--joules"
    if settings.get("runs"):
        yield from ("--runs-per-day", f"{settings['runs']:g}", "--pay-back-days", "1")
