"""Transforms of long real rows: right on the host, each row by itself, in order, and lean as compiled."""

from pathlib import Path
from typing import Any, NamedTuple

import host_build
import numpy as np
import numpy.typing as npt
import pytest
from compiled_stages import compiled_stages
from long_row_plans import LARGE_BATCH, given, plan_at, transformed

from tuner.kernel_files.catalog import Catalog, load_kernel_file
from tuner.model.plan import Plan, TunableValue
from tuner.problems.lookup import problem_for

Array = npt.NDArray[Any]
KERNEL = load_kernel_file(Path(__file__).parents[2] / "kernels" / "fft-real-long" / "kernel.toml")
LONGEST = 2**24
ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53}
DIRECTIONS = ("forward", "inverse")
needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


class Case(NamedTuple):
    """Rows of one length: the first configuration with such values, the default, or a large batch's."""

    N: int
    direction: str = "forward"
    dtype: str = "float32"
    batch: int = 1
    values: dict[str, TunableValue] | None = None
    stated: bool = False

    def plan(self) -> Plan:
        sizes: dict[str, int | str] = {"N": self.N, "dtype": self.dtype, "direction": self.direction}
        return plan_at(KERNEL, sizes, self.batch, self.values, stated=self.stated)


CASES = [
    *(Case(N, direction) for N in (300, 8193, 10000, 3**9) for direction in DIRECTIONS),
    *(Case(23 * 31 * 13, direction, "float64") for direction in DIRECTIONS),  # 31 is no radix of float64
    Case(2 * 17**3, "forward", "float64", batch=3),  # 2 N2 even and odd columns
    Case(5 * 7 * 11 * 13, "inverse", batch=3),  # odd columns and rows
    Case(12342, "inverse", "float64", batch=3),
    Case(20480, batch=3),  # tiles that begin before a row's first frequency
    Case(126 * 130, "forward", "float64", batch=3, values={"C1": 4}),  # a lane has no neighbour
    Case(23 * 23 * 31, "forward", values={"r1": 31}),  # a thread has a column
    Case(20480, "forward", values={"split1": True, "split2": True, "bounded": True}),
    Case(20480, "inverse", "float64", values={"skew": 2, "split2": True}),
    Case(10000, "forward", "float64", stated=True),
    Case(16384, values={"form": "passes", "P1": 16}),  # opposite frequencies in one thread
    Case(16384, "inverse", stated=True),  # a block holds the row
    Case(32768, "forward", values={"form": "whole"}),
    Case(17496, "inverse", "float64", batch=3, values={"form": "whole", "split": True}),
    Case(10007, "inverse", batch=3, stated=True),
    *(Case(10**6, direction, stated=True) for direction in DIRECTIONS),  # columns and rows of 1000 points
    Case(75000, stated=True),  # columns of two stages
    Case(2**20, "inverse", "float64", stated=True),
]


def right(plan: Plan, x: Array) -> Array:
    """By NumPy, in extended precision where it has that."""
    sizes = dict(plan.workload.sizes)
    if sizes["direction"] == "inverse":
        return np.asarray(np.fft.irfft(x.astype(np.clongdouble), int(sizes["N"]), axis=1))
    return np.asarray(np.fft.rfft(x.astype(np.longdouble), axis=1))


@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_length_is_right_to_rounding(case: Case) -> None:
    """Answers pass both checks of their problem, within 8 roundings, 14 by Bluestein's algorithm."""
    plan = case.plan()
    x, problem, sizes = given(plan), problem_for(plan.problem), dict(plan.workload.sizes)
    y = transformed(plan, x, "reverse" if case.batch > 1 else "shuffle")
    assert problem.compare({"x": x}, {"y": y}, sizes).ok
    assert problem.residual(np, {"x": x}, {"y": y}, sizes).ok
    reference = right(plan, x)
    error = np.linalg.norm(y - reference, axis=1) / np.linalg.norm(reference, axis=1)
    assert error.max() <= (14 if len(plan.stages) > 2 else 8) * ROUNDOFF[case.dtype]
    if case.direction == "forward":  # what is real is real
        assert not y[:, 0].imag.any()
        assert case.N % 2 == 1 or not y[:, -1].imag.any()


@needs_compiler
@pytest.mark.parametrize("N", [300, 315, 262])
def test_parts_that_no_real_row_has_count_for_nothing(N: int) -> None:
    """Imaginary parts of frequency 0, and of N / 2, change nothing, whichever algorithm takes the length."""
    plan = Case(N, "inverse", batch=2).plan()
    x = given(plan)
    real = x.copy()
    real[:, 0] = real[:, 0].real
    if N % 2 == 0:
        real[:, -1] = real[:, -1].real
    assert (x != real).any()
    np.testing.assert_array_equal(transformed(plan, x), transformed(plan, real))


@needs_compiler
@pytest.mark.parametrize("N", [1200, 1009])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_extreme_values_stay_in_their_row(N: int, direction: str) -> None:
    """NaN, infinity, 1e35 and denormal numbers in a row leave the others as they are, to the bit."""
    plan = Case(N, direction, batch=3).plan()
    x = given(plan)
    whole = transformed(plan, x)
    for value in (np.nan, np.inf, 1e35, 1e-37, 1e-41):
        spoilt = x.copy()
        if np.isfinite(value):
            spoilt[1] *= np.float32(value)
        else:
            spoilt[1, 7] = value
        y = transformed(plan, spoilt)
        np.testing.assert_array_equal(y[[0, 2]], whole[[0, 2]])
        if np.isfinite(value):
            reference = right(plan, spoilt)[1]
            lost = 2.0**-149 * 8 * N  # what denormal numbers round by
            assert np.linalg.norm(y[1] - reference) <= 1e-6 * np.linalg.norm(reference) + lost
        else:
            assert not np.isfinite(y[1]).any()


