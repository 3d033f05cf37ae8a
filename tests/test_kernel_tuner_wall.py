"""What benchmarks/kernel_tuner_wall.py compares: one space for all, walls counted alike, one judge."""

import argparse
import importlib
import json
import math
import subprocess
import sys
import types
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cli_process import tuner
from compiled_stages import compiled_stages
from pairwise import pairwise

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError
from tuner.model.plan import Source

ROOT = Path(__file__).parents[1]
NAMES = ("wall", "child", "loop", "neutral")
HOPPER = 90
KERNELS = {
    "scan": 160,
    "add": 60,
    "bgemm": 124,
    "convolution": 368,
    "half-add": 60,
    "matmul": 189,
    "reduction": 120,
    "softmax": 96,
    "spmv": 90,
    "stencil": 128,
    "triad": 70,
    "vector-add": 15,
}


@pytest.fixture(scope="module")
def benchmark() -> SimpleNamespace:
    """The benchmark's modules, which are scripts side by side."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        found = {name: importlib.import_module(f"kernel_tuner_{name}") for name in NAMES}
        return SimpleNamespace(**found, memory=importlib.import_module("provenance"))
    finally:
        sys.path.pop(0)


def compared(benchmark: SimpleNamespace, name: str) -> tuple[KernelFile, Any]:
    kernel = load_kernel_file(benchmark.wall.kernel_files()[name])
    return kernel, benchmark.wall.task_of(kernel, benchmark.wall.workload_of(kernel), HOPPER)


def as_json(benchmark: SimpleNamespace, task: Any) -> dict[str, Any]:
    return dict(json.loads(json.dumps(benchmark.wall.asdict(task))))


EACH = pytest.mark.parametrize("name", KERNELS)


@EACH
def test_all_tune_the_same_launches(benchmark: SimpleNamespace, name: str) -> None:
    """Every configuration has one number, and its grid, block and shared memory, whoever launches it."""
    kernel, task = compared(benchmark, name)
    workload = benchmark.wall.workload_of(kernel)
    space = list(kernel.space(workload))
    told = as_json(benchmark, task)
    assert len(set(task.configurations)) == len(space) == KERNELS[name]
    for number, (configuration, launch) in enumerate(zip(space, told["launches"], strict=True)):
        (stage,) = kernel.plan(workload, configuration).stages
        assert task.index(dict(configuration)) == number
        assert (tuple(launch["grid"]), tuple(launch["block"])) == (stage.grid, stage.block)
        assert launch["shared_bytes"] == stage.shared_bytes
        labels = dict(zip(told["tunables"], told["configurations"][number], strict=True))
        threads = tuple(labels[one] for one in told["block_names"])
        assert (*threads, 1, 1, 1)[:3] == stage.block
    for column, labels in zip(zip(*task.configurations, strict=True), task.tunables.values(), strict=True):
        assert set(column) == set(labels)
    options = {*task.options, *([] if name == "scan" else [benchmark.wall.FLUSH])}
    assert {one for one in stage.options if not one.startswith("-D")} == options


@EACH
def test_all_compile_the_same_code(benchmark: SimpleNamespace, name: str, cubins: Path) -> None:
    """The text with macros, as peers compile it, is our own code, bit for bit."""
    kernel, task = compared(benchmark, name)
    workload = benchmark.wall.workload_of(kernel)
    rows = pairwise([dict(configuration) for configuration in kernel.space(workload)], together=1)[:4]
    ours, theirs = [], []
    for row in rows:
        number = task.index(row)
        (stage,) = kernel.plan(workload, list(kernel.space(workload))[number]).stages
        text = benchmark.neutral.text_of(as_json(benchmark, task), number)
        flush = [one for one in stage.options if one == benchmark.wall.FLUSH]
        source = Source(stage.source.path, text, stage.source.headers)
        ours.append(stage)
        theirs.append(
            replace(stage, source=source, entry=benchmark.wall.KERNEL, options=(*task.options, *flush))
        )
    made = compiled_stages([*ours, *theirs], f"sm_{HOPPER}", cubins)
    assert [(one.lowered_name, one.cubin) for one in made[: len(ours)]] == [
        (one.lowered_name, one.cubin) for one in made[len(ours) :]
    ]


def test_a_digest_is_of_all_that_is_tuned(benchmark: SimpleNamespace) -> None:
    """Another source or value gives another, so that numbers of configurations are never mixed up."""
    _, task = compared(benchmark, "vector-add")
    others = [replace(task, source=task.source + " "), replace(task, options=()), replace(task, tunables={})]
    assert len({one.digest for one in (task, *others)}) == 4


TASK_KERNEL = """
kernel.source = "mixed.cu"
%s
work = { bytes = 1, operations = 1 }
resources.registers = 8
problem.reference.x = "1"
arguments.x = "out float32[64]"
tunables = { L = [32, 64], P = %s }
"""
MIXED = """
template <int L, int P>
__global__ void mixed(float* x) { for (int i = threadIdx.x; i < 64; i += L) x[i] = 1; }
"""


LAUNCH = 'launch = { grid = 1, block = "L" }'


def mixed(folder: Path, launch: str = LAUNCH, values: str = "[1, 2]", more: str = "") -> Path:
    (folder / "mixed.cu").write_text(MIXED)
    (folder / "kernel.toml").write_text(f'kernel.name = "mixed"\n{TASK_KERNEL % (launch, values)}{more}')
    return folder / "kernel.toml"


STAGES = """
[[stage]]
name = "%s"
grid = 1
block = "L"
entry = "mixed<{L}, {P}>"
"""


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ((LAUNCH.replace('L"', 'L * P"'), "[1, 2]", ""), "no tunable's value"),
        ((LAUNCH, '{ values = [1, 2], when = "L == 32", otherwise = 1 }', ""), "without conditions"),
        (("", "[1, 2]", STAGES % "a" + STAGES % "b"), "only kernels of one launch"),
        ((LAUNCH, "[1, 2]", 'kernel.options = ["--maxrregcount={8 * P + 16}"]'), "must be those of all"),
    ],
)
def test_what_cannot_be_said_is_refused(
    benchmark: SimpleNamespace, tmp_path: Path, file: tuple[str, str, str], message: str
) -> None:
    """A block that no tunable states, conditions and several launches are refused in words."""
    kernel = load_kernel_file(mixed(tmp_path, *file))
    with pytest.raises(InputError, match=message):
        benchmark.wall.task_of(kernel, kernel.workload({}), HOPPER)


def test_indices_are_those_of_the_kernel_file(benchmark: SimpleNamespace, tmp_path: Path) -> None:
    """Whole-numbered inputs are stored, as not any will do; others are any numbers in [-1, 1)."""
    kernel = load_kernel_file(benchmark.wall.kernel_files()["spmv"])
    workload = kernel.workload({"N": 300})
    task = benchmark.wall.task_of(kernel, workload, HOPPER)
    benchmark.wall.write(task, kernel.plan(workload, kernel.default(workload)), tmp_path)
    told = json.loads((tmp_path / "task.json").read_text())
    offsets, columns, values, x, y, rows = benchmark.neutral.arrays(np, told, tmp_path)
    assert (offsets[0], offsets[-1], rows) == (0, 4800, 300)
    assert (np.diff(offsets) >= 0).all()
    assert (columns.min() >= 0, columns.max() < 300, columns.dtype) == (True, True, np.int32)
    assert [one.shape for one in (values, x, y)] == [(4800,), (300,), (300,)]
    assert -1 <= values.min() < values.max() < 1


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
            self.func, self.smem_size = SimpleNamespace(max_dynamic_shared_size_bytes=49152), 0

        def copy_shared_memory_args(self, smem_args: dict[str, int]) -> None:
            self.smem_size = smem_args["size"]

    benchmark.child.allow_shared_memory(Backend)
    backend = Backend()
    for size, allowed in ((0, 49152), (49152, 49152), (49153, 49153)):
        backend.copy_shared_memory_args({"size": size})
        assert (backend.smem_size, backend.func.max_dynamic_shared_size_bytes) == (size, allowed)


class FakeCupy(types.ModuleType):
    """A CuPy whose launches take as long as they say; behind a flush of the L2 they take longer."""

    asarray, array, copyto = np.asarray, np.array, np.copyto
    ndarray = type("ndarray", (), {})

    def __init__(self) -> None:
        super().__init__("cupy")
        self.now_ms, self.cold = 0.0, False
        self.cuda = SimpleNamespace(
            Device=FakeDevice,
            Event=lambda: FakeEvent(self),
            Stream=object,
            get_elapsed_time=lambda begin, end: end.at - begin.at,
            runtime=SimpleNamespace(
                driverGetVersion=lambda: 13000, getDeviceProperties=lambda _: {"uuid": b"cut"}
            ),
        )

    def empty(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(fill=lambda _: setattr(self, "cold", True))

    def launch(self, warm_ms: float, cold_ms: float) -> Callable[[], None]:
        def run() -> None:
            self.now_ms += cold_ms if self.cold else warm_ms
            self.cold = False

        return run

    def RawModule(self, *, code: str, options: Sequence[str], name_expressions: list[str]) -> Any:  # noqa: N802
        assert all(isinstance(option, str) for option in options)
        return SimpleNamespace(get_function={name_expressions[0]: FakeFunction(self, code)}.get)


class FakeFunction:
    num_regs = 32

    def __init__(self, cp: FakeCupy, code: str) -> None:
        self.max_dynamic_shared_size_bytes = 48 * 1024
        self.run = cp.launch(own_ms(code), 2 - own_ms(code) / 2)

    def __call__(self, grid: Any, block: Any, _: Any, *, stream: Any = None, shared_mem: int = 0) -> None:
        del stream
        assert min(grid) > 0
        assert math.prod(block) <= 1024
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        self.run()


def own_ms(code: str) -> float:
    """From 0.5 to 1.5 ms."""
    return 0.5 + zlib.crc32(code.encode()) % 997 / 997


class FakeEvent:
    done = True

    def __init__(self, cp: FakeCupy) -> None:
        self.cp, self.at = cp, 0.0

    def record(self, stream: Any = None) -> None:
        del stream
        self.at = self.cp.now_ms

    def synchronize(self) -> None:
        pass


class FakeDevice:
    compute_capability = "90"

    def __init__(self, number: int) -> None:
        self.number, self.attributes = number, {"MaxThreadsPerBlock": 1024}

    def use(self) -> None:
        pass

    def synchronize(self) -> None:
        pass


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    module = FakeCupy()
    info = SimpleNamespace(get_runtime_info=lambda: "Device 0 Name : Fake\nDevice 0 PCI Bus ID : 0\n")
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setitem(sys.modules, "cupyx", info)
    for name in [name for name in sys.modules if name.startswith("kernel_tuner.backends.cupy")]:
        monkeypatch.delitem(sys.modules, name)
    return module


def test_the_judge_knows_both_timings(benchmark: SimpleNamespace, cupy: FakeCupy) -> None:
    """The best of either is a finalist, the chosen ones are too, and slow ones cost two launches."""
    times_ms = [(1.0, 1.5), (0.9, 1.9), (0.2, 40.0), (1.1, 1.4), *[(1.5, 2.0 + n / 10) for n in range(8)]]
    judge = benchmark.neutral.Judge(cupy, [cupy.launch(*one) for one in times_ms])
    finalists = judge.finalists([2])
    assert finalists[0] == 2
    assert {0, 1, 3} < set(finalists)
    assert len(finalists) < len(times_ms)
    found = judge.medians(finalists, 3)
    assert {n: pytest.approx(times_ms[n]) for n in finalists} == {
        n: (found["back_to_back"][n], found["single"][n]) for n in finalists
    }


@pytest.mark.usefixtures("cupy")
def test_the_loop_finds_what_is_judged_best(
    benchmark: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both read a task and tell of its configurations by their numbers; the judge times them both ways."""
    kernel, task = compared(benchmark, "scan")
    workload = benchmark.wall.workload_of(kernel)
    task = replace(task, arguments=tuple({**one, "shape": [1]} for one in task.arguments))
    benchmark.wall.write(task, kernel.plan(workload, kernel.default(workload)), tmp_path)
    monkeypatch.setattr(sys, "argv", ["loop", str(tmp_path), str(tmp_path / "loop.json")])
    benchmark.loop.main()
    found = json.loads((tmp_path / "loop.json").read_text())
    words = [str(tmp_path), str(tmp_path / "judged.json"), "--finalists", "3", "17"]
    monkeypatch.setattr(sys, "argv", ["neutral", *words])
    benchmark.neutral.main()
    judged = json.loads((tmp_path / "judged.json").read_text())
    told = as_json(benchmark, task)
    times_ms = [own_ms(benchmark.neutral.text_of(told, number)) for number in range(KERNELS["scan"])]
    assert found == {"evaluations": KERNELS["scan"], "chosen": times_ms.index(min(times_ms))}
    assert {"3", "17", str(found["chosen"])} <= set(judged["back_to_back"])
    assert judged["back_to_back"] == {n: pytest.approx(times_ms[int(n)]) for n in judged["back_to_back"]}
    assert judged["single"] == {n: pytest.approx(2 - times_ms[int(n)] / 2) for n in judged["single"]}


