"""Segments by the pipeline of warps, on the host: joined in order, whichever warp comes first."""

import functools
from typing import Any

import host_build
import numpy as np
import numpy.typing as npt
import pytest
import test_scan_pipeline_host as plain
from host_build import ORDERS, Order
from long_scans import FORMS, error, numbers
from long_scans import WAYS as DIRECTIONS
from test_scan_segments_host import KERNELS, run

from tuner.model.plan import Plan, Source

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

Array = npt.NDArray[Any]
LONG = 80_000  # elements of a row of which blocks hold some tiles
Way = tuple[int, int, int, int, bool, bool]  # P, L, slots, summers, exclusive, reverse

# y[i] = a y[i - 1] + b modulo 2^32, with y[i - 1] = 0 where a segment begins, for the halves a and b of x[i].
TEXT = (
    plain.TEXT
    + """
#include "segments.cuh"

struct Halves : Affine {
    using In = unsigned;
    using Out = unsigned;
    static __device__ Item read(unsigned x) { return {x >> 16, x & 0xffffu}; }
};

template <int P, int L, int slots, int summers, bool exclusive, bool reverse>
__global__ void segments(const unsigned* x, const unsigned char* heads, unsigned* y, Word* board,
                         long long length, int of_row, int count) {
    using Shape = TileShape<P, L, 4, true, exclusive, reverse>;
    const Rows<Shape> rows{length, unsigned(of_row), unsigned(count)};
    using Held = HeldSegments<Halves, Shape, 8>;
    scan_pipelined<Segmented<Halves>, Shape, slots, summers, 2, Held>(rows, y, board, x, heads);
}
"""
)
WAYS: list[Way] = [
    (4, 64, 4, 2, False, True),
    (8, 32, 3, 3, True, False),
    (16, 64, 2, 2, True, True),
    (4, 64, 2, 1, False, False),
]


@functools.cache
def source() -> Source:
    return Source("segments.cu", TEXT, plain.source().headers)


def source_of_late_copies(slots: int) -> Source:
    """The pipeline, whose second tile comes behind `slots` others; any number of summers is taken."""
    changes = {
        ("mbarrier.cuh", "mbarrier_expect(Mbarrier* barrier, unsigned) { __mbarrier_arrive(barrier); }"): f"""
mbarrier_expect(Mbarrier* barrier, unsigned) {{
    static int calls = 0;
    static Mbarrier* late = nullptr;
    const int call = calls++;
    if (call == 1) late = barrier;
    else __mbarrier_arrive(barrier);
    if (call == {slots}) __mbarrier_arrive(late);
}}""",
        ("pipeline.cuh", "static_assert(slots % summers == 0"): "static_assert(summers > 0",
    }
    headers = dict(source().headers)
    for (name, old), new in changes.items():
        assert old in headers[name]
        headers[name] = headers[name].replace(old, new)
    return Source("late.cu", TEXT, tuple(sorted(headers.items())))


def right_answer(x: Array, heads: Array, how: Way) -> Array:
    """By the definition; in reverse a segment begins in front of a head."""
    *_, exclusive, reverse = how
    y = np.empty_like(x)
    back = slice(None, None, -1 if reverse else 1)
    begins = np.roll(heads, -1, axis=1) if reverse else heads
    for row, elements, starts in zip(y[:, back], x[:, back].tolist(), begins[:, back].tolist(), strict=True):
        before = 0
        for i, (element, start) in enumerate(zip(elements, starts, strict=True)):
            before = 0 if start else before
            after = ((element >> 16) * before + (element & 0xFFFF)) % 2**32
            row[i] = before if exclusive else after
            before = after
    return y


