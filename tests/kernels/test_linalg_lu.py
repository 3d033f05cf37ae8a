"""Batched LU with partial pivoting: right at any order on the host, and LAPACK's answers to bad matrices."""

from pathlib import Path
from typing import Any

import lu_qr
import numpy as np
import pytest
from adaptive_kernels import CATALOGUE, inputs_of
from host_build import ADDRESSES
from lu_qr import ARCHITECTURES, DTYPES, EDGES, SMALL, on_host
from numpy.typing import NDArray

from tuner.kernel_files.catalog import load_kernel_file

GETRF = load_kernel_file(CATALOGUE / "getrf-batched" / "kernel.toml")
ALONE: dict[str, int | str] = {"P": 1, "W": 1, "G": 32, "exchange": "none", "blocks": 1}


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


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_defaults_are_right(dtype: str) -> None:
    """Within a warp and across warps, at orders that fill the threads or do not."""
    lu_qr.check_all([lu_qr.plan_with(GETRF, n, dtype) for n in (1, 13, 49)])


@on_host
@pytest.mark.parametrize(("n", "dtype"), [(8, "float64"), (37, "float32")])
def test_values_are_right(n: int, dtype: str) -> None:
    """Each value of each tunable, with no race and nothing astray, in blocks that are not full."""
    lu_qr.check_all(lu_qr.samples(GETRF, n, dtype))


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_is_right(dtype: str) -> None:
    """Orders 1 to 40 and the edges of tiles, the orders of the threads in turn."""
    lu_qr.check_all([lu_qr.plan_with(GETRF, n, dtype) for n in (*SMALL, *EDGES)], take_turns=True)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [3, 8, 21, 40, 65])
def test_pairs_of_values_are_right(n: int, dtype: str) -> None:
    """Any two values that go together."""
    lu_qr.check_all(lu_qr.samples(GETRF, n, dtype, together=2))


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
def test_sanitizers_find_nothing(dtype: str) -> None:
    """Orders 1 to 40 and the edges, in either type, keep to their arrays and to what the language defines."""
    orders = (*SMALL, *EDGES)[DTYPES.index(dtype) :: 2]
    plans = [lu_qr.plan_with(GETRF, n, dtype) for n in orders]
    lu_qr.check_all([*plans, *lu_qr.samples(GETRF, 21, dtype)], ADDRESSES)


@on_host
@pytest.mark.pairwise
def test_barriers_are_needed() -> None:
    """Of problems that share a warp, and of warps that share a problem."""
    lu_qr.check_barriers(
        [
            lu_qr.plan_with(GETRF, 7, "float32", P=4, W=4, G=2, exchange="shuffle"),
            lu_qr.plan_with(GETRF, 37, "float32"),
            lu_qr.plan_with(GETRF, 4, "float32", 3, **ALONE, copies="staged"),
        ]
    )


@on_host
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a[j][r] -= l[r] * u[j]", "a[j][r] -= l[r] * u[c]"),
        ("if (group <= w) u[c]", "if (group < w) u[c]"),
        ("done |= 1 << which", "done |= 2 << which"),
        ("own.place[pivot_row] = k;", "own.place[pivot_row] = pivot_row;"),
        ("position(own.exchanged, pivot_row, k)", "pivot_row"),
        ("if (other > top) top", "if (other < top) top"),
        ("i < n && j < n ? own", "i < n && j < n - 1 ? own"),
        ("e < count; e += team", "e < count - 1; e += team"),
    ],
)
@pytest.mark.pairwise
def test_faults_are_noticed(old: str, new: str) -> None:
    """A wrong index or condition anywhere is a wrong answer to the law."""
    assert lu_qr.is_noticed(lu_qr.with_fault(lu_qr.plan_with(GETRF, 37, "float32"), old, new))


@on_host
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "if (i <= k) continue;\n        const auto key",
            "if (i <= k + 1) continue;\n        const auto key",
        ),
        ("const bool here = i == row;", "const bool here = i == row && k > 0;"),
        ("a[j][i] -= below[i] * a[j][k];", "a[j][i] -= below[i] * a[k][k];"),
        ("e + e / (n * n) * (pitch - n * n)", "e"),
        ("rows[k] = pivot.row + 1;", "rows[k] = pivot.row;"),
    ],
)
@pytest.mark.pairwise
def test_faults_of_threads_alone_are_noticed(old: str, new: str) -> None:
    """The same, where a thread has a matrix."""
    plan = lu_qr.plan_with(GETRF, 4, "float32", 35, **ALONE, copies="staged")
    assert lu_qr.is_noticed(lu_qr.with_fault(plan, old, new))


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [13, 37])
def test_pivots_are_those_of_lapack(n: int, dtype: str) -> None:
    """Of random matrices SciPy exchanges the same rows, and its factors are the same within rounding."""
    from scipy.linalg import lapack  # noqa: PLC0415 - takes long to import

    plan = lu_qr.plan_with(GETRF, n, dtype)
    matrices = np.swapaxes(inputs_of(plan)["A"], 1, 2)
    outputs = lu_qr.factored(plan, matrices)
    getrf = lapack.sgetrf if dtype == "float32" else lapack.dgetrf
    for b, matrix in enumerate(matrices):
        factors, ipiv, info = getrf(matrix)
        assert outputs["ipiv"][b].tolist() == (ipiv + 1).tolist()
        assert outputs["info"][b] == info == 0
        tolerance = 1e4 * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(outputs["A"][b], factors, rtol=tolerance, atol=tolerance)


