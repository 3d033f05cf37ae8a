"""``tuner.apply`` and ``tuner.plan`` on arrays of PyTorch and of libraries with protocols."""

import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_apply import SUMS, Bench, fake_bench
from fake_cupy import DeviceArray
from fake_torch import DlpackArray, FakeTorch, InterfaceArray, Tensor, TorchStream, fake_torch

from tuner.application.calls import Application
from tuner.application.running import LoadedKernel
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import DeviceError, InputError


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    made = fake_bench(monkeypatch, tmp_path)
    (tmp_path / "halves.toml").write_text(
        SUMS.replace('"sums"', '"halves"').replace('"float32", "float64", "int32"', '"float16", "bfloat16"')
    )
    made.catalog = Catalog.load(search_path=[tmp_path])
    made.application = Application(made.catalog, made.database)

    def taken(value: Any) -> DeviceArray:
        owner = getattr(value, "owner", value)  # of what is written
        if made.cp.current:
            owner.taken_in = made.cp.current[-1]
        held: DeviceArray = owner.held
        return held

    monkeypatch.setattr(made.cp, "from_dlpack", taken, raising=False)
    monkeypatch.setattr(made.cp, "asarray", taken)
    return made


@pytest.fixture
def torch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    return fake_torch(monkeypatch, bench.cp)


def sums(x: Any) -> Any:
    return np.cumsum(x, axis=-1)


# --- PyTorch --------------------------------------------------------------------------------------


def test_tensors_give_tensors(bench: Bench, torch: FakeTorch) -> None:
    """A tensor gives a tensor that PyTorch allocated, and an output that is given is what is returned."""
    for shape in ((3, 64), (64,)):
        x, y = torch.tensor(*shape), torch.tensor(*shape)
        made = bench.apply("sums", x)
        assert isinstance(made, Tensor)
        assert torch.made_in == [0]
        assert np.array_equal(made.held, sums(x.held))
        assert bench.apply("sums", x, out=y) is y
        assert np.array_equal(y.held, sums(x.held))
    assert torch.made_in == [0]


def test_tensors_beside_cupy(bench: Bench, torch: FakeTorch) -> None:
    """One tensor among CuPy's arrays makes it PyTorch's call; arrays given are returned as they are."""
    a, weights, total = bench.array(3, 16), torch.tensor(8), bench.array(3, 8)
    results = bench.apply("blend", a, weights, total, N=8)
    assert results[0] is total
    assert [type(one) for one in results[1:]] == [Tensor, Tensor]
    x, y = bench.array(3, 64), torch.tensor(3, 64)
    assert bench.apply("sums", x, out=y) is y
    assert bench.apply("sums", y, out=x) is x


def test_streams_of_both_libraries(bench: Bench, torch: FakeTorch) -> None:
    """Arrays of CuPy beside tensors are ready for PyTorch's stream, and CuPy's goes on behind the call."""
    ours, theirs = (bench.cp.cuda.Stream(non_blocking=True) for _ in range(2))
    tensor, weights = torch.tensor(3, 16), bench.array(8)
    plan = bench.plan("blend", tensor, weights, bench.array(3, 8), N=8)
    calls: list[Callable[[DeviceArray], Any]] = [
        lambda total: bench.apply("blend", tensor, weights, total, N=8),
        lambda total: plan(tensor, weights, total),
    ]
    for call in calls:
        total = bench.array(3, 8)
        ours.late.append(partial(total.fill, 100))
        with ours, TorchStream(torch, theirs.ptr):
            assert call(total)[0] is total
        left, right = np.split(tensor.held, 2, axis=-1)
        assert np.array_equal(total, 100 + weights * (left + right))
        assert ours.ready_s >= theirs.ready_s > 0
        ours.ready_s = 0.0


def test_current_stream_of_torch(bench: Bench, torch: FakeTorch) -> None:
    """The kernel runs in PyTorch's current stream, or in the named one, and memory is of that stream."""
    x, kernel = torch.tensor(3, 64), bench.cp.kernels["sums"]
    current, named, third = (bench.cp.cuda.Stream(non_blocking=True) for _ in range(3))
    with TorchStream(torch, current.ptr):
        bench.apply("sums", x)
        assert kernel.streams == {current}
        bench.apply("sums", x, stream=TorchStream(torch, named.ptr))
        assert kernel.streams == {current, named}
        plan = bench.plan("sums", x)
        bench.apply("sums", x, stream=third)
    assert kernel.streams == {current, named, third}
    assert torch.made_in == [current.ptr, named.ptr, current.ptr, third.ptr]
    plan()
    assert kernel.streams == {current, named, third, bench.cp.legacy}
    bench.apply("sums", x, stream=bench.cp.legacy)
    assert torch.made_in[-1] == 0


