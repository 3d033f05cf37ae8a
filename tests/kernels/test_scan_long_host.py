"""The scan of long rows: right on the host for every operator, type and order, and lean as compiled."""

import random
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import numpy.typing as npt
import pytest
from compiled_stages import compiled_stages
from long_scans import DTYPES, FORMS, OPERATORS, WAYS, error, numbers

from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.elements import bfloat16_bits, bfloat16_values
from tuner.model.plan import Plan, Source, TunableValue

Array = npt.NDArray[Any]
FOLDER = Path(__file__).parents[2] / "kernels"
KERNEL = load_kernel_file(FOLDER / "scan-long" / "kernel.toml")
LENGTHS = [2, 31, 253, 1000, 5000, 40_001]
LARGEST = 2**31

needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def plan_of(sizes: dict[str, int | str], batch: int, **values: TunableValue) -> Plan:
    """The first configuration of the space that has these values."""
    workload = KERNEL.workload(sizes, batch)
    fits = (c for c in KERNEL.space(workload) if values.items() <= dict(c).items())
    return KERNEL.plan(workload, next(fits))


def run(plan: Plan, x: Array, order: host_build.Order = "forward") -> Array:
    """The scan of rows, as numbers; those of bfloat16 are given and taken as float32."""
    bits = plan.buffers[0].dtype == "bfloat16"
    given = bfloat16_bits(x) if bits else x
    (y,) = host_build.run_plan_on_host(plan, {"x": given}, order=order).values()
    return bfloat16_values(y) if bits else y


def sampled(N: int, count: int) -> list[Plan]:
    """Configurations of random types, operators and forms: each way to exchange totals in turn."""
    rng = random.Random(f"long {N}")  # noqa: S311 - reproducible
    plans = []
    for k in range(count):
        sizes: dict[str, int | str] = {
            "N": N,
            "dtype": DTYPES[k % len(DTYPES)],
            "operator": OPERATORS[(k + N) % len(OPERATORS)],
            "form": rng.choice(FORMS),
            "direction": rng.choice(WAYS),
        }
        workload = KERNEL.workload(sizes, rng.choice([1, 3]))
        way = [{"shuffle": True, "stay": False}, {"shuffle": True, "stay": True}, {"shuffle": False}][k % 3]
        space = [c for c in KERNEL.space(workload) if way.items() <= dict(c).items() and int(c["P"]) <= 16]
        if space:
            plans.append(KERNEL.plan(workload, rng.choice(space)))
    return plans


@needs_compiler
@pytest.mark.parametrize("N", LENGTHS)
def test_every_operator_is_right_in_every_type(N: int) -> None:
    """At any length, in any type, form and way, rows are right to rounding, or exact, in every order."""
    plans = sampled(N, 8)
    host_build.build_plans(plans)
    for k, plan in enumerate(plans):
        x = numbers(plan, k)
        y = run(plan, x, host_build.ORDERS[k % len(host_build.ORDERS)])
        assert error(plan, x, y) <= 1, (str(plan.workload), plan.label())


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
    headers = {
        path.name: path.read_text()
        for folder in ("common", "scan-long")
        for path in (FOLDER / folder).glob("*.cuh")
    }
    return Source("before.cu", BEFORE, tuple(sorted(headers.items())))


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
        host_build.run(board_source(), f"before<{groups}>", 1, 32, 0, arguments, flags=host_build.CHECKED)
        assert found[0] == own.sum()


@needs_compiler
def test_a_value_that_is_being_written_is_not_taken() -> None:
    """Words of two stages are nothing yet; words of one stage are a value."""
    for stages, expected in (([1, 1], 1), ([2, 2], 2), ([2, 1], 0), ([1, 0], 0), ([0, 2], 0)):
        board = np.array([(stage << 32) + 7 for stage in stages], np.uint64)
        found = np.full(1, 9, np.uint32)
        host_build.run(board_source(), "told", 1, 1, 0, [board, found])
        assert found[0] == expected


