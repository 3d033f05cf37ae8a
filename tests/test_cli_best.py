"""``tuner best`` and ``tuner history``: what is stored, and why it need not be true any more."""

import os
import shlex
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cli_process import COMMAND, FAULTY, PATIENCE_S, SMALL, TX1, begun, document, tuner

from tuner.database.connection import Database
from tuner.database.runs import Store


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "tuner.db"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of one run, which nobody changes."""
    path = tmp_path_factory.mktemp("one") / "tuner.db"
    tuner("run", *SMALL, "--budget", "1", "--policy", "random", "--database", path)
    return path


def test_best_is_the_answer_of_the_run(db: Path) -> None:
    """What a run answered is what is served: the same configuration, numbers and table."""
    run = tuner("run", *SMALL, "--budget", "3", "--database", db)
    found = document("best", *SMALL, "--database", db)
    best = tuner("best", *SMALL, "--database", db)

    assert found["stale"] == []
    assert found["run"] == 1
    assert best.exit_code == 0
    table = run.stdout.split("tuning cost")[0]
    assert table in best.stdout
    assert "stale" not in best.stdout
    assert "trials" not in found


def test_without_a_size_it_says_what_is_stored(one: Path) -> None:
    found = tuner("best", "scan-lf", "--database", one)
    assert (found.exit_code, "; stored are: scan-lf:N=4 (run 1)" in found.stderr) == (2, True)


def test_best_takes_the_words_of_run(db: Path) -> None:
    """Objective and slowdown limit of a run find its answer; others do not."""
    words = (*SMALL, "--objective", "energy", "--max-slowdown", "5%", "--database", db)
    tuner("run", *words, "--budget", "2")

    assert document("best", *words)["max_slowdown"] == pytest.approx(0.05)
    other = tuner("best", *SMALL, "--max-slowdown", "10%", "--database", db)
    assert other.exit_code == 1
    assert "`tuner run scan-lf:N=4 --objective energy --max-slowdown 10% --device " in other.stderr
    assert tuner("best", *SMALL, "--database", db).exit_code == 1


def test_order_of_workloads_does_not_matter(db: Path) -> None:
    """A co-running set is the same set in any order."""
    words = ("--kernel", FAULTY, *TX1, "--database", db)
    tuner("run", "scan-lf:N=4", "faulty:N=256", *words, "--budget", "2")
    found = document("best", "faulty:N=256", "scan-lf:N=4", *words)

    assert found["stale"] == []
    assert found["best"]["configurations"].keys() == {"faulty:N=256", "scan-lf:N=4"}


def test_nothing_stored_says_how_to_get_it(db: Path) -> None:
    """Without an answer: exit code 1, the command that makes one, and nothing on standard output."""
    Store(db).close()
    result = tuner("best", *SMALL, "--objective", "time", "--database", db, "--json", "-")

    assert result.exit_code == 1
    named = f"--device sim:jetson-tx1 --database {shlex.quote(str(db))}"  # else it would store elsewhere
    assert f"run `tuner run scan-lf:N=4 --objective time {named}`" in result.stderr
    assert result.stdout == ""


def test_another_model_of_gpu_lends_nothing(one: Path) -> None:
    """What was tuned for another model of GPU need not even start: nothing is stored for this one."""
    result = tuner("best", "scan-lf:N=4", "--device", "sim:k40c", "--database", one)

    assert result.exit_code == 1
    assert "nothing is stored for sim:k40c: run" in result.stderr
    assert "run 1 has an answer for them: --device sim:jetson-tx1" in result.stderr


def test_changed_source_is_stale(db: Path, tmp_path: Path) -> None:
    """An answer is bound to the kernel's source: an edit makes it stale, undoing the edit fresh again."""
    shutil.copytree(FAULTY.parent, tmp_path / "kernel")
    source = tmp_path / "kernel" / "faulty.cu"
    text = source.read_text()
    words = ("faulty:N=256", "--kernel", tmp_path / "kernel" / "kernel.toml", *TX1, "--database", db)
    tuner("run", *words, "--budget", "1")
    source.write_text(text + "// faster\n")
    edited = document("best", *words)["stale"]
    source.write_text(text)

    assert edited == ["the source of faulty has changed"]
    assert document("best", *words)["stale"] == []


