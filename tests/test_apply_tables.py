"""Tables that set-up stages make of the sizes: filled once, shared by calls and plans, dropped safely."""

from pathlib import Path

import numpy as np
import pytest
from fake_apply import Bench, fake_bench
from fake_cupy import CUDADriverError, DeviceArray, Kernel

from tuner.application import running
from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.errors import DeviceError, InputError, KernelFileError

WEIGHTED = """
[kernel]
name = "weighted"
source = "k.cu"
[problem]
name = "consistent"
batch = "16"
[problem.sizes]
N = { from = 1, to = 4096 }
[[argument]]
buffer = "x"
dtype = "float32"
shape = ["batch", "N"]
role = "in"
[[argument]]
buffer = "y"
dtype = "float32"
shape = ["batch", "N"]
role = "out"
[[argument]]
buffer = "room"
dtype = "float32"
shape = ["batch", "N"]
role = "scratch"
[[argument]]
buffer = "weights"
dtype = "float32"
shape = ["N if N % 2 else 0"]
role = "table"
[tunables]
P = [1, 2]
[[stage]]
name = "copy"
entry = "copied"
when = "N % 2 == 0"
arguments = ["x", "y", "weights"]
grid = "batch"
block = 32
[[stage]]
name = "run"
entry = "weighted"
when = "N % 2 == 1"
arguments = ["x", "y", "weights"]
grid = "batch"
block = 32
[[stage]]
name = "fill"
entry = "filled"
when = "N % 2 == 1"
setup = true
arguments = ["room", "weights"]
grid = 1
block = 32
[work]
bytes = "8 * N * batch"
operations = "N * batch"
"""


def weighted(x: DeviceArray, y: DeviceArray, weights: DeviceArray) -> None:
    y[...] = x * weights


def copied(x: DeviceArray, y: DeviceArray, weights: int) -> None:
    assert weights == 0  # no memory
    y[...] = x


@pytest.fixture
def fills() -> list[int]:
    """Lengths of the tables that were filled."""
    return []


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fills: list[int]) -> Bench:
    (tmp_path / "weighted.toml").write_text(WEIGHTED)
    made = fake_bench(monkeypatch, tmp_path)

    def filled(room: DeviceArray, weights: DeviceArray) -> None:
        room[0], weights[...] = np.nan, np.arange(weights.size)
        fills.append(weights.size)

    for kernel in (weighted, copied, filled):
        made.cp.kernels[kernel.__name__] = Kernel(kernel, 1e-3)
    return made


def is_right(x: DeviceArray, y: DeviceArray) -> bool:
    return np.array_equal(y, x * np.arange(x.shape[-1]) if x.shape[-1] % 2 else x)


def test_once_for_all_batches(bench: Bench, fills: list[int]) -> None:
    """Calls and plans of one length fill one table, in whatever stream; another length fills its own."""
    arrays = [bench.array(batch, length) for length in (33, 35) for batch in (2, 5, 2)]
    for x in arrays:
        assert is_right(x, bench.apply("weighted", x))
        with bench.cp.cuda.Stream(non_blocking=True):
            assert is_right(x, bench.plan("weighted", x)())
    assert fills == [33, 35]


def test_captures(bench: Bench, fills: list[int]) -> None:
    """A run of a plan is captured without its set-up; a call is refused, as its table could be dropped."""
    x, stream = bench.array(3, 33), bench.cp.cuda.Stream(non_blocking=True)
    plan = bench.plan("weighted", x)
    bench.apply("weighted", x)
    with stream:
        stream.begin_capture()
        y = plan()
        with pytest.raises(InputError, match="this call allocates scratch arrays or tables; make a"):
            bench.apply("weighted", x, out=bench.array(3, 33))
        works = stream.end_capture().works
    assert len(works) == 1
    works[0](stream)
    assert is_right(x, y)
    assert fills == [33]


def test_lengths_without_a_table(bench: Bench, fills: list[int]) -> None:
    """Where the table has no elements nothing is allocated, and a call with ``out`` is captured."""
    x, y, stream = bench.array(3, 32), bench.array(3, 32), bench.cp.cuda.Stream(non_blocking=True)
    bench.apply("weighted", x, out=y)
    before = bench.cp.allocations
    with stream:
        stream.begin_capture()
        bench.apply("weighted", x, out=y)
        assert len(stream.end_capture().works) == 1
    assert bench.cp.allocations == before
    assert is_right(x, bench.plan("weighted", x)())
    assert not fills


def test_what_is_kept(bench: Bench, fills: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a limit the oldest table goes and is filled again when needed; a plan keeps its own."""
    monkeypatch.setattr(running, "KEPT_BYTES", 4 * 100)
    x, other = bench.array(3, 65), bench.array(3, 67)
    for array in (x, other, x, x):
        assert is_right(array, bench.apply("weighted", array))
    assert fills == [65, 67, 65]
    plan = bench.plan("weighted", x)
    bench.apply("weighted", other)
    assert is_right(x, plan())
    bench.apply("weighted", x)
    assert fills == [65, 67, 65, 67]


def test_no_table(bench: Bench) -> None:
    """Where the table does not fit or cannot be filled, the error is one of this package."""
    x = bench.array(3, 35)
    y = bench.array(3, 35)
    bench.cp.memory_bytes = bench.cp.allocated_bytes + 500
    with pytest.raises(DeviceError, match="weighted: output and scratch arrays do not fit"):
        bench.apply("weighted", x, out=y)
    bench.cp.memory_bytes = 2**30

    def refuse(*_: object) -> None:
        raise CUDADriverError("CUDA_ERROR_ASSERT")

    bench.cp.kernels["filled"] = Kernel(refuse, 1e-3)
    with pytest.raises(DeviceError, match="weighted: the GPU refuses to fill its tables: CUDA_ERROR_ASSERT"):
        bench.apply("weighted", x)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('["room", "weights"]', '["x", "weights"]', "the set-up stage 'fill' takes x; beside a table"),
        ("setup = true", "", "role = 'table': no stage with setup = true takes it, to fill it"),
    ],
)
def test_what_is_no_table(tmp_path: Path, before: str, after: str, words: str) -> None:
    """A table of the inputs, or one that nothing fills, is refused."""
    (tmp_path / "k.cu").write_text("")
    (tmp_path / "weighted.toml").write_text(WEIGHTED.replace(before, after))
    file = load_kernel_file(tmp_path / "weighted.toml")
    with pytest.raises(KernelFileError, match=words.replace("(", r"\(")):
        file.plan(workload := file.workload({"N": 33}, 2), file.default(workload))
