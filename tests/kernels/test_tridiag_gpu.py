"""The tridiagonal kernels on a real GPU: right in every type, method and form, launch after launch."""

import itertools
import random
from typing import Any

import numpy as np
import pytest
from gpu_kernels import compile_ahead, runs_here
from tridiagonal_systems import (
    System,
    backward_error,
    dominant,
    error,
    reference,
    second_differences,
    thomas,
)

import tuner
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.source_folder import kernels_root
from tuner.model.plan import Plan
from tuner.problems.tridiagonal import solve, solve_periodic

pytestmark = pytest.mark.gpu

CATALOG = Catalog.load(search_path=[kernels_root()])
ALLOWED = {"float32": 1e-6, "float64": 32 * 2**-53, "complex64": 32 * 2**-24}
FACTORS = {"float32": (1.0, 1e36, 1e-36), "float64": (1.0, 1e300, 1e-300), "complex64": (1.0, 1e36, 1e-36)}
METHODS = ("tridiag-cr", "tridiag-pcr", "tridiag-lf", "tridiag-wm")
LARGE = ("tridiag-large", "tridiag-periodic-large")
LONG = 100_000  # beyond, LAPACK is asked, as Thomas in NumPy takes long
LAUNCHES = 300


def cases() -> list[Plan]:
    """Of every method and type: the default and a drawn configuration; of long systems one of each form."""
    rng = random.Random(1)  # noqa: S311 - a sample, not a secret
    plans = []
    for name, dtype in itertools.product((*METHODS, "tridiag-periodic", *LARGE), ALLOWED):
        kernel = CATALOG.kernel(name)
        lengths = ((8192, 5), (65_535, 3), (2**20 + 3, 1)) if name in LARGE else ((97, 1001), (2048, 7))
        for n, batch in lengths:
            workload = kernel.workload({"N": n, "dtype": dtype}, batch)
            space = list(kernel.space(workload))
            few = [c for c in space if int(c.get("P", c.get("P1", 2))) * np.dtype(dtype).itemsize <= 64]
            chosen = [kernel.default(workload), kernel.stated(workload), rng.choice(few)]
            clusters = [c for c in few if c.get("form") == "cluster"]
            chosen += rng.sample(clusters, min(1, len(clusters)))
            plans += [kernel.plan(workload, c) for c in dict.fromkeys(chosen) if c is not None]
    return plans


CASES = cases()


@pytest.fixture(scope="module")
def _compiled(cp: Any) -> None:
    compile_ahead(cp, CASES)


def solution(cp: Any, plan: Plan, system: System) -> Any:
    if not runs_here(cp, plan):
        pytest.skip("not for this GPU")
    arrays = [cp.asarray(system[name]) for name in "abcd"]
    return tuner.apply(plan.workload.kernel, *arrays, configuration=dict(plan.configuration)).get()


def shape_of(plan: Plan) -> tuple[int, int]:
    """Systems and rows."""
    batch, n = plan.buffers[0].shape
    return batch, n


def right_answer(plan: Plan, system: System) -> Any:
    if plan.workload.kernel.startswith("tridiag-periodic"):
        return solve_periodic(*(system[name] for name in "abcd"))
    if shape_of(plan)[1] < LONG:
        return thomas(system)
    return solve(*(system[name] for name in "abcd"))


@pytest.mark.usefixtures("_compiled")
@pytest.mark.parametrize("plan", CASES, ids=lambda plan: plan.label())
def test_systems_are_solved_to_rounding(cp: Any, plan: Plan) -> None:
    """At a margin of 0.05, and at the ends of the range, unknowns err by roundings of the largest one."""
    batch, n = shape_of(plan)
    dtype = plan.buffers[0].dtype
    system = dominant(batch, n, dtype=dtype)
    right = right_answer(plan, system)
    for factor in FACTORS[dtype]:
        power = np.exp2(np.round(np.log2(factor)))
        scaled = {name: (array * power).astype(dtype) for name, array in system.items()}
        assert error(solution(cp, plan, scaled), right) <= ALLOWED[dtype], factor


@pytest.mark.usefixtures("_compiled")
def test_a_broken_system_changes_no_other(cp: Any) -> None:
    """NaN, infinity and zero pivots stay in their system, whatever the form."""
    for plan in CASES:
        batch, n = shape_of(plan)
        if batch < 3 or n > LONG or not runs_here(cp, plan):
            continue
        system = dominant(batch, n, dtype=plan.buffers[0].dtype)
        before = solution(cp, plan, system)
        system["d"][1, n // 2], system["b"][1, 0] = np.nan, 0
        others = np.arange(batch) != 1
        np.testing.assert_array_equal(solution(cp, plan, system)[others], before[others], plan.label())


@pytest.mark.parametrize("dtype", ALLOWED)
def test_several_right_sides_are_solved_to_rounding(cp: Any, dtype: str) -> None:
    """The unknowns of each right side err by roundings of the largest one."""
    for n, sides, batch in (
        (97, 4, 101),
        (1024, 2, 7),
        (2048, 3, 7),
        (9001, 4, 3),
        (2**17, 2, 1),
        (65_535, 3, 2),
    ):
        system = dominant(batch, n, dtype=dtype)
        right_sides = [dominant(batch, n, k, dtype)["d"] for k in range(sides)]
        arrays = [system["a"], system["b"], system["c"], np.concatenate(right_sides, axis=1)]
        answers = thomas if n < LONG else reference
        for configuration in ("default", None):
            found = tuner.apply(
                "tridiag-several", *map(cp.asarray, arrays), configuration=configuration, K=sides
            )
            x = found.get()
            for k, d in enumerate(right_sides):
                assert error(x[:, k * n : (k + 1) * n], answers({**system, "d": d})) <= ALLOWED[dtype], (n, k)


@pytest.mark.usefixtures("_compiled")
def test_second_differences_leave_a_defect_of_rounding(cp: Any) -> None:
    """(-1, 2, -1) gives no NaN, and long systems of it a backward error of rounding."""
    for plan in CASES:
        if plan.workload.kernel == "tridiag-large" and plan.buffers[0].dtype == "float32":
            system = second_differences(*shape_of(plan))
            if runs_here(cp, plan):
                assert backward_error(system, solution(cp, plan, system)) <= 8 * 2**-24, plan.label()


@pytest.mark.usefixtures("_compiled")
def test_launches_give_the_same_answer_every_time(cp: Any) -> None:
    """Hundreds of launches of each form agree to the last bit, beside copies in another stream."""
    junk, stream = cp.zeros((2, 2**22), cp.float32), cp.cuda.Stream(non_blocking=True)
    for plan in CASES:
        if plan.workload.kernel not in LARGE or plan.buffers[0].dtype != "float32":
            continue
        if not runs_here(cp, plan):
            continue
        system = dominant(*shape_of(plan))
        arrays = [cp.asarray(system[name]) for name in "abcd"]
        ready = tuner.plan(plan.workload.kernel, *arrays, configuration=dict(plan.configuration))
        expected, wrong = ready().copy(), cp.zeros((), cp.int64)
        for _ in range(LAUNCHES):
            with stream:
                cp.copyto(junk[0], junk[1])
            ready.out.fill(-1)
            ready()
            cp.add(wrong, (ready.out != expected).any(), out=wrong)
        assert int(wrong) == 0, plan.label()