def test_bfloat16(bench: Bench, torch: FakeTorch) -> None:
    """PyTorch's bfloat16 is the kernel's, whether the type is stated or not, and so are the results."""
    x = torch.tensor(3, 64, dtype="bfloat16")
    for sizes in ({}, {"dtype": "bfloat16"}):
        y = bench.apply("halves", x, **sizes)
        assert (str(y.dtype), y.held.dtype) == ("torch.bfloat16", np.dtype("uint16"))
    assert str(bench.plan("halves", x).out.dtype) == "torch.bfloat16"
    bits = bench.apply("halves", bench.array(3, 64, dtype="uint16"), dtype="bfloat16")
    assert bits.dtype == np.dtype("uint16")
    with pytest.raises(InputError, match="x has dtype bfloat16; it must be float16"):
        bench.apply("halves", x, dtype="float16")


def test_gpu_of_tensors(bench: Bench, torch: FakeTorch) -> None:
    """The GPU that holds the tensors runs the kernel and holds the output; the current one stays."""
    with bench.cp.cuda.Device(1):
        x = torch.tensor(3, 64, device=1)
    assert bench.apply("sums", x).held.gpu == 1
    assert bench.cp.gpu == 0


def test_plans_of_tensors(bench: Bench, torch: FakeTorch) -> None:
    """A plan for tensors allocates its output by PyTorch, and runs on others and on its own again."""
    x, other, y = (torch.tensor(3, 64) for _ in range(3))
    other.held[...] += 1
    plan = bench.plan("sums", x)
    assert plan() is plan.out
    assert np.array_equal(plan.out.held, sums(x.held))
    assert plan(out=y) is y
    assert plan(other) is plan.out
    assert np.array_equal(plan.out.held, sums(other.held))
    assert bench.plan("sums", x, out=y)() is y
    shaped = bench.plan("sums", (3, 64))
    assert shaped(x) is shaped.out is shaped(other)
    assert isinstance(shaped.out, Tensor)
    assert np.array_equal(shaped(bench.array(3, 64)), sums(x.held))
    assert torch.made_in == [0, 0]


def test_scratch_of_plans_for_tensors(
    bench: Bench, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scratch arrays of a plan are of PyTorch's current stream, in which its runs will be."""
    stream, allocated = bench.cp.cuda.Stream(non_blocking=True), LoadedKernel.allocated
    x, current = torch.tensor(3, 64), []

    def seen(self: LoadedKernel, *arguments: Any) -> Any:
        current.append(bench.cp.current[-1])
        return allocated(self, *arguments)

    monkeypatch.setattr(LoadedKernel, "allocated", seen)
    with TorchStream(torch, stream.ptr):
        bench.plan("sums", x)
        bench.apply("sums", x)
    assert current == [stream, stream]


def test_runs_of_plans_allocate_nothing(bench: Bench, torch: FakeTorch) -> None:
    """In a capture a bound plan launches its stages: it allocates nothing, and makes no graph of its own."""
    x, y = torch.tensor(3, 64), torch.tensor(3, 64)
    plan, stream = bench.plan("sums", x, out=y), bench.cp.cuda.Stream(non_blocking=True)
    allocations = bench.cp.allocations
    stream.begin_capture()
    with TorchStream(torch, stream.ptr):
        for _ in range(3):
            assert plan() is y
    works = stream.end_capture().works
    assert (len(works), bench.cp.allocations, bench.cp.replays) == (6, allocations, 0)


def test_tensors_live_while_they_are_bound(bench: Bench, torch: FakeTorch) -> None:
    """A plan holds the tensors it is bound to."""
    plan = bench.plan("sums", torch.tensor(3, 64))
    assert np.array_equal(plan().held, sums(np.arange(192).reshape(3, 64) % 7))


def test_chosen_of_tensors(bench: Bench, torch: FakeTorch) -> None:
    """What apply takes for tensors is what it takes for CuPy's arrays."""
    assert bench.chosen("sums", torch.tensor(3, 64)) == bench.chosen("sums", bench.array(3, 64))


def changed(tensor: Tensor, **values: Any) -> Tensor:
    for name, value in values.items():
        setattr(tensor, name, value)
    return tensor


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda t, x: changed(x, device=t.device("cpu")), "is a torch tensor on cpu; it must be on a GPU"),
        (
            lambda _, x: changed(x, requires_grad=True),
            "is a torch tensor that requires a gradient, which kernels do not",
        ),
        (lambda t, x: changed(x, layout=t.sparse_csr), "is a torch tensor of layout torch.sparse_csr"),
        (lambda _, x: changed(x, conjugated=True), "is a torch tensor that is conjugated or negated only"),
        (
            lambda t, x: t.of(x.held[:, ::2]),
            "is not contiguous (strides (256, 8) of shape (3, 32)); cupy.ascontiguousarray copies it to one",
        ),
        (lambda t, x: changed(x, dtype=t.float8_e4m3fn), "cannot be read as an array on a GPU: data type"),
        (
            lambda t, x: changed(x, dtype=t.complex32),
            "cannot be read as an array on a GPU: no kernel takes complex32; its to(torch.complex64)",
        ),
        (lambda t, x: t.of(x.held.reshape(-1)[1:65]), "begins 4 bytes past a multiple of 16; a copy of it"),
    ],
)
def test_tensors_that_cannot_be_used(
    bench: Bench, torch: FakeTorch, spoil: Callable[[FakeTorch, Tensor], Tensor], words: str
) -> None:
    """What a kernel cannot be handed is refused before anything runs, as input, as output and by plans."""
    fine, plan = torch.tensor(3, 64), bench.plan("sums", (3, 64))
    spoilt = spoil(torch, torch.tensor(3, 64))
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("x", lambda: bench.apply("sums", spoilt)),
        ("x", lambda: bench.plan("sums", spoilt)),
        ("x", lambda: plan(spoilt)),
        ("out", lambda: bench.apply("sums", fine, out=spoilt)),
        ("out", lambda: plan(fine, out=spoilt)),
    ]
    for label, call in calls:
        with pytest.raises(InputError, match=re.escape(f"sums: {label} {words}")):
            call()
    assert bench.cp.kernels["sums"].runs == 0
    for _ in range(3):  # they are refused, too, where tensors of their form have come before
        bench.apply("sums", fine)
        bench.apply("sums", fine, out=torch.tensor(3, 64))
    runs = bench.cp.kernels["sums"].runs
    for label, call in calls:
        with pytest.raises(InputError, match=re.escape(f"sums: {label} {words}")):
            call()
    assert bench.cp.kernels["sums"].runs == runs


