"""The cache of compiled code: what others may have written is not used, and nothing in a file raises."""

import hashlib
import json
import logging
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.compiler.cubin_cache import CubinCache
from tuner.compiler.nvrtc import Output

OUTPUT = Output(b"\x7fELF code", "once", "a log", ("symbol",))


def stored(folder: Path, key: str = "key") -> Path:
    CubinCache(folder).store(key, OUTPUT)
    return folder / key


def test_an_answer_comes_back(tmp_path: Path) -> None:
    """In a directory that only this user can write."""
    path = stored(tmp_path / "new")
    assert CubinCache(path.parent).load("key") == OUTPUT
    assert path.parent.stat().st_mode & 0o077 == 0
    assert path.stat().st_mode & 0o022 == 0


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    """Its digest would be as right; this is said once."""
    path = stored(tmp_path)
    path.chmod(mode)
    cache = CubinCache(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert cache.load("key") is None
        assert cache.load("key") is None
    (record,) = caplog.records
    assert record.getMessage().startswith(f"cubin cache: {path} can be written by others")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("given", ["file", "directory"])
def test_what_belongs_to_others_is_not_used(tmp_path: Path, given: str) -> None:
    """A file or the directory."""
    path = stored(tmp_path / "cache")
    os.chown(path if given == "file" else path.parent, 65_534, 65_534)
    assert CubinCache(path.parent).load("key") is None


def test_an_own_directory_is_closed_to_others(tmp_path: Path) -> None:
    """As one made under a umask of 002 is; what is in it is of this user."""
    path = stored(tmp_path)
    tmp_path.chmod(0o777)
    assert CubinCache(tmp_path).load("key") == OUTPUT
    assert tmp_path.stat().st_mode & 0o022 == 0
    assert path.exists()


def test_an_answer_stands_in_for_no_other(tmp_path: Path) -> None:
    """A file under another key is damaged; a link or a pipe is no file."""
    path = stored(tmp_path)
    path.rename(tmp_path / "other")
    cache = CubinCache(tmp_path)
    assert cache.load("other") is None
    (tmp_path / "other").rename(path)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert cache.load("key") == OUTPUT
    assert [cache.load(name) for name in ("link", "pipe", "missing")] == [None, None, None]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.one_of(
        st.binary(max_size=64),
        st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=8).map(
            lambda value: json.dumps(value).encode()
        ),
    ),
    st.integers(0, 2**64 - 1),
)
def test_a_file_with_a_right_digest_may_hold_anything(tmp_path: Path, facts: bytes, size: int) -> None:
    """It is an answer or it is none; nothing is raised."""
    for count in (len(facts), size):
        data = count.to_bytes(8, "big") + facts
        digest = hashlib.sha256(b"key\0" + data).digest()
        (tmp_path / "key").write_bytes(digest + data)
        (tmp_path / "key").chmod(0o600)
        found = CubinCache(tmp_path).load("key")
        assert found is None or isinstance(found, Output)


@pytest.mark.parametrize("text", ["", "[]", "null", '{"a": 1}', '{"a": ["12.9", 5]}', "[" * 100_000])
def test_a_damaged_list_of_libraries_is_empty(tmp_path: Path, text: str) -> None:
    """It is asked for again."""
    (tmp_path / "libraries.json").write_text(text)
    (tmp_path / "libraries.json").chmod(0o600)
    assert CubinCache(tmp_path).load_libraries() == {}