@needs_compiler
@pytest.mark.parametrize(
    "values",
    [{"shuffle": True, "stay": True, "L": 64}, {"shuffle": False, "P": 8}, {"shuffle": True, "L": 32}],
)
@pytest.mark.parametrize("operator", ["sum", "min", "product"])
def test_a_broken_row_spoils_no_other(values: dict[str, TunableValue], operator: str) -> None:
    """NaN stays from where it stands on, to the end of its row; infinity likewise in sums."""
    plan = plan_of({"N": 5000, "operator": operator}, 3, **values)
    for broken in (np.nan, np.inf):
        x = numbers(plan, 2)
        whole = run(plan, x, "shuffle")
        x[1, 3333] = broken
        y = run(plan, x, "shuffle")
        np.testing.assert_array_equal(y[[0, 2]], whole[[0, 2]])
        np.testing.assert_array_equal(y[1, :3333], whole[1, :3333])
        if np.isnan(broken) or operator == "sum":
            assert not np.isfinite(y[1, 3333:]).any()
            assert np.isinf(broken) or np.isnan(y[1, 3333:]).all()


@needs_compiler
def test_sums_beyond_the_largest_float_come_back() -> None:
    """What lies before a tile may exceed float, as it is a double; sums that float holds are right again."""
    plan = plan_of({"N": 8192}, 1, P=4, L=256, shuffle=True, stay=False)
    x = np.zeros((1, 8192), np.float32)
    x[0, [0, 1024, 2048, 3072]] = [3e38, 3e38, -3e38, -3e38]
    x[0, 4096] = 1
    y = run(plan, x)
    assert np.isinf(y[0, 1024:2048]).all()
    np.testing.assert_allclose(y[0, 2048:3072], 3e38, rtol=1e-6)
    np.testing.assert_array_equal(y[0, 4096:], 1)


@needs_compiler
def test_errors_do_not_grow_with_tiles() -> None:
    """A row of a thousand tiles is as right as one of a few, to 3 units of roundoff of its largest sum."""
    plan = plan_of({"N": 2**20}, 1, P=4, L=256, shuffle=True, stay=False, groups=1)
    x = numbers(plan, 5)
    sums = np.cumsum(x, axis=1, dtype=np.longdouble)
    assert abs(run(plan, x) - sums).max() <= 3 * 2.0**-24 * abs(sums).max()


def test_spaces_are_worth_a_search() -> None:
    """Every length and type has its default in its space, of at most 1000; there are 250 at the largest."""
    for N in [2, 3, 100, 8191, 2**20, 2**24 + 1, LARGEST]:
        for dtype in DTYPES:
            for batch in (1, 3):
                workload = KERNEL.workload({"N": N, "dtype": dtype}, batch)
                space = KERNEL.space(workload)
                assert KERNEL.default(workload) in space, (N, dtype, batch)
                assert len(space) <= 1000
    space = KERNEL.space(KERNEL.workload({"N": LARGEST}))
    assert len(space) >= 250
    for tunable in KERNEL.tunables:
        assert len({configuration.get(tunable) for configuration in space}) >= 2, tunable


def test_plans_cover_every_row() -> None:
    """Tiles cover each row once, and the board has a counter and words for every tile."""
    for N, batch in ((LARGEST, 1), (2**20 + 1, 3), (5, 2)):
        workload = KERNEL.workload({"N": N}, batch)
        plan = KERNEL.plan(workload, KERNEL.default(workload))
        (stage,) = plan.stages
        of_row = -(-N // (int(plan.configuration["P"]) * int(plan.configuration["L"])))
        assert stage.grid == (batch * of_row, 1, 1)
        board = next(buffer for buffer in plan.buffers if buffer.name == "board")
        assert (board.role, board.shape) == ("zeroed", (1 + 2 * batch * of_row,))


@pytest.mark.parametrize("architecture", ["sm_53", "sm_90", "sm_120"])
def test_defaults_spill_nothing(architecture: str, cubins: Path) -> None:
    """Of every type and operator the default fits its registers, and shared memory is as declared."""
    sizes: list[dict[str, int | str]] = [
        {"N": 2**24, "dtype": DTYPES[k % len(DTYPES)], "operator": OPERATORS[k // len(DTYPES)], "form": form}
        for k, form in zip(range(len(DTYPES) * len(OPERATORS)), FORMS * 100, strict=False)
    ]
    plans = [KERNEL.plan(w, KERNEL.default(w)) for w in (KERNEL.workload(s, 1) for s in sizes)]
    results = compiled_stages([plan.stages[0] for plan in plans], architecture, cubins)
    for plan, result in zip(plans, results, strict=True):
        resources, declared = result.resources, plan.stages[0].declared
        assert declared is not None
        assert (resources.spill_bytes, resources.local_bytes) == (0, 0), plan.label()
        assert resources.static_shared_bytes <= declared.static_shared_bytes, plan.label()
        assert resources.registers_per_thread <= 72, plan.label()
