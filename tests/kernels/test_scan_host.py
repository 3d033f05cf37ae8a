"""The scan kernels: right on the host in every order of their threads, and lean as compiled."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import numpy.typing as npt
import pytest
from compiled_stages import compiled_stages
from examples import FEW
from hypothesis import given
from hypothesis import strategies as st

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, Plan, Source, TunableValue

Array = npt.NDArray[Any]
Values = dict[str, TunableValue]

FOLDER = Path(__file__).parents[2] / "kernels"
KERNELS = {name: load_kernel_file(FOLDER / name / "kernel.toml") for name in ("scan-lf", "scan-ks")}
SIZES = [2, 3, 31, 64, 250, 1000, 2048, 8191, 8192]
DTYPES = ("float32", "float64", "int32")
FORMS = ("inclusive", "exclusive")
ALLOWED = {"float32": 1e-6, "float64": 1e-14, "int32": 0.0}

# What was fastest on an H200, and the registers with which enough of it is in flight.
DESIGNS: list[tuple[int, Values, int]] = [
    (64, {"P": 4, "L": 128, "store": "direct"}, 32),
    (512, {"P": 8, "L": 128, "store": "direct"}, 32),
    (512, {"P": 32, "L": 32, "store": "bulk"}, 64),
    (1024, {"P": 16, "L": 64, "store": "direct"}, 40),
    (2048, {"P": 8, "L": 512, "store": "direct"}, 32),
    (2048, {"P": 8, "L": 256, "store": "bulk", "cap": 1536}, 40),
    (2048, {"P": 64, "L": 64, "store": "direct"}, 128),
    (8192, {"P": 8, "L": 1024, "store": "bulk"}, 32),
    (8192, {"P": 64, "L": 128, "store": "bulk"}, 128),
]

needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
each_kernel = pytest.mark.parametrize("name", KERNELS)


def plan_of(name: str, sizes: dict[str, int | str], batch: int, **values: TunableValue) -> Plan:
    """The first configuration of the space that has these values."""
    kernel = KERNELS[name]
    workload = kernel.workload(sizes, batch)
    fits = (c for c in kernel.space(workload) if values.items() <= dict(c).items())
    return kernel.plan(workload, next(fits))


def sampled(kernel: KernelFile, N: int) -> list[Plan]:
    """Three configurations of random types and forms: by shuffles, through a bulk store, by shared memory."""
    rng = random.Random(f"{kernel.name} {N}")  # noqa: S311 - reproducible
    plans = []
    for shuffle, store in ((True, "direct"), (True, "bulk"), (False, "direct")):
        sizes: dict[str, int | str] = {"N": N, "dtype": rng.choice(DTYPES), "form": rng.choice(FORMS)}
        workload = kernel.workload(sizes, rng.choice([1, max(2, min(13, 20_000 // N))]))
        space = [c for c in kernel.space(workload) if (c["shuffle"], c["store"]) == (shuffle, store)]
        if space:
            plans.append(kernel.plan(workload, rng.choice(space)))
    return plans


def numbers(plan: Plan, seed: int) -> Array:
    shape, dtype = plan.buffers[0].shape, np.dtype(plan.buffers[0].dtype)
    rng = np.random.default_rng(seed)
    if dtype.kind == "i":
        return rng.integers(-(2**31), 2**31, shape).astype(dtype)
    return rng.uniform(-1, 1, shape).astype(dtype)


def scanned(plan: Plan, x: Array, order: host_build.Order = "forward", seed: int = 0) -> Array:
    x.flags.writeable = False  # a kernel that writes its input fails
    y = np.empty_like(x)
    y.view(np.uint8).fill(0xFF)
    host_build.run_plan(plan, {"x": x, "y": y}, order=order, seed=seed)
    return y


def error(plan: Plan, x: Array, y: Array) -> float:
    """Largest error of a row by the row's largest sum; of whole numbers, the largest error."""
    whole = x.dtype.kind == "i"
    sums = np.cumsum(x, axis=1, dtype=x.dtype if whole else np.longdouble)
    scale = np.ones(len(x)) if whole else abs(sums).max(axis=1)
    if dict(plan.workload.sizes)["form"] == "exclusive":
        sums = np.concatenate([np.zeros_like(sums[:, :1]), sums[:, :-1]], axis=1)
    difference = abs(y.astype(np.int64) - sums) if whole else abs(y - sums)
    return float((difference.max(axis=1) / scale).max())


def allowed(plan: Plan) -> float:
    return ALLOWED[plan.buffers[0].dtype]


@needs_compiler
@each_kernel
def test_sums_are_right_to_rounding(name: str) -> None:
    """At any length, in any type, form, design and order of threads, sums are right to rounding, or exact."""
    plans = [plan for N in SIZES for plan in sampled(KERNELS[name], N)]
    host_build.build_plans(plans)
    for plan in plans:
        x = numbers(plan, 1)
        for order in host_build.ORDERS:
            assert error(plan, x, scanned(plan, x, order)) <= allowed(plan), (
                str(plan.workload),
                plan.label(),
                order,
            )


wide = st.integers(-(2**31), 2**31 - 1)


@needs_compiler
@pytest.mark.parametrize("values", [{"shuffle": True}, {"shuffle": False, "r": 4}])
@each_kernel
@FEW
@given(x=st.lists(wide, min_size=21, max_size=21))
def test_sums_obey_their_laws(name: str, values: Values, x: list[int]) -> None:
    """Modulo 2^32, sums of parts add up, and a sum without its element is the one before."""
    sums = {
        form: plan_of(name, {"N": 21, "dtype": "int32", "form": form}, 3, P=4, L=64, **values)
        for form in FORMS
    }
    rows = np.array([x, x[::-1], [0] * 21]).astype(np.int32)
    rows[2] = rows[0] + rows[1]
    inclusive, exclusive = (scanned(sums[form], rows) for form in FORMS)
    np.testing.assert_array_equal(inclusive[2], inclusive[0] + inclusive[1])
    np.testing.assert_array_equal(exclusive[:, 1:], inclusive[:, :-1])
    np.testing.assert_array_equal(exclusive + rows, inclusive)