def recorded(
    benchmark: SimpleNamespace, numbers: dict[str, int], seen: list[list[str]]
) -> Callable[..., Any]:
    """What stands for processes: each column chooses a number; the judge says that all take longer by it."""

    def called(command: Sequence[str | Path], *_: object) -> Any:
        words = list(map(str, command))
        seen.append(words)
        if words[1].endswith("kernel_tuner_neutral.py"):
            times = {n: 1.0 + int(n) for n in (*words[5:], "0")}
            Path(words[3]).write_text(
                json.dumps({"back_to_back": times, "single": dict.fromkeys(times, 2.0)})
            )
        elif words[1].endswith("kernel_tuner_loop.py"):
            Path(words[3]).write_text(json.dumps({"evaluations": 15, "chosen": numbers["loop"]}))
        elif "--policy" in words and words[words.index("--policy") + 1] == "auto":
            best = {"block_size_x": 64, "vector": [1, 2, 4][numbers["auto"]], "loads": 1}
            found = {"best": {"configurations": {words[4]: best}}, "space": {"measured": 7}}
            Path(words[-1]).write_text(json.dumps(found))
        return benchmark.wall.Ended(2.0 if "run" in words else 4.0, 500_000_000, "pss")

    return called


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Sets the name of the GPU that ``nvidia-smi`` tells of."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def named(name: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(
            f'#!/bin/sh\ncase "$1" in *compute_cap*) echo 9.0;; *) echo "{name}, 580, 1, 2, 3 W, 40";; esac\n'
        )
        program.chmod(0o700)

    named("NVIDIA H200")
    return named


