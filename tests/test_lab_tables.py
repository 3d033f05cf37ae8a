"""Tables of docs/lab that have some rows and columns of a longer one: each is what the script prints."""

import importlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import siblings_importable

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
LAB = ROOT / "docs" / "lab"
Cells = list[str]


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with siblings_importable(monkeypatch):
        yield


def stored(name: str) -> Any:
    """A result of benchmarks/results."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def tables(text: str) -> list[list[Cells]]:
    """The cells of every Markdown table of a text, row by row, its head first."""
    found: list[list[Cells]] = [[]]
    for line in text.splitlines():
        if not line.startswith("|"):
            found.append([])
        elif not set(line) <= set("|-: "):
            found[-1].append([cell.strip() for cell in line.strip()[1:-1].split("|")])
    return [table for table in found if table]


def is_part(cells: Sequence[str], row: Sequence[str]) -> bool:
    """Whether cells stand in a row in this order, others perhaps between them."""
    left = iter(row)
    return all(cell in left for cell in cells)


def printed(script: str, argument: str) -> str:
    """What a script shows of a stored result, or its tables of these names."""
    module = importlib.import_module(script)
    if script == "show_prefix_peers":
        return "\n".join(line for name in argument.split() for line in module.TABLES[name]())
    document = stored(argument)
    if script == "input_adaptive":
        return str(module.tables(document["kernels"]))
    return str(module.shown(document))


@pytest.mark.usefixtures("scripts")
@pytest.mark.parametrize(
    ("page", "head", "script", "argument"),
    [
        ("applications", ["applications", "for", "time"], "show_applications", "applications-h200-recorded"),
        ("applications", ["for", "trials"], "show_applications", "applications-h200-searches"),
        ("applications", ["applications", "device"], "show_applications", "applications-k40c-modelled"),
        ("input-adaptive", ["kernel"], "input_adaptive", "input-adaptive-h200"),
        ("kernels/kernels", ["contest"], "rodinia_peers", "rodinia-h200"),
        *(
            ("kernels/kernels", head, "show_prefix_peers", table)
            for head, table in (
                (["what", "time"], "long-scan"),
                (["lengths", "count"], "fft-any"),
                (["rows", "count"], "fft-weakest"),
                (["N", "type", "time"], "fft-long"),
                (["N", "type", "direction"], "fft-real-long"),
                (["kernel", "sizes", "time"], "fft-planes"),
                (["what", "count"], "h100"),
                (["systems", "time"], "tridiag-large tridiag-periodic tridiag-several"),
            )
        ),
    ],
)
def test_rows_of_the_page_are_printed(page: str, head: list[str], script: str, argument: str) -> None:
    """Each row of the page is a part of one that the script prints of the stored result."""
    rows = [row for table in tables(printed(script, argument)) for row in table]
    shown = [
        table for table in tables((LAB / f"{page}.md").read_text("utf-8")) if table[0][: len(head)] == head
    ]

    assert shown
    for table in shown:
        assert [row for row in table[1:] if not any(is_part(row, one) for one in rows)] == []
