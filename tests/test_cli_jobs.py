"""Commands that talk to the daemon: what they ask, what they print, and how they end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_process import COMMAND, PATIENCE_S, SMALL, document, tuner
from click.testing import Result
from scripted_daemon import Request, ScriptedDaemon, UnfinishedAnswer, answer, best, error, event, job, stream

from tuner.cli import remote
from tuner.cli.jobs import STATES
from tuner.client import transport
from tuner.database.runs import Store
from tuner.model.jobs import JobState
from tuner.system import service_manager

FOUND = best(
    origin="stored",
    run=5,
    refinement=None,
    workloads={
        "scan-lf:N=4": {
            "configuration": {"P": 2, "L": 64},
            "origin": "stored",
            "details": "run 5 of 2026-11-21T22:00:00",
        }
    },
    answer={"best": {"time_s": 0.00123, "energy_j": 0.5, "energy_j_uncertainty": 0.01, "power_w": 406.5}},
)


class Daemon:
    """A daemon with one answer per path; ``tuner`` commands are told its socket."""

    def __init__(self, daemon: ScriptedDaemon) -> None:
        self._daemon = daemon
        self.answers: dict[str, bytes | UnfinishedAnswer] = {}
        daemon.script = self._answer

    def _answer(self, request: Request) -> bytes | UnfinishedAnswer:
        return self.answers.get(request.path, error("unknown-path", f"no {request.path}", 404))

    @property
    def socket(self) -> Path:
        return self._daemon.path

    @property
    def asked(self) -> list[Request]:
        return self._daemon.asked

    def call(self, *words: str | Path) -> Result:
        return tuner(*words, "--socket", self.socket)

    def document(self, *words: str | Path) -> dict[str, Any]:
        return document(*words, "--socket", self.socket)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with ScriptedDaemon(tmp_path / "s", lambda _: None) as scripted:
        yield Daemon(scripted)


# --- submit, jobs, cancel, pause, resume --------------------------------------------------------------


def test_submit_sends_what_was_given_and_nothing_else(daemon: Daemon) -> None:
    """Options of run travel by their names; defaults stay with the daemon."""
    daemon.answers["/v1/jobs"] = answer(job(12, priority=3.0, options={"timing": "single"}), 201)
    words = ("scan-lf:N=4", "--objective", "energy", "--max-slowdown", "5%", "--time-limit", "60")
    more = (
        "--timing",
        "single",
        "--window",
        "0.5",
        "--trial-timeout",
        "9",
        "--seed",
        "3",
        "--priority",
        "3",
        "--device",
        "cuda:1",
    )
    result = daemon.call("submit", *words, *more)

    assert result.exit_code == 0, result.stderr
    assert daemon.asked[0].body == {
        "workloads": ["scan-lf:N=4"],
        "objective": "energy",
        "device": "cuda:1",
        "priority": 3.0,
        "options": {
            "max_slowdown": 0.05,
            "timing": "single",
            "time_limit_s": 60.0,
            "window_s": 0.5,
            "trial_timeout_s": 9.0,
            "seed": 3,
        },
    }
    assert "job 12 queued: scan-lf:N=4, energy of single launches on sim:jetson-tx1" in result.stdout
    assert "tuner follow 12" in result.stdout
    best = "tuner best scan-lf:N=4 --objective energy --timing single --device sim:jetson-tx1"
    assert f"`{best}` shows its answer" in result.stdout


def test_submit_alone_tunes_one_of_each_family(daemon: Daemon) -> None:
    """Without workloads those of run are meant, and nothing more is sent."""
    daemon.answers["/v1/jobs"] = answer(job(1), 201)
    daemon.call("submit")
    body = daemon.asked[0].body

    assert set(body) == {"workloads", "priority"}
    assert [name.partition(":")[0] for name in body["workloads"]] == ["scan-lf", "tridiag-wm", "fft"]


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "scan-lf:N=4", "--max-slowdown", "7"),
        ("submit", "scan-lf:N=4", "--budget", "0"),
        ("submit", "scan-lf:N=4", "--time-limit", "nan"),
        ("submit", "scan-lf:N=4", "--priority", "nan"),
        ("submit", ""),
        ("submit", "scan-lf: N=4"),
        ("submit", "ünï:N=4"),
        ("submit", "\udcff\udcfe"),
        ("best", "\udcff\udcfe"),
        ("best", "scan-lf:N=4", "--device", "\udcff"),
        ("jobs", "--state", "asleep"),
        ("cancel", "0"),
        ("follow", "all"),
    ],
)
def test_wrong_words_are_not_sent(daemon: Daemon, words: tuple[str, ...]) -> None:
    """What no daemon would take is refused here, with exit code 2."""
    assert daemon.call(*words).exit_code == 2
    assert not daemon.asked


def test_what_the_daemon_calls_wrong_input_is(daemon: Daemon) -> None:
    """The daemon's words are the error's, and its exit code that of wrong input."""
    daemon.answers["/v1/jobs"] = error("input", "unknown kernel 'scna'", 400)
    result = daemon.call("submit", "scna:N=4")
    assert (result.exit_code, result.stderr) == (2, "Error: unknown kernel 'scna'\n")


def test_jobs_are_listed(daemon: Daemon) -> None:
    """The table has a row per job, the document all fields."""
    listed = {"jobs": [job(2, state="running", reason="measuring", run=5, trials=17), job(1)]}
    daemon.answers["/v1/jobs"] = answer(listed)
    table = daemon.call("jobs", "--state", "running", "--state", "queued", "--limit", "7").stdout

    assert daemon.asked[0].query == {"state": ["running", "queued"], "limit": ["7"]}
    for part in ("running", "(measuring)", "2026-11-21 22:00:00 UTC", "scan-lf:N=4", "17", "queued"):
        assert part in table
    assert daemon.document("jobs") == listed


def test_jobs_that_are_not_understood_are_named(daemon: Daemon) -> None:
    """What the daemon leaves alone is said below the table."""
    daemon.answers["/v1/jobs"] = answer({"jobs": [job(1)]})
    daemon.answers["/v1/status"] = answer({"not_understood": ["job 7 is not understood"]})

    assert daemon.call("jobs").stdout.splitlines()[-1] == "job 7 is not understood"


def test_one_job_is_shown(daemon: Daemon) -> None:
    """With its number all that is known of a job is shown."""
    daemon.answers["/v1/jobs/2"] = answer(job(2, options={"budget": 9}, run=5, trials=3))
    shown = daemon.call("jobs", "2").stdout

    for part in ("job 2, tune", "budget 9", "submitted, ", "5, 3 trials"):
        assert part in shown
    assert daemon.document("jobs", "2")["options"] == {"budget": 9}


@pytest.mark.parametrize(
    ("verb", "state"), [("cancel", "cancelled"), ("pause", "paused"), ("resume", "queued")]
)
def test_what_is_done_to_a_job(daemon: Daemon, verb: str, state: str) -> None:
    """Each command says how the job stands now."""
    daemon.answers["/v1/jobs/2"] = answer(job(2, state="paused" if verb == "resume" else "running"))
    daemon.answers[f"/v1/jobs/2/{verb}"] = answer(job(2, state=state, reason="asked for"))
    assert daemon.call(verb, "2").stdout.startswith(f"job 2 {state} (asked for): scan-lf:N=4")
    assert daemon.document(verb, "2")["state"] == state


@pytest.mark.parametrize(
    ("verb", "state"), [("pause", "paused"), ("resume", "queued"), ("resume", "running")]
)
def test_what_was_so_already_is_said_to_be(daemon: Daemon, verb: str, state: str) -> None:
    """Pausing a paused job and resuming one that goes on change nothing, and say so."""
    daemon.answers["/v1/jobs/2"] = daemon.answers[f"/v1/jobs/2/{verb}"] = answer(job(2, state=state))
    assert daemon.call(verb, "2").stdout.startswith(f"nothing to do: job 2 {state}: ")


def test_own_work_of_the_daemon_is_told_as_such(daemon: Daemon) -> None:
    """A job that nobody submitted says why it is there; its priority is the daemon's own affair."""
    own = job(
        2, origin="request", priority=-0.998874, submitter=None, clocks="all", options={"max_slowdown": 0.05}
    )
    daemon.answers["/v1/jobs/2"] = answer(own)
    shown = daemon.call("jobs", "2").stdout

    for part in ("the daemon, after a question", "priority:   own", "clocks all", "at most 5 % slower"):
        assert part in shown
    assert "-0.99" not in shown