@needs_compiler
@pytest.mark.parametrize(
    ("N", "values"),
    [
        (60, {"P": 4, "shuffle": True, "store": "direct"}),
        (60, {"P": 4, "shuffle": True, "store": "bulk"}),
        (60, {"P": 8, "shuffle": False}),
        (61, {"P": 16, "shuffle": True}),
    ],
)
@each_kernel
def test_a_broken_row_spoils_no_other(name: str, N: int, values: Values) -> None:
    """NaN in one row stays there, though several share a warp and a block, and the last block is not full."""
    plan = plan_of(name, {"N": N}, 13, L=128, **values)
    x = numbers(plan, 2)
    x[5] = np.nan
    y = scanned(plan, x, "shuffle")
    assert np.isnan(y[5]).all()
    assert error(plan, np.delete(x, 5, axis=0), np.delete(y, 5, axis=0)) <= allowed(plan)


def with_code(plan: Plan, old: str, new: str) -> Plan:
    (stage,) = plan.stages
    source = stage.source
    headers = tuple((name, text.replace(old, new)) for name, text in source.headers)
    changed = Source(source.path, source.text.replace(old, new), headers)
    assert changed.sha256 != source.sha256
    return replace(plan, stages=(replace(stage, source=changed),))


@needs_compiler
@pytest.mark.parametrize(
    ("N", "values", "barrier"),
    [
        (1024, {"P": 4, "L": 256, "shuffle": True, "store": "direct"}, "__syncthreads();"),
        (64, {"P": 8, "L": 128, "shuffle": True, "store": "bulk"}, "__syncwarp();"),
        (1024, {"P": 4, "L": 256, "shuffle": False, "r": 2}, "__syncthreads();"),
        (1024, {"P": 16, "L": 64, "shuffle": False, "r": 4, "S": 64}, "__syncthreads();"),
        (1024, {"P": 32, "L": 32, "shuffle": False, "r": 8, "S": 256}, "__syncwarp();"),
    ],
)
@each_kernel
def test_barriers_are_needed(name: str, N: int, values: Values, barrier: str) -> None:
    """Without its barriers a scan goes wrong in some order, so these orders would show a missing one."""
    plan = plan_of(name, {"N": N}, 3, **values)
    broken = with_code(plan, barrier, ";")
    x = numbers(plan, 3)
    assert error(plan, x, scanned(plan, x)) <= allowed(plan)
    assert not all(error(plan, x, scanned(broken, x, order)) <= allowed(plan) for order in host_build.ORDERS)


@each_kernel
def test_spaces_are_worth_a_search(name: str) -> None:
    """Every length and type has its default in its space, of at most 1000; there are 60 at the largest."""
    kernel = KERNELS[name]
    for N in [*SIZES, 4097, 4100]:
        for dtype in DTYPES:
            workload = kernel.workload({"N": N, "dtype": dtype})
            space = kernel.space(workload)
            assert kernel.default(workload) in space
            assert len(space) <= 1000
    assert len(kernel.space(kernel.workload({"N": 8192}))) >= 60
    for tunable in kernel.tunables:
        choice = {configuration[tunable] for configuration in kernel.space(kernel.workload({"N": 2048}))}
        assert len(choice) >= 2, tunable


@pytest.mark.parametrize("architecture", ["sm_53", "sm_90"])
@each_kernel
def test_fast_designs_stay_lean(name: str, architecture: str, cubins: Path) -> None:
    """The designs that reach the limit of the memory need no more registers than they may, and spill none."""
    plans = [plan_of(name, {"N": N}, 1, shuffle=True, blocks=1, **values) for N, values, _ in DESIGNS]
    made = compiled_stages([plan.stages[0] for plan in plans], architecture, cubins)
    for plan, result, (_, _, most) in zip(plans, made, DESIGNS, strict=True):
        resources, declared = result.resources, plan.stages[0].declared
        assert declared is not None
        assert (resources.spill_bytes, resources.local_bytes) == (0, 0), plan.label()
        assert resources.registers_per_thread <= most, plan.label()
        assert resources.static_shared_bytes <= declared.static_shared_bytes, plan.label()
        assert resources.registers_per_thread <= 1.2 * declared.registers_per_thread, plan.label()


def occupied(configuration: Configuration) -> int:
    """Threads whose shared memory fits on a multiprocessor of compute capability 9.0."""
    plan = KERNELS["scan-lf"].plan(KERNELS["scan-lf"].workload({"N": 2048}), configuration)
    stage = plan.stages[0]
    assert stage.declared is not None
    taken = stage.shared_bytes + stage.declared.static_shared_bytes + 1024
    return 228 * 1024 // (-(-taken // 128) * 128) * stage.threads_per_block


def test_cap_holds_as_many_threads_as_it_says() -> None:
    """Spare shared memory lets in the threads asked for, and not a block more."""
    space = KERNELS["scan-lf"].space(KERNELS["scan-lf"].workload({"N": 2048}))
    capped = [configuration for configuration in space if configuration["cap"]]
    assert {c["cap"] for c in capped} >= {512, 1024, 1536}
    for configuration in capped:
        assert occupied(configuration) == configuration["cap"], configuration
