"""What benchmarks/kernel_tuner_wall.py compares: one space on both sides, and walls counted the same way."""

import importlib
import json
import math
import subprocess
import sys
import time
import types
import uuid
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cli_process import tuner
from hypothesis import given
from hypothesis import strategies as st

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError

BENCHMARKS = str(Path(__file__).parents[1] / "benchmarks")
NAMES = ("wall", "child", "neutral")
HOPPER = 90


@pytest.fixture(scope="module")
def benchmark() -> SimpleNamespace:
    """The benchmark's modules, which are scripts side by side."""
    sys.path.insert(0, BENCHMARKS)
    try:
        found = {name: importlib.import_module(f"kernel_tuner_{name}") for name in NAMES}
        return SimpleNamespace(**found, memory=importlib.import_module("process_memory"))
    finally:
        sys.path.remove(BENCHMARKS)


def compared(benchmark: SimpleNamespace, name: str) -> tuple[KernelFile, Any]:
    path, sizes = benchmark.wall.SPACES[name]
    kernel = load_kernel_file(path)
    return kernel, benchmark.wall.space_of(kernel, kernel.workload(sizes), HOPPER)


def as_numbers(name: str) -> str:
    return name.replace("true", "1").replace("false", "0")


SPACES = pytest.mark.parametrize("name", ["scan", "convolution", "matmul"])


@SPACES
def test_both_tune_the_same_launches(benchmark: SimpleNamespace, name: str) -> None:
    """Every configuration has its source, name, grid, block and shared memory on both sides, and once."""
    kernel, space = compared(benchmark, name)
    task = json.loads(json.dumps(benchmark.wall.asdict(space.task)))
    workload = kernel.workload(benchmark.wall.SPACES[name][1])
    assert set(space.configurations) == set(kernel.space(workload))
    assert len(set(map(tuple, task["configurations"]))) == len(space.configurations)
    for number, (configuration, row, launch) in enumerate(
        zip(space.configurations, task["configurations"], task["launches"], strict=True)
    ):
        (stage,) = kernel.plan(workload, configuration).stages
        assert as_numbers(benchmark.neutral.instance_name(task, row)) == as_numbers(stage.entry)
        assert tuple(launch["grid"]) == stage.grid
        assert tuple(launch["block"]) == stage.block
        assert launch["shared_bytes"] == stage.shared_bytes
        labels = dict(zip(task["tunables"], row, strict=True))
        assert tuple(labels[n] for n in task["block_names"]) == stage.block[: len(task["block_names"])]
        assert space.index(configuration) == space.index_of_row(row) == number
    assert Path(task["source"]).read_text() == stage.source.text


@SPACES
def test_values_keep_the_order_of_the_file(benchmark: SimpleNamespace, name: str) -> None:
    """Neighbours of a value are the same on both sides, and no value is given that never occurs."""
    kernel, space = compared(benchmark, name)
    for tunable, labels in space.task.tunables.items():
        column = list(space.task.tunables).index(tunable)
        assert set(labels) == {row[column] for row in space.task.configurations}
        occurring = [
            v for v in kernel.tunables[tunable] if any(c[tunable] == v for c in space.configurations)
        ]
        firsts = [next(c for c in space.configurations if c[tunable] == v) for v in occurring]
        assert [space.task.configurations[space.index(c)][column] for c in firsts] == list(labels)


def test_headers_are_found_in_their_folder(benchmark: SimpleNamespace) -> None:
    """The folders given to the compiler hold what the source includes."""
    _, space = compared(benchmark, "scan")
    folders = [Path(option[2:]) for option in space.task.options if option.startswith("-I")]
    assert any((folder / "scan.cuh").is_file() for folder in folders)


KERNEL = """
[kernel]
name = "mixed"
source = "mixed.cu"
entry = "mixed<{%s}>"

[[argument]]
buffer = "x"
dtype = "float32"
shape = [64]
role = "out"

[tunables]
L = [32, 64]
P = [1, 2]

[launch]
grid = 1
block = "%s"

[work]
bytes = 1
operations = 1
"""


