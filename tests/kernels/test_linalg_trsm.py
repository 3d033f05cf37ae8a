"""Batched triangular systems: right at any order on the host, and as BLAS where they cannot be solved."""

from pathlib import Path
from typing import Any

import host_build
import linalg_batched as batched
import linalg_scales
import numpy as np
import pytest
from adaptive_kernels import inputs_of
from host_build import ADDRESSES, CHECKED
from linalg_batched import ARCHITECTURES, DTYPES, EDGES, SMALL, on_host
from lu_qr import with_fault
from numpy.typing import NDArray
from thread_orders import in_turns

TRSM = batched.kernel_of("trsm-batched")


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_defaults_are_right(dtype: str) -> None:
    """Residual, at orders within a panel, beyond one, and of several strips."""
    plans = [batched.default_plan(TRSM, n, dtype) for n in (1, 2, 5, 13, 32, 67)]
    host_build.build_plans(plans, CHECKED)
    for plan in plans:
        batched.check(plan)


@on_host
def test_values_are_right() -> None:
    """Each value of each tunable, with no race and nothing astray."""
    plans = batched.sampled_plans(TRSM, 20, "float32") + batched.sampled_plans(TRSM, 65, "float32")
    host_build.build_plans(plans, CHECKED)
    for plan in plans:
        batched.check(plan)


@on_host
@pytest.mark.parametrize("triangle", ["own", "spread"])
def test_systems_in_registers_are_right(triangle: str) -> None:
    """Orders that fill the threads of a problem or do not, with one right-hand side or two of each thread."""
    orders = (1, 3, 8) if triangle == "own" else (4, 13, 32)
    plans = [batched.plan_with(TRSM, n, "float32", 5, triangle=triangle) for n in orders]
    if triangle == "spread":
        plans.append(batched.plan_with(TRSM, 20, "float64", 5, triangle=triangle, columns=1))
        plans.append(batched.plan_with(TRSM, 20, "float32", 5, triangle=triangle, columns=2))
    host_build.build_plans(plans, CHECKED)
    for plan in plans:
        batched.check(plan)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_is_right(dtype: str) -> None:
    """Orders 1 to 40 and the edges of tiles, the orders of the threads in turn."""
    plans = [batched.default_plan(TRSM, n, dtype) for n in (*SMALL, *EDGES)]
    host_build.build_plans(plans, CHECKED)
    for plan, order in in_turns(plans):
        batched.check(plan, CHECKED, order)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [12, 40, 66])
def test_pairs_of_values_are_right(n: int, dtype: str) -> None:
    """Any two values that go together, and each value under the sanitizers too."""
    for flags, together in ((CHECKED, 2), (ADDRESSES, 1)):
        plans = batched.sampled_plans(TRSM, n, dtype, together)
        host_build.build_plans(plans, flags)
        for plan in plans:
            batched.check(plan, flags)


@on_host
@pytest.mark.pairwise
def test_barriers_are_needed() -> None:
    """Around copies of whole matrices, and of panels."""
    batched.check_barriers(
        [
            batched.plan_with(TRSM, 13, "float32", problems=4),
            batched.plan_with(TRSM, 65, "float32", triangle="panels", strip=128),
            batched.plan_with(TRSM, 65, "float32", triangle="panels", strip=32),  # a warp's own
        ]
    )


