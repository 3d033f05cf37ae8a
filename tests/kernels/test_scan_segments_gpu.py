"""Scans of segments and linear recurrences on a GPU: right in every type, launch after launch."""

import itertools
from typing import Any

import numpy as np
import pytest
from gpu_kernels import architecture
from long_scans import DTYPES, FORMS, OPERATORS, WAYS, error, numbers
from stressed_launches import wrong_launches

import tuner
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.source_folder import kernels_root
from tuner.model.elements import bfloat16_bits, bfloat16_values
from tuner.model.plan import Configuration, Plan

pytestmark = pytest.mark.gpu

CATALOG = Catalog.load(search_path=[kernels_root()])
LENGTH = 300_007
ENDS = 2001
LAUNCHES = 2000
STRESSED = 2**22  # elements
LONGEST = 2**30 + 12_345
CHUNK = 2**26

WAYS_TO_SCAN: list[dict[str, Any]] = [
    {"P": 4, "L": 256, "stay": False, "groups": 1},
    {"P": 4, "L": 256, "stay": True, "groups": 1},
    {"P": 8, "L": 128, "stay": False, "groups": 2},
    {"P": 16, "L": 512, "stay": False, "groups": 1},
]


def first_with(name: str, sizes: dict[str, Any], values: dict[str, Any]) -> Configuration:
    kernel = CATALOG.kernel(name)
    space = kernel.space(kernel.workload(sizes, 1))
    return next(c for c in space if values.items() <= dict(c).items())


def segments(name: str, batch: int, index: str) -> tuple[Any, Any]:
    """Flags or offsets of random segments, some of them empty, and where they begin."""
    rng = np.random.default_rng(batch)
    inner = np.sort(rng.integers(0, LENGTH + 1, (batch, ENDS - 2)), axis=1)
    inner[:, 100:110] = inner[:, [100]]
    offsets = np.pad(inner, ((0, 0), (1, 1)), constant_values=((0, 0), (0, LENGTH)))
    heads = np.zeros((batch, LENGTH + 1), bool)
    heads[np.arange(batch)[:, None], offsets] = True
    heads = heads[:, :-1]
    return (heads.astype(np.uint8) if name == "scan-flags" else offsets.astype(index)), heads


