"""A page in one file: it makes no request, and runs nothing but the scripts whose hashes it names."""

import base64
import functools
import hashlib
import json
from importlib.resources import files
from typing import Any

from tuner.report.html.elements import Markup, element, joined

_SCRIPTS = (
    "units.js",
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


def page(title: str, body: Markup, data: Any) -> str:  # noqa: ANN401 - plain values of JSON
    """The text of a page.

    Args:
        title: of its window.
        body: what is seen; charts are drawn where it has room for them.
        data: plain values that the scripts draw.
    """
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
    scripts = (
        element("script", Markup(_as_data(data)), type="application/json", id="data"),
        element("script", Markup(library)),
        element("script", Markup(script)),
    )
    return f"<!doctype html>\n{element('html', head, element('body', body, joined(scripts)), lang='en')}\n"


@functools.cache
def asset(name: str) -> str:
    """A file of this room."""
    return (files("tuner.report.html") / "assets" / name).read_text(encoding="utf-8")


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


def _as_data(data: Any) -> str:  # noqa: ANN401 - plain values of JSON
    """Values as JSON that no text in it can end."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
