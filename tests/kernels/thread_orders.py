"""Which order of its threads each of many plans runs in, so that a few runs stand for all combinations."""

from collections import Counter
from collections.abc import Sequence

from host_build import ORDERS, Order

from tuner.model.plan import Plan

Item = tuple[str, object]


def in_turns(plans: Sequence[Plan]) -> list[tuple[Plan, Order]]:
    """Every plan in one of the orders, some in more: each value of a tunable meets each order.

    So does each size that as many plans have as there are orders. Races are found in any order; several are
    for answers that depend on who comes first.

    Args:
        plans: any. Neighbours differ in their order, and there are three: of matrices of order 1, 2, 3, ...
            each remainder by the width of a tile, a power of two, meets each order.

    Returns:
        Plans in their order, each with an order; those that are run again come last.
    """
    sized = Counter(size for plan in plans for size in plan.workload.sizes)
    items = [
        {*plan.configuration.items(), *(size for size in plan.workload.sizes if sized[size] >= len(ORDERS))}
        for plan in plans
    ]
    missing: set[tuple[Item, Order]] = {
        (item, order) for of_plan in items for item in of_plan for order in ORDERS
    }

    def new(index: int, order: Order) -> set[tuple[Item, Order]]:
        return missing & {(item, order) for item in items[index]}

    chosen: list[tuple[int, Order]] = []
    for i in range(len(plans)):
        turn = (*ORDERS[i % len(ORDERS) :], *ORDERS[: i % len(ORDERS)])
        order = max(turn, key=lambda order: len(new(i, order)))
        missing -= new(i, order)
        chosen.append((i, order))
    while missing:
        every = [(i, order) for i in range(len(plans)) for order in ORDERS]
        best = max(every, key=lambda one: len(new(*one)))
        missing -= new(*best)
        chosen.append(best)
    return [(plans[i], order) for i, order in chosen]
