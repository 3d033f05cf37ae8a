"""The scan of long rows on a GPU: right for every operator, type and length, launch after launch."""

import itertools
import random
from typing import Any

import pytest
from gpu_kernels import compile_ahead
from long_scans import DTYPES, FORMS, OPERATORS, WAYS, error, numbers
from stressed_launches import wrong_launches

import tuner
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.source_folder import kernels_root
from tuner.model.elements import bfloat16_bits, bfloat16_values
from tuner.model.plan import Configuration, Plan

pytestmark = pytest.mark.gpu

KERNEL = Catalog.load(search_path=[kernels_root()]).kernel("scan-long")
LENGTHS = (1_000_003, 2**20)
LAUNCHES = 10_000
STRESSED = 2**22  # elements
CHUNK = 2**26

WAYS_TO_SCAN: list[dict[str, Any]] = [
    {"P": 4, "L": 256, "shuffle": True, "stay": False, "groups": 1, "pause": 0},
    {"P": 4, "L": 256, "shuffle": True, "stay": False, "groups": 4, "pause": 0},
    {"P": 4, "L": 256, "shuffle": True, "stay": True, "groups": 2, "pause": 100},
    {"P": 16, "L": 64, "shuffle": True, "stay": True, "groups": 1, "pause": 0},
    {"P": 16, "L": 512, "shuffle": True, "stay": False, "groups": 1, "pause": 100},
    {"P": 8, "L": 256, "shuffle": False},
]


def first_with(sizes: dict[str, Any], values: dict[str, Any]) -> Configuration:
    space = KERNEL.space(KERNEL.workload(sizes, 1))
    return next(c for c in space if values.items() <= dict(c).items())


CASES = [
    (dtype, operator, k, last)
    for k, (dtype, operator) in enumerate(itertools.product(DTYPES, OPERATORS))
    for last in (False, True)
]
"""Every type with every operator, twice."""


def planned(dtype: str, operator: str, k: int, last: bool) -> Plan:
    """A drawn configuration of rows of the first length, or the default of one row of the last."""
    N, batch = LENGTHS[last], 1 if last else 2
    sizes: dict[str, int | str] = {"N": N, "dtype": dtype, "operator": operator}
    ways = {"form": FORMS[k % 2], "direction": WAYS[k // 2 % 2]}  # they take turns
    workload = KERNEL.workload({**sizes, **ways}, batch)
    if last:
        return KERNEL.plan(workload, KERNEL.default(workload))
    few = [c for c in KERNEL.space(workload) if int(c["P"]) <= 16]
    return KERNEL.plan(workload, random.Random(k).choice(few))  # noqa: S311 - a sample, not a secret


@pytest.fixture(scope="module")
def plans(cp: Any) -> dict[tuple[str, str, int, bool], Plan]:
    """The plan of each case; their code is in the cache on disk, by all cores at once."""
    found = {case: planned(*case) for case in CASES}
    compile_ahead(cp, found.values())
    return found


def applied(cp: Any, x: Any, values: dict[str, Any], **sizes: str) -> Any:
    return tuner.apply("scan-long", cp.asarray(x), configuration=values, **sizes)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_operator_is_right_in_every_type(
    cp: Any, plans: dict[tuple[str, str, int, bool], Plan], case: tuple[str, str, int, bool]
) -> None:
    """A default and a drawn configuration of every type and operator answer to rounding, or exactly."""
    plan = plans[case]
    x = numbers(plan, 3)
    sizes = {name: str(value) for name, value in plan.workload.sizes if name != "N"}
    bits = sizes["dtype"] == "bfloat16"
    y = applied(cp, bfloat16_bits(x) if bits else x, dict(plan.configuration), **sizes).get()
    assert error(plan, x, bfloat16_values(y) if bits else y) <= 1


@pytest.mark.parametrize("N", [2**30 + 12_345, 2**31])
@pytest.mark.parametrize("values", WAYS_TO_SCAN[1:4], ids=str)
def test_the_longest_rows_are_right_to_rounding(cp: Any, N: int, values: dict[str, Any]) -> None:
    """Every sum of a row of up to 2^31 numbers is right within 1e-6 of the largest one."""
    if cp.cuda.runtime.memGetInfo()[0] < 9 * N:
        pytest.skip("not enough memory")
    cp.get_default_memory_pool().free_all_blocks()
    rng = cp.random.default_rng(1)
    x = cp.empty(N, cp.float32)
    for start in range(0, N, CHUNK):
        part = x[start : start + CHUNK]
        part[:] = 2 * rng.random(part.size, dtype=cp.float32) - 1
    y = tuner.apply("scan-long", x, configuration=dict(first_with({"N": N}, values)))
    sum_before, largest, worst = cp.zeros((), cp.float64), cp.zeros(()), cp.zeros(())
    for start in range(0, N, CHUNK):
        sums = cp.cumsum(x[start : start + CHUNK], dtype=cp.float64)
        sums += sum_before
        largest = cp.maximum(largest, abs(sums).max())
        worst = cp.maximum(worst, abs(sums - y[start : start + CHUNK]).max())
        sum_before = sums[-1].copy()
    assert float(worst / largest) <= 1e-6
    del x, y
    cp.get_default_memory_pool().free_all_blocks()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("values", WAYS_TO_SCAN, ids=str)
def test_launches_give_the_same_answer_every_time(cp: Any, dtype: str, values: dict[str, Any]) -> None:
    """Thousands of launches, beside copies and another scan in other streams, agree to the last bit.

    A value of int32 is one word of what tiles tell, one of int64 is two.
    """
    rng = cp.random.default_rng(2)
    x = rng.integers(-(2**31), 2**31, STRESSED).astype(dtype)
    configuration = dict(first_with({"N": STRESSED, "dtype": dtype}, values))
    outs = [cp.empty_like(x) for _ in range(2)]
    plans = [tuner.plan("scan-long", x, out=y, configuration=configuration) for y in outs]
    assert wrong_launches(cp, plans, outs, cp.cumsum(x, dtype=dtype), LAUNCHES) == [0, 0]
