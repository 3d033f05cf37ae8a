import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import numpy.typing as npt
import pytest
from scipy.linalg import solve_banded

from tuner.config import KernelFile, load_kernel_file
from tuner.model import Configuration, Plan, Source

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

Array = npt.NDArray[Any]
System = dict[str, Array]

KERNELS = Path(__file__).parents[1] / "kernels"
SCAN = load_kernel_file(KERNELS / "scan-lf" / "kernel.toml")
TRIDIAGONAL = load_kernel_file(KERNELS / "tridiag-wm" / "kernel.toml")
SIZES = [64, 128, 256, 512, 1024, 2048, 4096]
BATCH = 13  # odd, so that with N up to 512 the last block is not full
SAMPLE = 5  # configurations of each space, beside the default


def sampled_plans(kernel: KernelFile, n: int, batch: int = BATCH) -> list[Plan]:
    workload = kernel.workload({"N": n}, batch)
    space = kernel.space(workload)
    chosen = [kernel.default(workload), *random.Random(n).sample(list(space), SAMPLE)]  # noqa: S311 - reproducible
    plans = [kernel.plan(workload, configuration) for configuration in chosen]
    host_build.build_plans(plans)
    return plans


def relative_error(answer: Array, reference: Array) -> float:
    """Largest error of a row by the row's largest value; NaN where something was not written."""
    return float((abs(answer - reference).max(axis=1) / abs(reference).max(axis=1)).max())


def scanned(plan: Plan, x: Array, order: host_build.Order = "forward", seed: int = 0) -> Array:
    y = np.full_like(x, np.nan)
    x.flags.writeable = False  # a kernel that writes its input fails
    host_build.run_plan(plan, {"x": x, "y": y}, order=order, seed=seed)
    return y


def random_systems(batch: int, n: int) -> System:
    """Systems whose diagonal exceeds the rest of its row by 1 at least, and whose outer corners are not 0."""
    rng = np.random.default_rng(n)
    a, c = rng.uniform(-1, 1, (2, batch, n)).astype(np.float32)
    b = (rng.choice([-1, 1], (batch, n)) * rng.uniform(3, 4, (batch, n))).astype(np.float32)
    d = rng.standard_normal((batch, n)).astype(np.float32)
    return {"a": a, "b": b, "c": c, "d": d}


def solved(plan: Plan, system: System, order: host_build.Order = "forward") -> Array:
    x = np.full_like(system["d"], np.nan)
    for array in system.values():
        array.flags.writeable = False  # a kernel that writes an input fails
    host_build.run_plan(plan, {**system, "x": x}, order=order)
    return x


def reference_solution(system: System) -> Array:
    rows = []
    for lower, diagonal, upper, right in zip(*(system[name] for name in "abcd"), strict=True):
        bands = np.zeros((3, len(right)))
        bands[0, 1:], bands[1], bands[2, :-1] = upper[:-1], diagonal, lower[1:]
        rows.append(solve_banded((1, 1), bands, right.astype(np.float64)))
    return np.array(rows)


@pytest.mark.parametrize("n", SIZES)
def test_scan_is_right_to_rounding(n: int) -> None:
    """Any configuration, in any order of its threads, sums within 1e-6 of the row's largest sum."""
    x = np.random.default_rng(n).uniform(-1, 1, (BATCH, n)).astype(np.float32)
    reference = np.cumsum(x, axis=1, dtype=np.float64)
    for plan in sampled_plans(SCAN, n):
        for order in host_build.ORDERS:
            assert relative_error(scanned(plan, x, order), reference) <= 1e-6, (plan.label(), order)


@pytest.mark.parametrize("n", SIZES)
def test_tridiagonal_is_right_to_rounding(n: int) -> None:
    """Any configuration, in any order of its threads, solves dominant systems within 1e-6 of max |x|."""
    system = random_systems(BATCH, n)
    reference = reference_solution(system)
    for plan in sampled_plans(TRIDIAGONAL, n):
        for order in host_build.ORDERS:
            assert relative_error(solved(plan, system, order), reference) <= 1e-6, (plan.label(), order)


def test_scan_of_integers_is_exact() -> None:
    """Sums that float32 holds exactly come out exactly, so that no element is lost or counted twice."""
    x = np.random.default_rng(0).integers(-100, 100, (BATCH, 256)).astype(np.float32)
    for plan in sampled_plans(SCAN, 256):
        np.testing.assert_array_equal(scanned(plan, x), np.cumsum(x, axis=1), plan.label())


def test_tridiagonal_never_reads_its_outer_corners() -> None:
    """What stands in a[0] and c[N-1] does not matter, not even NaN."""
    system = random_systems(3, 512)
    reference = reference_solution(system)
    system["a"][:, 0] = system["c"][:, -1] = np.nan
    for plan in sampled_plans(TRIDIAGONAL, 512, batch=3):
        assert relative_error(solved(plan, system), reference) <= 1e-6, plan.label()


