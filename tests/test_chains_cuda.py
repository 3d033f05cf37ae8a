"""Chains on the CUDA device over a fake CuPy: views, restored arrays, streams, long rounds, libraries."""

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_cuda import LIMITS, FakeCompiler, fake_device, plan
from fake_cupy import DeviceArray, FakeCupy, Kernel

from tuner.application.running import loaded_kernel
from tuner.devices.cuda import code
from tuner.devices.cuda.code import WORKSPACE_BYTES, CodeCache, workspaces
from tuner.devices.cuda.device import CudaDevice
from tuner.devices.cuda.launches import LaunchRefusedError, PackedRun, Program
from tuner.devices.cuda.rounds import most_sets
from tuner.model.errors import InputError
from tuner.model.plan import Buffer, BufferView, LibraryCall, Operand, Plan, Stage
from tuner.model.trial import Status

Rig = tuple[FakeCupy, CudaDevice]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return fake_device(monkeypatch)


def staged(base: Plan, *changes: dict[str, Any]) -> Plan:
    """A plan with a stage for each of some changes of its first one."""
    return replace(base, stages=tuple(replace(base.stages[0], **change) for change in changes))


def add_kernel(cp: FakeCupy, name: str, action: Any, seconds: float = 1e-3) -> Kernel:
    cp.kernels[name] = kernel = Kernel(action, seconds)
    return kernel


# --- views ---------------------------------------------------------------------------------------


def test_a_view_begins_behind_its_offset(rig: Rig) -> None:
    """The kernel gets the address of the element."""
    cp, _ = rig
    seen: list[Any] = []
    add_kernel(cp, "look", lambda x, *_: seen.append(x[:2].tolist()))
    viewed = staged(
        plan("look"), {"arguments": (BufferView("x", 130), "y", plan("look").stages[0].arguments[2])}
    )
    arrays: dict[str, Any] = {b.name: cp.empty(b.shape, b.dtype) for b in viewed.buffers}
    arrays["x"][...] = np.arange(arrays["x"].size).reshape(arrays["x"].shape)
    code = CodeCache(cp, FakeCompiler(), LIMITS)
    for step in code.launches(viewed, arrays):
        step.enqueue(None)
    assert seen == [[130.0, 131.0]]
    assert code.launches(viewed, arrays)[0].identity != code.launches(plan("look"), arrays)[0].identity


def test_packed_runs_follow_their_buffers(rig: Rig) -> None:
    """Of a view, the address that is handed over is that of its buffer and its offset."""
    cp, _ = rig
    handed: list[list[int]] = []

    def launch(*arguments: Any) -> None:
        addresses = ctypes.cast(arguments[9], ctypes.POINTER(ctypes.c_void_p))
        handed.append([ctypes.c_uint64.from_address(addresses[i] or 0).value for i in range(2)])

    cp.cuda.driver.launchKernel = launch
    cp.cuda.runtime.memsetAsync = None
    scalar = plan("rest").stages[0].arguments[2]
    viewed = staged(
        plan("rest"),
        {"arguments": (BufferView("x", 3), "y", scalar)},
        {"arguments": (BufferView("y", 5), BufferView("x", 3), scalar)},
    )
    program: Program = CodeCache(cp, FakeCompiler(), LIMITS).program(viewed)
    run = PackedRun(cp, program, {"x": 4096, "y": 4096})
    for addresses in ((1000, 2000), (5000, 6000)):
        run.point(addresses)
        run.enqueue(0)
    assert handed == [[1012, 2000], [2020, 1012], [5012, 6000], [6020, 5012]]


# --- restored arrays -----------------------------------------------------------------------------


def test_restored_arrays_begin_every_round_anew(rig: Rig) -> None:
    """Each round finds the inputs; what the copies take is told, and is part of the times."""
    cp, device = rig
    seen: set[float] = set()

    def twice(x: DeviceArray, again: DeviceArray, rows: int) -> None:
        del again, rows
        seen.add(float(x[0, 0]))
        x *= 2

    add_kernel(cp, "twice", twice)
    cp.copy_s = 2e-4
    base = plan("twice", role="inout", problem="consistent")
    restored = replace(base, buffers=(replace(base.buffers[0], restored=True),))
    record = device.run([restored], 0.05)
    assert len(seen) == 1
    assert record.makespan_s == pytest.approx(1.2e-3)
    assert record.results[0].restore_s == pytest.approx(2e-4)
    seen.clear()
    assert device.run([base], 0.05).results[0].restore_s == 0.0
    assert len(seen) > 1


