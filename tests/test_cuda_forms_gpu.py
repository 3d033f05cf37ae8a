"""Resident grids, zeroed buffers, clusters and tensor maps on a real GPU: the same sums in each way."""

from dataclasses import replace
from typing import Any

import pytest

from tuner.devices.cuda.device import CudaDevice
from tuner.model.plan import (
    Buffer,
    Configuration,
    Plan,
    ProblemSpec,
    Scalar,
    Source,
    Stage,
    TensorMap,
    Work,
    Workload,
)
from tuner.model.trial import FlagKind, Status

pytestmark = pytest.mark.gpu

ROWS, N, TILE = 2**15, 256, 8

CODE = """
// sums rows of N = 256 floats, one warp a row
__device__ void sum_row(const float* from, float* to) {
    int lane = threadIdx.x % 32;
    float carry = 0;
    for (int i = lane; i < 256; i += 32) {
        float value = from[i];
        for (int step = 1; step < 32; step *= 2) {
            float other = __shfl_up_sync(~0u, value, step);
            if (lane >= step) value += other;
        }
        to[i] = carry + value;
        carry += __shfl_sync(~0u, value, 31);
    }
}

// rows by the turn of the blocks
__global__ void resident(const float* x, float* y, int count) {
    for (int row = blockIdx.x; row < count; row += gridDim.x) sum_row(x + row * 256ll, y + row * 256ll);
}

// rows by tickets, which begin at zero in every run
__global__ void tickets(const float* x, float* y, unsigned* taken, int count) {
    for (;;) {
        unsigned row = 0;
        if (threadIdx.x == 0) row = atomicAdd(taken, 1);
        row = __shfl_sync(~0u, row, 0);
        if (row >= count) return;
        sum_row(x + row * 256ll, y + row * 256ll);
    }
}

// rows added to what is there
__global__ void added(const float* x, float* y, int count) {
    __shared__ float sums[256];
    for (int row = blockIdx.x; row < count; row += gridDim.x) {
        sum_row(x + row * 256ll, sums);
        for (int i = threadIdx.x; i < 256; i += 32) atomicAdd(y + row * 256ll + i, sums[i]);
    }
}

#if __CUDA_ARCH__ >= 900
// a row of each block is summed by its neighbour in the cluster, out of the neighbour's shared memory
template <int B>
__global__ void __cluster_dims__(B, 1, 1) clustered(const float* x, float* y, int count) {
    extern __shared__ float mine[];
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    for (int first = blockIdx.x - rank; first < count; first += gridDim.x) {
        for (int i = threadIdx.x; i < 256; i += 32) mine[i] = x[(first + rank) * 256ll + i];
        asm volatile("barrier.cluster.arrive;\\n\\tbarrier.cluster.wait;" ::: "memory");
        unsigned next = (rank + 1) % B, here = (unsigned)__cvta_generic_to_shared(mine), there;
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(next));
        float* row = y + (first + next) * 256ll;
        for (int i = threadIdx.x; i < 256; i += 32)
            asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(row[i]) : "r"(there + 4 * i) : "memory");
        __syncwarp();
        sum_row(row, row);
        asm volatile("barrier.cluster.arrive;\\n\\tbarrier.cluster.wait;" ::: "memory");
    }
}

struct alignas(64) Map { char bytes[128]; };

// boxes of 8 rows come by one copy each; the last box reaches beyond the rows, where it is filled with zeros
__global__ void mapped(const __grid_constant__ Map map, float* y, int count) {
    __shared__ alignas(128) float rows[8 * 256];
    __shared__ alignas(8) unsigned long long arrived;
    unsigned barrier = (unsigned)__cvta_generic_to_shared(&arrived), turn = 0;
    unsigned to = (unsigned)__cvta_generic_to_shared(rows);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();
    for (int first = blockIdx.x * 8; first < count; first += gridDim.x * 8, turn ^= 1) {
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 8192;" ::"r"(barrier) : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                         " [%0], [%1, {%2, %3}], [%4];"
                         ::"r"(to), "l"(&map), "r"(0), "r"(first), "r"(barrier) : "memory");
        }
        unsigned done = 0;
        while (!done)
            asm volatile("{.reg .pred p;\\n\\tmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\\n\\t"
                         "selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(barrier), "r"(turn) : "memory");
        int row = first + threadIdx.x / 32;
        if (row < count) sum_row(rows + threadIdx.x / 32 * 256, y + row * 256ll);
        __syncthreads();
    }
}
#endif
"""


