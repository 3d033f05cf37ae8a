"""Transforms of any length, complex and real: right on the host, each row by itself, and lean as compiled."""

from pathlib import Path
from typing import Any

import host_build
import numpy as np
import numpy.typing as npt
import pytest
from compiled_stages import compiled_stages

from tuner.application.keys import ArrayForm, workload_for
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import UnknownNameError
from tuner.model.plan import Plan
from tuner.problems.lookup import problem_for

Array = npt.NDArray[Any]
KERNELS = Path(__file__).parents[2] / "kernels"
ANY, REAL = (load_kernel_file(KERNELS / name / "kernel.toml") for name in ("fft-any", "fft-real"))
DIRECTIONS = ("forward", "inverse")
# Of one stage and of several, without and with idle threads, by Bluestein's algorithm; odd and even.
LENGTHS = {ANY.name: (2, 30, 31, 97, 105, 243, 520, 1000), REAL.name: (3, 37, 74, 60, 105, 1000, 1040)}
CASES = [(kernel, N) for kernel in (ANY, REAL) for N in LENGTHS[kernel.name]]
BATCH = 5


def name_of(value: KernelFile | int) -> str:
    """For the names of tests."""
    return value.name if isinstance(value, KernelFile) else str(value)


needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def plans(kernel: KernelFile, N: int) -> list[Plan]:
    """The default one way, and a random configuration the other way; types take turns."""
    dtypes = [str(dtype) for dtype in kernel.sizes["dtype"]]
    made = []
    for k, direction in enumerate(DIRECTIONS):
        sizes: dict[str, int | str] = {"N": N, "dtype": dtypes[(k + N) % 2], "direction": direction}
        workload = kernel.workload(sizes, BATCH)
        space = kernel.space(workload)
        drawn = space[int(np.random.default_rng(N).integers(len(space)))]
        made.append(kernel.plan(workload, drawn if k else kernel.default(workload)))
    host_build.build_plans(made)
    return made


def given(plan: Plan) -> Array:
    """Random rows."""
    x: Array = problem_for(plan.problem).inputs(np, np.random.default_rng(1), plan.buffers, sizes_of(plan))[
        "x"
    ]
    return x


def sizes_of(plan: Plan) -> dict[str, int | str]:
    return dict(plan.workload.sizes)


def transformed(plan: Plan, x: Array, order: host_build.Order = "shuffle") -> Array:
    return host_build.run_plan_on_host(plan, {"x": x}, order=order)["y"]


def right(plan: Plan, x: Array) -> Array:
    """By NumPy, in double precision."""
    sizes = sizes_of(plan)
    inverse, real = sizes["direction"] == "inverse", plan.workload.kernel == REAL.name
    if real:
        found = np.fft.irfft(x, int(sizes["N"]), axis=1) if inverse else np.fft.rfft(x, axis=1)
    else:
        found = np.fft.ifft(x, axis=1) if inverse else np.fft.fft(x, axis=1)
    return np.asarray(found)


def errors(y: Array, reference: Array) -> Any:
    """Relative L2 error of each row."""
    return np.linalg.norm(y - reference, axis=1) / np.linalg.norm(reference, axis=1)


@needs_compiler
@pytest.mark.parametrize(("kernel", "N"), CASES, ids=name_of)
def test_any_length_is_right_to_rounding(kernel: KernelFile, N: int) -> None:
    """Answers pass both checks of their problem, and are within 5 roundings, 12 by Bluestein's algorithm."""
    for plan, order in zip(plans(kernel, N), ("shuffle", "reverse"), strict=True):
        x, problem, sizes = given(plan), problem_for(plan.problem), sizes_of(plan)
        y = transformed(plan, x, order)  # type: ignore[arg-type]
        assert problem.compare({"x": x}, {"y": y}, sizes).ok, plan.label()
        assert problem.residual(np, {"x": x}, {"y": y}, sizes).ok, plan.label()
        roundings = 12 if "Bluestein" in plan.stages[0].entry else 5
        single = str(sizes["dtype"]) in ("complex64", "float32")
        assert errors(y, right(plan, x)).max() <= roundings * (2.0**-24 if single else 2.0**-53), plan.label()
        wrong = y.copy()
        wrong[BATCH - 1, -1] += abs(y).max()
        assert not problem.compare({"x": x}, {"y": wrong}, sizes).ok
        assert not problem.residual(np, {"x": x}, {"y": wrong}, sizes).ok


@needs_compiler
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("points", [8, 16])
def test_opposite_frequencies_meet(direction: str, points: int) -> None:
    """Through shared memory, ordered by barriers, or in a thread with twice the smallest radix of points."""
    workload = REAL.workload({"N": 128, "direction": direction}, BATCH)
    configuration = next(
        c for c in REAL.space(workload) if {"r": 8, "P": points, "tile": False}.items() <= dict(c).items()
    )
    plan = REAL.plan(workload, configuration)
    x = given(plan)
    y = host_build.run_plan_on_host(plan, {"x": x}, flags=host_build.CHECKED, order="shuffle")["y"]
    assert errors(y, right(plan, x)).max() <= 5 * 2.0**-24


