"""What stands around the contents of every page."""

from datetime import datetime
from importlib import metadata
from typing import Any

from tuner.report.html.elements import Markup, element, joined
from tuner.report.html.page import page
from tuner.report.words import moment

_PACKAGE = "gpu-tuner"


def framed(title: str, content: Markup, data: dict[str, Any], made_at: datetime) -> str:
    """A page with its head and its foot.

    Args:
        title: of its window.
        content: what is seen.
        data: that the scripts draw.
        made_at: when the page is made.
    """
    theme = element("button", "light or dark", type="button", id="theme", hidden=True)
    bar = element("div", element("h1", "tuner report"), theme, class_="bar")
    body = joined((bar, element("main", content), _footer(made_at)))
    return page(title, body, data)


def _footer(made_at: datetime) -> Markup:
    """Who made the page, when, and what draws its charts."""
    version = metadata.version(_PACKAGE)
    words = f"Made by tuner {version} on {moment(made_at)}. Charts: Apache ECharts, Apache-2.0."
    plain = "Scripts are off: charts and the table of trials are not drawn; all else stands above."
    return element("footer", element("p", words), element("noscript", plain))