@pytest.mark.parametrize(
    ("entry", "block", "message"),
    [("L * P", "L", "follows from no tunable alone"), ("P", "L * P", "no tunable's value")],
)
def test_what_cannot_be_said_is_refused(
    benchmark: SimpleNamespace, tmp_path: Path, entry: str, block: str, message: str
) -> None:
    """A template argument or a block that mixes tunables has no words in Kernel Tuner's call."""
    (tmp_path / "mixed.cu").write_text("template <int n> __global__ void mixed(float* x) { x[n] = n; }")
    (tmp_path / "kernel.toml").write_text(KERNEL % (entry, block))
    kernel = load_kernel_file(tmp_path / "kernel.toml")
    with pytest.raises(InputError, match=message):
        benchmark.wall.space_of(kernel, kernel.workload({}), HOPPER)


@given(
    rows=st.sets(st.tuples(*[st.integers(0, 2)] * 3), min_size=1), values=st.tuples(*[st.integers(0, 2)] * 3)
)
def test_constraint_prunes_what_leads_nowhere(
    benchmark: SimpleNamespace, rows: set[tuple[int, int, int]], values: tuple[int, int, int]
) -> None:
    """Some values are allowed if and only if a configuration has them."""
    legal = benchmark.child.Legal(("a", "b", "c"), rows)
    for places in ([0], [2], [0, 2], [1, 0], [0, 1, 2]):
        assigned = {"abc"[place]: values[place] for place in places}
        leads = any(all(row[place] == values[place] for place in places) for row in rows)
        assert legal.allows(assigned) == leads


def test_a_uuid_with_a_zero_byte_is_whole_again(benchmark: SimpleNamespace) -> None:
    """What CuPy cuts at a zero byte is 16 bytes long for Kernel Tuner."""
    whole = bytes(range(1, 9)) + bytes(8)
    properties = benchmark.child.with_whole_uuid(lambda _: {"uuid": whole.rstrip(b"\0"), "name": b"GPU"})
    assert properties(0) == {"uuid": whole, "name": b"GPU"}
    assert uuid.UUID(bytes=properties(0)["uuid"]).bytes == whole


def test_more_shared_memory_is_asked_for_where_it_is_needed(benchmark: SimpleNamespace) -> None:
    """CUDA gives 48 KiB unasked; the backend's own work is still done."""

    class Backend:
        def __init__(self) -> None:
            self.func, self.smem_size = "function", 0

        def copy_shared_memory_args(self, smem_args: dict[str, int]) -> None:
            self.smem_size = smem_args["size"]

    asked = []
    benchmark.child.allow_shared_memory(Backend, lambda function, size: asked.append((function, size)))
    backend = Backend()
    for size in (0, 49152, 49153):
        backend.copy_shared_memory_args({"size": size})
        assert backend.smem_size == size
    assert asked == [("function", 49153)]


@pytest.mark.parametrize("name", ["scan-lf", "matmul", "convolution"])
def test_reference_is_what_the_kernel_computes(benchmark: SimpleNamespace, name: str) -> None:
    """The reference of Kernel Tuner's checks is NumPy's answer."""
    rng = np.random.default_rng(0)
    big = rng.random((20, 20), dtype=np.float32)
    small = rng.random((17, 17), dtype=np.float32)
    wide = big.astype(np.float64)
    expected = {
        "scan-lf": np.cumsum(wide, axis=1),
        "matmul": wide @ wide,
        "convolution": np.array(
            [[(wide[y : y + 17, x : x + 17] * small).sum() for x in range(4)] for y in range(4)]
        ),
    }[name]
    second = small if name == "convolution" else big
    np.testing.assert_allclose(benchmark.child.reference(np, name, [big, second]), expected, rtol=1e-6)


RUN = {
    "trace": [(2.0, 0, 3.0), (3.0, 1, None), (4.0, 2, 2.0), (5.0, 3, 2.5), (6.0, 4, 1.0)],
    "wall_s": 7.0,
    "best": 4,
}


def test_incumbents_are_a_runs_own_best(benchmark: SimpleNamespace) -> None:
    """Only a faster time changes the best; failures and slower times do not."""
    assert benchmark.wall.incumbents(RUN["trace"]) == [(2.0, 0), (4.0, 2), (6.0, 4)]


