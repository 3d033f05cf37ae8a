"""Kernels on rows that lie apart, and in place: on the host, the answers of rows that follow each other."""

from pathlib import Path
from typing import Any, NamedTuple

import host_build
import numpy as np
import numpy.typing as npt
import pytest

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.elements import element_dtype
from tuner.model.plan import OWN_ROLES, Configuration, Plan, RowLayout, TunableValue
from tuner.problems.base import poison

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

Array = npt.NDArray[Any]
FOLDER = Path(__file__).parents[2] / "kernels"
BATCH = 5


class Case(NamedTuple):
    """A kernel at sizes and with values of some tunables; the gaps behind rows of its arrays, or overlaps."""

    kernel: str
    sizes: dict[str, int | str]
    values: dict[str, TunableValue]
    gaps: dict[str, int]


CASES = (
    Case("scan-lf", {"N": 250, "dtype": "int32"}, {"store": "direct"}, {"x": 3, "y": 2}),
    Case("scan-lf", {"N": 512, "dtype": "int32"}, {"store": "bulk", "P": 8}, {"x": 8}),
    Case("scan-lf", {"N": 512, "dtype": "int32"}, {"store": "bulk", "P": 8}, {"y": 4}),
    Case("scan-lf", {"N": 64, "dtype": "int32"}, {"store": "bulk"}, {"y": 4}),
    Case("scan-ks", {"N": 128, "dtype": "int32", "form": "exclusive"}, {"shuffle": False}, {"x": -128}),
    Case("fft", {"N": 64}, {"shuffle": False}, {"x": 7, "y": 1}),
    Case("fft", {"N": 64, "direction": "inverse"}, {"shuffle": True}, {"x": -60}),
    *(
        Case(f"tridiag-{method}", {"N": N}, {"load": load, "store": store}, gaps)
        for method, N, load, store, gaps in (
            ("wm", 20, "transpose", "transpose", {"a": 1, "b": 2, "c": 3, "d": 4, "x": 5}),
            ("cr", 128, "async", "transpose", {"a": 4, "x": 8}),
            ("pcr", 64, "direct", "direct", {"d": 2}),
            ("lf", 20, "direct", "direct", {"b": 4, "x": 20}),
        )
    ),
    Case("tridiag-periodic", {"N": 50}, {}, {"a": 1, "d": 4, "x": 3}),
    Case("tridiag-several", {"N": 20, "K": 2}, {}, {"b": 1, "d": 4, "x": 2}),
    Case("tridiag-large", {"N": 300}, {"form": "passes"}, {"c": 4, "d": 8, "x": 4}),
    Case("tridiag-periodic-large", {"N": 301}, {"form": "passes"}, {"c": 3, "d": 7, "x": 3}),
    Case("tridiag-several-large", {"N": 300, "K": 2}, {"form": "passes"}, {"c": 4, "d": 8, "x": 4}),
    Case("fft-any", {"N": 12}, {"tile": True}, {"x": 1, "y": 2}),
    Case("fft-long", {"N": 300}, {}, {"x": 1, "y": 2}),
    Case("fft-long", {"N": 131, "direction": "inverse"}, {}, {"x": 3, "y": 5}),
    Case("fft-long", {"N": 8505}, {"r": 21, "load": "prefetch"}, {"x": 2, "y": 1}),
    Case("fft-long", {"N": 8505, "direction": "inverse"}, {"r": 21, "load": "bulk"}, {"x": 2, "y": 1}),
    Case("fft-real", {"N": 30}, {}, {"x": 2, "y": 1}),
    Case("fft-real-long", {"N": 300}, {}, {"x": 2, "y": 1}),
    Case("fft-real-long", {"N": 256}, {}, {"x": 1, "y": 1}),
    Case("fft-real-long", {"N": 256, "direction": "inverse"}, {}, {"x": 2, "y": 1}),
    Case("fft-real-long", {"N": 315, "direction": "inverse"}, {}, {"x": 1, "y": 3}),
    Case("fft-real-long", {"N": 131}, {}, {"x": 3, "y": 5}),
    Case("scan-long", {"N": 3001, "dtype": "int32", "direction": "reverse"}, {}, {"x": 7, "y": 3}),
    Case("scan-long", {"N": 40000, "dtype": "int32"}, {"slots": 4}, {"x": 4, "y": 8}),
    Case("scan-flags", {"N": 3000, "dtype": "int32"}, {}, {"x": 8, "heads": 2, "y": 4}),
    Case("scan-flags", {"N": 40000, "dtype": "int32"}, {"slots": 8}, {"x": 16, "heads": 32, "y": 48}),
    Case("scan-offsets", {"N": 3000, "dtype": "int32", "ends": 9}, {}, {"x": 1, "y": 4}),
    Case("linear-recurrence", {"N": 3001, "form": "exclusive"}, {}, {"a": 1, "b": 2, "y": 3}),
)


