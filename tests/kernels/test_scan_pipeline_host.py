"""The pipeline of scan-long on the host: its stages meet where they must, and join elements in order."""

import functools
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import numpy.typing as npt
import pytest

from tuner.model.plan import Source

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

Array = npt.NDArray[Any]
FOLDER = Path(__file__).parents[2] / "kernels"
SPARE = "mbarrier_wait(&slot.come, at.parity);  // by all who read what was copied"

# y[i] = a[i] y[i - 1] + b[i], modulo 2^32: the order of what is joined tells.
TEXT = """
#include "pipeline.cuh"

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

template <int P, int L, int slots, int summers, bool reverse>
__global__ void affine(const unsigned* a, const unsigned* b, unsigned* y, Word* board, long long length,
                       int of_row, int count) {
    using Shape = TileShape<P, L, 4, true, false, reverse>;
    const Rows<Shape> rows{length, unsigned(of_row), unsigned(count)};
    scan_pipelined<Affine, Shape, slots, summers, 2>(rows, y, board, a, b);
}

__global__ void told(Word* board, unsigned* found, long long next, unsigned tile) {
    const auto known = join_told<Affine, 2>(Board<Affine::Item>{board}, next, tile, {3u, 5u}, threadIdx.x);
    if (threadIdx.x == 7) found[0] = known.a, found[1] = known.b;
}
"""


@functools.cache
def source() -> Source:
    headers = {
        path.name: path.read_text()
        for folder in ("common", "scan-long")
        for path in (FOLDER / folder).glob("*.cuh")
    }
    return Source("affine.cu", TEXT, tuple(sorted(headers.items())))


def recurrence(a: Array, b: Array, start: int = 0) -> Array:
    """Of one row, by the definition."""
    y = np.empty_like(b)
    before = start
    for i, (x, z) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        before = (x * before + z) % 2**32
        y[i] = before
    return y


def pipelined(
    N: int,
    batch: int,
    how: tuple[int, int, int, int, bool],
    order: host_build.Order = "forward",
    without: host_build.Barrier | None = None,
) -> tuple[Array, Array]:
    """What two blocks make of random rows, and the right answer."""
    P, L, slots, summers, reverse = how
    rng = np.random.default_rng(N)
    a, b = rng.integers(0, 2**32, (2, batch, N), np.uint32)
    y = np.zeros((batch, N), np.uint32)
    of_row = -(-N // (P * L))
    board = np.zeros(1 + 2 * batch * of_row, np.uint64)
    arguments: list[host_build.Argument] = [a, b, y, board, np.int64(N), of_row, batch * of_row]
    entry = f"affine<{P}, {L}, {slots}, {summers}, {str(reverse).lower()}>"
    host_build.run(
        source(),
        entry,
        2,
        L + 32 * (2 + summers),
        slots * P * L * 8,
        arguments,
        flags=host_build.CHECKED,
        order=order,
        without=without,
    )
    way = slice(None, None, -1 if reverse else 1)
    right = np.stack([recurrence(r[way], s[way])[way] for r, s in zip(a, b, strict=True)])
    return y, right


WAYS = [(4, 64, 2, 1, False), (4, 64, 4, 2, True), (8, 32, 3, 3, False), (16, 64, 2, 2, True)]


@pytest.mark.parametrize("how", WAYS, ids=str)
@pytest.mark.parametrize("order", host_build.ORDERS)
def test_rows_of_any_length_are_joined_in_order(
    how: tuple[int, int, int, int, bool], order: host_build.Order
) -> None:
    """Several rows of whole and broken tiles are exact, whichever warp comes first."""
    for N, batch in ((3000, 2), (2048, 3), (20, 5)):
        y, right = pipelined(N, batch, how, order)
        np.testing.assert_array_equal(y, right)


def test_no_barrier_can_be_left_out() -> None:
    """Without any barrier of the pipeline a race is found; one shows what the copy engine wrote."""
    barriers = [b for b in host_build.barriers_of(source()) if b.file == "pipeline.cuh"]
    assert len(barriers) >= 8
    assert [barrier.code for barrier in barriers if not is_missed(barrier)] == [SPARE]


def is_missed(barrier: host_build.Barrier) -> bool:
    try:
        y, right = pipelined(3004, 2, WAYS[0], without=barrier)
    except host_build.HostRunError:
        return True
    return not np.array_equal(y, right)


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
    host_build.run(source(), "told", 1, 32, 0, arguments, flags=host_build.CHECKED)
    a, b = 3, 5
    for x, y in pairs[next_tile:].tolist():
        a, b = a * x % 2**32, (x * b + y) % 2**32
    assert found.tolist() == [a, b]