@pytest.mark.parametrize("name", ["scan-flags", "scan-offsets"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_segments_are_right_in_every_type(cp: Any, name: str, dtype: str) -> None:
    """Every operator of a type, forms, directions and ways in turn, is right to rounding, or exact."""
    kernel = CATALOG.kernel(name)
    for k, operator in enumerate(OPERATORS):
        sizes: dict[str, str] = {"operator": operator, "form": FORMS[k % 2], "direction": WAYS[k // 2 % 2]}
        batch, index = 1 + k % 2, ["int32", "int64"][k % 2]
        given: dict[str, int | str] = {"N": LENGTH, "dtype": dtype, **sizes}
        if name == "scan-offsets":
            given |= {"ends": ENDS, "index": index}
        workload = kernel.workload(given, batch)
        values = kernel.default(workload) if k % 2 else first_with(name, given, WAYS_TO_SCAN[k // 2 % 3])
        plan = kernel.plan(workload, values)
        assert error_of(cp, plan, sizes, segments(name, batch, index), k) <= 1, str(workload)


def error_of(cp: Any, plan: Plan, sizes: dict[str, str], told: tuple[Any, Any], seed: int) -> float:
    """Of a plan on random rows whose segments are told so."""
    x, (second, heads) = numbers(plan, seed), told
    dtype = str(dict(plan.workload.sizes)["dtype"])
    bits = dtype == "bfloat16"
    arrays = cp.asarray(bfloat16_bits(x) if bits else x), cp.asarray(second)
    configuration = dict(plan.configuration)
    y = tuner.apply(plan.workload.kernel, *arrays, configuration=configuration, dtype=dtype, **sizes).get()
    return error(plan, x, bfloat16_values(y) if bits else y, heads)


def needs_pipeline(cp: Any) -> None:
    if architecture(cp) < 90:
        pytest.skip("needs compute capability 9.0")


@pytest.mark.parametrize("dtype", DTYPES)
def test_segments_are_right_by_the_pipeline(cp: Any, dtype: str) -> None:
    """Every operator of a type, forms, directions and pipelines in turn, is right to rounding, or exact."""
    needs_pipeline(cp)
    kernel = CATALOG.kernel("scan-flags")
    for k, operator in enumerate(OPERATORS):
        sizes: dict[str, str] = {"operator": operator, "form": FORMS[k % 2], "direction": WAYS[k // 2 % 2]}
        workload = kernel.workload({"N": LENGTH, "dtype": dtype, **sizes}, 1)
        pipelines = [c for c in kernel.space(workload) if c["slots"]]
        plan = kernel.plan(workload, pipelines[7 * k % len(pipelines)])
        assert error_of(cp, plan, sizes, segments("scan-flags", 1, "int32"), k) <= 1, plan.label()


def maps(cp: Any, shape: tuple[int, int], dtype: str) -> tuple[Any, Any]:
    """Factors of -1 and 1, and small whole numbers: no answer is rounded, and any other order differs."""
    rng = cp.random.default_rng(1)
    a = 2 * rng.integers(0, 2, shape).astype(cp.int8) - 1
    return a.astype(dtype), rng.integers(-3, 4, shape).astype(dtype)


def composed(cp: Any, a: Any, b: Any, before: Any = 0) -> Any:
    """The recurrence of such a row: the signs so far, times the sum of the numbers by theirs."""
    signs = 1 - 2 * (cp.cumsum(a[0] < 0, dtype=cp.int64) % 2)
    return signs * (before + cp.cumsum(signs * b[0].astype(cp.int64)))


@pytest.mark.parametrize(("dtype", "way"), list(itertools.product(["float32", "float64"], WAYS)))
def test_recurrences_are_exact(cp: Any, dtype: str, way: str) -> None:
    """Recurrences without rounding are right to the last bit in every way and direction."""
    for N, values in itertools.product((1_000_003, 2**22), WAYS_TO_SCAN[:3]):
        a, b = maps(cp, (1, N), dtype)
        back = slice(None, None, -1 if way == "reverse" else 1)
        right = composed(cp, a[:, back], b[:, back])[back]
        configuration = first_with("linear-recurrence", {"N": N, "dtype": dtype, "direction": way}, values)
        y = tuner.apply("linear-recurrence", a, b, configuration=dict(configuration), direction=way)
        assert bool((y[0] == right).all()), (N, values)


@pytest.mark.parametrize("values", WAYS_TO_SCAN[1:], ids=str)
def test_the_longest_recurrences_are_exact(cp: Any, values: dict[str, Any]) -> None:
    """Every element of a row of more than 2^30 is right."""
    if cp.cuda.runtime.memGetInfo()[0] < 14 * LONGEST:
        pytest.skip("not enough memory")
    a, b = cp.empty((1, LONGEST), cp.float32), cp.empty((1, LONGEST), cp.float32)
    for start in range(0, LONGEST, CHUNK):
        part = slice(start, min(start + CHUNK, LONGEST))
        a[:, part], b[:, part] = maps(cp, (1, part.stop - start), "float32")
    configuration = first_with("linear-recurrence", {"N": LONGEST}, values)
    y = tuner.apply("linear-recurrence", a, b, configuration=dict(configuration))
    before = 0
    for start in range(0, LONGEST, CHUNK):
        part = slice(start, start + CHUNK)
        right = composed(cp, a[:, part], b[:, part], before)
        assert bool((y[0, part] == right).all())
        before = right[-1]
    del a, b, y
    cp.get_default_memory_pool().free_all_blocks()


def stressed(cp: Any, name: str) -> tuple[tuple[Any, ...], Any, dict[str, Any]]:
    """Inputs, their exact answer, and sizes: what tiles tell has 3 or 4 words."""
    if name == "linear-recurrence":
        a, b = maps(cp, (1, STRESSED), "float64")
        return (a, b), composed(cp, a, b)[None].astype(cp.float64), {"dtype": "float64"}
    rng = cp.random.default_rng(2)
    x = rng.integers(-(2**31), 2**31, (1, STRESSED)).astype(cp.int64)
    heads = (rng.random((1, STRESSED)) < 1e-5).astype(cp.uint8)
    heads[0, 0] = 1
    sums = cp.cumsum(x[0])
    starts = cp.flatnonzero(heads[0])
    right = sums - (sums - x[0])[starts[cp.cumsum(heads[0], dtype=cp.int64) - 1]]
    return (x, heads), right[None], {"dtype": "int64"}


@pytest.mark.parametrize("name", ["linear-recurrence", "scan-flags"])
@pytest.mark.parametrize("values", [*WAYS_TO_SCAN[:3], {"slots": 8}], ids=str)
def test_launches_give_the_same_answer_every_time(cp: Any, name: str, values: dict[str, Any]) -> None:
    """Thousands of launches of two scans at a time, beside copies, agree to the last bit."""
    if "slots" in values:
        needs_pipeline(cp)
    arrays, right, sizes = stressed(cp, name)
    configuration = dict(first_with(name, {"N": STRESSED, **sizes}, values))
    outs = [cp.empty_like(right) for _ in range(2)]
    plans = [tuner.plan(name, *arrays, out=y, configuration=configuration) for y in outs]
    assert wrong_launches(cp, plans, outs, right, LAUNCHES) == [0, 0]
