"""Every benchmark can be asked what it does, on a machine without a GPU."""

import ast
import runpy
import sys
from pathlib import Path

import pytest
from benchmark_scripts import ROOT, siblings_importable

SCRIPTS = [
    path for path in sorted((ROOT / "benchmarks").rglob("*.py")) if "__main__" in path.read_text("utf-8")
]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_help_says_what_a_script_does(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its first line is that of the script's docstring."""
    monkeypatch.setattr(sys, "argv", [path.name, "--help"])
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, path.stem, raising=False)  # a helper of tests may have its name
    with siblings_importable(monkeypatch), pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert ended.value.code == 0
    about = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    assert about.partition("\n")[0] in " ".join(capsys.readouterr().out.split())
