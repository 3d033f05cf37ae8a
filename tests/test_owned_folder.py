"""Temporary folders with an owner: which of them the next process removes."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tuner.system.ownership import identity_of, owned_folder, this_process

PREFIX = "tuner-test-"


def left(name: str, owner: str | None) -> Path:
    """A folder as a killed process leaves it."""
    folder = Path(tempfile.gettempdir(), f"{PREFIX}{name}")
    (folder / "inner").mkdir(parents=True)
    if owner is not None:
        (folder / "owner").write_text(owner)
    return folder


def test_folders_of_dead_processes_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who lives, who ran on another host, who has said nothing, and links keep what is theirs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        was = identity_of(process.pid)
        process.kill()
    dead = left("dead", was)
    kept = [left("living", this_process()), left("unknown", None), left("elsewhere", "other-boot:1:1")]
    link = tmp_path / f"{PREFIX}link"
    link.symlink_to(left("target", None))
    other = tmp_path / "other"
    other.mkdir()

    with owned_folder(PREFIX) as folder:
        assert not dead.exists()
        assert all(one.is_dir() for one in (*kept, link, other))
        assert (Path(folder) / "owner").read_text() == this_process()
    assert not os.path.lexists(folder)
