"""Scans by operators that are no numbers: linear recurrences, and a user's own operator, on the host."""

import re
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import numpy.typing as npt
import pytest
from host_build import ADDRESSES, FLAGS, ORDERS, Order
from kernel_runs import compare

from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.errors import KernelFileError
from tuner.model.plan import Plan, Source, TunableValue
from tuner.problems.stated import called

Array = npt.NDArray[Any]
ROOT = Path(__file__).parents[2]
KERNEL = load_kernel_file(ROOT / "kernels" / "linear-recurrence" / "kernel.toml")
LONG = 9001  # several tiles, the last not full
WAYS_TO_SCAN: tuple[dict[str, TunableValue], ...] = (
    {"P": 4, "L": 256, "stay": False},
    {"P": 4, "L": 256, "stay": True},
    {"P": 8, "L": 128, "stay": False, "groups": 2},
)

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def plan_of(sizes: dict[str, int | str], batch: int, **values: TunableValue) -> Plan:
    """The first configuration of the space that has these values."""
    workload = KERNEL.workload(sizes, batch)
    return KERNEL.plan(workload, next(c for c in KERNEL.space(workload) if values.items() <= dict(c).items()))


def run(plan: Plan, a: Array, b: Array, order: Order = "shuffle", flags: Any = FLAGS) -> Array:
    return host_build.run_plan_on_host(plan, {"a": a, "b": b}, order=order, flags=flags)["y"]


def one_by_one(a: Array, b: Array, way: str) -> Array:
    """The recurrence as it is written down, in the type of its factors."""
    y = np.zeros_like(b)
    steps = range(b.shape[1]) if way == "forward" else range(b.shape[1] - 1, -1, -1)
    before = np.zeros_like(b[:, 0])
    with np.errstate(all="ignore"):
        for i in steps:
            before = y[:, i] = a[:, i] * before + b[:, i]
    return y


