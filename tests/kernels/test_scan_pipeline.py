"""The pipeline of long scans on the host: its stages meet where they must, and join in order."""

import functools
import itertools
from typing import Any, NamedTuple

import host_build
import numpy as np
import numpy.typing as npt
import pytest
from host_build import CHECKED, FLAGS, ORDERS, Order
from kernel_plans import headers_of, kernel_of
from long_scans import FORMS, WAYS, error, numbers
from test_scan import run

from tuner.model.plan import Plan, Source

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

Array = npt.NDArray[Any]
LONG = 80_000  # elements of a row of which blocks hold some tiles
SPARE = "mbarrier_wait(&slot.come, at.parity);  // by all who read what was copied"

# y[i] = a[i] y[i - 1] + b[i] modulo 2^32: the order of what is joined tells. Segments have a and b in the
# halves of x[i], and y[i - 1] = 0 where they begin.
TEXT = """
#include "pipeline.cuh"
#include "segments.cuh"

struct Affine {
    struct Item { unsigned a, b; };
    using Carry = Item;
    static __device__ Item read(unsigned a, unsigned b) { return {a, b}; }
    static __device__ unsigned write(const Item& item) { return item.b; }
    static __device__ Item identity() { return {1u, 0u}; }
    static __device__ Item join(const Item& x, const Item& y) { return {x.a * y.a, y.a * x.b + y.b}; }
    static __device__ Carry widen(const Item& item) { return item; }
    static __device__ Item low(const Carry& c) { return c; }
    static __device__ Item high(const Carry& c) { return c; }
    static __device__ Item lift(const Item&, const Item& item) { return item; }
    static __device__ Item without(const Item& before, const Item&) { return before; }
};

struct Halves : Affine {
    using In = unsigned;
    using Out = unsigned;
    static __device__ Item read(unsigned x) { return {x >> 16, x & 0xffffu}; }
};

template <int P, int L, int slots, int summers, bool exclusive, bool reverse>
__global__ void affine(const unsigned* a, const unsigned* b, unsigned* y, Word* board, long long length,
                       int of_row, int count) {
    using Shape = TileShape<P, L, 4, true, exclusive, reverse>;
    const Rows<Shape> rows{length, unsigned(of_row), unsigned(count)};
    scan_pipelined<Affine, Shape, slots, summers, 2>(rows, y, board, a, b);
}

template <int P, int L, int slots, int summers, bool exclusive, bool reverse>
__global__ void segments(const unsigned* x, const unsigned char* heads, unsigned* y, Word* board,
                         long long length, int of_row, int count) {
    using Shape = TileShape<P, L, 4, true, exclusive, reverse>;
    const Rows<Shape> rows{length, unsigned(of_row), unsigned(count)};
    using Held = HeldSegments<Halves, Shape, 8>;
    scan_pipelined<Segmented<Halves>, Shape, slots, summers, 2, Held>(rows, y, board, x, heads);
}

__global__ void told(Word* board, unsigned* found, long long next, unsigned tile) {
    const auto known = join_told<Affine, 2>(Board<Affine::Item>{board}, next, tile, {3u, 5u}, threadIdx.x);
    if (threadIdx.x == 7) found[0] = known.a, found[1] = known.b;
}
"""


class Way(NamedTuple):
    """How rows are scanned: elements of a thread, threads, slots, warps that sum, form, way, segments."""

    P: int
    L: int
    slots: int
    summers: int
    exclusive: bool = False
    reverse: bool = False
    segmented: bool = False


PLAIN = [
    Way(4, 64, 2, 1),
    Way(4, 64, 4, 2, reverse=True),
    Way(8, 32, 3, 3),
    Way(16, 64, 2, 2, reverse=True),
]
SEGMENTED = [
    Way(4, 64, 4, 2, False, True, True),
    Way(8, 32, 3, 3, True, False, True),
    Way(16, 64, 2, 2, True, True, True),
    Way(4, 64, 2, 1, False, False, True),
]


