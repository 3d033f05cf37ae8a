"""Factorisations of one matrix whose panels the CPU factors: right in any order of the streams."""

from pathlib import Path
from typing import Any

import fake_cupy
import host_build
import linalg_large as large
import numpy as np
import pytest
from adaptive_kernels import inputs_of
from fake_cuda import fake_device
from linalg_large import DTYPES, on_host
from numpy.typing import NDArray
from scipy.linalg import lapack

from tuner.model.plan import Plan
from tuner.model.trial import Status

NAMES = ("potrf-hybrid", "getrf-hybrid", "geqrf-hybrid")
KERNELS = {name: large.kernel_of(name) for name in NAMES}
WAITING = {  # stages that wait for the other stream, and the stream that must not be ahead of it
    ("potrf-hybrid", "factor"): "main",
    ("potrf-hybrid", "solve"): "side",
    ("getrf-hybrid", "panel"): "main",
    ("getrf-hybrid", "exchange next"): "side",
    ("geqrf-hybrid", "panel"): "main",
    ("geqrf-hybrid", "vectors"): "side",
}


def ahead(name: str, n: int = 301, dtype: str = "float32") -> Plan:
    """A plan with look-ahead, of several panels and a last one that is not whole."""
    return large.plan_with(KERNELS[name], n, dtype, NB=64, ahead=1)


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_right(name: str, dtype: str) -> None:
    """Of order 1, within a panel, of several panels, whole and not."""
    orders = (1, 2, 31, 32, 33, 64, 65, 129, 200)
    large.check_all([large.plan_with(KERNELS[name], n, dtype) for n in orders])


@on_host
@pytest.mark.parametrize("name", NAMES)
def test_values_are_right(name: str) -> None:
    """Each width of a panel, with look-ahead and without, with no race and nothing astray."""
    plans = large.sampled_plans(KERNELS[name], 201, "float32", together=2)
    alike = {(plan.configuration["NB"], plan.configuration["ahead"]): plan for plan in plans}
    large.check_all(list(alike.values()))


@on_host
@pytest.mark.parametrize("name", NAMES)
def test_streams_are_ordered(name: str) -> None:
    """Whichever stream is ahead, as far as stages wait for each other, the answer is the same."""
    plan = ahead(name)
    inputs = inputs_of(plan)
    expected = large.answered(plan, inputs, host_build.FLAGS)
    assert large.reordered(plan, "main").stages != plan.stages
    for preferred in large.STREAMS:
        found = large.answered(large.reordered(plan, preferred), inputs, host_build.FLAGS)
        np.testing.assert_array_equal(found["A"], expected["A"], preferred)


@on_host
@pytest.mark.parametrize(("name", "stage"), WAITING)
def test_a_missing_wait_is_noticed(name: str, stage: str) -> None:
    """A stage that does not wait for the other stream is wrong where its own is ahead."""
    preferred: Any = WAITING[name, stage]
    assert large.is_noticed(large.reordered(large.without_waits(ahead(name), stage), preferred))


@pytest.mark.parametrize("name", NAMES)
def test_the_next_panel_is_factored_beside_the_rest(name: str) -> None:
    """The host begins a panel when the update of all that is behind it stands in the other stream."""
    plan = ahead(name)
    hosted = [i for i, stage in enumerate(plan.stages) if stage.library and stage.library.on_host]
    assert len(hosted) == 5
    for place in hosted[1:-1]:
        before, panel = plan.stages[place - 1], plan.stages[place]
        assert (before.stream, panel.stream) == (1, 0)
        assert place - 1 not in panel.after
        assert before.name.endswith("rest")


def answers(name: str, A: NDArray[Any], **values: int) -> dict[str, NDArray[Any]]:
    """Outputs for a matrix, column-major."""
    return large.answered(large.plan_with(KERNELS[name], len(A), A.dtype.name, **values), {"A": A})


