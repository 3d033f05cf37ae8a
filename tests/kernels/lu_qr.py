"""What the tests of the batched LU and QR factorisations share.

Arrays are column-major: element (i, j) of problem b of ``A`` is ``A[b, j, i]``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import pytest
from adaptive_kernels import BOUNDS, check_answer, inputs_of, sample, sizes_of
from compiled_stages import compiled_stages
from host_build import CHECKED, Barrier, HostRunError, Order
from numpy.typing import NDArray
from thread_orders import in_turns

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, Plan, Source, TunableValue
from tuner.problems.lookup import problem_for

DTYPES = ("float32", "float64")
SMALL = tuple(range(1, 41))
EDGES = (47, 48, 49, 63, 64, 65, 96, 127, 128)
ARCHITECTURES = ("sm_53", "sm_72", "sm_80", "sm_87", "sm_90", "sm_120")

on_host = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def plan_with(kernel: KernelFile, n: int, dtype: str, batch: int = 3, **values: TunableValue) -> Plan:
    """The default with other values."""
    workload = kernel.workload({"n": n, "dtype": dtype}, batch)
    default = dict(kernel.default(workload).items())
    return kernel.plan(workload, kernel.configuration(workload, {**default, **values}))


def samples(kernel: KernelFile, n: int, dtype: str, together: int = 1) -> list[Plan]:
    """Plans that hold each value, or pair of values that the host sees, for a batch that fills no block."""
    return sample(kernel, kernel.workload({"n": n, "dtype": dtype}, 5), together, BOUNDS[: together - 1])


def check_all(plans: Sequence[Plan], flags: tuple[str, ...] = CHECKED, *, take_turns: bool = False) -> None:
    """Runs plans on the inputs of their file, the orders of the threads in turn or shuffled; asks the law."""
    host_build.build_plans(plans, flags)
    shuffled: list[tuple[Plan, Order]] = [(plan, "shuffle") for plan in plans]
    for plan, order in in_turns(plans) if take_turns else shuffled:
        check_answer(plan, flags, order)


def factored(plan: Plan, matrices: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Outputs for matrices as NumPy has them, (batch, n, n); those that are matrices likewise."""
    dtype = next(buffer.dtype for buffer in plan.buffers if buffer.name == "A")
    A = np.ascontiguousarray(np.swapaxes(matrices, 1, 2)).astype(dtype)
    outputs = host_build.run_plan_on_host(plan, {"A": A}, flags=CHECKED, order="shuffle")
    outputs["A"] = np.swapaxes(outputs["A"], 1, 2)
    return outputs


def backward_error_is_small(plan: Plan, matrices: NDArray[Any]) -> bool:
    """Whether the law accepts the factors of these matrices."""
    outputs = factored(plan, matrices)
    dtype = outputs["A"].dtype
    inputs = {"A": np.swapaxes(matrices.astype(dtype), 1, 2)}
    outputs["A"] = np.swapaxes(outputs["A"], 1, 2)
    return problem_for(plan.problem).residual(np, inputs, outputs, sizes_of(plan)).ok


def conditioned(n: int, condition: float, count: int) -> NDArray[np.float64]:
    """Random matrices whose singular values fall from 1 to 1 / condition in even steps on a log scale."""
    rng = np.random.default_rng(n)
    left, _ = np.linalg.qr(rng.standard_normal((count, n, n)))
    right, _ = np.linalg.qr(rng.standard_normal((count, n, n)))
    made: NDArray[np.float64] = (left * condition ** -np.linspace(0, 1, n)) @ right
    return made


def with_fault(plan: Plan, old: str, new: str) -> Plan:
    """The plan with other words in its source or a header, where they stand once."""
    (stage,) = plan.stages
    source = stage.source
    texts = [source.text, *(text for _, text in source.headers)]
    assert sum(text.count(old) for text in texts) == 1, old
    headers = tuple((name, text.replace(old, new)) for name, text in source.headers)
    return replace(
        plan,
        stages=(replace(stage, source=Source(source.path, source.text.replace(old, new), headers)),),
    )


def is_noticed(plan: Plan, without: Barrier | None = None, flags: tuple[str, ...] = CHECKED) -> bool:
    """Whether the law, or the machine, finds something wrong."""
    try:
        check_answer(plan, flags, "forward", without)
    except (AssertionError, HostRunError):
        return True
    return False


def check_barriers(plans: Sequence[Plan]) -> None:
    """Every barrier that the plans meet is needed: without it, one of them goes wrong."""
    check_all(plans)
    left = {barrier.place for plan in plans for barrier in host_build.barriers_reached(plan)}
    assert left
    for plan in plans:
        for barrier in host_build.barriers_reached(plan):
            if barrier.place in left and is_noticed(plan, barrier):
                left.remove(barrier.place)
    assert not left


def check_one_bad_problem(plan: Plan, bad: float) -> None:
    """A number that spoils its problem changes no bit of another one, and shows in its own."""
    inputs = inputs_of(plan)
    clean = host_build.run_plan_on_host(plan, inputs, flags=CHECKED)
    inputs["A"] = inputs["A"].copy()
    inputs["A"][1, -1, 0] = bad
    spoilt = host_build.run_plan_on_host(plan, inputs, flags=CHECKED)
    for name, array in clean.items():
        np.testing.assert_array_equal(np.delete(spoilt[name], 1, axis=0), np.delete(array, 1, axis=0), name)
    assert not np.isfinite(spoilt["A"][1]).all()


def corner_plans(kernel: KernelFile) -> Iterator[Plan]:
    """Defaults and samples at sizes that are small, odd, and the largest."""
    for dtype in DTYPES:
        for n in (1, 7, 32, 128):
            yield plan_with(kernel, n, dtype)
        for n in (8, 65):
            yield from sample(kernel, kernel.workload({"n": n, "dtype": dtype}))[:4]


def check_compiles(plans: Sequence[Plan], architecture: str, folder: Path, *, lean: bool = False) -> None:
    """Every plan compiles for the architecture; if ``lean``, none of them spills."""
    stages = [stage for plan in plans for stage in plan.stages]
    results = compiled_stages(stages, architecture, folder)
    for stage, result in zip(stages, results, strict=True):
        assert result.resources.static_shared_bytes <= 48 * 1024, stage.entry
        if lean:
            assert (result.resources.spill_bytes, result.resources.local_bytes) == (0, 0), stage.entry


def check_defaults(kernel: KernelFile) -> None:
    """At every order and type the default is a configuration, and there is a choice."""
    for dtype in DTYPES:
        for n in range(1, 129):
            workload = kernel.workload({"n": n, "dtype": dtype})
            space = kernel.space(workload)
            assert Configuration(kernel.default(workload)) in space, (n, dtype)
            assert len(space) >= 4, (n, dtype)
