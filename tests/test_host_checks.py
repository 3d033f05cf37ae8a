"""The checked build: it finds races, strays and undefined behaviour, whatever the order."""

import re

import host_build
import numpy as np
import pytest
from host_build import CHECKED, HostRunError, Order

from tuner.model.plan import Source

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

KERNELS = Source(
    "kernels.cu",
    """
__device__ void meet(int how) {
    const unsigned pair = 3u << threadIdx.x % 32 / 2 * 2;
    if (how == 1) __syncthreads();
    if (how == 2) __syncwarp();
    if (how == 3) __syncwarp(pair);
    if (how == 4) __shfl_sync(0xffffffffu, 1, 0);
    if (how == 5) __syncthreads_or(0);
}

// Thread t reads what thread t ^ distance wrote, or writes what that thread reads.
__global__ void exchanged(float* y, int how, int distance, bool reads_first) {
    __shared__ float room[64];
    const int t = threadIdx.x;
    if (reads_first) {
        y[t] = room[t ^ distance];
        meet(how);
        room[t] = 1.0f;
    } else {
        room[t] = 1.0f;
        meet(how);
        y[t] = room[t ^ distance];
    }
}

__global__ void wide(float* y, bool ordered) {
    extern __shared__ float4 tile[];
    tile[threadIdx.x] = make_float4(1, 2, 3, 4);
    if (ordered) __syncwarp();
    y[threadIdx.x] = reinterpret_cast<float*>(tile)[4 * (threadIdx.x ^ 1) + 3];
}

__global__ void turns(float* y, bool ordered) {
    __shared__ float room[32];
    for (int i = 0; i < 3; ++i) {
        room[threadIdx.x] = float(i);
        __syncthreads();
        y[threadIdx.x] = room[31 - threadIdx.x];
        if (ordered) __syncthreads();
    }
}

__global__ void handed(float* y, bool ordered) {
    y[threadIdx.x] = 1.0f;
    if (ordered) __syncthreads();
    y[64 + threadIdx.x] = y[threadIdx.x ^ 32];
}

__global__ void counted(unsigned* sum) {
    __shared__ unsigned room;
    if (threadIdx.x == 0) room = 0;
    __syncthreads();
    atomicAdd(&room, 2u);
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(sum, room);
}

__global__ void copied(const float* x, float* y, int ahead) { y[threadIdx.x] = x[int(threadIdx.x) + ahead]; }
__global__ void written(const float* x, float* y, int ahead) { y[int(threadIdx.x) + ahead] = x[threadIdx.x]; }
__global__ void added(const float*, float* y, int ahead) { atomicAdd(y + threadIdx.x + ahead, 1.0f); }
__global__ void dynamic(const int*, int*, int n) { extern __shared__ int r[]; r[int(threadIdx.x) + n] = 1; }

__global__ void undefined(float* y, int how, int n) {
    float own[4] = {};
    if (how == 0) y[0] = own[n];
    if (how == 1) y[0] = float(1 << n);
    if (how == 2) y[0] = float(n * 0x7fffffff);
    if (how == 3) y[0] = float(40 / (n - 40));
    if (how == 4) y[0] = reinterpret_cast<float2*>(y + n % 3)->x;
    if (how == 5) y[0] = float(int(1e10f * float(n)));
}
""",
)


def line_of(code: str) -> int:
    """Line of the only place where the kernels hold ``code``."""
    assert KERNELS.text.count(code) == 1
    return KERNELS.text[: KERNELS.text.index(code)].count("\n") + 1


def exchanged(how: int, distance: int, *, reads_first: bool = False, order: Order = "forward") -> None:
    args: list[host_build.Argument] = [np.zeros(64, np.float32), how, distance, np.bool_(reads_first)]
    host_build.run(KERNELS, "exchanged", 1, 64, 0, args, flags=CHECKED, order=order)


@pytest.mark.parametrize("order", host_build.ORDERS)
@pytest.mark.parametrize("reads_first", [False, True])
@pytest.mark.parametrize(("how", "distance"), [(1, 1), (1, 32), (2, 1), (2, 16), (3, 1), (5, 32), (0, 0)])
def test_a_barrier_of_both_threads_orders_them(
    how: int, distance: int, reads_first: bool, order: Order
) -> None:
    """A block barrier orders all threads, a warp's its lanes, a masked one those it names."""
    exchanged(how, distance, reads_first=reads_first, order=order)


@pytest.mark.parametrize("order", host_build.ORDERS)
@pytest.mark.parametrize("reads_first", [False, True])
@pytest.mark.parametrize(("how", "distance"), [(0, 1), (0, 32), (2, 32), (3, 2), (3, 32), (4, 1)])
def test_no_barrier_between_two_threads_is_a_race(
    how: int, distance: int, reads_first: bool, order: Order
) -> None:
    """Without one, with one of another group, or with a shuffle alone, the race is found in any order."""
    with pytest.raises(HostRunError, match="with no barrier between"):
        exchanged(how, distance, reads_first=reads_first, order=order)


def test_a_race_names_both_threads_and_lines() -> None:
    """The message says which threads met where, so that the missing barrier's place is known."""
    with pytest.raises(HostRunError) as caught:
        exchanged(2, 32)
    read = line_of("room[t ^ distance];\n    }\n")
    assert str(caught.value) == (
        "kernels.cu, exchanged: block (0, 0, 0): thread (32, 0, 0): writes byte 128 of static shared memory"
        f" (kernels.cu:{read - 2}), which thread (0, 0, 0) read (kernels.cu:{read}) with no barrier between"
    )