def test_named_batch_must_be_the_tuned_one(db: Path) -> None:
    """A batch that the user names and that was not tuned makes the answer stale; one that is far is none."""
    tuner("run", "scan-lf:N=4,batch=4096", *TX1, "--budget", "1", "--database", db)
    same = document("best", "scan-lf:N=4, batch=4096", *TX1, "--database", db)
    other = document("best", "scan-lf:N=4,batch=8192", *TX1, "--database", db)
    result = tuner("best", "scan-lf:N=4,batch=1024", *TX1, "--database", db)

    assert same["stale"] == []
    assert other["stale"] == ["scan-lf:N=4 was tuned for a batch of 4096, is asked for 8192"]
    assert result.exit_code == 1
    assert (
        "nothing is stored that is near enough"
        " (run 1: scan-lf:N=4 was tuned for a batch of 4096, is asked for 1024): run `tuner run"
    ) in result.stderr


def test_an_answer_for_energy_is_told_where_none_is_for_time(db: Path) -> None:
    """Nobody who named no objective goes without the only answer there is; who named time does."""
    tuner("run", *SMALL, "--budget", "1", "--database", db)
    words = ("best", "scan-lf:N=4", *TX1, "--database", db)
    shown = tuner(*words)
    assert shown.exit_code == 0
    assert "no answer for time is stored: this is one for energy" in shown.stderr
    assert "least energy" in shown.stdout
    assert tuner(*words, "--objective", "time").exit_code == 1
    assert "the objective is time" in tuner(*words, "--max-slowdown", "5%").stderr
    tuner("run", *SMALL, "--objective", "time", "--budget", "1", "--database", db)
    assert "least time" in tuner(*words).stdout


def test_a_near_size_is_lent(db: Path) -> None:
    """Without an answer of a workload that of a near size is printed, in the form of the daemon's answers."""
    tuner("run", "scan-lf:N=2", *TX1, "--objective", "energy", "--budget", "4", "--database", db)
    found = document("best", *SMALL, "--database", db)
    shown = tuner("best", *SMALL, "--database", db).stdout

    assert found["origin"] == "nearest"
    assert found["workloads"]["scan-lf:N=4"]["details"].startswith("the answer for scan-lf:N=2, run 1 of")
    assert (found["run"], found["answer"], found["clock_mhz"]) == (None, None, None)
    assert "of the database" in shown
    assert "nothing was measured" in shown


def test_kernel_named_after_a_batch_names_none(db: Path, tmp_path: Path) -> None:
    """The word batch in a kernel's name is no batch of the user: a batch fitted to the memory is fresh."""
    shutil.copytree(FAULTY.parent, tmp_path / "kernel")
    path = tmp_path / "kernel" / "kernel.toml"
    path.write_text(path.read_text().replace('"faulty"', '"batch-copy"').replace("2**22", "2**30"))
    words = ("batch-copy:N=256", "--kernel", path, *TX1, "--database", db)
    capped = document("run", *words, "--budget", "1")

    assert any("batch capped" in notice for notice in capped["notices"])
    assert document("best", *words)["stale"] == []


def test_answers_that_set_clocks_can_be_left_out(db: Path) -> None:
    """A user who may not set clocks asks for the answer that needs none."""
    tuner("run", *SMALL, "--budget", "1", "--database", db)
    tuner("run", *SMALL, "--budget", "1", "--clocks", "153", "--database", db)

    assert document("best", *SMALL, "--database", db)["best"]["clock_mhz"] == 153
    found = document("best", *SMALL, "--clocks-as-found", "--database", db)
    assert found["best"]["clock_mhz"] is None


def test_unreadable_record_is_kept_aside(db: Path) -> None:
    """A record that was damaged in database and mirror is named in a warning, and is no answer."""
    tuner("run", *SMALL, "--budget", "1", "--database", db)
    for path in (db, db.with_name(f"{db.name}.mirror")):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE runs SET answer = '{'")
    result = tuner("best", *SMALL, "--database", db)
    assert result.exit_code == 1
    assert "nothing is stored" in result.stderr
    assert tuner("history", "--database", db).exit_code == 0
    with Database(db) as database:
        assert [(row.table, row.key) for row in database.isolated()] == [("runs", (1,))]


