"""Periodic tridiagonal systems: right on the host at any length, and lean as compiled."""

import random
from pathlib import Path

import host_build
import numpy as np
import pytest
from tridiagonal_resources import check_resources
from tridiagonal_systems import FOLDER, Array, System, built, dominant, error, solved

from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.plan import Plan, ProblemSpec, Stage
from tuner.problems.lookup import problem_for
from tuner.problems.tridiagonal import solve_periodic

KERNEL = load_kernel_file(FOLDER / "tridiag-periodic" / "kernel.toml")
ROUNDING = {"float32": 2**-24, "float64": 2**-53, "complex64": 2**-24}
SMALLEST = {"float32": 1e-36, "float64": 1e-300, "complex64": 1e-36}
BATCH = 5

needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
every_type = pytest.mark.parametrize("dtype", ROUNDING)


def plans(n: int, dtype: str = "float32") -> list[Plan]:
    """The default of a size, and the other way between memory and registers with other threads."""
    workload = KERNEL.workload({"N": n, "dtype": dtype}, BATCH)
    default = KERNEL.default(workload)
    rng = random.Random(f"{n} {dtype}")  # noqa: S311 - reproducible
    other = [c for c in KERNEL.space(workload) if c["load"] != default["load"] and c["G"] != default["G"]]
    return built([KERNEL.plan(workload, c) for c in (default, *rng.sample(other, min(1, len(other))))])


def dense(system: System) -> Array:
    """The solutions of small systems by their whole matrices."""
    a, b, c, d = (system[name].astype(np.promote_types(system[name].dtype, np.float64)) for name in "abcd")
    batch, n = d.shape
    matrix = np.zeros((batch, n, n), d.dtype)
    i = np.arange(n)
    for places, values in ((i, b), ((i - 1) % n, a), ((i + 1) % n, c)):
        matrix[:, i, places] += values
    solution: Array = np.linalg.solve(matrix, d[:, :, None])[:, :, 0]
    return solution


def test_the_reference_is_that_of_whole_matrices() -> None:
    """The formula of Sherman and Morrison gives what a dense solver does."""
    for n in (3, 4, 50):
        system = dominant(BATCH, n)
        np.testing.assert_allclose(solve_periodic(*(system[k] for k in "abcd")), dense(system), rtol=1e-10)


def test_the_problem_knows_periodic_systems() -> None:
    """Inputs keep their corners, a right answer passes, and that of the open system does not."""
    plan = KERNEL.plan(workload := KERNEL.workload({"N": 40}, BATCH), KERNEL.default(workload))
    problem, sizes = problem_for(ProblemSpec("tridiagonal")), dict(plan.workload.sizes)
    inputs = problem.inputs(np, np.random.default_rng(0), plan.buffers, sizes)
    assert inputs["a"][:, 0].all()
    assert inputs["c"][:, -1].all()
    corners = {"a": inputs["a"].copy(), "c": inputs["c"].copy()}
    corners["a"][:, 0] = corners["c"][:, -1] = 0
    for x, right in ((dense(inputs), True), (dense({**inputs, **corners}), False)):
        outputs = {"x": x.astype(np.float32)}
        assert problem.compare(inputs, outputs, sizes).ok is right
        assert problem.residual(np, inputs, outputs, sizes).ok is right


@needs_compiler
@every_type
@pytest.mark.parametrize("n", [3, 7, 97, 700, 4096])
def test_periodic_systems_are_solved_to_rounding(n: int, dtype: str) -> None:
    """At any length, and of any magnitude, unknowns err by 16 roundings of max |x|, in every order."""
    system = dominant(BATCH, n, dtype=dtype)
    right = solve_periodic(*(system[name] for name in "abcd"))
    for k, plan in enumerate(plans(n, dtype)):
        for factor in (1.0, SMALLEST[dtype], 1 / SMALLEST[dtype]):
            power = np.exp2(np.round(np.log2(factor)))
            scaled = {name: (array * power).astype(dtype) for name, array in system.items()}
            x = solved(plan, scaled, host_build.ORDERS[(k + n) % len(host_build.ORDERS)])
            assert error(x, right) <= 16 * ROUNDING[dtype], (plan.label(), factor)


@needs_compiler
def test_a_broken_periodic_system_changes_no_other() -> None:
    """NaN, infinity and a zero matrix stay in their system."""
    system = dominant(BATCH, 97)
    for plan in plans(97):
        before = solved(plan, system)
        for name, place, value in (("d", 0, np.nan), ("b", 96, np.inf), ("b", slice(None), 0)):
            broken = {key: array.copy() for key, array in system.items()}
            broken[name][1, place] = value
            others = np.arange(BATCH) != 1
            np.testing.assert_array_equal(solved(plan, broken)[others], before[others], plan.label())


@every_type
@pytest.mark.parametrize(("architecture", "longest"), [("sm_53", 2048), ("sm_90", 4096)])
def test_periodic_defaults_compile_lean(dtype: str, architecture: str, longest: int, cubins: Path) -> None:
    """Defaults and analytical answers spill nothing, and take about what the kernel file declares."""
    stages: list[Stage] = []
    for n in (100, 1001, longest):
        workload = KERNEL.workload({"N": n, "dtype": dtype})
        stated = KERNEL.stated(workload)
        assert stated is not None
        for configuration in (KERNEL.default(workload), stated):
            stages += KERNEL.plan(workload, configuration).stages
    check_resources(stages, architecture, cubins)
