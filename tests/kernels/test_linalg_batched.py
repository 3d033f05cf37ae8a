"""Batched dense linear algebra under one contract: right at any order on the host, and lean as compiled."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import linalg_batched as batched
import linalg_runs as runs
import numpy as np
import pytest
from adaptive_kernels import inputs_of
from host_build import ADDRESSES, CHECKED, FLAGS
from linalg_batched import EDGES, plan_with
from linalg_runs import DTYPES, SMALL, on_host

from tuner.model.plan import Plan, TunableValue

ARCHITECTURES = ("sm_53", "sm_72", "sm_80", "sm_87", "sm_90", "sm_120")
ALONE: dict[str, TunableValue] = {
    "P": 1,
    "W": 1,
    "G": 32,
    "exchange": "none",
    "blocks": 1,
}  # a thread has a matrix


class At(NamedTuple):
    """A plan of a kernel: order, type and batch, and some values."""

    n: int
    dtype: str = "float32"
    batch: int = 3
    values: Mapping[str, TunableValue] = MappingProxyType({})

    def plan(self, name: str) -> Plan:
        return plan_with(name, self.n, self.dtype, self.batch, **self.values)


class Row(NamedTuple):
    """What is asked of a kernel.

    Attributes:
        defaults: orders within a thread or panel, beyond one, of several warps; that fill them, or do not.
        values: where each value of each tunable is tried.
        pairs: orders at which any two values are.
        others: orders at which each value is, in either type.
        sanitized: orders at which the sanitizers see each value, and the default of every second order if
            there is one alone.
        barriers: plans that meet all barriers, each of which is needed.
        faults: plans, and words of the code with others in their place, which make some answer of them wrong.
        lean: types and devices whose defaults at orders 32 and 128 spill nothing.
        corners: orders of samples that compile for all devices.
    """

    defaults: Sequence[int]
    values: Sequence[tuple[int, str]]
    pairs: Sequence[int]
    sanitized: Sequence[int]
    barriers: Sequence[At]
    faults: Sequence[tuple[Sequence[At], Sequence[tuple[str, str]]]]
    others: Sequence[int] = ()
    lean: tuple[Sequence[str], Sequence[str]] = (DTYPES, ("sm_53", "sm_90"))
    corners: Sequence[int] = (65,)


ROWS = {
    "gemm": Row(
        defaults=(1, 2, 5, 13, 32, 67),
        values=((19, "float64"), (36, "float32")),
        pairs=(7, 12, 20),
        others=(66,),  # C is larger than a strip
        sanitized=(7, 12, 20, 66),
        barriers=(  # before the first slab is read, and before each other
            At(36, values={"depth": 8}),
            At(36, batch=5, values={"depth": 8, "ahead": 1}),
        ),
        faults=[
            (
                [
                    *(At(13), At(35), At(67, values={"strip": 32, "depth": 8, "ahead": 0})),
                    At(36, batch=7, values={"depth": 8, "ahead": 1}),
                ],
                [
                    ("(s + 1) % buffers;", "s % buffers;"),
                    ("slab.fetch(left, right, (s + 1) * depth", "slab.fetch(left, right, s * depth"),
                    ("blockIdx.x % strips * strip", "0"),
                    ("e < n * depth && k * n + e < n * n", "e < n * depth && k * n + e < n * n - n"),
                    ("B + e / depth * n + k + e % depth", "B + e / depth * n + e % depth"),
                    ("a[depth * Tile::leading_a + e] = T(0);", ";"),
                    ("slab = 0, unit += step;", "slab = 0, unit += 1;"),
                    ("right + column * n + row", "right + column * n"),
                    ("filled = following(filled);", ""),
                ],
            )
        ],
    ),
    "gemv": Row(
        defaults=(1, 2, 5, 12, 33, 70),
        values=((12, "float64"), (127, "float32")),
        pairs=(4, 13, 40, 66, 128),
        sanitized=(4, 13, 40, 66, 128),
        barriers=(At(66, values={"threads": 64}),),  # between the sums of warps
        faults=[
            (
                [
                    At(12, batch=9, values={"threads": 32, "flying": 2, "block": 64}),
                    At(66, values={"threads": 64, "flying": 4, "block": 64}),
                ],
                [
                    ("read[f][e].at[w] * factor[f]", "read[f][e].at[0] * factor[f]"),
                    ("read[f][e].at[w] * factor[f]", "read[f][e].at[w] * factor[0]"),
                    ("ahead * packs, lanes", "ahead, lanes"),
                    ("total += parts[w * n + row]", "total += parts[row]"),
                    ("flying * stride) {", "flying * stride + 1) {"),
                ],
            )
        ],
    ),
    "potrf": Row(
        defaults=(1, 2, 5, 13, 32, 49),
        values=((65, "float32"),),
        pairs=(12, 40, 65),
        sanitized=(12, 40, 65),
        barriers=(  # of warps that share a matrix, of matrices that share a block, and in device memory
            At(13, values={"problems": 4}),
            At(65, values={"rows": 1, "storage": "half"}),
            At(65, values={"rows": 1, "columns": 4, "storage": "device"}),
        ),
        faults=[
            (
                [At(37)],
                [
                    (
                        "block[a][b] -= block[a][c] * block[b][c];",
                        "block[a][b] -= block[a][c] * block[a][c];",
                    ),
                    ("x -= sum[r][b] * block[c][b];", "x -= sum[r][b] * block[b][b];"),
                    ("if (k <= i) all[slot", "if (k < i) all[slot"),
                    ("if (Here::whole || i + w >= k) to[w]", "if (Here::whole || i + w > k) to[w]"),
                    ("info = p + c + 1;", "info = p + 1;"),
                ],
            )
        ],
    ),
    "trsm": Row(
        defaults=(1, 2, 5, 13, 32, 67),
        values=((20, "float32"), (65, "float32")),
        pairs=(12, 40, 66),
        sanitized=(12, 40, 66),
        barriers=(  # around copies of whole matrices, of panels, and of a warp's own
            At(13, values={"problems": 4}),
            At(65, values={"triangle": "panels", "strip": 128}),
            At(65, values={"triangle": "panels", "strip": 32}),
        ),
        faults=[
            (
                [At(13, batch=9, values={"problems": 4}), At(69, values={"strip": 64})],
                [
                    ("sum[c][r] -= left[r] * known[c][w];", "sum[c][r] -= left[r] * known[c][0];"),
                    ("divided(sum[c][k], left[k])", "divided(sum[c][k], left[0])"),
                    ("for (int r = k + 1; r < rows; ++r)", "for (int r = k + 2; r < rows; ++r)"),
                    ("if (i + w == k) pack.at[w]", "if (i + w == k + 1) pack.at[w]"),
                    ("blockIdx.x / Here::strips * problems", "blockIdx.x / Here::strips"),
                    ("blockIdx.x % Here::strips * Here::width", "0"),
                ],
            )
        ],
    ),
    "getrf": Row(
        defaults=(1, 13, 49),
        values=((8, "float64"), (37, "float32")),
        pairs=(3, 8, 21, 40, 65),
        sanitized=(21,),
        barriers=(  # of problems that share a warp, of warps that share a problem, of threads alone
            At(7, values={"P": 4, "W": 4, "G": 2, "exchange": "shuffle"}),
            At(37),
            At(4, values={**ALONE, "copies": "staged"}),
        ),
        faults=[
            (
                [At(37)],
                [
                    ("a[j][r] -= l[r] * u[j]", "a[j][r] -= l[r] * u[c]"),
                    ("if (group <= w) u[c]", "if (group < w) u[c]"),
                    ("done |= 1 << which", "done |= 2 << which"),
                    ("own.place[pivot.row] = k;", "own.place[pivot.row] = pivot.row;"),
                    ("from = own.place[pivot.row]", "from = pivot.row"),
                    ("own.exchanged[from] = moved", "own.exchanged[from] = from"),
                    ("leading(column[r])", "leading(column[0])"),
                    ("i < n && j < n ? own", "i < n && j < n - 1 ? own"),
                    ("e < count; e += team", "e < count - 1; e += team"),
                ],
            ),
            (
                [At(4, batch=35, values={**ALONE, "copies": "staged"})],
                [
                    (
                        "if (i <= k) continue;\n        const auto key",
                        "if (i <= k + 1) continue;\n        const auto key",
                    ),
                    ("const bool here = i == row;", "const bool here = i == row && k > 0;"),
                    ("a[j][i] -= below[i] * a[j][k];", "a[j][i] -= below[i] * a[k][k];"),
                    ("e + e / (n * n) * (pitch - n * n)", "e"),
                    ("rows[k] = pivot.row;", "rows[k] = k;"),
                ],
            ),
        ],
        lean=(("float64",), ("sm_90",)),
        corners=(8, 65),
    ),
    "geqrf": Row(
        defaults=(1, 13, 49),
        values=((8, "float64"), (37, "float32")),
        pairs=(3, 8, 21, 40, 65),
        sanitized=(21,),
        barriers=(  # of problems that share a warp, and of warps that share a problem
            At(7, values={"P": 4, "W": 4, "G": 2, "blocks": 1}),
            At(37, values={"P": 4, "W": 16}),
        ),
        faults=[
            (
                [At(37)],
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
        ],
        lean=(("float64",), ("sm_90",)),
        corners=(8, 65),
    ),
}

each_kernel = pytest.mark.parametrize("name", ROWS)
each_type = pytest.mark.parametrize("dtype", DTYPES)


@on_host
@each_type
@each_kernel
def test_defaults_are_right(name: str, dtype: str) -> None:
    """The law of the kernel file holds, with no race and nothing astray."""
    runs.check_all([plan for n in ROWS[name].defaults for plan in batched.untuned_plans(name, n, dtype)])


@on_host
@each_kernel
def test_values_are_right(name: str) -> None:
    """Each value of each tunable, with no race and nothing astray, in blocks that are not full."""
    for n, dtype in ROWS[name].values:
        runs.check_all(batched.sampled_plans(name, n, dtype))


@on_host
@pytest.mark.pairwise
@each_type
@each_kernel
def test_every_order_is_right(name: str, dtype: str) -> None:
    """Orders 1 to 40 and the edges of tiles, the orders of the threads in turn."""
    runs.check_all([plan_with(name, n, dtype) for n in (*SMALL, *EDGES)], take_turns=True)


@on_host
@pytest.mark.pairwise
@each_type
@pytest.mark.parametrize(
    ("name", "n", "together"),
    [
        (name, n, together)
        for name, row in ROWS.items()
        for together, orders in ((2, row.pairs), (1, row.others))
        for n in orders
    ],
)
def test_pairs_of_values_are_right(name: str, n: int, together: int, dtype: str) -> None:
    """Any two values that go together."""
    runs.check_all(batched.sampled_plans(name, n, dtype, together))


@on_host
@pytest.mark.pairwise
@each_type
@each_kernel
def test_sanitizers_find_nothing(name: str, dtype: str) -> None:
    """Each value, and the defaults of some orders, keep to their arrays and to what the language defines."""
    row = ROWS[name]
    alone = (*SMALL, *EDGES)[DTYPES.index(dtype) :: 2] if len(row.sanitized) == 1 else ()
    plans = [plan_with(name, n, dtype) for n in alone]
    plans += [plan for n in row.sanitized for plan in batched.sampled_plans(name, n, dtype)]
    runs.check_all(plans, ADDRESSES)


@on_host
@pytest.mark.pairwise
@each_kernel
def test_barriers_are_needed(name: str) -> None:
    """Without one of them some plan goes wrong."""
    runs.check_barriers([at.plan(name) for at in ROWS[name].barriers])


# Rare paths, which the inputs of a kernel file do not take: matrices that do.
RARE = {"info = p + c + 1;": np.diag([-1.0 if i == 20 else 1.0 for i in range(37)])[None].repeat(3, 0)}
RARE["unit.tau"] = 1e30 * batched.conditioned(37, 10, 3)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize(
    ("name", "plans", "old", "new"),
    [(name, plans, *words) for name, row in ROWS.items() for plans, faults in row.faults for words in faults],
)
def test_faults_are_noticed(name: str, plans: Sequence[At], old: str, new: str) -> None:
    """A wrong index, sign or condition anywhere is a wrong answer to the law."""
    wrong = [runs.with_fault(at.plan(name), old, new) for at in plans]
    if name == "potrf" and old in RARE:  # where a matrix is not positive
        A = batched.column_major(RARE[old], "float32")
        assert (runs.answered(wrong[0], {"A": A}, FLAGS)["info"] != 21).all()
    elif old in RARE:
        assert not batched.backward_error_is_small(wrong[0], RARE[old])
    elif name in ("getrf", "geqrf"):  # some faults lead out of arrays
        assert any(runs.is_noticed(plan, CHECKED, "forward") for plan in wrong)
    else:
        assert any(map(runs.is_noticed, wrong))


SPOILT: list[tuple[str, At]] = [
    *((name, At(13, batch=5)) for name in ("gemm", "gemv")),
    ("getrf", At(7, values={"P": 4, "W": 2, "G": 4, "exchange": "shuffle"})),
    ("getrf", At(37)),
    ("getrf", At(5, values={**ALONE, "copies": "staged"})),
    ("geqrf", At(7, values={"P": 4, "W": 2, "G": 4, "blocks": 1})),
    ("geqrf", At(37)),
]


@on_host
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(("name", "at"), SPOILT)
def test_a_bad_number_stays_in_its_problem(name: str, at: At, bad: float) -> None:
    """It changes no bit of another one, and shows in its own; in products in its row alone."""
    plan = at.plan(name)
    inputs = inputs_of(plan)
    clean = runs.answered(plan, inputs)
    A = inputs["A"].copy()
    A[1, -1, 0] = bad
    spoilt = runs.answered(plan, {**inputs, "A": A})
    for output, array in clean.items():
        np.testing.assert_array_equal(np.delete(spoilt[output], 1, 0), np.delete(array, 1, 0), output)
    if name in ("getrf", "geqrf"):
        assert not np.isfinite(spoilt["A"][1]).all()
        return
    (found,) = spoilt.values()
    others = [[1, j, 0] for j in range(at.n)] if name == "gemm" else [[1, 0]]
    assert np.argwhere(~np.isfinite(found)).tolist() == others


@pytest.mark.parametrize(
    ("name", "architecture"), [(name, one) for name, row in ROWS.items() for one in row.lean[1]]
)
def test_defaults_compile_without_spills(name: str, architecture: str, cubins: Path) -> None:
    """At the largest order of each form, and fit any device that the kernel is for."""
    plans = [plan_with(name, n, dtype) for n in (32, 128) for dtype in ROWS[name].lean[0]]
    runs.check_compiles(plans, architecture, cubins)


@pytest.mark.pairwise
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ["getrf", "geqrf"])
def test_no_default_spills(name: str, architecture: str, cubins: Path) -> None:
    """At orders of every form and both types."""
    orders = (1, 7, 16, 32, 33, 64, 65, 96, 128)
    plans = [plan_with(name, n, dtype) for n in orders for dtype in DTYPES]
    runs.check_compiles(plans, architecture, cubins)


@pytest.mark.pairwise
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@each_kernel
def test_corners_compile(name: str, architecture: str, cubins: Path) -> None:
    """Defaults and samples of configurations, for devices old and new."""
    runs.check_compiles(
        list(batched.corner_plans(name, ROWS[name].corners)), architecture, cubins, lean=False
    )
