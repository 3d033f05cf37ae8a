"""How stages are loaded and launched: resident grids, clusters, shared memory, zeros, tensor maps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_cuda import LIMITS, ROWS, FakeCompiler, N, fake_device, plan, scan
from fake_cupy import DeviceArray, FakeCupy, Kernel

from tuner.compiler.compiler import CompiledStage
from tuner.devices.cuda.device import CudaDevice
from tuner.model.errors import CompileError
from tuner.model.plan import Buffer, LaunchDemands, Plan, Resources, Scratch, Stage, TensorMap
from tuner.model.trial import Status

SMS = LIMITS.multiprocessors


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeCupy, CudaDevice]:
    return fake_device(monkeypatch)


@pytest.fixture
def cp(fake: tuple[FakeCupy, CudaDevice]) -> FakeCupy:
    return fake[0]


@pytest.fixture
def device(fake: tuple[FakeCupy, CudaDevice]) -> CudaDevice:
    return fake[1]


def staged(base: Plan, **changes: Any) -> Plan:
    """The plan with changes to its only stage."""
    return replace(base, stages=(replace(base.stages[0], **changes),))


@pytest.mark.parametrize(
    ("grid", "launched"),
    [
        ((10**6, 1, 1), (SMS * 4, 1, 1)),
        ((SMS * 4, 1, 1), (SMS * 4, 1, 1)),
        ((77, 1, 1), (77, 1, 1)),
        ((10**6, 3, 1), (SMS * 4 // 3, 3, 1)),
        ((10**6, 10**3, 1), (1, 10**3, 1)),
    ],
)
def test_resident_grid(
    cp: FakeCupy, device: CudaDevice, grid: tuple[int, int, int], launched: tuple[int, int, int]
) -> None:
    """A resident grid has the blocks that the device holds at a time, and never more than it asks for."""
    cp.kernels["scan"].blocks_per_sm = 4
    resident = staged(plan("scan", grid=grid), resident=True)
    assert device.check(resident, 1).status is Status.OK
    assert device.run([resident], 0.01).results[0].status is Status.OK
    assert cp.kernels["scan"].grids == {launched}


def test_other_grids_are_left(cp: FakeCupy, device: CudaDevice) -> None:
    """A grid that is not resident is launched whole, even after the same code was."""
    for resident in (True, False):
        device.check(staged(plan("scan", grid=(10**6, 1, 1)), resident=resident), 1)
    assert cp.kernels["scan"].grids == {(SMS * 8, 1, 1), (10**6, 1, 1)}


def test_resident_grid_with_much_shared_memory(cp: FakeCupy, device: CudaDevice) -> None:
    """Shared memory is asked for before the device is asked how many blocks it holds."""
    large = staged(plan("scan", grid=(10**6, 1, 1), shared_bytes=100 * 1024), resident=True)
    assert device.check(large, 1).status is Status.OK
    assert cp.kernels["scan"].attributes == {"shared": 100 * 1024}


def test_block_that_never_fits(cp: FakeCupy, device: CudaDevice) -> None:
    """A resident stage whose block fits on no multiprocessor is refused."""
    cp.kernels["scan"].blocks_per_sm = 0
    check = device.check(staged(plan("scan"), resident=True), 1)
    assert check.status is Status.LAUNCH_ERROR
    assert "no block of 32 threads fits" in check.detail


@pytest.mark.parametrize(("cluster", "attributes"), [(4, {15: 2}), (8, {15: 2}), (16, {14: 1, 15: 2})])
def test_clusters(cp: FakeCupy, device: CudaDevice, cluster: int, attributes: dict[int, int]) -> None:
    """Clusters are balanced over the device, and those above eight blocks asked for."""
    kernel = cp.kernels["scan"]
    kernel.cluster, kernel.clusters = cluster, 7
    clustered = staged(plan("scan", grid=(1600, 1, 1)), cluster=cluster)
    assert device.check(clustered, 1).status is Status.OK
    assert kernel.attributes == attributes
    assert kernel.grids == {(1600, 1, 1)}


@pytest.mark.parametrize(("blocks", "launched"), [(1600, 7 * 16), (32, 32)])
def test_resident_clusters(cp: FakeCupy, device: CudaDevice, blocks: int, launched: int) -> None:
    """A resident grid of clusters has the clusters that the device holds at the same time."""
    kernel = cp.kernels["scan"]
    kernel.cluster, kernel.clusters = 16, 7
    clustered = staged(plan("scan", grid=(blocks, 1, 1)), cluster=16, resident=True)
    assert device.check(clustered, 1).status is Status.OK
    assert kernel.grids == {(launched, 1, 1)}


@pytest.mark.parametrize(
    ("grid", "clusters", "words"),
    [
        (64, (8, 0), "no cluster of 8 blocks of 32 threads and 0 bytes of dynamic shared memory fits"),
        (60, (8, 9), "a grid of 60 blocks is not made of clusters of 8"),
        (64, (4, 9), "clusters of 8, and the source has __cluster_dims__(4)"),
        (64, (0, 9), "clusters of 8, and the source has __cluster_dims__(0)"),
    ],
)
def test_clusters_that_cannot_be(
    cp: FakeCupy, device: CudaDevice, grid: int, clusters: tuple[int, int], words: str
) -> None:
    """Clusters that do not fit, do not fill the grid or are not the source's are refused clearly."""
    kernel = cp.kernels["scan"]
    kernel.cluster, kernel.clusters = clusters
    check = device.check(staged(plan("scan", grid=(grid, 1, 1)), cluster=8), 1)
    assert check.status is Status.LAUNCH_ERROR
    assert words in check.detail
    assert (
        device.check(plan("double", problem="expression", reference=(("y", "2 * x"),)), 1).status is Status.OK
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"min_architecture": 100}, "needs compute capability 10.0; the device has 9.0"),
        ({"min_architecture": 120}, "needs compute capability 12.0; the device has 9.0"),
    ],
)
def test_architecture(device: CudaDevice, changes: dict[str, int], words: str) -> None:
    """A stage for newer devices is refused before it is compiled."""
    check = device.check(staged(plan("wrong_syntax"), **changes), 1)
    assert check.status is Status.LAUNCH_ERROR
    assert words in check.detail
    assert device.check(staged(plan("scan"), min_architecture=90), 1).status is Status.OK


