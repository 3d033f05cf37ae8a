"""The tridiagonal kernels under one contract: right on the host in every order of their threads."""

import itertools
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import host_build
import numpy as np
import pytest
from compiled_stages import compiled_stages
from kernel_plans import kernel_of, plan_of
from tridiagonal_systems import (
    BATCH,
    Array,
    System,
    backward_error,
    dominant,
    error,
    one_by_one,
    reference,
    second_differences,
    several,
    solved,
    thomas,
)

from tuner.model.plan import Configuration, Plan, ProblemSpec, Stage, Workload
from tuner.problems.lookup import problem_for
from tuner.problems.tridiagonal import solve_periodic

METHODS = ("tridiag-cr", "tridiag-pcr", "tridiag-lf", "tridiag-wm")
ROUNDING = {"float32": 2.0**-24, "float64": 2.0**-53, "complex64": 2.0**-24}
SMALLEST = {"float32": 2.0**-120, "float64": 2.0**-997, "complex64": 2.0**-120}
WIDE = ("float64", "complex64")

needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
every_method = pytest.mark.parametrize("kernel", METHODS)


class Case(NamedTuple):
    """Systems for a kernel: rows, how many systems, right sides of each, numbers."""

    kernel: str
    n: int
    batch: int = BATCH
    sides: int = 1
    dtype: str = "float32"

    def __str__(self) -> str:
        return f"{self.kernel} {self.batch} of {self.n}, {self.sides}, {self.dtype}"

    @property
    def periodic(self) -> bool:
        return "periodic" in self.kernel

    def system(self) -> System:
        """Dominant ones."""
        if self.sides > 1:
            return several(self.batch, self.n, self.sides, self.dtype)
        return dominant(self.batch, self.n, dtype=self.dtype)

    def right(self, system: System) -> Array:
        """Their solutions, laid out as the right sides."""
        if self.periodic:
            circle: Array = solve_periodic(*(system[name] for name in "abcd"))
            return circle
        solution: Array = (reference if self.dtype == "float32" else thomas)(one_by_one(system))
        return np.reshape(solution, system["d"].shape)

    def off(self, x: Array, right: Array) -> float:
        """See ``error``; of each right side."""
        return error(x.reshape(-1, self.n), right.reshape(-1, self.n))

    def workload(self) -> Workload:
        sides = {"K": self.sides} if self.sides > 1 else {}
        return kernel_of(self.kernel).workload({"N": self.n, **sides, "dtype": self.dtype}, self.batch)

    def plans(self) -> list[Plan]:
        """The default and others that differ in how rows come and go: the host can run them."""
        kernel, workload = kernel_of(self.kernel), self.workload()
        plans = [kernel.plan(workload, c) for c in (kernel.default(workload), *self._drawn(workload))]
        host_build.build_plans(plans)
        return plans

    def _drawn(self, workload: Workload) -> list[Configuration]:
        kernel, method = kernel_of(self.kernel), self.kernel in METHODS
        space, default = list(kernel.space(workload)), kernel.default(workload)
        rng = random.Random(f"{self.kernel if method else self.n} {self.n if method else self.dtype}")  # noqa: S311 - reproducible
        if "form" in kernel.tunables:  # one of each
            runs: list[Plan] = []
            for form in kernel.tunables["form"]:
                shuffled = (
                    kernel.plan(workload, c) for c in rng.sample(space, len(space)) if c["form"] == form
                )
                runs += itertools.islice((one for one in shuffled if not host_build.needs_gpu(one)), 1)
            return [plan.configuration for plan in runs]
        if self.sides > 1:
            return [c for c in space if c["load"] == c["store"] == "transpose"][:1]
        if self.periodic:
            other = [c for c in space if c["load"] != default["load"] and c["G"] != default["G"]]
            return rng.sample(other, min(1, len(other)))
        if self.dtype in WIDE:  # through shared memory
            return [next(c for c in space if not c["shuffle"] and c["P"] == 4)]
        return rng.sample(space, 1)


