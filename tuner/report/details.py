"""Details of a report: other clocks and power limits, what ``--verbose`` adds, how to repeat the run."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tuner.model.errors import InputError, TunerError
from tuner.model.objective import COVERAGE
from tuner.model.options import OPTIONS
from tuner.model.records import WorkloadName
from tuner.model.run_document import (
    ClockPointDocument,
    PowerLimitPoint,
    ProgramDocument,
    RunDocument,
    ScatterDocument,
    SettingPoint,
    TrialDocument,
    WallDocument,
    WorkloadDocument,
    placing,
    program_of,
)
from tuner.model.units import (
    MODELLED,
    half_percent,
    percent,
    percent_with_interval,
    significant,
    with_uncertainty,
)
from tuner.report.layout import ReportLine, label, lines_of, table_lines
from tuner.report.rows import ENERGY, TUNING_ENERGY, Column, Table, interval
from tuner.report.trials_table import objective_name, same

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# --- The answer's configuration at other clocks: sentences, a table, and a picture.

_ALLOWED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # slowdowns, each with the clock of least energy within it
_FLAT = 0.01  # of the time: a slowdown that is no reason to keep a clock
_LOWER = 0.95  # of the highest clock: from there on, that it may be lowered is worth a sentence
_LEAST = 3  # points of a curve worth a table
_INDENT = "  "

Point = ClockPointDocument


def setting_lines(table: Table[Any] | None, width: int) -> Iterator[ReportLine]:
    """A table below an empty line, with its title and its sentences; nothing without a table."""
    if table is None:
        return
    yield ReportLine("")
    yield from lines_of(table.title, width)
    yield from table_lines(table, width, indent=_INDENT, head="dim")
    for sentence in table.sentences:
        yield from lines_of(_INDENT + sentence, width, hanging=_INDENT * 2)


def clock_table(document: RunDocument) -> Table[Point] | None:
    """The clocks worth a row, and what they bring; None where the clock was not searched."""
    points = document.get("clock_curve") or ()
    best = document["best"]
    if len(points) < _LEAST or best is None or best["clock_mhz"] is None:
        return None
    answer_mhz = best["clock_mhz"]
    mark = label(document, "{}; ")
    whose = "this configuration"
    if document.get("clock_curve_of") != best["configurations"]:
        whose = "the cheapest configuration that was measured at several clocks"
    return Table(
        [Column("clock", _mhz, number=True), *ratio_columns(points)],
        _rows(points, answer_mhz),
        Column("", lambda point: _note(point, points, answer_mhz)),
        title=f"clocks of {whose} ({mark}against {_mhz(reference_of(points))}; ± is 95 %)",
        sentences=list(sentences(points, answer_mhz)),
    )


def sentences(points: Sequence[Point], answer_mhz: float) -> Iterator[str]:
    """Yield sentences on the effect of a lower clock.

    Args:
        points: of the curve, highest clock first.
        answer_mhz: clock of the answer.
    """
    reference = reference_of(points)
    flat = None  # the lowest clock down to which no round is slower than allowed
    for point in points:
        if point["time_ratio"] > 1 + _FLAT:
            break
        flat = point
    if flat is not None and flat["clock_mhz"] < _LOWER * reference["clock_mhz"]:
        yield (
            f"down to {_mhz(flat)} a round takes at most {100 * _FLAT:g} % longer than at {_mhz(reference)}"
            f" ({flat['kind']})"
        )
    answer = next((point for point in points if point["clock_mhz"] == answer_mhz), None)
    lower = [point for point in points if point["clock_mhz"] < answer_mhz]
    least = _of_least_energy(lower)
    if answer is None or not answer["joules"] or least is None:
        return
    saving, slower = 1 - (least["joules"] or 0.0) / answer["joules"], least["time_s"] / answer["time_s"] - 1
    unsure = (1 - saving) * (least["joules_ratio_interval"] or 0.0) / (least["joules_ratio"] or 1.0)
    if saving <= unsure:
        yield f"no clock below {_mhz(answer)} is seen to save energy, down to {_mhz(points[-1])}"
        return
    unsure_time = (1 + slower) * least["time_ratio_interval"] / least["time_ratio"]
    each = f", {significant(saving / slower, 2)} % per percent of slowdown" if slower > unsure_time else ""
    yield (
        f"from the answer's {_mhz(answer)} down to {_mhz(least)}:"
        f" {percent_with_interval(-saving, unsure)} energy for"
        f" {percent_with_interval(slower, unsure_time)} time{each}"
        f" ({least['kind']})"
    )


def _of_least_energy(points: Sequence[Point]) -> Point | None:
    """The point of the fewest joules; None where none are known."""
    metered = [one for one in points if one["joules"] is not None and one["joules_ratio"] is not None]
    return min(metered, key=lambda point: point["joules"] or 0.0, default=None)


def reference_of(points: Sequence[Point]) -> Point:
    """The point that ratios are against."""
    return next(point for point in points if _is_reference(point))


def _is_reference(point: SettingPoint) -> bool:
    return point["kind"] != MODELLED and point["time_ratio_interval"] == 0.0


def _rows(points: Sequence[Point], answer_mhz: float) -> list[Point]:
    """The clock of least energy for every slowdown that may be allowed, and that of the answer."""
    chosen = [point for point in points if point["clock_mhz"] == answer_mhz]
    for allowed in _ALLOWED:
        within = [point for point in points if point["time_ratio"] <= 1 + allowed]
        least = _of_least_energy(within)
        if within:
            chosen.append(least or within[-1])
    clocks = {point["clock_mhz"] for point in chosen}
    return [point for point in points if point["clock_mhz"] in clocks]


def ratio_columns(points: Sequence[SettingPoint]) -> list[Column[SettingPoint]]:
    """Columns of the changes of energy and time, and of what is saved per percent of slowdown."""
    changes = _TIME.of(_changed)
    if all(point["joules"] is None for point in points):
        return [changes]
    saved = Column[SettingPoint]("per % slower", _saved, number=True)
    return [_ENERGY.of(_changed), changes, saved.of(_changed)]


def _saved(point: SettingPoint) -> str | None:
    saved = point["saving_per_slowdown"]
    return None if saved is None else f"{significant(saved, 2)} %"


def _changed(point: SettingPoint) -> SettingPoint | None:
    """The point; None for the one that the others are against."""
    return None if _is_reference(point) else point


_TIME = Column[SettingPoint](
    "time", lambda point: point["time_ratio"] - 1, "%", half=lambda point: point["time_ratio_interval"]
)
_ENERGY = Column[SettingPoint](
    "energy",
    lambda point: None if point["joules_ratio"] is None else point["joules_ratio"] - 1,
    "%",
    half=lambda point: point["joules_ratio_interval"],
)


def _note(point: Point, points: Sequence[Point], answer_mhz: float) -> str:
    """Return the note of a row: modelled, the answer's clock, least energy."""
    notes: list[str] = [MODELLED] if point["kind"] == MODELLED else []
    notes += ["answer"] if point["clock_mhz"] == answer_mhz else []
    notes += ["least energy"] if point is _of_least_energy(points) else []
    return ", ".join(notes)


