"""Tokens of clients over TCP: their file, their ends, their rotation, and who they are to the daemon."""

import contextlib
import http.client
import itertools
import json
import os
import re
import signal
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from cli_process import tuner
from daemon_machine import Machine, machine
from hypothesis import given
from hypothesis import strategies as st
from served_service import served

from tuner.cli import token as cli
from tuner.client.client import Client
from tuner.daemon import tokens as room
from tuner.daemon.tokens import NAME, TAKEN_OVER, Tokens, added, new_secret, read, take_over, update
from tuner.model.errors import DaemonError, DaemonUnavailableError, InputError
from tuner.model.typed import sealed
from tuner.system import ownership

__all__ = ["machine"]  # a fixture

DAY_S = 86_400.0
SURVIVED = 7


def made(folder: Path, *words: str | Path) -> str:
    """Call ``tuner token`` for a state directory; what it prints."""
    result = tuner("token", *words, "--state", folder)
    assert result.exit_code == 0, result.stderr
    return result.stdout.strip()


def in_force(folder: Path) -> Tokens:
    found = Tokens(folder / NAME)
    found.look()
    return found


def test_a_token_from_its_making_to_its_end(tmp_path: Path) -> None:
    """No secret is kept; a rotated one counts beside the new one, and a revoked one no more."""
    file = tmp_path / "secret"
    made(tmp_path, "add", "ci", file)
    first = file.read_text().strip()
    other = made(tmp_path, "add", "prometheus", "-", "--days", "30")
    file.chmod(0o640)
    made(tmp_path, "rotate", "ci", file)
    second = file.read_text().strip()
    found = in_force(tmp_path)

    assert [found.holder(one.encode()) for one in (first, second, other)] == ["ci", "ci", "prometheus"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    assert not any(one in (tmp_path / NAME).read_text() for one in (first, second, other))
    listed = made(tmp_path, "list").splitlines()
    assert [line.split()[0] for line in listed[1:]] == ["prometheus", "ci", "ci"]
    assert ["replaced" in line for line in listed] == [False, False, True, False]
    assert not any(one in line for one in (first, second, other) for line in listed)

    made(tmp_path, "rotate", "ci", file, "--keep-hours", "0")
    third = file.read_text().strip()
    found.look()
    assert [found.holder(one.encode()) for one in (first, second, third)] == [None, None, "ci"]
    made(tmp_path, "revoke", "ci")
    found.look()
    assert [found.holder(one.encode()) for one in (third, other)] == [None, "prometheus"]


def test_no_command_takes_a_secret() -> None:
    """Command lines are seen by all users of a machine: names, files and times are all that stands there."""
    asked = {parameter.name for command in cli.token.commands.values() for parameter in command.params}
    assert asked == {"name", "names", "file", "days", "keep_hours", "state", "json_path"}


REFUSED = {
    ("add", "ci"): "ci: has a token already; `tuner token rotate ci`",
    ("add", "a b"): "letters, digits",
    ("add", "token:ci"): "letters, digits",
    ("add", "x" * 65): "letters, digits",
    ("add", "new", "there"): "`tuner token rotate new .*there` replaces",
    ("add", "new", "nowhere/file"): "cannot be written: No such file.*another file",
    ("add", "new", "--days", "0"): "--days",
    ("add", "new", "--days", "nan"): "--days",
    ("rotate", "cd"): "cd: no token has this name; known: ci, other",
    ("rotate", "ci", "open"): "chmod 0600 .*open",
    ("rotate", "ci", "link"): "plain file",
    ("rotate", "ci", "there"): "there: holds no token; name the file of ci's token",
    ("rotate", "ci", "key"): "key: holds no token; name the file of ci's token",
    ("rotate", "ci", "others"): "others: holds the token of other; name the file of ci's token",
    ("revoke", "ci", "cd"): "cd: no token has this name",
    ("revoke",): "Missing argument",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Any) -> None:
    """The exit code is 2, and neither the tokens nor any other file have changed."""
    monkeypatch.chdir(tmp_path)
    made(tmp_path, "add", "ci")
    for name, mode in (("there", 0o600), ("open", 0o644)):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(mode)
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "key").write_text("-----BEGIN PRIVATE KEY-----\n" + "x" * 64 + "\n")
    (tmp_path / "key").chmod(0o600)
    made(tmp_path, "add", "other", tmp_path / "others")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    result = tuner("token", *words, "--state", tmp_path)

    assert result.exit_code == 2
    assert re.search(REFUSED[words], " ".join(result.stderr.split())), result.stderr
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_state_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    result = tuner("token", "list", "--state", tmp_path / "none")
    assert (result.exit_code, "--state" in result.stderr) == (2, True)