@functools.cache
def source() -> Source:
    return Source("pipelines.cu", TEXT, tuple(sorted(headers_of("common", "scan-long").items())))


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


class Rows(NamedTuple):
    """Random factors and summands, and heads of segments; seeded by their length."""

    a: Array
    b: Array
    heads: Array

    @classmethod
    def drawn(cls, way: Way, rows: int, length: int, density: float = 0) -> "Rows":
        """Segments have small numbers, and begin at some elements."""
        rng = np.random.default_rng(length)
        heads = (rng.random((rows, length)) < density).astype(np.uint8) * 4 * way.segmented
        a, b = rng.integers(0, 2 ** (16 if way.segmented else 32), (2, rows, length), np.uint32)
        return cls(a, b, heads)

    def right(self, way: Way) -> Array:
        """By the definition; in reverse a segment begins in front of a head."""
        y = np.empty_like(self.b)
        back = slice(None, None, -1 if way.reverse else 1)
        begins = np.roll(self.heads, -1, axis=1) if way.reverse else self.heads
        given = (array[:, back].tolist() for array in (self.a, self.b, begins))
        for row, *numbers_of_row in zip(y[:, back], *given, strict=True):
            before = 0
            for i, (a, b, start) in enumerate(zip(*numbers_of_row, strict=True)):
                before = 0 if start else before
                after = (a * before + b) % 2**32
                row[i] = before if way.exclusive else after
                before = after
        return y