@pytest.mark.parametrize(
    ("efficiency", "settled"),
    [
        ([0.5, 0, 0.99, 0, 1.0], 4.0),
        ([0.99, 0, 0.5, 0, 1.0], 6.0),  # it left again
        ([1.0, 0, 1.0, 0, 0.97], None),  # what it answers is worse
        ([0.5, 0, 0.5, 0, 0.98], 6.0),
    ],
)
def test_wall_until_near_the_optimum(
    benchmark: SimpleNamespace, efficiency: list[float], settled: float | None
) -> None:
    """It counts from when the best is near and stays near, the answer included."""
    assert benchmark.wall.settled_s(RUN, efficiency) == settled


def test_a_function_is_allowed_the_most_that_any_launch_takes(benchmark: SimpleNamespace) -> None:
    """Configurations of one function differ in shared memory: what is asked for last counts for all."""
    launches = [{"shared_bytes": size} for size in (70_000, 0, 60_000)]
    assert benchmark.neutral.allowed_shared_bytes(["f", "g", "f"], launches) == {"f": 70_000, "g": 0}


def test_an_answer_confirmed_late_counts_from_the_end(benchmark: SimpleNamespace) -> None:
    """Where the answer is another than the last incumbent, nobody knows before the end."""
    assert benchmark.wall.settled_s({**RUN, "best": 3}, [0.5, 0, 0.5, 1.0, 0.9]) == 7.0


def test_smaller_budgets_are_the_beginning_of_larger_ones(benchmark: SimpleNamespace) -> None:
    """The first evaluations, the best of them, and the same time from the last one to the end."""
    half = benchmark.wall.first_of({**RUN, "method": "wolf 5", "evaluations": 5}, 3)
    assert (half["method"], half["evaluations"], half["best"]) == ("wolf 3", 3, 2)
    assert half["wall_s"] == pytest.approx(4.0 + 1.0)


def test_neutral_times_of_many_launches_count(benchmark: SimpleNamespace) -> None:
    """A finalist's time is that of its 200 launches; the least time is the optimum."""
    neutral = {"ms": [1.0, 2.0, 4.0], "finalists": {"1": {"cold_ms": 0.5}}}
    times = benchmark.wall.neutral_ms(neutral)
    assert times == [1.0, 0.5, 4.0]
    assert benchmark.wall.efficiencies(times) == [0.5, 1.0, 0.125]


def test_own_sweeps_stand_in_for_neutral_times(benchmark: SimpleNamespace) -> None:
    """Medians over whole sweeps of ``tuner``; parts of a sweep, and the other tuner's, do not count."""
    whole = [[[1.0, 0, 2e-3], [1.5, 1, base]] for base in (1e-3, 3e-3, 5e-3)]
    runs = [{"tuner": "tuner", "trace": trace} for trace in whole]
    runs += [{"tuner": "tuner", "trace": [[1.0, 1, 9.0]]}, {"tuner": "kernel-tuner", "trace": whole[0]}]

    assert benchmark.wall.swept_ms(runs, 2) == pytest.approx([2.0, 3.0])
    assert benchmark.wall.swept_ms(runs, 3) is None


def runs_of_two(benchmark: SimpleNamespace) -> list[dict[str, Any]]:
    facts = {"peak_bytes": 5_000_000, "memory": "pss", "trouble": "", "evaluations": 5}
    jobs = [benchmark.wall.Job("tuner", "auto", seed=seed) for seed in (1, 2, 3)]
    return [
        {
            **RUN,
            **facts,
            **benchmark.wall.asdict(job),
            "wall_s": 7.0 + job.seed,
            "best": 4 if job.seed > 1 else 0,
        }
        for job in jobs
    ]


def test_rows_join_seeds(benchmark: SimpleNamespace) -> None:
    """Seeds of one method make one line: walls with their range, quality, and how many came near."""
    efficiency = [0.5, 0.0, 0.6, 0.7, 1.0]
    (row,) = benchmark.wall.rows(runs_of_two(benchmark), efficiency)
    assert (row.runs, row.wall_s, row.efficiency, row.reached, row.near_s) == (
        3,
        (9.0, 8.0, 10.0),
        (1.0, 0.5),
        2,
        6.0,
    )
    text = benchmark.wall.table("a space", [row])
    assert "2 of 3" in text
    assert "8.0-10.0" in text
    assert "100.00" in text


def test_rows_without_neutral_times_say_nothing_of_quality(benchmark: SimpleNamespace) -> None:
    """Failed runs are in no line; without neutral times a line has walls and memory only."""
    failed = {**runs_of_two(benchmark)[0], "best": None}
    (row,) = benchmark.wall.rows([*runs_of_two(benchmark), failed], None)
    assert (row.runs, row.reached, row.near_s) == (3, 0, None)
    assert "never" not in benchmark.wall.table("a space", [row])