def test_arrays_of_bfloat16_are_restored(rig: Rig) -> None:
    """Their bits are kept, as NumPy has no such type."""
    cp, device = rig
    add_kernel(cp, "nothing", lambda *_: None)
    base = plan("nothing", role="inout", problem="consistent")
    narrow = replace(base.buffers[0], dtype="bfloat16", restored=True)
    record = device.run([replace(base, buffers=(narrow, *base.buffers[1:]))], 0.05)
    assert record.results[0].status is Status.OK


def test_restored_arrays_beside_another_workload(rig: Rig) -> None:
    """The copies are those of one workload, and the other's time has none of them."""
    cp, device = rig
    add_kernel(cp, "twice", lambda x, *_: np.multiply(x, 2, out=x))
    cp.copy_s = 1e-3
    base = plan("twice", kernel="b", role="inout", problem="consistent")
    restored = replace(base, buffers=(replace(base.buffers[0], restored=True),))
    record = device.run([plan("scan"), restored], 0.05)
    assert [result.restore_s for result in record.results] == pytest.approx([0.0, 1e-3])
    assert [result.time_s for result in record.results] == pytest.approx([1e-3, 2e-3])


# --- streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rivals", [0, 1])
def test_a_side_stream_runs_beside(rig: Rig, rivals: int) -> None:
    """B beside c behind a, then d behind both: three milliseconds of four; in a co-run, too."""
    cp, device = rig
    order: list[str] = []
    for name in "abcd":
        add_kernel(cp, name, lambda *_, name=name: order.append(name))
    chain = staged(
        plan("scan", problem="consistent"),
        {"name": "a", "entry": "a"},
        {"name": "b", "entry": "b", "stream": 1, "after": (0,)},
        {"name": "c", "entry": "c"},
        {"name": "d", "entry": "d", "after": (1,)},
    )
    record = device.run([chain, *[plan("nap", kernel="other")] * rivals], 0.05)
    assert record.flags == ()
    assert record.makespan_s == pytest.approx(3e-3)
    assert order[:4] == list("abcd")
    assert len(cp.kernels["a"].streams | cp.kernels["b"].streams) > 1
    assert cp.kernels["a"].streams == cp.kernels["d"].streams
    beside, own = ({one.priority for one in cp.kernels[name].streams} for name in "ba")
    assert (beside, own) == ({0}, {0} if rivals else {-1})  # CUDA counts downwards


def test_side_streams_end_with_the_run(rig: Rig) -> None:
    """What nobody waits for is waited for at the end, and begins behind what is set to zero."""
    cp, device = rig
    zeros: list[float] = []
    add_kernel(cp, "look", lambda *given: zeros.append(float(given[1][0, 0])), 3e-3)
    base = plan("rest", problem="consistent")
    buffers = (base.buffers[0], Buffer("y", "float32", base.buffers[1].shape, "zeroed"))
    chain = staged(
        replace(base, buffers=(*buffers, Buffer("z", "float32", (4,), "out"))),
        {"name": "rest", "entry": "rest"},
        {"name": "look", "entry": "look", "stream": 2},
    )
    assert device.run([chain], 0.05).makespan_s == pytest.approx(3e-3)
    assert set(zeros) == {0.0}


# --- long rounds ---------------------------------------------------------------------------------


def test_long_chains_make_graphs_of_a_round(rig: Rig) -> None:
    """A thousand launches: graphs of few rounds over few sets, in one or two streams."""
    cp, device = rig
    cp.kernels["nap"].seconds = 1e-6
    base = plan("nap", problem="consistent")
    chain = replace(base, stages=base.stages * 1000)
    record = device.run([chain], 0.01)
    assert record.makespan_s == pytest.approx(1e-3)
    assert record.flags == ()
    assert max(len(graph.kernels) for graph in cp.graphs) <= 2000
    assert sum(len(graph.kernels) for graph in cp.graphs) <= 4096
    assert (most_sets(1), most_sets(100), most_sets(1000), most_sets(10000)) == (2048, 20, 2, 2)
    del cp.graphs[:]
    device.run([chain, plan("rest", kernel="b")], 0.01)
    assert max(len(graph.kernels) for graph in cp.graphs) <= 2002


