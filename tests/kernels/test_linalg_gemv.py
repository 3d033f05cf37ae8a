"""Batched products of matrices and vectors: right at any order on the host."""

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

GEMV = batched.kernel_of("gemv-batched")


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_defaults_are_right(dtype: str) -> None:
    """At orders that fill accesses of 16 bytes, or do not."""
    plans = [batched.default_plan(GEMV, n, dtype) for n in (1, 2, 5, 12, 33, 70)]
    host_build.build_plans(plans, CHECKED)
    for plan in plans:
        batched.check(plan)


@on_host
def test_values_are_right() -> None:
    """Each value of each tunable, with no race and nothing astray."""
    plans = batched.sampled_plans(GEMV, 12, "float64") + batched.sampled_plans(GEMV, 127, "float32")
    host_build.build_plans(plans, CHECKED)
    for plan in plans:
        batched.check(plan)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_is_right(dtype: str) -> None:
    """Orders 1 to 40 and the edges of tiles, the orders of the threads in turn."""
    plans = [batched.default_plan(GEMV, n, dtype) for n in (*SMALL, *EDGES)]
    host_build.build_plans(plans, CHECKED)
    for plan, order in in_turns(plans):
        batched.check(plan, CHECKED, order)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [4, 13, 40, 66, 128])
def test_pairs_of_values_are_right(n: int, dtype: str) -> None:
    """Any two values that go together, and each value under the sanitizers too."""
    for flags, together in ((CHECKED, 2), (ADDRESSES, 1)):
        plans = batched.sampled_plans(GEMV, n, dtype, together)
        host_build.build_plans(plans, flags)
        for plan in plans:
            batched.check(plan, flags)


@on_host
@pytest.mark.pairwise
def test_barriers_are_needed() -> None:
    """Between the sums of warps."""
    batched.check_barriers([batched.plan_with(GEMV, 66, "float32", threads=64)])


@on_host
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("read[f][e].at[w] * factor[f]", "read[f][e].at[0] * factor[f]"),
        ("read[f][e].at[w] * factor[f]", "read[f][e].at[w] * factor[0]"),
        ("ahead * packs, lanes", "ahead, lanes"),
        ("total += parts[w * n + row]", "total += parts[row]"),
        ("flying * stride) {", "flying * stride + 1) {"),
    ],
)
@pytest.mark.pairwise
def test_faults_are_noticed(old: str, new: str) -> None:
    """A wrong index anywhere is a wrong answer to the law."""
    plans = [
        batched.plan_with(GEMV, 12, "float32", 9, threads=32, flying=2, block=64),
        batched.plan_with(GEMV, 66, "float32", threads=64, flying=4, block=64),
    ]
    assert any(batched.is_noticed(with_fault(plan, old, new)) for plan in plans)


@on_host
@pytest.mark.parametrize("trouble", [np.inf, np.nan])
def test_what_is_not_finite_stays_in_its_row(trouble: float) -> None:
    """One such element of A makes one row of one product not finite."""
    plan = batched.default_plan(GEMV, 13, "float32", 5)
    inputs = inputs_of(plan)
    A = inputs["A"].copy()
    A[2, 4, 6] = trouble
    y = batched.answered(plan, {**inputs, "A": A})["y"]
    assert np.argwhere(~np.isfinite(y)).tolist() == [[2, 6]]


@pytest.mark.parametrize("architecture", ["sm_53", "sm_90"])
def test_defaults_compile_without_spills(architecture: str, cubins: Path) -> None:
    """For the oldest device and an H200, and fit any device."""
    plans = [batched.default_plan(GEMV, n, dtype) for n in (32, 128) for dtype in DTYPES]
    batched.check_compiles(plans, architecture, cubins, lean=True)


@pytest.mark.pairwise
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_corners_compile(architecture: str, cubins: Path) -> None:
    """Defaults and samples of configurations, for devices old and new."""
    batched.check_compiles(list(batched.corner_plans(GEMV)), architecture, cubins)


def test_defaults_are_configurations() -> None:
    """At every order and type, within 48 KiB of shared memory."""
    batched.check_defaults(GEMV)
