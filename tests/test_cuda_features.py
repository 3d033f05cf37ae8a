"""Variables of modules, set-up stages, structs, cooperative launches, driver calls, over a fake CuPy."""

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_cuda import LIMITS, FakeCompiler, N, fake_device, kernels, plan
from fake_cupy import DeviceArray, FakeCupy, Kernel
from fake_driver import FakeLibrary

from tuner.compiler.compiler import CompiledStage
from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.device import CudaDevice
from tuner.devices.cuda.driver import DriverCallError, DriverCalls
from tuner.devices.cuda.launches import PackedRun
from tuner.model.errors import CompileError
from tuner.model.plan import Buffer, Plan, Scalar, Stage, StructValue, TensorMap
from tuner.model.trial import Status

WEIGHTS = Buffer("weights", "float32", (N,), "in")
SMS = LIMITS.multiprocessors


class NamingCompiler(FakeCompiler):
    """Names variables as they are called."""

    def compile(self, stages: Sequence[Stage]) -> list[CompiledStage | CompileError]:
        found = super().compile(stages)
        return [
            replace(one, symbols=tuple(symbol for symbol, _ in stage.symbols))
            if isinstance(one, CompiledStage)
            else one
            for one, stage in zip(found, stages, strict=True)
        ]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeCupy, CudaDevice]:
    return fake_device(monkeypatch, compiler=NamingCompiler())


def weighted(cp: FakeCupy, size: int = 4 * N) -> Plan:
    """Sums of rows, whose kernel multiplies them by what lies in a variable of its module."""

    def scale(x: DeviceArray, y: DeviceArray, _: int) -> None:
        symbol = list(cp.symbols.values())[-1].view(np.float32)
        y[...] = x * symbol

    cp.kernels["ignoring"].action = scale
    cp.declared["ignoring"] = ("scales", size)
    base = plan("ignoring", problem="expression", reference=(("y", "x * weights"),))
    stage = replace(base.stages[0], symbols=(("scales", "weights"),))
    return replace(base, stages=(stage,), buffers=(*base.buffers, WEIGHTS))


def test_symbols_are_filled(fake: tuple[FakeCupy, CudaDevice]) -> None:
    """The variable of a module holds the array when a plan is checked and when it is measured."""
    cp, device = fake
    wanted = weighted(cp)
    check = device.check(wanted, 1)
    assert check.status is Status.OK, check.detail
    (symbol,) = cp.symbols.values()
    symbol[...] = 0
    assert device.run([wanted], 0.01).results[0].status is Status.OK
    assert symbol.any()


def test_workloads_have_modules_of_their_own(fake: tuple[FakeCupy, CudaDevice]) -> None:
    """Two workloads of one code have different values in the variables of their modules."""
    cp, device = fake
    one = weighted(cp)
    other = replace(one, workload=replace(one.workload, batch=one.workload.batch - 1))
    assert device.run([one, other], 0.01).results[1].status is Status.OK
    assert len(cp.symbols) == 2


def test_symbol_that_is_too_small(fake: tuple[FakeCupy, CudaDevice]) -> None:
    """A variable that does not hold its array is refused with both sizes; a larger one is filled in part."""
    cp, device = fake
    check = device.check(weighted(cp, size=100), 1)
    assert check.status is Status.LAUNCH_ERROR
    assert (
        "k.cu: the variable scales has 100 bytes, and the argument weights that fills it has 512"
        in check.detail
    )
    assert "(float32 of shape (128,))" in check.detail
    assert "the variable" not in device.check(weighted(cp, size=1000), 1).detail


def test_symbol_that_is_not_there(fake: tuple[FakeCupy, CudaDevice]) -> None:
    """A module without the variable cannot be loaded."""
    cp, device = fake
    wanted = weighted(cp)
    cp.declared.clear()
    assert "cannot be loaded: cuModuleGetGlobal_v2" in device.check(wanted, 1).detail


