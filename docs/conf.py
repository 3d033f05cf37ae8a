"""The settings of Sphinx: ``make docs`` builds the site into ``build/docs/html``."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "benchmarks")]

from show_results import table  # noqa: E402 - found by the line above
from site_pages import SHOWN, page_source  # noqa: E402 - same

import tuner  # noqa: E402 - same

project = "tuner"
version = release = tuner.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.doctest",
    "sphinx_click",
    "sphinx_copybutton",
]
exclude_patterns = ["_static"]

# Markdown: anchors as the repository's own viewer makes them, so that one link serves both.
myst_heading_anchors = 4
default_role = "code"  # help texts and docstrings write code between single back quotes
smartquotes = False  # --option keeps its two dashes

autodoc_member_order = "bysource"
autodoc_typehints = "description"  # beside each argument; signatures show names and defaults
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
napoleon_use_ivar = True  # attributes of a class, without an entry of their own in the index
napoleon_google_docstring = True
napoleon_numpy_docstring = False

doctest_test_doctest_blocks = ""  # examples that are run are marked so
linkcheck_ignore = [r"https?://"]  # links to files are checked; the rest would need a network

html_theme = "furo"
html_title = f"tuner {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
copybutton_prompt_text = "$ "


# Whoever searches wants to use the tool: these are read by links.
_NOT_SEARCHED = ("lab/", "changelog")

# What they show stands in other files: an incremental build reads them again.
_GENERATED = {*SHOWN, "index", "cli", "results"}


def setup(app: Sphinx) -> None:
    """Prepare pages before they are parsed."""
    app.connect("source-read", _prepared)
    app.connect("doctree-read", _kept_from_search)


def _prepared(app: Sphinx, page: str, source: list[str]) -> None:
    if page in _GENERATED:
        app.env.note_reread()
    stored = table() if page == "results" else ""
    source[0] = page_source(page, source[0]).replace("<!-- stored results -->", stored)


def _kept_from_search(app: Sphinx, _: object) -> None:
    page = app.env.docname
    if page.startswith(_NOT_SEARCHED):
        app.env.metadata[page]["nosearch"] = ""