def signs(shape: tuple[int, int], dtype: str, seed: int) -> tuple[Array, Array]:
    """Factors of -1 and 1, and small whole numbers: no answer is rounded, and any other order differs."""
    rng = np.random.default_rng(seed)
    return rng.choice([-1, 1], shape).astype(dtype), rng.integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("way", ["forward", "reverse"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_maps_are_composed_in_their_order(dtype: str, way: str) -> None:
    """Recurrences without rounding are exact over many tiles, in both directions and any order of threads."""
    sizes: dict[str, int | str] = {"N": LONG, "dtype": dtype, "direction": way}
    plans = [plan_of(sizes, 2, **values) for values in WAYS_TO_SCAN]
    host_build.build_plans(plans)
    a, b = signs((2, LONG), dtype, 1)
    for plan, order in zip(plans, ORDERS, strict=True):
        np.testing.assert_array_equal(run(plan, a, b, order), one_by_one(a, b, way))


@pytest.mark.parametrize("way", ["forward", "reverse"])
def test_exclusive_recurrences(way: str) -> None:
    """Exclusively, each answer is written one element later and the first is 0, by the reference as well."""
    N = 3001
    a, b = signs((2, N), "float32", 6)
    right = np.zeros_like(b)
    if way == "forward":
        right[:, 1:] = one_by_one(a, b, way)[:, :-1]
    else:
        right[:, :-1] = one_by_one(a, b, way)[:, 1:]
    plan = plan_of({"N": N, "form": "exclusive", "direction": way}, 2, P=4, L=256)
    np.testing.assert_array_equal(run(plan, a, b), right)
    function = plan.problem.function
    assert function is not None
    found = called(function, {"a": a, "b": b, "batch": 2, **dict(plan.workload.sizes)})
    np.testing.assert_array_equal(found, right)


def test_sanitizers_find_nothing() -> None:
    """What is read and written lies in the arrays, of rows whose length is no multiple of an access."""
    plan = plan_of({"N": 253, "direction": "reverse"}, 2, P=4, L=64, stay=True)
    a, b = signs((2, 253), "float32", 2)
    np.testing.assert_array_equal(run(plan, a, b, flags=ADDRESSES), one_by_one(a, b, "reverse"))


@pytest.mark.parametrize("extreme", [np.nan, np.inf, -np.inf, 1e37, 1e-42])
def test_extremes_stay_in_their_row(extreme: float) -> None:
    """Whatever stands in a row, other rows are the same to the last bit, and so is what lies before it."""
    plan = plan_of({"N": LONG}, 3, **WAYS_TO_SCAN[0])
    a, b = signs((3, LONG), "float32", 3)
    whole = run(plan, a, b)
    b[1, 5000] = extreme
    y = run(plan, a, b)
    np.testing.assert_array_equal(y[[0, 2]], whole[[0, 2]])
    np.testing.assert_array_equal(y[1, :5000], whole[1, :5000])
    right = one_by_one(a, b, "forward")[1, 5000:]
    np.testing.assert_array_equal(np.isnan(y[1, 5000:]), np.isnan(right))


@pytest.mark.parametrize(("dtype", "roundoff"), [("float32", 2.0**-24), ("float64", 2.0**-53)])
def test_decaying_recurrences_are_right_to_some_units_of_roundoff(dtype: str, roundoff: float) -> None:
    """With factors up to 0.9 errors stay below 16 units of roundoff of the largest answer."""
    plan = plan_of({"N": LONG, "dtype": dtype}, 2, **WAYS_TO_SCAN[0])
    rng = np.random.default_rng(4)
    a, b = (rng.uniform(-size, size, (2, LONG)).astype(dtype) for size in (0.9, 1.0))
    right = one_by_one(a.astype(np.longdouble), b.astype(np.longdouble), "forward")
    assert abs(run(plan, a, b) - right).max() <= 16 * roundoff * abs(right).max()


def test_a_zero_factor_begins_anew() -> None:
    """Behind a factor of zero nothing is left of what lies before, however far the tiles reach."""
    plan = plan_of({"N": LONG}, 1, **WAYS_TO_SCAN[2])
    a, b = signs((1, LONG), "float32", 5)
    a[0, 4321] = 0
    other = b.copy()
    other[0, :4321] = 7
    np.testing.assert_array_equal(run(plan, a, b)[0, 4321:], run(plan, a, other)[0, 4321:])


TOLD = """
#include "recurrence.cu"
__global__ void told(Word* board, unsigned* stage, double* sum) {
    const Told<Recurrence<double>::Item> found = Board<Recurrence<double>::Item>{board}.told_by(0);
    *stage = found.stage;
    *sum = found.value.factor + found.value.summand;
}
"""


@pytest.mark.parametrize("written", range(5))
def test_a_wide_item_is_taken_only_whole(written: int) -> None:
    """Of an item of 4 words, nothing is told before the last word has come to the next stage."""
    text = TOLD.replace('#include "recurrence.cu"', _recurrence().text)
    source = Source("told.cu", text, _recurrence().headers)
    halves = np.array([2.0, 40.0]).view(np.uint32).astype(np.uint64)
    stages = np.array([2] * written + [1] * (4 - written), np.uint64)
    stage, total = np.zeros(1, np.uint32), np.zeros(1)
    board = (stages << np.uint64(32)) | halves
    host_build.run(source, "told", 1, 1, 0, [board, stage, total])
    assert stage[0] == {0: 1, 4: 2}.get(written, 0)
    if stage[0]:
        assert total[0] == 42


def _recurrence() -> Source:
    return plan_of({"N": 64}, 1).stages[0].source


# --- the operator of docs/howto/scan-operator.md -------------------------------------------------


def written_out(folder: Path) -> Path:
    """The files of the page, in a folder."""
    text = (ROOT / "docs" / "howto" / "scan-operator.md").read_text()
    for kind, name in (("cuda", "variance.cu"), ("toml", "kernel.toml")):
        (block,) = re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        (folder / name).write_text(block)
    return folder / "kernel.toml"


def test_the_operator_of_the_page_is_right(tmp_path: Path) -> None:
    """The files of the page are a kernel as they stand: its rows agree with its reference, in every order."""
    folder = tmp_path / "variance"
    folder.mkdir()
    kernel = load_kernel_file(written_out(folder))
    workload = kernel.workload({"N": 5003}, 2)
    for order in ORDERS:
        compare(kernel.plan(workload, kernel.default(workload)), FLAGS, order)


def test_folders_of_the_catalogue_are_named_alone(tmp_path: Path) -> None:
    """A folder that the catalogue lacks is refused, and so is a path that leads out of it."""
    path = written_out(tmp_path)
    text = path.read_text()
    for name in ("catalogue:scan-longer", "catalogue:../common"):
        path.write_text(text.replace("catalogue:scan-long", name))
        with pytest.raises(KernelFileError, match=r"\[kernel\] headers: no such folder: "):
            load_kernel_file(path)
