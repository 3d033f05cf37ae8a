"""The transforms that keep a problem on chip, on a real GPU: bulk copies and clusters, in both directions."""

from collections.abc import Iterator
from pathlib import Path

import host_build
import pytest

from tuner.devices.cuda.device import CudaDevice
from tuner.model.plan import Buffer, Configuration, Plan, ProblemSpec, Scalar, Stage, Work, Workload
from tuner.model.trial import Status

pytestmark = pytest.mark.gpu

KERNELS = Path(__file__).parents[2] / "kernels"
FORMS = KERNELS / "fft-large"


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    opened = CudaDevice(0)
    if opened.limits.compute_capability < (9, 0):
        pytest.skip("needs compute capability 9.0")
    yield opened
    opened.close()


def planned(n: int, batch: int, direction: str, stage: Stage) -> Plan:
    return Plan(
        Workload("fft-large", (("N", n), ("direction", direction)), batch),
        Configuration({"entry": stage.entry}),
        (stage,),
        (Buffer("x", "complex64", (batch, n), "in"), Buffer("y", "complex64", (batch, n), "out")),
        ProblemSpec("fft"),
        Work(16.0 * batch * n, 1.0 * batch * n),
    )


def judge(device: CudaDevice, plan: Plan) -> None:
    """The plan is right in a check, and still after hundreds of runs back to back."""
    for seed in (1, 2):
        check = device.check(plan, seed)
        assert check.status is Status.OK, check.detail
        record = device.run([plan], 0.1)
        assert [result.status for result in record.results] == [Status.OK]


@pytest.mark.parametrize("direction", ["forward", "inverse"])
@pytest.mark.parametrize("batch", [1, 133, 1000])
@pytest.mark.parametrize("bulk", [True, False])
def test_blocks_that_walk(device: CudaDevice, bulk: bool, batch: int, direction: str) -> None:
    """Fewer problems than blocks, a few more, and many: each is transformed, copied ahead or not."""
    n, p = 16384, 32
    stage = Stage(
        name="persistent",
        source=host_build.read_source(FORMS / "persistent.cu", [KERNELS / "common"]),
        entry=f"fft_persistent<{n}, {p}, 32, Order::last, {str(bulk).lower()}, "
        f"{str(direction == 'inverse').lower()}>",
        options=("--std=c++17",),
        grid=(batch, 1, 1),
        block=(n // p, 1, 1),
        shared_bytes=16 + 8 * n * bulk + 4 * (n + n // 8),
        arguments=("x", "y", Scalar("int32", batch)),
        min_architecture=90,
        resident=True,
    )
    judge(device, planned(n, batch, direction, stage))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("scratch", [0, 4])
@pytest.mark.parametrize(
    ("n", "n1", "p", "b", "blocks"),
    [
        (2**14, 128, 16, 2, 2),
        (2**15, 128, 16, 16, 8),
        (2**16, 256, 16, 8, 2),
        (2**16, 256, 16, 16, 4),
        (2**17, 256, 32, 16, 2),
        (2**18, 512, 32, 16, 1),
    ],
)
def test_clusters(  # noqa: PLR0917 - a configuration
    device: CudaDevice,
    n: int,
    n1: int,
    p: int,
    b: int,
    blocks: int,
    scratch: int,
    counted: bool,
    wide: bool,
) -> None:
    """Blocks of a cluster that meet by barriers or by counted bytes transform every problem."""
    direction = "inverse" if wide != counted else "forward"
    points, batch = n // b, 2**22 // n + 1
    room = max(n1 // b * (n // n1 * 17 // 16 + 16), 0 if scratch else points + points // 8)
    flags = ", ".join(str(flag).lower() for flag in (wide, counted))
    stage = Stage(
        name="cluster",
        source=host_build.read_source(FORMS / "cluster.cu", [KERNELS / "common"]),
        entry=f"fft_cluster<{n}, {n1}, {p}, {b}, {p}, Order::last, {scratch}, {flags}, "
        f"{str(direction == 'inverse').lower()}, {blocks}>",
        options=("--std=c++17",),
        grid=(batch * b, 1, 1),
        block=(points // p, 1, 1),
        shared_bytes=16 + 8 * room + (points + points // 8) * scratch,
        arguments=("x", "y"),
        min_architecture=90,
        cluster=b,
    )
    judge(device, planned(n, batch, direction, stage))