# Last tiles of one row, of whole threads, that end within a thread, and whole ones.
SOLVED = (
    *(Case(kernel, n) for kernel in METHODS for n in (2, 7, 97, 130, 1000, 4096)),
    *(Case(kernel, 97, batch=1) for kernel in METHODS),
    *(Case(kernel, n, dtype=dtype) for kernel in METHODS for n in (97, 1000) for dtype in WIDE),
    *(
        Case(f"tridiag-{kernel}", *size)._replace(dtype=dtype)
        for kernel, sizes in (
            ("periodic", ((3,), (7,), (97,), (700,), (4096,))),
            ("periodic-large", ((129, 3), (257, 2), (1000, 3), (5001, 2), (40_000, 1))),
            ("large", ((129, 3), (5001, 3), (40_000, 1))),
            ("several", ((2, BATCH, 3), (7, BATCH, 2), (97, BATCH, 4), (256, BATCH, 3), (1000, BATCH, 2))),
            ("several-large", ((129, 3, 3), (5001, 2, 2), (20_000, 1, 4))),
        )
        for size in sizes
        for dtype in ROUNDING
    ),
)


def scaled(system: System, matrix: float, side: float) -> System:
    """The system times one factor, and its right side times another."""
    dtype = system["b"].dtype
    wide = {name: array.astype(np.result_type(dtype, np.float64)) for name, array in system.items()}
    return {name: (array * (side if name == "d" else matrix)).astype(dtype) for name, array in wide.items()}


@needs_compiler
@pytest.mark.parametrize("case", SOLVED, ids=str)
def test_systems_are_solved_to_rounding(case: Case) -> None:
    """At a margin of 0.05, and of any magnitude, unknowns err by 16 roundings of max |x|, in every order."""
    system, small = case.system(), SMALLEST[case.dtype]
    right, orders = case.right(system), host_build.ORDERS
    factors = [(1.0, 1.0), (small, small), (1 / small, 1 / small)]  # of matrix and right side
    if case.kernel in METHODS:
        factors += [(1.0, small), (1.0, 1 / small)]
    for k, plan in enumerate(case.plans()):
        order = orders[(k + case.n) % len(orders)]
        tried = [(order, one) for one in factors]
        if case.kernel in METHODS and case.dtype == "float32":  # of any magnitude below
            tried = [(order, factors[0]) for order in orders]
        for order, (matrix, side) in tried:
            x = solved(plan, scaled(system, matrix, side), order) * np.float64(matrix / side)
            assert case.off(x, right) <= 16 * ROUNDING[case.dtype], (plan.label(), order, matrix, side)


ALL = slice(None)
TROUBLES: dict[str, list[tuple[str, Any, float]]] = {  # arrays, places of a row, what stands there
    "zero pivot": [("b", 0, 0)],
    "zero diagonal": [("b", ALL, 0)],
    "zero matrix": [("a", ALL, 0), ("b", ALL, 0), ("c", ALL, 0)],
    "infinite row": [("a", ALL, np.inf)],
    "infinite": [("b", 3, np.inf)],
    "infinite at the end": [("b", -1, np.inf)],
    "overflow": [("d", ALL, 3e38)],
    "overflow of one": [("d", 0, 3e38)],
    "not a number": [("d", 3, np.nan)],  # of the second right side, if there are several
    "not a number at first": [("d", 0, np.nan)],
    "not dominant": [("b", ALL, 1), ("b", slice(0, None, 3), -1), ("b", slice(1, None, 3), 0)],
}
BROKEN = (
    *(Case(kernel, n) for kernel in METHODS for n in (7, 97, 1000)),
    *(Case(kernel, 97, dtype=dtype) for kernel in METHODS for dtype in WIDE),
    Case("tridiag-periodic", 97),
    Case("tridiag-several", 97, sides=3),
    *(Case(f"tridiag-{kernel}", 1000, 3) for kernel in ("large", "periodic-large")),
    Case("tridiag-several-large", 1000, 3, 3),
)


