"""Factorisations of one matrix under one contract: panels and the order of stages are right on the host."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fake_cupy
import linalg_large as large
import linalg_runs as runs
import linalg_scales
import numpy as np
import pytest
from adaptive_kernels import inputs_of
from fake_cuda import fake_device
from host_build import ADDRESSES, FLAGS
from kernel_plans import kernel_of
from linalg_large import plan_with
from linalg_runs import DTYPES, SMALL, getf2, lapack, on_host
from numpy.typing import NDArray

from tuner.model.plan import Plan, TunableValue
from tuner.model.trial import Status

HYBRIDS = ("potrf-hybrid", "getrf-hybrid", "geqrf-hybrid")  # whose panels the CPU factors
FORMS = [(3, 1), (0, 1), (1, 4), (0, 4)]  # rows of a thread in registers, blocks
Values = dict[str, TunableValue]


class Row(NamedTuple):
    """What is asked of a kernel that factors its panels itself.

    Attributes:
        edges: orders beside those of panels and outer blocks.
        sampled: orders where each value is tried, and any two; 0 of forms of panels in place of pairs.
        streams: values with which a stream runs ahead of the other.
        waiting: stages that wait for the other stream, and the stream that must not be ahead of it.
        barriers: order, and forms of panels that meet all barriers, or none of the default.
        faulty: order and values of the plan in whose code faults are planted.
        faults: words of the code, and others in their place, which make a wrong answer.
        lean: order, type and values of plans that do not spill on an H200.
        compiled: order of samples, and the devices that they compile for.
    """

    edges: Sequence[int]
    sampled: tuple[int, int]
    streams: tuple[int, Values]
    waiting: dict[str, large.Preferred]
    barriers: tuple[int, Sequence[tuple[int, int]]]
    faulty: tuple[int, Values]
    faults: Sequence[tuple[str, str]]
    lean: Sequence[tuple[int, str, Mapping[str, TunableValue]]]
    compiled: tuple[int, Sequence[str]]


PANELS = (63, 64, 65, 79, 80, 81, 127, 128, 129, 143, 144, 145, 192, 193)
ROWS = {
    "potrf": Row(
        edges=(63, 64, 65, 95, 96, 97, 127, 128, 129, 160, 161, 192, 193, 255, 257),
        sampled=(301, 530),
        streams=(301, {"NB": 64, "ahead": 1, "parts": 4}),
        waiting={"panel": "main"},
        barriers=(70, ()),
        faulty=(230, {"NB": 64, "IB": 32}),
        faults=[
            ("block[a][b] -= block[a][c] * block[b][c];", "block[a][b] -= block[a][c] * block[a][c];"),
            ("k < p; ++k", "k < p - 1; ++k"),
            ("(threads - columns)", "threads"),
            ("first % pitch + t", "t"),
            ("column / columns * columns + columns", "column + 1"),
        ],
        lean=[(8192, dtype, {}) for dtype in DTYPES],
        compiled=(1024, ("sm_53", "sm_80", "sm_120")),
    ),
    "getrf": Row(
        edges=PANELS,
        sampled=(200, 0),
        streams=(300, {"NB": 64, "ahead": 1}),
        waiting={"panel": "main", "exchange near": "side", "exchange next": "side", "solve next": "side"},
        barriers=(90, ((2, 1), (0, 1), (1, 4), (0, 4))),  # also of the exchange of rows
        faulty=(200, {"NB": 64, "ahead": 1, "IB": 16}),
        faults=[
            ("c < columns - k ? u[c] : T(0)", "u[c]"),
            ("entering -= triangle[k * columns + lane] * above;", "entering -= triangle[k + lane] * above;"),
            ("if (now >= columns)", "if (now > columns)"),
            ("row < base + count ? list[row - base] : found", "found"),
            ("own.goes[i] == row + columns", "own.goes[i] == row"),
            ("place[r] == k ? other", "place[r] == k ? k"),
        ],
        lean=[  # of one block in memory, and of clusters in registers
            (2048, "float32", {"cluster": 1}),
            (2048, "float64", {"IB": 32, "cluster": 16}),
            (16384, "float32", {"IB": 32}),
            (16384, "float64", {"IB": 16}),
        ],
        compiled=(2048, ("sm_53", "sm_80", "sm_90", "sm_120")),
    ),
    "geqrf": Row(
        edges=PANELS,
        sampled=(200, 0),
        streams=(300, {"NB": 64, "ahead": 1}),
        waiting={"panel": "main", "gram": "side"},
        barriers=(90, ((2, 1), (1, 4))),
        faulty=(200, {"NB": 64, "ahead": 1, "IB": 16}),
        faults=[
            ("const bool open = slot < columns - k;", "const bool open = true;"),
            ("h.scale * sum + beside", "h.scale * sum"),
            ("= -own.tau[k] * sum;  // below", "= own.tau[k] * sum;  // below"),
            ("size_t(outer / block % 2) * block * n", "0"),
            ("row < first; row +=", "row < first - 1; row +="),
            ("T(1) : T(1) / of_block[j]", "T(1) : of_block[j]"),
        ],
        lean=[
            (2048, "float32", {"IB": 32, "cluster": 8}),
            (8192, "float64", {}),
            *((4096, dtype, {"IB": 16, "cluster": 8}) for dtype in DTYPES),
        ],
        compiled=(2048, ("sm_53", "sm_80", "sm_90", "sm_120")),
    ),
}
WAITING = {
    **{(name, stage): stream for name, row in ROWS.items() for stage, stream in row.waiting.items()},
    ("potrf-hybrid", "factor"): "main",
    ("potrf-hybrid", "solve"): "side",
    ("getrf-hybrid", "panel"): "main",
    ("getrf-hybrid", "exchange next"): "side",
    ("geqrf-hybrid", "panel"): "main",
    ("geqrf-hybrid", "vectors"): "side",
}

each_kernel = pytest.mark.parametrize("name", ROWS)
each_type = pytest.mark.parametrize("dtype", DTYPES)
each_form = pytest.mark.parametrize(
    ("rows", "blocks", "dtype"), [(*form, dtype) for form, dtype in zip(FORMS, 2 * DTYPES, strict=True)]
)
with_panels = pytest.mark.parametrize("name", ["getrf", "geqrf"])


def in_form(name: str, n: int, dtype: str, form: tuple[int, int], columns: int = 8) -> Plan:
    """The default with a panel of blocks of 64 threads that hold so many rows each in registers, or none."""
    joined: Values = {"joined": int(form[0] > 0)} if name == "getrf" else {}
    plan = plan_with(name, n, dtype, NB=64, IB=columns, **joined)
    return large.with_panel(plan, *form, threads=64)


def ahead(name: str, dtype: str = "float32") -> Plan:
    """A plan with look-ahead, of several panels and a last one that is not whole."""
    n, values = ROWS[name].streams if name in ROWS else (301, {"NB": 64, "ahead": 1})
    return plan_with(name, n, dtype, **values)


@on_host
@each_type
@pytest.mark.parametrize("name", [*ROWS, *HYBRIDS])
def test_defaults_are_right(name: str, dtype: str) -> None:
    """Within a panel, of several panels, of several outer blocks, whole and not."""
    orders = (1, 13, 33, 64, 97, 200) if name in ROWS else (1, 2, 31, 32, 33, 64, 65, 129, 200)
    runs.check_all([plan_with(name, n, dtype) for n in orders])


@on_host
@each_kernel
def test_values_are_right(name: str) -> None:
    """Each value of each tunable, with no race and nothing astray."""
    runs.check_all(large.sampled_plans(name, ROWS[name].sampled[0], "float32"))


@on_host
@pytest.mark.parametrize("name", HYBRIDS)
def test_values_of_hybrids_are_right(name: str) -> None:
    """Each width of a panel, with look-ahead and without, with no race and nothing astray."""
    plans = large.sampled_plans(name, 201, "float32", together=2)
    alike = {(plan.configuration["NB"], plan.configuration["ahead"]): plan for plan in plans}
    runs.check_all(list(alike.values()))


@on_host
@each_form
@with_panels
def test_panels_of_every_form_are_right(name: str, rows: int, blocks: int, dtype: str) -> None:
    """Of one block and of clusters, with several rows a thread, in registers and in device memory."""
    columns = 32 if name == "geqrf" and rows == 3 else 8
    runs.check_all([in_form(name, 150, dtype, (rows, blocks), columns)])


@on_host
@pytest.mark.pairwise
@each_type
@each_kernel
def test_every_order_is_right(name: str, dtype: str) -> None:
    """Orders 1 to 40 and the edges of panels and outer blocks, the orders of the threads in turn."""
    edges = ROWS[name].edges
    plans = [plan_with(name, n, dtype) for n in (*SMALL, *edges)]
    plans += [in_form(name, n, dtype, (0, 4)) for n in edges if name != "potrf"]
    runs.check_all(plans, take_turns=True)


@on_host
@pytest.mark.pairwise
@each_type
@each_kernel
def test_sanitizers_find_nothing(name: str, dtype: str) -> None:
    """Orders 1 to 40 and the edges, and forms of panels; or each value, of which any two are right, too."""
    pairs, edges = ROWS[name].sampled[1], ROWS[name].edges
    if pairs:
        runs.check_all(large.sampled_plans(name, pairs, dtype, together=2))
        runs.check_all(large.sampled_plans(name, pairs, dtype), ADDRESSES)
        return
    plans = [plan_with(name, n, dtype) for n in (*SMALL, *edges)[DTYPES.index(dtype) :: 2]]
    runs.check_all([*plans, *(in_form(name, 150, dtype, form) for form in FORMS)], ADDRESSES)


@on_host
@pytest.mark.parametrize("name", [*ROWS, *HYBRIDS])
def test_streams_are_ordered(name: str) -> None:
    """Whichever stream is ahead, as far as stages wait for each other, the answer is the same."""
    plan = ahead(name)
    inputs = inputs_of(plan)
    expected = runs.answered(plan, inputs, FLAGS)
    assert large.reordered(plan, "main").stages != plan.stages
    for preferred in large.STREAMS:
        found = runs.answered(large.reordered(plan, preferred), inputs, FLAGS)
        np.testing.assert_array_equal(found["A"], expected["A"], preferred)


@on_host
@pytest.mark.parametrize(
    ("name", "stage"),
    [pytest.param(*one, marks=pytest.mark.pairwise if one[0] in ROWS else ()) for one in WAITING],
)
def test_a_missing_wait_is_noticed(name: str, stage: str) -> None:
    """A stage that does not wait for the other stream is wrong where its own is ahead."""
    plan, preferred = ahead(name), WAITING[name, stage]
    assert not runs.is_noticed(large.reordered(plan, preferred))
    assert runs.is_noticed(large.reordered(large.without_waits(plan, stage), preferred))


@on_host
@pytest.mark.pairwise
@each_kernel
def test_barriers_are_needed(name: str) -> None:
    """Of a block and of a cluster."""
    n, forms = ROWS[name].barriers
    plans = [in_form(name, n, "float32", form) for form in forms]
    runs.check_barriers(plans or [plan_with(name, n, "float32", IB=64)])


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize(
    ("name", "old", "new"), [(name, *fault) for name, row in ROWS.items() for fault in row.faults]
)
def test_faults_are_noticed(name: str, old: str, new: str) -> None:
    """A wrong index or condition anywhere is a wrong answer to the law."""
    n, values = ROWS[name].faulty
    assert runs.is_noticed(runs.with_fault(plan_with(name, n, "float32", **values), old, new))


@on_host
@pytest.mark.parametrize(("column", "row"), [(150, 40), (40, 150), (199, 199)])
@each_kernel
def test_the_law_notices_one_wrong_element(name: str, column: int, row: int) -> None:
    """An element of the factors that is off by a hundredth, among 40,000, in float32."""
    plan = plan_with(name, 200, "float32")
    inputs = inputs_of(plan)
    outputs = runs.answered(plan, inputs, FLAGS)
    assert runs.judged(plan, inputs, outputs).error < 1
    outputs["A"][column, row] += 0.01
    assert not runs.judged(plan, inputs, outputs).ok


@each_kernel
def test_panels_compile_without_spills(name: str, cubins: Path) -> None:
    """For an H200, in both types."""
    plans = [plan_with(name, n, dtype, **values) for n, dtype, values in ROWS[name].lean]
    runs.check_compiles(plans, "sm_90", cubins)


@pytest.mark.pairwise
@pytest.mark.parametrize(
    ("name", "architecture"), [(name, one) for name, row in ROWS.items() for one in row.compiled[1]]
)
def test_values_compile(name: str, architecture: str, cubins: Path) -> None:
    """For devices old and new."""
    plans = [plan for dtype in DTYPES for plan in large.sampled_plans(name, ROWS[name].compiled[0], dtype)]
    runs.check_compiles(plans, architecture, cubins)


@each_kernel
def test_defaults_are_configurations(name: str) -> None:
    """At orders small and large, on any device: without clusters; of Cholesky within 48 KiB up to 4096."""
    kernel = kernel_of(name)
    for dtype in DTYPES:
        for n in (*range(1, 300, 7), 1000, 4097, 8193, 16385, 32768):
            workload = kernel.workload({"n": n, "dtype": dtype})
            default = kernel.default(workload)
            assert default in kernel.space(workload), n
            assert dict(default.items()).get("cluster", 1) == 1
            if name == "potrf" and n <= 4096:
                stages = [one for one in kernel.plan(workload, default).stages[:4] if one.library is None]
                assert max(stage.shared_bytes for stage in stages) <= 48 * 1024, n


# --- answers of LAPACK ---------------------------------------------------------------------------


def cholesky(matrix: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """SciPy's factor and info, in the type of the matrix."""
    factor, info = lapack("potrf", matrix.dtype.name)(matrix, lower=1, clean=0)
    return factor, info


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_cholesky_factors_are_those_of_lapack(dtype: str) -> None:
    """Within rounding; what lies above the diagonal is neither used nor changed."""
    plan = plan_with("potrf", 150, dtype, NB=64, IB=32)
    A = inputs_of(plan)["A"]
    A[np.tril_indices(150, -1)] = np.nan  # above the diagonal of the column-major matrix
    outputs = runs.answered(plan, {"A": A})
    factor, info = cholesky(A.T)
    assert outputs["info"].tolist() == [info] == [0]
    assert np.isnan(outputs["A"][np.tril_indices(150, -1)]).all()
    tolerance = 1e-5 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(np.triu(outputs["A"]), np.tril(factor).T, rtol=0, atol=tolerance)


