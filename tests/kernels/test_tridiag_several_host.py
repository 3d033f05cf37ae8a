"""Tridiagonal systems with several right sides: right on the host, and lean as compiled."""

from pathlib import Path

import host_build
import numpy as np
import pytest
from tridiagonal_resources import check_resources
from tridiagonal_systems import FOLDER, built, error, one_by_one, several, solved, thomas

from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.plan import Plan, ProblemSpec, Stage
from tuner.problems.lookup import problem_for

KERNEL = load_kernel_file(FOLDER / "tridiag-several" / "kernel.toml")
ROUNDING = {"float32": 2**-24, "float64": 2**-53, "complex64": 2**-24}
BATCH = 5

needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
every_type = pytest.mark.parametrize("dtype", ROUNDING)


def plans(n: int, sides: int, dtype: str) -> list[Plan]:
    """The default of a size, and one whose rows pass shared memory."""
    workload = KERNEL.workload({"N": n, "K": sides, "dtype": dtype}, BATCH)
    moved = [c for c in KERNEL.space(workload) if c["load"] == c["store"] == "transpose"]
    return built([KERNEL.plan(workload, c) for c in (KERNEL.default(workload), *moved[:1])])


@needs_compiler
@every_type
@pytest.mark.parametrize(("n", "sides"), [(2, 3), (7, 2), (97, 4), (256, 3), (1000, 2)])
def test_every_right_side_is_solved_to_rounding(n: int, sides: int, dtype: str) -> None:
    """Unknowns of each right side err by 16 roundings of max |x|, in every order."""
    system = several(BATCH, n, sides, dtype)
    for k, plan in enumerate(plans(n, sides, dtype)):
        x = solved(plan, system, host_build.ORDERS[(k + n) % len(host_build.ORDERS)])
        assert error(x.reshape(-1, n), thomas(one_by_one(system))) <= 16 * ROUNDING[dtype], plan.label()


@needs_compiler
def test_a_broken_right_side_changes_no_other() -> None:
    """NaN stays in its right side, and a zero pivot in its system."""
    system = several(BATCH, 97, 3)
    for plan in plans(97, 3, "float32"):
        before = solved(plan, system)
        broken = {key: array.copy() for key, array in system.items()}
        broken["d"][1, 97 + 5] = np.nan
        broken["b"][3, 0] = 0
        after = solved(plan, broken)
        np.testing.assert_array_equal(after[[0, 2, 4]], before[[0, 2, 4]], plan.label())
        np.testing.assert_array_equal(after[1, :97], before[1, :97], plan.label())
        np.testing.assert_array_equal(after[1, 194:], before[1, 194:], plan.label())


def test_the_problem_judges_every_right_side() -> None:
    """A right answer passes; one wrong number of the last right side of a system does not."""
    workload = KERNEL.workload({"N": 40, "K": 3}, BATCH)
    plan, problem = KERNEL.plan(workload, KERNEL.default(workload)), problem_for(ProblemSpec("tridiagonal"))
    inputs = problem.inputs(np, np.random.default_rng(0), plan.buffers, {})
    x = thomas(one_by_one(inputs)).astype(np.float32).reshape(BATCH, 120)
    for right in (True, False):
        for verdict in (problem.compare(inputs, {"x": x}, {}), problem.residual(np, inputs, {"x": x}, {})):
            assert verdict.ok is right
            assert right or verdict.row == 2
        x[2, 119] += 0.1


@every_type
@pytest.mark.parametrize(("architecture", "longest"), [("sm_53", 1024), ("sm_90", 2048)])
def test_defaults_of_several_right_sides_compile_lean(
    dtype: str, architecture: str, longest: int, cubins: Path
) -> None:
    """Defaults spill nothing, and take about what the kernel file declares."""
    stages: list[Stage] = []
    for n, sides in ((64, 2), (longest, 4)):
        workload = KERNEL.workload({"N": n, "K": sides, "dtype": dtype})
        stages += KERNEL.plan(workload, KERNEL.default(workload)).stages
    check_resources(stages, architecture, cubins, within=(0.5, 1.7))
