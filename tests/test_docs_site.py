"""README and the site: generated pages are whole, figures are stored results', messages are the code's."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from benchmark_scripts import benchmark, module_of
from cli_process import tuner as call

import tuner
from tuner import client, kernel_tuner, linalg
from tuner.cli.main import COMMANDS, main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text("utf-8")
site_pages = module_of(DOCS / "site_pages.py")


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text("utf-8")


# --- generated pages -----------------------------------------------------------------------------


def test_the_reference_has_every_command() -> None:
    """Each command has its entry once; a group has it with all that is in it."""
    entries = re.findall(r"^   :prog: tuner (\S+)$((?:\n   :.*)*)", page("cli"), re.MULTILINE)

    assert sorted(name for name, _ in entries) == sorted(COMMANDS)
    for name, options in entries:
        group = isinstance(main.get_command(click.Context(main), name), click.Group)
        assert (":nested: full" in options) == group, name


def test_the_reference_has_every_public_name() -> None:
    """What the packages for users export is on the page, by name or with its module."""
    text = page("api")
    for name in set(tuner.__all__) - {"linalg"}:
        assert re.search(rf"^\.\. auto\w+:: tuner\.{name}$", text, re.MULTILINE), name
    for name in set(client.__all__) - {"Client", "default_sockets"}:
        assert f".. autoclass:: tuner.client.{name}\n" in text, name
    for name in set(kernel_tuner.__all__) - {
        "file_utils",
        "strategies",
        "util",
    }:  # described on a page of their own
        assert f".. autofunction:: tuner.kernel_tuner.{name}\n" in text, name
    assert f".. automodule:: {linalg.__name__}\n" in text


def test_every_page_is_in_the_index() -> None:
    """The contents name each page once, and those that other features bring."""
    contents = re.findall(r"^```\{toctree\}\n(.*?)^```$", page("index"), re.MULTILINE | re.DOTALL)
    lines = [line for block in contents for line in block.splitlines() if line and not line.startswith(":")]
    listed = [re.sub(r".*<(.+)>$", r"\1", line) for line in lines]
    pages = {str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md")} - {"index"}

    assert len(set(listed)) == len(listed)
    assert pages <= set(listed)
    assert set(listed) - pages <= {"report", "live-page"}


@pytest.mark.parametrize(
    ("name", "written", "shown"),
    [
        ("run", "[how](../CONTRIBUTING.md#style)", "[how](contributing.md#style)"),
        ("howto/ci", "[ten](../../examples/README.md)", "[ten](../examples.md)"),
        ("run", "[a file](../benchmarks/results/racing.json)", "[a file](../benchmarks/results/racing.json)"),
        ("run", "[a folder](../examples/stencil)", "a folder"),
        ("run", "[there](power.md#readings), [here](#up), ![x](peers.svg)", None),
        ("run", "```\n[code](../CONTRIBUTING.md)\n```", None),
        ("run", "[out](https://example.org/a)", None),
    ],
)
def test_links_lead_within_the_site(name: str, written: str, shown: str | None) -> None:
    """A link to a file that has a page leads there, a link to a folder is text, and all others stay."""
    assert site_pages.page_source(name, written) == (written if shown is None else shown)


@pytest.mark.parametrize("name", sorted(site_pages.SHOWN))
def test_files_of_other_folders_are_pages(name: str) -> None:
    """The page has the text of the file, and every link of it leads to something."""
    text = site_pages.page_source(name, "")

    assert text.startswith("# ")
    for target in re.findall(
        r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    ):
        assert (DOCS / target).exists(), target


# --- figures -------------------------------------------------------------------------------------


def test_the_main_figures_are_those_of_the_results() -> None:
    """docs/results.md has the table that the script computes from the files now."""
    headlines = benchmark("headlines")

    assert headlines.marked("headlines", headlines.table()) in page("results")


def test_every_stored_result_is_listed() -> None:
    """The table has each file of benchmarks/results once, and each script that it names is there."""
    table = benchmark("show_results").table()
    listed = re.findall(r"\]\(\.\./benchmarks/results/([\w.-]+)\)", table)

    assert sorted(listed) == sorted(path.name for path in (ROOT / "benchmarks" / "results").glob("*.json"))
    for script in re.findall(r"\]\(\.\./(benchmarks/[\w/]+\.py)\)", table):
        assert (ROOT / script).exists()


# --- README --------------------------------------------------------------------------------------

FIGURE = re.compile(
    r"\d[\d.,]*(?: ± \d[\d.]*)?(?: to \d[\d.]*)? (?:%|s\b|times|trials|kills|faults)(?! interval)"
)


def test_the_readme_is_short() -> None:
    """It has at most 90 lines, and the two commands to begin with."""
    assert len(README.splitlines()) <= 90
    assert {"make run", "make test"} <= set(re.findall(r"^\$ (make \w+)", README, re.MULTILINE))


def test_figures_of_the_readme_are_main_figures() -> None:
    """Each number that argues for the tuner is one of the figures that are computed from stored results."""
    known = " ".join(one.figure for one in benchmark("headlines").headlines())
    claims = README.partition("\n## Why\n")[2].partition("\n## Where next\n")[0]
    shown = FIGURE.findall(" ".join(claims.split()))

    assert len(shown) >= 10
    assert [figure for figure in shown if figure not in known] == []


REPORTS = [
    (name, "lab/reports-of-real-runs")
    for name in ("vector-add-h200", "auto-time-h200", "auto-energy-h100", "auto-four-applications-h200")
]


@pytest.mark.parametrize(("name", "where"), REPORTS)
def test_reports_of_real_runs_are_those_of_their_documents(
    name: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shown of a report, up to its trials, is what the stored document says."""
    monkeypatch.setenv("COLUMNS", "120")
    report = call("show", ROOT / "benchmarks" / "results" / f"{name}.json").output
    head = [line for line in report.partition("\ntrials (")[0].splitlines() if line]

    shown = page(where).splitlines()
    assert [line for line in head if line not in shown] == []


