"""Scans of segments, told by flags or by offsets: right on the host wherever segments begin, and apart."""

import random
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import numpy.typing as npt
import pytest
from compiled_stages import compiled_stages
from host_build import CHECKED, FLAGS, ORDERS, Order
from long_scans import DTYPES, FORMS, OPERATORS, WAYS, error, numbers

from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.elements import bfloat16_bits, bfloat16_values
from tuner.model.plan import Plan, TunableValue

Array = npt.NDArray[Any]
FOLDER = Path(__file__).parents[2] / "kernels"
KERNELS = {name: load_kernel_file(FOLDER / name / "kernel.toml") for name in ("scan-flags", "scan-offsets")}
LONG = 9001  # several tiles, the last not full
ENDS = 40  # offsets of a row
TILES: dict[str, TunableValue] = {"P": 4, "L": 256, "stay": False}

needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def plan_of(name: str, sizes: dict[str, int | str], batch: int, **values: TunableValue) -> Plan:
    """The first configuration of a kernel's space that has these values."""
    kernel = KERNELS[name]
    ends = {"ends": ENDS} if "ends" in kernel.sizes else {}
    workload = kernel.workload({**ends, **sizes}, batch)
    return kernel.plan(workload, next(c for c in kernel.space(workload) if values.items() <= dict(c).items()))


def run(plan: Plan, x: Array, segments: Array, order: Order = "shuffle", flags: Any = FLAGS) -> Array:
    """The scan of rows, as numbers; those of bfloat16 are given and taken as float32."""
    bits = plan.buffers[0].dtype == "bfloat16"
    name = plan.buffers[1].name
    given = {"x": bfloat16_bits(x) if bits else x, name: segments}
    y = host_build.run_plan_on_host(plan, given, order=order, flags=flags)["y"]
    return bfloat16_values(y) if bits else y


def offsets_of(batch: int, length: int, dtype: str, seed: int) -> Array:
    """Rows of offsets with empty segments at both ends, and several times in between."""
    inner = np.random.default_rng(seed).integers(0, length + 1, (batch, ENDS - 4))
    inner[:, :3], inner[:, 3:5] = length // 2, 1024  # one at the edge of a tile
    edges = np.zeros((batch, 2), int), np.full((batch, 2), length)
    return np.sort(np.concatenate([*edges, inner], axis=1), axis=1).astype(dtype)


def heads_of(offsets: Array, length: int) -> Array:
    heads = np.zeros((len(offsets), length), bool)
    for row, begins in zip(heads, offsets, strict=True):
        row[begins[begins < length]] = True
    return heads


def sampled(name: str, count: int) -> list[Plan]:
    """Configurations of random types, operators and forms; every type and operator comes."""
    rng = random.Random(name)  # noqa: S311 - reproducible
    plans = []
    for k in range(count):
        sizes: dict[str, int | str] = {
            "N": rng.choice([31, 1000, LONG]),
            "dtype": DTYPES[k % len(DTYPES)],
            "operator": OPERATORS[k % len(OPERATORS)],
            "form": rng.choice(FORMS),
            "direction": rng.choice(WAYS),
        }
        plans.append(plan_of(name, sizes, rng.choice([1, 3]), stay=k % 2 == 0))
    return plans


@needs_compiler
@pytest.mark.parametrize("name", KERNELS)
def test_segments_are_right_in_every_type(name: str) -> None:
    """In any type, form and direction segments are right to rounding, or exact, in every order of threads."""
    plans = sampled(name, 8)
    host_build.build_plans(plans)
    for k, plan in enumerate(plans):
        x, second = numbers(plan, k), plan.buffers[1]
        if name == "scan-flags":
            density = [0.3, 0.001, 0.0, 1.0][k % 4]
            segments = (np.random.default_rng(k).random(x.shape) < density).astype(np.uint8) * 3
            heads = segments != 0
        else:
            segments = offsets_of(x.shape[0], x.shape[1], second.dtype, k)
            heads = heads_of(segments, x.shape[1])
        y = run(plan, x, segments, ORDERS[k % len(ORDERS)])
        assert error(plan, x, y, heads) <= 1, (str(plan.workload), plan.label())


