"""Pulling: a file of another host within a size and a time, from addresses that are no options."""

import os
import select
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner
from damaging import everything
from mirrored import rows
from test_merging import add_run

from tuner.cli.db import db
from tuner.database import copying
from tuner.database.connection import Database
from tuner.database.copying import copied, pulled
from tuner.database.merging import merge_file
from tuner.database.runs import Store
from tuner.model.errors import InputError, StoreError, StoreFullError

HOST = "#!/bin/sh\n"
MAGIC = r"SQLite format 3\000"
REMOTE = (
    'while [ "$1" != -- ]; do shift; done; shift 2; exec sh -c "$*"\n'  # as the shell of the host does it
)


def script(path: Path, text: str) -> str:
    """A program that stands for another."""
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@contextmanager
def served(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server on the loopback, and its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder, and says nothing."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The database of another host."""
    path = tmp_path / "there with a space.db"
    add_run(path)
    return path


# --- copies ---------------------------------------------------------------------------------------


def test_a_copy_has_runs_and_trials_and_nothing_else(tmp_path: Path) -> None:
    """Jobs, users and uses stay behind; runs keep their checksums."""
    path = tmp_path / "tuner.db"
    everything(path)
    with copied(path) as copy:
        kept = rows(copy)
        assert not list(copy.parent.glob(f"{copy.name}-*"))
    assert not copy.exists()
    whole = rows(path)
    assert {name: found for name, found in kept.items() if found} == {
        name: whole[name] for name in ("runs", "trials", "merged")
    }


def test_a_copy_can_be_merged_while_the_database_is_open(tmp_path: Path, there: Path) -> None:
    """What is still in the log of the database is in the copy."""
    with Store(there) as store, copied(there) as copy, Database(tmp_path / "here.db") as here:
        assert merge_file(here, copy).runs_added == len(store.history())


def test_a_disk_without_room_for_the_copy_is_named(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is on another disk, which need not be full."""

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(copying, "copy_pages", full)
    folder = tmp_path / "small"
    folder.mkdir()
    with pytest.raises(StoreFullError, match=r"no room for the copy in .*small"), copied(there, folder):
        pass
    assert list(folder.iterdir()) == []


def test_a_copy_replaces_no_database(tmp_path: Path, there: Path) -> None:
    """Jobs and users of it would be lost, of its mirror and of any other; a copy is replaced."""
    other = tmp_path / "other.db"
    add_run(other)
    for target in (there, there.with_name(f"{there.name}.mirror"), other):
        before = target.read_bytes()
        refused = CliRunner().invoke(db, ["copy", "--output", str(target), "--database", str(there)])
        assert "a database in use" in str(refused.exception)
        assert target.read_bytes() == before
    again = ["copy", "--output", str(tmp_path / "copy.db"), "--database", str(there)]
    assert [CliRunner().invoke(db, again).exit_code for _ in range(2)] == [0, 0]


def test_the_command_writes_a_copy_to_a_file_or_to_standard_output(tmp_path: Path, there: Path) -> None:
    """Both are the same, and a missing database is an error that names it."""
    to_file = CliRunner().invoke(db, ["copy", "--output", str(tmp_path / "a.db"), "--database", str(there)])
    to_output = CliRunner().invoke(db, ["copy", "--output", "-", "--database", str(there)])
    assert (to_file.exit_code, to_output.exit_code) == (0, 0)
    assert rows(tmp_path / "a.db")["runs"] == rows(there)["runs"]
    (tmp_path / "b.db").write_bytes(to_output.stdout_bytes)
    assert rows(tmp_path / "b.db") == rows(tmp_path / "a.db")
    missing = CliRunner().invoke(db, ["copy", "--output", "-", "--database", str(tmp_path / "none.db")])
    assert "none.db: no results are there" in str(missing.exception)


# --- ssh ------------------------------------------------------------------------------------------


def test_runs_of_a_host_come_by_ssh(tmp_path: Path, there: Path) -> None:
    """The host's own `tuner db copy` is run there, with the path as one word."""
    ssh = script(tmp_path / "ssh", REMOTE)
    tuner = script(tmp_path / "tuner", f'exec {sys.executable} -m tuner "$@"\n')
    address = f"ssh:me@host-b:{there}"
    with pulled(address, command=tuner, ssh=ssh) as (file, source), Database(tmp_path / "a.db") as here:
        assert merge_file(here, file, source=source).runs_added == 1
        (run,) = Store(here).history()
    assert run.origin is not None
    assert run.origin.source == address
    assert not file.exists()


@pytest.mark.parametrize(
    "address",
    [
        *(
            "ssh:-oProxyCommand=touch x",
            "ssh:-l:tuner.db",
            "ssh:",
            "ssh:a b",
            "ssh:a;b",
            "ssh:$(a)",
            "ssh:a@-b",
        ),
        *("http://example.com/a.db", "ftp://example.com/a.db", "file:///etc/passwd", "tuner.db", "https://"),
        *("https://me:secret@example.com/a.db", "http://[::1/a.db", "http://localhost.example.com/a.db"),
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    """Nothing is started or opened; no secret is repeated."""
    with pytest.raises(InputError) as refused, pulled(address, ssh="/nonexistent"):
        pass
    assert "secret" not in str(refused.value)


def test_the_words_of_a_host_are_quoted(tmp_path: Path) -> None:
    """A path with a shell's characters is one word there, and the options end before the host."""
    ssh = script(tmp_path / "ssh", f'printf "%s\\n" "$@" > {tmp_path}/said\nprintf "{MAGIC}"\n')
    with pulled("ssh:host:/a b;c/$(d).db", ssh=ssh):
        pass
    *_, end, host, command = (tmp_path / "said").read_text().splitlines()
    assert (end, host) == ("--", "host")
    assert command == "tuner db copy --output - --database '/a b;c/$(d).db'"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo 'no route to host' >&2; exit 255", "ssh ended with status 255 (no route to host)"),
        ("printf '\\033[31mred' >&2; exit 1", "ssh ended with status 1 (\ufffd[31mred)"),
        ("head -c 9000 /dev/zero", "it is larger than 8 KiB"),
        ("printf '\\033Welcome'", "what came begins with '\ufffdWelcome', and is no database"),
        ("", "nothing came, and is no database"),
    ],
)
def test_a_host_that_gives_no_file_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    """The last that was said is told, without control characters; more than a bound is not taken."""
    monkeypatch.setattr(copying, "DATABASE_BYTES", 8192)
    with pytest.raises(StoreError) as failed, pulled("ssh:host", ssh=script(tmp_path / "ssh", text)):
        pass
    assert why in str(failed.value)
    assert str(failed.value).endswith("nothing was merged")


def test_a_host_that_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    """After a silence, and after the time-out, ssh is ended."""
    ssh = script(tmp_path / "ssh", f"exec cat {tmp_path}/fifo")
    subprocess.run(["mkfifo", tmp_path / "fifo"], check=True)
    with pytest.raises(StoreError, match=r"nothing came for 0\.05 s"):
        pulled("ssh:host", silence_s=0.05, ssh=ssh).__enter__()
    with pytest.raises(StoreError, match=r"within 0 s \(--timeout\)"), pulled("ssh:h", timeout_s=0, ssh=ssh):
        pass


def test_processes_that_ssh_has_started_end_with_it(tmp_path: Path) -> None:
    """A proxy that hangs does not outlive the pull: nobody has its pipe open any more."""
    for name in ("said", "silent"):
        os.mkfifo(tmp_path / name)
    reader = os.open(tmp_path / "said", os.O_RDONLY | os.O_NONBLOCK)
    ssh = script(tmp_path / "ssh", f"cat <>{tmp_path}/silent >{tmp_path}/said & wait")
    with os.fdopen(reader, "rb", buffering=0) as end:
        with pytest.raises(StoreError, match="within"), pulled("ssh:h", timeout_s=0.3, ssh=ssh):
            pass
        assert select.select([end], [], [], 10.0)[0] == [end]
        assert end.read(1) == b""


def test_a_pull_that_is_ended_leaves_nothing(tmp_path: Path) -> None:
    """SIGTERM and a closed terminal end it as Ctrl-C does: ssh and the temporary file are gone."""
    script(tmp_path / "ssh", f"echo begun >{tmp_path}/begun; exec cat <>{tmp_path}/silent >{tmp_path}/begun")
    for name in ("begun", "silent"):
        os.mkfifo(tmp_path / name)
    places = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-m", "tuner", "db", "pull", "ssh:h", "--database", str(tmp_path / "a.db")]
    with subprocess.Popen(words, env={**os.environ, **places}) as process:
        with (tmp_path / "begun").open("rb", buffering=0) as begun:
            assert begun.read(1) == b"b"
            process.terminate()
            assert begun.read().endswith(b"egun\n")  # returns when ssh has ended
        assert process.wait(20) == 130
    assert not list(tmp_path.glob(".tuner-pull-*"))
    assert not (tmp_path / "a.db").exists()


def test_a_missing_ssh_is_named(tmp_path: Path) -> None:
    """The system may have none."""
    with pytest.raises(StoreError, match="cannot be started"), pulled("ssh:h", ssh=str(tmp_path / "none")):
        pass


# --- URLs -----------------------------------------------------------------------------------------


def test_a_file_comes_from_a_server(tmp_path: Path, there: Path) -> None:
    """The source of its runs is the address without its query, which may be a secret."""
    there.rename(tmp_path / "a.db")
    with (
        served(partial(Quiet, directory=str(tmp_path))) as address,
        pulled(f"{address}/a.db?token=1") as (file, source),
        Database(tmp_path / "here.db") as here,
    ):
        assert merge_file(here, file, source=source).runs_added == 1
        assert source == f"{address}/a.db"


@pytest.mark.parametrize(
    ("target", "kind", "why"),
    [
        ("http://example.com/a.db", InputError, "http is for the loopback only"),
        ("file:///etc/passwd", StoreError, "the server answered 302"),
        ("", StoreError, "the server answered 404"),
    ],
)
def test_a_server_sends_nobody_elsewhere(target: str, kind: type[Exception], why: str) -> None:
    """A redirection is followed to what may be pulled from itself."""

    class Handler(Quiet):
        def do_GET(self) -> None:
            self.send_response(302 if target else 404)
            self.send_header("Location", target)
            self.end_headers()

    with served(Handler) as address, pytest.raises(kind, match=why), pulled(f"{address}/a.db"):
        pass


def test_a_server_that_sends_too_much_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it sends is counted as it comes."""
    monkeypatch.setattr(copying, "DATABASE_BYTES", 8192)
    (tmp_path / "a.db").write_bytes(b"x" * 100_000)
    with (
        served(partial(Quiet, directory=str(tmp_path))) as address,
        pytest.raises(StoreError, match="larger than 8 KiB"),
        pulled(f"{address}/a.db"),
    ):
        pass


def test_a_server_that_is_not_there_is_an_error() -> None:
    """The reason is the system's."""
    with served(Quiet) as address:
        pass
    with pytest.raises(StoreError, match="refused"), pulled(f"{address}/a.db"):
        pass