# --- docs/troubleshooting.md ---------------------------------------------------------------------

MESSAGES = re.findall(r"^### (`.+`)$", page("troubleshooting"), re.MULTILINE)


MODULES = [path for name in ("tuner", "power", "policies") for path in sorted((ROOT / name).rglob("*.py"))]


@cache
def source(path: Path) -> str:
    """The text of a module, adjacent texts in it joined."""
    return re.sub(r'"\s*\n\s*f?"', "", path.read_text("utf-8"))


@cache
def texts(path: Path) -> str:
    """Every text of a module but docstrings; the values that a text is filled with divide it."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    docstrings = {id(one.value) for one in nodes if isinstance(one, ast.Expr)}
    found = [one for one in nodes if isinstance(one, ast.Constant) and id(one) not in docstrings]
    return "\n".join(one.value for one in found if isinstance(one.value, str))


def parts(message: str) -> Iterator[str]:
    """The fixed parts of a message of the page."""
    for part in re.split("…", message.strip("`")):
        if len(part.strip(" :;,()")) > 1:
            yield part.strip()


@pytest.mark.parametrize("heading", MESSAGES)
def test_the_messages_are_those_of_the_program(heading: str) -> None:
    """The fixed parts of each message stand in the code."""
    wanted = [part for message in re.findall("`[^`]+`", heading) for part in parts(message)]

    assert wanted
    for part in wanted:
        assert any(part in source(path) and part in texts(path) for path in MODULES), part


def test_each_message_has_a_remedy() -> None:
    """Each entry says what to do, or that nothing is wrong."""
    for entry in re.split(r"^### ", page("troubleshooting"), flags=re.MULTILINE)[1:]:
        told = (
            "*Remedy.*",
            "Nothing is wrong",
            "Not an error",
            "(howto/noise.md",
            "--resume",
            "`tuner status`",
            "Cause.",
        )
        assert any(words in entry for words in told), entry
