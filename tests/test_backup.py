"""``tuner db backup`` and ``restore``: everything, online, verified, and the old state or the new one."""

import gzip
import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import date
from pathlib import Path

import pytest
from cli_process import COMMAND, begun, tuner
from damaging import Model, backup_of, named
from tuner.power.base import Response
from tuner.power.response import calibrations

from tuner.database import backup
from tuner.database.backup import Manifest, back_up
from tuner.database.connection import Database
from tuner.database.files import mirror_of, refusal, side_file
from tuner.database.integrity.check import check_copies
from tuner.database.integrity.copy_state import CopyState, inspected
from tuner.database.ledger import Ledger
from tuner.model.errors import StoreError, StoreFullError
from tuner.system.ownership import StateLock

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root mounts file systems and gives files away"
)
GPU = ("GPU-1", "580")
FIRST = Response(kind="lag", origin="calibrated", averages=False, capacitance_s=0.1)
OF_0_1 = Path(__file__).parent / "data" / "tuner-0.1.db.gz"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A database with rows in every table."""
    return Model.made(tmp_path_factory.mktemp("model") / "tuner.db")


@pytest.fixture(scope="module")
def written(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of it."""
    target = tmp_path_factory.mktemp("backups") / "tuner.backup"
    back_up(model.path, target)
    return target


def restore(source: Path, path: Path, *, replace: bool = False) -> Manifest:
    """Restore from a file."""
    with source.open("rb") as opened:
        return backup.restore(opened, str(source), path, replace=replace)


def test_everything_comes_back(model: Model, tmp_path: Path) -> None:
    """Every row of every table, and calibrations; the next numbers go on; the mirror is there."""
    path, there = model.copy(tmp_path / "here"), tmp_path / "there" / "state" / "tuner.db"
    calibrations.store(path.with_name("sensors.json"), *GPU, {"nvml": (FIRST, 0.1)})
    target = tmp_path / "tuner.backup"

    written = tuner("db", "backup", "--database", path, "--output", target, "--json", tmp_path / "b.json")
    assert written.exit_code == 0, written.stderr
    restored = tuner("db", "restore", target, "--database", there, "--json", tmp_path / "r.json")
    assert restored.exit_code == 0, restored.stderr

    assert named(there) == named(mirror_of(there)) == model.rows
    assert calibrations.load(there.with_name("sensors.json"), *GPU) == {"nvml": FIRST}
    documents = [json.loads((tmp_path / name).read_text()) for name in ("b.json", "r.json")]
    assert documents[0] == documents[1]
    assert documents[0]["rows"]["jobs"] == 6
    assert "6 runs, 30 trials, 6 jobs" in restored.stdout
    assert {file.stat().st_mode & 0o777 for file in (target, there, mirror_of(there))} == {0o600}
    assert {file.name for file in there.parent.iterdir() if not file.name.startswith(".")} <= {
        *("tuner.db", "tuner.db-wal", "tuner.db-shm", "tuner.db.lock", "sensors.json"),
        *("tuner.db.mirror", "tuner.db.mirror-wal", "tuner.db.mirror-shm"),
    }
    with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(there)) as new:
        numbers = [each.execute("SELECT * FROM sqlite_sequence ORDER BY 1").fetchall() for each in (old, new)]
    assert numbers[0] == numbers[1]
    assert check_copies(there).whole


def test_by_a_pipe(model: Model, tmp_path: Path) -> None:
    """From one process to another, as over ssh; nothing but the backup is on standard output."""
    there = tmp_path / "tuner.db"
    words = ("db", "backup", "--database", str(model.path), "--output", "-")
    sent = subprocess.run([*COMMAND, *words], check=True, capture_output=True)
    assert b"backup of" in sent.stderr
    got = subprocess.run(
        [*COMMAND, "db", "restore", "-", "--database", str(there)], check=False, input=sent.stdout
    )
    assert got.returncode == 0
    assert named(there) == model.rows


def test_it_gives_way_to_the_daemon(model: Model) -> None:
    """A backup runs with low priority, also where nobody asks for that."""
    process = begun("db", "backup", "--database", model.path, "--output", "-")
    assert process.stdout is not None
    output = process.stdout.fileno()
    assert os.read(output, 1)
    assert os.getpriority(os.PRIO_PROCESS, process.pid) >= 10
    while os.read(output, 2**20):
        pass
    process.communicate()


