"""Long periodic tridiagonal systems: right on the host in every order of threads, and lean as compiled."""

import itertools
import random
from pathlib import Path

import host_build
import numpy as np
import pytest
from tridiagonal_resources import check_resources
from tridiagonal_systems import (
    FOLDER,
    backward_error,
    barriers_of_tiles,
    built,
    dominant,
    error,
    errs_without,
    solved,
)

from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.plan import Plan, Stage
from tuner.problems.tridiagonal import solve_periodic

KERNEL = load_kernel_file(FOLDER / "tridiag-periodic-large" / "kernel.toml")
ROUNDING = {"float32": 2**-24, "float64": 2**-53, "complex64": 2**-24}
SMALLEST = {"float32": 1e-36, "float64": 1e-300, "complex64": 1e-36}
# Last tiles of one row, of whole threads, that end within a thread, and whole ones
LENGTHS = ((129, 3), (257, 2), (1000, 3), (5001, 2), (40_000, 1))

needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
every_type = pytest.mark.parametrize("dtype", ROUNDING)


def plans(n: int, batch: int, dtype: str = "float32") -> list[Plan]:
    """The default of a size, and a configuration of each form that the host can run."""
    workload = KERNEL.workload({"N": n, "dtype": dtype}, batch)
    rng = random.Random(f"{n} {dtype}")  # noqa: S311 - reproducible
    chosen = [KERNEL.plan(workload, KERNEL.default(workload))]
    space = list(KERNEL.space(workload))
    for form in KERNEL.tunables["form"]:
        all_plans = (KERNEL.plan(workload, c) for c in rng.sample(space, len(space)) if c["form"] == form)
        chosen += itertools.islice((plan for plan in all_plans if not host_build.needs_gpu(plan)), 1)
    return built(chosen)


@needs_compiler
@every_type
@pytest.mark.parametrize(("n", "batch"), LENGTHS)
def test_long_circles_are_solved_to_rounding(n: int, batch: int, dtype: str) -> None:
    """At a margin of 0.05, and of any magnitude, unknowns err by 16 roundings of max |x|, in every order."""
    system = dominant(batch, n, dtype=dtype)
    right = solve_periodic(*(system[name] for name in "abcd"))
    for k, plan in enumerate(plans(n, batch, dtype)):
        order = host_build.ORDERS[(k + n) % len(host_build.ORDERS)]
        for factor in (1.0, SMALLEST[dtype], 1 / SMALLEST[dtype]):
            power = np.exp2(np.round(np.log2(factor)))
            scaled = {name: (array * power).astype(dtype) for name, array in system.items()}
            assert error(solved(plan, scaled, order), right) <= 16 * ROUNDING[dtype], (plan.label(), factor)


@needs_compiler
def test_stability_of_circles_is_that_of_elimination_in_order() -> None:
    """Backward errors are rounding where dominance is weak, on a circle as in an open system."""
    system = dominant(2, 9001)
    rest = abs(system["a"]) + abs(system["c"])
    weak = {**system, "b": (np.sign(system["b"]) * (1.01 * rest + 1e-3)).astype(np.float32)}
    for plan in plans(9001, 2):
        assert backward_error(weak, solved(plan, weak), periodic=True) <= 4 * ROUNDING["float32"], (
            plan.label()
        )


@needs_compiler
def test_a_broken_circle_changes_no_other() -> None:
    """NaN, infinity and a zero matrix stay in their system."""
    system = dominant(3, 1000)
    for plan in plans(1000, 3):
        before = solved(plan, system)
        assert np.isfinite(before).all()
        for name, place, value in (("d", 0, np.nan), ("b", 999, np.inf), ("b", slice(None), 0)):
            broken = {key: array.copy() for key, array in system.items()}
            broken[name][1, place] = value
            np.testing.assert_array_equal(solved(plan, broken)[[0, 2]], before[[0, 2]], plan.label())


@needs_compiler
@pytest.mark.parametrize("form", KERNEL.tunables["form"])
def test_barriers_of_circles_are_needed_and_enough(form: str) -> None:
    """No two threads meet in memory without a barrier between; without any of them, some order errs."""
    system = dominant(2, 600)
    right = solve_periodic(*(system[name] for name in "abcd"))
    workload = KERNEL.workload({"N": 600}, 2)
    plan = KERNEL.plan(workload, next(c for c in KERNEL.space(workload) if c["form"] == form and c["P"] == 4))
    for order in host_build.ORDERS:
        assert error(solved(plan, system, order, host_build.CHECKED), right) <= 1e-6, order
    for barrier in barriers_of_tiles(plan):
        assert any(errs_without(barrier, plan, system, right, order) for order in host_build.ORDERS), barrier


def test_every_length_has_a_choice_a_default_and_an_analytical_answer() -> None:
    """Every size and type leaves a choice, among it the default and the analytical answer."""
    for n, dtype in itertools.product((129, 257, 1000, 4097, 2**17, 2**22 - 1, 2**22), ROUNDING):
        workload = KERNEL.workload({"N": n, "dtype": dtype})
        space = KERNEL.space(workload)
        assert (60 if n > 2**11 else 8) <= len(space) <= 250, n
        assert KERNEL.default(workload) in space, (n, dtype)
        assert KERNEL.stated(workload) in space, (n, dtype)


@every_type
@pytest.mark.parametrize("architecture", ["sm_53", "sm_90"])
def test_defaults_of_circles_compile_lean(dtype: str, architecture: str, cubins: Path) -> None:
    """No stage of a default or an analytical answer spills, and each takes what the file declares."""
    stages: list[Stage] = []
    for n in (5001, 2**22):
        workload = KERNEL.workload({"N": n, "dtype": dtype})
        stages += KERNEL.plan(workload, KERNEL.default(workload)).stages
        stated = KERNEL.stated(workload)
        assert stated is not None
        if architecture == "sm_90":
            stages += KERNEL.plan(workload, stated).stages
    check_resources(stages, architecture, cubins)
