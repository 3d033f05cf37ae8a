"""Every kernel of the catalogue on the host: right in any order of its threads, without races or strays."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import host_build
import numpy as np
import pytest
from host_build import ADDRESSES, CHECKED, FLAGS, Order
from kernel_samples import (
    KERNELS,
    Row,
    all_sizes,
    element_count,
    pairs_on_host,
    rows_at,
    shown,
    small_plan,
    ways_on_host,
)

from tuner.model import Plan
from tuner.problems import problem_for

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

FEW_ELEMENTS = 2**16  # so many are computed in every order
MANY_ELEMENTS = 2**20  # more are computed without watching each access: that takes ten times as long
PLANS_AT_A_TIME = 8


def compare(plan: Plan, flags: Sequence[str], order: Order) -> None:
    """Runs a plan on random inputs and holds every problem to the reference in float64."""
    problem = problem_for(plan.problem)
    sizes = {**dict(plan.workload.sizes), "batch": plan.workload.batch}
    inputs = problem.inputs(np, np.random.default_rng(0), plan.buffers, sizes)
    outputs = host_build.run_plan_on_host(plan, inputs, flags=flags, order=order)
    deviation = problem.compare(inputs, outputs, sizes)
    assert deviation.ok, f"{plan.label()}, {order}: {deviation}"


def compare_some(plans: Sequence[Plan], flags: Sequence[str]) -> None:
    host_build.build_plans(plans, flags)
    for plan in plans:
        every = flags == CHECKED and element_count(plan) <= FEW_ELEMENTS
        for order in host_build.ORDERS if every else ("shuffle",):
            compare(plan, flags, order)


def compare_rows(rows: Sequence[Row], flags: Sequence[str]) -> None:
    plans = [plan for plan in map(small_plan, rows) if not host_build.needs_gpu(plan)]
    plans.sort(key=lambda plan: plan.stages[0].source.path)  # what shares a source is compiled together
    parts = [plans[i : i + PLANS_AT_A_TIME] for i in range(0, len(plans), PLANS_AT_A_TIME)]
    with ThreadPoolExecutor(host_build.JOBS) as pool:
        list(pool.map(lambda part: compare_some(part, flags), parts))


@pytest.mark.parametrize("name", KERNELS)
def test_pairs_of_values_give_right_answers(name: str) -> None:
    """Any two values that go together answer to rounding, in every order, with no race and nothing astray."""
    compare_rows(pairs_on_host(name), CHECKED)


@pytest.mark.parametrize("name", KERNELS)
def test_sanitizers_find_nothing(name: str) -> None:
    """Each way to load, store and exchange keeps to its arrays and to what the language defines."""
    compare_rows(ways_on_host(name), ADDRESSES)


@pytest.mark.exhaustive
@pytest.mark.parametrize("sizes", all_sizes(), ids=shown)
def test_every_configuration_gives_right_answers(sizes: Row) -> None:
    """Whatever a search may try, at any size that is listed, answers to rounding and keeps to its arrays."""
    rows = rows_at([sizes])
    watched = element_count(small_plan(rows[0])) <= MANY_ELEMENTS
    compare_rows(rows, CHECKED if watched else FLAGS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", KERNELS)
def test_sanitizers_find_nothing_in_pairs(name: str) -> None:
    """Any two values that go together keep to their arrays and to what the language defines."""
    compare_rows(pairs_on_host(name), ADDRESSES)


def test_what_only_a_gpu_runs_is_known() -> None:
    """Nothing but clusters of more than 1024 threads is left out on the host."""
    left_out = {
        (name, stage.name)
        for name in KERNELS
        for plan in map(small_plan, pairs_on_host(name))
        if host_build.needs_gpu(plan)
        for stage in plan.stages
    }
    assert left_out <= {("fft-large", "cluster")}
