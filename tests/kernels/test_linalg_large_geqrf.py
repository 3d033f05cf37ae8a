"""QR factorisation of one matrix: its panels and the order of its stages are right on the host."""

from pathlib import Path
from typing import Any

import host_build
import linalg_large as large
import linalg_scales
import numpy as np
import pytest
from adaptive_kernels import inputs_of
from host_build import ADDRESSES, CHECKED
from linalg_large import DTYPES, SMALL, on_host
from numpy.typing import NDArray
from thread_orders import in_turns

from tuner.model.plan import Plan

GEQRF = large.kernel_of("geqrf")
EDGES = (63, 64, 65, 79, 80, 81, 127, 128, 129, 143, 144, 145, 192, 193)
FORMS = [(3, 1), (0, 1), (1, 4), (0, 4)]  # rows of a thread in registers, blocks


def in_form(n: int, dtype: str, rows: int, blocks: int, columns: int = 8) -> Plan:
    """The default with a panel of blocks of 64 threads that hold so many rows each in registers, or none."""
    plan = large.plan_with(GEQRF, n, dtype, NB=64, IB=columns)
    return large.with_panel(plan, rows, blocks, threads=64)


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_defaults_are_right(dtype: str) -> None:
    """Within a panel, of several panels, of several outer blocks, whole and not."""
    large.check_all([large.plan_with(GEQRF, n, dtype) for n in (1, 13, 33, 64, 97, 200)])


@on_host
def test_values_are_right() -> None:
    """Each value of each tunable, with no race and nothing astray."""
    large.check_all(large.sampled_plans(GEQRF, 200, "float32"))


@on_host
@pytest.mark.parametrize(
    ("rows", "blocks", "dtype"), [(*form, dtype) for form, dtype in zip(FORMS, 2 * DTYPES, strict=True)]
)
def test_panels_of_every_form_are_right(rows: int, blocks: int, dtype: str) -> None:
    """Of one block and of clusters, with several rows a thread, in registers and in device memory."""
    large.check_all([in_form(150, dtype, rows, blocks, columns=32 if rows == 3 else 8)])


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_is_right(dtype: str) -> None:
    """Orders 1 to 40 and the edges of panels and outer blocks, the orders of the threads in turn."""
    plans = [large.plan_with(GEQRF, n, dtype) for n in (*SMALL, *EDGES)]
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
    plans = [large.plan_with(GEQRF, n, dtype) for n in orders]
    large.check_all([*plans, *(in_form(150, dtype, *form) for form in FORMS)], ADDRESSES)


@on_host
def test_streams_are_ordered() -> None:
    """Whichever stream is ahead, as far as stages wait for each other, the answer is the same."""
    plan = large.plan_with(GEQRF, 300, "float32", NB=64, ahead=1)
    inputs = inputs_of(plan)
    expected = large.answered(plan, inputs, host_build.FLAGS)
    assert large.reordered(plan, "main").stages != plan.stages
    for preferred in large.STREAMS:
        found = large.answered(large.reordered(plan, preferred), inputs, host_build.FLAGS)
        np.testing.assert_array_equal(found["A"], expected["A"], preferred)


@on_host
@pytest.mark.parametrize("name", ["panel", "gram"])
@pytest.mark.pairwise
def test_a_missing_wait_is_noticed(name: str) -> None:
    """A stage that does not wait for the other stream is wrong where its own is ahead."""
    plan = large.plan_with(GEQRF, 300, "float32", NB=64, ahead=1)
    preferred: large.Preferred = "main" if name == "panel" else "side"
    assert not large.is_noticed(large.reordered(plan, preferred))
    assert large.is_noticed(large.reordered(large.without_waits(plan, name), preferred))


@on_host
@pytest.mark.pairwise
def test_barriers_are_needed() -> None:
    """Of a block and of a cluster."""
    plans = [in_form(90, "float32", 2, 1), in_form(90, "float32", 1, 4)]
    large.check_barriers(plans, "inline void cluster_wait() { __syncthreads(); }")


