"""Long transforms of any length: right on the host, each row by itself, and lean as compiled."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import host_build
import numpy as np
import numpy.typing as npt
import pytest
from compiled_stages import compiled_stages
from long_row_plans import given, plan_at, transformed

from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.plan import Plan, TunableValue
from tuner.problems.lookup import problem_for

Array = npt.NDArray[Any]
KERNEL = load_kernel_file(Path(__file__).parents[2] / "kernels" / "fft-long" / "kernel.toml")
LONGEST = 2**24
ROUNDOFF = {"complex64": 2.0**-24, "complex128": 2.0**-53}
needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


class Case(NamedTuple):
    """Rows of one length: the first configuration with such values, the default, or a large batch's."""

    N: int
    dtype: str = "complex64"
    direction: str = "forward"
    batch: int = 1
    values: dict[str, TunableValue] | None = None
    stated: bool = False

    def plan(self) -> Plan:
        sizes: dict[str, int | str] = {"N": self.N, "dtype": self.dtype, "direction": self.direction}
        return plan_at(KERNEL, sizes, self.batch, self.values, stated=self.stated)


CASES = [
    Case(8193, batch=3),
    Case(8193, "complex128", "inverse", values={"skew": 2, "split1": True, "split2": True, "bounded": True}),
    Case(8232, "complex128", "inverse", batch=3),
    Case(8232, values={"skew": 3, "C1": 16, "C2": 4}),
    Case(10000, "complex128", stated=True),
    Case(10**6, stated=True),  # columns and rows of 1000 points
    Case(409600, "complex128", "inverse", stated=True),
    Case(10007, "complex64", "inverse", batch=3, stated=True),
    Case(3**9, "complex64", "inverse", batch=3),
    Case(23 * 23 * 31, "complex128"),  # 31 is no radix of complex128
    Case(20480, values={"skew": 2, "split2": True}),
    Case(8748, values={"r": 27, "load": "prefetch", "split": True}),
    Case(9000, "complex128", "inverse", batch=3, values={"load": "bulk"}),
    Case(15625, "complex64", "inverse", batch=5, values={"load": "bulk"}),  # odd rows
]
WALK = Case(8505, batch=5, values={"r": 21, "load": "bulk", "split": True})  # several odd rows of a block