def test_code_of_many_steps_is_loaded_once(rig: Rig) -> None:
    """However many stages launch it."""
    cp, _ = rig
    compiler = FakeCompiler()
    asked: list[Stage] = []

    def compile_noted(stages: Sequence[Stage]) -> Any:
        asked.extend(stages)
        return FakeCompiler.compile(compiler, stages)

    compiler.compile = compile_noted  # type: ignore[method-assign]
    base = plan("quick")
    program = CodeCache(cp, compiler, LIMITS).program(replace(base, stages=base.stages * 300))
    assert (len(program.stages), len(asked)) == (300, 1)


# --- libraries -----------------------------------------------------------------------------------

GEMM = LibraryCall(
    "gemm",
    "float32",
    (("a", Operand("x", 4, 128)), ("b", Operand("x", 0, 128, transposed=True)), ("c", Operand("y", 2, 64))),
    m=32,
    n=16,
    k=8,
    alpha=-1.0,
    beta=0.5,
)
FFT = LibraryCall("fft", "complex64", (("a", Operand("x")), ("c", Operand("y", 8))), m=3, n=16, inverse=True)


def library_plan(call: LibraryCall) -> Plan:
    base = plan("scan", problem="consistent")
    return replace(
        base, stages=(base.stages[0], replace(base.stages[0], entry="", library=call, arguments=()))
    )


class FakeCublas:
    """The library: keeps its calls, with what they point to, and the stream that was set before."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.streams: list[int] = []
        self.workspaces: set[tuple[int, int]] = set()

    def cublasSetStream_v2(self, handle: Any, stream: Any) -> int:  # noqa: N802 - cuBLAS's name
        assert handle.value == 77
        self.streams.append(stream.value)
        return 0

    def cublasSetWorkspace_v2(self, handle: Any, address: Any, size: Any) -> int:  # noqa: N802 - same
        del handle
        assert size.value == WORKSPACE_BYTES
        self.workspaces.add((self.streams[-1], address.value))
        return 0

    def __getattr__(self, name: str) -> Any:
        def routine(handle: Any, *arguments: Any) -> int:
            assert handle.value == 77
            self.calls.append((name, tuple(getattr(value, "value", value) for value in arguments)))
            return 0

        return routine


@pytest.fixture
def blas(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> FakeCublas:
    """CuPy's part makes a handle; the library is a fake."""
    cp, _ = rig
    library = FakeCublas()
    cp.cuda.cublas = SimpleNamespace(create=lambda: 77, setMathMode=lambda *_: None)
    monkeypatch.setattr(code, "loaded_library", lambda: library)
    return library


def test_calls_of_cublas(rig: Rig, blas: FakeCublas) -> None:
    """The stream is the one of the stage, each with a workspace of its own, and factors are the host's."""
    cp, device = rig
    record = device.run([library_plan(GEMM)], 0.02)

    assert record.results[0].status is Status.OK
    assert {name for name, _ in blas.calls} == {"cublasSgemm_v2"}
    (given,) = {(*one[:5], one[7], one[9], one[12]) for _, one in blas.calls}
    assert given == (0, 1, 32, 16, 8, 128, 128, 64)
    assert set(blas.streams) <= {stream.ptr for stream in cp.kernels["scan"].streams}
    assert len(blas.workspaces) == len(set(blas.streams))


