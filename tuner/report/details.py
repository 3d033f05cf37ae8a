"""Details that ``--verbose`` adds to a report, and the command that repeats a run."""

import re
import shlex
from collections.abc import Iterator

from tuner.model.errors import TunerError
from tuner.model.options import OPTIONS
from tuner.model.records import WorkloadName
from tuner.model.run_document import (
    PowerLimitPoint,
    ProgramDocument,
    RunDocument,
    ScatterDocument,
    TrialDocument,
    WallDocument,
    WorkloadDocument,
    placing,
    program_of,
)
from tuner.model.units import half_percent, percent, significant, with_uncertainty
from tuner.report.clock_curve import ratio_columns
from tuner.report.layout import label
from tuner.report.rows import ENERGY, TUNING_ENERGY, Column, Table, interval
from tuner.report.trials_table import objective_name, same

_NOTABLE = 0.001  # of the tuning cost


def detail_lines(document: RunDocument) -> Iterator[str]:
    """Sentences on an answer and on the run that found it; stored answers of old lack some."""
    if document["best"] is not None:
        yield from _solo_bests(document)
        yield from _repeatability(document)
        yield from _scatter(document)
        yield from _net(document["best"], document["default"])
        yield from _parts(document)
        if document["best"].get("sensor"):
            seen = f"{document['best']['sensor']}, scope {document['best'].get('scope')}"
            yield f"energy: {seen}; intervals are 95 %, the sensor's gain apart"
    yield from _search(document)
    yield from _wall(document)


def _solo_bests(document: RunDocument) -> Iterator[str]:
    """The runs that the solo bests are of."""
    runs = document.get("solo_best_runs") or {}
    if runs:
        priorities = document.get("solo_best_priorities")
        placed = placing(document.get("settings") or {})
        at = "" if priorities is None else f"; measured at {priorities['tried']} combinations of {placed}"
        yield f"solo bests: {', '.join(f'{name} of run {run}' for name, run in runs.items())}{at}"


def _repeatability(document: RunDocument) -> Iterator[str]:
    again = document.get("repeatability")
    if again is None:
        return
    for name, half in (("energy", again.get("energy_interval")), ("time", again.get("time_interval"))):
        if half:
            yield (
                f"trials repeat to ± {half_percent(half)} in {name} (95 %{label(document, ', {}')}):"
                f" {again.get('trials', 0)} contenders, measured again after the search, turn by turn"
            )


def _scatter(document: RunDocument) -> Iterator[str]:
    """Yield a sentence on the scatter between windows, which every interval of joules includes."""
    scatter = document.get("window_scatter")
    if scatter is not None:
        how = "assumed: too few repeats tell" if scatter["assumed"] else "learnt from the contenders"
        yield (
            "± of joules covers minutes: windows of one trial scatter by"
            f" ± {100 * scatter['energy_interval']:.2g} % (95 %, {how}{label(document, ', {}')})"
            f"{_drift(scatter)}"
        )


def _drift(scatter: ScatterDocument) -> str:
    """Return words on the remaining warming of the GPU; empty for older answers, which lack it."""
    drift = scatter.get("drift_interval")
    return "" if not drift else f", of which ± {100 * drift:.2g} % for what the GPU may still warm by"


def _net(best: TrialDocument, default: TrialDocument | None) -> Iterator[str]:
    net_j = best.get("energy_net_j")
    if net_j is None:
        return
    net = with_uncertainty(net_j, interval(best.get("energy_net_j_uncertainty")), "J")
    idle = with_uncertainty(best.get("idle_w"), interval(best.get("idle_w_uncertainty")), "W")
    before = default.get("energy_net_j") if default is not None else None
    change = ""
    if before is not None and before > 0 and not same(best, default):
        change = f", {percent(net_j / before - 1)} against the default"
    yield f"net of idle ({idle} at its clock): {net} per round{change}"


def _parts(document: RunDocument) -> Iterator[str]:
    """Each workload's time against that in the default, and its rate per watt, whose joules are a share."""
    for workload in document["workloads"]:
        best, default = workload["best"], workload["default"]
        words = []
        before = None if default is None else default["time_s"]
        now = None if best is None else best["time_s"]
        if len(document["workloads"]) > 1 and before and now:
            words.append(f"{percent(now / before - 1)} time against the default")
        per_watt = None if best is None else best.get("rate_per_watt")
        if per_watt is not None:
            words.append(f"{significant(per_watt)} {workload.get('rate_name', '')}/W (modelled)")
        if workload.get("work_assumed") and not document["modelled"]:  # a notice says that of models
            words.append("its kernel file states no [work]: every array is taken to move once")
        if words:
            yield f"{workload['name']}: {', '.join(words)}"


def _search(document: RunDocument) -> Iterator[str]:
    space = document["space"]
    count = space.get("failed") or 0
    failed = f"; {count:,} trial{'s' if count > 1 else ''} failed" if count else ""
    if document.get("policy") is not None:
        yield f"policy: {document['policy']}{failed}"
    unseen = [
        f"{workload['space']['uncompiled']:,} of {workload['name']}"
        for workload in document["workloads"]
        if workload["space"].get("uncompiled")
    ]
    if unseen:
        yield f"not looked at, so not compiled or only ahead: {', '.join(unseen)}"