@on_host
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sum[c][r] -= left[r] * known[c][w];", "sum[c][r] -= left[r] * known[c][0];"),
        ("divided(sum[c][k], left[k])", "divided(sum[c][k], left[0])"),
        ("for (int r = k + 1; r < rows; ++r)", "for (int r = k + 2; r < rows; ++r)"),
        ("if (i + w == k) pack.at[w]", "if (i + w == k + 1) pack.at[w]"),
        ("blockIdx.x / Here::strips * problems", "blockIdx.x / Here::strips"),
        ("blockIdx.x % Here::strips * Here::width", "0"),
    ],
)
@pytest.mark.pairwise
def test_faults_are_noticed(old: str, new: str) -> None:
    """A wrong index anywhere is a wrong answer to the law."""
    plans = [
        batched.plan_with(TRSM, 13, "float32", 9, problems=4),
        batched.plan_with(TRSM, 69, "float32", strip=64),
    ]
    assert any(batched.is_noticed(with_fault(plan, old, new)) for plan in plans)


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "triangle"), [(6, "own"), (9, "spread"), (20, "whole"), (50, "panels")])
def test_systems_of_any_scale_have_small_residuals(n: int, triangle: str, dtype: str) -> None:
    """Row by row, also where pivots are denormal or their reciprocals are, in each place of the triangle."""

    def solved(_: str, a: NDArray[Any], b: NDArray[Any], lower: bool) -> NDArray[Any]:
        assert lower
        sides = np.zeros_like(a)
        sides[..., : b.shape[-1]] = b
        plan = batched.plan_with(TRSM, n, dtype, len(a), triangle=triangle)
        inputs = {"L": batched.column_major(a, dtype), "B": batched.column_major(sides, dtype)}
        return np.swapaxes(batched.answered(plan, inputs)["B"], 1, 2)[..., : b.shape[-1]]

    linalg_scales.LAWS["solve_triangular lower"](solved, n, dtype)


@on_host
def test_what_lies_above_the_diagonal_is_not_used() -> None:
    """Not even NaN there changes a bit."""
    plans = [batched.default_plan(TRSM, n, "float32") for n in (13, 69)]
    plans += [batched.plan_with(TRSM, 8, "float32", triangle=triangle) for triangle in ("own", "spread")]
    for plan in plans:
        n = int(dict(plan.workload.sizes)["n"])
        inputs = inputs_of(plan)
        right = batched.answered(plan, inputs)["B"]
        poisoned = inputs["L"].copy()
        rows, columns = np.tril_indices(n, -1)  # of the transpose
        poisoned[:, rows, columns] = np.nan
        np.testing.assert_array_equal(batched.answered(plan, {**inputs, "L": poisoned})["B"], right)


@on_host
@pytest.mark.parametrize("trouble", [0.0, np.nan])
def test_a_bad_system_changes_no_other(trouble: float) -> None:
    """A diagonal with zero or NaN leaves no finite row from there on, and all other systems as they are."""
    plan = batched.plan_with(TRSM, 13, "float32", 5, problems=4)
    inputs = inputs_of(plan)
    before = batched.answered(plan, inputs)["B"]
    L = inputs["L"].copy()
    L[2, 6, 6] = trouble
    after = batched.answered(plan, {**inputs, "L": L})["B"]
    np.testing.assert_array_equal(np.delete(after, 2, axis=0), np.delete(before, 2, axis=0))
    np.testing.assert_array_equal(after[2, :, :6], before[2, :, :6])
    assert not np.isfinite(after[2, :, 6:]).any()


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_ill_conditioned_systems_have_small_residuals(dtype: str) -> None:
    """Random triangles, whose condition grows exponentially with their order."""
    plan = batched.default_plan(TRSM, 40, dtype, 2)
    rng = np.random.default_rng(1)
    L = np.tril(rng.uniform(-1, 1, (2, 40, 40)))
    diagonal = np.einsum("bii->bi", L)
    diagonal[...] = np.sign(diagonal) * (0.25 + abs(diagonal))
    assert np.linalg.cond(L).min() > 1e4
    inputs = {"L": batched.column_major(L, dtype), "B": inputs_of(plan)["B"]}
    found = batched.deviation(plan, inputs, batched.answered(plan, inputs))
    assert found.ok, str(found)


@pytest.mark.parametrize("architecture", ["sm_53", "sm_90"])
def test_defaults_compile_without_spills(architecture: str, cubins: Path) -> None:
    """For the oldest device and an H200, and fit any device."""
    plans = [batched.default_plan(TRSM, n, dtype) for n in (32, 128) for dtype in DTYPES]
    batched.check_compiles(plans, architecture, cubins, lean=True)


@pytest.mark.pairwise
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_corners_compile(architecture: str, cubins: Path) -> None:
    """Defaults and samples of configurations, for devices old and new."""
    batched.check_compiles(list(batched.corner_plans(TRSM)), architecture, cubins)


def test_defaults_are_configurations() -> None:
    """At every order and type, within 48 KiB of shared memory."""
    batched.check_defaults(TRSM)
