"""benchmarks/applications.py: Table IV in form, recordings of the co-run space, searches on them, tables."""

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.model.errors import UnknownNameError
from tuner.recordings.files import read
from tuner.search.answer import Outcome
from tuner.search.session import Session

BENCHMARKS = str(Path(__file__).parents[1] / "benchmarks")
SMALL = {
    "StreamCluster": "N=4096,DIM=16,K=4,CALLS=3",
    "ParticleFilter": "N=262144,H=64,W=64",
    "Lud": "N=128",
    "HotSpot": "ROWS=256,COLUMNS=256,STEPS=7",
    "MatrixMul": "M=256,N=256,K=256",
}

PART = {"StreamCluster": "U == 4", "ParticleFilter": "F == 128", "Lud": "Q == 1", "HotSpot": "T == 1"}
TRIALS = 3 * 2 * 4 * 3  # of the four in this part


@pytest.fixture(scope="module")
def scripts() -> SimpleNamespace:
    """The scripts, which import each other by bare name; sizes ``small`` are added."""
    sys.path.insert(0, BENCHMARKS)
    try:
        names = ("sets", "recording")
        found = {name: importlib.import_module(f"application_{name}") for name in names}
        found["command"] = importlib.import_module("applications")
        found["show"] = importlib.import_module("show_applications")
    finally:
        sys.path.remove(BENCHMARKS)
    found["sets"].SIZES["table-ii"] = SMALL
    found["sets"].SIZES["modelled"] = SMALL
    return SimpleNamespace(**found)


