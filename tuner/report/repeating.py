"""The command that repeats a run, from the conditions that are stored with it."""

import re
import shlex
from collections.abc import Iterator

from tuner.model.errors import TunerError
from tuner.model.options import OPTIONS
from tuner.model.run_document import RunDocument, WorkloadDocument
from tuner.model.workload_name import WorkloadName
from tuner.report.ranked_trials import objective_name

_SCOPE = re.compile(r"^\w+ of (\S+)")


def repeating_command(document: RunDocument) -> str:
    """``tuner run`` with the workloads and the options that decide which trials are made.

    Limits of the search, the power reading and the window are left to the machine: they are those of its
    sensor, or of the moment.
    """
    specs = [_spec(workload) for workload in document["workloads"]]
    device = document["device"].get("spec")
    where = ["--device", device] if device else []
    return shlex.join(["tuner", "run", *specs, *where, *_options(document)])


def clocks_command(document: RunDocument) -> str:
    """``tuner run`` with the same workloads that also searches the clock, for joules as only these need it.

    A recording has no clocks but its own, so that the command is for a GPU.
    """
    objective = "energy" if objective_name(document) == "time" else objective_name(document)
    changed = document.copy()
    changed.update({"objective": objective, "clocks": "auto"})
    changed.pop("policy", None)
    changed.pop("seed", None)
    if document.get("recorded"):
        changed["device"] = {"name": document["device"]["name"]}
    return repeating_command(changed)


def _spec(workload: WorkloadDocument) -> str:
    name, batch = str(workload["name"]), workload.get("batch")
    if batch in (None, 1):
        return name
    try:
        return str(WorkloadName.parse(name).with_batch(batch))
    except TunerError:  # the name of another version, or of another program's file
        return f"{name},batch={batch}"


def _options(document: RunDocument) -> Iterator[str]:
    settings = document.get("settings") or {}
    yield from ("--objective", objective_name(document))
    scope = _SCOPE.search(str(document["objective"]))
    if scope is not None:
        yield from ("--scope", scope.group(1))
    max_slowdown = document.get("max_slowdown")
    if max_slowdown is not None:
        yield from ("--max-slowdown", f"{max_slowdown:g}")
    for name, value in (("policy", document.get("policy")), ("seed", document.get("seed"))):
        if value not in (None, OPTIONS[name].default):
            yield from (OPTIONS[name].flag, str(value))
    if document.get("clocks") not in (None, "off"):
        yield from ("--clocks", str(document["clocks"]))
    if settings.get("power_limits_w"):
        yield from ("--power-limits", ",".join(f"{watts:g}" for watts in settings["power_limits_w"]))
    numbers = (
        ("min_occupancy", settings.get("min_occupancy")),
        ("energy_precision", settings.get("energy_precision")),
        ("patience", settings.get("patience")),
    )
    for name, number in numbers:
        if number not in (None, OPTIONS[name].default):
            yield from (OPTIONS[name].flag, f"{number:g}")
    if settings.get("joules"):
        yield "--joules"
    runs = settings.get("runs")
    if runs:
        yield from ("--runs-per-day", f"{runs:g}", "--pay-back-days", "1")
