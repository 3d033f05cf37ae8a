"""``tuner.apply`` of chains, and ``tuner.apply`` and ``tuner.plan`` while their stream is captured."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_samples import LU, STENCIL
from fake_apply import Bench, FakeCompiler, fake_bench
from fake_cupy import DeviceArray, Kernel
from fake_linalg_large import HostLibraries
from fake_torch import DlpackArray, FakeTorch, InterfaceArray, TorchStream, fake_torch

from tuner.model.errors import DeviceError, InputError


@pytest.fixture
def torch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    return fake_torch(monkeypatch, bench.cp)


@contextmanager
def captured(bench: Bench) -> Iterator[list[Any]]:
    """A capture of CuPy's current stream; what it took is listed afterwards."""
    stream = bench.cp.cuda.Stream(non_blocking=True)
    works: list[Any] = []
    with stream:
        stream.begin_capture()
        yield works
        works += stream.end_capture().works


def test_a_call_with_outputs_is_captured(bench: Bench) -> None:
    """A later call that is given its outputs, of a kernel without scratch arrays, allocates nothing."""
    given = bench.array(3, 16), bench.array(8), bench.array(3, 8)
    outs = bench.array(3, 8), bench.array(3, 8)
    bench.apply("blend", *given, out=outs, N=8)
    allocations, compiled = bench.cp.allocations, len(FakeCompiler.compiled)
    with captured(bench) as works:
        bench.apply("blend", *given, out=outs, N=8)
    assert len(works) == 1
    assert (bench.cp.allocations, len(FakeCompiler.compiled)) == (allocations, compiled)


def made_before(call: Callable[[], Any]) -> Callable[[], Any]:
    call()
    return call


def blended(bench: Bench) -> Any:
    return bench.apply("blend", bench.array(3, 16), bench.array(8), bench.array(3, 8), N=8)


def planned_for_shapes(bench: Bench) -> Callable[[], Any]:
    plan, x = bench.plan("sums", (3, 64)), bench.array(3, 64)
    return lambda: plan(x)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda b: lambda: b.apply("sums", b.array(3, 64)), "the first call for these arrays compiles the"),
        (lambda b: lambda: b.plan("sums", b.array(3, 64)), "the first call for these arrays compiles the"),
        (lambda b: made_before(lambda: b.plan("sums", b.array(3, 64))), "a plan allocates memory and loads"),
        (lambda b: made_before(lambda: b.apply("sums", b.array(3, 64))), "this call allocates scratch"),
        (lambda b: made_before(lambda: blended(b)), "this call allocates its output; give out"),
        (planned_for_shapes, "the plan allocates its output; give out, or call it once before the"),
        (
            lambda b: made_before(lambda: b.apply("sums", InterfaceArray(b.array(3, 64)))),
            "it waits for the stream of an array; bind",
        ),
    ],
)
def test_what_a_capture_cannot_take(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, make: Callable[[Bench], Callable[[], Any]], words: str
) -> None:
    """What would compile, allocate or wait in a capture is refused before anything is put into it."""
    monkeypatch.setattr(bench.cp, "asarray", lambda value: value.held)
    call = make(bench)
    with captured(bench) as works, pytest.raises(InputError, match=re.escape(words)):
        call()
    assert works == []
    call()


def test_named_streams_that_are_captured(bench: Bench) -> None:
    """The stream that a call names counts, whatever the current one is."""
    x, y = bench.array(3, 64), bench.array(3, 64)
    stream = bench.cp.cuda.Stream(non_blocking=True)
    plan = bench.plan("sums", (3, 64))
    stream.begin_capture()
    calls: list[Callable[[], Any]] = [
        lambda: bench.apply("sums", x, stream=stream),
        lambda: plan(x, stream=stream),
    ]
    for call in calls:
        with pytest.raises(InputError, match="its stream is being captured into a CUDA graph"):
            call()
    assert plan(x, out=y, stream=stream) is y
    assert len(stream.end_capture().works) == 2  # zeros for scratch, and the kernel


def test_captures_of_torch(bench: Bench, torch: FakeTorch) -> None:
    """A capture of PyTorch's current stream is seen, and outputs are then of its memory of the capture."""
    x = torch.tensor(3, 64)
    inputs = torch.tensor(3, 16), torch.tensor(8), torch.tensor(3, 8)
    bench.apply("blend", *inputs, N=8)
    stream = bench.cp.cuda.Stream(non_blocking=True)
    stream.begin_capture()
    with TorchStream(torch, stream.ptr):
        for call in (lambda: bench.apply("sums", x), lambda: bench.plan("sums", x)):
            with pytest.raises(InputError, match="the first call for these arrays compiles the"):
                call()
        bench.apply("blend", *inputs, N=8)
    assert len(stream.end_capture().works) == 1
    assert torch.made_in[-1] == stream.ptr
    assert np.array_equal(bench.apply("sums", x).held, np.cumsum(x.held, axis=1))


