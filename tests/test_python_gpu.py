"""``tuner.tune`` and ``tuner.judge`` on a GPU: arrays of the caller, references, several kernels, streams."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from python_kernels import VADD, arrays, vadd

import tuner
from tuner import Kernel, tune

pytestmark = pytest.mark.gpu
OPTIONS: dict[str, Any] = {"device": "cuda:0", "progress": False}


def test_a_kernel_on_arrays_is_tuned_and_checked(tmp_path: Path) -> None:
    """Every configuration gives the right sums."""
    result = tune(vadd(reference=lambda a, b: a + b), database=tmp_path / "db", **OPTIONS)

    assert {row.status for row in result.trials} == {"ok"}
    assert not result.modelled
    assert result.time_s is not None
    assert 0 < result.time_s < 1e-3


def test_arrays_of_cupy_are_taken(cp: Any, tmp_path: Path) -> None:
    """Arrays may lie on the GPU."""
    given = {
        name: cp.asarray(value) if isinstance(value, np.ndarray) else value
        for name, value in arrays().items()
    }
    result = tune(vadd(arguments=given, reference="a + b"), database=tmp_path / "db", **OPTIONS)

    assert {row.status for row in result.trials} == {"ok"}


def test_a_wrong_kernel_has_no_answer(tmp_path: Path) -> None:
    """What differs from the reference is a wrong answer, and never the best."""
    result = tune(vadd(reference=lambda a, b: a - b), database=tmp_path / "db", **OPTIONS)

    assert {row.status for row in result.trials} == {"wrong-answer"}
    assert result.document["best"] is None


def test_arrays_that_are_changed_in_place_begin_with_what_was_given(tmp_path: Path) -> None:
    """Without ``outputs`` an array is read and written; the reference holds for one run."""
    source = VADD.replace("c[i] = a[i]", "c[i] += a[i]")
    given = arrays() | {"c": np.ones_like(arrays()["a"])}
    kernel = vadd(source=source, arguments=given, outputs=None, reference=lambda a, b, c: a + b + c)
    result = tune(kernel, database=tmp_path / "db", **OPTIONS)

    assert {row.status for row in result.trials} == {"ok"}


def test_constant_memory_and_restrictions(tmp_path: Path) -> None:
    """``__constant__`` arrays are filled; functions restrict the space."""
    source = """
    __constant__ float weights[3];
    __global__ void blend(float* y, const float* x, int n) {
        int i = blockIdx.x * block_size_x + threadIdx.x;
        if (i < n - 2) y[i] = weights[0] * x[i] + weights[1] * x[i + 1] + weights[2] * x[i + 2];
        else if (i < n) y[i] = 0;
    }"""
    w = np.array([0.25, 0.5, 0.25], np.float32)
    x = np.random.default_rng(2).random(10_000, dtype=np.float32)
    wanted = np.zeros_like(x)
    wanted[:-2] = w[0] * x[:-2] + w[1] * x[1:-1] + w[2] * x[2:]
    kernel = Kernel(
        source,
        arguments=[np.empty_like(x), x, len(x)],
        outputs=["y"],
        grid=lambda p: -(-p["n"] // p["block_size_x"]),
        symbols={"weights": w},
        reference=wanted,
        tolerance=1e-5,
    )
    result = tune(
        kernel,
        {"block_size_x": [32, 64, 128, 256]},
        restrictions=lambda p: p["block_size_x"] > 32,
        database=tmp_path / "db",
        **OPTIONS,
    )

    assert {row.status for row in result.trials} == {"ok"}
    assert len(result.trials) == 3


def test_kernels_run_together(tmp_path: Path) -> None:
    """Beside one of the catalogue, with joules."""
    result = tune(
        [vadd(reference="a + b"), "scan-lf:N=1024"],
        objective="energy",
        budget=4,
        database=tmp_path / "db",
        **OPTIONS,
    )

    assert set(result.configurations) == {"vadd:n=4096", "scan-lf:N=1024"}
    assert result.energy_j is not None
    assert result.energy_uncertainty_j is not None


def test_structs_templates_and_the_gpu_of_the_arrays(cp: Any, tmp_path: Path) -> None:
    """A structured scalar, template parameters filled in by name, and no device named."""
    source = """
    struct Params { int n; double factor; bool negative; };
    template <int block_size_x, typename T>
    __global__ void scale(T* y, const float2* x, Params p) {
        int i = blockIdx.x * block_size_x + threadIdx.x;
        if (i < p.n) y[i] = (p.negative ? -1 : 1) * x[i].x * (T)p.factor;
    }"""
    params = np.array(
        (4096, 2.5, True), np.dtype([("n", "i4"), ("factor", "f8"), ("negative", "?")], align=True)
    )
    x = np.random.default_rng(3).random((4096, 2), dtype=np.float32)
    kernel = Kernel(
        source,
        arguments=[cp.zeros(4096, cp.float32), cp.asarray(x), params],
        outputs=["y"],
        grid="ceil_div(4096, block_size_x)",
        reference=lambda x, p: -x[:, 0] * p["factor"],
    )
    tunables: dict[str, list[Any]] = {"block_size_x": [64, 128], "T": ["float"]}
    result = tune(kernel, tunables, progress=False, database=tmp_path / "db")

    assert kernel.gpu == 0
    assert not result.modelled
    assert {row.status for row in result.trials} == {"ok"}


def test_answers_are_judged_by_a_law(tmp_path: Path) -> None:
    """A function in a file takes inputs and outputs by name."""
    law = tmp_path / "laws.py"
    law.write_text("def residual(a, b, c, n, batch):\n    return abs(a + b - c).max()\n")
    check = f"{law}:residual"
    result = tune(vadd(check=check, tolerance=1e-6), database=tmp_path / "db", **OPTIONS)
    wrong = vadd(source=VADD.replace("a[i] + b[i]", "a[i] - b[i]"), check=check, tolerance=1e-6)

    assert {row.status for row in result.trials} == {"ok"}
    trials = tune(wrong, database=tmp_path / "other", **OPTIONS).trials
    assert {row.status for row in trials} == {"wrong-answer"}


INPUTS = """
sizes = [2048, 300]
def inputs(rng, n):
    return xp.FLOATS(n, 1024), xp.FLOATS(1024, 2048)
