"""``tuner run``: first moments, documents and tables on simulated devices, and what is around it."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from cli_process import COMMAND, PATIENCE_S, SMALL, TX1, begun, document, refused, rows, tuner
from fake_setup import FakeClocks
from tuner.power.base import ClockControl

from tuner.cli import output, remote
from tuner.cli.main import COMMANDS, LazyGroup
from tuner.database.runs import Store
from tuner.devices.cuda.probe import driver_problem
from tuner.devices.simulated.device import SimulatedDevice
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import CompilerUnavailableError, DaemonAbsentError

KEYS = {
    *("device", "modelled", "objective", "policy", "space", "best", "trials", "tuning_energy_j", "wall_s"),
}
TRIAL_KEYS = {"configurations", "clock_mhz", "time_s", "energy_j", "energy_j_uncertainty"}


@pytest.fixture(autouse=True)
def _no_other_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def _declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the resources that kernel files declare, as where there is no NVRTC: large spaces cost nothing."""

    def none(architecture: str) -> NoReturn:
        raise CompilerUnavailableError(f"no NVRTC for {architecture}")

    monkeypatch.setattr("tuner.devices.simulated.resources.Compiler", none)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "tuner.db"


def test_document_has_what_scripts_rely_on(db: Path, tmp_path: Path) -> None:
    """The file of --json holds the promised keys, filled, and one entry for each trial stored."""
    path = tmp_path / "run.json"
    result = tuner("run", *SMALL, "--budget", "4", "--clocks", "998,921", "--database", db, "--json", path)
    found = json.loads(path.read_text())

    assert result.exit_code == 0
    assert found.keys() >= KEYS
    assert found["modelled"] is True
    assert found["device"]["spec"] == "sim:jetson-tx1"
    assert (found["objective"], found["policy"]) == ("energy", "auto")
    assert found["space"].keys() >= {"size", "pruned", "measured"}
    assert found["space"]["size"] >= found["space"]["pruned"] > found["space"]["measured"] == 4
    assert found["best"].keys() >= TRIAL_KEYS
    assert found["best"]["configurations"]["scan-lf:N=4"].keys() >= {"P", "L", "r", "S", "shuffle"}
    assert found["best"]["clock_mhz"] in (998, 921)
    assert found["tuning_energy_j"] > 4 * found["best"]["energy_j"] > 0
    assert found["wall_s"] > 0
    assert len(found["trials"]) == rows(db) == 4
    for trial in found["trials"]:
        assert trial.keys() >= TRIAL_KEYS | {"status"}
        assert trial["status"] == "ok"
        assert 0 < trial["energy_j_uncertainty"] < trial["energy_j"]


def test_json_has_standard_output_for_itself(db: Path) -> None:
    """With --json - a script reads JSON and nothing else; tables and progress go to standard error."""
    process = begun("run", *SMALL, "--budget", "2", "--database", db, "--json", "-")
    out, err = process.communicate()

    assert process.returncode == 0, err
    assert json.loads(out)["space"]["measured"] == 2
    assert "scan-lf:N=4, batch " in err
    assert "(modelled)" in err


def test_reader_of_the_tables_may_leave(db: Path, tmp_path: Path) -> None:
    """When standard output is closed early, as by `| head`, the document is written all the same."""
    path = tmp_path / "run.json"
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as closed:  # noqa: PTH123 - a descriptor, not a path
        words = ("run", *SMALL, "--budget", "2", "--database", db, "--json", path)
        with begun(*words, output=closed.fileno()) as process:
            process.communicate(timeout=PATIENCE_S)

    assert json.loads(path.read_text())["space"]["measured"] == 2


def test_modelled_numbers_say_so_and_joules_their_interval(db: Path) -> None:
    """No table shows a simulated number without the word, nor the joules of a trial without ±."""
    text = tuner("run", *SMALL, "--budget", "3", "--database", db).stdout
    lines = text.splitlines()

    assert lines[2].endswith("  modelled")
    assert lines[3].startswith("  against (modelled) ")
    joules = [line for line in lines if re.search(r"\d [mµ]?J\b", line)]
    assert len(joules) >= 2
    for line in joules:
        bare = re.findall(r"(?<!± )(?<![\d.,])[\d.,]+ [mµ]?J\b", line)
        assert not bare
    assert all("modelled" in line for line in lines if "tuning took" in line)