def _wall(document: RunDocument) -> Iterator[str]:
    wall = document.get("wall")
    if wall is None:
        return
    if document.get("recorded"):
        yield _replayed(document, wall)
        return
    joules, modelled = document.get("tuning_energy_j"), label(document, " ({})")
    spent = "" if joules is None else f"{TUNING_ENERGY.text(document)}{modelled}, "
    yield (
        f"tuning cost: {spent}{document.get('wall_s', 0.0):,.1f} s:"
        f" preparing and compiling {wall['prepare_s']:,.1f} s, searching {wall['search_s']:,.1f} s"
    )
    unseen = document.get("tuning_energy_unseen")
    if joules is not None and unseen and unseen["energy_j"] > _NOTABLE * joules:
        yield (
            f"of the tuning cost {ENERGY.text(unseen)} in {unseen['time_s']:,.1f} s were not seen by a"
            f" sample: pauses count as idle{modelled}"
        )
    yield f"measuring windows {wall['windows_s']:,.1f} s, answer checks {wall['checks_s']:,.1f} s{modelled}"


def _replayed(document: RunDocument, wall: WallDocument) -> str:
    """Return the cost of the trials when they were recorded, and the time of replaying them."""
    spent = ""
    if document.get("tuning_energy_j") is not None:
        energy = TUNING_ENERGY.text(document)
        spent = f" and {energy}, which include answer checks, warm-up and idle power around them"
    return (
        f"tuning cost ({label(document)}): windows of {wall['windows_s']:,.1f} s{spent};"
        f" replaying took {document.get('wall_s', 0.0):,.1f} s"
    )


# --- What other power limits bring, as a table.


def limit_table(document: RunDocument) -> Table[PowerLimitPoint] | None:
    """The answer's configurations at every power limit they were measured at; None where that is one."""
    points, best = document.get("power_limit_curve") or (), document["best"]
    if not points or best is None:
        return None
    mark = label(document, "{}; ")
    answer_w, reference_w = best["power_limit_w"], points[0]["power_limit_w"]
    return Table(
        [
            Column("power limit", lambda point: point["power_limit_w"], "W", digits=0),
            Column("clock seen", _seen, number=True),
            *ratio_columns(points),
        ],
        points,
        Column("", lambda point: "answer" if point["power_limit_w"] == answer_w else ""),
        title=f"power limits of this configuration ({mark}against {reference_w:g} W; ± is 95 %)",
    )


def _seen(point: PowerLimitPoint) -> str | None:
    return None if point["clock_seen_mhz"] is None else f"{point['clock_seen_mhz']:,.0f} MHz"


# --- The command that repeats a run, from the conditions that are stored with it.

_SCOPE = re.compile(r"^\w+ of (\S+)")


def repeating_command(document: RunDocument) -> str:
    """``tuner run`` with the workloads and the options that decide which trials are made.

    Limits of the search, the power reading and the window are left to the machine: they are those of its
    sensor, or of the moment.
    """
    specs = [_spec(workload) for workload in document["workloads"]]
    records = [workload.get("kernel_file") for workload in document["workloads"]]
    files = dict.fromkeys(record["path"] for record in records if record is not None and record["path"])
    where = [word for file in files for word in ("--kernel", file)]
    device = document["device"].get("spec")
    where += ["--device", device] if device else []
    if (program := program_of(document)) is not None:
        tunables = [word for name in program["tunables"] for word in _tunable(program, name)]
        texts = {"--restrict": program["rules"], "--metric": program["metrics"], "--keep": program["keep"]}
        told = [word for option, values in texts.items() for value in values for word in (option, value)]
        told += ["--per", program["per"]] if program["per"] else []
        told += ["--phase", program["phase"]] if program.get("phase") else []
        on = where if device != "host" else []
        words = [*on, *_options(document), *tunables, *told, "--", *program["command"]]
        return shlex.join(["tuner", "program", "run", *words])
    return shlex.join(["tuner", "run", *specs, *where, *_options(document)])


def _tunable(program: ProgramDocument, name: str) -> tuple[str, str]:
    """The option that names a tunable of a program."""
    values, when = ",".join(map(str, program["tunables"][name])), program["conditions"].get(name)
    if name == "power_profile":
        return "--power-profiles", values
    option = "--env" if name in program["environment"] else "--tunable"
    return option, f"{name}={values}{f' if {when}' if when else ''}"


def repeating_hint(document: RunDocument) -> str:
    """A sentence about the command that repeats a run."""
    records = [workload.get("kernel_file") for workload in document["workloads"]]
    program = any(record is not None and not record["path"] for record in records)
    hint = "Sources, driver and GPU below tell whether it is the same work."
    return f"A Python program has made a kernel of it: only that can repeat it. {hint}" if program else hint


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
