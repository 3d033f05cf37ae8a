"""``tuner sweep``: what it lists, runs and prints, and how it ends."""

import json
import signal
from pathlib import Path

import pytest
from cli_process import await_rows, begun, document, tuner
from job_workshop import PreparedLauncher

from tuner.search import job_launcher

QUICK = """
[options]
policy = "random"
window_s = 0.5

[[group]]
name = "scans"
kernels = ["scan-lf"]
sizes = { N = [4, 8] }
devices = ["sim:jetson-tx1"]
objectives = ["time"]
options = { budget = 2 }
"""


@pytest.fixture(autouse=True)
def _prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that the command runs in this process are processes whose imports are done."""
    monkeypatch.setattr(job_launcher, "Launcher", PreparedLauncher)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A sweep of two short jobs."""
    path = tmp_path / "sweep.toml"
    path.write_text(QUICK)
    return path


def test_a_dry_run_lists_jobs(file: Path) -> None:
    """It prints each job and their number, with --json as a document, and runs nothing."""
    result = tuner("sweep", file, "--dry-run")

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "scans: scan-lf:N=4 time on sim:jetson-tx1 --policy random --window 0.5 --budget 2",
        "scans: scan-lf:N=8 time on sim:jetson-tx1 --policy random --window 0.5 --budget 2",
        "2 jobs",
    ]
    assert [job["workloads"] for job in document("sweep", file, "--dry-run")["jobs"]] == [
        ["scan-lf:N=4"],
        ["scan-lf:N=8"],
    ]


def test_a_dry_run_refuses_unknown_kernels(tmp_path: Path) -> None:
    """A kernel that is not there is told by its place in the file, with exit code 2."""
    path = tmp_path / "sweep.toml"
    path.write_text('[[group]]\nname = "scans"\nkernels = ["scan-fl"]\nsizes = { N = [4, 8] }\n')
    result = tuner("sweep", path, "--dry-run")

    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {path}: [[group]] 1: unknown kernel 'scan-fl'; did you mean")
    assert "did you mean 'scan-lf'?" in line


def test_a_sweep_is_run_and_gone_on_with(file: Path, tmp_path: Path) -> None:
    """Jobs are told in a table and as JSON; the same command then runs nothing; a failed one ends in 1."""
    words = (
        "sweep",
        file,
        "--on",
        "local",
        "--database",
        tmp_path / "tuner.db",
        "--json",
        tmp_path / "found",
    )
    first = tuner(*words)
    found = json.loads((tmp_path / "found").read_text())
    file.write_text(
        f'{QUICK}\n[[group]]\nname = "alone"\nworkloads = ["scan-lf:N=16"]\n'
        'devices = ["sim:jetson-tx1"]\noptions = { solo_bests = 2 }\n'
    )
    second = tuner(*words)

    assert first.exit_code == 0, first.output
    assert "2 of 2 jobs have an end: 2 finished, 0 answered before, 0 failed" in first.stdout
    assert "nothing to resume" not in tuner("show", "1", "--database", tmp_path / "tuner.db").stdout
    assert [one["answer"]["trials"] for one in found["results"]] == [2, 2]
    assert second.exit_code == 1
    assert "failed: scan-lf:N=16 time on sim:jetson-tx1 --policy random" in second.stdout
    assert " --solo-bests 2: --solo-bests: " in second.stdout
    assert "3 of 3 jobs have an end: 0 finished, 2 answered before, 1 failed" in second.stdout


def test_solo_bests_of_a_job_come_before_it(tmp_path: Path) -> None:
    """The workloads are tuned alone first, on the same device, and the job ends as any other."""
    path, database = tmp_path / "sweep.toml", tmp_path / "tuner.db"
    path.write_text(
        '[[group]]\nname = "pair"\nworkloads = [["scan-lf:N=16", "scan-ks:N=16"]]\nobjectives = ["time"]\n'
        'devices = ["sim:jetson-tx1"]\n'
        'options = { policy = "random", window_s = 0.5, budget = 2, solo_bests = 2 }\n'
    )
    result = tuner("sweep", path, "--on", "local", "--database", database)

    assert result.exit_code == 0, result.stdout + result.stderr
    runs = document("history", "--database", database)["runs"]
    assert sorted(len(run["workloads"]) for run in runs) == [1, 1, 2]
    assert {run["status"] for run in runs} == {"limited"}  # by their budget