def test_table_holds_what_a_reader_compares(db: Path) -> None:
    """Gain over the default, clock, trials of the space, cost of tuning: all are there."""
    text = tuner(
        *("run", "scan-lf:N=4", "--device", "sim:k40c", "--objective", "energy", "--clocks", "all"),
        *("--database", db),
    ).stdout

    assert re.search(r"ms  .* W  .* MData/s  clock (875|810|745|666) MHz", text)
    assert re.search(r"against \(modelled\) +energy +time +its time +its energy", text)
    assert re.search(r"  default +-\d+\.\d+ ± \d+\.\d+ % +[-+]\d+\.\d+ ± \d+\.\d+ %", text)
    assert re.search(r"  fastest +-\d+\.\d+ ± \d+\.\d+ % +\+\d+\.\d+ ± \d+\.\d+ %", text)
    assert re.search(r"· run 1\n", text)
    assert re.search(r"done: (all \d+|\d+ of \d+) tried in [\d.]+ s", text)
    assert "more: tuner show 1" in text


def test_objectives_pull_apart(db: Path) -> None:
    """The time answer is no slower than the energy answer, which takes no more joules."""
    words = ("run", *SMALL, "--clocks", "998,384", "--policy", "exhaustive", "--joules", "--database", db)
    best = {
        objective: document(*words, "--objective", objective)["best"]
        for objective in ("time", "energy", "edp", "ed2p")
    }

    def product(name: str, exponent: int) -> float:
        return float(best[name]["energy_j"] * best[name]["time_s"] ** exponent)

    assert best["energy"]["clock_mhz"] < best["time"]["clock_mhz"]
    assert best["time"]["time_s"] < best["energy"]["time_s"]
    assert best["energy"]["energy_j"] < best["time"]["energy_j"]
    for name, exponent in (("energy", 0), ("edp", 1), ("ed2p", 2)):
        others = [product(other, exponent) for other in best]
        assert product(name, exponent) <= 1.01 * min(others), "within the intervals of a tie"


@pytest.mark.usefixtures("_declared")
def test_greedy_descent_comes_near_the_optimum(db: Path) -> None:
    """At a clock of a simulated K40c greedy is within 2 % of the optimum of 116 trials in a tenth of them."""
    words = ("run", "scan-lf:N=2048", "fft:N=2", "--device", "sim:k40c", "--objective", "energy")

    def search(policy: str) -> dict[str, Any]:
        held = ("--clocks", "745", "--min-occupancy", "80%", "--joules")
        return document(*words, *held, "--policy", policy, "--database", db)

    greedy, exhaustive = search("greedy"), search("exhaustive")
    optimum_j = min(trial["energy_j"] for trial in exhaustive["trials"])

    pruned = exhaustive["space"]["pruned"]
    assert exhaustive["space"]["measured"] in (pruned, pruned + 1), "a default that was pruned is one more"
    assert greedy["best"]["energy_j"] <= 1.02 * optimum_j
    assert greedy["space"]["measured"] <= 0.1 * pruned