def test_tensors_that_come_again_are_looked_at_in_place(
    bench: Bench, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is borrowed then, and outputs and scratch are of PyTorch's current stream."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError

    for _ in range(2):
        bench.apply("sums", torch.tensor(3, 64), out=torch.tensor(3, 64))
        bench.apply("sums", torch.tensor(3, 64))
    monkeypatch.setattr("tuner.application.calls.borrowed_call", never)
    stream, kernel = bench.cp.cuda.Stream(non_blocking=True), bench.cp.kernels["sums"]
    x, y = torch.tensor(3, 64), torch.tensor(3, 64)
    torch.made_in.clear()
    kernel.streams.clear()
    with TorchStream(torch, stream.ptr):
        made = bench.apply("sums", x)
        assert bench.apply("sums", x, out=y) is y
    assert np.array_equal(made.held, sums(x.held))
    assert np.array_equal(y.held, made.held)
    assert kernel.streams == {stream}
    assert set(torch.made_in) == {stream.ptr}
    stream.begin_capture()
    with TorchStream(torch, stream.ptr), pytest.raises(InputError, match="arrays or tables; make a"):
        bench.apply("sums", x, out=y)
    stream.end_capture()


def test_torch_without_a_gpu(bench: Bench, torch: FakeTorch) -> None:
    """A PyTorch that knows no GPU is asked for none of its streams: tensors on the CPU are refused first."""
    torch.cuda.current_stream = None
    x = changed(torch.tensor(3, 64), device=torch.device("cpu"))
    with pytest.raises(InputError, match="x is a torch tensor on cpu; it must be on a GPU"):
        bench.apply("sums", x)


def test_gradients_that_are_not_recorded(bench: Bench, torch: FakeTorch) -> None:
    """Under torch.no_grad() a parameter is a tensor as any other."""
    torch.gradients = False
    x = changed(torch.tensor(3, 64), requires_grad=True)
    assert np.array_equal(bench.apply("sums", x).held, sums(x.held))


def test_forms_of_tensors(bench: Bench, torch: FakeTorch) -> None:
    """Numbers, types, places, overlaps and streams of tensors are checked in the words for CuPy's arrays."""
    x = torch.tensor(3, 64)
    with pytest.raises(InputError, match="sums takes 1 array \\(x\\); 2 given"):
        bench.apply("sums", x, x)
    with pytest.raises(InputError, match="sums takes 1 array \\(x\\); 2 given"):
        bench.plan("sums", x)(x, x)
    with pytest.raises(InputError, match="x has dtype complex64; it must be float32"):
        bench.apply("sums", torch.tensor(3, 64, dtype="complex64"))
    with pytest.raises(InputError, match="out is float64 of shape"):
        bench.apply("sums", x, out=torch.tensor(3, 64, dtype="float64"))
    with pytest.raises(InputError, match="out overlaps x"):
        bench.apply("sums", x, out=x)
    with pytest.raises(InputError, match="b is on GPU 1; it must be on GPU 0 as the first array is"):
        bench.apply("pair", x, torch.tensor(3, 64, device=1))
    with pytest.raises(InputError, match="stream is on GPU 1; the arrays are on GPU 0"):
        bench.apply("sums", x, stream=TorchStream(torch, 0, device=1))


def test_memory_of_torch_runs_out(bench: Bench, torch: FakeTorch) -> None:
    """Outputs that PyTorch has no memory for are an error of the device."""
    x = torch.tensor(3, 64)
    bench.cp.memory_bytes = bench.cp.allocated_bytes
    with pytest.raises(DeviceError, match="sums: outputs do not fit: Out of memory"):
        bench.apply("sums", x)


# --- DLPack and the CUDA array interface ----------------------------------------------------------


def test_dlpack(bench: Bench) -> None:
    """Arrays with DLPack are borrowed in the stream of the call, and their library takes the result."""
    held, stream = bench.array(3, 64), bench.cp.cuda.Stream(non_blocking=True)
    x = DlpackArray(held)
    y = bench.apply("sums", x, stream=stream)
    assert isinstance(y, DlpackArray)
    assert np.array_equal(y.held, sums(held))
    assert x.taken_in is stream
    assert bench.cp.kernels["sums"].streams == {stream}
    out = DlpackArray(bench.array(3, 64))
    assert bench.apply("sums", DlpackArray(held), out=out) is out
    assert np.array_equal(out.held, sums(held))
    assert isinstance(bench.plan("sums", DlpackArray(held))(), DeviceArray)
    assert "torch" not in sys.modules


def test_cuda_array_interface(bench: Bench) -> None:
    """Arrays with the CUDA array interface alone give CuPy's, and are not written where they forbid it."""
    held, y = InterfaceArray(bench.array(3, 64), readonly=True), InterfaceArray(bench.array(3, 64))
    assert isinstance(bench.apply("sums", held), DeviceArray)
    assert bench.apply("sums", held, out=y) is y
    assert np.array_equal(y.held, sums(held.held))
    with pytest.raises(InputError, match="InterfaceArray that must not be written; it must be one that may"):
        bench.apply("sums", bench.array(3, 64), out=held)
    inout = InterfaceArray(bench.array(3, 8), readonly=True)
    with pytest.raises(InputError, match=r"total is a fake_torch\.InterfaceArray that must not be written"):
        bench.apply("blend", bench.array(3, 16), bench.array(8), inout)


@pytest.mark.parametrize("writable", [True, False])
def test_arrays_that_dlpack_marks_as_read_only(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, writable: bool
) -> None:
    """They are read, and not written; the capsule tells, here NumPy's."""
    host, x = np.zeros(4, np.float32), DlpackArray(bench.array(3, 64))
    host.flags.writeable = writable

    def taken(value: Any) -> DeviceArray:
        value.__dlpack__(max_version=(1, 0))
        return x.held

    monkeypatch.setattr(bench.cp, "from_dlpack", taken)
    monkeypatch.setattr(x, "__dlpack__", host.__dlpack__)
    bench.apply("sums", x)
    told = re.escape("sums: out cannot be read as an array on a GPU: it is marked as read-only")
    with nullcontext() if writable else pytest.raises(InputError, match=told):
        assert bench.apply("sums", bench.array(3, 64), out=x) is x


def test_arrays_on_the_host(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """DLPack's arrays on the host are refused, and what their library refuses is told in its words."""
    with pytest.raises(InputError, match=r"x is a fake_torch\.DlpackArray; it must be an array on a GPU"):
        bench.apply("sums", DlpackArray(bench.array(3, 64), kind=1))

    def refuse(_: object) -> None:
        raise BufferError("it is being donated")

    monkeypatch.setattr(bench.cp, "from_dlpack", refuse)
    with pytest.raises(InputError, match="x cannot be read as an array on a GPU: it is being donated"):
        bench.apply("sums", DlpackArray(bench.array(3, 64)))


def test_streams_of_others(bench: Bench) -> None:
    """A stream may be any that has CUDA's stream protocol."""
    stream = bench.cp.cuda.Stream(non_blocking=True)

    class Foreign:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, stream.ptr

    bench.apply("sums", bench.array(3, 64), stream=Foreign())
    assert bench.cp.kernels["sums"].streams == {stream}