def test_a_sweep_that_is_interrupted_keeps_what_it_has(file: Path, tmp_path: Path) -> None:
    """Ctrl-C ends it with 130 in order: the job that ran can be gone on with, and the others are left."""
    file.write_text(
        QUICK.replace("budget = 2", "budget = 20000")
        .replace("random", "exhaustive")
        .replace("N = [4, 8]", "N = [1024, 2048]")
        .replace('"time"', '"energy"')
    )
    database = tmp_path / "tuner.db"
    words = ("sweep", str(file), "--on", "local:1", "--database", str(database))
    with begun(*words) as process:
        await_rows(process, database, 3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()

    assert process.returncode == 130, err
    assert "2 left; the same command goes on from here" in out
    assert "Traceback" not in err
    history = document("history", "--database", database)
    assert [run["status"] for run in history["runs"]] == ["interrupted"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--on", "loca"), "--on loca: write daemon, local or local:N"),
        (("--on", "local:0"), "--on local:0: write daemon, local or local:N"),
        (("--database", "x.db"), "--database: the daemon has its own"),
    ],
)
def test_words_that_cannot_be(file: Path, words: tuple[str, ...], says: str) -> None:
    """They are told before anything runs, with exit code 2."""
    result = tuner("sweep", file, *words)

    assert result.exit_code == 2
    assert says in result.stderr


def test_an_unknown_kernel_is_told_by_the_file(file: Path, tmp_path: Path) -> None:
    """The message names file, group and line, and the exit code is 2."""
    file.write_text(QUICK.replace("scan-lf", "scan-lff"))
    result = tuner("sweep", file, "--on", "local", "--database", tmp_path / "tuner.db")

    assert result.exit_code == 2
    assert f"{file}: [[group]] 1: unknown kernel 'scan-lff'" in result.stderr
    assert "did you mean 'scan-lf'?" in result.stderr


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_gpu_that_is_not_here_is_told_by_the_file(more: tuple[str, ...], tmp_path: Path) -> None:
    """Also by a dry run that names this machine: file, group and line, exit code 2."""
    path = tmp_path / "sweep.toml"
    path.write_text(QUICK.replace("sim:jetson-tx1", "cuda:9999"))
    result = tuner("sweep", path, "--on", "local", "--database", tmp_path / "tuner.db", *more)

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{path}: [[group]] 1: no cuda:9999 is here" in result.stderr
    assert not (tmp_path / "tuner.db").exists()


@pytest.mark.parametrize(
    ("was", "wrong", "says"),
    [
        ("sim:jetson-tx1", "sim:jetson-tx", "no simulated GPU 'sim:jetson-tx'; choose from "),
        ("sim:jetson-tx1", "replay:none.json", "none.json: there is no such file"),
        ('"random"', '"greedy"\npatience = 3', "--patience is no option of the policy greedy"),
        ("window_s = 0.5", 'clocks = "5:9:2"', "--clocks"),
    ],
)
def test_a_dry_run_on_this_machine_refuses_what_a_run_does(
    was: str, wrong: str, says: str, file: Path, tmp_path: Path
) -> None:
    """Devices and options that cannot be have the same message and exit code 2, dry or not."""
    file.write_text(QUICK.replace(was, wrong))
    words = ("sweep", file, "--on", "local", "--database", tmp_path / "tuner.db")
    dry, run = tuner(*words, "--dry-run"), tuner(*words)

    assert (dry.exit_code, dry.stdout) == (2, "")
    assert f"{file}: [[group]] 1" in dry.stderr
    assert says in dry.stderr
    assert (run.exit_code, run.stderr) == (2, dry.stderr)
