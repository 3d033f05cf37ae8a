"""Every kernel of the catalogue on the host: right in any order of its threads, without races or strays."""

import functools
from collections.abc import Iterator

import host_build
import numpy as np
import pytest
from build_cache import BUILDS
from host_build import ADDRESSES, CHECKED, FLAGS, Barrier, HostRunError
from kernel_runs import compare, compare_plans, compare_rows, runnable
from kernel_samples import (
    KERNELS,
    Row,
    all_sizes,
    defaults_on_host,
    element_count,
    kin,
    pairs_on_host,
    plan_of,
    rows_at,
    shown,
    small_plan,
    values_on_host,
    ways_on_host,
)

from tuner.model.plan import Plan

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

FAMILIES = {", ".join(k.name for k in kin(kernel)): kin(kernel) for kernel in KERNELS.values()}
SPARE = {  # barriers that the host does not need, and why
    "cluster.cu: cluster_wait();  // all have started": "memory is there before its block starts",
    "cluster.cu: __syncwarp();  // the barriers of a cluster want whole warps": "a block barrier takes any",
    "persistent.cu: if (bulk) __syncthreads();": "shows a barrier of the copy engine, which the host has not",
    "persistent.cu: if (bulk) await(barrier, phase);": "a copy is over when other barriers have passed",
    "ring.cu: __syncthreads();": "shows what other blocks wrote; they are over",
    "tma.cu: __syncthreads();": "shows a barrier of the copy engine, which the host has not",
    "tma.cu: await(&arrived, phase);": "a copy is over when other barriers have passed",
    "tridiag_rows.cuh: __syncwarp();  // others may still read the array before": "most pass one array alone",
}
MANY_ELEMENTS = 2**20  # more are computed without watching each access: that takes ten times as long


@functools.cache
def compare_pairs(name: str) -> None:
    compare_rows(pairs_on_host(name), CHECKED)


@functools.cache
def chosen_plans(name: str, *, values: bool) -> list[Plan]:
    """Defaults, and with ``values`` plans that hold each value."""
    return runnable(values_on_host(name) if values else defaults_on_host(name))


@functools.cache
def compare_chosen(name: str, *, values: bool) -> None:
    compare_plans(chosen_plans(name, values=values), CHECKED)


@pytest.mark.parametrize("name", KERNELS)
def test_values_give_right_answers(name: str, *, kernels_differ: bool) -> None:
    """Defaults answer to rounding in the orders in turn, with no race and nothing astray.

    Where kernels differ from main's, so does each value, in every order.
    """
    compare_chosen(name, values=kernels_differ)


@pytest.mark.pairwise
@pytest.mark.parametrize("name", KERNELS)
def test_pairs_of_values_give_right_answers(name: str) -> None:
    """Any two values that go together answer to rounding, orders in turn, with no race and nothing astray."""
    compare_pairs(name)


@pytest.mark.pairwise
@pytest.mark.parametrize("name", KERNELS)
def test_sanitizers_find_nothing(name: str) -> None:
    """Each way to load, store and exchange keeps to its arrays and to what the language defines."""
    compare_rows(ways_on_host(name), ADDRESSES)


@pytest.fixture
def much() -> Iterator[None]:
    """For tests that compile gigabytes, which nobody needs afterwards."""
    with BUILDS.unused():
        yield
    host_build.forget()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("much")
@pytest.mark.parametrize("sizes", all_sizes(), ids=shown)
def test_every_configuration_gives_right_answers(sizes: Row) -> None:
    """Whatever a search may try, at any size that is listed, answers to rounding and keeps to its arrays."""
    rows = rows_at([sizes])
    watched = element_count(small_plan(rows[0])) <= MANY_ELEMENTS
    compare_rows(rows, CHECKED if watched else FLAGS, every_order=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", KERNELS)
def test_sanitizers_find_nothing_in_pairs(name: str) -> None:
    """Any two values that go together keep to their arrays and to what the language defines."""
    compare_rows(pairs_on_host(name), ADDRESSES)


@pytest.mark.pairwise
def test_what_only_a_gpu_runs_is_known() -> None:
    """Nothing but clusters of more than 1024 threads is left out on the host."""
    left_out = {
        (name, stage.name)
        for name in KERNELS
        for plan in (plan_of(row, batch=1) for row in pairs_on_host(name))
        if host_build.needs_gpu(plan)
        for stage in plan.stages
    }
    assert left_out <= {("fft-large", "cluster")}


@pytest.mark.parametrize("name", KERNELS)
def test_arrays_that_are_too_short_are_noticed(name: str, *, kernels_differ: bool) -> None:
    """Where any array ends one element early, the access behind its end fails the launch."""
    compare_chosen(name, values=kernels_differ)
    plan = chosen_plans(name, values=kernels_differ)[0]
    whole = {b.name: np.zeros(b.shape, b.dtype) for b in plan.buffers}
    for buffer in (one for one in plan.buffers if one.elements):
        with pytest.raises(HostRunError, match="past the end of argument"):
            host_build.run_plan(plan, {**whole, buffer.name: whole[buffer.name].ravel()[:-1]}, flags=CHECKED)


def is_missed(plan: Plan, barrier: Barrier) -> bool:
    try:
        compare(plan, CHECKED, "forward", without=barrier)
    except (AssertionError, HostRunError):
        return True
    return False


@functools.cache
def barriers_needed(family: str) -> dict[tuple[str, int, str], bool]:
    """The barriers that a family's kernels come to, and whether some configuration fails without them."""
    needed: dict[tuple[str, int, str], bool] = {}
    for kernel in FAMILIES[family]:
        compare_pairs(kernel.name)
        for plan in sorted(runnable(pairs_on_host(kernel.name)), key=element_count):
            for barrier in host_build.barriers_reached(plan):
                known = needed.get(barrier.place, False) or f"{barrier.file}: {barrier.code}" in SPARE
                needed[barrier.place] = known or is_missed(plan, barrier)
    return needed


@pytest.mark.pairwise
@pytest.mark.parametrize("family", FAMILIES)
def test_no_barrier_can_be_left_out(family: str) -> None:
    """Without any one of the barriers that a family's kernels come to, some configuration fails."""
    assert not [place for place, is_needed in barriers_needed(family).items() if not is_needed]


@pytest.mark.pairwise
def test_every_barrier_is_met() -> None:
    """There is no barrier in the kernels' code that the samples do not come to."""
    sources = {stage.source for k in KERNELS for row in pairs_on_host(k) for stage in plan_of(row).stages}
    places = {barrier.place for source in sources for barrier in host_build.barriers_of(source)}
    assert not places - {place for family in FAMILIES for place in barriers_needed(family)}
