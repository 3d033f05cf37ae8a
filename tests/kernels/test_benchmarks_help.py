"""Every benchmark of the kernels can be asked what it does, on a machine without a GPU."""

import sys
from pathlib import Path

import pytest
from benchmark_scripts import ROOT, benchmark, siblings_importable

SCRIPTS = [
    path for path in sorted((ROOT / "benchmarks" / "kernels").glob("*.py")) if "__main__" in path.read_text()
]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_help_says_what_a_script_does(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its first line is that of the script's docstring."""
    monkeypatch.setattr(sys, "argv", [path.name, "--help"])
    monkeypatch.delitem(sys.modules, path.stem, raising=False)  # a helper of tests may have its name
    with siblings_importable(monkeypatch), pytest.raises(SystemExit) as ended:
        benchmark(f"kernels/{path.stem}").main()
    assert ended.value.code == 0
    assert path.read_text().partition("\n")[0].strip('"') in capsys.readouterr().out