# --- the file


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b"ends_s") + 10] ^= 1
    path.write_bytes(content)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir(0o600)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit": (flipped, "checksum|no whole list"),
    "cut": (lambda path: os.truncate(path, 100), "no whole list"),
    "empty": (lambda path: path.write_text(""), "no whole list"),
    "no text": (lambda path: path.write_bytes(b"\xff\xfe"), "no whole list"),
    "other words": (
        lambda path: path.write_text(json.dumps(sealed({"tokens": [1]}))),
        "no whole list",
    ),
    "deep": (lambda path: path.write_text("[" * 100_000), "no whole list"),
    "others may read": (lambda path: path.chmod(0o644), "0644; it must be 0600 or 0640: chmod"),
    "others may write": (lambda path: path.chmod(0o606), "0606"),
    "a link": (lambda path: path.symlink_to(path.rename(path.with_name("x"))), "plain file"),
    "a pipe": (pipe, "plain file"),
    "a folder": (folder, "plain file"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_wrong_changes_nothing(tmp_path: Path, damage: str) -> None:
    """The tokens that were in force stay so, no command writes, and the message names file and remedy."""
    secret = made(tmp_path, "add", "ci", "--days", "3")
    found, path = in_force(tmp_path), tmp_path / NAME
    change, message = DAMAGES[damage]
    change(path)

    for _ in range(2):
        with pytest.raises(InputError, match=rf"{path}.*({message})"):
            found.look()
        assert found.holder(secret.encode()) == "ci"
    for words in (("list",), ("add", "other"), ("revoke", "ci")):
        assert tuner("token", *words, "--state", tmp_path).exit_code == 2
    with pytest.raises(InputError):
        in_force(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_owners(tmp_path: Path) -> None:
    """What root writes is the service's, who owns the folder; a file of somebody else is refused."""
    nobody = 65_534
    os.chown(tmp_path, nobody, nobody)
    made(tmp_path, "add", "ci", tmp_path / "secret")
    owners = {(tmp_path / name).stat().st_uid for name in (NAME, "secret")}
    os.chown(tmp_path / NAME, 1234, -1)

    assert owners == {nobody}
    with pytest.raises(InputError, match="must belong to root or to the daemon's user"):
        read(tmp_path / NAME)


def test_two_writers_at_once(tmp_path: Path) -> None:
    """Of many who add at once, each has its token in the end."""
    names = [f"n{number}" for number in range(24)]

    def add(name: str) -> None:
        update(tmp_path / NAME, lambda found: added(found, name, new_secret(), 0.0))

    # flock is between open files, so that threads wait for each other as processes do
    threads = [threading.Thread(target=add, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(token.name for token in read(tmp_path / NAME)) == sorted(names)


def test_the_token_of_an_older_version_is_taken_over_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its clients go on; what was revoked or removed does not come back from the old file."""
    old, path = tmp_path / "token", tmp_path / NAME
    assert not take_over(path, None)
    assert not take_over(path, old)
    old.write_text("a secret of sixteen\n")
    old.chmod(0o600)
    assert take_over(path, old)
    assert in_force(tmp_path).holder(b"a secret of sixteen") == TAKEN_OVER
    made(tmp_path, "revoke", TAKEN_OVER)
    assert not take_over(path, old)
    assert in_force(tmp_path).holder(b"a secret of sixteen") is None
    path.unlink()
    found = Tokens(path)
    with caplog.at_level("WARNING"):
        found.look(old)
        found.look(old)
    assert found.holder(b"a secret of sixteen") is None
    assert [message for message in caplog.messages if str(path) in message] == [
        f"{path} was removed: no token counts; `tuner token add` makes some"
    ]


def test_a_backup_in_the_same_folder_keeps_nobody_waiting(tmp_path: Path) -> None:
    """A revocation counts at once, however long a backup or a restore takes."""
    with ownership.held_folder(tmp_path):
        made(tmp_path, "add", "ci")
        made(tmp_path, "revoke", "ci")


class Meanwhile(type(Path())):  # type: ignore[misc]
    """A path at whose opening somebody adds a token beside it."""

    def __fspath__(self) -> str:
        listed = Path(str(self)).with_name(NAME)
        if not listed.exists():
            update(listed, lambda found: added(found, "ci", "another", 1e9))
        return str(self)


def test_a_token_that_was_added_meanwhile_stays(tmp_path: Path) -> None:
    """The first start of a newer version takes nothing from who adds a token at the same time."""
    (tmp_path / "token").write_text("a secret of sixteen\n")
    (tmp_path / "token").chmod(0o600)
    assert not take_over(tmp_path / NAME, Meanwhile(tmp_path / "token"))
    found = in_force(tmp_path)
    assert (found.holder(b"another"), found.holder(b"a secret of sixteen")) == ("ci", None)


@pytest.mark.parametrize(("text", "mode"), [("short", 0o600), ("x" * 20, 0o644), ("é" * 20, 0o600)])
def test_an_older_token_that_cannot_be_trusted_is_left(tmp_path: Path, text: str, mode: int) -> None:
    (tmp_path / "token").write_text(text)
    (tmp_path / "token").chmod(mode)
    with pytest.raises(InputError, match=str(tmp_path / "token")):
        take_over(tmp_path / NAME, tmp_path / "token")
    assert not (tmp_path / NAME).exists()


# --- clocks


class Clocks:
    """A wall clock that anybody sets, and one that nobody does."""

    def __init__(self) -> None:
        self.wall_s, self.true_s = 1e9, 0.0

    def pass_(self, seconds: float) -> None:
        self.wall_s += seconds
        self.true_s += seconds


def clocked(folder: Path, days: float) -> tuple[Clocks, Tokens]:
    """A token, its secret being ``s``, that the daemon has seen when it was made."""
    clocks = Clocks()
    update(folder / NAME, lambda _: added((), "ci", "s", clocks.wall_s, days * DAY_S))
    found = Tokens(folder / NAME, lambda: clocks.wall_s, lambda: clocks.true_s)
    found.look()
    return clocks, found


@given(st.lists(st.tuples(st.booleans(), st.floats(-20 * DAY_S, 20 * DAY_S)), max_size=12))
def test_no_clock_lengthens_a_life(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    """Wherever the wall clock jumps, a token counts where it says so, and never beyond its true time."""
    clocks, found = clocked(tmp_path_factory.mktemp("state"), days=10)
    for jump, seconds in steps:
        if not jump:
            clocks.pass_(abs(seconds))
        else:
            clocks.wall_s += seconds
        found.look()
        by_wall = -300.0 <= clocks.wall_s - 1e9 < 10 * DAY_S
        assert (found.holder(b"s") == "ci") == (by_wall and clocks.true_s < 10 * DAY_S)


def test_a_clock_that_was_wrong_at_the_start_is_put_right(tmp_path: Path) -> None:
    """A board without a battery begins in 1970: a token with an end waits for the right time."""
    clocks, _ = clocked(tmp_path, days=10)
    update(tmp_path / NAME, lambda found: added(found, "lasting", "t", clocks.wall_s))
    for wrong_s in (0.0, 4e9):
        clocks.wall_s = wrong_s
        found = Tokens(tmp_path / NAME, lambda: clocks.wall_s, lambda: clocks.true_s)
        found.look()
        assert (found.holder(b"s"), found.holder(b"t")) == (None, "lasting")
        clocks.wall_s = 1e9 + DAY_S
        assert found.holder(b"s") == "ci"


# --- kills


@pytest.mark.parametrize("keep_hours", ["24", "1"])
def test_a_rotation_that_is_killed_leaves_a_token_that_counts(tmp_path: Path, keep_hours: str) -> None:
    """Killed at each of its lines: the file holds a secret that counts, and the list is whole."""
    file = tmp_path / "secret"
    made(tmp_path, "add", "ci", file)
    begin = {path: path.read_bytes() for path in (file, tmp_path / NAME)}
    traced = {str(module.__file__) for module in (cli, room, ownership)}
    seen = []
    for line in itertools.count(1):
        died = in_child(
            lambda: made(tmp_path, "rotate", "ci", file, "--keep-hours", keep_hours), traced, line
        )
        secret, listed = file.read_text().strip(), len(read(tmp_path / NAME))
        assert in_force(tmp_path).holder(secret.encode()) == "ci"
        seen.append((listed, secret == begin[file].decode().strip()))
        if not died:
            break
        for path, content in begin.items():
            path.write_bytes(content)
    assert len(seen) > 100
    assert list(dict.fromkeys(seen)) == [(1, True), (2, True), (2, False)]  # before, between, done
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "secret",
        NAME,
        room.LOCK,
    ]


def in_child(work: Callable[[], object], files: set[str], line: int) -> bool:
    """Do something in a fork, which is killed at its n-th line of some files; True where that came."""
    child = os.fork()
    if child == 0:
        left = line

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if frame.f_code.co_filename not in files:
                return None
            if event == "line":
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        try:
            work()
        finally:
            os._exit(SURVIVED)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == -signal.SIGKILL


# --- a daemon


def test_a_stream_ends_with_its_token() -> None:
    """Who follows is told nothing any more when the token is revoked."""
    with served(tcp=True) as api:
        assert api.tcp is not None
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", api.tcp.port, 60)) as connection:
            connection.request("GET", "/v1/events", headers={"Authorization": f"Bearer {api.token}"})
            stream = connection.getresponse()
            assert stream.status == 200
            made(api.path.parent, "revoke", "tests")
            api.loop.call_soon_threadsafe(api.tcp.tokens.look)
            while stream.readline():
                pass
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", api.tcp.port, 60)) as other:
                other.request("GET", "/v1/status", headers={"Authorization": f"Bearer {api.token}"})
                assert other.getresponse().status == 401


def test_tokens_are_users_of_a_running_daemon(machine: Machine, tmp_path: Path) -> None:
    """Each has its own jobs; an older and a rotated one count on, a revoked one no more, without a reload."""
    settings = machine.settings.read_text()
    older = tmp_path / "older"
    older.write_text("as versions before had it\n")
    older.chmod(0o600)
    machine.settings.write_text(settings.replace("[tcp]", f'[tcp]\nport = 0\ntoken_file = "{older}"'))
    daemon = machine.start()
    state, file, other = machine.database.parent, tmp_path / "secret", tmp_path / "other"
    port = re.findall(r"\d+", machine.client().status()["TCP"])[0]

    def client(secret: Path) -> Client:
        return Client(f"http://127.0.0.1:{port}", token_file=secret)

    def await_answer(secret: Path, *, admitted: bool) -> None:
        while True:
            machine.give_a_moment()
            with contextlib.suppress(DaemonUnavailableError):
                client(secret).status()
                if admitted:
                    return
                continue
            if not admitted:
                return

    assert client(older).status()["troubles"] == []
    for name, where in (("ci", file), ("guest", other)):
        made(state, "add", name, where)
        await_answer(where, admitted=True)
    job = client(file).submit("scan-lf:N=4096")
    assert job.submitter == "token:ci"
    with pytest.raises(DaemonError, match="a job of who holds the token ci"):
        client(other).cancel(job.id)
    old = tmp_path / "old"
    old.write_text(file.read_text())
    made(state, "rotate", "ci", file)
    await_answer(file, admitted=True)
    assert client(old).cancel(job.id).reason == "by token ci"
    (state / NAME).chmod(0o644)
    daemon.send_signal(signal.SIGHUP)
    while not any("0644" in trouble for trouble in machine.client().status()["troubles"]):
        machine.give_a_moment()
    client(file).status()
    (state / NAME).chmod(0o600)
    made(state, "revoke", "ci")
    for secret in (file, old):
        await_answer(secret, admitted=False)
    assert client(other).status()["troubles"] == []