def _mhz(point: Point) -> str:
    return f"{point['clock_mhz']:,} MHz"


_OPTION = "--clock-curve"
_SIZE_INCHES = (8.0, 6.0)
_DPI = 120
_SCALES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def draw_curve(document: RunDocument, path: Path) -> None:
    """Draw the clock curve of a run into a file.

    Raises:
        InputError: the run has none, or the picture cannot be drawn.
    """
    points = document.get("clock_curve") or ()
    if not points:
        raise InputError(
            f"{_OPTION} {path}: the run has no clock curve: its answer was measured at one clock;"
            " `tuner run --clocks auto` searches clocks"
        )
    from tuner.report.power_tables import check_picture, save_figure  # noqa: PLC0415 - heavy, and only for this

    check_picture(path, _OPTION)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - heavy, and optional
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    curves = [
        _Curve(
            "energy of a round",
            "J",
            [(one, one["joules"], one["joules_uncertainty"]) for one in points if one["joules"]],
        ),
        _Curve(
            "time of a round",
            "s",
            [(one, one["time_s"], one["time_s_uncertainty"]) for one in points if one["time_s"]],
        ),
    ]
    curves = [curve for curve in curves if curve.points]
    best = document["best"]
    for number, curve in enumerate(curves, start=1):
        axes = figure.add_subplot(len(curves), 1, number)
        _draw(axes, curve, None if best is None else best["clock_mhz"])
    axes.set_xlabel("GPU clock (MHz)")
    figure.axes[0].legend(fontsize="small", frameon=False)
    figure.suptitle(_title(document), fontsize="medium", x=0.01, ha="left", parse_math=False)
    save_figure(figure, path, _OPTION)


class _Curve(NamedTuple):
    """A quantity, its unit, and points with its values and their standard uncertainties."""

    words: str
    unit: str
    points: list[tuple[ClockPointDocument, float, float | None]]


def _draw(axes: "Axes", curve: _Curve, answer_mhz: float | None) -> None:
    """Measured points with their intervals, and a line through the modelled ones with its interval."""
    settings = [point for point, _, _ in curve.points]
    least = min(value for _, value, _ in curve.points)
    scale, prefix = next(((s, p) for s, p in _SCALES if least >= s), _SCALES[-1])
    clocks = [float(point["clock_mhz"] or 0) for point in settings]
    values = [value / scale for _, value, _ in curve.points]
    halves = [COVERAGE * (unsure or 0.0) / scale for _, _, unsure in curve.points]
    if any(point["kind"] == MODELLED for point in settings):
        axes.plot(clocks, values, color="0.5", ls="--", lw=1.0, label="modelled: fitted to the points")
        low = [value - half for value, half in zip(values, halves, strict=True)]
        high = [value + half for value, half in zip(values, halves, strict=True)]
        axes.fill_between(clocks, low, high, color="0.5", alpha=0.2, lw=0, label="modelled, 95 %")
    measured = [place for place, point in enumerate(settings) if point["kind"] != MODELLED]
    axes.errorbar(
        [clocks[place] for place in measured],
        [values[place] for place in measured],
        yerr=[halves[place] for place in measured],
        fmt="o",
        ms=4,
        color="tab:blue",
        label="measured, 95 %",
    )
    if answer_mhz is not None:
        axes.axvline(answer_mhz, color="tab:orange", lw=1.0, label=f"answer, {answer_mhz:,} MHz")
    axes.set_ylabel(f"{curve.words} ({prefix}{curve.unit})")
    axes.grid(alpha=0.3)


def _title(document: RunDocument) -> str:
    names = " + ".join(workload["name"] for workload in document["workloads"])
    words = label(document)
    kind = "" if MODELLED not in words else ": a simulated device made these numbers, no GPU ran"
    return f"{names} on {document['device']['name']}" + (f"\n{words}{kind}" if words else "")


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