def test_default_stream_beside_a_capture(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CUDA refuses to tell of a stream, the call is refused by the device."""

    def refuse(_: int) -> bool:
        raise bench.cp.cuda.runtime.CUDARuntimeError("cudaErrorStreamCaptureImplicit")

    monkeypatch.setattr(bench.cp.cuda.runtime, "streamIsCapturing", refuse)
    with pytest.raises(DeviceError, match="refuses a call beside a capture: cudaErrorStreamCaptureImplicit"):
        bench.apply("sums", bench.array(3, 64))


def test_captures_beside_the_call(bench: Bench, torch: FakeTorch) -> None:
    """While PyTorch captures, a call in CuPy's stream that would compile or allocate is refused, too."""
    stream = bench.cp.cuda.Stream(non_blocking=True)
    stream.begin_capture()
    with TorchStream(torch, stream.ptr):
        for words in ("compiles the kernel", "allocates scratch arrays"):
            with pytest.raises(InputError, match=words):
                bench.apply("sums", bench.array(3, 64))
            torch.streams.append(TorchStream(torch, 0))
            bench.apply("sums", bench.array(3, 64))
            torch.streams.pop()
    assert stream.end_capture().works == []


def test_arrays_of_cupy_in_captures_of_torch(bench: Bench, torch: FakeTorch) -> None:
    """What is captured waits for no stream beside it, and a capture by CuPy alone is left as it is."""
    arrays = torch.tensor(3, 16), bench.array(8), bench.array(3, 8)
    bench.apply("blend", *arrays, N=8)
    stream, other = (bench.cp.cuda.Stream(non_blocking=True) for _ in range(2))
    stream.begin_capture()
    with TorchStream(torch, stream.ptr), other:
        bench.apply("blend", *arrays, N=8)
    assert len(stream.end_capture().works) == 1
    other.begin_capture()
    with other, pytest.raises(InputError, match="it waits for the stream of an array"):
        bench.apply("blend", *arrays, N=8)
    assert other.end_capture().works == []


def test_dlpack_in_captures(bench: Bench) -> None:
    """The owner of an array of DLPack would have the capture wait: the call is refused before it is asked."""
    x = DlpackArray(bench.array(3, 64))
    with captured(bench) as works, pytest.raises(InputError, match="it waits for the stream of an array"):
        bench.apply("sums", x)
    assert (works, x.taken_in) == ([], None)


# --- Kernels that are chains, applied to arrays: every step in order, in one stream, on the caller's arrays.


def stencil(u: DeviceArray, v: DeviceArray, _: int, step: int) -> None:
    v[...] = 2 * u + step


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_steps_with_swapped_arrays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: int) -> None:
    """The output holds what the last step wrote; the array in between is scratch memory of the call."""
    (tmp_path / "chain.cu").write_text("")
    (tmp_path / "stencil.toml").write_text(STENCIL)
    bench = fake_bench(monkeypatch, tmp_path)
    bench.cp.kernels["stencil"] = Kernel(stencil, 1e-3)
    u = bench.array(1, 64)
    right = np.array(u)
    for step in range(steps):
        right = 2 * right + step
    before = np.array(u)
    for _ in range(4):  # the later ones are graphs
        found = bench.apply("stencil-steps", u, S=steps, configuration="default")
        np.testing.assert_array_equal(found, right)
    np.testing.assert_array_equal(u, before)


def panel(part: DeviceArray, n: int, below: int, columns: int) -> None:
    """Factors a block of columns of a column-major matrix, from its diagonal on."""
    block = np.lib.stride_tricks.as_strided(part, (below, columns), (part.itemsize, n * part.itemsize))
    for k in range(columns):
        block[k + 1 :, k] /= block[k, k]
        block[k + 1 :, k + 1 :] -= np.outer(block[k + 1 :, k], block[k, k + 1 :])


@pytest.mark.parametrize("beside", [0, 1])
def test_stages_of_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beside: int) -> None:
    """They run in their order and streams, one by one and, of a plan, as a graph."""
    (tmp_path / "chain.cu").write_text("")
    (tmp_path / "lu.toml").write_text(LU)
    monkeypatch.setattr("tuner.devices.cuda.code.GpuLibraries", HostLibraries)
    bench = fake_bench(monkeypatch, tmp_path)
    bench.cp.kernels["panel"] = Kernel(panel, 1e-3)
    given = np.random.default_rng(1).uniform(-1, 1, (1, 64, 64)).astype("float32") + 64 * np.eye(64)
    A = bench.array(1, 64, 64)
    chosen = {"B": 16, "by": "library", "beside": beside}
    plan = bench.plan("lu-steps", A, configuration=chosen)
    for planned in (False, True):
        A[...] = given
        if planned:
            plan()
        else:
            bench.apply("lu-steps", A, configuration=chosen)
        lower, upper = np.tril(A[0].T, -1) + np.eye(64), np.triu(A[0].T)
        np.testing.assert_allclose(lower @ upper, given[0].T, rtol=1e-5, atol=1e-4)
    assert bench.cp.replays == 1