ONE = ("--only", "vector-add", "--columns", "loop", "auto")


@pytest.fixture
def sitting(
    benchmark: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Any]:
    """Runs the benchmark with processes that choose these numbers; its commands, or its exit code."""

    def called(numbers: dict[str, int], *words: str) -> Any:
        seen: list[list[str]] = []
        monkeypatch.setattr(benchmark.wall, "ended", recorded(benchmark, numbers, seen))
        monkeypatch.setattr(sys, "argv", ["wall", "--out", str(tmp_path / "out.json"), *words])
        try:
            benchmark.wall.main()
        except SystemExit as end:
            return end.code
        return seen

    return called


@pytest.mark.usefixtures("machine")
def test_runs_are_judged_and_merged(
    sitting: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Columns take turns, cold before warm; both timings judge each; a later sitting replaces its likes."""
    seen = sitting({"loop": 1, "auto": 2}, *ONE, "--cold", "2", "--warm", "1")
    told = ["loop" if one[1].endswith("loop.py") else "auto" for one in seen[2:-1]]
    assert told == ["loop", "auto"] * 3
    part = json.loads((tmp_path / "out.json").read_text())["kernels"]["vector-add"]
    rows = {(row["column"], row["cache"]): row for row in part["rows"]}
    assert set(rows) == {(column, cache) for column in ("loop", "auto") for cache in ("cold", "warm")}
    assert rows["loop", "cold"]["efficiency"] == {"back_to_back": [0.5, 0.5], "single": [1.0, 1.0]}
    assert rows["auto", "warm"]["chosen"] == [2]
    assert part["best"]["back_to_back"] == {"configuration": "block_size_x=64 vector=1 loads=1", "ms": 1.0}
    text = capsys.readouterr().out
    assert "median of 1 to 2 runs" in text
    assert "| `vector-add` | 15 | cold | – | – | – | 4.0 s (50.0 / 100.0) | **2.0 s** (33.3 / 100.0)" in text
    assert "- warm: `auto` took 0.50 × the wall of the loop in the median (0.50 to 0.50 ×, 1 kernels)" in text

    sitting({"auto": 0}, "--only", "vector-add", "--columns", "auto", "--warm", "0")
    document = json.loads((tmp_path / "out.json").read_text())
    rows = {(row["column"], row["cache"]): row for row in document["kernels"]["vector-add"]["rows"]}
    assert (len(rows), len(document["provenance"])) == (4, 2)
    assert rows["auto", "cold"]["chosen"] == [0, 0, 0]
    assert [rows["auto", cache]["sitting"] for cache in ("cold", "warm")] == [1, 0]
    assert rows["loop", "cold"]["efficiency"]["back_to_back"] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("gpu", "words", "changed", "message"),
    [
        ("NVIDIA H100", ONE, None, "is of NVIDIA H200, driver 580; this machine has NVIDIA H100, driver 580"),
        ("NVIDIA H200", ONE, ('"digest":"', '"digest":"0'), "has vector-add of another kernel file"),
        (
            "NVIDIA H200",
            ONE,
            ('"kernels"', '"spaces"'),
            "is no result of this benchmark: KeyError: 'kernels'",
        ),
        ("NVIDIA H200", ONE, ("{", "["), "is no result of this benchmark: JSONDecodeError"),
        ("NVIDIA H200", ("--columns", "hybrid_vndx"), None, "kernel_tuner is not installed: pip install"),
    ],
)
def test_results_of_others_are_not_mixed(  # noqa: PLR0917 - fixtures
    sitting: Callable[..., Any],
    machine: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gpu: str,
    words: Sequence[str],
    changed: tuple[str, str] | None,
    message: str,
) -> None:
    """Another GPU, kernel or form of file is refused with exit code 2, and the file stays."""
    monkeypatch.setattr(importlib.util, "find_spec", {"cupy": True}.get)
    out = tmp_path / "out.json"
    assert sitting({"loop": 1, "auto": 2}, *ONE, "--cold", "1", "--warm", "0")
    before = out.read_text().replace(*changed, 1) if changed else out.read_text()
    out.write_text(before)
    machine(gpu)
    assert sitting({"loop": 1, "auto": 2}, *words) == 2
    assert message in capsys.readouterr().err
    assert out.read_text() == before


def test_a_table_goes_into_its_page(
    benchmark: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In its own place, again and again; a failed column is said to have failed."""
    gpu = {"name": "NVIDIA H200", "driver_version": "580"}
    origin = {"gpus": [gpu], "date": "2026-11-29T1", "cpus": "16 x X", "packages": {"kernel_tuner": "1.5.0"}}
    row = {
        "column": "loop",
        "cache": "cold",
        "wall_s": [],
        "chosen": [],
        "peak_mb": [],
        "trouble": "status 1",
    }
    part = {
        "configurations": 15,
        "rows": [row, {**row, "column": "auto", "wall_s": [3.0, 1.0, 2.0], "peak_mb": [5]}],
    }
    result, page = tmp_path / "walls.json", tmp_path / "page.md"
    result.write_text(json.dumps({"provenance": [origin], "kernels": {"triad": part}}))
    page.write_text("# Results\n\n<!-- walls -->\n\n<!-- end of walls -->\n\nText.\n")
    monkeypatch.setattr(sys, "argv", ["wall", "--show", str(result), "--docs", str(page)])
    benchmark.wall.main()
    once = page.read_text()
    benchmark.wall.main()
    assert page.read_text() == once
    assert once.startswith("# Results\n\n<!-- walls -->\n\nNVIDIA H200, ")
    assert once.endswith(" 5 MB |\n\n<!-- end of walls -->\n\nText.\n")
    assert "| `triad` | 15 | cold | – | – | – | failed | **2.0 s** | – | 5 MB |" in once
    page.write_text("# Other\n")
    with pytest.raises(SystemExit) as end:
        benchmark.wall.main()
    assert end.value.code == 2
    assert "has no <!-- walls -->" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--cold", "0"], "--cold is at least 1"),
        (["--docs", "x.md"], "--docs is given with --show"),
        (["--out", "/nowhere/x.json"], "there is no folder /nowhere"),
        (["--only", "sort"], "invalid choice: 'sort'"),
    ],
)
def test_bad_options_are_refused(
    benchmark: SimpleNamespace, capsys: pytest.CaptureFixture[str], given: list[str], message: str
) -> None:
    """The message names the option."""
    with pytest.raises(SystemExit) as end:
        benchmark.wall.parsed(given)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


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
    log = tmp_path / "log"
    bad = benchmark.wall.ended([sys.executable, "-c", "raise SystemExit('no such GPU')"], tmp_path, log)
    assert bad.trouble == "status 1: no such GPU\n"
    told = "import os; print(os.environ['CUPY_CACHE_DIR'])"
    good = benchmark.wall.ended([sys.executable, "-c", told], tmp_path, log)
    assert (good.trouble, log.read_text()) == ("", f"{tmp_path / 'cupy'}\n")
    assert good.wall_s > 0
    assert benchmark.wall.ended([*benchmark.wall.TUNER, "--version"], tmp_path, log).trouble == ""


