"""The examples in Python and the notebook run, on a simulated H200 and for a few trials."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

import tuner

FOLDER = Path(__file__).parents[1] / "examples"
FEW: dict[str, Any] = {
    "device": "sim:h200",
    "store": False,
    "progress": False,
    "budget": 2,
    "policy": "random",
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples ask for the GPU of the machine and for a whole search."""
    tune = tuner.tune
    monkeypatch.setattr(tuner, "tune", lambda *args, **given: tune(*args, **{**given, **FEW}))


@pytest.mark.parametrize("name", ["vector_add", "stencil", "spmv"])
def test_scripts_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each script tunes its kernel and prints the answer."""
    runpy.run_path(str(FOLDER / f"{name}.py"))
    assert "block_size_x" in capsys.readouterr().out


def test_a_vector_addition_takes_twelve_lines() -> None:
    """The shortest script is short, its docstring apart."""
    _, *lines = [line for line in (FOLDER / "vector_add.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 12


def test_the_notebook_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Every cell of code runs after those above, and what is stored says that it is modelled."""
    notebook = json.loads((FOLDER / "tune.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    for cell in cells:
        exec("".join(cell["source"]), names)  # noqa: S102 - the notebook of this repository
    assert names["result"].modelled
    assert "modelled" in capsys.readouterr().out
    assert any("modelled" in "".join(output.get("text", "")) for cell in cells for output in cell["outputs"])