def configuration_of(kernel: KernelFile, case: Case) -> Configuration:
    workload = kernel.workload(case.sizes, BATCH)
    if not case.values:
        return kernel.default(workload)
    return next(one for one in kernel.space(workload) if case.values.items() <= dict(one).items())


def plan_of(case: Case, *, dense: bool = False) -> Plan:
    kernel = load_kernel_file(FOLDER / case.kernel / "kernel.toml")
    workload = kernel.workload(case.sizes, BATCH)
    configuration = configuration_of(kernel, case)
    lengths = {one.name: one.shape[-1] for one in kernel.plan(workload, configuration).buffers}
    layout = RowLayout(() if dense else tuple((name, lengths[name] + gap) for name, gap in case.gaps.items()))
    assert kernel.broken_rule(workload, configuration, layout) is None
    return kernel.plan(workload, configuration, layout)


def inputs_of(plan: Plan) -> dict[str, Array]:
    """Whole numbers whose sums are exact, and systems of equations that are dominant."""
    rng = np.random.default_rng(1)
    made: dict[str, Array] = {}
    for buffer in plan.buffers:
        if buffer.role != "in":
            continue
        if buffer.name == "offsets":
            cuts = np.sort(rng.integers(0, 3000, (BATCH, buffer.shape[1])), axis=1)
            cuts[:, 0], cuts[:, -1] = 0, 3000
            made[buffer.name] = cuts.astype(buffer.dtype)
        elif buffer.name == "heads":
            made[buffer.name] = (rng.random(buffer.shape) < 0.01).astype(np.uint8)
        else:
            made[buffer.name] = rng.integers(-1, 2, buffer.shape).astype(buffer.dtype)
            if buffer.name == "b" and plan.problem.name == "tridiagonal":
                made[buffer.name] += np.array(5, buffer.dtype)
            elif buffer.name == "a" and plan.workload.kernel == "linear-recurrence":
                made[buffer.name] = np.where(made[buffer.name] > 0, 1, -1).astype(buffer.dtype)
    return made


def further(plan: Plan) -> dict[str, Array]:
    """Scratch arrays, and those that are zero when a run begins."""
    own = [buffer for buffer in plan.buffers if buffer.role in OWN_ROLES]
    return {buffer.name: np.zeros(buffer.shape, element_dtype(buffer.dtype)) for buffer in own}


def laid_out(rows: Array, pitch: int) -> Array:
    """Memory that has each row where its pitch puts it, and garbage between them."""
    memory = np.zeros((len(rows) - 1) * pitch + rows.shape[1], rows.dtype)
    poison(memory)
    for number, row in enumerate(rows):
        memory[number * pitch : number * pitch + len(row)] = row
    return memory


def rows_in(memory: Array, shape: tuple[int, ...], pitch: int) -> Array:
    return np.lib.stride_tricks.as_strided(memory, shape, (pitch * memory.itemsize, memory.itemsize))