def test_workspaces_among_the_arrays(rig: Rig, blas: FakeCublas) -> None:
    """Calls of a program take them where they are there, one for each of its streams."""
    cp, _ = rig
    program = CodeCache(cp, FakeCompiler(), LIMITS).program(library_plan(GEMM))
    ((name, size),) = workspaces(program).items()
    assert size == WORKSPACE_BYTES
    arrays: dict[str, Any] = {letter: cp.empty((64, 128), "float32") for letter in ("x", "y")}
    given = cp.empty(size, "uint8")
    stream = cp.cuda.Stream(non_blocking=True)
    arrays[name] = given
    program.bound(arrays)[-1].enqueue(stream)
    assert blas.workspaces == {(stream.ptr, given.data.ptr)}


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [
        (
            replace(GEMM, routine="syrk", dtype="float64", fill="upper", operands=GEMM.operands[::2]),
            "cublasDsyrk_v2",
            (1, 0, 16, 8, 128, 64),
        ),
        (
            replace(GEMM, routine="trsm", side="right", unit=True, operands=GEMM.operands[:2]),
            "cublasStrsm_v2",
            (1, 0, 0, 1, 32, 16, 128, 128),
        ),
    ],
)
def test_other_routines(
    rig: Rig, blas: FakeCublas, call: LibraryCall, name: str, arguments: tuple[int, ...]
) -> None:
    """Their arguments in the order of cuBLAS."""
    cp, _ = rig
    arrays: dict[str, Any] = {letter: cp.empty((64, 128), call.dtype) for letter in ("x", "y")}
    launches = CodeCache(cp, FakeCompiler(), LIMITS).launches(library_plan(call), arrays)
    launches[-1].enqueue(cp.cuda.Stream(non_blocking=True))
    ((called, given),) = blas.calls

    assert called == name
    assert tuple(value for value in given if value < 10**6) == arguments


def test_a_call_that_fails_is_a_launch_error(rig: Rig, blas: FakeCublas) -> None:
    """The status is named."""
    _, device = rig
    blas.cublasSgemm_v2 = lambda *_: 13  # type: ignore[attr-defined]
    result = device.run([library_plan(GEMM)], 0.02).results[0]

    assert result.status is Status.LAUNCH_ERROR
    assert "cuBLAS: gemm ends with status 13" in result.detail


def test_transforms_of_cufft(rig: Rig) -> None:
    """A plan is made once for its length, number and stream."""
    cp, _ = rig
    made: list[tuple[int, ...]] = []
    ran: list[tuple[Any, ...]] = []

    class Transform:
        def __init__(self, *arguments: int) -> None:
            made.append(arguments)

        def fft(self, given: Any, result: Any, direction: int) -> None:
            ran.append((given.data.ptr, result.data.ptr, direction))

    cp.cuda.cufft = SimpleNamespace(Plan1d=Transform)
    arrays: dict[str, Any] = {name: cp.empty((64,), "complex64") for name in ("x", "y")}
    code = CodeCache(cp, FakeCompiler(), LIMITS)
    for _ in range(2):
        code.launches(library_plan(FFT), arrays)[-1].enqueue(None)
    assert made == [(16, 0x29, 3)]
    assert set(ran) == {(arrays["x"].data.ptr, arrays["y"].data.ptr + 64, 1)}


def test_applying_calls_no_cufft() -> None:
    """What is wrong and what to do instead is said before anything is loaded."""
    missing: Any = None
    with pytest.raises(InputError, match="k: stage scan is fft, and of libraries tuner"):
        loaded_kernel(
            *(SimpleNamespace(name="k"), library_plan(FFT), (), missing),  # type: ignore[arg-type]
            **dict.fromkeys(("device", "program", "home", "tally", "cache"), missing),
        )


def test_a_library_that_is_not_installed(rig: Rig) -> None:
    """Is a launch error that says what to install, not a crash."""
    cp, device = rig

    class Cuda(SimpleNamespace):
        @property
        def cublas(self) -> Any:
            raise ImportError("libcublas.so.12: no such file")

    cp.cuda = Cuda(**vars(cp.cuda))
    result = device.run([library_plan(GEMM)], 0.02).results[0]
    assert result.status is Status.LAUNCH_ERROR
    assert "CuPy finds no cuBLAS (libcublas.so.12: no such file); install it" in result.detail
    cp.cuda.driver.launchKernel = cp.cuda.runtime.memsetAsync = None
    with pytest.raises(LaunchRefusedError):
        PackedRun(cp, CodeCache(cp, FakeCompiler(), LIMITS).program(library_plan(GEMM)), {"x": 1, "y": 1})