@on_host
@pytest.mark.parametrize("bad", [0, 41, 64, 129])
@pytest.mark.parametrize("value", [-3.0, np.nan])
def test_indefinite_matrices_have_the_info_of_lapack(bad: int, value: float) -> None:
    """In the first block and later ones; of several minors that are not positive, the first counts."""
    A = inputs_of(large.plan_with(KERNELS["potrf-hybrid"], 200, "float64"))["A"]
    A[bad, bad] = A[199, 199] = value
    outputs = answers("potrf-hybrid", A, NB=64, ahead=1)
    assert outputs["info"].tolist() == [bad + 1]
    before = lapack.dpotrf(A.T[:bad, :bad], lower=1)[0] if bad else np.zeros((0, 0))
    np.testing.assert_allclose(np.triu(outputs["A"][:bad, :bad]), np.tril(before).T, rtol=0, atol=1e-13)
    fine = inputs_of(large.plan_with(KERNELS["potrf-hybrid"], 70, "float64"))["A"]
    assert answers("potrf-hybrid", fine)["info"].tolist() == [0]


@on_host
@pytest.mark.parametrize("bad", [0, 40, 131])
def test_singular_matrices_have_the_info_and_pivots_of_lapack(bad: int) -> None:
    """A column of zeros; the factorisation goes on."""
    A = inputs_of(large.plan_with(KERNELS["getrf-hybrid"], 150, "float64"))["A"]
    A[bad] = A[145] = 0.0
    outputs = answers("getrf-hybrid", A, NB=32, ahead=1)
    factors, pivots, info = lapack.dgetrf(A.T)
    assert outputs["info"].tolist() == [info] == [bad + 1]
    assert outputs["ipiv"].tolist() == (pivots + 1).tolist()
    np.testing.assert_allclose(outputs["A"].T, factors, rtol=0, atol=1e-11)


@on_host
def test_qr_factors_are_those_of_lapack() -> None:
    """Signs and ``tau`` too; of columns that are zero ``tau`` is 0."""
    A = inputs_of(large.plan_with(KERNELS["geqrf-hybrid"], 150, "float64"))["A"]
    A[70] = 0.0
    outputs = answers("geqrf-hybrid", A, NB=32, ahead=1)
    factors, tau, _, _ = lapack.dgeqrf(A.T)
    assert outputs["tau"][70] == 0.0
    np.testing.assert_allclose(outputs["A"].T, factors, rtol=0, atol=1e-12)
    np.testing.assert_allclose(outputs["tau"], tau, rtol=0, atol=1e-12)


@on_host
def test_what_lies_above_the_diagonal_is_left_alone() -> None:
    """Of a Cholesky factorisation: it is neither used nor changed."""
    A = inputs_of(large.plan_with(KERNELS["potrf-hybrid"], 200, "float32"))["A"]
    above = np.tril_indices(200, -1)  # of the column-major matrix
    A[above] = np.nan
    outputs = answers("potrf-hybrid", A, NB=64, ahead=1)
    assert np.isnan(outputs["A"][above]).all()
    assert np.isfinite(np.triu(outputs["A"])).all()


@pytest.mark.parametrize("architecture", ["sm_53", "sm_90"])
def test_kernels_compile_without_spills(architecture: str, cubins: Path) -> None:
    """Those that do what no library does, for devices old and new."""
    plans = [ahead(name, 301, dtype) for name in NAMES[1:] for dtype in DTYPES]
    large.check_compiles(plans, architecture, cubins)


@on_host
@pytest.mark.parametrize("name", NAMES)
def test_a_device_checks_and_times_them(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A matrix of one panel on a fake GPU: copied, factored by the CPU, judged by the law, and timed."""
    monkeypatch.setattr(fake_cupy, "__getattr__", lambda attribute: getattr(np, attribute), raising=False)
    cp, device = fake_device(monkeypatch)
    cp.cuda.get_current_stream = cp.current_stream
    cp.copy_s = 1e-5
    plan = large.plan_with(KERNELS[name], 30, "float64")
    check = device.check(plan, 7)
    assert check.status is Status.OK, check.detail
    record = device.run([plan], 0.01)
    assert record.makespan_s is not None
    assert record.makespan_s >= 2 * cp.copy_s
    assert record.results[0].restore_s == pytest.approx(cp.copy_s)
    assert record.results[0].status is Status.OK
