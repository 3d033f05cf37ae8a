"""What the tests of factorisations of one large matrix share.

Matrices are column-major: element (i, j) of ``A`` is ``A[j, i]``. Stages of libraries are computed by NumPy.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import host_build
import numpy as np
import pytest
from adaptive_kernels import CATALOGUE, inputs_of, sample, sizes_of
from compiled_stages import compiled_stages
from host_build import CHECKED, Barrier, HostRunError, Order
from numpy.typing import NDArray

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Plan, Source, Stage, TunableValue
from tuner.problems.base import Deviation
from tuner.problems.lookup import problem_for

Preferred = Literal["main", "side"]

DTYPES = ("float32", "float64")
STREAMS: tuple[Preferred, ...] = ("main", "side")
UNSEEN = (
    "// all blocks have begun, and have shared memory",
    "// no block ends while others use its shared memory",
)
SMALL = tuple(range(1, 41))

on_host = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def kernel_of(name: str) -> KernelFile:
    """A kernel of the catalogue."""
    return load_kernel_file(CATALOGUE / name / "kernel.toml")


def plan_with(kernel: KernelFile, n: int, dtype: str, **values: TunableValue) -> Plan:
    """The configuration with these values that has most of the default's."""
    workload = kernel.workload({"n": n, "dtype": dtype})
    default = dict(kernel.default(workload).items())
    fitting = [c for c in kernel.space(workload) if values.items() <= dict(c.items()).items()]
    assert fitting, f"{workload}: no configuration has {values}"
    return kernel.plan(workload, max(fitting, key=lambda c: len(dict(c.items()).items() & default.items())))


def sampled_plans(kernel: KernelFile, n: int, dtype: str, together: int = 1) -> list[Plan]:
    """Plans that hold each value, or each pair of values, of the tunables."""
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


def answered(
    plan: Plan,
    inputs: dict[str, NDArray[Any]],
    flags: Sequence[str] = CHECKED,
    order: Order = "shuffle",
    without: Barrier | None = None,
) -> dict[str, NDArray[Any]]:
    """Outputs of a plan on the host. What a broken factorisation makes of NaN is no warning."""
    with np.errstate(all="ignore"):
        return host_build.run_plan_on_host(plan, inputs, flags=flags, order=order, without=without)


def judged(plan: Plan, inputs: dict[str, NDArray[Any]], outputs: dict[str, NDArray[Any]]) -> Deviation:
    """What the law of the kernel file says."""
    with np.errstate(all="ignore"):
        return problem_for(plan.problem).residual(np, inputs, outputs, sizes_of(plan))


def check(plan: Plan, flags: Sequence[str] = CHECKED, order: Order = "shuffle") -> None:
    """Runs a plan on the inputs of its file and asks the law."""
    inputs = inputs_of(plan)
    found = judged(plan, inputs, answered(plan, inputs, flags, order))
    assert found.ok, f"{plan.label()}, {order}: {found}"


def check_all(plans: Sequence[Plan], flags: Sequence[str] = CHECKED, order: Order = "shuffle") -> None:
    """The same of several."""
    host_build.build_plans(plans, flags)
    for plan in plans:
        check(plan, flags, order)


def is_noticed(
    plan: Plan,
    flags: Sequence[str] = host_build.FLAGS,
    order: Order = "shuffle",
    without: Barrier | None = None,
) -> bool:
    """Whether the law, or the machine, finds something wrong."""
    inputs = inputs_of(plan)
    try:
        return not judged(plan, inputs, answered(plan, inputs, flags, order, without)).ok
    except (HostRunError, np.linalg.LinAlgError):
        return True


def check_barriers(plans: Sequence[Plan], *unseen: str) -> None:
    """Every barrier that the plans meet is needed: without it, one of them goes wrong.

    But for those that are met while blocks of a cluster begin and end: here all are there all the time.

    Args:
        plans: what is run.
        unseen: ends of lines with barriers that are met only then.
    """
    check_all(plans)
    met = {barrier.place for plan in plans for barrier in host_build.barriers_reached(plan)}
    left = {place for place in met if not place[2].endswith((*UNSEEN, *unseen))}
    assert left
    for plan in plans:
        for barrier in host_build.barriers_reached(plan):
            if barrier.place in left and is_noticed(plan, CHECKED, "forward", barrier):
                left.remove(barrier.place)
    assert not left


def with_fault(plan: Plan, old: str, new: str) -> Plan:
    """The plan with other words in its source, where they stand once."""
    given = next(stage.source for stage in plan.stages if stage.library is None)
    texts = [given.text, *(text for _, text in given.headers)]
    assert sum(text.count(old) for text in texts) == 1, old

    def changed(stage: Stage) -> Stage:
        source = stage.source
        if stage.library is not None:
            return stage
        headers = tuple((name, text.replace(old, new)) for name, text in source.headers)
        return replace(stage, source=Source(source.path, source.text.replace(old, new), headers))

    return replace(plan, stages=tuple(map(changed, plan.stages)))


def check_compiles(plans: Sequence[Plan], architecture: str, folder: Path) -> None:
    """Every stage that the architecture runs compiles, and none of them spills."""
    number = int(architecture.removeprefix("sm_"))
    stages = {s.entry: s for plan in plans for s in plan.stages if s.library is None}
    wanted = [stage for stage in stages.values() if stage.min_architecture <= number]
    results = compiled_stages(wanted, architecture, folder)
    for stage, result in zip(wanted, results, strict=True):
        assert (result.resources.spill_bytes, result.resources.local_bytes) == (0, 0), stage.entry


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