@on_host
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("const bool open = slot < columns - k;", "const bool open = true;"),
        ("h.scale * sum + beside", "h.scale * sum"),
        ("= -own.tau[k] * sum;  // below", "= own.tau[k] * sum;  // below"),
        ("size_t(outer / block % 2) * block * n", "0"),
        ("row < first; row +=", "row < first - 1; row +="),
        ("T(1) : T(1) / of_block[j]", "T(1) : of_block[j]"),
    ],
)
@pytest.mark.pairwise
def test_faults_are_noticed(old: str, new: str) -> None:
    """A wrong index or condition anywhere is a wrong answer to the law."""
    plan = large.plan_with(GEQRF, 200, "float32", NB=64, ahead=1, IB=16)
    assert large.is_noticed(large.with_fault(plan, old, new))


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_are_those_of_lapack(dtype: str) -> None:
    """R with its signs, the vectors and tau are SciPy's within rounding; the last tau is 0."""
    from scipy.linalg import lapack  # noqa: PLC0415 - takes long to import

    plan = large.plan_with(GEQRF, 150, dtype, NB=64, IB=16)
    A = inputs_of(plan)["A"]
    outputs = large.answered(plan, {"A": A})
    factors, tau, _, _ = (lapack.sgeqrf if dtype == "float32" else lapack.dgeqrf)(A.T)
    tolerance = 1e4 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(outputs["A"].T, factors, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(outputs["tau"], tau, rtol=tolerance, atol=tolerance)
    assert outputs["tau"][-1] == 0


@on_host
@pytest.mark.parametrize("form", [(2, 1), (0, 4)])
def test_columns_that_are_zero_need_no_reflection(form: tuple[int, int]) -> None:
    """Of the identity, of zeros, and of a matrix with such columns in several outer blocks."""
    plan = in_form(100, "float32", *form)
    for n, matrix in enumerate((np.eye(100), np.zeros((100, 100)), np.triu(np.ones((100, 100)), -1))):
        matrix[:, 70] = np.eye(100)[70] if n < 2 else 0
        inputs = {"A": np.ascontiguousarray(matrix.T.astype(np.float32))}
        outputs = large.answered(plan, inputs, host_build.FLAGS)
        assert large.judged(plan, inputs, outputs).ok, n
        assert np.isfinite(outputs["A"]).all()
        if n < 2:
            assert not outputs["tau"].any()


@on_host
@pytest.mark.parametrize(
    ("rows", "blocks", "dtype"), [(*form, dtype) for form, dtype in zip(FORMS, 2 * DTYPES, strict=True)]
)
def test_panels_of_every_form_take_any_scale(rows: int, blocks: int, dtype: str) -> None:
    """Backward errors are LAPACK's where columns are scaled before, and again in their steps."""
    from scipy.linalg import lapack  # noqa: PLC0415 - takes long to import

    plan = in_form(70, dtype, rows, blocks)
    form_q = lapack.sorgqr if dtype == "float32" else lapack.dorgqr

    def qr(_: str, matrices: NDArray[Any]) -> tuple[list[Any], list[Any]]:
        found = [large.answered(plan, {"A": np.ascontiguousarray(one.T)}) for one in matrices]
        return [form_q(one["A"].T, one["tau"])[0] for one in found], [np.triu(one["A"].T) for one in found]

    linalg_scales.LAWS["qr"](qr, 70, dtype)


@on_host
@pytest.mark.parametrize(("column", "row"), [(150, 40), (40, 150), (199, 199)])
def test_the_law_notices_one_wrong_element(column: int, row: int) -> None:
    """An element of the factors that is off by a hundredth, among 40,000, in float32."""
    plan = large.plan_with(GEQRF, 200, "float32")
    inputs = inputs_of(plan)
    outputs = large.answered(plan, inputs, host_build.FLAGS)
    assert large.judged(plan, inputs, outputs).error < 1
    outputs["A"][column, row] += 0.01
    assert not large.judged(plan, inputs, outputs).ok


def test_panels_compile_without_spills(cubins: Path) -> None:
    """For an H200: of one block in memory, and of clusters in registers, in both types."""
    plans = [
        large.plan_with(GEQRF, 2048, "float32", IB=32, cluster=8),
        large.plan_with(GEQRF, 8192, "float64"),
    ]
    plans += [large.plan_with(GEQRF, 4096, dtype, IB=16, cluster=8) for dtype in DTYPES]
    large.check_compiles(plans, "sm_90", cubins)


@pytest.mark.pairwise
@pytest.mark.parametrize("architecture", ["sm_53", "sm_80", "sm_90", "sm_120"])
def test_values_compile(architecture: str, cubins: Path) -> None:
    """For devices old and new."""
    plans = [plan for dtype in DTYPES for plan in large.sampled_plans(GEQRF, 2048, dtype)]
    large.check_compiles(plans, architecture, cubins)


def test_defaults_are_configurations() -> None:
    """At orders small and large, on any device: without clusters."""
    for dtype in DTYPES:
        for n in (*range(1, 300, 7), 1000, 4097, 8193, 16385, 32768):
            workload = GEQRF.workload({"n": n, "dtype": dtype})
            default = GEQRF.default(workload)
            assert default in GEQRF.space(workload), n
            assert dict(default.items())["cluster"] == 1