@pytest.mark.parametrize(
    "changes", [{"cluster": 1, "arguments": (TensorMap("x", "float32", (N, ROWS), (32, 8)),)}, {"cluster": 2}]
)
def test_forms_of_newer_devices(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    """Clusters and tensor maps are refused below compute capability 9.0, whatever the stage states."""
    _, device = fake_device(monkeypatch, replace(LIMITS, compute_capability=(8, 7)))
    check = device.check(staged(plan("scan", grid=(2, 1, 1)), **changes), 1)
    assert check.status is Status.LAUNCH_ERROR
    assert "needs compute capability 9.0; the device has 8.7" in check.detail


def test_static_and_dynamic_shared_memory(cp: FakeCupy, device: CudaDevice) -> None:
    """Both kinds count: 48 KiB are exceeded together, and so is what a block may have."""
    limit = LIMITS.shared_bytes_per_block
    assert device.check(plan("sharing", shared_bytes=47 * 1024), 1).status is Status.OK
    assert cp.kernels["sharing"].attributes == {}
    assert device.check(plan("sharing", shared_bytes=47 * 1024 + 4), 1).status is Status.OK
    assert cp.kernels["sharing"].attributes == {"shared": 47 * 1024 + 4}
    assert device.check(plan("sharing", shared_bytes=limit - 1024), 1).status is Status.OK
    check = device.check(plan("sharing", shared_bytes=limit - 1020), 1)
    assert check.status is Status.LAUNCH_ERROR
    assert f"{limit + 4} bytes of shared memory per block; the device has {limit}" in check.detail


def counting(base: Plan) -> Plan:
    """The plan with a third array, of counters that begin at zero."""
    buffers = (*base.buffers, Buffer("counters", "int32", (4,), "zeroed"))
    return replace(staged(base, arguments=("x", "y", "counters")), buffers=buffers)


def test_zeroed_buffers(cp: FakeCupy, device: CudaDevice) -> None:
    """Counters are zero before every run: in the check, which poisons, in graphs, and in single rounds."""

    def count(x: DeviceArray, y: DeviceArray, counters: DeviceArray) -> None:
        assert counters.tolist() == [0, 0, 0, 0]
        counters += 1
        y[...] = np.cumsum(x.astype(np.float64), axis=1)

    cp.kernels["scan"].action = count
    counted = counting(plan("scan"))
    for _ in range(2):
        check = device.check(counted, 1)
        assert check.status is Status.OK, check.detail
    for plans in ([counted], [counted, plan("double", kernel="other")]):
        record = device.run(plans, 0.05)
        assert [result.status for result in record.results] == [Status.OK] * len(plans)
        assert record.flags == ()
    assert cp.kernels["scan"].runs > 50


def test_zeroed_outputs(cp: FakeCupy, device: CudaDevice) -> None:
    """An output that the kernel file sets to zero is so before every run, as atomic operations need it."""

    def add(x: DeviceArray, y: DeviceArray, *_: object) -> None:
        assert not y.any()
        y += np.cumsum(x.astype(np.float64), axis=1)

    cp.kernels["scan"].action = add
    base = plan("scan")
    cleared = replace(base, buffers=(base.buffers[0], replace(base.buffers[1], cleared=True)))
    for _ in range(2):
        check = device.check(cleared, 1)
        assert check.status is Status.OK, check.detail
    assert device.run([cleared], 0.05).results[0].status is Status.OK
    assert cp.kernels["scan"].runs > 20


def test_tensor_maps(cp: FakeCupy, device: CudaDevice) -> None:
    """Every launch is handed the map of its own set of arrays, by value, beside the pointers."""
    seen: set[tuple[int, ...]] = set()

    def look(encoded: Any, x: DeviceArray, y: DeviceArray) -> None:
        words: Sequence[int] = np.frombuffer(encoded.tobytes(), np.uint64).tolist()
        assert words[0] == x.data.ptr
        seen.add(tuple(words[1:6]))
        y[...] = np.cumsum(x.astype(np.float64), axis=1)

    cp.kernels["scan"].action = look
    mapped = staged(plan("scan"), arguments=(TensorMap("x", "float32", (N, ROWS), (32, 8), 64), "x", "y"))
    assert device.check(mapped, 1).status is Status.OK
    assert device.run([mapped], 0.05).results[0].status is Status.OK
    assert seen == {(N, ROWS, 32, 8, 1)}


def test_tensor_map_that_cannot_be(device: CudaDevice) -> None:
    """A map that the driver refuses is a launch error of its workload, with the buffer's name."""
    mapped = staged(plan("scan"), arguments=(TensorMap("x", "float32", (N, ROWS), (3, 8)), "x", "y"))
    check = device.check(mapped, 1)
    assert check.status is Status.LAUNCH_ERROR
    assert "stage scan: no tensor map of buffer 'x'" in check.detail


class Asking(FakeCompiler):
    """Compiles to code that asks for more than its stage says."""

    def compile(self, stages: Sequence[Stage]) -> list[CompiledStage | CompileError]:
        demands = LaunchDemands(64, 60 * 1024, 2, (Scratch(), Scratch(128, 256)))
        return [CompiledStage(b"cubin", s.entry, Resources(32, demands=demands), "") for s in stages]


def test_launches_have_what_only_the_compiler_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamic shared memory, clusters, null pointers and scratch for every block come with the code."""
    cp, device = fake_device(monkeypatch, compiler=Asking())
    taken: list[tuple[int, int, int]] = []

    def asking(x: DeviceArray, y: DeviceArray, rows: int, null: int, scratch: DeviceArray) -> None:
        taken.append((int(null), scratch.nbytes >= 128 * 2 * 10, scratch.ctypes.data % 256))
        scan(x, y, rows)

    kernel = cp.kernels["scan"] = Kernel(asking, 1e-6)
    kernel.cluster, kernel.clusters = 2, 7
    assert device.check(plan("scan", grid=(10, 1, 1)), 1).status is Status.OK
    assert kernel.grids == {(20, 1, 1)}
    assert kernel.attributes == {"shared": 60 * 1024, 15: 2}
    assert set(taken) == {(0, True, 0)}


def test_more_than_the_device_has_is_refused_when_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared memory that the compiler asks for counts as that of the stage does."""
    _, device = fake_device(monkeypatch, compiler=Asking())
    check = device.check(plan("scan", grid=(10, 1, 1), shared_bytes=200 * 1024), 1)
    assert check.status is Status.LAUNCH_ERROR
    assert f"{260 * 1024} bytes of shared memory per block" in check.detail
