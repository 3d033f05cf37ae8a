"""The tridiagonal kernels: right on the host in every order of their threads, and lean as compiled."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import host_build
import numpy as np
import pytest
from compiled_stages import compiled_stages
from tridiagonal_systems import (
    BATCH,
    KERNELS,
    ROUNDING,
    Array,
    System,
    backward_error,
    built,
    dominant,
    error,
    plan_of,
    plans,
    reference,
    second_differences,
    solved,
)

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, Plan, Source, Stage

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))


@every_kernel
@pytest.mark.parametrize("n", [2, 7, 97, 130, 1000, 4096])
def test_dominant_systems_are_solved_to_rounding(kernel: KernelFile, n: int) -> None:
    """Any number of rows, in any order of threads: within 1e-6 of max |x| at a margin of 0.05."""
    system = dominant(BATCH, n)
    right = reference(system)
    for plan in plans(kernel, n):
        for order in host_build.ORDERS:
            assert error(solved(plan, system, order), right) <= 1e-6, (plan.label(), order)


@every_kernel
def test_one_system_alone_is_solved(kernel: KernelFile) -> None:
    """A batch of one, in a block for many, is solved as well, and nothing is written beside it."""
    system = dominant(1, 97)
    for plan in plans(kernel, 97, batch=1):
        assert error(solved(plan, system), reference(system)) <= 1e-6, plan.label()


def test_every_way_between_memory_and_registers_gives_the_same() -> None:
    """How rows are loaded and stored changes no bit of the answer, whether N leaves them aligned or not."""
    kernel = KERNELS["tridiag-pcr"]  # the kernels share this part
    for n in (52, 53, 54):
        system = dominant(BATCH, n)
        ways = [
            (load, store) for load in ("direct", "transpose", "async") for store in ("direct", "transpose")
        ]
        chosen = built(
            [plan_of(kernel, n, P=8, L=32, shuffle=True, load=way[0], store=way[1]) for way in ways]
        )
        answers = [solved(plan, system, "shuffle") for plan in chosen]
        assert error(answers[0], reference(system)) <= 1e-6
        for answer in answers[1:]:
            np.testing.assert_array_equal(answer, answers[0])


@every_kernel
def test_outer_corners_are_never_used(kernel: KernelFile) -> None:
    """What stands in a[0] and c[N-1] does not matter, not even NaN."""
    for n in (97, 1000):
        system = dominant(3, n)
        right = reference(system)
        system["a"][:, 0] = system["c"][:, -1] = np.nan
        for plan in plans(kernel, n, batch=3):
            assert error(solved(plan, system), right) <= 1e-6, plan.label()


@every_kernel
@pytest.mark.parametrize(
    "trouble", ["zero pivot", "zero matrix", "not a number", "infinite", "overflow", "not dominant"]
)
def test_a_bad_system_changes_no_other(kernel: KernelFile, trouble: str) -> None:
    """Systems that share a warp with one that cannot be solved keep every bit of their answers."""
    system = dominant(BATCH, 7)
    chosen = plans(kernel, 7)
    before = [solved(plan, system) for plan in chosen]
    if trouble == "zero pivot":
        system["b"][2, 0] = 0
    elif trouble == "zero matrix":
        for name in "abc":
            system[name][2] = 0
    elif trouble == "not a number":
        system["d"][2, 3] = np.nan
    elif trouble == "infinite":
        system["b"][2, 3] = np.inf
    elif trouble == "overflow":
        system["d"][2] = 3e38
    else:
        system["b"][2] = np.random.default_rng(0).integers(-1, 2, 7)
    for plan, answer in zip(chosen, before, strict=True):
        after = solved(plan, system)
        np.testing.assert_array_equal(np.delete(after, 2, axis=0), np.delete(answer, 2, axis=0), plan.label())
        if trouble in ("zero pivot", "zero matrix"):
            assert not np.isfinite(after[2]).all(), plan.label()


@every_kernel
@pytest.mark.parametrize("n", [130, 4096])
def test_second_differences_give_what_their_condition_leaves(kernel: KernelFile, n: int) -> None:
    """(-1, 2, -1) gives no NaN and errs by its condition number; only LF's defect exceeds rounding."""
    system = second_differences(3, n)
    for plan in plans(kernel, n, batch=3):
        x = solved(plan, system)
        assert error(x, reference(system)) <= n**2 * ROUNDING, plan.label()
        assert backward_error(system, x) <= (2e-4 if kernel.name == "tridiag-lf" else 4 * ROUNDING), (
            plan.label()
        )


@every_kernel
def test_powers_of_two_pass_through(kernel: KernelFile) -> None:
    """Rows times powers of two leave every bit of the answer, and a right side twice as large doubles it."""
    system = dominant(BATCH, 130)
    scale = np.exp2(np.random.default_rng(1).integers(-8, 9, (BATCH, 130))).astype(np.float32)
    scaled = {name: array * scale for name, array in system.items()}
    doubled = {**system, "d": 2 * system["d"]}
    for plan in plans(kernel, 130):
        x = solved(plan, system)
        np.testing.assert_array_equal(solved(plan, scaled), x, plan.label())
        np.testing.assert_array_equal(solved(plan, doubled), 2 * x, plan.label())


