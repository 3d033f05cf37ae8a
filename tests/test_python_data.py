"""The folders that arrays are handed over in: private, gone at the end, and after a kill at the next call."""

import os
import tempfile
import time
from pathlib import Path

import pytest

from tuner.python.arguments import data_folder

HOUR_S = 3600


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /dev/shm."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def aged(folder: Path) -> Path:
    os.utime(folder, (0, time.time() - HOUR_S))
    return folder


def left_over(memory: Path, name: str) -> Path:
    """A folder of a process that was killed."""
    folder = memory / name
    folder.mkdir()
    (folder / "a.npy").write_bytes(b"numbers")
    return aged(folder)


def test_a_folder_is_private_and_goes(memory: Path) -> None:
    """Nobody else reads it; nothing stays."""
    with data_folder(1, memory) as folder:
        assert folder.parent == memory
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "a.npy").write_bytes(b"numbers")
    assert not list(memory.iterdir())


def test_left_over_folders_go_and_others_stay(memory: Path) -> None:
    """Folders that a process holds, young ones, and those of other programs are left alone."""
    gone = left_over(memory, "tuner-arrays-killed")
    other = left_over(memory, "somebody-elses")
    young = memory / "tuner-arrays-young"
    young.mkdir()
    with data_folder(1, memory) as held:
        aged(held)
        with data_folder(1, memory):
            assert held.exists()
    assert not gone.exists()
    assert sorted(memory.iterdir()) == sorted([other, young])


def test_links_are_not_followed(memory: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a link of such a name points to is not touched."""
    target = left_over(tmp_path_factory.mktemp("elsewhere"), "folder")
    (memory / "tuner-arrays-link").symlink_to(target)
    os.utime(memory / "tuner-arrays-link", (0, 0), follow_symlinks=False)
    with data_folder(1, memory):
        assert (target / "a.npy").exists()


def test_without_room_in_memory_the_disk_is_taken(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that would fill the memory go to the folder for temporary files."""
    disk = memory / "disk"
    disk.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    with data_folder(2**62, memory) as folder:
        assert folder.parent == disk
