"""The report of a run inside a notebook."""

import html
from datetime import datetime, timezone

from tuner.model.run_document import RunDocument
from tuner.report.html.elements import Markup, element
from tuner.report.html.report import run_page

_HEIGHT_PX = 900


def notebook_frame(document: RunDocument) -> Markup:
    """A frame with the page of a run; its scripts reach nothing of the notebook.

    Args:
        document: of the run.
    """
    page = run_page(document, datetime.now(timezone.utc))
    # Not through ``element``, which would change a character of the scripts that their hashes cover.
    inner = html.escape(page, quote=True)
    start = element("iframe", sandbox="allow-scripts", width="100%", height=_HEIGHT_PX, title="tuner report")
    return Markup(start.replace("<iframe", f'<iframe srcdoc="{inner}"', 1))
