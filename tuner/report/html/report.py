"""``tuner report``: runs or all answers of a machine as one HTML file, and runs in notebooks."""

import base64
import functools
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib import metadata
from importlib.resources import files

from tuner.client.answer_values import DeviceStatus, ServedAnswer, Status
from tuner.model.plan import shown_values
from tuner.model.run_document import AnswerTrial, Changes, RunDocument
from tuner.model.units import MODELLED, moment, si, with_moments, with_uncertainty
from tuner.report.diff import RunDifferences, change_of, differences_of, quantities
from tuner.report.html.charts import Record, chart, effects_of, panel, run_data
from tuner.report.html.markup import Markup, element, html_table, joined, listed, paragraphs
from tuner.report.html.run_section import run_section, words_panel
from tuner.report.rows import BRIEF_TIME, ENERGY, ENERGY_CHANGE, Column, Table
from tuner.report.trials_table import ranked_trials

# --- A page in one file: it makes no request, and runs nothing but the scripts whose hashes it names.

_UNITS = "units.js"
_SCRIPTS = (
    _UNITS,
    "elements.js",
    "columns.js",
    "chart.js",
    "convergence.js",
    "time_energy.js",
    "settings.js",
    "co_run.js",
    "effects.js",
    "heat_map.js",
    "parallel.js",
    "power.js",
    "runs.js",
    "trials.js",
    "main.js",
)
_STYLE = "style.css"
_PACKAGE = "gpu-tuner"


