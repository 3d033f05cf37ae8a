"""LU factorisation of one matrix: its panels and the order of its stages are right on the host."""

from pathlib import Path
from typing import Any

import host_build
import linalg_large as large
import numpy as np
import pytest
from adaptive_kernels import inputs_of
from host_build import ADDRESSES, CHECKED
from linalg_large import DTYPES, SMALL, on_host
from numpy.typing import NDArray
from thread_orders import in_turns

from tuner.model.plan import Plan

GETRF = large.kernel_of("getrf")
FORMS = [(3, 1), (0, 1), (1, 4), (0, 4)]  # rows of a thread in registers, blocks
EDGES = (63, 64, 65, 79, 80, 81, 127, 128, 129, 143, 144, 145, 192, 193)


def in_form(n: int, dtype: str, rows: int, blocks: int, columns: int = 8) -> Plan:
    """The default with a panel of blocks of 64 threads that hold so many rows each in registers, or none."""
    plan = large.plan_with(GETRF, n, dtype, NB=64, IB=columns, joined=int(rows > 0))
    return large.with_panel(plan, rows, blocks, threads=64)


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_defaults_are_right(dtype: str) -> None:
    """Within a panel, of several panels, of several outer blocks, whole and not."""
    large.check_all([large.plan_with(GETRF, n, dtype) for n in (1, 13, 33, 64, 97, 200)])


@on_host
def test_values_are_right() -> None:
    """Each value of each tunable, with no race and nothing astray."""
    large.check_all(large.sampled_plans(GETRF, 200, "float32"))


@on_host
@pytest.mark.parametrize(
    ("rows", "blocks", "dtype"), [(*form, dtype) for form, dtype in zip(FORMS, 2 * DTYPES, strict=True)]
)
def test_panels_of_every_form_are_right(rows: int, blocks: int, dtype: str) -> None:
    """Of one block and of clusters, with several rows a thread, in registers and in device memory."""
    large.check_all([in_form(150, dtype, rows, blocks)])


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_is_right(dtype: str) -> None:
    """Orders 1 to 40 and the edges of panels and outer blocks, the orders of the threads in turn."""
    plans = [large.plan_with(GETRF, n, dtype) for n in (*SMALL, *EDGES)]
    plans += [in_form(n, dtype, 0, 4) for n in EDGES]
    host_build.build_plans(plans, CHECKED)
    for plan, order in in_turns(plans):
        large.check(plan, CHECKED, order)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
def test_sanitizers_find_nothing(dtype: str) -> None:
    """Orders 1 to 40 and the edges keep to their arrays and to what the language defines."""
    orders = (*SMALL, *EDGES)[DTYPES.index(dtype) :: 2]
    plans = [large.plan_with(GETRF, n, dtype) for n in orders]
    plans += [in_form(150, dtype, *form) for form in FORMS]
    large.check_all(plans, ADDRESSES)


@on_host
def test_streams_are_ordered() -> None:
    """Whichever stream is ahead, as far as stages wait for each other, the answer is the same."""
    plan = large.plan_with(GETRF, 300, "float32", NB=64, ahead=1)
    inputs = inputs_of(plan)
    expected = large.answered(plan, inputs, host_build.FLAGS)
    assert large.reordered(plan, "main").stages != plan.stages
    for preferred in large.STREAMS:
        found = large.answered(large.reordered(plan, preferred), inputs, host_build.FLAGS)
        np.testing.assert_array_equal(found["A"], expected["A"], preferred)


@on_host
@pytest.mark.parametrize("name", ["panel", "exchange near", "exchange next", "solve next"])
@pytest.mark.pairwise
def test_a_missing_wait_is_noticed(name: str) -> None:
    """A stage that does not wait for the other stream is wrong where its own is ahead."""
    plan = large.plan_with(GETRF, 300, "float32", NB=64, ahead=1)
    preferred: large.Preferred = "main" if name == "panel" else "side"
    assert not large.is_noticed(large.reordered(plan, preferred))
    assert large.is_noticed(large.reordered(large.without_waits(plan, name), preferred))


@on_host
@pytest.mark.pairwise
def test_barriers_are_needed() -> None:
    """Of a block, of a cluster, and of the exchange of rows."""
    large.check_barriers([in_form(90, "float32", *form) for form in ((2, 1), (0, 1), (1, 4), (0, 4))])