def options(benchmark: SimpleNamespace, **given: Any) -> SimpleNamespace:
    usual = {"parts": benchmark.wall.PARTS, "tuners": benchmark.wall.TUNERS, "seeds": 2, "checked": ["scan"]}
    usual |= {"backends": benchmark.wall.BACKENDS, "repeats": 1}
    return SimpleNamespace(**{**usual, **given})


def test_schedule_takes_turns(benchmark: SimpleNamespace) -> None:
    """Cold sweeps come before warm ones, both tuners get the same seeds, and no job is planned twice."""
    jobs = benchmark.wall.schedule("scan", options(benchmark))
    assert len(set(jobs)) == len(jobs) == 8 + 1 + 1 + 4
    assert [(job.tuner, job.cache) for job in jobs[:8]] == [
        (tuner, cache) for cache in ("cold", "warm") for tuner in (*benchmark.wall.TUNERS, "tuner")
    ]
    warm = [job for job in jobs if job.cache == "warm"]
    assert [benchmark.wall.replace(job, cache="cold") for job in warm] == jobs[:4]
    seeds = {
        tuner: [job.seed for job in jobs if job.tuner == tuner and job.seed]
        for tuner in benchmark.wall.TUNERS
    }
    assert seeds == {"kernel-tuner": [1, 2], "loop": [], "tuner": [1, 2]}
    backends = [job.backend for job in jobs if job.tuner == "kernel-tuner"]
    assert backends == ["cupy", "cupy", "nvcuda", "cupy", "nvcuda", "nvcuda"]
    again = benchmark.wall.schedule("scan", options(benchmark, repeats=2))
    assert len(set(again)) == len(again)


def test_schedule_obeys_the_choice(benchmark: SimpleNamespace) -> None:
    """Parts, tuners and seeds that were not chosen are not run."""
    chosen = options(benchmark, parts=["strategies"], tuners=["tuner"], seeds=1)
    assert benchmark.wall.schedule("matmul", chosen) == [benchmark.wall.Job("tuner", "auto", seed=1)]


def test_a_run_again_takes_the_place_of_the_first(benchmark: SimpleNamespace) -> None:
    """The file holds one run of a kind."""
    runs = runs_of_two(benchmark)
    benchmark.wall.keep(runs, {**runs[1], "wall_s": 1.0})
    assert sorted(run["wall_s"] for run in runs) == [1.0, 8.0, 10.0]


def test_results_are_written_whole(benchmark: SimpleNamespace, tmp_path: Path) -> None:
    """What was written is read again with the origin of the new run; other spaces stay."""
    path = tmp_path / "out.json"
    assert benchmark.wall.opened(path)["spaces"] == {}
    benchmark.wall.save(path, {"spaces": {"scan": {"runs": []}}})
    again = benchmark.wall.opened(path)
    assert again["spaces"] == {"scan": {"runs": []}}
    assert again["provenance"]["date"]
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]


def process(folder: Path, pid: int, parent: int, *, pss_kib: int | None, rss_kib: int) -> None:
    place = folder / str(pid)
    place.mkdir()
    (place / "stat").write_text(f"{pid} (a (b) c) S {parent} 1 1")
    (place / "status").write_text(f"Name: x\nVmRSS:\t{rss_kib} kB\n")
    if pss_kib is not None:
        (place / "smaps_rollup").write_text(f"Rss: {rss_kib} kB\nPss: {pss_kib} kB\nPss_Anon: 1 kB\n")


def test_memory_is_that_of_the_tree(benchmark: SimpleNamespace, tmp_path: Path) -> None:
    """Descendants count with the process, others do not, and the peak stays."""
    process(tmp_path, 10, 1, pss_kib=100, rss_kib=300)
    process(tmp_path, 11, 10, pss_kib=20, rss_kib=300)
    process(tmp_path, 12, 11, pss_kib=3, rss_kib=300)
    process(tmp_path, 13, 1, pss_kib=5000, rss_kib=5000)
    (tmp_path / "uptime").write_text("1 1")
    peak = benchmark.memory.MemoryPeak(10, proc=tmp_path)
    peak.look()
    assert (peak.peak_bytes, peak.processes, peak.measure) == (123 * 1024, 3, "pss")
    (tmp_path / "11" / "stat").write_text("11 (x) S 1 1 1")
    peak.look()
    assert (peak.peak_bytes, peak.processes) == (123 * 1024, 3)


