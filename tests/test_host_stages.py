"""Host stages: how they are written, which threads they have, and how they run beside the GPU."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from chain_samples import load
from fake_cuda import fake_device, plan
from fake_cupy import FakeCupy, Kernel
from modelled import NoNvrtc

from tuner.application.running import TableCache, loaded_kernel
from tuner.devices.cuda import launches
from tuner.devices.cuda.device import CudaDevice
from tuner.devices.cuda.launches import CpuThreads, HostLapack, LaunchRefusedError
from tuner.devices.simulated.device import SimulatedDevice
from tuner.model.errors import CompileError, InputError, KernelFileError
from tuner.model.plan import Buffer, LibraryCall, Operand, Plan, Stage
from tuner.model.trial import FlagKind, Status
from tuner.search.answer import _uncounted_cpu

Rig = tuple[FakeCupy, CudaDevice]
FACTOR_S, UPDATE_S = 2e-3, 3e-3
PANEL = """
[kernel]
name = "panel"
[problem.sizes]
N = [8]
M = [5]
[[argument]]
buffer = "A"
dtype = "float64"
shape = ["N", "N"]
role = "inout"
[[argument]]
buffer = "ipiv"
dtype = "int32"
shape = ["N"]
role = "out"
[[argument]]
buffer = "info"
dtype = "int32"
shape = [1]
role = "out"
[tunables]
threads = [1, 2]
[[stage]]
name = "panel"
library = "lapack-getrf"
m = "M"
n = 3
threads = "threads"
first = 2
a = { buffer = "A", offset = 4, ld = "N" }
pivots = { buffer = "ipiv", offset = 2 }
info = { buffer = "info" }
[work]
bytes = 1
operations = 1
"""


def panel(folder: Path, *changes: tuple[str, str]) -> Plan:
    """The plan of a file that is one host stage, with other words."""
    text = PANEL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    kernel = load(folder, text, "")
    workload = kernel.workload({"N": 8, "M": 5})
    return kernel.plan(workload, kernel.default(workload))


def test_a_file_of_one_host_stage(tmp_path: Path) -> None:
    """Dimensions, arrays and threads are expressions, and a device gets the whole call."""
    chosen = panel(tmp_path)
    (stage,) = chosen.stages
    operands = (("a", Operand("A", 4, 8)), ("pivots", Operand("ipiv", 2, 3)), ("info", Operand("info", 0, 1)))
    assert stage.library == LibraryCall("lapack-getrf", "float64", operands, 5, 3, threads=1, first=2)
    assert chosen.has_host_stage
    assert stage.buffers == {"A", "ipiv", "info"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('pivots = { buffer = "ipiv", offset = 2 }\n', "", "lapack-getrf needs pivots"),
        ("m = ", "k = 3\nm = ", "lapack-getrf takes no k"),
        ('"lapack-getrf"', '"lapack-geqrf"', "lapack-geqrf needs tau"),
        ('ld = "N" }', 'ld = "N", transposed = true }', "lapack-getrf takes no transposed matrix"),
        ('ipiv", offset = 2', 'ipiv", ld = 2', r"pivots\.ld: unknown key"),
        ('ipiv", offset', 'pivots", offset', "pivots: no buffer is called 'pivots'"),
        (
            'buffer = "ipiv"\ndtype = "int32"',
            'buffer = "ipiv"\ndtype = "int64"',
            "ipiv is int64; it must be int32",
        ),
        (
            'dtype = "float64"',
            'dtype = "complex64"',
            "lapack-getrf takes arrays of one type: float32, float64",
        ),
        ('ld = "N"', "ld = 4", "it must be from 5 to"),
        ("offset = 4", "offset = 60", "5 x 3 elements from 60 on, ld 8, end at 81; A has 64"),
        ("offset = 2 }", "offset = 6 }", "3 x 1 elements from 6 on, ld 3, end at 9; ipiv has 8"),
        ('threads = "threads"', 'threads = "threads - 2"', "threads: .* must be from 0 to 4096"),
        ('"lapack-getrf"', '"lapack-gesvd"', "lapack-geqrf"),
    ],
)
def test_wrong_host_stages_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    """With the key, and what would be right."""
    with pytest.raises(KernelFileError, match=message):
        panel(tmp_path, (old, new))


def test_what_models_no_cpu_refuses_host_stages(tmp_path: Path) -> None:
    """A simulated device names the stage and what to do; so does ``tuner.apply``."""
    chosen = panel(tmp_path)
    device = SimulatedDevice("h200", compiler=NoNvrtc())
    (answer,) = device.resources([chosen])
    assert isinstance(answer, CompileError)
    assert "stage 'panel' is LAPACK on the CPU, which no simulated device models; run it on cuda:N" in str(
        answer
    )
    file: Any = SimpleNamespace(name="panel")
    nothing: Any = None
    with pytest.raises(InputError, match="stage panel is lapack-getrf, and of libraries tuner"):
        loaded_kernel(
            *(file, chosen, (), nothing),
            device=0,
            program=nothing,
            home=nothing,
            tally=nothing,
            cache=TableCache(),
        )


@pytest.mark.parametrize(("scope", "told"), [("gpu", True), ("gpu+package", False), ("module", False)])
def test_joules_that_are_not_counted_are_told(tmp_path: Path, scope: str, told: bool) -> None:
    """Where the sensor sees the GPU alone, a notice of the run names the workload and the remedy."""
    chosen = panel(tmp_path)
    spaces: Any = [SimpleNamespace(recorded=False, plans={0: chosen})]
    answer: Any = SimpleNamespace(energy=SimpleNamespace(scope=scope))
    expected = (
        "cpu: it computes a part of panel:N=8,M=5, and its joules are not counted; --scope gpu+cpu counts"
        " them where the host tells them"
    )
    assert _uncounted_cpu(spaces, answer) == ([expected] if told else [])
    gpu_only: Any = [SimpleNamespace(recorded=False, plans={0: plan("scan")})]
    assert _uncounted_cpu(gpu_only, answer) == []


# --- threads -------------------------------------------------------------------------------------


class Blas:
    """A library that computes with so many threads at most."""

    internal_api, version = "openblas", "0.3"

    def __init__(self, most: int) -> None:
        self.most = most
        self.asked: list[int] = []

    @property
    def num_threads(self) -> int:
        return min(self.most, self.asked[-1])

    def set_num_threads(self, count: int) -> None:
        self.asked.append(count)


def test_threads_are_set_when_they_change() -> None:
    """0 stands for as many as the process may use."""
    blas = Blas(16)
    threads = CpuThreads(8, lambda: [blas])
    assert [threads.use(asked) for asked in (4, 4, 0, 8, 1)] == [4, 4, 8, 8, 1]
    assert blas.asked == [4, 8, 1]


@pytest.mark.parametrize(
    ("processors", "most", "message"),
    [
        (2, 64, "asks for 4 threads of the CPU, and this process may use 2 processors"),
        (1, 64, "this process may use 1 processor$"),
        (8, 1, r"asks for 4 threads of the CPU, and SciPy's BLAS \(openblas 0.3\) computes with 1"),
    ],
)
def test_threads_that_are_not_there_are_refused(processors: int, most: int, message: str) -> None:
    """Fewer would be another configuration; the message has both numbers."""
    with pytest.raises(LaunchRefusedError, match=message) as error:
        CpuThreads(processors, lambda: [Blas(most)]).use(4)
    assert error.value.status is Status.LAUNCH_ERROR


def test_without_threadpoolctl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads cannot be set, and the extra is named; as many as there are may be used, and it is told."""
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    threads = CpuThreads(8)
    with pytest.raises(LaunchRefusedError, match=r"pip install threadpoolctl"):
        threads.use(4)
    flag = HostLapack(FakeCupy({}), threads).flag(call_of(8))
    assert flag is not None
    assert str(flag).startswith("cpu-threads: nobody tells how many threads")
    assert "pip install threadpoolctl" in str(flag)