def page(title: str, content: Markup, data: Record, made_at: datetime) -> str:
    """The text of a page, with a foot that says who made it, when, and what draws its charts."""
    library, script, style = _library(), _script(), asset(_STYLE)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(library)} {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", Markup(style)),
    )
    theme = element("button", "light or dark", type="button", id="theme", hidden=True)
    made = f"Made by tuner {metadata.version(_PACKAGE)} on {moment(made_at)}."
    plain = "Scripts are off: charts and the table of trials are not drawn; all else stands above."
    body = element(
        "body",
        element("div", element("h1", "tuner report"), theme, class_="bar"),
        element("main", content),
        element(
            "footer",
            element("p", f"{made} Charts: Apache ECharts, Apache-2.0."),
            element("noscript", plain),
        ),
        element("script", Markup(_as_data(data)), type="application/json", id="data"),
        element("script", Markup(library)),
        element("script", Markup(script)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


@functools.cache
def asset(name: str) -> str:
    """A file of this room, or the one with the numbers of the live page, whose scripts are modules."""
    room = "tuner.cli.page" if name == _UNITS else "tuner.report.html"
    text = (files(room) / "assets" / name).read_text(encoding="utf-8")
    return text.replace("\nexport ", "\n")


@functools.cache
def _library() -> str:
    return (files("tuner.report.html") / "echarts" / "echarts.min.js").read_text(encoding="utf-8")


@functools.cache
def _script() -> str:
    """All own scripts in one function, which sees the library and gives nothing away."""
    parts = "\n".join(asset(name) for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _as_data(data: Record) -> str:
    """Values as JSON that no text in it can end."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


_HEIGHTS = (320, 480, 720, 1080, 1600)
_ROW_PX = 22
_NOTHING = "No stored answer has joules of its own and of the default."


def machine_page(
    status: Status,
    answers: Sequence[ServedAnswer],
    savings: Mapping[str, tuple[float, float]],
    made_at: datetime,
) -> str:
    """The page of a daemon.

    Args:
        status: as ``tuner status --json`` has it.
        answers: that it serves, the newest first.
        savings: expected joules saved since its start with half of their 95 % intervals, by GPU.
        made_at: when the page is made.
    """
    ratios = [
        {
            "name": " + ".join(one["workloads"]),
            "change": -changes["energy_saving"],
            "interval": changes.get("energy_saving_interval"),
        }
        for one in answers
        if (changes := _changes(one)) is not None
    ]
    height = next((h for h in _HEIGHTS if h >= 70 + _ROW_PX * len(ratios)), 2400)
    saving = panel(
        "What answers save",
        chart(
            "ratios",
            "energy of each answer against the default",
            height=height,
            title="energy against the default, %; line: 95 %",
            without=_NOTHING,
        ),
        wide=True,
        id_="savings",
    )
    body = element(
        "article",
        element(
            "header", element("h2", "The daemon's answers"), paragraphs(_summary(status, answers), "sub")
        ),
        element(
            "div",
            _devices(status, savings),
            _troubles(status),
            saving,
            _table(answers),
            _stale(answers),
            class_="grid",
        ),
    )
    return page("The daemon's answers – tuner", body, {"runs": [], "ratios": ratios}, made_at)


def _summary(status: Status, answers: Sequence[ServedAnswer]) -> list[str]:
    fresh = sum(_state(one) == "fresh" for one in answers)
    version = f"tunerd {status['version']}: " if status.get("version") else ""
    return [f"{version}{len(answers):,} answers, {fresh:,} of them fresh"]


def _state(one: ServedAnswer) -> str:
    return "stale" if one["stale"] else "fresh"


def _devices(status: Status, savings: Mapping[str, tuple[float, float]]) -> Markup:
    """Each GPU with its job, what tuning has cost today, and what uses are expected to have saved."""

    def saved(device: DeviceStatus) -> str:
        joules, half = savings.get(str(device.get("uuid")), (0.0, 0.0))
        return f"{with_uncertainty(joules, half, 'J')}{_mark(device)}"

    devices = Table[DeviceStatus](
        [
            Column("device", lambda device: str(device.get("spec", ""))),
            Column("GPU", lambda device: str(device.get("name", ""))),
            Column("job", lambda device: _number(device.get("job")), number=True),
            Column(
                "tuning today",
                lambda device: f"{si(device.get('spent_today_j') or None, 'J')}{_mark(device)}",
                number=True,
            ),
            Column("expected saving since the start", saved, number=True),
        ],
        status.get("devices") or (),
    )
    table = html_table(devices) if devices.rows else paragraphs(("no device is here",))
    sub = "Expected, not metered: uses that clients told of, times what one use saves against the default."
    return panel("Devices", table, sub=sub, wide=True, id_="devices")


def _mark(device: DeviceStatus | ServedAnswer) -> str:
    return f" ({MODELLED})" if device.get("modelled") else ""


def _number(number: int | None) -> str | None:
    return None if number is None else str(number)


def _troubles(status: Status) -> Markup | None:
    troubles = [str(one) for one in status.get("troubles") or ()]
    return panel("Troubles", listed(troubles, "warnings"), wide=True, id_="troubles") if troubles else None


def _table(answers: Sequence[ServedAnswer]) -> Markup:
    shown = Table(_ANSWERS, answers, Column("configuration", _configuration))
    table = html_table(shown) if answers else paragraphs(("the daemon has no answer yet",))
    return panel("Answers", table, wide=True, id_="answers")


def _amount(column: Column[AnswerTrial], one: ServedAnswer) -> str:
    """The text of a number of an answer; a number says that it is modelled."""
    trial = one["best"]
    return f"{column.text(trial)}{'' if column.value(trial) is None else _mark(one)}"


def _against(one: ServedAnswer) -> str | None:
    changes = _changes(one)
    if changes is None:
        return None
    is_default = changes["energy_saving"] == changes.get("energy_saving_interval") == 0
    return "is the default" if is_default else ENERGY_CHANGE.text(changes)


def _configuration(one: ServedAnswer) -> str:
    parts = [
        f"{name}: {shown_values(placed['configuration'])}"
        if len(one["workloads"]) > 1
        else shown_values(placed["configuration"])
        for name, placed in one["workloads"].items()
    ]
    clock = [] if one["clock_mhz"] is None else [f"clock {one['clock_mhz']} MHz"]
    return "; ".join([*parts, *clock])


_ANSWERS: tuple[Column[ServedAnswer], ...] = (
    Column("workloads", lambda one: " + ".join(one["workloads"])),
    Column("objective", lambda one: one["objective"]),
    Column("device", lambda one: one["device"]),
    Column("time", lambda one: _amount(BRIEF_TIME, one), number=True),
    Column("energy", lambda one: _amount(ENERGY, one), number=True),
    Column("against the default", _against, number=True),
    Column("state", _state),
    Column("run", lambda one: _number(one["run"]), number=True),
)


def _stale(answers: Sequence[ServedAnswer]) -> Markup:
    """Return the panel of reasons that answers are stale."""
    lines = [
        f"{' + '.join(one['workloads'])} ({one['objective']}): {with_moments(reason)}"
        for one in answers
        for reason in one["stale"]
    ]
    content = listed(lines) if lines else paragraphs(("every answer is fresh",))
    return panel("Stale, and why", content, wide=True, id_="stale")


def _changes(one: ServedAnswer) -> Changes | None:
    """Changes of an answer against the default; None where that of the energy is not known."""
    against = one["against_default"]
    return against if against is not None and "energy_saving" in against else None


_NO_RATIOS = "The runs did not tune the same workloads, or one has no answer: ratios would say nothing."


def run_page(document: RunDocument, made_at: datetime) -> str:
    """The report of a run.

    Args:
        document: of the run, with its trials; with their series where these are known.
        made_at: when the page is made.
    """
    section, data = _run(document, 0)
    title = " + ".join(workload["name"] for workload in document["workloads"])
    return page(f"{title} – tuner", joined((section, words_panel())), {"runs": [data], "ratios": []}, made_at)


def pair_page(one: RunDocument, other: RunDocument, titles: tuple[str, str], made_at: datetime) -> str:
    """The report of two runs side by side."""
    differences = differences_of(one, other, titles)
    both = [_run(document, place, name) for place, (document, name) in enumerate(((one, "A"), (other, "B")))]
    data = [data for _, data in both]
    side = element("div", *(section for section, _ in both), class_="pair")
    return page(
        f"{titles[0]} and {titles[1]} – tuner",
        joined((_comparison(differences), side, words_panel())),
        {"runs": data, "ratios": _ratios(one, other)},
        made_at,
    )


def _run(document: RunDocument, place: int, name: str = "") -> tuple[Markup, Record]:
    ranked = ranked_trials(document)
    effects = effects_of(document, ranked)
    return run_section(document, ranked, effects, place, name), run_data(document, effects)


def _comparison(differences: RunDifferences) -> Markup:
    titles = joined(element("p", title, dir="auto") for title in differences.titles)
    return element(
        "div",
        panel("Two runs side by side", titles, html_table(differences.numbers), id_="comparison"),
        panel(
            "B against A",
            chart(
                "ratios",
                "changes of time, energy and power from A to B",
                title="B against A, %; line: 95 %",
                without=_NO_RATIOS,
            ),
            sub="Changes of the answers, with 95 % intervals; drift between the runs is not in them.",
            id_="ratios",
        ),
        panel("The answers", listed(differences.answers), id_="answers"),
        panel(differences.heading.capitalize(), listed(differences.conditions), id_="conditions"),
        class_="grid",
    )


def _ratios(one: RunDocument, other: RunDocument) -> list[Record]:
    """Changes of the answers with half of their 95 % intervals; none where the work is not the same."""
    if {w["name"] for w in one["workloads"]} != {w["name"] for w in other["workloads"]}:
        return []
    ratios = []
    for name, _, before, after in quantities(one["best"], other["best"]):
        change = change_of(before, after)
        if change is not None:
            ratios.append({"name": name, "change": change[0], "interval": change[1]})
    return ratios


_HEIGHT_PX = 900


def notebook_frame(document: RunDocument) -> Markup:
    """A frame with the page of a run; its scripts reach nothing of the notebook."""
    text = run_page(document, datetime.now(timezone.utc))
    # Not through ``element``, which would change a character of the scripts that their hashes cover.
    inner = html.escape(text, quote=True)
    start = element("iframe", sandbox="allow-scripts", width="100%", height=_HEIGHT_PX, title="tuner report")
    return Markup(start.replace("<iframe", f'<iframe srcdoc="{inner}"', 1))
