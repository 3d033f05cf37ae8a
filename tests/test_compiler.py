"""The compiler: real code through NVRTC, and its rules with a stand-in that hangs and crashes on request."""

import errno
import logging
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.model.errors import CompileError, CompilerUnavailableError
from tuner.model.plan import Resources, Source, Stage

PATIENCE_S = 60.0

CODE = """\
#include "add.cuh"
template <int P, int L>
__global__ void scan(const float* x, float* y) {
    __shared__ float s[L];
    float v[P];
    for (int i = 0; i < P; ++i) v[i] = x[threadIdx.x * P + i];
    for (int i = 1; i < P; ++i) v[i] = add(v[i], v[i - 1]);
    s[threadIdx.x] = v[P - 1];
    __syncthreads();
    float carry = threadIdx.x ? s[threadIdx.x - 1] : 0.0f;
    for (int i = 0; i < P; ++i) y[threadIdx.x * P + i] = add(v[i], carry);
}
extern "C" __global__ void plain(int* p) { *p = 1; }
"""
ADD = "__device__ float add(float a, float b) { return a + b; }\n"


def stage(entry: str, text: str = CODE, add: str = ADD, options: tuple[str, ...] = ()) -> Stage:
    source = Source("kernels/scan.cu", text, (("add.cuh", add),))
    return Stage("upward", source, entry, options, (1, 1, 1), (256, 1, 1), 0, ("x", "y"))


def compiled(result: CompiledStage | CompileError) -> CompiledStage:
    assert isinstance(result, CompiledStage), result
    return result


# --- with NVRTC ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nvrtc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    """A compiler with one child, in whose cache is nothing at first."""
    with Compiler("sm_90", tmp_path_factory.mktemp("cubins"), jobs=1, idle_s=PATIENCE_S) as compiler:
        yield compiler


@pytest.mark.parametrize("architecture", ["sm_50", "sm_90"])
def test_resources_are_compiled_facts(tmp_path: Path, architecture: str) -> None:
    """Architectures old and new give code and the resources of the entry named, without a GPU."""
    with Compiler(architecture, tmp_path, jobs=1) as compiler:
        results = [compiled(r) for r in compiler.compile([stage("scan<4, 256>"), stage("plain")])]
    scan, plain = results
    assert scan.cubin.startswith(b"\x7fELF")
    assert scan.lowered_name.encode() in scan.cubin
    assert scan.resources.static_shared_bytes == 1024
    assert plain.resources.static_shared_bytes == 0
    assert 0 < plain.resources.registers_per_thread <= scan.resources.registers_per_thread <= 64
    assert scan.resources.architecture == architecture
    assert scan.resources.compiled


def test_spills_are_reported(nvrtc: Compiler) -> None:
    """Too few registers show as spills and local memory."""
    unrolled = CODE.replace("    for", "    #pragma unroll\n    for")
    tight = nvrtc.compile_one(stage("scan<64, 256>", unrolled, options=("--maxrregcount=24",)))
    assert tight.resources.registers_per_thread <= 24
    assert tight.resources.spill_bytes > 0
    assert tight.resources.local_bytes > 0


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (
            stage("scan<4, 256>", CODE.replace("v[P - 1]", "w")),
            'scan.cu(8): error: identifier "w" is undefined',
        ),
        (stage("scan<4, 256>", add=ADD + "__device__ int f() { return nothing; }"), "add.cuh(2): error: "),
        (stage("scan<4, 256>", '#include "gone.cuh"\n' + CODE), "scan.cu(1): catastrophic error: "),
        (stage("scan<4>"), 'entry: error: cannot determine which instance of function template "scan"'),
        (stage("skan<4>"), 'entry: error: identifier "skan" is undefined'),
        (stage("scan<4, 65536>"), "uses too much shared data"),
        (stage("scan<4, 256>", options=("--std=c++3",)), "'c++3' is no value that it takes"),
        (stage("scan<4, 256>", options=("--frobnicate",)), "option '--frobnicate': is not known to be harm"),
    ],
)
def test_an_error_names_stage_entry_file_and_line(nvrtc: Compiler, bad: Stage, says: str) -> None:
    """A configuration that does not compile says why and where, and stops no other."""
    good, error = nvrtc.compile([stage("plain"), bad])
    assert isinstance(good, CompiledStage)
    assert isinstance(error, CompileError)
    assert says in str(error)
    assert f"stage 'upward', {bad.entry} of kernels/scan.cu" in str(error)
    with pytest.raises(CompileError, match="upward"):
        nvrtc.compile_one(bad)


