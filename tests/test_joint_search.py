"""benchmarks/joint_search.py: searches on joint spaces, and their table in the documentation."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def scripts() -> SimpleNamespace:
    """The scripts, which import each other by bare name."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        names = ("search", "spaces")
        return SimpleNamespace(**{name: importlib.import_module(f"joint_{name}") for name in names})
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def small(scripts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single space: two workloads, their block sizes, modelled."""
    space = scripts.spaces.ModelledBlockSizes("h200", ("scan-lf:N=256", "fft:N=512"))
    monkeypatch.setattr(scripts.search, "_spaces", lambda _: [space])
    scripts.search._costs.cache_clear()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("start", ["kernel defaults", "drawn at random"])
def test_a_row_tells_how_near_a_search_comes(scripts: SimpleNamespace, start: str) -> None:
    """More trials never lead away but by noise, and random ones in number end at the least."""
    row = scripts.search.row((), scripts.search.Task(0, "time", start, "random"), 3)

    assert (row["searches"], row["kept_out"], row["label"]) == (3, False, "modelled")
    assert row["trials"]["most"] == min(row["size"], scripts.search.MOST + 1)
    means = [row["above"][budget]["mean"] for budget in ("10", "30", "60")]
    assert means[2] <= means[0] + 3 * scripts.spaces.NOISE["time"]
    assert 0.0 <= means[2] < 0.01
    assert 1 <= row["to"]["0.01"]["trials"] <= row["trials"]["most"]


@pytest.mark.usefixtures("small")
def test_what_nobody_measured_alone_is_no_row(scripts: SimpleNamespace) -> None:
    """Block sizes of modelled kernels have no solo bests and no costs alone."""
    for search in ("solo bests", "bayesian, alone"):
        task = scripts.search.Task(0, "time", "kernel defaults", search)
        assert scripts.search.row((), task, 1) is None


def test_recorded_workloads_are_known_alone(scripts: SimpleNamespace) -> None:
    """The four prefix kernels of the shipped recording have every block size measured alone."""
    (space,) = scripts.spaces.recorded_spaces(scripts.spaces.SHIPPED)
    objective = scripts.search.Objective("time")
    search = space.search(objective, 0)

    known = space.alone(objective, search, 0)

    assert [len(one.points) for one in known] == [len(one) for one in search.candidates]
    assert space.solo_bests(objective) in space.costs(objective)


def test_a_recording_that_is_not_there_is_told(
    scripts: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and which option is wrong."""
    missing = tmp_path / "none.zip"

    assert scripts.search.main(["--recording", str(missing)]) == 2
    assert f"--recording {missing}: there is no such file" in capsys.readouterr().err


def test_the_page_has_the_table_of_the_result(
    scripts: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recorded rows of docs/lab/applications.md were written from the JSON by the script."""
    rows = json.loads((BENCHMARKS / "results" / "joint-search.json").read_text())["rows"]
    page = tmp_path / "page.md"
    page.write_text("<!-- joint -->\nold\n<!-- end of joint -->\n")

    scripts.search.table(rows, page)

    printed = capsys.readouterr().out.splitlines()
    assert "old" not in page.read_text()
    table = page.read_text()
    assert "(recorded" in table
    assert "(modelled" not in table
    assert {line for line in table.splitlines() if line.startswith("|")} <= set(printed)
    assert table in (ROOT / "docs" / "lab" / "applications.md").read_text()
