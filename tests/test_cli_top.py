"""`tuner top` as a command: in a terminal of its own, and where it cannot be."""

import os
import pty
import signal
import struct
import time
from fcntl import ioctl
from pathlib import Path
from select import select
from termios import TIOCSWINSZ

import pytest
from cli_process import COMMAND, PATIENCE_S, tuner
from prepared_process import PreparedProcess
from scripted_daemon import Request, ScriptedDaemon, UnfinishedAnswer, answer, event, job, stream

from tuner.cli import remote

# a shell that runs tests in the background has Ctrl-C ignored for all below it
HEEDING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"


def script(request: Request) -> "bytes | UnfinishedAnswer":
    """A daemon with one job, whose stream goes on."""
    if request.path != "/v1/events":
        return answer({"answers": [], "devices": []})
    told = [event(None, "begin", resumed=False), event(None, "job", **job(state="running", reason="first"))]
    return UnfinishedAnswer(stream(*told, whole=False))


@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGTERM])
def test_it_runs_over_a_terminal_and_leaves_it_as_it_was(
    number: signal.Signals | None, tmp_path: Path
) -> None:
    """At 80 × 24 the job stands on the screen; q or a signal ends with 0, and restores the screen."""
    with ScriptedDaemon(tmp_path / "s", script) as daemon:
        here, there = pty.openpty()
        ioctl(there, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        process = PreparedProcess(
            f"{HEEDING}\n{COMMAND[2]}",
            ["top", "--socket", str(daemon.path)],
            dict.fromkeys(range(3), there),
            {**os.environ, "TERM": "xterm-256color"},
            session=True,
            imports=("tuner.cli.remote", "tuner.cli.top.view"),
        )
        os.close(there)
        try:
            shown = _read(here, b"job 1 running")
            assert b"sim:jetson-tx1" in shown
            if number is None:
                os.write(here, b"q")
            else:
                process.send_signal(number)
                process.send_signal(number)  # the impatient press twice
            rest = _read(here, b"\x1b[?1049l")  # the screen from before
            assert process.wait(PATIENCE_S) == 0
            assert b"Traceback" not in shown + rest
        finally:
            process.kill()
            process.wait()
            os.close(here)


def _read(terminal: int, wanted: bytes) -> bytes:
    """What a program writes, up to these bytes; its end is an OSError."""
    read, deadline_s = b"", time.monotonic() + PATIENCE_S  # a screen that repaints itself never falls silent
    while wanted not in read:
        assert select([terminal], [], [], max(deadline_s - time.monotonic(), 0.0))[0], read[-4096:]
        read += os.read(terminal, 4096)
    return read


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon is not asked first."""
    monkeypatch.setattr(remote, "find_spec", lambda _: None)
    result = tuner("top")
    assert result.exit_code == 2
    assert result.stderr == "Error: tuner top needs textual: pip install 'textual>=8,<9'\n"


def test_without_a_daemon_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with other commands: what was looked for, and how one is started."""
    monkeypatch.setattr(remote, "STARTING_S", 0.0)
    monkeypatch.setattr(remote, "is_terminal", lambda: True)
    result = tuner("top", "--socket", tmp_path / "none")
    assert result.exit_code == 1
    assert f"no daemon listens at {tmp_path / 'none'}" in result.stderr
    assert "start one with `systemctl start tuner.socket`" in result.stderr
