import host_build
import numpy as np
import pytest
from host_build import HostRunError, Order

from tuner.model.plan import Source

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