# --- history -------------------------------------------------------------------------------------


def test_history_lists_the_newest_first(db: Path) -> None:
    """Each run has a line: number, status, workloads, device, objective, policy, trials, answer."""
    tuner("run", *SMALL, "--budget", "2", "--database", db)
    tuner("run", *SMALL, "--objective", "time", "--policy", "random", "--budget", "1", "--database", db)
    runs = document("history", "--database", db)["runs"]

    assert [run["run"] for run in runs] == [2, 1]
    assert [run["objective"] for run in runs] == ["time", "energy"]
    assert [run["policy"] for run in runs] == ["random", "auto"]
    assert [run["trials"] for run in runs] == [1, 2]
    assert {run["status"] for run in runs} == {"limited"}
    assert all(run["workloads"] == ["scan-lf:N=4"] for run in runs)
    assert all(run["modelled"] and run["device"] == "sim:jetson-tx1" for run in runs)
    assert runs[1]["best"]["energy_j_uncertainty"] > 0
    assert runs[0]["best"]["energy_j"] is None, "a search for time opens no meter"


def test_history_is_labelled(one: Path) -> None:
    """In the table modelled runs say so and joules have their interval."""
    shown = tuner("history", "--database", one).stdout

    assert "(modelled)" in shown
    assert "±" in shown


def test_history_shows_so_many(db: Path) -> None:
    """--limit cuts the list; a limit of none is refused."""
    for seed in range(3):
        tuner("run", *SMALL, "--budget", "1", "--seed", str(seed), "--database", db)

    runs = document("history", "--limit", "2", "--database", db)["runs"]
    assert [run["run"] for run in runs] == [3, 2]
    assert "older runs are not shown; --limit 4" in tuner("history", "--limit", "2", "--database", db).stdout
    assert "older" not in tuner("history", "--limit", "3", "--database", db).stdout


def test_history_of_nothing_is_empty(db: Path) -> None:
    """A new database has no runs, and that is no error."""
    Store(db).close()
    assert document("history", "--database", db) == {"runs": [], "not_understood": []}


# --- questions -----------------------------------------------------------------------------------

QUESTIONS = (("best", *SMALL), ("history",), ("db", "repair"), ("db", "export"))


@pytest.mark.parametrize("words", QUESTIONS)
def test_a_question_makes_no_database(words: tuple[str, ...], tmp_path: Path) -> None:
    """A file that was named and holds nothing is called so, and nothing is written beside it or into it."""
    empty = tmp_path / "empty.db"
    empty.touch()
    for path in (empty, tmp_path / "not" / "there.db"):
        result = tuner(*words, "--database", path)

        assert result.exit_code == 2
        assert f"--database {path}: no results are there" in result.stderr
    assert list(tmp_path.iterdir()) == [empty]
    assert empty.stat().st_size == 0


@pytest.mark.parametrize(("words", "code"), list(zip(QUESTIONS, (1, 0, 0, 2), strict=True)))
def test_a_question_before_the_first_run(
    words: tuple[str, ...], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to have stored anything: the default database is not there then, and is not made."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert tuner(*words).exit_code == code
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", [("best", *SMALL, "--no-daemon"), ("history",), ("history", "--json", "-"), ("--help",)]
)
def test_output_that_cannot_be_written(words: tuple[str, ...], one: Path) -> None:
    """Where standard output takes no more, one line says so, and the exit code is 1."""
    with Path("/dev/full").open("w") as full:
        environment = {**os.environ, "TUNER_DATABASE": str(one)}
        with begun(*words, environment=environment, output=full.fileno()) as process:
            _, errors = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 1
    assert errors == "Error: the output cannot be written: No space left on device\n"


def test_json_without_standard_output(one: Path) -> None:
    """Who closes standard output and wants the document there is told so."""
    closed = f"import os, sys; os.close(1); sys.stdout = None; {COMMAND[2]}"  # as Python finds it then
    ended = begun("history", "--json", "-", "--database", one, code=closed)
    _, errors = ended.communicate(timeout=PATIENCE_S)

    assert ended.returncode == 2
    assert errors == "Error: --json -: there is no standard output; name a file\n"
