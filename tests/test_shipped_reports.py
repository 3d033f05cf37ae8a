"""Reports that come with the documentation: their command repeats them."""

import re
import shlex
from datetime import datetime, timezone
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from cli_process import document

from tuner.report.html.report import run_page

SHIPPED = sorted((Path(__file__).parent.parent / "docs").glob("report-*.html"))
PANELS = ("answer", "build", "settings", "left-out", "repeat")


def panel(text: str, name: str) -> str:
    """A panel of a page, without charts."""
    found = re.search(rf'<section [^>]*data-panel="{name}">.*?</section>', text, re.DOTALL)
    assert found is not None, name
    return found.group()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_the_command_of_a_shipped_report_repeats_it(path: Path, tmp_path: Path) -> None:
    """The same answer, gains and flags again; if only words differ, run ``benchmarks/shipped_report.py``."""
    shipped = path.read_text(encoding="utf-8")
    code = re.search("<code>(.*?)</code>", panel(shipped, "repeat"))
    assert code is not None
    _, *words = shlex.split(unescape(re.sub("<[^>]*>", "", code[1])))
    told: Any = document(*words, "--database", tmp_path / "runs.db")
    again = run_page(told, datetime.now(timezone.utc))

    for name in PANELS:
        assert panel(again, name) == panel(shipped, name)
