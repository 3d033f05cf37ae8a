from dataclasses import replace
from typing import Any

import host_build
import numpy as np
import pytest
from host_build import CHECKED, HostRunError, Order

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

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

KERNELS = Source(
    "kernels.cu",
    """
template <int L, bool barrier>
__global__ void __launch_bounds__(L) mirrored(const float* __restrict__ x, float* __restrict__ y) {
    __shared__ float tile[L];
    const int i = threadIdx.x;
    tile[i] = x[blockIdx.x * L + i];
    if (barrier) __syncthreads();
    y[blockIdx.x * L + i] = tile[L - 1 - i];
}

// Each warp sums what its lanes hold, pair by pair; packed, its later sums lie among another warp's first.
template <bool packed>
__global__ void summed(const float* __restrict__ x, float* __restrict__ y) {
    __shared__ float room[64];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    room[threadIdx.x] = x[threadIdx.x];
    for (int left = 16; left > 0; left /= 2) {
        float* const from = room + warp * (packed ? 2 * left : 32);
        float* const to = room + warp * (packed ? left : 32);
        __syncwarp();
        const float sum = lane < left ? from[2 * lane] + from[2 * lane + 1] : 0.0f;
        __syncwarp();
        if (lane < left) to[lane] = sum;
    }
    if (lane == 0) y[warp] = room[warp * (packed ? 1 : 32)];
}

__global__ void neighbours(const int* x, int4* y, int width) {
    const int v = x[threadIdx.x];
    const unsigned all = 0xffffffffu;
    y[threadIdx.x] = make_int4(__shfl_sync(all, v, 5, width), __shfl_up_sync(all, v, 3, width),
                               __shfl_down_sync(all, v, 3, width), __shfl_xor_sync(all, v, 6, width));
}

__global__ void half_waits(int line) {
    if (line == 0 && threadIdx.x < 32) __syncthreads();
    if (line == 1) {
        if (threadIdx.x < 32)
            __syncthreads();
        else
            __syncthreads();
    }
    if (line == 2 && threadIdx.x == 0) __syncwarp(2u);
    if (line == 3) {
        if (threadIdx.x == 0)
            __syncwarp(3u);
        else
            __syncthreads();
    }
}

__global__ void unwritten(float* y) {
    extern __shared__ float given[];
    __shared__ float own[2];
    y[0] = given[0], y[1] = own[1];
    given[0] = own[1] = 1.0f;
}
""",
)


@pytest.mark.parametrize("order", host_build.ORDERS)
def test_barriers_make_every_order_right(order: Order) -> None:
    """A kernel with its barriers gives the same answer in every order of running its threads."""
    x = np.arange(192, dtype=np.float32)
    y = np.zeros_like(x)
    host_build.run(KERNELS, "mirrored<64, true>", 3, 64, 0, [x, y], order=order)
    np.testing.assert_array_equal(y, x.reshape(3, 64)[:, ::-1].ravel())


@pytest.mark.parametrize("order", host_build.ORDERS)
def test_missing_barrier_shows(order: Order) -> None:
    """Without its barrier the same kernel reads shared memory that nobody has written."""
    x = np.arange(64, dtype=np.float32)
    y = np.zeros_like(x)
    host_build.run(KERNELS, "mirrored<64, false>", 1, 64, 0, [x, y], order=order)
    assert np.isnan(y).any()


def sums_of_warps(entry: str, order: Order, seed: int) -> list[float]:
    y = np.zeros(2, np.float32)
    host_build.run(KERNELS, entry, 1, 64, 0, [np.arange(64, dtype=np.float32), y], order=order, seed=seed)
    return [float(value) for value in y]


def test_shuffled_warps_change_places_where_their_lanes_meet() -> None:
    """Warps without a common barrier may not share memory: one that runs ahead spoils another's sums."""
    right = [sum(range(32)), sum(range(32, 64))]
    seeds = range(8)
    assert all(sums_of_warps("summed<false>", order, 0) == right for order in host_build.ORDERS)
    assert all(sums_of_warps("summed<false>", "shuffle", seed) == right for seed in seeds)
    wrong = [sums_of_warps("summed<true>", "shuffle", seed) != right for seed in seeds]
    assert sum(wrong) >= len(seeds) / 4, wrong


@pytest.mark.parametrize("width", [8, 16, 32])
def test_shuffles_read_the_lanes_of_the_programming_guide(width: int) -> None:
    """A shuffle stays within its group of ``width`` lanes; out of range it returns the lane's own value."""
    lanes = np.arange(64, dtype=np.int32)
    y = np.zeros((64, 4), np.int32)
    host_build.run(KERNELS, "neighbours", 1, 64, 0, [lanes, y, width])
    group, within = lanes - lanes % width, lanes % width
    np.testing.assert_array_equal(y[:, 0], group + 5)
    np.testing.assert_array_equal(y[:, 1], np.where(within < 3, lanes, lanes - 3))
    np.testing.assert_array_equal(y[:, 2], np.where(within + 3 >= width, lanes, lanes + 3))
    np.testing.assert_array_equal(y[:, 3], lanes ^ 6)


@pytest.mark.parametrize(
    ("line", "trouble"),
    [
        (0, "32 threads left before the barrier"),
        (1, "different barriers"),
        (2, "mask does not name it"),
        (3, "lanes that never come"),
    ],
)
def test_barrier_that_is_not_met_is_named(line: int, trouble: str) -> None:
    """A barrier that only some threads reach ends the launch with what went wrong, not with a hang."""
    with pytest.raises(HostRunError, match=trouble):
        host_build.run(KERNELS, "half_waits", 1, 64, 0, [line])