@on_host
@pytest.mark.parametrize("bad", [0, 41, 64, 129])
def test_indefinite_matrices_have_the_info_of_lapack(bad: int) -> None:
    """In the first panel and later ones, of a pivot that is negative and of one that is no number."""
    plan = plan_with("potrf", 130, "float64", NB=64, IB=32)
    A = inputs_of(plan)["A"]
    for value in (-3.0, np.nan):
        A[bad, bad] = value
        outputs = runs.answered(plan, {"A": A})
        assert outputs["info"].tolist() == [bad + 1]
        before = cholesky(A.T[:bad, :bad])[0] if bad else np.zeros((0, 0))
        np.testing.assert_allclose(np.triu(outputs["A"][:bad, :bad]), np.tril(before).T, rtol=0, atol=1e-13)


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_pivots_are_those_of_lapack(dtype: str) -> None:
    """Of a random matrix SciPy exchanges the same rows, and its factors are the same within rounding."""
    plan = plan_with("getrf", 150, dtype, NB=64, IB=16)
    A = inputs_of(plan)["A"]
    outputs = runs.answered(plan, {"A": A})
    factors, ipiv, info = lapack("getrf", dtype)(A.T)
    assert outputs["ipiv"].tolist() == (ipiv + 1).tolist()
    assert outputs["info"].tolist() == [info] == [0]
    tolerance = 1e4 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(outputs["A"].T, factors, rtol=tolerance, atol=tolerance)