@needs_compiler
@pytest.mark.parametrize(
    ("kernel", "N"), [(ANY, 30), (ANY, 97), (REAL, 37), (REAL, 60), (REAL, 74)], ids=name_of
)
def test_extreme_values_stay_in_their_row(kernel: KernelFile, N: int) -> None:
    """NaN, infinity, 1e37 and denormal numbers in a row leave the others as they are, to the bit."""
    for plan in plans(kernel, N):
        x = given(plan)
        whole = transformed(plan, x)
        others = [0, 1, 2, 4]
        for value in (np.nan, np.inf, 1e37, 1e-37, 1e-41):
            given_x = x.copy()
            if np.isfinite(value):
                given_x[3] *= value
            else:
                given_x[3, 1] = value
            y = transformed(plan, given_x)
            np.testing.assert_array_equal(y[others], whole[others])
            if np.isfinite(value):
                reference = right(plan, given_x[3:4].astype(np.result_type(x.dtype, np.float64)))
                lost = (
                    2.0**-149 * 8 * N if y.real.dtype == np.float32 else 0.0
                )  # what denormal numbers round by
                off = np.linalg.norm(y[3] - reference[0])
                assert off <= 1e-6 * np.linalg.norm(reference) + lost, (plan.label(), value)
            else:
                assert not np.isfinite(y[3]).all()


@pytest.mark.parametrize("kernel", [ANY, REAL], ids=name_of)
def test_all_lengths_have_a_default_which_is_the_answer_of_the_last_table(kernel: KernelFile) -> None:
    """All of the first type; of double precision some, and two where points per thread are most by a rule."""
    lengths, (single, double) = kernel.sizes["N"], kernel.sizes["dtype"]
    for dtype, some in ((single, lengths), (double, [*lengths[::7], 6422, 7774])):
        for N in some:
            workload = kernel.workload({"N": N, "dtype": dtype}, 3)
            assert kernel.stated(workload) == kernel.default(workload)


@pytest.mark.parametrize("kernel", [ANY, REAL], ids=name_of)
def test_every_length_has_a_default_in_a_space_to_search(kernel: KernelFile) -> None:
    """Lengths of every kind have their default among at most 1200 configurations, all of whole stages."""
    for N in (
        3,
        4,
        7,
        46,
        64,
        97,
        210,
        961,
        1000,
        1024,
        1519,
        2187,
        4093,
        5000,
        7203,
        7595,
        8001,
        8191,
        8192,
    ):
        for dtype in kernel.sizes["dtype"]:
            workload = kernel.workload({"N": N, "dtype": dtype}, 3)
            space, default = kernel.space(workload), kernel.default(workload)
            assert default in space
            assert len(space) <= 1200
            assert kernel.plan(workload, default).stages[0].grid[0] >= 1


@pytest.mark.parametrize(
    ("form", "sizes", "workload"),
    [
        (ArrayForm((3, 1000), "float32"), {}, "fft-real:N=1000"),
        (ArrayForm((1001,), "float64"), {}, "fft-real:N=1001,dtype=float64"),
        (ArrayForm((3, 501), "complex64"), {"N": 1000}, "fft-real:N=1000,direction=inverse"),
        (ArrayForm((3, 501), "complex64"), {"N": 1001}, "fft-real:N=1001,direction=inverse"),
    ],
)
def test_real_rows_tell_their_length(form: ArrayForm, sizes: dict[str, int | str], workload: str) -> None:
    """The length of a real row is its axis, by the formula of the shape; of frequencies it is given."""
    assert str(workload_for(REAL, [form], sizes)) == workload


def test_frequencies_need_the_length_of_their_row() -> None:
    """501 frequencies are those of 1000 or of 1001 numbers, so N is asked for."""
    with pytest.raises(UnknownNameError, match="size N is missing"):
        workload_for(REAL, [ArrayForm((3, 501), "complex64")], {"direction": "inverse"})


LEAN = [
    (ANY, N, dtype)
    for N, dtype in (
        *((N, "complex64") for N in (30, 210, 527, 1000, 1009, 4000, 4093, 8192)),
        *((N, "complex128") for N in (243, 1000, 2048)),
    )
] + [(REAL, 2000, "float32"), (REAL, 2000, "float64")]


@pytest.mark.parametrize("architecture", ["sm_53", "sm_120"])
def test_defaults_spill_nothing(architecture: str, cubins: Path) -> None:
    """Defaults need no local memory, and leave registers for 12 warps of a multiprocessor at least."""
    chosen = [(k, k.workload({"N": N, "dtype": dtype}, 3)) for k, N, dtype in LEAN]
    made = [kernel.plan(workload, kernel.default(workload)) for kernel, workload in chosen]
    results = compiled_stages([plan.stages[0] for plan in made], architecture, cubins)
    for plan, result in zip(made, results, strict=True):
        resources = result.resources
        assert (resources.spill_bytes, resources.local_bytes) == (0, 0), plan.label()
        assert resources.registers_per_thread <= 168, plan.label()