@pytest.mark.parametrize(("entry", "shared"), [("wide", 512), ("turns", 0)])
def test_wide_and_repeated_accesses_are_watched(entry: str, shared: int) -> None:
    """All of a vector counts, and so does a place that is written again before it was read by all."""
    y = np.zeros(32, np.float32)
    host_build.run(KERNELS, entry, 1, 32, shared, [y, np.bool_(1)], flags=CHECKED)
    with pytest.raises(HostRunError, match="with no barrier between"):
        host_build.run(KERNELS, entry, 1, 32, shared, [y, np.bool_(0)], flags=CHECKED)


def test_arrays_are_watched_within_a_block() -> None:
    """What threads of a block hand each other through an array needs a barrier too; blocks need none."""
    y = np.zeros(128, np.float32)
    host_build.run(KERNELS, "handed", 2, 64, 0, [y, np.bool_(1)], flags=CHECKED)
    with pytest.raises(HostRunError, match=r"of an array .* with no barrier between"):
        host_build.run(KERNELS, "handed", 2, 64, 0, [y, np.bool_(0)], flags=CHECKED)


# The second warp hands the first one a number in each of two phases, by way of a barrier that counts.
COUNTED = Source(
    "counted.cu",
    """
__global__ void passed_on(float* y, int how) {
    __shared__ __mbarrier_t ready, taken;
    __shared__ float room;
    const int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) __mbarrier_init(&ready, 1), __mbarrier_init(&taken, 32);
    __syncthreads();
    for (int k = 0; k < 2; ++k) {
        if (threadIdx.x < 32) {
            if (how != 1)
                while (!__mbarrier_test_wait_parity(&ready, k)) {}
            y[lane] = y[lane + 32] = room;
            __mbarrier_arrive(&taken);
        } else if (lane == 0) {
            if (how != 2 && k > 0) __mbarrier_test_wait_parity(&taken, k - 1);
            room = float(k + 1);
            if (how != 3) __mbarrier_arrive(&ready);
        }
    }
}
""",
)


@pytest.mark.parametrize("order", host_build.ORDERS)
def test_barriers_that_count_arrivals_order_memory(order: Order) -> None:
    """Who has waited for a phase sees what was written before its arrivals, and nothing that came after."""
    y = np.zeros(64, np.float32)
    host_build.run(COUNTED, "passed_on", 1, 64, 0, [y, 0], flags=CHECKED, order=order)
    assert (y == 2).all()
    for how in (1, 2):
        with pytest.raises(HostRunError, match=r"with no barrier between|arrivals that never come"):
            host_build.run(COUNTED, "passed_on", 1, 64, 0, [y, how], flags=CHECKED, order=order)
    with pytest.raises(HostRunError, match=r"waits at line 11 for arrivals that never come"):
        host_build.run(COUNTED, "passed_on", 1, 64, 0, [y, 3], flags=CHECKED, order=order)


def test_atomics_are_no_races() -> None:
    """Threads may count in one place without a barrier."""
    total = np.zeros(1, np.uint32)
    host_build.run(KERNELS, "counted", 2, 64, 0, [total], flags=CHECKED)
    assert total[0] == 128


@pytest.mark.parametrize(
    ("entry", "ahead", "trouble"),
    [
        ("copied", 1, r"thread \(31, 0, 0\): reads 4 bytes .* 0 bytes past the end of argument 0"),
        ("copied", -2, "8 bytes before the start of argument 0, which has 128"),
        ("written", 2, "writes 4 bytes .* 0 bytes past the end of argument 1"),
        ("written", -1, "4 bytes before the start of argument 1"),
        ("written", 1 << 28, "far from any array"),
        ("added", 1, "an atomic function outside of any array"),
        ("dynamic", 1, "past the end of dynamic shared memory, which has 128"),
        ("dynamic", -1, "before the start of dynamic shared memory"),
    ],
)
def test_an_access_outside_of_every_array_is_found(entry: str, ahead: int, trouble: str) -> None:
    """One element too far, read or written, ends the launch with its place and the array it missed."""
    x, y = np.zeros(32, np.float32), np.zeros(32, np.float32)
    host_build.run(KERNELS, entry, 1, 32, 128, [x, y, 0], flags=CHECKED)
    with pytest.raises(HostRunError, match=trouble) as caught:
        host_build.run(KERNELS, entry, 1, 32, 128, [x, y, ahead], flags=CHECKED)
    assert re.search(rf"(kernels.cu:|line ){line_of(f'{entry}(const')}\b", str(caught.value))


def test_a_write_to_an_input_is_found_where_it_happens() -> None:
    """An array that is not writeable may be read only."""
    x, y = np.zeros(32, np.float32), np.zeros(32, np.float32)
    y.flags.writeable = False
    with pytest.raises(HostRunError, match=r"writes to argument 1 \(kernels.cu:\d+\), a read-only array"):
        host_build.run(KERNELS, "written", 1, 32, 0, [x, y, 0], flags=CHECKED)


@pytest.mark.parametrize(
    ("how", "trouble"),
    [
        (0, "index outside of an array"),
        (1, "shift by more bits"),
        (2, "signed overflow in a multiplication"),
        (3, "division by zero"),
        (4, "misaligned address"),
        (5, "a number that its new type does not hold"),
    ],
)
def test_undefined_behaviour_is_found(how: int, trouble: str) -> None:
    """What the language leaves undefined ends the launch with file and line."""
    with pytest.raises(HostRunError, match=f"kernels.cu:{line_of(f'how == {how}) y[0]')}: {trouble}"):
        host_build.run(KERNELS, "undefined", 1, 1, 0, [np.zeros(8, np.float32), how, 40], flags=CHECKED)
