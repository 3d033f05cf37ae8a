"""``tuner compare`` from its words to its table, JSON and picture."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_process import SMALL, document, rows, tuner
from small_spaces import space

from tuner.recordings.files import write
from tuner.recordings.values import RecordedSpace
from tuner.studies import comparison as plays
from tuner.studies.comparison import EvaluationJob, Play, Rules, jobs, play_one

KEYS = {
    *("format", "version", "provenance", "status", "device", "modelled", "objective", "seeds", "budget"),
    *("policies", "operations", "workloads", "notices"),
}
ROW_KEYS = {
    *("sizes", "plays", "phi", "phi_lowest", "phi_highest", "evaluations", "evaluations_most"),
    *("evaluations_to_close", "search_s_per_evaluation", "rate", "rate_name", "energy_j"),
    *("energy_j_uncertainty", "energy_sizes", "curve"),
}
PLAYERS = ("--policies", "random,greedy", "--seeds", "2", "--jobs", "1")


@pytest.fixture(autouse=True)
def _no_other_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Spaces of two operations, one with joules, and one where everything failed."""
    path = tmp_path / "hand.zip"
    write(
        path,
        [
            space(["scan:N=1"], [3.0, 2.0, 1.0, 4.0]),
            space(["scan:N=2"], [1.0, 2.0, 3.0, None], joules=10.0),
            space(["fft:N=1"], [None, None]),
        ],
    )
    return path


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plays in this process: no test but one is about processes."""

    def play_all(spaces: list[RecordedSpace], rules: Rules, processes: int) -> Iterator[Play]:
        assert processes >= 1
        yield from (play_one(job, spaces, rules) for job in jobs(rules, len(spaces)))

    monkeypatch.setattr(plays, "play_all", play_all)


def replay(path: Path) -> tuple[str, str]:
    return "--device", f"replay:{path}"


def test_document_has_what_scripts_rely_on(recording: Path) -> None:
    """--json holds the promised keys, filled, for every operation, workload and policy."""
    found = document("compare", "scan", *replay(recording), *PLAYERS)

    assert found.keys() == KEYS
    assert (found["format"], found["version"], found["status"]) == ("tuner-comparison", 1, "finished")
    assert (found["device"]["name"], found["modelled"]) == ("Made by hand", False)
    (operation,) = found["operations"]
    assert operation["workloads"] == ["scan:N=1", "scan:N=2"]
    assert list(operation["policies"]) == found["policies"] == ["random", "greedy"]
    assert operation["policies"]["random"].keys() == ROW_KEYS
    assert operation["policies"]["random"]["phi"] == 1.0
    assert operation["best"]["energy_j"] == pytest.approx(10.0)
    assert found["provenance"].keys() >= {"date", "command", "python", "packages"}


@pytest.mark.usefixtures("here")
def test_the_same_seeds_give_the_same_answers(recording: Path) -> None:
    """Two comparisons agree in all but the time they took."""

    def told() -> list[Any]:
        found = document("compare", "scan", *replay(recording), *PLAYERS, "--budget", "2")
        for operation in found["operations"]:
            for row in operation["policies"].values():
                row.pop("search_s_per_evaluation")
        return list(found["operations"])

    assert told() == told()


@pytest.mark.usefixtures("here")
def test_table_says_what_it_shows(recording: Path) -> None:
    """The table names operation, policies, Φ and units, and says that numbers are recorded."""
    result = tuner("compare", *replay(recording), *PLAYERS)

    assert result.exit_code == 0
    for part in (
        "Made by hand",
        "recorded",
        "scan",
        "best of all",
        "greedy",
        "1.0000",
        "MData/s",
        "± 0.20 J",
    ):
        assert part in result.stdout
    assert "modelled" not in result.stdout
    assert "left out: fft:N=1: every one of its 2 trials failed; the first: it fell" in result.stdout
    assert "--seeds 2: fewer than 10" in result.stdout


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["picture.png", "picture.svg"])
def test_picture_is_drawn(recording: Path, tmp_path: Path, name: str) -> None:
    """--plot writes a picture of the kind its name asks for."""
    pytest.importorskip("matplotlib")
    path = tmp_path / name
    assert tuner("compare", *replay(recording), *PLAYERS, "--plot", path).exit_code == 0
    begin = path.read_bytes()[:200]
    assert begin.startswith(b"\x89PNG") if name.endswith("png") else b"<?xml" in begin


@pytest.mark.usefixtures("here")
def test_a_policy_that_raises_is_told(recording: Path) -> None:
    """The table is printed all the same, says who raised on what and why, and the exit code is 1."""
    words = ("--policies", "analytical:rule=none,random", "--seeds", "2")
    result = tuner("compare", "scan:N=1", *replay(recording), *words)
    assert result.exit_code == 1
    assert "analytical:rule=none raised in 2 plays" in result.stdout
    assert "random" in result.stdout
    assert "a policy raised" in result.stderr


def test_ctrl_c_keeps_what_was_played(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted, the table and the JSON hold the plays that had ended, and the exit code is 130."""

    def stopped(spaces: list[RecordedSpace], rules: Rules, _: int) -> Iterator[Play]:
        yield play_one(EvaluationJob(0, 0, 0), spaces, rules)
        raise KeyboardInterrupt

    monkeypatch.setattr(plays, "play_all", stopped)
    path = tmp_path / "found.json"
    result = tuner("compare", *replay(recording), *PLAYERS, "--json", path)
    assert result.exit_code == 130
    assert "interrupted" in result.stdout
    found = json.loads(path.read_text())
    assert found["status"] == "interrupted"
    assert [w["policies"].get("random", {}).get("plays") for w in found["workloads"]] == [1, None]