def plan(
    entry: str, arguments: tuple[str | Scalar | TensorMap, ...], grid: int, rows: int, **stage: Any
) -> Plan:
    """Sums of rows by one of the kernels above; all take the number of rows last."""
    options = {"block": (32, 1, 1), "shared_bytes": 0, "resident": True, **stage}
    only = Stage(
        name="only",
        source=Source("forms.cu", CODE),
        entry=entry,
        options=("--std=c++17",),
        grid=(grid, 1, 1),
        arguments=(*arguments, Scalar("int32", rows)),
        **options,
    )
    buffers = (Buffer("x", "float32", (rows, N), "in"), Buffer("y", "float32", (rows, N), "out"))
    return Plan(
        Workload(entry, (("N", N),), rows),
        Configuration({"entry": entry}),
        (only,),
        (*buffers, Buffer("taken", "uint32", (1,), "zeroed")) if "taken" in arguments else buffers,
        ProblemSpec("scan"),
        Work(8.0 * rows * N, rows * N),
    )


def judge(device: CudaDevice, asked: Plan) -> None:
    """The plan is right in a check, and still after thousands of replays of a graph."""
    check = device.check(asked, 3)
    assert check.status is Status.OK, check.detail
    record = device.run([asked], 0.1)
    assert [result.status for result in record.results] == [Status.OK]
    assert not [flag for flag in record.flags if flag.kind is not FlagKind.WARM_L2]  # arrays are small here
    check = device.check(asked, 4)
    assert check.status is Status.OK, check.detail


def newer(device: CudaDevice) -> None:
    if device.limits.compute_capability < (9, 0):
        pytest.skip("needs compute capability 9.0")


@pytest.mark.parametrize("rows", [ROWS, 7])
def test_resident(device: CudaDevice, rows: int) -> None:
    """A grid cut to what the device holds does all of the work, and so does one that is smaller."""
    judge(device, plan("resident", ("x", "y"), rows, rows))


def test_zeroed(device: CudaDevice) -> None:
    """Tickets begin at zero in every run, or only the first one would write anything."""
    judge(device, plan("tickets", ("x", "y", "taken"), ROWS, ROWS))


def test_zeroed_output(device: CudaDevice) -> None:
    """Sums are added to zeros in every run, and not to those of the run before."""
    asked = plan("added", ("x", "y"), ROWS, ROWS)
    judge(device, replace(asked, buffers=(asked.buffers[0], replace(asked.buffers[1], cleared=True))))


@pytest.mark.parametrize("cluster", [2, 8, 16])
@pytest.mark.parametrize("resident", [True, False])
def test_clusters(device: CudaDevice, cluster: int, resident: bool) -> None:
    """Clusters run whole, those above eight blocks too, on grids cut and uncut, with much shared memory."""
    newer(device)
    asked = plan(
        *(f"clustered<{cluster}>", ("x", "y"), ROWS, ROWS),
        cluster=cluster,
        resident=resident,
        shared_bytes=60 * 1024,
    )
    judge(device, asked)


def test_clusters_that_cannot_be(device: CudaDevice) -> None:
    """Clusters other than the source's are a launch error in clear words, and the device goes on."""
    newer(device)
    asked = plan("clustered<4>", ("x", "y"), ROWS, ROWS, cluster=8, shared_bytes=60 * 1024)
    check = device.check(asked, 1)
    assert check.status is Status.LAUNCH_ERROR
    assert "cluster is 8, and __cluster_dims__ of the source says 4 x 1 x 1" in check.detail
    judge(device, plan("resident", ("x", "y"), ROWS, ROWS))


@pytest.mark.parametrize("rows", [ROWS, ROWS - 3])
@pytest.mark.parametrize("promotion", [0, 128, 256])
def test_tensor_maps(device: CudaDevice, rows: int, promotion: int) -> None:
    """Boxes of rows are copied by the map of the arrays at hand; what lies beyond the rows is not touched."""
    newer(device)
    rows_map = TensorMap("x", "float32", (N, rows), (N, TILE), promotion)
    judge(device, plan("mapped", (rows_map, "y"), -(-rows // TILE), rows, block=(32 * TILE, 1, 1)))