def test_a_machine_without_a_fitting_nvrtc(tmp_path: Path) -> None:
    """An architecture nothing here serves is refused with what each library serves."""
    with pytest.raises(CompilerUnavailableError, match=r"no NVRTC compiles for sm_35: .*serves sm_50 "):
        Compiler("sm_35", tmp_path)
    with pytest.raises(CompilerUnavailableError, match="none is installed"):
        Compiler("sm_90", tmp_path, libraries=[])
    with pytest.raises(CompilerUnavailableError, match="'compute_90' is not a real architecture"):
        Compiler("compute_90", tmp_path)


# --- with a stand-in -----------------------------------------------------------------------------

FAKE = '''
import os, signal
from pathlib import Path
from tuner.model.errors import CompilerUnavailableError
from tuner.compiler.nvrtc import Output

SERVES = {
    "oldest.so": ("12.4", (50, 90)),
    "old.so": ("12.9", (50, 75, 90)),
    "new.so": ("12.10", (75, 90)),
    "newest.so": ("13.0", (90,)),
}

class Fake:
    """Notes every request in a file beside the library; hangs, crashes or fails by the name of the entry."""
    def __init__(self, library):
        self.name = Path(library).name
        self.notes = Path(library).with_name("notes")
        if self.name == "broken.so":
            raise CompilerUnavailableError("broken")
        if self.name == "deadly.so":
            os.kill(os.getpid(), signal.SIGSEGV)
    def note(self, what):
        with self.notes.open("a") as notes:
            notes.write(f"{what} {os.getpid()}\\n")
    def describe(self):
        self.note(f"describe:{self.name}")
        return SERVES[self.name]
    def compile(self, name, text, headers, entry, options):
        self.note(f"compile:{entry}")
        if entry in ("read", "write"):  # each waits for the other
            self.notes.with_name("pipe").open(entry[0]).close()
        if entry == "hang":
            signal.pause()
        if entry == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if entry == "wrong":
            return Output(None, "", "f.cu(3): error: wrong")
        if entry == "silent":
            return Output(b"code", "f", "")
        log = (
            f"Function properties for {entry}\\n"
            "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\\n"
            f"ptxas info    : Used {len(text)} registers"
        )
        return Output(f"{self.name} {text} {options}".encode(), entry, log)
'''


