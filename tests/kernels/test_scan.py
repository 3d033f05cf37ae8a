"""The scans under one contract: short rows, long rows and segments, any operator and type, on the host."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import host_build
import numpy as np
import numpy.typing as npt
import pytest
from examples import FEW
from host_build import CHECKED, FLAGS, ORDERS, Order
from hypothesis import given
from hypothesis import strategies as st
from kernel_plans import Sizes, Values, headers_of, kernel_of, plan_of
from long_scans import DTYPES, FORMS, OPERATORS, WAYS, error, numbers

from tuner.model.elements import bfloat16_bits, bfloat16_values
from tuner.model.plan import Configuration, Plan, Source

Array = npt.NDArray[Any]

SHORT = ("scan-lf", "scan-ks")
LONG = 9001  # several tiles, the last not full
ENDS = 40  # offsets of a row
TILES: Values = {"P": 4, "L": 256, "stay": False}

needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
each_short = pytest.mark.parametrize("name", SHORT)


def fits(configuration: Configuration, values: Values) -> bool:
    return values.items() <= dict(configuration).items()


def run(
    plan: Plan, x: Array, segments: Array | None = None, order: Order = "shuffle", flags: Any = FLAGS
) -> Array:
    """The scan of rows, as numbers; those of bfloat16 are given and taken as float32."""
    bits = plan.buffers[0].dtype == "bfloat16"
    inputs = {"x": bfloat16_bits(x) if bits else x}
    if segments is not None:
        inputs[plan.buffers[1].name] = segments
    y = host_build.run_plan_on_host(plan, inputs, order=order, flags=flags)["y"]
    return bfloat16_values(y) if bits else y


def drawn_short(name: str) -> list[Plan]:
    """At any length three of random types and forms: by shuffles, by a bulk store, by shared memory."""
    plans = []
    for N in (2, 3, 31, 64, 250, 1000, 2048, 8191, 8192):
        rng = random.Random(f"{name} {N}")  # noqa: S311 - reproducible
        for shuffle, store in ((True, "direct"), (True, "bulk"), (False, "direct")):
            dtype, form = rng.choice(("float32", "float64", "int32")), rng.choice(FORMS)
            batch = rng.choice([1, max(2, min(13, 20_000 // N))])
            workload = kernel_of(name).workload({"N": N, "dtype": dtype, "form": form}, batch)
            space = [
                c for c in kernel_of(name).space(workload) if fits(c, {"shuffle": shuffle, "store": store})
            ]
            if space:
                plans.append(kernel_of(name).plan(workload, rng.choice(space)))
    return plans


def drawn_long(name: str) -> list[Plan]:
    """At any length random types, operators and forms: each way to exchange totals in turn."""
    plans, kernel = [], kernel_of(name)
    ways: list[Values] = [
        {"shuffle": True, "stay": False},
        {"shuffle": True, "stay": True},
        {"shuffle": False},
    ]
    for N in (2, 31, 253, 1000, 5000, 40_001):
        rng = random.Random(f"long {N}")  # noqa: S311 - reproducible
        for k in range(8):
            sizes: dict[str, int | str] = {
                "N": N,
                "dtype": DTYPES[k % len(DTYPES)],
                "operator": OPERATORS[(k + N) % len(OPERATORS)],
                "form": rng.choice(FORMS),
                "direction": rng.choice(WAYS),
            }
            workload = kernel.workload(sizes, rng.choice([1, 3]))
            space = [c for c in kernel.space(workload) if fits(c, ways[k % 3]) and int(c["P"]) <= 16]
            if space:
                plans.append(kernel.plan(workload, rng.choice(space)))
    return plans


def drawn_segments(name: str) -> list[Plan]:
    """Of random types, operators and forms; every type and operator comes."""
    rng, plans = random.Random(name), []  # noqa: S311 - reproducible
    for k in range(8):
        sizes: Sizes = {
            "N": rng.choice([31, 1000, LONG]),
            "dtype": DTYPES[k % len(DTYPES)],
            "operator": OPERATORS[k % len(OPERATORS)],
            "form": rng.choice(FORMS),
            "direction": rng.choice(WAYS),
        }
        plans.append(plan_of(name, with_ends(name, sizes), rng.choice([1, 3]), {"stay": k % 2 == 0}))
    return plans


DRAWN: dict[str, Callable[[str], list[Plan]]] = {
    **dict.fromkeys(SHORT, drawn_short),
    "scan-long": drawn_long,
    **dict.fromkeys(("scan-flags", "scan-offsets"), drawn_segments),
}


def with_ends(name: str, sizes: Sizes) -> Sizes:
    return {"ends": ENDS, **sizes} if name == "scan-offsets" else sizes


def offsets_of(batch: int, length: int, dtype: str, seed: int) -> Array:
    """Rows of offsets with empty segments at both ends, and several times in between."""
    inner = np.random.default_rng(seed).integers(0, length + 1, (batch, ENDS - 4))
    inner[:, :3], inner[:, 3:5] = length // 2, 1024  # one at the edge of a tile
    edges = np.zeros((batch, 2), int), np.full((batch, 2), length)
    return np.sort(np.concatenate([*edges, inner], axis=1), axis=1).astype(dtype)


def heads_of(offsets: Array, length: int) -> Array:
    heads = np.zeros((len(offsets), length), bool)
    for row, begins in zip(heads, offsets, strict=True):
        row[begins[begins < length]] = True
    return heads


def segments_of(plan: Plan, seed: int) -> tuple[Array | None, Array | None]:
    """What tells a plan where segments begin, and where they do; nothing of rows without segments."""
    batch, length = plan.buffers[0].shape
    if plan.workload.kernel == "scan-flags":
        density = [0.3, 0.001, 0.0, 1.0][seed % 4]
        flags = (np.random.default_rng(seed).random((batch, length)) < density).astype(np.uint8) * 3
        return flags, flags != 0
    if plan.workload.kernel == "scan-offsets":
        offsets = offsets_of(batch, length, plan.buffers[1].dtype, seed)
        return offsets, heads_of(offsets, length)
    return None, None


@needs_compiler
@pytest.mark.parametrize("name", DRAWN)
def test_every_operator_is_right_in_every_type(name: str) -> None:
    """At any length, in any type, form and way, rows and segments are right to rounding, or exact.

    In every order of the threads, each of short rows in all of them.
    """
    plans = DRAWN[name](name)
    host_build.build_plans(plans)
    for k, plan in enumerate(plans):
        x = numbers(plan, k)
        segments, heads = segments_of(plan, k)
        for order in ORDERS if name in SHORT else (ORDERS[k % len(ORDERS)],):
            y = run(plan, x, segments, order)
            assert error(plan, x, y, heads) <= 1, (str(plan.workload), plan.label(), order)


# --- what is broken stays where it is ------------------------------------------------------------


class Spoilt(NamedTuple):
    """Rows or segments of a kernel in which numbers are not finite."""

    name: str
    sizes: Sizes
    values: Values
    batch: int = 3


SHORT_WAYS: list[tuple[int, Values]] = [
    (60, {"P": 4, "shuffle": True, "store": "direct"}),
    (60, {"P": 4, "shuffle": True, "store": "bulk"}),
    (60, {"P": 8, "shuffle": False}),
    (61, {"P": 16, "shuffle": True}),
]
SPOILT = [
    *(Spoilt(name, {"N": N}, {"L": 128, **values}, 13) for name in SHORT for N, values in SHORT_WAYS),
    *(
        Spoilt("scan-long", {"N": 5000, "operator": operator}, values)
        for operator in ("sum", "min", "product")
        for values in (
            {"shuffle": True, "stay": True, "L": 64},
            {"shuffle": False, "P": 8},
            {"shuffle": True, "L": 32},
        )
    ),
    *(
        Spoilt(name, with_ends(name, {"N": LONG, "operator": operator, "direction": way}), TILES, 1)
        for name in ("scan-flags", "scan-offsets")
        for operator in ("sum", "product")
        for way in WAYS
    ),
]


@needs_compiler
@pytest.mark.parametrize("case", SPOILT, ids=str)
def test_extremes_stay_in_their_row_or_segment(case: Spoilt) -> None:
    """Infinities, NaN, overflow and underflow leave all others, and what lies before, as they are.

    To the last bit, though several rows share a warp and a block, and the last block is not full.
    """
    plan = plan_of(case.name, case.sizes, case.batch, case.values)
    x, length = numbers(plan, 2), int(case.sizes["N"])
    spoilt: Any = 1, length * 2 // 3
    segments, inside = None, np.zeros(x.shape, bool)
    inside[1 % case.batch, length * 2 // 3 :] = True
    lost = inside
    extremes = [np.nan, np.inf]
    if case.batch == 1:  # a segment, which has whole tiles and parts of two
        offsets = np.sort(np.append(np.repeat([0, 2000, 5000], 12), [LONG] * 4)).astype(np.int32)[None]
        segments = offsets if case.name == "scan-offsets" else heads_of(offsets, LONG).astype(np.uint8)
        spoilt, extremes = (0, slice(2000, 5000)), [*extremes, 3e38, 1e-42]
        inside, lost = np.zeros((2, *x.shape), bool)
        inside[spoilt] = lost[0, 3000:4000] = True
    whole = run(plan, x, segments)
    for extreme in extremes:
        broken = x.copy()
        broken[spoilt] = extreme
        y = run(plan, broken, segments)
        np.testing.assert_array_equal(y[~inside], whole[~inside])
        if np.isnan(extreme):
            assert np.isnan(y[lost]).all()
        elif extreme != 1e-42 and (case.batch == 1 or case.sizes.get("operator", "sum") == "sum"):
            assert not np.isfinite(y[lost]).any()


@needs_compiler
def test_whatever_offsets_hold_no_other_memory_is_touched() -> None:
    """Offsets that fall, or lie outside of the row, make wrong sums and no stray access."""
    sizes = with_ends("scan-offsets", {"N": 3000, "direction": "reverse"})
    plan = plan_of("scan-offsets", sizes, 2, {"P": 8, "L": 128, "stay": True})
    limits = np.iinfo(np.int32)
    wild = np.random.default_rng(3).integers(limits.min, limits.max, (2, ENDS)).astype(np.int32)
    wild[1] = np.arange(ENDS)[::-1] * 100 - 50
    assert np.isfinite(run(plan, numbers(plan, 2), wild, flags=CHECKED)).all()


@needs_compiler
def test_sums_beyond_the_largest_float_come_back() -> None:
    """What lies before a tile may exceed float, as it is a double; sums that float holds are right again."""
    plan = plan_of("scan-long", {"N": 8192}, 1, {"P": 4, "L": 256, "shuffle": True, "stay": False})
    x = np.zeros((1, 8192), np.float32)
    x[0, [0, 1024, 2048, 3072]] = [3e38, 3e38, -3e38, -3e38]
    x[0, 4096] = 1
    y = run(plan, x, order="forward")
    assert np.isinf(y[0, 1024:2048]).all()
    np.testing.assert_allclose(y[0, 2048:3072], 3e38, rtol=1e-6)
    np.testing.assert_array_equal(y[0, 4096:], 1)


@needs_compiler
def test_errors_do_not_grow_with_tiles() -> None:
    """A row of a thousand tiles is as right as one of a few, to 3 units of roundoff of its largest sum."""
    values: Values = {"P": 4, "L": 256, "shuffle": True, "stay": False, "groups": 1}
    plan = plan_of("scan-long", {"N": 2**20}, 1, values)
    x = numbers(plan, 5)
    sums = np.cumsum(x, axis=1, dtype=np.longdouble)
    assert abs(run(plan, x, order="forward") - sums).max() <= 3 * 2.0**-24 * abs(sums).max()


wide = st.integers(-(2**31), 2**31 - 1)


@needs_compiler
@pytest.mark.parametrize("values", [{"shuffle": True}, {"shuffle": False, "r": 4}])
@each_short
@FEW
@given(x=st.lists(wide, min_size=21, max_size=21))
def test_sums_obey_their_laws(name: str, values: Values, x: list[int]) -> None:
    """Modulo 2^32, sums of parts add up, and a sum without its element is the one before."""
    inclusive, exclusive = (
        plan_of(name, {"N": 21, "dtype": "int32", "form": form}, 3, {"P": 4, "L": 64, **values})
        for form in FORMS
    )
    rows = np.array([x, x[::-1], [0] * 21]).astype(np.int32)
    rows[2] = rows[0] + rows[1]
    sums, before = (run(plan, rows, order="forward") for plan in (inclusive, exclusive))
    np.testing.assert_array_equal(sums[2], sums[0] + sums[1])
    np.testing.assert_array_equal(before[:, 1:], sums[:, :-1])
    np.testing.assert_array_equal(before + rows, sums)


# --- what tiles tell each other ------------------------------------------------------------------

BEFORE = """
#include "operators.cuh"
#include "look_back.cuh"
template <int groups>
__global__ void before(Word* board, double* found, int first, int tile) {
    const double sum = look_back<Sum<float>, groups, 0>(Board<double>{board}, first, tile, threadIdx.x);
    if (threadIdx.x == 0) *found = sum;
}
__global__ void told(Word* board, unsigned* stage) { *stage = Board<double>{board}.told_by(0).stage; }
"""


def board_source() -> Source:
    return Source("before.cu", BEFORE, tuple(sorted(headers_of("common", "scan-long").items())))


def words(stages: Array, values: Array) -> Array:
    """What tiles tell: the stage beside each half of a double."""
    halves = values.astype(np.float64).view(np.uint32).astype(np.uint64)
    return (np.repeat(stages.astype(np.uint64), 2) << np.uint64(32)) | halves


@needs_compiler
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_looking_back_joins_totals_up_to_the_first_that_knows_all(groups: int) -> None:
    """Wherever the nearest tile is that knows all, what comes before is its sum and the totals behind it."""
    rng = np.random.default_rng(groups)
    for knowing in (0, 1, 31, 32, 33, 170, 299):
        first, tile = 5, 305
        own = rng.integers(1, 1000, 300).astype(float)
        stages = np.ones(300, int)
        stages[[0, knowing]] = 2
        told = own.copy()
        told[knowing] = own[: knowing + 1].sum()
        board = np.concatenate([np.full(2 * first, 2**63, np.uint64), words(stages, told)])
        found = np.zeros(1)
        arguments: list[host_build.Argument] = [board, found, first, tile]
        host_build.run(board_source(), f"before<{groups}>", 1, 32, 0, arguments, flags=CHECKED)
        assert found[0] == own.sum()


@needs_compiler
def test_a_value_that_is_being_written_is_not_taken() -> None:
    """Words of two stages are nothing yet; words of one stage are a value."""
    for stages, expected in (([1, 1], 1), ([2, 2], 2), ([2, 1], 0), ([1, 0], 0), ([0, 2], 0)):
        board = np.array([(stage << 32) + 7 for stage in stages], np.uint64)
        found = np.full(1, 9, np.uint32)
        host_build.run(board_source(), "told", 1, 1, 0, [board, found])
        assert found[0] == expected


# --- launches ------------------------------------------------------------------------------------


def test_plans_cover_every_row() -> None:
    """Tiles cover each row once, and the board has a counter and words for every tile."""
    for N, batch in ((2**31, 1), (2**20 + 1, 3), (5, 2)):
        plan = plan_of("scan-long", {"N": N}, batch)
        (stage,) = plan.stages
        of_row = -(-N // (int(plan.configuration["P"]) * int(plan.configuration["L"])))
        assert stage.grid == (batch * of_row, 1, 1)
        board = next(buffer for buffer in plan.buffers if buffer.name == "board")
        assert (board.role, board.shape) == ("zeroed", (1 + 2 * batch * of_row,))


def occupied(plan: Plan) -> int:
    """Threads whose shared memory fits on a multiprocessor of compute capability 9.0."""
    (stage,) = plan.stages
    assert stage.declared is not None
    taken = stage.shared_bytes + stage.declared.static_shared_bytes + 1024
    return 228 * 1024 // (-(-taken // 128) * 128) * stage.threads_per_block


def test_cap_holds_as_many_threads_as_it_says() -> None:
    """Spare shared memory lets in the threads asked for, and not a block more."""
    kernel = kernel_of("scan-lf")
    workload = kernel.workload({"N": 2048})
    capped = [configuration for configuration in kernel.space(workload) if configuration["cap"]]
    assert {c["cap"] for c in capped} >= {512, 1024, 1536}
    for configuration in capped:
        assert occupied(kernel.plan(workload, configuration)) == configuration["cap"], configuration
