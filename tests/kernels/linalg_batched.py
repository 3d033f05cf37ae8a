"""What the tests of the batched kernels of dense linear algebra share.

Arrays are column-major: element (i, j) of problem b of ``A`` is ``A[b, j, i]``.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import pytest
from adaptive_kernels import BOUNDS, CATALOGUE, inputs_of, sample, sizes_of
from compiled_stages import compiled_stages
from host_build import CHECKED, Barrier, HostRunError, Order
from numpy.typing import NDArray

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, Plan, TunableValue
from tuner.problems.base import Deviation
from tuner.problems.lookup import problem_for

Arrays = Mapping[str, NDArray[Any]]

DTYPES = ("float32", "float64")
SMALL = tuple(range(1, 41))
EDGES = (47, 48, 49, 63, 64, 65, 96, 127, 128)
ARCHITECTURES = ("sm_53", "sm_72", "sm_80", "sm_87", "sm_90", "sm_120")

on_host = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def kernel_of(name: str) -> KernelFile:
    """A kernel of the catalogue."""
    return load_kernel_file(CATALOGUE / name / "kernel.toml")


def default_plan(kernel: KernelFile, n: int, dtype: str, batch: int = 3) -> Plan:
    """The default configuration, not compiled."""
    workload = kernel.workload({"n": n, "dtype": dtype}, batch)
    return kernel.plan(workload, kernel.default(workload))


def plan_with(kernel: KernelFile, n: int, dtype: str, batch: int = 3, **values: TunableValue) -> Plan:
    """The default with other values, or where that is no configuration the first that has these values."""
    workload = kernel.workload({"n": n, "dtype": dtype}, batch)
    wanted = Configuration({**dict(kernel.default(workload).items()), **values})
    space = list(kernel.space(workload))
    if wanted not in space:
        wanted = next(c for c in space if values.items() <= dict(c.items()).items())
    return kernel.plan(workload, wanted)


def sampled_plans(kernel: KernelFile, n: int, dtype: str, together: int = 1) -> list[Plan]:
    """Plans that hold each value, or pair of values the host sees; the last of their blocks is not full."""
    return sample(kernel, kernel.workload({"n": n, "dtype": dtype}, 5), together, BOUNDS[: together - 1])


def deviation(plan: Plan, inputs: Arrays, outputs: Arrays) -> Deviation:
    """What the law of the kernel file says."""
    return problem_for(plan.problem).residual(np, inputs, outputs, sizes_of(plan))


def answered(
    plan: Plan,
    inputs: Arrays,
    flags: Sequence[str] = CHECKED,
    order: Order = "shuffle",
    without: Barrier | None = None,
) -> dict[str, NDArray[Any]]:
    """Outputs of a plan on the host."""
    return host_build.run_plan_on_host(plan, inputs, flags=flags, order=order, without=without)


def check(plan: Plan, flags: Sequence[str] = CHECKED, order: Order = "shuffle") -> None:
    """Runs a plan on the inputs of its file and asks the law."""
    inputs = inputs_of(plan)
    found = deviation(plan, inputs, answered(plan, inputs, flags, order))
    assert found.ok, f"{plan.label()}, {order}: {found}"


def check_barriers(plans: Sequence[Plan]) -> None:
    """Every barrier that the plans meet is needed: without it, one of them goes wrong."""
    host_build.build_plans(plans, CHECKED)
    for plan in plans:
        check(plan)
    left = {barrier.place for plan in plans for barrier in host_build.barriers_reached(plan)}
    assert left
    for plan in plans:
        for barrier in host_build.barriers_reached(plan):
            if barrier.place in left and _is_missed(plan, barrier):
                left.remove(barrier.place)
    assert not left


def _is_missed(plan: Plan, barrier: Barrier) -> bool:
    inputs = inputs_of(plan)
    try:
        return not deviation(plan, inputs, answered(plan, inputs, CHECKED, "forward", barrier)).ok
    except HostRunError:
        return True


def is_noticed(plan: Plan) -> bool:
    """Whether the law, or the machine, finds something wrong."""
    inputs = inputs_of(plan)
    try:
        return not deviation(plan, inputs, answered(plan, inputs, host_build.FLAGS)).ok
    except HostRunError:
        return True


def matrices(array: NDArray[Any]) -> NDArray[np.float64]:
    """Column-major matrices as NumPy has them, in float64."""
    wide: NDArray[np.float64] = np.swapaxes(array, -1, -2).astype(np.float64)
    return wide


def column_major(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """The opposite of ``matrices``."""
    return np.ascontiguousarray(np.swapaxes(array, -1, -2)).astype(dtype)


def corner_plans(kernel: KernelFile) -> Iterator[Plan]:
    """Defaults and samples at sizes that are small, odd, and the largest."""
    for dtype in DTYPES:
        for n in (1, 7, 32, 128):
            yield default_plan(kernel, n, dtype)
        yield from sample(kernel, kernel.workload({"n": 65, "dtype": dtype}))[:4]


def check_compiles(plans: Sequence[Plan], architecture: str, folder: Path, *, lean: bool = False) -> None:
    """Every plan that the architecture runs compiles; if ``lean``, none of them spills."""
    number = int(architecture.removeprefix("sm_"))
    stages = [stage for plan in plans for stage in plan.stages if stage.min_architecture <= number]
    assert stages
    results = compiled_stages(stages, architecture, folder)
    for stage, result in zip(stages, results, strict=True):
        if lean:
            assert (result.resources.spill_bytes, result.resources.local_bytes) == (0, 0), stage.entry
            assert result.resources.static_shared_bytes + stage.shared_bytes <= 48 * 1024, stage.entry


def check_defaults(kernel: KernelFile) -> None:
    """The default of every order and type is a configuration, and runs where a block has 48 KiB."""
    for dtype in DTYPES:
        for n in range(1, 129):
            workload = kernel.workload({"n": n, "dtype": dtype})
            default = kernel.default(workload)
            assert default in kernel.space(workload), n
            (stage,) = kernel.plan(workload, default).stages
            assert stage.shared_bytes <= 48 * 1024, n
            assert stage.min_architecture <= 50, n