@needs_compiler
def test_barriers_of_opposite_frequencies_are_needed() -> None:
    """Checked for races the answer is the same, and it is refused without either of the barriers."""
    plan = Case(4096, batch=2, values={"r1": 8, "P1": 8, "C1": 8}).plan()  # whose words are padded
    x = given(plan)
    checked = host_build.run_plan_on_host(plan, {"x": x}, flags=host_build.CHECKED, order="reverse")["y"]
    np.testing.assert_array_equal(checked, transformed(plan, x))
    own = [one for one in host_build.barriers_reached(plan) if one.file == "opposite.cuh"]
    assert len(own) == 2
    for barrier in own:
        with pytest.raises(host_build.HostRunError, match="no barrier between"):
            host_build.run_plan_on_host(
                plan, {"x": x}, flags=host_build.CHECKED, order="reverse", without=barrier
            )


LENGTHS = (128, 131, 4199, 8193, 10007, 44100, 7**7, 66 * 13**4, 17**5, 23**5, 3**15, LONGEST - 3, LONGEST)
CROWDED = (955434, 1524237, 6409000)  # whose tiles have few columns
UNLISTED = (422500, 456300, 3**12)  # whose columns would have two stages by 26 or 27 points


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_length_has_a_default_in_a_space_to_search(dtype: str, direction: str) -> None:
    """Lengths of every kind have a default and a stated answer, among some thousand configurations."""
    for N in (*LENGTHS, *CROWDED, *UNLISTED):
        for batch in (1, LARGE_BATCH // N + 1):
            workload = KERNEL.workload({"N": N, "dtype": dtype, "direction": direction}, batch)
            space = KERNEL.space(workload)
            assert KERNEL.default(workload) in space
            assert all(answer in space for answer in KERNEL.stated_answers(workload, gpu=None))
            assert len(space) <= 6000


def test_fft_real_takes_it_where_a_block_has_no_room() -> None:
    """Long rows of `fft-real` are this kernel's, odd ones and double precision too."""
    catalog = Catalog.load()
    for spec in ("fft-real:N=16384", "fft-real:N=8193,dtype=float64", "fft-real:N=10007,direction=inverse"):
        assert catalog.workload(spec).kernel == "fft-real-long"
    assert catalog.workload("fft-real:N=8192").kernel == "fft-real"


def test_rows_that_a_block_holds_are_stated_in_one_pass() -> None:
    """Even lengths of small primes are to 21780, or 13600 doubles, and powers of two; others are searched."""
    for N, dtype, form in (
        (8194, "float32", "passes"),  # 17 and 241
        (8750, "float32", "whole"),
        (16384, "float32", "whole"),
        (12288, "float64", "whole"),
        (16384, "float64", "whole"),
        (16464, "float32", "whole"),
        (20020, "float32", "whole"),  # 11 and 13
        (20020 // 2, "float64", "passes"),
        (22050, "float32", "passes"),
        (32768, "float32", "whole"),
        (13720, "float64", "passes"),
        (3**9, "float32", "passes"),  # odd
    ):
        for direction in DIRECTIONS:
            stated = Case(N, direction, dtype, stated=True).plan()
            assert dict(stated.configuration)["form"] == form
            assert len(stated.stages) == (1 if form == "whole" else 2 if N != 8194 else 6)
    longer = KERNEL.space(KERNEL.workload({"N": 32768}, 1))
    assert {dict(one)["form"] for one in longer} == {"passes", "whole"}


def test_defaults_need_no_more_shared_memory_than_any_gpu_has() -> None:
    """Blocks of defaults stay within 48 KiB, but for 73 KiB of the longest rows of float64."""
    for N in LENGTHS:
        for dtype in ROUNDOFF:
            for direction in DIRECTIONS:
                most = max(stage.shared_bytes for stage in Case(N, direction, dtype).plan().stages)
                assert most <= (74752 if dtype == "float64" and N > 2**21 else 49152), (N, dtype)


@pytest.mark.parametrize("architecture", ["sm_53", "sm_90", "sm_120"])
def test_nothing_spills(architecture: str, cubins: Path) -> None:
    """Defaults of some lengths need no local memory, stated answers none where they run."""
    small = [
        Case(N, direction, dtype) for N in (16384, 65536) for direction in DIRECTIONS for dtype in ROUNDOFF
    ]
    large = [
        Case(N, direction, dtype, stated=True)
        for N in (10000, 44100, 10**6, LONGEST)
        for direction in DIRECTIONS
        for dtype in ROUNDOFF
    ]
    chosen = large if architecture == "sm_90" else small
    stages = [stage for case in chosen for stage in case.plan().stages]
    made = compiled_stages(stages, architecture, cubins)
    for stage, result in zip(stages, made, strict=True):
        assert (result.resources.spill_bytes, result.resources.local_bytes) == (0, 0), stage.entry
