"""What compilers made survives a run, and nothing that happens to its files changes an answer."""

import os
import subprocess
import sys
from pathlib import Path

import build_cache
import host_build
import host_compile
import numpy as np
import pytest
from build_cache import BuildCache

from tuner.model.plan import Source

SOURCE = Source("twice.cu", "template <int n> __global__ void twice(float* y) { y[threadIdx.x] *= n; }")

WRITER = """
import sys
from pathlib import Path
from build_cache import BuildCache

cache = BuildCache(Path(sys.argv[1]), limit_bytes=50_000)
for i in range(60):
    with cache.making(f"key-{i % 10}"):
        cache.store(f"key-{i % 10}", sys.argv[2].encode() * 1000)
        cache.prune()
"""


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildCache:
    """An empty cache in place of that of this run, for g++ too."""
    made = BuildCache(tmp_path / "builds")
    monkeypatch.setattr(host_build, "BUILDS", made)
    monkeypatch.setattr(host_compile, "BUILDS", made)
    monkeypatch.setattr(host_build, "_functions", {})
    return made


def age(cache: BuildCache, key: str, seconds: int) -> None:
    assert cache.directory is not None
    os.utime(cache.directory / key, (10**9 - seconds, 10**9 - seconds))


def test_what_is_stored_is_found_by_another_process(tmp_path: Path) -> None:
    """A second cache on the same directory knows what the first one stored, and nothing else."""
    BuildCache(tmp_path).store("key", b"content")

    assert BuildCache(tmp_path).load("key") == b"content"
    assert BuildCache(tmp_path).load("other") is None


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 100, None], ids=["empty", "short", "other", "cut"])
def test_a_damaged_file_counts_as_none_and_is_replaced(tmp_path: Path, damage: bytes | None) -> None:
    """A file that does not hold what was written is never an answer."""
    cache = BuildCache(tmp_path)
    cache.store("key", b"content" * 1000)
    path = tmp_path / "key"
    path.write_bytes(path.read_bytes()[:-1] if damage is None else damage)

    assert cache.load("key") is None
    cache.store("key", b"content")
    assert cache.load("key") == b"content"


def test_the_longest_unused_go_first(tmp_path: Path) -> None:
    """Beyond its limit the cache loses what was used longest ago, wherever below the directory that is."""
    cache = BuildCache(tmp_path)
    (tmp_path / "cubins").mkdir()
    for i, key in enumerate(("used", "oldest", "cubins/old", "new")):
        cache.store(key, bytes(900))
        age(cache, key, seconds=10 - i)
    assert cache.load("used") is not None

    BuildCache(tmp_path, limit_bytes=3000).prune()

    left = [key for key in ("used", "oldest", "cubins/old", "new") if cache.load(key)]
    assert left == ["used", "cubins/old", "new"]


def test_it_stays_within_its_limit_while_it_is_written(tmp_path: Path) -> None:
    """A run that makes gigabytes does not fill the disk before it ends."""
    cache = BuildCache(tmp_path, limit_bytes=10_000)
    for i in range(100):
        cache.store(f"key-{i}", bytes(1000))

    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 20_000


def test_a_directory_that_takes_no_files_keeps_nothing(tmp_path: Path) -> None:
    """Where nothing can be written everything is made again."""
    (tmp_path / "file").write_text("in the way")
    cache = BuildCache(tmp_path / "file" / "cache")
    cache.store("key", b"content")

    assert cache.load("key") is None
    with cache.making("key"):
        cache.prune()


def test_no_directory_keeps_nothing(tmp_path: Path) -> None:
    """Neither without a directory nor while the cache is unused is anything kept or found."""
    cache = BuildCache(tmp_path)
    cache.store("before", b"content")
    with cache.unused():
        cache.store("meanwhile", b"content")
        assert cache.load("before") is None

    assert (cache.load("before"), cache.load("meanwhile")) == (b"content", None)


def test_processes_share_a_directory(tmp_path: Path) -> None:
    """Whoever reads while others write and prune gets the whole of what one of them wrote."""
    environment = {**os.environ, "PYTHONPATH": str(Path(build_cache.__file__).parent)}
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER, tmp_path, letter], env=environment) for letter in "ab"
    ]
    cache = BuildCache(tmp_path)
    found = set()
    while any(process.poll() is None for process in processes):
        found |= {cache.load(f"key-{i}") for i in range(10)}
    found |= {cache.load(f"key-{i}") for i in range(10)}

    assert [process.returncode for process in processes] == [0, 0]
    assert found & {b"a" * 1000, b"b" * 1000}
    assert found <= {None, b"a" * 1000, b"b" * 1000}


def doubled(entry: str = "twice<2>") -> list[float]:
    y = np.ones(4, np.float32)
    host_build.run(SOURCE, entry, 1, 4, 0, [y])
    return [float(value) for value in y]


def count_compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    compiled: list[str] = []
    compile_unit = host_compile.compile_unit

    def counted(source: Source, entries: list[str], options: list[str], flags: list[str]) -> Path:
        compiled.extend(entries)
        return compile_unit(source, entries, options, flags)

    monkeypatch.setattr(host_build, "compile_unit", counted)
    monkeypatch.setattr(host_build, "_functions", {})
    return compiled


@pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
def test_a_kernel_is_compiled_once_for_all_runs(
    builds: BuildCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run finds what was compiled, one by one, and compiles what is damaged or new."""
    compiled = count_compilations(monkeypatch)
    host_build.build(SOURCE, ["twice<2>", "twice<3>"])
    assert doubled() == [2.0] * 4
    assert compiled == ["twice<2>", "twice<3>"]

    compiled = count_compilations(monkeypatch)
    host_build.build(SOURCE, ["twice<3>", "twice<4>"])
    assert (doubled(), doubled("twice<3>"), doubled("twice<4>")) == ([2.0] * 4, [3.0] * 4, [4.0] * 4)
    assert compiled == ["twice<4>"]

    assert builds.directory is not None
    for path in builds.directory.glob("unit-*"):
        path.write_bytes(path.read_bytes()[:-7])
    monkeypatch.setattr(host_compile, "_folder", lambda: tmp_path)  # that of this run has them whole
    compiled = count_compilations(monkeypatch)
    assert doubled() == [2.0] * 4
    assert compiled == ["twice<2>"]


@pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
@pytest.mark.usefixtures("builds")
def test_whatever_a_kernel_is_made_of_is_in_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another text, header, macro, flag, compiler or host machine is another compilation."""
    headers = (("by.cuh", "#define BY 1\n"),)
    before = Source("by.cu", '#include "by.cuh"\n__global__ void by(float* y) { *y = BY; }', headers)

    def stored(source: Source = before, options: tuple[str, ...] = (), *flags: str) -> bool:
        host_compile._toolchain.cache_clear()
        return host_compile.stored_function(source, "by", options, (*host_build.FLAGS, *flags)) is not None

    assert not stored()
    host_build.build(before, ["by"])
    assert stored(before, ("--use_fast_math",))
    assert not stored(Source(before.path, before.text + "\n", headers)), "text"
    assert not stored(Source(before.path, before.text, (("by.cuh", "#define BY 2\n"),))), "header"
    assert not stored(before, ("-DBY=2",)), "option"
    assert not stored(before, (), "-O2"), "flag"
    for name, other in (
        ("_gxx", lambda *_: "another version"),
        ("HOST", host_compile.HOST.parent / "fake_nvml"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(host_compile, name, other)
            assert not stored(), name
    assert stored()