def test_memory_says_when_it_is_of_resident_sets(benchmark: SimpleNamespace, tmp_path: Path) -> None:
    """A kernel that states no proportional sizes gives resident ones, and the measure is named."""
    process(tmp_path, 10, 1, pss_kib=None, rss_kib=300)
    process(tmp_path, 11, 10, pss_kib=None, rss_kib=200)
    peak = benchmark.memory.MemoryPeak(10, proc=tmp_path)
    peak.look()
    assert (peak.peak_bytes, peak.measure) == (500 * 1024, "rss")


def test_memory_of_a_real_process(benchmark: SimpleNamespace) -> None:
    """What a child of a child holds is seen; what has ended holds nothing."""
    hold = "b = bytearray(64 << 20); b[::4096] = bytes(len(b[::4096])); print('held', flush=True); input()"
    outer = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {hold!r}]))"
    with subprocess.Popen(
        [sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"held\n"
        peak = benchmark.memory.MemoryPeak(parent.pid)
        peak.look()
        parent.communicate(b"\n")
    assert peak.processes == 2
    assert 64 << 20 < peak.peak_bytes < 1 << 30
    gone = benchmark.memory.MemoryPeak(parent.pid)
    gone.look()
    assert gone.peak_bytes == 0


def test_a_process_that_fails_says_why(benchmark: SimpleNamespace, tmp_path: Path) -> None:
    """The end of what it wrote is kept; one that ends well leaves no trouble."""
    caches, log = benchmark.wall.Caches(tmp_path), tmp_path / "log"
    bad = benchmark.wall.ended([sys.executable, "-c", "raise SystemExit('no such GPU')"], caches, log)
    assert bad.trouble == "status 1: no such GPU\n"
    good = benchmark.wall.ended(
        [sys.executable, "-c", "import os; print(os.environ['CUPY_CACHE_DIR'])"], caches, log
    )
    assert (good.trouble, log.read_text()) == ("", f"{tmp_path / 'cupy'}\n")
    assert good.wall_s > 0
    assert benchmark.wall.ended([*benchmark.wall.TUNER, "--version"], caches, log).trouble == ""


def test_a_process_that_hangs_is_stopped(
    benchmark: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process beyond its time is ended, and said to have failed."""
    monkeypatch.setattr(benchmark.wall, "TIMEOUT_S", 0.3)
    code = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    caches, log = benchmark.wall.Caches(tmp_path), tmp_path / "log"
    hung = benchmark.wall.ended([sys.executable, "-c", code], caches, log)
    assert hung.trouble.startswith("status -1")
    assert not log.read_text() or not Path("/proc", log.read_text().strip()).exists()


def test_a_run_of_tuner_is_read(
    benchmark: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every trial is read with its number, its time and when it was stored, and the answer is among them."""

    def called(command: Sequence[str | Path], *_: object) -> Any:
        began = time.time()
        done = tuner(*command[len(benchmark.wall.TUNER) :])
        return benchmark.wall.Ended(
            began, time.time() - began, 1, "pss", 1, done.output if done.exit_code else ""
        )

    monkeypatch.setattr(benchmark.wall, "ended", called)
    (tmp_path / "mixed.cu").write_text(
        "template <int n> __global__ void mixed(float* x) { x[threadIdx.x] = 1; }"
    )
    resources = '\n[resources]\nregisters = 8\n[occupancy]\nmin = 0\n[problem]\nname = "expression"\n'
    text = KERNEL % ("L", "L") + resources + '[problem.reference]\nx = "1"\n'
    file = tmp_path / "kernel.toml"
    file.write_text(text.replace("shape = [64]", 'shape = ["L"]'))
    kernel = load_kernel_file(file)
    space = benchmark.wall.space_of(kernel, kernel.workload({}), HOPPER)
    with benchmark.wall.Caches.new() as caches:
        found = benchmark.wall.tuner_run(space, caches, policy="exhaustive", kernel_file=file)
    assert found["trouble"] == ""
    numbers = [number for _, number, _ in found["trace"]]
    assert sorted(numbers) == list(range(len(space.configurations)))
    assert found["best"] in numbers
    moments = [at_s for at_s, _, _ in found["trace"]]
    assert moments == sorted(moments)
    assert 0 < moments[0] <= moments[-1] <= found["wall_s"]
    assert all(time_s > 0 for _, _, time_s in found["trace"])


class FakeFunction:
    num_regs = 32
    max_dynamic_shared_size_bytes = 48 * 1024

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, grid: Any, block: Any, arguments: Any, *, stream: Any, shared_mem: int) -> None:
        del arguments, stream
        assert min(grid) > 0
        assert math.prod(block) <= 1024
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        FakeEvent.ran = self.name


class FakeEvent:
    done = True
    ran = ""

    def record(self, stream: Any = None) -> None:
        del stream


class FakeDevice:
    compute_capability = "90"

    def __init__(self, number: int) -> None:
        self.number, self.attributes = number, {"MaxThreadsPerBlock": 1024}

    def use(self) -> None:
        pass

    def synchronize(self) -> None:
        pass


@pytest.fixture
def kernel_tuner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Kernel Tuner over a CuPy that runs nothing: a launch takes as long as its kernel's name says."""
    pytest.importorskip("kernel_tuner")
    monkeypatch.setitem(sys.modules, "torch", None)
    cuda = types.SimpleNamespace(
        Device=FakeDevice,
        Stream=object,
        Event=FakeEvent,
        get_elapsed_time=lambda _begin, _end: 1 + zlib.crc32(FakeEvent.ran.encode()) % 997 / 1000,
        runtime=types.SimpleNamespace(
            driverGetVersion=lambda: 13000, getDeviceProperties=lambda _: {"uuid": b"cut"}
        ),
    )
    module = types.SimpleNamespace(
        cuda=cuda,
        ndarray=type("ndarray", (), {}),
        array=np.array,
        asarray=np.asarray,
        empty=np.empty,
        copyto=np.copyto,
        RawModule=lambda **_: types.SimpleNamespace(get_function=FakeFunction),
    )
    info = types.SimpleNamespace(get_runtime_info=lambda: "Device 0 Name : Fake\nDevice 0 PCI Bus ID : 0\n")
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setitem(sys.modules, "cupyx", info)
    for name in [name for name in sys.modules if name.startswith("kernel_tuner.backends.cupy")]:
        monkeypatch.delitem(sys.modules, name)
    return importlib.import_module("kernel_tuner")


def tuned(
    benchmark: SimpleNamespace, kernel_tuner: Any, name: str, **given: Any
) -> tuple[list[Any], Any, Any]:
    _, space = compared(benchmark, name)
    task = json.loads(json.dumps(benchmark.wall.asdict(space.task)))
    for argument in task["arguments"]:
        argument["shape"] = [1]
    usual = {"strategy": "brute_force", "budget": None, "seed": 1, "verify": False, "backend": "cupy"}
    chosen = SimpleNamespace(**{**usual, **given})
    benchmark.child.repair("cupy")
    benchmark.child.random.seed(chosen.seed)
    results, environment = benchmark.child.tune(kernel_tuner, task, chosen)
    return [tuple(one[key] for key in task["tunables"]) for one in results], environment, space


@pytest.mark.filterwarnings("ignore")
@SPACES
def test_kernel_tuner_sweeps_the_space(benchmark: SimpleNamespace, kernel_tuner: Any, name: str) -> None:
    """Its brute force takes every configuration once, launches each, and knows the fastest."""
    visited, environment, space = tuned(benchmark, kernel_tuner, name)
    assert sorted(map(str, visited)) == sorted(map(str, space.task.configurations))
    assert tuple(environment["best_config"][key] for key in space.task.tunables) in visited


@pytest.mark.filterwarnings("ignore")
def test_kernel_tuners_smaller_budget_is_a_beginning(benchmark: SimpleNamespace, kernel_tuner: Any) -> None:
    """With one seed its strategy begins alike whatever the budget, as the table takes it."""
    given = {"strategy": benchmark.wall.STRATEGY, "seed": 3}
    half, _, _ = tuned(benchmark, kernel_tuner, "matmul", budget=50, **given)
    whole, _, _ = tuned(benchmark, kernel_tuner, "matmul", budget=100, **given)
    assert (len(half), len(whole)) == (50, 100)
    assert whole[:50] == half