def test_without_a_gpu_a_model_stands_in_and_says_so(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU: the run goes to the simulated Jetson TX1 with a plain notice of what was missing."""
    monkeypatch.setattr("tuner.devices.choice.driver_problem", lambda: "no NVIDIA driver")
    result = tuner("run", "scan-lf:N=4", "--budget", "1", "--database", db)

    assert result.exit_code == 0
    assert "no GPU answers (no NVIDIA driver): sim:jetson-tx1 stands in" in " ".join(result.stdout.split())


@pytest.mark.usefixtures("_declared")
def test_one_of_each_family_by_default(db: Path) -> None:
    """Without workloads three concurrent ones are tuned, of three families."""
    words = ("run", *TX1, "--budget", "1", "--database", db)
    found = document(*words)
    kernels = {workload["name"].partition(":")[0] for workload in found["workloads"]}
    files = Catalog.load().kernels

    assert len(kernels) == 3
    assert {files[kernel].family for kernel in kernels} == {"scan", "tridiagonal", "fft"}


def test_batch_is_the_users_to_set(db: Path) -> None:
    """A batch in the workload's text is what is run."""
    found = document("run", "scan-lf:N=4,batch=4096", *TX1, "--budget", "1", "--database", db)

    assert [(w["name"], w["batch"]) for w in found["workloads"]] == [("scan-lf:N=4", 4096)]


def test_shortest_window_gives_every_trial_its_joules(db: Path) -> None:
    """At the shortest window that is taken no trial goes without."""
    found = document(
        "run", *SMALL, "--policy", "random", "--budget", "12", "--window", "0.25", "--database", db
    )

    assert len(found["trials"]) >= 12
    assert all(trial["energy_j"] for trial in found["trials"] if trial["status"] == "ok")


@pytest.mark.parametrize("window_s", ["0.01", "0.05"])
def test_short_window_is_taken_for_time(window_s: str, db: Path) -> None:
    """Without joules there is nothing that a sensor would have to show."""
    found = document(
        "run", *SMALL, "--objective", "time", "--budget", "2", "--window", window_s, "--database", db
    )

    assert found["best"]["time_s"] > 0


def test_ctrl_c_while_a_run_closes_costs_no_answer(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has ended prints its answer, though what it holds open is closed in a hurry."""

    def interrupted(device: SimulatedDevice) -> None:
        del device
        raise KeyboardInterrupt

    monkeypatch.setattr(SimulatedDevice, "close", interrupted)
    result = tuner("run", *SMALL, "--budget", "2", "--database", db)

    assert result.exit_code == 0
    assert "· least energy · " in result.stdout
    assert "interrupted" not in result.stderr


def test_wall_time_is_split(db: Path) -> None:
    """The document says how long was prepared and searched, and what of it measuring needed."""
    wall = document("run", *SMALL, "--budget", "3", "--window", "0.5", "--database", db)

    assert wall["wall"]["prepare_s"] + wall["wall"]["search_s"] == pytest.approx(wall["wall_s"])
    assert wall["wall"]["windows_s"] >= 0.9 * 3 * 0.5
    assert wall["wall"]["checks_s"] > 0


@pytest.mark.parametrize(
    "words",
    [(), *((name,) for name in COMMANDS), *(("kernels", name) for name in ("list", "show", "check"))],
)
def test_help(words: tuple[str, ...]) -> None:
    """Every command explains itself, its options one by one."""
    result = tuner(*words, "--help")

    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: tuner")
    assert "--help" in result.stdout


def test_searches_use_one_thread_for_matrices() -> None:
    """Threads of the linear algebra library, which spin, are not started unless the user asks for them."""
    count = "import numpy, os; print(len(os.listdir('/proc/self/task')))"
    code = f"import contextlib\nwith contextlib.suppress(SystemExit): {COMMAND[2]}\n{count}"
    for chosen, threads in ((None, 1), ("2", 2)):
        environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
        environment |= {} if chosen is None else {"OPENBLAS_NUM_THREADS": chosen}
        ran = subprocess.run(
            [COMMAND[0], "-c", code, "completion", "bash"],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        assert ran.stdout.splitlines()[-1] == str(threads)


def test_help_imports_nothing_heavy() -> None:
    """`tuner --help` answers without NumPy, SciPy, rich, pydantic, SQLite and the values of runs."""
    outcome = subprocess.run(
        [sys.executable, "-X", "importtime", *COMMAND[1:], "--help"],
        check=True,
        capture_output=True,
        text=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in outcome.stderr.splitlines()}

    assert "click" in imported
    assert not imported & {
        "numpy",
        "scipy",
        "rich",
        "pydantic",
        "sqlite3",
        "cupy",
        "tuner.model.plan",
        "tuner.model.trial",
        "tuner.model.records",
    }


def test_what_was_told_is_not_repeated_on_the_same_screen(tmp_path: Path) -> None:
    """Notices of the policy stand above the tables, or in them where those go elsewhere, never twice."""
    words = (
        "run",
        "scan-lf:N=512",
        "--device",
        "replay:h200",
        "--objective",
        "time",
        "--policy",
        "analytical",
    )
    command = (*words, "--database", tmp_path / "db")
    screen, _ = begun(*command, "-v", joined=True).communicate()
    tables, messages = begun(*command, "-v").communicate()
    brief, _ = begun(*command, joined=True).communicate()

    told = "analytical: the server rule chooses"
    assert told not in brief, "a reason is told on demand"
    assert screen.count(told) == 1
    assert screen.index(told) < screen.index("· least time ·")
    assert (messages.count(told), tables.count(told)) == (1, 1), "who reads one of them has it"


# --- databases -----------------------------------------------------------------------------------


def test_database_that_is_none(db: Path) -> None:
    """A file that is no database is named and left as it was."""
    db.write_text("not a database" * 1000)
    result = tuner("run", *SMALL, "--database", db)

    assert result.exit_code == 2
    assert f"'--database': {db} is no database; name another file" in result.stderr
    assert not [path for path in db.parent.iterdir() if path != db]
    assert db.read_text() == "not a database" * 1000
    db.unlink()
    os.mkfifo(db)
    assert "is no database; name another file" in tuner("run", *SMALL, "--database", db).stderr
    assert [*db.parent.iterdir()] == [db]


@pytest.fixture
def _locked(db: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tuner.database.files.BUSY_TIMEOUT_S", 0.01)
    Store(db).close()
    holder = sqlite3.connect(db, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    yield
    holder.close()


@pytest.mark.usefixtures("_locked")
def test_locked_database(db: Path) -> None:
    """A database that another program holds is reported as locked."""
    result = tuner("run", *SMALL, "--database", db)

    assert result.exit_code == 1
    assert "locked" in result.stderr
    assert "Traceback" not in result.output


def test_full_disk(db: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """When the database cannot grow, the run ends with the trials it could store, whole."""
    begin = Store.begin

    def begin_on_a_full_disk(store: Store, *given: Any) -> int:
        number = begin(store, *given)
        pages = store.database.read(lambda view: view.rows("PRAGMA page_count"))[0][0]
        store.database.read(lambda view: view.rows(f"PRAGMA max_page_count = {pages + 3}"))
        return number

    monkeypatch.setattr(Store, "begin", begin_on_a_full_disk)
    path = tmp_path / "run.json"
    result = tuner("run", *SMALL, "--policy", "exhaustive", "--database", db, "--json", path)

    assert result.exit_code == 1
    assert "full" in result.stderr
    assert "Traceback" not in result.output
    assert not path.exists()
    with Store(db) as store:
        (run,) = store.history()
        assert 0 < run.trials < 20
        assert len(store.trials(run.id, ["scan-lf:N=4"])) == run.trials


def test_disk_that_fills_up_under_a_run(db: Path) -> None:
    """A run that may write no more ends with a message; with room again, --resume goes on from there."""
    words = ("run", *SMALL, "--policy", "exhaustive", "--database", str(db))
    document(*words, "--budget", "1", "--seed", "1")  # the database and the compiled code are there
    room = db.stat().st_size + 8_192  # for some trials, not for all

    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))"
    process = begun(*words, code=f"{limit}\n{COMMAND[2]}")
    _, errors = process.communicate()
    kept = rows(db) - 1

    assert process.returncode == 1
    assert f"Error: {db}" in errors
    assert "Traceback" not in errors
    found = document(*words, "--resume")
    assert (found["resumed"], found["space"]["measured"]) == (kept, found["space"]["pruned"])
    assert 0 < kept < found["space"]["pruned"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_database_that_may_not_be_written(db: Path) -> None:
    """A database without permission is named."""
    Store(db).close()
    db.chmod(0o400)
    result = tuner("run", *SMALL, "--database", db)

    assert result.exit_code == 1
    assert str(db) in result.stderr


# --- devices -------------------------------------------------------------------------------------


@pytest.mark.skipif(driver_problem() is None, reason="there is a GPU")
def test_no_gpu(db: Path) -> None:
    """A GPU asked for by name where there is none is an error that says what is missing."""
    refused(db, ("scan-lf:N=4", "--device", "cuda:0"), "cuda:0", "no NVIDIA driver", code=1)


def install_clocks(monkeypatch: pytest.MonkeyPatch, clocks: ClockControl | None, reason: str = "") -> None:
    monkeypatch.setattr("tuner.search.setup.open_clocks", lambda _device: (clocks, reason))


def test_clocks_that_cannot_be_set(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--clocks where there is no clock control says why, and what to do instead."""
    install_clocks(monkeypatch, None, "this GPU has no lockable clocks")
    words = (*SMALL, "--objective", "time", "--clocks", "all")
    refused(db, words, "this GPU has no lockable clocks; use --clocks off", code=1)


def test_clocks_that_may_not_be_set(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may not set clocks is told so at the first trial; no clock is changed, no trial stored."""
    clocks = FakeClocks(denied=True)
    install_clocks(monkeypatch, clocks)
    result = tuner("run", *SMALL, "--objective", "time", "--clocks", "875", "--database", db)

    assert result.exit_code == 1
    assert "Error: not yours to set" in result.stderr
    assert clocks.events == []
    assert rows(db) == 0
    with Store(db) as store:
        assert [run.status for run in store.history()] == ["failed"]


def test_clock_is_given_back_after_an_error(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the database fails in the middle of a run, the clock set for the trial is restored."""
    clocks = FakeClocks()
    install_clocks(monkeypatch, clocks)

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("tuner.database.runs.measurement_record", full)
    result = tuner("run", *SMALL, "--objective", "time", "--clocks", "875", "--database", db)

    assert result.exit_code == 1
    assert "full" in result.stderr
    assert clocks.events == ["875", "restored"]


@pytest.mark.parametrize(
    ("columns", "width"), [("80", 80), ("0", None), ("x", None), ("9" * 5000, None), ("99999", 10_000)]
)
def test_widths_that_are_none(monkeypatch: pytest.MonkeyPatch, columns: str, width: int | None) -> None:
    """COLUMNS counts where it is a width."""
    monkeypatch.setenv("COLUMNS", columns)
    assert output.console().width == (width or output.WHOLE_LINES)


# --- the first moments of a command ---------------------------------------------------------------


INTERRUPT_AT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupt:
    def find_spec(self, name, *args):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
from tuner.__main__ import main
sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = ["run", "scan-lf:N=4", "--device", "sim:k40c", "--database", {database!r}]
main()
"""


@pytest.mark.parametrize(
    "module", ["tuner.cli", "click", "tuner.model.options", "tuner.search.request", "numpy"]
)
def test_early_interrupt_leaves_no_traceback(tmp_path: Path, module: str) -> None:
    """Ctrl-C while modules are imported ends the command with its exit code, and nothing else."""
    code = INTERRUPT_AT.format(module=module, database=str(tmp_path / "db"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr


def test_interrupt_while_options_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends with its exit code there, too, and without click's words."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LazyGroup, "parse_args", interrupt)
    result = tuner("history")

    assert result.exit_code == 130
    assert "Aborted" not in result.output


class StartingClient:
    """Stands for a client whose daemon listens from the third look on."""

    address = "/run/tuner/tunerd.sock"
    looks = 0

    def status(self) -> str:
        """Answer, or not yet."""
        StartingClient.looks += 1
        if StartingClient.looks < 3:
            raise DaemonAbsentError("no daemon listens")
        return "here"


@pytest.fixture
def _starting(monkeypatch: pytest.MonkeyPatch) -> None:
    StartingClient.looks = 0
    monkeypatch.setattr(remote, "client_of", lambda _: StartingClient())
    monkeypatch.setattr(remote, "KNOCK_S", 0.0)


@pytest.mark.usefixtures("_starting")
def test_a_starting_daemon_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    """`submit` and `follow` wait for a daemon that does not listen yet, and say so once."""
    _, answer = remote.when_started(None, lambda client: str(client.status()))
    assert answer == "here"
    assert capsys.readouterr().err.count("waiting up to 10 s") == 1


@pytest.mark.usefixtures("_starting")
def test_an_absent_daemon_is_not_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time is over, the error says what to start."""
    monkeypatch.setattr(remote, "STARTING_S", 0.0)
    with pytest.raises(DaemonAbsentError):
        remote.when_started(None, lambda client: client.status())