def magnitudes(n: int) -> Iterator[tuple[str, System, Array]]:
    """Systems with numbers near the ends of the range of float32, and their solutions."""
    system = dominant(BATCH, n)
    apart = np.exp2(np.random.default_rng(n).integers(-100, 120, (BATCH, n))).astype(np.float32)
    yield "rows of any magnitude", {name: array * apart for name, array in system.items()}, reference(system)
    whole = {name: array.astype(np.float64) for name, array in system.items()}
    cases = {
        f"rows times 1e{power}": {name: array * 10.0**power for name, array in whole.items()}
        for power in (34, 36, 38, -34, -36, -38, -40)
    }
    for power in (36, -36):
        cases[f"unknowns near 1e{power}"] = {**whole, "d": whole["d"] * 10.0**power}
        both = {name: whole[name] * 10.0 ** (power // -2) for name in "abc"}
        cases[f"unknowns near 1e{power} by both"] = {**both, "d": whole["d"] * 10.0 ** (power // 2)}
    for what, exact in cases.items():
        system = {name: array.astype(np.float32) for name, array in exact.items()}
        yield what, system, reference(system)


@every_kernel
def test_any_magnitude_is_solved_to_rounding(kernel: KernelFile) -> None:
    """Coefficients from 1e-40 to 3e38 and unknowns from 1e-36 to 1e36 lose no digit."""
    for what, system, right in magnitudes(97):
        for plan in plans(kernel, 97):
            assert error(solved(plan, system), right) <= 1e-6, (what, plan.label())


def with_code(plan: Plan, old: str, new: str) -> Plan:
    (stage,) = plan.stages
    source = stage.source
    headers = tuple((name, text.replace(old, new)) for name, text in source.headers)
    changed = Source(source.path, source.text.replace(old, new), headers)
    return replace(plan, stages=(replace(stage, source=changed),))


@every_kernel
@pytest.mark.parametrize("shuffle", [True, False])
def test_threads_need_their_barriers(kernel: KernelFile, shuffle: bool) -> None:
    """What threads exchange has barriers between, and goes wrong without."""
    plan = plan_of(kernel, 512, 3, P=8, L=64, shuffle=shuffle, load="direct", store="direct")
    assert_barriers_are_needed_and_enough(plan, "__syncthreads();")


@pytest.mark.parametrize("load", ["transpose", "async"])
def test_tiles_need_their_barriers(load: str) -> None:
    """What lanes exchange through their warp's tile has barriers between, and goes wrong without."""
    plan = plan_of(KERNELS["tridiag-pcr"], 512, 3, P=8, L=64, shuffle=True, load=load, store="transpose")
    assert_barriers_are_needed_and_enough(plan, "__syncwarp();")


def assert_barriers_are_needed_and_enough(plan: Plan, barrier: str) -> None:
    """No two threads meet in memory without a barrier between; with none, some order gives a wrong answer."""
    system = dominant(3, 512)
    right = reference(system)
    for order in host_build.ORDERS:
        assert error(solved(plan, system, order, host_build.CHECKED), right) <= 1e-6, order
    broken = with_code(plan, barrier, ";")
    assert not all(error(solved(broken, system, order), right) <= 1e-6 for order in host_build.ORDERS)


@every_kernel
def test_spaces_have_a_choice_and_a_default(kernel: KernelFile) -> None:
    """Large systems leave 60 configurations at least, none more than can be tried, the default among them."""
    for n in (2, 3, 31, 64, 65, 100, 512, 1025, 2048, 4095, 4096):
        workload = kernel.workload({"N": n})
        space = kernel.space(workload)
        assert (60 if n >= 64 else 1) <= len(space) <= 1500, n
        assert kernel.default(workload) in space, n


@every_kernel
@pytest.mark.parametrize("architecture", ["sm_53", "sm_90"])
def test_defaults_compile_lean(kernel: KernelFile, architecture: str, cubins: Path) -> None:
    """Defaults spill nothing, leave room for two blocks, and take what the kernel file declares."""
    stages: list[Stage] = []
    for n in (64, 1001, 4096):
        workload = kernel.workload({"N": n})
        for shuffle in (True, False):
            default = {**kernel.default(workload), "shuffle": shuffle}
            if not shuffle and default["load"] == "direct":
                default["S"] = default["L"]
            stages += kernel.plan(workload, Configuration(default)).stages
    results = compiled_stages(stages, architecture, cubins)
    for stage, result in zip(stages, results, strict=True):
        found, declared = result.resources, stage.declared
        assert declared is not None
        assert found.spill_bytes == found.local_bytes == 0, stage.entry
        assert found.registers_per_thread * stage.block[0] <= 32768, stage.entry
        assert found.static_shared_bytes == declared.static_shared_bytes, stage.entry
        assert 0.7 <= declared.registers_per_thread / found.registers_per_thread <= 1.5, stage.entry