def test_a_blas_that_nobody_knows() -> None:
    """It runs as it is; threads that are asked for are refused."""
    threads = CpuThreads(8, list)
    assert threads.use(0) is None
    with pytest.raises(LaunchRefusedError, match="cannot be set: threadpoolctl does not know this BLAS"):
        threads.use(1)


@pytest.mark.parametrize(
    ("most", "asked", "told"), [(1, 0, True), (1, 1, False), (8, 0, False), (8, 1, False)]
)
def test_a_blas_with_one_thread_is_told(most: int, asked: int, told: bool) -> None:
    """Unless one was asked for."""
    lapack = HostLapack(FakeCupy({}), CpuThreads(8, lambda: [Blas(most)]))
    flag = lapack.flag(replace(call_of(8), threads=asked))
    assert (flag is not None) == told
    assert flag is None or flag.kind is FlagKind.CPU_THREADS
    assert flag is None or flag.detail == "SciPy's BLAS (openblas 0.3) computes with 1 thread"


# --- on the device -------------------------------------------------------------------------------


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A fake GPU, and a host that factors in virtual time."""
    cp, device = fake_device(monkeypatch)
    computed = launches.factored

    def factored(*given: Any) -> Any:
        cp.now_s += FACTOR_S
        return computed(*given)

    monkeypatch.setattr(launches, "factored", factored)
    cp.cuda.get_current_stream = cp.current_stream
    cp.kernels["update"] = Kernel(lambda *_: None, UPDATE_S)
    return cp, device


def call_of(n: int, **changes: Any) -> LibraryCall:
    operands = (("a", Operand("x", 0, n)), ("tau", Operand("y", 0, n)))
    return replace(LibraryCall("lapack-geqrf", "float64", operands, n, n), **changes)


def hybrid_plan(*stages: dict[str, Any], kernel: str = "hybrid") -> Plan:
    """Stages on a matrix of order 8, those without an entry on the host."""
    base = plan("update", kernel=kernel, problem="consistent")
    host: dict[str, Any] = {"entry": "", "arguments": (), "library": call_of(8)}
    made: list[Stage] = [replace(base.stages[0], **({} if "entry" in one else host) | one) for one in stages]
    buffers = (Buffer("x", "float64", (8, 8), "inout"), Buffer("y", "float64", (8, 8), "out"))
    return replace(base, stages=tuple(made), buffers=buffers)


def factors(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Absolute values on and above the diagonal of R of a column-major matrix."""
    return np.abs(np.linalg.qr(x.T, mode="r"))


