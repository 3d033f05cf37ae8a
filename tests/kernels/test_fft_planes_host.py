"""Transforms of columns and planes, and convolutions: right on the host, each by itself, lean as compiled."""

from pathlib import Path
from typing import Any, NamedTuple

import host_build
import numpy as np
import numpy.typing as npt
import pytest
from compiled_stages import compiled_stages

from tuner.application.keys import ArrayForm, workload_for
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Plan
from tuner.problems.lookup import problem_for

Array = npt.NDArray[Any]
Sizes = dict[str, int | str]
KERNELS = Path(__file__).parents[2] / "kernels"
COLUMNS, PLANES, CONVOLUTION = (
    load_kernel_file(KERNELS / name / "kernel.toml") for name in ("fft-columns", "fft-2d", "fft-convolution")
)
needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


class Case(NamedTuple):
    """A kernel at a problem; the first configuration with such a radix before, or the default."""

    kernel: KernelFile
    sizes: Sizes
    radix: int | None = None

    def __str__(self) -> str:
        return f"{self.kernel.workload(self.sizes, 1)},A={self.radix}"

    def plan(self) -> Plan:
        """Of a batch of three."""
        workload = self.kernel.workload(self.sizes, 3)
        if self.radix is None:
            return self.kernel.plan(workload, self.kernel.default(workload))
        space = self.kernel.space(workload)
        return self.kernel.plan(workload, next(c for c in space if c["A"] == self.radix))


CASES = [  # what the samples of all kernels have not: a radix before, and Bluestein's algorithm on both axes
    Case(COLUMNS, {"N": 2048, "W": 5}, 16),
    Case(COLUMNS, {"N": 2500, "W": 3, "direction": "inverse", "dtype": "complex128"}, 10),
    Case(COLUMNS, {"N": 37, "W": 9, "direction": "inverse"}),
    Case(PLANES, {"M": 37, "N": 41, "direction": "inverse", "dtype": "complex128"}),
    Case(PLANES, {"M": 1024, "N": 8, "direction": "inverse"}, 4),
    Case(PLANES, {"M": 30, "N": 6}, 5),
    Case(CONVOLUTION, {"N": 899}),
]


@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=str)
def test_answers_are_right_to_rounding(case: Case) -> None:
    """Answers pass both checks of their problem, and no thread reads what another has not yet written."""
    plan = case.plan()
    problem, sizes = problem_for(plan.problem), dict(plan.workload.sizes)
    inputs = problem.inputs(np, np.random.default_rng(1), plan.buffers, sizes)
    outputs = host_build.run_plan_on_host(plan, inputs, flags=host_build.CHECKED, order="shuffle")
    assert problem.compare(inputs, outputs, sizes).ok
    assert problem.residual(np, inputs, outputs, sizes).ok


@needs_compiler
@pytest.mark.parametrize(
    ("case", "place", "spoilt"),
    [
        (Case(COLUMNS, {"N": 30, "W": 9}), (1, 3, 4), (1, slice(None), 4)),
        (Case(PLANES, {"M": 30, "N": 6}, 5), (1, 3, 4), (1,)),
        (Case(CONVOLUTION, {"N": 30}), (1, 3), (1,)),
    ],
    ids=["column", "plane", "row"],
)
def test_what_is_no_number_stays_where_it_belongs(case: Case, place: Any, spoilt: Any) -> None:
    """A NaN reaches all of its column, plane or row, and leaves the others as they are to the bit."""
    plan = case.plan()
    problem = problem_for(plan.problem)
    inputs = problem.inputs(np, np.random.default_rng(2), plan.buffers, dict(plan.workload.sizes))
    whole = host_build.run_plan_on_host(plan, inputs)["y"]
    inputs["x"][place] = np.nan
    y = host_build.run_plan_on_host(plan, inputs)["y"]
    assert np.isnan(y[spoilt]).all()
    whole[spoilt] = y[spoilt]
    np.testing.assert_array_equal(y, whole)


LENGTHS = (2, 7, 37, 64, 289, 722, 1000, 1024, 1519, 2048, 2634, 4096)
LONG = (4093, 5000, 7378, 7386, 7595, 8192)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_every_size_has_a_default(dtype: str) -> None:
    """Lengths of every kind have a default that their rules allow, and planes a stated answer."""
    for N in (*LENGTHS, *LONG):
        for other in (1, 5, 64, 1000, 8192):
            columns = COLUMNS.workload({"N": N, "W": other, "dtype": dtype}, 3)
            assert COLUMNS.stated_answers(columns, "")[-1] == COLUMNS.default(columns)
            for M, width in ((N, max(2, other)), (max(2, other), N)):
                workload = PLANES.workload({"M": M, "N": width, "dtype": dtype}, 3)
                PLANES.default(workload)
                PLANES.stated(workload)
    for N in LENGTHS:
        CONVOLUTION.default(CONVOLUTION.workload({"N": N, "dtype": dtype}, 3))


def test_spaces_hold_what_is_searched() -> None:
    """Planes of 512 to 8192 squared have some thousand configurations at most, the stated one among them."""
    for N in (512, 8192):
        workload = PLANES.workload({"M": N, "N": N}, 1)
        space = PLANES.space(workload)
        assert 100 <= len(space) <= 5000
        assert PLANES.stated(workload) in space


def test_arrays_tell_the_sizes() -> None:
    """A plane or a stack of them is taken as it is, and so are rows with the spectrum of a filter."""
    assert str(workload_for(PLANES, [ArrayForm((30, 62), "complex64")], {})) == "fft-2d:M=30,N=62"
    assert str(workload_for(COLUMNS, [ArrayForm((4, 30, 9), "complex64")], {})) == "fft-columns:N=30,W=9"
    forms = [ArrayForm((4, 30), "complex128"), ArrayForm((30,), "complex128")]
    assert str(workload_for(CONVOLUTION, forms, {})) == "fft-convolution:N=30,dtype=complex128"


@pytest.mark.parametrize("architecture", ["sm_53", "sm_90"])
def test_nothing_spills(architecture: str, cubins: Path) -> None:
    """Defaults need no local memory anywhere, and neither do the stated answers of planes where they run."""
    cases = [
        Case(COLUMNS, {"N": 1024, "W": 1024}),
        Case(COLUMNS, {"N": 8192, "W": 1024}),
        Case(CONVOLUTION, {"N": 4096}),
        Case(PLANES, {"M": 4096, "N": 4096}),
    ]
    plans = [case.plan() for case in cases]
    if architecture == "sm_90":
        large = [PLANES.workload({"M": N, "N": N}, 1) for N in (512, 4096, 8192)]
        plans += [PLANES.plan(one, stated) for one in large if (stated := PLANES.stated(one))]
    stages = [stage for plan in plans for stage in plan.stages]
    made = compiled_stages(stages, architecture, cubins)
    for stage, result in zip(stages, made, strict=True):
        assert (result.resources.spill_bytes, result.resources.local_bytes) == (0, 0), stage.entry
