"""What one batched kernel of dense linear algebra has alone: forms, and LAPACK's answers to bad matrices."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import host_build
import linalg_batched as batched
import linalg_runs as runs
import linalg_scales
import numpy as np
import pytest
from adaptive_kernels import inputs_of
from host_build import ADDRESSES, CHECKED
from linalg_batched import EDGES, plan_with
from linalg_runs import DTYPES, SMALL, getf2, lapack, on_host
from numpy.typing import NDArray

from tuner.model.plan import Scalar

ALONE: dict[str, int | str] = {"P": 1, "W": 1, "G": 32, "exchange": "none", "blocks": 1}


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("algorithm", ["mma8", "mma16"])
def test_every_order_is_right_with_tensor_cores(algorithm: str) -> None:
    """Tiles of 8 and 16 rows at orders from 9 on, with lanes beyond the matrix."""
    chosen = [plan_with("gemm", n, "float64", algorithm=algorithm) for n in (*SMALL[8:], *EDGES[:6])]
    runs.check_all(chosen)


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
    plan = plan_with("gemm", n, dtype, 19, **values)
    assert plan.stages[0].resident
    for flags in (CHECKED, ADDRESSES):
        runs.check_all([plan], flags)


@on_host
def test_tensor_cores_add_in_the_order_of_threads() -> None:
    """The forms give the same products to rounding, and those with tensor cores the same bits."""
    plans = [plan_with("gemm", 20, "float64", algorithm=a) for a in ("fma", "mma8", "mma16")]
    host_build.build_plans(plans)
    inputs = inputs_of(plans[0])
    fma, mma8, mma16 = (runs.answered(plan, inputs, host_build.FLAGS)["C"] for plan in plans)
    np.testing.assert_array_equal(mma8, mma16)
    np.testing.assert_allclose(fma, mma8, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("architecture", "algorithm"), [("sm_80", "mma8"), ("sm_90", "mma16")])
def test_tensor_cores_compile(architecture: str, algorithm: str, cubins: Path) -> None:
    """For the first devices that have them."""
    plans = [plan_with("gemm", n, "float64", algorithm=algorithm) for n in (20, 64)]
    runs.check_compiles(plans, architecture, cubins, lean=False)


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_row_major_matrices_are_factored(dtype: str) -> None:
    """Of a thread, a warp and several warps; with pivots from 0, as functions of arrays ask for them."""
    for n in (5, 8, 13, 16, 27, 32, 37, 64):
        plan = plan_with("getrf", n, dtype, 5)
        (stage,) = plan.stages
        numbered, *rest = (Scalar("int32", 0), Scalar("uint64", 0), Scalar("bool", 1))
        arguments = (*stage.arguments[:-3], numbered, *rest)
        turned = replace(plan, stages=(stage.changed(arguments=arguments),))
        columns = inputs_of(plan)["A"]
        for flags in (CHECKED, ADDRESSES):
            found = runs.answered(turned, {"A": np.ascontiguousarray(np.swapaxes(columns, 1, 2))}, flags)
            found["ipiv"] += 1
            assert runs.judged(plan, {"A": columns}, found).ok, (n, flags)


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
@pytest.mark.parametrize("storage", ["half", "device"])
def test_bad_matrices_end_as_in_lapack(storage: str, dtype: str) -> None:
    """Indefinite, singular and matrices with NaN: info, and columns and pivot that potf2 leaves."""
    n, columns = 66, 4
    plan = plan_with("potrf", n, dtype, batch=5, storage=storage, columns=columns)
    A = inputs_of(plan)["A"].copy()
    whole = batched.matrices(A)
    whole[0, 41, 41] = -3
    whole[1] = np.ones((n, n))  # the second pivot is exactly 0
    whole[2, 50, 17] = np.nan
    whole[3] = 0
    rows, right = np.triu_indices(n, 1)
    whole[:, rows, right] = np.nan  # never used
    A = batched.column_major(whole, dtype)
    outputs = runs.answered(plan, {"A": A})
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
    plan = plan_with("potrf", 9, "float32", 1)
    A = 4 * np.eye(9, dtype=np.float32)[None]
    A[0, 3, 3] = np.inf
    outputs = runs.answered(plan, {"A": A})
    assert outputs["info"][0] == 0
    assert np.diag(outputs["A"][0]).tolist() == [2, 2, 2, np.inf, 2, 2, 2, 2, 2]


@on_host
def test_ill_conditioned_matrices_have_small_backward_errors() -> None:
    """Of condition 1e4 in float32 and 1e12 in float64."""
    for dtype, condition in (("float32", 1e4), ("float64", 1e12)):
        plan = plan_with("potrf", 33, dtype, 2)
        orthogonal, _ = np.linalg.qr(np.random.default_rng(3).standard_normal((2, 33, 33)))
        eigenvalues = condition ** -np.linspace(0, 1, 33)
        A = batched.column_major((orthogonal * eigenvalues) @ np.swapaxes(orthogonal, 1, 2), dtype)
        found = runs.judged(plan, {"A": A}, runs.answered(plan, {"A": A}))
        assert found.ok, str(found)


@on_host
@pytest.mark.parametrize("triangle", ["own", "spread"])
def test_systems_in_registers_are_right(triangle: str) -> None:
    """Orders that fill the threads of a problem or do not, with one right-hand side or two of each thread."""
    orders = (1, 3, 8) if triangle == "own" else (4, 13, 32)
    plans = [plan_with("trsm", n, "float32", 5, triangle=triangle) for n in orders]
    if triangle == "spread":
        plans.append(plan_with("trsm", 20, "float64", 5, triangle=triangle, columns=1))
        plans.append(plan_with("trsm", 20, "float32", 5, triangle=triangle, columns=2))
    runs.check_all(plans)


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "triangle"), [(6, "own"), (9, "spread"), (20, "whole"), (50, "panels")])
def test_systems_of_any_scale_have_small_residuals(n: int, triangle: str, dtype: str) -> None:
    """Row by row, also where pivots are denormal or their reciprocals are, in each place of the triangle."""

    def solved(_: str, a: NDArray[Any], b: NDArray[Any], lower: bool) -> NDArray[Any]:
        assert lower
        sides = np.zeros_like(a)
        sides[..., : b.shape[-1]] = b
        plan = plan_with("trsm", n, dtype, len(a), triangle=triangle)
        inputs = {"L": batched.column_major(a, dtype), "B": batched.column_major(sides, dtype)}
        return np.swapaxes(runs.answered(plan, inputs)["B"], 1, 2)[..., : b.shape[-1]]

    linalg_scales.LAWS["solve_triangular lower"](solved, n, dtype)


@on_host
def test_what_lies_above_the_diagonal_is_not_used() -> None:
    """Not even NaN there changes a bit."""
    plans = [plan_with("trsm", n, "float32") for n in (13, 69)]
    plans += [plan_with("trsm", 8, "float32", triangle=triangle) for triangle in ("own", "spread")]
    for plan in plans:
        n = int(dict(plan.workload.sizes)["n"])
        inputs = inputs_of(plan)
        right = runs.answered(plan, inputs)["B"]
        poisoned = inputs["L"].copy()
        rows, columns = np.tril_indices(n, -1)  # of the transpose
        poisoned[:, rows, columns] = np.nan
        np.testing.assert_array_equal(runs.answered(plan, {**inputs, "L": poisoned})["B"], right)


@on_host
@pytest.mark.parametrize("trouble", [0.0, np.nan])
def test_a_bad_system_changes_no_other(trouble: float) -> None:
    """A diagonal with zero or NaN leaves no finite row from there on, and all other systems as they are."""
    plan = plan_with("trsm", 13, "float32", 5, problems=4)
    inputs = inputs_of(plan)
    before = runs.answered(plan, inputs)["B"]
    L = inputs["L"].copy()
    L[2, 6, 6] = trouble
    after = runs.answered(plan, {**inputs, "L": L})["B"]
    np.testing.assert_array_equal(np.delete(after, 2, axis=0), np.delete(before, 2, axis=0))
    np.testing.assert_array_equal(after[2, :, :6], before[2, :, :6])
    assert not np.isfinite(after[2, :, 6:]).any()


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_ill_conditioned_systems_have_small_residuals(dtype: str) -> None:
    """Random triangles, whose condition grows exponentially with their order."""
    plan = plan_with("trsm", 40, dtype, 2)
    rng = np.random.default_rng(1)
    L = np.tril(rng.uniform(-1, 1, (2, 40, 40)))
    diagonal = np.einsum("bii->bi", L)
    diagonal[...] = np.sign(diagonal) * (0.25 + abs(diagonal))
    assert np.linalg.cond(L).min() > 1e4
    inputs = {"L": batched.column_major(L, dtype), "B": inputs_of(plan)["B"]}
    found = runs.judged(plan, inputs, runs.answered(plan, inputs))
    assert found.ok, str(found)


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [13, 37])
def test_pivots_are_those_of_lapack(n: int, dtype: str) -> None:
    """Of random matrices SciPy exchanges the same rows, and its factors are the same within rounding."""
    plan = plan_with("getrf", n, dtype)
    matrices = np.swapaxes(inputs_of(plan)["A"], 1, 2)
    outputs = batched.factored(plan, matrices)
    for b, matrix in enumerate(matrices):
        factors, ipiv, info = lapack("getrf", dtype)(matrix)
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
    plan = plan_with("getrf", n, "float32", len(matrices), **values)
    outputs = batched.factored(plan, matrices)
    for b, matrix in enumerate(matrices):
        factors, ipiv, info = getf2(matrix)
        assert outputs["ipiv"][b].tolist() == ipiv, b
        assert outputs["info"][b] == info, b
        np.testing.assert_array_equal(outputs["A"][b], factors, str(b))
    assert (outputs["info"] > 0).tolist() == [False, False, True, True, True, True, False]


@on_host
@pytest.mark.parametrize("n", [13, 37])
def test_pivots_that_differ_in_their_last_bits_are_the_largest(n: int) -> None:
    """Of one lane and of several, also beside other problems of a warp: a first look compares fewer bits."""
    given = np.random.default_rng(n).uniform(-1, 1, (9, n, n))
    given[:, :, 0] = np.copysign(1 + 2.0**-40 * np.abs(given[:, :, 0]), given[:, :, 0])
    given[::2, : n // 2, 0] /= 2
    found = batched.factored(plan_with("getrf", n, "float64", len(given)), given)["ipiv"]
    assert found[:, 0].tolist() == (np.abs(given[:, :, 0]).argmax(axis=1) + 1).tolist()


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "values"), [(16, {}), (4, {**ALONE, "copies": "direct"})])
def test_pivots_without_a_reciprocal_are_divided_by(dtype: str, n: int, values: dict[str, int | str]) -> None:
    """Powers of two so small that the reciprocal of a pivot is infinite, beside an ordinary problem."""
    tiny = float(np.finfo(dtype).smallest_subnormal) * 64
    matrices = tied_and_singular(16)[[1, 0], :n, :n] if n < 8 else tied_and_singular(n)[[1, 0]]
    matrices[0] *= tiny
    outputs = batched.factored(plan_with("getrf", n, dtype, 2, **values), matrices)
    for b, matrix in enumerate(matrices):
        factors, ipiv, info = getf2(matrix)
        assert (outputs["ipiv"][b].tolist(), outputs["info"][b]) == (ipiv, info)
        np.testing.assert_array_equal(outputs["A"][b], factors)


@on_host
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_pivots_of_bad_numbers_are_rows(bad: float) -> None:
    """Whatever is compared, ipiv leads out of no matrix."""
    ipiv = batched.factored(plan_with("getrf", 37, "float32", 1), np.full((1, 37, 37), bad))["ipiv"][0]
    assert (np.arange(1, 38) <= ipiv).all()
    assert (ipiv <= 37).all()


def geqrf(matrix: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """SciPy's factors and tau, in the type of the matrix."""
    factors, tau, _, _ = lapack("geqrf", matrix.dtype.name)(matrix)
    return factors, tau


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "values"), [(1, {}), (13, {"P": 8, "W": 4, "G": 1}), (37, {})])
def test_factors_are_those_of_lapack(n: int, values: dict[str, int], dtype: str) -> None:
    """R with LAPACK's signs, the vectors and tau are SciPy's within rounding."""
    plan = plan_with("geqrf", n, dtype, **values)
    matrices = np.swapaxes(inputs_of(plan)["A"], 1, 2)
    outputs = batched.factored(plan, matrices)
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
    outputs = batched.factored(plan_with("geqrf", n, "float64", 4), matrices)
    assert not outputs["tau"][:3].any()
    np.testing.assert_array_equal(outputs["A"][:3], matrices[:3])
    factors, tau = geqrf(matrices[3])
    np.testing.assert_allclose(outputs["A"][3][:, :4], factors[:, :4], atol=1e-13)
    np.testing.assert_allclose(outputs["tau"][3][:4], tau[:4], atol=1e-13)
    assert batched.backward_error_is_small(plan_with("geqrf", n, "float64", 4), matrices)