def test_shared_memory_starts_as_nan_in_every_block() -> None:
    """Neither kind of shared memory brings values from the block before."""
    y = np.zeros(2, np.float32)
    host_build.run(KERNELS, "unwritten", 2, 1, 8, [y])
    assert np.isnan(y).all()


def test_writes_outside_and_to_inputs_are_found() -> None:
    """A write behind an array, or into one that is read only, fails the launch."""
    x = np.ones(64, np.float32)
    with pytest.raises(HostRunError, match="outside of the array"):
        host_build.run(KERNELS, "mirrored<64, true>", 1, 64, 0, [x, np.zeros(60, np.float32)])
    y = np.zeros(64, np.float32)
    y.flags.writeable = False
    with pytest.raises(HostRunError, match="read-only"):
        host_build.run(KERNELS, "mirrored<64, true>", 1, 64, 0, [x, y])


def test_wrong_arguments_are_refused() -> None:
    """Arguments of another number or size than the kernel's parameters never reach it."""
    with pytest.raises(HostRunError, match="arguments"):
        host_build.run(KERNELS, "half_waits", 1, 64, 0, [np.float64(1)])


def test_compiler_message_is_kept() -> None:
    """What g++ says of a source that does not compile is in the error."""
    with pytest.raises(HostRunError, match="undeclared_thing"):
        host_build.build(Source("bad.cu", "__global__ void f() { undeclared_thing(); }"), ["f"])


# --- Plans on the host: what a device prepares for their stages is prepared there too.


SOURCE = Source(
    "plan.cu",
    """
struct alignas(64) Map {
    unsigned long long words[16];
};

// Blocks take their turns at a counter; what was in `between` before must not matter.
__global__ void doubled(const __grid_constant__ Map map, const float* x, float* between, unsigned* turns,
                        int units) {
    __shared__ unsigned turn;
    while (true) {
        if (threadIdx.x == 0) turn = atomicAdd(turns, 1u);
        __syncthreads();
        const int unit = turn;
        __syncthreads();
        if (unit >= units) break;
        const int i = unit * blockDim.x + threadIdx.x;
        between[i] = 2 * x[i] + float(map.words[15]);
    }
    if (threadIdx.x == 0) turns[1 + blockIdx.x] = 1;
}

__global__ void plus_rank(const float* between, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = between[i] + float(threadIdx.x / 16);
}
""",
)
WORDS, UNITS = 64, 2


def made(**changes: Any) -> Plan:
    """Takes x through `between` to y = 2 x + rank of the block in its cluster."""
    arguments = (TensorMap("x", "float32", (32, 2), (32, 2)), "x", "between", "turns", Scalar("int32", UNITS))
    first = Stage("first", SOURCE, "doubled", (), (UNITS, 1, 1), (32, 1, 1), 0, arguments, resident=True)
    last = Stage("last", SOURCE, "plus_rank", (), (4, 1, 1), (16, 1, 1), 0, ("between", "y"), cluster=2)
    buffers = (
        Buffer("x", "float32", (1, WORDS), "in"),
        Buffer("between", "float32", (WORDS,), "scratch"),
        Buffer("turns", "uint32", (1 + 4,), "zeroed"),
        Buffer("y", "float32", (1, WORDS), "out"),
    )
    plan = Plan(
        Workload("plus", (), 1),
        Configuration({}),
        (first, last),
        buffers,
        ProblemSpec("consistent"),
        Work(1, 1),
    )
    return replace(plan, stages=(replace(first, **changes), last))


def test_stages_run_one_after_another_on_what_a_device_would_give_them() -> None:
    """Zeroed buffers are zero, blocks of a cluster share one block, maps are empty, inputs stay."""
    x = np.arange(WORDS, dtype=np.float32).reshape(1, WORDS)
    for order in host_build.ORDERS:
        (y,) = host_build.run_plan_on_host(made(), {"x": x}, flags=CHECKED, order=order).values()
        np.testing.assert_array_equal(y[0], 2 * x[0] + np.arange(WORDS) % 32 // 16)


def test_resident_grids_have_two_blocks() -> None:
    """A grid that a device would cut is cut, so that blocks have to walk."""
    arrays = {b.name: np.zeros(b.shape, b.dtype) for b in made().buffers}
    host_build.run_plan(made(grid=(4, 1, 1)), arrays)
    assert arrays["turns"].tolist() == [4, 1, 1, 0, 0]


def test_what_is_not_written_shows() -> None:
    """Outputs and scratch start as NaN."""
    x = np.zeros((1, WORDS), np.float32)
    short = made()
    short = replace(short, stages=short.stages[1:])
    assert np.isnan(host_build.run_plan_on_host(short, {"x": x})["y"]).all()


def test_a_barrier_may_be_left_out() -> None:
    """Left out, a barrier that is needed gives a race; the one of another source changes nothing."""
    x = np.zeros((1, WORDS), np.float32)
    host_build.run_plan_on_host(made(), {"x": x}, flags=CHECKED)
    first, second = host_build.barriers_reached(made())[:2]
    assert (first.file, first.code) == ("plan.cu", "__syncthreads();")
    assert second.line == first.line + 2
    for barrier in (first, second):
        with pytest.raises(HostRunError, match="no barrier between"):
            host_build.run_plan_on_host(made(), {"x": x}, flags=CHECKED, without=barrier)
    host_build.run_plan_on_host(made(), {"x": x}, flags=CHECKED, without=replace(first, source_sha256=""))


def test_clusters_of_too_many_threads_need_a_gpu() -> None:
    """A cluster is one block here, which has 1024 threads at most."""
    assert host_build.needs_gpu(made()) == ""
    assert "1024 threads" in host_build.needs_gpu(made(cluster=64))