def pipelined(
    rows: Rows,
    way: Way,
    order: Order = "forward",
    without: host_build.Barrier | None = None,
    *,
    late: bool = False,
) -> Array:
    """What two blocks make of rows; with ``late``, the copies of the second tile end behind many others."""
    P, L, slots, summers, *_ = way
    batch, length = rows.b.shape
    y, of_row = np.zeros_like(rows.b), -(-length // (P * L))
    board = np.zeros(1 + 2 * batch * of_row, np.uint64)
    inputs = [rows.a << np.uint32(16) | rows.b, rows.heads] if way.segmented else [rows.a, rows.b]
    flags = ", ".join(str(flag).lower() for flag in (way.exclusive, way.reverse))
    host_build.run(
        source_of_late_copies(slots) if late else source(),
        f"{'segments' if way.segmented else 'affine'}<{P}, {L}, {slots}, {summers}, {flags}>",
        2,
        L + 32 * (2 + summers),
        slots * (P * L * 5 + 16 * way.reverse if way.segmented else P * L * 8),
        [*inputs, y, board, np.int64(length), of_row, batch * of_row],
        flags=FLAGS if late else CHECKED,
        order=order,
        without=without,
    )
    return y


@pytest.mark.parametrize("way", [*PLAIN, *SEGMENTED], ids=str)
def test_rows_and_segments_of_any_length_are_joined_in_order(way: Way) -> None:
    """Whole and broken tiles are exact, from no head to one at every element, whichever warp comes first."""
    if way.segmented:
        shapes = ((2, 3008, 0.001), (3, 2048, 0.05), (2, 3008, 0), (5, 16, 0.3), (1, 2048, 1))
        tried = list(zip(ORDERS * 2, shapes, strict=False))
    else:
        tried = list(itertools.product(ORDERS, ((2, 3000, 0), (3, 2048, 0), (5, 20, 0))))
    for order, shape in tried:
        rows = Rows.drawn(way, *shape)
        np.testing.assert_array_equal(pipelined(rows, way, order), rows.right(way))


@pytest.mark.parametrize("way", SEGMENTED[::3], ids=str)
def test_heads_at_the_edges_of_tiles_count(way: Way) -> None:
    """A head beside an edge of a tile parts what stands on its two sides, also in reverse."""
    for head in (255, 256, 257, 511, 1024):
        rows = Rows.drawn(way, 1, 2048)
        rows.heads[0, head] = 128
        np.testing.assert_array_equal(pipelined(rows, way), rows.right(way))


@pytest.mark.parametrize("way", [PLAIN[0], SEGMENTED[0]], ids=str)
def test_no_barrier_can_be_left_out(way: Way) -> None:
    """Without any barrier of the pipeline a race is found; one shows what the copy engine wrote."""
    barriers = [barrier for barrier in host_build.barriers_of(source()) if barrier.file == "pipeline.cuh"]
    assert len(barriers) >= 8
    rows = Rows.drawn(way, 2, 3008, 0.001)
    right = rows.right(way)
    assert [one.code for one in barriers if not is_missed(one, rows, way, right)] == [SPARE]


def is_missed(barrier: host_build.Barrier, rows: Rows, way: Way, right: Array) -> bool:
    try:
        return not np.array_equal(pipelined(rows, way, without=barrier), right)
    except host_build.HostRunError:
        return True


@pytest.mark.parametrize(("slots", "summers", "right"), [(4, 2, True), (6, 3, True), (5, 2, False)])
def test_copies_may_end_in_any_order(slots: int, summers: int, right: bool) -> None:
    """A tile may come late; were slots no multiple of summers, one would take it for another tile."""
    way = Way(4, 64, slots, summers, segmented=True)
    rows = Rows.drawn(way, 1, 256 * 24, 0.001)
    try:
        y = pipelined(rows, way, late=True)
    except host_build.HostRunError:
        assert not right
    else:
        assert np.array_equal(y, rows.right(way)) is right


@pytest.mark.parametrize(("next_tile", "tile"), [(0, 0), (0, 1), (5, 5), (3, 67), (1, 200), (64, 130)])
def test_totals_are_joined_from_where_they_are_known_to_the_tile(next_tile: int, tile: int) -> None:
    """What tiles have told is joined behind what is known, in order, and no other tile is looked at."""
    rng = np.random.default_rng(tile)
    pairs = rng.integers(0, 2**32, (tile, 2), np.uint32)
    words = np.full(2 * (tile + 300), 2**64 - 1, np.uint64)
    words[: 2 * next_tile] = 0
    words[2 * next_tile : 2 * tile] = pairs[next_tile:].astype(np.uint64).ravel() | np.uint64(1 << 32)
    found = np.zeros(2, np.uint32)
    arguments: list[host_build.Argument] = [words, found, np.int64(next_tile), np.uint32(tile)]
    host_build.run(source(), "told", 1, 32, 0, arguments, flags=CHECKED)
    a, b = 3, 5
    for x, y in pairs[next_tile:].tolist():
        a, b = a * x % 2**32, (x * b + y) % 2**32
    assert found.tolist() == [a, b]


# --- as scan-flags is planned --------------------------------------------------------------------


def pipelines(**sizes: int | str) -> list[Plan]:
    """At one long row."""
    kernel = kernel_of("scan-flags")
    workload = kernel.workload({"N": LONG, **sizes}, 1)
    return [kernel.plan(workload, c) for c in kernel.space(workload) if c["slots"]]


def test_every_type_is_right() -> None:
    """Types of each width are right to rounding, or exactly, in both directions."""
    plans = []
    for k, dtype in enumerate(("float32", "int64", "float16", "complex64")):
        found = pipelines(dtype=dtype, direction=WAYS[k % 2], form=FORMS[k // 2])
        plans.append(found[7 * k % len(found)])
    host_build.build_plans(plans)
    for k, plan in enumerate(plans):
        x = numbers(plan, k)
        heads = (np.random.default_rng(k).random(x.shape) < 1e-4).astype(np.uint8)
        y = run(plan, x, heads, ORDERS[k % len(ORDERS)])
        assert error(plan, x, y, heads != 0) <= 1, (str(plan.workload), plan.label())


@pytest.mark.parametrize("direction", WAYS)
def test_extremes_stay_in_their_segment(direction: str) -> None:
    """Infinities, NaN and overflow of a segment leave all others as they are, to the last bit."""
    plan = pipelines(direction=direction)[0]
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
