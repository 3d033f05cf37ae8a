"""The words of CUDA C++ that the host's machine knows mean what they mean on a device."""

import host_build
import numpy as np
import numpy.typing as npt
import pytest
from host_build import CHECKED, FLAGS

from tuner.model.plan import Source

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

KERNELS = Source(
    "kernels.cu",
    """
static_assert(alignof(float2) == 8 && alignof(float4) == 16 && alignof(double2) == 16);
static_assert(sizeof(float3) == 12 && sizeof(double2) == 16 && sizeof(longlong2) == 16);

__global__ void __launch_bounds__(64, 2) __cluster_dims__(1, 1, 1) votes(int* out, int chosen) {
    const int t = threadIdx.x;
    const bool mine = t == chosen;
    int* const row = out + 6 * t;
    row[0] = __syncthreads_or(mine);
    row[1] = __syncthreads_and(t != chosen);
    row[2] = __syncthreads_count(t <= chosen);
    row[3] = __any_sync(0xffffffffu, mine);
    row[4] = __all_sync(0xffffffffu, !mine);
    row[5] = int(__ballot_sync(0xffffffffu, mine || t % 32 == 31));
}

__global__ void counts(int* i, unsigned* u, unsigned long long* l, float* f, double* d) {
    const int t = threadIdx.x;
    atomicAdd(i, -1), atomicAdd(u, 2u), atomicAdd(l, 3ull), atomicAdd(f, 0.5f), atomicAdd(d, 0.25);
    atomicMax(i + 1, t), atomicMin(i + 2, t), atomicOr(u + 1, 1u << t), atomicAnd(u + 2, ~(1u << t));
    atomicExch(i + 3, 7), atomicCAS(u + 3, 0u, unsigned(t + 1)), atomicInc(u + 4, 4u), atomicSub(i + 4, 2);
    __threadfence();
}

template <class T>
__global__ void kept(const T* x, T* y, const __grid_constant__ double2 factor) {
    extern __shared__ __align__(16) unsigned char room[];
    T* const own = reinterpret_cast<T*>(room);
    own[threadIdx.x] = __ldcg(x + threadIdx.x);
    __syncthreads();
    __stcg(y + threadIdx.x, T(own[blockDim.x - 1 - threadIdx.x] * T(factor.x) + T(factor.y)));
}

__global__ void bits(unsigned* out, float x) {
    out[0] = __brev(6u), out[1] = __popc(0xf0f0u), out[2] = __clz(1), out[3] = __ffs(8);
    out[4] = __float_as_uint(x), out[5] = __umulhi(1u << 31, 6u), out[6] = max(3u, 2), out[7] = min(1ull, 2u);
}

__global__ void stopped() {
    if (threadIdx.x == 3) __trap();
}
""",
)


@pytest.mark.parametrize("order", host_build.ORDERS)
def test_votes_count_the_threads_of_a_block_and_of_a_warp(order: host_build.Order) -> None:
    """Barriers that vote speak for the block, votes of a warp for their lanes."""
    out = np.zeros((64, 6), np.int32)
    host_build.run(KERNELS, "votes", 1, 64, 0, [out, 33], flags=CHECKED, order=order)
    assert (out[:, :3] == [1, 0, 34]).all()
    assert (out[:32, 3:] == [0, 1, -(2**31)]).all()
    assert (out[32:, 3:] == [1, 0, 2 - 2**31]).all()


def test_atomics_of_every_type() -> None:
    """Every thread's change is in the sum, the extremes, the bits and the last value."""
    i, u = np.array([0, -1, 99, 0, 0], np.int32), np.array([0, 0, ~0 & 0xFFFFFFFF, 0, 0], np.uint32)
    wide, f, d = np.zeros(1, np.uint64), np.zeros(1, np.float32), np.zeros(1)
    host_build.run(KERNELS, "counts", 1, 32, 0, [i, u, wide, f, d])
    assert i.tolist() == [-32, 31, 0, 7, -64]
    assert u.tolist() == [64, 2**32 - 1, 0, 1, 32 % 5]
    assert (wide[0], f[0], d[0]) == (96, 16, 8)


@pytest.mark.parametrize("flags", [FLAGS, CHECKED])
@pytest.mark.parametrize(
    ("ctype", "dtype"), [("float", "f4"), ("double", "f8"), ("int", "i4"), ("long long", "i8")]
)
def test_dynamic_shared_memory_holds_any_type(ctype: str, dtype: str, flags: tuple[str, ...]) -> None:
    """Numbers of 4 and 8 bytes pass through it; structures are passed by value."""
    x: npt.NDArray[np.float64] = np.arange(64).astype(dtype)
    y = np.zeros_like(x)
    factor = np.zeros(1, [("x", "f8"), ("y", "f8")])
    factor["x"], factor["y"] = 2, 5
    host_build.run(KERNELS, f"kept<{ctype}>", 1, 64, 64 * 8, [x, y, factor[0]], flags=flags)
    np.testing.assert_array_equal(y, 2 * x[::-1] + 5)


def test_bit_functions() -> None:
    """Bits are counted, reversed and reinterpreted as the programming guide says."""
    out = np.zeros(8, np.uint32)
    host_build.run(KERNELS, "bits", 1, 1, 0, [out, 1.0])
    assert out.tolist() == [0x60000000, 8, 31, 4, 0x3F800000, 3, 3, 1]


def test_a_trap_ends_the_launch() -> None:
    """A kernel that gives up fails with the thread that did."""
    with pytest.raises(host_build.HostRunError, match=r"thread \(3, 0, 0\): line \d+: __trap"):
        host_build.run(KERNELS, "stopped", 1, 32, 0, [])