class Bench:
    """Compilers over the stand-in, and what they asked of it."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self.cache = cache
        self._take()

    def compiler(
        self,
        architecture: str = "sm_90",
        libraries: tuple[str, ...] = ("old.so",),
        *,
        cache: Path | None = None,
        jobs: int = 1,
        timeout_s: float = PATIENCE_S,
        idle_s: float = PATIENCE_S,
    ) -> Compiler:
        return Compiler(
            architecture,
            cache or self.cache,
            jobs=jobs,
            timeout_s=timeout_s,
            idle_s=idle_s,
            libraries=[self.folder / name for name in libraries],
            server="faked:Fake",
        )

    def asked(self) -> Counter[str]:
        """How often each thing was asked, since the last question."""
        return Counter(line.split()[0] for line in self._take())

    def pids(self) -> set[int]:
        return {pid for _, pid in self.lines()}

    def lines(self) -> list[tuple[str, int]]:
        """What was asked, and in which child, since the last question."""
        return [(line.split()[0], int(line.split()[1])) for line in self._take()]

    def _take(self) -> list[str]:
        notes = self.folder / "notes"
        lines = notes.read_text().splitlines() if notes.exists() else []
        notes.unlink(missing_ok=True)
        return lines


def entries_of(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if path.name != "libraries.json"]


def libraries_in(folder: Path) -> Path:
    (folder / "faked.py").write_text(FAKE)
    for name in ("oldest.so", "old.so", "new.so", "newest.so", "broken.so", "deadly.so"):
        (folder / name).write_text(name)
    return folder


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Libraries that have been looked at: no child need load them to say what they are."""
    folder = libraries_in(tmp_path_factory.mktemp("libraries"))
    bench = Bench(folder, folder / "cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        bench.compiler(libraries=("oldest.so", "old.so", "new.so", "newest.so")).close()
    return bench


@pytest.fixture
def bench(known: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.syspath_prepend(known.folder)
    shutil.copytree(known.cache, tmp_path / "cache")
    return Bench(known.folder, tmp_path / "cache")


@pytest.fixture
def new_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Libraries that nobody has looked at."""
    monkeypatch.syspath_prepend(libraries_in(tmp_path))
    return Bench(tmp_path, tmp_path / "cache")


def test_answers_keep_the_order_of_the_stages_and_equal_stages_compile_once(bench: Bench) -> None:
    """However many children work, result i belongs to stage i, and equal work is done once."""
    entries = [f"f{i % 7}" for i in range(20)]
    with bench.compiler(jobs=3) as compiler:
        results = compiler.compile([stage(entry) for entry in entries])
    assert [compiled(r).lowered_name for r in results] == entries
    assert bench.asked() == {f"compile:f{i}": 1 for i in range(7)}


def test_progress_counts_distinct_compilations(bench: Bench) -> None:
    """Progress begins with what is cached and rises by one to the number of distinct stages."""
    seen: list[tuple[int, int]] = []
    with bench.compiler(jobs=2) as compiler:
        compiler.compile([stage("f0")])
        compiler.compile(
            [stage(f"f{i % 3}") for i in range(6)], lambda done, total: seen.append((done, total))
        )
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_children_are_kept_and_not_more_than_jobs(bench: Bench) -> None:
    """No more children work than asked for, and the next call finds them at hand."""
    with bench.compiler() as compiler:
        bench.asked()
        for i in range(3):
            compiler.compile([stage(f"f{i}"), stage(f"g{i}")])
    assert len(bench.pids()) == 1


def test_a_warm_cache_starts_nothing(new_bench: Bench) -> None:
    """What is cached, code or error, needs neither a child nor the library again."""
    stages = [stage("f"), stage("g"), stage("wrong")]
    with new_bench.compiler() as compiler:
        cold = compiler.compile(stages)
    assert sum(new_bench.asked().values()) == 4
    with new_bench.compiler() as compiler:
        warm = compiler.compile(stages)
        assert compiler.nvrtc_version == "12.9"
    assert new_bench.asked() == {}
    assert warm[:2] == cold[:2]
    assert str(warm[2]) == str(cold[2]) == "stage 'upward', wrong of kernels/scan.cu: f.cu(3): error: wrong"


def test_whatever_reaches_the_compiler_is_in_the_key(bench: Bench) -> None:
    """Another text, header, option or file name is another compilation."""
    plain = stage("f")
    others = [
        stage("f", CODE + " "),
        stage("f", add=ADD + " "),
        stage("f", options=("--use_fast_math",)),
        replace(plain, source=replace(plain.source, path="kernels/other.cu")),
    ]
    with bench.compiler() as compiler:
        for number, one in enumerate((plain, *others)):
            compiler.compile([one])
            assert bench.asked() == {"compile:f": 1}, number


def test_another_architecture_or_nvrtc_is_another_key(new_bench: Bench) -> None:
    """Code is never taken for another architecture's, another version's or another build's."""
    settings = [("sm_90", "old.so"), ("sm_75", "old.so"), ("sm_90", "new.so"), ("sm_90", "newest.so")]
    for architecture, library in settings * 2:
        with new_bench.compiler(architecture, (library,)) as compiler:
            compiler.compile([stage("f")])
    assert new_bench.asked()["compile:f"] == 4
    (new_bench.folder / "old.so").write_text("another build of 12.9")
    with new_bench.compiler() as compiler:
        compiler.compile([stage("f")])
    assert new_bench.asked() == {"describe:old.so": 1, "compile:f": 1}


@pytest.mark.parametrize(("library", "asked"), [("oldest.so", False), ("old.so", True), ("newest.so", True)])
def test_the_cache_of_nvrtc_is_left_aside(bench: Bench, library: str, asked: bool) -> None:
    """What NVRTC 12.9 and later take from a cache of their own has no report of ptxas."""
    with bench.compiler(libraries=(library,)) as compiler:
        assert (b"--no-cache" in compiler.compile_one(stage("f")).cubin) == asked


def test_what_the_compiler_does_not_see_is_not_in_the_key(bench: Bench) -> None:
    """Launch geometry, arguments, stage name and folder change no code."""
    other = replace(
        stage("f"),
        name="downward",
        grid=(9, 1, 1),
        shared_bytes=64,
        arguments=("y",),
        declared=Resources(8),
        source=replace(stage("f").source, path="elsewhere/scan.cu"),
    )
    with bench.compiler() as compiler:
        compiler.compile([stage("f"), other])
    assert bench.asked()["compile:f"] == 1


def test_a_crash_costs_its_configuration_only(bench: Bench) -> None:
    """The others compile in fresh children, and it is not kept: another try may end otherwise."""
    stages = [stage(entry) for entry in ("a", "crash", "b", "c")]
    with bench.compiler() as compiler:
        a, crash, b, c = compiler.compile(stages)
    assert [compiled(r).lowered_name for r in (a, b, c)] == ["a", "b", "c"]
    assert isinstance(crash, CompileError)
    assert "stage 'upward', crash" in str(crash)
    assert "SIGSEGV" in str(crash)
    assert len(entries_of(bench.cache)) == 3


def test_a_hang_costs_its_configuration_only(bench: Bench) -> None:
    """Its child is killed, the next one has a fresh child, and nothing is kept: another try may end."""
    stages = [stage("hang"), stage("hang", options=("--use_fast_math",)), stage("f")]
    with bench.compiler() as compiler:
        f = compiler.compile_one(stages[2])
    with bench.compiler(timeout_s=0.2) as compiler:
        *hangs, known = compiler.compile(stages)
    assert known == f
    for hang in hangs:
        assert isinstance(hang, CompileError)
        assert "hang of kernels/scan.cu: not compiled within 0.2 s" in str(hang)
    assert len(entries_of(bench.cache)) == 1


def test_code_without_a_report_is_refused(bench: Bench) -> None:
    """Without the report of ptxas there is no configuration to place: an error, not zeros."""
    with bench.compiler() as compiler, pytest.raises(CompileError, match="ptxas reports no resources"):
        compiler.compile_one(stage("silent"))


def test_a_damaged_entry_is_compiled_again(bench: Bench) -> None:
    """An entry that is cut anywhere, or of which a bit is flipped, is noticed and replaced by a whole one."""
    with bench.compiler() as compiler:
        good = compiler.compile_one(stage("f"))
        (entry,) = entries_of(bench.cache)
        whole = entry.read_bytes()
        flipped = whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:]
        for damaged in (*(whole[:kept] for kept in (0, 20, 40, 100, -1)), flipped):
            entry.write_bytes(damaged)
            bench.asked()
            assert compiler.compile_one(stage("f")) == good
            assert entry.read_bytes() == whole
            assert bench.asked() == {"compile:f": 1}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": [1, 2]}', "null"])
def test_a_damaged_list_of_libraries_is_made_again(bench: Bench, text: str) -> None:
    """Whatever stands where the known libraries should, they are looked at again."""
    (bench.cache / "libraries.json").write_text(text)
    with bench.compiler() as compiler:
        assert compiler.nvrtc_version == "12.9"
    assert bench.asked() == {"describe:old.so": 1}


def test_an_unwritable_cache_is_done_without(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Where no cache can be, one warning says so, and cubins are kept in memory."""
    blocked = bench.folder / "old.so" / "cache"  # under a file
    with caplog.at_level(logging.WARNING), bench.compiler(cache=blocked) as compiler:
        first = compiler.compile_one(stage("f"))
        assert compiler.compile_one(stage("f")) == first
        assert isinstance(compiler.compile([stage("wrong")])[0], CompileError)
    assert bench.asked()["compile:f"] == 1
    assert len(caplog.records) == 1
    assert str(blocked) in caplog.text


def test_a_cache_that_fails_in_the_middle_is_done_without(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry that cannot be put in place leaves no half-written file behind."""
    with bench.compiler() as compiler:
        compiler.compile_one(stage("f"))
        (entry,) = entries_of(bench.cache)
        entry.unlink()
        (entry / "in the way").mkdir(parents=True)
        with caplog.at_level(logging.WARNING):
            compiler.compile_one(stage("f"))
            compiler.compile_one(stage("f"))
    assert bench.asked()["compile:f"] == 2
    assert len(caplog.records) == 1
    assert entries_of(bench.cache) == [entry]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_compilation_leaves_nothing_at_work(bench: Bench, error: type[BaseException]) -> None:
    """Ctrl-C, or an error of the progress display, ends every child, the busy ones too."""

    def progress(done: int, _total: int) -> None:
        if done == 1:
            raise error

    compiler = bench.compiler(jobs=2)
    bench.asked()
    with pytest.raises(error):
        compiler.compile([stage("hang"), stage("f"), stage("g"), stage("h")], progress)
    for pid in bench.pids():
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    with pytest.raises(CompilerUnavailableError, match="closed"):
        compiler.compile([stage("other")])


def test_who_said_what_a_library_serves_compiles(new_bench: Bench) -> None:
    """A child that had to load the library that is taken does the first work; the others end at once."""
    with new_bench.compiler(libraries=("old.so", "newest.so")) as compiler:
        children = dict(new_bench.lines())
        compiler.compile([stage("f")])
        assert new_bench.lines() == [("compile:f", children["describe:newest.so"])]
        assert gone(children["describe:old.so"])
    assert gone(children["describe:newest.so"])


def test_the_newest_library_that_serves_the_architecture_is_taken(new_bench: Bench) -> None:
    """Versions compare as numbers, and an old architecture gets the library that still serves it."""
    libraries = ("old.so", "newest.so", "new.so")
    chosen = {}
    for architecture in ("sm_50", "sm_75", "sm_90", "sm_90a"):
        with new_bench.compiler(architecture, libraries) as compiler:
            chosen[architecture] = compiler.nvrtc_version
    assert chosen == {"sm_50": "12.9", "sm_75": "12.10", "sm_90": "13.0", "sm_90a": "13.0"}
    assert new_bench.asked() == {f"describe:{name}": 1 for name in libraries}


def test_a_broken_library_is_passed_over(bench: Bench) -> None:
    """A library that does not load, or kills what loads it, does not keep a good one from serving."""
    with bench.compiler(libraries=("deadly.so", "absent.so", "broken.so", "old.so")) as compiler:
        assert compiler.nvrtc_version == "12.9"
    with pytest.raises(CompilerUnavailableError, match="none is installed"):
        bench.compiler(libraries=("deadly.so", "broken.so"))


def test_the_users_cache_directory_is_the_default(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a directory given, cubins go to the user's cache directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    with Compiler("sm_90", libraries=[bench.folder / "old.so"], server="faked:Fake") as compiler:
        compiler.compile_one(stage("f"))
    assert len(entries_of(tmp_path / "home" / "tuner" / "cubins")) == 1


def gone(pid: int) -> bool:
    """Whether a child has ended and was reaped."""
    return not Path(f"/proc/{pid}").exists()


def test_children_that_idle_end_and_others_start_when_there_is_work(bench: Bench) -> None:
    """After the time given no child is left; the next compilation has a new one."""
    others = {*threading.enumerate()}
    with bench.compiler(jobs=2, idle_s=0.05) as compiler:
        bench.asked()
        compiler.compile([stage("f"), stage("g")])
        first = bench.pids()
        for thread in {*threading.enumerate()} - others:
            if thread.name == "compile-reaper":
                thread.join(PATIENCE_S)
        assert first
        assert all(map(gone, first))
        compiler.compile([stage("h")])
        (second,) = bench.pids()
        assert second not in first


def test_of_several_children_that_idle_one_stays(bench: Bench) -> None:
    """The others hold memory for nothing, and end long before it."""
    os.mkfifo(bench.folder / "pipe")
    with bench.compiler(jobs=2) as compiler:
        bench.asked()
        compiler.compile([stage("read"), stage("write")])
        children = {pid: os.pidfd_open(pid) for pid in bench.pids()}
        ended, _, _ = select.select(children.values(), [], [], PATIENCE_S)
        compiler.compile([stage("f")])
        (left,) = bench.pids()
    for descriptor in children.values():
        os.close(descriptor)
    assert (len(children), len(ended)) == (2, 1)
    assert children[left] not in ended


def test_threads_share_the_children_and_compile_the_same_once(bench: Bench) -> None:
    """However many call at a time, no more children work than asked for, and equal work is done once."""
    stages = [stage(f"f{i}") for i in range(6)]
    with bench.compiler(jobs=2) as compiler:
        bench.asked()
        with ThreadPoolExecutor(5) as pool:
            results = list(pool.map(compiler.compile, [stages] * 5))
    lines = bench.lines()
    assert all(found == results[0] for found in results)
    assert Counter(what for what, _ in lines) == {f"compile:f{i}": 1 for i in range(6)}
    assert len({pid for _, pid in lines}) <= 2


def test_one_that_hangs_holds_up_no_other(bench: Bench) -> None:
    """While a child hangs, another thread's work is done by the other child."""
    with bench.compiler(jobs=2, timeout_s=PATIENCE_S) as compiler, ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(compiler.compile, [stage("hang")])
        assert compiled(compiler.compile([stage("f")])[0]).lowered_name == "f"
        assert not hanging.done()
        compiler.close()
        with pytest.raises((CompilerUnavailableError, AssertionError)):
            compiled(hanging.result(PATIENCE_S)[0])
    assert all(map(gone, bench.pids()))


FORKING = """
import os, signal, sys, threading
from pathlib import Path
from test_compiler import PATIENCE_S, Bench, stage

folder = Path(sys.argv[1])
bench = Bench(folder, Path(sys.argv[2]))
compiler = bench.compiler()
bench.asked()
notes, pipe = folder / "notes", folder / "pipe"
os.mkfifo(pipe)
os.mkfifo(notes)  # who reads it waits until something was asked
thread = threading.Thread(target=compiler.compile, args=([stage("read")],))
thread.start()
print(notes.read_text(), end="", flush=True)
worker = os.fork()  # the only child is at work for a thread, which the worker does not have
if not worker:
    signal.alarm(int(PATIENCE_S))
    compiler.compile_one(stage("read"))
    compiler.close()
    os._exit(0)
print(notes.read_text(), end="", flush=True)
notes.unlink()
with pipe.open("w"):
    assert os.waitpid(worker, 0) == (worker, 0)
    thread.join()
compiler.compile_one(stage("f"))
print(notes.read_text(), end="")
compiler.close()
"""


def test_a_fork_compiles_in_children_of_its_own(new_bench: Bench) -> None:
    """It waits for none of its parent's, however busy, and its end leaves them to the parent."""
    run = subprocess.run(
        [sys.executable, "-c", FORKING, str(new_bench.folder), str(new_bench.cache)],
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=PATIENCE_S,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    (first, parents), (second, workers), (third, again) = (line.split() for line in run.stdout.splitlines())
    assert (first, second, third) == ("compile:read", "compile:read", "compile:f")
    assert parents == again != workers
    assert gone(int(parents))
    assert gone(int(workers))


@pytest.mark.parametrize("entries", [("f",), ("f", "g", "h")])
def test_a_full_disk_loses_no_compilation(
    bench: Bench, entries: tuple[str, ...], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever thread meets it first, one warning is given, and each result is kept in memory."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    stages = [stage(entry) for entry in entries]
    with bench.compiler(jobs=3) as compiler:
        bench.asked()
        monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
        with caplog.at_level(logging.WARNING):
            first = compiler.compile(stages)
            assert compiler.compile(stages) == first
    assert [compiled(result).lowered_name for result in first] == list(entries)
    assert bench.asked() == {f"compile:{entry}": 1 for entry in entries}
    assert len(caplog.records) == 1


def test_a_compile_child_imports_next_to_nothing() -> None:
    """It starts in the time of a compilation, and holds what NVRTC needs: no numpy, no model, no pool."""
    code = "import sys; import tuner.system.processes; import tuner.compiler.nvrtc; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    ours = {name for name in modules if name.startswith("tuner.")}
    assert ours == {
        *(
            "tuner.model",
            "tuner.model.errors",
            "tuner.model.version",
            "tuner.system",
            "tuner.system.processes",
        ),
        *("tuner.compiler", "tuner.compiler.nvrtc", "tuner.compiler.ptx"),
        *(
            "tuner.system.untrusted",
            "tuner.system.untrusted.reading",
            "tuner.system.untrusted.compiler_options",
        ),
    }
    assert not {"numpy", "concurrent.futures", "inspect", "dataclasses"} & set(modules)