def test_of_one_moment_while_others_write(model: Model, tmp_path: Path) -> None:
    """What is stored while the pages are copied is not in it, and is not kept from being stored."""
    path, target = model.copy(tmp_path / "here"), tmp_path / "tuner.backup"
    with Database(path) as database:

        def write(*_: int) -> None:
            Ledger(database).add_uses({"meanwhile": 1.0})

        back_up(path, target, progress=write)
        assert "meanwhile" in Ledger(database).uses()
    restore(target, tmp_path / "there" / "tuner.db")
    assert named(tmp_path / "there" / "tuner.db") == model.rows


def test_an_older_database_is_backed_up_as_it_is_and_brought_up_when_restored(tmp_path: Path) -> None:
    """Before an upgrade nothing is changed; whoever opens the restored one migrates it."""
    path = tmp_path / "here.db"
    path.write_bytes(gzip.decompress(OF_0_1.read_bytes()))
    before = path.read_bytes()
    manifest = back_up(path, tmp_path / "tuner.backup")
    assert path.read_bytes() == before
    assert not mirror_of(path).exists()
    assert manifest.rows["trials"] == 7

    there = tmp_path / "there.db"
    restore(tmp_path / "tuner.backup", there)
    assert inspected(there).form is CopyState.EARLIER
    with Database(there) as database:
        assert not database.examine().isolated
    assert inspected(there).whole
    assert check_copies(there).whole


# --- What is no whole backup, or comes from the future.


def cut(share: float) -> Callable[[bytes], bytes]:
    return lambda content: content[: int(share * len(content))]


def flipped(place: int) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[place] ^= 4
        return bytes(changed)

    return change


def database_of(content: bytes) -> bytes:
    """The database without the manifest."""
    return content[: content.rindex(b'{"format"')]


def of_another_format(content: bytes) -> bytes:
    return content.replace(b'{"format": 1, "tuner": "', b'{"format": 9, "tuner": "9.9-')


def of_the_future(content: bytes) -> bytes:
    """A database of a later version, whose backup is whole."""
    with tempfile.NamedTemporaryFile(suffix=".db") as file:
        Path(file.name).write_bytes(database_of(content))
        with closing(sqlite3.connect(file.name)) as connection, connection:
            connection.execute("INSERT INTO migrations VALUES ('in-the-future', 'then')")
        later = Path(file.name).read_bytes()
    return later + Manifest("9.9", "then", len(later), hashlib.sha256(later).hexdigest(), {}, {}).line()


REFUSED: tuple[tuple[str, Callable[[bytes], bytes], str, int], ...] = (
    ("empty", lambda _: b"", "is no backup", 2),
    ("a text", lambda _: b"a text\n" * 50, "is no backup", 2),
    ("its first bytes", lambda content: content[:60], "is no backup", 2),
    ("cut off", cut(0.5), "is cut off: ", 2),
    ("without its manifest", database_of, "makes a backup", 2),
    ("half its manifest", lambda content: content[:-40], "manifest", 2),
    ("more behind it", lambda content: content + content, "manifest", 2),
    ("another page", flipped(20_000), "has changed since it was written", 2),
    ("another size", flipped(31), "", 2),
    ("a size of nothing", lambda content: content[:16] + b"\0\2" + content[18:], "is no backup", 2),
    ("another manifest", lambda content: content.replace(b'"trials": 30', b'"trials": 31'), "checksum", 2),
    ("another format", of_another_format, "written by tuner 9.9-", 1),
    ("the future", of_the_future, "of a newer tuner (migrations in-the-future); upgrade tuner", 1),
)


