"""What the site makes of the pages: those of other folders have a place in it, and links lead within it.

The pages are plain Markdown that is read in the repository, too. There they link to files beside ``docs``.
In the site such a link leads to the page that shows the file, or to a copy of the file. A link to a folder
becomes its text.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

SHOWN = {
    "examples": ROOT / "examples" / "README.md",
    "contributing": ROOT / "CONTRIBUTING.md",
    "changelog": ROOT / "CHANGELOG.md",
}
"""Pages of the site that show a file from elsewhere: the name of the page -> the file."""

_OPTIONAL = ("report", "live-page")  # listed in the index, and left out where there is no such page
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
_PAGE_OF = {
    **{file: DOCS / f"{page}.md" for page, file in SHOWN.items()},
    ROOT / "README.md": DOCS / "index.md",
}


def page_source(page: str, written: str) -> str:
    """The Markdown of a page of the site.

    Args:
        page: its name without the suffix, relative to ``docs``.
        written: what its file holds.
    """
    file = SHOWN.get(page)
    text, stands = (written, DOCS / f"{page}.md") if file is None else (file.read_text("utf-8"), file)
    for name in _OPTIONAL if page == "index" else ():
        if not (DOCS / f"{name}.md").exists():
            text = text.replace(f"\n{name}\n", "\n")
    return "".join(_parts(text, stands, DOCS / f"{page}.md"))


def _parts(text: str, stands: Path, shown: Path) -> Iterator[str]:
    for part in _FENCE.split(text):
        yield part if part.startswith("```") else _LINK.sub(lambda link: _led(link, stands, shown), part)


def _led(link: re.Match[str], stands: Path, shown: Path) -> str:
    """A link of the file ``stands``, such that it leads to the same from the page ``shown``."""
    words, target, anchor = link[1], (stands.parent / link[2]).resolve(), link[3] or ""
    if target.is_dir():
        return words
    leads = _PAGE_OF.get(target, target)
    return f"[{words}]({os.path.relpath(leads, shown.parent)}{anchor})"