def tied_and_singular(n: int = 16) -> NDArray[np.float64]:
    """Matrices that are factored without rounding; n is a power of two."""
    hadamard = np.array([[(-1) ** (i & j).bit_count() for j in range(n)] for i in range(n)], float)
    shuffled = hadamard[np.random.default_rng(1).permutation(n)]
    column = shuffled.copy()
    column[:, n // 3] = 0
    twins = shuffled.copy()
    twins[n - 5] = twins[2]
    lower = np.tril(np.ones((n, n)))[::-1]
    return np.stack([hadamard, shuffled, column, twins, np.zeros((n, n)), np.ones((n, n)), lower])


@on_host
@pytest.mark.parametrize(
    ("n", "values"),
    [
        (16, {}),
        (16, {"P": 4, "W": 8, "exchange": "shuffle"}),
        (16, {"P": 16, "W": 4, "G": 1}),
        (8, {**ALONE, "copies": "direct"}),
    ],
)
def test_ties_and_singular_matrices_end_as_in_lapack(n: int, values: dict[str, int | str]) -> None:
    """The first of equal pivots, the first zero pivot, and the same factors to the bit."""
    matrices = tied_and_singular(n)
    plan = lu_qr.plan_with(GETRF, n, "float32", len(matrices), **values)
    outputs = lu_qr.factored(plan, matrices)
    for b, matrix in enumerate(matrices):
        factors, ipiv, info = getf2(matrix)
        assert outputs["ipiv"][b].tolist() == ipiv, b
        assert outputs["info"][b] == info, b
        np.testing.assert_array_equal(outputs["A"][b], factors, str(b))
    assert (outputs["info"] > 0).tolist() == [False, False, True, True, True, True, False]


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "values"), [(16, {}), (4, {**ALONE, "copies": "direct"})])
def test_pivots_without_a_reciprocal_are_divided_by(dtype: str, n: int, values: dict[str, int | str]) -> None:
    """Powers of two so small that the reciprocal of a pivot is infinite, beside an ordinary problem."""
    tiny = float(np.finfo(dtype).smallest_subnormal) * 64
    matrices = tied_and_singular(16)[[1, 0], :n, :n] if n < 8 else tied_and_singular(n)[[1, 0]]
    matrices[0] *= tiny
    outputs = lu_qr.factored(lu_qr.plan_with(GETRF, n, dtype, 2, **values), matrices)
    for b, matrix in enumerate(matrices):
        factors, ipiv, info = getf2(matrix)
        assert (outputs["ipiv"][b].tolist(), outputs["info"][b]) == (ipiv, info)
        np.testing.assert_array_equal(outputs["A"][b], factors)


@on_host
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_number_stays_in_its_problem(bad: float) -> None:
    """Of problems that share a warp, only the one that has it is spoilt; its ipiv are still rows."""
    for n, values in (
        (7, {"P": 4, "W": 2, "G": 4, "exchange": "shuffle"}),
        (37, {}),
        (5, {**ALONE, "copies": "staged"}),
    ):
        lu_qr.check_one_bad_problem(lu_qr.plan_with(GETRF, n, "float32", **values), bad)
    plan = lu_qr.plan_with(GETRF, 37, "float32", 1)
    ipiv = lu_qr.factored(plan, np.full((1, 37, 37), bad))["ipiv"][0]
    assert (np.arange(1, 38) <= ipiv).all()
    assert (ipiv <= 37).all()


@on_host
@pytest.mark.parametrize(("dtype", "condition"), [("float32", 1e6), ("float64", 1e14)])
def test_ill_conditioned_matrices_have_small_backward_errors(dtype: str, condition: float) -> None:
    """Whatever the condition number."""
    plan = lu_qr.plan_with(GETRF, 37, dtype)
    assert lu_qr.backward_error_is_small(plan, lu_qr.conditioned(37, condition, 3))


def test_defaults_compile_without_spills(cubins: Path) -> None:
    """For an H200, at the largest order of each form."""
    plans = [lu_qr.plan_with(GETRF, n, dtype) for n, dtype in ((32, "float64"), (128, "float64"))]
    lu_qr.check_compiles(plans, "sm_90", cubins, lean=True)


@pytest.mark.pairwise
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_no_default_spills(architecture: str, cubins: Path) -> None:
    """At orders of every form and both types."""
    plans = [
        lu_qr.plan_with(GETRF, n, dtype) for n in (1, 7, 16, 32, 33, 64, 65, 96, 128) for dtype in DTYPES
    ]
    lu_qr.check_compiles(plans, architecture, cubins, lean=True)


@pytest.mark.pairwise
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_corners_compile(architecture: str, cubins: Path) -> None:
    """Defaults and samples of configurations, for devices old and new."""
    lu_qr.check_compiles(list(lu_qr.corner_plans(GETRF)), architecture, cubins)


def test_defaults_are_configurations() -> None:
    """At every order and type."""
    lu_qr.check_defaults(GETRF)
