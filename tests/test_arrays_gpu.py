"""``tuner.apply`` and ``tuner.plan`` on a real GPU: arrays of others, rows apart, in place, in captures."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

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


class Case(NamedTuple):
    """A kernel at a length of rows, the type of its arrays, its sizes, and which input may be replaced."""

    kernel: str
    length: int
    dtype: str
    replaced: int
    arrays: int = 1
    sizes: tuple[tuple[str, Any], ...] = ()


CASES = (
    Case("scan-lf", 1000, "int32", 0),
    Case("scan-ks", 250, "int32", 0, sizes=(("form", "exclusive"),)),
    Case("scan-long", 300_001, "int32", 0, sizes=(("direction", "reverse"),)),
    Case("scan-long", 2**18, "int32", 0),
    Case("linear-recurrence", 40_000, "float64", 1, 2, (("form", "exclusive"),)),
    Case("fft", 1024, "complex64", 0),
    *(Case(f"tridiag-{method}", 500, "float32", 3, 4) for method in ("cr", "lf", "pcr", "wm")),
)


def inputs_of(cp: Any, case: Case, batch: int) -> list[Any]:
    """Whole numbers, whose sums are exact; systems of equations are dominant."""
    cp.random.seed(1)
    made = [cp.random.randint(-1, 2, (batch, case.length)).astype(case.dtype) for _ in range(case.arrays)]
    if case.kernel.startswith("tridiag"):
        made[1] += 5
    elif case.kernel == "linear-recurrence":
        made[0] = cp.where(made[0] > 0, 1, -1).astype(case.dtype)
    return made


def apart(cp: Any, array: Any, gap: int) -> Any:
    """A copy whose rows are followed by a gap that holds -1."""
    wide = cp.full((len(array), array.shape[1] + gap), -1, array.dtype)
    wide[:, : array.shape[1]] = array
    return wide[:, : array.shape[1]]


def alike(found: Any, right: Any) -> bool:
    """To the last bit for whole numbers, else to rounding."""
    if right.dtype.kind == "i":
        return bool((found == right).all())
    return float(abs(found - right).max()) <= 2e-6 * float(abs(right).max())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kernel} {case.length}")
def test_rows_apart_and_in_place(cp: Any, case: Case) -> None:
    """Views of wider arrays give the answer of contiguous ones, in place too, and gaps stay as they are."""
    given, sizes = inputs_of(cp, case, 8), dict(case.sizes)
    right = tuner.apply(case.kernel, *given, **sizes)
    for gap in (3, 4, 64):
        views = [apart(cp, array, gap + 8 * number) for number, array in enumerate(given)]
        out = apart(cp, cp.zeros_like(right), gap)
        assert alike(tuner.apply(case.kernel, *views, **sizes), right)
        assert tuner.apply(case.kernel, *views, out=out, **sizes) is out
        assert alike(out, right)
        assert bool((out.base[:, case.length :] == -1).all())
        place = views[case.replaced]
        assert tuner.apply(case.kernel, *views, out=place, **sizes) is place
        assert alike(place, right)
        assert bool((place.base[:, case.length :] == -1).all())
    copies = [array.copy() for array in given]
    plan = tuner.plan(case.kernel, *copies, out=copies[case.replaced], **sizes)
    assert alike(plan(), right)


def test_frames_of_a_signal(cp: Any) -> None:
    """Frames that overlap, as of a short-time transform, are transformed without a copy of them."""
    signal = (cp.random.rand(4096) + 1j * cp.random.rand(4096)).astype(cp.complex64)
    frames = cp.lib.stride_tricks.as_strided(signal, (15, 512), (256 * 8, 8))
    assert alike(tuner.apply("fft", frames), cp.fft.fft(cp.ascontiguousarray(frames)))


def test_captures(cp: Any) -> None:
    """A capture takes a plan and a call with its output; what would allocate is refused, and harmless."""
    x, y = cp.ones((64, 1024), cp.float32), cp.zeros((64, 1024), cp.float32)
    wide = cp.ones((64, 1100), cp.float32)
    view = wide[:, :1024]
    plan = tuner.plan("scan-lf", view, out=view)
    tuner.apply("scan-lf", x, out=y)
    stream = cp.cuda.Stream(non_blocking=True)
    refused: list[Callable[[], Any]] = [
        lambda: tuner.apply("scan-lf", x),
        lambda: tuner.apply("scan-ks", x, out=y),
        lambda: tuner.plan("scan-lf", x),
    ]
    with stream:
        stream.begin_capture()
        for call in refused:
            with pytest.raises(InputError, match="its stream is being captured into a CUDA graph"):
                call()
        tuner.apply("scan-lf", x, out=y)
        plan()
        graph = stream.end_capture()
    x.fill(2)
    cp.cuda.get_current_stream().synchronize()  # a non-blocking stream does not wait for it
    graph.launch(stream)
    stream.synchronize()
    assert (float(y[-1, -1]), float(view[-1, -1]), float(wide[-1, -1])) == (2048, 1024, 1)


def test_tensors_apart_in_graphs() -> None:
    """Views of a torch tensor run in its stream, in place, and in its graphs."""
    torch = pytest.importorskip("torch")
    wide = torch.ones(64, 1100, device="cuda")
    view = wide[:, :1024]
    assert float(tuner.apply("scan-lf", view)[-1, -1]) == 1024
    plan = tuner.plan("scan-lf", view, out=view)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan()
    graph.replay()
    torch.cuda.synchronize()
    assert (float(view[-1, -1]), float(wide[-1, -1])) == (1024, 1)
