"""Batched Cholesky factorisations: right at any order on the host, and LAPACK's answers to bad matrices."""

from pathlib import Path
from typing import Any

import host_build
import linalg_batched as batched
import numpy as np
import pytest
from adaptive_kernels import inputs_of
from host_build import ADDRESSES, CHECKED
from linalg_batched import ARCHITECTURES, DTYPES, EDGES, SMALL, on_host
from lu_qr import with_fault
from numpy.typing import NDArray
from thread_orders import in_turns

POTRF = batched.kernel_of("potrf-batched")


def potf2(matrix: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """LAPACK's unblocked factorisation, in the type of the matrix: what is left of it, and info."""
    a = matrix.copy()
    for j in range(len(a)):
        pivot = a[j, j] - a[j, :j] @ a[j, :j]
        a[j, j] = pivot
        if not pivot > 0:
            return a, j + 1
        a[j, j] = np.sqrt(pivot)
        a[j + 1 :, j] = (a[j + 1 :, j] - a[j + 1 :, :j] @ a[j, :j]) / a[j, j]
    return a, 0


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_defaults_are_right(dtype: str) -> None:
    """Backward error and info, at orders within a panel, beyond one, and of several warps."""
    plans = [batched.default_plan(POTRF, n, dtype) for n in (1, 2, 5, 13, 32, 49)]
    host_build.build_plans(plans, CHECKED)
    for plan in plans:
        batched.check(plan)


@on_host
def test_values_are_right() -> None:
    """Each value of each tunable, with no race and nothing astray, in blocks that are not full."""
    plans = batched.sampled_plans(POTRF, 65, "float32")
    host_build.build_plans(plans, CHECKED)
    for plan in plans:
        batched.check(plan)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_is_right(dtype: str) -> None:
    """Orders 1 to 40 and the edges of tiles, the orders of the threads in turn."""
    plans = [batched.default_plan(POTRF, n, dtype) for n in (*SMALL, *EDGES)]
    host_build.build_plans(plans, CHECKED)
    for plan, order in in_turns(plans):
        batched.check(plan, CHECKED, order)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [12, 40, 65])
def test_pairs_of_values_are_right(n: int, dtype: str) -> None:
    """Any two values that go together, and each value under the sanitizers too."""
    for flags, together in ((CHECKED, 2), (ADDRESSES, 1)):
        plans = batched.sampled_plans(POTRF, n, dtype, together)
        host_build.build_plans(plans, flags)
        for plan in plans:
            batched.check(plan, flags)


@on_host
@pytest.mark.pairwise
def test_barriers_are_needed() -> None:
    """Of warps that share a matrix, of matrices that share a block, and of the form in device memory."""
    batched.check_barriers(
        [
            batched.plan_with(POTRF, 13, "float32", problems=4),
            batched.plan_with(POTRF, 65, "float32", rows=1, storage="half"),
            batched.plan_with(POTRF, 65, "float32", rows=1, columns=4, storage="device"),
        ]
    )


@on_host
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("block[a][b] -= block[a][c] * block[b][c];", "block[a][b] -= block[a][c] * block[a][c];"),
        ("x -= sum[r][b] * block[c][b];", "x -= sum[r][b] * block[b][b];"),
        ("if (k <= i) all[slot", "if (k < i) all[slot"),
        ("if (Here::whole || i + w >= k) to[w]", "if (Here::whole || i + w > k) to[w]"),
        ("info = p + c + 1;", "info = p + 1;"),
    ],
)
@pytest.mark.pairwise
def test_faults_are_noticed(old: str, new: str) -> None:
    """A wrong index anywhere is a wrong answer to the law, or of an indefinite matrix a wrong info."""
    plan = with_fault(batched.default_plan(POTRF, 37, "float32"), old, new)
    if "info" not in old:
        assert batched.is_noticed(plan)
        return
    matrix = np.eye(37)
    matrix[20, 20] = -1
    A = np.tile(batched.column_major(matrix, "float32"), (3, 1, 1))
    assert (batched.answered(plan, {"A": A}, host_build.FLAGS)["info"] != 21).all()


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("storage", ["half", "device"])
def test_bad_matrices_end_as_in_lapack(storage: str, dtype: str) -> None:
    """Indefinite, singular and matrices with NaN: info, and columns and pivot that potf2 leaves."""
    n, columns = 66, 4
    plan = batched.plan_with(POTRF, n, dtype, batch=5, storage=storage, columns=columns)
    A = inputs_of(plan)["A"].copy()
    whole = batched.matrices(A)
    whole[0, 41, 41] = -3
    whole[1] = np.ones((n, n))  # the second pivot is exactly 0
    whole[2, 50, 17] = np.nan
    whole[3] = 0
    rows, right = np.triu_indices(n, 1)
    whole[:, rows, right] = np.nan  # never used
    A = batched.column_major(whole, dtype)
    outputs = batched.answered(plan, {"A": A})
    left = np.swapaxes(outputs["A"], 1, 2)
    for b in range(5):
        expected, info = potf2(np.swapaxes(A[b], 0, 1))
        assert outputs["info"][b] == info, b
        assert np.isnan(left[b][np.triu_indices(n, 1)]).all()
        tolerance = 1e-4 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(np.tril(left[b]), np.tril(expected), rtol=tolerance, atol=tolerance)
    assert outputs["info"].tolist()[:2] == [42, 2]
    assert outputs["info"][2] == 51
    assert outputs["info"].tolist()[3:] == [1, 0]


@on_host
def test_infinity_is_its_own_root() -> None:
    """As LAPACK has it: an infinite pivot leaves zeros below it and the rest as it is."""
    plan = batched.default_plan(POTRF, 9, "float32", 1)
    A = 4 * np.eye(9, dtype=np.float32)[None]
    A[0, 3, 3] = np.inf
    outputs = batched.answered(plan, {"A": A})
    assert outputs["info"][0] == 0
    assert np.diag(outputs["A"][0]).tolist() == [2, 2, 2, np.inf, 2, 2, 2, 2, 2]


@on_host
def test_ill_conditioned_matrices_have_small_backward_errors() -> None:
    """Of condition 1e4 in float32 and 1e12 in float64."""
    for dtype, condition in (("float32", 1e4), ("float64", 1e12)):
        plan = batched.default_plan(POTRF, 33, dtype, 2)
        orthogonal, _ = np.linalg.qr(np.random.default_rng(3).standard_normal((2, 33, 33)))
        eigenvalues = condition ** -np.linspace(0, 1, 33)
        A = batched.column_major((orthogonal * eigenvalues) @ np.swapaxes(orthogonal, 1, 2), dtype)
        found = batched.deviation(plan, {"A": A}, batched.answered(plan, {"A": A}))
        assert found.ok, str(found)


@pytest.mark.parametrize("architecture", ["sm_53", "sm_90"])
def test_defaults_compile_without_spills(architecture: str, cubins: Path) -> None:
    """For the oldest device and an H200, and fit any device."""
    plans = [batched.default_plan(POTRF, n, dtype) for n in (32, 128) for dtype in DTYPES]
    batched.check_compiles(plans, architecture, cubins, lean=True)


@pytest.mark.pairwise
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_corners_compile(architecture: str, cubins: Path) -> None:
    """Defaults and samples of configurations, for devices old and new."""
    batched.check_compiles(list(batched.corner_plans(POTRF)), architecture, cubins)


def test_defaults_are_configurations() -> None:
    """At every order and type, within 48 KiB of shared memory."""
    batched.check_defaults(POTRF)