@pytest.mark.parametrize(
    ("change", "says", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
@pytest.mark.parametrize("there", [False, True])
def test_what_is_no_whole_backup_changes_nothing(  # noqa: PLR0917 - of pytest
    written: Path,
    model: Model,
    tmp_path: Path,
    change: Callable[[bytes], bytes],
    says: str,
    code: int,
    *,
    there: bool,
) -> None:
    """It is named with the reason, and the database stays, or stays away."""
    path = model.copy(tmp_path / "here") if there else tmp_path / "here" / "tuner.db"
    source = tmp_path / "source"
    source.write_bytes(change(written.read_bytes()))
    refused = tuner("db", "restore", source, "--database", path, "--replace")

    assert refused.exit_code == code, refused.stderr
    assert f"Error: {source}: " in refused.stderr
    assert says in refused.stderr
    assert "Traceback" not in refused.output
    assert path.exists() == there
    assert not list(path.parent.glob("*unfinished*"))
    if there:
        assert named(path) == named(mirror_of(path)) == model.rows


def test_a_database_is_replaced_on_request_alone(written: Path, model: Model, tmp_path: Path) -> None:
    """And the backup itself, a file that is missing and a directory are named."""
    path = model.copy(tmp_path / "here")
    with Database(path) as database:
        Ledger(database).add_uses({"later": 1.0})
    for words, says in (
        ((written,), "a database is there already; `tuner db backup"),
        ((path, "--replace"), "this is the database itself"),
        ((tmp_path / "missing",), "No such file"),
        ((tmp_path,), "Is a directory"),
    ):
        refused = tuner("db", "restore", *words, "--database", path)
        assert refused.exit_code == 2
        assert says in refused.stderr
        assert ("uses", ("later",)) in named(path)
    assert tuner("db", "restore", written, "--database", path, "--replace").exit_code == 0
    assert named(path) == named(mirror_of(path)) == model.rows
    assert not list(path.parent.glob("*.damaged*"))


def test_beside_a_daemon_nothing_is_restored(written: Path, model: Model, tmp_path: Path) -> None:
    """It is named with its process; when it has ended, the state directory is free."""
    path = model.copy(tmp_path / "here")
    with closing(StateLock(path.parent)):
        refused = tuner("db", "restore", written, "--database", path, "--replace")
    assert refused.exit_code == 2
    assert f"a daemon works there (process {os.getpid()})" in refused.stderr
    assert tuner("db", "restore", written, "--database", path, "--replace").exit_code == 0


# --- Targets that no backup may take, and databases that none can be made of.


def test_targets_that_are_refused(model: Model, tmp_path: Path) -> None:
    """A database in use, its mirror, what is beside both, a pipe, and a file that is something else."""
    path, other = model.copy(tmp_path / "here"), model.copy(tmp_path / "other")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "notes").write_text("mine")
    for target, says in (
        (path, "is a database in use"),
        (mirror_of(path), "is a database in use"),
        (other, "is a database in use"),
        (side_file(path, "-wal"), "such a name is of a file beside a database"),
        (side_file(path, ".lock"), "such a name is of a file beside a database"),
        (tmp_path / "pipe", "a pipe; name a file, or - for standard output"),
        (tmp_path / "notes", "is no database"),
        (tmp_path, "is a directory"),
        (tmp_path / "missing" / "file", "does not exist"),
    ):
        refused = tuner("db", "backup", "--database", path, "--output", target)
        assert refused.exit_code == 2, target
        assert says in " ".join(refused.stderr.split())
    assert (tmp_path / "notes").read_text() == "mine"
    assert named(path) == named(other) == model.rows
    assert tuner("db", "backup", "--database", tmp_path / "no.db", "--output", tmp_path / "b").exit_code == 2
    assert not (tmp_path / "b").exists()


def test_a_damaged_database_has_no_backup(model: Model, written: Path, tmp_path: Path) -> None:
    """A row, a page, and one of the future: the earlier backup stays, and what to do is said."""

    def row(path: Path) -> None:
        content = path.read_bytes()
        assert b'"rule":"x' in content
        path.write_bytes(content.replace(b'"rule":"x', b'"rule":"y', 1))

    def page(path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[:20_000] + b"\xa5" * 4096 + content[24_096:])

    def future(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("INSERT INTO migrations VALUES ('in-the-future', 'then')")

    target = tmp_path / "tuner.backup"
    shutil.copy(written, target)
    for spoil, says in (
        (row, "is damaged; `tuner db repair` puts it right"),
        (page, "tuner db repair"),
        (future, "newer tuner"),
    ):
        path = model.copy(tmp_path / "here")
        spoil(path)
        refused = tuner("db", "backup", "--database", path, "--output", target)
        assert refused.exit_code == 1, refused.output
        assert says in refused.stderr
        assert target.read_bytes() == written.read_bytes()
    assert [file.name for file in tmp_path.iterdir() if "unfinished" in file.name] == []


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 128 KiB, which is less than the database."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k,mode=700", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@needs_root
def test_a_full_disk_is_named_and_stays_as_it_is(model: Model, written: Path, tmp_path: Path) -> None:
    """Of a backup and of a restore: nothing half-written is left, and what was there is."""
    with small_disk(tmp_path / "disk") as disk:
        (disk / "earlier").write_bytes(b"SQLite format 3\0 of before")
        full = tuner("db", "backup", "--database", model.path, "--output", disk / "earlier")
        assert full.exit_code == StoreFullError.exit_code
        assert f"no room for the copy in {disk}" in full.stderr
        assert {file.name for file in disk.iterdir()} == {"earlier"}
        assert (disk / "earlier").read_bytes().endswith(b"of before")

        full = tuner("db", "restore", written, "--database", disk / "tuner.db")
        assert full.exit_code == StoreFullError.exit_code
        assert f"{disk}: no room to restore {written}: " in full.stderr
        assert not (disk / "tuner.db").exists()
        assert not list(disk.glob("*unfinished*"))


# --- Owners and modes.


@needs_root
def test_what_root_restores_is_of_the_service(written: Path, tmp_path: Path) -> None:
    """All files belong to the owner of the state directory, also where `cp` as root had left others."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12346)
    path = folder / "tuner.db"
    shutil.copy(written, path)  # root's
    assert tuner("db", "restore", written, "--database", path, "--replace").exit_code == 0
    assert {(file.stat().st_uid, file.stat().st_gid) for file in folder.iterdir()} == {(12345, 12346)}
    assert {path.stat().st_mode & 0o777, mirror_of(path).stat().st_mode & 0o777} == {0o600}


@needs_root
def test_a_file_of_another_owner_is_told_with_the_remedy(model: Model, tmp_path: Path) -> None:
    """Owner, mode, and the line that puts it right; or whose command it is."""
    path = model.copy(tmp_path / "state")
    for folder in (path.parent, *path.parent.parents):
        if folder.owner() == "root" and folder != folder.parent and folder.stat().st_mode & 0o077 == 0:
            folder.chmod(0o755)
    for file in (path.parent, mirror_of(path)):
        shutil.chown(file, "nobody", "nogroup")
    said = as_nobody(lambda: opened(path))
    assert f"{path} is of root:root, mode 0600; this is nobody" in said
    assert f"`sudo chown nobody:nogroup {path}` gives it to the owner of its directory" in said

    shutil.chown(path.parent, "root", "root")
    path.parent.chmod(0o700)
    said = as_nobody(lambda: refusal(path))
    assert (
        f"{path.parent} is of root:root, mode 0700; this is nobody; run it as that user: `sudo -u root"
        in said
    )
    assert refusal(path) == ""


def opened(path: Path) -> str:
    """What a user is told who opens a database."""
    try:
        with Database(path):
            return "opened"
    except StoreError as error:
        return str(error)


def as_nobody(act: Callable[[], str]) -> str:
    """Do something in a process of the user nobody."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        with suppress(BaseException):
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            os.write(writes, act().encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as said:
        text = said.read().decode()
    os.waitpid(child, 0)
    return text


# --- The daemon's backups.


def test_a_restored_state_stays_and_keeps_the_backups_of_before(model: Model, tmp_path: Path) -> None:
    """Later transactions of a dated backup do not come back; the file is there until three others are."""
    path = model.copy(tmp_path / "here")
    earlier = tmp_path / "earlier"
    back_up(path, earlier)
    with Database(path) as database:
        Ledger(database).add_uses({"later": 1.0})
        assert database.back_up(date(2026, 2, 1))
    restore(earlier, path, replace=True)
    with Database(path) as database:
        assert database.examine().whole
        assert named(path) == model.rows
        for day in (2, 3, 4):
            dated = path.with_name("tuner.db.backup-2026-02-01")
            assert dated.exists()
            assert database.back_up(date(2026, 2, day))
    assert not dated.exists()
    restore(path.with_name("tuner.db.backup-2026-02-04"), tmp_path / "there.db")
    assert named(tmp_path / "there.db") == model.rows


def test_dated_backups_have_a_bound_of_size(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all together; the newest stays however large it is."""
    path = model.copy(tmp_path / "here", backup=True)
    size = backup_of(path).stat().st_size
    for most, left in ((3 * size + 4096, 3), (2 * size + 4096, 2), (10, 1)):
        monkeypatch.setattr(backup, "MOST_BYTES", most)
        with Database(path) as database:
            for day in range(1, 5):
                assert database.back_up(date(2026, left + 3, day))
        assert len(list(path.parent.glob("tuner.db.backup-*"))) == left


# --- Killed at every step.


def killed_at(step: int, act: Callable[[], object]) -> bool:
    """Do something in a process that kills itself at a step: a file opened, renamed or removed, a connection.

    Returns:
        False where it ended before it came there.
    """
    child = os.fork()
    if not child:
        left = [step]

        def count(event: str, _: object) -> None:
            if event in {"open", "os.rename", "os.remove", "sqlite3.connect", "os.truncate", "fcntl.flock"}:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        with suppress(BaseException):
            act()
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_killed_at_any_step_of_a_restore_the_old_or_the_new_is_in_force(
    model: Model, written: Path, tmp_path: Path
) -> None:
    """All of it, in both files, once anybody opens it; and there is a step at which it changes."""
    path, new = model.copy(tmp_path / "here"), model.rows
    with Database(path) as database:
        Ledger(database).add_uses({"later": 1.0})
        database.back_up(date(2026, 2, 1))
    old = named(path)
    shutil.copytree(path.parent, tmp_path / "old")
    found, step = [], 0
    while True:
        shutil.rmtree(path.parent)
        shutil.copytree(tmp_path / "old", path.parent)
        if not killed_at(step, lambda: restore(written, path, replace=True)):
            break
        with Database(path) as database:
            assert not database.examine().isolated
        rows = named(path)
        assert rows in (old, new), step
        assert named(mirror_of(path)) == rows
        found.append(rows == new)
        step += 1
    assert found == sorted(found)
    assert set(found) == {False, True}


def test_killed_at_any_step_of_a_backup_the_earlier_one_stays(model: Model, tmp_path: Path) -> None:
    """Or the new one is there as a whole; the database is as it was. The next call leaves no remains."""
    path, target = model.copy(tmp_path / "here"), tmp_path / "tuner.backup"
    back_up(path, target)
    with Database(path) as database:
        Ledger(database).add_uses({"later": 1.0})
    old, new, found, step = model.rows, named(path), [], 0
    while killed_at(step, lambda: back_up(path, target)):
        restore(target, tmp_path / "there.db", replace=True)
        found.append(named(tmp_path / "there.db"))
        assert found[-1] in (old, new)
        step += 1
    assert old in found
    assert named(path) == new
    assert check_copies(path).whole
    assert not list(tmp_path.glob("*unfinished*"))


def test_killed_at_any_step_of_a_rotation_whole_backups_stay(model: Model, tmp_path: Path) -> None:
    """Three of them at least until the new one is there; each has all that was stored on its day."""
    path = model.copy(tmp_path / "here")
    with Database(path) as database:
        for day in (1, 2, 3):
            Ledger(database).add_uses({f"day {day}": 1.0})
            database.back_up(date(2026, 2, day))
        Ledger(database).add_uses({"day 4": 1.0})
    shutil.copytree(path.parent, tmp_path / "old")
    step = 0

    def rotate() -> None:
        with Database(path) as database:
            database.back_up(date(2026, 2, 4))

    while True:
        shutil.rmtree(path.parent)
        shutil.copytree(tmp_path / "old", path.parent)
        if not killed_at(step, rotate):
            break
        kept = sorted(path.parent.glob("tuner.db.backup-????-??-??"))
        assert len(kept) >= 3
        for file in kept:
            restore(file, tmp_path / "there.db", replace=True)
            assert ("uses", (f"day {int(file.name[-2:])}",)) in named(tmp_path / "there.db")
        step += 1
    (path.parent / "tuner.db.backup-2026-02-04.new").touch()  # of a daemon that was killed, and never idled
    with Database(path) as database:
        database.back_up(date(2026, 2, 5))
    assert len(list(path.parent.glob("tuner.db.backup-*"))) == 3


def test_a_copy_says_what_it_leaves_out(model: Model, tmp_path: Path) -> None:
    """And which command leaves nothing out."""
    copied = tuner("db", "copy", "--database", model.path, "--output", tmp_path / "runs.db")
    assert copied.exit_code == 0
    assert re.search("left out: jobs, uses, .*models.*; `tuner db backup` takes everything", copied.stderr)
