"""HTML made of elements: whatever is put into one is escaped, so that no text of a run is markup."""

import base64
import gzip
import html
import json
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from tuner.model.run_document import RunDocument, TrialDocument
from tuner.report.rows import Row, Table
from tuner.report.trials_table import tunables_of
from tuner.system.untrusted.reading import plain

_EMPTY = frozenset({"meta", "input", "col"})  # elements that have no end


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *children: "str | Markup | None", **attributes: "str | int | bool | None") -> Markup:
    """An element.

    Args:
        tag: its name.
        children: texts, which are escaped, and elements; None is left out.
        attributes: by name, ``_`` for ``-``, with ``_`` behind a word of Python; True without a value, None
            and False left out.
    """
    named = "".join(
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_escaped(str(value))}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    inner = joined(children)
    return Markup(f"<{tag}{named}>" if tag in _EMPTY else f"<{tag}{named}>{inner}</{tag}>")


def joined(children: "Iterable[str | Markup | None]") -> Markup:
    """Texts and elements behind each other."""
    return Markup("".join(part if isinstance(part, Markup) else _escaped(part) for part in children if part))


def paragraphs(sentences: Iterable[str], class_: str | None = None) -> Markup:
    """A paragraph for each sentence; its direction is that of its own text."""
    return joined(element("p", sentence, class_=class_, dir="auto") for sentence in sentences)


def listed(sentences: "Iterable[str | Markup]", class_: str | None = None) -> Markup:
    """A list of sentences; nothing where there are none."""
    items = [element("li", sentence, dir="auto") for sentence in sentences]
    return element("ul", *items, class_=class_) if items else Markup()


def html_table(table: Table[Row]) -> Markup:
    """A table with its notes as a last column, where there are any; without its title and sentences."""
    notes = table.notes
    rows = []
    for place, row in enumerate(table.cells):
        tag = "td" if place else "th"
        cells = [
            element(
                tag,
                cell,
                class_="number" if column.right else "name",
                scope=None if place else "col",
                dir="auto",
            )
            for column, cell in zip(table.columns, row, strict=True)
        ]
        if any(notes):
            cells.append(element(tag, notes[place], class_="note", dir="auto"))
        rows.append(element("tr", *cells))
    head, *body = rows
    whole = element("table", element("thead", head), element("tbody", *body))
    return element("div", whole, class_="scroll", tabindex=0)


