"""The first moments of a command: Ctrl-C, misspelt names, places for results, a daemon that is starting."""

import subprocess
import sys
from pathlib import Path

import pytest
from cli_process import tuner

from tuner.cli import remote
from tuner.cli.main import LazyGroup
from tuner.model.errors import DaemonAbsentError

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
