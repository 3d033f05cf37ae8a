"""``tuner report --daemon``: all answers of a machine, fresh or stale, and what they save."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from tuner.client.answers import KnownAnswer
from tuner.client.values import Best, Status
from tuner.model.plan import shown_values
from tuner.model.run_document import AnswerTrial
from tuner.report.html.elements import Markup, cells_table, element, listed, paragraphs
from tuner.report.html.frame import framed
from tuner.report.html.panels import chart, panel
from tuner.report.html.run_data import Record
from tuner.report.trials_table import energy_of
from tuner.report.words import MODELLED, percent_with_interval, si, with_moments, with_uncertainty

_HEIGHTS = (320, 480, 720, 1080, 1600)
_ROW_PX = 22
_HEADS = ["workloads", "objective", "device", "time", "energy", "against the default", "state", "run"]
_NOTHING = "No stored answer has joules of its own and of the default."


def machine_page(
    status: Status,
    answers: Sequence[KnownAnswer],
    savings: Mapping[str, tuple[float, float]],
    made_at: datetime,
) -> str:
    """The page of a daemon.

    Args:
        status: as ``tuner status --json`` has it.
        answers: of its jobs, the newest first.
        savings: expected joules saved since its start with half of their 95 % intervals, by GPU.
        made_at: when the page is made.
    """
    changes = [change for change in map(_change, answers) if change is not None]
    height = next((h for h in _HEIGHTS if h >= 70 + _ROW_PX * len(changes)), 2400)
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
    return framed("The daemon's answers – tuner", body, {"runs": [], "ratios": changes}, made_at)


def _summary(status: Status, answers: Sequence[KnownAnswer]) -> list[str]:
    fresh = sum(_state(one) == "fresh" for one in answers)
    version = f"tunerd {status['version']}: " if status.get("version") else ""
    return [f"{version}{len(answers):,} answers, {fresh:,} of them stored and fresh"]


def _state(one: KnownAnswer) -> str:
    if one.best is None:
        return "not served"
    if one.best.stale:
        return "stale"
    return "fresh" if one.best.origin == "stored" else one.best.origin


def _devices(status: Status, savings: Mapping[str, tuple[float, float]]) -> Markup:
    """Each GPU with its job, what tuning has cost today, and what uses are expected to have saved."""
    heads = ["device", "GPU", "job", "tuning today", "expected saving since the start"]
    rows = []
    for device in status.get("devices") or ():
        mark = f" ({MODELLED})" if device.get("modelled") else ""
        joules, half = savings.get(str(device.get("uuid")), (0.0, 0.0))
        rows.append(
            [
                str(device.get("spec", "")),
                str(device.get("name", "")),
                "–" if device.get("job") is None else str(device["job"]),
                f"{si(device.get('spent_today_j'), 'J')}{mark}",
                f"{with_uncertainty(joules, half, 'J')}{mark}",
            ]
        )
    table = cells_table([heads, *rows], texts=(0, 1)) if rows else paragraphs(("no device is here",))
    sub = "Expected, not metered: uses that clients told of, times what one use saves against the default."
    return panel("Devices", table, sub=sub, wide=True, id_="devices")


def _troubles(status: Status) -> Markup | None:
    troubles = [str(one) for one in status.get("troubles") or ()]
    return panel("Troubles", listed(troubles, "warnings"), wide=True, id_="troubles") if troubles else None


def _table(answers: Sequence[KnownAnswer]) -> Markup:
    cells = [_HEADS, *(_row(one) for one in answers)]
    notes = ["configuration", *(_configuration(one.best) for one in answers)]
    table = (
        cells_table(cells, notes, texts=(0, 1, 2, 6))
        if answers
        else paragraphs(("the daemon has tuned nothing yet",))
    )
    return panel("Answers", table, wide=True, id_="answers")


def _row(one: KnownAnswer) -> list[str]:
    best = one.best
    answer = None if best is None else best.answer
    trial: AnswerTrial = {} if answer is None else answer["best"]
    device = dict(best.device) if best is not None else {}
    mark = f" ({MODELLED})" if device.get("modelled") else ""
    change = _change(one)
    against = "–" if change is None else _against(change)
    return [
        " + ".join(one.workloads),
        best.objective if best is not None else one.objective,
        str(device.get("spec", one.device)),
        f"{si(trial.get('time_s'), 's')}{mark if trial else ''}",
        f"{energy_of(trial)}{mark if trial.get('energy_j') is not None else ''}",
        against,
        _state(one),
        "–" if best is None or best.run is None else str(best.run),
    ]


def _against(change: Record) -> str:
    if change["change"] == change["interval"] == 0:
        return "is the default"
    return percent_with_interval(change["change"], change["interval"])


def _configuration(best: Best | None) -> str:
    if best is None:
        return ""
    parts = [
        f"{name}: {shown_values(placed.configuration)}"
        if len(best.workloads) > 1
        else shown_values(placed.configuration)
        for name, placed in best.workloads.items()
    ]
    clock = [] if best.clock_mhz is None else [f"clock {best.clock_mhz} MHz"]
    return "; ".join([*parts, *clock])


def _stale(answers: Sequence[KnownAnswer]) -> Markup:
    """Why answers are stale, or not served."""
    found = []
    for one in answers:
        reasons = [one.why] if one.why else [] if one.best is None else list(one.best.stale)
        name = " + ".join(one.workloads)
        found += [f"{name} ({one.objective}): {with_moments(reason)}" for reason in reasons]
    content = listed(found) if found else paragraphs(("every answer is fresh",))
    return panel("Stale, and why", content, wide=True, id_="stale")


def _change(one: KnownAnswer) -> Record | None:
    """Change of energy of a stored answer against the default; None where it is not known."""
    answer = one.best.answer if one.best is not None else None
    against = None if answer is None else answer.get("against_default")
    if against is None or "energy_saving" not in against:
        return None
    half = against.get("energy_saving_interval")
    return {"name": " + ".join(one.workloads), "change": -against["energy_saving"], "interval": half}
