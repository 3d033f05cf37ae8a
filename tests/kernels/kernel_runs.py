"""Runs plans of the catalogue on the host and holds their answers to the reference."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import host_build
import numpy as np
from host_build import CHECKED, ORDERS, Barrier, Order
from kernel_samples import Row, element_count, small_plan
from thread_orders import in_turns

from tuner.devices.cuda.answer_check import problem_of
from tuner.model.plan import Plan
from tuner.problems.base import values_of

FEW_ELEMENTS = 2**16  # more are computed in a shuffled order alone
PLANS_AT_A_TIME = 8


def compare(plan: Plan, flags: Sequence[str], order: Order, without: Barrier | None = None) -> None:
    """Runs a plan on random inputs and holds every problem to the reference in float64."""
    problem = problem_of(plan)
    sizes = {**dict(plan.workload.sizes), "batch": plan.workload.batch}
    inputs = problem.inputs(np, np.random.default_rng(0), plan.buffers, sizes)
    outputs = host_build.run_plan_on_host(plan, inputs, flags=flags, order=order, without=without)
    given, made = (values_of(arrays, plan.buffers) for arrays in (inputs, outputs))
    deviation = problem.compare(given, made, sizes)
    assert deviation.ok, f"{plan.label()}, {order}: {deviation}"


def compare_rows(rows: Sequence[Row], flags: Sequence[str], *, every_order: bool = False) -> None:
    """Runs what the host can of some configurations, see ``compare_plans``."""
    compare_plans(runnable(rows), flags, every_order=every_order)


def compare_plans(plans: Sequence[Plan], flags: Sequence[str], *, every_order: bool = False) -> None:
    """Runs plans: small checked ones in the orders in turn, or in each."""
    small = [plan for plan in plans if flags == CHECKED and element_count(plan) <= FEW_ELEMENTS]
    orders: defaultdict[int, list[Order]] = defaultdict(list)
    for plan, order in itertools.product(small, ORDERS) if every_order else in_turns(small):
        orders[id(plan)].append(order)
    parts = [plans[i : i + PLANS_AT_A_TIME] for i in range(0, len(plans), PLANS_AT_A_TIME)]

    def compare_part(part: Sequence[Plan]) -> None:
        host_build.build_plans(part, flags)
        for plan in part:
            for order in orders.get(id(plan), ["shuffle"]):
                compare(plan, flags, order)

    with ThreadPoolExecutor(host_build.JOBS) as pool:
        list(pool.map(compare_part, parts))


def runnable(rows: Sequence[Row]) -> list[Plan]:
    """Small plans of the rows that the host can run, those of one source together, as they compile faster."""
    plans = [plan for plan in map(small_plan, rows) if not host_build.needs_gpu(plan)]
    return sorted(plans, key=lambda plan: plan.stages[0].source.path)