def with_setup(cp: FakeCupy) -> Plan:
    """Sums of rows of which a set-up stage makes the half."""
    calls: list[str] = []

    def prepare(x: DeviceArray, y: DeviceArray, _: int) -> None:
        del y
        calls.append("prepare")
        cp.prepared = x + 1  # type: ignore[attr-defined]  # what the run finds

    cp.kernels["nap"].action = prepare
    both = plan("nap", "scan")
    first, second = both.stages
    return replace(both, stages=(replace(first, setup=True), replace(second, after=(0,))))


def test_setup_runs_once_for_each_set(fake: tuple[FakeCupy, CudaDevice]) -> None:
    """A set-up stage runs before a check and once for each set of arrays before rounds, and is not timed."""
    cp, device = fake
    wanted, nap = with_setup(cp), cp.kernels["nap"]
    assert device.check(wanted, 1).status is Status.OK
    assert nap.runs == 1
    record = device.run([wanted], 0.1)
    sets = device._pool.held_sets([wanted])
    assert nap.runs == 1 + sets
    assert cp.kernels["scan"].runs > 20
    assert record.makespan_s == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize(
    ("grid", "resident", "status"),
    [
        ((SMS * 8, 1, 1), False, Status.OK),
        ((SMS * 8 + 1, 1, 1), False, Status.LAUNCH_ERROR),
        ((SMS * 100, 1, 1), True, Status.OK),
    ],
)
def test_cooperative_launches(
    fake: tuple[FakeCupy, CudaDevice], grid: tuple[int, int, int], resident: bool, status: Status
) -> None:
    """A cooperative grid is launched as such where all of it is on the device, and refused with numbers."""
    cp, device = fake
    base = plan("scan", grid=grid)
    check = device.check(
        replace(base, stages=(replace(base.stages[0], cooperative=True, resident=resident),)), 1
    )
    assert check.status is status, check.detail
    if status is Status.OK:
        assert cp.kernels["scan"].cooperative
        assert cp.kernels["scan"].grids == {(SMS * 8, 1, 1)}
    else:
        words = f"a cooperative grid of {SMS * 8 + 1} blocks is more than the {SMS * 8} that the device holds"
        assert words in check.detail


def test_structs_and_bits_are_passed(fake: tuple[FakeCupy, CudaDevice]) -> None:
    """A struct is an array without axes of its bytes, a bfloat16 its 16 bits."""
    cp, device = fake
    seen: list[Any] = []

    def take(x: DeviceArray, y: DeviceArray, *values: Any) -> None:
        seen.extend(values)
        y[...] = np.cumsum(x.astype(np.float64), axis=1)

    cp.kernels["reading"].action = take
    base = plan("reading")
    values = (StructValue((("a", "int32"),), bytes(range(12))), Scalar("bfloat16", -2.0))
    stage = replace(base.stages[0], arguments=("x", "y", *values))
    assert device.check(replace(base, stages=(stage,)), 1).status is Status.OK
    assert (seen[0].shape, seen[0].tobytes()) == ((), bytes(range(12)))
    assert seen[1].dtype == np.uint16
    assert seen[1] == 0xC000


def test_packed_runs_prepare_themselves() -> None:
    """A run on the arrays of a caller fills variables, sets up, and launches cooperatively where asked."""
    calls: list[tuple[Any, ...]] = []
    cp = FakeCupy({**kernels(lambda: cp), "nap": Kernel(lambda *_: None, 1e-4)})
    cp.declared["ignoring"] = ("scales", 4 * N)
    cp.cuda.driver.launchKernel = lambda pointer, *rest: calls.append((cp.kernel_at(pointer), rest[-3:]))
    cp.cuda.driver.launchCooperativeKernel = lambda pointer, *_: calls.append((cp.kernel_at(pointer), "all"))
    cp.cuda.runtime.memsetAsync = lambda *_: None
    library = FakeLibrary(cp)
    both = plan("nap", "ignoring")
    first, second = both.stages
    stages = (replace(first, setup=True), replace(second, symbols=(("scales", "weights"),), cooperative=True))
    program = CodeCache(cp, NamingCompiler(), LIMITS, DriverCalls(lambda: library)).program(
        replace(both, stages=stages, buffers=(*both.buffers, WEIGHTS))
    )
    weights = np.arange(N, dtype=np.float32)
    packed = PackedRun(cp, program, {"x": 4 * N, "y": 4 * N, "weights": 4 * N})
    packed.point([4096, 8192, weights.ctypes.data])
    packed.enqueue(0)
    assert [cp.kernel_name(one) for one, _ in calls] == ["nap", "ignoring"]
    assert calls[1][1] == "all"
    (symbol,) = cp.symbols.values()
    assert symbol.view(np.float32).tolist() == weights.tolist()


