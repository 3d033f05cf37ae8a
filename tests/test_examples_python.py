"""The examples in Python and the notebook run for a few trials; arguments of benchmarks/examples.py."""

import importlib
import json
import runpy
import sys
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


BENCHMARKS = str(Path(__file__).parents[1] / "benchmarks")


@pytest.fixture(scope="module")
def benchmark() -> Any:
    """The script, whose neighbours are imported by bare name; ``examples`` is another module of the tests."""
    held = sys.modules.pop("examples", None)
    sys.path.insert(0, BENCHMARKS)
    try:
        return importlib.import_module("examples")
    finally:
        sys.path.remove(BENCHMARKS)
        sys.modules.pop("examples", None)
        if held is not None:
            sys.modules["examples"] = held


def test_all_examples_are_meant_unless_some_are_named(benchmark: Any) -> None:
    """Without options everything is tuned; --only and --limit restrict it."""
    options = benchmark.parsed([])
    assert options.only == benchmark.names()
    assert len(options.only) == 10
    assert (options.limit, options.json) == (450.0, None)
    options = benchmark.parsed(["--only", "spmv", "nbody", "--limit", "60", "--json", "out.json"])
    assert (options.only, options.limit, options.json) == (["spmv", "nbody"], 60.0, Path("out.json"))


@pytest.mark.parametrize("words", [["--only", "softmax"], ["--limit", "0"], ["--objective", "beauty"]])
def test_wrong_options_are_refused(benchmark: Any, words: list[str]) -> None:
    """Unknown examples, no time and unknown objectives end with usage."""
    with pytest.raises(SystemExit) as end:
        benchmark.parsed(words)
    assert end.value.code == 2


def test_the_table_counts_what_is_near(benchmark: Any) -> None:
    """A row within 2 % and right is met; a wrong answer, a slow one and a run without an answer are not."""
    near = benchmark.Row("a", 10, 10, 5, 1.0, "right", "x=1", "x=2", 1.01e-4, 1e-4)
    slow = benchmark.Row("b", 10, 10, 5, 1.0, "right", "x=1", "x=2", 1.03e-4, 1e-4)
    wrong = benchmark.Row("c", 10, 10, 5, 1.0, "1 of 5 wrong", "x=1", "x=2", 1e-4, 1e-4)
    none = benchmark.Row("d", trouble="tuner run: no answer")
    text = benchmark.table([near, slow, wrong, none])
    assert text.splitlines()[-1] == "1 of 4 within 2% of the sweep, with right answers"
    assert "101.0 µs" in text
    assert none.loss is None