def facts(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Names and values as a list of definitions."""
    definitions = (
        joined((element("dt", name, dir="auto"), element("dd", value, dir="auto"))) for name, value in pairs
    )
    return element("dl", *definitions)


def _escaped(text: str) -> str:
    return html.escape(plain(text), quote=True)


Record = dict[str, Any]
Trial = TrialDocument

_DIGITS, _DIGITS_UNSURE = 5, 2
_MANY, _DIGITS_OF_MANY = 20_000, 4  # trials, whose numbers are kept to fewer digits
_MOST_EXACT = 2**53  # JavaScript's largest whole number
_MOST_DETAIL = 400  # characters of what went wrong


def trial_columns(document: RunDocument, trials: Sequence[Trial]) -> Record:
    """All that charts and the table need of the trials.

    Numbers are whole multiples of a column's scale, texts and settings numbers of a list of values. The
    columns themselves are JSON, compressed by gzip, in base64.

    Returns:
        ``count``, ``columns``, and the lists of values: ``workloads`` (``name`` and ``tunables``, each with
        ``name`` and ``values``), ``clocks``, ``limits``, ``statuses``, ``flags``, ``details``.
    """
    columns: dict[str, Any] = {}

    def listed(name: str, values: Iterable[Hashable]) -> list[Any]:
        """Keep the values as places in a list of them, which is returned."""
        distinct, columns[name] = _places(values)
        return distinct

    workloads = []
    for place, (workload, names) in enumerate(zip(document["workloads"], tunables_of(document), strict=True)):
        own = [trial["configurations"][workload["name"]] for trial in trials]
        tunables = [
            {"name": name, "values": listed(f"tunable {place} {name}", (one.get(name) for one in own))}
            for name in names
        ]
        workloads.append({"name": workload["name"], "tunables": tunables})
        if len(document["workloads"]) > 1:
            parts = [trial["workloads"][workload["name"]] for trial in trials]
            columns[f"own {place}"] = _scaled([part.get("time_s") for part in parts])
    found = {
        "count": len(trials),
        "workloads": workloads,
        "clocks": listed("clock", (trial["clock_mhz"] for trial in trials)),
        "limits": listed("limit", (trial.get("power_limit_w") for trial in trials)),
        "statuses": listed("status", (trial["status"] for trial in trials)),
        "flags": listed("flags", ("; ".join(trial.get("flags") or ()) for trial in trials)),
        "details": listed("detail", map(_detail, trials)),
    }
    numbers = [trial.get("number", place) for place, trial in enumerate(trials, 1)]
    if numbers != list(range(1, len(trials) + 1)):
        columns["number"] = numbers
    columns |= _numbers(trials)
    packed = gzip.compress(json.dumps(columns, separators=(",", ":")).encode(), 6, mtime=0)
    return {**found, "columns": base64.b64encode(packed).decode()}


def _numbers(trials: Sequence[Trial]) -> Record:
    digits = _DIGITS if len(trials) <= _MANY else _DIGITS_OF_MANY

    def column(get: Callable[[Trial], Any], digits: int = digits) -> Record:
        return _scaled([get(trial) for trial in trials], digits)

    columns = {
        "time": column(lambda t: t["time_s"]),
        "timeUnsure": column(lambda t: t.get("time_s_uncertainty"), _DIGITS_UNSURE),
        "energy": column(lambda t: t.get("energy_j")),
        "energyUnsure": column(lambda t: t.get("energy_j_uncertainty"), _DIGITS_UNSURE),
        "power": column(lambda t: t.get("power_w"), digits - 1),
        "clockSeen": column(lambda t: t.get("clock_seen_mhz"), 4),
    }
    if any("ended_s" in trial for trial in trials):
        ends = [trial.get("ended_s") or 0.0 for trial in trials]
        # from the end of the trial before; 0 where the device's clock began anew
        took = [max(0.0, end - before) for end, before in zip(ends, [ends[0], *ends[:-1]], strict=True)]
        columns["took"] = _scaled(took, 3)
        columns["spent"] = column(lambda t: t.get("spent_j"), 3)
    return {name: one for name, one in columns.items() if any(value is not None for value in one["values"])}


def _scaled(values: Sequence[float | None], digits: int = _DIGITS) -> Record:
    """Numbers as whole multiples of one scale, rounded to so many digits each."""
    sizes = [abs(value) for value in values if value]
    if not sizes:
        return {"scale": 1, "values": [None if value is None else 0 for value in values]}
    exponent = math.floor(math.log10(min(sizes))) + 1 - digits
    exponent = max(exponent, math.ceil(math.log10(max(sizes) / _MOST_EXACT)))
    scaled = [None if value is None else _rounded(value, digits, exponent) for value in values]
    return {"scale": float(f"1e{exponent}"), "values": scaled}


def _rounded(value: float, digits: int, exponent: int) -> int:
    if not value:
        return 0
    own = max(math.floor(math.log10(abs(value))) + 1 - digits, exponent)
    scaled: int = round(value / float(f"1e{own}")) * 10 ** (own - exponent)
    return scaled


def _places(values: Iterable[Hashable]) -> tuple[list[Any], list[int]]:
    """Values in their order, numbers first, and for each given one its place there."""
    typed = [(type(value), value) for value in values]  # 1 is not True
    distinct = sorted(dict.fromkeys(typed), key=_order)
    places = {value: place for place, value in enumerate(distinct)}
    return [value for _, value in distinct], [places[value] for value in typed]


def _order(pair: tuple[type, Any]) -> tuple[int, Any]:
    value = pair[1]
    if value is None:
        return (0, 0)
    return (2, value) if isinstance(value, str) else (1, value)


def _detail(trial: Trial) -> str:
    """Return the error details of a trial, shortened; empty for a valid trial."""
    if trial["status"] == "ok":
        return ""
    details = dict.fromkeys(result.get("detail") or "" for result in trial["workloads"].values())
    text = "; ".join(filter(None, details))
    return text if len(text) <= _MOST_DETAIL else f"{text[:_MOST_DETAIL]} …"
