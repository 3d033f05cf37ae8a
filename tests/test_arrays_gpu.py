"""``tuner.apply`` and ``tuner.plan`` on a real GPU with arrays of PyTorch and of libraries with protocols."""

import re
from typing import Any

import numpy as np
import pytest
from lent_arrays import Borrowed, Interface

import tuner
from tuner.model.errors import InputError

pytestmark = pytest.mark.gpu

DEFAULT: dict[str, Any] = {"configuration": "default"}


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("this PyTorch has no GPU")
    return found


def rows(cp: Any) -> Any:
    return cp.random.default_rng(1).random((512, 1024), dtype=cp.float32)


def test_dlpack(cp: Any) -> None:
    """Arrays with DLPack give arrays of their library, in the order of the stream that is named."""
    held, stream = rows(cp), cp.cuda.Stream(non_blocking=True)
    cp.cuda.runtime.deviceSynchronize()
    wanted = tuner.apply("scan-lf", held, **DEFAULT)
    y = tuner.apply("scan-lf", Borrowed(held), stream=stream, **DEFAULT)
    out = Borrowed(cp.zeros_like(held))
    assert tuner.apply("scan-lf", Borrowed(held), out=out, **DEFAULT) is out
    cp.cuda.runtime.deviceSynchronize()
    assert isinstance(y, Borrowed)
    assert bool((y.held == wanted).all())
    assert bool((out.held == wanted).all())
    plan = tuner.plan("scan-lf", Borrowed(held), **DEFAULT)
    assert bool((plan() == wanted).all())


def test_functions_of_arrays(cp: Any) -> None:
    """Transforms, scans and systems of any axes are CuPy's, and residuals find nothing."""
    x = rows(cp)[:, :999].reshape(8, 64, 999)
    right = cp.fft.fft(x.astype(cp.float64), axis=1, norm="ortho")
    assert float(abs(tuner.fft.fft(x, axis=1, norm="ortho") - right).max()) <= 1e-5
    assert float(abs(tuner.fft.irfft(tuner.fft.rfft(x), n=999) - x).max()) <= 1e-5
    assert float(abs(tuner.fft.fft2(x) - cp.fft.fft2(x.astype(cp.float64))).max()) <= 0.1
    assert float(abs(tuner.scan.cumsum(x, axis=2) - cp.cumsum(x, axis=2, dtype=cp.float64)).max()) <= 1e-2
    heads = x > 0.9
    assert bool((tuner.scan.accumulate(x, "max", heads=heads)[heads] == x[heads]).all())
    solution = tuner.tridiagonal.solve(x, x + 3, x, x, check=True)
    assert solution.shape == x.shape
    a = cp.eye(200, dtype=cp.float32) * 20 + rows(cp)[:200, :200]
    tuner.linalg.solve(a, a[:, :3], check="residual")
    tuner.linalg.cholesky(a + a.T, check="residual")
    tuner.linalg.qr(a, check="residual")


def test_cuda_array_interface(cp: Any) -> None:
    """Arrays with the CUDA array interface give CuPy's, and are not written where they forbid it."""
    held = rows(cp)
    wanted, y = tuner.apply("scan-lf", held, **DEFAULT), cp.zeros_like(held)
    assert bool((tuner.apply("scan-lf", Interface(held), out=y, **DEFAULT) == wanted).all())
    assert bool((tuner.apply("scan-lf", Interface(held), **DEFAULT) == wanted).all())
    with pytest.raises(InputError, match=r"out is a .* that must not be written"):
        tuner.apply("scan-lf", held, out=Interface(y, readonly=True), **DEFAULT)


def test_tensors(cp: Any, torch: Any) -> None:
    """Tensors give tensors with torch's own answers, in several types and kernels."""
    x = torch.rand(512, 1000, device="cuda")
    y = tuner.apply("scan-lf", x, **DEFAULT)
    assert isinstance(y, torch.Tensor)
    assert torch.allclose(y, x.cumsum(1), rtol=1e-5)
    z = torch.randn(64, 1024, dtype=torch.complex64, device="cuda")
    out = torch.empty_like(z)
    assert tuner.apply("fft", z, out=out, **DEFAULT) is out
    assert torch.allclose(out, torch.fft.fft(z), rtol=1e-4, atol=1e-3)
    half = torch.ones(1, 2**14, dtype=torch.bfloat16, device="cuda")
    sums = tuner.apply("scan-long", half, **DEFAULT)
    assert sums.dtype == torch.bfloat16
    exact = torch.arange(1, 2**14 + 1, device="cuda", dtype=torch.float32)
    assert torch.allclose(sums[0].float(), exact, rtol=2**-7)
    assert bool((cp.asarray(y) == tuner.apply("scan-lf", cp.asarray(x), **DEFAULT)).all())


def test_streams_of_torch(torch: Any) -> None:
    """Calls and plans follow torch's work in its current stream, or in the stream that is named."""
    stream = torch.cuda.Stream()
    x = torch.zeros(4096, 1024, device="cuda")
    plan = tuner.plan("scan-lf", x, **DEFAULT)
    torch.cuda.synchronize()
    for number in range(1, 20):
        with torch.cuda.stream(stream):
            x.fill_(number)
            y = tuner.apply("scan-lf", x, **DEFAULT)
            planned = plan().clone()
        named = tuner.apply("scan-lf", x, stream=stream, **DEFAULT)
        stream.synchronize()
        for found in (y, planned, named):
            assert float(found[-1, -1]) == 1024 * number


def test_graphs_of_torch(torch: Any) -> None:
    """A plan with its output, and apply without scratch arrays, can be captured by torch.cuda.graph."""
    x = torch.ones(256, 1024, device="cuda")
    out = torch.zeros_like(x)
    plan = tuner.plan("scan-lf", x, out=out, **DEFAULT)
    tuner.apply("scan-lf", x, **DEFAULT)  # compiled before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan()
        made = tuner.apply("scan-lf", x, **DEFAULT)
    x.fill_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert float(out[-1, -1]) == float(made[-1, -1]) == 2048


def test_tensors_that_cannot_be_used(torch: Any) -> None:
    """Tensors that a kernel cannot be handed are refused with words that name what would be right."""
    x = torch.rand(64, 128, device="cuda")
    z = torch.randn(64, 128, dtype=torch.complex64, device="cuda")
    refused: list[tuple[str, Any, Any, str]] = [
        ("scan-lf", x.cpu(), None, "x is a torch tensor on cpu; it must be on a GPU"),
        ("scan-lf", x[:, ::2], None, "x is not contiguous (strides (512, 8) of shape (64, 64))"),
        ("scan-lf", x.clone().requires_grad_(), None, "x is a torch tensor that requires a gradient"),
        ("scan-lf", x.to_sparse(), None, "x is a torch tensor of layout torch.sparse_coo"),
        ("fft", z.conj(), None, "x is a torch tensor that is conjugated or negated only"),
        ("scan-lf", x[:32], x[16:48], "out overlaps x"),
        ("scan-lf", x, x.double(), "out is float64"),
        ("scan-lf", x.view(-1)[1:65], None, "x begins 4 bytes past a multiple of 16"),
    ]
    before = x.cpu().numpy()
    for kernel, array, out, words in refused:
        with pytest.raises(InputError, match=re.escape(words)):
            tuner.apply(kernel, array, out=out, **DEFAULT)
    assert np.array_equal(x.cpu().numpy(), before)
