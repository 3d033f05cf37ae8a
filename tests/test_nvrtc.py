"""The NVRTC binding: what it finds, compiles and reads from the reports of ptxas; the cache of its cubins."""

import hashlib
import json
import logging
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.compiler.compiler import resources_in
from tuner.compiler.cubin import CubinCache
from tuner.compiler.nvrtc import Nvrtc, Output, library_files
from tuner.model.errors import CompilerUnavailableError
from tuner.model.plan import Resources

OPTIONS = ("--gpu-architecture=sm_90", "--ptxas-options=-v")


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    return Nvrtc(str(library_files()[0]))


def test_the_wheel_is_found() -> None:
    """The NVRTC that is always installed with the project is among the libraries found."""
    assert any(path.parts[-3:] == ("cuda_nvrtc", "lib", "libnvrtc.so.12") for path in library_files())


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_wheels_of_both_layouts_and_toolkits_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheels of CUDA 12 and 13, CUDA_PATH's toolkit and conda's are found; helper libraries are not."""
    expected = {
        touch(tmp_path / "site" / "nvidia" / "cuda_nvrtc" / "lib" / "libnvrtc.so.12"),
        touch(tmp_path / "site" / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13"),
        touch(tmp_path / "toolkit" / "lib64" / "libnvrtc.so.13.0.88"),
        touch(tmp_path / "conda" / "lib" / "libnvrtc.so.12"),
    }
    touch(tmp_path / "site" / "nvidia" / "__init__.py")  # as some wheels have it
    touch(tmp_path / "site" / "nvidia" / "cuda_nvrtc" / "lib" / "libnvrtc-builtins.so.12.9")
    touch(tmp_path / "site" / "nvidia" / "cuda_nvrtc" / "lib" / "libnvrtc.alt.so.12")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "toolkit"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "conda"))
    assert {path for path in library_files() if path.is_relative_to(tmp_path)} == expected


@pytest.mark.parametrize("content", [None, b"not a library"])
def test_what_is_no_library_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """A file that is missing or cannot be loaded is reported as the compiler's absence."""
    path = tmp_path / "libnvrtc.so.12"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CompilerUnavailableError, match="libnvrtc"):
        Nvrtc(str(path))


def test_a_library_that_is_not_nvrtc_is_refused() -> None:
    """A library without NVRTC's functions is reported as the compiler's absence."""
    with pytest.raises(CompilerUnavailableError, match="nvrtcGetSupportedArchs"):
        Nvrtc("libc.so.6")


def test_a_library_describes_itself(nvrtc: Nvrtc) -> None:
    """Version and architectures come as plain values."""
    version, architectures = nvrtc.describe()
    assert all(part.isdigit() for part in version.split("."))
    assert 90 in architectures


def test_an_entry_becomes_a_cubin(nvrtc: Nvrtc) -> None:
    """A template's name expression gives an ELF image, its mangled name and the reports of ptxas."""
    text = '#include "a/twice.cuh"\ntemplate <int N> __global__ void f(int* p) { *p = twice(N); }\n'
    headers = (("a/twice.cuh", "__device__ int twice(int n) { return 2 * n; }\n"),)
    output = nvrtc.compile("f.cu", text, headers, "f<21>", OPTIONS)
    assert output.cubin is not None
    assert output.cubin.startswith(b"\x7fELF")
    assert output.lowered_name == "_Z1fILi21EEvPi"
    assert output.lowered_name.encode() in output.cubin
    assert resources_in(output.log, output.lowered_name, "sm_90") is not None


def test_a_failure_is_an_answer(nvrtc: Nvrtc) -> None:
    """What does not compile gives no code and a log without the zero bytes NVRTC puts into it."""
    text = "__global__ void f(float* p) { __shared__ float s[1 << 20]; s[threadIdx.x] = *p; *p = s[0]; }"
    output = nvrtc.compile("f.cu", text, (), "f", OPTIONS)
    assert output.cubin is None
    assert "uses too much shared data" in output.log
    assert "\0" not in output.log


LOG = """\
nvrtc: warning: Architectures prior to '<compute/sm>_75' are deprecated and may be removed in a future release
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4restv' for 'sm_53'
ptxas info    : Function properties for _Z4restv
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 7 registers, used 0 barriers, 320 bytes cmem[0]
ptxas info    : Compiling entry function '_Z4rest' for 'sm_53'
ptxas info    : Function properties for _Z6helperf
    8 bytes stack frame, 1 bytes spill stores, 2 bytes spill loads
ptxas info    : Function properties for _Z4rest
    96 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 96 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compiling entry function 'last' for 'sm_53'
ptxas info    : Function properties for last
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, 1024 bytes smem, 340 bytes cmem[0], 8 bytes cmem[2]
"""


INTERLEAVED = """\
ptxas info    : Compiling entry function 'a' for 'sm_90'
ptxas info    : Compiling entry function 'b' for 'sm_90'
ptxas info    : Function properties for b
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 20 registers, used 0 barriers
ptxas info    : Function properties for a
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 16 bytes smem
"""


def test_entries_compiled_at_the_same_time_are_told_apart() -> None:
    """A report belongs to the entry whose properties stand above it, in whatever order entries were begun."""
    assert resources_in(INTERLEAVED, "a", "sm_90") == Resources(10, 16, 0, 0, "sm_90")
    assert resources_in(INTERLEAVED, "b", "sm_90") == Resources(20, 0, 0, 0, "sm_90")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("_Z4restv", Resources(7, 0, 0, 0, "sm_53")),
        (
            "_Z4rest",
            Resources(255, 4096, 44, 96, "sm_53"),
        ),  # neither its helper's numbers nor its neighbour's
        ("last", Resources(8, 1024, 0, 0, "sm_53")),
        ("_Z4res", None),
        ("helper", None),
    ],
)
def test_the_report_of_the_entry_is_read_and_no_other(entry: str, expected: Resources | None) -> None:
    """Each entry's own registers, shared memory, spills and stack are read, however many others there are."""
    assert resources_in(LOG, entry, "sm_53") == expected


def test_a_silent_log_holds_no_resources() -> None:
    """Nothing is made up where ptxas reports nothing."""
    assert resources_in("", "f", "sm_90") is None


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
