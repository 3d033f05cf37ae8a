"""A folder with all that a daemon has, and daemons in it that a test starts as a service manager would."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import COMMAND, PATIENCE_S
from prepared_process import PreparedProcess

from tuner.client import Client
from tuner.model.errors import DaemonUnavailableError

EXAMPLE = Path(__file__).parent.parent / "systemd" / "daemon.toml"


class Machine:
    """A folder with all that a daemon has, and the daemons in it; the test is their service manager."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "state" / "tuner.db"
        self.socket = folder / "tunerd.sock"
        self.settings = folder / "daemon.toml"
        self.log = folder / "log"
        # the shipped example, but for the wait for a calm GPU, which nobody shares here
        self.settings.write_text(EXAMPLE.read_text().replace("calm_s = 10.0", "calm_s = 0.0"))
        self.words: tuple[str, ...] = (
            *("daemon", "--foreground", "--config", str(self.settings), "--device", "sim:jetson-tx1"),
            *("--state", str(self.database.parent), "--socket", str(self.socket)),
        )
        self._manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._manager.bind(str(folder / "manager.sock"))
        self._manager.settimeout(PATIENCE_S)
        self.first = ""  # code that the daemon's process runs before all else
        self.prepared = True  # has imported what it needs, when it begins
        self.processes: list[subprocess.Popen[str]] = []

    def begin(self) -> "subprocess.Popen[str]":
        """Start the daemon."""
        with self.log.open("a") as log:
            code, environment = f"{self.first}\n{COMMAND[2]}", {**os.environ, "NOTIFY_SOCKET": self.manager}
            process: subprocess.Popen[str]
            if self.prepared:
                process = PreparedProcess(code, self.words, {1: 1, 2: log.fileno()}, environment)
            else:
                words = [*COMMAND[:2], code, *self.words]
                process = subprocess.Popen(words, stderr=log, text=True, env=environment)
        self.processes.append(process)
        return process

    def start(self) -> "subprocess.Popen[str]":
        """Start the daemon, and return when it says that it is ready."""
        process = self.begin()
        self.await_ready()
        return process

    def await_ready(self) -> None:
        """Return when the daemon says that it is ready; one that waits is so for its service manager only."""
        while "STATUS=waits" in self.hear("READY=1"):
            pass

    @property
    def manager(self) -> str:
        """Where the daemon tells how it is."""
        return str(self._manager.getsockname())

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

    def give_a_moment(self) -> None:
        """Wait a little for what a look at the daemon will show; it must live on."""
        assert not self._ended(), self.log.read_text()

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