def prime_factors(N: int) -> list[int]:
    found = next((d for d in range(2, math.isqrt(N) + 1) if N % d == 0), N)
    return [found] if found == N else [found, *prime_factors(N // found)]


@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_length_is_right_to_rounding(case: Case) -> None:
    """Answers pass both checks of their problem, within 8 roundings, 14 by Bluestein's algorithm."""
    plan = case.plan()
    x, problem, sizes = given(plan), problem_for(plan.problem), dict(plan.workload.sizes)
    y = transformed(plan, x, "reverse" if case.batch > 1 else "shuffle")
    assert problem.compare({"x": x}, {"y": y}, sizes).ok
    assert problem.residual(np, {"x": x}, {"y": y}, sizes).ok
    exact = x.astype(np.clongdouble)
    right = np.fft.ifft(exact, axis=1) if case.direction == "inverse" else np.fft.fft(exact, axis=1)
    error = np.linalg.norm(y - right, axis=1) / np.linalg.norm(right, axis=1)
    assert error.max() <= (14 if len(plan.stages) > 2 else 8) * ROUNDOFF[case.dtype]


@needs_compiler
@pytest.mark.parametrize("case", [Case(8232, batch=3), Case(10007, batch=3), WALK], ids=str)
def test_extreme_values_stay_in_their_row(case: Case) -> None:
    """NaN, infinity, 1e35 and denormal numbers in a row leave the others as they are, to the bit."""
    plan, others = case.plan(), [0, *range(2, case.batch)]
    x = given(plan)
    whole = transformed(plan, x)
    for value in (np.nan, np.inf, 1e35, 1e-37, 1e-41):
        spoilt = x.copy()
        if np.isfinite(value):
            spoilt[1] *= np.float32(value)
        else:
            spoilt[1, 7] = value
        y = transformed(plan, spoilt)
        np.testing.assert_array_equal(y[others], whole[others])
        if np.isfinite(value):
            right = np.fft.fft(spoilt[1].astype(np.complex128))
            lost = 2.0**-149 * 8 * case.N  # what denormal numbers round by
            assert np.linalg.norm(y[1] - right) <= 1e-6 * np.linalg.norm(right) + lost
        else:
            assert not np.isfinite(y[1]).any()


@needs_compiler
def test_a_walk_over_rows_needs_its_barriers() -> None:
    """Checked for races, a block that walks over rows is right, and fails without either of its barriers."""
    plan = WALK.plan()
    x = given(plan)
    right = host_build.run_plan_on_host(plan, {"x": x}, flags=host_build.CHECKED, order="reverse")["y"]
    np.testing.assert_array_equal(right, transformed(plan, x))
    own = [one for one in host_build.barriers_reached(plan) if one.file == "ahead.cu"]
    needed = [
        one for one in own if "__syncthreads" in one.code
    ]  # host copies are over when these have passed
    assert len(needed) == 2
    for barrier in needed:
        with pytest.raises(host_build.HostRunError, match="no barrier between"):
            host_build.run_plan_on_host(
                plan, {"x": x}, flags=host_build.CHECKED, order="reverse", without=barrier
            )


@needs_compiler
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_angles_of_the_longest_rows_are_exact(dtype: str) -> None:
    """The chirp of 2^24 - 3 points, whose angles are whole parts of 2^25 - 6, is right to rounding."""
    N, threads, blocks = LONGEST - 3, 256, 40
    stage = next(stage for stage in Case(N, dtype).plan().stages if stage.name == "chirp")
    made = np.zeros((2, blocks * threads), dtype)
    host_build.run(
        stage.source, stage.entry, (blocks, 1, 1), (threads, 1, 1), 0, list(made), options=stage.options
    )
    n = np.arange(blocks * threads, dtype=np.int64)
    angles = np.longdouble(1) * (n * n % (2 * N)) / N * np.arctan(np.longdouble(1)) * 4
    assert (angles > 6.28).any()
    roundings = 2 if dtype == "complex64" else 4  # the host multiplies by pi in double precision
    assert np.abs(made[1] - (np.cos(angles) - 1j * np.sin(angles))).max() <= roundings * ROUNDOFF[dtype]


LENGTHS = (128, 155, 4199, 8193, 10007, 44100, 7**7, 66 * 13**4, 17**5, 23**5, 3**15, LONGEST - 3, LONGEST)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_every_length_has_a_default_in_a_space_to_search(dtype: str) -> None:
    """Lengths of every kind have a default and a stated answer, among some thousand configurations."""
    for N in LENGTHS:
        workload = KERNEL.workload({"N": N, "dtype": dtype}, 1)
        space = KERNEL.space(workload)
        assert KERNEL.default(workload) in space
        assert KERNEL.stated(workload) in space
        assert len(space) <= 6000


def test_rows_that_a_block_holds_are_stated_in_one_pass() -> None:
    """Lengths of 2, 3, 5 and 7 that a block holds are stated so, and only where the batch is large."""
    for dtype, longest in (("complex64", 20736), ("complex128", 10368)):
        smooth = [N for N in range(8193, longest + 1) if max(prime_factors(N)) <= 7]
        forms = {dict(Case(N, dtype, stated=True).plan().configuration)["form"] for N in smooth}
        assert forms == {"whole"}
        assert {"passes"} == {
            dict(Case(N, dtype, stated=True).plan().configuration)["form"] for N in (8192, longest + 1, 10007)
        }
        few = KERNEL.stated(KERNEL.workload({"N": 10000, "dtype": dtype}, 8))
        assert few is not None
        assert dict(few)["form"] == "passes"


def test_defaults_need_no_more_shared_memory_than_any_gpu_has() -> None:
    """Blocks of defaults stay within 48 KiB, but for 73 KiB of the longest rows of complex128."""
    for N in LENGTHS:
        for dtype in ROUNDOFF:
            stages = Case(N, dtype).plan().stages
            most = max(stage.shared_bytes for stage in stages)
            assert most <= (74752 if dtype == "complex128" and N > 2**21 else 49152), (N, dtype)


@pytest.mark.parametrize("architecture", ["sm_53", "sm_90", "sm_120"])
def test_nothing_spills(architecture: str, cubins: Path) -> None:
    """Defaults of some lengths need no local memory, stated answers none where they run."""
    chosen = [Case(N, dtype) for N in (10000, 65537) for dtype in ROUNDOFF]
    if architecture == "sm_120":
        chosen += [Case(10**6, "complex128", stated=True), Case(LONGEST - 3, stated=True)]
    if architecture == "sm_90":  # rows that a block holds
        chosen = [
            Case(9216, "complex128", stated=True),
            *(Case(N, stated=True) for N in (10000, 15625, 20000)),
        ]
    stages = [stage for case in chosen for stage in case.plan().stages]
    made = compiled_stages(stages, architecture, cubins)
    for stage, result in zip(stages, made, strict=True):
        assert (result.resources.spill_bytes, result.resources.local_bytes) == (0, 0), stage.entry