def test_the_gpu_works_while_the_host_computes(rig: Rig) -> None:
    """What stands before a host stage in another stream runs beside it, what waits for it behind it."""
    _, device = rig
    beside = hybrid_plan({"entry": "update", "stream": 1}, {})
    behind = hybrid_plan({}, {"entry": "update"})
    for chain, seconds in ((beside, max(FACTOR_S, UPDATE_S)), (behind, FACTOR_S + UPDATE_S)):
        record = device.run([chain], 0.05)
        assert record.results[0].status is Status.OK
        assert record.makespan_s == pytest.approx(seconds)


def test_host_stages_are_in_no_graph(rig: Rig) -> None:
    """They are launched directly, again and again, which is no flag."""
    cp, device = rig
    for _ in range(2):
        record = device.run([hybrid_plan({}, {"entry": "update"})], 0.05)
    assert cp.graphs == []
    assert FlagKind.NO_GRAPH not in {flag.kind for flag in record.flags}
    assert record.rounds >= 5


def test_others_of_a_co_run_go_first(rig: Rig) -> None:
    """A workload without host stages runs while the host computes, whichever is named first."""
    cp, device = rig
    cp.kernels["rest"].seconds = FACTOR_S
    chains: Sequence[Plan] = [hybrid_plan({}), plan("rest", kernel="other")]
    for order in (chains, chains[::-1]):
        assert device.run(order, 0.05).makespan_s == pytest.approx(FACTOR_S, rel=0.01)


def test_memory_of_the_host_is_taken_in_turns(rig: Rig) -> None:
    """A second stream fetches its matrix when the results of the first have arrived; each gets its own."""
    cp, _ = rig
    cp.copy_s = 1e-4
    arrays = [cp.asarray(np.random.default_rng(seed).random((8, 8))) for seed in (1, 2)]
    expected = [factors(np.array(x)) for x in arrays]
    lapack, tau = HostLapack(cp), cp.empty(8)
    streams = [cp.cuda.Stream(non_blocking=True) for _ in arrays]
    for x, stream in zip(arrays, streams, strict=True):
        lapack.action(call_of(8), {"a": x.data.ptr, "tau": tau.data.ptr})(stream)
    for x, right in zip(arrays, expected, strict=True):
        np.testing.assert_allclose(np.abs(np.triu(x.T)), right, rtol=1e-12)
    assert streams[1].ready_s - streams[0].ready_s == pytest.approx(FACTOR_S + 3 * cp.copy_s)


def test_configurations_with_too_many_threads_fail_alone(rig: Rig) -> None:
    """A launch error that names the stage's wish; the device goes on."""
    _, device = rig
    greedy = hybrid_plan({"library": call_of(8, threads=4000)}, kernel="greedy")
    result = device.run([greedy], 0.02).results[0]
    assert result.status is Status.LAUNCH_ERROR
    assert "asks for 4000 threads of the CPU, and this process may use" in result.detail
    assert device.run([hybrid_plan({})], 0.02).results[0].status is Status.OK
