"""Plans for the tests of factorisations of one large matrix."""

from dataclasses import replace
from typing import Literal

from adaptive_kernels import sample
from kernel_plans import kernel_of

from tuner.model.plan import Plan, Stage, TunableValue

Preferred = Literal["main", "side"]

STREAMS: tuple[Preferred, ...] = ("main", "side")


def plan_with(name: str, n: int, dtype: str, rows: int = 0, /, **values: TunableValue) -> Plan:
    """The configuration with these values that has most of the default's; of more rows than n, if given."""
    kernel = kernel_of(name)
    sizes: dict[str, int | str] = {"n": n, "dtype": dtype}
    workload = kernel.workload({**sizes, "m": rows} if rows else sizes)
    default = dict(kernel.default(workload).items())
    fitting = [c for c in kernel.space(workload) if values.items() <= dict(c.items()).items()]
    assert fitting, f"{workload}: no configuration has {values}"
    return kernel.plan(workload, max(fitting, key=lambda c: len(dict(c.items()).items() & default.items())))


def sampled_plans(name: str, n: int, dtype: str, together: int = 1) -> list[Plan]:
    """Plans that hold each value, or each pair of values, of the tunables."""
    kernel = kernel_of(name)
    return sample(kernel, kernel.workload({"n": n, "dtype": dtype}), together)


def reordered(plan: Plan, preferred: Preferred) -> Plan:
    """The plan with its stages in an order that its streams allow: one stream runs ahead."""
    waiting = list(enumerate(plan.stages))
    ended: set[int] = set()
    order: list[Stage] = []
    while waiting:
        first = {stage.stream: (index, stage) for index, stage in reversed(waiting)}
        ready = [one for one in first.values() if ended.issuperset(one[1].after)]
        chosen = max(ready, key=lambda one: (one[1].stream == 0) == (preferred == "main"))
        waiting.remove(chosen)
        ended.add(chosen[0])
        order.append(chosen[1])
    return replace(plan, stages=tuple(order))


def without_waits(plan: Plan, name: str) -> Plan:
    """The plan with stages of a name that wait for no other stream."""
    stages = tuple(replace(stage, after=()) if stage.name == name else stage for stage in plan.stages)
    return replace(plan, stages=stages)


def with_panel(plan: Plan, rows: int, blocks: int, threads: int) -> Plan:
    """The plan with panels by so many blocks, each thread holding so many rows in registers, or none if 0.

    Configurations of small orders have neither clusters nor several rows a thread.
    """

    def changed(stage: Stage) -> Stage:
        if stage.name != "panel":
            return stage
        name, _, words = stage.entry.removesuffix(">").partition("<")
        T, columns, _, _, _, *rest = words.split(", ")
        size, lines = 8 if T == "double" else 4, threads // 32 + (blocks if blocks > 1 else 0)
        shared = _SHARED[plan.workload.kernel](int(columns), lines, size, threads // 32)
        name = ("cluster_" if blocks > 1 else "") + name.removeprefix("cluster_")
        entry = f"{name}<{', '.join(map(str, (T, columns, rows, blocks, threads, shared, *rest[1:])))}>"
        return replace(
            stage,
            entry=entry,
            grid=(blocks, 1, 1),
            block=(threads, 1, 1),
            cluster=blocks,
            shared_bytes=shared,
        )

    return replace(plan, stages=tuple(map(changed, plan.stages)))


def _lu_bytes(columns: int, lines: int, size: int, _warps: int) -> int:
    line = ((columns + 2) * size + 8 + 15) // 16 * 16
    return 2 * lines * line + 2 * columns * columns * size + 8 * columns + 16


def _qr_bytes(columns: int, lines: int, size: int, warps: int) -> int:
    return ((2 * lines + 3 + warps + columns) * columns * size + 15) // 16 * 16 + 16


_SHARED = {"getrf": _lu_bytes, "geqrf": _qr_bytes}