@on_host
@each_form
@pytest.mark.parametrize(("m", "n"), [(190, 1), (190, 64), (191, 77), (150, 149)])
def test_tall_matrices_have_the_pivots_of_lapack(m: int, n: int, rows: int, blocks: int, dtype: str) -> None:
    """Of one outer block, of several, and of a last panel that is not whole; the law holds, too."""
    values: Values = {"joined": int(rows > 0)}
    plan = plan_with("getrf", n, dtype, m, NB=64, IB=8, ahead=int(n > 64), **values)
    plan = large.with_panel(plan, rows, blocks, threads=64)
    inputs = inputs_of(plan)
    outputs = runs.answered(plan, inputs)
    factors, ipiv, info = lapack("getrf", dtype)(inputs["A"].T)
    assert outputs["ipiv"].tolist() == (ipiv + 1).tolist()
    assert outputs["info"].tolist() == [info] == [0]
    assert runs.judged(plan, inputs, outputs).ok
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
    plan = in_form("getrf", 64, "float32", (rows, blocks))
    for matrix in special():
        scaled = (matrix * scale).astype(np.float32)
        outputs = runs.answered(plan, {"A": np.ascontiguousarray(scaled.T)}, FLAGS)
        factors, ipiv, info = getf2(scaled)
        assert outputs["ipiv"].tolist() == ipiv
        assert outputs["info"].tolist() == [info]
        np.testing.assert_array_equal(outputs["A"].T, factors)