def pitches_of(case: Case, plan: Plan) -> dict[str, int]:
    return {
        one.name: one.shape[1] + case.gaps.get(one.name, 0) for one in plan.buffers if len(one.shape) == 2
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kernel} {case.sizes['N']} {case.gaps}")
def test_rows_that_lie_apart(case: Case) -> None:
    """Rows of any pitch, even overlapping ones, give the answer of their copies, and gaps of outputs stay."""
    plan, dense = plan_of(case), plan_of(case, dense=True)
    host_build.build_plans([plan, dense])
    pitches = pitches_of(case, plan)
    memory = {name: laid_out(rows, pitches[name]) for name, rows in inputs_of(plan).items()}
    given = {
        buffer.name: np.ascontiguousarray(rows_in(memory[buffer.name], buffer.shape, pitches[buffer.name]))
        for buffer in plan.buffers
        if buffer.role == "in"
    }
    (out,) = (buffer for buffer in plan.buffers if buffer.role == "out")
    right = host_build.run_plan_on_host(dense, given)[out.name]
    before = laid_out(np.zeros_like(right), pitches[out.name])
    wanted = laid_out(right, pitches[out.name])
    for array in memory.values():
        array.flags.writeable = False
    memory[out.name] = before
    memory |= further(plan)
    host_build.run_plan(plan, memory)
    assert np.array_equal(before.view(np.uint8), wanted.view(np.uint8))


# One of each source; the first pass of tridiag-large reads the input itself, which nothing has written yet.
IN_PLACE = [
    case
    for case in CASES
    if case.kernel in ("scan-lf", "fft", "tridiag-wm", "tridiag-periodic", "tridiag-several", "fft-any")
    or case.kernel.startswith(("scan-long", "scan-flags", "scan-offsets", "linear", "fft-long"))
]


@pytest.mark.parametrize("case", IN_PLACE, ids=lambda case: f"{case.kernel} {case.sizes['N']}")
def test_in_place(case: Case) -> None:
    """In place, a kernel reads its input where the output is and nowhere else, and gives the same answer."""
    kernel = load_kernel_file(FOLDER / case.kernel / "kernel.toml")
    dense = plan_of(case, dense=True)
    workload, configuration = dense.workload, dense.configuration
    plan = kernel.plan(workload, configuration, RowLayout(in_place=True))
    host_build.build_plans([plan, dense])
    given = inputs_of(dense)
    (out,) = (buffer for buffer in kernel.recipe.buffers if buffer.role == "out")
    right = host_build.run_plan_on_host(dense, given)[out.name]
    arrays = {name: array.copy() for name, array in given.items()}
    assert out.in_place is not None
    y = arrays[out.in_place].copy()
    poison(arrays[out.in_place])
    arrays[out.name] = y
    host_build.run_plan(plan, arrays | further(plan))
    assert np.array_equal(y.view(np.uint8), right.view(np.uint8))


def test_other_layouts_are_refused() -> None:
    """A kernel whose file says nothing of rows takes none that lie apart; a pipeline needs aligned ones."""
    large = load_kernel_file(FOLDER / "fft-large" / "kernel.toml")
    workload = large.workload({"N": 2**16}, 2)
    with pytest.raises(Exception, match="rows of x must follow each other"):
        large.plan(workload, large.default(workload), RowLayout((("x", 2**17),)))
    with pytest.raises(Exception, match="outputs must be arrays of their own"):
        large.plan(workload, large.default(workload), RowLayout(in_place=True))
    case = Case("scan-long", {"N": 40000, "dtype": "int32"}, {"slots": 4}, {})
    long = load_kernel_file(FOLDER / case.kernel / "kernel.toml")
    pipeline = configuration_of(long, case)
    layout = RowLayout((("x", 40001),))
    broken = long.broken_rule(long.workload(case.sizes, BATCH), pipeline, layout)
    assert broken == "slots == 0 or row_align * width % 16 == 0"