@on_host
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("c < columns - k ? u[c] : T(0)", "u[c]"),
        ("entering -= triangle[k * columns + lane] * above;", "entering -= triangle[k + lane] * above;"),
        ("if (now >= columns)", "if (now > columns)"),
        ("row < base + count ? list[row - base] : found", "found"),
        ("own.goes[i] == row + columns", "own.goes[i] == row"),
        ("place[r] == k ? other", "place[r] == k ? k"),
    ],
)
@pytest.mark.pairwise
def test_faults_are_noticed(old: str, new: str) -> None:
    """A wrong index or condition anywhere is a wrong answer to the law."""
    plan = large.plan_with(GETRF, 200, "float32", NB=64, ahead=1, IB=16)
    assert large.is_noticed(large.with_fault(plan, old, new))


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
def test_pivots_are_those_of_lapack(dtype: str) -> None:
    """Of a random matrix SciPy exchanges the same rows, and its factors are the same within rounding."""
    from scipy.linalg import lapack  # noqa: PLC0415 - takes long to import

    plan = large.plan_with(GETRF, 150, dtype, NB=64, IB=16)
    A = inputs_of(plan)["A"]
    outputs = large.answered(plan, {"A": A})
    factors, ipiv, info = (lapack.sgetrf if dtype == "float32" else lapack.dgetrf)(A.T)
    assert outputs["ipiv"].tolist() == (ipiv + 1).tolist()
    assert outputs["info"].tolist() == [info] == [0]
    tolerance = 1e4 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(outputs["A"].T, factors, rtol=tolerance, atol=tolerance)


def special() -> list[NDArray[np.float64]]:
    """Matrices of order 64 that are factored without rounding: with equal pivots, and singular ones."""
    hadamard = np.array([[(-1) ** (i & j).bit_count() for j in range(64)] for i in range(64)], float)
    shuffled = hadamard[np.random.default_rng(1).permutation(64)]
    column, twins = shuffled.copy(), shuffled.copy()
    column[:, 37] = 0
    twins[51] = twins[2]
    lower = np.tril(np.ones((64, 64)))[::-1]
    return [shuffled, column, twins, np.zeros((64, 64)), np.ones((64, 64)), lower]


@on_host
@pytest.mark.parametrize(("rows", "blocks", "scale"), [(1, 1, 2.0**-140), (0, 1, 1.0), (1, 4, 1.0)])
def test_ties_and_singular_matrices_end_as_in_lapack(rows: int, blocks: int, scale: float) -> None:
    """The first of equal pivots, the first zero pivot, also of pivots whose reciprocals are infinite."""
    plan = in_form(64, "float32", rows, blocks)
    for matrix in special():
        scaled = (matrix * scale).astype(np.float32)
        outputs = large.answered(plan, {"A": np.ascontiguousarray(scaled.T)}, host_build.FLAGS)
        factors, ipiv, info = getf2(scaled)
        assert outputs["ipiv"].tolist() == ipiv
        assert outputs["info"].tolist() == [info]
        np.testing.assert_array_equal(outputs["A"].T, factors)


@on_host
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_numbers_leave_pivots_in_range(bad: float) -> None:
    """A NaN counts as the largest number; ipiv are still rows."""
    plan = large.plan_with(GETRF, 70, "float32", NB=64, IB=16)
    A = inputs_of(plan)["A"]
    A[3, 40] = bad
    ipiv = large.answered(plan, {"A": A})["ipiv"]
    assert (np.arange(1, 71) <= ipiv).all()
    assert (ipiv <= 70).all()


@on_host
@pytest.mark.parametrize(("column", "row"), [(150, 40), (40, 150), (199, 199)])
def test_the_law_notices_one_wrong_element(column: int, row: int) -> None:
    """An element of the factors that is off by a hundredth, among 40,000, in float32."""
    plan = large.plan_with(GETRF, 200, "float32")
    inputs = inputs_of(plan)
    outputs = large.answered(plan, inputs, host_build.FLAGS)
    assert large.judged(plan, inputs, outputs).error < 1
    outputs["A"][column, row] += 0.01
    assert not large.judged(plan, inputs, outputs).ok


def test_panels_compile_without_spills(cubins: Path) -> None:
    """For an H200: of one block in memory, and of clusters in registers, in both types."""
    plans = [
        large.plan_with(GETRF, 2048, "float32", cluster=1),
        large.plan_with(GETRF, 2048, "float64", IB=32, cluster=16),
    ]
    plans += [large.plan_with(GETRF, 16384, dtype, IB=IB) for dtype, IB in zip(DTYPES, (32, 16), strict=True)]
    large.check_compiles(plans, "sm_90", cubins)


@pytest.mark.pairwise
@pytest.mark.parametrize("architecture", ["sm_53", "sm_80", "sm_90", "sm_120"])
def test_values_compile(architecture: str, cubins: Path) -> None:
    """For devices old and new."""
    plans = [plan for dtype in DTYPES for plan in large.sampled_plans(GETRF, 2048, dtype)]
    large.check_compiles(plans, architecture, cubins)


def test_defaults_are_configurations() -> None:
    """At orders small and large, on any device: without clusters, within 48 KiB of shared memory."""
    for dtype in DTYPES:
        for n in (*range(1, 300, 7), 1000, 4097, 8193, 16385, 32768):
            workload = GETRF.workload({"n": n, "dtype": dtype})
            default = GETRF.default(workload)
            assert default in GETRF.space(workload), n
            assert dict(default.items())["cluster"] == 1