@pytest.fixture(scope="module")
def table(scripts: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two applications alone and together, on a modelled K40c."""
    out = tmp_path_factory.mktemp("table") / "out.json"
    words = ["--device", "sim:k40c", "--only", "StreamCluster", "HotSpot", "StreamCluster+HotSpot"]
    scripts.command.main([*words, "--out", str(out)])
    document: dict[str, Any] = json.loads(out.read_text())
    return document


@pytest.fixture(scope="module")
def recording(scripts: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the reduced co-run space of the four, and its singles, modelled."""
    path = tmp_path_factory.mktemp("recording") / "four.zip"
    with pytest.MonkeyPatch.context() as patch:
        for name, rule in PART.items():
            whole = scripts.sets.REDUCED_SPACE[name]
            patch.setitem(scripts.sets.REDUCED_SPACE, name, replace(whole, rules=(*whole.rules, rule)))
        scripts.command.main([*_four(), "--device", "sim:k40c", "--record", str(path)])
    return path


def _four() -> list[str]:
    return ["--only", "StreamCluster", "ParticleFilter", "Lud", "HotSpot", "four"]


def row_of(document: dict[str, Any], names: list[str], objective: str) -> dict[str, Any]:
    (row,) = [one for one in document["rows"] if one["set"] == names and one["objective"] == objective]
    assert isinstance(row, dict)
    return row


@pytest.mark.parametrize("space", ["paper", "reduced"])
@pytest.mark.parametrize("sizes", ["table-ii", "gpu", "modelled"])
def test_spaces_have_their_defaults(space: str, sizes: str, scripts: SimpleNamespace) -> None:
    """The default of every restricted kernel is in its space, which is a part of the catalogue's."""
    catalog = scripts.sets.catalog_of(space)
    whole = scripts.sets.Catalog.load(())
    for name in scripts.sets.KERNELS:
        if (space, sizes, name) == ("paper", "gpu", "ParticleFilter"):  # linear searches of millions
            continue
        workload = catalog.workload(scripts.sets.spec_of(name, sizes))
        kernel = catalog.kernel(workload.kernel)
        configurations = list(kernel.space(workload))
        assert kernel.default(workload) in configurations
        assert set(configurations) <= set(whole.kernel(workload.kernel).space(workload))
        assert kernel.fingerprint == whole.kernel(workload.kernel).fingerprint
        labels = [scripts.sets.block_of(name, space, one) for one in configurations]
        assert len(set(labels)) == len(labels)


def test_the_reduced_space_of_the_four_is_large_enough(scripts: SimpleNamespace) -> None:
    """It has from 500 to 1,000 combinations at the sizes of a GPU."""
    catalog, size = scripts.sets.catalog_of("reduced"), 1
    for name in scripts.sets.FOUR:
        workload = catalog.workload(scripts.sets.spec_of(name, "gpu"))
        size *= len(catalog.kernel(workload.kernel).space(workload))
    assert 500 <= size <= 1000


def test_energy_is_searched_over_clocks_and_time_is_not(table: dict[str, Any]) -> None:
    """On a modelled K40c the space for energy has its four clocks; that for time has the highest alone."""
    both = ["StreamCluster", "HotSpot"]
    time, energy = (row_of(table, both, objective) for objective in ("time", "energy"))
    assert energy["whole"] == 4 * time["whole"] == 72
    assert time["clock_mhz"] is None
    assert energy["clock_mhz"] in (875, 810, 745, 666)
    assert all(row["modelled"] for row in table["rows"])
    assert energy["trials"] <= energy["measured"]


def test_answers_have_intervals_and_rivals(table: dict[str, Any]) -> None:
    """Joules, slowdown and saving have intervals; a co-run is held against solo bests and in turn."""
    row = row_of(table, ["StreamCluster", "HotSpot"], "energy")
    assert row["energy_j_interval"] > 0.0
    assert {"slowdown_interval", "saving_interval"} <= row["against_time"].keys()
    assert row["solo_bests"] is not None
    assert row["one_after_another"]["time_change"] < 0.1
    assert row["optimum"]["trials"] == 72
    assert row["optimum"]["above"] >= 0.0


def test_every_cost_of_a_small_space_is_the_models(table: dict[str, Any]) -> None:
    """Measured costs of trials are the model's but for noise, and none is far below the least."""
    row = row_of(table, ["StreamCluster"], "energy")
    assert len(row["every"]) == 24
    least = min(one["energy_j"] for one in row["every"])
    assert all(one["energy_j"] > 0.98 * least for one in row["tried"])


def test_one_that_hides_the_others_is_named(
    scripts: SimpleNamespace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where solo times are more than a factor of 2 apart, the longest application is named."""
    unequal = {**SMALL, "Lud": "N=1024"}
    monkeypatch.setitem(scripts.sets.SIZES, "table-ii", unequal)
    scripts.command.main(["--device", "sim:k20c", "--only", "MatrixMul", "Lud"])
    assert "Lud takes" in capsys.readouterr().out
    scripts.command.main(["--device", "sim:k20c", "--only", "MatrixMul+Lud", "--balance"])
    assert "wanted is at most 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "sim:k41c"], "no simulated GPU"),
        (["--only", "Lud+Lud"], "--only Lud+Lud"),
        (["--only", "Kmeans"], "--only Kmeans"),
        (["--analyse", "missing.zip"], "missing.zip"),
        (["--device", "replay:missing.zip"], "missing.zip"),
        (["--device", "replay:h200"], "none of the sets was recorded"),
        (["--device", "replay:h200", "--record", "new.zip"], "was measured already"),
        (["--record", "new.zip", "--window", "0.1"], "0.5 s or more"),
        (["--space", "paper", "--sizes", "gpu", "--only", "ParticleFilter"], "cdf_by == 'serial'"),
        (["--policy", "luck"], "luck"),
    ],
)
def test_bad_input_is_refused(
    words: list[str],
    message: str,
    scripts: SimpleNamespace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What cannot be ends with exit code 2 and names it; no recording is written."""
    with pytest.raises(SystemExit) as end:
        scripts.command.main([word.replace("new.zip", str(tmp_path / "new.zip")) for word in words])
    assert end.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("*.zip"))


@pytest.mark.parametrize(
    "words", [["--record", "a", "--analyse", "b"], ["--budget", "0"], ["--seeds", "0"], ["--space", "all"]]
)
def test_options_that_exclude_each_other(words: list[str], scripts: SimpleNamespace) -> None:
    """Two sub-steps at once, and numbers that are not above zero, end with usage."""
    with pytest.raises(SystemExit) as end:
        scripts.command.parsed(words)
    assert end.value.code == 2


def test_an_interrupt_ends_the_table(
    scripts: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The set that was interrupted is in the document, and no other is begun."""

    class Interrupted(Session):
        def run(self, **named: bool) -> Outcome:
            outcome = super().run(**named)
            return replace(outcome, document={**outcome.document, "status": "interrupted"})

    out = tmp_path / "out.json"
    monkeypatch.setattr(scripts.command, "Session", Interrupted)
    with pytest.raises(SystemExit) as end:
        scripts.command.main(["--device", "sim:k40c", "--only", "MatrixMul", "Lud", "--out", str(out)])
    assert end.value.code == 130
    assert [row["set"] for row in json.loads(out.read_text())["rows"]] == [["MatrixMul"]]


def test_a_recording_is_complete_and_belongs_to_the_catalogue(
    scripts: SimpleNamespace, recording: Path
) -> None:
    """All trials are there with joules, and sources are those of the catalogue's kernels."""
    spaces = {len(space.workloads): space for space in read(recording)}
    four = spaces[4]
    assert len(four.trials) == TRIALS
    assert all(one.energy is not None for one in four.trials.values())
    whole = scripts.sets.Catalog.load(())
    for workload in four.workloads:
        assert workload.fingerprint == whole.kernel(workload.kernel).fingerprint


def test_recording_again_measures_nothing(
    scripts: SimpleNamespace, recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recording that is complete is written again as it is, without opening the device."""
    before = recording.read_bytes()
    words = [*_four(), "--device", "sim:no-such-gpu", "--sizes", "modelled"]
    scripts.command.main([*words, "--record", str(recording)])
    assert recording.read_bytes() == before
    assert f"{TRIALS} trials, 100 %" in capsys.readouterr().out


def test_a_budget_keeps_a_part_that_is_gone_on_with(scripts: SimpleNamespace, tmp_path: Path) -> None:
    """A call that ends early writes what it has, and the next one measures the rest, nothing twice."""
    path, words = tmp_path / "part.zip", ["--device", "sim:k40c", "--only", "Lud+MatrixMul"]
    scripts.command.main([*words, "--record", str(path), "--budget", "1"])
    (part,) = read(path)
    assert 0 < len(part.trials) < 20
    scripts.command.main([*words, "--record", str(path)])
    (whole,) = read(path)
    assert len(whole.trials) == 20
    assert all(whole.trials[trial] == one for trial, one in part.trials.items())


def test_searches_are_judged_on_a_recording(
    scripts: SimpleNamespace, recording: Path, tmp_path: Path
) -> None:
    """Distances are from the least recorded cost; more trials are never worse."""
    out = tmp_path / "analysis.json"
    scripts.command.main(["--analyse", str(recording), "--seeds", "1", "--out", str(out)])
    document = json.loads(out.read_text())
    assert [row["objective"] for row in document["rows"]] == ["time", "energy"]
    for row in document["rows"]:
        assert row["solo_bests"]["above"] >= 0.0
        for one in row["searches"]:
            after = list(one["after"].values())
            assert after == sorted(after, reverse=True)
            assert one["above"] >= 0.0
    assert "`greedy`" in scripts.show.shown(document)


def test_a_recording_is_a_device(scripts: SimpleNamespace, recording: Path, tmp_path: Path) -> None:
    """The table from a recording has its sets alone, with solo bests and in turn from the recording."""
    out = tmp_path / "replay.json"
    words = ["--device", f"replay:{recording}", "--space", "reduced", "--out", str(out)]
    scripts.command.main(words)
    document = json.loads(out.read_text())
    assert len(document["rows"]) == 10
    four = row_of(document, list(scripts.sets.FOUR), "energy")
    assert four["optimum"]["trials"] == four["whole"] == TRIALS
    assert four["solo_bests"]["energy_saving_interval"] > 0.0
    assert four["one_after_another"]["time_change"] < 0.0
    assert len(scripts.show.shown(document).splitlines()) > 15


def test_the_policy_alone_is_counted(scripts: SimpleNamespace) -> None:
    """A watched policy asks for what it would ask for anyway, and counts each trial once."""
    watched = scripts.command.Watched(asks_for_two)
    generator = watched(None)
    ok, pruned = (SimpleNamespace(status=scripts.command.Status[name]) for name in ("OK", "PRUNED"))
    assert next(generator) == ["a", "b"]
    assert generator.send([ok, pruned]) == ["a"]
    with pytest.raises(StopIteration) as end:
        generator.send([ok])
    assert (end.value.value, list(watched.asked), watched.found) == ("a", ["a"], "a")


def asks_for_two(_: Any) -> Any:
    yield ["a", "b"]
    yield ["a"]
    return "a"


def test_tables_stand_beside_the_papers(scripts: SimpleNamespace, table: dict[str, Any]) -> None:
    """Below each own row stands the one that the paper prints for the same GPU."""
    lines = scripts.show.table_iv(table).splitlines()
    own = next(place for place, line in enumerate(lines) if line.startswith("| StreamCluster + HotSpot"))
    assert "K40c, modelled" in lines[own]
    assert "128, 16×16 | 4 (50) | 512, 16×16 | 810 MHz | 6 (200)" in lines[own + 1]


def test_docs_are_replaced_between_their_marks(scripts: SimpleNamespace) -> None:
    """What stands between the marks goes, the rest stays; a page without them is refused."""
    page = "head\n<!-- x -->\nold\n<!-- end of x -->\nfoot\n"
    marked = scripts.show.marked(page, "x", "new", Path("page.md"))
    assert marked == "head\n<!-- x -->\n\nnew\n\n<!-- end of x -->\nfoot\n"
    assert scripts.show.marked(marked, "x", "new", Path("page.md")) == marked
    with pytest.raises(SystemExit, match="has no lines"):
        scripts.show.marked("empty", "x", "new", Path("page.md"))


def test_unknown_sets_name_the_known(scripts: SimpleNamespace) -> None:
    """Names are taken in any case; others list what there is."""
    assert scripts.sets.chosen_sets(["lud+matrixmul"]) == (("Lud", "MatrixMul"),)
    assert scripts.sets.chosen_sets([]) == scripts.sets.SETS
    with pytest.raises(UnknownNameError, match="StreamCluster"):
        scripts.sets.chosen_sets(["Lud+"])
