"""``tuner show``, ``tuner diff`` and ``tuner history``: runs that are stored, and documents in files."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from cli_process import SMALL, TX1, document, tuner
from report_documents import RECORDED, run_document, run_trial
from report_documents import TX1 as MODELLED
from rich.console import Console

from tuner.report.diff import differences_of
from tuner.report.lists import runs_report

TIMES = (*SMALL, "--objective", "time", "--policy", "random", "--clocks", "998,921", "--joules")


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one workload, and one of two."""
    path = tmp_path_factory.mktemp("runs") / "tuner.db"
    tuner("run", *SMALL, "--budget", "4", "--database", path)
    tuner("run", *TIMES, "--budget", "6", "--database", path)
    tuner("run", "scan-lf:N=4", "fft:N=4", *TX1, "--budget", "2", "--database", path)
    return path


def test_a_run_is_shown_with_all_its_trials(db: Path) -> None:
    """By number or as the newest: the report, with number and rank of each trial."""
    shown = tuner("show", "1", "--database", db).stdout

    assert "· run 1\n" in shown
    assert "rank" in shown
    assert "trials (modelled; 4; ± is 95 %)" in shown
    assert "more: tuner show" not in shown
    newest = tuner("show", "--database", db).stdout
    assert newest.startswith("scan-lf:N=4 + fft:N=4 ·")
    assert newest.rstrip().split("use: ")[1].startswith("tuner export 3 --format header --database")


def test_tunables_are_in_the_order_of_the_kernel_file(db: Path) -> None:
    """Stored trials have theirs sorted by name."""
    head = tuner("show", "2", "--csv", "--database", db).stdout.splitlines()[0]
    assert head.startswith("number,rank,status,P,L,r,S,shuffle,")


def test_csv_has_a_row_for_each_trial(db: Path) -> None:
    """Sorted as asked for, in SI units; what is not known is empty."""
    rows = list(
        csv.DictReader(io.StringIO(tuner("show", "2", "--csv", "--sort", "time", "--database", db).stdout))
    )
    times = [float(row["time_s"]) for row in rows]

    assert len(rows) == 6
    assert times == sorted(times)
    assert {row["clock_mhz"] for row in rows} <= {"", "998", "921"}
    assert [row["number"] for row in rows if "answer" in row["marks"]] != []
    several = tuner("show", "3", "--csv", "--database", db).stdout.splitlines()[0]
    assert "P_1" in several
    assert "P_2" in several


def test_trials_are_filtered_by_an_expression(db: Path) -> None:
    """Over tunables and numbers; tunables of several workloads carry the workload's number."""
    found = document("show", "2", "--where", "clock == 921 and time_s < 1 and time < 1", "--database", db)[
        "trials"
    ]
    every = document("show", "2", "--sort", "number", "--database", db)["trials"]

    assert [one["number"] for one in every] == [1, 2, 3, 4, 5, 6]
    assert sorted(one["number"] for one in found) == [
        one["number"] for one in every if one["clock_mhz"] == 921
    ]
    two = document("show", "3", "--where", "L_1 > 0 and order == 'first'", "--database", db)["trials"]
    assert all(one["configurations"]["fft:N=4"]["order"] == "first" for one in two)
    assert document("show", "2", "--status", "timeout", "--database", db)["trials"] == []
    assert len(document("show", "2", "--top", "2", "--database", db)["trials"]) == 2
    nothing = tuner("show", "2", "--where", "clock == 1", "--database", db).stdout
    assert "no trial is as --where and --status ask" in nothing
    assert "--top 0 shows all trials" in tuner("show", "2", "--top", "2", "--database", db).stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("9",), "run 9: there is no such run; `tuner history` lists the runs"),
        (("9" * 30,), f"run {'9' * 30}: there is no such run"),
        (("none.json",), "none.json: neither the number of a run (`tuner history`) nor a file"),
        (("1", "--where", "Q == 2"), "--where: no trial has 'Q'; choose from number, rank,"),
        (("1", "--where", "import os"), "--where: expression 'import os': not an expression"),
        (
            ("1", "--where", "P = 4"),
            "--where: expression 'P = 4': not an expression (invalid syntax; == compares)",
        ),
        (("1", "--status", "crash"), "--status crash: no trial ends so; choose from ok, compile-error,"),
        (("1", "--where", "store + 1"), "--where: expression 'store + 1': "),
        (("1", "--sort", "tims"), "--sort tims: no trial has this; choose from"),
        (("1", "--csv", "--json", "-"), "--csv and --json - both want standard output"),
    ],
)
def test_bad_questions_are_refused(db: Path, words: tuple[str, ...], says: str) -> None:
    """Exit code 2 and a message that says what would be right."""
    result = tuner("show", *words, "--database", db)

    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1]", "it is a list, not an object"),
        ("{", "not JSON"),
        ('{"device": {}}', "best is missing"),
        (json.dumps(run_document([run_trial({"a": {}}, 1.0)]) | {"trials": [{"a": 1}]}), "trials[0]."),
        (json.dumps(run_document([run_trial({"a": {}}, 1.0)]) | {"workloads": 3}), "workloads is 3, not a"),
    ],
)
@pytest.mark.parametrize("command", ["show", "diff"])
def test_files_that_hold_no_document_are_refused(tmp_path: Path, command: str, text: str, says: str) -> None:
    """Whatever is in a file, it is a message and no traceback."""
    path = tmp_path / "run.json"
    path.write_text(text)
    words = (path, path) if command == "diff" else (path,)
    result = tuner(command, *words)

    assert result.exit_code == 2
    assert str(path) in result.stderr
    assert says in result.stderr


