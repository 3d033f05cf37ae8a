"""The FFT kernel: right on the host in every order of its threads, and lean as compiled."""

import math
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
from tuner.model.plan import Configuration, Plan, TunableValue
from tuner.problems.base import poison
from tuner.problems.lookup import problem_for

KERNEL = load_kernel_file(Path(__file__).parents[2] / "kernels" / "fft" / "kernel.toml")
SIZES = [int(N) for N in KERNEL.sizes["N"]]
DIRECTIONS = ("forward", "inverse")
Array = npt.NDArray[Any]
Arrays = dict[str, Array]
SAMPLE = 1
ROUNDING = 2**-24
SEED = 4

# What was fastest on an H200, or within 3 % of that, and the registers that let 16 Ki points, or as many
# threads as the compiler is asked for, be in flight.
DESIGNS: list[tuple[dict[str, TunableValue], int]] = [
    ({"N": 64, "P": 4, "L": 64, "r": 4}, 36),
    ({"N": 64, "P": 8, "L": 32, "r": 8}, 40),
    ({"N": 128, "P": 4, "L": 128, "r": 4}, 36),
    ({"N": 128, "P": 8, "L": 32, "r": 8}, 40),
    ({"N": 256, "P": 8, "L": 64, "r": 8, "blocks": 24}, 40),
    ({"N": 512, "P": 8, "L": 64, "r": 8, "blocks": 24}, 40),
    ({"N": 1024, "P": 8, "L": 128, "r": 8, "S": 512, "blocks": 12}, 40),
    ({"N": 1024, "P": 16, "L": 64, "r": 16, "blocks": 16}, 64),
    ({"N": 2048, "P": 8, "L": 256, "r": 8, "blocks": 6}, 40),
    ({"N": 2048, "P": 32, "L": 128, "r": 32, "blocks": 4}, 128),
    ({"N": 4096, "P": 16, "L": 256, "r": 16, "blocks": 4}, 64),
    ({"N": 4096, "P": 32, "L": 128, "r": 32, "order": "falling", "blocks": 4}, 128),
    ({"N": 8192, "P": 16, "L": 512, "r": 16, "order": "falling", "blocks": 2}, 64),
    ({"N": 8192, "P": 32, "L": 256, "r": 32, "order": "rising", "blocks": 2}, 128),
]

needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def allowed(N: int) -> float:
    """Six roundings: the bound of the kernel's description, 1e-7 log2 N, or less."""
    return min(6 * ROUNDING, 1e-7 * math.log2(N))


def plan_of(N: int, batch: int, configuration: Configuration, direction: str = "forward") -> Plan:
    return KERNEL.plan(KERNEL.workload({"N": N, "direction": direction}, batch), configuration)