@pytest.mark.parametrize("kernel", [SCAN, TRIDIAGONAL], ids=lambda kernel: kernel.name)
def test_a_broken_row_spoils_no_other(kernel: KernelFile) -> None:
    """NaN in one problem stays there, though several share a warp and a block."""
    system = random_systems(BATCH, 64)
    system["d"][5] = np.nan
    for plan in sampled_plans(kernel, 64):
        answer = scanned(plan, system["d"]) if kernel is SCAN else solved(plan, system)
        np.testing.assert_array_equal(np.isnan(answer).all(axis=1), np.arange(BATCH) == 5, plan.label())
        assert not np.isnan(np.delete(answer, 5, axis=0)).any()


def with_code(plan: Plan, old: str, new: str) -> Plan:
    (stage,) = plan.stages
    source = stage.source
    headers = tuple((name, text.replace(old, new)) for name, text in source.headers)
    changed = Source(source.path, source.text.replace(old, new), headers)
    assert changed.sha256 != source.sha256
    return replace(plan, stages=(replace(stage, source=changed),))


@pytest.mark.parametrize(
    ("values", "barrier"),
    [
        ({"P": 4, "L": 256, "r": 2, "S": 8, "shuffle": True}, "__syncthreads();"),
        ({"P": 4, "L": 256, "r": 2, "S": 256, "shuffle": False}, "__syncthreads();"),
        ({"P": 16, "L": 64, "r": 4, "S": 64, "shuffle": False}, "__syncthreads();"),
        ({"P": 32, "L": 32, "r": 8, "S": 256, "shuffle": False}, "__syncwarp();"),
    ],
)
def test_scan_needs_its_barriers(values: dict[str, int | bool], barrier: str) -> None:
    """Without its barriers a scan goes wrong in some order, so these orders would show a missing one."""
    x = np.random.default_rng(0).uniform(-1, 1, (3, 1024)).astype(np.float32)
    plan = SCAN.plan(SCAN.workload({"N": 1024}, batch=3), Configuration(values))
    broken = with_code(plan, barrier, ";")
    reference = np.cumsum(x, axis=1, dtype=np.float64)
    assert relative_error(scanned(plan, x), reference) <= 1e-6
    assert not all(
        relative_error(scanned(broken, x, order), reference) <= 1e-6 for order in host_build.ORDERS
    )


@pytest.mark.parametrize(
    ("n", "values"),
    [
        (64, {"P": 2, "L": 128, "r": 4, "S": 128, "shuffle": False}),
        (128, {"P": 8, "L": 64, "r": 2, "S": 128, "shuffle": False}),
        (1024, {"P": 32, "L": 64, "r": 2, "S": 64, "shuffle": False}),
    ],
)
def test_scan_keeps_the_problems_of_a_block_apart(n: int, values: dict[str, int | bool]) -> None:
    """Problems packed closer at later levels meet those of other warps, and shuffled orders show it."""
    x = np.random.default_rng(n).uniform(-1, 1, (BATCH, n)).astype(np.float32)
    plan = SCAN.plan(SCAN.workload({"N": n}, BATCH), Configuration(values))
    packed = with_code(plan, "threadIdx.x / G * (G / first)", "threadIdx.x / G * (G / span)")
    reference = np.cumsum(x, axis=1, dtype=np.float64)
    seeds = range(8)
    assert all(relative_error(scanned(plan, x, "shuffle", seed), reference) <= 1e-6 for seed in seeds)
    assert not all(relative_error(scanned(packed, x, "shuffle", seed), reference) <= 1e-6 for seed in seeds)


@pytest.mark.parametrize(
    ("values", "barrier"),
    [
        ({"P": 4, "L": 256, "r": 2, "S": 16, "shuffle": True}, "__syncthreads();"),
        ({"P": 4, "L": 256, "r": 4, "S": 256, "shuffle": False}, "__syncthreads();"),
        ({"P": 8, "L": 128, "r": 2, "S": 1024, "shuffle": True}, "__syncwarp();"),
    ],
)
def test_tridiagonal_needs_its_barriers(values: dict[str, int | bool], barrier: str) -> None:
    """Without its barriers a solve goes wrong in some order, so these orders would show a missing one."""
    system = random_systems(3, 1024)
    plan = TRIDIAGONAL.plan(TRIDIAGONAL.workload({"N": 1024}, batch=3), Configuration(values))
    broken = with_code(plan, barrier, ";")
    reference = reference_solution(system)
    assert relative_error(solved(plan, system), reference) <= 1e-6
    assert not all(
        relative_error(solved(broken, system, order), reference) <= 1e-6 for order in host_build.ORDERS
    )


@pytest.mark.parametrize("kernel", [SCAN, TRIDIAGONAL], ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("n", SIZES)
def test_spaces_have_a_choice_and_a_default(kernel: KernelFile, n: int) -> None:
    """Every size leaves some dozens of configurations, the default among them, and a choice per tunable."""
    workload = kernel.workload({"N": n})
    space = kernel.space(workload)
    assert 25 <= len(space) <= 70
    assert kernel.default(workload) in space
    for name in kernel.tunables:
        assert len({configuration[name] for configuration in space}) >= 2, name
