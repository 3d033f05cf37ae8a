"""LU in blocks: right at any size on the host, every barrier needed, and wrong answers noticed by its law."""

import host_build
import numpy as np
import pytest
from adaptive_kernels import CATALOGUE, barriers_not_missed, inputs_of, sample
from host_build import CHECKED

from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.plan import Plan
from tuner.problems.lookup import problem_for

LUD = load_kernel_file(CATALOGUE / "lud" / "kernel.toml")
on_host = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def compiled_plans() -> list[Plan]:
    """A sample of configurations, compiled for the host."""
    plans = sample(LUD, LUD.workload({"N": 70}))
    host_build.build_plans(plans, CHECKED)
    return plans


@on_host
@pytest.mark.pairwise
def test_no_barrier_can_be_left_out() -> None:
    """Every barrier of the source is met, and without any one some configuration fails."""
    assert not barriers_not_missed(compiled_plans())


@on_host
@pytest.mark.parametrize(("row", "column"), [(0, 0), (40, 3), (3, 40), (69, 69)])
def test_the_law_notices_one_wrong_element(row: int, column: int) -> None:
    """An error of a hundredth of an element, in L or in U, is beyond the tolerance."""
    plan = compiled_plans()[0]
    inputs = inputs_of(plan)
    outputs = host_build.run_plan_on_host(plan, inputs, flags=CHECKED)
    outputs["A"][row, column] += 0.01
    found = problem_for(plan.problem).residual(np, inputs, outputs, {"N": 70, "batch": 1})
    assert not found.ok


def test_the_factors_are_those_of_elimination() -> None:
    """L and U are those of Gaussian elimination in float64."""
    plan = compiled_plans()[0]
    inputs = inputs_of(plan)
    outputs = host_build.run_plan_on_host(plan, inputs, flags=CHECKED)
    expected = inputs["A"].astype(np.float64)
    for k in range(70):
        expected[k + 1 :, k] /= expected[k, k]
        expected[k + 1 :, k + 1 :] -= np.outer(expected[k + 1 :, k], expected[k, k + 1 :])
    np.testing.assert_allclose(outputs["A"], expected, rtol=1e-5, atol=1e-5)


def test_the_law_allows_rounding_alone_at_the_size_of_table_ii() -> None:
    """At 4096 it accepts a factorisation in float32, and notices one product of blocks of 16 left out."""
    n, block = 4096, 64
    before = next(
        iter(inputs_of(LUD.plan(workload := LUD.workload({"N": n}), LUD.default(workload))).values())
    )
    factored = before.copy()
    for k in range(0, n, block):
        end = k + block
        for j in range(k, end):
            factored[j + 1 :, j] /= factored[j, j]
            factored[j + 1 :, j + 1 : end] -= np.outer(factored[j + 1 :, j], factored[j, j + 1 : end])
        for j in range(k, end):
            factored[j + 1 : end, end:] -= np.outer(factored[j + 1 : end, j], factored[j, end:])
        factored[end:, end:] -= factored[end:, k:end] @ factored[k:end, end:]
    law = problem_for(LUD.plan(workload, LUD.default(workload)).problem)
    sizes = {"N": n, "batch": 1}
    assert law.residual(np, {"A": before}, {"A": factored}, sizes).ok
    factored[3000:3016, 3500:3516] += factored[3000:3016, 1600:1616] @ factored[1600:1616, 3500:3516]
    assert not law.residual(np, {"A": before}, {"A": factored}, sizes).ok