def odd_batch(N: int) -> int:
    """One problem more than two blocks of any configuration hold, as far as they share blocks."""
    return min(2 * max(2 * N, 512) // N + 1, 65)


def features(configuration: Configuration) -> set[tuple[str, TunableValue]]:
    """What makes other code on the host: neither the block size nor a bound of registers does."""
    found = {(name, configuration[name]) for name in ("P", "r", "order", "shuffle", "padding")}
    points = int(configuration["P"]) * int(configuration["L"])
    return {*found, ("split", 2 * int(configuration["S"]) == points)}


def sample(N: int) -> list[Configuration]:
    """The default and seeded random configurations that together have every feature of the space."""
    workload = KERNEL.workload({"N": N})
    space = [configuration for configuration in KERNEL.space(workload) if configuration["blocks"] == 0]
    rng = np.random.default_rng(SEED + N)
    shuffled = [space[i] for i in rng.permutation(len(space))]
    chosen = [KERNEL.default(workload), *shuffled[:SAMPLE]]
    unseen = set().union(*map(features, space)) - set().union(*map(features, chosen))
    while unseen:
        best = max(shuffled, key=lambda c: len(unseen & features(c)))
        chosen.append(best)
        unseen -= features(best)
    return list(dict.fromkeys(chosen))


def plans(N: int, batch: int) -> list[Plan]:
    """Plans of the sample, in both directions by turns."""
    made = [plan_of(N, batch, c, DIRECTIONS[i % 2]) for i, c in enumerate(sample(N))]
    host_build.build_plans(made)
    return made


def signals(plan: Plan, seed: int) -> Arrays:
    problem = problem_for(plan.problem)
    x = problem.inputs(np, np.random.default_rng(seed), plan.buffers, dict(plan.workload.sizes))["x"]
    x.flags.writeable = False
    y = np.empty_like(x)
    poison(y)
    return {"x": x, "y": y}


def transformed(plan: Plan, x: Array) -> Array:
    y = np.empty_like(x)
    poison(y)
    host_build.run_plan(plan, {"x": x, "y": y})
    return y


def relative_error(plan: Plan, arrays: Arrays) -> Any:
    """Relative L2 error of each row."""
    inverse = dict(plan.workload.sizes)["direction"] == "inverse"
    transform = np.fft.ifft if inverse else np.fft.fft
    reference = transform(arrays["x"].astype(np.complex128), axis=1)
    return np.linalg.norm(arrays["y"] - reference, axis=1) / np.linalg.norm(reference, axis=1)


@needs_compiler
@pytest.mark.parametrize("N", SIZES)
def test_transforms_are_right_to_rounding(N: int) -> None:
    """A sample of the space answers within 1e-7 log2 N, in every order, also in blocks not filled."""
    for plan in plans(N, odd_batch(N)):
        arrays = signals(plan, N)
        for order in host_build.ORDERS:
            poison(arrays["y"])
            host_build.run_plan(plan, arrays, order=order, seed=N)
            assert relative_error(plan, arrays).max() < allowed(N), (plan.label(), order)


@needs_compiler
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("N", [64, 512, 8192])
def test_answers_pass_the_checks_of_their_problem(N: int, direction: str) -> None:
    """What the kernel computes passes both checks of its problem, and none of the other direction."""
    plan = plan_of(N, 3, KERNEL.default(KERNEL.workload({"N": N})), direction)
    arrays = signals(plan, 1)
    host_build.run_plan(plan, arrays)
    problem = problem_for(plan.problem)
    inputs, outputs = {"x": arrays["x"]}, {"y": arrays["y"]}
    for asked in DIRECTIONS:
        sizes: dict[str, int | str] = {"N": N, "direction": asked}
        assert problem.compare(inputs, outputs, sizes).ok is (asked == direction)
        assert problem.residual(np, inputs, outputs, sizes).ok is (asked == direction)


@needs_compiler
@pytest.mark.parametrize("N", [2, 64, 512])
def test_single_problem_leaves_the_rest_of_its_block_alone(N: int) -> None:
    """A batch of one is transformed by blocks made for several, and nothing else is read or written."""
    for plan in plans(N, 1):
        arrays = signals(plan, 2)
        host_build.run_plan(plan, arrays, order="reverse")
        assert relative_error(plan, arrays).max() < allowed(N), plan.label()


@needs_compiler
@pytest.mark.parametrize("N", [64, 1024])
def test_problems_do_not_touch_each_other(N: int) -> None:
    """A problem full of NaN leaves its neighbours in the same warp and block right."""
    for plan in plans(N, odd_batch(N)):
        arrays = signals(plan, 3)
        arrays["x"].flags.writeable = True
        arrays["x"][2] = np.nan
        host_build.run_plan(plan, arrays, order="shuffle", seed=1)
        errors = relative_error(plan, arrays)
        assert np.isnan(errors[2])
        assert np.delete(errors, 2).max() < allowed(N), plan.label()


# --- laws ----------------------------------------------------------------------------------------

seeds = st.integers(0, 2**32 - 1)
designs = st.sampled_from([64, 1024]).flatmap(lambda N: st.tuples(st.just(N), st.sampled_from(sample(N)[:3])))


def rows(N: int, seed: int, count: int = 2) -> Array:
    parts = np.random.default_rng(seed).standard_normal((2, count, N))
    x: Array = (parts[0] + 1j * parts[1]).astype(np.complex64)
    return x


def distance(one: Array, other: Array) -> float:
    """Relative L2 distance of two arrays of rows."""
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


@needs_compiler
@FEW
@given(designs, seeds)
def test_transform_and_inverse_cancel(design: tuple[int, Configuration], seed: int) -> None:
    """What is transformed there and back, by whatever configuration, is what it was."""
    N, configuration = design
    x = rows(N, seed)
    there, back = (plan_of(N, len(x), configuration, direction) for direction in DIRECTIONS)
    assert distance(transformed(back, transformed(there, x)), x) < 2 * allowed(N)
    assert distance(transformed(there, transformed(back, x)), x) < 2 * allowed(N)


@needs_compiler
@FEW
@given(designs, seeds, st.sampled_from(DIRECTIONS), st.floats(-4, 4), st.floats(-4, 4))
def test_transforms_are_linear(
    design: tuple[int, Configuration], seed: int, direction: str, real: float, imaginary: float
) -> None:
    """The transform of x + c z is that of x plus c times that of z."""
    N, configuration = design
    c = np.complex64(complex(real, imaginary))
    x, z = rows(N, seed), rows(N, seed + 1)
    plan = plan_of(N, len(x), configuration, direction)
    sums = transformed(plan, x) + c * transformed(plan, z)
    assert distance(transformed(plan, x + c * z), sums) < 4 * allowed(N)


@needs_compiler
@FEW
@given(designs, seeds, st.sampled_from(DIRECTIONS))
def test_energy_is_kept(design: tuple[int, Configuration], seed: int, direction: str) -> None:
    """Parseval's law: a row's norm grows by the root of N, or inversely shrinks by it."""
    N, configuration = design
    x = rows(N, seed)
    y = transformed(plan_of(N, len(x), configuration, direction), x)
    factor = np.sqrt(N if direction == "forward" else 1 / N)
    np.testing.assert_allclose(np.linalg.norm(y, axis=1), factor * np.linalg.norm(x, axis=1), rtol=allowed(N))


@needs_compiler
@FEW
@given(designs, st.integers(0, 1023), st.sampled_from(DIRECTIONS))
def test_an_impulse_becomes_a_tone(design: tuple[int, Configuration], at: int, direction: str) -> None:
    """Every single element comes out as the tone of its place, each frequency of it right to rounding."""
    N, configuration = design
    x = np.zeros((1, N), np.complex64)
    x[0, at % N] = 1
    y = transformed(plan_of(N, 1, configuration, direction), x)
    turns = np.arange(N) * (at % N) % N / N
    tone = np.exp(-2j * np.pi * turns) if direction == "forward" else np.exp(2j * np.pi * turns) / N
    assert abs(y[0] - tone).max() < 16 * ROUNDING * abs(tone[0])


# --- the space -----------------------------------------------------------------------------------


@pytest.mark.parametrize("N", SIZES)
def test_space_is_one_to_search(N: int) -> None:
    """Every size has some hundred configurations, or what there is of tiny ones, the default one of them."""
    workload = KERNEL.workload({"N": N})
    space = KERNEL.space(workload)
    assert (90 if N >= 64 else 1) <= len(space) <= 240
    assert KERNEL.default(workload) in space


@pytest.mark.parametrize("N", SIZES)
def test_default_fits_every_gpu(N: int) -> None:
    """The default needs no more than the 48 KiB of shared memory that every GPU gives a block."""
    plan = plan_of(N, 1, KERNEL.default(KERNEL.workload({"N": N})))
    assert plan.stages[0].shared_bytes <= 48 * 1024


def design_of(chosen: dict[str, TunableValue]) -> tuple[int, Configuration]:
    N, points = int(chosen["N"]), int(chosen["P"]) * int(chosen["L"])
    rest: dict[str, TunableValue] = {
        "order": "first",
        "S": points,
        "shuffle": False,
        "padding": "stage",
        "blocks": 0,
    }
    values = {**rest, **chosen}
    return N, Configuration({name: values[name] for name in KERNEL.tunables})


for_architectures = pytest.mark.parametrize("architecture", ["sm_53", "sm_87", "sm_90"])


@for_architectures
def test_known_designs_are_in_the_space_and_keep_to_their_registers(architecture: str, cubins: Path) -> None:
    """What was fastest on an H200 can be found, without spills and with as much in flight as made it fast."""
    made = [design_of(chosen) for chosen, _ in DESIGNS]
    for N, configuration in made:
        assert configuration in KERNEL.space(KERNEL.workload({"N": N})), configuration
    stages = [plan_of(N, 1, configuration).stages[0] for N, configuration in made]
    results = compiled_stages(stages, architecture, cubins)
    for stage, (chosen, most), result in zip(stages, DESIGNS, results, strict=True):
        assert (result.resources.spill_bytes, result.resources.local_bytes) == (0, 0), chosen
        assert result.resources.registers_per_thread <= most, (stage.entry, result.resources)


@for_architectures
def test_declared_resources_are_near_the_compiled_ones(architecture: str, cubins: Path) -> None:
    """Long transforms take a third more registers than declared at most, and no static shared memory."""
    chosen = [plan_of(8192, 1, configuration) for configuration in sample(8192)]
    results = compiled_stages([plan.stages[0] for plan in chosen], architecture, cubins)
    for plan, result in zip(chosen, results, strict=True):
        made, declared = result.resources, plan.stages[0].declared
        assert declared is not None
        assert made.static_shared_bytes == 0, plan.label()
        assert made.registers_per_thread <= declared.registers_per_thread * 1.35, plan.label()
