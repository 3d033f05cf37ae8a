"""Runs kernels of dense linear algebra on the host and asks the law of their files.

Matrices are column-major: element (i, j) of ``A`` is ``A[j, i]``. Stages of libraries are computed by NumPy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import pytest
from adaptive_kernels import inputs_of, sizes_of
from compiled_stages import compiled_stages
from host_build import CHECKED, FLAGS, Barrier, HostRunError, Order
from numpy.typing import NDArray
from thread_orders import in_turns

from tuner.model.plan import Plan, Source, Stage
from tuner.problems.base import Deviation
from tuner.problems.lookup import problem_for

Arrays = Mapping[str, NDArray[Any]]

DTYPES = ("float32", "float64")
SMALL = tuple(range(1, 41))
UNSEEN = (
    "// all blocks have begun, and have shared memory",
    "// no block ends while others use its shared memory",
    "inline void cluster_wait() { __syncthreads(); }",
)

on_host = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def judged(plan: Plan, inputs: Arrays, outputs: Arrays) -> Deviation:
    """What the law of the kernel file says."""
    with np.errstate(all="ignore"):
        return problem_for(plan.problem).residual(np, inputs, outputs, sizes_of(plan))


def answered(
    plan: Plan,
    inputs: Arrays,
    flags: Sequence[str] = CHECKED,
    order: Order = "shuffle",
    without: Barrier | None = None,
) -> dict[str, NDArray[Any]]:
    """Outputs of a plan on the host. What a broken factorisation makes of NaN is no warning."""
    with np.errstate(all="ignore"):
        return host_build.run_plan_on_host(plan, inputs, flags=flags, order=order, without=without)


def check_all(plans: Sequence[Plan], flags: Sequence[str] = CHECKED, *, take_turns: bool = False) -> None:
    """Runs plans on the inputs of their file, the orders of the threads in turn or shuffled; asks the law."""
    host_build.build_plans(plans, flags)
    shuffled: list[tuple[Plan, Order]] = [(plan, "shuffle") for plan in plans]
    for plan, order in in_turns(plans) if take_turns else shuffled:
        inputs = inputs_of(plan)
        found = judged(plan, inputs, answered(plan, inputs, flags, order))
        assert found.ok, f"{plan.label()}, {order}: {found}"


def is_noticed(
    plan: Plan,
    flags: Sequence[str] = FLAGS,
    order: Order = "shuffle",
    without: Barrier | None = None,
) -> bool:
    """Whether the law, or the machine, finds something wrong."""
    inputs = inputs_of(plan)
    try:
        return not judged(plan, inputs, answered(plan, inputs, flags, order, without)).ok
    except (HostRunError, np.linalg.LinAlgError):
        return True


def check_barriers(plans: Sequence[Plan]) -> None:
    """Every barrier that the plans meet is needed: without it, one of them goes wrong.

    But for those that are met while blocks of a cluster begin and end: here all are there all the time.
    """
    check_all(plans)
    met = {barrier.place for plan in plans for barrier in host_build.barriers_reached(plan)}
    left = {place for place in met if not place[2].endswith(UNSEEN)}
    assert left
    for plan in plans:
        for barrier in host_build.barriers_reached(plan):
            if barrier.place in left and is_noticed(plan, CHECKED, "forward", barrier):
                left.remove(barrier.place)
    assert not left


def with_fault(plan: Plan, old: str, new: str) -> Plan:
    """The plan with other words in its source or a header, where they stand once."""
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


def check_compiles(plans: Sequence[Plan], architecture: str, folder: Path, *, lean: bool = True) -> None:
    """Every stage that the architecture runs compiles; if ``lean``, none of them spills."""
    number = int(architecture.removeprefix("sm_"))
    stages = {stage.entry: stage for plan in plans for stage in plan.stages if stage.library is None}
    wanted = [stage for stage in stages.values() if stage.min_architecture <= number]
    assert wanted
    results = compiled_stages(wanted, architecture, folder)
    for stage, result in zip(wanted, results, strict=True):
        made = result.resources
        assert made.static_shared_bytes <= 48 * 1024, stage.entry
        if lean:
            assert (made.spill_bytes, made.local_bytes) == (0, 0), stage.entry


def lapack(name: str, dtype: str) -> Any:
    """A routine of LAPACK by SciPy, in a type."""
    from scipy.linalg import lapack as routines  # noqa: PLC0415 - takes long to import

    return getattr(routines, f"{'s' if dtype == 'float32' else 'd'}{name}")


def getf2(matrix: NDArray[Any]) -> tuple[NDArray[Any], list[int], int]:
    """LAPACK's unblocked factorisation in the type of the matrix: factors, ipiv and info."""
    a, ipiv, info = matrix.copy(), [], 0
    for k in range(len(a)):
        pivot = k + int(np.argmax(np.abs(a[k:, k])))  # the first of equal ones
        ipiv.append(pivot + 1)
        if a[pivot, k] == 0:
            info = info or k + 1
            continue
        a[[k, pivot]] = a[[pivot, k]]
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a, ipiv, info