@needs_compiler
@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_a_broken_system_changes_no_other(case: Case) -> None:
    """Systems, also in one warp, keep every bit beside one that has no solution; corners are never used.

    So do right sides of one system.
    """
    system = case.system()
    right = case.right(system)
    if not case.periodic:
        system["a"][:, 0] = system["c"][:, -1] = np.nan
    for plan in case.plans():
        before = solved(plan, system)
        assert case.off(before, right) <= 16 * ROUNDING[case.dtype], plan.label()
        for trouble, changes in TROUBLES.items():
            broken = {key: array.copy() for key, array in system.items()}
            for name, place, value in changes:
                second = case.n if name == "d" and place == 3 and case.sides > 1 else 0
                broken[name][1, place + second if second else place] = value
            after = solved(plan, broken)
            said = f"{plan.label()}: {trouble}"
            np.testing.assert_array_equal(np.delete(after, 1, axis=0), np.delete(before, 1, axis=0), said)
            if trouble == "not a number":
                sides, old = (one[1].reshape(-1, case.n) for one in (after, before))
                which = min(1, case.sides - 1)
                assert np.isnan(sides[which]).any(), said
                np.testing.assert_array_equal(np.delete(sides, which, 0), np.delete(old, which, 0), said)
            if trouble in ("zero pivot", "zero matrix") and case.kernel in METHODS:
                assert not np.isfinite(after[1]).all(), said


def weakly_dominant(batch: int, n: int) -> System:
    """Dominant systems whose margin is 1 % of a row."""
    system = dominant(batch, n)
    rest = abs(system["a"]) + abs(system["c"])
    return {**system, "b": (np.sign(system["b"]) * (1.01 * rest + 1e-3)).astype(np.float32)}


@needs_compiler
@pytest.mark.parametrize(
    "case",
    [
        *(Case(kernel, n, 3) for kernel in METHODS for n in (130, 4096)),
        Case("tridiag-large", 20_000, 2),
        Case("tridiag-periodic-large", 9001, 2),
    ],
    ids=str,
)
def test_backward_errors_are_rounding(case: Case) -> None:
    """As those of elimination in order, also where dominance is weak or absent; LF's defect exceeds it.

    (-1, 2, -1) errs by its condition number.
    """
    weak, absent = weakly_dominant(case.batch, case.n), second_differences(case.batch, case.n)
    systems = [weak] if case.periodic else [absent] if case.kernel in METHODS else [weak, absent]
    most = 2e-4 if case.kernel == "tridiag-lf" else 4 * ROUNDING["float32"]
    for plan, system in itertools.product(case.plans(), systems):
        x = solved(plan, system)
        assert backward_error(system, x, periodic=case.periodic) <= most, plan.label()
        if system is absent:
            assert error(x, reference(system)) <= case.n**2 * ROUNDING["float32"], plan.label()


@needs_compiler
def test_every_way_between_memory_and_registers_gives_the_same() -> None:
    """How rows are loaded and stored changes no bit of the answer, whether N leaves them aligned or not."""
    ways = itertools.product(("direct", "transpose", "async"), ("direct", "transpose"))
    every: list[Mapping[str, Any]] = [
        {"P": 8, "L": 32, "shuffle": True, "load": load, "store": store} for load, store in ways
    ]
    for n in (52, 53, 54):
        system = dominant(BATCH, n)
        plans = [plan_of("tridiag-pcr", {"N": n}, BATCH, one) for one in every]  # the kernels share this part
        host_build.build_plans(plans)
        answers = [solved(plan, system, "shuffle") for plan in plans]
        assert error(answers[0], reference(system)) <= 1e-6
        for answer in answers[1:]:
            np.testing.assert_array_equal(answer, answers[0])


@needs_compiler
@every_method
def test_powers_of_two_pass_through(kernel: str) -> None:
    """Rows times powers of two leave every bit of the answer, and a right side twice as large doubles it."""
    system = dominant(BATCH, 130)
    scale = np.exp2(np.random.default_rng(1).integers(-8, 9, (BATCH, 130))).astype(np.float32)
    scaled = {name: array * scale for name, array in system.items()}
    for plan in Case(kernel, 130).plans():
        x = solved(plan, system)
        np.testing.assert_array_equal(solved(plan, scaled), x, plan.label())
        np.testing.assert_array_equal(solved(plan, {**system, "d": 2 * system["d"]}), 2 * x, plan.label())


