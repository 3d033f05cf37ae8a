"""The start of the daemon under a service manager: what is wrong is told, and mended it goes on."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from cli_process import PATIENCE_S, begun, tuner
from daemon_machine import Machine, machine
from served_service import UnixConnection

from tuner.daemon.settings_file import NAME, keep, kept_settings, service_table
from tuner.model.errors import DaemonUnavailableError, InputError, StoreFullError
from tuner.system.ownership import StateLock
from tuner.system.untrusted.reading import line_of

__all__ = ["machine"]  # a fixture

TYPO = ('policy = "auto"', 'policy = "autos"')
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk and leaves its own limits")


HASTY = """
from tuner.daemon import main, start
main._TICK_S = main._SOON_S = start._FIRST_WAIT_S = start._LOOK_S = 0.1
"""


@pytest.fixture(autouse=True)
def hasty(request: pytest.FixtureRequest) -> None:
    """What a daemon looks at every second or two, it looks at at once."""
    if "machine" in request.fixturenames:
        request.getfixturevalue("machine").first = HASTY


def told(machine: Machine) -> str:
    """What the daemon tells of its troubles now."""
    return "\n".join(machine.client().status()["troubles"])


def until(machine: Machine, words: str, *, there: bool = True) -> None:
    """Wait until the daemon tells of something, or does so no more."""
    while (words in told(machine)) != there:
        machine.give_a_moment()


def refused(machine: Machine) -> tuple[int, str, str]:
    """Status, time to wait and message of the answer to a request."""
    with closing(UnixConnection(machine.socket)) as connection:
        connection.request("POST", "/v1/jobs", b"x" * 5000, {"content-type": "application/json"})
        response = connection.getresponse()
        error = json.loads(response.read())["error"]
        assert error["kind"] == "not-ready"
        return response.status, response.headers["retry-after"], error["message"]


def health(machine: Machine, path: str) -> int:
    """Status of the answer to a probe."""
    with closing(UnixConnection(machine.socket)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


def spoil(machine: Machine) -> str:
    """Put a typo into daemon.toml; returns what was right."""
    right = machine.settings.read_text()
    assert TYPO[0] in right
    machine.settings.write_text(right.replace(*TYPO, 1))
    return right


def test_wrong_settings_at_a_start_leave_the_last_good_ones_in_force(machine: Machine) -> None:
    """After a typo and a restart the daemon works by what was kept; the mended file is read by itself."""
    machine.settings.write_text(machine.settings.read_text().replace("queue = 1000", "queue = 7"))
    machine.start().terminate()
    assert machine.processes[-1].wait(PATIENCE_S) == 0
    assert stat.S_IMODE((machine.database.parent / NAME).stat().st_mode) == 0o600
    right = spoil(machine)
    machine.start()

    assert f"{machine.settings}: [tuning] policy: unknown policy 'autos'" in told(machine)
    assert "(line " in told(machine)
    assert "when the file is mended, it is read by itself" in told(machine)
    assert machine.client().best("scan-lf:N=1024").workloads
    machine.settings.write_text(right)
    until(machine, "autos", there=False)


def test_wrong_settings_at_the_first_start_are_told_on_the_socket(machine: Machine) -> None:
    """Without settings that were kept every client hears file, key and line; mended, the daemon starts."""
    right = spoil(machine)
    process = machine.begin()
    said = machine.hear("STATUS=waits")
    assert "READY=1" in said
    assert "[tuning] policy: unknown policy 'autos'" in said
    with contextlib.ExitStack() as stack:
        for head in [b"", b"GET", b"\0" * 20_000] * 20:  # clients that say nothing, or no end of it
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(machine.socket))
            client.sendall(head)
        for _ in range(20):
            status, retry, message = refused(machine)
            assert (status, retry) == (503, "1")
            assert f"{machine.settings}: [tuning] policy: unknown policy 'autos'" in message
            assert "(line " in message
    shown = tuner("status", "--socket", machine.socket)
    assert shown.exit_code == DaemonUnavailableError.exit_code
    assert "unknown policy 'autos'" in shown.stderr
    assert (health(machine, "/healthz"), health(machine, "/readyz")) == (200, 503)

    machine.settings.write_text(right)
    machine.await_ready()
    assert (health(machine, "/healthz"), health(machine, "/readyz")) == (200, 200)
    assert machine.client().status()["pid"] == process.pid
    assert machine.log.read_text().count("unknown policy 'autos'") == 1


def test_a_reload_reads_a_mended_file_at_once(machine: Machine) -> None:
    """SIGHUP while the daemon waits has it try again; a stop ends it in order."""
    spoil(machine)
    process = machine.begin()
    machine.hear("STATUS=waits")
    process.send_signal(signal.SIGHUP)
    machine.hear("STATUS=waits")
    process.terminate()

    assert process.wait(PATIENCE_S) == 0
    assert not machine.socket.exists()


def test_a_start_by_hand_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a service manager a wrong file is an error of who started the daemon."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    spoil(machine)
    process = begun(*machine.words)  # a daemon takes the log of its process

    assert "[tuning] policy: unknown policy 'autos'" in process.communicate()[1]
    assert process.returncode == 2


def test_a_lock_that_is_held_is_waited_for(machine: Machine) -> None:
    """While a dying daemon has the state, clients hear so; then the next one takes it."""
    machine.database.parent.mkdir()
    with (machine.database.parent / "daemon.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        machine.begin()
        assert "another daemon works there" in machine.hear("STATUS=waits")
        assert "another daemon works there" in refused(machine)[2]
    machine.await_ready()
    assert machine.client().status()["pid"] == machine.processes[-1].pid


def test_a_state_that_cannot_be_is_told_and_mended_in_the_file(machine: Machine) -> None:
    """Settings of the right form may name what cannot be used; while that is waited for, others are read."""
    where = machine.words.index("--state")
    machine.words = (*machine.words[:where], *machine.words[where + 2 :])
    named = '# state = "/var/lib/tuner"'
    text = machine.settings.read_text()
    machine.settings.write_text(text.replace(named, 'state = "/proc/tuner"'))
    machine.begin()
    assert "/proc/tuner: cannot keep state there" in machine.hear("STATUS=waits")
    assert "/proc/tuner: cannot keep state there" in refused(machine)[2]
    machine.settings.write_text(text.replace(named, f'state = "{machine.database.parent}"'))
    machine.await_ready()
    assert machine.client().status()["state_directory"] == str(machine.database.parent)


@needs_root
def test_a_disk_without_room_is_waited_for(machine: Machine) -> None:
    """A start without room for the state is no end: clients hear so, and with room it goes on."""
    disk = machine.database.parent
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "nr_inodes=1,mode=700", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        machine.begin()
        assert "no room is left" in machine.hear("STATUS=waits")
        assert "no room is left" in refused(machine)[2]
        subprocess.run(["mount", "-o", "remount,nr_inodes=1000", str(disk)], check=True)
        machine.await_ready()
        machine.client().submit("scan-lf:N=4", policy="random", budget=1)
    finally:
        machine.close()
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_uses_are_stored_by_themselves_and_a_lost_directory_is_told(machine: Machine) -> None:
    """Uses reach the disk without an end in order; moved away, the state is missed, and back, it goes on."""
    machine.start()
    client = machine.client()
    client.best("scan-lf:N=1024", count=5000)
    while uses(machine.database) < 4999:  # counts fade
        machine.give_a_moment()

    state, elsewhere = machine.database.parent, machine.database.parent.with_name("elsewhere")
    state.rename(elsewhere)
    with pytest.raises(DaemonUnavailableError, match="was removed while the daemon ran"):
        client.submit("scan-lf:N=4")
    until(machine, f"state directory: {state} was removed while the daemon ran")
    assert client.best("scan-lf:N=1024").workloads
    assert 'tuner_troubles{subject="state directory"} 1.0' in metrics(machine)
    assert reported(machine) == 202
    assert not state.exists()
    elsewhere.rename(state)
    until(machine, "was removed", there=False)
    client.submit("scan-lf:N=4")
    assert client.jobs()[-1].id == 1


def test_a_directory_made_again_is_taken_up_and_told(machine: Machine) -> None:
    """Removed and made again, the daemon begins anew with what is there, and says so."""
    process = machine.start()
    state = machine.database.parent
    gone = state.rename(state.with_name("gone"))  # at once: file by file, the daemon could add one
    shutil.rmtree(gone)
    until(machine, "was removed while the daemon ran")
    state.mkdir()
    machine.await_ready()
    status = machine.client().status()

    assert status["pid"] == process.pid
    assert any("begun anew" in notice for notice in status["notices"])
    machine.client().submit("scan-lf:N=4")
    assert machine.database.is_file()
    process.terminate()
    assert process.wait(PATIENCE_S) == 0


def test_kernels_that_others_can_write_are_left_out(machine: Machine) -> None:
    """The daemon starts without a folder below /tmp, says so, and answers of all other kernels.

    `tuner stop` ends one that no systemd would start again, in order, and says how to go on.
    """
    folder = machine.settings.parent / "kernels.d"
    folder.mkdir()
    folder.chmod(0o777)
    text = machine.settings.read_text()
    machine.settings.write_text(text.replace('["/etc/tuner/kernels.d"]', f'["{folder}"]'))
    process = machine.start()

    assert "can be written by others" in told(machine)
    assert machine.client().best("scan-lf:N=1024").workloads
    done = tuner("stop", "--until-told", "--socket", machine.socket)
    assert done.exit_code == 0, done.stderr
    assert "`tuner daemon --foreground` starts it again" in done.stdout
    assert process.wait(PATIENCE_S) == 0
    assert tuner("stop", "--socket", machine.socket).exit_code == DaemonUnavailableError.exit_code


@pytest.mark.usefixtures("machine")
def test_what_is_not_installed_is_not_started() -> None:
    """Without a service, `tuner start` says what there is instead."""
    done = tuner("start", "--user")

    assert done.exit_code == 2
    assert "tuner install-service" in done.stderr


def uses(database: Path) -> float:
    with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(database)) as connection:
        return float(connection.execute("SELECT coalesce(sum(count), 0) FROM uses").fetchone()[0])
    return 0.0


def metrics(machine: Machine) -> str:
    with closing(UnixConnection(machine.socket)) as connection:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()


def reported(machine: Machine) -> int:
    """Status of the answer to a report of uses."""
    body = json.dumps({"uses": [{"workloads": ["scan-lf:N=1024"], "count": 1}]})
    with closing(UnixConnection(machine.socket)) as connection:
        connection.request("POST", "/v1/uses", body, {"content-type": "application/json"})
        return connection.getresponse().status


# --- its parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("[tuning] policy", 2),
        ("[tuning] nothing", 1),
        ("[[set]] 2 name", 7),
        ("[[set]] 2 workloads, item 1", 8),
        ("[tunning]", 9),
        ("[nothing] at_all", None),
        ("no place", None),
    ],
)
def test_lines_of_keys_are_found(place: str, line: int | None) -> None:
    """A key is told with its line, one that is missing with that of its table."""
    sets = '[[set]]\nname = "a"\n[[set]]\nname = "b"\n"workloads" = []'
    text = f'[tuning]\npolicy = "auto"\n# name = 1\n{sets}\n[tunning]'

    assert line_of(text, place) == line


def test_the_table_of_the_service_is_read_from_a_wrong_file(tmp_path: Path) -> None:
    """What is wrong elsewhere hides neither socket nor state; what is wrong in it gives the defaults."""
    file = tmp_path / "daemon.toml"
    file.write_text('[[set]\n[service]\nstate = "/a"\n[tuning\n')
    assert str(service_table(file).state) == "/a"
    for text in ("[service]\nstate = 3\n", "[service]\nstate = \n", "[service]\n[service]\n"):
        file.write_text(text)
        assert service_table(file).state is None
    assert service_table(tmp_path / "none").state is None


def test_only_settings_that_nobody_else_could_change_are_used(tmp_path: Path) -> None:
    """Kept settings must be whole, of the same file, a plain file, and writable by their owner alone."""
    file, folder = tmp_path / "daemon.toml", tmp_path / "state"
    folder.mkdir(mode=0o700)
    kept = folder / NAME
    assert kept_settings(folder, file) is None
    keep(folder, file, "[limits]\nqueue = 7\n")
    found = kept_settings(folder, file)
    assert found is not None
    assert found.settings.limits.queue == 7
    assert kept_settings(folder, tmp_path / "another.toml") is None
    good = kept.read_text()
    for bad in (good.replace("7", "8"), good[:-3], "", "\0"):
        kept.write_text(bad)
        assert kept_settings(folder, file) is None
    kept.write_text(good)
    kept.chmod(0o622)
    assert kept_settings(folder, file) is None
    kept.chmod(0o600)
    folder.chmod(0o777)
    assert kept_settings(folder, file) is None
    folder.chmod(0o700)
    kept.rename(folder / "elsewhere")
    kept.symlink_to(folder / "elsewhere")
    assert kept_settings(folder, file) is None


def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where flock is not known, the message says that, and what to do; no other daemon is blamed."""

    def flock(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(
        InputError, match=r"has no file locks \(flock: Operation not supported\).*--state"
    ) as error:
        StateLock(tmp_path)
    assert "another daemon" not in str(error.value)


def test_a_disk_without_room_is_no_mistake_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No room is told as such, with the exit code of what may pass."""

    def open_nothing(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_nothing)
        with pytest.raises(StoreFullError, match="no room"):
            StateLock(tmp_path)
