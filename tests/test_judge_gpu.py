"""``tuner.judge`` on a GPU: streams, PyTorch's and CuPy's arrays, joules."""

from pathlib import Path

import pytest

import tuner

pytestmark = pytest.mark.gpu

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
