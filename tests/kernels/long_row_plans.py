"""Long rows in tests of transforms: plans of chosen configurations, inputs, and answers on the host."""

from collections.abc import Mapping
from typing import Any

import host_build
import numpy as np
import numpy.typing as npt

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Plan, TunableValue
from tuner.problems.lookup import problem_for

Array = npt.NDArray[Any]
LARGE_BATCH = 2**22  # numbers, from which the files state wide tiles


def plan_at(
    kernel: KernelFile,
    sizes: Mapping[str, int | str],
    batch: int,
    values: Mapping[str, TunableValue] | None = None,
    *,
    stated: bool = False,
) -> Plan:
    """The plan of the first configuration with such values, of the default, or of what is ``stated``.

    That is the answer for a batch of ``LARGE_BATCH`` numbers.
    """
    workload = kernel.workload(sizes, batch)
    if values is not None:
        wanted, space = values.items(), kernel.space(workload)
        return kernel.plan(workload, next(one for one in space if wanted <= dict(one).items()))
    large = kernel.workload(sizes, LARGE_BATCH // int(sizes["N"]) + 1)
    chosen = kernel.stated(large) if stated else kernel.default(workload)
    assert chosen is not None
    return kernel.plan(workload, chosen)


def given(plan: Plan) -> Array:
    """Random rows of the plan's input."""
    sizes = dict(plan.workload.sizes)
    x: Array = problem_for(plan.problem).inputs(np, np.random.default_rng(1), plan.buffers, sizes)["x"]
    return x


def transformed(plan: Plan, x: Array, order: host_build.Order = "shuffle") -> Array:
    """What the plan makes of rows, its threads in some order."""
    return host_build.run_plan_on_host(plan, {"x": x}, order=order)["y"]
