"""Numerics of the long transforms in passes and through a ring, and who waits for whom, without a GPU."""

import host_build
import numpy as np
import pytest
from long_transforms import Pass, Shape, by_copies, check, in_passes, numbers, source, through_ring

from tuner.model.plan import Source

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

SHAPES = [
    Shape(Pass(16, 8, 8, 8), Pass(16, 8, 8, 8)),
    Shape(Pass(64, 4, 8, 8), Pass(32, 16, 8, 8)),
    Shape(Pass(64, 16, 16, 16), Pass(64, 4, 8, 8)),
    Shape(Pass(128, 8, 32, 32), Pass(32, 32, 16, 16)),
    Shape(Pass(256, 8, 16, 8), Pass(64, 16, 16, 16)),
    Shape(Pass(16, 8, 8, 8), Pass(16, 16, 8, 8), passes=3),
    Shape(Pass(32, 4, 8, 8), Pass(16, 8, 8, 8), passes=3),
]
RINGS = [
    Shape(Pass(64, 8, 8, 8), Pass(64, 8, 8, 8)),
    Shape(Pass(64, 8, 8, 8), Pass(64, 16, 16, 8)),
    Shape(Pass(32, 16, 8, 8), Pass(64, 8, 8, 8)),
]


@pytest.mark.parametrize(("shape", "split"), [(shape, i % 2 == 1) for i, shape in enumerate(SHAPES)], ids=str)
def test_passes_transform_every_point(shape: Shape, split: bool) -> None:
    """Two and three passes answer to rounding, in any order of threads, forward and inverse."""
    x = numbers(3, shape.points)
    for order in host_build.ORDERS:
        check(x, in_passes(shape, x, split, False, order=order), False, order)
    check(x, in_passes(shape, x, split, True), True)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("shape", [s for s in SHAPES if s.passes == 2], ids=str)
def test_blocks_walk_over_tiles_that_were_copied_for_them(shape: Shape, early: bool) -> None:
    """Fewer blocks than tiles, and as many, answer to rounding, forward and inverse."""
    x = numbers(3, shape.points)
    for order in host_build.ORDERS:
        check(x, by_copies(shape, x, early, False, 2, order=order), False, order)
    check(x, by_copies(shape, x, early, True, shape.first.tiles(x.size)), True)


@pytest.mark.parametrize("form", ["ring", "late", "early"])
@pytest.mark.parametrize("shape", RINGS, ids=str)
def test_a_ring_holds_problems_between_their_passes(shape: Shape, form: str) -> None:
    """Slots are used again and again; batches shorter than lag and ring, and of one, are no exception."""
    for batch, slots, lag in [(7, 3, 2), (5, 2, 1), (2, 6, 4), (1, 2, 1)]:
        x = numbers(batch, shape.points)
        check(x, through_ring(shape, x, form, (slots, lag)), False, (batch, slots, lag))
    check(x, through_ring(shape, x, form, (2, 1), inverse=True), True)


@pytest.mark.parametrize("form", ["passes", "split", "late", "early", "ring", "ring-late", "ring-early"])
def test_threads_keep_to_their_arrays_and_meet_in_between(form: str) -> None:
    """No access is out of bounds, and none is unordered with another to the same place."""
    shape, flags = RINGS[0] if form.startswith("ring") else SHAPES[1], host_build.CHECKED
    x = numbers(3, shape.points)
    if form.startswith("ring"):
        y = through_ring(shape, x, form.removeprefix("ring-"), (2, 1), flags=flags)
    elif form in ("late", "early"):
        y = by_copies(shape, x, form == "early", False, 2, order="shuffle", flags=flags)
    else:
        y = in_passes(shape, x, form == "split", False, order="shuffle", flags=flags)
    check(x, y, False)


JOBS = """
#include "tickets.cuh"
__global__ void jobs(int* list, int tickets, int batch, int lag) {
    for (int i = 0; i < tickets; ++i) {
        const Job job = job_of<FIRST, SECOND>(i, batch, lag);
        list[3 * i] = job.problem, list[3 * i + 1] = job.tile, list[3 * i + 2] = job.second;
    }
}
"""


@pytest.mark.parametrize(("first", "second"), [(4, 4), (2, 8), (8, 1)])
def test_tickets_wait_for_smaller_ones_only(first: int, second: int) -> None:
    """Each job has one ticket, and what it waits for, in a ring of lag + 1 slots, smaller ones."""
    code = Source("jobs.cu", JOBS, source("ring.cu").headers)
    options = [f"-DFIRST={first}", f"-DSECOND={second}"]
    for batch, lag in [(9, 3), (5, 1), (4, 4), (1, 1)]:
        tickets = batch * (first + second)
        jobs = np.full((tickets + 1, 3), -1, np.int32)
        host_build.run(code, "jobs", 1, 1, 0, [jobs, tickets + 1, batch, lag], options=options)
        assert jobs[-1, 0] >= batch, "who comes too late finds no problem"
        ticket = {tuple(job): i for i, job in enumerate(jobs[:-1].tolist())}
        assert len(ticket) == tickets
        for (problem, tile, is_second), i in ticket.items():
            assert 0 <= problem < batch
            assert 0 <= tile < (second if is_second else first)
            if is_second:
                needed = [(problem, k, 0) for k in range(first)]
            elif problem > lag:
                needed = [(problem - lag - 1, k, 1) for k in range(second)]
            else:
                needed = []
            assert all(ticket[job] < i for job in needed)
