"""Locks, and what is kept beside them, are for those who may write there, whatever the umask."""

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tuner.cli.output import write_json
from tuner.database.connection import Database
from tuner.database.files import locked, mirror_of
from tuner.model.errors import InputError
from tuner.system.ownership import (
    BoardTurns,
    StateLock,
    gpu_lock_file,
    open_lock,
    open_result,
    owned_gpu,
    try_lock,
)
from tuner.system.service_manager import default_sockets


@pytest.fixture(params=[0, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    mask: int = request.param
    before = os.umask(mask)
    yield mask
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def of_database(folder: Path) -> Path:
    with locked(folder / "tuner.db", alone=True):
        return folder / "tuner.db.lock"


def of_gpu(folder: Path) -> Path:
    with owned_gpu(folder, "GPU-1"):
        return gpu_lock_file(folder, "GPU-1")


def of_board(folder: Path) -> Path:
    with BoardTurns(folder) as turns, turns.turn(alone=True):
        return folder / "board.lock"


def of_daemon(folder: Path) -> Path:
    StateLock(folder).close()
    return folder / "daemon.lock"


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("made", [of_database, of_gpu, of_board, of_daemon])
def test_strangers_cannot_open_a_lock(tmp_path: Path, made: Callable[[Path], Path]) -> None:
    """Who can open a file can lock it: new locks, and those that earlier versions left open, are 0600."""
    tmp_path.chmod(0o755)
    path = made(tmp_path)
    assert mode(path) == 0o600

    path.chmod(0o644)
    assert mode(made(tmp_path)) == 0o600


def test_a_folder_of_a_group_has_locks_of_the_group(tmp_path: Path) -> None:
    """Where a folder's group writes, it locks too."""
    tmp_path.chmod(0o2775)
    assert mode(of_database(tmp_path)) == 0o660


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_a_lock_in_a_folder_of_a_group_is_that_groups(tmp_path: Path) -> None:
    """A new file has its maker's own group, in which the other writers of the folder need not be."""
    tmp_path.chmod(0o770)
    os.chown(tmp_path, -1, 4242)
    os.close(open_lock(tmp_path / "lock"))
    found = (tmp_path / "lock").stat()
    assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (4242, 0o660)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_a_lock_that_root_makes_is_the_folders(tmp_path: Path) -> None:
    """What root makes in a service's folder the service can open."""
    os.chown(tmp_path, 4711, 4712)
    os.close(open_lock(tmp_path / "a.lock"))
    status = (tmp_path / "a.lock").stat()
    assert (status.st_uid, status.st_gid) == (4711, 4712)


def test_a_lock_is_no_link(tmp_path: Path) -> None:
    """A link in the place of a lock is not followed."""
    (tmp_path / "a.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        open_lock(tmp_path / "a.lock")
    assert not (tmp_path / "elsewhere").exists()


def test_one_process_has_a_lock(tmp_path: Path) -> None:
    """A lock is taken once, or shared."""
    files = [open_lock(tmp_path / "a.lock") for _ in range(2)]
    try:
        assert [try_lock(file, tmp_path) for file in files] == [True, False]
        assert all(try_lock(file, tmp_path, fcntl.LOCK_SH) for file in files)
    finally:
        for file in files:
            os.close(file)


@pytest.mark.usefixtures("umask")
def test_a_database_is_its_users(tmp_path: Path) -> None:
    """New folders and files of results are for their user alone."""
    path = tmp_path / "state" / "new" / "tuner.db"
    with Database(path):
        kept = [file for file in path.parent.iterdir() if file.is_file()]
        assert {path, mirror_of(path)} <= set(kept)
        assert {mode(file) for file in kept} == {0o600}
    assert mode(path.parent) == mode(path.parent.parent) == 0o700


@pytest.mark.parametrize(("before", "after"), [(0o755, 0o700), (0o775, 0o770), (0o700, 0o700)])
def test_the_folder_of_results_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    """The user's own folder loses what strangers may do there; where its group writes, it keeps that."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "tuner"
    folder.mkdir()
    folder.chmod(before)
    Database().close()
    assert mode(folder) == after


def test_results_are_no_strangers_to_change(tmp_path: Path, umask: int) -> None:
    """A result may be read by whom the user lets, and changed by nobody else."""
    write_json(str(tmp_path / "a.json"), {})
    open_result(tmp_path / "a.zip", "wb").close()
    assert mode(tmp_path / "a.json") == mode(tmp_path / "a.zip") == 0o644 & ~umask


@pytest.mark.parametrize("loose", [0o775, 0o757, 0o777])
def test_a_runtime_folder_of_others_is_told(tmp_path: Path, loose: int) -> None:
    """Where others may have put a socket, nobody asks it in silence."""
    folder = tmp_path / "tuner"
    folder.mkdir()
    folder.chmod(loose)
    with pytest.raises(InputError, match=r"tuner is another user's, or others may write there.*--socket"):
        default_sockets({"XDG_RUNTIME_DIR": str(tmp_path)})


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_a_runtime_folder_of_another_user_is_told(tmp_path: Path) -> None:
    """A folder that another user has made is not used."""
    folder = tmp_path / "tuner"
    folder.mkdir(mode=0o755)
    os.chown(folder, 4711, 4711)
    with pytest.raises(InputError, match="unset XDG_RUNTIME_DIR"):
        default_sockets({"XDG_RUNTIME_DIR": str(tmp_path)})
