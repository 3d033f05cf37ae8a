"""Plans on the host: what a device prepares for their stages is prepared there too."""

from dataclasses import replace
from typing import Any

import host_build
import numpy as np
import pytest
from host_build import CHECKED, HostRunError

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