def magnitudes(n: int) -> Iterator[tuple[str, System, Array]]:
    """Systems with numbers near the ends of the range of float32, and their solutions."""
    system = dominant(BATCH, n)
    apart = np.exp2(np.random.default_rng(n).integers(-100, 120, (BATCH, n))).astype(np.float32)
    yield "rows of any magnitude", {name: array * apart for name, array in system.items()}, reference(system)
    factors = {f"rows times 1e{power}": (10.0**power,) * 2 for power in (34, 36, 38, -34, -36, -38, -40)}
    for power in (36, -36):
        factors[f"unknowns near 1e{power}"] = 1.0, 10.0**power
        factors[f"unknowns near 1e{power} by both"] = 10.0 ** (power // -2), 10.0 ** (power // 2)
    for what, (matrix, side) in factors.items():
        changed = scaled(system, matrix, side)
        yield what, changed, reference(changed)


@needs_compiler
@every_method
def test_any_magnitude_is_solved_to_rounding(kernel: str) -> None:
    """Coefficients from 1e-40 to 3e38 and unknowns from 1e-36 to 1e36 lose no digit."""
    for what, system, right in magnitudes(97):
        for plan in Case(kernel, 97).plans():
            assert error(solved(plan, system), right) <= 1e-6, (what, plan.label())


@every_method
@pytest.mark.parametrize("architecture", ["sm_53", "sm_90"])
def test_defaults_compile_lean(kernel: str, architecture: str, cubins: Path) -> None:
    """With and without shuffles they spill nothing, leave room for two blocks, and take what is declared."""
    stages: list[Stage] = []
    for n, shuffle in itertools.product((64, 1001, 4096), (True, False)):
        workload = kernel_of(kernel).workload({"N": n})
        default = {**kernel_of(kernel).default(workload), "shuffle": shuffle}
        if not shuffle and "direct" == default["load"] == default["store"]:
            default["S"] = default["L"]
        stages += kernel_of(kernel).plan(workload, Configuration(default)).stages
    results = compiled_stages(stages, architecture, cubins)
    for stage, result in zip(stages, results, strict=True):
        found, declared = result.resources, stage.declared
        assert declared is not None
        assert found.spill_bytes == found.local_bytes == 0, stage.entry
        assert found.registers_per_thread * stage.block[0] <= 32768, stage.entry
        assert found.static_shared_bytes == declared.static_shared_bytes, stage.entry
        assert 0.7 <= declared.registers_per_thread / found.registers_per_thread <= 1.5, stage.entry


def dense(system: System) -> Array:
    """The solutions of small periodic systems by their whole matrices."""
    a, b, c, d = (system[name].astype(np.promote_types(system[name].dtype, np.float64)) for name in "abcd")
    batch, n = d.shape
    matrix = np.zeros((batch, n, n), d.dtype)
    i = np.arange(n)
    for places, values in ((i, b), ((i - 1) % n, a), ((i + 1) % n, c)):
        matrix[:, i, places] += values
    solution: Array = np.linalg.solve(matrix, d[:, :, None])[:, :, 0]
    return solution


def test_the_periodic_reference_is_that_of_whole_matrices() -> None:
    """The formula of Sherman and Morrison gives what a dense solver does."""
    for n in (3, 4, 50):
        system = dominant(BATCH, n)
        np.testing.assert_allclose(solve_periodic(*(system[k] for k in "abcd")), dense(system), rtol=1e-10)


def test_the_problem_knows_periodic_systems() -> None:
    """Inputs keep their corners, a right answer passes, and that of the open system does not."""
    plan = plan_of("tridiag-periodic", {"N": 40}, BATCH)
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


def test_the_problem_judges_every_right_side() -> None:
    """A right answer passes; one wrong number of the last right side of a system does not."""
    plan, problem = (
        plan_of("tridiag-several", {"N": 40, "K": 3}, BATCH),
        problem_for(ProblemSpec("tridiagonal")),
    )
    inputs = problem.inputs(np, np.random.default_rng(0), plan.buffers, {})
    x = thomas(one_by_one(inputs)).astype(np.float32).reshape(BATCH, 120)
    for right in (True, False):
        for verdict in (problem.compare(inputs, {"x": x}, {}), problem.residual(np, inputs, {"x": x}, {})):
            assert verdict.ok is right
            assert right or verdict.row == 2
        x[2, 119] += 0.1
