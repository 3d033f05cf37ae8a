"""Batched Householder QR: right at any order on the host, with LAPACK's R and tau, and no overflow."""

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

GEQRF = load_kernel_file(CATALOGUE / "geqrf-batched" / "kernel.toml")


def geqrf(matrix: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """SciPy's factors and tau, in the type of the matrix."""
    from scipy.linalg import lapack  # noqa: PLC0415 - takes long to import

    routine = lapack.sgeqrf if matrix.dtype == np.float32 else lapack.dgeqrf
    factors, tau, _, _ = routine(matrix)
    return factors, tau


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_defaults_are_right(dtype: str) -> None:
    """Within a warp and across warps, at orders that fill the threads or do not."""
    lu_qr.check_all([lu_qr.plan_with(GEQRF, n, dtype) for n in (1, 13, 49)])


@on_host
@pytest.mark.parametrize(("n", "dtype"), [(8, "float64"), (37, "float32")])
def test_values_are_right(n: int, dtype: str) -> None:
    """Each value of each tunable, with no race and nothing astray, in blocks that are not full."""
    lu_qr.check_all(lu_qr.samples(GEQRF, n, dtype))


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_is_right(dtype: str) -> None:
    """Orders 1 to 40 and the edges of tiles, the orders of the threads in turn."""
    lu_qr.check_all([lu_qr.plan_with(GEQRF, n, dtype) for n in (*SMALL, *EDGES)], take_turns=True)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [3, 8, 21, 40, 65])
def test_pairs_of_values_are_right(n: int, dtype: str) -> None:
    """Any two values that go together."""
    lu_qr.check_all(lu_qr.samples(GEQRF, n, dtype, together=2))


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
def test_sanitizers_find_nothing(dtype: str) -> None:
    """Orders 1 to 40 and the edges, in either type, keep to their arrays and to what the language defines."""
    orders = (*SMALL, *EDGES)[DTYPES.index(dtype) :: 2]
    plans = [lu_qr.plan_with(GEQRF, n, dtype) for n in orders]
    lu_qr.check_all([*plans, *lu_qr.samples(GEQRF, 21, dtype)], ADDRESSES)


@on_host
@pytest.mark.pairwise
def test_barriers_are_needed() -> None:
    """Of problems that share a warp, and of warps that share a problem."""
    lu_qr.check_barriers(
        [
            lu_qr.plan_with(GEQRF, 7, "float32", P=4, W=4, G=2, blocks=1),
            lu_qr.plan_with(GEQRF, 37, "float32", P=4, W=16),
        ]
    )