def reference(a, b):
    return xp.tanh(a @ b)
"""
HEADS = {
    "torch": "import torch, torch as xp\nxp.FLOATS = lambda *n: torch.rand(*n, device='cuda') - 0.5\n"
    "side = torch.cuda.Stream()\n",
    "cupy": "import cupy as xp\nxp.FLOATS = lambda *n: xp.random.random(n, dtype='f4') - xp.float32(0.5)\n"
    "side = xp.cuda.Stream(non_blocking=True)\n",
}
CASES = {
    "torch (a, b): return torch.tanh(a.matmul(b))": "right",
    "torch (a, b): return (a @ b).tanh_()": "right",
    "torch (a, b):\n now = torch.cuda.current_stream(); side.wait_stream(now)\n"
    " with torch.cuda.stream(side): y = (a @ b).tanh()\n"
    " now.wait_stream(side); y.record_stream(now); return y": "right",
    "torch (a, b):\n with torch.cuda.stream(side): return torch.tanh(a @ b)": "wrong",
    "torch (a, b): return kept.setdefault(a.data_ptr(), torch.tanh(a @ b)) | kept = {}": "cheats",
    "torch (a, b): torch.cuda.synchronize = lambda *_: None; return torch.tanh(a @ b)": "cheats",
    "torch (a, b): torch.cuda.Event.elapsed_time = lambda *_: 1e-3; return torch.tanh(a @ b)": "cheats",
    "torch (a, b): return torch.tanh((a.half() @ b.half()).float())": "wrong",
    "torch (a, b): return torch.empty(len(a), 2048, device='cuda')": "wrong",
    "torch (a, b): y = torch.empty(len(a), 2048, device='cuda'); y[1:] = (a[1:] @ b).tanh(); return y": "w",
    "cupy (a, b): y = a @ b; xp.tanh(y, out=y); return y": "right",
    "cupy (a, b):\n side.use(); side.synchronize()\n try: return xp.tanh(a @ b)\n"
    " finally: xp.cuda.Stream.null.use()": "wrong",
    "cupy (a, b): xp.cuda.get_elapsed_time = lambda *_: 1e-3; return xp.tanh(a @ b)": "cheats",
}  # fmt: skip


@pytest.mark.usefixtures("cp")
@pytest.mark.parametrize("case", CASES)
def test_candidates_on_a_gpu(case: str, tmp_path: Path) -> None:
    """Streams that are waited for are honest; others come too late, and no patched timer counts."""
    library, _, text = case.partition(" ")
    candidate, _, above = text.partition(" | ")
    pytest.importorskip(library)
    file = tmp_path / "judged.py"
    file.write_text(f"{HEADS[library]}{INPUTS}{above}\ndef candidate{candidate}\n")

    judgement = tuner.judge(f"{file}:candidate", f"{file}:reference", inputs=f"{file}:inputs", seconds=12.0)

    assert judgement.verdict.startswith(CASES[case]), judgement
    if judgement.verdict == "right":
        assert judgement.time is not None
        assert judgement.time.value > 0
        assert judgement.energy is not None, judgement.notes
        assert judgement.candidate_j is not None
        assert judgement.candidate_j > 0
