"""Some of the hostile files of ``benchmarks/hostile_files.py``, through the program in this process."""

import os
import re
from pathlib import Path

import pytest
from cli_process import tuner
from hostile_files import HostileFile, hostile_files

from tuner.system.untrusted.archives import gunzip, open_zip
from tuner.system.untrusted.reading import load_json, load_toml

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
KINDS = {  # kind -> which of its files, few that are fast
    "option": slice(0, 46, 11),
    "option made by a tunable": slice(0, 2),
    "option of a T1 file": slice(1),
    "entry of several lines": slice(1),
    "include": slice(0, 19, 6),
    "include of no file": slice(2),
    "include path": slice(1, 3),
    "kernel.toml": slice(0, 9, 2),
    "daemon.toml": slice(2, 3),
    "expression": slice(1),
    "JSON replayed": slice(0, 2),
    "JSON imported": slice(2, 4),
    "zip": slice(5, 6),
    "npy": slice(0, 12, 4),
    "npz replayed": slice(1),
    "source is no file": slice(0, 3, 2),
    "data is no file": slice(2, 3),
    "recording is no file": slice(1, 2),
    "described": slice(2),
    "foreign cache": slice(2),
    "key": slice(0, 3),
}


def _some() -> list[HostileFile]:
    found: dict[str, list[HostileFile]] = {}
    for one in hostile_files():
        found.setdefault(one.kind, []).append(one)
    return [one for kind, which in KINDS.items() for one in found[kind][which]]


@pytest.mark.parametrize("hostile", _some(), ids=lambda one: f"{one.kind}: {one.name}")
def test_nothing_is_harmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: HostileFile) -> None:
    """A message and the right exit code; nothing is written elsewhere, no control character is shown."""
    (tmp_path / "work").mkdir()
    (tmp_path / "theirs").mkdir()
    victim = tmp_path / "theirs/victim"
    victim.write_text("precious")
    hostile.make(tmp_path / "work", victim)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = tuner(*hostile.command)
    assert result.exit_code in hostile.codes, result.output
    assert not CONTROL.search(result.output)
    assert "root:x:0:0" not in result.output
    assert os.listdir(tmp_path / "theirs") == ["victim"]  # noqa: PTH208 - names alone
    assert victim.read_text() == "precious"


def test_there_are_enough_of_them() -> None:
    """Each has a name of its own."""
    names = [(one.kind, one.name) for one in hostile_files()]
    assert len(names) == len(set(names)) >= 200


def test_limits_leave_real_files_alone(tmp_path: Path) -> None:
    """Recorded spaces, kernel files and settings that come with this project pass every limit."""
    top = Path(__file__).parent.parent
    for path in [*top.glob("benchmarks/spaces/*.zip"), *top.glob("tuner/recordings/*.zip")]:
        with open_zip(path) as archive:
            for name in archive.namelist():
                load_json(archive.read(name))
    for path in [*top.glob("*/*/kernel.toml"), *top.glob("systemd/*.toml"), top / "pyproject.toml"]:
        load_toml(path.read_text(encoding="utf-8"))
    del tmp_path
    with pytest.raises(ValueError, match="cannot be unpacked"):
        gunzip(b"\x1f\x8bdamaged")
