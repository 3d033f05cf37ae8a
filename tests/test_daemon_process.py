"""The daemon as a process: from the command line, killed in the middle, stopped, reloaded."""

import asyncio
import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from cli_process import COMMAND, PATIENCE_S, await_rows, rows, tuner

from tuner.client import Client
from tuner.daemon.jobs.storage import Storage
from tuner.daemon.process import ground, main
from tuner.daemon.process.ground import Choices
from tuner.daemon.process.listening import Listener
from tuner.daemon.process.machine import Found
from tuner.errors import DaemonUnavailableError
from tuner.model import DeviceIdentity
from tuner.service_manager import ServiceManager

EXAMPLE = Path(__file__).parent.parent / "systemd" / "daemon.toml"
TWO = ("scan-lf:N=4", "fft:N=4")  # thousands of trials of few configurations
BUDGET = 120


class Machine:
    """A folder with all that a daemon has, and the daemons in it; the test is their service manager."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "state" / "tuner.db"
        self.socket = folder / "tunerd.sock"
        self.settings = folder / "daemon.toml"
        self.log = folder / "log"
        # the shipped example, but for the wait for a calm GPU, which nobody shares here
        self.settings.write_text(EXAMPLE.read_text().replace("calm_s = 10.0", "calm_s = 0.0"))
        self.words = (
            *("daemon", "--foreground", "--config", str(self.settings), "--device", "sim:jetson-tx1"),
            *("--state", str(self.database.parent), "--socket", str(self.socket)),
        )
        self._manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._manager.bind(str(folder / "manager.sock"))
        self._manager.settimeout(PATIENCE_S)
        self.processes: list[subprocess.Popen[str]] = []

    def start(self) -> "subprocess.Popen[str]":
        """Start the daemon, and return when it says that it is ready."""
        with self.log.open("a") as log:
            process = subprocess.Popen(
                [*COMMAND, *self.words],
                stderr=log,
                text=True,
                env={**os.environ, "NOTIFY_SOCKET": str(self._manager.getsockname())},
            )
        self.processes.append(process)
        self.hear("READY=1")
        return process

    def hear(self, line: str) -> str:
        """Return what the daemon says to its service manager, once a line begins so."""
        while True:
            said = self._manager.recv(4096).decode()
            if any(one.startswith(line) for one in said.splitlines()):
                return said

    def client(self) -> Client:
        return Client(self.socket)

    def answers(self) -> bool:
        """Wait until the daemon answers; False where it ends."""
        while True:
            try:
                return bool(self.client().status())
            except DaemonUnavailableError:  # noqa: PERF203 - that is what is waited for
                if self._ended():
                    return False

    def _ended(self) -> bool:
        """Give it a moment; whether it has ended."""
        try:
            self.processes[-1].wait(0.05)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self._manager.close()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine without a daemon."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TUNER_SOCKET", raising=False)
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def trials(database: Path) -> list[str]:
    """Every trial that is stored, whatever run it is of."""
    with closing(sqlite3.connect(database)) as connection:
        return [trial for (trial,) in connection.execute("SELECT trial FROM trials")]


def test_killed_daemon_finishes_its_job(machine: Machine) -> None:
    """Submitted, killed with SIGKILL, started again: the job finishes in one run, no trial is repeated.

    Two small workloads and a budget stand in for the default set here, whose compilation takes minutes.
    """
    killed = machine.start()
    remote = ("--socket", machine.socket)
    submitted = tuner(
        "submit", *TWO, "--objective", "energy", "--policy", "random", "--budget", str(BUDGET), *remote
    )
    assert submitted.exit_code == 0, submitted.stderr
    await_rows(killed, machine.database, 20)
    killed.kill()
    killed.wait()
    kept = rows(machine.database)
    assert 20 <= kept < BUDGET

    machine.start()
    followed = tuner("follow", "1", *remote)

    assert followed.exit_code == 0, followed.stderr
    measured = trials(machine.database)
    assert len(set(measured)) == len(measured) == BUDGET
    assert rows(machine.database, "runs") == 1
    job = machine.client().job(1)
    assert (job.state, job.attempts, job.trials) == ("finished", 2, BUDGET)
    best = tuner("best", *TWO, "--objective", "energy", *remote)
    assert best.exit_code == 0, best.stderr
    assert "stored" in best.stdout
    assert "modelled" in best.stdout


def test_stopped_daemon_leaves_a_job_that_goes_on(machine: Machine) -> None:
    """SIGTERM, and another one: exit code 0, the job waits, its trials are stored, no process is left."""
    process = machine.start()
    job = machine.client().submit(*TWO, policy="random", budget=100_000)
    await_rows(process, machine.database, 5)
    process.terminate()
    process.terminate()

    assert process.wait(PATIENCE_S) == 0
    assert not machine.socket.exists()
    with closing(sqlite3.connect(machine.database)) as connection:
        state, reason = connection.execute("SELECT state, reason FROM jobs").fetchone()
        (status,) = connection.execute("SELECT status FROM runs").fetchone()
    assert (job.id, state, reason, status) == (1, "queued", "the daemon was stopped", "interrupted")


def test_second_daemon_is_refused(machine: Machine) -> None:
    """A state directory has one daemon: another one ends at once, and says who is there."""
    process = machine.start()
    second = subprocess.run([*COMMAND, *machine.words], capture_output=True, text=True, check=False)

    assert second.returncode == 2
    assert f"another daemon works there (process {process.pid})" in second.stderr
    assert machine.client().status()["pid"] == process.pid


def test_reload_takes_over_good_settings_and_no_others(machine: Machine) -> None:
    """SIGHUP reads daemon.toml again; a broken one changes nothing, and status says what is wrong."""
    process = machine.start()
    good = machine.settings.read_text()
    machine.settings.write_text(f'{good}\n[[window]]\nstart = "0 22 * * *"\nhours = 8\n')
    process.send_signal(signal.SIGHUP)
    machine.hear("RELOADING=1")
    machine.hear("READY=1")
    assert machine.client().status()["windows"]["count"] == 1

    machine.settings.write_text(f"{good}\n[tunning]\n")
    process.send_signal(signal.SIGHUP)
    machine.hear("READY=1")
    status = machine.client().status()
    assert status["windows"]["count"] == 1
    assert any("tunning" in trouble for trouble in status["troubles"])


class Asked:
    """A daemon's process whose GPUs are found by a test."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wanted: list[tuple[str, ...]] = []
        self.driver = "1"
        monkeypatch.setattr(main, "restore_and_find", self._find)
        self.storage = Storage(folder / "tuner.db")
        self.listening = Listener(None, folder / "socket")
        choices = Choices(folder / "daemon.toml")
        choices.config.write_text("")  # type: ignore[union-attr]  # named just now
        self.daemon = main.Daemon(
            choices,
            ground.read(choices),
            self._find(("sim:jetson-tx1", "sim:k40c")),
            storage=self.storage,
            listening=self.listening,
            manager=ServiceManager({}),
        )

    def _find(self, specs: Sequence[str]) -> Found:
        self.wanted.append(tuple(specs))
        found = {spec: DeviceIdentity(spec, spec, spec, self.driver, "", modelled=True) for spec in specs}
        return Found(found, ("cuda:9: no such GPU",), ("GPU-set",))

    async def reload(self) -> None:
        await self.daemon._read_again()
        await self.storage.close()
        self.listening.close()


