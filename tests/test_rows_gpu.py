"""``tuner.apply`` and ``tuner.plan`` on a real GPU: rows that lie apart, in place, and in captures."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import tuner
from tuner.model.errors import InputError

pytestmark = pytest.mark.gpu


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
