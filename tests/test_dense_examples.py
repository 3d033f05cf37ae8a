"""The examples whose answers no formula over elements states: compiled, and held to NumPy on the host."""

from pathlib import Path

import host_build
import numpy as np
import pytest
from host_build import CHECKED
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from pairwise import pairwise

from tuner.compiler import CompiledStage, Compiler
from tuner.config import load_kernel_file
from tuner.errors import CompilerUnavailableError
from tuner.model import Configuration, Plan, Workload
from tuner.problems import problem_for
from tuner.problems.base import agreement

EXAMPLES = Path(__file__).parents[1] / "examples"
KERNELS = {name: load_kernel_file(EXAMPLES / name / "kernel.toml") for name in ("convolution", "matmul")}
SIDES = {"convolution": 4096, "matmul": 2048}
CONFIGURATIONS = {"convolution": 368, "matmul": 189}
ARCHITECTURES = (53, 72, 87, 90)  # Jetson TX1, Xavier, Orin, Hopper
ODD = 41  # a side of no tile: blocks of three by three tiles at most, the last ones not full


def workload(name: str, side: int) -> Workload:
    return KERNELS[name].workload({"N": side})


def sample(name: str, side: int) -> list[Configuration]:
    """The default and configurations that hold each value of each tunable."""
    kernel = KERNELS[name]
    default = kernel.default(workload(name, side))
    return pairwise(list(kernel.space(workload(name, side))), first=[default], together=1)


def reference(name: str, inputs: dict[str, NDArray[np.float32]]) -> NDArray[np.float64]:
    """The answer in float64."""
    wide = {key: value.astype(np.float64) for key, value in inputs.items()}
    if name == "matmul":
        product: NDArray[np.float64] = wide["A"] @ wide["B"]
        return product
    windows = sliding_window_view(wide["image"], wide["weights"].shape)
    return np.asarray(np.einsum("yxij,ij->yx", windows, wide["weights"]))


def answer_of(plan: Plan, inputs: dict[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    (output,) = host_build.run_plan_on_host(plan, inputs, flags=CHECKED, order="shuffle").values()
    return np.asarray(output)


@pytest.mark.parametrize("name", KERNELS)
def test_spaces_have_the_size_that_is_published(name: str) -> None:
    """The benchmarks' spaces are those that their tables name."""
    assert len(KERNELS[name].space(workload(name, SIDES[name]))) == CONFIGURATIONS[name]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", KERNELS)
def test_values_compile_as_declared(name: str, architecture: int, cubins: Path) -> None:
    """Any value of a tunable compiles for devices old and new, with the shared memory that is declared."""
    kernel, at = KERNELS[name], workload(name, SIDES[name])
    stages = [stage for one in sample(name, SIDES[name]) for stage in kernel.plan(at, one).stages]
    try:
        with Compiler(f"sm_{architecture}", cubins) as nvrtc:
            made = nvrtc.compile(stages)
    except CompilerUnavailableError as e:
        pytest.skip(str(e))
    for stage, result in zip(stages, made, strict=True):
        assert isinstance(result, CompiledStage), str(result)
        assert stage.declared is not None
        assert result.resources.static_shared_bytes == stage.declared.static_shared_bytes


@pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", KERNELS)
def test_values_answer_as_numpy_does(name: str) -> None:
    """Any value of a tunable gives NumPy's answer at a side that fills no tile, without races or strays."""
    kernel, at = KERNELS[name], workload(name, ODD)
    plans = [kernel.plan(at, configuration) for configuration in sample(name, ODD)]
    host_build.build_plans(plans, CHECKED)
    problem = problem_for(plans[0].problem)
    inputs = problem.inputs(np, np.random.default_rng(1), plans[0].buffers, dict(at.sizes))
    right = reference(name, inputs)
    for plan in plans:
        given = answer_of(plan, inputs)
        assert agreement(right, given, plan.problem.tolerance, "out").ok, plan.label()


@pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", KERNELS)
def test_a_wrong_element_is_noticed(name: str) -> None:
    """The tolerance that rounding needs lets no wrong element pass."""
    plan = KERNELS[name].plan(workload(name, ODD), KERNELS[name].default(workload(name, ODD)))
    problem = problem_for(plan.problem)
    inputs = problem.inputs(np, np.random.default_rng(1), plan.buffers, {"N": ODD})
    given = answer_of(plan, inputs)
    given[-1, -1] *= 1.001
    assert not agreement(reference(name, inputs), given, plan.problem.tolerance, "out").ok