def test_without_a_daemon(tmp_path: Path) -> None:
    """No daemon: exit code 1, and how to start one."""
    result = tuner("jobs", "--socket", tmp_path / "none")
    assert result.exit_code == 1
    assert f"no daemon listens at {tmp_path / 'none'}; start one with" in result.stderr


def test_the_socket_of_the_environment(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """$TUNER_SOCKET names the daemon where --socket does not."""
    monkeypatch.setenv("TUNER_SOCKET", str(daemon.socket))
    daemon.answers["/v1/status"] = answer({"state": "idle"})
    assert tuner("status").stdout == "state: idle\n"


def test_the_variables_are_those_of_the_client() -> None:
    """Commands name the environment variables that the client reads."""
    assert remote.SOCKET_VARIABLE == service_manager.SOCKET_VARIABLE
    assert remote.TOKEN_VARIABLE == transport.TOKEN_VARIABLE


def test_status_shows_whatever_the_daemon_says(daemon: Daemon) -> None:
    """Devices are paragraphs, the rest lines; the document is the daemon's."""
    standing = {
        "queue": {"queued": 2, "running": 1},
        "windows": {"open": True, "changes_at": None, "count": 0, "summary": "none, allowed always"},
        "devices": [
            {"spec": "cuda:0", "spent_today_s": 2.5, "spent_today_j": 12345.678, "job": 3, "holds": ""},
            {"spec": "cuda:1", "spent_today_s": 2.5, "spent_today_j": 0.0},
        ],
        "host": {"spent_today_s": 2.5, "spent_today_j": 12.0, "budget_s": None, "budget_j": 5e5},
        "troubles": [],
        "ready": True,
        "begun_at": "2026-11-21T23:00:00+01:00",
        "uptime_s": 3720,
    }
    daemon.answers["/v1/status"] = answer(standing)
    shown = daemon.call("status").stdout

    assert "queue: queued 2, running 1\nwindows: none, allowed always\n" in shown
    assert "device cuda:0\n  spent today: 2.500 s, 12,346 J (as metered, sum of trials)\n  job: 3\n" in shown
    assert "device cuda:1\n  spent today: 2.500 s\n" in shown
    assert "host: spent today 2.500 s, 12.00 J, budget 500,000 J\n" in shown
    assert "troubles: –\nready: yes\nbegun at: 2026-11-21 22:00:00 UTC\nup for: 1 h 2 min\n" in shown
    assert daemon.document("status") == standing


def test_status_tells_troubles_first(daemon: Daemon) -> None:
    """What is wrong comes before all else, each on a line of its own; further lines of it are set in."""
    standing = {"version": "1", "troubles": ["daemon.toml: a\nand b", "database: c"], "ready": True}
    daemon.answers["/v1/status"] = answer(standing)

    shown = daemon.call("status").stdout
    assert shown == "troubles\n  daemon.toml: a\n    and b\n  database: c\nversion: 1\nready: yes\n"


# --- follow -------------------------------------------------------------------------------------------


def test_follow_shows_the_search_and_its_answer(daemon: Daemon) -> None:
    """Progress goes to standard error, the answer to standard output; a finished job ends with 0."""
    daemon.answers["/v1/jobs/1"] = answer(job(1, state="finished", run=5))
    daemon.answers["/v1/jobs/1/events"] = stream(
        event(1, "state", state="running", reason=""),
        event(2, "run", run=5, resumed=3),
        event(None, "compiled", done=3, total=9),
        event(None, "trial", number=1, status="ok", cost=0.5, best=0.5, unit="J", joules=3.0, expected=9),
        event(None, "trial", number=2, status="timeout", cost=None, best=0.5, joules=3.0, confirming=True),
        event(3, "told", sentence="nothing left to gain"),
        event(4, "of-tomorrow", mood="good"),
        event(5, "state", state="finished", reason=""),
    )
    daemon.answers["/v1/best"] = answer(FOUND)
    result = daemon.call("follow", "1")

    assert result.exit_code == 0
    assert "measuring 1/9: trial 500.0 mJ, best 500.0 mJ (modelled), 3.000 J spent" in result.stderr
    for line in ("job 1 running", "run 5, resumed", "nothing left to gain", "job 1 finished"):
        assert line in result.stderr.splitlines()
    for part in ("P=2 L=64", "run 5 of", "1.230 ms, 500 ± 20 mJ, 406.5 W per round", "modelled"):
        assert part in result.stdout
    assert daemon.asked[-1].query["count"] == ["0.0"]
    told = daemon.document("follow", "1")
    assert (told["job"]["run"], told["answer"]["origin"]) == (5, "stored")


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_follow_of_a_job_without_an_end(daemon: Daemon, state: str) -> None:
    """A job that failed or was cancelled ends the command with 1, and says why."""
    daemon.answers["/v1/jobs/1"] = answer(job(1, state=state, reason="kernel file is gone"))
    daemon.answers["/v1/jobs/1/events"] = stream(event(1, "state", state=state, reason="kernel file is gone"))
    result = daemon.call("follow", "1")

    assert result.exit_code == 1
    assert f"job 1 {state} (kernel file is gone)" in result.stdout
    assert f"job 1 {state}: kernel file is gone" in result.stderr


def test_submit_may_follow(daemon: Daemon) -> None:
    """With --follow a submission ends as following it does."""
    daemon.answers["/v1/jobs"] = answer(job(1), 201)
    daemon.answers["/v1/jobs/1"] = answer(job(1, state="failed", reason="no such sensor"))
    daemon.answers["/v1/jobs/1/events"] = stream(event(1, "state", state="failed", reason="no such sensor"))
    result = daemon.call("submit", "scan-lf:N=4", "--follow")

    assert result.exit_code == 1
    assert "job 1 queued" in result.stderr
    assert "no such sensor" in result.stdout


def test_ctrl_c_stops_following_not_the_job(daemon: Daemon) -> None:
    """Ctrl-C ends the command with 130 and a sentence; nothing is asked of the daemon."""
    daemon.answers["/v1/jobs/1"] = answer(job(1, state="running"))
    daemon.answers["/v1/jobs/1/events"] = UnfinishedAnswer(
        stream(event(1, "told", sentence="here"), whole=False)
    )
    # a shell that runs tests in the background has Ctrl-C ignored for all below it
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    with subprocess.Popen(
        [COMMAND[0], "-c", f"{heeding}\n{COMMAND[2]}", "follow", "1", "--socket", str(daemon.socket)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "here\n"
        os.kill(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, stdout) == (130, "")
    assert "stopped following; job 1 goes on" in stderr
    assert {request.method for request in daemon.asked} == {"GET"}


# --- best ----------------------------------------------------------------------------------------------


@pytest.fixture
def of_environment(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    """The daemon is the user's own; the database is empty."""
    own = tmp_path / "tuner"
    own.mkdir()
    (own / "tunerd.sock").symlink_to(daemon.socket)
    monkeypatch.delenv("TUNER_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return daemon


def test_best_is_asked_of_the_daemon(of_environment: Daemon) -> None:
    """Where a daemon answers, its answer is shown, with where it comes from and which job refines it."""
    of_environment.answers["/v1/best"] = answer(best(stale=["the driver was 1, is 2"]))
    result = tuner("best", *SMALL, "--objective", "time")

    assert result.exit_code == 0, result.stderr
    assert of_environment.asked[0].query["device"] == ["sim:jetson-tx1"]
    for part in (
        "of the daemon",
        "nearest",
        "of N=8",
        "nothing was measured",
        "stale: the driver was 1, is 2",
        "`tuner follow 7`",
    ):
        assert part in result.stdout
    assert document("best", *SMALL)["refinement"] == 7


@pytest.mark.parametrize("words", [("--no-daemon",), ("--database", "DB"), ("--kernel", "FILE")])
def test_best_of_the_database(of_environment: Daemon, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Who names a database or a kernel file, or wants no daemon, has none asked."""
    Store(tmp_path / "tuner.db").close()
    places = {"DB": tmp_path / "tuner.db", "FILE": Path(__file__).parent / "faulty" / "kernel.toml"}
    result = tuner("best", *SMALL, *(places.get(word, word) for word in words))

    assert "nothing is stored" in result.stderr
    assert not of_environment.asked


def test_best_without_an_answer_of_the_daemon(of_environment: Daemon) -> None:
    """A daemon that does not know the device costs a sentence: the database is read as without one."""
    of_environment.answers["/v1/best"] = error("input", "device: not tuned here", 400)
    result = tuner("best", *SMALL)

    assert result.exit_code == 1
    assert "the daemon gave no answer: device: not tuned here" in result.stderr
    assert "nothing is stored" in result.stderr


def test_wrong_words_for_best_are_told_once(of_environment: Daemon) -> None:
    """What is wrong for daemon and database alike is an error, and no reason to go on with the other."""
    of_environment.answers["/v1/best"] = error("input", "unknown kernel 'scan-l'", 400)
    result = tuner("best", "scan-l:N=4", "--device", "sim:jetson-tx1")

    assert result.exit_code == 2
    assert result.stderr.count("scan-l'") == 1
    assert "the database is read" not in result.stderr


def test_best_of_a_daemon_that_was_named(daemon: Daemon) -> None:
    """A daemon that the user named must answer; its refusal is the command's."""
    daemon.answers["/v1/best"] = error("input", "device: not tuned here", 400)
    assert daemon.call("best", *SMALL).exit_code == 2


def test_documents_are_json(daemon: Daemon, tmp_path: Path) -> None:
    """--json FILE writes a file beside the table."""
    daemon.answers["/v1/jobs"] = answer({"jobs": [job(1)]})
    assert "queued" in daemon.call("jobs", "--json", tmp_path / "jobs.json").stdout
    assert json.loads((tmp_path / "jobs.json").read_text())["jobs"][0]["id"] == 1


def test_states_are_those_of_jobs() -> None:
    """--state takes what jobs may be, though the command line does not import jobs for it."""
    assert tuple(state.value for state in JobState) == STATES


def test_help_stays_light() -> None:
    """The list of commands imports neither the client nor anything heavy: it answers at once."""
    code = (
        "import sys; from click.testing import CliRunner; from tuner.cli.main import main;"
        " assert CliRunner().invoke(main, ['--help']).exit_code == 0;"
        " heavy = ('asyncio', 'numpy', 'pydantic', 'fastapi', 'rich', 'tuner.client');"
        " print([m for m in heavy if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout == "[]\n"