@on_host
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_numbers_leave_pivots_in_range(bad: float) -> None:
    """A NaN counts as the largest number; ipiv are still rows."""
    plan = plan_with("getrf", 70, "float32", NB=64, IB=16)
    A = inputs_of(plan)["A"]
    A[3, 40] = bad
    ipiv = runs.answered(plan, {"A": A})["ipiv"]
    assert (np.arange(1, 71) <= ipiv).all()
    assert (ipiv <= 70).all()


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_qr_factors_are_those_of_lapack(dtype: str) -> None:
    """R with its signs, the vectors and tau are SciPy's within rounding; the last tau is 0."""
    plan = plan_with("geqrf", 150, dtype, NB=64, IB=16)
    A = inputs_of(plan)["A"]
    outputs = runs.answered(plan, {"A": A})
    factors, tau, _, _ = lapack("geqrf", dtype)(A.T)
    tolerance = 1e4 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(outputs["A"].T, factors, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(outputs["tau"], tau, rtol=tolerance, atol=tolerance)
    assert outputs["tau"][-1] == 0


@on_host
@pytest.mark.parametrize("form", [(2, 1), (0, 4)])
def test_columns_that_are_zero_need_no_reflection(form: tuple[int, int]) -> None:
    """Of the identity, of zeros, and of a matrix with such columns in several outer blocks."""
    plan = in_form("geqrf", 100, "float32", form)
    for n, matrix in enumerate((np.eye(100), np.zeros((100, 100)), np.triu(np.ones((100, 100)), -1))):
        matrix[:, 70] = np.eye(100)[70] if n < 2 else 0
        inputs = {"A": np.ascontiguousarray(matrix.T.astype(np.float32))}
        outputs = runs.answered(plan, inputs, FLAGS)
        assert runs.judged(plan, inputs, outputs).ok, n
        assert np.isfinite(outputs["A"]).all()
        if n < 2:
            assert not outputs["tau"].any()


@on_host
@pytest.mark.parametrize(
    ("rows", "blocks", "dtype"), [(*form, dtype) for form, dtype in zip(FORMS, 2 * DTYPES, strict=True)]
)
def test_panels_of_every_form_take_any_scale(rows: int, blocks: int, dtype: str) -> None:
    """Backward errors are LAPACK's where columns are scaled before, and again in their steps."""
    plan = in_form("geqrf", 70, dtype, (rows, blocks))
    form_q = lapack("orgqr", dtype)

    def qr(_: str, matrices: NDArray[Any]) -> tuple[list[Any], list[Any]]:
        found = [runs.answered(plan, {"A": np.ascontiguousarray(one.T)}) for one in matrices]
        return [form_q(one["A"].T, one["tau"])[0] for one in found], [np.triu(one["A"].T) for one in found]

    linalg_scales.LAWS["qr"](qr, 70, dtype)


# --- panels on the CPU -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", HYBRIDS)
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
    return runs.answered(plan_with(name, len(A), A.dtype.name, **values), {"A": A})


@on_host
@pytest.mark.parametrize("bad", [0, 41, 64, 129])
@pytest.mark.parametrize("value", [-3.0, np.nan])
def test_hybrids_have_the_info_of_lapack(bad: int, value: float) -> None:
    """In the first block and later ones; of several minors that are not positive, the first counts."""
    A = inputs_of(plan_with("potrf-hybrid", 200, "float64"))["A"]
    A[bad, bad] = A[199, 199] = value
    outputs = answers("potrf-hybrid", A, NB=64, ahead=1)
    assert outputs["info"].tolist() == [bad + 1]
    before = lapack("potrf", "float64")(A.T[:bad, :bad], lower=1)[0] if bad else np.zeros((0, 0))
    np.testing.assert_allclose(np.triu(outputs["A"][:bad, :bad]), np.tril(before).T, rtol=0, atol=1e-13)
    fine = inputs_of(plan_with("potrf-hybrid", 70, "float64"))["A"]
    assert answers("potrf-hybrid", fine)["info"].tolist() == [0]


@on_host
@pytest.mark.parametrize("bad", [0, 40, 131])
def test_singular_matrices_have_the_info_and_pivots_of_lapack(bad: int) -> None:
    """A column of zeros; the factorisation goes on."""
    A = inputs_of(plan_with("getrf-hybrid", 150, "float64"))["A"]
    A[bad] = A[145] = 0.0
    outputs = answers("getrf-hybrid", A, NB=32, ahead=1)
    factors, pivots, info = lapack("getrf", "float64")(A.T)
    assert outputs["info"].tolist() == [info] == [bad + 1]
    assert outputs["ipiv"].tolist() == (pivots + 1).tolist()
    np.testing.assert_allclose(outputs["A"].T, factors, rtol=0, atol=1e-11)


@on_host
def test_hybrid_qr_factors_are_those_of_lapack() -> None:
    """Signs and ``tau`` too; of columns that are zero ``tau`` is 0."""
    A = inputs_of(plan_with("geqrf-hybrid", 150, "float64"))["A"]
    A[70] = 0.0
    outputs = answers("geqrf-hybrid", A, NB=32, ahead=1)
    factors, tau, _, _ = lapack("geqrf", "float64")(A.T)
    assert outputs["tau"][70] == 0.0
    np.testing.assert_allclose(outputs["A"].T, factors, rtol=0, atol=1e-12)
    np.testing.assert_allclose(outputs["tau"], tau, rtol=0, atol=1e-12)


@on_host
def test_what_lies_above_the_diagonal_is_left_alone() -> None:
    """Of a Cholesky factorisation: it is neither used nor changed."""
    A = inputs_of(plan_with("potrf-hybrid", 200, "float32"))["A"]
    above = np.tril_indices(200, -1)  # of the column-major matrix
    A[above] = np.nan
    outputs = answers("potrf-hybrid", A, NB=64, ahead=1)
    assert np.isnan(outputs["A"][above]).all()
    assert np.isfinite(np.triu(outputs["A"])).all()


@pytest.mark.parametrize("architecture", ["sm_53", "sm_90"])
def test_hybrids_compile_without_spills(architecture: str, cubins: Path) -> None:
    """Those that do what no library does, for devices old and new."""
    plans = [ahead(name, dtype) for name in HYBRIDS[1:] for dtype in DTYPES]
    runs.check_compiles(plans, architecture, cubins)


@on_host
@pytest.mark.parametrize("name", HYBRIDS)
def test_a_device_checks_and_times_them(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A matrix of one panel on a fake GPU: copied, factored by the CPU, judged by the law, and timed."""
    monkeypatch.setattr(fake_cupy, "__getattr__", lambda attribute: getattr(np, attribute), raising=False)
    cp, device = fake_device(monkeypatch)
    cp.cuda.get_current_stream = cp.current_stream
    cp.copy_s = 1e-5
    plan = plan_with(name, 30, "float64")
    check = device.check(plan, 7)
    assert check.status is Status.OK, check.detail
    record = device.run([plan], 0.01)
    assert record.makespan_s is not None
    assert record.makespan_s >= 2 * cp.copy_s
    assert record.results[0].restore_s == pytest.approx(cp.copy_s)
    assert record.results[0].status is Status.OK