@pytest.mark.parametrize(
    ("ended", "says", "dashes"),
    [(1, "(2 sizes) no policy yet", 8), (2, "(1 of 2 sizes) random", 8), (5, "(1 of 2 sizes) random", 0)],
)
def test_rows_of_an_interrupted_comparison_say_of_what_they_are(
    recording: Path, monkeypatch: pytest.MonkeyPatch, ended: int, says: str, dashes: int
) -> None:
    """Two policies with two seeds are four searches a size; a policy without figures has dashes."""

    def stopped(spaces: list[RecordedSpace], rules: Rules, _: int) -> Iterator[Play]:
        yield from (play_one(job, spaces, rules) for job in jobs(rules, len(spaces))[:ended])
        raise KeyboardInterrupt

    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setattr(plays, "play_all", stopped)
    shown = tuner("compare", *replay(recording), *PLAYERS, "--objective", "time").stdout

    assert says in " ".join(shown.split())
    assert "those sizes on which all searches of every policy shown had ended" in " ".join(shown.split())
    rows = [line.split() for line in shown.splitlines()]
    assert max(row.count("–") for row in rows if {"greedy", "policy"} & set(row)) >= dashes


def test_nothing_is_drawn_of_no_figures(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interruption before a policy had ended on a space leaves no picture, and no error."""
    pytest.importorskip("matplotlib")

    def stopped(spaces: list[RecordedSpace], rules: Rules, _: int) -> Iterator[Play]:
        yield play_one(EvaluationJob(0, 0, 0), spaces, rules)
        raise KeyboardInterrupt

    monkeypatch.setattr(plays, "play_all", stopped)
    path = tmp_path / "picture.svg"
    assert tuner("compare", *replay(recording), *PLAYERS, "--plot", path).exit_code == 130
    assert not path.exists()


@pytest.mark.usefixtures("here")
def test_it_says_first_how_much_it_will_do(recording: Path) -> None:
    """Policies, spaces, operations, seeds and searches; on a device, also that trials are measured before."""
    searches = "2 seeds: 4 searches, each of at most 200 trials"
    one = tuner("compare", "scan:N=1", *replay(recording), *PLAYERS)
    assert one.stderr.splitlines()[0] == f"comparing 2 policies on 1 space of 1 operation with {searches}"
    measured = tuner("compare", *SMALL, *PLAYERS).stderr.splitlines()[0]
    assert measured.endswith("; before, every trial is measured that no stored run has")


@pytest.mark.usefixtures("here")
def test_a_ground_truth_is_measured_once(tmp_path: Path) -> None:
    """On a device the exhaustive run is stored; a second comparison measures nothing and agrees with it."""
    database = tmp_path / "tuner.db"
    words = ("compare", *SMALL, *PLAYERS, "--database", database)
    first = document(*words)
    measured = rows(database)
    second = document(*words)

    assert (rows(database), rows(database, "runs")) == (measured, 1)
    (before,), (after,) = first["workloads"], second["workloads"]
    assert before["ground_truth"]["trials"] == measured
    assert "measured now" in before["ground_truth"]["origin"]
    assert "measured before" in after["ground_truth"]["origin"]
    assert before["best"] == after["best"]
    assert (second["modelled"], before["ground_truth"]["missing"]) == (True, 0)


@pytest.mark.usefixtures("here")
def test_another_objective_is_another_ground_truth(tmp_path: Path) -> None:
    """A run under other conditions is not taken for this one."""
    database = tmp_path / "tuner.db"
    for objective in ("time", "energy"):
        document("compare", *SMALL, *PLAYERS, "--database", database, "--objective", objective)
    assert rows(database, "runs") == 2


@pytest.mark.usefixtures("here")
def test_a_stopped_ground_truth_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while it is measured keeps its trials; the same command measures only the others."""
    from tuner.measurement.measurer import TrialMeasurer  # noqa: PLC0415 - patched here only

    database = tmp_path / "tuner.db"
    words = ("compare", *SMALL, *PLAYERS, "--database", database)
    measure, left = TrialMeasurer.measure, [5]

    def tired(self: TrialMeasurer, *arguments: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return measure(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(TrialMeasurer, "measure", tired)
        assert tuner(*words).exit_code == 130
    assert rows(database) == 5
    found = document(*words)
    assert rows(database, "runs") == 1
    assert rows(database) == found["workloads"][0]["ground_truth"]["trials"] > 5
