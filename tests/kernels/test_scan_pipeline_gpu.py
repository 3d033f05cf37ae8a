"""The pipeline of scan-long on a GPU: right for every type and operator, beside itself and other work."""

import itertools
from typing import Any

import pytest
from gpu_kernels import architecture
from long_scans import DTYPES, FORMS, OPERATORS, WAYS, error, numbers

import tuner
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.source_folder import kernels_root
from tuner.model.elements import bfloat16_bits, bfloat16_values
from tuner.model.plan import Configuration, Plan

pytestmark = pytest.mark.gpu

KERNEL = Catalog.load(search_path=[kernels_root()]).kernel("scan-long")
LENGTHS = ((1_000_003, 1), (2**18, 5))  # the first one's last tile is short
LAUNCHES = 10_000
STRESSED = 2**22  # elements


@pytest.fixture(scope="module")
def cp(cp: Any) -> Any:
    """Where the GPU has the instructions of the pipeline."""
    if architecture(cp) < 90:
        pytest.skip("needs compute capability 9.0")
    return cp


def pipelines(sizes: dict[str, Any], batch: int) -> list[Configuration]:
    space = KERNEL.space(KERNEL.workload(sizes, batch))
    return [c for c in space if int(c.get("slots", 0)) > 0]


def cases() -> list[Plan]:
    """Every type with every operator at both lengths, forms, ways and configurations in turn."""
    plans = []
    for k, (dtype, operator) in enumerate(itertools.product(DTYPES, OPERATORS)):
        for N, batch in LENGTHS:
            sizes: dict[str, int | str] = {"N": N, "dtype": dtype, "operator": operator}
            sizes |= {"form": FORMS[k % 2], "direction": WAYS[k // 2 % 2]}
            found = pipelines(sizes, batch)
            plans.append(KERNEL.plan(KERNEL.workload(sizes, batch), found[7 * k % len(found)]))
    return plans


@pytest.mark.parametrize("plan", cases(), ids=lambda plan: f"{plan.workload} {plan.label()}")
def test_every_operator_is_right_in_every_type(cp: Any, plan: Plan) -> None:
    """Rows are right to rounding, or exactly, in every type, form and way."""
    x = numbers(plan, 3)
    sizes = {name: str(value) for name, value in plan.workload.sizes if name != "N"}
    bits = sizes["dtype"] == "bfloat16"
    given = cp.asarray(bfloat16_bits(x) if bits else x)
    y = tuner.apply("scan-long", given, configuration=dict(plan.configuration), **sizes).get()
    assert error(plan, x, bfloat16_values(y) if bits else y) <= 1


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("nth", [0, -1])
def test_launches_give_the_same_answer_every_time(cp: Any, dtype: str, nth: int) -> None:
    """Thousands of launches, in two streams that share the GPU with copies, agree to the last bit."""
    rng = cp.random.default_rng(2)
    x = rng.integers(-(2**31), 2**31, STRESSED).astype(dtype)
    configuration = dict(pipelines({"N": STRESSED, "dtype": dtype}, 1)[nth])
    expected = cp.cumsum(x, dtype=dtype)
    junk = cp.zeros((2, 2**22), cp.float32)
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
    outs = [cp.empty_like(x) for _ in range(2)]
    wrong = [cp.zeros((), cp.int64) for _ in outs]
    plans = [tuner.plan("scan-long", x, out=y, configuration=configuration) for y in outs]
    cp.cuda.runtime.deviceSynchronize()
    for launch in range(LAUNCHES // 2):
        if launch % 2:
            with streams[2]:
                cp.copyto(junk[0], junk[1])
        for stream, y, plan, count in zip(streams, outs, plans, wrong, strict=False):
            with stream:
                y.fill(-1)
                plan()
                cp.add(count, (y != expected).any(), out=count)
        if launch % 100 == 0:
            cp.cuda.runtime.deviceSynchronize()
    cp.cuda.runtime.deviceSynchronize()
    assert [int(count) for count in wrong] == [0, 0]


def test_the_longest_row_is_right_to_rounding(cp: Any) -> None:
    """The last sums of a row of 2^31 whole numbers are exact."""
    N = 2**31
    if cp.cuda.runtime.memGetInfo()[0] < 9 * N:
        pytest.skip("not enough memory")
    cp.get_default_memory_pool().free_all_blocks()
    x = cp.ones(N, cp.int32)
    y = tuner.apply("scan-long", x, configuration=dict(pipelines({"N": N, "dtype": "int32"}, 1)[0]))
    for start in range(0, N, 2**26):
        part = y[start : start + 2**26]
        assert bool(
            (part == cp.arange(start + 1, start + 1 + part.size, dtype=cp.int64).astype(cp.int32)).all()
        )
    del x, y, part
    cp.get_default_memory_pool().free_all_blocks()