@needs_compiler
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("operator", ["sum", "product"])
def test_extremes_stay_in_their_segment(name: str, way: str, operator: str) -> None:
    """Infinities, NaN, overflow and underflow of a segment leave all others as they are, to the last bit."""
    plan = plan_of(name, {"N": LONG, "operator": operator, "direction": way}, 1, **TILES)
    x = numbers(plan, 1)
    heads = np.zeros(x.shape, np.uint8)
    heads[0, [2000, 5000]] = 1  # the segment between has whole tiles and parts of two
    offsets = np.sort(np.append(np.repeat([0, 2000, 5000], 12), [LONG] * 4)).astype(np.int32)[None]
    segments = heads if name == "scan-flags" else offsets
    whole = run(plan, x, segments)
    inside = np.zeros(LONG, bool)
    inside[2000:5000] = True
    for extreme in (np.inf, np.nan, 3e38, 1e-42):
        spoilt = x.copy()
        spoilt[0, 2000:5000] = extreme
        y = run(plan, spoilt, segments)
        np.testing.assert_array_equal(y[:, ~inside], whole[:, ~inside])
        if extreme != 1e-42:
            assert not np.isfinite(y[0, 3000:4000]).any()


@needs_compiler
def test_whatever_offsets_hold_no_other_memory_is_touched() -> None:
    """Offsets that fall, or lie outside of the row, make wrong sums and no stray access."""
    plan = plan_of("scan-offsets", {"N": 3000, "direction": "reverse"}, 2, P=8, L=128, stay=True)
    x = numbers(plan, 2)
    limits = np.iinfo(np.int32)
    wild = np.random.default_rng(3).integers(limits.min, limits.max, (2, ENDS)).astype(np.int32)
    wild[1] = np.arange(ENDS)[::-1] * 100 - 50
    y = run(plan, x, wild, flags=CHECKED)
    assert np.isfinite(y).all()


def test_spaces_are_worth_a_search() -> None:
    """Every length and type has its default in its space, and every tunable several values there."""
    for kernel in KERNELS.values():
        ends = {"ends": 1000} if "ends" in kernel.sizes else {}
        for N in [2, 3, 8191, 2**31 - 1]:
            for dtype in DTYPES:
                workload = kernel.workload({"N": N, "dtype": dtype, **ends}, 1)
                space = kernel.space(workload)
                assert kernel.default(workload) in space
                assert 40 <= len(space) <= 1000
        for tunable in kernel.tunables:
            assert len({configuration.get(tunable) for configuration in space}) >= 2, tunable


def test_defaults_spill_nothing(cubins: Path) -> None:
    """The default of every type fits the registers of old and new GPUs, and shared memory is as declared."""
    plans = []
    for kernel in KERNELS.values():
        ends = {"ends": 1000} if "ends" in kernel.sizes else {}
        for k, (dtype, operator) in enumerate(zip(DTYPES, OPERATORS * 2, strict=False)):
            sizes = {"operator": operator, "form": FORMS[k % 2], "direction": WAYS[k // 4]}
            workload = kernel.workload({"N": 2**24, "dtype": dtype, **sizes, **ends}, 1)
            plans.append(kernel.plan(workload, kernel.default(workload)))
    for architecture, some in (("sm_53", plans[::3]), ("sm_90", plans)):
        made = compiled_stages([plan.stages[0] for plan in some], architecture, cubins)
        for plan, result in zip(some, made, strict=True):
            resources, declared = result.resources, plan.stages[0].declared
            assert declared is not None
            assert (resources.spill_bytes, resources.local_bytes) == (0, 0), plan.label()
            assert resources.static_shared_bytes <= declared.static_shared_bytes, plan.label()
            assert resources.registers_per_thread <= 96, plan.label()
