"""Long tridiagonal systems with several right sides: right on the host, and lean as compiled."""

import itertools
import random
from pathlib import Path

import host_build
import numpy as np
import pytest
from tridiagonal_resources import check_resources
from tridiagonal_systems import (
    FOLDER,
    barriers_of_tiles,
    built,
    error,
    errs_without,
    one_by_one,
    several,
    solved,
    thomas,
)

from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.plan import Plan, Stage

KERNEL = load_kernel_file(FOLDER / "tridiag-several-large" / "kernel.toml")
ROUNDING = {"float32": 2**-24, "float64": 2**-53, "complex64": 2**-24}
SMALLEST = {"float32": 1e-36, "float64": 1e-300, "complex64": 1e-36}

needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
every_type = pytest.mark.parametrize("dtype", ROUNDING)


def plans(n: int, sides: int, batch: int, dtype: str = "float32") -> list[Plan]:
    """The default of a size, and a configuration of each form that the host can run."""
    workload = KERNEL.workload({"N": n, "K": sides, "dtype": dtype}, batch)
    rng = random.Random(f"{n} {dtype}")  # noqa: S311 - reproducible
    chosen = [KERNEL.plan(workload, KERNEL.default(workload))]
    space = list(KERNEL.space(workload))
    for form in KERNEL.tunables["form"]:
        all_plans = (KERNEL.plan(workload, c) for c in rng.sample(space, len(space)) if c["form"] == form)
        chosen += itertools.islice((plan for plan in all_plans if not host_build.needs_gpu(plan)), 1)
    return built(chosen)


@needs_compiler
@every_type
@pytest.mark.parametrize(("n", "sides", "batch"), [(129, 3, 3), (5001, 2, 2), (20_000, 4, 1)])
def test_every_right_side_of_long_systems_is_solved(n: int, sides: int, batch: int, dtype: str) -> None:
    """Of any magnitude, unknowns of each right side err by 16 roundings of max |x|, in every order."""
    system = several(batch, n, sides, dtype)
    right = thomas(one_by_one(system))
    for k, plan in enumerate(plans(n, sides, batch, dtype)):
        order = host_build.ORDERS[(k + n) % len(host_build.ORDERS)]
        for factor in (1.0, SMALLEST[dtype], 1 / SMALLEST[dtype]):
            power = np.exp2(np.round(np.log2(factor)))
            scaled = {name: (array * power).astype(dtype) for name, array in system.items()}
            x = solved(plan, scaled, order).reshape(-1, n)
            assert error(x, right) <= 16 * ROUNDING[dtype], (plan.label(), factor)


@needs_compiler
def test_a_broken_right_side_of_a_long_system_changes_no_other() -> None:
    """NaN stays in its right side, and a zero pivot in its system."""
    n, system = 1000, several(3, 1000, 3)
    for plan in plans(n, 3, 3):
        before = solved(plan, system)
        broken = {key: array.copy() for key, array in system.items()}
        broken["d"][0, n + 5] = np.nan
        broken["b"][1] = 0
        after = solved(plan, broken)
        assert np.isnan(after[0, n : 2 * n]).any()
        np.testing.assert_array_equal(after[2], before[2], plan.label())
        np.testing.assert_array_equal(after[0, :n], before[0, :n], plan.label())
        np.testing.assert_array_equal(after[0, 2 * n :], before[0, 2 * n :], plan.label())


@needs_compiler
@pytest.mark.parametrize("form", KERNEL.tunables["form"])
def test_barriers_of_several_right_sides_are_needed_and_enough(form: str) -> None:
    """No two threads meet in memory without a barrier between; without any of them, some order errs."""
    system = several(2, 600, 2)
    right = thomas(one_by_one(system))
    workload = KERNEL.workload({"N": 600, "K": 2}, 2)
    plan = KERNEL.plan(workload, next(c for c in KERNEL.space(workload) if c["form"] == form and c["P"] == 4))
    for order in host_build.ORDERS:
        assert error(solved(plan, system, order, host_build.CHECKED).reshape(-1, 600), right) <= 1e-6, order
    for barrier in barriers_of_tiles(plan):
        assert any(
            errs_without(barrier, plan, system, right.reshape(2, -1), order) for order in host_build.ORDERS
        ), barrier


def test_every_number_of_right_sides_has_a_choice_a_default_and_an_analytical_answer() -> None:
    """Every size and type leaves a choice, among it the default and the analytical answer."""
    lengths = (129, 257, 1000, 4097, 2**17, 2**22 - 1, 2**22)
    for n, sides, dtype in itertools.product(lengths, (2, 4), ROUNDING):
        workload = KERNEL.workload({"N": n, "K": sides, "dtype": dtype})
        space = KERNEL.space(workload)
        assert (12 if n > 2**11 else 4) <= len(space) <= 200, n
        assert KERNEL.default(workload) in space, (n, sides, dtype)
        assert KERNEL.stated(workload) in space, (n, sides, dtype)


@every_type
@pytest.mark.parametrize(("architecture", "longest"), [("sm_53", 2**21), ("sm_90", 2**22)])
def test_defaults_of_long_right_sides_compile_lean(
    dtype: str, architecture: str, longest: int, cubins: Path
) -> None:
    """No stage of a default or an analytical answer spills, and each takes what the file declares."""
    stages: list[Stage] = []
    for n, sides in ((5001, 2), (longest, 4)):
        workload = KERNEL.workload({"N": n, "K": sides, "dtype": dtype})
        stages += KERNEL.plan(workload, KERNEL.default(workload)).stages
        stated = KERNEL.stated(workload)
        assert stated is not None
        if architecture == "sm_90":
            stages += KERNEL.plan(workload, stated).stages
    check_resources(stages, architecture, cubins, within=(0.6, 1.8))