@on_host
@pytest.mark.parametrize(("dtype", "exponents"), [("float32", (-66, 0, 64)), ("float64", (-520, 0, 514))])
def test_squares_neither_overflow_nor_vanish(dtype: str, exponents: tuple[int, ...]) -> None:
    """A matrix times a power of two has R times it and the same vectors, beside problems of other sizes."""
    matrix = batched.conditioned(21, 100, 1)[0].astype(dtype).astype(float)
    matrices = np.stack([matrix * 2.0**exponent for exponent in exponents])
    outputs = batched.factored(plan_with("geqrf", 21, dtype, 3), matrices)
    tolerance = 1e3 * float(np.finfo(dtype).eps)
    for b, exponent in enumerate(exponents):
        upper = np.triu(outputs["A"][b].astype(float)) * 2.0**-exponent
        np.testing.assert_allclose(upper, np.triu(outputs["A"][1]), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(outputs["tau"][b], outputs["tau"][1], rtol=tolerance, atol=tolerance)
        lower = np.tril(outputs["A"][b], -1)
        np.testing.assert_allclose(lower, np.tril(outputs["A"][1], -1), rtol=tolerance, atol=tolerance)


@on_host
@pytest.mark.parametrize(("dtype", "condition"), [("float32", 1e6), ("float64", 1e14)])
@pytest.mark.parametrize("name", ["getrf", "geqrf"])
def test_ill_conditioned_matrices_have_small_errors(name: str, dtype: str, condition: float) -> None:
    """Backward error and orthogonality, whatever the condition number."""
    plan = plan_with(name, 37, dtype)
    assert batched.backward_error_is_small(plan, batched.conditioned(37, condition, 3))