def test_a_process_that_hangs_is_stopped(
    benchmark: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process beyond its time is ended, and said to have failed."""
    monkeypatch.setattr(benchmark.wall, "TIMEOUT_S", 0.3)
    code = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    log = tmp_path / "log"
    hung = benchmark.wall.ended([sys.executable, "-c", code], tmp_path, log)
    assert hung.trouble.startswith("status -1")
    assert not log.read_text() or not Path("/proc", log.read_text().strip()).exists()


def test_a_run_of_tuner_is_read(
    benchmark: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is a configuration of the task, and its trials are counted."""

    def called(command: Sequence[str | Path], *_: object) -> Any:
        done = tuner(*command[len(benchmark.wall.TUNER) :])
        return benchmark.wall.Ended(1.0, 1, "pss", done.output if done.exit_code else "")

    monkeypatch.setattr(benchmark.wall, "ended", called)
    file = mixed(tmp_path)
    kernel = load_kernel_file(file)
    task = benchmark.wall.task_of(kernel, kernel.workload({}), HOPPER)
    end, found = benchmark.wall.run("exhaustive", task, folder=tmp_path, caches=tmp_path, kernel=file, seed=1)
    assert end.trouble == ""
    assert found["evaluations"] == len(task.configurations)
    assert found["chosen"] in range(len(task.configurations))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["scan", "matmul", "triad"])
