"""Cholesky factorisation of one matrix: its panels and the order of its stages are right on the host."""

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

POTRF = large.kernel_of("potrf")
EDGES = (63, 64, 65, 95, 96, 97, 127, 128, 129, 160, 161, 192, 193, 255, 257)


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_defaults_are_right(dtype: str) -> None:
    """Within a panel, of several panels, of several outer blocks, whole and not."""
    large.check_all([large.plan_with(POTRF, n, dtype) for n in (1, 13, 33, 64, 97, 200)])


@on_host
def test_values_are_right() -> None:
    """Each value of each tunable, with no race and nothing astray."""
    large.check_all(large.sampled_plans(POTRF, 301, "float32"))


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_is_right(dtype: str) -> None:
    """Orders 1 to 40 and the edges of panels and outer blocks, the orders of the threads in turn."""
    plans = [large.plan_with(POTRF, n, dtype) for n in (*SMALL, *EDGES)]
    host_build.build_plans(plans, CHECKED)
    for plan, order in in_turns(plans):
        large.check(plan, CHECKED, order)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs_of_values_are_right(dtype: str) -> None:
    """Any two values that go together, and each value under the sanitizers too."""
    large.check_all(large.sampled_plans(POTRF, 530, dtype, together=2))
    large.check_all(large.sampled_plans(POTRF, 530, dtype), ADDRESSES)


@on_host
def test_streams_are_ordered() -> None:
    """Whichever stream is ahead, as far as stages wait for each other, the answer is the same."""
    plan = large.plan_with(POTRF, 301, "float32", NB=64, ahead=1, parts=4)
    inputs = inputs_of(plan)
    expected = large.answered(plan, inputs, host_build.FLAGS)
    assert large.reordered(plan, "main").stages != plan.stages
    for preferred in large.STREAMS:
        found = large.answered(large.reordered(plan, preferred), inputs, host_build.FLAGS)
        np.testing.assert_array_equal(found["A"], expected["A"], preferred)


@on_host
@pytest.mark.pairwise
def test_a_missing_wait_is_noticed() -> None:
    """A panel that does not wait for the update of its columns is wrong where the main stream is ahead."""
    plan = large.plan_with(POTRF, 301, "float32", NB=64, ahead=1)
    assert not large.is_noticed(large.reordered(plan, "main"))
    assert large.is_noticed(large.reordered(large.without_waits(plan, "panel"), "main"))


@on_host
@pytest.mark.pairwise
def test_barriers_are_needed() -> None:
    """Of a panel."""
    large.check_barriers([large.plan_with(POTRF, 70, "float32", IB=64)])


@on_host
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("block[a][b] -= block[a][c] * block[b][c];", "block[a][b] -= block[a][c] * block[a][c];"),
        ("k < p; ++k", "k < p - 1; ++k"),
        ("(threads - columns)", "threads"),
        ("first % pitch + t", "t"),
        ("column / columns * columns + columns", "column + 1"),
    ],
)
@pytest.mark.pairwise
def test_faults_are_noticed(old: str, new: str) -> None:
    """A wrong index anywhere is a wrong answer to the law."""
    plan = large.plan_with(POTRF, 230, "float32", NB=64, IB=32)
    assert large.is_noticed(large.with_fault(plan, old, new))


def lapack(matrix: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """SciPy's factor and info, in the type of the matrix."""
    from scipy.linalg import lapack as routines  # noqa: PLC0415 - takes long to import

    potrf = routines.spotrf if matrix.dtype == np.float32 else routines.dpotrf
    factor, info = potrf(matrix, lower=1, clean=0)
    return factor, info


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_are_those_of_lapack(dtype: str) -> None:
    """Within rounding; what lies above the diagonal is neither used nor changed."""
    plan = large.plan_with(POTRF, 150, dtype, NB=64, IB=32)
    A = inputs_of(plan)["A"]
    A[np.tril_indices(150, -1)] = np.nan  # above the diagonal of the column-major matrix
    outputs = large.answered(plan, {"A": A})
    factor, info = lapack(A.T)
    assert outputs["info"].tolist() == [info] == [0]
    assert np.isnan(outputs["A"][np.tril_indices(150, -1)]).all()
    tolerance = 1e-5 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(np.triu(outputs["A"]), np.tril(factor).T, rtol=0, atol=tolerance)


@on_host
@pytest.mark.parametrize("bad", [0, 41, 64, 129])
def test_indefinite_matrices_have_the_info_of_lapack(bad: int) -> None:
    """In the first panel and later ones, of a pivot that is negative and of one that is no number."""
    plan = large.plan_with(POTRF, 130, "float64", NB=64, IB=32)
    A = inputs_of(plan)["A"]
    for value in (-3.0, np.nan):
        A[bad, bad] = value
        outputs = large.answered(plan, {"A": A})
        assert outputs["info"].tolist() == [bad + 1]
        before = lapack(A.T[:bad, :bad])[0] if bad else np.zeros((0, 0))
        np.testing.assert_allclose(np.triu(outputs["A"][:bad, :bad]), np.tril(before).T, rtol=0, atol=1e-13)


@on_host
@pytest.mark.parametrize(("column", "row"), [(150, 40), (40, 150), (199, 199)])
def test_the_law_notices_one_wrong_element(column: int, row: int) -> None:
    """An element of the factors that is off by a hundredth, among 40,000, in float32."""
    plan = large.plan_with(POTRF, 200, "float32")
    inputs = inputs_of(plan)
    outputs = large.answered(plan, inputs, host_build.FLAGS)
    assert large.judged(plan, inputs, outputs).error < 1
    outputs["A"][column, row] += 0.01
    assert not large.judged(plan, inputs, outputs).ok


def test_panels_compile_without_spills(cubins: Path) -> None:
    """For an H200, in both types."""
    plans = [large.plan_with(POTRF, 8192, dtype, width=8) for dtype in DTYPES]
    large.check_compiles(plans, "sm_90", cubins)


@pytest.mark.pairwise
@pytest.mark.parametrize("architecture", ["sm_53", "sm_80", "sm_120"])
def test_values_compile(architecture: str, cubins: Path) -> None:
    """For devices old and new."""
    plans = [plan for dtype in DTYPES for plan in large.sampled_plans(POTRF, 1024, dtype)]
    large.check_compiles(plans, architecture, cubins)


def test_defaults_are_configurations() -> None:
    """At orders small and large, within 48 KiB of shared memory up to 4096."""
    for dtype in DTYPES:
        for n in (*range(1, 300, 7), 1000, 4097, 8193, 16385, 32768):
            workload = POTRF.workload({"n": n, "dtype": dtype})
            default = POTRF.default(workload)
            assert default in POTRF.space(workload), n
            stages = [stage for stage in POTRF.plan(workload, default).stages[:4] if stage.library is None]
            assert max(stage.shared_bytes for stage in stages) <= 48 * 1024 or n > 4096, n