def pipelined(
    x: Array,
    heads: Array,
    how: Way,
    order: Order = "forward",
    without: host_build.Barrier | None = None,
    *,
    late: bool = False,
) -> Array:
    """What two blocks make of rows; with ``late``, the copies of the second tile end behind many others."""
    P, L, slots, summers, exclusive, reverse = how
    rows, length = x.shape
    y = np.zeros_like(x)
    of_row = -(-length // (P * L))
    board = np.zeros(1 + 2 * rows * of_row, np.uint64)
    flags = ", ".join(str(flag).lower() for flag in (exclusive, reverse))
    host_build.run(
        source_of_late_copies(slots) if late else source(),
        f"segments<{P}, {L}, {slots}, {summers}, {flags}>",
        2,
        L + 32 * (2 + summers),
        slots * (P * L * 5 + 16 * reverse),
        [x, heads, y, board, np.int64(length), of_row, rows * of_row],
        flags=host_build.FLAGS if late else host_build.CHECKED,
        order=order,
        without=without,
    )
    return y


def random_rows(rows: int, length: int, density: float) -> tuple[Array, Array]:
    """Elements, and heads at some of them."""
    rng = np.random.default_rng(length)
    heads = (rng.random((rows, length)) < density).astype(np.uint8) * 4
    return rng.integers(0, 2**32, (rows, length), np.uint32), heads


@pytest.mark.parametrize("how", WAYS, ids=str)
def test_segments_of_any_length_are_joined_in_order(how: Way) -> None:
    """Rows of whole and broken tiles are exact, from no head to one at every element, in every order."""
    shapes = ((2, 3008, 0.001), (3, 2048, 0.05), (2, 3008, 0), (5, 16, 0.3), (1, 2048, 1))
    for order, shape in zip(ORDERS * 2, shapes, strict=False):
        x, heads = random_rows(*shape)
        np.testing.assert_array_equal(pipelined(x, heads, how, order), right_answer(x, heads, how))


@pytest.mark.parametrize("how", WAYS[::3], ids=str)
def test_heads_at_the_edges_of_tiles_count(how: Way) -> None:
    """A head beside an edge of a tile parts what stands on its two sides, also in reverse."""
    for head in (255, 256, 257, 511, 1024):
        x, heads = random_rows(1, 2048, 0)
        heads[0, head] = 128
        np.testing.assert_array_equal(pipelined(x, heads, how), right_answer(x, heads, how))


def pipelines(**sizes: int | str) -> list[Plan]:
    """Of scan-flags at one long row."""
    kernel = KERNELS["scan-flags"]
    workload = kernel.workload({"N": LONG, **sizes}, 1)
    return [kernel.plan(workload, c) for c in kernel.space(workload) if c["slots"]]


def test_every_type_is_right() -> None:
    """As the kernel is planned, types of each width are right to rounding, or exactly, in both directions."""
    plans = []
    for k, dtype in enumerate(("float32", "int64", "float16", "complex64")):
        found = pipelines(dtype=dtype, direction=DIRECTIONS[k % 2], form=FORMS[k // 2])
        plans.append(found[7 * k % len(found)])
    host_build.build_plans(plans)
    for k, plan in enumerate(plans):
        x = numbers(plan, k)
        heads = (np.random.default_rng(k).random(x.shape) < 1e-4).astype(np.uint8)
        y = run(plan, x, heads, ORDERS[k % len(ORDERS)])
        assert error(plan, x, y, heads != 0) <= 1, (str(plan.workload), plan.label())


@pytest.mark.parametrize("way", DIRECTIONS)
def test_extremes_stay_in_their_segment(way: str) -> None:
    """Infinities, NaN and overflow of a segment leave all others as they are, to the last bit."""
    plan = pipelines(direction=way)[0]
    x, heads = numbers(plan, 1), np.zeros((1, LONG), np.uint8)
    heads[0, [20_000, 50_000]] = 1
    whole, inside = run(plan, x, heads), slice(20_000, 50_000)
    for extreme in (np.inf, np.nan, 3e38):
        spoilt = x.copy()
        spoilt[0, inside] = extreme
        y = run(plan, spoilt, heads)
        assert not np.isfinite(y[0, 21_000:49_000]).any()
        y[0, inside] = whole[0, inside]
        np.testing.assert_array_equal(y, whole)


def test_no_barrier_can_be_left_out() -> None:
    """Without any barrier of the pipeline a race is found, but for the one that shows what was copied."""
    barriers = [b for b in host_build.barriers_of(source()) if b.file == "pipeline.cuh"]
    assert [barrier.code for barrier in barriers if not is_missed(barrier)] == [plain.SPARE]


def is_missed(barrier: host_build.Barrier) -> bool:
    try:
        y = pipelined(*random_rows(2, 3008, 0.001), WAYS[0], without=barrier)
    except host_build.HostRunError:
        return True
    return not np.array_equal(y, right_answer(*random_rows(2, 3008, 0.001), WAYS[0]))


@pytest.mark.parametrize(("slots", "summers", "right"), [(4, 2, True), (6, 3, True), (5, 2, False)])
def test_copies_may_end_in_any_order(slots: int, summers: int, right: bool) -> None:
    """A tile may come late; were slots no multiple of summers, one would take it for another tile."""
    how = (4, 64, slots, summers, False, False)
    x, heads = random_rows(1, 256 * 24, 0.001)
    try:
        y = pipelined(x, heads, how, late=True)
    except host_build.HostRunError:
        assert not right
    else:
        assert np.array_equal(y, right_answer(x, heads, how)) is right