@pytest.mark.parametrize("strategy", ["brute_force", "adaptive_tabu_greywolf", "hybrid_vndx"])
def test_kernel_tuner_tunes_the_space(  # noqa: PLR0917 - fixtures
    benchmark: SimpleNamespace,
    cupy: FakeCupy,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    strategy: str,
) -> None:
    """Brute force takes every configuration and knows the fastest; a strategy takes what it may."""
    monkeypatch.setitem(sys.modules, "torch", None)
    kernel_tuner = pytest.importorskip("kernel_tuner")
    _, task = compared(benchmark, name)
    told = as_json(benchmark, task)
    for argument in told["arguments"]:
        argument["shape"] = [1]
    budget = None if strategy == "brute_force" else benchmark.wall.BUDGET
    options = argparse.Namespace(folder=tmp_path, strategy=strategy, budget=budget, seed=1)
    runtime = cupy.cuda.runtime
    runtime.getDeviceProperties = benchmark.child.with_whole_uuid(runtime.getDeviceProperties)
    benchmark.child.allow_shared_memory(importlib.import_module("kernel_tuner.backends.cupy").CupyFunctions)
    arguments = benchmark.neutral.arrays(np, told, tmp_path)
    evaluations, chosen = benchmark.child.tune(kernel_tuner, told, arguments, options)
    every = len(task.configurations)
    assert evaluations == min(budget or every, every)
    if evaluations == every:
        times_ms = [own_ms(benchmark.neutral.text_of(told, number)) for number in range(every)]
        assert chosen == times_ms.index(min(times_ms))
