"""Batched products of matrices: right at any order on the host, by threads and as tensor cores do it."""

from pathlib import Path

import host_build
import linalg_batched as batched
import numpy as np
import pytest
from adaptive_kernels import inputs_of
from host_build import ADDRESSES, CHECKED
from linalg_batched import ARCHITECTURES, DTYPES, EDGES, SMALL, on_host
from lu_qr import with_fault
from thread_orders import in_turns

GEMM = batched.kernel_of("gemm-batched")


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_defaults_are_right(dtype: str) -> None:
    """At orders that fill tiles and slabs, or do not."""
    plans = [batched.default_plan(GEMM, n, dtype) for n in (1, 2, 5, 13, 32, 67)]
    host_build.build_plans(plans, CHECKED)
    for plan in plans:
        batched.check(plan)


@on_host
def test_values_are_right() -> None:
    """Each value of each tunable, with no race and nothing astray."""
    plans = batched.sampled_plans(GEMM, 19, "float64") + batched.sampled_plans(GEMM, 36, "float32")
    host_build.build_plans(plans, CHECKED)
    for plan in plans:
        batched.check(plan)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_is_right(dtype: str) -> None:
    """Orders 1 to 40 and the edges of tiles, the orders of the threads in turn."""
    plans = [batched.default_plan(GEMM, n, dtype) for n in (*SMALL, *EDGES)]
    host_build.build_plans(plans, CHECKED)
    for plan, order in in_turns(plans):
        batched.check(plan, CHECKED, order)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("algorithm", ["mma8", "mma16"])
def test_every_order_is_right_with_tensor_cores(algorithm: str) -> None:
    """Tiles of 8 and 16 rows at orders from 9 on, with lanes beyond the matrix."""
    chosen = [batched.plan_with(GEMM, n, "float64", algorithm=algorithm) for n in (*SMALL[8:], *EDGES[:6])]
    host_build.build_plans(chosen, CHECKED)
    for plan in chosen:
        batched.check(plan)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [7, 12, 20])
def test_pairs_of_values_are_right(n: int, dtype: str) -> None:
    """Any two values that go together, and each value under the sanitizers too."""
    for flags, together in ((CHECKED, 2), (ADDRESSES, 1)):
        plans = batched.sampled_plans(GEMM, n, dtype, together)
        host_build.build_plans(plans, flags)
        for plan in plans:
            batched.check(plan, flags)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_right_in_strips(dtype: str) -> None:
    """Each value, under all sanitizers, where C is larger than a strip."""
    for flags in (CHECKED, ADDRESSES):
        plans = batched.sampled_plans(GEMM, 66, dtype)
        host_build.build_plans(plans, flags)
        for plan in plans:
            batched.check(plan, flags)


@on_host
@pytest.mark.parametrize(
    ("n", "dtype", "values"),
    [
        (36, "float32", {"ahead": 1, "depth": 8}),
        (36, "float64", {"ahead": 4, "depth": 8, "algorithm": "mma16"}),
        (9, "float32", {"ahead": 2}),
        (67, "float32", {"ahead": 2, "strip": 32}),
    ],
)
def test_blocks_that_stay_are_right(n: int, dtype: str, values: dict[str, int | str]) -> None:
    """Blocks that go through several problems, or strips of them, and have none for some slots at last."""
    plan = batched.plan_with(GEMM, n, dtype, 19, **values)
    assert plan.stages[0].resident
    for flags in (CHECKED, ADDRESSES):
        batched.check(plan, flags)


@on_host
@pytest.mark.pairwise
def test_barriers_are_needed() -> None:
    """Before the first slab is read, and before each other."""
    batched.check_barriers([batched.plan_with(GEMM, 36, "float32", depth=8)])
    batched.check_barriers([batched.plan_with(GEMM, 36, "float32", 5, depth=8, ahead=1)])


@on_host
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(s + 1) % buffers;", "s % buffers;"),
        ("slab.fetch(left, right, (s + 1) * depth", "slab.fetch(left, right, s * depth"),
        ("blockIdx.x % strips * strip", "0"),
        ("e < n * depth && k * n + e < n * n", "e < n * depth && k * n + e < n * n - n"),
        ("B + e / depth * n + k + e % depth", "B + e / depth * n + e % depth"),
        ("a[depth * Tile::leading_a + e] = T(0);", ";"),
        ("slab = 0, unit += step;", "slab = 0, unit += 1;"),
        ("right + column * n + row", "right + column * n"),
        ("filled = following(filled);", ""),
    ],
)
@pytest.mark.pairwise
def test_faults_are_noticed(old: str, new: str) -> None:
    """A wrong index anywhere is a wrong answer to the law."""
    plans = [batched.default_plan(GEMM, n, "float32") for n in (13, 35, 67)]
    plans.append(batched.plan_with(GEMM, 36, "float32", 7, depth=8, ahead=1))
    assert any(batched.is_noticed(with_fault(plan, old, new)) for plan in plans)


@on_host
def test_tensor_cores_add_in_the_order_of_threads() -> None:
    """The forms give the same products to rounding, and those with tensor cores the same bits."""
    plans = [batched.plan_with(GEMM, 20, "float64", algorithm=a) for a in ("fma", "mma8", "mma16")]
    host_build.build_plans(plans)
    inputs = inputs_of(plans[0])
    fma, mma8, mma16 = (batched.answered(plan, inputs, host_build.FLAGS)["C"] for plan in plans)
    np.testing.assert_array_equal(mma8, mma16)
    np.testing.assert_allclose(fma, mma8, rtol=1e-12, atol=1e-12)


@on_host
@pytest.mark.parametrize("trouble", [np.inf, np.nan])
def test_what_is_not_finite_stays_in_its_row(trouble: float) -> None:
    """One such element of A makes one row of one product not finite."""
    plan = batched.default_plan(GEMM, 13, "float32", 5)
    inputs = inputs_of(plan)
    A = inputs["A"].copy()
    A[2, 4, 6] = trouble
    C = batched.answered(plan, {**inputs, "A": A})["C"]
    assert np.argwhere(~np.isfinite(C)).tolist() == [[2, j, 6] for j in range(13)]


@pytest.mark.parametrize("architecture", ["sm_53", "sm_90"])
def test_defaults_compile_without_spills(architecture: str, cubins: Path) -> None:
    """For the oldest device and an H200, and fit any device."""
    plans = [batched.default_plan(GEMM, n, dtype) for n in (32, 128) for dtype in DTYPES]
    batched.check_compiles(plans, architecture, cubins, lean=True)


@pytest.mark.parametrize(("architecture", "algorithm"), [("sm_80", "mma8"), ("sm_90", "mma16")])
def test_tensor_cores_compile(architecture: str, algorithm: str, cubins: Path) -> None:
    """For the first devices that have them."""
    plans = [batched.plan_with(GEMM, n, "float64", algorithm=algorithm) for n in (20, 64)]
    batched.check_compiles(plans, architecture, cubins)


@pytest.mark.pairwise
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_corners_compile(architecture: str, cubins: Path) -> None:
    """Defaults and samples of configurations, for devices old and new."""
    batched.check_compiles(list(batched.corner_plans(GEMM)), architecture, cubins)


def test_defaults_are_configurations() -> None:
    """At every order and type, within 48 KiB of shared memory."""
    batched.check_defaults(GEMM)