@on_host
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a[j][r] -= product[j] * v[r]", "a[j][r] -= product[c] * v[r]"),
        ("if (group <= w) product[c]", "if (group < w) product[c]"),
        ("row == k ? T(1) : T(0)", "row == k ? T(0) : T(0)"),
        ("row == k ? made.beta", "row == k ? -made.beta"),
        ("if (r >= below || row > k) squares", "if (r >= below || row > k + 1) squares"),
        ("T(1) + magnitude(alpha) * inverse", "T(1) - magnitude(alpha) * inverse"),
        ("alpha >= T(0) ? -norm", "alpha >= T(0) ? norm"),
        ("(c * W + W + P - 1) / P", "(c * W + W + P - 1) / P - 1"),
        ("unit.tau", "unit.beta"),
    ],
)
@pytest.mark.pairwise
def test_faults_are_noticed(old: str, new: str) -> None:
    """A wrong index, sign or condition anywhere shows, that of the rare path in its own matrices."""
    plan = lu_qr.with_fault(lu_qr.plan_with(GEQRF, 37, "float32"), old, new)
    if "unit" in old:
        assert not lu_qr.backward_error_is_small(plan, 1e30 * lu_qr.conditioned(37, 10, 3))
    else:
        assert lu_qr.is_noticed(plan)


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "values"), [(1, {}), (13, {"P": 8, "W": 4, "G": 1}), (37, {})])
def test_factors_are_those_of_lapack(n: int, values: dict[str, int], dtype: str) -> None:
    """R with LAPACK's signs, the vectors and tau are SciPy's within rounding."""
    plan = lu_qr.plan_with(GEQRF, n, dtype, **values)
    matrices = np.swapaxes(inputs_of(plan)["A"], 1, 2)
    outputs = lu_qr.factored(plan, matrices)
    tolerance = 1e3 * float(np.finfo(dtype).eps)
    for b, matrix in enumerate(matrices):
        factors, tau = geqrf(matrix)
        np.testing.assert_allclose(outputs["A"][b], factors, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(outputs["tau"][b], tau, rtol=tolerance, atol=tolerance)


@on_host
def test_matrices_without_full_rank_end_as_in_lapack() -> None:
    """No reflection where there is nothing to remove: tau is 0 and the diagonal keeps its sign."""
    n = 9
    zero = np.zeros((n, n))
    upper = np.triu(-1 - np.arange(n * n, dtype=float).reshape(n, n) / 7)
    column = upper + np.eye(n)[::-1]
    column[:, 4] = 0
    matrices = np.stack([zero, upper, -np.eye(n), column])
    outputs = lu_qr.factored(lu_qr.plan_with(GEQRF, n, "float64", 4), matrices)
    assert not outputs["tau"][:3].any()
    np.testing.assert_array_equal(outputs["A"][:3], matrices[:3])
    factors, tau = geqrf(matrices[3])
    np.testing.assert_allclose(outputs["A"][3][:, :4], factors[:, :4], atol=1e-13)
    np.testing.assert_allclose(outputs["tau"][3][:4], tau[:4], atol=1e-13)
    assert lu_qr.backward_error_is_small(lu_qr.plan_with(GEQRF, n, "float64", 4), matrices)


@on_host
@pytest.mark.parametrize(("dtype", "exponents"), [("float32", (-66, 0, 64)), ("float64", (-520, 0, 514))])
def test_squares_neither_overflow_nor_vanish(dtype: str, exponents: tuple[int, ...]) -> None:
    """A matrix times a power of two has R times it and the same vectors, beside problems of other sizes."""
    matrix = lu_qr.conditioned(21, 100, 1)[0].astype(dtype).astype(float)
    matrices = np.stack([matrix * 2.0**exponent for exponent in exponents])
    outputs = lu_qr.factored(lu_qr.plan_with(GEQRF, 21, dtype, 3), matrices)
    tolerance = 1e3 * float(np.finfo(dtype).eps)
    for b, exponent in enumerate(exponents):
        upper = np.triu(outputs["A"][b].astype(float)) * 2.0**-exponent
        np.testing.assert_allclose(upper, np.triu(outputs["A"][1]), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(outputs["tau"][b], outputs["tau"][1], rtol=tolerance, atol=tolerance)
        lower = np.tril(outputs["A"][b], -1)
        np.testing.assert_allclose(lower, np.tril(outputs["A"][1], -1), rtol=tolerance, atol=tolerance)


@on_host
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_number_stays_in_its_problem(bad: float) -> None:
    """Of problems that share a warp, only the one that has it is spoilt."""
    for n, values in ((7, {"P": 4, "W": 2, "G": 4, "blocks": 1}), (37, {})):
        lu_qr.check_one_bad_problem(lu_qr.plan_with(GEQRF, n, "float32", **values), bad)


@on_host
@pytest.mark.parametrize(("dtype", "condition"), [("float32", 1e6), ("float64", 1e14)])
def test_ill_conditioned_matrices_have_small_errors(dtype: str, condition: float) -> None:
    """Backward error and orthogonality, whatever the condition number."""
    plan = lu_qr.plan_with(GEQRF, 37, dtype)
    assert lu_qr.backward_error_is_small(plan, lu_qr.conditioned(37, condition, 3))


def test_defaults_compile_without_spills(cubins: Path) -> None:
    """For an H200, at the largest order of each form."""
    plans = [lu_qr.plan_with(GEQRF, n, dtype) for n, dtype in ((32, "float64"), (128, "float64"))]
    lu_qr.check_compiles(plans, "sm_90", cubins, lean=True)


@pytest.mark.pairwise
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_no_default_spills(architecture: str, cubins: Path) -> None:
    """At orders of every form and both types."""
    plans = [
        lu_qr.plan_with(GEQRF, n, dtype) for n in (1, 7, 16, 32, 33, 64, 65, 96, 128) for dtype in DTYPES
    ]
    lu_qr.check_compiles(plans, architecture, cubins, lean=True)


@pytest.mark.pairwise
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_corners_compile(architecture: str, cubins: Path) -> None:
    """Defaults and samples of configurations, for devices old and new."""
    lu_qr.check_compiles(list(lu_qr.corner_plans(GEQRF)), architecture, cubins)


def test_defaults_are_configurations() -> None:
    """At every order and type."""
    lu_qr.check_defaults(GEQRF)