def test_a_file_is_shown_as_its_run_is(db: Path, tmp_path: Path) -> None:
    """The document of --json has all that the database has."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document("show", "1", "--database", db)))

    assert tuner("show", path).stdout == tuner("show", "1", "--database", db).stdout


def test_runs_are_compared(db: Path) -> None:
    """Numbers with their changes, configurations where they differ, and the conditions that differ."""
    shown = tuner("diff", "1", "2", "--database", db).stdout
    rows = {line.split("  ")[1].strip(): line for line in shown.splitlines() if line.startswith("  ")}

    assert "±" in rows["energy"]
    assert rows["energy"].endswith(" %")
    assert rows["trials"].split() == ["trials", "4", "6"]
    assert "  objective: A energy; B time" in shown
    assert "  clocks: A off; B 998,921" in shown
    same = tuner("diff", "1", "1", "--database", db).stdout
    assert "scan-lf:N=4: the same configuration" in same
    assert "the conditions are the same" in same


def test_conditions_that_differ_are_told() -> None:
    """Those of GPU and sources that both runs have, and every option; where numbers come from, once."""
    trials = [run_trial({"a:N=1": {"P": 1}}, 1.0, 2.0)]
    one = run_document(trials, device=RECORDED, sources={"a": "1", "b": "1"}, settings={"repeats": 3})
    other = run_document(trials, device=MODELLED | {"mig": True}, batch=2, sources={"a": "2"})
    found = differences_of(one, other, ("first", "second"))

    assert found.conditions == [
        "device spec: A replay:h200; B sim:jetson-tx1",
        "device name: A NVIDIA H200; B NVIDIA Jetson TX1 (modelled)",
        "device modelled: A no; B yes",
        "device recorded: A 2026-11-21; B –",
        "batch of a:N=1: A 1; B 2",
        "source of a: its files or options have changed",
        "option repeats: A 3; B –",
    ]
    assert [title.split(" · ")[2] for title in found.titles] == [
        "NVIDIA H200 (recorded)",
        "NVIDIA Jetson TX1 (modelled)",
    ]


def test_a_run_without_an_answer_is_shown(db: Path) -> None:
    """Its trials, and why there is no answer."""
    name = "a:N=1"
    found = run_document([run_trial({name: {"P": 1}}, None, status="timeout", detail="hangs")], best=None)
    path = db.with_name("none.json")
    path.write_text(json.dumps(found))

    shown = tuner("show", path).stdout
    assert "no valid trial: there is no answer" in shown
    assert "failed: timeout: a:N=1 [P=1]: hangs" in shown
    assert "energy" in tuner("diff", path, path).stdout


RUNS: list[Any] = [
    {
        "run": number,
        "started_at": "2026-11-22T22:02:51+00:00",
        "status": "finished",
        "trials": 1234,
        "workloads": ["scan-lf:N=1024", "tridiag-wm:N=512", "fft:N=1024"],
        "device": "sim:jetson-tx1",
        "modelled": True,
        "recorded": None,
        "objective": "energy",
        "policy": "auto",
        "merged_from": None,
        "best": {"time_s": 0.078, "energy_j": 0.5477, "energy_j_uncertainty": 5e-4},
    }
    for number in (20, 21, 22, 23, 24, 25)
]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_history_is_whole_at_any_width(width: int) -> None:
    """No line is too wide, no word is broken, and each run has its own number."""
    text = io.StringIO()
    Console(file=text, width=width).print(runs_report(RUNS, width))
    lines: list[str] = text.getvalue().splitlines()
    words = ("2026-11-22", "22:02:51", "tridiag-wm:N=512", "sim:jetson-tx1")

    assert max(map(len, lines)) <= width
    assert all(text.getvalue().split().count(word) == len(RUNS) for word in words)
    for run in RUNS:
        assert any(str(run["run"]) in line.split() for line in lines)


def test_the_width_is_that_of_columns(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where standard output is no terminal; without it lines are whole."""
    whole = tuner("show", "1", "--database", db).stdout
    monkeypatch.setenv("COLUMNS", "60")
    narrow = tuner("show", "1", "--database", db).stdout

    assert max(map(len, whole.splitlines())) > 60
    assert max(map(len, narrow.splitlines())) <= 60


def test_series_of_trials_come_with_the_document(tmp_path: Path) -> None:
    """What the search saw, end, joules and spreads of every trial; power of the default and of contenders."""
    database, written = tmp_path / "tuner.db", tmp_path / "run.json"
    tuner("run", *SMALL, "--budget", "4", "--database", database, "--json", written, "--with-series")
    ran = json.loads(written.read_text())["trials"]

    stored = json.loads(tuner("show", "--database", database, "--json", "-", "--with-series").stdout)

    assert stored["tied"]
    assert set(stored["tied"]) <= set(stored["contenders"])
    for trial in stored["trials"]:
        again = trial["number"] in stored["contenders"]
        same = ran[trial["number"] - 1]
        assert trial["confirmed"] == again
        assert bool(trial["power_series"]) == again
        assert (trial["repeats_spent_j"] > 0) == again
        assert trial["ended_at"] > stored["started_at"]
        assert [trial[key] for key in ("spent_j", "ended_s", "power_series", "time_spreads_s")] == [
            same[key] for key in ("spent_j", "ended_s", "power_series", "time_spreads_s")
        ]
        if not again:
            assert trial["searched"]["time_s"] == trial["time_s"]
    plain = json.loads(tuner("show", "--database", database, "--json", "-").stdout)
    assert "searched" not in plain["trials"][0]


def test_series_need_a_file(db: Path) -> None:
    """Without --json nothing could be added to."""
    failed = tuner("show", "1", "--with-series", "--database", db)

    assert failed.exit_code == 2
    assert "--with-series: adds to what --json writes" in failed.stderr