WANTED = TensorMap("x", "float64", (1024, 512), (16, 256), 128)
ADDRESS = 0x7F0000001000


@pytest.fixture
def library() -> FakeLibrary:
    kernel = Kernel(lambda *_: None, 1e-3)
    kernel.cluster, kernel.clusters = 4, 33
    return FakeLibrary(FakeCupy({"clustered": kernel}))


@pytest.fixture
def driver(library: FakeLibrary) -> DriverCalls:
    return DriverCalls(lambda: library)


def test_active_clusters(driver: DriverCalls) -> None:
    """The driver is asked with the cluster as launch attribute, and its count comes back."""
    assert driver.max_active_clusters(1, (128, 2, 1), 4096, 4) == 33


def test_unknown_clusters(driver: DriverCalls) -> None:
    """A cluster that the function is not made for is refused in the driver's words."""
    with pytest.raises(DriverCallError, match="cuOccupancyMaxActiveClusters: CUDA_ERROR_INVALID_VALUE"):
        driver.max_active_clusters(1, (128, 1, 1), 0, 8)


def test_tensor_map(driver: DriverCalls, library: FakeLibrary) -> None:
    """A tensor map is a value of 128 aligned bytes; rows of the matrix follow each other."""
    encoded = driver.tensor_map(ADDRESS, WANTED)
    assert (encoded.shape, encoded.size, encoded.nbytes) == ((), 1, 128)
    assert encoded.ctypes.data % 64 == 0
    words = np.frombuffer(encoded.tobytes(), np.uint64)
    assert words[:6].tolist() == [ADDRESS, 1024, 512, 16, 256, 2]
    assert library.maps == [{"type": 8, "dims": [1024, 512], "box": [16, 256], "promotion": 2}]


@pytest.mark.parametrize(("promotion", "number"), [(0, 0), (64, 1), (128, 2), (256, 3)])
def test_promotion(driver: DriverCalls, library: FakeLibrary, promotion: int, number: int) -> None:
    """The bytes of a promotion are the driver's number for them."""
    driver.tensor_map(ADDRESS, replace(WANTED, promotion_bytes=promotion))
    assert library.maps[0]["promotion"] == number


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        (ADDRESS + 8, WANTED),
        (ADDRESS, replace(WANTED, dims=(1023, 512))),
        (ADDRESS, replace(WANTED, box=(16, 257))),
    ],
)
def test_tensor_map_that_cannot_be(driver: DriverCalls, address: int, wanted: TensorMap) -> None:
    """A refusal names the buffer, its form and the driver's reason."""
    with pytest.raises(DriverCallError, match=r"buffer 'x' \(.* elements of 8 bytes.*INVALID_VALUE"):
        driver.tensor_map(address, wanted)


def test_no_library() -> None:
    """Without a driver, and with one that is too old for a call, the words say so."""
    missing = DriverCalls(lambda: ctypes.CDLL("libno-such-driver.so.1"))
    with pytest.raises(DriverCallError, match="no NVIDIA driver"):
        missing.tensor_map(ADDRESS, WANTED)
    old = DriverCalls(lambda: ctypes.CDLL(None))
    with pytest.raises(DriverCallError, match="no cuOccupancyMaxActiveClusters: it is older than CUDA 12"):
        old.max_active_clusters(1, (32, 1, 1), 0, 2)