def test_reload_asks_the_gpus_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGHUP asks who the GPUs are, but for those on which a job runs; a clock left set is counted."""
    asked = Asked(tmp_path, monkeypatch)
    asked.driver = "2"
    monkeypatch.setattr(asked.daemon._service, "runs", lambda device: device == "sim:k40c")
    asyncio.run(asked.reload())

    assert asked.wanted[1:] == [("sim:jetson-tx1",)]
    situation = asked.daemon._situation
    assert {spec: one.driver for spec, one in situation.identities.items()} == {
        "sim:jetson-tx1": "2",
        "sim:k40c": "1",
    }
    assert "cuda:9: no such GPU" in situation.troubles["devices"]
    text = asked.daemon._service.metrics().decode()
    assert 'tuner_clock_restore_failures_total{gpu="GPU-set"} 2.0' in text


def test_lost_socket_is_made_anew(machine: Machine) -> None:
    """Where the socket's file is taken away, the daemon listens again; nobody but its user may connect."""
    machine.start()
    machine.socket.unlink()
    assert machine.answers()
    assert stat.S_IMODE(machine.socket.stat().st_mode) in (0o600, 0o660)


def test_idle_daemon_is_small(machine: Machine) -> None:
    """A daemon that has answered takes less than 80 MB of memory."""
    process = machine.start()
    machine.client().best("scan-lf:N=1024")
    status = Path(f"/proc/{process.pid}/status").read_text()
    (resident,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]

    assert int(resident) * 1024 < 80e6


def test_check_says_what_would_be_done(machine: Machine) -> None:
    """--check reads the settings, says what follows from them, and starts nothing."""
    machine.settings.write_text(
        '[[set]]\nname = "pair"\nworkloads = ["scan-lf:N=4", "fft:N=4"]\nmax_slowdown = 0.05\n'
        '[budget]\njoules_per_day = 5e4\n[[window]]\nstart = "0 22 * * *"\nhours = 8\n'
    )
    result = tuner("daemon", "--check", "--config", machine.settings, "--device", "sim:k40c")

    assert result.exit_code == 0, result.stderr
    assert "set pair: scan-lf:N=4 fft:N=4 for energy by auto, clocks off, on sim:k40c" in result.stdout
    assert "budget: 50000 J of measuring a day and GPU" in result.stdout
    assert "window: '0 22 * * *' for 8 h" in result.stdout
    assert not machine.database.exists()


def test_check_refuses_a_set_of_unknown_workloads(machine: Machine) -> None:
    """--check names the set and what would be right."""
    machine.settings.write_text('[[set]]\nname = "pair"\nworkloads = ["scam-lf:N=4"]\n')
    result = tuner("daemon", "--check", "--config", machine.settings)

    assert result.exit_code == 2
    assert "set pair: unknown kernel 'scam-lf'" in result.stderr
    assert "did you mean 'scan-lf'" in result.stderr


def test_schema_is_printed() -> None:
    """--schema is the JSON Schema of daemon.toml."""
    result = tuner("daemon", "--schema")

    assert result.exit_code == 0
    assert "window" in json.loads(result.stdout)["properties"]


def test_daemon_does_not_go_to_the_background() -> None:
    """Without a service manager, --foreground must be said."""
    result = tuner("daemon")

    assert result.exit_code == 2
    assert "tuner install-service" in result.stderr
