"""Results of benchmarks say by which command, and when, each of their parts was measured."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import ROOT, benchmark

RUN = {"command": "python benchmarks/x.py", "date": "2026-11-26T00:00:00+00:00"}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Loads a script, whose siblings are importable."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return benchmark


def written(path: Path, document: dict[str, Any]) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_rows_of_an_earlier_result_keep_their_run(load: Any, tmp_path: Path) -> None:
    """Each row has its own command and date; one that has them already keeps those."""
    pareto, other = load("pareto"), {**RUN, "date": "2026-11-25T00:00:00+00:00"}
    rows = [{"space": "a"}, {"space": "b", "run": other}]
    document = {"provenance": {**RUN, "cpus": "2"}, "seeds": 31, "budgets": pareto.BUDGETS, "rows": rows}
    path = written(tmp_path / "pareto.json", document)

    assert pareto.earlier_rows(path, 31) == [{"space": "a", "run": RUN}, {"space": "b", "run": other}]
    with pytest.raises(SystemExit, match="has 31 seeds"):
        pareto.earlier_rows(path, 7)


def test_costs_of_an_unknown_day_are_refused(load: Any, tmp_path: Path) -> None:
    """Costs are taken from a result that says when one command measured all of them."""
    scaling = load("scaling")
    costs = dict.fromkeys(("writer_s", "event_s", "wake_s", "hear_s", "look_s"), 1e-6)
    measured = {**RUN, "cpus": "2 x CPU"}

    whole = written(tmp_path / "whole.json", {"costs": costs, "costs_measured": measured})
    assert scaling.costs_of(whole) == (scaling.Costs(**costs), measured)
    with pytest.raises(SystemExit, match="does not say when its costs were measured"):
        scaling.costs_of(written(tmp_path / "joined.json", {"costs": costs}))
