"""The scan of long rows on a GPU: right for every operator, type and length, launch after launch."""

import itertools
import random
from typing import Any, NamedTuple

import pytest
from gpu_kernels import architecture, compile_ahead
from long_scans import DTYPES, FORMS, OPERATORS, WAYS, error, numbers
from stressed_launches import wrong_launches

import tuner
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.source_folder import kernels_root
from tuner.model.elements import bfloat16_bits, bfloat16_values
from tuner.model.plan import Configuration, Plan

pytestmark = pytest.mark.gpu

KERNEL = Catalog.load(search_path=[kernels_root()]).kernel("scan-long")
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
FIRST, LAST = 0, -1  # of the pipelines


def configuration_of(sizes: dict[str, Any], way: dict[str, Any] | int) -> Configuration:
    """The first with such values, or the pipeline of that number."""
    space = KERNEL.space(KERNEL.workload(sizes, 1))
    if isinstance(way, int):
        return [c for c in space if int(c.get("slots", 0)) > 0][way]
    return next(c for c in space if way.items() <= dict(c).items())


class Case(NamedTuple):
    """Rows of a length, type and operator, and whether the default, a drawn one or a pipeline scans them."""

    dtype: str
    operator: str
    k: int
    which: str
    N: int
    batch: int

    def plan(self) -> Plan:
        sizes: dict[str, int | str] = {"N": self.N, "dtype": self.dtype, "operator": self.operator}
        sizes |= {"form": FORMS[self.k % 2], "direction": WAYS[self.k // 2 % 2]}  # they take turns
        workload = KERNEL.workload(sizes, self.batch)
        space = KERNEL.space(workload)
        if self.which == "default":
            return KERNEL.plan(workload, KERNEL.default(workload))
        if self.which == "drawn":
            few = [c for c in space if int(c["P"]) <= 16]
            return KERNEL.plan(workload, random.Random(self.k).choice(few))  # noqa: S311 - a sample, not a secret
        found = [c for c in space if int(c.get("slots", 0)) > 0]
        return KERNEL.plan(workload, found[7 * self.k % len(found)])


CASES = [
    Case(dtype, operator, k, *way)
    for k, (dtype, operator) in enumerate(itertools.product(DTYPES, OPERATORS))
    for way in (
        ("drawn", 1_000_003, 2),
        ("default", 2**20, 1),
        ("pipeline", 1_000_003, 1),  # the last tile is short
        ("pipeline", 2**18, 5),
    )
]
"""Every type with every operator, four times."""


def can_run(cp: Any, pipeline: bool) -> bool:
    """Whether the GPU has the instructions of the pipeline, where it is one."""
    return not pipeline or architecture(cp) >= 90


@pytest.fixture(scope="module")
def plans(cp: Any) -> dict[Case, Plan]:
    """The plan of each case; their code is in the cache on disk, by all cores at once."""
    found = {case: case.plan() for case in CASES if can_run(cp, case.which == "pipeline")}
    compile_ahead(cp, found.values())
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_operator_is_right_in_every_type(cp: Any, plans: dict[Case, Plan], case: Case) -> None:
    """Rows answer to rounding, or exactly, in every type, form and way."""
    if case not in plans:
        pytest.skip("needs compute capability 9.0")
    plan = plans[case]
    x = numbers(plan, 3)
    sizes = {name: str(value) for name, value in plan.workload.sizes if name != "N"}
    bits = case.dtype == "bfloat16"
    given = cp.asarray(bfloat16_bits(x) if bits else x)
    y = tuner.apply("scan-long", given, configuration=dict(plan.configuration), **sizes).get()
    assert error(plan, x, bfloat16_values(y) if bits else y) <= 1


@pytest.mark.parametrize("N", [2**30 + 12_345, 2**31])
@pytest.mark.parametrize("values", WAYS_TO_SCAN[1:4], ids=str)
def test_the_longest_rows_are_right_to_rounding(cp: Any, N: int, values: dict[str, Any]) -> None:
    """Every sum of a row of up to 2^31 numbers is right within 1e-6 of the largest one."""
    free_memory(cp, 9 * N)
    rng = cp.random.default_rng(1)
    x = cp.empty(N, cp.float32)
    for start in range(0, N, CHUNK):
        part = x[start : start + CHUNK]
        part[:] = 2 * rng.random(part.size, dtype=cp.float32) - 1
    y = tuner.apply("scan-long", x, configuration=dict(configuration_of({"N": N}, values)))
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


def test_the_longest_row_is_right_by_the_pipeline(cp: Any) -> None:
    """The sums of a row of 2^31 whole numbers are exact."""
    if not can_run(cp, pipeline=True):
        pytest.skip("needs compute capability 9.0")
    N = 2**31
    free_memory(cp, 9 * N)
    x = cp.ones(N, cp.int32)
    y = tuner.apply("scan-long", x, configuration=dict(configuration_of({"N": N, "dtype": "int32"}, FIRST)))
    for start in range(0, N, CHUNK):
        part = y[start : start + CHUNK]
        right = cp.arange(start + 1, start + 1 + part.size, dtype=cp.int64).astype(cp.int32)
        assert bool((part == right).all())
    del x, y, part
    cp.get_default_memory_pool().free_all_blocks()


def free_memory(cp: Any, wanted: int) -> None:
    """Skip the test where the GPU has less."""
    if cp.cuda.runtime.memGetInfo()[0] < wanted:
        pytest.skip("not enough memory")
    cp.get_default_memory_pool().free_all_blocks()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("way", [*WAYS_TO_SCAN, FIRST, LAST], ids=str)
def test_launches_give_the_same_answer_every_time(cp: Any, dtype: str, way: Any) -> None:
    """Thousands of launches, beside copies and another scan in other streams, agree to the last bit.

    A value of int32 is one word of what tiles tell, one of int64 is two.
    """
    if not can_run(cp, isinstance(way, int)):
        pytest.skip("needs compute capability 9.0")
    rng = cp.random.default_rng(2)
    x = rng.integers(-(2**31), 2**31, STRESSED).astype(dtype)
    configuration = dict(configuration_of({"N": STRESSED, "dtype": dtype}, way))
    outs = [cp.empty_like(x) for _ in range(2)]
    plans = [tuner.plan("scan-long", x, out=y, configuration=configuration) for y in outs]
    assert wrong_launches(cp, plans, outs, cp.cumsum(x, dtype=dtype), LAUNCHES) == [0, 0]
